//! A diffusion model: Ho, Jain, Abbeel, "Denoising diffusion probabilistic models" (2020), on points of a spiral. A network learns what noise was added
//! to a point (the paper's simple loss, at a random time), and points are made from noise by going back through all times. What it makes is
//! tested by how far it is from the spiral.
//! `cargo run --release -p gradloom --example diffusion -- [DEVICE] [STEPS]`

use gradloom::dtype::Scalar;
use gradloom::nn::{Linear, Module, Role};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Schedule as Rate};
use gradloom::tensor::Session;
use gradloom::{Result, Runtime, Tensor};

/// Steps from a point to noise.
const TIMES: usize = 100;
const HIDDEN: usize = 128;
const BATCH: usize = 256;
/// Waves that tell the network the time, a sine and a cosine of each.
const WAVES: usize = 8;
/// Points are near the spiral within this.
const NEAR: f32 = 0.15;

/// Uniform from 0 to 1, without 0.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    ((*state >> 40) + 1) as f32 / ((1u64 << 24) + 1) as f32
}

fn normal(state: &mut u64) -> f32 {
    (-2.0 * random(state).ln()).sqrt() * (std::f32::consts::TAU * random(state)).cos()
}

/// Where the spiral is after a part of its way.
fn spiral(along: f32) -> [f32; 2] {
    let (angle, radius) = (3.0 * std::f32::consts::PI * along, 0.2 + 1.6 * along);
    [radius * angle.cos(), radius * angle.sin()]
}

/// How much of a point is left after each time, and how much of the noise of that time is in it: the paper's `alpha bar` and `beta`.
struct Schedule {
    left: Vec<f32>,
    beta: Vec<f32>,
}

impl Schedule {
    fn new() -> Schedule {
        let beta: Vec<f32> = (0..TIMES).map(|t| 1e-3 + (0.1 - 1e-3) * t as f32 / (TIMES - 1) as f32).collect();
        let left = beta.iter().scan(1.0, |left, b| {
            *left *= 1.0 - b;
            Some(*left)
        });
        Schedule { left: left.collect(), beta }
    }
}

/// The time as waves, `[n, 2 WAVES]`.
fn waves(times: impl Iterator<Item = usize>) -> Vec<f32> {
    let one = |t: usize| {
        (0..WAVES).flat_map(move |k| {
            let (sin, cos) = (t as f32 / TIMES as f32 * std::f32::consts::PI * (1 << k) as f32 / 4.0).sin_cos();
            [sin, cos]
        })
    };
    times.flat_map(one).collect()
}

/// Tells the noise in points.
struct Net([Linear; 4]);

impl Module for Net {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        for (i, layer) in self.0.iter().enumerate() {
            layer.visit(&format!("{prefix}{i}"), f);
        }
    }
}

impl Net {
    fn new(s: &Session) -> Result<Net> {
        let inner = || Linear::new(s, HIDDEN, HIDDEN);
        Ok(Net([Linear::new(s, 2 + 2 * WAVES, HIDDEN)?, inner()?, inner()?, Linear::new(s, HIDDEN, 2)?]))
    }

    /// The noise in points `[n, 2]` at times whose waves are `[n, 2 WAVES]`.
    fn forward(&self, x: &Tensor, waves: &Tensor) -> Result<Tensor> {
        let [first, inner @ .., last] = &self.0;
        let mut h = first.forward(&Tensor::cat(&[x, waves], 1)?)?.silu()?;
        for layer in inner {
            h = layer.forward(&h)?.silu()?;
        }
        last.forward(&h)
    }
}

