//! Elementwise operations of two and three operands: arithmetic, comparison, logic, bitwise operations, selection,
//! powers; and casts. Operands promote by [`DType::promote`] and broadcast.
//!
//! The public methods are generic over [`IntoOperand`]. Each converts its argument to an [`Operand`] and calls a
//! function that is not generic, so that the body is compiled once and not for every argument type.

use super::{IntoOperand, Operand, Tensor, broadcast_shape, lift};
use crate::uop::{Arg, Graph, Op, Shape, UOp};
use crate::{DType, Error, Result};
use smallvec::SmallVec;

/// The right operand of a binary operation after the checks, with the promoted dtype and the broadcast shape.
struct CheckedRhs {
    rhs: Operand,
    dtype: DType,
    shape: Shape,
}

impl Tensor {
    /// Checks that `rhs` belongs to this session and broadcasts against this tensor, and promotes the dtypes.
    fn checked_rhs(&self, name: &'static str, rhs: Operand) -> Result<CheckedRhs> {
        rhs.check(name, self)?;
        let dtype = rhs.promote(self.dtype());
        let shape = broadcast_shape(name, &self.shape(), &rhs.shape())?;
        Ok(CheckedRhs { rhs, dtype, shape })
    }

    /// Builds `f(self, rhs)` with both cast to `p.dtype` and broadcast to `p.shape`.
    fn zip(&self, p: CheckedRhs, f: &dyn Fn(&mut Graph, UOp, UOp) -> UOp) -> Tensor {
        let mut s = self.session().state();
        let x = s.node(self.root());
        let y = match &p.rhs {
            Operand::Tensor(t) => s.node(t.root()),
            scalar => scalar.constant(&mut s.graph, p.dtype).expect("not a tensor"),
        };
        let g = &mut s.graph;
        let (x, y) = (g.cast(x, p.dtype), g.cast(y, p.dtype));
        let (x, y) = (lift(g, x, &p.shape), lift(g, y, &p.shape));
        let node = f(g, x, y);
        let root = s.add_root(node);
        drop(s);
        Tensor { session: self.session().clone(), root }
    }

    /// Dot products of packed bytes: each i32 element is a word of four bytes, unsigned in this tensor and signed in
    /// `y`. Each element of the result is the sum of the four products and of `plus`, in i32 (`Op::DotBytes`); the
    /// three operands broadcast.
    pub(crate) fn dot_bytes(&self, y: &Tensor, plus: &Tensor) -> Result<Tensor> {
        self.dot_words(Op::DotBytes, "dot_bytes", y, plus)
    }

    /// As [`Tensor::dot_bytes`] for words of two signed integers of 16 bits (`Op::DotPairs`).
    pub(crate) fn dot_pairs(&self, y: &Tensor, plus: &Tensor) -> Result<Tensor> {
        self.dot_words(Op::DotPairs, "dot_pairs", y, plus)
    }

    fn dot_words(&self, op: Op, name: &'static str, y: &Tensor, plus: &Tensor) -> Result<Tensor> {
        Tensor::same_session(name, self, y)?;
        Tensor::same_session(name, self, plus)?;
        if let Some(t) = [self, y, plus].into_iter().find(|t| t.dtype() != DType::I32) {
            return Err(Error::DType { op: name, dtype: t.dtype(), why: "words are i32".into() });
        }
        let shape = broadcast_shape(name, &self.shape(), &y.shape())?;
        let shape = broadcast_shape(name, &shape, &plus.shape())?;
        let mut s = self.session().state();
        let mut src = [self, y, plus].map(|t| s.node(t.root()));
        src.iter_mut().for_each(|x| *x = lift(&mut s.graph, *x, &shape));
        let node = s.graph.node(op, DType::I32, &src, Arg::None);
        let root = s.add_root(node);
        drop(s);
        Ok(Tensor { session: self.session().clone(), root })
    }

