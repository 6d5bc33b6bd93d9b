//! Layers and optimisers on torch's parameters: loaded by name, so names, layouts and loading are tested too. Gradients
//! flow through the load, an assign.

use super::host::{eval, realize};
use gradloom_core::nn::{
    BatchNorm, Conv, ConvTranspose, Embedding, GroupNorm, Gru, Layer, LayerNorm, Linear, Lstm, LstmState, Mode, Module,
    MultiHeadAttention, Sequential, StateDict,
};
use gradloom_core::optim::{Adam, AdamOpts, Optimizer, Rule, Sgd, SgdOpts, Tuned};
use gradloom_core::tensor::{Attention, ConvOpts, ConvTransposeOpts};
use gradloom_core::{DType, Result, Session, Tensor};

/// Loads `x[skip..]` as the module's tensors, in the order the module names them.
fn load(module: &dyn Module, x: &[Tensor]) -> Result<()> {
    let mut names = Vec::new();
    module.visit("", &mut |name, _, _| names.push(name.to_string()));
    assert_eq!(names.len(), x.len(), "{names:?}");
    let dict: StateDict = names.into_iter().zip(x.iter().cloned()).collect();
    assert_eq!(module.load_state_dict(&dict)?, Vec::<String>::new());
    Ok(())
}

/// f64 inputs (for finite differences) want f64 parameters: plain replacement of the f32 ones.
fn layer(module: impl Layer, x: &[Tensor]) -> Result<Vec<Tensor>> {
    load(&module, &x[1..])?;
    Ok(vec![module.apply(&x[0], Mode::Eval)?])
}

pub(crate) fn run(name: &str, s: &Session, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let attention = Attention::default();
    match name {
        "nn_linear" => layer(Linear::new(s, 4, 3)?, x),
        "nn_mlp" => {
            let mlp =
                Sequential::new().layer(Linear::new(s, 4, 5)?).function(Tensor::tanh).layer(Linear::new(s, 5, 2)?);
            layer(mlp, x)
        }
        "nn_conv" => layer(Conv::new(s, 2, 4, &[3, 3], ConvOpts::new().padding(&[1]).groups(2))?, x),
        "nn_conv_transpose" => {
            let conv = ConvOpts::new().stride(&[2]);
            layer(ConvTranspose::new(s, 2, 3, &[3], ConvTransposeOpts { conv, output_padding: Vec::new() })?, x)
        }
        "nn_embedding" => layer(Embedding::new(s, 7, 3)?, x),
        "nn_layer_norm" => layer(LayerNorm::new(s, &[3, 4])?, x),
        "nn_group_norm" => layer(GroupNorm::new(s, 2, 4)?, x),
        "nn_lstm" | "nn_lstm_deep" | "nn_lstm_state" => {
            let (lstm, skip) = match name {
                "nn_lstm" => (Lstm::new(s, 3, 4, 1)?, 1),
                "nn_lstm_deep" => (Lstm::bidirectional(s, 2, 3, 2)?, 1),
                _ => (Lstm::new(s, 2, 3, 1)?, 3),
            };
            load(&lstm, &x[skip..])?;
            let state = (skip == 3).then(|| LstmState { h: x[1].clone(), c: x[2].clone() });
            let (y, state) = lstm.forward(&x[0], state.as_ref())?;
            Ok(vec![y, state.h, state.c])
        }
        "nn_gru" | "nn_gru_deep" => {
            let gru = if name == "nn_gru" { Gru::new(s, 3, 4, 1)? } else { Gru::bidirectional(s, 2, 3, 2)? };
            load(&gru, &x[1..])?;
            let (y, h) = gru.forward(&x[0], None)?;
            Ok(vec![y, h])
        }
        "nn_attention" => {
            let m = MultiHeadAttention::new(s, 6, 2)?;
            load(&m, &x[2..])?;
            Ok(vec![m.forward(&x[0], &x[1], &x[1], &attention)?])
        }
        "nn_batch_norm" => {
            let m = BatchNorm::new(s, 3)?;
            load(&m, &[x[3].clone(), x[4].clone(), x[1].clone(), x[2].clone()])?;
            let y = m.apply(&x[0], Mode::Train)?;
            Ok(vec![y, m.running_mean.clone(), m.running_var.clone()])
        }
        _ if name.starts_with("opt20_") => twenty(name, x),
        _ => optimise(name, s, x, 5),
    }
}

