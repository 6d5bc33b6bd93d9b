//! What one plan for every length costs beside the plans of single shapes: models of `tests/zoo/lengths.py` or of `tests/models`, on random shapes
//! or over the steps of a decoder. Both models run by turns in one process, each shape some times; what is printed is the least time.
//!
//! usage: lengths DEVICE THREADS MODEL.onnx shapes NAME=MIN..MAX.. [NAME=SIZE..] [SHAPES]     (of a dimension without a name: INPUT.AXIS)
//!        lengths DEVICE THREADS MODEL.onnx steps NAME MAX STEPS
//!        lengths DEVICE THREADS MODEL.onnx samples FILE.npz NAME=MIN..MAX..     (what `tests/zoo/lengths_torch.py` wrote)

use gradloom::OnnxModel;
use gradloom_core::io::onnx::{Input, Lengths, Port, show_dims};
use gradloom_core::io::{HostTensor, npz};
use gradloom_core::{DType, Error, Result, Tensor};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Times of which the least counts.
const TIMES: usize = 15;

type Sizes = BTreeMap<String, usize>;

/// The dimensions of an input as they are called.
fn names(p: &Port) -> Vec<String> {
    let all = show_dims(p.dims.as_deref().unwrap_or_default());
    let own = |(i, n): (usize, &str)| match n {
        "?" | "-1" => format!("{}.{i}", p.name),
        n => n.to_owned(),
    };
    all.trim_matches(['[', ']']).split(", ").filter(|n| !n.is_empty()).enumerate().map(own).collect()
}

/// The size of a dimension: a number, a name, or a sum of names.
fn size(dim: &str, sizes: &Sizes) -> usize {
    let one = |n: &str| n.parse().ok().or_else(|| sizes.get(n).copied()).unwrap_or(1);
    dim.split(" + ").map(one).sum()
}

/// Inputs of these sizes: token ids, masks of ones, and noise.
fn inputs(m: &OnnxModel, sizes: &Sizes) -> Vec<(String, HostTensor)> {
    let one = |p: &Port| {
        let shape: Vec<usize> = names(p).iter().map(|d| size(d, sizes)).collect();
        let n: usize = shape.iter().product();
        let data = match p.dtype {
            Some(DType::I64) if p.name.contains("mask") => (0..n).flat_map(|_| 1i64.to_le_bytes()).collect(),
            Some(DType::I64) => (0..n).flat_map(|i| ((i as i64 * 11 + 3) % 50).to_le_bytes()).collect(),
            _ => (0..n).flat_map(|i| ((i * 7) as f32 * 0.37).sin().to_le_bytes()).collect(),
        };
        Ok((p.name.clone(), HostTensor::new(p.dtype.unwrap_or(DType::F32), shape, data)?))
    };
    m.model().inputs().iter().map(one).collect::<Result<_>>().expect("inputs of the model's dtypes")
}

/// A run without the way of its outputs to the host; milliseconds.
fn run(m: &mut OnnxModel, list: &[(String, HostTensor)]) -> Result<(Vec<Tensor>, f64)> {
    let start = Instant::now();
    let given = list.iter().map(|(n, t)| (n.as_str(), Input::Host(t.clone()))).collect();
    let given = m.inputs_of(given)?;
    let out = m.run_on(&given)?.into_iter().map(|o| o.1).collect();
    Ok((out, start.elapsed().as_secs_f64() * 1e3))
}

fn off(a: &HostTensor, b: &HostTensor) -> f64 {
    let (a, b) = (a.to_f64(), b.to_f64());
    let most = b.iter().fold(1e-9f64, |m, x| m.max(x.abs()));
    a.iter().zip(&b).fold(0.0, |m: f64, (x, y)| if x == y { m } else { m.max((x - y).abs()) }) / most
}

