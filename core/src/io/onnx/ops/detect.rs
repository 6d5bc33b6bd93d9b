//! Operators of object detectors and of classical pipelines. Those whose result's size depends on data run on the host,
//! on known values.

use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::{Op, OpDef, float_op, host_op, ml};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::{RoiGrid, Tensor};
use crate::util::between;
use crate::util::decimal::Shown;
use crate::util::sort;
use rustc_hash::FxHashMap;

pub(super) static OPS: &[OpDef] = &[
    OpDef { floats: 27, ..host_op("NonMaxSuppression", non_max_suppression) },
    host_op("Unique", unique),
    OpDef {
        host: true,
        ..super::contrib::ms("Unique", u32::MAX, |o| {
            let [y, _, inverse, counts] = &unique(o)?[..] else { return o.fail("no result") };
            Ok([y, inverse, counts].map(Value::clone).into())
        })
    },
    float_op("RoiAlign", 3, 0, roi_align),
    float_op("MaxRoiPool", 3, 0, max_roi_pool),
    float_op("MelWeightMatrix", 24, 31, mel_weights),
    host_op("TfIdfVectorizer", tf_idf),
    float_op("Det", 1, 0, |o| {
        let x = o.arg(0)?;
        o.want_rank(&x, 2)?;
        one(o.cx.lazy(&x)?.det().map(Value::lazy))
    }),
    super::contrib::float_ms("Inverse", 1, 0, |o| {
        let x = o.arg(0)?;
        o.want_rank(&x, 2)?;
        one(o.cx.lazy(&x)?.inverse().map(Value::lazy))
    }),
    ml("Binarizer", |o| {
        let x = o.arg(0)?;
        let over = o.cx.lt(&o.cx.scalar_like(&x, o.float("threshold", 0.0)?), &x)?;
        one(o.cx.cast(&over, x.dtype()))
    }),
    ml("ArrayFeatureExtractor", |o| {
        let (x, at) = (o.arg(0)?, o.arg(1)?);
        o.want_rank(&x, 1)?;
        let at = o.cx.reshape(&at, &[at.len()])?;
        let x = if x.rank() == 1 { o.cx.reshape(&x, &[1, x.len()])? } else { x };
        one(o.cx.gather(&x, &at, x.nth_last(1)?))
    }),
];

/// The elements of an input as floats; stops the build if they are not known.
fn floats(o: &Op<'_, '_>, i: usize) -> Result<Vec<f32>> {
    match o.cx.host(&o.arg(i)?)? {
        Some(t) => Ok(t.to_f64().into_iter().map(|v| v as f32).collect()),
        None => o.unknown(i),
    }
}

/// The ordered corners `[y1, x1, y2, x2]` of a box, which is given by two corners or (`centered`) by centre and size.
fn box_corners(b: &[f32], centered: bool) -> [f32; 4] {
    if centered {
        let (x, y, w, h) = (b[0], b[1], b[2] / 2.0, b[3] / 2.0);
        return [y - h, x - w, y + h, x + w];
    }
    [b[0].min(b[2]), b[1].min(b[3]), b[0].max(b[2]), b[1].max(b[3])]
}

