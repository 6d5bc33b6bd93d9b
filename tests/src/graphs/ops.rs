//! The operations of random programs. Each takes what it gets: operands are cast, cut and repeated until they fit, and where one
//! makes no sense the value of the line is its first operand.

use super::recurrence::recurrence;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::Bytes;
use gradloom_core::tensor::{PadMode, ScatterOp, Slice};
use gradloom_core::uop::random::Rng;
use gradloom_core::{DType, Result, Session, Tensor};

/// A tensor and what is known of its elements.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) t: Tensor,
    /// How far it may be off, in parts of `scale`: what its sums and products round, one after the other. Zero if its bits are known.
    pub(super) rounding: f64,
    /// May it hold what is not finite? Then it is no factor: a product with zero may be taken for zero.
    pub(super) wild: bool,
    /// What no part of a sum in it is larger than.
    pub(super) scale: f64,
}

impl Value {
    /// Do its last bits depend on how sums and products are grouped? Then nothing that jumps is done with it.
    pub(super) fn rough(&self) -> bool {
        self.rounding > 0.0
    }

    /// How far two devices may be apart: each is off by what it rounds, to either side.
    pub(super) fn limit(&self) -> f64 {
        2.0 * self.rounding * self.scale
    }
}

/// What an operation rounds, in parts of its result: half of the distance between 1 and the next number.
pub(super) fn unit(dt: DType) -> f64 {
    match dt {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        DType::F64 => 2f64.powi(-53),
        _ => 0.0,
    }
}

/// How many operations at the start of [`OPS`] are tensors of several elements.
pub(super) const SOURCES: usize = 3;

/// Elements of the largest value.
const MOST_ELEMS: usize = 1500;

const INTS: [DType; 9] =
    [DType::Bool, DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

/// An operation: its name, how many operands it has, and what it does.
pub(super) type Operation = (&'static str, usize, fn(&mut Cx<'_>) -> Result<Value>);

/// What an operation is given.
pub(super) struct Cx<'a> {
    s: &'a Session,
    v: [Option<Value>; 3],
    pub(super) r: Rng,
}

macro_rules! operations {
    ($($name:literal $n:literal $f:expr;)*) => {
        /// Every operation; those that need no operand come first.
        pub(super) const OPS: &[Operation] = &[$(($name, $n, $f)),*];
    };
}

