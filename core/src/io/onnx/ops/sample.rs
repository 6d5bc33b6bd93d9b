//! Operators that interpolate between the elements of an image (GridSample, deformable convolution), and operators that
//! assemble patches (Col2Im, MaxUnpool).

use super::super::prim::Window;
use super::super::value::{Cx, Value, strides};
use super::attention::less_equal;
use super::elementwise::one;
use super::{Op, OpDef, float_op, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::{ScatterOp, Tensor};

pub(super) static OPS: &[OpDef] = &[
    float_op("GridSample", 2, 0, grid_sample),
    super::contrib::ms("GridSample", 0, grid_sample),
    float_op("AffineGrid", 1, 2, affine_grid),
    float_op("DeformConv", 31, 0, deform_conv),
    op("CenterCropPad", 2, center_crop_pad),
    op("Col2Im", 6, col2im),
    float_op("MaxUnpool", 1, 4, max_unpool),
];

/// What is read outside the image.
#[derive(Clone, Copy, PartialEq)]
enum Border {
    Zeros,
    Clamp,
    /// The image mirrored at these coordinates.
    Reflect(f64, f64),
}

/// Reflects coordinates into `low ..= high`, with mirrors at both ends.
fn reflect(cx: &Cx<'_>, x: &Value, low: f64, high: f64) -> Result<Value> {
    let span = high - low;
    if span <= 0.0 {
        return cx.with(Cx::mul, x, 0.0);
    }
    let far = cx.unary(Tensor::abs, &cx.with(Cx::sub, x, low)?)?;
    let turns = cx.unary(Tensor::floor, &cx.with(Cx::div, &far, span)?)?;
    let rest = cx.sub(&far, &cx.with(Cx::mul, &turns, span)?)?;
    let half = cx.with(Cx::mul, &turns, 0.5)?;
    let even = cx.eq(&cx.unary(Tensor::floor, &half)?, &half)?;
    let back = cx.sub(&cx.scalar_like(x, high), &rest)?;
    cx.select(&even, &cx.with(Cx::add, &rest, low)?, &back)
}

/// The taps of coordinates along one axis: `(index, weight)` each, both floats.
fn taps(cx: &Cx<'_>, x: &Value, n: usize, mode: &str, border: Border) -> Result<Vec<(Value, Value)>> {
    let first = cx.unary(Tensor::floor, x)?;
    let at = cx.sub(x, &first)?;
    let weights: Vec<(f64, Value)> = match mode {
        "nearest" => vec![(0.0, cx.scalar_like(x, 1.0))],
        "cubic" => cubic(cx, &at)?,
        _ => vec![(0.0, cx.sub(&cx.scalar_like(&at, 1.0), &at)?), (1.0, at)],
    };
    let last = n as f64 - 1.0;
    let place = |(offset, weight): (f64, Value)| -> Result<(Value, Value)> {
        let i = cx.with(Cx::add, &first, offset)?;
        Ok(match border {
            Border::Reflect(low, high) => {
                let i = cx.unary(Tensor::floor, &reflect(cx, &i, low, high)?)?;
                (cx.clamp(&i, 0.0, last)?, weight)
            }
            Border::Clamp => (cx.clamp(&i, 0.0, last)?, weight),
            Border::Zeros => {
                let inside = cx.and(
                    &less_equal(cx, &cx.scalar_like(&i, 0.0), &i)?,
                    &less_equal(cx, &i, &cx.scalar_like(&i, last))?,
                )?;
                (cx.clamp(&i, 0.0, last)?, cx.select(&inside, &weight, &cx.scalar_like(&weight, 0.0))?)
            }
        })
    };
    weights.into_iter().map(place).collect()
}

/// Keys' cubic convolution kernel with parameter -0.75, at distances 1 + t, t, 1 - t and 2 - t.
fn cubic(cx: &Cx<'_>, t: &Value) -> Result<Vec<(f64, Value)>> {
    const A: f64 = -0.75;
    let polynomial = |x: &Value, c: [f64; 4]| -> Result<Value> {
        let mut y = cx.with(Cx::mul, x, c[0])?;
        for k in &c[1..3] {
            y = cx.mul(&cx.with(Cx::add, &y, *k)?, x)?;
        }
        cx.with(Cx::add, &y, c[3])
    };
    let near = [A + 2.0, -(A + 3.0), 0.0, 1.0];
    let far = [A, -5.0 * A, 8.0 * A, -4.0 * A];
    let rest = cx.sub(&cx.scalar_like(t, 1.0), t)?;
    Ok(vec![
        (-1.0, polynomial(&cx.with(Cx::add, t, 1.0)?, far)?),
        (0.0, polynomial(t, near)?),
        (1.0, polynomial(&rest, near)?),
        (2.0, polynomial(&cx.with(Cx::add, &rest, 1.0)?, far)?),
    ])
}

/// Samples `[n, c, sizes..]` at coordinates `[n, points]`, given as one tensor for each axis: `[n, c, points]`.
fn sample(cx: &Cx<'_>, x: &Value, coordinates: &[Value], mode: &str, borders: &[Border]) -> Result<Value> {
    let (n, c, sizes) = (x.dim(0)?, x.dim(1)?, x.shape_in(2..)?);
    let points = coordinates[0].dim(1)?;
    // Flattened index and weight of every combination of taps.
    let mut all: Vec<(Option<Value>, Option<Value>)> = vec![(None, None)];
    for ((at, &size), &border) in coordinates.iter().zip(sizes).zip(borders) {
        let own = taps(cx, at, size, mode, border)?;
        let mut next = Vec::with_capacity(all.len() * own.len());
        for (index, weight) in &all {
            for (i, w) in &own {
                let i = cx.cast(i, DType::I32)?;
                let index = match index {
                    None => i,
                    Some(index) => cx.add(&cx.with(Cx::mul, index, size as f64)?, &i)?,
                };
                let weight = weight.as_ref().map_or(Ok(w.clone()), |old| cx.mul(old, w))?;
                next.push((Some(index), Some(weight)));
            }
        }
        all = next;
    }
    let flat = cx.reshape(x, &[n, c, sizes.iter().product()])?;
    let mut sum: Option<Value> = None;
    for (index, weight) in all {
        let (Some(index), Some(weight)) = (index, weight) else { continue };
        let index = cx.expand(&cx.reshape(&index, &[n, 1, points])?, &[n, c, points])?;
        let mut part = cx.gather_elements(&flat, &index, 2)?;
        if mode != "nearest" || weight.rank() > 0 {
            let weight = cx.cast(&weight, x.dtype())?;
            let shape = if weight.rank() == 2 { vec![n, 1, points] } else { vec![1; 3] };
            let weight = cx.reshape(&weight, &shape)?;
            if x.dtype().is_float() {
                // Elements of weight 0 do not count, even if they are infinite.
                let nothing = cx.eq(&weight, &cx.scalar_like(&weight, 0.0))?;
                part = cx.select(&nothing, &cx.scalar_like(&part, 0.0), &part)?;
            }
            part = cx.mul(&part, &weight)?;
        }
        sum = Some(sum.map_or(Ok(part.clone()), |s| cx.add(&s, &part))?);
    }
    sum.map_or(Ok(flat), Ok)
}

fn grid_sample(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, grid) = (o.arg(0)?, o.arg(1)?);
    let axes = x.rank().saturating_sub(2);
    if axes == 0 || grid.rank() != x.rank() || grid.dim(0)? != x.dim(0)? || grid.dim(axes + 1)? != axes {
        return o.fail(format!("a grid of {:?} for {:?}", grid.shape(), x.shape()));
    }
    let mode = o.str("mode", "linear")?;
    let mode = mode.strip_prefix("bi").unwrap_or(&mode);
    let corners = o.flag("align_corners", false)?;
    let padding = o.str("padding_mode", "zeros")?;
    if !matches!(mode, "linear" | "nearest" | "cubic") {
        return o.fail(format!("the mode `{mode}` is unknown"));
    }
    // a result is the sum over all combinations of the axes' taps, with some ten nodes for each
    let taps: usize = match mode {
        "nearest" => 1,
        "linear" => 2,
        _ => 4,
    };
    o.cx.work(taps.saturating_pow(axes as u32).saturating_mul(10))?;
    let cx = &o.cx;
    let points: usize = grid.shape_in(1..=axes)?.iter().product();
    let flat = cx.reshape(&cx.cast(&grid, DType::F32)?, &[x.dim(0)?, points, axes])?;
    let (mut coordinates, mut borders) = (Vec::new(), Vec::new());
    for i in 0..axes {
        let n = x.dim(2 + i)? as f64;
        // The grid's coordinates are in the order of axes from the last to the first.
        let at = cx.reshape(&cx.narrow(&flat, 2, axes - 1 - i, 1)?, &[x.dim(0)?, points])?;
        let at = cx.with(Cx::add, &at, 1.0)?;
        let mut at = match corners {
            true => cx.with(Cx::mul, &at, (n - 1.0) / 2.0)?,
            false => cx.with(Cx::mul, &cx.with(Cx::sub, &cx.with(Cx::mul, &at, n)?, 1.0)?, 0.5)?,
        };
        if mode == "nearest" {
            at = cx.unary(Tensor::round, &at)?;
        }
        let (low, high) = if corners { (0.0, n - 1.0) } else { (-0.5, n - 0.5) };
        borders.push(match padding.as_str() {
            "zeros" => Border::Zeros,
            "border" => {
                at = cx.clamp(&at, 0.0, n - 1.0)?;
                Border::Clamp
            }
            "reflection" => {
                at = reflect(cx, &at, low, high)?;
                Border::Reflect(low, high)
            }
            other => return o.fail(format!("the padding `{other}` is unknown")),
        });
        coordinates.push(at);
    }
    let y = sample(cx, &x, &coordinates, mode, &borders)?;
    let shape = [x.shape_in(..2)?, grid.shape_in(1..=axes)?].concat();
    one(cx.reshape(&y, &shape))
}

