//! Tensors that are not computed from others: from host data, constants, ranges, and launch variables.

use super::{IntoOperand, Operand, Session, Tensor, check_len, check_numel, spread};
use crate::dtype::Scalar;
use crate::engine::state::Bytes;
use crate::uop::{Arg, Op, ReduceOp, Shape};
use crate::util::decimal::Shown;
use crate::{DType, Error, Result};
use smallvec::smallvec;

/// A Rust type that corresponds to a dtype.
pub trait Element: Copy {
    /// The dtype of this type.
    const DTYPE: DType;
    /// Appends this element to `out` as little-endian bytes.
    fn put(self, out: &mut Vec<u8>);
    /// Reads one element from the start of `bytes`, little-endian; `bytes` must hold at least one.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($ty:ty => $dt:ident),*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dt;
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut b = [0; size_of::<$ty>()];
                b.copy_from_slice(&bytes[..size_of::<$ty>()]);
                <$ty>::from_le_bytes(b)
            }
        }
    )*};
}
elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32,
          f64 => F64, half::f16 => F16, half::bf16 => BF16);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn put(self, out: &mut Vec<u8>) {
        out.push(self as u8);
    }
    fn get(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}

impl Tensor {
    /// A tensor with the given elements in row-major order. `Error::Value` unless their number is that of the shape.
    pub fn new<T: Element>(session: &Session, data: &[T], shape: &[usize]) -> Result<Tensor> {
        let mut bytes = Vec::with_capacity(data.len() * T::DTYPE.size());
        data.iter().for_each(|v| v.put(&mut bytes));
        Tensor::from_bytes(session, T::DTYPE, shape, Bytes::new(bytes))
    }

    /// A tensor whose elements are the given bytes, row-major and little-endian. The bytes are kept without a copy
    /// until they are uploaded. `Error::Value` unless their number fits the shape and dtype.
    pub fn from_bytes(session: &Session, dtype: DType, shape: &[usize], bytes: Bytes) -> Result<Tensor> {
        let len = check_len("from_bytes", shape)?;
        if dtype == DType::Void || Some(bytes.len()) != len.checked_mul(dtype.size()) {
            let what = format!("{} bytes do not hold shape {shape:?} of {dtype}", bytes.len());
            return Err(Error::value("from_bytes", what));
        }
        Ok(Tensor::over_buffer(session, dtype, shape, Some(bytes)))
    }

    /// Declares that the values are weights, which are expected to stay the same from run to run. Kernels may then read
    /// them from packed copies, made once. Assigning to them stays possible, and costs new copies. Has no effect on
    /// values that are not computed yet or have no buffer of their own.
    pub fn freeze(&self) {
        let mut s = self.session().state();
        let node = s.node(self.root());
        if let Some(flat) = s.storage(node) {
            s.freeze(&[flat], &[]);
        }
    }

    /// A tensor with a buffer of undefined contents, which the engine fills (model inputs).
    pub fn empty(session: &Session, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        check_len("empty", shape)?;
        Ok(Tensor::over_buffer(session, dtype, shape, None))
    }

    /// A tensor over a new buffer, with its contents if `host` has any; the caller has checked the shape.
    pub(crate) fn over_buffer(session: &Session, dtype: DType, shape: &[usize], host: Option<Bytes>) -> Tensor {
        let mut s = session.state();
        let buffer = s.add_buffer(dtype, shape.iter().product(), host);
        let node = s.graph.reshape(buffer, shape);
        let root = s.add_root(node);
        drop(s);
        Tensor { session: session.clone(), root }
    }

    /// A tensor with the same value everywhere, cast to `dtype`; a tensor `value` is cast and broadcast. Constants take
    /// no memory.
    pub fn full(session: &Session, value: impl IntoOperand, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        Tensor::filled(session, value.into_operand()?, dtype, shape)
    }

    fn filled(session: &Session, value: Operand, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        check_numel("full", shape)?;
        if let Operand::Tensor(t) = &value {
            return t.cast(dtype)?.expand(shape);
        }
        Ok(Tensor::make(session, |g| {
            let c = value.constant(g, dtype).expect("not a tensor");
            spread(g, c, shape)
        }))
    }

    /// A tensor of zeros; takes no memory.
    pub fn zeros(session: &Session, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        Tensor::full(session, 0, dtype, shape)
    }

    /// A tensor of ones; takes no memory.
    pub fn ones(session: &Session, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        Tensor::full(session, 1, dtype, shape)
    }

    /// The same value everywhere, in this tensor's shape and dtype.
    pub fn full_like(&self, value: impl IntoOperand) -> Result<Tensor> {
        Tensor::full(self.session(), value, self.dtype(), &self.shape())
    }

