//! What each case of the fixture calls.

use gradloom_core::tensor::{Attention, ConvOpts, ConvTransposeOpts, Interpolate, PadMode, PoolOpts, ScatterOp, Slice};
use gradloom_core::{DType, Result, Session, Tensor};

/// Runs the case `name` on its inputs.
pub(crate) fn run(name: &str, s: &Session, x: &[Tensor]) -> Result<Vec<Tensor>> {
    if name.starts_with("nn_") || name.starts_with("opt") {
        return super::layers::run(name, s, x);
    }
    let one = match name {
        "sort"
        | "sort_axis0"
        | "sort_descending_ties"
        | "sort_long"
        | "sort_rows"
        | "sort_ints"
        | "topk_long"
        | "topk_rows"
        | "topk_groups"
        | "topk_groups_smallest"
        | "nonzero"
        | "masked"
        | "unique"
        | "topk"
        | "topk_smallest"
        | "logical"
        | "bits"
        | "cast"
        | "isnan_isinf"
        | "extremes"
        | "sin_large"
        | "arange"
        | "linspace"
        | "eye"
        | "tril_triu"
        | "split"
        | "chunk"
        | "roll"
        | "any_all"
        | "argmax"
        | "max_pool_indices" => return several(name, s, x),
        _ if name.starts_with("conv") || name.contains("pool") => convolve(name, x)?,
        _ if name.contains("norm_") || name.ends_with("_norm") || name.starts_with("layer_norm") => norm(name, x)?,
        _ if name.starts_with("attention") => attend(name, x)?,
        _ => match unary(name, x) {
            Some(y) => y?,
            None => other(name, x)?,
        },
    };
    Ok(vec![one])
}

/// Every `step`-th element of an axis.
fn every(step: usize, x: &Tensor, axis: i64) -> Result<Tensor> {
    let mut slices = vec![Slice::ALL; axis as usize];
    slices.push(Slice::step(None, None, step as i64));
    x.slice(&slices)
}

