//! The syntax of PTX for constants, memory accesses, loops and matrix tiles: the [`Dialect`] by which the shared
//! renderer prints it. Every method appends its instructions to the function and returns registers; a vector is a list
//! of registers.

use super::super::cstyle::{Alu, At, Copy, Dialect, Factors, Gate, Ptr};
use super::alu;
use super::func::{Class, Func, Space};
use crate::dtype::Scalar;
use crate::target::MatrixTile;
use crate::uop::mma::{self, Distribution, Side};
use crate::{DType, Error, Result};

/// The size K of one `wgmma` instruction: the number of terms that it sums.
const WGMMA_K: usize = 16;
/// The most bytes that one instruction loads or stores.
const MAX_ACCESS_BYTES: usize = 16;

/// The registers of a vector, or the register of a scalar.
pub(super) fn lanes_of(x: &str) -> Vec<String> {
    x.split(", ").map(String::from).collect()
}

/// The type suffix of `ld` and `st` for elements of this dtype.
fn memory_type(dt: DType) -> &'static str {
    match dt {
        DType::Bool | DType::U8 => "u8",
        DType::I8 => "s8",
        DType::I16 => "s16",
        DType::U16 => "u16",
        DType::F16 | DType::BF16 => "b16",
        DType::I32 => "s32",
        DType::U32 => "u32",
        DType::I64 => "s64",
        DType::U64 => "u64",
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::Void => "b8",
    }
}

/// The class of the register into which an element is loaded; bools are loaded as integers.
fn memory_class(dt: DType) -> Class {
    if dt == DType::Bool { Class::B32 } else { Class::of(dt) }
}

fn suffix(n: usize) -> String {
    if n == 1 { String::new() } else { format!(".v{n}") }
}

fn list(x: &[String]) -> String {
    if x.len() == 1 { x[0].clone() } else { format!("{{{}}}", x.join(", ")) }
}

impl Func {
    /// Loads elements into `registers` in their form in memory. Where the guard does not hold, the registers keep their
    /// values.
    fn load_elems(&mut self, p: &Ptr, at: &At, registers: &[String], guard: &str) {
        let size = p.dt.size();
        let elems_per_access = self.elems_per_access(p, registers.len());
        for (i, part) in registers.chunks(elems_per_access).enumerate() {
            let address = self.element(p, at, (i * elems_per_access) as i64, size);
            self.load_instruction(p, memory_type(p.dt), part, &address, guard);
        }
    }

    /// Prints one instruction that loads values of a type from an address.
    fn load_instruction(&mut self, p: &Ptr, ty: &str, registers: &[String], address: &str, guard: &str) {
        let space = match self.space(&p.name) {
            Space::Global { constant: true } => "global.nc",
            Space::Global { constant: false } => "global",
            Space::Shared => "shared",
            Space::Local => "local",
        };
        let op = format!("ld.{space}{}.{ty}", suffix(registers.len()));
        self.guarded(guard, &op, &list(registers), &[address]);
    }

    /// Number of elements that one instruction loads or stores.
    fn elems_per_access(&self, p: &Ptr, lanes: usize) -> usize {
        let whole = p.width == lanes;
        if whole { lanes.min(4).min(MAX_ACCESS_BYTES / p.dt.size()) } else { 1 }
    }

    /// The address of the element `i` elements after `at`.
    fn element(&mut self, p: &Ptr, at: &At, i: i64, size: usize) -> String {
        let wide = matches!(at.dt, DType::I64 | DType::U64);
        self.address(&p.name, &at.base, wide, size, (at.plus + i) * size as i64)
    }

    /// Converts an element from its form in memory to a value: a bool becomes a predicate.
    fn memory_to_value(&mut self, x: String, dt: DType) -> String {
        if dt == DType::Bool { self.op(Class::Pred, "setp.ne.s32", &[&x, "0"]) } else { x }
    }