    /// Each i32 element is a word of four bytes; each byte is replaced by the entry of `table` that its lower four bits
    /// choose (`Op::LookupBytes`).
    pub(crate) fn lookup_bytes(&self, table: &[u8; 16]) -> Result<Tensor> {
        if self.dtype() != DType::I32 {
            return Err(Error::DType { op: "lookup_bytes", dtype: self.dtype(), why: "words are i32".into() });
        }
        let mut s = self.session().state();
        let mut src: SmallVec<[UOp; 5]> = SmallVec::from_elem(s.node(self.root()), 1);
        let shape = s.graph.shape(src[0]).clone();
        for word in table.as_chunks::<4>().0 {
            let word = s.graph.int(i64::from(i32::from_le_bytes(*word)), DType::I32);
            src.push(lift(&mut s.graph, word, &shape));
        }
        let node = s.graph.node(Op::LookupBytes, DType::I32, &src, Arg::None);
        let root = s.add_root(node);
        drop(s);
        Ok(Tensor { session: self.session().clone(), root })
    }

    /// A binary node whose operands promote and broadcast; any dtype is accepted.
    fn arith(&self, op: Op, name: &'static str, rhs: Operand) -> Result<Tensor> {
        let p = self.checked_rhs(name, rhs)?;
        Ok(self.zip(p, &|g, x, y| g.binary(op, x, y)))
    }

    /// As [`Tensor::arith`], but `Error::DType` unless the promoted dtype is an integer (or bool, with `bool_too`).
    fn integer(&self, op: Op, name: &'static str, rhs: Operand, bool_too: bool) -> Result<Tensor> {
        let p = self.checked_rhs(name, rhs)?;
        if !(p.dtype.is_int() || (bool_too && p.dtype == DType::Bool)) {
            return Err(Error::DType { op: name, dtype: p.dtype, why: "an integer dtype is needed".into() });
        }
        Ok(self.zip(p, &|g, x, y| g.binary(op, x, y)))
    }

    /// The quotient as a whole number, rounded as the integer division `op` rounds; floats give whole floats.
    fn rounded_div(&self, op: Op, name: &'static str, rhs: Operand) -> Result<Tensor> {
        let p = self.checked_rhs(name, rhs)?;
        if !p.dtype.is_float() {
            return self.integer(op, name, p.rhs, false);
        }
        if op != Op::FloorDiv {
            return self.div(p.rhs)?.trunc();
        }
        let (x, y) = (self.cast(p.dtype)?, self.full_operand(&p.rhs)?.cast(p.dtype)?);
        x.in_f32_with(&y, &Tensor::float_floor_div)
    }

    /// Floor division of floats as torch computes it: `(self - fmod) / y` rather than `floor(self / y)`. The remainder
    /// is exact, while the quotient may already have been rounded up to the next whole number.
    fn float_floor_div(&self, y: &Tensor) -> Result<Tensor> {
        let (r, plain) = (self.fmod(y)?, self.div(y)?);
        let apart = r.ne(0)?.logical_and(r.lt(0)?.ne(y.lt(0)?)?)?;
        let q = self.sub(&r)?.div(y)?;
        let q = apart.select(q.sub(1)?, &q)?;
        let floor = q.floor()?;
        let floor = q.sub(&floor)?.gt(0.5)?.select(floor.add(1)?, &floor)?;
        // a result of zero takes the sign of the quotient, and division by zero gives the quotient's infinity
        let whole = q.eq(0)?.select(floor.copysign(&plain)?, &floor)?;
        y.eq(0)?.select(&plain, whole)
    }

    // ---- arithmetic

    /// `self + rhs`; logical or for bool.
    pub fn add(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.arith(Op::Add, "add", rhs.into_operand()?)
    }

    /// `self - rhs`. Two bool operands are converted to i32 first.
    pub fn sub(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        fn of(t: &Tensor, rhs: Operand) -> Result<Tensor> {
            let mut p = t.checked_rhs("sub", rhs)?;
            if p.dtype == DType::Bool {
                p.dtype = DType::I32;
            }
            Ok(t.zip(p, &|g, x, y| g.binary(Op::Sub, x, y)))
        }
        of(self, rhs.into_operand()?)
    }

    /// `self * rhs`; logical and for bool.
    pub fn mul(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.arith(Op::Mul, "mul", rhs.into_operand()?)
    }