fn overlap(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let side = |i: usize| (a[i + 2].min(b[i + 2]) - a[i].max(b[i])).max(0.0);
    let area = |c: &[f32; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let (both, all) = (side(0) * side(1), area(a) + area(b));
    if both <= 0.0 { 0.0 } else { both / (all - both) }
}

/// Non-maximum suppression: boxes `[batches, n, 4]`, scores `[batches, classes, n]` -> rows of batch, class and box,
/// the best of a class first.
fn non_max_suppression(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (boxes, scores) = (o.arg(0)?, o.arg(1)?);
    let (&[batches, n, 4], &[b, classes, m]) = (boxes.shape(), scores.shape()) else {
        return o.fail(format!("boxes {:?} with scores {:?}", boxes.shape(), scores.shape()));
    };
    if b != batches || m != n {
        return o.fail(format!("boxes {:?} do not fit scores {:?}", boxes.shape(), scores.shape()));
    }
    let (boxes, scores) = (floats(o, 0)?, floats(o, 1)?);
    let most = o.known_ints_opt(2)?.and_then(|v| v.first().copied()).unwrap_or(0);
    let number = |i: usize| Ok(o.known_floats_opt(i)?.and_then(|v| v.first().map(|&v| v as f32)));
    let (iou, least) = (number(3)?.unwrap_or(0.0), number(4)?);
    let centered = o.flag("center_point_box", false)?;
    let mut rows: Vec<i64> = Vec::new();
    for (batch, class) in (0..batches).flat_map(|b| (0..classes).map(move |c| (b, c))) {
        let score = &scores[(batch * classes + class) * n..][..n];
        let mut order: Vec<usize> = (0..n).filter(|&i| least.is_none_or(|l| score[i] > l)).collect();
        sort::by(&mut order, |&a, &b| score[b].total_cmp(&score[a]));
        let mut kept: Vec<[f32; 4]> = Vec::new();
        for i in order {
            if kept.len() as i64 >= most {
                break;
            }
            let own = box_corners(&boxes[(batch * n + i) * 4..][..4], centered);
            if kept.iter().all(|k| overlap(k, &own) <= iou) {
                kept.push(own);
                rows.extend([batch as i64, class as i64, i as i64]);
            }
        }
    }
    one(HostTensor::from_i64(vec![rows.len() / 3, 3], &rows).map(Value::known))
}

/// An integer that orders as the element does.
fn order_key(s: Scalar, dtype: DType) -> i128 {
    if dtype.is_float() {
        // Adding 0 maps -0 to 0, so that both are one value.
        let bits = (s.as_f64() + 0.0).to_bits() as i64;
        return i128::from(bits ^ ((bits >> 63) as u64 >> 1) as i64);
    }
    if dtype == DType::U64 { i128::from(s.as_i64() as u64) } else { i128::from(s.as_i64()) }
}

/// The distinct elements, or distinct slices along an axis; for each the index of its first occurrence; for each input
/// element the index of its distinct one; and the counts.
fn unique(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let mut x = o.arg(0)?;
    let axis = match o.int_opt("axis")? {
        Some(a) => o.axis(a, x.rank())?,
        None => {
            x = o.cx.reshape(&x, &[x.len()])?;
            0
        }
    };
    let Some(t) = o.cx.host(&x)? else { return o.unknown(0) };
    let n = x.dim(axis)?;
    let (outer, inner): (usize, usize) =
        (x.shape_in(..axis)?.iter().product(), x.shape_in(axis + 1..)?.iter().product());
    let ranks: Vec<i128> = t.scalars().map(|s| order_key(s, t.dtype)).collect();
    let slice =
        |i: usize| -> Vec<i128> { (0..outer).flat_map(|a| &ranks[(a * n + i) * inner..][..inner]).copied().collect() };
    // Slices with their indices, sorted; then for each distinct slice the indices of all equal ones.
    let mut slices: Vec<(Vec<i128>, usize)> = (0..n).map(|i| (slice(i), i)).collect();
    sort::ascending(&mut slices);
    let mut groups: Vec<Vec<usize>> =
        slices.chunk_by(|a, b| a.0 == b.0).map(|g| g.iter().map(|s| s.1).collect()).collect();
    // The operator of `com.microsoft` keeps the order of first occurrence.
    if !o.flag("sorted", o.node.domain.is_empty())? {
        sort::by_key(&mut groups, |g| g[0]);
    }
    let mut inverse = vec![0; n];
    for (k, g) in groups.iter().enumerate() {
        g.iter().for_each(|&i| inverse[i] = k as i64);
    }
    let first = o.cx.ints(&groups.iter().map(|g| g[0] as i64).collect::<Vec<_>>())?;
    let counts = o.cx.ints(&groups.iter().map(|g| g.len() as i64).collect::<Vec<_>>())?;
    Ok(vec![o.cx.gather(&x, &first, axis)?, first, o.cx.ints(&inverse)?, counts])
}

fn roi_align(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, boxes, batch) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    let (&[n, 4], &[_, channels, _, _]) = (boxes.shape(), x.shape()) else {
        return o.fail(format!("boxes {:?} for {:?}", boxes.shape(), x.shape()));
    };
    if batch.shape() != [n] {
        return o.fail(format!("batch indices {:?} for boxes {:?}", batch.shape(), boxes.shape()));
    }
    let largest = match o.str("mode", "avg")?.as_str() {
        "avg" => false,
        "max" => true,
        other => return o.fail(format!("the mode `{other}` is unknown")),
    };
    let form =
        o.str("coordinate_transformation_mode", if o.opset < 16 { "output_half_pixel" } else { "half_pixel" })?;
    let size = |name: &str| o.size(o.int(name, 1)?);
    let samples = o.size(o.int("sampling_ratio", 0)?)?;
    let mut grid = RoiGrid {
        output: (size("output_height")?, size("output_width")?),
        scale: o.float("spatial_scale", 1.0)?,
        aligned: form == "half_pixel",
        samples: (samples, samples),
        adaptive: samples == 0,
    };
    if n == 0 || grid.output.0 == 0 || grid.output.1 == 0 {
        return one(o.cx.full(x.dtype(), &[n, channels, grid.output.0, grid.output.1], Scalar::float(0.0)));
    }
    let batch = o.cx.cast(&o.cx.reshape(&batch, &[n, 1])?, DType::F32)?;
    let boxes = o.cx.lazy(&o.cx.concat(&[batch, o.cx.cast(&boxes, DType::F32)?], 1)?)?;
    if grid.adaptive {
        let most = o.computed("largest box", |_| {
            let side = |lo: i64, hi: i64, bins: usize| {
                let size = grid.span(&boxes.select_at(1, lo)?, &boxes.select_at(1, hi)?)?.1;
                size.div(bins as f64)?.ceil()?.max(&[0], true)
            };
            let both = Tensor::cat(&[&side(2, 4, grid.output.0)?, &side(1, 3, grid.output.1)?], 0)?;
            Ok(Value::lazy(both))
        })?;
        let most: Vec<usize> = most.to_f64().into_iter().map(|v| between(v, 1.0, 4096.0) as usize).collect();
        let &[rows, columns] = &most[..] else { return o.fail("no boxes") };
        grid.samples = (rows, columns);
    }
    o.cx.check_shape(&[n, channels, grid.output.0, grid.samples.0, grid.output.1, grid.samples.1])?;
    let image = o.cx.lazy(&o.cx.cast(&x, DType::F32)?)?;
    one(o.cx.cast(&Value::lazy(image.roi_pool(&boxes, &grid, largest)?), x.dtype()))
}

