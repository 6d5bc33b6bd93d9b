//! Tensor methods by name: one table for all callers that choose an operation by its name (JavaScript, torch's own
//! operator tests, scripts). Names, parameters and defaults are PyTorch's. Each row declares the types of its
//! parameters, and the declarations for other languages are generated from the table, so that they cannot deviate.
//! Never: computing anything that a method of [`Tensor`] does not.
//!
//! Input of [`call`]: a name and arguments as [`Value`]s. Output: the tensors that the method returns. For example
//! `call(s, "sum", &[x], &[("dim", Value::Int(0))])`.
//!
//! | file | what its rows are |
//! |---|---|
//! | `elementwise` | arithmetic, comparison, logic, unary and special functions, activations |
//! | `reduce` | reductions, scans, statistics, sorting |
//! | `shape` | creation, movement, joining, indexing, scatter |
//! | `network` | products, convolution, pooling, norms, attention, losses, resampling |
//! | `linear` | linear systems, decompositions, Fourier transforms, windows |
//! | `random` | random numbers |

mod elementwise;
mod linear;
mod network;
mod random;
mod reduce;
mod shape;

use super::{IntoOperand, Operand, Session, Tensor};
use crate::{DType, Error, Result};

/// An argument of [`call`].
#[derive(Clone, Debug)]
pub enum Value {
    /// An argument that is left out: the parameter's default.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A bool.
    Bool(bool),
    /// Text: a mode, an equation.
    Text(String),
    /// A dtype.
    DType(DType),
    /// A list of values.
    List(Vec<Value>),
}

/// A parameter of an [`Entry`].
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name in torch.
    pub name: &'static str,
    /// Its type, as TypeScript writes it.
    pub ty: &'static str,
    /// The default as Rust source text; `None` if there is none.
    pub default: Option<&'static str>,
    /// Whether it may be left out.
    pub optional: bool,
}

/// One operation of the table.
pub struct Entry {
    /// Its name and aliases.
    pub names: &'static [&'static str],
    /// Its parameters, in positional order.
    pub params: &'static [Param],
    /// The type of its result, as TypeScript writes it.
    pub out: &'static str,
    run: fn(&Call<'_>) -> Result<Vec<Tensor>>,
}

/// The arguments of one call.
pub struct Call<'a> {
    session: &'a Session,
    name: &'a str,
    args: &'a [Value],
    named: &'a [(&'a str, Value)],
}

/// The rows in groups, each with a heading.
pub fn groups() -> [(&'static str, &'static [Entry]); 6] {
    [
        ("arithmetic, comparison, logic, special functions, activations", elementwise::TABLE),
        ("reductions, scans, statistics, sorting", reduce::TABLE),
        ("creation, movement, joining, indexing, scatter", shape::TABLE),
        ("products, convolution, pooling, norms, attention, losses, resampling", network::TABLE),
        ("linear systems, decompositions, Fourier transforms, windows", linear::TABLE),
        ("random numbers", random::TABLE),
    ]
}

/// All rows of all groups.
pub fn table() -> impl Iterator<Item = &'static Entry> {
    groups().into_iter().flat_map(|(_, rows)| rows)
}

/// Runs the operation `name` on positional and named arguments.
///
/// # Errors
/// `E_VALUE` for an unknown name, and for an argument that is missing, unknown or of the wrong type; and the errors of
/// the operation.
pub fn call(session: &Session, name: &str, args: &[Value], named: &[(&str, Value)]) -> Result<Vec<Tensor>> {
    let entry = table().find(|e| e.names.contains(&name));
    let entry = entry.ok_or_else(|| Error::value("call", format!("there is no op `{name}`")))?;
    let known = |n: &str| entry.params.iter().any(|p| p.name == n);
    if let Some((n, _)) = named.iter().find(|(n, _)| !known(n)) {
        return Err(Error::value("call", format!("{name} has no parameter `{n}`")));
    }
    (entry.run)(&Call { session, name, args, named })
}

impl<'a> Call<'a> {
    /// Reads the parameter `name` from position `at`, which is advanced, or from the named arguments.
    fn arg<T: FromValue<'a>>(&self, at: &mut usize, name: &str, default: Option<T>) -> Result<T> {
        let bad = |what: String| Error::value("call", format!("{}: {what}", self.name));
        if let Some(t) = T::ambient(self) {
            return Ok(t);
        }
        if let Some((t, n)) = T::variadic(self.args.get(*at..).unwrap_or(&[])) {
            *at += n;
            return Ok(t);
        }
        let v = self.args.get(*at).or_else(|| self.named.iter().find(|n| n.0 == name).map(|n| &n.1));
        *at += 1;
        match v {
            None | Some(Value::None) => {
                default.or_else(T::absent).ok_or_else(|| bad(format!("argument `{name}` is missing")))
            }
            Some(v) => T::from_value(v).ok_or_else(|| bad(format!("argument `{name}` should be {}", T::TYPE))),
        }
    }
}

