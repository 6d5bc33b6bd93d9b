//! Attention with opts that no heuristic gives: results stay those without opts.
#![cfg(target_arch = "x86_64")]

use gradloom::tensor::{Attention, Tensor};
use gradloom::{Result, Session};
use gradloom_core::codegen::axes::Kernel;
use gradloom_core::codegen::{Level, Opt, Part, compile};
use gradloom_core::device::{Device, Step, View};
use gradloom_core::render::{Source, render};
use gradloom_core::schedule::{Ast, schedule};
use gradloom_core::uop::Graph;
use gradloom_core::uop::random::Rng;
use gradloom_tests::nodes::MakeNodes;

fn noise(s: &Session, shape: &[usize], seed: usize) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 7919 + seed * 613) % 1009) as f32 / 252.0 - 2.0).collect();
    Tensor::new(s, &data, shape)
}

/// The kernel of attention over `keys` keys, 2 heads of 32.
fn attention(dev: &dyn Device, queries: usize, keys: usize) -> Ast {
    let s = Session::new();
    let [q, k, v] =
        [(queries, 1), (keys, 2), (keys, 3)].map(|(n, seed)| noise(&s, &[1, 2, n, 64], seed).expect("noise"));
    let y = q.attention(&k, &v, &Attention::default()).expect("attention");
    let state = s.state();
    let mut g = Graph::new();
    let mut ids = Vec::new();
    let root = state.node(y.root());
    let roots = g.import_closed(&state.graph, &[root], |id| {
        let slot = ids.iter().position(|i| *i == id).unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        });
        slot as u32
    });
    let mut kernels = schedule(&g, &roots, ids.len(), dev.target()).expect("a schedule").kernels;
    assert_eq!(kernels.len(), 1);
    kernels.remove(0).ast
}

/// What a kernel gives on noise.
fn run(dev: &mut dyn Device, ast: &Ast, opts: &[Opt]) -> Result<Vec<f32>> {
    let t = dev.target().clone();
    let program = compile(ast, &t, Some(opts))?;
    let source = Source::new(&program, render(&program, &t)?);
    let kernel = dev.compile(std::slice::from_ref(&source))?[0];
    let mut views = Vec::new();
    for (i, p) in source.params.iter().enumerate() {
        let data: Vec<u8> =
            (0..p.len).flat_map(|j| (((j * 7919 + i * 613) % 1009) as f32 / 252.0 - 2.0).to_le_bytes()).collect();
        let view = View { buf: dev.alloc(data.len())?, offset: 0, bytes: data.len() };
        dev.upload(view.buf, 0, &data)?;
        views.push(view);
    }
    dev.submit(&[Step::Launch { kernel, args: views.clone(), grid: program.grid, vars: vec![] }])?;
    let ticket = dev.read(views[0])?;
    dev.sync()?;
    let bytes = dev.poll(ticket)?.expect("the processor is synchronous");
    views.iter().for_each(|v| dev.free(v.buf));
    Ok(bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().expect("4 bytes"))).collect())
}

/// Opts that fit the kernel, one after the other.
fn random_opts(ast: &Ast, dev: &dyn Device, rng: &mut Rng) -> Vec<Opt> {
    let mut k = Kernel::new(ast);
    k.settle_axes();
    let mut opts = Vec::new();
    for _ in 0..40 {
        let make = rng.pick::<fn(u8, usize) -> Opt>(&[
            Opt::lane,
            Opt::lane,
            Opt::lane,
            Opt::upcast,
            Opt::unroll,
            Opt::accum,
            Opt::pad,
            |r, _| Opt::keep(r),
            Opt::split,
            |r, n| Opt::swap(r, n as u8),
        ]);
        let opt = make(rng.below(12) as u8, rng.pick(&[1, 2, 3, 4, 8, 16, 48]));
        if opts.len() < 6 && k.apply(&opt, dev.target()).is_ok() {
            opts.push(opt);
        }
    }
    opts
}

#[test]
fn lists_of_opts_that_fit_attention_leave_its_results() {
    let mut failures = Vec::new();
    let mut dev = gradloom::open("cpu", 1).expect("a processor");
    let mut tried = 0;
    for (queries, keys) in [(2, 64), (3, 40), (4, 129)] {
        let ast = attention(&*dev, queries, keys);
        let want = run(&mut *dev, &ast, &[]).expect("a run");
        for seed in 0..100 {
            let opts = random_opts(&ast, &*dev, &mut Rng(seed));
            // what needs more registers than there are is refused
            let Ok(got) = run(&mut *dev, &ast, &opts) else { continue };
            tried += 1;
            let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0f32, |m, x| if x <= m { m } else { x });
            if off.is_nan() || off > 1e-3 {
                let opts: Vec<String> = opts.iter().map(ToString::to_string).collect();
                failures.push(format!("{queries}x{keys}, seed {seed}: {}: off by {off}", opts.join(", ")));
            }
        }
    }
    assert!(tried > 100, "{tried} run");
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}

/// Every kind of opt, made of a range and a number.
fn makers() -> Vec<Box<dyn Fn(u8, usize) -> Opt>> {
    let cut = |part: Part| move |axis: u8, by: usize| Opt::Cut { axis, by: by as u32, part };
    let mut all: Vec<Box<dyn Fn(u8, usize) -> Opt>> = Vec::new();
    all.extend(Part::ALL.map(|part| Box::new(cut(part)) as Box<_>));
    all.push(Box::new(Opt::pad));
    all.push(Box::new(|r, n| Opt::swap(r, n as u8)));
    all.push(Box::new(|r, _| Opt::keep(r)));
    all.push(Box::new(|r, n| Opt::stage(n as u32 - 1, Level::In(r))));
    all.push(Box::new(|r, _| Opt::stage(u32::from(r), Level::Outside)));
    all
}

#[test]
fn any_opt_that_fits_attention_leaves_its_results() {
    let mut failures = Vec::new();
    let mut tried = 0;
    for name in ["cpu", "cpu:avx2"] {
        let mut dev = gradloom::open(name, 1).expect("a processor");
        for (queries, keys) in [(2, 64), (3, 40)] {
            let ast = attention(&*dev, queries, keys);
            let want = run(&mut *dev, &ast, &[]).expect("a run");
            for make in makers() {
                for axis in 0..12 {
                    for amount in [2, 3, 8, 16, 32, 48] {
                        let opt = make(axis, amount);
                        let mut k = Kernel::new(&ast);
                        k.settle_axes();
                        if k.apply(&opt, dev.target()).is_err() {
                            continue;
                        }
                        let Ok(got) = run(&mut *dev, &ast, &[opt]) else { continue };
                        tried += 1;
                        let off = got
                            .iter()
                            .zip(&want)
                            .map(|(a, b)| (a - b).abs())
                            .fold(0f32, |m, x| if x <= m { m } else { x });
                        if off.is_nan() || off > 1e-3 {
                            failures.push(format!("{name} {queries}x{keys}: {opt}: off by {off}"));
                        }
                    }
                }
            }
        }
    }
    assert!(tried > 100, "{tried} fit");
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}