    /// Zeros in this tensor's shape and dtype.
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.full_like(0)
    }

    /// Ones in this tensor's shape and dtype.
    pub fn ones_like(&self) -> Result<Tensor> {
        self.full_like(1)
    }

    /// A constant of shape `[]` in the dtype of the value: i32 (i64 for an integer that does not fit), f32 or bool.
    pub fn scalar(session: &Session, value: impl IntoOperand) -> Result<Tensor> {
        let value = value.into_operand()?;
        let dtype = match &value {
            Operand::Tensor(t) => t.dtype(),
            Operand::Int(i) => {
                if i32::try_from(*i).is_ok() {
                    DType::I32
                } else {
                    DType::I64
                }
            }
            Operand::Float(_) => DType::F32,
            Operand::Bool(_) => DType::Bool,
        };
        Tensor::full(session, value, dtype, &[])
    }

    /// The numbers `0, 1, .., n-1`, i32: `[n]`. `Error::Value` where they do not fit i32.
    pub(crate) fn iota(session: &Session, n: usize) -> Result<Tensor> {
        if n > i32::MAX as usize {
            return Err(Error::value("arange", format!("{n} elements do not fit i32")));
        }
        Ok(Tensor::make(session, |g| g.node(Op::Iota, DType::I32, &[], Arg::Shape(smallvec![n]))))
    }

    /// The numbers `start, start + step, ..` before `stop` (above it, for a negative step): `[n]`. Element `i` is
    /// computed as `start + i*step`, so that rounding errors do not accumulate. `Error::Value` for a step of 0, bounds
    /// that are not finite, and for an integer dtype with a start or step that is not whole.
    pub fn arange(session: &Session, start: f64, stop: f64, step: f64, dtype: DType) -> Result<Tensor> {
        let n = ((stop - start) / step).ceil();
        if step == 0.0 || !n.is_finite() {
            let [start, stop, step] = [start, stop, step].map(Shown);
            return Err(Error::value("arange", format!("bad range {start}..{stop} by {step}")));
        }
        let iota = Tensor::iota(session, n.max(0.0).min(1e18) as usize)?;
        if dtype.is_float() {
            return iota.cast(dtype)?.mul(step)?.add(start);
        }
        if start.fract() != 0.0 || step.fract() != 0.0 {
            let [start, step] = [start, step].map(Shown);
            return Err(Error::value("arange", format!("{start} and {step} are not whole, dtype {dtype}")));
        }
        let wide = if start.abs().max(stop.abs()) < 2e9 { DType::I32 } else { DType::I64 };
        iota.cast(wide)?.mul(step as i64)?.add(start as i64)?.cast(dtype)
    }

    /// `steps` evenly spaced values from `start` to `stop`, both included: `[steps]`. `Error::DType` unless the dtype
    /// is a float.
    pub fn linspace(session: &Session, start: f64, stop: f64, steps: usize, dtype: DType) -> Result<Tensor> {
        if !dtype.is_float() {
            return Err(Error::DType { op: "linspace", dtype, why: "a float dtype is needed".into() });
        }
        let iota = Tensor::iota(session, steps)?;
        if steps < 2 {
            return iota.cast(dtype)?.add(start);
        }
        // each half counts from its own end, so that the last element is exactly `stop`
        let step = (stop - start) / (steps - 1) as f64;
        let up = iota.cast(dtype)?.mul(step)?.add(start)?;
        let down = iota.mul(-1)?.add(steps - 1)?.cast(dtype)?.mul(-step)?.add(stop)?;
        iota.lt(steps / 2)?.select(up, down)
    }

    /// The matrix `[n, m]` with ones on the main diagonal and zeros elsewhere.
    pub fn eye(session: &Session, n: usize, m: usize, dtype: DType) -> Result<Tensor> {
        check_numel("eye", &[n, m])?;
        let rows = Tensor::iota(session, n)?.reshape(&[n, 1])?;
        rows.eq(Tensor::iota(session, m)?.reshape(&[1, m])?)?.cast(dtype)
    }

    /// Keeps the elements on and below a diagonal of the last two axes and sets those above it to zero; diagonal 0 is
    /// the main one, positive ones lie above it.
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("tril", diagonal, true)
    }

    /// Keeps the elements on and above a diagonal of the last two axes and sets those below it to zero; diagonal 0 is
    /// the main one, positive ones lie above it.
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("triu", diagonal, false)
    }

    fn triangle(&self, op: &'static str, diagonal: i64, lower: bool) -> Result<Tensor> {
        let shape = self.shape();
        let &[.., n, m] = shape.as_slice() else {
            return Err(Error::value(op, format!("a matrix is needed, not shape {shape:?}")));
        };
        let rows = Tensor::iota(self.session(), n)?.reshape(&[n, 1])?;
        let cols = Tensor::iota(self.session(), m)?.reshape(&[1, m])?;
        let shifted = rows.add(diagonal.clamp(-(n as i64), m as i64))?;
        let keep = if lower { cols.le(shifted)? } else { cols.ge(shifted)? };
        keep.select(self, 0)
    }

    /// A launch variable: an i32 scalar with inclusive bounds whose value is given by name at each run. `Error::Value`
    /// for `min > max` and for names that begin with `@`, which the compiler reserves.
    pub fn variable(session: &Session, name: &str, min: i32, max: i32) -> Result<Tensor> {
        if min > max {
            return Err(Error::value("variable", format!("{name}: empty range {min}..={max}")));
        }
        if name.starts_with('@') {
            return Err(Error::value("variable", format!("{name}: names with @ are the compiler's own")));
        }
        let arg = Arg::Var { name: name.into(), min: min as i64, max: max as i64 };
        Ok(Tensor::make(session, |g| g.node(Op::Var, DType::I32, &[], arg)))
    }

    /// A launch variable: an f32 scalar whose value is given by name at each run, for example a learning rate or a
    /// temperature.
    pub fn variable_f32(session: &Session, name: &str) -> Tensor {
        let arg = Arg::Var { name: name.into(), min: 0, max: 0 };
        Tensor::make(session, |g| g.node(Op::Var, DType::F32, &[], arg))
    }

    /// The identity of a reduction, which is its value over no elements: 0 for sum, -inf for max ...
    pub(crate) fn identity(session: &Session, op: ReduceOp, dtype: DType, shape: &[usize]) -> Tensor {
        Tensor::make(session, |g| {
            let v: Scalar = op.identity(dtype);
            let c = g.constant(v, dtype);
            spread(g, c, &Shape::from_slice(shape))
        })
    }
}