/// A type that a parameter can have.
trait FromValue<'a>: Sized {
    /// The type as TypeScript writes it.
    const TYPE: &'static str;
    /// Whether an argument of this type may always be left out.
    const OPTIONAL: bool = false;
    fn from_value(v: &'a Value) -> Option<Self>;
    /// The value of an argument that is left out and has no default.
    fn absent() -> Option<Self> {
        None
    }
    /// Consumes several positional arguments at once: the value, and how many.
    fn variadic(_: &'a [Value]) -> Option<(Self, usize)> {
        None
    }
    /// A value that comes from the call itself rather than from an argument.
    fn ambient(_: &Call<'a>) -> Option<Self> {
        None
    }
}

macro_rules! from_value {
    ($($ty:ty, $text:literal, $pattern:pat => $e:expr;)*) => {$(
        impl<'a> FromValue<'a> for $ty {
            const TYPE: &'static str = $text;
            fn from_value(v: &'a Value) -> Option<Self> {
                match v {
                    $pattern => Some($e),
                    _ => None,
                }
            }
        }
    )*};
}
from_value! {
    Tensor, "Tensor", Value::Tensor(t) => t.clone();
    &'a str, "string", Value::Text(s) => s.as_str();
}

impl FromValue<'_> for DType {
    const TYPE: &'static str = "DType";
    fn from_value(v: &Value) -> Option<Self> {
        match v {
            Value::DType(d) => Some(*d),
            Value::Text(name) => DType::from_name(name),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a Value {
    const TYPE: &'static str = "unknown";
    fn from_value(v: &'a Value) -> Option<Self> {
        Some(v)
    }
}

impl<'a> FromValue<'a> for Session {
    const TYPE: &'static str = "";
    fn from_value(_: &'a Value) -> Option<Self> {
        None
    }
    fn ambient(c: &Call<'a>) -> Option<Self> {
        Some(c.session.clone())
    }
}

impl FromValue<'_> for bool {
    const TYPE: &'static str = "boolean";
    fn from_value(v: &Value) -> Option<Self> {
        match v {
            Value::Bool(b) => Some(*b),
            Value::Int(i) => Some(*i != 0),
            _ => None,
        }
    }
}

impl FromValue<'_> for i64 {
    const TYPE: &'static str = "number";
    fn from_value(v: &Value) -> Option<Self> {
        match v {
            Value::Int(i) => Some(*i),
            Value::Float(f) if f.fract() == 0.0 => Some(*f as i64),
            Value::Bool(b) => Some(*b as i64),
            _ => None,
        }
    }
}

impl FromValue<'_> for usize {
    const TYPE: &'static str = "number";
    fn from_value(v: &Value) -> Option<Self> {
        usize::try_from(i64::from_value(v)?).ok()
    }
}

impl FromValue<'_> for f64 {
    const TYPE: &'static str = "number";
    fn from_value(v: &Value) -> Option<Self> {
        match v {
            Value::Int(i) => Some(*i as f64),
            Value::Float(f) => Some(*f),
            Value::Bool(b) => Some(*b as i64 as f64),
            _ => None,
        }
    }
}

impl FromValue<'_> for Operand {
    const TYPE: &'static str = "Tensor | number | boolean";
    fn from_value(v: &Value) -> Option<Self> {
        Some(match v {
            Value::Tensor(t) => Operand::Tensor(t.clone()),
            Value::Int(i) => Operand::Int(*i),
            Value::Float(f) => Operand::Float(*f),
            Value::Bool(b) => Operand::Bool(*b),
            _ => return None,
        })
    }
}

macro_rules! lists {
    ($($ty:ty, $text:literal;)*) => {$(
        impl<'a> FromValue<'a> for Vec<$ty> {
            const TYPE: &'static str = $text;
            fn from_value(v: &'a Value) -> Option<Self> {
                match v {
                    Value::List(l) => l.iter().map(<$ty>::from_value).collect(),
                    one => Some(vec![<$ty>::from_value(one)?]),
                }
            }
        }
    )*};
}
impl FromValue<'_> for Vec<Tensor> {
    const TYPE: &'static str = "readonly Tensor[]";
    fn from_value(v: &Value) -> Option<Self> {
        match v {
            Value::List(l) => l.iter().map(Tensor::from_value).collect(),
            v => Some(vec![Tensor::from_value(v)?]),
        }
    }
    fn variadic(args: &[Value]) -> Option<(Self, usize)> {
        let tensors: Vec<Tensor> = args.iter().map_while(Tensor::from_value).collect();
        (!tensors.is_empty()).then(|| (tensors.clone(), tensors.len()))
    }
}

