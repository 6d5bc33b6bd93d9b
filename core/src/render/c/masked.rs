//! Functions that load and store vectors under a mask: one for each vector type that needs them. No element is touched
//! where the mask does not hold, since it may be outside of the buffer.

use super::dialect::declaration;
use crate::DType;

/// The lane counts of the types that have these functions.
pub(super) const LANES: [usize; 2] = [8, 16];

/// `gl_load_V(p, m, a)` and `gl_store_V(p, m, x)` for `n` lanes of a dtype of four bytes, after the declarations that they
/// need. With AVX, each 8 lanes take one instruction; compilers without `__builtin_shufflevector` (GCC before 12) and other
/// processors go lane by lane.
pub(super) fn functions(dt: DType, n: usize) -> String {
    let (e, v, m) = (dt.name(), format!("{}x{n}", dt.name()), format!("i32x{n}"));
    let list = |from: usize, to: usize| (from..to).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let part = |x: &str, i: usize| match n {
        8 => x.to_string(),
        _ => format!("__builtin_shufflevector({x}, {x}, {})", list(8 * i, 8 * i + 8)),
    };
    let pieces = 0..n / 8;
    let loaded: Vec<String> = pieces
        .clone()
        .map(|i| format!("__builtin_ia32_maskloadps256((const gl_f8*)(p + {}), {})", 8 * i, part("m", i)))
        .collect();
    let all = match n {
        8 => loaded.concat(),
        _ => format!("__builtin_shufflevector({}, {})", loaded.join(", "), list(0, n)),
    };
    let stores: Vec<String> = pieces
        .map(|i| {
            let value = part("f", i);
            format!("  __builtin_ia32_maskstoreps256((gl_f8*)(p + {}), {}, {value});\n", 8 * i, part("m", i))
        })
        .collect();
    let f = format!("f32x{n}");
    [
        declaration(DType::F32, n),
        declaration(DType::I32, n),
        declaration(dt, n),
        format!(
            "#ifndef GL_masked_{v}\n#define GL_masked_{v}\n\
             #ifdef GL_AVX\n\
             static inline {v} gl_load_{v}(const {e}* p, {m} m, {v} a) {{\n  \
             const {m} x = ({m}){all};\n  return ({v})(x | (({m})a & ~m));\n}}\n\
             static inline void gl_store_{v}({e}* p, {m} m, {v} x) {{\n  \
             const {f} f = ({f})x;\n{}}}\n\
             #else\n\
             static inline {v} gl_load_{v}(const {e}* p, {m} m, {v} a) {{\n  \
             for (int i = 0; i < {n}; i++) if (m[i]) a[i] = p[i];\n  return a;\n}}\n\
             static inline void gl_store_{v}({e}* p, {m} m, {v} x) {{\n  \
             for (int i = 0; i < {n}; i++) if (m[i]) p[i] = x[i];\n}}\n\
             #endif\n#endif\n",
            stores.concat()
        ),
    ]
    .concat()
}
