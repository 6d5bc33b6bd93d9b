//! The syntax of WGSL for types, constants, memory accesses and loops: the [`Dialect`] by which the shared renderer
//! prints it.

use super::super::cstyle::{Alu, At, Dialect, Gate, Ptr};
use super::{alu, memory};
use crate::dtype::Scalar;
use crate::util::sorted::SortedSet;
use crate::{DType, Result};

/// The dialect, with the helper functions and extensions that the shader needs so far.
#[derive(Default)]
pub(super) struct Wgsl {
    helpers: Vec<(String, String)>,
    /// The language extensions that the shader enables.
    pub(super) extensions: SortedSet<&'static str>,
    /// See [`crate::target::Target::f16_arrays`].
    pub(super) f16_arrays: bool,
}

/// The type that holds one value of `dt`.
pub(super) fn scalar_type(dt: DType) -> &'static str {
    match dt {
        DType::Bool => "bool",
        DType::I8 | DType::I16 | DType::I32 => "i32",
        DType::U8 | DType::U16 | DType::U32 => "u32",
        DType::I64 | DType::U64 => "vec2<u32>",
        _ => "f32",
    }
}

/// The type of one array element that holds `width` values.
pub(super) fn memory_type(dt: DType, width: usize) -> String {
    if width == 1 { scalar_type(dt).to_string() } else { format!("vec{width}<{}>", scalar_type(dt)) }
}

/// Are `lanes` values of `dt` a WGSL vector?
pub(super) fn vector(dt: DType, lanes: usize) -> bool {
    matches!(lanes, 2 | 4) && !matches!(dt, DType::I64 | DType::U64)
}

impl Wgsl {
    pub(super) fn new(f16_arrays: bool) -> Wgsl {
        Wgsl { f16_arrays, ..Wgsl::default() }
    }

    /// Adds a helper function, whose text is made if it is new, and returns its name.
    pub(super) fn require_helper(&mut self, name: String, text: impl FnOnce(&mut Self) -> String) -> String {
        if self.helpers.iter().all(|h| h.0 != name) {
            let at = self.helpers.len();
            self.helpers.push((name.clone(), String::new()));
            self.helpers[at].1 = text(self);
        }
        name
    }

    /// The text of all helpers. Their order does not matter, since WGSL functions may be used before they are declared.
    pub(super) fn helpers(&self) -> String {
        self.helpers.iter().map(|h| h.1.as_str()).collect()
    }
}

impl Dialect for Wgsl {
    fn vector(&self, dt: DType, lanes: usize) -> bool {
        vector(dt, lanes)
    }

    fn ty(&mut self, dt: DType, lanes: usize) -> String {
        memory_type(dt, lanes)
    }

    fn literal(&mut self, v: Scalar, dt: DType) -> String {
        match dt {
            DType::Bool => v.as_bool().to_string(),
            DType::I8 | DType::I16 | DType::I32 => match v.as_i64() {
                i if i == i32::MIN as i64 => "i32(-2147483648)".into(),
                i if i < 0 => format!("({i}i)"),
                i => format!("{i}i"),
            },
            DType::U8 | DType::U16 | DType::U32 => format!("{}u", v.as_i64() as u32),
            DType::I64 | DType::U64 => {
                let i = v.as_i64() as u64;
                format!("vec2<u32>({}u, {}u)", i as u32, i >> 32)
            }
            _ => self.float(v.as_f64() as f32),
        }
    }

    fn splat(&mut self, x: &str, dt: DType, lanes: usize) -> String {
        format!("{}({x})", memory_type(dt, lanes))
    }

    fn pack(&mut self, xs: &[String], dt: DType) -> String {
        format!("{}({})", memory_type(dt, xs.len()), xs.join(", "))
    }

    fn lane(&mut self, x: &str, _dt: DType, _lanes: usize, i: usize) -> String {
        format!("{x}.{}", ["x", "y", "z", "w"][i])
    }

    fn alu(&mut self, a: Alu, x: &[String], lanes: usize) -> Result<Option<String>> {
        alu::print(self, a, x, lanes).map(Some)
    }

    fn bind(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> Option<String> {
        Some(format!("let {name}: {} = {expr};", memory_type(dt, lanes)))
    }

    fn variable(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> String {
        format!("var {name}: {} = {expr};", memory_type(dt, lanes))
    }

    fn loop_head(&mut self, name: &str, dt: DType, bound: &str) -> String {
        let bound = if dt == DType::I64 { format!("bitcast<i32>({bound}.x)") } else { bound.to_string() };
        format!("for (var {name}: i32 = 0; {name} < {bound}; {name}++) {{")
    }

    fn load(&mut self, p: &Ptr, at: &At, lanes: usize) -> String {
        self.read(p, at, lanes, &|i, _| i)
    }

    fn loads_elements(&self, p: &Ptr, lanes: usize) -> bool {
        lanes != p.width
    }

    fn load_inside(&mut self, p: &Ptr, at: &At, last: usize) -> String {
        // a negative index is a large one as u32, so one comparison covers both ends; a literal is an i32 before that, since an
        // abstract number must keep its value
        self.read(p, at, 1, &|i, _| format!("i32(min(u32(i32({i})), {last}u))"))
    }

    fn load_gated(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> String {
        let x = self.read(p, at, lanes, &|i, _| format!("select(0, {i}, {gate})"));
        format!("select({alt}, {x}, {gate})")
    }

    fn load_masked(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> Option<String> {
        let parts: Vec<String> = (0..lanes).map(|i| self.lane(gate, DType::Bool, lanes, i)).collect();
        let x = self.read(p, at, lanes, &|i, lane| match lane {
            Some(n) => format!("select(0, {i}, {})", parts[n]),
            // if one element of an aligned vector is inside the array, the whole vector is
            None => format!("select(0, {i}, any({gate}))"),
        });
        Some(format!("select({alt}, {x}, {gate})"))
    }

    fn store(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str) -> String {
        if lanes == p.width {
            return self.write(p, &memory::element(at), value);
        }
        let each: Vec<String> = (0..lanes)
            .map(|i| {
                let x = self.lane(value, p.dt, lanes, i);
                self.write(p, &memory::element(&at.plus(i as i64)), &x)
            })
            .collect();
        each.join(" ")
    }

    fn load_words(&mut self, p: &Ptr, at: &At, lanes: usize, gate: Option<Gate>, alt: u8) -> Result<String> {
        Ok(self.load_packed_words(p, at, lanes, gate, alt))
    }

    fn dot(&mut self, acc: &str, a: &str, b: &str, lanes: usize) -> Result<String> {
        let one = |i: usize| {
            let part = |x: &str| if lanes == 1 { x.to_string() } else { format!("{x}.{}", ["x", "y", "z", "w"][i]) };
            format!("dot4I8Packed({}, {})", part(a), part(b))
        };
        let sums: Vec<String> = (0..lanes).map(one).collect();
        Ok(match lanes {
            1 => format!("{acc} + {}", sums[0]),
            _ => format!("{acc} + {}({})", memory_type(DType::I32, lanes), sums.join(", ")),
        })
    }

    fn shuffle(&mut self, x: &str, _dt: DType, _lanes: usize, bits: u8) -> Result<String> {
        self.extensions.insert("subgroups");
        Ok(format!("subgroupShuffleXor({x}, {bits}u)"))
    }

    fn barrier(&mut self, _pending: Option<u32>) -> Result<&'static str> {
        Ok("workgroupBarrier();")
    }
}