    /// `self / rhs` as a float; integers and bools are converted to f32.
    pub fn div(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        fn of(t: &Tensor, rhs: Operand) -> Result<Tensor> {
            let mut p = t.checked_rhs("div", rhs)?;
            if !p.dtype.is_float() {
                p.dtype = DType::F32;
            }
            Ok(t.zip(p, &|g, x, y| g.binary(Op::Div, x, y)))
        }
        of(self, rhs.into_operand()?)
    }

    /// Quotient rounded toward minus infinity; integers keep their dtype. `Error::DType` for bool.
    pub fn floor_div(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.rounded_div(Op::FloorDiv, "floor_div", rhs.into_operand()?)
    }

    /// Quotient rounded toward zero; integers keep their dtype. `Error::DType` for bool.
    pub fn trunc_div(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.rounded_div(Op::Idiv, "trunc_div", rhs.into_operand()?)
    }

    /// Remainder with the divisor's sign (Python's `%`). `Error::DType` for bool.
    pub fn modulo(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        fn of(t: &Tensor, rhs: Operand) -> Result<Tensor> {
            let p = t.checked_rhs("modulo", rhs)?;
            if !p.dtype.is_float() {
                return t.integer(Op::FloorMod, "modulo", p.rhs, false);
            }
            // fmod, moved by one divisor where the signs differ
            let r = t.fmod(&p.rhs)?;
            let y = r.full_operand(&p.rhs)?;
            let wrong = r.ne(0)?.logical_and(r.lt(0)?.ne(y.lt(0)?)?)?;
            wrong.select(r.add(&y)?, &r)
        }
        of(self, rhs.into_operand()?)
    }

    /// Remainder with the dividend's sign, as C's `fmod`, and as exact for all dtypes but f64. For f64 it is as accurate
    /// as `x - y * trunc(x / y)` with a rounded product while the quotient fits the mantissa, and 0 for much larger
    /// quotients. `Error::DType` for bool.
    pub fn fmod(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        fn of(t: &Tensor, rhs: Operand) -> Result<Tensor> {
            let p = t.checked_rhs("fmod", rhs)?;
            if !p.dtype.is_float() {
                return t.integer(Op::Imod, "fmod", p.rhs, false);
            }
            Ok(t.zip(p, &|g, x, y| g.binary(Op::Imod, x, y)))
        }
        of(self, rhs.into_operand()?)
    }

    /// The larger of two elements; NaN if either is NaN.
    pub fn maximum(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.arith(Op::Max, "maximum", rhs.into_operand()?)
    }

    /// The smaller of two elements; NaN if either is NaN.
    pub fn minimum(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.arith(Op::Min, "minimum", rhs.into_operand()?)
    }

    /// Limits elements to `min..=max`; NaN stays NaN, and `max` wins where the bounds cross.
    pub fn clamp(&self, min: impl IntoOperand, max: impl IntoOperand) -> Result<Tensor> {
        self.maximum(min)?.minimum(max)
    }

    /// `self + (end - self) * weight`.
    pub fn lerp(&self, end: &Tensor, weight: impl IntoOperand) -> Result<Tensor> {
        self.add(end.sub(self)?.mul(weight)?)
    }

    // ---- powers

    /// `self` to the power `rhs`, as C's `pow`: a negative base gives NaN unless the exponent is a whole number.
    /// Integers keep their dtype and wrap; a negative exponent gives the truncated value (0, or ±1 for a base of ±1). A
    /// float exponent gives floats.
    pub fn pow(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        fn of(t: &Tensor, rhs: Operand) -> Result<Tensor> {
            let mut p = t.checked_rhs("pow", rhs)?;
            if p.dtype == DType::Bool {
                p.dtype = DType::I32;
            }
            let x = t.cast(p.dtype)?;
            match (&p.rhs, p.dtype.is_float()) {
                (Operand::Int(n), true) => x.pow_const(*n as f64),
                (Operand::Float(n), true) => x.pow_const(*n),
                (Operand::Int(n), false) if *n >= 0 => x.pow_whole(*n as u64),
                (rhs, false) => x.pow_int(&x.full_operand(rhs)?),
                (rhs, true) => x.pow_float(&x.full_operand(rhs)?),
            }
        }
        of(self, rhs.into_operand()?)
    }

