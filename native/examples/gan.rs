//! A generative adversarial network: Goodfellow et al., "Generative adversarial nets" (2014), of convolutions (Radford, Metz, Chintala 2016), with the
//! penalty R1 on the discriminator's gradient at real images (Mescheder, Geiger, Nowozin, "Which training methods for GANs do actually converge?",
//! 2018), which takes gradients of gradients. It learns handwritten digits (LeCun, Cortes, Burges), and which is asked for (Mirza, Osindero 2014). A
//! network that reads digits tells of how many that were made it is sure what they are, and which are those that were asked for.
//! `cargo run --release -p gradloom --example gan -- [DEVICE] [STEPS] [FILE]`: the file is what the example `mnist` reads.

#[path = "mnist/judge.rs"]
mod judge;
#[path = "mnist/learn.rs"]
mod learn;

use gradloom::dtype::Scalar;
use gradloom::nn::{BatchNorm, Conv, ConvTranspose, Layer, Linear, Mode, Module, Sequential};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Schedule};
use gradloom::tensor::{ConvOpts, ConvTransposeOpts, Session};
use gradloom::{DType, Result, Runtime, Tensor};
use judge::Judge;
use std::time::Instant;

/// Numbers that a digit is made of.
const LATENT: usize = 32;
const DIGITS: usize = 10;
const BATCH: usize = 64;
const RATE: f64 = 2e-3;
/// The weight of the penalty.
const R1: f64 = 1.0;
/// Channels at half the side; twice as many at a quarter.
const WIDTH: usize = 16;
const MADE: usize = 1000;

/// Side to half of it, or back.
fn half() -> ConvOpts {
    ConvOpts::new().stride(&[2, 2]).padding(&[1, 1])
}

/// From noise and numbers `[n, LATENT + DIGITS]` to images `[n, 1, 28, 28]`.
fn generator(s: &Session) -> Result<Sequential> {
    let twice = || ConvTransposeOpts { conv: half(), ..ConvTransposeOpts::default() };
    Ok(Sequential::new()
        .layer(Linear::new(s, LATENT + DIGITS, 2 * WIDTH * 49)?.without_bias())
        .function(|x| x.reshape(&[-1, 2 * WIDTH as i64, 7, 7]))
        .layer(BatchNorm::new(s, 2 * WIDTH)?)
        .function(Tensor::relu)
        .layer(ConvTranspose::new(s, 2 * WIDTH, WIDTH, &[4, 4], twice())?.without_bias())
        .layer(BatchNorm::new(s, WIDTH)?)
        .function(Tensor::relu)
        .layer(ConvTranspose::new(s, WIDTH, 1, &[4, 4], twice())?)
        .function(Tensor::tanh))
}

/// From images to how real they look as each of the digits, `[n, DIGITS]`.
fn discriminator(s: &Session) -> Result<Sequential> {
    Ok(Sequential::new()
        .layer(Conv::new(s, 1, WIDTH, &[4, 4], half())?)
        .function(|x| x.leaky_relu(0.2))
        .layer(Conv::new(s, WIDTH, 2 * WIDTH, &[4, 4], half())?)
        .function(|x| x.leaky_relu(0.2))
        .function(|x| x.flatten(1, -1))
        .layer(Linear::new(s, 2 * WIDTH * 49, DIGITS)?))
}

/// How real images look as the digits whose numbers, one-hot `[n, DIGITS]`, are given.
fn real(net: &Sequential, images: &Tensor, numbers: &Tensor) -> Result<Tensor> {
    net.apply(images, Mode::Train)?.mul(numbers)?.sum(&[1], false)
}

/// What the discriminator loses: it does not tell real from made, or is steep where images are real.
fn discriminator_loss(net: &Sequential, images: &Tensor, made: &Tensor, numbers: &Tensor) -> Result<Tensor> {
    let score = real(net, images, numbers)?;
    let slope = score.sum(&[], false)?.grad(&[images])?.swap_remove(0);
    let penalty = slope.square()?.sum(&[1, 2, 3], false)?.mean(&[], false)?.mul(R1 / 2.0)?;
    let wrong = score.neg()?.softplus(1.0)?.add(real(net, &made.detach(), numbers)?.softplus(1.0)?)?;
    wrong.mean(&[], false)?.add(penalty)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let steps = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(1500);
    let digits = learn::read(args.get(2).map_or(".cache/datasets/mnist.npz", String::as_str))?;
    let mut rt = Runtime::open(args.first().map_or("auto", String::as_str), 0)?;
    let s = rt.session().clone();
    let judge = Judge::new(&mut rt, &digits)?;
    let (maker, teller) = (generator(&s)?, discriminator(&s)?);
    // the rate is a scalar of the launch: all steps are one plan
    let (rate, cosine) = (Tensor::variable_f32(&s, "rate"), Schedule::Cosine { steps, floor: 0.0 });
    let opts = AdamOpts { beta1: 0.5, beta2: 0.99, ..AdamOpts::default() };
    let adam = |net: &Sequential| Adam::new(net.parameters(), &rate, opts);
    let mut optimizers = [adam(&maker)?, adam(&teller)?];
    for o in &optimizers {
        rt.realize(&o.tensors().iter().collect::<Vec<_>>())?;
    }
    let (mut state, begin) = (1u64, Instant::now());
    for step in 1..=steps {
        let mut rows = [0; BATCH];
        for row in &mut rows {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *row = (state >> 33) as usize % digits[0].len();
        }
        let (images, numbers) = digits[0].batch(&s, &rows)?;
        let numbers = numbers.one_hot(DIGITS)?.cast(DType::F32)?;
        let noise = Tensor::randn(&s, &[BATCH, LATENT])?;
        let made = maker.apply(&Tensor::cat(&[&noise, &numbers], 1)?, Mode::Train)?;
        let told = discriminator_loss(&teller, &images, &made, &numbers)?;
        // both from the networks as they are before the step
        let fooled = real(&teller, &made, &numbers)?.neg()?.softplus(1.0)?.mean(&[], false)?;
        optimizers[0].minimize(&fooled)?;
        optimizers[1].minimize(&told)?;
        rt.engine().set_var("rate", Scalar::float(RATE * cosine.at(step - 1)));
        let mut all: Vec<Tensor> = optimizers.iter().flat_map(|o| o.tensors()).collect();
        all.extend(maker.tensors());
        all.extend([told.clone(), fooled.clone()]);
        rt.realize(&all.iter().collect::<Vec<_>>())?;
        if step % 250 == 0 || step == 1 {
            let (told, fooled) = (rt.to_vec::<f32>(&told)?[0], rt.to_vec::<f32>(&fooled)?[0]);
            let seconds = begin.elapsed().as_secs_f64();
            println!("step {step:5}, {seconds:5.1} s: discriminator {told:.3}, generator {fooled:.3}");
        }
    }
    let asked: Vec<i32> = (0..MADE).map(|i| (i % DIGITS) as i32).collect();
    let numbers = Tensor::new(&s, &asked, &[MADE])?.one_hot(DIGITS)?.cast(DType::F32)?;
    let noise = Tensor::randn(&s, &[MADE, LATENT])?;
    let images = maker.apply(&Tensor::cat(&[&noise, &numbers], 1)?, Mode::Eval)?.flatten(1, -1)?.to_storage()?;
    if !judge.made(&mut rt, &images, &asked, [0.75, 0.85])? {
        std::process::exit(1);
    }
    Ok(())
}
