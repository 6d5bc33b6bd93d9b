//! Random tensor graphs on the processor, through our own code generator and through LLVM, with the heuristic's opts and with
//! random ones: results are the evaluator's.
#![cfg(target_arch = "x86_64")]

use gradloom_core::codegen::axes::Kernel;
use gradloom_core::codegen::{Opt, VarInfo, compile};
use gradloom_core::device::{Device, Step, View};
use gradloom_core::dtype::Scalar;
use gradloom_core::render::{Source, render};
use gradloom_core::schedule::share::scalar_number;
use gradloom_core::schedule::{Ast, Origin, schedule};
use gradloom_core::target::Target;
use gradloom_core::uop::Graph;
use gradloom_core::uop::eval::{HostValue, eval_tensor};
use gradloom_core::uop::random::{Options, RandomGraph, Rng, tensor_graph};
use gradloom_core::{DType, Error, Result};
use gradloom_tests::here;
use gradloom_tests::nodes::MakeNodes;

/// Some opts that fit a kernel.
fn random_opts(ast: &Ast, t: &Target, rng: &mut Rng) -> Vec<Opt> {
    let mut k = Kernel::new(ast);
    k.settle_axes();
    let mut opts = Vec::new();
    for _ in 0..12 {
        let make = rng.pick::<fn(u8, usize) -> Opt>(&[
            Opt::upcast,
            Opt::upcast,
            Opt::lane,
            Opt::lane,
            Opt::accum,
            Opt::unroll,
            Opt::dot,
            Opt::pad,
        ]);
        let opt = make(rng.below(8) as u8, rng.pick(&[2, 3, 4, 5, 8, 16, 24]));
        if opts.len() < 5 && k.apply(&opt, t).is_ok() {
            opts.push(opt);
        }
    }
    opts
}

/// All kernels of the graph on a device; the roots' bytes.
fn run(dev: &mut dyn Device, r: &RandomGraph, mut rng: Option<Rng>) -> Result<Vec<Vec<u8>>> {
    let t = dev.target().clone();
    let mut g = Graph::new();
    let roots = g.import_closed(&r.g, &r.roots, |id| id);
    let s = schedule(&g, &roots, r.buffers.len(), &t)?;
    let mut views = Vec::new();
    for b in &s.buffers {
        let bytes = b.len * b.dtype.size();
        let view = View { buf: dev.alloc(bytes.max(4))?, offset: 0, bytes };
        match b.origin {
            Origin::External(slot) if b.dtype != DType::Void => {
                dev.upload(view.buf, 0, &r.buffers[slot as usize][..bytes])?;
            }
            _ => dev.upload(view.buf, 0, &vec![0xFF; bytes])?,
        }
        views.push(view);
    }
    let mut programs = Vec::new();
    for k in &s.kernels {
        let opts = rng.as_mut().map(|rng| random_opts(&k.ast, &t, rng));
        let p = compile(&k.ast, &t, opts.as_deref())?;
        if p.refused > 0 {
            return Err(Error::Internal(format!("opts were chosen that do not fit {}", p.name)));
        }
        programs.push(p);
    }
    let sources: Vec<Source> =
        programs.iter().map(|p| Ok(Source::new(p, render(p, &t)?))).collect::<Result<Vec<_>>>()?;
    let kernels = dev.compile(&sources)?;
    for ((k, p), &kernel) in s.kernels.iter().zip(&programs).zip(&kernels) {
        let args = k.args.iter().map(|&b| views[b]).collect();
        let scalar = |v: &VarInfo| scalar_number(&v.name).and_then(|i| k.scalars.get(i)).copied().unwrap_or_default();
        let vars = p.vars.iter().map(|v| scalar(v) as u32).collect();
        dev.submit(&[Step::Launch { kernel, args, grid: p.grid, vars }])?;
        dev.release(kernel);
    }
    let mut out = Vec::new();
    for &b in &s.roots {
        let ticket = dev.read(views[b])?;
        dev.sync()?;
        out.push(dev.poll(ticket)?.expect("the processor is synchronous"));
    }
    views.iter().for_each(|v| dev.free(v.buf));
    Ok(out)
}

/// The first difference, if any.
pub(crate) fn difference(got: &[u8], want: &HostValue) -> Option<String> {
    let (dt, size) = (want.dtype, want.dtype.size());
    if got.len() != want.data.len() {
        return Some(format!("{} bytes, {} wanted", got.len(), want.data.len()));
    }
    let read = |b: &[u8]| -> Vec<Scalar> { b.chunks(size).map(|c| Scalar::read(dt, c)).collect() };
    let tol = match dt {
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 1e-5,
    };
    read(got).iter().zip(&read(&want.data)).enumerate().find_map(|(i, (g, w))| {
        let (a, b) = (g.as_f64(), w.as_f64());
        let same =
            g == w || dt.is_float() && (a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tol * b.abs().max(0.1));
        (!same).then(|| format!("[{i}] {g:?}, {w:?} wanted"))
    })
}

fn check(name: &str, every: usize) {
    use DType::*;
    let Some(mut dev) = here::device(name, gradloom::open(name, 2)) else { return };
    const INTS: &[DType] = &[Bool, I8, I16, I32, I64, U8, U16, U32, U64];
    let kinds: [(u64, u64, usize, &[DType], bool); 4] = [
        (0, 90, 12, INTS, true),
        (10_000, 60, 12, &[F32, F32, F32, F64, I32, Bool], true),
        (20_000, 60, 8, &[F16, BF16, F32, I16], true),
        (30_000, 60, 3, &[F32], false),
    ];
    let mut failures = Vec::new();
    for (first, n, most, dtypes, exact) in kinds {
        for seed in (first..first + n).step_by(every) {
            let o = Options { ops: 2 + seed as usize % most, dtypes, special: exact, exact, max_elems: 300 };
            let r = tensor_graph(seed, o);
            let want = eval_tensor(&r.g, &r.roots, &mut |id| r.buffers.get(id as usize).cloned(), &|_| None)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            for rng in [None, Some(Rng(seed))] {
                let how = if rng.is_some() { "random opts" } else { "heuristic" };
                match run(&mut *dev, &r, rng) {
                    Ok(got) => {
                        let wrong = got.iter().zip(&want).find_map(|(g, w)| difference(g, w));
                        failures.extend(wrong.map(|d| format!("seed {seed}, {how}: {d}")));
                    }
                    Err(e) => failures.push(format!("seed {seed}, {how}: {e}")),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} fail on {name}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn graphs_agree_on_the_cpu() {
    check("cpu", 1);
}

#[test]
fn graphs_agree_on_avx2() {
    check("cpu:avx2", 1);
}

/// Milliseconds of compiling a kernel: fewer.
#[test]
fn graphs_agree_through_llvm() {
    check("llvm", 4);
}

#[test]
fn graphs_agree_through_c() {
    check("c", 24);
}