operations! {
    "data" 0 data;
    "arange" 0 arange;
    "data2" 0 data;
    "full" 0 full;
    "cast" 1 cast;
    "cast2" 1 cast;
    "bitcast" 1 bitcast;
    "add" 2 |c| c.pair(|x, y, _| x.add(y));
    "sub" 2 |c| c.pair(|x, y, _| x.sub(y));
    "mul" 2 mul;
    "maximum" 2 |c| c.pair(|x, y, _| x.maximum(y));
    "minimum" 2 |c| c.pair(|x, y, _| x.minimum(y));
    "floor_div" 2 |c| c.ints(|x, y| x.floor_div(y));
    "trunc_div" 2 |c| c.ints(|x, y| x.trunc_div(y));
    "modulo" 2 |c| c.ints(|x, y| x.modulo(y));
    "fmod" 2 |c| c.ints(|x, y| x.fmod(y));
    "div_const" 1 by_constant;
    "and" 2 |c| c.ints(|x, y| x.bit_and(y));
    "or" 2 |c| c.ints(|x, y| x.bit_or(y));
    "xor" 2 |c| c.ints(|x, y| x.bit_xor(y));
    "and_const" 1 and_constant;
    "shl" 2 |c| c.ints(|x, y| x.shift_left(y));
    "shr" 2 |c| c.ints(|x, y| x.shift_right(y));
    "shift_const" 1 shift_constant;
    "neg" 1 |c| c.one(|x, _| x.neg());
    "abs" 1 |c| c.one(|x, _| x.abs());
    "sign" 1 |c| c.exact()?.one(|x, _| x.sign());
    "not" 1 |c| c.exact_ints()?.one(|x, _| x.bit_not());
    "compare" 2 compare;
    "compare2" 2 compare;
    "compare_const" 1 compare_constant;
    "where" 3 select;
    "where2" 3 select;
    "clamp" 1 clamp;
    "one_hot_sum" 2 one_hot_sum;
    "one_hot_sum2" 2 one_hot_sum;
    "embedding" 2 embedding;
    "nll" 2 nll;
    "one_hot" 1 one_hot;
    "sum" 1 |c| c.reduce(|x, a, k| x.sum(a, k));
    "sum2" 1 |c| c.reduce(|x, a, k| x.sum(a, k));
    "prod" 1 |c| c.exact_ints()?.reduce(|x, a, k| x.prod(a, k));
    "max" 1 |c| c.reduce(|x, a, k| x.max(a, k));
    "min" 1 |c| c.reduce(|x, a, k| x.min(a, k));
    "any" 1 |c| c.exact()?.reduce(|x, a, k| x.any(a, k));
    "all" 1 |c| c.exact()?.reduce(|x, a, k| x.all(a, k));
    "argmax" 1 |c| c.exact_ints()?.along(|x, a| x.argmax(a, false));
    "matmul" 2 matmul;
    "recurrence" 3 recurrence;
    "recurrence2" 3 recurrence;
    "reshape" 1 reshape;
    "permute" 1 permute;
    "expand" 1 expand;
    "shrink" 1 shrink;
    "pad" 1 pad;
    "pad_mode" 1 pad_mode;
    "flip" 1 |c| c.along(|x, a| x.flip(&[a]));
    "roll" 1 |c| { let n = c.r.below(7) as i64 - 3; c.along(|x, a| x.roll(n, a)) };
    "slice" 1 slice;
    "repeat" 1 repeat;
    "cat" 2 cat;
    "triangle" 1 triangle;
    "gather" 2 gather;
    "index_select" 2 index_select;
    "scatter" 3 scatter;
    "cumsum" 1 |c| c.summed()?.along(|x, a| x.cumsum(a));
    "cummax" 1 |c| c.exact_ints()?.along(|x, a| x.cummax(a));
    "sort" 1 |c| { let down = c.r.once_in(2); c.few()?.along(|x, a| Ok(x.sort(a, down)?.0)) };
    "argsort" 1 |c| { let down = c.r.once_in(2); c.few()?.along(|x, a| x.argsort(a, down)) };
    "searchsorted" 2 searchsorted;
    "masked_fill" 2 masked_fill;
}

/// The value of a line; none if an operand has none or the operation does not take it.
pub(super) fn apply(s: &Session, op: usize, v: [Option<Value>; 3], r: Rng) -> Option<Value> {
    let (_, n, f) = OPS[op];
    if v[..n].iter().any(Option::is_none) {
        return None;
    }
    let first = v[0].clone();
    let out = f(&mut Cx { s, v, r });
    match out {
        Ok(mut v) if v.t.numel() <= MOST_ELEMS => {
            // integers wrap
            let largest = v.t.dtype().int_range().map_or(0.0, |(_, hi)| hi as f64 + 1.0);
            v.scale = v.scale.max(largest);
            Some(v)
        }
        _ if n > 0 => first,
        _ => None,
    }
}

/// What an operation answers to operands that it does not take.
pub(super) fn no<T>() -> Result<T> {
    Err(gradloom_core::Error::Internal("not for these operands".into()))
}