fn affine_grid(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (theta, size) = (o.arg(0)?, o.sizes(&o.known_ints(1)?)?);
    let axes = size.len().saturating_sub(2);
    if axes == 0 || theta.shape() != [size[0], axes, axes + 1] {
        return o.fail(format!("transforms {:?} for a size of {size:?}", theta.shape()));
    }
    let corners = o.flag("align_corners", false)?;
    let places = &size[2..];
    let points = o.cx.check_shape(places)?;
    let strides = strides(places);
    let mut base = o.cx.vec_with_capacity(points.saturating_mul(axes + 1))?;
    for p in 0..points {
        for i in (0..axes).rev() {
            let (at, n) = ((p / strides[i] % places[i]) as f64, places[i] as f64);
            base.push((if corners { 2.0 * at / (n - 1.0) - 1.0 } else { (2.0 * at + 1.0) / n - 1.0 }) as f32);
        }
        base.push(1.0);
    }
    let base = Value::known(HostTensor::from_f32(vec![points, axes + 1], &base)?);
    let base = o.cx.cast(&base, theta.dtype())?;
    let y = o.cx.matmul(&base, &o.cx.swap(&theta, 1, 2)?)?;
    one(o.cx.reshape(&y, &[&size[..1], places, &[axes]].concat()))
}