fn unary(name: &str, x: &[Tensor]) -> Option<Result<Tensor>> {
    let x = x.first()?;
    Some(match name {
        "neg" => -x,
        "abs" => x.abs(),
        "square" => x.square(),
        "exp" => x.exp(),
        "exp2" => x.exp2(),
        "expm1" | "expm1_small" => x.expm1(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" | "atan_wide" => x.atan(),
        "sinh" | "sinh_small" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" | "tanh_far" => x.tanh(),
        "asinh" | "asinh_wide" | "asinh_zero" => x.asinh(),
        "acosh" => x.acosh(),
        "atanh" => x.atanh(),
        "erf" => x.erf(),
        "sigmoid" | "sigmoid_far" => x.sigmoid(),
        "logsigmoid" => x.log_sigmoid(),
        "relu" => x.relu(),
        "relu6" => x.mul(4).and_then(|x| x.relu6()),
        "leaky_relu" => x.leaky_relu(0.1),
        "elu" => x.elu(1.3),
        "selu" => x.selu(),
        "celu" => x.celu(1.5),
        "silu" | "silu_far" => x.silu(),
        "mish" => x.mish(),
        "softplus" => x.softplus(2.0),
        "softplus_zero" => x.softplus(1.0),
        "softsign" => x.softsign(),
        "hard_sigmoid" => x.hard_sigmoid(1.0 / 6.0, 0.5),
        "hard_swish" => x.mul(2).and_then(|x| x.hard_swish()),
        "hard_tanh" => x.hard_tanh(-1.0, 1.0),
        "gelu" => x.gelu(),
        "gelu_tanh" => x.gelu_tanh(),
        "quick_gelu" => x.quick_gelu(),
        "reciprocal" => x.reciprocal(),
        "sqrt" => x.sqrt(),
        "rsqrt" => x.rsqrt(),
        "log" => x.log(),
        "log2" => x.log2(),
        "log10" => x.log10(),
        "log1p" | "log1p_small" => x.log1p(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round" => x.round(),
        "trunc" => x.trunc(),
        "frac" => x.frac(),
        "sign" => x.sign(),
        _ => return None,
    })
}

fn other(name: &str, x: &[Tensor]) -> Result<Tensor> {
    match name {
        "add" => &x[0] + &x[1],
        "sub_broadcast" => &x[0] - &x[1],
        "mul_scalar" => &x[0] * 2.5,
        "div" => &x[0] / &x[1],
        "rdiv" => 1.5 / &x[0],
        "floor_div" | "int_floor_div" => x[0].floor_div(&x[1]),
        "int_trunc_div" => x[0].trunc_div(&x[1]),
        "modulo" | "int_modulo" => x[0].modulo(&x[1]),
        "fmod" | "int_fmod" => x[0].fmod(&x[1]),
        "maximum" | "maximum_ties" => x[0].maximum(&x[1]),
        "minimum" => x[0].minimum(&x[1]),
        "clamp" => x[0].clamp(-0.5, 1.25),
        "lerp" => x[0].lerp(&x[1], 0.3),
        "pow2" => x[0].pow(2),
        "pow3" => x[0].pow(3.0),
        "pow_minus2" => x[0].pow(-2),
        "pow_half" => x[0].pow(0.5),
        "pow_frac" => x[0].pow(2.7),
        "pow_tensor" | "pow_negative_base" | "pow_int" => x[0].pow(&x[1]),
        "lt" => x[0].lt(&x[1]),
        "gt" => x[0].gt(&x[1]),
        "le_nan" => x[0].le(&x[1]),
        "ge_nan" => x[0].ge(&x[1]),
        "eq_nan" => x[0].eq(&x[1]),
        "ne_nan" => x[0].ne(&x[1]),
        "isclose" => x[0].isclose(&x[1], 1e-4, 1e-6),
        "where" => x[0].select(&x[1], &x[2]),
        "masked_fill" => x[0].masked_fill(&x[1], -5.0),
        "logaddexp" => x[0].logaddexp(&x[1]),
        "copysign" => x[0].copysign(&x[1]),
        "reshape" => x[0].reshape(&[4, -1]),
        "permute" => x[0].permute(&[2, 0, 1]),
        "transpose" => x[0].transpose(0, 2),
        "move_axis" => x[0].move_axis(0, 2),
        "flatten" => x[0].flatten(1, 2),
        "unflatten" => x[0].unflatten(1, &[3, -1]),
        "expand" => x[0].expand(&[2, 3, 4]),
        "flip" => x[0].flip(&[0, 1]),
        "slice" => x[0].slice(&[Slice::step(Some(1), Some(6), 2), Slice::range(-7, -1)]),
        "slice_negative_step" => x[0].slice(&[Slice::step(Some(5), Some(0), -2)]),
        "slice_reverse" => x[0].slice(&[Slice::step(None, None, -1)]),
        "slice_stride" => x[0].slice(&[Slice::step(None, None, 3)]),
        "narrow" => x[0].narrow(0, 1, 3),
        "select_at" => x[0].select_at(1, -1),
        "repeat" => x[0].repeat(&[2, 1, 2]),
        "repeat_interleave" => x[0].repeat_interleave(2, 1),
        "diagonal" | "diagonal_tall" => x[0].diagonal(),
        "cat" => Tensor::cat(&[&x[0], &x[1], &x[2]], 1),
        "cat_ints" => Tensor::cat(&[&x[0], &x[1]], 0),
        "stack" => Tensor::stack(&[&x[0], &x[1]], 1),
        "pad_constant" => x[0].pad_last(&[1, 2, 0, 1], PadMode::Constant, 1.5),
        "pad_crop" => x[0].pad_last(&[-1, 2, 1, -1], PadMode::Constant, 0),
        "pad_reflect" => x[0].pad_last(&[2, 3], PadMode::Reflect, 0),
        "pad_replicate" => x[0].pad_last(&[2, 3], PadMode::Replicate, 0),
        "pad_circular" => x[0].pad_last(&[2, 3], PadMode::Circular, 0),
        "windows" => x[0].windows(&[3], &[2], &[1]),
        "windows_dilated" => x[0].windows(&[3], &[2], &[3]),
        "sum" => x[0].sum(&[0, 2], false),
        "sum_all" => x[0].sum(&[], false),
        "sum_keep" => x[0].sum(&[1], true),
        "mean" => x[0].mean(&[1], false),
        "prod" | "prod_zeros" => x[0].prod(&[1], false),
        "max" | "max_ties" => x[0].max(&[1], false),
        "max_nan" => x[0].max(&[0], false),
        "min" => x[0].min(&[0], false),
        "var" => x[0].var(&[1], 1, false),
        "std_pop" => x[0].std(&[1], 0, false),
        "norm1" => x[0].norm(1.0, &[1], false),
        "norm2" | "norm2_zero" => x[0].norm(2.0, &[1], false),
        "norm3" => x[0].norm(3.0, &[1], false),
        "normalize" => x[0].normalize(2.0, 1, 1e-12),
        "logsumexp" | "logsumexp_inf" => x[0].logsumexp(&[1], false),
        "softmax" | "softmax_large" => x[0].softmax(1),
        "softmax_axis0" => x[0].softmax(0),
        "log_softmax" => x[0].log_softmax(1),
        "argmax_nan" => x[0].argmax(0, false),
        "cumsum" | "cumsum_long" => x[0].cumsum(1),
        "cumsum_axis0" => x[0].cumsum(0),
        "cumsum_longest" => every(41, &x[0].cumsum(0)?, 0),
        "cumsum_pieces" => every(130, &x[0].cumsum(1)?, 1),
        "cummax_longest" => every(41, &x[0].cummax(1)?, 1),
        "cumprod_long" => every(13, &x[0].cumprod(1)?, 1),
        "cumprod" | "cumprod_zeros" => x[0].cumprod(1),
        "cummax" | "cummax_ties" => x[0].cummax(1),
        "cummin" => x[0].cummin(0),
        "gather" => x[0].gather(1, &x[1]),
        "gather_axis0" => x[0].gather(0, &x[1]),
        "index_select" => x[0].index_select(1, &x[1]),
        "embedding" => x[0].embedding(&x[1]),
        "gather_nd" => x[0].gather_nd(&x[1], 0),
        "one_hot" => x[0].one_hot(5),
        "scatter_set" => x[0].scatter(0, &x[1], &x[2], ScatterOp::Set),
        "scatter_add" => x[0].scatter(1, &x[1], &x[2], ScatterOp::Add),
        "scatter_mul" => x[0].scatter(1, &x[1], &x[2], ScatterOp::Mul),
        "scatter_max" => x[0].scatter(1, &x[1], &x[2], ScatterOp::Max),
        "scatter_min" => x[0].scatter(1, &x[1], &x[2], ScatterOp::Min),
        "scatter_add_long" => x[0].scatter(0, &x[1], &x[2], ScatterOp::Add),
        "scatter_add_columns" => x[0].scatter(1, &x[1], &x[2], ScatterOp::Add),
        "scatter_max_long" => x[0].scatter(0, &x[1], &x[2], ScatterOp::Max),
        "scatter_set_long" => every(23, &x[0].scatter(0, &x[1], &x[2], ScatterOp::Set)?, 0),
        "scatter_set_ties" => x[0].scatter(0, &x[1], &x[2], ScatterOp::Set),
        "scatter_mul_zeros" => x[0].scatter(0, &x[1], &x[2], ScatterOp::Mul),
        "embedding_many" => x[0].embedding(&x[1])?.square()?.sum(&[0], false),
        "scatter_nd" => x[0].scatter_nd(&x[1], &x[2], ScatterOp::Set),
        "matmul" | "matmul_batch" | "matmul_vec" | "matmul_mat_vec" => x[0].matmul(&x[1]),
        "dot" => x[0].dot(&x[1]),
        "outer" => x[0].outer(&x[1]),
        "linear" => x[0].linear(&x[1], Some(&x[2])),
        "mse_loss" => x[0].mse_loss(&x[1]),
        "l1_loss" => x[0].l1_loss(&x[1]),
        "huber_loss" => x[0].huber_loss(&x[1], 0.7),
        "nll_loss" => x[0].nll_loss(&x[1], None),
        "cross_entropy" => x[0].cross_entropy(&x[1], None, 0.0),
        "cross_entropy_smooth" => x[0].cross_entropy(&x[1], Some(-100), 0.1),
        "bce_loss" => x[0].bce_loss(&x[1]),
        "bce_with_logits" | "bce_zero" => x[0].bce_with_logits(&x[1]),
        "nearest" => x[0].interpolate(&[6, 10], Interpolate::Nearest, false),
        "nearest_down" => x[0].interpolate(&[3], Interpolate::Nearest, false),
        "bilinear" => x[0].interpolate(&[5, 9], Interpolate::Linear, false),
        "bilinear_corners" => x[0].interpolate(&[5, 9], Interpolate::Linear, true),
        "linear_down" => x[0].interpolate(&[4], Interpolate::Linear, false),
        "bicubic" => x[0].interpolate(&[7, 6], Interpolate::Cubic(-0.75), false),
        _ => panic!("no case {name}"),
    }
}

fn convolve(name: &str, x: &[Tensor]) -> Result<Tensor> {
    let conv = |o: ConvOpts| x[0].conv(&x[1], x.get(2), &o);
    let transposed = |conv: ConvOpts, output_padding: &[usize]| {
        let output_padding = output_padding.to_vec();
        x[0].conv_transpose(&x[1], x.get(2), &ConvTransposeOpts { conv, output_padding })
    };
    let o = ConvOpts::new;
    let pool = |k: &[usize]| PoolOpts::new(k);
    let (ceil, include) = (true, true);
    match name {
        "conv1d" | "conv2d_1x1" => conv(o()),
        "conv1d_stride_pad" => conv(ConvOpts { padding: vec![(1, 3)], ..o().stride(&[3]) }),
        "conv2d" | "conv3d" => conv(o().padding(&[1])),
        "conv2d_stride" => conv(o().stride(&[2, 3])),
        "conv2d_dilated" => conv(o().dilation(&[2]).padding(&[2]).stride(&[2])),
        "conv2d_groups" => conv(o().groups(2)),
        "conv2d_depthwise" => conv(o().groups(4).stride(&[2]).padding(&[1])),
        "conv2d_1x1_stride" => conv(o().stride(&[2])),
        "conv_transpose1d" => transposed(o().stride(&[2]).padding(&[1]), &[]),
        "conv_transpose2d" => transposed(o().stride(&[2]).padding(&[1]), &[1]),
        "conv_transpose2d_groups" => transposed(o().groups(2).dilation(&[2]).stride(&[1, 3]), &[]),
        "lp_pool" => x[0].lp_pool(2.0, &pool(&[2, 3]).stride(&[2])),
        "lp_pool_ceil" => x[0].lp_pool(3.0, &PoolOpts { ceil_mode: ceil, ..pool(&[3]).stride(&[2]) }),
        "fractional_pool" => x[0].fractional_max_pool(&[3, 2], &[4, 5], Some(&x[1])),
        "fractional_pool_grad" => {
            let samples = Tensor::full(x[0].session(), 0.4, x[0].dtype(), &[1, 2, 2])?;
            x[0].fractional_max_pool(&[2, 2], &[3, 3], Some(&samples))
        }
        "max_pool2d" => x[0].max_pool(&pool(&[2, 2])),
        "max_pool2d_pad" => x[0].max_pool(&pool(&[3, 3]).stride(&[2]).padding(&[1])),
        "max_pool2d_ceil" => x[0].max_pool(&PoolOpts { ceil_mode: ceil, ..pool(&[3, 3]).stride(&[2]) }),
        "max_pool1d_dilated" => x[0].max_pool(&PoolOpts { dilation: vec![2], ..pool(&[3]).stride(&[1]) }),
        "avg_pool2d" => x[0].avg_pool(&pool(&[2, 2])),
        "avg_pool2d_pad" => x[0].avg_pool(&pool(&[3, 3]).stride(&[2]).padding(&[1])),
        "avg_pool2d_include" => {
            x[0].avg_pool(&PoolOpts { count_include_pad: include, ..pool(&[3, 3]).stride(&[2]).padding(&[1]) })
        }
        "avg_pool2d_ceil" => x[0].avg_pool(&PoolOpts {
            count_include_pad: include,
            ceil_mode: ceil,
            ..pool(&[3, 3]).stride(&[2]).padding(&[1])
        }),
        "avg_pool2d_ceil_exclude" => {
            x[0].avg_pool(&PoolOpts { ceil_mode: ceil, ..pool(&[3, 3]).stride(&[2]).padding(&[1]) })
        }
        "adaptive_avg_pool" => x[0].adaptive_avg_pool(&[3, 3]),
        "global_avg_pool" => x[0].adaptive_avg_pool(&[1, 1]),
        _ => panic!("no case {name}"),
    }
}

fn norm(name: &str, x: &[Tensor]) -> Result<Tensor> {
    match name {
        "layer_norm" => x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-5),
        "layer_norm2" => x[0].layer_norm(2, None, None, 1e-5),
        "rms_norm" => x[0].rms_norm(1, Some(&x[1]), 1e-6),
        "batch_norm_eval" => x[0].batch_norm(&x[1], &x[2], Some(&x[3]), Some(&x[4]), 1e-5),
        "batch_norm_train" => {
            let (mean, var) = x[0].batch_stats()?;
            x[0].batch_norm(&mean, &var, Some(&x[1]), Some(&x[2]), 1e-5)
        }
        "group_norm" => x[0].group_norm(3, Some(&x[1]), Some(&x[2]), 1e-5),
        "instance_norm" => x[0].instance_norm(Some(&x[1]), Some(&x[2]), 1e-5),
        "norm_inf" => x[0].norm(f64::INFINITY, &[1], false),
        _ => panic!("no case {name}"),
    }
}

fn attend(name: &str, x: &[Tensor]) -> Result<Tensor> {
    let causal = name == "attention_causal";
    x[0].attention(&x[1], &x[2], &Attention { mask: x.get(3), causal, ..Attention::default() })
}

fn several(name: &str, s: &Session, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let pair = |(a, b): (Tensor, Tensor)| vec![a, b];
    Ok(match name {
        "sort" => pair(x[0].sort(1, false)?),
        "sort_axis0" | "sort_long" => pair(x[0].sort(0, false)?),
        "sort_rows" => pair(x[0].sort(1, true)?),
        "sort_ints" => pair(x[0].sort(0, false)?),
        "topk_long" => pair(x[0].topk(20, 0, true)?),
        "topk_groups" => pair(x[0].topk(4, 1, true)?),
        "topk_groups_smallest" => pair(x[0].topk(9, 0, false)?),
        "topk_rows" => pair(x[0].topk(300, 1, false)?),
        // as many as there are for the fixture's numbers
        "nonzero" => vec![x[0].nonzero_counted()?.0.narrow(0, 0, x[1].numel())?, x[0].nonzero_counted()?.1],
        "masked" => vec![x[0].masked_select_counted(&x[1])?.0.narrow(0, 0, x[2].numel())?],
        "unique" => {
            let (values, n) = x[0].unique_counted()?;
            vec![values.narrow(0, 0, x[1].numel())?, n]
        }
        "sort_descending_ties" => pair(x[0].sort(0, true)?),
        "topk" => pair(x[0].topk(4, 1, true)?),
        "topk_smallest" => pair(x[0].topk(2, 1, false)?),
        "logical" => {
            vec![x[0].logical_and(&x[1])?, x[0].logical_or(&x[1])?, x[0].logical_xor(&x[1])?, x[0].logical_not()?]
        }
        "bits" => vec![
            x[0].bit_and(&x[1])?,
            x[0].bit_or(&x[1])?,
            x[0].bit_xor(&x[1])?,
            x[0].bit_not()?,
            x[0].shift_left(2)?,
            x[0].shift_right(2)?,
        ],
        "cast" => vec![x[0].cast(DType::I64)?, x[0].to_bool()?],
        "isnan_isinf" => vec![x[0].isnan()?, x[0].isinf()?, x[0].isfinite()?],
        "extremes" => vec![x[0].sigmoid()?, x[0].tanh()?, x[0].softplus(1.0)?, x[0].exp()?, x[0].elu(1.0)?],
        "sin_large" => vec![x[0].sin()?, x[0].cos()?],
        "arange" => vec![
            Tensor::arange(s, 2.0, 17.0, 3.0, DType::I32)?,
            Tensor::arange(s, 5.0, -4.0, -2.0, DType::I64)?,
            Tensor::arange(s, 0.0, 1.0, 0.25, DType::F32)?,
            Tensor::arange(s, 3.0, 3.0, 1.0, DType::I32)?,
        ],
        "linspace" => {
            vec![Tensor::linspace(s, -1.0, 2.0, 7, DType::F32)?, Tensor::linspace(s, 5.0, 9.0, 1, DType::F32)?]
        }
        "eye" => vec![Tensor::eye(s, 3, 3, DType::F32)?, Tensor::eye(s, 2, 4, DType::F32)?],
        "tril_triu" => vec![x[0].tril(1)?, x[0].triu(-1)?, x[0].tril(0)?, x[0].triu(2)?],
        "split" => x[0].split(&[2, 4, 1], 0)?,
        "chunk" => x[0].chunk(3, 0)?,
        "roll" => vec![x[0].roll(2, 0)?, x[0].roll(-1, 1)?],
        "any_all" => vec![x[0].any(&[1], false)?, x[0].all(&[0], false)?],
        "argmax" => {
            let (a, b) = (x[0].argmax(1, false)?, x[0].argmin(1, false)?);
            vec![a, b, x[0].argmax(0, false)?]
        }
        "max_pool_indices" => pair(x[0].max_pool_with_indices(&PoolOpts::new(&[3, 3]).stride(&[2]).padding(&[1]))?),
        _ => panic!("no case {name}"),
    })
}
