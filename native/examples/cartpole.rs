//! A pole on a cart is balanced: REINFORCE (Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning",
//! 1992) with the mean of each moment as a baseline, in the world of Barto, Sutton and Anderson (1983), sixteen carts at a time. An episode ends after
//! 200 moments or when the pole falls; at random it lasts some twenty.
//! `cargo run --release -p gradloom --example cartpole -- [DEVICE] [ROUNDS]`

use gradloom::nn::{Layer, Linear, Mode, Module, Sequential};
use gradloom::optim::{Adam, AdamOpts, Optimizer};
use gradloom::{DType, Result, Runtime, Tensor};

const CARTS: usize = 16;
const MOMENTS: usize = 200;
/// What a later reward is worth a moment earlier.
const DISCOUNT: f32 = 0.99;

/// Uniform from 0 to 1.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 40) as f32 / (1u64 << 24) as f32
}

/// Place and speed of the cart, angle and speed of the pole.
type Cart = [f32; 4];

/// A fiftieth of a second on, pushed to the left (0) or to the right (1).
fn moved([x, v, angle, turning]: Cart, push: usize) -> Cart {
    const GRAVITY: f32 = 9.8;
    const POLE: f32 = 0.1;
    const ALL: f32 = 1.0 + POLE;
    const HALF: f32 = 0.5;
    const SECONDS: f32 = 0.02;
    let force = if push == 1 { 10.0 } else { -10.0 };
    let (sin, cos) = angle.sin_cos();
    let along = (force + POLE * HALF * turning * turning * sin) / ALL;
    let angular = (GRAVITY * sin - cos * along) / (HALF * (4.0 / 3.0 - POLE * cos * cos / ALL));
    let linear = along - POLE * HALF * angular * cos / ALL;
    [x + SECONDS * v, v + SECONDS * linear, angle + SECONDS * turning, turning + SECONDS * angular]
}

fn is_down(c: &Cart) -> bool {
    c[0].abs() > 2.4 || c[2].abs() > 12f32.to_radians()
}

/// What happened to all carts: a row a moment, and of each whether it still stood.
struct Round {
    states: Vec<f32>,
    actions: Vec<i32>,
    stood: Vec<bool>,
}

/// Plays until all poles are down. Carts that are down stay as they are and count no more.
fn play(rt: &mut Runtime, net: &Sequential, state: &mut u64) -> Result<Round> {
    let s = rt.session().clone();
    let mut carts: Vec<Cart> = (0..CARTS).map(|_| [0; 4].map(|_: i32| 0.1 * random(state) - 0.05)).collect();
    let mut round = Round { states: Vec::new(), actions: Vec::new(), stood: Vec::new() };
    for _ in 0..MOMENTS {
        let seen = carts.concat();
        let chances = net.apply(&Tensor::new(&s, &seen, &[CARTS, 4])?, Mode::Eval)?.softmax(1)?;
        let chances = rt.to_vec::<f32>(&chances)?;
        round.states.extend(&seen);
        for (i, c) in carts.iter_mut().enumerate() {
            let stands = !is_down(c);
            let action = usize::from(random(state) < chances[2 * i + 1]);
            round.stood.push(stands);
            round.actions.push(action as i32);
            if stands {
                *c = moved(*c, action);
            }
        }
        rt.collect();
    }
    Ok(round)
}

/// How much better each moment went than it does on average, one number a row, 0 of what is over.
fn advantages(stood: &[bool]) -> Vec<f32> {
    let mut to_come = vec![0f32; stood.len() + CARTS];
    for at in (0..stood.len()).rev() {
        to_come[at] = if stood[at] { 1.0 + DISCOUNT * to_come[at + CARTS] } else { 0.0 };
    }
    let mut out = vec![0f32; stood.len()];
    for (row, stood) in stood.chunks(CARTS).enumerate() {
        let all = &to_come[row * CARTS..][..CARTS];
        let mean = all.iter().sum::<f32>() / CARTS as f32;
        for (i, _) in stood.iter().enumerate().filter(|s| *s.1) {
            out[row * CARTS + i] = all[i] - mean;
        }
    }
    let scale = (out.iter().map(|x| x * x).sum::<f32>() / out.len() as f32).sqrt().max(1e-6);
    out.into_iter().map(|x| x / scale).collect()
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(80);
    let mut rt = Runtime::open(args.first().map_or("auto", String::as_str), 0)?;
    let s = rt.session().clone();
    s.manual_seed(3);
    let net = Sequential::new().layer(Linear::new(&s, 4, 64)?).function(Tensor::tanh).layer(Linear::new(&s, 64, 2)?);
    let mut optimizer = Adam::new(net.parameters(), 1e-2, AdamOpts::default())?;
    rt.realize(&optimizer.tensors().iter().collect::<Vec<_>>())?;
    let (mut state, mut lasted) = (3, Vec::new());
    for number in 1..=rounds {
        let round = play(&mut rt, &net, &mut state)?;
        lasted.push(round.stood.iter().filter(|s| **s).count() as f64 / CARTS as f64);
        let n = round.actions.len();
        let better = Tensor::new(&s, &advantages(&round.stood), &[n])?;
        let actions = Tensor::new(&s, &round.actions, &[n, 1])?;
        let chosen =
            net.apply(&Tensor::new(&s, &round.states, &[n, 4])?, Mode::Train)?.log_softmax(1)?.gather(1, &actions)?;
        let loss = chosen.reshape(&[n])?.mul(better)?.mean(&[], false)?.neg()?.cast(DType::F32)?;
        optimizer.minimize(&loss)?;
        rt.realize(&optimizer.tensors().iter().collect::<Vec<_>>())?;
        rt.collect();
        if number % 10 == 0 || number == 1 {
            println!("round {number:3}: a pole stood for {:.0} of {MOMENTS} moments", lasted[number - 1]);
        }
    }
    let last = &lasted[lasted.len().saturating_sub(10)..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    println!("in the last rounds {mean:.0}, in the first one {:.0}", lasted[0]);
    if mean < 120.0 {
        eprintln!("that is not learned: 120 was expected");
        std::process::exit(1);
    }
    Ok(())
}
