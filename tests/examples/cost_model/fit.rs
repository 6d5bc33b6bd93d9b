//! Prices that fit times best: each in turn is made larger or smaller while that helps. A start for the numbers of another machine, not
//! their proof: classes that always come together share their price in any way.

use super::score::score;
use super::{Job, Times};
use gradloom_core::codegen::cost::cost;
use gradloom_core::target::{Prices, Target};

/// Steps by which prices are changed, one round each.
const STEPS: [f64; 6] = [1.5, 1.25, 1.25, 1.1, 1.1, 1.05];
/// The weight of a kernel with other opts than those chosen.
const OTHER: f64 = 0.4;
/// What it costs for a price to be off its first value by a factor of e.
const FAR: f64 = 0.001;

/// The prices that are fitted, by name. `cycle` only scales others, `warp` and `busy` are what they are.
fn fields(m: &mut Prices) -> Vec<(&'static str, &mut f64)> {
    let Prices {
        launch,
        fork_join,
        argument,
        cycle: _,
        arithmetic,
        multiply_add,
        divide,
        integer_divide,
        scalar,
        horizontal_step,
        ..
    } = m;
    let mut list = vec![
        ("launch", launch),
        ("meet", fork_join),
        ("argument", argument),
        ("arithmetic", arithmetic),
        ("multiply_add", multiply_add),
        ("divide", divide),
        ("integer_divide", integer_divide),
        ("scalar", scalar),
        ("fold", horizontal_step),
        ("vector_load", &mut m.vector_load),
        ("broadcast", &mut m.broadcast),
        ("element_load", &mut m.element_load),
        ("permuted_load", &mut m.permuted_load),
        ("guard", &mut m.guard),
        ("vector_store", &mut m.vector_store),
        ("element_store", &mut m.element_store),
        ("spill", &mut m.spill),
        ("turn", &mut m.loop_overhead),
        ("latency", &mut m.latency),
        ("walk", &mut m.store_to_load_latency),
        ("mixed", &mut m.mixed),
        ("overlap", &mut m.overlap),
        ("group", &mut m.group),
    ];
    for (names, (bytes, ns)) in [["L1", "into L1"], ["L2", "into L2"], ["L3", "of memory"]].iter().zip(&mut m.caches) {
        list.extend([(names[0], bytes), (names[1], ns)]);
    }
    list
}

/// A machine's prices live as long as the process: some thousands are tried.
fn leaked(m: &Prices) -> &'static Prices {
    Box::leak(Box::new(*m))
}

fn loss(rows: &[(&Job, f64)], t: &Target, m: &Prices) -> f64 {
    let t = Target { machine: gradloom_core::target::Machine { prices: leaked(m), ..t.machine }, ..t.clone() };
    let (mut sum, mut n) = (0.0, 0.0);
    for (job, took) in rows {
        let off = (cost(&job.program, &t).ns / took).ln().abs();
        let weight = if job.chosen { 1.0 } else { OTHER };
        sum += weight * (off + 1.5 * (off - 2f64.ln()).max(0.0));
        n += weight;
    }
    sum / n
}

/// Prints prices, and how near they come.
pub(crate) fn fit(jobs: &[Job], t: &Target, times: &Times) {
    let rows: Vec<(&Job, f64)> = jobs.iter().filter_map(|j| Some((j, *times.get(&j.key)?))).collect();
    let mut m = *t.machine.prices;
    let first = m;
    let far = |m: &Prices| {
        let (mut a, mut b) = (*m, first);
        let pairs =
            fields(&mut a).into_iter().zip(fields(&mut b)).map(|(x, y)| ((*x.1 + 1e-9) / (*y.1 + 1e-9)).ln().abs());
        pairs.sum::<f64>() * FAR
    };
    let mut best = loss(&rows, t, &m);
    for step in STEPS {
        for i in 0..fields(&mut m).len() {
            for by in [step, 1.0 / step] {
                loop {
                    let mut other = m;
                    let field = &mut fields(&mut other)[i];
                    *field.1 *= by;
                    if matches!(field.0, "mixed" | "overlap") {
                        *field.1 = field.1.min(1.0);
                    }
                    let now = loss(&rows, t, &other) + far(&other);
                    if now >= best - 1e-6 {
                        break;
                    }
                    (best, m) = (now, other);
                }
            }
        }
        eprintln!("step {step}: {best:.4}");
    }
    for (name, value) in fields(&mut m) {
        println!("{name}: {value:.4}");
    }
    let fitted = Target { machine: gradloom_core::target::Machine { prices: leaked(&m), ..t.machine }, ..t.clone() };
    score(jobs, &fitted, times, "fitted");
}
