//! Matrix products, convolutions and pooling.

use super::super::prim::Window;
use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::rnn::Act;
use super::{Op, OpDef, float_op, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::tensor::{PoolOpts, Tensor};
use crate::util::sort;

pub(super) static OPS: &[OpDef] = &[
    op("MatMul", 0, |o| one(o.cx.matmul(&o.arg(0)?, &o.arg(1)?))),
    op("Gemm", 0, gemm),
    op("Einsum", 0, einsum),
    float_op("Conv", 7, 0, |o| {
        let (x, w) = (o.arg(0)?, o.arg(1)?);
        let y = conv(o, &x, &w)?;
        one(bias(o, y, 2))
    }),
    float_op("ConvTranspose", 7, 0, conv_transpose),
    op("MaxPool", 0, max_pool),
    float_op("AveragePool", 1, 0, |o| one(average(o, &o.arg(0)?))),
    float_op("GlobalAveragePool", 1, 0, |o| {
        let x = o.arg(0)?;
        o.want_rank(&x, 2)?;
        one(o.cx.mean(&x, &(2..x.rank()).collect::<Vec<_>>(), true))
    }),
    float_op("GlobalMaxPool", 1, 0, |o| {
        let x = o.arg(0)?;
        o.want_rank(&x, 2)?;
        one(o.cx.reduce(Tensor::max, &x, &(2..x.rank()).collect::<Vec<_>>(), true))
    }),
];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[
    super::contrib::ms("FusedGemm", 0, |o| {
        let y = gemm(o)?.swap_remove(0);
        let param = |name: &str| -> Result<_> { Ok(o.float_opt(name)?.into_iter()) };
        let (mut alpha, mut beta) = (param("activation_alpha")?, param("activation_beta")?);
        one(match o.str("activation", "")?.as_str() {
            "" => Ok(y),
            name => Act::new(name, &mut alpha, &mut beta).run(o.cx, &y),
        })
    }),
    super::contrib::float_ms("FusedConv", 15, 0, |o| {
        let (x, w) = (o.arg(0)?, o.arg(1)?);
        let y = conv(o, &x, &w)?;
        let mut y = bias(o, y, 2)?;
        if let Some(z) = o.opt(3) {
            y = o.cx.add(&y, &z)?;
        }
        let (name, params) = (o.str("activation", "")?, o.floats_opt("activation_params")?.unwrap_or_default());
        one(super::contrib::activation(o, &y, &name, &params))
    }),
    float_op("LpPool", 1, 0, lp_pool),
    float_op("GlobalLpPool", 1, 0, |o| {
        let x = o.arg(0)?;
        o.want_rank(&x, 2)?;
        let p = o.int("p", 2)? as f64;
        one(o.cx.in_f32(&x, &|x| {
            let powers = o.cx.with(Cx::pow, &o.cx.unary(Tensor::abs, x)?, p)?;
            let sum = o.cx.reduce(Tensor::sum, &powers, &(2..x.rank()).collect::<Vec<_>>(), true)?;
            o.cx.with(Cx::pow, &sum, 1.0 / p)
        }))
    }),
];

fn gemm(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (mut a, mut b) = (o.arg(0)?, o.arg(1)?);
    if a.rank() != 2 || b.rank() != 2 {
        return o.fail(format!("the factors are {:?} and {:?}, not matrices", a.shape(), b.shape()));
    }
    if o.flag("transA", false)? {
        a = o.cx.swap(&a, 0, 1)?;
    }
    if o.flag("transB", false)? {
        b = o.cx.swap(&b, 0, 1)?;
    }
    let (alpha, beta) = (o.float("alpha", 1.0)?, o.float("beta", 1.0)?);
    let scaled = |v: &Value, k: f64| if k == 1.0 { Ok(v.clone()) } else { o.cx.with(Cx::mul, v, k) };
    let mut y = scaled(&o.cx.matmul(&a, &b)?, alpha)?;
    if let Some(c) = o.opt(2).filter(|_| beta != 0.0) {
        y = o.cx.add(&y, &scaled(&c, beta)?)?;
    }
    Ok(vec![y])
}

/// Adds a bias along the channel axis.
fn bias(o: &Op<'_, '_>, y: Value, i: usize) -> Result<Value> {
    let Some(b) = o.opt(i) else { return Ok(y) };
    if b.len() != y.dim(1)? {
        return o.fail(format!("a bias of {:?} for {} channels", b.shape(), y.dim(1)?));
    }
    let mut shape = vec![1; y.rank()];
    shape[1] = b.len();
    o.cx.add(&y, &o.cx.reshape(&b, &shape)?)
}

/// Reads strides, dilations and pads; `sizes` are the input's spatial sizes. `ceil` rounds output sizes up, which may
/// add padding at the end.
fn window(o: &Op<'_, '_>, kernel: Vec<usize>, sizes: &[usize], ceil: bool) -> Result<Window> {
    let n = kernel.len();
    let list = |name: &str| -> Result<Vec<usize>> {
        let v = o.sizes(&o.ints_opt(name)?.unwrap_or_else(|| vec![1; n]))?;
        if v.len() != n || v.iter().any(|&v| v == 0 || v >= 1 << 24) {
            return o.fail(format!("{name} {v:?} do not fit {n} spatial axes"));
        }
        Ok(v)
    };
    let (stride, dilation) = (list("strides")?, list("dilations")?);
    if kernel.iter().any(|&k| k == 0 || k >= 1 << 24) || sizes.len() != n {
        return o.fail(format!("a kernel of {kernel:?} for {sizes:?}"));
    }
    let mut pads = vec![(0, 0); n];
    let auto = o.str("auto_pad", "NOTSET")?;
    let given = o.sizes(&o.ints_opt("pads")?.unwrap_or_else(|| vec![0; 2 * n]))?;
    if given.len() != 2 * n {
        return o.fail(format!("{} pads for {n} spatial axes", given.len()));
    }
    for i in 0..n {
        let Some(reach) = (kernel[i] - 1).checked_mul(dilation[i]).and_then(|r| r.checked_add(1)) else {
            return o.fail("the kernel's extent overflows");
        };
        pads[i] = match auto.as_str() {
            "NOTSET" | "" => (given[i], given[i + n]),
            "VALID" => (0, 0),
            "SAME_UPPER" | "SAME_LOWER" => {
                let out = sizes[i].div_ceil(stride[i]);
                let all = ((out.max(1) - 1).saturating_mul(stride[i])).saturating_add(reach).saturating_sub(sizes[i]);
                let (small, large) = (all / 2, all - all / 2);
                if auto == "SAME_UPPER" { (small, large) } else { (large, small) }
            }
            other => return o.fail(format!("auto_pad `{other}` is unknown")),
        };
        let padded = sizes[i].checked_add(pads[i].0).and_then(|s| s.checked_add(pads[i].1));
        let Some(padded) = padded.filter(|&p| p >= reach) else {
            return o.fail(format!("a kernel of {reach} does not fit {} padded by {:?}", sizes[i], pads[i]));
        };
        if ceil {
            let out = (padded - reach).div_ceil(stride[i]) + 1;
            // A window that would start in the padding after the end does not count.
            let out = if (out - 1) * stride[i] >= sizes[i] + pads[i].0 { out - 1 } else { out };
            pads[i].1 += ((out - 1) * stride[i] + reach).saturating_sub(padded);
        }
    }
    Ok(Window { kernel, stride, dilation, pads })
}

/// The kernel's spatial sizes, checked against the attribute `kernel_shape`.
fn kernel(o: &Op<'_, '_>, x: &Value, w: &Value) -> Result<Vec<usize>> {
    if x.rank() < 3 || x.rank() != w.rank() || x.dtype() != w.dtype() {
        return o.fail(format!("input {} {:?} with weights {} {:?}", x.dtype(), x.shape(), w.dtype(), w.shape()));
    }
    let kernel = w.shape_in(2..)?.to_vec();
    match o.ints_opt("kernel_shape")? {
        Some(k) if o.sizes(&k)? != kernel => o.fail(format!("kernel_shape {k:?} differs from {kernel:?}")),
        _ => Ok(kernel),
    }
}

/// A convolution without bias.
pub(super) fn conv(o: &Op<'_, '_>, x: &Value, w: &Value) -> Result<Value> {
    let kernel = kernel(o, x, w)?;
    let groups = o.size(o.int("group", 1)?)?;
    let (c, out) = (x.dim(1)?, w.dim(0)?);
    if groups == 0 || w.dim(1)?.checked_mul(groups) != Some(c) || out % groups != 0 {
        return o.fail(format!("weights {:?} do not fit {c} channels in {groups} groups", w.shape()));
    }
    let win = window(o, kernel, x.shape_in(2..)?, false)?;
    o.cx.conv(x, w, &win, groups)
}

fn conv_transpose(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, w) = (o.arg(0)?, o.arg(1)?);
    let kernel = kernel(o, &x, &w)?;
    let groups = o.size(o.int("group", 1)?)?;
    if groups == 0 || w.dim(0)? != x.dim(1)? || w.dim(0)? % groups != 0 {
        return o.fail(format!("weights {:?} do not fit {:?} in {groups} groups", w.shape(), x.shape()));
    }
    let n = kernel.len();
    let list = |name: &str, default: i64| -> Result<Vec<usize>> {
        let v = o.sizes(&o.ints_opt(name)?.unwrap_or_else(|| vec![default; n]))?;
        if v.len() == n && v.iter().all(|&v| v < 1 << 24) { Ok(v) } else { o.fail(format!("{name} {v:?} do not fit")) }
    };
    let (stride, dilation, mut extra) = (list("strides", 1)?, list("dilations", 1)?, list("output_padding", 0)?);
    if stride.contains(&0) || dilation.contains(&0) || kernel.iter().any(|&k| k == 0 || k >= 1 << 24) {
        return o.fail("a stride, dilation or kernel of 0");
    }
    let auto = o.str("auto_pad", "NOTSET")?;
    let given = o.sizes(&o.ints_opt("pads")?.unwrap_or_else(|| vec![0; 2 * n]))?;
    let shape = o.ints_opt("output_shape")?.map(|s| o.sizes(&s)).transpose()?;
    // Some files include batch and channels in `output_shape`.
    let shape = shape.map(|s| if s.len() == n + 2 { s[2..].to_vec() } else { s });
    if given.len() != 2 * n || shape.as_ref().is_some_and(|s| s.len() != n) {
        return o.fail("pads or output_shape do not fit the kernel");
    }
    let mut pads = vec![(0, 0); n];
    for i in 0..n {
        let size = x.dim(2 + i)?;
        let full = size
            .saturating_sub(1)
            .saturating_mul(stride[i])
            .saturating_add((kernel[i] - 1).saturating_mul(dilation[i]));
        let full = full.saturating_add(1 + extra[i]);
        if full > 1 << 31 {
            return o.fail(format!("a size of {full}"));
        }
        let want = match (&shape, auto.as_str()) {
            (Some(s), _) if s[i] < 1 << 31 => Some(s[i]),
            (Some(s), _) => return o.fail(format!("output_shape {s:?}")),
            (None, "SAME_UPPER" | "SAME_LOWER") => Some(size.saturating_mul(stride[i])),
            _ => None,
        };
        pads[i] = match want {
            None if auto == "VALID" => (0, 0),
            None => (given[i], given[i + n]),
            Some(want) => {
                extra[i] += want.saturating_sub(full);
                let all = full.saturating_sub(want);
                if auto == "SAME_UPPER" { (all / 2, all - all / 2) } else { (all - all / 2, all / 2) }
            }
        };
        if full <= pads[i].0 + pads[i].1 {
            return o.fail(format!("pads {:?} cut everything of {full}", pads[i]));
        }
    }
    // Output padding: results at the end that the end padding would cut off are kept instead; beyond those, zeros are
    // added.
    let (zero, mut after) = (vec![0; x.rank()], vec![0; x.rank()]);
    for i in 0..n {
        let less = extra[i].min(pads[i].1);
        pads[i].1 -= less;
        after[2 + i] = extra[i] - less;
    }
    let win = Window { kernel, stride, dilation, pads };
    let y = o.cx.conv_transpose(&x, &w, &win, groups)?;
    let y = o.cx.pad(&y, &zero, &after, Scalar::from_i64(0, x.dtype()))?;
    one(bias(o, y, 2))
}

