//! HIP C++ for AMD's GPUs, as clang and hiprtc take it, with no header and no library of device functions (LLVM, User Guide for AMDGPU
//! Backend; clang, HIP Support).
//!
//! Buffer offsets have been added to the pointers. Hardware features are used through clang's builtin functions, in
//! helper functions alone: to run the same text on another host, define `GL_HOST` and supply these functions.

use super::super::cstyle::{FUNCTIONS, Spelling};
use super::cuda::TYPES;
use super::table::{CPP_DEFAULTS, Table, list, registers_per_thread};
use crate::DType;
use crate::target::{MatrixTile, functions};

pub(super) static TABLE: Table = Table {
    name: "hip",
    prelude: || [TYPES, MACHINE, PRELUDE, FUNCTIONS].concat(),
    spelling: Spelling { functions: functions::GNU_C, long: "LL", wraps: false },
    group: ["gl_group_x()", "gl_group_y()", "gl_group_z()"],
    thread: ["gl_thread_x()", "gl_thread_y()", "gl_thread_z()"],
    barrier: "gl_barrier();",
    shared: "GL_SHARED",
    kernel: |k| {
        let threads: u32 = k.local.iter().product();
        format!("GL_KERNEL({threads}) {}({})", k.name, k.parameters)
    },
    dot: Some(DOT),
    tile,
    ..CPP_DEFAULTS
};

/// The text of `gl_mma` for a tile: a call of clang's builtin function of the GPU generation that has the tile.
fn tile(tile: &MatrixTile) -> Option<String> {
    let ([a, _, c], half) = (registers_per_thread(tile), tile.factors == DType::F16);
    let generations = [MatrixTile::rdna3(), MatrixTile::rdna4(), MatrixTile::cdna3()];
    let generation = generations.iter().position(|tiles| tiles.contains(tile))?;
    // the builtin functions take bf16 as their bits
    let (element, name) = match (generation, half) {
        (0, true) => ("_Float16", "wmma_f32_16x16x16_f16_w32"),
        (0, false) => ("short", "wmma_f32_16x16x16_bf16_w32"),
        (1, true) => ("_Float16", "wmma_f32_16x16x16_f16_w32_gfx12"),
        (1, false) => ("short", "wmma_f32_16x16x16_bf16_w32_gfx12"),
        (_, true) => ("_Float16", "mfma_f32_16x16x16f16"),
        (_, false) => ("short", "mfma_f32_16x16x16bf16_1k"),
    };
    let factor = |x: &str| list(a, |i| format!("{x}{i}"));
    let (given, wanted) = (format!("u16x{a}_"), if generation == 0 { 2 * a } else { a });
    let parameters =
        [list(c, |i| format!("f32& c{i}")), list(a, |i| format!("u16 a{i}")), list(a, |i| format!("u16 b{i}"))];
    let twice = match generation {
        0 => "  gl_factor x = gl_twice<gl_factor>(a), y = gl_twice<gl_factor>(b);\n",
        _ => "  gl_factor x = __builtin_bit_cast(gl_factor, a), y = __builtin_bit_cast(gl_factor, b);\n",
    };
    let zeros = if generation == 2 { ", 0, 0, 0" } else { "" };
    let before = if generation == 0 { DUPLICATE_HALVES } else { "" };
    Some(format!(
        "{before}GL_FN void gl_mma({}) {{\n  \
         typedef {element} gl_factor __attribute__((ext_vector_type({wanted})));\n  \
         typedef u16 {given} __attribute__((ext_vector_type({a})));\n  \
         typedef f32 gl_sum __attribute__((ext_vector_type({c})));\n  \
         {given} a = {{{}}}, b = {{{}}};\n{twice}  gl_sum c = {{{}}};\n  \
         c = __builtin_amdgcn_{name}(x, y, c{zeros});\n  {}\n}}\n",
        parameters.join(", "),
        factor("a"),
        factor("b"),
        list(c, |i| format!("c{i}")),
        (0..c).map(|i| format!("c{i} = c[{i}];")).collect::<Vec<_>>().join(" ")
    ))
}

