//! A generative adversarial network: Goodfellow et al., "Generative adversarial nets" (2014), with the penalty R1 on the discriminator's gradient at
//! real points (Mescheder, Geiger, Nowozin, "Which training methods for GANs do actually converge?", 2018), which takes gradients of gradients. It
//! learns points around eight places on a circle, where plain GANs forget places. What it makes is tested: how many points are near a place, and
//! how many places have their share.
//! `cargo run --release -p gradloom --example gan -- [DEVICE] [STEPS]`

use gradloom::dtype::Scalar;
use gradloom::nn::{Linear, Module, Role};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Schedule};
use gradloom::tensor::Session;
use gradloom::{Result, Runtime, Tensor};

const PLACES: usize = 8;
const RADIUS: f32 = 2.0;
/// How far points are from their place, in each direction.
const SPREAD: f32 = 0.1;
/// Numbers that a point is made of.
const LATENT: usize = 8;
const HIDDEN: usize = 128;
const BATCH: usize = 256;
/// The weight of the penalty.
const R1: f64 = 0.5;

/// Uniform from 0 to 1, without 0.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    ((*state >> 40) + 1) as f32 / ((1u64 << 24) + 1) as f32
}

fn place(i: usize) -> [f32; 2] {
    let angle = std::f32::consts::TAU * i as f32 / PLACES as f32;
    [RADIUS * angle.cos(), RADIUS * angle.sin()]
}

/// Points `[n, 2]`.
fn real(s: &Session, n: usize, state: &mut u64) -> Result<Tensor> {
    let mut data = Vec::with_capacity(2 * n);
    for _ in 0..n {
        let [x, y] = place((random(state) * PLACES as f32) as usize % PLACES);
        // Box and Muller's normal pair
        let (r, angle) = ((-2.0 * random(state).ln()).sqrt(), std::f32::consts::TAU * random(state));
        data.extend([x + SPREAD * r * angle.cos(), y + SPREAD * r * angle.sin()]);
    }
    Tensor::new(s, &data, &[n, 2])
}

/// Three layers: the generator from noise to points, the discriminator from points to a logit.
struct Net([Linear; 3]);

impl Module for Net {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        for (i, layer) in self.0.iter().enumerate() {
            layer.visit(&format!("{prefix}{i}"), f);
        }
    }
}

impl Net {
    fn new(s: &Session, from: usize, to: usize) -> Result<Net> {
        Ok(Net([Linear::new(s, from, HIDDEN)?, Linear::new(s, HIDDEN, HIDDEN)?, Linear::new(s, HIDDEN, to)?]))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [a, b, c] = &self.0;
        let h = a.forward(x)?.leaky_relu(0.2)?;
        c.forward(&b.forward(&h)?.leaky_relu(0.2)?)
    }
}

/// What the discriminator loses: it does not tell real from made, or is steep where points are real.
fn discriminator_loss(net: &Net, real: &Tensor, made: &Tensor) -> Result<Tensor> {
    let score = net.forward(real)?;
    let slope = score.sum(&[], false)?.grad(&[real])?.swap_remove(0);
    let penalty = slope.square()?.sum(&[1], false)?.mean(&[], false)?.mul(R1 / 2.0)?;
    let wrong = score.neg()?.softplus(1.0)?.add(net.forward(&made.detach())?.softplus(1.0)?)?;
    wrong.mean(&[], false)?.add(penalty)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let steps = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(8000);
    let mut rt = Runtime::open(args.first().map_or("auto", String::as_str), 0)?;
    let s = rt.session().clone();
    s.manual_seed(1);
    let (generator, discriminator) = (Net::new(&s, LATENT, 2)?, Net::new(&s, 2, 1)?);
    // the rate is a scalar of the launch: all steps are one plan
    let (rate, cosine) = (Tensor::variable_f32(&s, "rate"), Schedule::Cosine { steps, floor: 0.0 });
    let opts = || AdamOpts { beta1: 0.0, beta2: 0.99, ..AdamOpts::default() };
    let adam = |net: &Net| Adam::new(net.parameters(), &rate, opts());
    let mut optimizers = [adam(&generator)?, adam(&discriminator)?];
    for o in &optimizers {
        rt.realize(&o.tensors().iter().collect::<Vec<_>>())?;
    }
    let mut state = 1;
    for step in 1..=steps {
        let x = real(&s, BATCH, &mut state)?;
        let made = generator.forward(&Tensor::randn(&s, &[BATCH, LATENT])?)?;
        let told = discriminator_loss(&discriminator, &x, &made)?;
        // both from the networks as they are before the step
        let fooled = discriminator.forward(&made)?.neg()?.softplus(1.0)?.mean(&[], false)?;
        optimizers[0].minimize(&fooled)?;
        optimizers[1].minimize(&told)?;
        rt.engine().set_var("rate", Scalar::float(1e-3 * cosine.at(step - 1)));
        let mut all: Vec<Tensor> = optimizers.iter().flat_map(|o| o.tensors()).collect();
        all.extend([told.clone(), fooled.clone()]);
        rt.realize(&all.iter().collect::<Vec<_>>())?;
        if step % 1000 == 0 || step == 1 {
            let (told, fooled) = (rt.to_vec::<f32>(&told)?[0], rt.to_vec::<f32>(&fooled)?[0]);
            println!("step {step:5}: discriminator {told:.3}, generator {fooled:.3}");
        }
    }
    let n = 2000;
    let points = rt.to_vec::<f32>(&generator.forward(&Tensor::randn(&s, &[n, LATENT])?)?)?;
    let mut near = [0; PLACES];
    for p in points.chunks(2) {
        let far = |i: usize| (p[0] - place(i)[0]).hypot(p[1] - place(i)[1]);
        let best = (0..PLACES).min_by(|&a, &b| far(a).total_cmp(&far(b))).unwrap_or(0);
        near[best] += usize::from(far(best) < 4.0 * SPREAD);
    }
    let good = near.iter().sum::<usize>() as f64 / n as f64;
    // a quarter of what each would have if all had the same
    let covered = near.iter().filter(|&&k| k >= n / PLACES / 4).count();
    println!(
        "{:.1} % of {n} points are near a place, {covered} of {PLACES} places have their share: {near:?}",
        100.0 * good
    );
    if good < 0.8 || covered < PLACES - 1 {
        eprintln!("that is not learned: 80 % and {} places were expected", PLACES - 1);
        std::process::exit(1);
    }
    Ok(())
}