    /// Powers with a constant whole exponent, by repeated squaring; exact for integers (modulo wrapping).
    fn pow_whole(&self, n: u64) -> Result<Tensor> {
        let (mut n, mut base, mut acc) = (n, self.clone(), None::<Tensor>);
        while n > 0 {
            if n & 1 == 1 {
                acc = Some(match acc {
                    Some(a) => a.mul(&base)?,
                    None => base.clone(),
                });
            }
            n >>= 1;
            if n > 0 {
                base = base.mul(&base)?;
            }
        }
        acc.map_or_else(|| self.ones_like(), Ok)
    }

    fn pow_const(&self, n: f64) -> Result<Tensor> {
        self.in_f32(&|x| x.pow_const_wide(n))
    }

    /// Constant exponents. Roots, reciprocals and at most two multiplications replace `pow` where they are as accurate;
    /// longer chains of products round more often than `pow` does.
    fn pow_const_wide(&self, n: f64) -> Result<Tensor> {
        match n {
            0.5 => self.sqrt(),
            -0.5 => self.rsqrt(),
            0.0 | 1.0 | 2.0 | 3.0 | 4.0 => self.pow_whole(n as u64),
            // `x^-2` is `(1/x)^2`: where `x^2` overflows, `1/x^2` is 0 while the square of `1/x` may still be a number
            -1.0 | -2.0 => self.reciprocal()?.pow_whole(-n as u64),
            _ => {
                let n = Operand::Float(n);
                Ok(self.zip(self.checked_rhs("pow", n)?, &|g, x, y| g.binary(Op::Pow, x, y)))
            }
        }
    }

    fn pow_float(&self, y: &Tensor) -> Result<Tensor> {
        self.in_f32_with(y, &|x, y| {
            Ok(x.zip(x.checked_rhs("pow", Operand::Tensor(y.clone()))?, &|g, x, y| g.binary(Op::Pow, x, y)))
        })
    }

    /// Integer powers with an exponent tensor: one conditional multiplication and one squaring for each bit of the
    /// exponent.
    fn pow_int(&self, y: &Tensor) -> Result<Tensor> {
        let dt = self.dtype();
        let (mut base, mut acc) = (self.clone(), self.ones_like()?);
        let bits = dt.bits() - dt.is_signed() as u32;
        for bit in 0..bits {
            let set = y.shift_right(bit)?.bit_and(1)?.ne(0)?;
            acc = set.select(acc.mul(&base)?, &acc)?;
            base = base.mul(&base)?;
        }
        if !dt.is_signed() {
            return Ok(acc);
        }
        // negative exponents, 1/x truncated: 1 for 1, +-1 for -1, else 0
        let minus = self.eq(-1)?.select(y.bit_and(1)?.ne(0)?.select(self.full_like(-1)?, 1)?, 0)?;
        y.lt(0)?.select(self.eq(1)?.select(self.full_like(1)?, minus)?, acc)
    }

    // ---- comparison: the result is bool

    /// `self < rhs`; false for NaN.
    pub fn lt(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.arith(Op::CmpLt, "lt", rhs.into_operand()?)
    }

    /// `self > rhs`; false for NaN.
    pub fn gt(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        fn of(t: &Tensor, rhs: Operand) -> Result<Tensor> {
            let p = t.checked_rhs("gt", rhs)?;
            Ok(t.zip(p, &|g, x, y| g.binary(Op::CmpLt, y, x)))
        }
        of(self, rhs.into_operand()?)
    }

    /// `self <= rhs`; false for NaN.
    pub fn le(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        fn of(t: &Tensor, rhs: Operand) -> Result<Tensor> {
            let p = t.checked_rhs("le", rhs)?;
            Ok(t.zip(p, &less_equal))
        }
        of(self, rhs.into_operand()?)
    }

