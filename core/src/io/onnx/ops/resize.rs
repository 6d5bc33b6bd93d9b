//! Resize and Upsample. Every output element along an axis is a weighted sum of a few input elements, so each axis is
//! processed on its own as a gather (one tap) or a sum of weighted gathers. A tap is one input position that an output
//! element reads, with its weight.

use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::{Op, OpDef, float_op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::Tensor;
use crate::util::between;
use crate::util::decimal::Shown;

pub(super) static OPS: &[OpDef] = &[float_op("Resize", 6, 14, resize), float_op("Upsample", 2, 2, upsample)];

/// The most taps that are computed as an unrolled sum of gathers; more taps become a reduction.
const UNROLLED_TAPS: usize = 4;

/// How one axis is resized: input length, output length and scale.
struct Axis {
    from: usize,
    to: usize,
    scale: f64,
    /// The output length before rounding down, by which `align_corners` and the crops divide.
    exact: f64,
    /// Start and end of the region that `tf_crop_and_resize` reads, as fractions of the axis.
    roi: (f64, f64),
}

#[derive(Clone)]
struct Mode {
    kind: String,
    coordinates: String,
    nearest: String,
    cubic: f64,
    exclude_outside: bool,
    extrapolation: f64,
    antialias: bool,
}

fn upsample(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let scales = match o.floats_opt("scales")? {
        Some(s) => s.iter().map(|&v| f64::from(v)).collect(),
        None => o.known_floats_opt(1)?.unwrap_or_default(),
    };
    let kind = match o.str("mode", "nearest")?.as_str() {
        "bilinear" | "trilinear" => "linear".to_owned(),
        other => other.to_owned(),
    };
    let mode = Mode {
        kind,
        coordinates: "asymmetric".to_owned(),
        nearest: "simple".to_owned(),
        cubic: -0.75,
        exclude_outside: false,
        extrapolation: 0.0,
        antialias: false,
    };
    let axes: Vec<usize> = (0..x.rank()).collect();
    by_scales(o, &x, &axes, &scales, &[], &mode)
}

fn resize(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let old = o.opset < 11; // Resize-10: X, scales
    let mode = Mode {
        kind: o.str("mode", "nearest")?,
        coordinates: o.str("coordinate_transformation_mode", if old { "asymmetric" } else { "half_pixel" })?,
        nearest: o.str("nearest_mode", if old { "simple" } else { "round_prefer_floor" })?,
        cubic: o.float("cubic_coeff_a", -0.75)?,
        exclude_outside: o.flag("exclude_outside", false)?,
        extrapolation: o.float("extrapolation_value", 0.0)?,
        antialias: o.flag("antialias", false)?,
    };
    let axes = match o.ints_opt("axes")? {
        Some(axes) => axes.iter().map(|&a| o.axis(a, x.rank())).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    let scales = o.known_floats_opt(if old { 1 } else { 2 })?.unwrap_or_default();
    let roi = if old { Vec::new() } else { o.known_floats_opt(1)?.unwrap_or_default() };
    if !scales.is_empty() {
        return by_scales(o, &x, &axes, &scales, &roi, &mode);
    }
    let Some(sizes) = o.known_ints_opt(3)? else { return o.fail("neither scales nor sizes are given") };
    let sizes = o.sizes(&sizes)?;
    if sizes.len() != axes.len() {
        return o.fail(format!("{} sizes for {} axes", sizes.len(), axes.len()));
    }
    let ratio = |(&a, &s): (&usize, &usize)| s as f64 / x.extent(a).max(1) as f64;
    let ratios: Vec<f64> = axes.iter().zip(&sizes).map(ratio).collect();
    let policy = o.str("keep_aspect_ratio_policy", "stretch")?;
    let one_scale = match policy.as_str() {
        "stretch" => None,
        "not_larger" => Some(ratios.iter().copied().fold(f64::INFINITY, f64::min)),
        "not_smaller" => Some(ratios.iter().copied().fold(0.0, f64::max)),
        other => return o.fail(format!("keep_aspect_ratio_policy `{other}` is unknown")),
    };
    let mut plan = Vec::new();
    for (i, &a) in axes.iter().enumerate() {
        let from = x.dim(a)?;
        let (to, scale) = match one_scale {
            Some(s) => ((s * from as f64).round() as usize, s),
            None => (sizes[i], ratios[i]),
        };
        plan.push((a, Axis { from, to, scale, exact: to as f64, roi: roi_of(&roi, i, axes.len()) }));
    }
    run(o, x, &plan, &mode)
}

fn roi_of(roi: &[f64], i: usize, n: usize) -> (f64, f64) {
    if roi.len() == 2 * n { (roi[i], roi[i + n]) } else { (0.0, 1.0) }
}

fn by_scales(
    o: &Op<'_, '_>,
    x: &Value,
    axes: &[usize],
    scales: &[f64],
    roi: &[f64],
    mode: &Mode,
) -> Result<Vec<Value>> {
    if scales.len() != axes.len() {
        return o.fail(format!("{} scales for {} axes", scales.len(), axes.len()));
    }
    let mut plan = Vec::new();
    for (i, (&a, &scale)) in axes.iter().zip(scales).enumerate() {
        let from = x.dim(a)?;
        let roi = roi_of(roi, i, axes.len());
        let part = if mode.coordinates == "tf_crop_and_resize" { roi.1 - roi.0 } else { 1.0 };
        let exact = from as f64 * part * scale;
        // Scales are f32, so the product is rounded to f32 first: 10 times 0.7 is 7.
        let to = f64::from((exact as f32).floor());
        // The comparison is false for NaN too.
        if !(scale > 0.0 && to < (1u64 << 31) as f64) {
            return o.fail(format!("a scale of {}", Shown(scale)));
        }
        plan.push((a, Axis { from, to: to as usize, scale, exact, roi }));
    }
    run(o, x.clone(), &plan, mode)
}

fn run(o: &Op<'_, '_>, mut x: Value, plan: &[(usize, Axis)], mode: &Mode) -> Result<Vec<Value>> {
    if !matches!(mode.kind.as_str(), "nearest" | "linear" | "cubic") {
        return o.fail(format!("the mode `{}` is unknown", mode.kind));
    }
    let dtype = x.dtype();
    // Positions outside the input, which only `tf_crop_and_resize` has.
    let mut outside: Option<Value> = None;
    let rank = x.rank();
    for (a, axis) in plan {
        let crops = mode.coordinates == "tf_crop_and_resize";
        if (axis.from == axis.to && axis.scale == 1.0 && !(crops && axis.roi != (0.0, 1.0)))
            || axis.to == 0 && axis.from == 0
        {
            continue;
        }
        if axis.from == 0 {
            return o.fail(format!("axis {a} is empty"));
        }
        o.cx.check_shape(&[axis.to, axis.from])?;
        let mut sizes = x.shape().to_vec();
        sizes[*a] = axis.to;
        o.cx.check_shape(&sizes)?;
        // Positions of 8 bytes, and as many picks and indices.
        o.cx.charge((axis.to as u64).saturating_mul(24))?;
        let mut at = crate::budget::room(axis.to)?;
        for i in 0..axis.to {
            let Some(p) = position(i, axis, &mode.coordinates) else {
                return o.fail(format!("coordinates `{}` are unknown", mode.coordinates));
            };
            at.push(p);
        }
        if crops {
            let last = (axis.from - 1) as f64;
            let beyond: Vec<u8> = at.iter().map(|&p| u8::from(p < 0.0 || p > last)).collect();
            if beyond.contains(&1) {
                let mut shape = vec![1; rank];
                shape[*a] = axis.to;
                let mask = Value::known(HostTensor::new(DType::Bool, shape, beyond)?);
                outside = Some(match outside {
                    Some(m) => o.cx.or(&m, &mask)?,
                    None => mask,
                });
            }
        }
        x = match mode.kind.as_str() {
            "nearest" => nearest(o, &x, *a, axis, &at, &mode.nearest)?,
            _ => weighted(o, &x, *a, axis, &at, mode)?,
        };
    }
    if let Some(mask) = outside {
        x = o.cx.select(&mask, &o.cx.scalar_like(&x, mode.extrapolation), &x)?;
    }
    one(o.cx.cast(&x, dtype))
}

/// The position of output element `i` on the input axis.
fn position(i: usize, axis: &Axis, coordinates: &str) -> Option<f64> {
    let (i, from, to, scale) = (i as f64, axis.from as f64, axis.to as f64, axis.scale);
    let exact = axis.exact;
    Some(match coordinates {
        "half_pixel" => (i + 0.5) / scale - 0.5,
        "half_pixel_symmetric" => {
            let adjusted = to / (scale * from);
            from / 2.0 * (1.0 - adjusted) + (i + 0.5) / scale - 0.5
        }
        "pytorch_half_pixel" if exact > 1.0 => (i + 0.5) / scale - 0.5,
        "pytorch_half_pixel" => 0.0,
        "align_corners" if exact > 1.0 => i * (from - 1.0) / (exact - 1.0),
        "align_corners" => 0.0,
        "asymmetric" => i / scale,
        "tf_half_pixel_for_nn" => (i + 0.5) / scale,
        "tf_crop_and_resize" if exact > 1.0 => {
            axis.roi.0 * (from - 1.0) + i * (axis.roi.1 - axis.roi.0) * (from - 1.0) / (exact - 1.0)
        }
        "tf_crop_and_resize" => 0.5 * (axis.roi.0 + axis.roi.1) * (from - 1.0),
        _ => return None,
    })
}

fn nearest(o: &Op<'_, '_>, x: &Value, a: usize, axis: &Axis, at: &[f64], how: &str) -> Result<Value> {
    let pick = |p: f64| {
        let p = f64::from(p as f32);
        let p = match how {
            // The rounding of operator sets before 11.
            "simple" if axis.scale < 1.0 => p.ceil(),
            "simple" => p.floor(),
            "floor" => p.floor(),
            "ceil" => p.ceil(),
            "round_prefer_floor" => (p - 0.5).ceil(),
            "round_prefer_ceil" => (p + 0.5).floor(),
            _ => return None,
        };
        Some(between(p, 0.0, (axis.from - 1) as f64) as usize)
    };
    let picks = at.iter().map(|&p| pick(p)).collect::<Option<Vec<_>>>();
    let Some(picks) = picks else { return o.fail(format!("nearest_mode `{how}` is unknown")) };
    // Taking every k-th element is a slice.
    let step = picks.get(1).map_or(1, |&p| p.saturating_sub(picks[0]));
    if step > 0 && !picks.is_empty() && picks.iter().enumerate().all(|(i, &p)| p == picks[0] + i * step) {
        let (mut start, mut len, mut steps) = (vec![0; x.rank()], x.shape().to_vec(), vec![1; x.rank()]);
        (start[a], len[a], steps[a]) = (picks[0], axis.to, step as isize);
        return o.cx.slice(x, &start, &len, &steps);
    }
    o.cx.take_at(x, a, &picks)
}

/// Linear and cubic modes: each element is a weighted sum of a few. A product with a sparse matrix would be wrong for
/// infinities, since 0 * inf is NaN.
fn weighted(o: &Op<'_, '_>, x: &Value, a: usize, axis: &Axis, at: &[f64], mode: &Mode) -> Result<Value> {
    let work = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let stretch = if mode.antialias { axis.scale.min(1.0) } else { 1.0 };
    let reach = if mode.kind == "linear" { 1.0 } else { 2.0 } / stretch;
    if reach * axis.to as f64 > (1 << 26) as f64 {
        return o.unsupported(format!("an axis of {} to {}", axis.from, axis.to));
    }
    let kernel = |d: f64| {
        let d = (d * stretch).abs();
        match mode.kind.as_str() {
            "linear" => (1.0 - d).max(0.0),
            _ => cubic(d, mode.cubic),
        }
    };
    // Index and weight of each tap, and the tensors that are made of them.
    let taps_bytes = (2.0 * reach + 3.0) as u64 * 64;
    o.cx.charge((axis.to as u64).saturating_mul(taps_bytes))?;
    let last = axis.from as i64 - 1;
    let all_taps: Vec<Vec<(usize, f64)>> = at
        .iter()
        .map(|&p| {
            let reached = (p - reach).floor() as i64..=(p + reach).ceil() as i64;
            let weight =
                |t: i64| if mode.exclude_outside && !(0..=last).contains(&t) { 0.0 } else { kernel(p - t as f64) };
            let total: f64 = reached.clone().map(weight).sum();
            let mut taps: Vec<(usize, f64)> = Vec::new();
            for t in reached.filter(|&t| weight(t) != 0.0) {
                let (place, w) = (t.clamp(0, last) as usize, weight(t) / if total == 0.0 { 1.0 } else { total });
                match taps.last_mut() {
                    // On longer axes the taps at the border stay apart, so that all positions of one tap follow one rule.
                    Some(same) if same.0 == place && last == 0 => same.1 += w,
                    _ => taps.push((place, w)),
                }
            }
            taps
        })
        .collect();
    blend(o.cx, &o.cx.cast(x, work)?, a, &all_taps)
}

/// Computes an axis whose element `i` is the sum of `weight * element` over `taps[i]`. Elements of weight 0 do not take
/// part, even if they are infinite or NaN.
fn blend(cx: &Cx<'_>, x: &Value, a: usize, taps: &[Vec<(usize, f64)>]) -> Result<Value> {
    if taps.is_empty() {
        let mut shape = x.shape().to_vec();
        shape[a] = 0;
        return cx.full(x.dtype(), &shape, Scalar::float(0.0));
    }
    let most = taps.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let nth = |i: usize, k: usize| taps[i].get(k).copied().unwrap_or((taps[i].first().map_or(0, |t| t.0), 0.0));
    // Weights along the axis; `each` of them for one element.
    let weighted = |part: &Value, all: &[(usize, f64)], each: Option<usize>| -> Result<Value> {
        let mut shape = vec![1; part.rank()];
        shape[a] = taps.len();
        if let Some(each) = each {
            shape[a + 1] = each;
        }
        let weights: Vec<Scalar> = all.iter().map(|t| Scalar::from_f64(t.1, x.dtype())).collect();
        let weights = Value::known(HostTensor::from_scalars(x.dtype(), shape, &weights)?);
        if !all.iter().any(|t| t.1 == 0.0) {
            return cx.mul(part, &weights);
        }
        let nothing = cx.eq(&weights, &cx.scalar_like(&weights, 0.0))?;
        cx.mul(&cx.select(&nothing, &cx.scalar_like(part, 0.0), part)?, &weights)
    };
    // A few taps are a sum of parts, which fuses with its consumers; many are a reduction.
    if most > UNROLLED_TAPS {
        let all: Vec<(usize, f64)> = (0..taps.len()).flat_map(|i| (0..most).map(move |k| nth(i, k))).collect();
        let index = cx.reshape(&cx.ints(&all.iter().map(|t| t.0 as i64).collect::<Vec<_>>())?, &[taps.len(), most])?;
        let parts = weighted(&cx.gather(x, &index, a)?, &all, Some(most))?;
        return cx.reduce(Tensor::sum, &parts, &[a + 1], false);
    }
    let mut sum: Option<Value> = None;
    for k in 0..most {
        let all: Vec<(usize, f64)> = (0..taps.len()).map(|i| nth(i, k)).collect();
        let part = cx.take_at(x, a, &all.iter().map(|t| t.0).collect::<Vec<_>>())?;
        let part = weighted(&part, &all, None)?;
        sum = Some(sum.map_or(Ok(part.clone()), |s| cx.add(&s, &part))?);
    }
    Ok(sum.unwrap_or_else(|| x.clone()))
}

/// The cubic convolution kernel with parameter `a`.
fn cubic(d: f64, a: f64) -> f64 {
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else if d < 2.0 {
        a * (((d - 5.0) * d + 8.0) * d - 4.0)
    } else {
        0.0
    }
}