/// RDNA 3 needs all elements of a factor in both halves of a wave, so each half sends what it holds to the other.
const DUPLICATE_HALVES: &str = r##"#ifndef GL_TWICE
#define GL_TWICE
template <typename T, typename H> GL_FN T gl_twice(H x) {
  struct { u32 at[sizeof(H) / 4]; } own = __builtin_bit_cast(decltype(own), x);
  struct { u32 at[sizeof(T) / 4]; } all;
  const int n = sizeof(H) / 4;
  bool low = gl_lane() < 16;
  for (int i = 0; i < n; i++) {
    u32 other = gl_other_row(own.at[i]);
    all.at[i] = low ? own.at[i] : other;
    all.at[n + i] = low ? other : own.at[i];
  }
  return __builtin_bit_cast(T, all);
}
#endif
"##;

/// RDNA 3 and later have a dot product for bytes of any signedness; other chips have one for signed bytes only, or
/// none.
const DOT: &str = r##"GL_FN i32 gl_dot(u32 a, u32 b, i32 c) {
#if defined(GL_HOST)
  return host::dot(a, b, c);
#elif defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || \
    defined(__gfx1030__)
  return __builtin_amdgcn_sdot4((i32)a, (i32)b, c, false);
#else
  u32 sum = (u32)c;
  for (i32 i = 0; i < 32; i += 8) sum += (u32)((i32)(i8)(a >> i) * (i32)(i8)(b >> i));
  return (i32)sum;
#endif
}
"##;

const PRELUDE: &str = r##"GL_FN u32 gl_bits_f32(f32 x) { return __builtin_bit_cast(u32, x); }
GL_FN f32 gl_f32_bits(u32 x) { return __builtin_bit_cast(f32, x); }
GL_FN u64 gl_bits_f64(f64 x) { return __builtin_bit_cast(u64, x); }
GL_FN f64 gl_f64_bits(u64 x) { return __builtin_bit_cast(f64, x); }
GL_FN f32 gl_from_f16(u16 x) { return (f32)__builtin_bit_cast(_Float16, x); }
GL_FN u16 gl_to_f16(f32 x) { return __builtin_bit_cast(u16, (_Float16)x); }
template <typename T> GL_FN T gl_shuffle(T x, u32 bits) {
  struct { i32 at[(sizeof(T) + 3) / 4]; } words = {};
  __builtin_memcpy(&words, &x, sizeof(T));
  for (i32& word : words.at) word = gl_exchange(word, bits);
  __builtin_memcpy(&x, &words, sizeof(T));
  return x;
}
"##;

const MACHINE: &str = r##"#ifndef GL_HOST
#define GL_FN static inline __attribute__((device, always_inline))
#define GL_SHARED __attribute__((shared))
#define GL_KERNEL(N) extern "C" __attribute__((global, amdgpu_flat_work_group_size(N, N))) void
GL_FN u32 gl_group_x() { return __builtin_amdgcn_workgroup_id_x(); }
GL_FN u32 gl_group_y() { return __builtin_amdgcn_workgroup_id_y(); }
GL_FN u32 gl_group_z() { return __builtin_amdgcn_workgroup_id_z(); }
GL_FN u32 gl_thread_x() { return __builtin_amdgcn_workitem_id_x(); }
GL_FN u32 gl_thread_y() { return __builtin_amdgcn_workitem_id_y(); }
GL_FN u32 gl_thread_z() { return __builtin_amdgcn_workitem_id_z(); }
GL_FN void gl_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
GL_FN u32 gl_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
GL_FN i32 gl_exchange(i32 x, u32 bits) { return __builtin_amdgcn_ds_bpermute((i32)((gl_lane() ^ bits) << 2), x); }
#if defined(__GFX11__) || defined(__GFX12__)
GL_FN u32 gl_other_row(u32 x) { return __builtin_amdgcn_permlanex16(x, x, 0x76543210U, 0xfedcba98U, false, false); }
#endif
#endif
"##;