/// Steps on `sum((p*q*a - b)^2) + sum(q^2)`; every other step is realized at once, the others stay lazy.
fn optimise(name: &str, s: &Session, x: &[Tensor], steps: usize) -> Result<Vec<Tensor>> {
    let params = vec![x[0].to_storage()?, x[1].to_storage()?];
    let lr = Tensor::full(s, 0.05, DType::F32, &[])?;
    let mut opt: Box<dyn Optimizer> = match name {
        "opt_sgd" => Box::new(Sgd::new(params.clone(), 0.01, SgdOpts::default())?),
        "opt_momentum" => {
            Box::new(Sgd::new(params.clone(), 0.01, SgdOpts { momentum: 0.9, nesterov: false, weight_decay: 0.1 })?)
        }
        "opt_nesterov" => {
            Box::new(Sgd::new(params.clone(), 0.01, SgdOpts { momentum: 0.8, nesterov: true, weight_decay: 0.0 })?)
        }
        "opt_adam" => Box::new(Adam::new(params.clone(), &lr, AdamOpts::default())?),
        "opt_adam_decay" => {
            let opts = AdamOpts { beta1: 0.8, beta2: 0.95, eps: 1e-6, weight_decay: 0.1, decoupled: false };
            Box::new(Adam::new(params.clone(), 0.05, opts)?)
        }
        "opt_adamw" => Box::new(Adam::decoupled(params.clone(), &lr, 0.2)?),
        _ => panic!("no case {name}"),
    };
    for step in 0..steps {
        let (p, q) = (&params[0], &params[1]);
        let error = p.mul(q)?.mul(&x[2])?.sub(&x[3])?;
        let loss = error.square()?.sum(&[], false)?.add(q.square()?.sum(&[], false)?)?;
        opt.minimize(&loss)?;
        if step % 2 == 1 {
            realize(&opt.tensors().iter().collect::<Vec<_>>());
        }
    }
    Ok(params)
}

/// Twenty steps on `sum((tanh(p) q - a)^2)`.
fn twenty(name: &str, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let params = vec![x[0].to_storage()?, x[1].to_storage()?];
    let centered = Rule::RmsProp { alpha: 0.99, eps: 1e-8, momentum: 0.5, centered: true };
    let (rule, lr, decay) = match name {
        "opt20_rmsprop" => (Rule::rmsprop(), 0.01, 0.1),
        "opt20_rmsprop_centered" => (centered, 0.01, 0.0),
        "opt20_adagrad" => (Rule::Adagrad { lr_decay: 0.01, eps: 1e-10 }, 0.1, 0.0),
        "opt20_adadelta" => (Rule::adadelta(), 1.0, 0.0),
        "opt20_adamax" => (Rule::adamax(), 0.05, 0.0),
        "opt20_adafactor" => (Rule::adafactor(), 0.05, 0.1),
        "opt20_muon" => (Rule::muon(), 0.02, 0.1),
        "opt20_lamb" => (Rule::lamb(), 0.05, 0.1),
        "opt20_lars" => (Rule::lars(), 1.0, 0.1),
        "opt20_lion" => (Rule::lion(), 0.01, 0.1),
        _ => panic!("no case {name}"),
    };
    let mut opt = Tuned::new(rule, params.clone(), lr, decay)?;
    for _ in 0..20 {
        let loss = params[0].tanh()?.matmul(&params[1])?.sub(&x[2])?.square()?.sum(&[], false)?;
        opt.minimize(&loss)?;
        realize(&opt.tensors().iter().collect::<Vec<_>>());
    }
    Ok(params)
}

#[test]
fn a_state_dict_that_does_not_fit_names_the_tensor() {
    let s = Session::new();
    let m = Sequential::new().layer(Linear::new(&s, 2, 3).unwrap()).layer(Linear::new(&s, 3, 1).unwrap());
    let mut dict = m.state_dict();
    assert_eq!(dict.keys().collect::<Vec<_>>(), ["0.bias", "0.weight", "1.bias", "1.weight"]);
    dict.insert("extra".into(), Tensor::zeros(&s, DType::F32, &[1]).unwrap());
    assert_eq!(m.load_state_dict(&dict).unwrap(), ["extra"]);
    dict.insert("1.weight".into(), Tensor::zeros(&s, DType::F32, &[3, 1]).unwrap());
    let e = m.load_state_dict(&dict).unwrap_err();
    assert_eq!(e.code(), "E_INPUT");
    assert!(e.to_string().contains("1.weight") && e.to_string().contains("[3, 1]"), "{e}");
    dict.remove("0.bias");
    assert!(m.load_state_dict(&dict).unwrap_err().to_string().contains("0.bias"));
}

/// Two layers learn exclusive or.
#[test]
fn a_network_learns() {
    let s = Session::new();
    s.manual_seed(3);
    let x = Tensor::new(&s, &[0f32, 0., 0., 1., 1., 0., 1., 1.], &[4, 2]).unwrap();
    let y = Tensor::new(&s, &[0i32, 1, 1, 0], &[4]).unwrap();
    let m = Sequential::new()
        .layer(Linear::new(&s, 2, 8).unwrap())
        .function(Tensor::tanh)
        .layer(Linear::new(&s, 8, 2).unwrap());
    let mut opt = Adam::new(m.parameters(), 0.1, AdamOpts::default()).unwrap();
    let mut losses = Vec::new();
    for _ in 0..60 {
        let loss = m.apply(&x, Mode::Train).unwrap().cross_entropy(&y, None, 0.0).unwrap();
        opt.minimize(&loss).unwrap();
        let mut all = opt.tensors();
        all.push(loss.clone());
        realize(&all.iter().collect::<Vec<_>>());
        losses.push(eval(&[&loss])[0].values[0]);
        if losses.len() % 20 == 0 {
            s.compact();
        }
    }
    assert!(losses[0] > 0.5 && losses[59] < 0.02, "{losses:?}");
    let picked = m.apply(&x, Mode::Eval).unwrap().argmax(1, false).unwrap();
    assert_eq!(eval(&[&picked])[0].values, [0.0, 1.0, 1.0, 0.0]);
    assert!(s.state().graph.len() < 40_000, "the graph is compacted: {}", s.state().graph.len());
}
