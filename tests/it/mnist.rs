//! A digit recogniser is trained and then tested: layers, gradients, optimiser and plans together. The digits are fetched
//! (`node scripts/fetch-models.mjs mnist`).

use gradloom::io::{HostTensor, npz};
use gradloom::nn::{Conv, Layer, Linear, Mode, Module, Sequential};
use gradloom::optim::{Adam, AdamOpts, Optimizer};
use gradloom::tensor::{ConvOpts, PoolOpts};
use gradloom::{Result, Runtime, Session, Tensor};
use gradloom_tests::here;
use std::time::Instant;

const BATCH: usize = 50;
const EPOCHS: usize = 6;

fn pooled(x: &Tensor) -> Result<Tensor> {
    x.relu()?.max_pool(&PoolOpts::new(&[2, 2]))
}

fn network(s: &Session) -> Result<Sequential> {
    Ok(Sequential::new()
        .layer(Conv::new(s, 1, 8, &[5, 5], ConvOpts::new())?)
        .function(pooled)
        .layer(Conv::new(s, 8, 16, &[5, 5], ConvOpts::new())?)
        .function(pooled)
        .function(|x| x.flatten(1, -1))
        .layer(Linear::new(s, 16 * 4 * 4, 64)?)
        .function(Tensor::relu)
        .layer(Linear::new(s, 64, 10)?))
}

/// Images as f32 in -1..1, `[n, 1, 28, 28]`.
fn images(s: &Session, t: &HostTensor, rows: &[usize]) -> Result<Tensor> {
    let pixels: Vec<f32> =
        rows.iter().flat_map(|&r| &t.data[r * 784..][..784]).map(|&p| p as f32 / 127.5 - 1.0).collect();
    Tensor::new(s, &pixels, &[rows.len(), 1, 28, 28])
}

fn labels(s: &Session, t: &HostTensor, rows: &[usize]) -> Result<Tensor> {
    let classes: Vec<i32> = rows.iter().map(|&r| t.data[r] as i32).collect();
    Tensor::new(s, &classes, &[rows.len()])
}

#[test]
fn a_network_learns_to_read_digits() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/datasets/mnist.npz");
    let Ok(file) = std::fs::read(path) else {
        return here::left_out("mnist", "run `node scripts/fetch-models.mjs mnist` first");
    };
    let Some(mut rt) = here::device("cpu", Runtime::open("cpu", 0)) else { return };
    let data = npz::read(&file).expect("an npz");
    let get = |name: &str| &data.iter().find(|(n, _)| n == name).expect("an array").1;
    let (x_train, y_train, x_test, y_test) = (get("x_train"), get("y_train"), get("x_test"), get("y_test"));
    let s = rt.session().clone();
    s.manual_seed(1);
    let net = network(&s).unwrap();
    let mut opt = Adam::new(net.parameters(), 2e-3, AdamOpts::default()).unwrap();
    rt.realize(&opt.tensors().iter().collect::<Vec<_>>()).unwrap();
    let n = y_train.data.len();
    let mut order: Vec<usize> = (0..n).collect();
    let mut random = 1u32;
    let (mut losses, start) = (Vec::new(), Instant::now());
    for _ in 0..EPOCHS {
        for at in (1..n).rev() {
            random = random.wrapping_mul(1664525).wrapping_add(1013904223);
            order.swap(at, (random as usize >> 8) % (at + 1));
        }
        for rows in order.chunks(BATCH) {
            let (x, y) = (images(&s, x_train, rows).unwrap(), labels(&s, y_train, rows).unwrap());
            let loss = net.apply(&x, Mode::Train).unwrap().cross_entropy(&y, None, 0.0).unwrap();
            opt.minimize(&loss).unwrap();
            let mut all = opt.tensors();
            all.push(loss.clone());
            rt.realize(&all.iter().collect::<Vec<_>>()).unwrap();
            losses.push(rt.to_vec::<f32>(&loss).unwrap()[0]);
        }
    }
    let (steps, trained) = (losses.len(), start.elapsed());
    let rows: Vec<usize> = (0..y_test.data.len()).collect();
    let mut right = 0;
    for rows in rows.chunks(100) {
        let guess = net.apply(&images(&s, x_test, rows).unwrap(), Mode::Eval).unwrap().argmax(1, false).unwrap();
        let guess = rt.to_vec::<i32>(&guess).unwrap();
        right += guess.iter().zip(rows).filter(|(g, r)| **g == y_test.data[**r] as i32).count();
    }
    let (accuracy, c) = (right as f64 / rows.len() as f64, rt.counters());
    eprintln!(
        "mnist: {steps} steps, {:.1} ms each, loss {:.3} to {:.3}, accuracy {:.1}%, {} plans, {} programs, peak {} bytes",
        trained.as_secs_f64() * 1e3 / steps as f64,
        losses[0],
        losses[steps - 1],
        accuracy * 100.0,
        c.plans,
        c.programs,
        c.peak_bytes
    );
    assert!(accuracy >= 0.97, "{right} of {}", rows.len());
    assert!(c.plans <= 6, "{} plans: a step is planned once", c.plans);
    assert!(c.peak_bytes < 64 << 20, "{} bytes: old batches are freed", c.peak_bytes);
}