/// The largest element of each bin of boxes `[n, 5]`: batch, x1, y1, x2, y2, in whole pixels.
fn max_roi_pool(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, boxes) = (o.arg(0)?, o.arg(1)?);
    let (&[_, c, h, w], &[n, 5]) = (x.shape(), boxes.shape()) else {
        return o.fail(format!("boxes {:?} for {:?}", boxes.shape(), x.shape()));
    };
    let pooled = o.sizes(&o.ints_opt("pooled_shape")?.unwrap_or_default())?;
    let (&[rows, columns], scale) = (&pooled[..], o.float("spatial_scale", 1.0)?) else {
        return o.fail("`pooled_shape` is not two sizes");
    };
    let cx = &o.cx;
    if rows.max(columns) > 1 << 16 {
        return o.fail(format!("{rows} x {columns} bins"));
    }
    let boxes = cx.cast(&boxes, DType::F32)?;
    // A mask of the pixels along an axis that belong to each bin: `[n, bins, size]`.
    let inside = |lo: usize, hi: usize, bins: usize, size: usize| -> Result<Value> {
        // Halves round up: floor(x + 1/2) = floor((floor(2x) + 1) / 2). This form never adds to a product directly,
        // which a device could contract to a fused multiply-add that skips the product's rounding.
        let pixel = |i: usize| {
            let twice = cx.unary(Tensor::floor, &cx.with(Cx::mul, &cx.narrow(&boxes, 1, i, 1)?, 2.0 * scale)?)?;
            cx.unary(Tensor::floor, &cx.with(Cx::mul, &cx.with(Cx::add, &twice, 1.0)?, 0.5)?)
        };
        let (start, end) = (pixel(lo)?, pixel(hi)?);
        let span = cx.with(Cx::max, &cx.with(Cx::add, &cx.sub(&end, &start)?, 1.0)?, 1.0)?;
        let bin = cx.with(Cx::div, &span, bins as f64)?;
        let steps = |n: usize| cx.cast(&cx.count_up(n)?, DType::F32);
        let i = cx.reshape(&steps(bins)?, &[1, bins])?;
        let from = cx.add(&cx.unary(Tensor::floor, &cx.mul(&i, &bin)?)?, &start)?;
        let to = cx.add(&cx.unary(Tensor::ceil, &cx.mul(&cx.with(Cx::add, &i, 1.0)?, &bin)?)?, &start)?;
        let (from, to) = (cx.reshape(&from, &[n, bins, 1])?, cx.reshape(&to, &[n, bins, 1])?);
        let at = steps(size)?;
        let early = cx.lt(&at, &from)?;
        cx.and(&cx.not(&early)?, &cx.lt(&at, &to)?)
    };
    let least = cx.scalar_like(&x, f64::NEG_INFINITY);
    let image = cx.gather(&x, &cx.cast(&cx.reshape(&cx.narrow(&boxes, 1, 0, 1)?, &[n])?, DType::I32)?, 0)?;
    let image = cx.reshape(&image, &[n, c, h, 1, w])?;
    let across = cx.reshape(&inside(1, 3, columns, w)?, &[n, 1, 1, columns, w])?;
    let wide = cx.reduce(Tensor::max, &cx.select(&across, &image, &least)?, &[4], false)?; // [n, c, h, columns]
    let wide = cx.reshape(&wide, &[n, c, 1, h, columns])?;
    let down = cx.reshape(&inside(2, 4, rows, h)?, &[n, 1, rows, h, 1])?;
    let best = cx.reduce(Tensor::max, &cx.select(&down, &wide, &least)?, &[3], false)?;
    let none = cx.eq(&best, &least)?;
    one(cx.select(&none, &cx.scalar_like(&best, 0.0), &best))
}