impl Cx<'_> {
    pub(super) fn x(&self) -> Value {
        self.v[0].clone().expect("operands were checked")
    }

    pub(super) fn y(&self) -> Value {
        self.v[1].clone().expect("operands were checked")
    }

    pub(super) fn z(&self) -> Value {
        self.v[2].clone().expect("operands were checked")
    }

    /// Any dtype, integers for the most part.
    fn dtype(&mut self) -> DType {
        match self.r.below(40) {
            0 => DType::F16,
            1 => DType::F64,
            2..9 => DType::F32,
            _ => self.r.pick(&INTS),
        }
    }

    fn int(&mut self) -> DType {
        self.r.pick(&INTS[1..])
    }

    /// A number that is small, or near a limit of `dt` or of a narrower dtype.
    fn number(&mut self, dt: DType) -> i64 {
        let (lo, hi) = dt.int_range().unwrap_or((-128, 128));
        let v = match self.r.below(6) {
            0 => lo + self.r.below(3) as i128,
            1 => hi - self.r.below(3) as i128,
            2 => self.r.pick(&[127i128, 128, 255, 256, 32767, 32768, 65535, 65536, -128, -129, 1 << 31]),
            _ => self.r.below(24) as i128 - 8,
        };
        v as i64
    }

    fn shape(&mut self) -> Vec<usize> {
        match self.r.below(8) {
            0 => Vec::new(),
            1 => vec![self.r.pick(&[1, 64, 127, 128, 129, 200, 255, 256, 257, 300])],
            2 => vec![self.r.below(3), 1 + self.r.below(4)],
            _ => (0..1 + self.r.below(3)).map(|_| 1 + self.r.below(9)).collect(),
        }
    }

    fn t_of(&self, t: Tensor, dt: DType) -> Value {
        let scale = match dt.int_range() {
            Some((_, hi)) => hi as f64 + 1.0,
            None => 256.0,
        };
        Value { t, rounding: 0.0, wild: false, scale }
    }

    /// A value made of all operands.
    pub(super) fn of(&self, t: Tensor) -> Value {
        let all = || self.v.iter().flatten();
        let scale = all().map(|v| v.scale).sum::<f64>() + 1.0;
        let most = all().map(|v| v.rounding).fold(0.0, f64::max);
        let rounding = if most > 0.0 && t.dtype().is_float() { most + unit(t.dtype()) } else { 0.0 };
        let wild = t.dtype().is_float() && all().any(|v| v.wild);
        Value { t, rounding, wild, scale }
    }

    /// Operands whose values do not depend on rounding.
    pub(super) fn exact(&mut self) -> Result<&mut Self> {
        if self.v.iter().flatten().any(|v| v.rough()) { no() } else { Ok(self) }
    }

    fn exact_ints(&mut self) -> Result<&mut Self> {
        if self.x().t.dtype().is_float() { no() } else { Ok(self) }
    }

    /// Integers that are sorted: the evaluator takes long for many.
    fn few(&mut self) -> Result<&mut Self> {
        if self.x().t.numel() > 200 { no() } else { self.exact_ints() }
    }

    /// What is summed: sums of 16-bit floats overflow by the order of their terms.
    fn summed(&mut self) -> Result<&mut Self> {
        let mut x = self.x();
        let dt = x.t.dtype();
        if dt.size() == 2 && dt.is_float() {
            return no();
        }
        // a sum of n terms in any order is off by n roundings of the sum of their sizes at most
        x.rounding += x.t.numel() as f64 * unit(dt);
        x.scale *= (x.t.numel() + 1) as f64;
        self.v[0] = Some(x);
        Ok(self)
    }

    /// `y` as part of a value of this shape: broadcast, cut, padded or repeated.
    pub(super) fn fit(&mut self, y: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let own = y.shape();
        let skip = shape.len().saturating_sub(own.len());
        if own.len() <= shape.len() && own.iter().zip(&shape[skip..]).all(|(a, b)| a == b || *a == 1) {
            return Ok(y.clone());
        }
        let (n, m) = (shape.iter().product::<usize>(), y.numel());
        if m == 0 {
            return Tensor::zeros(self.s, y.dtype(), shape);
        }
        let flat = y.reshape(&[m])?;
        let flat = if m >= n {
            let from = self.r.below(m - n + 1);
            flat.shrink(&[(from, from + n)])?
        } else if self.r.once_in(2) {
            let before = self.r.below(n - m + 1);
            flat.pad_zeros(&[(before, n - m - before)])?
        } else {
            flat.repeat(&[n.div_ceil(m)])?.shrink(&[(0, n)])?
        };
        flat.reshape(shape)
    }

    /// A float as an operand of an integer operation, and the other way round, would make most values floats.
    fn alike(&mut self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        let mixed = x.dtype().is_float() != y.dtype().is_float();
        if mixed || !self.r.once_in(4) { y.cast(x.dtype()) } else { Ok(y.clone()) }
    }

    fn one(&mut self, f: impl Fn(&Tensor, &mut Rng) -> Result<Tensor>) -> Result<Value> {
        let t = f(&self.x().t, &mut self.r)?;
        Ok(self.of(t))
    }

    /// An operation along one axis.
    fn along(&mut self, f: impl Fn(&Tensor, i64) -> Result<Tensor>) -> Result<Value> {
        let x = self.x().t;
        if x.rank() == 0 || x.numel() == 0 {
            return no();
        }
        let t = f(&x, self.r.below(x.rank()) as i64)?;
        Ok(self.of(t))
    }

    fn pair(&mut self, f: impl Fn(&Tensor, &Tensor, &mut Rng) -> Result<Tensor>) -> Result<Value> {
        let (x, mut y) = (self.x(), self.y());
        if y.rough() && !x.t.dtype().is_float() {
            return no();
        }
        if self.r.once_in(4) {
            let c = self.number(x.t.dtype());
            y = self.t_of(Tensor::full(self.s, c, x.t.dtype(), &[])?, x.t.dtype());
            y.scale = y.scale.max(c.unsigned_abs() as f64);
            self.v[1] = Some(y.clone());
        } else {
            y.t = self.fit(&y.t, &x.t.shape())?;
            y.t = self.alike(&y.t, &x.t)?;
        }
        let t = if self.r.once_in(3) { f(&y.t, &x.t, &mut self.r) } else { f(&x.t, &y.t, &mut self.r) }?;
        // integers that become floats: of u64 with a signed type
        let became = t.dtype().is_float() && !x.t.dtype().is_float();
        if became { no() } else { Ok(self.of(t)) }
    }

    /// A constant comes among the operands: rounding shows in the last bits of the largest.
    fn reach(&mut self, constant: i64) {
        if let Some(v) = &mut self.v[0] {
            v.scale = v.scale.max(constant.unsigned_abs() as f64);
        }
    }

    fn ints(&mut self, f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Value> {
        if self.y().t.dtype().is_float() {
            return no();
        }
        self.exact_ints()?.pair(|x, y, _| f(x, y))
    }

    fn reduce(&mut self, f: impl Fn(&Tensor, &[i64], bool) -> Result<Tensor>) -> Result<Value> {
        let x = self.summed()?.x().t;
        let mut axes: Vec<i64> = (0..x.rank() as i64).filter(|_| self.r.once_in(2)).collect();
        if axes.is_empty() {
            axes.extend((0..x.rank() as i64).next_back());
        }
        let t = f(&x, &axes, self.r.once_in(3))?;
        Ok(self.of(t))
    }

    /// Integers as indices of an axis: mostly inside it.
    fn indices(&mut self, y: &Tensor, n: usize) -> Result<Tensor> {
        let dt = if y.dtype().is_int() { y.dtype() } else { self.int() };
        let y = y.cast(dt)?;
        if self.r.once_in(4) {
            return Ok(y);
        }
        let y = y.modulo((n as i64).clamp(1, 100))?;
        if self.r.once_in(3) && dt.is_signed() { y.sub(1) } else { Ok(y) }
    }
}

