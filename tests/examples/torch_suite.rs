//! torch's operator tests on a device: `torch_suite [DEVICE] [FILTER] [EVERY] [FROM]`. A line for each sample and element type (pass,
//! refused, WRONG or BROKEN, the operator, its line among the samples, the type, the reason) and a summary; fails if anything is
//! wrong or broken. Only every so many-th sample, and those from a line on, if numbers say so. `torch_suite --groups` prints what groups the operators are in.

use gradloom::NativeHost;
use gradloom_core::Session;
use gradloom_core::engine::Engine;
use gradloom_core::tensor::call::groups;
use gradloom_tests::opinfo::{Outcome, run, samples};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Samples that one engine runs.
const ROUND: usize = 200;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let device = args.first().map_or("cpu", String::as_str);
    if device == "--groups" {
        for (group, rows) in groups() {
            rows.iter().flat_map(|r| r.names).for_each(|name| println!("{name}\t{group}"));
        }
        return ExitCode::SUCCESS;
    }
    let filter = args.get(1).map_or("", String::as_str);
    let every = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(1);
    let from: usize = args.get(3).and_then(|n| n.parse().ok()).unwrap_or(0);
    std::panic::set_hook(Box::new(|p| eprintln!("{p}")));
    let mut count: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let picked: Vec<_> =
        samples().into_iter().filter(|s| s.name.contains(filter) && s.line >= from).step_by(every).collect();
    for round in picked.chunks(ROUND) {
        let opened = match gradloom::open(device, 2) {
            Ok(d) => d,
            Err(e) => {
                eprintln!("{e}");
                return ExitCode::from(2);
            }
        };
        let (session, mut engine) = (Session::new(), Engine::with_host(opened, Box::new(NativeHost::without_cache())));
        for s in round {
            for &dtype in s.dtypes() {
                let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut engine, &session, *s, dtype)));
                let outcome = outcome.unwrap_or_else(|_| Outcome::Broken("a panic".into()));
                let (what, why) = outcome.words();
                println!("{what} {} {} {dtype} {}", s.name, s.line, why.replace('\n', " "));
                *count.entry((dtype.to_string(), what)).or_default() += 1;
            }
        }
    }
    let mut bad = false;
    for ((dtype, what), n) in &count {
        println!("{dtype}: {n} {what}");
        bad |= what.chars().all(char::is_uppercase);
    }
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