fn shapes(any: &mut OnnxModel, fixed: &mut OnnxModel, args: &[String]) -> Result<()> {
    let mut bounds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut count, mut given) = (50, Sizes::new());
    for a in args {
        if let Some((name, n)) = a.split_once('=').and_then(|(n, s)| Some((n, s.parse().ok()?))) {
            given.insert(name.to_owned(), n);
            continue;
        }
        match a.split_once('=').and_then(|(n, r)| Some((n, r.split_once("..")?))) {
            Some((name, (min, max))) => {
                let n = |s: &str| s.parse().map_err(|_| Error::value("bounds", a.clone()));
                bounds.insert(name.to_owned(), (n(min)?, n(max)?));
            }
            None => count = a.parse().map_err(|_| Error::value("shapes", a.clone()))?,
        }
    }
    any.set_lengths(Lengths::Bounds(bounds.clone().into_iter().collect()))?;
    let mut seed = 7u64;
    let mut random = |(min, max): (usize, usize)| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        min.max(2) + (seed >> 33) as usize % (max - min.max(2) + 1)
    };
    let (mut worst, mut sums, mut logs, mut second) = (0f64, (0.0, 0.0), 0.0, 0);
    for i in 0..count {
        let mut sizes: Sizes = bounds.iter().map(|(n, &b)| (n.clone(), random(b))).collect();
        sizes.extend(given.clone());
        let list = inputs(any, &sizes);
        let (mut one, mut other) = (f64::MAX, f64::MAX);
        for _ in 0..TIMES {
            one = one.min(run(any, &list)?.1);
            any.collect();
            other = other.min(run(fixed, &list)?.1);
            fixed.collect();
        }
        let (a, b) = (run(any, &list)?.0, run(fixed, &list)?.0);
        for (a, b) in a.iter().zip(&b) {
            worst = worst.max(off(&any.read(a)?, &fixed.read(b)?));
        }
        if i == 1 {
            second = any.counters().programs;
        }
        // the first shape has its own plan in both
        if i > 0 {
            (sums.0, sums.1, logs) = (sums.0 + one, sums.1 + other, logs + (one / other).ln());
        }
        println!("{sizes:?}: {one:.3} ms, fixed {other:.3} ms, {:.2}", one / other);
    }
    let (n, new) = (count as f64 - 1.0, any.counters().programs - second);
    println!("{new} kernels after the second shape; fixed plans {} kernels", fixed.counters().programs);
    println!("mean {:.3} ms, fixed {:.3} ms, geometric {:.3}", sums.0 / n, sums.1 / n, (logs / n).exp());
    println!("off by {worst:.1e}; {:?}", any.notes());
    Ok(())
}

/// Names of the inputs that are caches, in the order of the outputs that follow the first one.
fn caches(m: &OnnxModel) -> Vec<String> {
    m.model().inputs().iter().map(|p| p.name.clone()).filter(|n| n.contains("past")).collect()
}

fn steps(any: &mut OnnxModel, fixed: &mut OnnxModel, args: &[String]) -> Result<()> {
    let number = |i: usize| args.get(i).and_then(|s| s.parse().ok()).ok_or_else(|| Error::value("steps", "a number"));
    let (name, max, count): (&String, usize, usize) = (&args[0], number(1)?, number(2)?);
    any.set_lengths(Lengths::Bounds([(name.clone(), (1, max))].into()))?;
    let past = caches(any);
    let sizes = |p: usize| -> Sizes {
        let all = any.model().inputs();
        let axis = |i: usize, of: &dyn Fn(&str) -> bool| -> Vec<String> {
            all.iter().filter(|p| of(&p.name)).filter_map(|p| names(p).get(i).cloned()).collect()
        };
        let mut sizes: Sizes = axis(2, &|n| n.contains("past")).into_iter().map(|n| (n, p)).collect();
        sizes.extend(axis(1, &|n| n.contains("mask")).into_iter().map(|n| (n, p + 1)));
        sizes
    };
    let all: Vec<Sizes> = (0..count).map(|n| sizes(n + 2)).collect();
    let mut cache: Vec<Input> =
        inputs(any, &all[0]).into_iter().filter(|(n, _)| past.contains(n)).map(|(_, t)| Input::Host(t)).collect();
    let (mut second, mut worst, mut logs, mut n, mut sums) = (0, 0f64, 0.0, 0.0, (0.0, 0.0));
    for (i, sizes) in all.iter().enumerate() {
        let own: Vec<(String, HostTensor)> =
            inputs(any, sizes).into_iter().filter(|(n, _)| !past.contains(n)).collect();
        let list = |cache: &[Input]| -> Vec<(&str, Input)> {
            let own = own.iter().map(|(n, t)| (n.as_str(), Input::Host(t.clone())));
            let same = |c: &Input| match c {
                Input::Host(t) => Input::Host(t.clone()),
                Input::Tensor(t) => Input::Tensor(t.clone()),
            };
            own.chain(past.iter().map(String::as_str).zip(cache.iter().map(same))).collect()
        };
        // each fixed plan is made for one step: it is measured at a few
        if i > 2 && (i == count - 1 || i % 100 == 50) {
            let hosts = cache.iter().map(|c| match c {
                Input::Host(t) => Ok(t.clone()),
                Input::Tensor(t) => any.read(t),
            });
            let hosts: Vec<Input> = hosts.collect::<Result<Vec<_>>>()?.into_iter().map(Input::Host).collect();
            let theirs = fixed.inputs_of(list(&hosts))?;
            let ours = any.inputs_of(list(&cache))?;
            let (mut one, mut other) = (f64::MAX, f64::MAX);
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for _ in 0..TIMES {
                let start = Instant::now();
                a = any.run_on(&ours)?;
                one = one.min(start.elapsed().as_secs_f64() * 1e3);
                let start = Instant::now();
                b = fixed.run_on(&theirs)?;
                other = other.min(start.elapsed().as_secs_f64() * 1e3);
            }
            worst = worst.max(off(&any.read(&a[0].1)?, &fixed.read(&b[0].1)?));
            println!("step {i}: {one:.3} ms, fixed {other:.3} ms, {:.2}", one / other);
            (logs, n, sums) = (logs + (one / other).ln(), n + 1.0, (sums.0 + one, sums.1 + other));
        }
        let given = any.inputs_of(list(&cache))?;
        let out = any.run_on(&given)?;
        cache = out.into_iter().skip(1).map(|o| Input::Tensor(o.1)).collect();
        any.collect();
        if i == 1 {
            second = any.counters().programs;
        }
    }
    println!("{} kernels after the second step, of {second}", any.counters().programs - second);
    println!("mean {:.3} ms, fixed {:.3} ms, geometric {:.3}", sums.0 / n, sums.1 / n, (logs / n).exp());
    println!("off by {worst:.1e}; {:?}", any.notes());
    Ok(())
}

