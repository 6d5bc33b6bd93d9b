//! How C spells types, constants, memory and loops.

use super::super::cstyle::{Alu, At, Dialect, Ptr, Spelling, literal, memory_type, scalar};
use super::{alu, masked};
use crate::dtype::Scalar;
use crate::target::{Target, functions};
use crate::{DType, Error, Result};
use std::collections::BTreeSet;

/// The C dialect, with the vector types that the kernel uses.
pub(super) struct C {
    vectors: BTreeSet<(DType, usize)>,
    /// The vector types that are loaded under a mask.
    masked: BTreeSet<(DType, usize)>,
    spelling: &'static Spelling,
}

/// C with GCC's extensions, compiled with `-fwrapv`.
const GNU: Spelling = Spelling { functions: functions::GNU_C, long: "LL", wraps: true };

/// C99 without extensions.
const STANDARD: Spelling = Spelling { functions: functions::C, long: "LL", wraps: false };

/// The element dtype of a vector value: bools are i32 masks, 16-bit floats are their bits.
pub(super) fn element(dt: DType) -> DType {
    match dt {
        DType::Bool => DType::I32,
        DType::F16 | DType::BF16 => DType::U16,
        _ => dt,
    }
}

impl C {
    /// Standard C for a target without vectors.
    pub(super) fn new(t: &Target) -> C {
        let spelling = if t.caps.lanes > 1 { &GNU } else { &STANDARD };
        C { vectors: BTreeSet::new(), masked: BTreeSet::new(), spelling }
    }

    /// The name of the vector type of `lanes` values of a dtype, which is recorded as in use.
    pub(super) fn vec(&mut self, dt: DType, lanes: usize) -> String {
        let dt = element(dt);
        self.vectors.insert((dt, lanes));
        format!("{}x{lanes}", dt.name())
    }

    /// A launch scalar.
    pub(super) fn launch_scalar(&self, dt: DType, i: usize) -> String {
        if dt == DType::F32 { format!("gl_f32_bits(vars[{i}])") } else { format!("((i32)vars[{i}])") }
    }

    /// Declarations of the vector types, and the functions that load under a mask.
    pub(super) fn types(&self) -> Vec<String> {
        let loads = self.masked.iter().map(|&(dt, n)| masked::load(dt, n));
        self.vectors.iter().map(|&(dt, n)| declaration(dt, n)).chain(loads).collect()
    }

    /// Converts a comparison of vectors with elements of `from` to an i32 mask.
    pub(super) fn mask(&mut self, e: &str, from: DType, lanes: usize) -> String {
        let to = self.vec(DType::I32, lanes);
        if element(from).size() == 4 { format!("({to})({e})") } else { format!("__builtin_convertvector({e}, {to})") }
    }
}

/// The declaration of a vector type, guarded, so that it may be repeated in a unit.
pub(super) fn declaration(dt: DType, n: usize) -> String {
    let (e, v, bytes) = (dt.name(), format!("{}x{n}", dt.name()), dt.size() * n);
    let xs = vec!["x"; n].join(", ");
    format!(
        "#ifndef GL_{v}\n#define GL_{v}\n\
         typedef {e} {v} __attribute__((vector_size({bytes})));\n\
         typedef {e} {v}u __attribute__((vector_size({bytes}), aligned({}), may_alias));\n\
         static inline {v} gl_splat_{v}({e} x) {{ return ({v}){{{xs}}}; }}\n#endif\n",
        dt.size()
    )
}

fn index(at: &At) -> String {
    match at.plus {
        0 => at.base.clone(),
        c if at.base == "0" => c.to_string(),
        c => format!("{} + {c}", at.base),
    }
}

impl Dialect for C {
    fn vector(&self, _dt: DType, lanes: usize) -> bool {
        self.spelling.wraps && lanes.is_power_of_two() && (2..=64).contains(&lanes)
    }

    fn ty(&mut self, dt: DType, lanes: usize) -> String {
        if lanes == 1 { memory_type(dt).to_string() } else { self.vec(dt, lanes) }
    }

    fn literal(&mut self, v: Scalar, dt: DType) -> String {
        literal(self.spelling, v, dt)
    }

    fn splat(&mut self, x: &str, dt: DType, lanes: usize) -> String {
        let v = self.vec(dt, lanes);
        if dt == DType::Bool { format!("gl_splat_{v}(-(i32)({x}))") } else { format!("gl_splat_{v}({x})") }
    }

    fn pack(&mut self, xs: &[String], dt: DType) -> String {
        let v = self.vec(dt, xs.len());
        let xs: Vec<String> = match dt {
            DType::Bool => xs.iter().map(|x| format!("-(i32)({x})")).collect(),
            _ => xs.to_vec(),
        };
        format!("({v}){{{}}}", xs.join(", "))
    }

    fn lane(&mut self, x: &str, dt: DType, _lanes: usize, i: usize) -> String {
        if dt == DType::Bool { format!("((u8)({x}[{i}] & 1))") } else { format!("{x}[{i}]") }
    }

    fn alu(&mut self, a: Alu, x: &[String], lanes: usize) -> Result<Option<String>> {
        Ok(if lanes == 1 { scalar(self.spelling, a, x) } else { alu::vector(self, a, x, lanes) })
    }

    fn bind(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> Option<String> {
        Some(format!("const {} {name} = {expr};", self.ty(dt, lanes)))
    }

    fn variable(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> String {
        format!("{} {name} = {expr};", self.ty(dt, lanes))
    }

    fn loop_head(&mut self, name: &str, dt: DType, bound: &str) -> String {
        format!("for ({} {name} = 0; {name} < {bound}; {name}++) {{", dt.name())
    }

    fn load(&mut self, p: &Ptr, at: &At, lanes: usize) -> String {
        let i = index(at);
        if lanes == 1 {
            return format!("{}[{i}]", p.name);
        }
        if p.dt == DType::Bool {
            let (bytes, mask) = (self.vec(DType::U8, lanes), self.vec(DType::I32, lanes));
            return format!("-__builtin_convertvector(*(const {bytes}u*)({} + {i}), {mask})", p.name);
        }
        let v = self.vec(p.dt, lanes);
        format!("({v})*(const {v}u*)({} + {i})", p.name)
    }

    fn load_gated(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> String {
        format!("{gate} ? {} : {alt}", self.load(p, at, lanes))
    }

    fn load_masked(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> Option<String> {
        if element(p.dt) != p.dt || p.dt.size() != 4 || !masked::LANES.contains(&lanes) {
            return None;
        }
        self.masked.insert((p.dt, lanes));
        let v = self.vec(p.dt, lanes);
        Some(format!("gl_load_{v}({} + {}, {gate}, {alt})", p.name, index(at)))
    }

    fn store(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str) -> String {
        let i = index(at);
        if lanes == 1 {
            return format!("{}[{i}] = {value};", p.name);
        }
        if p.dt == DType::Bool {
            let bytes = self.vec(DType::U8, lanes);
            return format!("*({bytes}u*)({} + {i}) = __builtin_convertvector(-{value}, {bytes});", p.name);
        }
        let v = self.vec(p.dt, lanes);
        format!("*({v}u*)({} + {i}) = {value};", p.name)
    }

    fn barrier(&mut self, _pending: Option<u32>) -> Result<&'static str> {
        Err(Error::Unsupported { what: "barrier".into(), context: "c".into() })
    }
}
