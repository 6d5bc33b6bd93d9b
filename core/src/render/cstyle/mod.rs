//! What the text renderers share: one walk over a program that turns tiles into named registers (vectors where the language
//! has them, else one scalar per lane), and the small set of things a language must say for itself ([`Dialect`]).
//!
//! Every value becomes a named constant in execution order; nothing is inlined, so expressions stay shallow and each is
//! printed once. Never: decisions about what to compute.
//!
//! A language without nested expressions prints its instructions as it is asked for expressions, which are then names, and
//! returns empty statements.

mod access;
mod dot;
mod masks;
mod mma;
#[cfg(any(feature = "c", feature = "gpu-c"))]
mod scalar;
mod value;
mod walk;
mod window;

pub(super) use access::{accesses, is_whole, pointers, vector_width};
pub(super) use dot::Dots;
#[cfg(any(feature = "c", feature = "gpu-c"))]
pub(super) use scalar::{FUNCTIONS, Words, literal, memory_type, scalar};
pub(super) use walk::Walk;

use crate::dtype::Scalar;
use crate::target::MatrixTile;
use crate::uop::Op;
use crate::{DType, Result};

/// An elementwise operation to print.
#[derive(Clone, Copy)]
pub(super) struct Alu {
    pub op: Op,
    /// dtype of the sources (of the values, for Where).
    pub from: DType,
    /// dtype of the result.
    pub to: DType,
    /// Both sources are the same node.
    pub same: bool,
    /// One source is the other with its sign changed.
    pub opposite: bool,
    /// The second source is known to be above zero.
    pub positive: bool,
    /// The second source is a constant other than NaN.
    pub number: bool,
    /// Which of the first two sources is a constant zero.
    pub zero: Option<usize>,
    /// An i32 or i64 sum, difference or product that is known not to wrap.
    pub exact: bool,
}

impl Alu {
    /// `op` on one dtype, of which nothing more is known.
    pub(super) fn plain(op: Op, dt: DType) -> Alu {
        Alu {
            op,
            from: dt,
            to: dt,
            same: false,
            opposite: false,
            positive: false,
            number: false,
            zero: None,
            exact: false,
        }
    }
}

/// A pointer as the language sees it.
#[derive(Clone)]
pub(super) struct Ptr {
    pub name: String,
    /// Element type in memory.
    pub dt: DType,
    /// Elements per array element: above 1 if declared as an array of vectors.
    pub width: usize,
    pub memory: Memory,
}

impl Ptr {
    /// An array of single elements.
    pub(super) fn elements(name: String, dt: DType) -> Ptr {
        Ptr { name, dt, width: 1, memory: Memory::Elements }
    }
}

/// What the array elements of a pointer are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Elements, or vectors of them.
    Elements,
    /// Words of 32 bits, or vectors of them, that hold several elements each.
    Words,
    /// Such words, which threads change an element at a time.
    Shared,
}

/// An element address: a scalar expression plus a constant.
#[derive(Clone)]
pub(super) struct At {
    pub base: String,
    /// dtype of `base`.
    pub dt: DType,
    pub plus: i64,
}

impl At {
    /// The address `n` elements on.
    pub(super) fn plus(&self, n: i64) -> At {
        At { plus: self.plus + n, ..self.clone() }
    }
}