fn data(c: &mut Cx<'_>) -> Result<Value> {
    let (dt, shape, special) = (c.dtype(), c.shape(), c.r.once_in(2));
    let n: usize = shape.iter().product();
    let mut bytes = vec![0; n * dt.size()];
    for b in bytes.chunks_exact_mut(dt.size()) {
        let v = match dt.int_range() {
            Some(_) if special => Scalar::from_i64(c.number(dt), dt),
            Some(_) => c.r.value(dt, false),
            None if special && c.r.once_in(4) => {
                let odd =
                    [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 0.5, -0.5, 255.5, 65504.0, 1e30, 3e9, -3e9];
                Scalar::from_f64(c.r.pick(&odd), dt)
            }
            None => c.r.value(dt, false),
        };
        v.write(dt, b);
    }
    let mut v = c.t_of(Tensor::from_bytes(c.s, dt, &shape, Bytes::new(bytes))?, dt);
    if dt.is_float() && special {
        (v.wild, v.scale) = (true, 1e30);
    }
    Ok(v)
}

fn arange(c: &mut Cx<'_>) -> Result<Value> {
    let n = c.r.pick(&[1, 2, 3, 5, 8, 10, 16, 100, 127, 128, 129, 200, 255, 256, 257, 300]);
    let (start, step) = (c.r.pick(&[0i64, 0, 0, 1, -3, 250, -130]), c.r.pick(&[1i64, 1, 1, 2, -1]));
    let t = Tensor::arange(c.s, start as f64, (start + n * step) as f64, step as f64, DType::I32)?;
    let dt = c.dtype();
    let t = t.cast(dt)?;
    let t = if c.r.once_in(3) { t.unsqueeze(-1)? } else { t };
    let mut v = c.t_of(t, dt);
    v.scale = v.scale.max((start.abs() + n * step.abs()) as f64);
    Ok(v)
}