    /// The 64-bit descriptor of a matrix in workgroup memory (PTX ISA, "Matrix descriptor"). It holds the start
    /// address, the distance from one panel to the next, and the distance from eight rows to the next eight (the period
    /// of the swizzle), all in units of 16 bytes, and the 128-byte swizzle mode, which is the order that
    /// [`mma::PANEL_ROW_ELEMS`] describes. Along the contiguous side the product takes at most one row of each panel,
    /// and panels follow each other. `further` is an offset in elements from the beginning of the matrix.
    fn descriptor(&mut self, (p, at): (&Ptr, &At), of: &Distribution, further: usize) -> String {
        const UNIT: usize = 16;
        const SWIZZLE_128: u64 = 1 << 62;
        let row = mma::PANEL_ROW_ELEMS * p.dt.size();
        let (panel, eight) = (of.panel as usize * row / UNIT, 8 * row / UNIT);
        let fixed = SWIZZLE_128 | (panel as u64 & 0x3fff) << 16 | (eight as u64) << 32;
        let address = self.element(p, at, further as i64, p.dt.size());
        let inner = address.trim_matches(['[', ']']);
        let (base, plus) = inner.split_once('+').unwrap_or((inner, "0"));
        let plus = plus.parse::<usize>().unwrap_or(0) / UNIT;
        let first = self.descriptor_register(base, fixed);
        if plus == 0 { first } else { self.op(Class::B64, "add.s64", &[&first, &plus.to_string()]) }
    }

    /// Stores `lanes` elements at `at`, where the guard holds.
    fn store_elems(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str, guard: &str) {
        let class = memory_class(p.dt);
        let mut values = Vec::new();
        for x in value.split(", ") {
            values.push(match p.dt {
                DType::Bool => self.op(Class::B32, "selp.b32", &["1", "0", x]),
                _ => self.register(x, class),
            });
        }
        let elems_per_access = self.elems_per_access(p, lanes);
        let space = match self.space(&p.name) {
            Space::Global { .. } => "global",
            Space::Shared => "shared",
            Space::Local => "local",
        };
        for (i, part) in values.chunks(elems_per_access).enumerate() {
            let address = self.element(p, at, (i * elems_per_access) as i64, p.dt.size());
            // stores have unsigned types only
            let ty = memory_type(p.dt).replace('s', "u");
            self.effect(guard, &format!("st.{space}{}.{ty}", suffix(part.len())), &[&address, &list(part)]);
        }
    }
}

impl Dialect for Func {
    fn vector(&self, _dt: DType, lanes: usize) -> bool {
        lanes > 1
    }

    fn ty(&mut self, _dt: DType, _lanes: usize) -> String {
        String::new()
    }

    fn literal(&mut self, v: Scalar, dt: DType) -> String {
        let f = v.as_f64();
        match dt {
            DType::Bool => self.constant_pred(v.as_bool()),
            DType::F16 => format!("{:#06x}", half::f16::from_f64(f).to_bits()),
            DType::BF16 => format!("{:#06x}", half::bf16::from_f64(f).to_bits()),
            DType::F32 => format!("0f{:08X}", (f as f32).to_bits()),
            DType::F64 => format!("0d{:016X}", f.to_bits()),
            DType::U64 => format!("{:#x}", v.as_i64() as u64),
            DType::I64 if v.as_i64() == i64::MIN => "0x8000000000000000".into(),
            _ => v.as_i64().to_string(),
        }
    }

    fn splat(&mut self, x: &str, _dt: DType, lanes: usize) -> String {
        vec![x; lanes].join(", ")
    }

    fn pack(&mut self, xs: &[String], _dt: DType) -> String {
        xs.join(", ")
    }

    fn lane(&mut self, x: &str, _dt: DType, _lanes: usize, i: usize) -> String {
        // a list of one register has the same value in all lanes
        x.split(", ").nth(i).unwrap_or(x).to_string()
    }

    fn alu(&mut self, a: Alu, x: &[String], lanes: usize) -> Result<Option<String>> {
        Ok(if lanes == 1 { alu::print(self, a, x) } else { None })
    }

    fn bind(&mut self, _name: &str, _dt: DType, _lanes: usize, _expr: &str) -> Option<String> {
        None
    }

    fn variable(&mut self, name: &str, dt: DType, _lanes: usize, expr: &str) -> String {
        self.declare(name, dt, expr);
        String::new()
    }

    fn get(&mut self, name: &str, _dt: DType, _lanes: usize) -> String {
        self.registers_of(name)
    }

    fn set(&mut self, name: &str, _dt: DType, _lanes: usize, expr: &str) -> String {
        self.assign(name, expr);
        String::new()
    }

    fn read(&mut self, x: &str) -> String {
        self.snapshot(x)
    }

    fn loop_head(&mut self, name: &str, dt: DType, bound: &str) -> String {
        self.open_loop(name, dt, bound);
        String::new()
    }

    fn close(&mut self) -> String {
        self.close_loop();
        String::new()
    }

    fn load(&mut self, p: &Ptr, at: &At, lanes: usize) -> String {
        let class = memory_class(p.dt);
        let registers: Vec<String> = (0..lanes).map(|_| self.fresh(class)).collect();
        self.load_elems(p, at, &registers, "");
        let all: Vec<String> = registers.into_iter().map(|r| self.memory_to_value(r, p.dt)).collect();
        all.join(", ")
    }

