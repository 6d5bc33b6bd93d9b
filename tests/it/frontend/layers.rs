//! Layers and optimisers on torch's parameters: loaded by name, so names, layouts and loading are tested too. Gradients
//! flow through the load, an assign.

use super::host::{eval, realize};
use gradloom_core::nn::{
    AdaptiveLogSoftmax, AttentionMask, Bag, BatchNorm, Bilinear, Conv, ConvTranspose, Embedding, EmbeddingBag,
    GroupNorm, Gru, GruCell, InstanceNorm, Layer, LayerNorm, Linear, Lstm, LstmCell, LstmState, Mode, Module,
    MultiHeadAttention, PRelu, RecurrentOpts, Rnn, RnnCell, Sequential, SpectralNorm, StateDict, Transformer,
    TransformerDecoderLayer, TransformerEncoderLayer, TransformerOpts, WeightNorm, init,
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
        "nn_attention_weights" => {
            let m = MultiHeadAttention::new(s, 6, 2)?;
            load(&m, &x[2..])?;
            let (y, seen) = m.forward_weighted(&x[0], &x[1], &x[1], &attention)?;
            Ok(vec![y, seen])
        }
        "nn_instance_tracked" | "nn_instance_tracked_use" => {
            let m = InstanceNorm::new(s, 3)?.tracking(s, 3)?;
            load(&m, &x[1..])?;
            let (mean, var) = m.running.clone().expect("it keeps them");
            let training = name == "nn_instance_tracked";
            let y = m.apply(&x[0], if training { Mode::Train } else { Mode::Eval })?;
            Ok(if training { vec![y, mean, var] } else { vec![y] })
        }
        "nn_lstm_projected" => {
            let opts = RecurrentOpts { layers: 2, bidirectional: true, projection: 2, ..RecurrentOpts::default() };
            let m = Lstm::with(s, 3, 4, opts)?;
            load(&m, &x[3..])?;
            let (y, state) = m.forward(&x[0], Some(&LstmState { h: x[1].clone(), c: x[2].clone() }))?;
            Ok(vec![y, state.h, state.c])
        }
        "nn_weight_norm" => layer(WeightNorm::new(Conv::new(s, 2, 4, &[3], ConvOpts::new())?)?, x),
        "nn_weight_norm_along" => layer(WeightNorm::along(Linear::new(s, 3, 4)?, 1)?, x),
        "nn_spectral_norm" => {
            layer(SpectralNorm::new(ConvTranspose::new(s, 2, 3, &[2], ConvTransposeOpts::default())?)?, x)
        }
        "nn_spectral_norm_train" => {
            let m = SpectralNorm::new(Linear::new(s, 3, 4)?)?;
            load(&m, &x[1..])?;
            let y = m.apply(&x[0], Mode::Train)?;
            Ok([y].into_iter().chain(m.vectors).collect())
        }
        "nn_adaptive_softmax" => {
            let m = AdaptiveLogSoftmax::new(s, 6, 12, &[4, 7], 2.0)?;
            load(&m, &x[2..])?;
            let (picked, loss) = m.forward(&x[0], &x[1])?;
            Ok(vec![picked, loss])
        }
        _ if name.starts_with("nn_rnn") || name.starts_with("nn_gru") || name.ends_with("_cell") => {
            recurrent(name, s, x)
        }
        _ if name.starts_with("nn_bag") => bag(name, s, x),
        _ if name.starts_with("nn_") => transformer(name, s, x),
        _ if name.starts_with("opt20_") => twenty(name, x),
        _ => optimise(name, s, x, 5),
    }
}

fn recurrent(name: &str, s: &Session, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let opts = RecurrentOpts::default();
    match name {
        "nn_rnn_deep" => {
            let m = Rnn::with(s, 2, 3, RecurrentOpts { layers: 2, bidirectional: true, ..opts })?;
            load(&m, &x[1..])?;
            let (y, h) = m.forward_in(&x[0], None, Mode::Train)?;
            Ok(vec![y, h])
        }
        "nn_rnn_relu" | "nn_gru_time_first" => {
            let opts = RecurrentOpts { bias: false, batch_first: false, ..opts };
            let (y, h) = if name == "nn_rnn_relu" {
                let m = Rnn::with(s, 2, 3, opts)?.relu();
                load(&m, &x[2..])?;
                m.forward(&x[0], Some(&x[1]))?
            } else {
                let m = Gru::with(s, 3, 2, RecurrentOpts { layers: 2, ..opts })?;
                load(&m, &x[2..])?;
                m.forward(&x[0], Some(&x[1]))?
            };
            Ok(vec![y, h])
        }
        "nn_rnn_cell" => {
            let m = RnnCell::new(s, 3, 4)?;
            load(&m, &x[2..])?;
            Ok(vec![m.forward(&x[0], Some(&x[1]))?])
        }
        "nn_gru_cell" => {
            let m = GruCell::new(s, 3, 4)?;
            load(&m, &x[2..])?;
            Ok(vec![m.forward(&x[0], Some(&x[1]))?])
        }
        _ => {
            let m = LstmCell::new(s, 3, 4)?;
            load(&m, &x[3..])?;
            let next = m.forward(&x[0], Some(&LstmState { h: x[1].clone(), c: x[2].clone() }))?;
            Ok(vec![next.h, next.c])
        }
    }
}

