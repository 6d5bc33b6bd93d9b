//! How WGSL spells types, constants, memory and loops.

use super::super::cstyle::{Alu, At, Dialect, Ptr};
use super::alu;
use crate::dtype::Scalar;
use crate::{DType, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The language, and the helper functions that the shader needs so far.
#[derive(Default)]
pub(super) struct Wgsl {
    helpers: BTreeMap<String, String>,
    /// What the shader enables.
    pub(super) extensions: BTreeSet<&'static str>,
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

/// The type of one array element in memory: f16 may be stored where nothing is computed in it.
pub(super) fn element_type(dt: DType, width: usize) -> String {
    let ty = memory_type(dt, width);
    if dt == DType::F16 { ty.replace("f32", "f16") } else { ty }
}

/// A value from memory.
fn loaded(p: &Ptr, e: String, width: usize) -> String {
    if p.dt == DType::F16 { format!("{}({e})", memory_type(p.dt, width)) } else { e }
}

/// A value for memory.
fn stored(p: &Ptr, e: &str, width: usize) -> String {
    if p.dt == DType::F16 { format!("{}({e})", element_type(p.dt, width)) } else { e.to_string() }
}

pub(super) fn vector(dt: DType, lanes: usize) -> bool {
    matches!(lanes, 2 | 4) && !matches!(dt, DType::I64 | DType::U64)
}

impl Wgsl {
    /// Asks for a helper and returns its name.
    pub(super) fn need(&mut self, name: String, text: impl FnOnce(&mut Self) -> String) -> String {
        if !self.helpers.contains_key(&name) {
            self.helpers.insert(name.clone(), String::new());
            let text = text(self);
            self.helpers.insert(name.clone(), text);
        }
        name
    }

    /// Text of all helpers. WGSL functions may be used before they are declared.
    pub(super) fn helpers(&self) -> String {
        self.helpers.values().map(String::as_str).collect()
    }
}

fn index(p: &Ptr, at: &At) -> String {
    let base = match at.dt {
        DType::I64 | DType::U64 => format!("bitcast<i32>({}.x)", at.base),
        _ => at.base.clone(),
    };
    let e = match at.plus {
        c if at.base == "0i" => return (c / p.width as i64).to_string(),
        0 => base,
        c if c < 0 => format!("{base} - {}", -c),
        c => format!("{base} + {c}"),
    };
    match p.width {
        1 => e,
        2 => format!("({e}) >> 1u"),
        _ => format!("({e}) >> 2u"),
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
        let one = |at: &At, width| loaded(p, format!("{}[{}]", p.name, index(p, at)), width);
        if lanes == p.width {
            return one(at, lanes);
        }
        let xs: Vec<String> = (0..lanes as i64).map(|i| one(&at.plus(i), 1)).collect();
        self.pack(&xs, p.dt)
    }

    fn gathers(&self, p: &Ptr, lanes: usize) -> bool {
        lanes != p.width
    }

    fn load_gated(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> String {
        let safe = |plus: i64| {
            let i = index(p, &at.plus(plus));
            loaded(p, format!("{}[select(0, {i}, {gate})]", p.name), if lanes == p.width { lanes } else { 1 })
        };
        let x = if lanes == p.width {
            safe(0)
        } else {
            let xs: Vec<String> = (0..lanes as i64).map(safe).collect();
            self.pack(&xs, p.dt)
        };
        format!("select({alt}, {x}, {gate})")
    }

    fn load_masked(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> Option<String> {
        if lanes == p.width {
            // an aligned vector of which one element is inside the array is inside as a whole
            let x = loaded(p, format!("{}[select(0, {}, any({gate}))]", p.name, index(p, at)), lanes);
            return Some(format!("select({alt}, {x}, {gate})"));
        }
        let xs: Vec<String> = (0..lanes)
            .map(|i| {
                let at = index(p, &at.plus(i as i64));
                let gate = self.lane(gate, DType::Bool, lanes, i);
                loaded(p, format!("{}[select(0, {at}, {gate})]", p.name), 1)
            })
            .collect();
        Some(format!("select({alt}, {}, {gate})", self.pack(&xs, p.dt)))
    }

    fn store(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str) -> String {
        if lanes == p.width {
            return format!("{}[{}] = {};", p.name, index(p, at), stored(p, value, lanes));
        }
        let each: Vec<String> = (0..lanes)
            .map(|i| {
                let to = index(p, &at.plus(i as i64));
                let x = self.lane(value, p.dt, lanes, i);
                format!("{}[{to}] = {};", p.name, stored(p, &x, 1))
            })
            .collect();
        each.join(" ")
    }

    fn shuffle(&mut self, x: &str, bits: u8) -> Result<String> {
        self.extensions.insert("subgroups");
        Ok(format!("subgroupShuffleXor({x}, {bits}u)"))
    }

    fn barrier(&mut self) -> Result<&'static str> {
        Ok("workgroupBarrier();")
    }
}