lists! {
    i64, "number | readonly number[]";
    usize, "number | readonly number[]";
    f64, "number | readonly number[]";
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const OPTIONAL: bool = true;
    fn from_value(v: &'a Value) -> Option<Self> {
        T::from_value(v).map(Some)
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// The axes of a reduction; left out, they are all axes.
struct Axes(Vec<i64>);

impl FromValue<'_> for Axes {
    const TYPE: &'static str = "number | readonly number[]";
    const OPTIONAL: bool = true;
    fn from_value(v: &Value) -> Option<Self> {
        Vec::from_value(v).map(Axes)
    }
    fn absent() -> Option<Self> {
        Some(Axes(Vec::new()))
    }
}

/// A type that the expression of a row can have.
trait Outs {
    const TYPE: &'static str;
    fn outs(self) -> Result<Vec<Tensor>>;
}

/// The TypeScript type of a row's result; the row is not run.
const fn type_of<T: Outs>(_: fn(&Call<'_>) -> Result<T>) -> &'static str {
    T::TYPE
}

impl Outs for Result<Tensor> {
    const TYPE: &'static str = "Tensor";
    fn outs(self) -> Result<Vec<Tensor>> {
        Ok(vec![self?])
    }
}

impl Outs for Result<Vec<Tensor>> {
    const TYPE: &'static str = "Tensor[]";
    fn outs(self) -> Result<Vec<Tensor>> {
        self
    }
}

impl Outs for Result<(Tensor, Tensor)> {
    const TYPE: &'static str = "[Tensor, Tensor]";
    fn outs(self) -> Result<Vec<Tensor>> {
        self.map(|(a, b)| vec![a, b])
    }
}

impl Outs for Result<(Tensor, Tensor, Tensor)> {
    const TYPE: &'static str = "[Tensor, Tensor, Tensor]";
    fn outs(self) -> Result<Vec<Tensor>> {
        self.map(|(a, b, c)| vec![a, b, c])
    }
}

impl Outs for Result<[Tensor; 4]> {
    const TYPE: &'static str = "[Tensor, Tensor, Tensor, Tensor]";
    fn outs(self) -> Result<Vec<Tensor>> {
        self.map(Vec::from)
    }
}

/// The syntax of a row: `"name" | "alias" (parameter: type = default, ..) expression;`, where the expression is a
/// result of one or more tensors.
macro_rules! ops {
    ($($($name:literal)|+ ($($p:ident: $t:ty $(= $d:expr)?),* $(,)?) $body:expr;)*) => {
        #[allow(non_snake_case, reason = "torch's names of parameters")]
        pub(super) static TABLE: &[Entry] = &[$(Entry {
            names: &[$($name),+],
            params: &[$(Param {
                name: stringify!($p),
                ty: <$t as FromValue<'static>>::TYPE,
                default: ops!(@text $($d)?),
                optional: <$t as FromValue<'static>>::OPTIONAL || ops!(@text $($d)?).is_some(),
            }),*],
            out: type_of(|call| Ok(ops!(@row call ($($p: $t $(= $d)?),*) $body))),
            run: |call| Outs::outs(ops!(@row call ($($p: $t $(= $d)?),*) $body)),
        }),*];
    };
    (@row $call:ident ($($p:ident: $t:ty $(= $d:expr)?),*) $body:expr) => {{
        let mut at = 0;
        $(let $p: $t = $call.arg(&mut at, stringify!($p), ops!(@value $($d)?))?;)*
        let _ = at;
        // a closure, so that the expression may return early
        #[allow(clippy::redundant_closure_call)]
        (move || $body)()
    }};
    (@text) => { None::<&'static str> };
    (@text $d:expr) => { Some(stringify!($d)) };
    (@value) => { None };
    (@value $d:expr) => { Some($d) };
}
use ops;

/// An operand as a tensor; a scalar gets its own dtype (see [`Tensor::scalar`]).
fn tensor(s: &Session, o: Operand) -> Result<Tensor> {
    match o {
        Operand::Tensor(t) => Ok(t),
        scalar => Tensor::scalar(s, scalar),
    }
}

/// `f(a, b)`, where either operand may be a scalar, which takes the dtype of the other.
fn either(s: &Session, a: Operand, b: Operand, f: fn(&Tensor, Operand) -> Result<Tensor>) -> Result<Tensor> {
    match (a, b) {
        (Operand::Tensor(t), b) => f(&t, b),
        (a, Operand::Tensor(t)) => t.scalar_lhs(a, |l, r| f(l, r.into_operand()?)),
        (a, b) => f(&Tensor::scalar(s, a)?, b),
    }
}

/// Reduces a loss by `mean` or `sum`, or returns it as it is for `none`. `Error::Value` for another name.
fn reduced(loss: Tensor, reduction: &str) -> Result<Tensor> {
    match reduction {
        "mean" => loss.mean(&[], false),
        "sum" => loss.sum(&[], false),
        "none" => Ok(loss),
        other => Err(Error::value("loss", format!("there is no reduction `{other}`; there are mean, sum and none"))),
    }
}
