//! A disassembler for kernels: prints their instructions in WebAssembly's text format, indented. The opcode tables
//! follow the specification's binary format (section 5.4, and the SIMD and relaxed SIMD proposals). It covers only the
//! instructions that kernels may contain, so no exceptions, references or atomics. It serves debugging output and is
//! not needed to run a kernel.

use super::Kernel;
use std::fmt::Write as _;

/// Names of the instructions from opcode 0x45 on.
const NUMERIC: &str = "i32.eqz i32.eq i32.ne i32.lt_s i32.lt_u i32.gt_s i32.gt_u i32.le_s i32.le_u i32.ge_s i32.ge_u \
    i64.eqz i64.eq i64.ne i64.lt_s i64.lt_u i64.gt_s i64.gt_u i64.le_s i64.le_u i64.ge_s i64.ge_u \
    f32.eq f32.ne f32.lt f32.gt f32.le f32.ge f64.eq f64.ne f64.lt f64.gt f64.le f64.ge \
    i32.clz i32.ctz i32.popcnt i32.add i32.sub i32.mul i32.div_s i32.div_u i32.rem_s i32.rem_u i32.and i32.or i32.xor \
    i32.shl i32.shr_s i32.shr_u i32.rotl i32.rotr \
    i64.clz i64.ctz i64.popcnt i64.add i64.sub i64.mul i64.div_s i64.div_u i64.rem_s i64.rem_u i64.and i64.or i64.xor \
    i64.shl i64.shr_s i64.shr_u i64.rotl i64.rotr \
    f32.abs f32.neg f32.ceil f32.floor f32.trunc f32.nearest f32.sqrt f32.add f32.sub f32.mul f32.div f32.min f32.max \
    f32.copysign f64.abs f64.neg f64.ceil f64.floor f64.trunc f64.nearest f64.sqrt f64.add f64.sub f64.mul f64.div \
    f64.min f64.max f64.copysign i32.wrap_i64 i32.trunc_f32_s i32.trunc_f32_u i32.trunc_f64_s i32.trunc_f64_u \
    i64.extend_i32_s i64.extend_i32_u i64.trunc_f32_s i64.trunc_f32_u i64.trunc_f64_s i64.trunc_f64_u \
    f32.convert_i32_s f32.convert_i32_u f32.convert_i64_s f32.convert_i64_u f32.demote_f64 \
    f64.convert_i32_s f64.convert_i32_u f64.convert_i64_s f64.convert_i64_u f64.promote_f32 \
    i32.reinterpret_f32 i64.reinterpret_f64 f32.reinterpret_i32 f64.reinterpret_i64 \
    i32.extend8_s i32.extend16_s i64.extend8_s i64.extend16_s i64.extend32_s";

/// Names of the instructions from opcode 0x28 on, which have a memory operand.
const MEMORY: &str = "i32.load i64.load f32.load f64.load i32.load8_s i32.load8_u i32.load16_s i32.load16_u \
    i64.load8_s i64.load8_u i64.load16_s i64.load16_u i64.load32_s i64.load32_u i32.store i64.store f32.store f64.store \
    i32.store8 i32.store16 i64.store8 i64.store16 i64.store32";

/// Names of the instructions with the prefix byte 0xfc.
const SATURATING: &str = "i32.trunc_sat_f32_s i32.trunc_sat_f32_u i32.trunc_sat_f64_s i32.trunc_sat_f64_u \
    i64.trunc_sat_f32_s i64.trunc_sat_f32_u i64.trunc_sat_f64_s i64.trunc_sat_f64_u";

