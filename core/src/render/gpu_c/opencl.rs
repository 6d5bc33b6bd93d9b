//! OpenCL C 1.2 (Khronos, The OpenCL Specification 1.2, section 6), with optional extensions: f64, byte dot products
//! (`cl_khr_integer_dot_product`), and exchanges within subgroups of a requested size (`cl_khr_subgroup_shuffle`,
//! `cl_intel_required_subgroup_size`).
//!
//! Each buffer is passed with an offset, since a sub-buffer may only begin at addresses of the device's alignment.
//! 16-bit floats need no extension: only their loads and stores are used, which all devices have.

use super::super::cstyle::{FUNCTIONS, Spelling, memory_type};
use super::super::wgsl::PROBE_THREADS;
use super::super::{Code, Source};
use super::table::{CPP_DEFAULTS, TYPES, Table, constant, opencl_type};
use crate::DType;
use crate::codegen::ParamInfo;
use crate::target::functions;

/// A kernel that tests how far exchanges within subgroups of `threads` threads reach, in a workgroup of 64 threads with
/// the sides `local`. Its results mean the same as those of [`super::super::wgsl::subgroup_probe`].
pub fn subgroup_probe(threads: u32, local: [u32; 3]) -> Source {
    let [x, y, z] = local;
    let code = format!(
        "#ifdef cl_khr_subgroup_shuffle
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#endif
__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) __attribute__((intel_reqd_sub_group_size({threads})))
void subgroups(__global uint* p0, const ulong o0) {{
  __global uint* b0 = (__global uint*)((__global uchar*)p0 + o0);
  const uint i = (uint)(get_local_id(0) + {x} * get_local_id(1));
  uint n = 0, right = 1;
  for (uint bit = 1; bit < 64; bit <<= 1) {{
    right &= (uint)(bit < get_max_sub_group_size()) & (uint)(sub_group_shuffle_xor(i, bit % {threads}U) == (i ^ bit));
    n += right;
  }}
  b0[i] = n;
}}
"
    );
    Source {
        name: "subgroups".into(),
        code: Code::Text(code),
        local,
        params: vec![ParamInfo { dtype: DType::U32, len: PROBE_THREADS, read: false, written: true }],
        vars: Vec::new(),
        scratch: 0,
    }
}

pub(super) static TABLE: Table = Table {
    name: "opencl",
    prelude: || [BEFORE, TYPES, PRELUDE, FUNCTIONS].concat(),
    spelling: Spelling { functions: functions::OPENCL, long: "L", wraps: false },
    vector: |e, n, _| format!("typedef {}{n} {e}x{n};\n", opencl_type(e)),
    pack: |ty, xs| format!("(({ty})({xs}))"),
    vector_floats: true,
    group: ["get_group_id(0)", "get_group_id(1)", "get_group_id(2)"],
    thread: ["get_local_id(0)", "get_local_id(1)", "get_local_id(2)"],
    barrier: "barrier(CLK_LOCAL_MEM_FENCE);",
    shared: "__local",
    kernel: |k| {
        let [x, y, z] = k.local;
        let subgroup =
            k.subgroup.map_or(String::new(), |n| format!(" __attribute__((intel_reqd_sub_group_size({n})))"));
        let group = format!("__attribute__((reqd_work_group_size({x}, {y}, {z})))");
        format!("__kernel {group}{subgroup}\nvoid {}({})", k.name, k.parameters)
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
    shuffle: Some(|x, dt, lanes, bits| {
        let one = |x: String| match dt {
            // in a vector a bool is a byte, which needs no cast
            DType::Bool if lanes == 1 => format!("(bool)sub_group_shuffle_xor((int)({x}), {bits}U)"),
            _ => format!("sub_group_shuffle_xor({x}, {bits}U)"),
        };
        match lanes {
            1 => one(x.into()),
            _ => {
                let each: Vec<String> = ["x", "y", "z", "w"][..lanes].iter().map(|l| one(format!("{x}.{l}"))).collect();
                let element = if dt == DType::Bool { "u8" } else { memory_type(dt) };
                format!("(({element}x{lanes})({}))", each.join(", "))
            }
        }
    }),
    dot: Some(DOT),
    ..CPP_DEFAULTS
};

const DOT: &str = r##"GL_FN i32 gl_dot(u32 a, u32 b, i32 c) {
#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
  return (i32)((u32)c + (u32)dot_4x8packed_ss_int(a, b));
#else
  u32 sum = (u32)c;
  for (i32 i = 0; i < 32; i += 8) sum += (u32)((i32)(i8)(a >> i) * (i32)(i8)(b >> i));
  return (i32)sum;
#endif
}
"##;

const BEFORE: &str = r##"#pragma OPENCL FP_CONTRACT ON
#ifdef cl_khr_subgroup_shuffle
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#endif
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