/// A convolution whose taps are displaced by offsets and weighted by a mask.
fn deform_conv(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, w, offset) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    let ([n, c, _, _], [out, each, kh, kw], [_, moves, oh, ow]) = (x.shape(), w.shape(), offset.shape()) else {
        return o.unsupported("an image that is not 2-dimensional");
    };
    let (n, c, out, each, kh, kw, oh, ow) = (*n, *c, *out, *each, *kh, *kw, *oh, *ow);
    let (groups, parts) = (o.size(o.int("group", 1)?)?, o.size(o.int("offset_group", 1)?)?);
    let (k, l) = (kh * kw, oh * ow);
    let list = |name: &str, default: i64, n: usize| -> Result<Vec<i64>> {
        Ok(o.ints_opt(name)?.filter(|v| v.len() == n).unwrap_or_else(|| vec![default; n]))
    };
    let (stride, dilation, pads) = (list("strides", 1, 2)?, list("dilations", 1, 2)?, list("pads", 0, 4)?);
    let fits = groups > 0 && parts > 0 && c == each * groups && out % groups == 0 && c % parts == 0;
    let small = stride.iter().chain(&dilation).chain(&pads).all(|v| v.unsigned_abs() < 1 << 24);
    if !fits || !small || parts.checked_mul(2 * k) != Some(*moves) || k == 0 || l == 0 {
        return o.fail(format!("weights {:?} and offsets {:?} for {:?}", w.shape(), offset.shape(), x.shape()));
    }
    let cx = &o.cx;
    let moved = cx.reshape(&cx.cast(&offset, DType::F32)?, &[n * parts, k, 2, l])?;
    let mut coordinates = Vec::new();
    for a in 0..2 {
        let place = |tap: usize, at: usize| {
            let (tap, at) = if a == 0 { (tap / kw, at / ow) } else { (tap % kw, at % ow) };
            (at as i64 * stride[a] - pads[a] + tap as i64 * dilation[a]) as f32
        };
        let base = cx.table(DType::F32, &[1, k, 1, l], |i| Scalar::float(f64::from(place(i / l, i % l))))?;
        let at = cx.add(&cx.narrow(&moved, 2, a, 1)?, &base)?;
        coordinates.push(cx.reshape(&at, &[n * parts, k * l])?);
    }
    let split = [&[n * parts, c / parts][..], x.shape_in(2..)?].concat();
    let read = sample(cx, &cx.reshape(&x, &split)?, &coordinates, "linear", &[Border::Zeros; 2])?;
    let mut read = cx.reshape(&read, &[n, parts, c / parts, k, l])?;
    if let Some(mask) = o.opt(4) {
        read = cx.mul(&read, &cx.reshape(&mask, &[n, parts, 1, k, l])?)?;
    }
    let read = cx.reshape(&read, &[n, groups, each * k, l])?;
    let w = cx.reshape(&w, &[groups, out / groups, each * k])?;
    let mut y = cx.reshape(&cx.matmul(&w, &read)?, &[n, out, oh, ow])?;
    if let Some(b) = o.opt(3) {
        y = cx.add(&y, &cx.reshape(&b, &[1, out, 1, 1])?)?;
    }
    Ok(vec![y])
}