fn full(c: &mut Cx<'_>) -> Result<Value> {
    let dt = c.dtype();
    let v = c.number(dt);
    let mut full = c.t_of(Tensor::full(c.s, v, dt, &[])?, dt);
    full.scale = full.scale.max(v.unsigned_abs() as f64);
    Ok(full)
}

fn cast(c: &mut Cx<'_>) -> Result<Value> {
    let (x, dt) = (c.x(), c.dtype());
    if x.rough() && !dt.is_float() {
        return no();
    }
    let mut v = c.of(x.t.cast(dt)?);
    // large numbers are infinite in it
    v.wild |= dt == DType::F16;
    if !x.t.dtype().is_float() {
        v.scale = c.t_of(x.t.clone(), x.t.dtype()).scale;
    } else if !dt.is_float() {
        v.scale = c.t_of(x.t.clone(), dt).scale;
    }
    Ok(v)
}

fn bitcast(c: &mut Cx<'_>) -> Result<Value> {
    let x = c.x().t;
    let to: Vec<DType> = INTS[1..].iter().copied().filter(|d| d.size() == x.dtype().size()).collect();
    if x.dtype().is_float() || x.dtype() == DType::Bool {
        return no();
    }
    let to = c.r.pick(&to);
    c.one(|x, _| x.bitcast(to))
}

fn mul(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.x(), c.y());
    let float = x.t.dtype().is_float() || y.t.dtype().is_float();
    if float && (x.wild || y.wild) {
        return no();
    }
    let mut v = c.pair(|x, y, _| x.mul(y))?;
    let y = c.y();
    v.rounding = x.rounding + y.rounding + unit(v.t.dtype());
    v.scale = (x.scale + 1.0) * (y.scale + 1.0);
    Ok(v)
}

fn by_constant(c: &mut Cx<'_>) -> Result<Value> {
    let dt = c.exact_ints()?.x().t.dtype();
    let k =
        if c.r.once_in(3) { c.number(dt) } else { c.r.pick(&[1, 2, 3, 4, 5, 7, 8, 10, 16, 100, 127, 128, 255, 256]) };
    let how = c.r.below(4);
    c.one(|x, _| {
        let k = Tensor::full(x.session(), k, dt, &[])?;
        match how {
            0 => x.floor_div(&k),
            1 => x.trunc_div(&k),
            2 => x.modulo(&k),
            _ => x.fmod(&k),
        }
    })
}

fn and_constant(c: &mut Cx<'_>) -> Result<Value> {
    let dt = c.exact_ints()?.x().t.dtype();
    let k = if c.r.once_in(3) { c.number(dt) } else { c.r.pick(&[1, 3, 7, 15, 63, 127, 255, 65535, 32767, -1, -2]) };
    c.one(|x, _| x.bit_and(Tensor::full(x.session(), k, dt, &[])?))
}

fn shift_constant(c: &mut Cx<'_>) -> Result<Value> {
    let dt = c.exact_ints()?.x().t.dtype();
    let (k, left) = (c.r.below(dt.bits() as usize + 2) as i64, c.r.once_in(2));
    c.one(|x, _| if left { x.shift_left(k) } else { x.shift_right(k) })
}

/// One of the six comparisons.
fn compared(how: usize, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    match how {
        0 => x.lt(y),
        1 => x.le(y),
        2 => x.gt(y),
        3 => x.ge(y),
        4 => x.eq(y),
        _ => x.ne(y),
    }
}

fn compare(c: &mut Cx<'_>) -> Result<Value> {
    let how = c.r.below(6);
    c.exact()?;
    let (x, y) = (c.x().t, c.y().t);
    let y = c.fit(&y, &x.shape())?;
    let y = c.alike(&y, &x)?;
    let t = if c.r.once_in(3) { compared(how, &y, &x) } else { compared(how, &x, &y) }?;
    Ok(c.of(t))
}