    /// `self >= rhs`; false for NaN.
    pub fn ge(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        fn of(t: &Tensor, rhs: Operand) -> Result<Tensor> {
            let p = t.checked_rhs("ge", rhs)?;
            Ok(t.zip(p, &|g, x, y| less_equal(g, y, x)))
        }
        of(self, rhs.into_operand()?)
    }

    /// `self == rhs`; false for NaN.
    pub fn eq(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.arith(Op::CmpEq, "eq", rhs.into_operand()?)
    }

    /// `self != rhs`; true for NaN.
    pub fn ne(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.arith(Op::CmpNe, "ne", rhs.into_operand()?)
    }

    /// True where `|self - rhs| <= atol + rtol*|rhs|` with a finite `rhs`, or where both are equal (also the same
    /// infinity). NaN is close to nothing.
    pub fn isclose(&self, rhs: &Tensor, rtol: f64, atol: f64) -> Result<Tensor> {
        let near = self.sub(rhs)?.abs()?.le(rhs.abs()?.mul(rtol)?.add(atol)?)?;
        self.eq(rhs)?.logical_or(near.logical_and(rhs.isfinite()?)?)
    }

    /// Whether all elements are [close](Tensor::isclose): a bool of shape `[]`, which is true for tensors without
    /// elements.
    pub fn allclose(&self, rhs: &Tensor, rtol: f64, atol: f64) -> Result<Tensor> {
        let axes: Vec<i64> = (0..self.rank().max(rhs.rank()) as i64).collect();
        self.isclose(rhs, rtol, atol)?.all(&axes, false)
    }

    // ---- logic and bits

    /// Bool: true where the element is nonzero (NaN counts as nonzero).
    pub fn to_bool(&self) -> Result<Tensor> {
        self.cast(DType::Bool)
    }

    /// Bool: true where both operands are nonzero.
    pub fn logical_and(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.logic(Op::And, "logical_and", rhs.into_operand()?)
    }

    /// Bool: true where at least one operand is nonzero.
    pub fn logical_or(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.logic(Op::Or, "logical_or", rhs.into_operand()?)
    }

    /// Bool: true where exactly one operand is nonzero.
    pub fn logical_xor(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.logic(Op::Xor, "logical_xor", rhs.into_operand()?)
    }

    /// Bool: true where the element is zero.
    pub fn logical_not(&self) -> Result<Tensor> {
        self.to_bool()?.logic(Op::Xor, "logical_not", Operand::Bool(true))
    }

    fn logic(&self, op: Op, name: &'static str, rhs: Operand) -> Result<Tensor> {
        let mut p = self.checked_rhs(name, rhs)?;
        p.dtype = DType::Bool;
        Ok(self.zip(p, &|g, x, y| g.binary(op, x, y)))
    }

    /// Bitwise and of integers or bools; `Error::DType` for floats.
    pub fn bit_and(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.integer(Op::And, "bit_and", rhs.into_operand()?, true)
    }

    /// Bitwise or of integers or bools; `Error::DType` for floats.
    pub fn bit_or(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.integer(Op::Or, "bit_or", rhs.into_operand()?, true)
    }

    /// Bitwise exclusive or of integers or bools; `Error::DType` for floats.
    pub fn bit_xor(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.integer(Op::Xor, "bit_xor", rhs.into_operand()?, true)
    }

    /// Bitwise complement of integers, logical not of bools; `Error::DType` for floats.
    pub fn bit_not(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { self.logical_not() } else { self.bit_xor(-1) }
    }

    /// Left shift of integers by `rhs` modulo the number of bits; `Error::DType` for floats and bool.
    pub fn shift_left(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.integer(Op::Shl, "shift_left", rhs.into_operand()?, false)
    }

    /// Right shift of integers by `rhs` modulo the number of bits; arithmetic (the sign is copied in) for signed
    /// dtypes. `Error::DType` for floats and bool.
    pub fn shift_right(&self, rhs: impl IntoOperand) -> Result<Tensor> {
        self.integer(Op::Shr, "shift_right", rhs.into_operand()?, false)
    }

    // ---- selection

    /// Elementwise choice with this tensor as the condition (cast to bool): `x` where it is true, else `y`. All three
    /// broadcast; `x` and `y` promote.
    pub fn select(&self, x: impl IntoOperand, y: impl IntoOperand) -> Result<Tensor> {
        self.choose(x.into_operand()?, y.into_operand()?)
    }

