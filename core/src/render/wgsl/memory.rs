//! Memory accesses in WGSL, whose arrays hold either values or words of 32 bits with several 8- or 16-bit elements
//! each.
//!
//! An access to a whole vector reads or writes whole words: four 8-bit elements are one word, four 16-bit elements are
//! two. A single element is extracted from its word, or stored into it by two atomic operations (clear its bits, set
//! its bits), because other threads may store the other elements of the word at the same time.

use super::super::cstyle::{At, Gate, Memory, Ptr};
use super::dialect::{Wgsl, memory_type, scalar_type};
use crate::DType::{self, *};

/// Number of elements in a word of 32 bits; 1 for dtypes of at least 32 bits.
pub(super) fn per_word(dt: DType) -> usize {
    (4 / dt.size().max(1)).max(1)
}

/// The index expression of an element address.
pub(super) fn element(at: &At) -> String {
    let base = match at.dt {
        I64 | U64 => format!("bitcast<i32>({}.x)", at.base),
        _ => at.base.clone(),
    };
    match at.plus {
        c if at.base == "0i" => c.to_string(),
        0 => base,
        c if c < 0 => format!("{base} - {}", -c),
        c => format!("{base} + {c}"),
    }
}

/// The index of the array element, of `n` elements each, that contains element `i`; n is a power of two.
fn array_index(i: &str, n: usize) -> String {
    match (n, i.parse::<usize>()) {
        (1, _) => i.to_string(),
        (_, Ok(i)) => (i / n).to_string(),
        _ => format!("({i}) >> {}u", n.ilog2()),
    }
}

impl Wgsl {
    /// The type of an array element of a pointer.
    pub(super) fn element_type(&mut self, p: &Ptr) -> String {
        let words = |n: usize| if n <= 1 { "u32".to_string() } else { format!("vec{n}<u32>") };
        match p.memory {
            Memory::Elements if p.dt == F16 && self.f16_arrays => {
                self.extensions.insert("f16");
                memory_type(F16, p.width).replace("f32", "f16")
            }
            Memory::Elements => memory_type(p.dt, p.width),
            Memory::Words => words(p.width / per_word(p.dt)),
            Memory::Shared => "atomic<u32>".into(),
        }
    }

    /// Reads `lanes` elements at `at`: as one array element if that holds as many, else one by one. `guard` makes an
    /// index safe to access; it receives the index and, where elements are read one by one, the lane.
    pub(super) fn read(
        &mut self,
        p: &Ptr,
        at: &At,
        lanes: usize,
        guard: &dyn Fn(String, Option<usize>) -> String,
    ) -> String {
        if lanes == p.width {
            let i = guard(element(at), None);
            return self.load_array_element(p, &i);
        }
        let mut xs = Vec::new();
        for n in 0..lanes {
            let i = guard(element(&at.plus(n as i64)), Some(n).filter(|_| lanes > 1));
            xs.push(self.load_array_element(p, &i));
        }
        if lanes == 1 { xs.remove(0) } else { format!("{}({})", memory_type(p.dt, lanes), xs.join(", ")) }
    }

    /// The values of the array element that begins with element `i`; if it is a word that is read by element, the value
    /// of element `i`.
    fn load_array_element(&mut self, p: &Ptr, i: &str) -> String {
        let n = if p.memory == Memory::Elements { p.width } else { p.width.max(per_word(p.dt)) };
        let stored = format!("{}[{}]", p.name, array_index(i, n));
        match p.memory {
            Memory::Elements if p.dt == F16 && self.f16_arrays => format!("{}({stored})", memory_type(p.dt, p.width)),
            Memory::Elements => stored,
            _ if p.width > 1 => format!("{}({stored})", self.unpack(p.dt, p.width)),
            Memory::Words => format!("{}({stored}, {i})", self.extract(p.dt)),
            Memory::Shared => format!("{}(atomicLoad(&{stored}), {i})", self.extract(p.dt)),
        }
    }

    /// A statement that stores an array element, or one element of a word.
    pub(super) fn write(&mut self, p: &Ptr, i: &str, value: &str) -> String {
        match p.memory {
            Memory::Elements => {
                let f16 = p.dt == F16 && self.f16_arrays;
                let value = if f16 { format!("{}({value})", self.element_type(p)) } else { value.to_string() };
                format!("{}[{}] = {value};", p.name, array_index(i, p.width))
            }
            Memory::Words => {
                let word = self.pack_words(p.dt, p.width);
                format!("{}[{}] = {word}({value});", p.name, array_index(i, p.width))
            }
            Memory::Shared => {
                let (n, bits) = (per_word(p.dt), self.bits(p.dt, value));
                let (name, mask) = (&p.name, (1u64 << (32 / n)) - 1);
                format!(
                    "{{ let i = {i}; let s = (u32(i) & {}u) << {}u; let x = {bits} << s; \
                    atomicAnd(&{name}[i >> {}u], ~({mask}u << s)); atomicOr(&{name}[i >> {}u], x); }}",
                    n - 1,
                    (32 / n).ilog2(),
                    n.ilog2(),
                    n.ilog2()
                )
            }
        }
    }