    fn loads_elements(&self, p: &Ptr, lanes: usize) -> bool {
        lanes != p.width
    }

    fn load_inside(&mut self, p: &Ptr, at: &At, last: usize) -> String {
        let (class, ty) = if at.dt == DType::I64 { (Class::B64, "64") } else { (Class::B32, "32") };
        let base = self.op(class, &format!("add.s{ty}"), &[&at.base, &at.plus.to_string()]);
        // a negative index is a large one as unsigned, so one minimum covers both ends
        let base = self.op(class, &format!("min.u{ty}"), &[&base, &last.to_string()]);
        self.load(p, &At { base, dt: at.dt, plus: 0 }, 1)
    }

    fn load_gated(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> String {
        let class = memory_class(p.dt);
        let mut registers = Vec::new();
        for x in alt.split(", ") {
            let r = self.fresh(class);
            match p.dt {
                DType::Bool => self.emit("selp.b32", &r, &["1", "0", x]),
                _ => self.emit(&format!("mov.{}", class.bits()), &r, &[x]),
            }
            registers.push(r);
        }
        debug_assert_eq!(registers.len(), lanes);
        self.load_elems(p, at, &registers, gate);
        let all: Vec<String> = registers.into_iter().map(|r| self.memory_to_value(r, p.dt)).collect();
        all.join(", ")
    }

    fn load_masked(&mut self, p: &Ptr, at: &At, lanes: usize, gate: &str, alt: &str) -> Option<String> {
        if lanes != p.width {
            return None;
        }
        // if one element of an aligned vector is inside the array, the whole vector is
        let gates = lanes_of(gate);
        let mut any = gates[0].clone();
        for g in &gates[1..] {
            any = self.op(Class::Pred, "or.pred", &[&any, g]);
        }
        let x = self.load_gated(p, at, lanes, &any, alt);
        let mut out = Vec::new();
        for ((x, alt), gate) in x.split(", ").zip(alt.split(", ")).zip(&gates) {
            out.push(alu::select(self, p.dt, gate, x, alt));
        }
        Some(out.join(", "))
    }

    fn wants_vector_store(&self, dt: DType, n: usize) -> bool {
        n * dt.size() <= MAX_ACCESS_BYTES
    }

    fn store(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str) -> String {
        self.store_elems(p, at, lanes, value, "");
        String::new()
    }

    fn store_gated(&mut self, p: &Ptr, at: &At, lanes: usize, value: &str, gate: &str) -> String {
        self.store_elems(p, at, lanes, value, gate);
        String::new()
    }

    fn load_words(&mut self, p: &Ptr, at: &At, lanes: usize, gate: Option<Gate>, alt: u8) -> Result<String> {
        let registers: Vec<String> = (0..lanes).map(|_| self.fresh(Class::B32)).collect();
        let alt = u32::from_le_bytes([alt; 4]).to_string();
        let whole = lanes > 1 && p.width == 4 * lanes;
        let gates: Vec<String> = match gate {
            None => Vec::new(),
            Some(Gate::One(c)) => vec![c.to_string(); lanes],
            Some(Gate::Each(c)) => (0..lanes).map(|i| self.lane(c, DType::Bool, lanes, i)).collect(),
        };
        if !gates.is_empty() {
            registers.iter().for_each(|r| self.emit("mov.b32", r, &[&alt]));
        }
        if !whole {
            for (i, r) in registers.iter().enumerate() {
                let address = self.element(p, at, 4 * i as i64, 1);
                let guard = gates.get(i).map_or("", String::as_str);
                self.load_instruction(p, "u32", std::slice::from_ref(r), &address, guard);
            }
            return Ok(registers.join(", "));
        }
        let address = self.element(p, at, 0, 1);
        let Some(Gate::Each(_)) = gate else {
            self.load_instruction(p, "u32", &registers, &address, gates.first().map_or("", String::as_str));
            return Ok(registers.join(", "));
        };
        // if one word of an aligned group is inside the array, the whole group is
        let mut any = gates[0].clone();
        for g in &gates[1..] {
            any = self.op(Class::Pred, "or.pred", &[&any, g]);
        }
        self.load_instruction(p, "u32", &registers, &address, &any);
        let chosen = registers.iter().zip(&gates).map(|(r, g)| self.op(Class::B32, "selp.b32", &[r, &alt, g]));
        let chosen: Vec<String> = chosen.collect();
        Ok(chosen.join(", "))
    }

    fn dot(&mut self, acc: &str, a: &str, b: &str, lanes: usize) -> Result<String> {
        let mut out = Vec::new();
        for i in 0..lanes {
            let [c, x, y] = [acc, a, b].map(|v| self.lane(v, DType::U32, lanes, i));
            out.push(self.op(Class::B32, "dp4a.s32.s32", &[&x, &y, &c]));
        }
        Ok(out.join(", "))
    }

    fn shuffle(&mut self, x: &str, _dt: DType, _lanes: usize, bits: u8) -> Result<String> {
        let (bits, all) = (bits.to_string(), "0xffffffff");
        let mut out = Vec::new();
        for x in x.split(", ") {
            let swap = |w: &mut Func, class, x: &str| w.op(class, "shfl.sync.bfly.b32", &[x, &bits, "31", all]);
            out.push(match Class::named(x) {
                // a literal is the same in all threads
                None => x.to_string(),
                Some(class @ (Class::B32 | Class::F32)) => swap(self, class, x),
                Some(Class::Pred) => {
                    let n = self.op(Class::B32, "selp.b32", &["1", "0", x]);
                    let n = swap(self, Class::B32, &n);
                    self.op(Class::Pred, "setp.ne.s32", &[&n, "0"])
                }
                Some(Class::B16) => {
                    let n = self.op(Class::B32, "cvt.u32.u16", &[x]);
                    let n = swap(self, Class::B32, &n);
                    self.op(Class::B16, "cvt.u16.u32", &[&n])
                }
                Some(class @ (Class::B64 | Class::F64)) => {
                    let (low, high) = (self.fresh(Class::B32), self.fresh(Class::B32));
                    self.emit("mov.b64", &format!("{{{low}, {high}}}"), &[x]);
                    let (low, high) = (swap(self, Class::B32, &low), swap(self, Class::B32, &high));
                    self.op(class, "mov.b64", &[&format!("{{{low}, {high}}}")])
                }
            });
        }
        Ok(out.join(", "))
    }

    fn load_matrices(&mut self, p: &Ptr, at: &At, n: usize, transposed: bool) -> Result<Vec<String>> {
        let address = self.element(p, at, 0, p.dt.size());
        let registers: Vec<String> = (0..n).map(|_| self.fresh(Class::B32)).collect();
        let op = format!("ldmatrix.sync.aligned.m8n8.x{n}{}.shared.b16", if transposed { ".trans" } else { "" });
        self.emit(&op, &format!("{{{}}}", registers.join(", ")), &[&address]);
        Ok(registers.iter().flat_map(|r| self.halves(r)).collect())
    }

    fn copy(&mut self, c: &Copy<'_>, inside: Option<&str>, gate: Option<&str>) -> Result<String> {
        let [to, from] = [c.to, c.from].map(|(p, at)| self.element(p, at, 0, p.dt.size()));
        let bytes = c.bytes.to_string();
        let mut operands = vec![to, from, bytes.clone()];
        if let Some(p) = inside {
            // the number of bytes to read, all or none: the rest of the destination is filled with zeros
            operands.push(self.op(Class::B32, "selp.b32", &[&bytes, "0", p]));
        }
        let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
        // copies of 16 bytes bypass the L1 cache (`.cg`); smaller ones must go through it (`.ca`)
        let op = if c.bytes == 16 { "cp.async.cg.shared.global" } else { "cp.async.ca.shared.global" };
        self.effect(gate.unwrap_or(""), op, &operands);
        Ok(String::new())
    }

    fn barrier(&mut self, pending: Option<u32>) -> Result<&'static str> {
        if self.wait_at_barrier(pending) {
            return Ok("");
        }
        if let Some(n) = pending {
            self.effect("", "cp.async.commit_group", &[]);
            self.effect("", "cp.async.wait_group", &[&n.to_string()]);
        }
        if self.products.is_some() {
            self.commit_products();
            if self.multiplies() {
                // products of the previous iteration may still run, because the copies of this one do not overwrite
                // their factors
                self.wait_for_products(usize::from(pending.is_some()));
            }
            // the matrix unit reads what threads and copies wrote by another path (async proxy), which needs a fence
            self.effect("", "fence.proxy.async.shared::cta", &[]);
        }
        self.effect("", "bar.sync", &["0"]);
        Ok("")
    }