    fn choose(&self, x: Operand, y: Operand) -> Result<Tensor> {
        x.check("where", self)?;
        y.check("where", self)?;
        let dtype = match (&x, &y) {
            (Operand::Tensor(t), y) => y.promote(t.dtype()),
            (x, Operand::Tensor(t)) => x.promote(t.dtype()),
            (Operand::Float(_), _) | (_, Operand::Float(_)) => DType::F32,
            (Operand::Int(_), _) | (_, Operand::Int(_)) => DType::I32,
            _ => DType::Bool,
        };
        let shape = broadcast_shape("where", &x.shape(), &y.shape())?;
        let shape = broadcast_shape("where", &self.shape(), &shape)?;
        let mut s = self.session().state();
        let cond = s.node(self.root());
        let mut value = |o: &Operand| match o {
            Operand::Tensor(t) => s.node(t.root()),
            scalar => scalar.constant(&mut s.graph, dtype).expect("not a tensor"),
        };
        let (x, y) = (value(&x), value(&y));
        let g = &mut s.graph;
        let cond = g.cast(cond, DType::Bool);
        let (x, y) = (g.cast(x, dtype), g.cast(y, dtype));
        let (cond, x, y) = (lift(g, cond, &shape), lift(g, x, &shape), lift(g, y, &shape));
        let node = g.select(cond, x, y);
        let root = s.add_root(node);
        drop(s);
        Ok(Tensor { session: self.session().clone(), root })
    }

    /// `value` (cast to this dtype) where `mask` is true, else this tensor's element; all broadcast.
    pub fn masked_fill(&self, mask: &Tensor, value: impl IntoOperand) -> Result<Tensor> {
        let value = value.into_operand()?;
        let dtype = self.dtype();
        match value {
            Operand::Tensor(t) => mask.select(t.cast(dtype)?, self),
            v => {
                let fill = Tensor::full(self.session(), v, dtype, &[])?;
                mask.select(fill, self)
            }
        }
    }

    // ---- dtypes

    /// Converts the elements to `dtype`. Float to integer truncates and saturates, and NaN becomes 0; integer to
    /// integer wraps; to bool is `!= 0`. `Error::DType` for void.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if dtype == DType::Void {
            return Err(Error::DType { op: "cast", dtype, why: "it holds no value".into() });
        }
        Ok(if self.dtype() == dtype { self.clone() } else { self.map(|g, u| g.cast(u, dtype)) })
    }

    /// Reinterprets the bits as another dtype of the same size; `Error::DType` for another size.
    pub fn bitcast(&self, dtype: DType) -> Result<Tensor> {
        if dtype.size() != self.dtype().size() {
            return Err(Error::DType { op: "bitcast", dtype, why: format!("not the size of {}", self.dtype()) });
        }
        Ok(if self.dtype() == dtype { self.clone() } else { self.map(|g, u| g.bitcast(u, dtype)) })
    }

    /// This tensor if its dtype is a float, else its cast to f32.
    pub(crate) fn to_float(&self) -> Result<Tensor> {
        if self.dtype().is_float() { Ok(self.clone()) } else { self.cast(DType::F32) }
    }

    /// An operand as a tensor of this tensor's dtype: scalars become constants of shape `[]`.
    pub(crate) fn full_operand(&self, o: &Operand) -> Result<Tensor> {
        match o {
            Operand::Tensor(t) => t.cast(self.dtype()),
            scalar => Tensor::full(self.session(), scalar, self.dtype(), &[]),
        }
    }
}

fn less_equal(g: &mut Graph, x: UOp, y: UOp) -> UOp {
    if g.dtype(x).is_float() {
        let (lt, eq) = (g.binary(Op::CmpLt, x, y), g.binary(Op::CmpEq, x, y));
        return g.binary(Op::Or, lt, eq);
    }
    let gt = g.binary(Op::CmpLt, y, x);
    let yes = g.bool(true);
    g.binary(Op::Xor, gt, yes)
}
