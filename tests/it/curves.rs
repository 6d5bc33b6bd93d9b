//! Five networks learn from the beginning as they do in PyTorch: losses of forty steps, and the size of each tensor after them. Weights, data and noise
//! are numbers that names give, so that both sides have the same; `tests/zoo/curves.py` is PyTorch's side, `tests/node/curves.test.mjs` JavaScript's.

use gradloom::dtype::Scalar;
use gradloom::io::json::Json;
use gradloom::nn::{
    AttentionMask, BatchNorm, Conv, ConvTranspose, Embedding, Gru, Layer, LayerNorm, Linear, Lstm, Mode, Module, Role,
    Sequential, TransformerEncoder, TransformerOpts,
};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Rule, Schedule, Sgd, SgdOpts, Tuned, clip_grad_norm};
use gradloom::tensor::{ConvOpts, ConvTransposeOpts, PoolOpts};
use gradloom::{Result, Runtime, Session, Tensor};
use gradloom_tests::here;
use gradloom_tests::opinfo::data;
use std::collections::BTreeMap;

const STEPS: usize = 40;
const BATCH: usize = 16;
const SIDE: usize = 12;
const PIXELS: usize = SIDE * SIDE;
const CLASSES: usize = 10;
const WINDOW: usize = 24;
const WIDTH: usize = 32;
const MOMENTS: usize = 10;
const LATENT: usize = 4;
const SEED_NOISE: usize = 8;
/// Pictures from here on have no place where rounding would decide which of four is the largest or what a rectifier lets through: a gradient jumps
/// there, and losses are others from then on. `curves.py` says how near they come.
const FIRST: usize = 900;

/// How far losses and sizes may be off, relative to themselves, where nothing has grown yet: some dozens of roundings.
const LIMIT: f64 = 3e-6;
/// How many times as far off as PyTorch's own f32 is from its f64 up to that step.
const TIMES: f64 = 10.0;

fn numbers(name: &str, n: usize, lo: f64, hi: f64) -> Vec<f32> {
    let seed = name.bytes().fold(0u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
    data(seed, n, lo, hi).into_iter().map(|x| x as f32).collect()
}

/// Integers below a limit.
fn places(name: &str, n: usize, limit: usize) -> Vec<usize> {
    numbers(name, n, 0.0, limit as f64).into_iter().map(|x| (x as usize).min(limit - 1)).collect()
}

/// Of mean 0 and variance 1, but uniform.
fn normal(s: &Session, name: &str, shape: &[usize]) -> Result<Tensor> {
    let limit = 3f64.sqrt();
    Tensor::new(s, &numbers(name, shape.iter().product(), -limit, limit), shape)
}

/// Noisy pictures `[batch, 1, side, side]` within -1 and 1, and of which class each is; a share of them is the class's pattern.
fn pictures(s: &Session, batch: usize, classes: usize, share: f64) -> Result<(Tensor, Tensor)> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for i in batch * BATCH..(batch + 1) * BATCH {
        let pattern = numbers(&format!("pattern{}", i % classes), PIXELS, -1.0, 1.0);
        let noise = numbers(&format!("picture{i}"), PIXELS, -1.0, 1.0);
        pixels.extend(
            pattern.iter().zip(noise).map(|(&p, n)| (share * f64::from(p) + (1.0 - share) * f64::from(n)) as f32),
        );
        labels.push((i % classes) as i32);
    }
    Ok((Tensor::new(s, &pixels, &[BATCH, 1, SIDE, SIDE])?, Tensor::new(s, &labels, &[BATCH])?))
}

/// Parts of a network by their names.
struct Parts<'a>(Vec<(&'a str, &'a dyn Module)>);

impl Module for Parts<'_> {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        assert_eq!(prefix, "");
        self.0.iter().for_each(|(name, part)| part.visit(name, f));
    }
}

fn mean(t: &Tensor) -> Result<Tensor> {
    t.mean(&[], false)
}

