//! Speeds of a device on the work that GPUs are judged by: `gpu_speed [DEVICE] [--small] [NAME]`. A line of JSON for each piece of work: its
//! name, seconds of one run (the least of several rounds of runs in a row), float operations and bytes that it needs at least, and kernels.
//! `--small` takes sizes that an emulator can do, and adds how far the values are from the evaluator's (relative to the largest).
//! `tests/bench/cuda/run.py` puts PyTorch on the same card beside it.
//!
//! `gpu_speed DEVICE --opts FILE` times ways to compile one kernel: a line of the file is `NAME SIZE | OPTS`, as `gradloom tune` prints opts, or nothing
//! behind the bar for those that are chosen. Each gets the milliseconds of a run and how far its values are from those of the line before
//! with the same work.

use gradloom::{DType, Result, Runtime, Session, Tensor};
use gradloom_core::codegen::compile;
use gradloom_core::codegen::opt::Opt;
use gradloom_core::device::{Device, Step, View};
use gradloom_core::render::{self, Source};
use gradloom_core::schedule::Ast;
use gradloom_core::tensor::{Attention, ConvOpts};
use gradloom_tests::networks::{Net, kernels, load};
use std::time::Instant;

/// Columns of the work that moves bytes, and the heads and the width of attention.
const ROW: usize = 4096;
const HEADS: usize = 16;
const WIDTH: usize = 128;

/// A piece of work: its inputs' shapes at a size, its result, and float operations and elements moved at a size.
struct Work {
    name: &'static str,
    dtype: DType,
    /// As measured, and with `--small`.
    sizes: [usize; 2],
    shapes: fn(usize) -> Vec<Vec<usize>>,
    result: fn(&[Tensor]) -> Result<Tensor>,
    flops: fn(f64) -> f64,
    elements: fn(f64) -> f64,
}

fn square(n: usize) -> Vec<Vec<usize>> {
    vec![vec![n, n]; 2]
}

fn rows(n: usize) -> Vec<Vec<usize>> {
    vec![vec![n, ROW]]
}

fn product(x: &[Tensor]) -> Result<Tensor> {
    x[0].matmul(&x[1])
}

fn attend(x: &[Tensor], causal: bool) -> Result<Tensor> {
    x[0].attention(&x[1], &x[2], &Attention { causal, ..Attention::default() })
}

fn work() -> Vec<Work> {
    let matmul = |name, dtype, size| Work {
        name,
        dtype,
        sizes: [size, 64],
        shapes: square,
        result: product,
        flops: |n| 2.0 * n * n * n,
        elements: |n| 3.0 * n * n,
    };
    let moving = |name, result| Work {
        name,
        dtype: DType::F32,
        sizes: [16384, 3],
        shapes: rows,
        result,
        flops: |_| 0.0,
        elements: |n| 2.0 * n * ROW as f64,
    };
    let attention = |name, result| Work {
        name,
        dtype: DType::F16,
        sizes: [4096, 256],
        shapes: |n| vec![vec![1, HEADS, n, WIDTH]; 3],
        result,
        flops: |n| 4.0 * HEADS as f64 * n * n * WIDTH as f64,
        elements: |n| 4.0 * (HEADS * WIDTH) as f64 * n,
    };
    vec![
        matmul("matmul_bf16", DType::BF16, 8192),
        matmul("matmul_f16", DType::F16, 8192),
        matmul("matmul_f32", DType::F32, 4096),
        moving("add_one", |x| x[0].add(1.0)),
        moving("gelu", |x| x[0].gelu()),
        moving("softmax", |x| x[0].softmax(-1)),
        moving("layer_norm", |x| x[0].layer_norm(1, None, None, 1e-5)),
        Work { name: "sum_rows", elements: |n| n * ROW as f64, ..moving("", |x| x[0].sum(&[1], false)) },
        attention("attention", |x| attend(x, false)),
        Work {
            flops: |n| 2.0 * HEADS as f64 * n * n * WIDTH as f64,
            ..attention("attention_causal", |x| attend(x, true))
        },
    ]
}

