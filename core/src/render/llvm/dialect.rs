//! The syntax of LLVM IR for types, constants, memory accesses and loops: the [`Dialect`] by which the shared renderer
//! prints it. Every method appends its instructions to the function and returns an operand.

use super::super::cstyle::{Alu, At, Dialect, Ptr};
use super::alu;
use crate::dtype::Scalar;
use crate::{DType, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Bytes of the constant zeros that a load reads where its gate is false: as many as the widest vector has.
const GATED_LOAD_BYTES: usize = 64 * 8;

/// The function under construction.
#[derive(Default)]
pub(super) struct Llvm {
    /// The instructions that allocate stack slots, at the function's entry.
    slots: String,
    /// All later instructions.
    body: String,
    /// The stack slot of each variable; a name that is declared again refers to the latest declaration.
    variables: BTreeMap<String, String>,
    declarations: BTreeSet<String>,
    /// Open loops: label number, stack slot of the counter, type of the counter.
    loops: Vec<(usize, String, &'static str)>,
    count: usize,
}

/// The type of one value.
pub(super) fn scalar_type(dt: DType) -> &'static str {
    match dt {
        DType::Bool => "i1",
        DType::I8 | DType::U8 => "i8",
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => "i16",
        DType::I32 | DType::U32 => "i32",
        DType::I64 | DType::U64 => "i64",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::Void => "void",
    }
}

/// The type of one element in memory.
fn memory_type(dt: DType) -> &'static str {
    if dt == DType::Bool { "i8" } else { scalar_type(dt) }
}

/// The type of `lanes` values of a scalar type.
pub(super) fn wide(scalar: &str, lanes: usize) -> String {
    if lanes == 1 { scalar.to_string() } else { format!("<{lanes} x {scalar}>") }
}

/// The type of a value.
pub(super) fn value_type(dt: DType, lanes: usize) -> String {
    wide(scalar_type(dt), lanes)
}

/// A type as it is written in the name of an intrinsic, such as `v8f32`.
pub(super) fn mangled(scalar: &str, lanes: usize) -> String {
    let s = match scalar {
        "float" => "f32",
        "double" => "f64",
        "half" => "f16",
        int => int,
    };
    if lanes == 1 { s.to_string() } else { format!("v{lanes}{s}") }
}

/// Is the operand a literal?
fn constant(x: &str) -> bool {
    !x.starts_with('%')
}

/// A vector constant with these elements of a scalar type.
pub(super) fn constants(scalar: &str, xs: &[String]) -> String {
    let xs: Vec<String> = xs.iter().map(|x| format!("{scalar} {x}")).collect();
    format!("<{}>", xs.join(", "))
}

/// A constant with the same element in all lanes.
pub(super) fn constant_splat(scalar: &str, x: &str, lanes: usize) -> String {
    if lanes == 1 { x.to_string() } else { constants(scalar, &vec![x.to_string(); lanes]) }
}

impl Llvm {
    /// Appends `%tN = instruction` and returns the operand `%tN`.
    pub(super) fn op(&mut self, instruction: std::fmt::Arguments<'_>) -> String {
        self.count += 1;
        let name = format!("%t{}", self.count);
        let _ = writeln!(self.body, "  {name} = {instruction}");
        name
    }

    /// Appends the call of an intrinsic, whose declaration is added to the module.
    pub(super) fn call(&mut self, result: &str, name: &str, args: &[(&str, &str)]) -> String {
        let types: Vec<&str> = args.iter().map(|a| a.0).collect();
        self.declarations.insert(format!("declare {result} @{name}({})", types.join(", ")));
        let args: Vec<String> = args.iter().map(|(t, x)| format!("{t} {x}")).collect();
        let args = args.join(", ");
        if result == "void" {
            let _ = writeln!(self.body, "  call void @{name}({args})");
            return String::new();
        }
        self.op(format_args!("call {result} @{name}({args})"))
    }

    /// Declares the pointer of a buffer.
    pub(super) fn parameter(&mut self, slot: usize) {
        let at = self.op(format_args!("getelementptr ptr, ptr %bufs, i64 {slot}"));
        let _ = writeln!(self.body, "  %b{slot} = load ptr, ptr {at}, align 8");
    }

    /// Declares the pointer of an array that begins `at` bytes into the scratch memory.
    pub(super) fn scratch(&mut self, id: u32, at: usize) {
        let _ = writeln!(self.body, "  %s{id} = getelementptr i8, ptr %scratch, i64 {at}");
    }

    /// A launch scalar.
    pub(super) fn launch_scalar(&mut self, dt: DType, i: usize) -> String {
        let at = self.op(format_args!("getelementptr i32, ptr %vars, i64 {i}"));
        self.op(format_args!("load {}, ptr {at}, align 4", scalar_type(dt)))
    }

    /// Opens the loop over the slice of the grid, and returns the operand of its index.
    pub(super) fn grid_loop(&mut self) -> String {
        self.open("g", "i32", "%lo", "%hi", "ult");
        self.get("g", DType::I32, 1)
    }