/// Triangular filters over the bins of a spectrum, with centres evenly spaced on the mel scale: `[dft / 2 + 1, bands]`.
fn mel_weights(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let mut numbers = [0.0; 5];
    for (i, v) in numbers.iter_mut().enumerate() {
        *v = o.known_floats_opt(i)?.and_then(|t| t.first().copied()).unwrap_or(-1.0);
    }
    let [bands, dft, rate, low, high] = numbers;
    let dtype = o.dtype_attr("output_datatype", DType::F32)?;
    let (bands, rows) = (o.size(bands as i64)?, o.size(dft as i64)? / 2 + 1);
    let count = o.cx.check_shape(&[rows, bands])?;
    if rate <= 0.0 || low < 0.0 || high < low {
        let [low, high, rate] = [low, high, rate].map(Shown);
        return o.fail(format!("frequencies {low} to {high} at a rate of {rate}"));
    }
    let mel = |f: f64| 2595.0 * (1.0 + f / 700.0).log10();
    let step = (mel(high) - mel(low)) / (bands + 2) as f64;
    let hertz = |i: usize| 700.0 * (10f64.powf((i as f64 * step + mel(low)) / 2595.0) - 1.0);
    let bin = |i: usize| ((dft + 1.0) * hertz(i) / rate).floor() as usize;
    let mut out = o.cx.filled(count, 0.0)?;
    for band in 0..bands {
        let (from, peak, to) = (bin(band), bin(band + 1), bin(band + 2));
        for row in from..to.max(peak.saturating_add(1)).min(rows) {
            let v = if row < peak {
                (row - from) as f64 / (peak - from) as f64
            } else if row == peak {
                1.0
            } else {
                (to - row) as f64 / (to - peak) as f64
            };
            out[row * bands + band] = v;
        }
    }
    one(o.cx.table(dtype, &[rows, bands], |i| Scalar::from_f64(out[i], dtype)))
}