/// Pads the spatial axes with a value and extracts windows: [n, c, out.., kernel..], and the kernel's axes.
fn pooled(o: &Op<'_, '_>, x: &Value, win: &Window, fill: Scalar) -> Result<(Value, Vec<usize>)> {
    let lead = x.rank() - win.kernel.len();
    let side = |f: fn(&(usize, usize)) -> usize| [vec![0; lead], win.pads.iter().map(f).collect()].concat();
    let padded = o.cx.pad(x, &side(|p| p.0), &side(|p| p.1), fill)?;
    let w = o.cx.windows(&padded, win)?;
    let axes = (x.rank()..w.rank()).collect();
    Ok((w, axes))
}

/// The window geometry as options of the tensor methods.
fn pool_opts(win: &Window) -> PoolOpts {
    let Window { kernel, stride, dilation, pads } = win.clone();
    PoolOpts { kernel, stride, dilation, padding: pads, ..PoolOpts::default() }
}

/// The sum of each window, padded with zeros.
fn window_sums(o: &Op<'_, '_>, x: &Value, win: &Window) -> Result<Value> {
    if !x.is_known() {
        return Ok(Value::lazy(o.cx.lazy(x)?.window_sums("pool", &pool_opts(win))?.0));
    }
    let (w, axes) = pooled(o, x, win, Scalar::from_f64(0.0, x.dtype()))?;
    o.cx.reduce(Tensor::sum, &w, &axes, false)
}

