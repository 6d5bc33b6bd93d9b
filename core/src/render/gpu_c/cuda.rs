//! CUDA C++ as nvrtc takes it, with no header (NVIDIA, CUDA C++ Programming Guide).
//!
//! Buffer offsets have been added to the pointers. Instructions for which the language has no function are written as
//! inline PTX, in helper functions alone: to run the same text on another host, define `GL_HOST` and supply these
//! functions.

use super::super::cstyle::{FUNCTIONS, Spelling};
use super::table::{CPP_DEFAULTS, Table, list, registers_per_thread};
use crate::DType;
use crate::target::{MatrixTile, functions};

pub(super) static TABLE: Table = Table {
    name: "cuda",
    prelude: || [TYPES, PRELUDE, MACHINE, FUNCTIONS].concat(),
    spelling: Spelling { functions: functions::C, long: "LL", wraps: false },
    kernel: |k| {
        let threads: u32 = k.local.iter().product();
        format!("extern \"C\" __global__ void __launch_bounds__({threads}) {}({})", k.name, k.parameters)
    },
    dot: Some(DOT),
    tile,
    ..CPP_DEFAULTS
};

/// The text of `gl_mma`: an `mma.sync` instruction. Pairs of 16-bit elements of a factor are packed into its 32-bit
/// operands.
fn tile(tile: &MatrixTile) -> Option<String> {
    if !MatrixTile::sm80().contains(tile) {
        return None;
    }
    let ([a, b, c], [m, n, k]) = (registers_per_thread(tile), tile.sides());
    let (element, sum, per) = match tile.factors {
        DType::F64 => ("f64", "f64", 1),
        _ => ("u16", "f32", 2),
    };
    let parameters = [
        list(c, |i| format!("{sum}& c{i}")),
        list(a, |i| format!("{element} a{i}")),
        list(b, |i| format!("{element} b{i}")),
    ]
    .join(", ");
    let word = |x: &str, i: usize| match per {
        1 => format!("\"d\"({x}{i})"),
        _ => format!("\"r\"({x}{} | (u32){x}{} << 16)", 2 * i, 2 * i + 1),
    };
    let operands = [list(a / per, |i| word("a", i)), list(b / per, |i| word("b", i))].join(", ");
    let kind = if tile.sums == DType::F64 { "d" } else { "f" };
    let sums = list(c, |i| format!("\"+{kind}\"(c{i})"));
    let numbers = |from: usize, n: usize| format!("{{{}}}", list(n, |i| format!("%{}", from + i)));
    let (d, x) = (numbers(0, c), numbers(c, a / per));
    let y = numbers(c + a / per, b / per);
    let (ty, of) = (ptx(tile.factors), ptx(tile.sums));
    let instruction = format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{of}.{ty}.{ty}.{of} {d}, {x}, {y}, {d};");
    let names = [list(c, |i| format!("c{i}")), list(a, |i| format!("a{i}")), list(b, |i| format!("b{i}"))].join(", ");
    Some(format!(
        "GL_FN void gl_mma({parameters}) {{\n#ifdef GL_HOST\n  host::mma_{ty}({names});\n#else\n  \
         asm volatile(\"{instruction}\" : {sums} : {operands});\n#endif\n}}\n"
    ))
}

/// PTX's name of a type.
fn ptx(dt: DType) -> &'static str {
    match dt {
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F64 => "f64",
        _ => "f32",
    }
}

/// Type names for compilers whose `long long` has 64 bits.
pub(super) const TYPES: &str = r##"typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
"##;

const PRELUDE: &str = r##"#define GL_FN static __device__ __forceinline__
GL_FN u32 gl_bits_f32(f32 x) { return __float_as_uint(x); }
GL_FN f32 gl_f32_bits(u32 x) { return __uint_as_float(x); }
GL_FN u64 gl_bits_f64(f64 x) { return (u64)__double_as_longlong(x); }
GL_FN f64 gl_f64_bits(u64 x) { return __longlong_as_double((i64)x); }
template <typename T> GL_FN T gl_shuffle(T x, u32 bits) { return (T)__shfl_xor_sync(0xffffffffU, x, bits); }
"##;

const DOT: &str = r##"GL_FN i32 gl_dot(u32 a, u32 b, i32 c) {
#ifdef GL_HOST
  return host::dot(a, b, c);
#else
  i32 r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
#endif
}
"##;

const MACHINE: &str = r##"#ifndef GL_HOST
GL_FN f32 gl_from_f16(u16 x) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
GL_FN u16 gl_to_f16(f32 x) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
#endif
"##;