fn center_crop_pad(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, want) = (o.arg(0)?, o.sizes(&o.known_ints(1)?)?);
    let axes = match o.ints_opt("axes")? {
        Some(axes) => axes.iter().map(|&a| o.axis(a, x.rank())).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    if axes.len() != want.len() {
        return o.fail(format!("a shape of {want:?} for {} axes", axes.len()));
    }
    let rank = x.rank();
    let (mut start, mut len) = (vec![0; rank], x.shape().to_vec());
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (&a, &n) in axes.iter().zip(&want) {
        let own = x.dim(a)?;
        let (more, less) = (n.saturating_sub(own), own.saturating_sub(n));
        (start[a], len[a]) = (less / 2, own - less);
        (before[a], after[a]) = (more / 2, more - more / 2);
    }
    let y = o.cx.slice(&x, &start, &len, &vec![1; rank])?;
    one(o.cx.pad(&y, &before, &after, Scalar::from_i64(0, x.dtype())))
}

/// Sums patches at their positions in the image. On the host this is a transposed convolution whose weights are 1 at
/// one tap for each input channel.
fn col2im(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, image, kernel) = (o.arg(0)?, o.sizes(&o.known_ints(1)?)?, o.sizes(&o.known_ints(2)?)?);
    let d = kernel.len();
    let list = |name: &str, default: i64, n: usize| -> Result<Vec<usize>> {
        let v = o.sizes(&o.ints_opt(name)?.unwrap_or_else(|| vec![default; n]))?;
        if v.len() == n { Ok(v) } else { o.fail(format!("{name} {v:?} do not fit")) }
    };
    let (stride, dilation, pads) = (list("strides", 1, d)?, list("dilations", 1, d)?, list("pads", 0, 2 * d)?);
    let taps = o.cx.check_shape(&kernel)?;
    let bad = d == 0 || image.len() != d || x.rank() != 3 || taps == 0 || taps > 1 << 12 || x.dim(1)? % taps != 0;
    if bad || stride.contains(&0) || dilation.contains(&0) {
        return o.fail(format!("patches {:?} of {kernel:?} for {image:?}", x.shape()));
    }
    let mut places = Vec::new();
    for i in 0..d {
        let reach = (kernel[i] - 1).saturating_mul(dilation[i]).saturating_add(1);
        match image[i].saturating_add(pads[i]).saturating_add(pads[i + d]).checked_sub(reach) {
            Some(room) => places.push(room / stride[i] + 1),
            None => return o.fail(format!("a kernel of {reach} does not fit {}", image[i])),
        }
    }
    if places.iter().try_fold(1usize, |n, &p| n.checked_mul(p)) != Some(x.dim(2)?) {
        return o.fail(format!("{} patches, not {places:?}", x.dim(2)?));
    }
    let (n, c) = (x.dim(0)?, x.dim(1)? / taps);
    // Not on the host, where everything is folded.
    if d <= 2 && x.dtype().is_float() && o.cx.fold_limit != usize::MAX {
        // Each patch is added to the padded image.
        let pair = |v: &[usize], other: usize| if d == 1 { vec![other, v[0]] } else { v.to_vec() };
        let padded: Vec<usize> = (0..d).map(|i| image[i].saturating_add(pads[i]).saturating_add(pads[i + d])).collect();
        let columns = o.cx.lazy(&x)?;
        let y = columns.fold(&pair(&padded, 1), &pair(&kernel, 1), &pair(&dilation, 1), &[0, 0], &pair(&stride, 1))?;
        let y = o.cx.reshape(&Value::lazy(y), &[&[n, c][..], &padded].concat())?;
        let start: Vec<usize> = [&[0, 0], &pads[..d]].concat();
        return one(o.cx.slice(&y, &start, &[&[n, c][..], &image].concat(), &vec![1; d + 2]));
    }
    let x = o.cx.reshape(&x, &[&[n * c, taps][..], &places].concat())?;
    let eye = |i: usize| Scalar::float(f64::from(i / taps == i % taps));
    let w = o.cx.table(DType::F32, &[&[taps, 1][..], &kernel].concat(), eye)?;
    let win = Window { kernel, stride, dilation, pads: vec![(0, 0); d] };
    let y = o.cx.conv_transpose(&x, &o.cx.cast(&w, x.dtype())?, &win, 1)?;
    // Remove the padding, and add what no patch reaches as zeros.
    let (mut start, mut len, mut after) = (vec![0; d + 2], y.shape().to_vec(), vec![0; d + 2]);
    for i in 0..d {
        start[2 + i] = pads[i];
        len[2 + i] = (len[2 + i] - pads[i].min(len[2 + i])).min(image[i]);
        after[2 + i] = image[i] - len[2 + i];
    }
    let y = o.cx.slice(&y, &start, &len, &vec![1; d + 2])?;
    let y = o.cx.pad(&y, &vec![0; d + 2], &after, Scalar::from_i64(0, x.dtype()))?;
    one(o.cx.reshape(&y, &[&[n, c][..], &image].concat()))
}

