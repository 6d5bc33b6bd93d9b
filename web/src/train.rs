//! Ops for training and generation by name: random numbers, initialisers, recurrent networks, sampling. Called from
//! `ops`.

use crate::ops::{Nums, bad};
use gradloom_core::Result;
use gradloom_core::nn::{self, Mode, Nonlinearity, Recurrent, RecurrentOpts, init};
use gradloom_core::tensor::{Sampling, Session, Tensor};

/// Ops that create tensors of random numbers.
pub(crate) fn create(s: &Session, name: &str, n: &mut Nums<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match name {
        "normal" => {
            let (mean, std) = (n.next()?, n.next()?);
            Tensor::normal(s, mean, std, &n.sizes())?
        }
        "bernoulli" => {
            let p = n.next()?;
            Tensor::bernoulli(s, p, &n.sizes())?
        }
        "exponential" => {
            let rate = n.next()?;
            Tensor::exponential(s, rate, &n.sizes())?
        }
        "trunc_normal" => {
            let (mean, std, low, high) = (n.next()?, n.next()?, n.next()?, n.next()?);
            Tensor::trunc_normal(s, mean, std, low, high, &n.sizes())?
        }
        "randperm" => Tensor::randperm(s, n.size()?)?,
        _ => return Ok(None),
    }))
}

/// Ops on tensors for training and generation; `None` for other names.
pub(crate) fn run(name: &str, x: &[Tensor], n: &mut Nums<'_>) -> Result<Option<Vec<Tensor>>> {
    let a = x.first().ok_or_else(|| bad(name, "an operand is missing"))?;
    let one = match name {
        "gradient_place" => a.gradient_place()?,
        // operands: the value, the gradient placeholder, then equally many inputs and gradients
        "with_gradients" => {
            let (inputs, grads) = x.get(2..).unwrap_or_default().split_at(x.len().saturating_sub(2) / 2);
            let place = x.get(1).ok_or_else(|| bad(name, "an operand is missing"))?;
            a.with_gradients(place, &inputs.iter().collect::<Vec<_>>(), grads)?
        }
        "checkpointed" => a.checkpointed(&x[1..].iter().collect::<Vec<_>>())?,
        "bernoulli_of" => a.bernoulli_of()?,
        "gamma_of" => a.gamma_of()?,
        "poisson_of" => a.poisson_of()?,
        "multinomial" => a.multinomial(n.size()?, n.flag()?)?,
        "categorical" => a.categorical()?,
        // the flags say whether previous tokens and a key are given
        "sample" => {
            let how = Sampling {
                temperature: n.next()?,
                top_k: n.size()?,
                top_p: n.next()?,
                min_p: n.next()?,
                repetition_penalty: n.next()?,
            };
            let (seen, key) = (n.flag()?, n.flag()?);
            let mut rest = x[1..].iter();
            let seen = rest.next().filter(|_| seen);
            a.sample(&how, seen, if key { x.last() } else { None })?
        }
        "init" => {
            initialize(a, n)?;
            a.clone()
        }
        "batch_norm" => {
            let at = |i: usize| x.get(i).ok_or_else(|| bad(name, "an operand is missing"));
            a.batch_norm(at(1)?, at(2)?, x.get(3), x.get(4), n.next()?)?
        }
        "batch_stats" => {
            let (mean, var) = a.batch_stats()?;
            return Ok(Some(vec![mean, var]));
        }
        "recurrent" => return recurrent(x, n).map(Some),
        "prelu" => a.prelu(x.get(1).ok_or_else(|| bad(name, "an operand is missing"))?)?,
        _ => return Ok(None),
    };
    Ok(Some(vec![one]))
}

fn initialize(t: &Tensor, n: &mut Nums<'_>) -> Result<()> {
    let kind = n.size()?;
    let fan = |out: bool| if out { init::Fan::Out } else { init::Fan::In };
    match kind {
        0 => init::constant(t, n.next()?),
        1 => init::uniform(t, n.next()?, n.next()?),
        2 => init::normal(t, n.next()?, n.next()?),
        3 => init::trunc_normal(t, n.next()?, n.next()?, n.next()?, n.next()?),
        4 => init::xavier_uniform(t, n.next()?),
        5 => init::xavier_normal(t, n.next()?),
        // the negative slope of the leaky ReLU that follows; 1 for none
        6 => init::kaiming_uniform(t, fan(n.flag()?), init::Gain::LeakyRelu(n.next()?)),
        7 => init::kaiming_normal(t, fan(n.flag()?), init::Gain::LeakyRelu(n.next()?)),
        8 => init::orthogonal(t, n.next()?),
        9 => init::eye(t),
        10 => init::dirac(t, n.size()?),
        11 => init::sparse(t, n.next()?, n.next()?),
        _ => Err(bad("init", "there is no such kind")),
    }
}

/// Runs a recurrent layer. Operands: x, the state if there is one, weights. Numbers: kind, number of state tensors,
/// then the options.
fn recurrent(x: &[Tensor], n: &mut Nums<'_>) -> Result<Vec<Tensor>> {
    let kind = match n.size()? {
        0 => Recurrent::Rnn(Nonlinearity::Tanh),
        1 => Recurrent::Rnn(Nonlinearity::Relu),
        2 => Recurrent::Lstm,
        _ => Recurrent::Gru,
    };
    let states = n.size()?;
    let opts = RecurrentOpts {
        layers: n.size()?,
        bidirectional: n.flag()?,
        bias: n.flag()?,
        dropout: n.next()?,
        batch_first: n.flag()?,
        projection: n.size()?,
    };
    let mode = if n.flag()? { Mode::Train } else { Mode::Eval };
    if x.len() <= states {
        return Err(bad("recurrent", "an operand is missing"));
    }
    let (state, weights) = x[1..].split_at(states);
    let state = (states > 0).then_some(state);
    let (y, last) = nn::recurrent(kind, &x[0], state, weights, opts, mode)?;
    Ok([y].into_iter().chain(last).collect())
}
