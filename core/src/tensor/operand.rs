//! The right-hand side of an operation: [`Operand`] is a tensor or a weak scalar, and [`IntoOperand`] lists what
//! converts to one. Also Rust's operators `+ - * /` and unary `-` on tensors.
//!
//! An operator returns `Result<Tensor>`, and accepts `Result<Tensor>` on one side, so that one `?` at the end serves a
//! whole expression: `((&a + &b) * &c)?`. Rust's orphan rule forbids operators between two foreign types, so in `Result
//! op Result` and `Result op scalar` one side needs its own `?`.

use super::Tensor;
use crate::dtype::Scalar;
use crate::uop::{Graph, UOp};
use crate::{DType, Result};

/// The right-hand side of an operation. A scalar is weak: it takes the dtype of the tensor that it is combined with,
/// but for the exceptions listed at the variants.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// An integer; combined with a bool tensor the result is i32.
    Int(i64),
    /// A float; combined with an integer or bool tensor the result is f32.
    Float(f64),
    /// A truth value; it never changes the tensor's dtype.
    Bool(bool),
}

/// Types that are accepted where a tensor or a scalar fits: `Tensor`, `&Tensor`, `Result<Tensor>`, numbers and `bool`.
pub trait IntoOperand {
    /// The operand, or the error that a `Result<Tensor>` holds.
    fn into_operand(self) -> Result<Operand>;
}

macro_rules! into_operand {
    ($($ty:ty => |$v:ident| $e:expr;)*) => {$(
        impl IntoOperand for $ty {
            fn into_operand(self) -> Result<Operand> {
                let $v = self;
                Ok($e)
            }
        }
    )*};
}
into_operand! {
    Operand => |v| v;
    &Operand => |v| v.clone();
    Tensor => |v| Operand::Tensor(v);
    &Tensor => |v| Operand::Tensor(v.clone());
    Result<Tensor> => |v| Operand::Tensor(v?);
    bool => |v| Operand::Bool(v);
    i32 => |v| Operand::Int(v as i64);
    i64 => |v| Operand::Int(v);
    u32 => |v| Operand::Int(v as i64);
    usize => |v| Operand::Int(v as i64);
    f32 => |v| Operand::Float(v as f64);
    f64 => |v| Operand::Float(v);
}

impl Operand {
    /// The dtype of an operation between a tensor of dtype `with` and this operand.
    pub(crate) fn promote(&self, with: DType) -> DType {
        match self {
            Operand::Tensor(t) => with.promote(t.dtype()),
            Operand::Float(_) if !with.is_float() => DType::F32,
            Operand::Int(_) if with == DType::Bool => DType::I32,
            _ => with,
        }
    }

    /// The operand's shape; `[]` for a scalar.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Operand::Tensor(t) => t.shape(),
            _ => Vec::new(),
        }
    }

    /// `Error::Value` if the operand is a tensor of another session than `with`.
    pub(crate) fn check(&self, op: &'static str, with: &Tensor) -> Result<()> {
        match self {
            Operand::Tensor(t) => Tensor::same_session(op, with, t),
            _ => Ok(()),
        }
    }

    /// The scalar as a constant of dtype `dt`, or `None` for a tensor.
    pub(crate) fn constant(&self, g: &mut Graph, dt: DType) -> Option<UOp> {
        Some(match *self {
            Operand::Tensor(_) => return None,
            Operand::Int(i) => g.constant(Scalar::Int(i), dt),
            Operand::Float(f) => g.constant(Scalar::float(f), dt),
            Operand::Bool(b) => g.constant(Scalar::Int(b as i64), dt),
        })
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident),*) => {$(
        impl<R: IntoOperand> std::ops::$trait<R> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: R) -> Result<Tensor> {
                Tensor::$method(&self, rhs)
            }
        }
        impl<R: IntoOperand> std::ops::$trait<R> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: R) -> Result<Tensor> {
                Tensor::$method(self, rhs)
            }
        }
        impl std::ops::$trait<Tensor> for Result<Tensor> {
            type Output = Result<Tensor>;
            fn $method(self, rhs: Tensor) -> Result<Tensor> {
                Tensor::$method(&self?, rhs)
            }
        }
        impl std::ops::$trait<&Tensor> for Result<Tensor> {
            type Output = Result<Tensor>;
            fn $method(self, rhs: &Tensor) -> Result<Tensor> {
                Tensor::$method(&self?, rhs)
            }
        }
        operators!(@scalar $trait $method f32 f64 i32 i64);
    )*};
    (@scalar $trait:ident $method:ident $($ty:ty)*) => {$(
        impl std::ops::$trait<Tensor> for $ty {
            type Output = Result<Tensor>;
            fn $method(self, rhs: Tensor) -> Result<Tensor> {
                rhs.scalar_lhs(self, |l, r| Tensor::$method(l, r))
            }
        }
        impl std::ops::$trait<&Tensor> for $ty {
            type Output = Result<Tensor>;
            fn $method(self, rhs: &Tensor) -> Result<Tensor> {
                rhs.scalar_lhs(self, |l, r| Tensor::$method(l, r))
            }
        }
    )*};
}
operators!(Add add, Sub sub, Mul mul, Div div);

impl std::ops::Neg for Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}

impl std::ops::Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Tensor {
    /// Computes `f(scalar, self)`: the scalar, which is weak, is the left operand.
    pub(crate) fn scalar_lhs(
        &self,
        scalar: impl IntoOperand,
        f: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let scalar = scalar.into_operand()?;
        let dt = scalar.promote(self.dtype());
        let lhs = Tensor::make(self.session(), |g| scalar.constant(g, dt).expect("a scalar, not a tensor"));
        f(&lhs, self)
    }
}