/// Weights that their names give, as `fill` of `curves.py` makes them.
fn fill(job: &str, net: &dyn Module) -> Result<()> {
    let mut all = Ok(());
    net.visit("", &mut |name, role, t| {
        let (shape, key) = (t.shape(), format!("{job}.{name}"));
        let n = shape.iter().product();
        let limit = (3.0 / shape[1..].iter().product::<usize>() as f64).sqrt();
        let values = match shape.len() {
            _ if role == Role::Buffer => return,
            1 if name.ends_with("weight") => numbers(&key, n, 0.9, 1.1),
            1 => numbers(&key, n, -0.1, 0.1),
            _ => numbers(&key, n, -limit, limit),
        };
        let set = Tensor::new(t.session(), &values, &shape).and_then(|v| t.set(&v.to_storage()?));
        if set.is_err() {
            all = set;
        }
    });
    all
}

/// What a job gives.
struct Given {
    losses: Vec<Vec<f64>>,
    sizes: BTreeMap<String, f64>,
}

/// A job under way.
struct Job<'a> {
    rt: &'a mut Runtime,
    losses: Vec<Vec<f64>>,
}

impl Job<'_> {
    /// Computes what a step changes, and its losses.
    fn step(&mut self, changed: &[&[Tensor]], losses: &[&Tensor]) -> Result<Vec<f64>> {
        let all: Vec<&Tensor> = changed.iter().flat_map(|t| t.iter()).chain(losses.iter().copied()).collect();
        self.rt.realize(&all)?;
        losses.iter().map(|t| Ok(f64::from(self.rt.to_vec::<f32>(t)?[0]))).collect()
    }

    fn end(self, net: &dyn Module) -> Result<Given> {
        let mut sizes = BTreeMap::new();
        for (name, t) in net.state_dict() {
            let sum: f64 = self.rt.to_vec::<f32>(&t)?.iter().map(|&x| f64::from(x).powi(2)).sum();
            sizes.insert(name, sum.sqrt());
        }
        Ok(Given { losses: self.losses, sizes })
    }
}

/// Convolutions with norms over batches; descent with momentum and weight decay.
fn classifier(mut job: Job<'_>) -> Result<Given> {
    let s = job.rt.session().clone();
    let net = Sequential::new()
        .layer(Conv::new(&s, 1, 8, &[3, 3], ConvOpts::new().padding(&[1, 1]))?.without_bias())
        .layer(BatchNorm::new(&s, 8)?)
        .function(|x| x.max_pool(&PoolOpts::new(&[2, 2])))
        .function(Tensor::relu)
        .layer(Conv::new(&s, 8, 16, &[3, 3], ConvOpts::new().stride(&[2, 2]).padding(&[1, 1]))?.without_bias())
        .layer(BatchNorm::new(&s, 16)?)
        .function(Tensor::relu)
        .function(|x| x.flatten(1, -1))
        .layer(Linear::new(&s, 144, CLASSES)?);
    fill("classifier", &net)?;
    let opts = SgdOpts { momentum: 0.9, weight_decay: 1e-3, ..SgdOpts::default() };
    let mut sgd = Sgd::new(net.parameters(), 0.05, opts)?;
    for step in 0..STEPS {
        let (x, y) = pictures(&s, FIRST + step, CLASSES, 0.25)?;
        let loss = net.apply(&x, Mode::Train)?.cross_entropy(&y, None, 0.0)?;
        sgd.minimize(&loss)?;
        let row = job.step(&[&sgd.tensors(), &net.tensors()], &[&loss])?;
        job.losses.push(row);
    }
    let (x, y) = pictures(&s, FIRST + STEPS, CLASSES, 0.25)?;
    let unseen = net.apply(&x, Mode::Eval)?.cross_entropy(&y, None, 0.0)?;
    let row = job.step(&[], &[&unseen])?;
    job.losses.push(row);
    job.end(&net)
}

