//! The part that the text renderers share: a walk over a program ([`Walk`]) that turns tiles into named registers
//! (vectors where the language has them, otherwise one scalar per lane), and the interface that a language implements
//! ([`Dialect`]).
//!
//! Every value becomes a named constant in execution order; nothing is inlined, so expressions stay shallow and each is
//! printed once. This module does not decide what is computed.
//!
//! A language without nested expressions (PTX, LLVM IR) prints an instruction whenever it is asked for an expression,
//! returns the name of the result as the expression, and returns empty statements.

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
pub(super) use scalar::{FUNCTIONS, Spelling, literal, memory_type, scalar};
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
    /// One source is the negation of the other.
    pub opposite: bool,
    /// The second source is an integer that is known to be positive.
    pub positive: bool,
    /// The second source is a constant other than NaN.
    pub second_is_not_nan: bool,
    /// Which of the first two sources is a constant zero.
    pub zero_source: Option<usize>,
    /// An i32 or i64 sum, difference or product that is known not to wrap.
    pub no_wrap: bool,
}

impl Alu {
    /// `op` with sources and result of one dtype, without any further knowledge about the operands.
    pub(super) fn plain(op: Op, dt: DType) -> Alu {
        Alu {
            op,
            from: dt,
            to: dt,
            same: false,
            opposite: false,
            positive: false,
            second_is_not_nan: false,
            zero_source: None,
            no_wrap: false,
        }
    }
}

/// An array as the kernel's text declares it.
#[derive(Clone)]
pub(super) struct Ptr {
    pub name: String,
    /// Element type in memory.
    pub dt: DType,
    /// Elements per array element: above 1 if the array is declared as one of vectors.
    pub width: usize,
    pub memory: Memory,
}

impl Ptr {
    /// An array of single elements.
    pub(super) fn elements(name: String, dt: DType) -> Ptr {
        Ptr { name, dt, width: 1, memory: Memory::Elements }
    }
}

/// What an array element of a pointer is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// An element, or a vector of elements.
    Elements,
    /// A word of 32 bits that holds several elements, or a vector of such words.
    Words,
    /// Such a word, of which several threads may store different elements.
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
    /// The address `n` elements further.
    pub(super) fn plus(&self, n: i64) -> At {
        At { plus: self.plus + n, ..self.clone() }
    }
}

