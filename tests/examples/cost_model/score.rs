//! How near the cost model comes: over kernels, and over opts of one kernel.

use super::{Job, Times};
use gradloom_core::codegen::cost::cost;
use gradloom_core::target::Target;
use std::collections::BTreeMap;

/// A program with what was said and what was measured, in nanoseconds.
struct Row<'a> {
    job: &'a Job,
    said: f64,
    took: f64,
}

impl Row<'_> {
    /// How many times too much, or too little.
    fn off(&self) -> f64 {
        (self.said / self.took).max(self.took / self.said)
    }
}

/// Prints the table for a target.
pub(crate) fn score(jobs: &[Job], t: &Target, times: &Times, title: &str) {
    let row = |job| {
        let job: &Job = job;
        Some(Row { job, said: cost(&job.program, t).ns, took: *times.get(&job.key)? })
    };
    let all: Vec<Row<'_>> = jobs.iter().filter_map(row).collect();
    let chosen: Vec<&Row<'_>> = all.iter().filter(|r| r.job.chosen).collect();
    let within = |f: f64| 100.0 * chosen.iter().filter(|r| r.off() <= f).count() as f64 / chosen.len().max(1) as f64;
    let correlation = spearman(&chosen);
    println!("{title}: {} kernels, rank correlation {correlation:.3}", chosen.len());
    println!("within 1.5x {:.0}%, 2x {:.0}%, 3x {:.0}%", within(1.5), within(2.0), within(3.0));
    let mut worst = chosen.clone();
    worst.sort_by(|a, b| b.off().total_cmp(&a.off()));
    println!("{:>10} {:>10} {:>6}  kernel", "said us", "took us", "ratio");
    for r in worst.iter().take(20) {
        let (said, took) = (r.said / 1e3, r.took / 1e3);
        let bound = cost(&r.job.program, t).bound;
        println!(
            "{said:10.2} {took:10.2} {:6.2}  {} {}, bound by {bound}",
            said / took,
            r.job.from,
            r.job.program.name
        );
    }
    alternatives(&all);
}

/// Kendall's tau of the opts of each kernel, and the time of what the model likes best over the best time.
fn alternatives(all: &[Row<'_>]) {
    let mut groups: BTreeMap<usize, Vec<&Row<'_>>> = BTreeMap::new();
    for r in all {
        groups.entry(r.job.kernel).or_default().push(r);
    }
    groups.retain(|_, rows| rows.len() > 3);
    let (mut taus, mut regrets, mut chosen) = (Vec::new(), Vec::new(), Vec::new());
    for rows in groups.values() {
        let (mut sum, mut pairs) = (0.0, 0.0);
        for (i, a) in rows.iter().enumerate() {
            for b in &rows[i + 1..] {
                // times nearer than that may be noise
                if (a.took / b.took).ln().abs() > 0.05 {
                    pairs += 1.0;
                    sum += if (a.said < b.said) == (a.took < b.took) { 1.0 } else { -1.0 };
                }
            }
        }
        if pairs > 0.0 {
            taus.push(sum / pairs);
        }
        let best = rows.iter().map(|r| r.took).fold(f64::INFINITY, f64::min);
        let favourite = rows.iter().min_by(|a, b| a.said.total_cmp(&b.said)).map_or(best, |r| r.took);
        regrets.push(favourite / best);
        chosen.extend(rows.iter().find(|r| r.job.chosen).map(|r| r.took / best));
    }
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
    let geometric = |v: &[f64]| mean(&v.iter().map(|x| x.ln()).collect::<Vec<_>>()).exp();
    let at = |v: &mut Vec<f64>, part: f64| {
        v.sort_by(f64::total_cmp);
        v.get((v.len() as f64 * part) as usize).copied().unwrap_or(1.0)
    };
    println!(
        "opts of {} kernels: Kendall's tau {:.2}; time of the model's favourite over the best {:.2} (nine of ten below {:.2}), of the heuristic's {:.2}",
        groups.len(),
        mean(&taus),
        geometric(&regrets),
        at(&mut regrets.clone(), 0.9),
        geometric(&chosen)
    );
}

/// The correlation of ranks.
fn spearman(rows: &[&Row<'_>]) -> f64 {
    let ranks = |value: fn(&Row<'_>) -> f64| {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|&a, &b| value(rows[a]).total_cmp(&value(rows[b])));
        let mut rank = vec![0.0; rows.len()];
        order.iter().enumerate().for_each(|(place, &i)| rank[i] = place as f64);
        rank
    };
    let (a, b) = (ranks(|r| r.said), ranks(|r| r.took));
    let n = rows.len() as f64;
    let d: f64 = a.iter().zip(&b).map(|(x, y)| (x - y) * (x - y)).sum();
    1.0 - 6.0 * d / (n * (n * n - 1.0)).max(1.0)
}