/// A transformer that writes on; AdamW, a rate that rises and falls, gradients that are clipped.
fn letters(mut job: Job<'_>, text: &str, letters: &str) -> Result<Given> {
    let s = job.rt.session().clone();
    let codes: Vec<i32> =
        text.chars().map(|c| letters.chars().position(|l| l == c).expect("a letter") as i32).collect();
    let opts = TransformerOpts {
        feed_forward: 2 * WIDTH,
        dropout: 0.0,
        activation: Tensor::gelu,
        norm_first: true,
        ..TransformerOpts::default()
    };
    let words = Embedding::new(&s, letters.len(), WIDTH)?;
    let spots = Embedding::new(&s, WINDOW, WIDTH)?;
    let mut encoder = TransformerEncoder::new(&s, WIDTH, 4, 2, opts)?;
    encoder.norm = Some(LayerNorm::new(&s, &[WIDTH])?);
    let net = Parts(vec![("letters", &words), ("places", &spots), ("encoder", &encoder)]);
    fill("letters", &net)?;
    let params = net.parameters();
    let mut adam = Adam::decoupled(params.clone(), &Tensor::variable_f32(&s, "rate"), 0.1)?;
    let rate = Schedule::Warmup { steps: 5, then: Box::new(Schedule::Cosine { steps: STEPS - 5, floor: 0.0 }) };
    let causal = AttentionMask { causal: true, ..AttentionMask::default() };
    for step in 0..STEPS {
        let starts = places(&format!("letters.start{step}"), BATCH, codes.len() - WINDOW);
        let windows = |after: usize| -> Vec<i32> {
            starts.iter().flat_map(|&at| codes[at + after..][..WINDOW].iter().copied()).collect()
        };
        let x = words.forward(&Tensor::new(&s, &windows(0), &[BATCH, WINDOW])?)?.add(&spots.weight)?;
        let logits = encoder.forward(&x, &causal, Mode::Train)?.matmul(&words.weight.t()?)?.flatten(0, 1)?;
        let loss = logits.cross_entropy(&Tensor::new(&s, &windows(1), &[BATCH * WINDOW])?, None, 0.0)?;
        let (grads, length) = clip_grad_norm(&loss.grad(&params.iter().collect::<Vec<_>>())?, 1.0, 2.0)?;
        adam.step(&grads)?;
        job.rt.engine().set_var("rate", Scalar::float(5e-3 * rate.at(step)));
        let row = job.step(&[&adam.tensors()], &[&loss, &length])?;
        job.losses.push(row);
    }
    job.end(&net)
}

/// An LSTM and a GRU that add two marked numbers of ten; Adam.
fn sums(mut job: Job<'_>) -> Result<Given> {
    let s = job.rt.session().clone();
    let (lstm, gru) = (Lstm::new(&s, 2, 16, 1)?, Gru::new(&s, 16, 16, 1)?);
    let head = Linear::new(&s, 16, 1)?;
    let net = Parts(vec![("lstm", &lstm), ("gru", &gru), ("head", &head)]);
    fill("sums", &net)?;
    let mut adam = Adam::new(net.parameters(), 0.01, AdamOpts::default())?;
    for step in 0..STEPS {
        let values = numbers(&format!("sums.value{step}"), BATCH * MOMENTS, -1.0, 1.0);
        let first = places(&format!("sums.first{step}"), BATCH, 5);
        let second = places(&format!("sums.second{step}"), BATCH, 5);
        let marked = |b: usize, t: usize| t == first[b] || t == 5 + second[b];
        let marks = (0..BATCH * MOMENTS).map(|i| f32::from(u8::from(marked(i / MOMENTS, i % MOMENTS))));
        let x: Vec<f32> = values.iter().copied().zip(marks).flat_map(|(v, m)| [v, m]).collect();
        let sum = |b: usize| f64::from(values[b * MOMENTS + first[b]]) + f64::from(values[b * MOMENTS + 5 + second[b]]);
        let wanted: Vec<f32> = (0..BATCH).map(|b| sum(b) as f32).collect();
        let h = lstm.forward(&Tensor::new(&s, &x, &[BATCH, MOMENTS, 2])?, None)?.0;
        let last = gru.forward(&h, None)?.0.select_at(1, -1)?;
        let loss = head.forward(&last)?.mse_loss(&Tensor::new(&s, &wanted, &[BATCH, 1])?)?;
        adam.minimize(&loss)?;
        let row = job.step(&[&adam.tensors()], &[&loss])?;
        job.losses.push(row);
    }
    job.end(&net)
}