/// Samples of another runtime, `0/in/NAME` and `0/out/NAME`, `1/in/NAME` and so on, through one model.
fn samples(any: &mut OnnxModel, args: &[String]) -> Result<()> {
    let usage = || Error::value("samples", "a file and bounds");
    let [file, args @ ..] = args else { return Err(usage()) };
    let mut bounds = BTreeMap::new();
    for a in args {
        let (name, range) = a.split_once('=').ok_or_else(usage)?;
        let (min, max) = range.split_once("..").ok_or_else(usage)?;
        let n = |s: &str| s.parse::<usize>().map_err(|_| usage());
        bounds.insert(name.to_owned(), (n(min)?, n(max)?));
    }
    any.set_lengths(Lengths::Bounds(bounds.into_iter().collect()))?;
    let all = npz::read(&std::fs::read(file).map_err(|e| Error::value("read", format!("{file}: {e}")))?)?;
    let (mut worst, mut plans, mut programs) = (0f64, Vec::new(), Vec::new());
    for i in 0.. {
        let (given, wanted) = (format!("{i}/in/"), format!("{i}/out/"));
        let list: Vec<(&str, HostTensor)> =
            all.iter().filter_map(|(n, t)| Some((n.strip_prefix(&given)?, t.clone()))).collect();
        if list.is_empty() {
            break;
        }
        for (name, got) in any.run(&list)? {
            let want = all.iter().find(|(n, _)| n.strip_prefix(&wanted) == Some(&name));
            let want = &want.ok_or_else(|| Error::value("samples", format!("no {wanted}{name}")))?.1;
            if (got.dtype, &got.shape) != (want.dtype, &want.shape) {
                return Err(Error::value(
                    "samples",
                    format!("{wanted}{name} is {:?}, not {:?}", got.shape, want.shape),
                ));
            }
            worst = worst.max(off(&got, want));
        }
        plans.push(any.counters().plans);
        programs.push(any.counters().programs);
    }
    println!("plans after each sample {plans:?}, kernels {programs:?}");
    println!("off by {worst:.1e}; {:?}", any.notes());
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, threads, file, way, rest @ ..] = &args[..] else {
        eprintln!("usage: lengths DEVICE THREADS MODEL.onnx shapes NAME=MIN..MAX.. [NAME=SIZE..] [SHAPES]");
        eprintln!("       lengths DEVICE THREADS MODEL.onnx steps NAME MAX STEPS");
        eprintln!("       lengths DEVICE THREADS MODEL.onnx samples FILE.npz NAME=MIN..MAX..");
        std::process::exit(2);
    };
    let threads = threads.parse().map_err(|_| Error::value("threads", threads.clone()))?;
    let load = || OnnxModel::load(Path::new(file), gradloom::open(device, threads)?);
    let (mut any, mut fixed) = (load()?, load()?);
    match way.as_str() {
        "shapes" => shapes(&mut any, &mut fixed, rest),
        "samples" => samples(&mut any, rest),
        _ => steps(&mut any, &mut fixed, rest),
    }
}
