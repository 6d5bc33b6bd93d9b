//! A small convolutional network that learns MNIST's digits (LeCun, Cortes, Burges).

use gradloom::dtype::Scalar;
use gradloom::io::{HostTensor, npz};
use gradloom::nn::{Conv, Layer, Linear, Mode, Module, Sequential};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Schedule};
use gradloom::tensor::{ConvOpts, PoolOpts};
use gradloom::{Error, Result, Runtime, Session, Tensor};

const BATCH: usize = 100;
const RATE: f64 = 3e-3;

fn pooled(x: &Tensor) -> Result<Tensor> {
    x.relu()?.max_pool(&PoolOpts::new(&[2, 2]))
}

fn network(s: &Session) -> Result<Sequential> {
    Ok(Sequential::new()
        .layer(Conv::new(s, 1, 16, &[5, 5], ConvOpts::new())?)
        .function(pooled)
        .layer(Conv::new(s, 16, 32, &[5, 5], ConvOpts::new())?)
        .function(pooled)
        .function(|x| x.flatten(1, -1))
        .layer(Linear::new(s, 32 * 4 * 4, 128)?)
        .function(Tensor::relu)
        .layer(Linear::new(s, 128, 10)?))
}

/// Digits `[n, 1, 28, 28]` from -1 to 1, and which they are `[n]`.
pub(crate) struct Digits {
    pixels: HostTensor,
    labels: HostTensor,
}

impl Digits {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.labels.data.len()
    }

    /// Those of these rows.
    pub(crate) fn batch(&self, s: &Session, rows: &[usize]) -> Result<(Tensor, Tensor)> {
        let pixel = |&p: &u8| f32::from(p) / 127.5 - 1.0;
        let pixels: Vec<f32> =
            rows.iter().flat_map(|&r| self.pixels.data[r * 784..][..784].iter().map(pixel)).collect();
        let labels: Vec<i32> = rows.iter().map(|&r| i32::from(self.labels.data[r])).collect();
        Ok((Tensor::new(s, &pixels, &[rows.len(), 1, 28, 28])?, Tensor::new(s, &labels, &[rows.len()])?))
    }
}

/// The digits to learn from and those to be tested by.
pub(crate) fn read(path: &str) -> Result<[Digits; 2]> {
    let advice = "`node scripts/fetch-models.mjs mnist` fetches it";
    let file = std::fs::read(path).map_err(|e| Error::value("read", format!("{path}: {e}; {advice}")))?;
    let mut arrays = npz::read(&file)?;
    let mut take = |name: &str| {
        let place = arrays.iter().position(|a| a.0 == name);
        place.map(|i| arrays.swap_remove(i).1).ok_or_else(|| Error::value("mnist", format!("{path} has no `{name}`")))
    };
    let mut digits = |of: &str| {
        let (pixels, labels) = (take(&format!("x_{of}"))?, take(&format!("y_{of}"))?);
        if pixels.data.len() != labels.data.len() * 784 {
            return Err(Error::value("mnist", format!("{path}: bytes of {of} that are not 28 by 28 each")));
        }
        Ok(Digits { pixels, labels })
    };
    Ok([digits("train")?, digits("test")?])
}

/// What was learned.
pub(crate) struct Learned {
    /// The network.
    #[allow(dead_code, reason = "who only asks how well it has learned needs no more")]
    pub(crate) net: Sequential,
    /// The loss of each step.
    pub(crate) losses: Vec<f32>,
    /// How many of the digits that it had not seen it told right.
    pub(crate) right: usize,
    /// How many there were.
    pub(crate) all: usize,
}

/// Goes through all digits so many times, in another order each time.
pub(crate) fn learn(rt: &mut Runtime, [train, test]: &[Digits; 2], epochs: usize) -> Result<Learned> {
    let s = rt.session().clone();
    s.manual_seed(1);
    let net = network(&s)?;
    // the rate is a scalar of the launch: all steps are one plan
    let steps = epochs * (train.len() / BATCH);
    let (rate, cosine) = (Tensor::variable_f32(&s, "rate"), Schedule::Cosine { steps, floor: 0.0 });
    let mut adam = Adam::new(net.parameters(), &rate, AdamOpts::default())?;
    rt.realize(&adam.tensors().iter().collect::<Vec<_>>())?;
    let mut order: Vec<usize> = (0..train.len()).collect();
    let (mut random, mut losses) = (1u64, Vec::with_capacity(steps));
    for _ in 0..epochs {
        for i in (1..order.len()).rev() {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            order.swap(i, (random >> 33) as usize % (i + 1));
        }
        for rows in order.chunks_exact(BATCH) {
            let (x, y) = train.batch(&s, rows)?;
            let loss = net.apply(&x, Mode::Train)?.cross_entropy(&y, None, 0.0)?;
            adam.minimize(&loss)?;
            rt.engine().set_var("rate", Scalar::float(RATE * cosine.at(losses.len())));
            let mut all = adam.tensors();
            all.push(loss.clone());
            rt.realize(&all.iter().collect::<Vec<_>>())?;
            losses.push(rt.to_vec::<f32>(&loss)?[0]);
        }
    }
    let mut right = 0;
    for rows in (0..test.len()).collect::<Vec<_>>().chunks(BATCH) {
        let (x, _) = test.batch(&s, rows)?;
        let told = rt.to_vec::<i32>(&net.apply(&x, Mode::Eval)?.argmax(1, false)?)?;
        right += rows.iter().zip(told).filter(|(r, t)| i32::from(test.labels.data[**r]) == *t).count();
    }
    Ok(Learned { net, losses, right, all: test.len() })
}