/// The gate of a load.
#[derive(Clone, Copy)]
pub(super) enum Gate<'a> {
    /// One condition for all lanes.
    One(&'a str),
    /// A vector of conditions, one for each lane.
    Each(&'a str),
}

/// How a language writes what a program contains. `lanes` 1 means a scalar; vectors are used only where `vector` allows
/// them.
pub(super) trait Dialect {
    /// Does the language have a vector of `lanes` values of `dt`?
    fn vector(&self, dt: DType, lanes: usize) -> bool;
    /// The type of a value.
    fn ty(&mut self, dt: DType, lanes: usize) -> String;
    /// A scalar constant.
    fn literal(&mut self, v: Scalar, dt: DType) -> String;
    /// Broadcasts a scalar to a vector.
    fn splat(&mut self, x: &str, dt: DType, lanes: usize) -> String;
    /// Builds a vector from scalars.
    fn pack(&mut self, xs: &[String], dt: DType) -> String;
    /// Extracts lane `i` of a vector of `lanes`.
    fn lane(&mut self, x: &str, dt: DType, lanes: usize, i: usize) -> String;
    /// An elementwise op; `None` if the language has no vector form of it (the walk then goes lane by lane).
    fn alu(&mut self, a: Alu, x: &[String], lanes: usize) -> Result<Option<String>>;
    /// Statement that declares a named constant; `None` if every expression is a name already.
    fn bind(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> Option<String>;
    /// Statement that declares a variable with its initial value.
    fn variable(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> String;
    /// The expression for a variable's value.
    fn get(&mut self, name: &str, _dt: DType, _lanes: usize) -> String {
        name.to_string()
    }
    /// Statement that assigns to a variable.
    fn set(&mut self, name: &str, _dt: DType, _lanes: usize, expr: &str) -> String {
        format!("{name} = {expr};")
    }
    /// The head of a loop over `0..bound`, with its opening brace.
    fn loop_head(&mut self, name: &str, dt: DType, bound: &str) -> String;
    /// The end of the innermost open block.
    fn close(&mut self) -> String {
        "}".into()
    }
    /// Loads `lanes` elements at `at`.
    fn load(&mut self, p: &Ptr, at: &At, lanes: usize) -> String;
    /// Does [`Dialect::load`] of `lanes` elements load each element separately?
    fn loads_elements(&self, _p: &Ptr, _lanes: usize) -> bool {
        false
    }
    /// Loads the element at `at`, or any other element if `at` is outside the array, whose last element is `last`.
    /// Called only where [`Dialect::loads_elements`] can hold.
    fn load_inside(&mut self, _p: &Ptr, _at: &At, _last: usize) -> String {
        unreachable!("a language that gathers loads inside")
    }
    /// Loads `lanes` elements if the scalar `gate` holds, else gives `alt`; memory outside the array is not touched.
    fn load_gated(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> String;
    /// The same with a gate per lane; `None` if it must go lane by lane.
    fn load_masked(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> Option<String>;
    /// Statement that stores `lanes` elements.
    fn store(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str) -> String;
    /// Should the store of `n` adjacent elements, which are separate registers, be one vector store of what
    /// [`Dialect::pack`] makes of them?
    fn wants_vector_store(&self, _dt: DType, _n: usize) -> bool {
        false
    }
    /// Statement that stores `lanes` elements if the scalar `gate` holds.
    fn store_gated(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str, gate: &str) -> String {
        format!("if ({gate}) {{ {} }}", self.store(p, at, lanes, value))
    }
    /// The same with a gate per lane; `None` if it must go lane by lane.
    fn store_masked(&mut self, _p: &Ptr, _at: &At, _lanes: usize, _value: &str, _gate: &str) -> Option<String> {
        None
    }
    /// Loads `lanes` words of four bytes at `at`; where the gate does not hold, a word consists of four times the byte
    /// `alt`.
    fn load_words(&mut self, _p: &Ptr, _at: &At, _lanes: usize, _gate: Option<Gate>, _alt: u8) -> Result<String> {
        Err(crate::Error::Internal("words of bytes in a language without".into()))
    }
    /// `acc` plus the four products of the signed bytes of two words, in each lane.
    fn dot(&mut self, _acc: &str, _a: &str, _b: &str, _lanes: usize) -> Result<String> {
        Err(crate::Error::Internal("products of bytes in a language without".into()))
    }
    /// The value of `x` in the thread of the same subgroup whose number differs from this thread's in `bits`.
    fn shuffle(&mut self, _x: &str, _dt: DType, _lanes: usize, _bits: u8) -> Result<String> {
        Err(crate::Error::Internal("subgroups in a language without".into()))
    }
    /// The present value of a variable `x`, which later assignments do not change.
    fn read(&mut self, x: &str) -> String {
        x.to_string()
    }
    /// Statement that adds the product of two matrix tiles to the variables `sums`. All three lists are the registers
    /// that a thread holds of a matrix, in the order of their numbers.
    fn mma(&mut self, tile: &MatrixTile, _sums: &[String], _a: &[String], _b: &[String]) -> Result<String> {
        let what = format!("matrix tiles of {} and {}", tile.factors, tile.sums);
        Err(crate::Error::Unsupported { what, context: "a language without".into() })
    }
    /// Begins a sequence of statements that is skipped if the condition `c`, which is the same for all threads of a
    /// workgroup, equals `when`. Nothing else uses what they compute. `None` in a language that never skips them.
    fn begin_skip_if(&mut self, _c: &str, _when: bool) -> Option<usize> {
        None
    }
    /// Ends the sequence that [`Dialect::begin_skip_if`] began.
    fn end_skip(&mut self, _begun: usize) {}
    /// Statement that declares a variable without a meaningful initial value.
    fn unset(&mut self, name: &str, dt: DType) -> String {
        let zero = self.literal(Scalar::float(0.0), dt);
        self.variable(name, dt, 1, &zero)
    }
    /// As [`Dialect::mma`], where factors lie in workgroup memory. The instruction may run asynchronously until the
    /// sums are used, or as long as barriers allow.
    fn mma_in_memory(&mut self, tile: &MatrixTile, _sums: &[String], _of: Factors<'_>) -> Result<String> {
        let what = format!("matrix tiles of {} in workgroup memory", tile.factors);
        Err(crate::Error::Unsupported { what, context: "a language without".into() })
    }
    /// Loads `n` matrices of 8 by 8 elements of two bytes, of which the threads give the addresses of rows in workgroup
    /// memory. Returns the thread's two elements of each matrix, in order; `transposed` transposes the matrices.
    fn load_matrices(&mut self, p: &Ptr, _at: &At, _n: usize, _transposed: bool) -> Result<Vec<String>> {
        let what = format!("matrices of {} from workgroup memory", p.dt);
        Err(crate::Error::Unsupported { what, context: "a language without".into() })
    }
    /// Statement that starts an asynchronous copy from a buffer to workgroup memory if `gate` holds; it writes zeros if
    /// `inside` is false.
    fn copy(&mut self, _c: &Copy<'_>, _inside: Option<&str>, _gate: Option<&str>) -> Result<String> {
        let what = "copies to workgroup memory".to_string();
        Err(crate::Error::Unsupported { what, context: "a language without".into() })
    }
    /// Workgroup barrier statement. With a number n each thread first waits for its asynchronous copies, except for
    /// those that it started after the n-th last such barrier.
    fn barrier(&mut self, pending: Option<u32>) -> Result<&'static str>;
}

/// The factors of a matrix product of which the right one, or both, lie in workgroup memory.
pub(super) struct Factors<'a> {
    /// The address of the left factor if it lies in workgroup memory; otherwise `a_registers` has the thread's
    /// registers of it.
    pub(super) a: Option<(&'a Ptr, &'a At)>,
    pub(super) a_registers: &'a [String],
    /// The address of the right factor.
    pub(super) b: (&'a Ptr, &'a At),
    /// The sums are set to this product; their previous values are ignored.
    pub(super) fresh: bool,
}

/// An asynchronous copy from a buffer to workgroup memory.
pub(super) struct Copy<'a> {
    pub(super) to: (&'a Ptr, &'a At),
    pub(super) from: (&'a Ptr, &'a At),
    pub(super) bytes: u32,
}