fn pool_window(o: &Op<'_, '_>, x: &Value) -> Result<Window> {
    o.want_rank(x, 3)?;
    let Some(kernel) = o.ints_opt("kernel_shape")? else { return o.fail("kernel_shape is missing") };
    let kernel = o.sizes(&kernel)?;
    window(o, kernel, x.shape_in(2..)?, o.flag("ceil_mode", false)?)
}

fn lowest(dtype: DType) -> Scalar {
    match dtype.int_range() {
        Some((lo, _)) => Scalar::from_i64(lo as i64, dtype),
        None => Scalar::from_f64(f64::NEG_INFINITY, dtype),
    }
}

pub(super) fn max_pool(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let win = pool_window(o, &x)?;
    if !o.has_output(1) && !x.is_known() {
        return Ok(vec![Value::lazy(o.cx.lazy(&x)?.max_pool(&pool_opts(&win))?)]);
    }
    let (w, axes) = pooled(o, &x, &win, lowest(x.dtype()))?;
    let y = o.cx.reduce(Tensor::max, &w, &axes, false)?;
    if !o.has_output(1) {
        return Ok(vec![y]);
    }
    // The index of the maximum in the whole input; spatial axes in row-major or column-major order.
    let sizes = x.shape_in(2..)?;
    let column = o.flag("storage_order", false)?;
    let count = o.cx.check_shape(x.shape())?;
    let (plane, n) = (sizes.iter().product::<usize>().max(1), sizes.len());
    let place = |i: usize| {
        let mut rest = i % plane;
        let mut at = 0;
        for a in (0..n).rev() {
            at += rest % sizes[a] * sizes[..a].iter().product::<usize>();
            rest /= sizes[a];
        }
        Scalar::Int((i / plane * plane + at) as i64)
    };
    let index = if column {
        o.cx.table(DType::I64, x.shape(), place)?
    } else {
        o.cx.reshape(&o.cx.count_up(count)?, x.shape())?
    };
    let (ids, _) = pooled(o, &index, &win, Scalar::Int(i64::MAX))?;
    let flat = |v: &Value| {
        let shape = [v.shape_in(..x.rank())?, &[axes.iter().map(|&a| v.extent(a)).product()]].concat();
        o.cx.reshape(v, &shape)
    };
    let at = o.cx.argmax(&flat(&w)?, x.rank(), true)?;
    let ids = o.cx.gather_elements(&flat(&ids)?, &at, x.rank())?;
    Ok(vec![y.clone(), o.cx.reshape(&ids, y.shape())?])
}