fn compare_constant(c: &mut Cx<'_>) -> Result<Value> {
    let (how, x) = (c.r.below(6), c.exact()?.x().t);
    let k = c.number(x.dtype());
    let k = Tensor::full(c.s, k, x.dtype(), &[])?;
    let t = if c.r.once_in(3) { compared(how, &k, &x) } else { compared(how, &x, &k) }?;
    Ok(c.of(t))
}

fn select(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y, z) = (c.x(), c.y(), c.v[2].clone().expect("operands were checked"));
    if x.rough() {
        return no();
    }
    let y = c.fit(&y.t, &x.t.shape())?;
    let z = match c.r.below(3) {
        0 => Tensor::zeros(c.s, y.dtype(), &[])?,
        _ => c.fit(&z.t, &x.t.shape())?.cast(y.dtype())?,
    };
    if !y.dtype().is_float() && c.v[1..].iter().flatten().any(|v| v.rough()) {
        return no();
    }
    let t = x.t.to_bool()?.select(&y, &z)?;
    Ok(c.of(t))
}

fn clamp(c: &mut Cx<'_>) -> Result<Value> {
    let dt = c.x().t.dtype();
    let (a, b) = (c.number(dt), c.number(dt));
    c.reach(a);
    c.reach(b);
    let limit = |v: i64| Tensor::full(c.s, v, dt, &[]);
    let (a, b) = (limit(a)?, limit(b)?);
    c.one(|x, _| x.maximum(&a)?.minimum(&b))
}

/// Labels compared with all classes, either way round, and what the comparison selects, summed.
fn one_hot_sum(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.exact()?.x().t, c.y().t);
    let dt = if x.dtype().is_int() && !c.r.once_in(3) { x.dtype() } else { c.int() };
    let (n, how, swap) = (c.r.pick(&[1, 2, 3, 5, 10, 127, 128, 129, 255, 256, 257]), c.r.below(10), c.r.once_in(2));
    let classes = Tensor::arange(c.s, 0.0, n as f64, 1.0, DType::I32)?.cast(dt)?;
    if x.numel() * n > 6 * MOST_ELEMS {
        return no();
    }
    let labels = x.cast(dt)?.unsqueeze(-1)?;
    // equality as often as all others
    let how = if how > 5 { 4 } else { how };
    let mask = if swap { compared(how, &classes, &labels) } else { compared(how, &labels, &classes) }?;
    let of = c.fit(&y, &mask.shape())?;
    let of = if c.r.once_in(3) { of.cast(DType::I32)? } else { of };
    let picked = mask.select(&of, Tensor::zeros(c.s, of.dtype(), &[])?)?;
    c.v[0] = Some(Value { t: picked, ..c.y() });
    let t = c.summed()?.x().t.sum(&[-1], false)?;
    Ok(c.of(t))
}

/// A one-hot matrix times a table.
fn embedding(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.exact()?.x().t, c.y());
    if y.wild || x.numel() > 100 {
        return no();
    }
    let (n, d) = (c.r.pick(&[3, 8, 128, 130, 256, 260]), 1 + c.r.below(3));
    let dt = c.int();
    let classes = Tensor::arange(c.s, 0.0, n as f64, 1.0, DType::I32)?.cast(dt)?;
    let m = x.numel();
    let mask = x.reshape(&[m])?.cast(dt)?.unsqueeze(-1)?.eq(&classes)?;
    let table = c.fit(&y.t, &[n, d])?.expand(&[n, d])?;
    let wide = if table.dtype() == DType::Bool { table.cast(DType::I32)? } else { table };
    let product = mask.cast(wide.dtype())?.unsqueeze(-1)?.mul(&wide)?;
    c.v[0] = Some(Value { t: product, ..y });
    let t = c.summed()?.x().t.sum(&[1], false)?;
    Ok(c.of(t))
}

/// The loss of labels, as a classifier has it.
fn nll(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.exact()?.x().t, c.y());
    let (dt, n, m) = (c.int(), c.r.pick(&[2, 10, 128, 256, 300]), x.numel().min(6));
    if y.wild || m == 0 {
        return no();
    }
    let labels = x.reshape(&[x.numel()])?.shrink(&[(0, m)])?.cast(dt)?.modulo((n as i64).min(100))?;
    let table = c.fit(&y.t, &[m, n])?.expand(&[m, n])?.cast(DType::F32)?;
    let t = table.nll_loss(&labels, None)?;
    let mut v = c.of(t);
    // a sum over the classes, one over the labels, and functions that are right to some units
    v.rounding = y.rounding + (n + m + 16) as f64 * unit(DType::F32);
    v.scale *= 10.0;
    Ok(v)
}

