//! How all of these kernel languages write types, vectors, loops and memory accesses.

use super::super::cstyle::{Alu, At, Dialect, Gate, Memory, Ptr, literal, memory_type, scalar};
use super::table::Table;
use crate::dtype::Scalar;
use crate::target::MatrixTile;
use crate::uop::Op;
use crate::{DType, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A language, and which of its declarations the kernel needs so far.
pub(super) struct GpuC {
    table: &'static Table,
    /// Vector types in use, as (dtype of elements, lanes).
    vectors: BTreeSet<(DType, usize)>,
    /// Vector types for which a select function is needed.
    selects: BTreeSet<(DType, usize)>,
    /// Functions that multiply matrix tiles, by name.
    tiles: BTreeMap<String, String>,
    /// The byte dot product function `gl_dot` is needed.
    dots: bool,
    /// Threads of a subgroup exchange values, so that the kernel needs a fixed subgroup size.
    pub(super) exchanges: bool,
}

const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// Do the languages have vectors of so many lanes?
pub(super) fn vector(lanes: usize) -> bool {
    matches!(lanes, 2 | 4)
}

/// The dtype of elements in memory and in vectors.
fn element(dt: DType) -> DType {
    match dt {
        DType::Bool => DType::U8,
        DType::F16 | DType::BF16 => DType::U16,
        _ => dt,
    }
}

/// The type of an array element of a pointer.
pub(super) fn element_type(d: &mut GpuC, p: &Ptr) -> String {
    let (dt, width) = if p.memory == Memory::Words { (DType::U32, p.width / 4) } else { (p.dt, p.width) };
    if width == 1 { memory_type(dt).to_string() } else { d.vec(dt, width) }
}

impl GpuC {
    pub(super) fn new(table: &'static Table) -> GpuC {
        GpuC {
            table,
            vectors: BTreeSet::new(),
            selects: BTreeSet::new(),
            tiles: BTreeMap::new(),
            dots: false,
            exchanges: false,
        }
    }

    fn vec(&mut self, dt: DType, lanes: usize) -> String {
        let dt = element(dt);
        self.vectors.insert((dt, lanes));
        format!("{}x{lanes}", dt.name())
    }

    /// The name of the function that selects between the lanes of two vectors by a vector of bytes.
    fn select(&mut self, dt: DType, lanes: usize) -> String {
        let (ty, _) = (self.vec(dt, lanes), self.vec(DType::U8, lanes));
        self.selects.insert((element(dt), lanes));
        format!("gl_select_{ty}")
    }

    /// Declarations of the vector types and their functions.
    pub(super) fn types(&self) -> String {
        let mut out = String::new();
        for &(dt, n) in &self.vectors {
            let (e, v) = (dt.name(), format!("{}x{n}", dt.name()));
            let text = (self.table.vector)(e, n, dt.size() * n);
            let _ = write!(out, "#ifndef GL_{v}\n#define GL_{v}\n{text}#endif\n");
        }
        for &(dt, n) in &self.selects {
            let v = format!("{}x{n}", dt.name());
            let lanes: Vec<String> = LANES[..n].iter().map(|l| format!("m.{l} ? x.{l} : y.{l}")).collect();
            let value = (self.table.pack)(&v, &lanes.join(", "));
            let _ = write!(
                out,
                "#ifndef GL_SELECT_{v}\n#define GL_SELECT_{v}\n\
                 GL_FN {v} gl_select_{v}(u8x{n} m, {v} x, {v} y) {{ return {value}; }}\n#endif\n",
            );
        }
        if let Some(text) = self.table.dot.filter(|_| self.dots) {
            let _ = write!(out, "#ifndef GL_DOT\n#define GL_DOT\n{text}#endif\n");
        }
        for (name, text) in &self.tiles {
            let _ = write!(out, "#ifndef GL_{name}\n#define GL_{name}\n{text}#endif\n");
        }
        out
    }

    /// The lvalue of the array element that begins with the element at `at`.
    fn lvalue(&self, p: &Ptr, at: &At) -> String {
        let i = match at.plus {
            0 => at.base.clone(),
            c if at.base == "0" => c.to_string(),
            c => format!("{} + {c}", at.base),
        };
        match (p.width, i.parse::<usize>()) {
            (1, _) => format!("{}[{i}]", p.name),
            (n, Ok(i)) => format!("{}[{}]", p.name, i / n),
            (n, _) => format!("{}[({i}) >> {}]", p.name, n.ilog2()),
        }
    }
}

impl Dialect for GpuC {
    fn vector(&self, _dt: DType, lanes: usize) -> bool {
        vector(lanes)
    }

    fn ty(&mut self, dt: DType, lanes: usize) -> String {
        match (dt, lanes) {
            (DType::Bool, 1) => "bool".into(),
            (_, 1) => memory_type(dt).to_string(),
            _ => self.vec(dt, lanes),
        }
    }

    fn literal(&mut self, v: Scalar, dt: DType) -> String {
        literal(&self.table.spelling, v, dt)
    }

    fn splat(&mut self, x: &str, dt: DType, lanes: usize) -> String {
        self.pack(&vec![x.to_string(); lanes], dt)
    }

    fn pack(&mut self, xs: &[String], dt: DType) -> String {
        let ty = self.vec(dt, xs.len());
        (self.table.pack)(&ty, &xs.join(", "))
    }

    fn lane(&mut self, x: &str, _dt: DType, _lanes: usize, i: usize) -> String {
        format!("{x}.{}", LANES[i])
    }

    fn alu(&mut self, a: Alu, x: &[String], lanes: usize) -> Result<Option<String>> {
        if lanes == 1 {
            return Ok(scalar(&self.table.spelling, a, x));
        }
        let whole = self.table.vector_floats && matches!(a.from, DType::F32 | DType::F64) && a.to == a.from;
        Ok(match a.op {
            Op::Where => Some(format!("{}({}, {}, {})", self.select(a.to, lanes), x[0], x[1], x[2])),
            Op::Neg if whole => Some(format!("-{}", x[0])),
            Op::Add if whole => Some(format!("{} + {}", x[0], x[1])),
            Op::Sub if whole => Some(format!("{} - {}", x[0], x[1])),
            Op::Mul if whole => Some(format!("{} * {}", x[0], x[1])),
            Op::Div if whole => Some(format!("{} / {}", x[0], x[1])),
            Op::MulAdd if whole => Some(format!("{} * {} + {}", x[0], x[1], x[2])),
            _ => None,
        })
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
        if lanes == p.width {
            return self.lvalue(p, at);
        }
        let xs: Vec<String> = (0..lanes as i64).map(|i| self.lvalue(p, &at.plus(i))).collect();
        self.pack(&xs, p.dt)
    }

    fn loads_elements(&self, p: &Ptr, lanes: usize) -> bool {
        lanes != p.width
    }

    fn load_inside(&mut self, p: &Ptr, at: &At, last: usize) -> String {
        // as an unsigned number a negative index is a large one
        let (signed, unsigned) = if at.dt == DType::I64 { ("i64", "u64") } else { ("i32", "u32") };
        let base = format!("({signed})({} + {})", at.base, at.plus);
        let inside = format!("(({unsigned}){base} < {last}U ? {base} : ({signed}){last})");
        self.lvalue(p, &At { base: inside, dt: at.dt, plus: 0 })
    }

    fn load_gated(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> String {
        format!("{gate} ? {} : {alt}", self.load(p, at, lanes))
    }

    fn load_masked(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> Option<String> {
        if lanes != p.width {
            return None;
        }
        // an aligned vector with one element inside the array lies inside as a whole
        let any: Vec<String> = LANES[..lanes].iter().map(|l| format!("{gate}.{l}")).collect();
        let x = format!("({} ? {} : {alt})", any.join(" | "), self.lvalue(p, at));
        Some(format!("{}({gate}, {x}, {alt})", self.select(p.dt, lanes)))
    }

    fn store(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str) -> String {
        if lanes == p.width {
            return format!("{} = {value};", self.lvalue(p, at));
        }
        let each: Vec<String> =
            (0..lanes).map(|i| format!("{} = {value}.{};", self.lvalue(p, &at.plus(i as i64)), LANES[i])).collect();
        each.join(" ")
    }

    fn load_words(&mut self, p: &Ptr, at: &At, lanes: usize, gate: Option<Gate>, alt: u8) -> Result<String> {
        let ty = DType::U32;
        let alt = format!("{}U", u32::from_le_bytes([alt; 4]));
        let one = |gate: Option<&str>, i: usize| {
            let word = self.lvalue(p, &at.plus(4 * i as i64));
            gate.map_or_else(|| word.clone(), |c| format!("({c} ? {word} : {alt})"))
        };
        if lanes == 1 {
            return Ok(match gate {
                Some(Gate::One(c) | Gate::Each(c)) => one(Some(c), 0),
                None => one(None, 0),
            });
        }
        if p.width != 4 * lanes {
            let each = |i: usize| match gate {
                Some(Gate::One(c)) => one(Some(c), i),
                Some(Gate::Each(c)) => one(Some(&format!("{c}.{}", LANES[i])), i),
                None => one(None, i),
            };
            let words: Vec<String> = (0..lanes).map(each).collect();
            return Ok(self.pack(&words, ty));
        }
        let (whole, alt) = (self.lvalue(p, at), self.splat(&alt, ty, lanes));
        Ok(match gate {
            None => whole,
            Some(Gate::One(c)) => format!("{c} ? {whole} : {alt}"),
            Some(Gate::Each(c)) => {
                // an aligned vector of words with one word inside the array lies inside as a whole
                let any: Vec<String> = LANES[..lanes].iter().map(|l| format!("{c}.{l}")).collect();
                let x = format!("({} ? {whole} : {alt})", any.join(" | "));
                format!("{}({c}, {x}, {alt})", self.select(ty, lanes))
            }
        })
    }

    fn dot(&mut self, acc: &str, a: &str, b: &str, lanes: usize) -> Result<String> {
        self.dots = true;
        if lanes == 1 {
            return Ok(format!("gl_dot({a}, {b}, {acc})"));
        }
        let one = |l: &&str| format!("gl_dot({a}.{l}, {b}.{l}, {acc}.{l})");
        let sums: Vec<String> = LANES[..lanes].iter().map(one).collect();
        Ok(self.pack(&sums, DType::I32))
    }

    fn shuffle(&mut self, x: &str, dt: DType, lanes: usize, bits: u8) -> Result<String> {
        self.exchanges = true;
        let none = || Error::Internal(format!("subgroups in {}", self.table.name));
        self.table.shuffle.map(|f| f(x, dt, lanes, bits)).ok_or_else(none)
    }

    fn mma(&mut self, tile: &MatrixTile, sums: &[String], a: &[String], b: &[String]) -> Result<String> {
        let [m, n, k] = tile.sides();
        let name = format!("mma_{m}x{n}x{k}_{}_{}", tile.factors, tile.sums);
        let none = || Error::Unsupported { what: format!("a matrix tile {name}"), context: self.table.name.into() };
        let text = (self.table.tile)(tile).ok_or_else(none)?.replace("gl_mma", &format!("gl_{name}"));
        let call = format!("gl_{name}({});", [sums, a, b].concat().join(", "));
        self.tiles.insert(name, text);
        Ok(call)
    }

    fn barrier(&mut self, _pending: Option<u32>) -> Result<&'static str> {
        Ok(self.table.barrier)
    }
}
