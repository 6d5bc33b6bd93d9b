//! Rows of the table: products, convolution, pooling, norms, attention, losses, resampling.

use super::*;
use crate::tensor::{Attention, ConvOpts, ConvTransposeOpts, Interpolate, PoolOpts, ScatterOp};

ops! {
    // ---- products
    "matmul" | "mm" | "bmm" | "mv" | "__rmatmul__" (input: Tensor, other: Tensor) input.matmul(&other);
    "dot" | "vdot" (input: Tensor, other: Tensor) input.dot(&other);
    "linalg.vecdot" (x: Tensor, y: Tensor, dim: i64 = -1) x.mul(y)?.sum(&[dim], false);
    "inner" (input: Tensor, other: Tensor) if input.rank() == 0 || other.rank() == 0 { input.mul(other)
        } else { Tensor::tensordot(&input, &other, &[-1], &[-1]) };
    "outer" | "ger" (input: Tensor, vec2: Tensor) input.outer(&vec2);
    "kron" (input: Tensor, other: Tensor) input.kron(&other);
    "tensordot" (a: Tensor, b: Tensor, dims: &Value) match dims {
        Value::List(l) if l.len() == 2 => {
            let of = |v| Vec::from_value(v).ok_or_else(|| Error::value("tensordot", "axes are numbers"));
            Tensor::tensordot(&a, &b, &of(&l[0])?, &of(&l[1])?)
        }
        v => {
            let n = i64::from_value(v).filter(|n| (0..=a.rank().min(b.rank()) as i64).contains(n));
            let n = n.ok_or_else(|| Error::value("tensordot", "dims should be a number of axes that both have, or two lists"))?;
            Tensor::tensordot(&a, &b, &(-n..0).collect::<Vec<_>>(), &(0..n).collect::<Vec<_>>())
        }
    };
    "einsum" (operands: Vec<Tensor>, equation: &str) Tensor::einsum(equation, &operands.iter().collect::<Vec<_>>());
    "addmm" | "addmv" (input: Tensor, mat1: Tensor, mat2: Tensor, beta: Operand = Operand::Int(1), alpha: Operand = Operand::Int(1))
        input.plus(&mat1.matmul(&mat2)?, beta, alpha);
    "baddbmm" (input: Tensor, batch1: Tensor, batch2: Tensor, beta: Operand = Operand::Int(1), alpha: Operand = Operand::Int(1))
        input.plus(&batch1.matmul(&batch2)?, beta, alpha);
    "addbmm" (input: Tensor, batch1: Tensor, batch2: Tensor, beta: Operand = Operand::Int(1), alpha: Operand = Operand::Int(1))
        input.plus(&batch1.matmul(&batch2)?.sum(&[0], false)?, beta, alpha);
    "addr" (input: Tensor, vec1: Tensor, vec2: Tensor, beta: Operand = Operand::Int(1), alpha: Operand = Operand::Int(1))
        input.plus(&vec1.outer(&vec2)?, beta, alpha);
    "linalg.multi_dot" (tensors: Vec<Tensor>) Tensor::multi_dot(&tensors);
    "cross" (input: Tensor, other: Tensor, dim: Option<i64>) {
        let shape = input.broadcast_with(&other)?.0.shape();
        let a = dim.unwrap_or_else(|| shape.iter().position(|&n| n == 3).unwrap_or(0) as i64);
        input.cross(&other, a)
    };
    "linalg.cross" (input: Tensor, other: Tensor, dim: i64 = -1) input.cross(&other, dim);
    "cdist" (x1: Tensor, x2: Tensor, p: f64 = 2.0, compute_mode: Option<&str>) { let _ = compute_mode; x1.cdist(&x2, p) };
    "nn.functional.pdist" (input: Tensor, p: f64 = 2.0) input.pdist(p);
    "nn.functional.linear" (input: Tensor, weight: Tensor, bias: Option<Tensor>) {
        if weight.rank() == 1 { let y = input.matmul(&weight)?; return match bias { Some(b) => y.add(b), None => Ok(y) }; }
        input.linear(&weight, bias.as_ref())
    };
    "nn.functional.bilinear" (input1: Tensor, input2: Tensor, weight: Tensor, bias: Option<Tensor>) input1.bilinear(&input2, &weight, bias.as_ref());
    // ---- convolution and pooling
    "nn.functional.conv1d" | "nn.functional.conv2d" | "nn.functional.conv3d" (input: Tensor, weight: Tensor, bias: Option<Tensor>,
        stride: Vec<usize> = vec![1], padding: Option<&Value>, dilation: Vec<usize> = vec![1], groups: usize = 1)
        batched(&input, weight.rank(), |x| x.conv(&weight, bias.as_ref(), &ConvOpts { padding: padding_of(padding, &weight,
        &dilation)?, stride, dilation, groups }));
    "nn.functional.conv_transpose1d" | "nn.functional.conv_transpose2d" | "nn.functional.conv_transpose3d" (input: Tensor,
        weight: Tensor, bias: Option<Tensor>, stride: Vec<usize> = vec![1], padding: Vec<usize> = vec![0],
        output_padding: Vec<usize> = vec![0], groups: usize = 1, dilation: Vec<usize> = vec![1])
        batched(&input, weight.rank(), |x| x.conv_transpose(&weight, bias.as_ref(),
        &ConvTransposeOpts { conv: ConvOpts::new().stride(&stride).padding(&padding).dilation(&dilation).groups(groups), output_padding }));
    "nn.functional.max_pool1d" (input: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, padding: Vec<usize> = vec![0],
        dilation: Vec<usize> = vec![1], ceil_mode: bool = false, return_indices: bool = false)
        max_pool(&input, 1, kernel_size, stride, padding, dilation, ceil_mode, return_indices);
    "nn.functional.max_pool2d" (input: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, padding: Vec<usize> = vec![0],
        dilation: Vec<usize> = vec![1], ceil_mode: bool = false, return_indices: bool = false)
        max_pool(&input, 2, kernel_size, stride, padding, dilation, ceil_mode, return_indices);
    "nn.functional.max_pool3d" (input: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, padding: Vec<usize> = vec![0],
        dilation: Vec<usize> = vec![1], ceil_mode: bool = false, return_indices: bool = false)
        max_pool(&input, 3, kernel_size, stride, padding, dilation, ceil_mode, return_indices);
    "nn.functional.avg_pool1d" (input: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, padding: Vec<usize> = vec![0],
        ceil_mode: bool = false, count_include_pad: bool = true, divisor_override: Option<f64>)
        avg_pool(&input, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
    "nn.functional.avg_pool2d" (input: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, padding: Vec<usize> = vec![0],
        ceil_mode: bool = false, count_include_pad: bool = true, divisor_override: Option<f64>)
        avg_pool(&input, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
    "nn.functional.avg_pool3d" (input: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, padding: Vec<usize> = vec![0],
        ceil_mode: bool = false, count_include_pad: bool = true, divisor_override: Option<f64>)
        avg_pool(&input, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
    "nn.functional.adaptive_avg_pool1d" (input: Tensor, output_size: &Value) input.adaptive_avg_pool(&adaptive(&input, output_size, 1)?);
    "nn.functional.adaptive_avg_pool2d" (input: Tensor, output_size: &Value) input.adaptive_avg_pool(&adaptive(&input, output_size, 2)?);
    "nn.functional.adaptive_avg_pool3d" (input: Tensor, output_size: &Value) input.adaptive_avg_pool(&adaptive(&input, output_size, 3)?);
    "nn.functional.adaptive_max_pool1d" (input: Tensor, output_size: &Value, return_indices: bool = false)
        one_or_two(input.adaptive_max_pool(&adaptive(&input, output_size, 1)?)?, return_indices);
    "nn.functional.lp_pool1d" (input: Tensor, norm_type: f64, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, ceil_mode: bool = false)
        input.lp_pool(norm_type, &PoolOpts { ceil_mode, ..pool_opts(1, kernel_size, stride, &[]) });
    "nn.functional.lp_pool2d" (input: Tensor, norm_type: f64, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, ceil_mode: bool = false)
        input.lp_pool(norm_type, &PoolOpts { ceil_mode, ..pool_opts(2, kernel_size, stride, &[]) });
    "nn.functional.lp_pool3d" (input: Tensor, norm_type: f64, kernel_size: Vec<usize>, stride: Option<Vec<usize>>, ceil_mode: bool = false)
        input.lp_pool(norm_type, &PoolOpts { ceil_mode, ..pool_opts(3, kernel_size, stride, &[]) });
    "nn.functional.fractional_max_pool2d" (input: Tensor, kernel_size: Vec<usize>, output_size: Option<Vec<usize>>,
        output_ratio: Option<Vec<f64>>, return_indices: bool = false, _random_samples: Option<Tensor>)
        fractional_max_pool(&input, 2, kernel_size, output_size, output_ratio, return_indices, _random_samples);
    "nn.functional.fractional_max_pool3d" (input: Tensor, kernel_size: Vec<usize>, output_size: Option<Vec<usize>>,
        output_ratio: Option<Vec<f64>>, return_indices: bool = false, _random_samples: Option<Tensor>)
        fractional_max_pool(&input, 3, kernel_size, output_size, output_ratio, return_indices, _random_samples);
    "max_pool2d_with_indices_backward" (grad_output: Tensor, input: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>,
        padding: Vec<usize>, dilation: Vec<usize>, ceil_mode: bool, indices: Tensor) {
        let _ = (kernel_size, stride, padding, dilation, ceil_mode);
        // the gradient of a window goes to its largest element
        let place = |t: &Tensor| t.flatten(-2, -1);
        place(&input)?.zeros_like()?.scatter(-1, &place(&indices)?, &place(&grad_output)?, ScatterOp::Add)?.reshape(&input.shape())
    };
    "native_dropout_backward" (grad_output: Tensor, mask: Tensor, scale: f64) {
        let grad = grad_output.to_float()?;
        grad.mul(mask.cast(grad.dtype())?)?.mul(scale)
    };
    "nn.functional.adaptive_max_pool2d" (input: Tensor, output_size: &Value, return_indices: bool = false)
        one_or_two(input.adaptive_max_pool(&adaptive(&input, output_size, 2)?)?, return_indices);
    "nn.functional.adaptive_max_pool3d" (input: Tensor, output_size: &Value, return_indices: bool = false)
        one_or_two(input.adaptive_max_pool(&adaptive(&input, output_size, 3)?)?, return_indices);
    "nn.functional.max_unpool1d" (input: Tensor, indices: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>,
        padding: Vec<usize> = vec![0], output_size: Option<Vec<usize>>) input.max_unpool(&indices, 1, &kernel_size, stride.as_deref(),
        &padding, output_size.as_deref());
    "nn.functional.max_unpool2d" (input: Tensor, indices: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>,
        padding: Vec<usize> = vec![0], output_size: Option<Vec<usize>>) input.max_unpool(&indices, 2, &kernel_size, stride.as_deref(),
        &padding, output_size.as_deref());
    "nn.functional.max_unpool3d" (input: Tensor, indices: Tensor, kernel_size: Vec<usize>, stride: Option<Vec<usize>>,
        padding: Vec<usize> = vec![0], output_size: Option<Vec<usize>>) input.max_unpool(&indices, 3, &kernel_size, stride.as_deref(),
        &padding, output_size.as_deref());
    "nn.functional.unfold" (input: Tensor, kernel_size: Vec<usize>, dilation: Vec<usize> = vec![1], padding: Vec<usize> = vec![0],
        stride: Vec<usize> = vec![1]) batched(&input, 4, |x| x.unfold(&kernel_size, &dilation, &padding, &stride));
    "nn.functional.fold" (input: Tensor, output_size: Vec<usize>, kernel_size: Vec<usize>, dilation: Vec<usize> = vec![1],
        padding: Vec<usize> = vec![0], stride: Vec<usize> = vec![1]) input.fold(&output_size, &kernel_size, &dilation, &padding, &stride);
    "nn.functional.pixel_shuffle" (input: Tensor, upscale_factor: usize) input.pixel_shuffle(upscale_factor);
    "nn.functional.pixel_unshuffle" (input: Tensor, downscale_factor: usize) input.pixel_unshuffle(downscale_factor);
    "nn.functional.channel_shuffle" (input: Tensor, groups: usize) input.channel_shuffle(groups);
    "nn.functional.interpolate" (input: Tensor, size: Option<Vec<usize>>, scale_factor: Option<Vec<f64>>, mode: &str = "nearest",
        align_corners: Option<bool>, recompute_scale_factor: Option<bool>, antialias: bool = false) {
        let _ = antialias;
        input.interpolate_like(size.as_deref(), scale_factor.as_deref(), mode, align_corners.unwrap_or(false),
        recompute_scale_factor.unwrap_or(false))
    };
    "nn.functional.upsample_bilinear" (input: Tensor, size: Option<Vec<usize>>, scale_factor: Option<Vec<f64>>)
        input.interpolate_like(size.as_deref(), scale_factor.as_deref(), "bilinear", true, false);
    "nn.functional.upsample_nearest" (input: Tensor, size: Option<Vec<usize>>, scale_factor: Option<Vec<f64>>)
        input.interpolate_like(size.as_deref(), scale_factor.as_deref(), "nearest", false, false);
    "nn.functional.grid_sample" (input: Tensor, grid: Tensor, mode: &str = "bilinear", padding_mode: &str = "zeros",
        align_corners: bool = false) input.grid_sample(&grid, mode, padding_mode, align_corners);
    "grid_sampler_2d" | "grid_sampler_3d" (input: Tensor, grid: Tensor, interpolation_mode: i64, padding_mode: i64, align_corners: bool) {
        let mode = ["bilinear", "nearest", "bicubic"].get(interpolation_mode as usize).copied().unwrap_or("");
        let pad = ["zeros", "border", "reflection"].get(padding_mode as usize).copied().unwrap_or("");
        input.grid_sample(&grid, mode, pad, align_corners)
    };
    "nn.functional.affine_grid" (theta: Tensor, size: Vec<usize>, align_corners: bool = false) theta.affine_grid(&size, align_corners);
    // as torchvision's: boxes are [n, 5] (batch index and corners); the number of samples is an argument and is not
    // derived from the size of a box
    "ops.roi_align" (input: Tensor, boxes: Tensor, output_size: Vec<usize>, spatial_scale: f64 = 1.0, sampling_ratio: i64 = -1,
        aligned: bool = false) {
        let output = match output_size[..] {
            [n] => (n, n),
            [rows, columns] => (rows, columns),
            _ => return Err(Error::value("roi_align", format!("an output of {output_size:?}"))),
        };
        let samples = usize::try_from(sampling_ratio).ok().filter(|&n| n > 0);
        let samples = samples.ok_or_else(|| Error::value("roi_align", "a sampling_ratio above 0 is needed"))?;
        input.to_float()?.roi_align(&boxes, output, spatial_scale, samples, aligned)
    };
    // the indices of the kept boxes in order of falling score (later elements are unspecified), and how many there are
    "ops.nms" (boxes: Tensor, scores: Tensor, iou_threshold: f64) {
        let kept = boxes.nms(&scores, iou_threshold)?;
        let order = scores.argsort(0, true)?;
        order.masked_select_counted(&kept.index_select(0, &order)?)
    };
    // ---- norms and attention
    "nn.functional.layer_norm" (input: Tensor, normalized_shape: Vec<usize>, weight: Option<Tensor>, bias: Option<Tensor>,
        eps: f64 = 1e-5) input.layer_norm(normalized_shape.len(), weight.as_ref(), bias.as_ref(), eps);
    "native_layer_norm" (input: Tensor, normalized_shape: Vec<usize>, weight: Option<Tensor>, bias: Option<Tensor>, eps: f64) {
        let axes: Vec<i64> = (1..=normalized_shape.len() as i64).map(|i| -i).collect();
        let rstd = input.var_by(&axes, 0.0, true)?.add(eps)?.rsqrt()?;
        Ok((input.layer_norm(normalized_shape.len(), weight.as_ref(), bias.as_ref(), eps)?, input.mean(&axes, true)?.detach(), rstd.detach()))
    };
    "nn.functional.rms_norm" (input: Tensor, normalized_shape: Vec<usize>, weight: Option<Tensor>, eps: Option<f64>)
        input.rms_norm(normalized_shape.len(), weight.as_ref(), eps.unwrap_or(f32::EPSILON as f64));
    "nn.functional.group_norm" (input: Tensor, num_groups: usize, weight: Option<Tensor>, bias: Option<Tensor>, eps: f64 = 1e-5)
        input.group_norm(num_groups, weight.as_ref(), bias.as_ref(), eps);
    "native_group_norm" (input: Tensor, weight: Option<Tensor>, bias: Option<Tensor>, N: usize, C: usize, HxW: usize, group: usize, eps: f64) {
        if C.checked_mul(HxW).and_then(|n| n.checked_mul(N)) != Some(input.numel()) || group == 0 || C % group != 0 {
            let what = format!("shape {:?} is not {N} by {C} channels by {HxW} in {group} groups", input.shape());
            return Err(Error::value("native_group_norm", what));
        }
        let x = input.reshape(&[N as i64, group as i64, (C / group * HxW) as i64])?;
        Ok((input.group_norm(group, weight.as_ref(), bias.as_ref(), eps)?, x.mean(&[-1], false)?, x.var_by(&[-1], 0.0, false)?.add(eps)?.rsqrt()?))
    };
    "nn.functional.batch_norm" (input: Tensor, running_mean: Option<Tensor>, running_var: Option<Tensor>, weight: Option<Tensor>,
        bias: Option<Tensor>, training: bool = false, momentum: f64 = 0.1, eps: f64 = 1e-5) {
        let _ = momentum;
        if input.numel() == 0 { return Ok(input); }
        let (mean, var) = match (running_mean, running_var) { (Some(m), Some(v)) if !training => (m, v), _ => input.batch_stats()? };
        input.batch_norm(&mean, &var, weight.as_ref(), bias.as_ref(), eps)
    };
    "_native_batch_norm_legit" (input: Tensor, weight: Option<Tensor>, bias: Option<Tensor>, running_mean: Option<&Value>,
        running_var: Option<&Value>, training: Option<&Value>, momentum: Option<f64>, eps: Option<f64>) {
        // the overload without running statistics has training, momentum and eps at these positions
        let (given, eps) = match (running_mean, running_var, training) {
            (Some(Value::Tensor(m)), Some(Value::Tensor(v)), Some(Value::Bool(false))) => (Some((m.clone(), v.clone())), eps.unwrap_or(1e-5)),
            (Some(Value::Bool(_)), _, Some(e)) => (None, f64::from_value(e).unwrap_or(1e-5)),
            _ => (None, eps.unwrap_or(1e-5)),
        };
        let _ = momentum;
        let batch = given.is_none();
        let (mean, var) = match given { Some(pair) => pair, None => input.batch_stats()? };
        let none = Tensor::zeros(input.session(), input.dtype(), &[0])?;
        let saved = if batch { (mean.detach(), var.add(eps)?.rsqrt()?.detach()) } else { (none.clone(), none) };
        Ok((input.batch_norm(&mean, &var, weight.as_ref(), bias.as_ref(), eps)?, saved.0, saved.1))
    };
    "native_batch_norm" (input: Tensor, weight: Option<Tensor>, bias: Option<Tensor>, running_mean: Option<Tensor>,
        running_var: Option<Tensor>, training: bool, momentum: f64, eps: f64) {
        let _ = momentum;
        let (batch, (mean, var)) = match (running_mean, running_var) { (Some(m), Some(v)) if !training => (false, (m, v)), _ => (true,
        input.batch_stats()?) };
        let none = Tensor::zeros(input.session(), input.dtype(), &[0])?;
        let saved = if batch { (mean.clone(), var.add(eps)?.rsqrt()?) } else { (none.clone(), none) };
        Ok((input.batch_norm(&mean, &var, weight.as_ref(), bias.as_ref(), eps)?, saved.0.detach(), saved.1.detach()))
    };
    "nn.functional.instance_norm" (input: Tensor, running_mean: Option<Tensor>, running_var: Option<Tensor>, weight: Option<Tensor>,
        bias: Option<Tensor>, use_input_stats: bool = true, momentum: f64 = 0.1, eps: f64 = 1e-5) {
        let _ = momentum;
        match (running_mean, running_var) {
            (Some(m), Some(v)) if !use_input_stats => input.batch_norm(&m, &v, weight.as_ref(), bias.as_ref(), eps),
            _ => input.instance_norm(weight.as_ref(), bias.as_ref(), eps),
        }
    };
    "nn.functional.local_response_norm" (input: Tensor, size: usize, alpha: f64 = 1e-4, beta: f64 = 0.75, k: f64 = 1.0)
        input.local_response_norm(size, alpha, beta, k);
    "nn.functional.scaled_dot_product_attention" (query: Tensor, key: Tensor, value: Tensor, attn_mask: Option<Tensor>,
        dropout_p: f64 = 0.0, is_causal: bool = false, scale: Option<f64>, enable_gqa: bool = false) {
        if dropout_p != 0.0 { return Err(Error::value("attention", "dropout is not done here: apply it to the weights")); }
        let groups = if enable_gqa { query.dim(-3)? / key.dim(-3)?.max(1) } else { 1 };
        let (key, value) = if groups > 1 { (key.repeat_interleave(groups, -3)?, value.repeat_interleave(groups, -3)?) } else { (key, value) };
        query.attention(&key, &value, &Attention { mask: attn_mask.as_ref(), causal: is_causal, scale, ..Attention::default() })
    };
    "_softmax_backward_data" (grad_output: Tensor, output: Tensor, dim: i64, input_dtype: Option<DType>) { let _ = input_dtype;
        grad_output.sub(grad_output.mul(&output)?.sum(&[dim], true)?)?.mul(output) };
    // ---- losses
    "nn.functional.mse_loss" (input: Tensor, target: Tensor, size_average: Option<bool>, reduce: Option<bool>,
        reduction: &str = "mean", weight: Option<Tensor>) {
        let _ = (size_average, reduce);
        let loss = input.sub(target)?.square()?;
        match weight { Some(w) if reduction == "mean" => loss.mul(&w)?.sum(&[], false)?.div(w.expand(&loss.shape())?.sum(&[], false)?),
        Some(w) => reduced(loss.mul(w)?, reduction), None => reduced(loss, reduction) }
    };
    "nn.functional.l1_loss" (input: Tensor, target: Tensor, size_average: Option<bool>, reduce: Option<bool>, reduction: &str = "mean",
        weight: Option<Tensor>) {
        let _ = (size_average, reduce);
        let loss = input.sub(target)?.abs()?;
        match weight { Some(w) if reduction == "mean" => loss.mul(&w)?.sum(&[], false)?.div(w.expand(&loss.shape())?.sum(&[], false)?),
        Some(w) => reduced(loss.mul(w)?, reduction), None => reduced(loss, reduction) }
    };
    "nn.functional.smooth_l1_loss" (input: Tensor, target: Tensor, size_average: Option<bool>, reduce: Option<bool>,
        reduction: &str = "mean", beta: f64 = 1.0) { let _ = (size_average, reduce); reduced(input.smooth_l1(&target, beta)?, reduction) };
    "nn.functional.huber_loss" (input: Tensor, target: Tensor, reduction: &str = "mean", delta: f64 = 1.0, weight: Option<Tensor>) {
        let loss = input.smooth_l1(&target, delta)?.mul(delta)?;
        match weight { Some(w) if reduction == "mean" => loss.mul(&w)?.sum(&[], false)?.div(w.expand(&loss.shape())?.sum(&[], false)?),
        Some(w) => reduced(loss.mul(w)?, reduction), None => reduced(loss, reduction) }
    };
    "nn.functional.nll_loss" (input: Tensor, target: Tensor, weight: Option<Tensor>, size_average: Option<bool>,
        ignore_index: i64 = -100, reduce: Option<bool>, reduction: &str = "mean") { let _ = (size_average, reduce);
        input.nll_loss_by(&target, weight.as_ref(), ignore_index, reduction) };
    "nn.functional.cross_entropy" (input: Tensor, target: Tensor, weight: Option<Tensor>, size_average: Option<bool>,
        ignore_index: i64 = -100, reduce: Option<bool>, reduction: &str = "mean", label_smoothing: f64 = 0.0) { let _ = (size_average,
        reduce); input.cross_entropy_by(&target, weight.as_ref(), ignore_index, reduction, label_smoothing) };
    "nn.functional.binary_cross_entropy" (input: Tensor, target: Tensor, weight: Option<Tensor>, size_average: Option<bool>,
        reduce: Option<bool>, reduction: &str = "mean") {
        let _ = (size_average, reduce);
        let loss = input.bce_each(&target)?;
        reduced(match weight { Some(w) => loss.mul(w)?, None => loss }, reduction)
    };
    "nn.functional.binary_cross_entropy_with_logits" (input: Tensor, target: Tensor, weight: Option<Tensor>,
        size_average: Option<bool>, reduce: Option<bool>, reduction: &str = "mean", pos_weight: Option<Tensor>) {
        let _ = (size_average, reduce);
        let loss = input.bce_logits_each(&target, pos_weight.as_ref())?;
        reduced(match weight { Some(w) => loss.mul(w)?, None => loss }, reduction)
    };
    "nn.functional.kl_div" (input: Tensor, target: Tensor, size_average: Option<bool>, reduce: Option<bool>, reduction: &str = "mean",
        log_target: bool = false) {
        let _ = (size_average, reduce);
        let loss = input.kl_div(&target, log_target)?;
        if reduction == "batchmean" { loss.sum(&[], false)?.div(input.dim0(0)? as f64) } else { reduced(loss, reduction) }
    };
    "nn.functional.poisson_nll_loss" (input: Tensor, target: Tensor, log_input: bool = true, full: bool = false,
        size_average: Option<bool>, eps: f64 = 1e-8, reduce: Option<bool>, reduction: &str = "mean") { let _ = (size_average, reduce);
        reduced(input.poisson_nll(&target, log_input, full, eps)?, reduction) };
    "nn.functional.gaussian_nll_loss" (s: Session, input: Tensor, target: Tensor, var: Operand, full: bool = false, eps: f64 = 1e-6,
        reduction: &str = "mean") reduced(input.gaussian_nll(&target, &tensor(&s, var)?, full, eps)?, reduction);
    "nn.functional.hinge_embedding_loss" (input: Tensor, target: Tensor, margin: f64 = 1.0, size_average: Option<bool>,
        reduce: Option<bool>, reduction: &str = "mean") {
        let _ = (size_average, reduce);
        reduced(input.hinge_embedding(&target, margin)?, reduction)
    };
    "nn.functional.margin_ranking_loss" (input1: Tensor, input2: Tensor, target: Tensor, margin: f64 = 0.0, size_average: Option<bool>,
        reduce: Option<bool>, reduction: &str = "mean") { let _ = (size_average, reduce);
        reduced(input1.margin_ranking(&input2, &target, margin)?, reduction) };
    "nn.functional.soft_margin_loss" (input: Tensor, target: Tensor, size_average: Option<bool>, reduce: Option<bool>,
        reduction: &str = "mean") { let _ = (size_average, reduce); reduced(input.soft_margin(&target)?, reduction) };
    "nn.functional.multilabel_soft_margin_loss" (input: Tensor, target: Tensor, weight: Option<Tensor>, size_average: Option<bool>,
        reduce: Option<bool>, reduction: &str = "mean") {
        let _ = (size_average, reduce);
        reduced(input.multilabel_soft_margin(&target, weight.as_ref())?, reduction)
    };
    "nn.functional.multi_margin_loss" (input: Tensor, target: Tensor, p: f64 = 1.0, margin: f64 = 1.0, weight: Option<Tensor>,
        size_average: Option<bool>, reduce: Option<bool>, reduction: &str = "mean") { let _ = (size_average, reduce);
        reduced(input.multi_margin(&target, p, margin, weight.as_ref())?, reduction) };
    "nn.functional.multilabel_margin_loss" (input: Tensor, target: Tensor, size_average: Option<bool>, reduce: Option<bool>,
        reduction: &str = "mean") { let _ = (size_average, reduce); reduced(input.multilabel_margin(&target)?, reduction) };
    "nn.functional.cosine_similarity" (x1: Tensor, x2: Tensor, dim: i64 = 1, eps: f64 = 1e-8) x1.cosine_similarity(&x2, dim, eps);
    "nn.functional.cosine_embedding_loss" (input1: Tensor, input2: Tensor, target: Tensor, margin: f64 = 0.0,
        size_average: Option<bool>, reduce: Option<bool>, reduction: &str = "mean") { let _ = (size_average, reduce);
        reduced(input1.cosine_embedding(&input2, &target, margin)?, reduction) };
    "nn.functional.pairwise_distance" (x1: Tensor, x2: Tensor, p: f64 = 2.0, eps: f64 = 1e-6, keepdim: bool = false)
        x1.sub(x2)?.add(eps)?.vector_norm(p, &[-1], keepdim);
    "nn.functional.triplet_margin_loss" (anchor: Tensor, positive: Tensor, negative: Tensor, margin: f64 = 1.0, p: f64 = 2.0,
        eps: f64 = 1e-6, swap: bool = false, size_average: Option<bool>, reduce: Option<bool>, reduction: &str = "mean")
        { let _ = (size_average, reduce); reduced(anchor.triplet_margin(&positive, &negative, margin, p, eps, swap)?, reduction) };
    "nn.functional.ctc_loss" (log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: usize = 0,
        reduction: &str = "mean") {
        let loss = log_probs.ctc_loss(&targets, &input_lengths, &target_lengths, blank)?;
        if reduction == "mean" { loss.div(target_lengths.maximum(1)?)?.mean(&[], false) } else { reduced(loss, reduction) }
    };
}

/// Applies `f` to an input of this rank; one that lacks the batch axis gets it, and loses it afterwards.
fn batched(x: &Tensor, rank: usize, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if x.rank() + 1 == rank { f(&x.unsqueeze(0)?)?.squeeze(0) } else { f(x) }
}

/// The padding of a convolution: numbers, `valid` (none), or `same` (the output has the input's size, at stride 1).
fn padding_of(v: Option<&Value>, weight: &Tensor, dilation: &[usize]) -> Result<Vec<(i64, i64)>> {
    let bad = || Error::value("conv", "padding should be numbers, `same` or `valid`");
    Ok(match v {
        None => Vec::new(),
        Some(Value::Text(t)) if t == "valid" => Vec::new(),
        Some(Value::Text(t)) if t == "same" => {
            let at = |i: usize| *dilation.get(if dilation.len() == 1 { 0 } else { i }).unwrap_or(&1) as i64;
            let total =
                weight.shape()[2..].iter().enumerate().map(|(i, &k)| at(i) * (k as i64 - 1)).collect::<Vec<_>>();
            total.iter().map(|&t| (t / 2, t - t / 2)).collect()
        }
        Some(v) => Vec::<i64>::from_value(v).ok_or_else(bad)?.iter().map(|&p| (p, p)).collect(),
    })
}

/// A list of one number is repeated for all axes.
fn wide<T: Copy>(v: Vec<T>, rank: usize) -> Vec<T> {
    if v.len() == 1 { vec![v[0]; rank] } else { v }
}

fn pool_opts(rank: usize, kernel: Vec<usize>, stride: Option<Vec<usize>>, padding: &[usize]) -> PoolOpts {
    let stride = stride.map(|s| wide(s, rank)).unwrap_or_default();
    PoolOpts { stride, ..PoolOpts::new(&wide(kernel, rank)) }.padding(padding)
}

#[allow(clippy::too_many_arguments, reason = "torch's parameters")]
fn max_pool(
    x: &Tensor,
    rank: usize,
    kernel: Vec<usize>,
    stride: Option<Vec<usize>>,
    padding: Vec<usize>,
    dilation: Vec<usize>,
    ceil_mode: bool,
    indices: bool,
) -> Result<Vec<Tensor>> {
    let opts = PoolOpts { dilation, ceil_mode, ..pool_opts(rank, kernel, stride, &padding) };
    if opts.kernel.len() != rank {
        return Err(Error::value("max_pool", format!("a kernel of {rank} sizes is wanted, not {:?}", opts.kernel)));
    }
    // torch's gradient goes to one element of each window, so the values are read by index
    let (values, index) = x.max_pool_with_indices(&opts)?;
    let lead = x.rank() - opts.kernel.len();
    let flat = x.flatten(lead as i64, -1)?;
    let picked = flat.gather(-1, &index.flatten(lead as i64, -1)?)?.reshape(&values.shape())?;
    Ok(if indices { vec![picked, index] } else { vec![picked] })
}

#[allow(clippy::too_many_arguments, reason = "torch's parameters")]
fn avg_pool(
    x: &Tensor,
    rank: usize,
    kernel: Vec<usize>,
    stride: Option<Vec<usize>>,
    padding: Vec<usize>,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Option<f64>,
) -> Result<Tensor> {
    let opts = PoolOpts { ceil_mode, count_include_pad, ..pool_opts(rank, kernel, stride, &padding) };
    // integers keep their dtype, rounded toward zero
    let Some(d) = divisor else { return x.avg_pool(&opts)?.cast(x.dtype()) };
    let axes: Vec<i64> = (1..=rank as i64).map(|i| -i).collect();
    x.pool_windows("avg_pool", &opts, 0.0)?.0.sum(&axes, false)?.div(d)?.cast(x.dtype())
}

fn fractional_max_pool(
    x: &Tensor,
    rank: usize,
    kernel: Vec<usize>,
    sizes: Option<Vec<usize>>,
    ratio: Option<Vec<f64>>,
    indices: bool,
    samples: Option<Tensor>,
) -> Result<Tensor> {
    let bad = |what: &str| Error::value("fractional_max_pool", what);
    if indices {
        return Err(bad("it does not give indices"));
    }
    let (kernel, shape) = (wide(kernel, rank), x.shape());
    let own = shape.get(shape.len().saturating_sub(rank)..).unwrap_or(&[]);
    let sizes = match (sizes, ratio) {
        (Some(n), None) => wide(n, rank),
        (None, Some(r)) => own.iter().zip(wide(r, rank)).map(|(&n, r)| (n as f64 * r) as usize).collect(),
        _ => return Err(bad("either a size or a ratio is needed")),
    };
    batched(x, rank + 2, |x| x.fractional_max_pool(&kernel, &sizes, samples.as_ref()))
}

/// The sizes of an adaptive pooling; a missing one keeps the size of its axis.
fn adaptive(x: &Tensor, v: &Value, rank: usize) -> Result<Vec<usize>> {
    let shape = x.shape();
    let own = shape.get(shape.len().saturating_sub(rank)..).unwrap_or(&[]).to_vec();
    let bad = || Error::value("adaptive_pool", "sizes should be numbers");
    match v {
        Value::List(l) => (l.iter().zip(&own))
            .map(|(v, &n)| if let Value::None = v { Ok(n) } else { usize::from_value(v).ok_or_else(bad) })
            .collect(),
        v => Ok(vec![usize::from_value(v).ok_or_else(bad)?; rank]),
    }
}

fn one_or_two(pair: (Tensor, Tensor), two: bool) -> Result<Vec<Tensor>> {
    Ok(if two { vec![pair.0, pair.1] } else { vec![pair.0] })
}

impl Tensor {
    /// `beta * self + alpha * other`; with a `beta` of 0 even a NaN of `self` is dropped.
    fn plus(&self, other: &Tensor, beta: Operand, alpha: Operand) -> Result<Tensor> {
        // integer tensors have integer factors
        let own = |v: Operand| match v {
            Operand::Float(f) if !other.dtype().is_float() => Operand::Int(f as i64),
            v => v,
        };
        let (beta, alpha) = (own(beta), own(alpha));
        let other = if let Operand::Int(1) = alpha { other.clone() } else { other.mul(alpha)? };
        match beta {
            Operand::Int(0) => other.add(self.zeros_like()?),
            Operand::Int(1) => self.add(other),
            beta => self.mul(beta)?.add(other),
        }
    }

    /// torch's `interpolate` by the name of the mode, to a size or by scale factors.
    fn interpolate_like(
        &self,
        size: Option<&[usize]>,
        scale: Option<&[f64]>,
        mode: &str,
        align: bool,
        recompute: bool,
    ) -> Result<Tensor> {
        let shape = self.shape();
        let bad = || Error::value("interpolate", "a size or a scale factor is needed");
        let d = shape.len().checked_sub(2).ok_or_else(bad)?;
        let spatial = &shape[2..];
        let wide = |v: &[f64]| if v.len() == 1 { vec![v[0]; d] } else { v.to_vec() };
        let sizes: Vec<usize> = match (size, scale) {
            (Some([one]), _) => vec![*one; d],
            (Some(s), _) => s.to_vec(),
            (None, Some(f)) => spatial.iter().zip(wide(f)).map(|(&n, f)| (n as f64 * f) as usize).collect(),
            _ => return Err(bad()),
        };
        if mode == "area" {
            return self.adaptive_avg_pool(&sizes);
        }
        // a given factor is used as it is, unless the sizes' quotient is asked for
        let factor = match (size, scale) {
            (None, Some(f)) if !recompute => Some(wide(f)),
            _ => None,
        };
        let how = match mode {
            "nearest" => Interpolate::Nearest,
            "nearest-exact" => Interpolate::NearestExact,
            "linear" | "bilinear" | "trilinear" => Interpolate::Linear,
            "bicubic" => Interpolate::Cubic(-0.75),
            _ => return Err(Error::value("interpolate", format!("there is no mode `{mode}`"))),
        };
        self.interpolate_by(&sizes, factor.as_deref(), how, align)
    }
}