fn one_hot(c: &mut Cx<'_>) -> Result<Value> {
    let x = c.exact()?.x().t;
    let n = c.r.pick(&[1, 3, 10, 127, 128, 129, 256, 257]);
    let x = if x.dtype().is_int() { x } else { x.cast(c.int())? };
    let t = x.one_hot(n)?;
    Ok(c.of(t))
}

fn matmul(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.x(), c.y());
    if x.wild || y.wild || x.t.rank() == 0 || (x.t.dtype().is_float() && x.t.dtype().size() == 2) {
        return no();
    }
    let k = x.t.shape()[x.t.rank() - 1];
    let n = 1 + c.r.below(5);
    if y.rough() && !x.t.dtype().is_float() {
        return no();
    }
    let w = c.fit(&y.t, &[k, n])?.expand(&[k, n])?.cast(x.t.dtype())?;
    let mut v = c.of(x.t.matmul(&w)?);
    v.rounding = x.rounding + y.rounding + (k + 1) as f64 * unit(v.t.dtype());
    v.scale = (x.scale + 1.0) * (y.scale + 1.0) * (k + 1) as f64;
    Ok(v)
}

fn reshape(c: &mut Cx<'_>) -> Result<Value> {
    let x = c.x().t;
    let mut s = x.shape();
    match c.r.below(4) {
        0 => s = vec![x.numel()],
        1 if s.len() > 1 => {
            let i = c.r.below(s.len() - 1);
            s[i] *= s[i + 1];
            s.remove(i + 1);
        }
        2 => s.insert(c.r.below(s.len() + 1), 1),
        _ => {
            let i = c.r.below(s.len());
            let d = [2, 3, 5].into_iter().find(|d| s.get(i).is_some_and(|n| n % d == 0 && *n > 0));
            let (Some(d), true) = (d, s.len() < 5) else { return no() };
            s[i] /= d;
            s.insert(i + c.r.below(2), d);
        }
    }
    c.one(|x, _| x.reshape(&s))
}

fn permute(c: &mut Cx<'_>) -> Result<Value> {
    let mut axes: Vec<i64> = (0..c.x().t.rank() as i64).collect();
    for i in (1..axes.len()).rev() {
        axes.swap(i, c.r.below(i + 1));
    }
    c.one(|x, _| x.permute(&axes))
}

fn expand(c: &mut Cx<'_>) -> Result<Value> {
    let mut s = c.x().t.shape();
    for n in s.iter_mut().filter(|n| **n == 1) {
        *n = 1 + c.r.below(6);
    }
    if s.len() < 4 {
        s.insert(0, 1 + c.r.below(3));
    }
    c.one(|x, _| x.expand(&s))
}

fn shrink(c: &mut Cx<'_>) -> Result<Value> {
    let shape = c.x().t.shape();
    let part = |&n: &usize| {
        let a = c.r.below(n.min(3) + 1);
        (a, n - c.r.below((n - a).min(3) + 1))
    };
    let pairs: Vec<(usize, usize)> = shape.iter().map(part).collect();
    c.one(|x, _| x.shrink(&pairs))
}

fn pad(c: &mut Cx<'_>) -> Result<Value> {
    let shape = c.x().t.shape();
    let pairs: Vec<(i64, i64)> = shape.iter().map(|_| (c.r.below(4) as i64 - 1, c.r.below(4) as i64 - 1)).collect();
    let value = if c.r.once_in(2) { 0 } else { c.r.below(5) as i64 };
    c.one(|x, _| x.pad(&pairs, PadMode::Constant, value))
}

fn pad_mode(c: &mut Cx<'_>) -> Result<Value> {
    let shape = c.x().t.shape();
    let mode = c.r.pick(&[PadMode::Reflect, PadMode::Replicate, PadMode::Circular]);
    let pairs: Vec<(i64, i64)> = shape.iter().map(|_| (c.r.below(3) as i64, c.r.below(3) as i64)).collect();
    c.one(|x, _| x.pad(&pairs, mode, 0))
}