/// Contractions of networks, of which ways to compile are timed: those of BERT base with so many tokens, and of ResNet-50 with so many images.
fn parts() -> Vec<Work> {
    let part = |name, shapes, flops| Work {
        name,
        dtype: DType::F32,
        sizes: [16, 1],
        shapes,
        result: |x| match x[0].shape().len() {
            4 => {
                let side = x[1].shape()[2] as i64 / 2;
                x[0].conv(&x[1], None, &ConvOpts { padding: vec![(side, side); 2], ..ConvOpts::default() })
            }
            _ => x[0].linear(&x[1], None),
        },
        flops,
        elements: |_| 0.0,
    };
    vec![
        part("linear_768_768", |n| vec![vec![n, 768], vec![768, 768]], |n| 2.0 * n * 768.0 * 768.0),
        part("linear_768_3072", |n| vec![vec![n, 768], vec![3072, 768]], |n| 2.0 * n * 768.0 * 3072.0),
        part("linear_3072_768", |n| vec![vec![n, 3072], vec![768, 3072]], |n| 2.0 * n * 768.0 * 3072.0),
        part("conv3_64", |n| vec![vec![n, 64, 56, 56], vec![64, 64, 3, 3]], |n| n * 2.0 * 115_605_504.0),
        part("conv3_128", |n| vec![vec![n, 128, 28, 28], vec![128, 128, 3, 3]], |n| n * 2.0 * 115_605_504.0),
        part("conv3_256", |n| vec![vec![n, 256, 14, 14], vec![256, 256, 3, 3]], |n| n * 2.0 * 115_605_504.0),
        part("conv3_512", |n| vec![vec![n, 512, 7, 7], vec![512, 512, 3, 3]], |n| n * 2.0 * 115_605_504.0),
        part("conv1_64_256", |n| vec![vec![n, 64, 56, 56], vec![256, 64, 1, 1]], |n| n * 2.0 * 51_380_224.0),
        part("conv1_512_128", |n| vec![vec![n, 512, 28, 28], vec![128, 512, 1, 1]], |n| n * 2.0 * 51_380_224.0),
        part("conv1_1024_256", |n| vec![vec![n, 1024, 14, 14], vec![256, 1024, 1, 1]], |n| n * 2.0 * 51_380_224.0),
        part("conv1_512_2048", |n| vec![vec![n, 512, 7, 7], vec![2048, 512, 1, 1]], |n| n * 2.0 * 51_380_224.0),
    ]
}

fn inputs(s: &Session, w: &Work, size: usize) -> Result<Vec<Tensor>> {
    let one = |shape: &Vec<usize>| Ok(Tensor::rand(s, shape)?.sub(0.5)?.cast(w.dtype)?.contiguous());
    (w.shapes)(size).iter().map(one).collect()
}

/// The largest difference from the evaluator's values, relative to the largest of those.
fn difference(gpu: &mut Runtime, given: &[Tensor], w: &Work) -> Result<f64> {
    let mut eval = Runtime::open("eval", 1)?;
    let mine: Result<Vec<Tensor>> = given.iter().map(|x| eval.bring(x, gpu)?.cast(DType::F32)).collect();
    let want = eval.to_vec::<f32>(&(w.result)(&mine?)?)?;
    let got = gpu.to_vec::<f32>(&(w.result)(given)?.cast(DType::F32)?)?;
    let largest = want.iter().fold(0.0f32, |a, b| a.max(b.abs()));
    let off =
        got.iter().zip(&want).fold(0.0f32, |a, (g, w)| if g.is_nan() { f32::INFINITY } else { a.max((g - w).abs()) });
    Ok(f64::from(off / largest))
}

fn measure(name: &str, w: &Work, small: bool) -> Result<String> {
    let size = w.sizes[usize::from(small)];
    let mut gpu = Runtime::open(name, 0)?;
    let given = inputs(&gpu.session().clone(), w, size)?;
    gpu.realize(&given.iter().collect::<Vec<_>>())?;
    let result = (w.result)(&given)?;
    let step = gpu.realize(&[&result])?;
    let (rounds, runs) = if small { (1, 2) } else { (5, 20) };
    let (mut best, session) = (f64::INFINITY, gpu.session().clone());
    for _ in 0..rounds {
        gpu.engine().device().sync()?;
        let start = Instant::now();
        for _ in 0..runs {
            gpu.replay(&step)?;
            // the next run has the memory of this one's result, which is not zeroed again
            gpu.engine().collect(&mut session.state());
        }
        gpu.engine().device().sync()?;
        best = best.min(start.elapsed().as_secs_f64() / f64::from(runs));
    }
    let before = gpu.counters().launches;
    gpu.replay(&step)?;
    let kernels = gpu.counters().launches - before;
    let (flops, bytes) = ((w.flops)(size as f64), (w.elements)(size as f64) * w.dtype.size() as f64);
    let off = if small { format!(", \"off\": {:e}", difference(&mut gpu, &given, w)?) } else { String::new() };
    Ok(format!(
        "{{\"name\": \"{}\", \"size\": {size}, \"seconds\": {best:e}, \"flops\": {flops:e}, \"bytes\": {bytes:e}, \"kernels\": {kernels}{off}}}",
        w.name
    ))
}

/// The kernels of a piece of work.
fn asts(w: &Work, size: usize, device: &dyn Device) -> Result<Vec<Ast>> {
    let net = Net::of(w.dtype);
    let inputs = (w.shapes)(size).iter().map(|s| net.input_of(w.dtype, s)).collect::<Result<Vec<_>>>()?;
    let nodes = load(&net, &[(w.result)(&inputs)?], device.target())?;
    Ok(kernels(&net, &nodes, device.target())?.into_iter().map(|k| k.0).collect())
}