/// The mean square of what the network gets wrong of the noise in a batch.
fn loss(s: &Session, net: &Net, schedule: &Schedule, state: &mut u64) -> Result<Tensor> {
    let (mut noisy, mut noise, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BATCH {
        let t = (random(state) * TIMES as f32) as usize % TIMES;
        let left = schedule.left[t];
        for x in spiral(random(state)) {
            let n = normal(state);
            noisy.push(left.sqrt() * x + (1.0 - left).sqrt() * n);
            noise.push(n);
        }
        times.push(t);
    }
    let noisy = Tensor::new(s, &noisy, &[BATCH, 2])?;
    let waves = Tensor::new(s, &waves(times.into_iter()), &[BATCH, 2 * WAVES])?;
    net.forward(&noisy, &waves)?.sub(Tensor::new(s, &noise, &[BATCH, 2])?)?.square()?.mean(&[], false)
}

/// Points from noise, from the last time to the first.
fn sample(rt: &mut Runtime, net: &Net, schedule: &Schedule, n: usize) -> Result<Vec<f32>> {
    let s = rt.session().clone();
    let mut x = Tensor::randn(&s, &[n, 2])?;
    for t in (0..TIMES).rev() {
        let waves = Tensor::new(&s, &waves(std::iter::repeat_n(t, n)), &[n, 2 * WAVES])?;
        let (beta, left) = (f64::from(schedule.beta[t]), f64::from(schedule.left[t]));
        // scalars that change are launched with, so that all times are one plan
        let scalars: Vec<f32> =
            [beta / (1.0 - left).sqrt(), 1.0 / (1.0 - beta).sqrt(), if t > 0 { beta.sqrt() } else { 0.0 }]
                .iter()
                .map(|&v| v as f32)
                .collect();
        let scalar = |i: usize| Tensor::new(&s, &scalars[i..=i], &[1, 1]);
        let mean = x.sub(net.forward(&x, &waves)?.mul(scalar(0)?)?)?.mul(scalar(1)?)?;
        x = mean.add(Tensor::randn(&s, &[n, 2])?.mul(scalar(2)?)?)?;
        rt.realize(&[&x])?;
    }
    rt.to_vec(&x)
}

/// The part of points that are near the spiral.
fn near(points: &[f32]) -> f64 {
    let places: Vec<[f32; 2]> = (0..=1000).map(|i| spiral(i as f32 / 1000.0)).collect();
    let is_near = |p: &&[f32]| places.iter().any(|q| (p[0] - q[0]).hypot(p[1] - q[1]) < NEAR);
    points.chunks(2).filter(is_near).count() as f64 / (points.len() / 2) as f64
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let steps = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(8000);
    let mut rt = Runtime::open(args.first().map_or("auto", String::as_str), 0)?;
    let s = rt.session().clone();
    s.manual_seed(1);
    let (net, schedule, mut state) = (Net::new(&s)?, Schedule::new(), 1);
    // the rate is a scalar of the launch: all steps are one plan
    let mut optimizer = Adam::new(net.parameters(), &Tensor::variable_f32(&s, "rate"), AdamOpts::default())?;
    let rate = Rate::Cosine { steps, floor: 0.0 };
    rt.realize(&optimizer.tensors().iter().collect::<Vec<_>>())?;
    for step in 1..=steps {
        let loss = loss(&s, &net, &schedule, &mut state)?;
        optimizer.minimize(&loss)?;
        rt.engine().set_var("rate", Scalar::float(2e-3 * rate.at(step - 1)));
        let mut all = optimizer.tensors();
        all.push(loss.clone());
        rt.realize(&all.iter().collect::<Vec<_>>())?;
        if step % 1000 == 0 || step == 1 {
            println!("step {step:5}: {:.3} of the noise is not told", rt.to_vec::<f32>(&loss)?[0]);
        }
    }
    let noise = near(&(0..2000).map(|_| normal(&mut state)).collect::<Vec<_>>());
    let made = near(&sample(&mut rt, &net, &schedule, 1000)?);
    println!("{:.1} % of 1000 points are within {NEAR} of the spiral; of noise {:.1} %", 100.0 * made, 100.0 * noise);
    if made < 0.8 || made < 2.0 * noise {
        eprintln!("that is not learned: 80 % were expected");
        std::process::exit(1);
    }
    Ok(())
}