/// A variational autoencoder, and how far its codes are from noise; Adam with a penalty.
fn vae(mut job: Job<'_>) -> Result<Given> {
    let s = job.rt.session().clone();
    let (hidden, up, out) = (Linear::new(&s, PIXELS, 32)?, Linear::new(&s, LATENT, 32)?, Linear::new(&s, 32, PIXELS)?);
    let (middle, log_var) = (Linear::new(&s, 32, LATENT)?, Linear::new(&s, 32, LATENT)?);
    let net = Parts(vec![("hidden", &hidden), ("up", &up), ("out", &out), ("mean", &middle), ("log_var", &log_var)]);
    fill("vae", &net)?;
    let opts = AdamOpts { beta2: 0.99, weight_decay: 1e-3, ..AdamOpts::default() };
    let mut adam = Adam::new(net.parameters(), 3e-3, opts)?;
    for step in 0..STEPS {
        let x = pictures(&s, step % 4, 4, 0.5)?.0.flatten(1, -1)?.mul(0.5)?.add(0.5)?;
        let h = hidden.forward(&x)?.tanh()?;
        let (m, v) = (middle.forward(&h)?, log_var.forward(&h)?);
        let z = m.add(v.mul(0.5)?.exp()?.mul(normal(&s, &format!("vae.noise{step}"), &[BATCH, LATENT])?)?)?;
        let logits = out.forward(&up.forward(&z)?.relu()?)?;
        let told = mean(&logits.bce_logits_each(&x, None)?.sum(&[1], false)?)?;
        let apart = m.square()?.add(v.exp()?)?.sub(&v)?.sub(1.0)?.sum(&[1], false)?;
        let apart = mean(&apart)?.mul(0.5)?;
        let loss = told.add(&apart)?;
        adam.minimize(&loss)?;
        let row = job.step(&[&adam.tensors()], &[&loss, &apart])?;
        job.losses.push(row);
    }
    job.end(&net)
}

/// Two networks that learn against each other; RMSprop with momentum, and AdamW.
fn gan(mut job: Job<'_>) -> Result<Given> {
    let s = job.rt.session().clone();
    let twice = || ConvTransposeOpts { conv: ConvOpts::new().stride(&[2, 2]).padding(&[1, 1]), ..Default::default() };
    let made = Sequential::new()
        .layer(Linear::new(&s, SEED_NOISE, 72)?.without_bias())
        .function(|x| x.reshape(&[BATCH, 8, 3, 3]))
        .layer(BatchNorm::new(&s, 8)?)
        .function(Tensor::silu)
        .layer(ConvTranspose::new(&s, 8, 8, &[4, 4], twice())?.without_bias())
        .layer(BatchNorm::new(&s, 8)?)
        .function(Tensor::silu)
        .layer(ConvTranspose::new(&s, 8, 1, &[4, 4], twice())?)
        .function(Tensor::tanh);
    let half = || ConvOpts::new().stride(&[2, 2]).padding(&[1, 1]);
    let told = Sequential::new()
        .layer(Conv::new(&s, 1, 8, &[4, 4], half())?)
        .function(|x| x.elu(1.0))
        .layer(Conv::new(&s, 8, 16, &[3, 3], half())?)
        .function(|x| x.elu(1.0))
        .function(|x| x.flatten(1, -1))
        .layer(Linear::new(&s, 144, 1)?);
    let net = Parts(vec![("made", &made), ("told", &told)]);
    fill("gan", &net)?;
    let rule = Rule::RmsProp { alpha: 0.9, eps: 1e-8, momentum: 0.5, centered: false };
    let mut first = Tuned::new(rule, told.parameters(), 5e-4, 0.0)?;
    let opts = AdamOpts { beta1: 0.5, weight_decay: 0.01, decoupled: true, ..AdamOpts::default() };
    let mut second = Adam::new(made.parameters(), 2e-3, opts)?;
    let tell = |x: &Tensor| told.apply(x, Mode::Train);
    for step in 0..STEPS {
        let real = pictures(&s, step % 4, CLASSES, 0.5)?.0;
        let new = made.apply(&normal(&s, &format!("gan.noise{step}"), &[BATCH, SEED_NOISE])?, Mode::Train)?;
        let wrong = tell(&real)?.neg()?.softplus(1.0)?.add(tell(&new.detach())?.softplus(1.0)?)?;
        let wrong = mean(&wrong)?;
        first.minimize(&wrong)?;
        // by the other network as it has become
        let fooled = mean(&tell(&new)?.neg()?.softplus(1.0)?)?;
        second.minimize(&fooled)?;
        let row = job.step(&[&first.tensors(), &second.tensors(), &made.tensors()], &[&wrong, &fooled])?;
        job.losses.push(row);
    }
    job.end(&net)
}