/// Average pooling.
pub(super) fn average(o: &Op<'_, '_>, x: &Value) -> Result<Value> {
    o.cx.in_f32(x, &|x| average_wide(o, x))
}

fn average_wide(o: &Op<'_, '_>, x: &Value) -> Result<Value> {
    let win = pool_window(o, x)?;
    let sum = window_sums(o, x, &win)?;
    let taps = win.kernel.iter().fold(1.0, |n, &k| n * k as f64);
    if win.pads.iter().all(|p| *p == (0, 0)) {
        return o.cx.with(Cx::mul, &sum, 1.0 / taps);
    }
    // How many elements of each window count: the product of one count for each axis.
    let include = o.flag("count_include_pad", false)?;
    let given = o.ints_opt("pads")?.unwrap_or_default();
    let n = win.kernel.len();
    let mut weight = o.cx.scalar(x.dtype(), 1.0);
    for i in 0..n {
        let size = x.dim(2 + i)?;
        // Padding that `ceil_mode` added never counts.
        let own_end = if o.has("auto_pad") && o.str("auto_pad", "")? != "NOTSET" {
            win.pads[i].1
        } else {
            given.get(i + n).map_or(0, |&p| p.max(0) as usize)
        };
        let (from, to) =
            if include { (0, win.pads[i].0 + size + own_end) } else { (win.pads[i].0, win.pads[i].0 + size) };
        let out = sum.dim(2 + i)?;
        let (k, stride, dilation) = (win.kernel[i], win.stride[i], win.dilation[i]);
        // How many taps of the window at output position `at` lie before `end`.
        let before =
            |end: usize, at: usize| end.saturating_sub(at.saturating_mul(stride)).div_ceil(dilation.max(1)).min(k);
        let count = |at: usize| 1.0 / before(to, at).saturating_sub(before(from, at)).max(1) as f64;
        let mut shape = vec![1; x.rank()];
        shape[2 + i] = out;
        let counts = o.cx.table(x.dtype(), &shape, |at| Scalar::from_f64(count(at), x.dtype()))?;
        weight = o.cx.mul(&weight, &counts)?;
    }
    o.cx.mul(&sum, &weight)
}