/// Floats between -1 and 1 as bytes.
fn noise(dt: DType, n: usize) -> Vec<u8> {
    let mut x = 1u32;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut out = Vec::with_capacity(n * dt.size());
    for _ in 0..n {
        let v = next();
        match dt {
            DType::F16 => out.extend(half::f16::from_f32(v).to_le_bytes()),
            DType::BF16 => out.extend(half::bf16::from_f32(v).to_le_bytes()),
            _ => out.extend(v.to_le_bytes()),
        }
    }
    out
}

fn floats(dt: DType, bytes: &[u8]) -> Vec<f32> {
    match dt {
        DType::F16 => bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        DType::BF16 => bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

/// Milliseconds of one run of a kernel that is compiled with these opts, and what it computes first.
fn way(device: &mut dyn Device, ast: &Ast, opts: Option<&[Opt]>, buffers: &[View]) -> Result<(f64, Vec<f32>, String)> {
    let target = device.target().clone();
    let program = compile(ast, &target, opts)?;
    let code = render::of(target.lang).render(&program, &target)?;
    let kernel = device.compile(&[Source::new(&program, code)])?[0];
    let step = || Step::Launch { kernel, args: buffers.to_vec(), grid: program.grid, vars: Vec::new() };
    device.submit(&[step()])?;
    let out = program.params.iter().position(|p| p.written).unwrap_or(0);
    let ticket = device.read(View { bytes: buffers[out].bytes.min(4 << 20), ..buffers[out] })?;
    let values = floats(program.params[out].dtype, &device.poll(ticket)?.unwrap_or_default());
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let steps: Vec<Step> = (0..5).map(|_| step()).collect();
        let Some(ticket) = device.submit_timed(&steps)? else { break };
        let times = device.poll(ticket)?.unwrap_or_default();
        let ns = times.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())).max();
        best = best.min(ns.unwrap_or(0) as f64 / 5e6);
    }
    Ok((best, values, Opt::list(&program.opts)))
}

fn ways(name: &str, file: &str) -> Result<()> {
    let text = std::fs::read_to_string(file).expect("a file of opts");
    let mut device = gradloom::open(name, 0)?;
    let mut last: Option<(String, Vec<Ast>, Vec<View>, Vec<f32>)> = None;
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let (what, list) = line.split_once('|').expect("a bar");
        let mut words = what.split_whitespace();
        let (work_name, size) = (words.next().unwrap_or(""), words.next().and_then(|n| n.parse().ok()).unwrap_or(64));
        let all: Vec<Work> = work().into_iter().chain(parts()).collect();
        let w = all.iter().find(|w| w.name == work_name).expect("work of this name");
        if last.as_ref().is_none_or(|l| l.0 != what) {
            for v in last.iter().flat_map(|l| &l.2) {
                device.free(v.buf);
            }
            let asts = asts(w, size, &*device)?;
            let params = compile(&asts[0], device.target(), None)?.params;
            let mut views = Vec::new();
            for p in &params {
                let buf = device.alloc(p.len * p.dtype.size())?;
                device.upload(buf, 0, &noise(p.dtype, p.len))?;
                views.push(View { buf, offset: 0, bytes: p.len * p.dtype.size() });
            }
            last = Some((what.to_string(), asts, views, Vec::new()));
        }
        let Some((_, asts, views, values)) = &mut last else { continue };
        let opts = if list.trim().is_empty() { None } else { Opt::parse_list(list) };
        match way(&mut *device, &asts[0], opts.as_deref(), views) {
            Ok((ms, got, list)) => {
                let largest = got.iter().fold(0.0f32, |a, x| a.max(x.abs()));
                let off = got.iter().zip(values.iter()).fold(0.0f32, |a, (x, y)| a.max((x - y).abs()));
                let rate = (w.flops)(size as f64).max((w.elements)(size as f64) * w.dtype.size() as f64) / ms / 1e9;
                println!("{ms:.4} ms {rate:.1} T/s off {:.1e} | {what}| {list}", off / largest.max(1e-30));
                *values = got;
            }
            Err(e) => println!("error {e} | {what}|{list}"),
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [device, flag, file] = args.as_slice()
        && flag == "--opts"
    {
        return ways(device, file);
    }
    let small = args.iter().any(|a| a == "--small");
    let mut words = args.iter().filter(|a| !a.starts_with("--"));
    let device = words.next().map_or("cuda", String::as_str);
    let only = words.next();
    for w in work().iter().filter(|w| only.is_none_or(|name| w.name.contains(name.as_str()))) {
        println!("{}", measure(device, w, small)?);
    }
    Ok(())
}