/// Names of the instructions with the prefix byte 0xfd; a dash stands for an unused opcode.
const VECTOR: &str = "v128.load v128.load8x8_s v128.load8x8_u v128.load16x4_s v128.load16x4_u v128.load32x2_s v128.load32x2_u \
    v128.load8_splat v128.load16_splat v128.load32_splat v128.load64_splat v128.store v128.const i8x16.shuffle i8x16.swizzle \
    i8x16.splat i16x8.splat i32x4.splat i64x2.splat f32x4.splat f64x2.splat \
    i8x16.extract_lane_s i8x16.extract_lane_u i8x16.replace_lane i16x8.extract_lane_s i16x8.extract_lane_u i16x8.replace_lane \
    i32x4.extract_lane i32x4.replace_lane i64x2.extract_lane i64x2.replace_lane f32x4.extract_lane f32x4.replace_lane \
    f64x2.extract_lane f64x2.replace_lane \
    i8x16.eq i8x16.ne i8x16.lt_s i8x16.lt_u i8x16.gt_s i8x16.gt_u i8x16.le_s i8x16.le_u i8x16.ge_s i8x16.ge_u \
    i16x8.eq i16x8.ne i16x8.lt_s i16x8.lt_u i16x8.gt_s i16x8.gt_u i16x8.le_s i16x8.le_u i16x8.ge_s i16x8.ge_u \
    i32x4.eq i32x4.ne i32x4.lt_s i32x4.lt_u i32x4.gt_s i32x4.gt_u i32x4.le_s i32x4.le_u i32x4.ge_s i32x4.ge_u \
    f32x4.eq f32x4.ne f32x4.lt f32x4.gt f32x4.le f32x4.ge f64x2.eq f64x2.ne f64x2.lt f64x2.gt f64x2.le f64x2.ge \
    v128.not v128.and v128.andnot v128.or v128.xor v128.bitselect v128.any_true \
    v128.load8_lane v128.load16_lane v128.load32_lane v128.load64_lane \
    v128.store8_lane v128.store16_lane v128.store32_lane v128.store64_lane v128.load32_zero v128.load64_zero \
    f32x4.demote_f64x2_zero f64x2.promote_low_f32x4 \
    i8x16.abs i8x16.neg i8x16.popcnt i8x16.all_true i8x16.bitmask i8x16.narrow_i16x8_s i8x16.narrow_i16x8_u \
    f32x4.ceil f32x4.floor f32x4.trunc f32x4.nearest i8x16.shl i8x16.shr_s i8x16.shr_u i8x16.add i8x16.add_sat_s \
    i8x16.add_sat_u i8x16.sub i8x16.sub_sat_s i8x16.sub_sat_u f64x2.ceil f64x2.floor i8x16.min_s i8x16.min_u i8x16.max_s \
    i8x16.max_u f64x2.trunc i8x16.avgr_u i16x8.extadd_pairwise_i8x16_s i16x8.extadd_pairwise_i8x16_u \
    i32x4.extadd_pairwise_i16x8_s i32x4.extadd_pairwise_i16x8_u \
    i16x8.abs i16x8.neg i16x8.q15mulr_sat_s i16x8.all_true i16x8.bitmask i16x8.narrow_i32x4_s i16x8.narrow_i32x4_u \
    i16x8.extend_low_i8x16_s i16x8.extend_high_i8x16_s i16x8.extend_low_i8x16_u i16x8.extend_high_i8x16_u \
    i16x8.shl i16x8.shr_s i16x8.shr_u i16x8.add i16x8.add_sat_s i16x8.add_sat_u i16x8.sub i16x8.sub_sat_s i16x8.sub_sat_u \
    f64x2.nearest i16x8.mul i16x8.min_s i16x8.min_u i16x8.max_s i16x8.max_u - i16x8.avgr_u \
    i16x8.extmul_low_i8x16_s i16x8.extmul_high_i8x16_s i16x8.extmul_low_i8x16_u i16x8.extmul_high_i8x16_u \
    i32x4.abs i32x4.neg - i32x4.all_true i32x4.bitmask - - \
    i32x4.extend_low_i16x8_s i32x4.extend_high_i16x8_s i32x4.extend_low_i16x8_u i32x4.extend_high_i16x8_u \
    i32x4.shl i32x4.shr_s i32x4.shr_u i32x4.add - - i32x4.sub - - - i32x4.mul i32x4.min_s i32x4.min_u i32x4.max_s i32x4.max_u \
    i32x4.dot_i16x8_s - i32x4.extmul_low_i16x8_s i32x4.extmul_high_i16x8_s i32x4.extmul_low_i16x8_u i32x4.extmul_high_i16x8_u \
    i64x2.abs i64x2.neg - i64x2.all_true i64x2.bitmask - - \
    i64x2.extend_low_i32x4_s i64x2.extend_high_i32x4_s i64x2.extend_low_i32x4_u i64x2.extend_high_i32x4_u \
    i64x2.shl i64x2.shr_s i64x2.shr_u i64x2.add - - i64x2.sub - - - i64x2.mul i64x2.eq i64x2.ne i64x2.lt_s i64x2.gt_s \
    i64x2.le_s i64x2.ge_s i64x2.extmul_low_i32x4_s i64x2.extmul_high_i32x4_s i64x2.extmul_low_i32x4_u \
    i64x2.extmul_high_i32x4_u \
    f32x4.abs f32x4.neg - f32x4.sqrt f32x4.add f32x4.sub f32x4.mul f32x4.div f32x4.min f32x4.max f32x4.pmin f32x4.pmax \
    f64x2.abs f64x2.neg - f64x2.sqrt f64x2.add f64x2.sub f64x2.mul f64x2.div f64x2.min f64x2.max f64x2.pmin f64x2.pmax \
    i32x4.trunc_sat_f32x4_s i32x4.trunc_sat_f32x4_u f32x4.convert_i32x4_s f32x4.convert_i32x4_u \
    i32x4.trunc_sat_f64x2_s_zero i32x4.trunc_sat_f64x2_u_zero f64x2.convert_low_i32x4_s f64x2.convert_low_i32x4_u \
    i8x16.relaxed_swizzle i32x4.relaxed_trunc_f32x4_s i32x4.relaxed_trunc_f32x4_u i32x4.relaxed_trunc_f64x2_s_zero \
    i32x4.relaxed_trunc_f64x2_u_zero f32x4.relaxed_madd f32x4.relaxed_nmadd f64x2.relaxed_madd f64x2.relaxed_nmadd \
    i8x16.relaxed_laneselect i16x8.relaxed_laneselect i32x4.relaxed_laneselect i64x2.relaxed_laneselect \
    f32x4.relaxed_min f32x4.relaxed_max f64x2.relaxed_min f64x2.relaxed_max i16x8.relaxed_q15mulr_s \
    i16x8.relaxed_dot_i8x16_i7x16_s i32x4.relaxed_dot_i8x16_i7x16_add_s";