    fn open(&mut self, name: &str, ty: &'static str, from: &str, to: &str, less: &str) {
        self.count += 1;
        let n = self.count;
        let slot = format!("%{name}.{n}");
        let _ = writeln!(self.slots, "  {slot} = alloca {ty}");
        let _ = writeln!(self.body, "  store {ty} {from}, ptr {slot}\n  br label %head{n}\nhead{n}:");
        self.variables.insert(name.to_string(), slot.clone());
        let i = self.op(format_args!("load {ty}, ptr {slot}"));
        let more = self.op(format_args!("icmp {less} {ty} {i}, {to}"));
        let _ = writeln!(self.body, "  br i1 {more}, label %body{n}, label %end{n}\nbody{n}:");
        self.loops.push((n, slot, ty));
    }

    /// The address of an element.
    fn address(&mut self, p: &Ptr, at: &At) -> String {
        let element = memory_type(p.dt);
        let mut address = p.name.clone();
        let mut plus = at.plus;
        if let Ok(c) = at.base.parse::<i64>() {
            plus += c;
        } else {
            let offset = match at.dt {
                DType::I64 | DType::U64 => at.base.clone(),
                dt if dt.is_unsigned() => self.op(format_args!("zext {} {} to i64", scalar_type(dt), at.base)),
                dt => self.op(format_args!("sext {} {} to i64", scalar_type(dt), at.base)),
            };
            address = self.op(format_args!("getelementptr {element}, ptr {address}, i64 {offset}"));
        }
        if plus != 0 {
            address = self.op(format_args!("getelementptr {element}, ptr {address}, i64 {plus}"));
        }
        address
    }

    /// Converts a value to its form in memory: a bool becomes a byte.
    fn value_to_memory(&mut self, x: &str, dt: DType, lanes: usize) -> String {
        if dt != DType::Bool {
            return x.to_string();
        }
        self.op(format_args!("zext {} {x} to {}", wide("i1", lanes), wide("i8", lanes)))
    }

    /// Converts an element from its form in memory to a value: the inverse of [`Llvm::value_to_memory`].
    fn memory_to_value(&mut self, x: String, dt: DType, lanes: usize) -> String {
        if dt != DType::Bool {
            return x;
        }
        self.op(format_args!("icmp ne {} {x}, {}", wide("i8", lanes), constant_splat("i8", "0", lanes)))
    }

    fn load_from(&mut self, address: &str, dt: DType, lanes: usize) -> String {
        let ty = wide(memory_type(dt), lanes);
        let x = self.op(format_args!("load {ty}, ptr {address}, align {}", dt.size()));
        self.memory_to_value(x, dt, lanes)
    }

    /// The text of the whole module.
    pub(super) fn module(&self, name: &str) -> String {
        let bytes = GATED_LOAD_BYTES;
        let mut out =
            format!("@gl.nothing = internal unnamed_addr constant [{bytes} x i8] zeroinitializer, align 64\n");
        for d in &self.declarations {
            let _ = writeln!(out, "{d}");
        }
        let _ = write!(
            out,
            "define void @{name}(ptr noalias readonly %bufs, ptr noalias readonly %vars, i32 %lo, i32 \
             %hi, ptr noalias %scratch) nounwind {{\n{}{}  ret void\n}}\n",
            self.slots, self.body
        );
        out
    }
}

impl Dialect for Llvm {
    fn vector(&self, _dt: DType, lanes: usize) -> bool {
        (2..=64).contains(&lanes)
    }

    fn ty(&mut self, dt: DType, lanes: usize) -> String {
        value_type(dt, lanes)
    }

    fn literal(&mut self, v: Scalar, dt: DType) -> String {
        let f = v.as_f64();
        match dt {
            DType::Bool => v.as_bool().to_string(),
            DType::F16 => (half::f16::from_f64(f).to_bits() as i16).to_string(),
            DType::BF16 => (half::bf16::from_f64(f).to_bits() as i16).to_string(),
            // LLVM writes a float constant as the bits of the double with the same value
            DType::F32 => format!("0x{:016X}", (f as f32 as f64).to_bits()),
            DType::F64 => format!("0x{:016X}", f.to_bits()),
            DType::I8 | DType::U8 => (v.as_i64() as i8).to_string(),
            DType::I16 | DType::U16 => (v.as_i64() as i16).to_string(),
            DType::I32 | DType::U32 => (v.as_i64() as i32).to_string(),
            _ => v.as_i64().to_string(),
        }
    }

    fn splat(&mut self, x: &str, dt: DType, lanes: usize) -> String {
        let scalar = scalar_type(dt);
        if constant(x) {
            return constant_splat(scalar, x, lanes);
        }
        let v = value_type(dt, lanes);
        let one = self.op(format_args!("insertelement {v} poison, {scalar} {x}, i64 0"));
        self.op(format_args!("shufflevector {v} {one}, {v} poison, {} zeroinitializer", wide("i32", lanes)))
    }

