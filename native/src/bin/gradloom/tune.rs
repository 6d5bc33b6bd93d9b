//! `gradloom tune`: searches for faster kernels of a model on this machine.

use super::json::Json;
use super::style::{self, Styled};
use super::{Cache, Failure, Job, Outcome, Progress, files};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn tune(job: &Job, budget: f64, save: Option<&Path>, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let budget = Duration::try_from_secs_f64(budget).map_err(|e| Failure(format!("--budget: {e}")))?;
    let mut model = job.open(cache, progress)?;
    let inputs = files::inputs_or_zeros(&job.given, model.model(), progress)?;
    let start = Instant::now();
    let list = model.tune(&files::borrowed(&inputs), budget, |t| {
        let (before, after) = (t.before * 1e6, t.after * 1e6);
        let gain = Styled(if t.gained() { style::GOOD } else { style::FAINT }, t.before / t.after);
        progress.say(format_args!(
            "{:4} x {before:9.1} us -> {after:9.1} us  {gain:5.2}  {} tried, {} wrong  {}",
            t.calls,
            t.trials,
            t.wrong,
            Styled(style::NAME, &t.name)
        ));
    })?;
    if let Some(file) = save {
        write(file, job, &list).map_err(|e| Failure(format!("{}: {e}", file.display())))?;
    }
    let sum = |f: fn(&gradloom::tune::Tuned) -> f64| list.iter().map(|t| f(t) * t.calls as f64).sum::<f64>() * 1e3;
    let rows = list.iter().map(|t| {
        Json::from(vec![
            ("line", Json::text(&t.line)),
            ("name", Json::text(&t.name)),
            ("calls", Json::count(t.calls)),
            ("before_us", Json::Num(t.before * 1e6, 2)),
            ("after_us", Json::Num(t.after * 1e6, 2)),
            ("tried", Json::count(t.trials)),
            ("wrong", Json::count(t.wrong)),
        ])
    });
    let rows: Vec<Json> = rows.collect();
    Ok(Json::from(vec![
        ("model", Json::text(job.model.display())),
        ("seconds", Json::Num(start.elapsed().as_secs_f64(), 1)),
        ("before_ms", Json::Num(sum(|t| t.before), 4)),
        ("after_ms", Json::Num(sum(|t| t.after), 4)),
        ("kernels", Json::count(rows.len())),
        ("list", Json::List(rows)),
    ]))
}

/// Appends the lines of kernels that became faster, under the name of the model.
fn write(file: &Path, job: &Job, list: &[gradloom::tune::Tuned]) -> std::io::Result<()> {
    let lines: Vec<&str> = list.iter().filter(|t| t.gained()).map(|t| t.line.as_str()).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let mut out = std::fs::OpenOptions::new().append(true).create(true).open(file)?;
    let name = job.model.file_stem().unwrap_or_default().display();
    writeln!(out, "# {name}\n{}", lines.join("\n"))
}