fn lp_pool(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let win = pool_window(o, &x)?;
    let p = o.int("p", 2)? as f64;
    one(o.cx.in_f32(&x, &|x| {
        let powers = o.cx.with(Cx::pow, &o.cx.unary(Tensor::abs, x)?, p)?;
        o.cx.with(Cx::pow, &window_sums(o, &powers, &win)?, 1.0 / p)
    }))
}

/// Einsum: operands are multiplied one after the other as matrix products, summed over axes that no later operand
/// needs.
fn einsum(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let text: String = o.str("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (text.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != o.args.len() {
        return o.fail(format!("`{text}` has {} terms for {} inputs", terms.len(), o.args.len()));
    }
    // An ellipsis stands for the axes that are not named. They are labelled with digits, aligned from the right.
    let mut spread = 0;
    for (i, t) in terms.iter().enumerate() {
        let named = t.replace("...", "").chars().count();
        let rank = o.arg(i)?.rank();
        if named > rank || !t.contains("...") && named != rank {
            return o.fail(format!("term `{t}` does not fit rank {rank}"));
        }
        spread = spread.max(rank.saturating_sub(named));
    }
    if spread > 10 {
        return o.unsupported("so many axes in `...`");
    }
    let full = |t: &str, rank: usize| -> Vec<char> {
        let own = rank.saturating_sub(t.replace("...", "").chars().count());
        let digits: String = (spread - own..spread).filter_map(|d| char::from_digit(d as u32, 10)).collect();
        t.replace("...", &digits).chars().collect()
    };
    let mut labels: Vec<(char, usize)> = Vec::new();
    let mut parts = Vec::new();
    for (i, t) in terms.iter().enumerate() {
        let (part, mut names) = (o.arg(i)?, full(t, o.arg(i)?.rank()));
        let part = diagonals(o, part, &mut names)?;
        for (&c, &d) in names.iter().zip(part.shape()) {
            match labels.iter_mut().find(|l| l.0 == c) {
                None => labels.push((c, d)),
                Some(l) if l.1 == 1 => l.1 = d,
                Some(l) if d == 1 || l.1 == d => {}
                Some(l) => return o.fail(format!("axis `{c}` is {} and {d}", l.1)),
            }
        }
        parts.push((part, names));
    }
    let out: Vec<char> = match right {
        Some(r) => full(r, r.replace("...", "").chars().count() + if r.contains("...") { spread } else { 0 }),
        None => {
            let once = |c: &char| c.is_ascii_digit() || left.matches(*c).count() == 1;
            let mut v: Vec<char> = labels.iter().map(|l| l.0).filter(once).collect();
            sort::ascending(&mut v);
            v
        }
    };
    if let Some(c) = out.iter().find(|c| !labels.iter().any(|l| l.0 == **c)) {
        return o.fail(format!("the result's axis `{c}` is in no term"));
    }
    let summed: Vec<char> = labels.iter().map(|l| l.0).filter(|c| !out.contains(c)).collect();
    let size = |c: char| labels.iter().find(|l| l.0 == c).map_or(1, |l| l.1);
    let mut parts = parts.into_iter();
    let Some((mut acc, mut names)) = parts.next() else { return o.fail("it has no inputs") };
    let mut rest: Vec<(Value, Vec<char>)> = parts.collect();
    while !rest.is_empty() {
        let (b, b_names) = rest.remove(0);
        let gone = |c: &char| {
            summed.contains(c) && b_names.contains(c) && names.contains(c) && !rest.iter().any(|r| r.1.contains(c))
        };
        let inner: Vec<char> = names.iter().copied().filter(gone).collect();
        (acc, names) = product(o, (&acc, &names), (&b, &b_names), &inner, &size)?;
    }
    let axes: Vec<usize> = (0..names.len()).filter(|&i| !out.contains(&names[i])).collect();
    let y = o.cx.reduce(Tensor::sum, &acc, &axes, false)?;
    let names: Vec<char> = names.into_iter().filter(|c| out.contains(c)).collect();
    let order: Vec<usize> = out.iter().filter_map(|c| names.iter().position(|n| n == c)).collect();
    one(o.cx.permute(&y, &order))
}

