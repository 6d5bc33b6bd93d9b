//! Checks the cost model against time: `npm run bench:model`.
//!
//! `measure DEVICE THREADS FILE` times kernels on a device and keeps the least times in FILE, a line for each program. `record FOLDER`
//! writes the same kernels as one module of WebAssembly, which `tests/bench/model/run.mjs` times in Node. `score DEVICE THREADS FILE`
//! compares what the model says with the times: all kernels with the opts that were chosen, and some kernels with other opts.
#![allow(missing_docs)]

mod collect;
mod fit;
mod record;
mod score;
mod time;

use collect::Case;
use gradloom_core::codegen::axes::Kernel;
use gradloom_core::codegen::opt::actions;
use gradloom_core::codegen::{Opt, Program, compile};
use gradloom_core::device::{Device, NullDevice};
use gradloom_core::engine::Compiled;
use gradloom_core::target::Target;
use gradloom_core::uop::hash;
use gradloom_core::uop::random::Rng;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// Random blocks, and the kernels among all that are tried with other opts: so many, with so many lists each.
const BLOCKS: usize = 360;
const VARIED: usize = 100;
const LISTS: usize = 8;
/// The whole set is timed so often, since the machine may be busy for a while.
const ROUNDS: usize = 2;
/// Float operations of a kernel that an emulated GPU is given.
const MOST_EMULATED: u64 = 200_000_000;

/// A program that is timed.
pub(crate) struct Job {
    /// Which kernel, and where it comes from.
    pub(crate) kernel: usize,
    pub(crate) from: String,
    /// The heuristic's opts?
    pub(crate) chosen: bool,
    pub(crate) key: u128,
    pub(crate) program: Program,
}

pub(crate) type Times = BTreeMap<u128, f64>;

fn read(file: &str) -> Times {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = |l: &str| {
        let (key, ns) = l.split_once(' ')?;
        Some((u128::from_str_radix(key, 16).ok()?, ns.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn write(file: &str, times: &Times) {
    let text: String = times.iter().map(|(key, ns)| format!("{key:032x} {ns:.1}\n")).collect();
    std::fs::write(file, text).expect("the file is writable");
}

/// Every kernel as it is compiled, and some in other ways.
fn jobs(t: &Target) -> Vec<Job> {
    let number = |name: &str, or: usize| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
    let cases = collect::collect(t, number("BLOCKS", BLOCKS));
    let mut rng = Rng(7);
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    let every = (cases.len() / number("VARIED", VARIED).max(1)).max(1);
    for (kernel, case) in cases.iter().enumerate() {
        let Ok(program) = compile(&case.ast, t, None) else { continue };
        let opts = program.opts.clone();
        let mut add = |chosen: bool, program: Program| {
            let key = hash::key(&program.g, &program.order);
            let new = seen.insert(key);
            if new {
                out.push(Job { kernel, from: case.from.clone(), chosen, key, program });
            }
            new
        };
        if !add(true, program) || kernel % every != 0 {
            continue;
        }
        let mut lists = neighbours(case, &opts, t);
        let mut left = LISTS;
        while left > 0 && !lists.is_empty() {
            let list = lists.swap_remove(rng.below(lists.len()));
            let program = compile(&case.ast, t, Some(&list)).ok().filter(|p| fits(p, t));
            left -= usize::from(program.is_some_and(|p| add(false, p)));
        }
    }
    out
}

/// Lists of opts that a search would come to in two steps.
fn neighbours(case: &Case, opts: &[Opt], t: &Target) -> Vec<Vec<Opt>> {
    let mut out = vec![Vec::new()];
    for base in [opts.to_vec(), Vec::new()] {
        for i in 0..base.len() {
            let mut less = base.clone();
            less.remove(i);
            out.push(less);
            for other in actions::variants(&base[i], t) {
                let mut changed = base.clone();
                changed[i] = other;
                out.push(changed);
            }
        }
        let mut k = Kernel::new(&case.ast);
        k.settle_axes();
        if k.apply_all(&base, t).is_ok() {
            out.extend(actions::next(&k, t).into_iter().map(|o| [base.clone(), vec![o]].concat()));
        }
    }
    out
}

/// Does a launch of it keep to the device's limits?
fn fits(p: &Program, t: &Target) -> bool {
    let within = |have: [u32; 3], most: [u32; 3]| have.iter().zip(most).all(|(&h, m)| h <= m);
    !t.caps.has_local
        || within(p.grid, t.limits.max_grid)
            && within(p.local, t.limits.max_local)
            && p.local.iter().product::<u32>() <= t.limits.max_local_total
}

fn open(name: &str, threads: &str) -> Box<dyn Device> {
    if name == "wasm" {
        return Box::new(NullDevice::new(Target::wasm(true, 1).with_pairs()));
    }
    gradloom::open(name, threads.parse().expect("a number of threads")).expect("the device opens")
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["measure", device, threads, file] => measure(&mut *open(device, threads), file),
        ["record", folder] => {
            let t = open("wasm", "1").target().clone();
            record::record(&jobs(&t), &t, Path::new(folder));
        }
        ["score", device, threads, file] => {
            let t = open(device, threads).target().clone();
            score::score(&jobs(&t), &t, &read(file), &format!("{device}, {threads} threads"));
        }
        ["fit", device, threads, file] => {
            let t = open(device, threads).target().clone();
            fit::fit(&jobs(&t), &t, &read(file));
        }
        _ => {
            eprintln!("usage: cost_model measure|score DEVICE THREADS FILE, or cost_model record FOLDER");
            std::process::exit(2);
        }
    }
}

fn measure(dev: &mut dyn Device, file: &str) {
    let t = dev.target().clone();
    let jobs = jobs(&t);
    let mut times = read(file);
    // what takes an emulator seconds would take this bench hours
    let short = |job: &&Job| !t.machine.software || job.program.flops < MOST_EMULATED;
    let rounds = if t.machine.software { 1 } else { ROUNDS };
    for round in 0..rounds {
        for (i, job) in jobs.iter().filter(short).enumerate() {
            if i % 100 == 0 {
                eprintln!("round {round}: {i} of {} programs", jobs.len());
            }
            let ns = Compiled::new(job.program.clone(), &t, dev.renderer()).and_then(|c| time::time(dev, &c));
            match ns {
                Ok(ns) => _ = times.entry(job.key).and_modify(|n| *n = ns.min(*n)).or_insert(ns),
                Err(e) => eprintln!("{} {}: {e}", job.from, job.program.name),
            }
        }
        write(file, &times);
    }
}