/// Where a load is done.
#[derive(Clone, Copy)]
pub(super) enum Gate<'a> {
    /// In all lanes or in none.
    One(&'a str),
    /// By lane.
    Each(&'a str),
}

/// What a language says for itself. `lanes` 1 means scalar; a vector is used only where `vector` allows it.
pub(super) trait Dialect {
    /// May `lanes` values of `dt` be one value?
    fn vector(&self, dt: DType, lanes: usize) -> bool;
    /// The value type.
    fn ty(&mut self, dt: DType, lanes: usize) -> String;
    /// A scalar constant.
    fn literal(&mut self, v: Scalar, dt: DType) -> String;
    /// One scalar in all lanes.
    fn splat(&mut self, x: &str, dt: DType, lanes: usize) -> String;
    /// Scalars to a vector.
    fn pack(&mut self, xs: &[String], dt: DType) -> String;
    /// One lane of a vector of `lanes`.
    fn lane(&mut self, x: &str, dt: DType, lanes: usize, i: usize) -> String;
    /// An elementwise op; `None` if it has no vector form here (the walk then goes lane by lane).
    fn alu(&mut self, a: Alu, x: &[String], lanes: usize) -> Result<Option<String>>;
    /// A named constant; `None` if every expression is a name.
    fn bind(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> Option<String>;
    /// A named variable.
    fn variable(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> String;
    /// A variable's value.
    fn get(&mut self, name: &str, _dt: DType, _lanes: usize) -> String {
        name.to_string()
    }
    /// Statement that changes a variable.
    fn set(&mut self, name: &str, _dt: DType, _lanes: usize, expr: &str) -> String {
        format!("{name} = {expr};")
    }
    /// The head of a loop over `0..bound`, with the open brace.
    fn loop_head(&mut self, name: &str, dt: DType, bound: &str) -> String;
    /// The end of the innermost open block.
    fn close(&mut self) -> String {
        "}".into()
    }
    /// `lanes` elements at `at`.
    fn load(&mut self, p: &Ptr, at: &At, lanes: usize) -> String;
    /// Is that one load for each element?
    fn gathers(&self, _p: &Ptr, _lanes: usize) -> bool {
        false
    }
    /// The element at `at`, or another one where that is outside of the array, whose last is `last`. Wanted only where
    /// [`Dialect::gathers`] can hold.
    fn load_inside(&mut self, _p: &Ptr, _at: &At, _last: usize) -> String {
        unreachable!("a language that gathers loads inside")
    }
    /// `lanes` elements where the scalar `gate` holds, else `alt`, without touching memory outside the array.
    fn load_gated(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> String;
    /// The same with a gate per lane; `None` if it must go lane by lane.
    fn load_masked(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> Option<String>;
    /// Statement that stores `lanes` elements.
    fn store(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str) -> String;
    /// Are so many elements in registers of their own stored at once where they are neighbours? What [`Dialect::pack`] makes of them is.
    fn stores(&self, _dt: DType, _n: usize) -> bool {
        false
    }
    /// The same where the scalar `gate` holds.
    fn store_gated(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str, gate: &str) -> String {
        format!("if ({gate}) {{ {} }}", self.store(p, at, lanes, value))
    }
    /// The same with a gate per lane; `None` if it must go lane by lane.
    fn store_masked(&mut self, _p: &Ptr, _at: &At, _lanes: usize, _value: &str, _gate: &str) -> Option<String> {
        None
    }
    /// `lanes` words of four bytes at `at`; where the gate does not hold, words of four times the byte `alt`.
    fn words(&mut self, _p: &Ptr, _at: &At, _lanes: usize, _gate: Option<Gate>, _alt: u8) -> Result<String> {
        Err(crate::Error::Internal("words of bytes in a language without".into()))
    }
    /// `acc` and the sum of products of the signed bytes of two words, in each lane.
    fn dot(&mut self, _acc: &str, _a: &str, _b: &str, _lanes: usize) -> Result<String> {
        Err(crate::Error::Internal("products of bytes in a language without".into()))
    }
    /// What the thread has for `x` whose number differs in these bits, in one subgroup; where there are subgroups.
    fn shuffle(&mut self, _x: &str, _dt: DType, _lanes: usize, _bits: u8) -> Result<String> {
        Err(crate::Error::Internal("subgroups in a language without".into()))
    }
    /// A variable's value as it is now, whatever the variable will be.
    fn read(&mut self, x: &str) -> String {
        x.to_string()
    }
    /// Statement that adds the product of two matrix tiles to the variables `sums`: a thread's registers, in the order of their numbers.
    fn mma(&mut self, tile: &MatrixTile, _sums: &[String], _a: &[String], _b: &[String]) -> Result<String> {
        let what = format!("matrix tiles of {} and {}", tile.factors, tile.sums);
        Err(crate::Error::Unsupported { what, context: "a language without".into() })
    }
    /// Begins statements that are left out where a condition, which is the same for all threads of a workgroup, is `when`; `None` in a language in which
    /// nothing is left out. What they compute is used nowhere else.
    fn unless(&mut self, _c: &str, _when: bool) -> Option<usize> {
        None
    }
    /// Ends them, by what [`Dialect::unless`] gave.
    fn unless_end(&mut self, _begun: usize) {}
    /// A variable that has no value yet.
    fn unset(&mut self, name: &str, dt: DType) -> String {
        let zero = self.literal(Scalar::float(0.0), dt);
        self.variable(name, dt, 1, &zero)
    }
    /// The same where factors lie in workgroup memory. It may go on while the program does, until somebody asks for the sums, or as barriers say.
    fn mma_in_memory(&mut self, tile: &MatrixTile, _sums: &[String], _of: Factors<'_>) -> Result<String> {
        let what = format!("matrix tiles of {} in workgroup memory", tile.factors);
        Err(crate::Error::Unsupported { what, context: "a language without".into() })
    }
    /// Elements of two bytes of so many matrices of 8 by 8, whose rows of workgroup memory threads address: two of each, in turn.
    fn load_matrices(&mut self, p: &Ptr, _at: &At, _n: usize, _turned: bool) -> Result<Vec<String>> {
        let what = format!("matrices of {} from workgroup memory", p.dt);
        Err(crate::Error::Unsupported { what, context: "a language without".into() })
    }
    /// Statement that starts a copy of so many bytes from a buffer to workgroup memory, of zeros where `inside` is false, if `gate` holds.
    fn copy(&mut self, _c: &Copy<'_>, _inside: Option<&str>, _gate: Option<&str>) -> Result<String> {
        let what = "copies to workgroup memory".to_string();
        Err(crate::Error::Unsupported { what, context: "a language without".into() })
    }
    /// Workgroup barrier statement, which waits for all copies but those that were started after the last so many barriers, if that is a number.
    fn barrier(&mut self, pending: Option<u32>) -> Result<&'static str>;
}

/// The factors of a product of which one or both lie in workgroup memory.
pub(super) struct Factors<'a> {
    /// Where the left one begins there, or else what a thread holds of it.
    pub(super) a: Option<(&'a Ptr, &'a At)>,
    pub(super) held: &'a [String],
    /// Where the right one begins.
    pub(super) b: (&'a Ptr, &'a At),
    /// The sums are those of this product alone, whatever they were.
    pub(super) fresh: bool,
}

/// A copy to workgroup memory that goes on by itself.
pub(super) struct Copy<'a> {
    pub(super) to: (&'a Ptr, &'a At),
    pub(super) from: (&'a Ptr, &'a At),
    pub(super) bytes: u32,
}
