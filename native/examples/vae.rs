//! A variational autoencoder: Kingma, Welling, "Auto-encoding variational Bayes" (2013), on images of a bar at a random place and angle: an encoder gives a
//! mean and a variance for each image, a sample of them is decoded again, and the loss is the evidence lower bound. What it has learned is tested on
//! images it has not seen, against the best that can be done without looking at them, and on what it makes of noise.
//! `cargo run --release -p gradloom --example vae -- [DEVICE] [STEPS]`

use gradloom::nn::{Linear, Module, Role};
use gradloom::optim::{Adam, AdamOpts, Optimizer};
use gradloom::tensor::Session;
use gradloom::{Result, Runtime, Tensor};

const SIDE: usize = 16;
const PIXELS: usize = SIDE * SIDE;
const HIDDEN: usize = 128;
/// Numbers that an image becomes.
const LATENT: usize = 4;
const BATCH: usize = 64;

/// Uniform from 0 to 1.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 40) as f32 / (1u64 << 24) as f32
}

/// Images `[n, pixels]`: how near each pixel is to a bar.
fn bars(s: &Session, n: usize, state: &mut u64) -> Result<Tensor> {
    let mut data = Vec::with_capacity(n * PIXELS);
    for _ in 0..n {
        let centre = [random(state), random(state)].map(|x| SIDE as f32 * (0.3 + 0.4 * x));
        let (sin, cos) = (std::f32::consts::PI * random(state)).sin_cos();
        data.extend((0..PIXELS).map(|i| {
            let (x, y) = ((i % SIDE) as f32 - centre[0], (i / SIDE) as f32 - centre[1]);
            let (along, across) = ((x * cos + y * sin).abs() - 4.0, (y * cos - x * sin).abs() - 1.0);
            (1.0 - along.max(across)).clamp(0.0, 1.0)
        }));
    }
    Tensor::new(s, &data, &[n, PIXELS])
}

struct Vae {
    hidden: Linear,
    mean: Linear,
    log_var: Linear,
    up: Linear,
    out: Linear,
}

impl Module for Vae {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        let all = [&self.hidden, &self.mean, &self.log_var, &self.up, &self.out];
        for (name, layer) in ["hidden", "mean", "log_var", "up", "out"].into_iter().zip(all) {
            layer.visit(&format!("{prefix}{name}"), f);
        }
    }
}

impl Vae {
    fn new(s: &Session) -> Result<Vae> {
        Ok(Vae {
            hidden: Linear::new(s, PIXELS, HIDDEN)?,
            mean: Linear::new(s, HIDDEN, LATENT)?,
            log_var: Linear::new(s, HIDDEN, LATENT)?,
            up: Linear::new(s, LATENT, HIDDEN)?,
            out: Linear::new(s, HIDDEN, PIXELS)?,
        })
    }

    /// `q(z | x)`: the mean and the logarithm of the variance, `[n, latent]` each.
    fn encode(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let h = self.hidden.forward(x)?.relu()?;
        Ok((self.mean.forward(&h)?, self.log_var.forward(&h)?))
    }

    /// Logits of `p(x | z)`, `[n, pixels]`.
    fn decode(&self, z: &Tensor) -> Result<Tensor> {
        self.out.forward(&self.up.forward(z)?.relu()?)
    }

    /// The negative evidence lower bound in nats an image, with noise for the sample of `z`.
    fn loss(&self, x: &Tensor, noise: &Tensor) -> Result<Tensor> {
        let (mean, log_var) = self.encode(x)?;
        let z = mean.add(log_var.mul(0.5)?.exp()?.mul(noise)?)?;
        let reconstruction = self.decode(&z)?.bce_logits_each(x, None)?.sum(&[1], false)?;
        let divergence = mean.square()?.add(log_var.exp()?)?.sub(&log_var)?.sub(1.0)?.sum(&[1], false)?.mul(0.5)?;
        reconstruction.add(divergence)?.mean(&[], false)
    }
}

/// What the test images cost in nats if each pixel is told by its mean over all of them.
fn without_looking(images: &[f32]) -> f64 {
    let n = images.len() / PIXELS;
    let entropy = |i: usize| {
        let p = (0..n).map(|k| f64::from(images[k * PIXELS + i])).sum::<f64>() / n as f64;
        let part = |q: f64| if q > 0.0 { -q * q.ln() } else { 0.0 };
        part(p) + part(1.0 - p)
    };
    (0..PIXELS).map(entropy).sum()
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let steps = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(1500);
    let mut rt = Runtime::open(args.first().map_or("auto", String::as_str), 0)?;
    let s = rt.session().clone();
    s.manual_seed(1);
    let net = Vae::new(&s)?;
    let mut optimizer = Adam::new(net.parameters(), 2e-3, AdamOpts::default())?;
    rt.realize(&optimizer.tensors().iter().collect::<Vec<_>>())?;
    let mut state = 1;
    let test = bars(&s, 256, &mut state)?;
    let baseline = without_looking(&rt.to_vec::<f32>(&test)?);
    for step in 1..=steps {
        let x = bars(&s, BATCH, &mut state)?;
        let loss = net.loss(&x, &Tensor::randn(&s, &[BATCH, LATENT])?)?;
        optimizer.minimize(&loss)?;
        let mut all = optimizer.tensors();
        all.push(loss.clone());
        rt.realize(&all.iter().collect::<Vec<_>>())?;
        if step % 250 == 0 || step == 1 {
            println!("step {step:5}: {:.1} nats an image", rt.to_vec::<f32>(&loss)?[0]);
        }
    }
    let loss = net.loss(&test, &Tensor::randn(&s, &[256, LATENT])?)?;
    let loss = f64::from(rt.to_vec::<f32>(&loss)?[0]);
    println!("images it has not seen: {loss:.1} nats, {baseline:.1} without looking at them");
    let made = net.decode(&Tensor::randn(&s, &[1, LATENT])?)?.sigmoid()?;
    let made = rt.to_vec::<f32>(&made)?;
    for row in made.chunks(SIDE) {
        println!("{}", row.iter().map(|p| [' ', '.', 'o', '#'][(p * 3.99) as usize]).collect::<String>());
    }
    if loss > 0.75 * baseline {
        eprintln!("that is not learned: three quarters of {baseline:.1} was expected");
        std::process::exit(1);
    }
    Ok(())
}
