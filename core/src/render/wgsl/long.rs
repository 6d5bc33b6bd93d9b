//! Arithmetic on 64-bit integers, which WGSL lacks, as functions on `vec2<u32>`: the low word is x, the high word y.

use super::super::cstyle::Alu;
use super::dialect::Wgsl;
use crate::DType::{self, *};
use crate::uop::Op;

const ADD: &str = "fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let lo = a.x + b.x;
  return vec2<u32>(lo, a.y + b.y + select(0u, 1u, lo < a.x));
}
";
const SUB: &str = "fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
";
const MUL: &str = "fn mul64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let a0 = a.x & 0xffffu;
  let a1 = a.x >> 16u;
  let b0 = b.x & 0xffffu;
  let b1 = b.x >> 16u;
  let low = a0 * b0;
  let mid = a1 * b0 + (low >> 16u);
  let mid2 = a0 * b1 + (mid & 0xffffu);
  let high = a1 * b1 + (mid >> 16u) + (mid2 >> 16u);
  return vec2<u32>((mid2 << 16u) | (low & 0xffffu), high + a.x * b.y + a.y * b.x);
}
";
const LESS_U: &str = "fn less_u64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return (a.y < b.y) | ((a.y == b.y) & (a.x < b.x));
}
";
const LESS_S: &str = "fn less_i64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) | ((a.y == b.y) & (a.x < b.x));
}
";
const SHL: &str = "fn shl64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let s = b.x & 31u;
  let carry = select(a.x >> ((32u - s) & 31u), 0u, s == 0u);
  let r = vec2<u32>(a.x << s, (a.y << s) | carry);
  return select(r, vec2<u32>(0u, r.x), (b.x & 32u) != 0u);
}
";
const SHR_U: &str = "fn shr_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let s = b.x & 31u;
  let carry = select(a.y << ((32u - s) & 31u), 0u, s == 0u);
  let r = vec2<u32>((a.x >> s) | carry, a.y >> s);
  return select(r, vec2<u32>(r.y, 0u), (b.x & 32u) != 0u);
}
";
const SHR_S: &str = "fn shr_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let s = b.x & 31u;
  let carry = select(a.y << ((32u - s) & 31u), 0u, s == 0u);
  let top = bitcast<u32>(bitcast<i32>(a.y) >> s);
  let r = vec2<u32>((a.x >> s) | carry, top);
  return select(r, vec2<u32>(top, bitcast<u32>(bitcast<i32>(a.y) >> 31u)), (b.x & 32u) != 0u);
}
";
/// The quotient in xy and the remainder in zw; the divisor must not be 0.
const DIVMOD: &str = "fn divmod64(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  if ((a.y | b.y) == 0u) {
    return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u);
  }
  var n = a;
  var q = vec2<u32>(0u, 0u);
  var r = vec2<u32>(0u, 0u);
  for (var i = 0u; i < 64u; i++) {
    let out = r.y >> 31u;
    r = vec2<u32>((r.x << 1u) | (n.y >> 31u), (r.y << 1u) | (r.x >> 31u));
    n = vec2<u32>(n.x << 1u, (n.y << 1u) | (n.x >> 31u));
    q = vec2<u32>(q.x << 1u, (q.y << 1u) | (q.x >> 31u));
    if ((out != 0u) | !less_u64(r, b)) {
      r = sub64(r, b);
      q.x = q.x | 1u;
    }
  }
  return vec4<u32>(q, r);
}
";
const ABS: &str = "fn abs64(a: vec2<u32>) -> vec2<u32> {
  return select(a, sub64(vec2<u32>(0u, 0u), a), (a.y & 0x80000000u) != 0u);
}
";
const DIV_U: &str = "fn div_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if ((b.x | b.y) == 0u) { return a; }
  return divmod64(a, b).xy;
}
";
const MOD_U: &str = "fn mod_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if ((b.x | b.y) == 0u) { return vec2<u32>(0u, 0u); }
  return divmod64(a, b).zw;
}
";
const DIV_S: &str = "fn div_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if ((b.x | b.y) == 0u) { return a; }
  let q = divmod64(abs64(a), abs64(b)).xy;
  return select(q, sub64(vec2<u32>(0u, 0u), q), ((a.y ^ b.y) & 0x80000000u) != 0u);
}
";
const MOD_S: &str = "fn mod_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if ((b.x | b.y) == 0u) { return vec2<u32>(0u, 0u); }
  let r = divmod64(abs64(a), abs64(b)).zw;
  return select(r, sub64(vec2<u32>(0u, 0u), r), (a.y & 0x80000000u) != 0u);
}
";
const FROM_I32: &str = "fn i32_to_64(x: i32) -> vec2<u32> {
  return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}
