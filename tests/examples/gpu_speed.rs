//! Speeds of a device on the work that GPUs are judged by: `gpu_speed [DEVICE] [--small] [NAME]`. A line of JSON for each piece of work: its
//! name, seconds of one run (the least of several rounds of runs in a row), float operations and bytes that it needs at least, and kernels.
//! `--small` takes sizes that an emulator can do, and adds how far the values are from the evaluator's (relative to the largest).
//! `tests/bench/cuda/run.py` puts PyTorch on the same card beside it.

use gradloom::{DType, Result, Runtime, Session, Tensor};
use gradloom_core::tensor::Attention;
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
        sizes: [4096, 32],
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
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        gpu.engine().device().sync()?;
        let start = Instant::now();
        for _ in 0..runs {
            gpu.replay(&step)?;
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

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let small = args.iter().any(|a| a == "--small");
    let mut words = args.iter().filter(|a| !a.starts_with("--"));
    let device = words.next().map_or("cuda", String::as_str);
    let only = words.next();
    for w in work().iter().filter(|w| only.is_none_or(|name| w.name.contains(name.as_str()))) {
        println!("{}", measure(device, w, small)?);
    }
    Ok(())
}
