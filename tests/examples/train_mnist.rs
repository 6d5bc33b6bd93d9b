//! Time of a training step: a convolutional network on 28x28 images, batch 512, Adam. The contender of
//! `tests/bench/native/run.py`: `train_mnist [DEVICE] [THREADS] [SECONDS]` prints one JSON line.

use gradloom::nn::{BatchNorm, Conv, Layer, Linear, Mode, Module, Sequential};
use gradloom::optim::{Adam, AdamOpts, Optimizer};
use gradloom::tensor::{ConvOpts, PoolOpts};
use gradloom::{Result, Runtime, Session, Tensor};
use std::time::Instant;

const BATCH: usize = 512;

fn pooled(x: &Tensor) -> Result<Tensor> {
    x.max_pool(&PoolOpts::new(&[2, 2]))
}

fn network(s: &Session) -> Result<Sequential> {
    let conv = |i: usize, o: usize, k: usize| Conv::new(s, i, o, &[k, k], ConvOpts::new());
    Ok(Sequential::new()
        .layer(conv(1, 32, 5)?)
        .function(Tensor::relu)
        .layer(conv(32, 32, 5)?)
        .function(Tensor::relu)
        .layer(BatchNorm::new(s, 32)?)
        .function(pooled)
        .layer(conv(32, 64, 3)?)
        .function(Tensor::relu)
        .layer(conv(64, 64, 3)?)
        .function(Tensor::relu)
        .layer(BatchNorm::new(s, 64)?)
        .function(pooled)
        .function(|x| x.flatten(1, -1))
        .layer(Linear::new(s, 576, 10)?))
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let device = args.first().map_or("cpu", String::as_str);
    let threads = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(1);
    let seconds: f64 = args.get(2).and_then(|a| a.parse().ok()).unwrap_or(2.0);
    let mut rt = Runtime::open(device, threads)?;
    let s = rt.session().clone();
    s.manual_seed(1);
    let net = network(&s)?;
    let mut opt = Adam::new(net.parameters(), 1e-3, AdamOpts::default())?;
    let x = Tensor::randn(&s, &[BATCH, 1, 28, 28])?;
    let y = Tensor::new(&s, &(0..BATCH as i32).map(|i| i * 7 % 10).collect::<Vec<_>>(), &[BATCH])?;
    let mut at_start = net.tensors();
    at_start.extend(opt.tensors());
    at_start.push(x.clone());
    rt.realize(&at_start.iter().collect::<Vec<_>>())?;
    let (mut times, mut losses, begin) = (Vec::new(), Vec::new(), Instant::now());
    let mut kernels = 0;
    while times.len() < 6 || begin.elapsed().as_secs_f64() < seconds && times.len() < 300 {
        let start = Instant::now();
        let loss = net.apply(&x, Mode::Train)?.cross_entropy(&y, None, 0.0)?;
        opt.minimize(&loss)?;
        let mut all = net.tensors();
        all.extend(opt.tensors());
        all.push(loss.clone());
        let before = rt.counters().launches;
        rt.realize(&all.iter().collect::<Vec<_>>())?;
        kernels = rt.counters().launches - before;
        losses.push(rt.to_vec::<f32>(&loss)?[0]);
        times.push(start.elapsed().as_secs_f64() * 1e3);
        drop((loss, all));
        rt.collect();
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    println!(
        "{{\"peer\":\"gradloom {device}\",\"model\":\"mnist_train512\",\"threads\":{threads},\"ms_min\":{:.3},\"ms_med\":{:.3},\
         \"first_ms\":{first:.1},\"runs\":{},\"kernels\":{kernels},\"first_loss\":{:.4},\"loss\":{:.4},\"plans\":{},\
         \"peak_bytes\":{}}}",
        times[0],
        times[times.len() / 2],
        times.len(),
        losses[0],
        losses[losses.len() - 1],
        rt.counters().plans,
        rt.counters().peak_bytes,
    );
    Ok(())
}