fn list(json: &Json) -> Vec<f64> {
    json.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

/// How far numbers are off, relative to what they should be.
fn off(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(a, b)| ((a - b) / b).abs()).fold(0.0, f64::max)
}

/// Compares what a job gives with what it gave in PyTorch.
fn check(name: &str, device: &str, job: impl FnOnce(Job<'_>, &Json) -> Result<Given>) {
    let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { return };
    let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/curves.json")).expect("what was recorded");
    let file = Json::parse(&text).expect("JSON");
    let want = file.get("jobs").and_then(|j| j.get(name)).expect("the job");
    let given = job(Job { rt: &mut rt, losses: Vec::new() }, &file).unwrap_or_else(|e| panic!("{name}: {e}"));

    let losses: Vec<Vec<f64>> = want.get("losses").and_then(Json::as_array).unwrap().iter().map(list).collect();
    let rounding = list(want.get("rounding").unwrap());
    assert!(losses.len() >= STEPS && given.losses.len() == losses.len(), "{name}: {} rows", given.losses.len());
    let (mut grown, mut most, mut share) = (0f64, 0f64, 0f64);
    for (step, (got, want)) in given.losses.iter().zip(&losses).enumerate() {
        grown = grown.max(rounding[step]);
        let (by, limit) = (off(got, want), LIMIT + TIMES * grown);
        assert!(by <= limit, "{name} on {device}, step {step}: {got:?}, not {want:?}, off by {by:.1e}");
        (most, share) = (most.max(by), share.max(by / limit));
    }
    let sizes = want.get("sizes").and_then(Json::as_object).unwrap();
    let mut largest = 0f64;
    for (tensor, size) in sizes {
        let got = *given.sizes.get(tensor).unwrap_or_else(|| panic!("{name}: no {tensor}"));
        let by = off(&[got], &[size.as_f64().unwrap()]);
        assert!(by <= LIMIT + TIMES * grown, "{name} on {device}: {tensor} is {got} long, off by {by:.1e}");
        largest = largest.max(by);
    }
    println!("{name} on {device}: losses off by {most:.1e} at most, {share:.2} of the limit, sizes {largest:.1e}");
    // the comparison sees a step more or less
    let moved = |i: usize| off(&losses[i], &losses[i - 1]) > 10.0 * (LIMIT + TIMES * grown);
    assert!((1..STEPS).all(moved), "{name}: a step that changes nothing");
}

#[test]
fn a_convolutional_classifier_learns_as_in_pytorch() {
    check("classifier", "cpu", |job, _| classifier(job));
}

#[test]
fn a_transformer_of_letters_learns_as_in_pytorch() {
    let word = |file: &Json, key: &str| file.get(key).and_then(Json::as_str).expect("a text").to_owned();
    check("letters", "cpu", |job, file| letters(job, &word(file, "text"), &word(file, "letters")));
}

#[test]
fn recurrent_networks_learn_as_in_pytorch() {
    check("sums", "cpu", |job, _| sums(job));
}

#[test]
fn a_variational_autoencoder_learns_as_in_pytorch() {
    check("vae", "cpu", |job, _| vae(job));
}

#[test]
fn two_networks_against_each_other_learn_as_in_pytorch() {
    check("gan", "cpu", |job, _| gan(job));
}