/// Takes the diagonal of axes that carry the same label.
fn diagonals(o: &Op<'_, '_>, mut v: Value, names: &mut Vec<char>) -> Result<Value> {
    let mut i = 0;
    while i < names.len() {
        let Some(j) = (i + 1..names.len()).find(|&j| names[j] == names[i]) else {
            i += 1;
            continue;
        };
        let n = v.dim(i)?;
        if v.dim(j)? != n {
            return o.fail(format!("axis `{}` is {n} and {}", names[i], v.dim(j)?));
        }
        let mut shape = vec![1; v.rank()];
        shape[i] = n;
        let mut wide = v.shape().to_vec();
        wide[j] = 1;
        let steps = o.cx.reshape(&o.cx.count_up(n)?, &shape)?;
        v = o.cx.gather_elements(&v, &o.cx.expand(&steps, &wide)?, j)?;
        let shape: Vec<usize> = (0..v.rank()).filter(|&a| a != j).map(|a| v.extent(a)).collect();
        v = o.cx.reshape(&v, &shape)?;
        names.remove(j);
    }
    Ok(v)
}

/// The product of two terms, summed over `inner`. The result's axes: shared ones, then those of `a` only, then those of
/// `b` only.
fn product(
    o: &Op<'_, '_>,
    (a, an): (&Value, &[char]),
    (b, bn): (&Value, &[char]),
    inner: &[char],
    size: &dyn Fn(char) -> usize,
) -> Result<(Value, Vec<char>)> {
    let shared: Vec<char> = an.iter().copied().filter(|c| bn.contains(c) && !inner.contains(c)).collect();
    let own_a: Vec<char> = an.iter().copied().filter(|c| !bn.contains(c)).collect();
    let own_b: Vec<char> = bn.iter().copied().filter(|c| !an.contains(c)).collect();
    let shape = |names: &[char]| names.iter().map(|&c| size(c)).collect::<Vec<_>>();
    let count = |names: &[char]| names.iter().map(|&c| size(c)).product::<usize>();
    let bring = |v: &Value, own: &[char], order: [&[char]; 3]| -> Result<Value> {
        let names = order.concat();
        let at: Vec<usize> = names.iter().filter_map(|c| own.iter().position(|n| n == c)).collect();
        let v = o.cx.expand(&o.cx.permute(v, &at)?, &shape(&names))?;
        o.cx.reshape(&v, &[count(order[0]), count(order[1]), count(order[2])])
    };
    let x = bring(a, an, [&shared, &own_a, inner])?;
    let y = bring(b, bn, [&shared, inner, &own_b])?;
    let names = [shared, own_a, own_b].concat();
    let out = o.cx.reshape(&o.cx.matmul(&x, &y)?, &shape(&names))?;
    Ok((out, names))
}