    fn begin_skip_if(&mut self, c: &str, when: bool) -> Option<usize> {
        let c = if when { c.to_string() } else { self.op(Class::Pred, "not.pred", &[c]) };
        Some(self.jump_if(&c))
    }

    fn end_skip(&mut self, begun: usize) {
        self.close_skip(begun);
    }

    fn unset(&mut self, name: &str, dt: DType) -> String {
        self.declare_unset(name, dt);
        String::new()
    }

    fn mma_in_memory(&mut self, tile: &MatrixTile, sums: &[String], of: Factors<'_>) -> Result<String> {
        let [m, n, k] = tile.sides();
        let from = tile.factors.name();
        let known = matches!(tile.factors, DType::F16 | DType::BF16) && tile.sums == DType::F32 && m == 64;
        if !known || !n.is_multiple_of(8) || n > 256 || !k.is_multiple_of(WGMMA_K) {
            let what = format!("a matrix tile of {m} by {n} by {k}, {from} in workgroup memory");
            return Err(Error::Unsupported { what, context: "ptx".into() });
        }
        let halves: Vec<String> = of.a_registers.iter().map(|x| self.register(x, Class::B16)).collect();
        let held: Vec<String> = halves.chunks(2).map(|p| self.pair(&p[0], p.last().unwrap_or(&p[0]))).collect();
        let layout = &tile.layout;
        let step = |s: &Distribution, i: usize| {
            let at = i * WGMMA_K;
            if s.contiguous_side() == Some(Side::K) { s.linear_offset(at, 0) } else { s.linear_offset(0, at) }
        };
        // all descriptors are computed before the first product is started
        let mut descriptors = Vec::new();
        for i in 0..k / WGMMA_K {
            let a = match of.a {
                Some(address) => self.descriptor(address, &layout.a, step(&layout.a, i)),
                None => {
                    let per = held.len() * WGMMA_K / k;
                    format!("{{{}}}", held[i * per..(i + 1) * per].join(", "))
                }
            };
            descriptors.push([a, self.descriptor(of.b, &layout.b, step(&layout.b, i))]);
        }
        let c: Vec<String> = sums.iter().map(|name| self.registers_of(name)).collect();
        self.begin_product(&c, &held);
        let [adds, fresh] = [true, false].map(|v| self.constant_pred(v));
        let transposed = |s: &Distribution| if s.contiguous_side() == Some(Side::K) { "0" } else { "1" };
        let op = format!("wgmma.mma_async.sync.aligned.m{m}n{n}k{WGMMA_K}.f32.{from}.{from}");
        let sums = format!("{{{}}}", c.join(", "));
        for (i, [a, b]) in descriptors.iter().enumerate() {
            let scale = if of.fresh && i == 0 { &fresh } else { &adds };
            let mut operands = vec![sums.as_str(), a, b, scale, "1", "1"];
            operands.extend(of.a.map(|_| transposed(&layout.a)));
            operands.push(transposed(&layout.b));
            self.effect("", &op, &operands);
        }
        if of.fresh || of.a.is_none() {
            self.commit_products();
        }
        Ok(String::new())
    }