    /// Reads `lanes` words of four bytes at `at`. Where the gate does not hold, a word has `alt` in each byte.
    pub(super) fn load_packed_words(&self, p: &Ptr, at: &At, lanes: usize, gate: Option<Gate>, alt: u8) -> String {
        let whole = p.width == lanes * 4;
        let read = |lane: usize| {
            let i = array_index(&element(&at.plus(lane as i64 * 4)), p.width.max(4));
            let i = match gate {
                None => i,
                Some(Gate::One(gate)) => format!("select(0, {i}, {gate})"),
                Some(Gate::Each(gate)) if whole => format!("select(0, {i}, any({gate}))"),
                Some(Gate::Each(gate)) => format!("select(0, {i}, {gate}.{})", ["x", "y", "z", "w"][lane]),
            };
            format!("{}[{i}]", p.name)
        };
        let ty = memory_type(U32, lanes);
        let x = match whole || lanes == 1 {
            true => read(0),
            false => format!("{ty}({})", (0..lanes).map(read).collect::<Vec<_>>().join(", ")),
        };
        match gate {
            Some(Gate::One(gate) | Gate::Each(gate)) => {
                format!("select({ty}({}u), {x}, {gate})", u32::from_le_bytes([alt; 4]))
            }
            None => x,
        }
    }

    /// The bits of a value in the low part of a word.
    fn bits(&mut self, dt: DType, x: &str) -> String {
        match dt {
            F16 => format!("{}({x})", self.f16_bits(1)),
            BF16 => format!("(bitcast<u32>({x}) >> 16u)"),
            _ => format!("(bitcast<u32>({x}) & {}u)", if dt.size() == 1 { 255 } else { 65535 }),
        }
    }

    /// The name of a function that extracts element `i` from its word.
    fn extract(&mut self, dt: DType) -> String {
        let name = format!("{}_at", dt.name());
        let ty = scalar_type(dt);
        let shift = match dt.size() {
            1 => "(u32(i) & 3u) << 3u",
            _ => "(u32(i) & 1u) << 4u",
        };
        let value = match dt {
            F16 => format!("unpack2x16float(w >> ({shift})).x"),
            BF16 => format!("bitcast<f32>((w >> ({shift})) << 16u)"),
            _ => format!("extractBits(bitcast<{ty}>(w), {shift}, {}u)", dt.bits()),
        };
        let text = format!("fn {}_at(w: u32, i: i32) -> {ty} {{\n  return {value};\n}}\n", dt.name());
        self.require_helper(name, |_| text)
    }

    /// The name of a function from words to all the values that they hold.
    fn unpack(&mut self, dt: DType, lanes: usize) -> String {
        let name = format!("{}_of_words_{lanes}", dt.name());
        let (from, ty) = (memory_type(U32, lanes / per_word(dt)), memory_type(dt, lanes));
        let int = memory_type(if dt.is_signed() { I32 } else { U32 }, lanes);
        let each = if lanes == per_word(dt) {
            format!("{int}(bitcast<{}>(w))", scalar_type(if dt.is_signed() { I32 } else { U32 }))
        } else {
            format!("bitcast<{int}>(w.xxyy)")
        };
        let up = match (dt.size(), lanes) {
            (1, _) => "(24u, 16u, 8u, 0u)",
            (_, 2) => "(16u, 0u)",
            _ => "(16u, 0u, 16u, 0u)",
        };
        let counts = memory_type(U32, lanes);
        let value = match (dt, lanes) {
            (F16, 2) => "unpack2x16float(w)".into(),
            (F16, _) => "vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y))".into(),
            (BF16, _) => format!("bitcast<{ty}>(({each} << {counts}{up}) & {int}(0xffff0000u))"),
            _ => format!("({each} << {counts}{up}) >> {counts}({}u)", 32 - dt.bits()),
        };
        let text = format!("fn {name}(w: {from}) -> {ty} {{\n  return {value};\n}}\n");
        self.require_helper(name, |_| text)
    }

    /// The name of a function from values to the words that hold them.
    fn pack_words(&mut self, dt: DType, lanes: usize) -> String {
        let name = format!("words_of_{}_{lanes}", dt.name());
        let (from, ty) = (memory_type(dt, lanes), memory_type(U32, lanes / per_word(dt)));
        let u = memory_type(U32, lanes);
        let value = match (dt, lanes) {
            (BF16, 2) => "(b.x >> 16u) | b.y".into(),
            (BF16, _) => "(b.xz >> vec2<u32>(16u)) | b.yw".into(),
            (I8 | U8, _) => "b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u)".into(),
            (_, 2) => "b.x | (b.y << 16u)".to_string(),
            _ => "b.xz | (b.yw << vec2<u32>(16u))".into(),
        };
        let mask = match dt {
            BF16 => "0xffff0000u",
            _ if dt.size() == 1 => "255u",
            _ => "65535u",
        };
        let bits = match dt {
            F16 => format!("  let b = {}(x);\n", self.f16_bits(lanes)),
            _ => format!("  let b = bitcast<{u}>(x) & {u}({mask});\n"),
        };
        let text = format!("fn {name}(x: {from}) -> {ty} {{\n{bits}  return {value};\n}}\n");
        self.require_helper(name, |_| text)
    }
}
