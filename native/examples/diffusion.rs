//! A diffusion model: Ho, Jain, Abbeel, "Denoising diffusion probabilistic models" (2020), of handwritten digits (LeCun, Cortes, Burges). A network is
//! shown digits under noise, at a random time, with their number, and learns to tell the digit (rather than the noise, which has too many dimensions
//! for a small network). Digits are made from noise by going back through the times. A network that reads digits tells which of them are those that
//! were asked for.
//! `cargo run --release -p gradloom --example diffusion -- [DEVICE] [STEPS] [FILE]`: the file is what the example `mnist` reads.

#[path = "mnist/judge.rs"]
mod judge;
#[path = "mnist/learn.rs"]
mod learn;

use gradloom::dtype::Scalar;
use gradloom::nn::{Embedding, Linear, Module, Role};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Schedule};
use gradloom::tensor::Session;
use gradloom::{Result, Runtime, Tensor};
use judge::{Judge, PIXELS};
use learn::Digits;
use std::f32::consts::{FRAC_PI_2, PI};
use std::time::Instant;

const HIDDEN: usize = 512;
const BATCH: usize = 64;
const RATE: f64 = 2e-3;
/// Waves that tell the network the time, a sine and a cosine of each.
const WAVES: usize = 8;
/// Steps from noise to a digit.
const TIMES: usize = 100;
const DIGITS: usize = 10;

/// Uniform from 0 to 1, without 1.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 40) as f32 / (1u64 << 24) as f32
}

/// What a time from 0 to 1 leaves of a digit, and how much noise is in it: their squares are 1 together (Nichol, Dhariwal 2021).
fn parts(time: f32) -> [f32; 2] {
    let (noise, left) = (FRAC_PI_2 * time).sin_cos();
    [left, noise]
}

/// Times as waves, `[n, 2 WAVES]`.
fn waves(s: &Session, times: &[f32]) -> Result<Tensor> {
    let wave = |t: f32, k: usize| <[f32; 2]>::from((t * PI * (1 << k) as f32 / 4.0).sin_cos());
    let all: Vec<f32> = times.iter().flat_map(|&t| (0..WAVES).flat_map(move |k| wave(t, k))).collect();
    Tensor::new(s, &all, &[times.len(), 2 * WAVES])
}

/// Tells digits under noise.
struct Net {
    first: Linear,
    inner: [Linear; 3],
    last: Linear,
    /// What each layer is told of the time, and of the number.
    times: [Linear; 3],
    numbers: [Embedding; 3],
}

impl Module for Net {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.first.visit(&format!("{prefix}first"), f);
        for i in 0..self.inner.len() {
            self.inner[i].visit(&format!("{prefix}inner{i}"), f);
            self.times[i].visit(&format!("{prefix}times{i}"), f);
            self.numbers[i].visit(&format!("{prefix}numbers{i}"), f);
        }
        self.last.visit(&format!("{prefix}last"), f);
    }
}

impl Net {
    fn new(s: &Session) -> Result<Net> {
        let inner = || Linear::new(s, HIDDEN, HIDDEN);
        let times = || Linear::new(s, 2 * WAVES, HIDDEN);
        let numbers = || Embedding::new(s, DIGITS, HIDDEN);
        Ok(Net {
            first: Linear::new(s, PIXELS, HIDDEN)?,
            inner: [inner()?, inner()?, inner()?],
            last: Linear::new(s, HIDDEN, PIXELS)?,
            times: [times()?, times()?, times()?],
            numbers: [numbers()?, numbers()?, numbers()?],
        })
    }

    /// The digits in `[n, pixels]` at times whose waves are `[n, 2 WAVES]`, of numbers `[n]`.
    fn forward(&self, x: &Tensor, waves: &Tensor, numbers: &Tensor) -> Result<Tensor> {
        let mut h = self.first.forward(x)?;
        for i in 0..self.inner.len() {
            let told = self.times[i].forward(waves)?.add(self.numbers[i].forward(numbers)?)?;
            h = h.add(self.inner[i].forward(&h.add(told)?.silu()?)?)?;
        }
        self.last.forward(&h.silu()?)?.tanh()
    }
}

