//! Metal's shading language (Apple, Metal Shading Language Specification, version 2.3).
//!
//! A buffer is bound together with its offset; launch scalars lie in one more buffer, after all others. There is no
//! f64. Exchanges of 64-bit values and of bools within subgroups are done by 32-bit or 16-bit words, since the language
//! has no functions for these types.

use super::super::cstyle::{FUNCTIONS, Spelling};
use super::table::{CPP_DEFAULTS, TYPES, Table, constant, lanes, opencl_type};
use crate::DType;
use crate::target::{MatrixTile, functions};

pub(super) static TABLE: Table = Table {
    name: "metal",
    prelude: || [BEFORE, TYPES, PRELUDE, FUNCTIONS].concat(),
    spelling: Spelling { functions: functions::METAL, long: "L", wraps: false },
    vector: |e, n, _| {
        let (each, values) = (lanes(n).map(|l| format!("{e} {l}")), lanes(n).collect::<Vec<_>>().join(", "));
        let each = each.collect::<Vec<_>>().join(", ");
        format!(
            "typedef {0}{n} {e}x{n};\n\
             GL_FN {e}x{n} gl_{e}x{n}({each}) {{ return {e}x{n}({values}); }}\n\
             GL_FN {e}x{n} gl_select_{e}x{n}(bool m, {e}x{n} x, {e}x{n} y) {{ return m ? x : y; }}\n",
            opencl_type(e)
        )
    },
    vector_floats: true,
    group: ["gl_group.x", "gl_group.y", "gl_group.z"],
    thread: ["gl_thread.x", "gl_thread.y", "gl_thread.z"],
    barrier: "threadgroup_barrier(mem_flags::mem_threadgroup);",
    shared: "threadgroup",
    kernel: |k| {
        format!(
            "kernel void {}({}{}uint3 gl_group [[threadgroup_position_in_grid]], \
             uint3 gl_thread [[thread_position_in_threadgroup]])",
            k.name,
            k.parameters,
            if k.parameters.is_empty() { "" } else { ", " }
        )
    },
    parameter: |b| {
        let (ty, slot, constant) = (b.ty, b.slot, constant(b));
        format!("device {constant}{ty}* b{slot} [[buffer({slot})]]")
    },
    scalars: |types, buffers| match types {
        [] => Vec::new(),
        _ => vec![format!("constant u32* scalars [[buffer({buffers})]]")],
    },
    scalar: Some(|i, ty| format!("const {ty} n{i} = as_type<{ty}>(scalars[{i}]);")),
    tile,
    ..CPP_DEFAULTS
};

/// The text of `gl_mma` for a simdgroup matrix, which is filled from the elements that each thread holds.
fn tile(tile: &MatrixTile) -> Option<String> {
    if !MatrixTile::simdgroup().contains(tile) {
        return None;
    }
    let (ty, bits) = match tile.factors {
        DType::F16 => ("half", "u16"),
        DType::BF16 => ("bfloat", "u16"),
        _ => ("float", "f32"),
    };
    Some(format!(
        "GL_FN void gl_mma(thread f32& c0, thread f32& c1, {bits} a0, {bits} a1, {bits} b0, {bits} b1) {{\n  \
         simdgroup_matrix<{ty}, 8, 8> a, b;\n  simdgroup_matrix<float, 8, 8> c;\n  \
         a.thread_elements()[0] = as_type<{ty}>(a0);\n  a.thread_elements()[1] = as_type<{ty}>(a1);\n  \
         b.thread_elements()[0] = as_type<{ty}>(b0);\n  b.thread_elements()[1] = as_type<{ty}>(b1);\n  \
         c.thread_elements()[0] = c0;\n  c.thread_elements()[1] = c1;\n  \
         simdgroup_multiply_accumulate(c, a, b, c);\n  \
         c0 = c.thread_elements()[0];\n  c1 = c.thread_elements()[1];\n}}\n"
    ))
}

const BEFORE: &str = r##"#include <metal_stdlib>
using namespace metal;
"##;

const PRELUDE: &str = r##"#define GL_FN static inline
GL_FN u32 gl_bits_f32(f32 x) { return as_type<u32>(x); }
GL_FN f32 gl_f32_bits(u32 x) { return as_type<f32>(x); }
GL_FN f32 gl_from_f16(u16 x) { return (f32)as_type<half>(x); }
GL_FN u16 gl_to_f16(f32 x) { return as_type<u16>((half)x); }
template <typename T> GL_FN T gl_shuffle(T x, u16 bits) { return simd_shuffle_xor(x, bits); }
GL_FN bool gl_shuffle(bool x, u16 bits) { return simd_shuffle_xor((u16)x, bits) != 0; }
GL_FN i64 gl_shuffle(i64 x, u16 bits) { return as_type<i64>(simd_shuffle_xor(as_type<uint2>(x), bits)); }
GL_FN u64 gl_shuffle(u64 x, u16 bits) { return as_type<u64>(simd_shuffle_xor(as_type<uint2>(x), bits)); }
GL_FN long2 gl_shuffle(long2 x, u16 bits) { return long2(gl_shuffle(x.x, bits), gl_shuffle(x.y, bits)); }
GL_FN ulong2 gl_shuffle(ulong2 x, u16 bits) { return ulong2(gl_shuffle(x.x, bits), gl_shuffle(x.y, bits)); }
GL_FN long4 gl_shuffle(long4 x, u16 bits) {
  return long4(gl_shuffle(x.x, bits), gl_shuffle(x.y, bits), gl_shuffle(x.z, bits), gl_shuffle(x.w, bits));
}
GL_FN ulong4 gl_shuffle(ulong4 x, u16 bits) {
  return ulong4(gl_shuffle(x.x, bits), gl_shuffle(x.y, bits), gl_shuffle(x.z, bits), gl_shuffle(x.w, bits));
}
"##;