/// Counts how often each n-gram of a pool occurs in each row, with gaps of up to `max_skip_count` between its items.
fn tf_idf(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, items) = (o.arg(0)?, o.known_ints(0)?);
    let need = |name: &str| match o.ints_opt(name)? {
        Some(v) => Ok(v),
        None => o.unsupported(format!("`{name}` that is not given")),
    };
    let (pool, starts, places) = (need("pool_int64s")?, need("ngram_counts")?, need("ngram_indexes")?);
    let (shortest, longest) = (o.size(o.int("min_gram_length", 1)?)?, o.size(o.int("max_gram_length", 1)?)?);
    let skips = o.size(o.int("max_skip_count", 0)?)?;
    let mode = o.str("mode", "TF")?;
    let weights = o.floats_opt("weights")?;
    let (width, rows) = match *x.shape() {
        [n] => (n, 1),
        [rows, n] => (n, rows),
        _ => return o.fail(format!("items {:?}", x.shape())),
    };
    // The index in the pool of each n-gram.
    let starts = o.sizes(&starts)?;
    let ends = starts.iter().skip(1).copied().chain([pool.len()]);
    let mut grams: FxHashMap<&[i64], usize> = FxHashMap::default();
    let mut count = 0;
    for (i, (&from, to)) in starts.iter().zip(ends).enumerate() {
        let Some(list) = pool.get(from..to) else { return o.fail("`ngram_counts` do not fit the pool") };
        for gram in list.chunks_exact(i + 1) {
            grams.insert(gram, count);
            count += 1;
        }
    }
    let places = o.sizes(&places)?;
    if places.len() != count || weights.as_ref().is_some_and(|w| w.len() != count) {
        return o.fail(format!("{} indices for {count} n-grams", places.len()));
    }
    let size = places.iter().max().map_or(0, |m| m + 1);
    let lead = if x.rank() == 1 { vec![size] } else { vec![rows, size] };
    let mut out = o.cx.filled(o.cx.check_shape(&lead)?, 0f32)?;
    for row in 0..rows {
        let (items, out) = (&items[row * width..][..width], &mut out[row * size..][..size]);
        for n in shortest.max(1)..=longest.min(width).min(starts.len()) {
            // A single item has no gaps.
            for step in 1..=if n == 1 { 1 } else { (skips + 1).min(width) } {
                for from in 0..width.saturating_sub((n - 1) * step) {
                    let gram: Vec<i64> = (0..n).map(|k| items[from + k * step]).collect();
                    if let Some(&at) = grams.get(&gram[..]) {
                        let weight = weights.as_ref().map_or(1.0, |w| w[at]);
                        let slot = &mut out[places[at]];
                        *slot = match mode.as_str() {
                            "TF" => *slot + 1.0,
                            "IDF" => weight,
                            _ => *slot + weight,
                        };
                    }
                }
            }
        }
    }
    one(HostTensor::from_f32(lead, &out).map(Value::known))
}