";
/// Converts to the nearest f32: takes the 32 leading bits and sets the last of them if any lower bit is set (a sticky
/// bit), so that the conversion to f32 rounds correctly.
const U64_F32: &str = "fn u64_to_f32(a: vec2<u32>) -> f32 {
  if (a.y == 0u) { return f32(a.x); }
  let n = countLeadingZeros(a.y);
  let s = shl64(a, vec2<u32>(n, 0u));
  let m = s.y | select(0u, 1u, s.x != 0u);
  return f32(m) * bitcast<f32>((159u - n) << 23u);
}
";
const I64_F32: &str = "fn i64_to_f32(a: vec2<u32>) -> f32 {
  let r = u64_to_f32(abs64(a));
  return select(r, -r, (a.y & 0x80000000u) != 0u);
}
";
const F32_U64: &str = "fn f32_to_u64(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  if (((bits >> 31u) != 0u) | (bits > 0x7f800000u) | (bits < 0x3f800000u)) { return vec2<u32>(0u, 0u); }
  if (bits >= 0x5f800000u) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  let m = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
  let e = bits >> 23u;
  if (e >= 150u) { return shl64(m, vec2<u32>(e - 150u, 0u)); }
  return vec2<u32>(m.x >> (150u - e), 0u);
}
";
const F32_I64: &str = "fn f32_to_i64(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  let a = bits & 0x7fffffffu;
  if (a > 0x7f800000u) { return vec2<u32>(0u, 0u); }
  let negative = (bits >> 31u) != 0u;
  if (a >= 0x5f000000u) {
    return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative);
  }
  let r = f32_to_u64(bitcast<f32>(a));
  return select(r, sub64(vec2<u32>(0u, 0u), r), negative);
}
";

impl Wgsl {
    /// Adds a function of this file, and those that it needs, to the shader; returns its name.
    fn function(&mut self, text: &'static str, needs: &[&'static str]) -> &'static str {
        for t in needs {
            self.function(t, &[]);
        }
        let name = &text[3..text.find('(').expect("functions have arguments")];
        self.require_helper(name.to_string(), |_| text.to_string());
        name
    }

    /// An expression for an op on 64-bit sources.
    pub(super) fn long(&mut self, a: Alu, x: &[String]) -> Option<String> {
        let signed = a.from == I64;
        let less = if signed { LESS_S } else { LESS_U };
        let name = match a.op {
            Op::Neg => {
                let f = self.function(SUB, &[]);
                return Some(format!("{f}(vec2<u32>(0u, 0u), {})", x[0]));
            }
            Op::And => return Some(format!("{} & {}", x[0], x[1])),
            Op::Or => return Some(format!("{} | {}", x[0], x[1])),
            Op::Xor => return Some(format!("{} ^ {}", x[0], x[1])),
            Op::CmpEq => return Some(format!("all({} == {})", x[0], x[1])),
            Op::CmpNe => return Some(format!("any({} != {})", x[0], x[1])),
            Op::MulAdd => {
                let (m, s) = (self.function(MUL, &[]), self.function(ADD, &[]));
                return Some(format!("{s}({m}({}, {}), {})", x[0], x[1], x[2]));
            }
            Op::Max | Op::Min => {
                let f = self.function(less, &[]);
                let (p, q) = if a.op == Op::Max { (&x[0], &x[1]) } else { (&x[1], &x[0]) };
                return Some(format!("select({p}, {q}, {f}({}, {}))", x[0], x[1]));
            }
            Op::Add => self.function(ADD, &[]),
            Op::Sub => self.function(SUB, &[]),
            Op::Mul => self.function(MUL, &[]),
            Op::Idiv if signed => self.function(DIV_S, &[DIVMOD, LESS_U, SUB, ABS]),
            Op::Imod if signed => self.function(MOD_S, &[DIVMOD, LESS_U, SUB, ABS]),
            Op::Idiv => self.function(DIV_U, &[DIVMOD, LESS_U, SUB]),
            Op::Imod => self.function(MOD_U, &[DIVMOD, LESS_U, SUB]),
            Op::Shl => self.function(SHL, &[]),
            Op::Shr => self.function(if signed { SHR_S } else { SHR_U }, &[]),
            Op::CmpLt => self.function(less, &[]),
            _ => return None,
        };
        Some(format!("{name}({}, {})", x[0], x[1]))
    }

    /// An expression for a cast from or to a 64-bit integer.
    pub(super) fn long_cast(&mut self, from: DType, to: DType, x: &str) -> String {
        match (from, to) {
            (I64 | U64, I64 | U64) => x.to_string(),
            (I64 | U64, Bool) => format!("any({x} != vec2<u32>(0u, 0u))"),
            (I64 | U64, _) if to.is_float() => {
                let f = match from {
                    U64 => self.function(U64_F32, &[SHL]),
                    _ => self.function(I64_F32, &[U64_F32, SHL, ABS, SUB]),
                };
                super::alu::narrow(self, to, format!("{f}({x})"), 1)
            }
            (I64 | U64, _) => {
                let e = if to.is_signed() { format!("bitcast<i32>({x}.x)") } else { format!("{x}.x") };
                super::alu::narrow(self, to, e, 1)
            }
            (Bool, _) => format!("vec2<u32>(u32({x}), 0u)"),
            _ if from.is_float() => match to {
                U64 => format!("{}({x})", self.function(F32_U64, &[SHL])),
                _ => format!("{}({x})", self.function(F32_I64, &[F32_U64, SHL, SUB])),
            },
            _ if from.is_signed() => format!("{}({x})", self.function(FROM_I32, &[])),
            _ => format!("vec2<u32>({x}, 0u)"),
        }
    }
}