fn slice(c: &mut Cx<'_>) -> Result<Value> {
    let steps: Vec<Slice> =
        (0..c.x().t.rank()).map(|_| Slice::step(Some(c.r.below(3) as i64), None, 1 + c.r.below(3) as i64)).collect();
    c.one(|x, _| x.slice(&steps))
}

fn repeat(c: &mut Cx<'_>) -> Result<Value> {
    let counts: Vec<usize> = (0..c.x().t.rank()).map(|_| 1 + c.r.below(3)).collect();
    c.one(|x, _| x.repeat(&counts))
}

fn cat(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.x().t, c.y());
    if x.rank() == 0 || (y.rough() && !x.dtype().is_float()) {
        return no();
    }
    let y = c.fit(&y.t, &x.shape())?.cast(x.dtype())?.expand(&x.shape())?;
    let axis = c.r.below(x.rank()) as i64;
    let t = Tensor::cat(&[&x, &y], axis)?;
    Ok(c.of(t))
}

fn triangle(c: &mut Cx<'_>) -> Result<Value> {
    let (lower, k) = (c.r.once_in(2), c.r.below(5) as i64 - 2);
    c.one(|x, _| if lower { x.tril(k) } else { x.triu(k) })
}

fn gather(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.x().t, c.y());
    if x.rank() == 0 || y.rough() || x.numel() == 0 {
        return no();
    }
    let (axis, mut shape) = (c.r.below(x.rank()), x.shape());
    shape[axis] = 1 + c.r.below(6);
    let index = c.fit(&y.t, &shape)?.expand(&shape)?;
    let index = c.indices(&index, x.shape()[axis])?;
    let t = x.gather(axis as i64, &index)?;
    Ok(c.of(t))
}

fn index_select(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.x().t, c.y());
    if x.rank() == 0 || y.rough() || x.numel() == 0 {
        return no();
    }
    let axis = c.r.below(x.rank());
    let n = 1 + c.r.below(6);
    let index = c.fit(&y.t, &[n])?.expand(&[n])?;
    let index = c.indices(&index, x.shape()[axis])?;
    let t = x.index_select(axis as i64, &index)?;
    Ok(c.of(t))
}

fn scatter(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y, z) = (c.x().t, c.y(), c.v[2].clone().expect("operands were checked"));
    if x.rank() == 0 || y.rough() || x.numel() == 0 || x.dtype() == DType::F16 || (z.rough() && !x.dtype().is_float()) {
        return no();
    }
    let axis = c.r.below(x.rank());
    let shape = x.shape();
    let index = c.fit(&y.t, &shape)?.expand(&shape)?;
    let index = c.indices(&index, shape[axis])?;
    let src = c.fit(&z.t, &shape)?.expand(&shape)?.cast(x.dtype())?;
    let how = c.r.pick(&[ScatterOp::Set, ScatterOp::Add, ScatterOp::Max, ScatterOp::Min]);
    let mut v = c.of(x.scatter(axis as i64, &index, &src, how)?);
    v.rounding += x.numel() as f64 * unit(v.t.dtype());
    v.scale *= (x.numel() + 1) as f64;
    Ok(v)
}

fn searchsorted(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.few()?.x().t, c.y());
    if y.rough() || x.rank() == 0 || x.numel() == 0 || y.t.numel() == 0 {
        return no();
    }
    let x = x.reshape(&[x.numel()])?.sort(0, false)?.0;
    let n = y.t.numel().min(20);
    let values = y.t.reshape(&[y.t.numel()])?.shrink(&[(0, n)])?.cast(x.dtype())?;
    let right = c.r.once_in(2);
    let t = x.searchsorted(&values, right)?;
    Ok(c.of(t))
}

fn masked_fill(c: &mut Cx<'_>) -> Result<Value> {
    let (x, y) = (c.x().t, c.y());
    if y.rough() {
        return no();
    }
    let mask = c.fit(&y.t, &x.shape())?.to_bool()?;
    let k = c.number(x.dtype());
    c.reach(k);
    let t = x.masked_fill(&mask, Tensor::full(c.s, k, x.dtype(), &[])?)?;
    Ok(c.of(t))
}