/// The mean square of what the network gets wrong of digits, taken at random.
fn loss(s: &Session, net: &Net, digits: &Digits, state: &mut u64) -> Result<Tensor> {
    let rows: Vec<usize> = (0..BATCH).map(|_| (random(state) * digits.len() as f32) as usize).collect();
    let times: Vec<f32> = rows.iter().map(|_| random(state)).collect();
    let (x, numbers) = digits.batch(s, &rows)?;
    let x = x.flatten(1, -1)?;
    let part = |i: usize| Tensor::new(s, &times.iter().map(|&t| parts(t)[i]).collect::<Vec<_>>(), &[BATCH, 1]);
    let under = x.mul(part(0)?)?.add(Tensor::randn(s, &[BATCH, PIXELS])?.mul(part(1)?)?)?;
    net.forward(&under, &waves(s, &times)?, &numbers)?.sub(x)?.square()?.mean(&[], false)
}

/// Digits of these numbers from noise, `[n, pixels]`.
fn sample(rt: &mut Runtime, net: &Net, numbers: &[i32]) -> Result<Tensor> {
    let (s, n) = (rt.session().clone(), numbers.len());
    let numbers = Tensor::new(&s, numbers, &[n])?;
    let mut x = Tensor::randn(&s, &[n, PIXELS])?;
    for step in (1..=TIMES).rev() {
        let [now, next] = [step, step - 1].map(|k| k as f32 / TIMES as f32);
        let ([left, noise], [next_left, next_noise]) = (parts(now), parts(next));
        // of the noise that stays, a part is new: all of it that the paper's steps have
        let fresh = next_noise / noise * (1.0 - (left / next_left).powi(2)).max(0.0).sqrt();
        let kept = (next_noise * next_noise - fresh * fresh).max(0.0).sqrt();
        // scalars that change come as data, so that all times are one plan
        let scalars = [left, 1.0 / noise, next_left, kept, fresh];
        let scalar = |i: usize| Tensor::new(&s, &scalars[i..=i], &[1, 1]);
        let digits = net.forward(&x, &waves(&s, &vec![now; n])?, &numbers)?;
        let noise = x.sub(digits.mul(scalar(0)?)?)?.mul(scalar(1)?)?;
        let new = Tensor::randn(&s, &[n, PIXELS])?.mul(scalar(4)?)?;
        x = digits.mul(scalar(2)?)?.add(noise.mul(scalar(3)?)?)?.add(new)?;
        rt.realize(&[&x])?;
    }
    Ok(x)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let steps = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(6000);
    let digits = learn::read(args.get(2).map_or(".cache/datasets/mnist.npz", String::as_str))?;
    let mut rt = Runtime::open(args.first().map_or("auto", String::as_str), 0)?;
    let s = rt.session().clone();
    let judge = Judge::new(&mut rt, &digits)?;
    let (net, mut state, begin) = (Net::new(&s)?, 1, Instant::now());
    // the rate is a scalar of the launch: all steps are one plan
    let mut optimizer = Adam::new(net.parameters(), &Tensor::variable_f32(&s, "rate"), AdamOpts::default())?;
    let rate = Schedule::Cosine { steps, floor: 0.0 };
    rt.realize(&optimizer.tensors().iter().collect::<Vec<_>>())?;
    for step in 1..=steps {
        let loss = loss(&s, &net, &digits[0], &mut state)?;
        optimizer.minimize(&loss)?;
        rt.engine().set_var("rate", Scalar::float(RATE * rate.at(step - 1)));
        let mut all = optimizer.tensors();
        all.push(loss.clone());
        rt.realize(&all.iter().collect::<Vec<_>>())?;
        if step % 500 == 0 || step == 1 {
            let seconds = begin.elapsed().as_secs_f64();
            println!("step {step:5}, {seconds:5.1} s: off by {:.3}", rt.to_vec::<f32>(&loss)?[0]);
        }
    }
    let asked: Vec<i32> = (0..500).map(|i| i % DIGITS as i32).collect();
    let images = sample(&mut rt, &net, &asked)?;
    if !judge.made(&mut rt, &images, &asked, [0.65, 0.75])? {
        std::process::exit(1);
    }
    Ok(())
}
