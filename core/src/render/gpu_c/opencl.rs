//! OpenCL C 1.2 with nothing optional but f64 (Khronos, The OpenCL Specification 1.2, section 6).
//!
//! A buffer comes with an offset: a sub-buffer could only begin where the device lets it. 16-bit floats need no extension, since only
//! their loads and stores are used, which all devices have.

use super::super::cstyle::{FUNCTIONS, Words};
use super::table::{CPLUSPLUS, TYPES, Table, constant, word};

pub(super) static TABLE: Table = Table {
    name: "opencl",
    prelude: || [BEFORE, TYPES, PRELUDE, FUNCTIONS].concat(),
    words: Words { math: |op, _| op.name().to_string(), long: "L", wraps: false },
    vector: |e, n, _| format!("typedef {}{n} {e}x{n};\n", word(e)),
    pack: |ty, xs| format!("(({ty})({xs}))"),
    vector_floats: true,
    group: ["get_group_id(0)", "get_group_id(1)", "get_group_id(2)"],
    thread: ["get_local_id(0)", "get_local_id(1)", "get_local_id(2)"],
    barrier: "barrier(CLK_LOCAL_MEM_FENCE);",
    shared: "__local",
    kernel: |k| {
        let [x, y, z] = k.local;
        format!("__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {}({})", k.name, k.parameters)
    },
    parameter: |b| {
        let (ty, slot, constant) = (b.ty, b.slot, constant(b));
        format!("__global {constant}{ty}* restrict p{slot}, const ulong o{slot}")
    },
    view: |b| {
        let (ty, slot, constant) = (b.ty, b.slot, constant(b));
        let pointer = format!("__global {constant}{ty}*");
        format!("{pointer} b{slot} = ({pointer})((__global {constant}uchar*)p{slot} + o{slot});")
    },
    shuffle: None,
    ..CPLUSPLUS
};

const BEFORE: &str = r##"#pragma OPENCL FP_CONTRACT ON
"##;

const PRELUDE: &str = r##"#define GL_FN static inline
GL_FN u32 gl_bits_f32(f32 x) { return as_uint(x); }
GL_FN f32 gl_f32_bits(u32 x) { return as_float(x); }
#ifdef GL_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
GL_FN u64 gl_bits_f64(f64 x) { return as_ulong(x); }
GL_FN f64 gl_f64_bits(u64 x) { return as_double(x); }
#endif
GL_FN f32 gl_from_f16(u16 x) { return vload_half(0, (const half*)&x); }
GL_FN u16 gl_to_f16(f32 x) { u16 r; vstore_half_rte(x, 0, (half*)&r); return r; }
"##;