    fn pack(&mut self, xs: &[String], dt: DType) -> String {
        let scalar = scalar_type(dt);
        if xs.iter().all(|x| constant(x)) {
            return constants(scalar, xs);
        }
        let v = value_type(dt, xs.len());
        let mut all = "poison".to_string();
        for (i, x) in xs.iter().enumerate() {
            all = self.op(format_args!("insertelement {v} {all}, {scalar} {x}, i64 {i}"));
        }
        all
    }

    fn lane(&mut self, x: &str, dt: DType, lanes: usize, i: usize) -> String {
        self.op(format_args!("extractelement {} {x}, i64 {i}", value_type(dt, lanes)))
    }

    fn alu(&mut self, a: Alu, x: &[String], lanes: usize) -> Result<Option<String>> {
        Ok(alu::print(self, a, x, lanes))
    }

    fn bind(&mut self, _name: &str, _dt: DType, _lanes: usize, _expr: &str) -> Option<String> {
        None
    }

    fn variable(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> String {
        self.count += 1;
        let slot = format!("%{name}.{}", self.count);
        let ty = value_type(dt, lanes);
        let _ = writeln!(self.slots, "  {slot} = alloca {ty}");
        let _ = writeln!(self.body, "  store {ty} {expr}, ptr {slot}");
        self.variables.insert(name.to_string(), slot);
        String::new()
    }

    fn get(&mut self, name: &str, dt: DType, lanes: usize) -> String {
        let slot = self.variables.get(name).cloned().unwrap_or_default();
        self.op(format_args!("load {}, ptr {slot}", value_type(dt, lanes)))
    }

    fn set(&mut self, name: &str, dt: DType, lanes: usize, expr: &str) -> String {
        let slot = self.variables.get(name).cloned().unwrap_or_default();
        let _ = writeln!(self.body, "  store {} {expr}, ptr {slot}", value_type(dt, lanes));
        String::new()
    }

    fn loop_head(&mut self, name: &str, dt: DType, bound: &str) -> String {
        self.open(name, scalar_type(dt), "0", bound, "slt");
        String::new()
    }

    fn close(&mut self) -> String {
        if let Some((n, slot, ty)) = self.loops.pop() {
            let i = self.op(format_args!("load {ty}, ptr {slot}"));
            // the counter is below its bound, so the increment does not overflow; the slice of a grid is below 2^31
            let next = self.op(format_args!("add nuw nsw {ty} {i}, 1"));
            let _ = writeln!(self.body, "  store {ty} {next}, ptr {slot}\n  br label %head{n}\nend{n}:");
        }
        String::new()
    }

    fn load(&mut self, p: &Ptr, at: &At, lanes: usize) -> String {
        let address = self.address(p, at);
        self.load_from(&address, p.dt, lanes)
    }

    fn load_gated(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> String {
        let address = self.address(p, at);
        let address = self.op(format_args!("select i1 {gate}, ptr {address}, ptr @gl.nothing"));
        let x = self.load_from(&address, p.dt, lanes);
        let ty = value_type(p.dt, lanes);
        self.op(format_args!("select i1 {gate}, {ty} {x}, {ty} {alt}"))
    }

    fn load_masked(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> Option<String> {
        let address = self.address(p, at);
        let alt = self.value_to_memory(alt, p.dt, lanes);
        let (scalar, size) = (memory_type(p.dt), p.dt.size().to_string());
        let (ty, mask) = (wide(scalar, lanes), wide("i1", lanes));
        let name = format!("llvm.masked.load.{}.p0", mangled(scalar, lanes));
        let x = self.call(&ty, &name, &[("ptr", &address), ("i32", &size), (&mask, gate), (&ty, &alt)]);
        Some(self.memory_to_value(x, p.dt, lanes))
    }

    fn store(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str) -> String {
        let address = self.address(p, at);
        let x = self.value_to_memory(value, p.dt, lanes);
        let ty = wide(memory_type(p.dt), lanes);
        let _ = writeln!(self.body, "  store {ty} {x}, ptr {address}, align {}", p.dt.size());
        String::new()
    }

    fn store_gated(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str, gate: &str) -> String {
        self.count += 1;
        let n = self.count;
        let _ = writeln!(self.body, "  br i1 {gate}, label %then{n}, label %after{n}\nthen{n}:");
        self.store(p, at, lanes, value);
        let _ = writeln!(self.body, "  br label %after{n}\nafter{n}:");
        String::new()
    }

    fn store_masked(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str, gate: &str) -> Option<String> {
        let address = self.address(p, at);
        let x = self.value_to_memory(value, p.dt, lanes);
        let (scalar, size) = (memory_type(p.dt), p.dt.size().to_string());
        let (ty, mask) = (wide(scalar, lanes), wide("i1", lanes));
        let name = format!("llvm.masked.store.{}.p0", mangled(scalar, lanes));
        Some(self.call("void", &name, &[(&ty, &x), ("ptr", &address), ("i32", &size), (&mask, gate)]))
    }

    fn barrier(&mut self, _pending: Option<u32>) -> Result<&'static str> {
        Err(Error::Unsupported { what: "barrier".into(), context: "llvm".into() })
    }
}