fn bag(name: &str, s: &Session, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mode = match name {
        "nn_bag_mean" => Bag::Mean,
        "nn_bag_max" => Bag::Max,
        _ => Bag::Sum,
    };
    let mut m = EmbeddingBag::new(s, 7, 3, mode)?;
    m.padding = (mode == Bag::Mean).then_some(2);
    load(&m, &x[x.len() - 1..])?;
    let y = if mode == Bag::Sum { m.forward_offsets(&x[0], &x[1], Some(&x[2]))? } else { m.forward(&x[0], None)? };
    Ok(vec![y])
}

fn transformer(name: &str, s: &Session, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let opts = TransformerOpts { feed_forward: 5, dropout: 0.0, ..TransformerOpts::default() };
    let (all, later) = (AttentionMask::default(), AttentionMask { causal: true, ..AttentionMask::default() });
    let y = match name {
        "nn_encoder_layer" => {
            let m = TransformerEncoderLayer::new(s, 4, 2, opts)?;
            load(&m, &x[1..])?;
            m.forward(&x[0], &all, Mode::Train)?
        }
        "nn_encoder_layer_pre" => {
            let opts = TransformerOpts { activation: Tensor::gelu, norm_first: true, ..opts };
            let m = TransformerEncoderLayer::new(s, 4, 2, opts)?;
            load(&m, &x[1..])?;
            m.forward(&x[0], &later, Mode::Train)?
        }
        "nn_decoder_layer" => {
            let m = TransformerDecoderLayer::new(s, 4, 2, opts)?;
            load(&m, &x[2..])?;
            m.forward(&x[0], &x[1], &later, &all, Mode::Train)?
        }
        "nn_transformer" => {
            let m = Transformer::new(s, 4, 2, (1, 2), opts)?;
            load(&m, &x[2..])?;
            m.forward(&x[0], &x[1], [&all; 3], Mode::Eval)?
        }
        "nn_prelu" => return layer(PRelu::new(s, 3)?, x),
        _ => {
            let m = Bilinear::new(s, 3, 2, 4)?;
            load(&m, &x[2..])?;
            m.forward(&x[0], &x[1])?
        }
    };
    Ok(vec![y])
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

/// The names that torch's modules give.
#[test]
fn names_are_torchs() {
    let s = Session::new();
    let names = |m: &dyn Module| m.state_dict().into_keys().collect::<Vec<_>>().join(" ");
    let opts = RecurrentOpts { bidirectional: true, bias: false, ..RecurrentOpts::default() };
    let gru = Gru::with(&s, 1, 1, opts).unwrap();
    assert_eq!(names(&gru), "weight_hh_l0 weight_hh_l0_reverse weight_ih_l0 weight_ih_l0_reverse");
    assert_eq!(names(&LstmCell::new(&s, 1, 1).unwrap()), "bias_hh bias_ih weight_hh weight_ih");
    let m = Transformer::new(&s, 2, 1, (1, 1), TransformerOpts { feed_forward: 1, ..Default::default() }).unwrap();
    let dict = m.state_dict();
    for name in [
        "encoder.layers.0.self_attn.in_proj_weight",
        "encoder.layers.0.linear1.weight",
        "encoder.layers.0.norm2.bias",
        "encoder.norm.weight",
        "decoder.layers.0.self_attn.out_proj.weight",
        "decoder.layers.0.multihead_attn.in_proj_bias",
        "decoder.layers.0.norm3.weight",
        "decoder.norm.bias",
    ] {
        assert!(dict.contains_key(name), "{name} is not in {:?}", dict.keys());
    }
    assert_eq!(dict.len(), 12 + 18 + 4);
}

#[test]
fn dropout_is_for_training() {
    let s = Session::new();
    let opts = TransformerOpts { feed_forward: 8, dropout: 0.5, ..TransformerOpts::default() };
    let m = TransformerEncoderLayer::new(&s, 4, 2, opts).unwrap();
    let x = Tensor::randn(&s, &[1, 3, 4]).unwrap().to_storage().unwrap();
    let y = |mode| m.forward(&x, &AttentionMask::default(), mode).unwrap();
    let v = eval(&[&y(Mode::Eval), &y(Mode::Eval), &y(Mode::Train), &y(Mode::Train)]);
    assert_eq!(v[0].values, v[1].values);
    assert_ne!(v[2].values, v[3].values);
    let gru = Gru::with(&s, 4, 64, RecurrentOpts { layers: 2, dropout: 0.5, ..Default::default() }).unwrap();
    let y = |mode| gru.forward_in(&x, None, mode).unwrap().0;
    let v = eval(&[&y(Mode::Eval), &y(Mode::Eval), &y(Mode::Train), &y(Mode::Train)]);
    assert_eq!(v[0].values, v[1].values);
    assert_ne!(v[2].values, v[3].values);
}

#[test]
fn initial_values_have_their_distributions() {
    let s = Session::new();
    s.manual_seed(5);
    let moments = |t: &Tensor| {
        let v = &eval(&[t])[0].values;
        let mean = v.iter().sum::<f64>() / v.len() as f64;
        (mean, (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64).sqrt())
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 0.03 * b.abs(), "{a} is not near {b}");
    let t = Tensor::zeros(&s, DType::F32, &[120, 40, 3]).unwrap().to_storage().unwrap();
    init::kaiming_normal(&t, init::Fan::Out, init::Gain::Relu).unwrap();
    near(moments(&t).1, (2.0 / 360.0f64).sqrt());
    init::kaiming_uniform(&t, init::Fan::In, init::Gain::LeakyRelu(0.2)).unwrap();
    near(moments(&t).1, (2.0 / 1.04 / 120.0f64).sqrt());
    init::xavier_normal(&t, 2.0).unwrap();
    near(moments(&t).1, 2.0 * (2.0 / 480.0f64).sqrt());
    init::trunc_normal(&t, 1.0, 2.0, 0.0, 2.0).unwrap();
    let v = eval(&[&t]).swap_remove(0).values;
    assert!(v.iter().all(|x| (0.0..=2.0).contains(x)));
    // the deviation of a normal number that is within half a deviation of its mean
    near(moments(&t).1, 2.0 * 0.283995);
    init::constant(&t, 0.5).unwrap();
    assert_eq!(moments(&t), (0.5, 0.0));
    let t = Tensor::zeros(&s, DType::F32, &[10, 8]).unwrap().to_storage().unwrap();
    init::sparse(&t, 0.3, 1.0).unwrap();
    assert_eq!(eval(&[&t])[0].values.iter().filter(|x| **x == 0.0).count(), 3 * 8);
    init::eye(&t).unwrap();
    assert_eq!(eval(&[&t])[0].values.iter().sum::<f64>(), 8.0);
    let c = Tensor::zeros(&s, DType::F32, &[4, 2, 3]).unwrap().to_storage().unwrap();
    init::dirac(&c, 2).unwrap();
    let ones: Vec<usize> = eval(&[&c])[0].values.iter().enumerate().filter(|v| *v.1 == 1.0).map(|v| v.0).collect();
    // out 0 and 2 pass channel 0, out 1 and 3 channel 1, at the middle of the kernel
    assert_eq!(ones, [1, 10, 13, 22]);
}

#[test]
fn orthogonal_rows_are() {
    let s = Session::new();
    s.manual_seed(1);
    for (shape, n) in [(vec![40, 40], 40), (vec![8, 3, 3, 3], 8), (vec![20, 6], 6)] {
        let t = Tensor::zeros(&s, DType::F32, &shape).unwrap().to_storage().unwrap();
        init::orthogonal(&t, 3.0).unwrap();
        let m = t.reshape(&[shape[0] as i64, -1]).unwrap();
        let m = if shape[0] == n { m } else { m.t().unwrap() };
        let v = eval(&[&m.matmul(&m.t().unwrap()).unwrap()]).swap_remove(0).values;
        for (i, x) in v.iter().enumerate() {
            let wanted = if i / n == i % n { 9.0 } else { 0.0 };
            assert!((x - wanted).abs() < 1e-4, "{shape:?}: {x} at {i}");
        }
    }
}

#[test]
fn a_padding_row_gets_no_gradient() {
    let s = Session::new();
    let m = Embedding::new(&s, 4, 2).unwrap().padding(1).unwrap();
    let index = Tensor::new(&s, &[0i32, 1, 1, 3], &[4]).unwrap();
    let y = m.forward(&index).unwrap();
    let g = y.sum(&[], false).unwrap().grad(&[&m.weight]).unwrap().swap_remove(0);
    let v = eval(&[&y, &g]);
    assert_eq!(v[0].values[2..6], [0.0; 4]);
    assert_eq!(v[1].values, [1., 1., 0., 0., 0., 0., 1., 1.]);
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