    fn mma(&mut self, tile: &MatrixTile, sums: &[String], a: &[String], b: &[String]) -> Result<String> {
        let name = |dt: DType| if dt == DType::F64 { "f64" } else { dt.name() };
        let (from, to) = (name(tile.factors), name(tile.sums));
        let [m, n, k] = tile.sides();
        let known = match [tile.factors, tile.sums] {
            [DType::F16 | DType::BF16, DType::F32] => matches!([m, n, k], [16, 8, 16] | [16, 8, 8]),
            [DType::F64, DType::F64] => [m, n, k] == [8, 8, 4],
            _ => false,
        };
        if !known {
            let what = format!("a matrix tile of {m} by {n} by {k}, {from} to {to}");
            return Err(Error::Unsupported { what, context: "ptx".into() });
        }
        let mut words = |x: &[String]| -> Vec<String> {
            if tile.factors == DType::F64 {
                return x.iter().map(|x| self.register(x, Class::F64)).collect();
            }
            let x: Vec<String> = x.iter().map(|x| self.register(x, Class::B16)).collect();
            x.chunks(2).map(|p| self.pair(&p[0], p.last().unwrap_or(&p[0]))).collect()
        };
        let (a, b) = (words(a), words(b));
        let c: Vec<String> = sums.iter().map(|name| self.registers_of(name)).collect();
        let braces = |x: &[String]| format!("{{{}}}", x.join(", "));
        let op = format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{to}.{from}.{from}.{to}");
        self.emit(&op, &braces(&c), &[&braces(&a), &braces(&b), &braces(&c)]);
        Ok(String::new())
    }
}