/// The instructions of a [`Kernel`] that is given as bytes, one per line. Printing ends at an unknown instruction, with
/// a note of how many bytes are left.
pub fn instructions(code: &[u8]) -> String {
    let mut out = String::new();
    let mut r = Reader(code);
    let done = r.skip(Kernel::HEAD).and_then(|()| r.locals(&mut out)).and_then(|()| {
        let mut depth = 1;
        while depth > 0 && !r.0.is_empty() {
            let at = code.len() - r.0.len();
            let line = r.instruction()?;
            let ends = matches!(code[at], 0x05 | 0x0b);
            depth -= usize::from(ends);
            let _ = writeln!(out, "{:1$}{line}", "", 2 * depth);
            depth += usize::from(matches!(code[at], 0x02..=0x05));
        }
        Some(())
    });
    if done.is_none() {
        let _ = writeln!(out, ";; {} bytes that are not shown", r.0.len());
    }
    out
}

fn name_of(names: &'static str, number: u32) -> Option<&'static str> {
    names.split_ascii_whitespace().nth(number as usize).filter(|&name| name != "-")
}

/// The float with these bits in hexadecimal notation, such as `-0x1.8p+3`, which is exact and simple to produce.
fn float(bits: u64, exponent_bits: u32, fraction_bits: u32) -> String {
    let (most, bias) = ((1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1);
    let exponent = (bits >> fraction_bits) as i64 & most;
    let fraction = bits & ((1 << fraction_bits) - 1);
    let sign = if bits >> (fraction_bits + exponent_bits) & 1 == 1 { "-" } else { "" };
    if exponent == most {
        return if fraction == 0 { format!("{sign}inf") } else { format!("{sign}nan:{fraction:#x}") };
    }
    // the fraction in hexadecimal digits, without trailing zeros
    let digits = fraction_bits.div_ceil(4) as usize;
    let text = format!("{:01$x}", fraction << (4 * digits as u32 - fraction_bits), digits);
    let text = text.trim_end_matches('0');
    let (first, power) = match (exponent, fraction) {
        (0, 0) => return format!("{sign}0x0p+0"),
        (0, _) => (0, 1 - bias),
        _ => (1, exponent - bias),
    };
    let point = if text.is_empty() { "" } else { "." };
    format!("{sign}0x{first}{point}{text}p{power:+}")
}

fn type_of(byte: u8) -> Option<&'static str> {
    Some(match byte {
        0x7f => "i32",
        0x7e => "i64",
        0x7d => "f32",
        0x7c => "f64",
        0x7b => "v128",
        _ => return None,
    })
}

/// Reads from the front of a byte slice. Methods return `None` at its end, or on bytes that no kernel contains.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn skip(&mut self, n: usize) -> Option<()> {
        self.0 = self.0.get(n..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A LEB128 number, and the number of bits of its encoding.
    fn bits(&mut self) -> Option<(u64, u32)> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some((value, shift));
            }
        }
    }

    fn number(&mut self) -> Option<u32> {
        u32::try_from(self.bits()?.0).ok()
    }

    fn signed(&mut self) -> Option<i64> {
        let (value, bits) = self.bits()?;
        let unused = 64u32.saturating_sub(bits);
        Some((value << unused) as i64 >> unused)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn locals(&mut self, out: &mut String) -> Option<()> {
        for _ in 0..self.number()? {
            let (n, ty) = (self.number()?, self.byte()?);
            let _ = writeln!(out, "(local {} x {n})", type_of(ty)?);
        }
        Some(())
    }

    /// Reads a memory operand and prints it: `name offset=8`.
    fn memory(&mut self, name: &str) -> Option<String> {
        self.number()?; // the alignment is only a hint and is not printed
        Some(match self.number()? {
            0 => name.to_string(),
            offset => format!("{name} offset={offset}"),
        })
    }

    fn instruction(&mut self) -> Option<String> {
        let op = self.byte()?;
        Some(match op {
            0x00 => "unreachable".into(),
            0x01 => "nop".into(),
            0x02..=0x04 => {
                let name = ["block", "loop", "if"][usize::from(op - 2)];
                match self.byte()? {
                    0x40 => name.into(),
                    ty => format!("{name} (result {})", type_of(ty)?),
                }
            }
            0x05 => "else".into(),
            0x0b => "end".into(),
            0x0c => format!("br {}", self.number()?),
            0x0d => format!("br_if {}", self.number()?),
            0x0f => "return".into(),
            0x10 => format!("call {}", self.number()?),
            0x1a => "drop".into(),
            0x1b => "select".into(),
            0x20..=0x24 => {
                let name = ["local.get", "local.set", "local.tee", "global.get", "global.set"][usize::from(op - 0x20)];
                format!("{name} {}", self.number()?)
            }
            0x28..=0x3e => self.memory(name_of(MEMORY, u32::from(op - 0x28))?)?,
            0x41 => format!("i32.const {}", self.signed()?),
            0x42 => format!("i64.const {}", self.signed()?),
            0x43 => format!("f32.const {}", float(u64::from(u32::from_le_bytes(self.array()?)), 8, 23)),
            0x44 => format!("f64.const {}", float(u64::from_le_bytes(self.array()?), 11, 52)),
            0x45..=0xc4 => name_of(NUMERIC, u32::from(op - 0x45))?.into(),
            0xfc => self.bulk()?,
            0xfd => self.vector()?,
            _ => return None,
        })
    }

    fn bulk(&mut self) -> Option<String> {
        match self.number()? {
            10 => self.skip(2).map(|()| "memory.copy".into()),
            11 => self.skip(1).map(|()| "memory.fill".into()),
            op => name_of(SATURATING, op).map(Into::into),
        }
    }

    fn vector(&mut self) -> Option<String> {
        let op = self.number()?;
        let name = name_of(VECTOR, op)?;
        Some(match op {
            0..=0x0b | 0x5c | 0x5d => self.memory(name)?,
            0x0c => {
                let bytes: [u8; 16] = self.array()?;
                let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
                let [a, b, c, d] = [0, 4, 8, 12].map(word);
                format!("{name} i32x4 {a:#010x} {b:#010x} {c:#010x} {d:#010x}")
            }
            0x0d => self.array::<16>()?.iter().fold(name.into(), |text, lane| format!("{text} {lane}")),
            0x15..=0x22 => format!("{name} {}", self.byte()?),
            0x54..=0x5b => {
                let place = self.memory(name)?;
                format!("{place} {}", self.byte()?)
            }
            _ => name.into(),
        })
    }
}
