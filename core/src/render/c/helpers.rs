//! C text that every compilation unit begins with: types, and the helper functions that are specific to C beside the
//! common [`FUNCTIONS`].

use super::super::cstyle::FUNCTIONS;

/// The prelude of a compilation unit. It is guarded, so that it may be repeated in a unit.
pub fn prelude() -> String {
    [PRELUDE, FUNCTIONS, HALVES].concat()
}

const PRELUDE: &str = r##"#ifndef GL_PRELUDE
#define GL_PRELUDE
#ifdef GL_STANDARD
#include <math.h>
#include <string.h>
#define GL_COPY memcpy
#define GL_RINT rintf
#else
#define GL_COPY __builtin_memcpy
#define GL_RINT __builtin_rintf
#endif
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
/* GCC 12 and clang: loads of 8 elements under a mask, as parts of wider vectors. */
#if defined __AVX__ && !defined GL_STANDARD && (defined __clang__ || __GNUC__ >= 12)
#define GL_AVX
typedef float gl_f8 __attribute__((vector_size(32)));
#endif
#define GL_FN static inline
#define GL_F64
static inline u32 gl_bits_f32(f32 x) { u32 r; GL_COPY(&r, &x, 4); return r; }
static inline f32 gl_f32_bits(u32 x) { f32 r; GL_COPY(&r, &x, 4); return r; }
static inline u64 gl_bits_f64(f64 x) { u64 r; GL_COPY(&r, &x, 8); return r; }
static inline f64 gl_f64_bits(u64 x) { f64 r; GL_COPY(&r, &x, 8); return r; }
"##;

/// 16-bit floats, and the end of the guard.
const HALVES: &str = r##"#if defined __FLT16_MANT_DIG__ && !defined GL_STANDARD
static inline f32 gl_from_f16(u16 x) { _Float16 r; GL_COPY(&r, &x, 2); return (f32)r; }
/* GCC 12 with AVX512-FP16 drops the rounding where vectors go to f16 and back, unless it can not see through. */
#if defined __AVX512FP16__ && !defined __clang__
#define GL_OPAQUE(r) __asm__("" : "+x"(r))
#else
#define GL_OPAQUE(r)
#endif
static inline u16 gl_to_f16(f32 x) { _Float16 r = (_Float16)x; GL_OPAQUE(r); u16 b; GL_COPY(&b, &r, 2); return b; }
#else
static inline f32 gl_from_f16(u16 x) {
  u32 sign = (u32)(x >> 15) << 31, e = x >> 10 & 31, m = x & 1023;
  if (e == 0) { f32 r = (f32)m * 0x1p-24f; return sign ? -r : r; }
  return gl_f32_bits(sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13);
}
static inline u16 gl_to_f16(f32 x) {
  u32 a = gl_bits_f32(x), s = a >> 16 & 0x8000;
  a &= 0x7fffffff;
  if (a > 0x7f800000) return (u16)(s | 0x7e00);
  if (a >= 0x477ff000) return (u16)(s | 0x7c00);
  if (a < 0x38800000) return (u16)(s | (u32)GL_RINT(gl_f32_bits(a) * 0x1p24f));
  return (u16)(s | (((a + 0xfff + (a >> 13 & 1)) >> 13) - 0x1c000));
}
#endif
#endif
"##;