fn max_unpool(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, index) = (o.arg(0)?, o.arg(1)?);
    let Some(kernel) = o.ints_opt("kernel_shape")? else { return o.fail("kernel_shape is missing") };
    let kernel = o.sizes(&kernel)?;
    let d = kernel.len();
    let stride = o.sizes(&o.ints_opt("strides")?.unwrap_or_else(|| vec![1; d]))?;
    let pads = o.sizes(&o.ints_opt("pads")?.unwrap_or_else(|| vec![0; 2 * d]))?;
    if x.rank() != d + 2 || index.shape() != x.shape() || stride.len() != d || pads.len() != 2 * d {
        return o.fail(format!("{:?} with indices {:?}", x.shape(), index.shape()));
    }
    let mut shape = x.shape_in(..2)?.to_vec();
    for i in 0..d {
        let full = x.dim(2 + i)?.saturating_sub(1).saturating_mul(stride[i]).saturating_add(kernel[i]);
        match full.checked_sub(pads[i].saturating_add(pads[i + d])) {
            Some(n) => shape.push(n),
            None => return o.fail("pads cut everything"),
        }
    }
    let zero = Scalar::from_i64(0, x.dtype());
    let flat = o.cx.full(x.dtype(), &[o.cx.check_shape(&shape)?], zero)?;
    let y = o.cx.scatter_elements(
        &flat,
        &o.cx.reshape(&index, &[index.len()])?,
        &o.cx.reshape(&x, &[x.len()])?,
        0,
        ScatterOp::Set,
    )?;
    let y = o.cx.reshape(&y, &shape)?;
    let Some(want) = o.known_ints_opt(2)? else { return Ok(vec![y]) };
    let want = o.sizes(&want)?;
    let after: Option<Vec<usize>> = want.iter().zip(&shape).map(|(w, s)| w.checked_sub(*s)).collect();
    match after {
        Some(after) if want.len() == shape.len() => one(o.cx.pad(&y, &vec![0; after.len()], &after, zero)),
        _ => o.fail(format!("output_shape {want:?} for {shape:?}")),
    }
}
