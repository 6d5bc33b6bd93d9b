//! Functions that load vectors under a mask: one for each vector type that needs it. No element is read where the mask does
//! not hold, since it may be outside of the buffer.

use super::dialect::declaration;
use crate::DType;

/// The lane counts of the types that have such a function.
pub(super) const LANES: [usize; 2] = [8, 16];

/// `gl_load_V(p, m, a)` for `n` lanes of a dtype of four bytes, after the declarations that it needs: the elements at `p`,
/// those of `a` where the mask does not hold. With AVX, each 8 lanes take one instruction; compilers without
/// `__builtin_shufflevector` (GCC before 12) and other processors go lane by lane. Stores go lane by lane everywhere: GCC
/// 12.2 fails with an internal error on loops with `__builtin_ia32_maskstoreps256`.
pub(super) fn load(dt: DType, n: usize) -> String {
    let (e, v, m) = (dt.name(), format!("{}x{n}", dt.name()), format!("i32x{n}"));
    let list = |from: usize, to: usize| (from..to).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let mask = |i: usize| match n {
        8 => "m".to_string(),
        _ => format!("__builtin_shufflevector(m, m, {})", list(8 * i, 8 * i + 8)),
    };
    let load = |i: usize| format!("__builtin_ia32_maskloadps256((const gl_f8*)(p + {}), {})", 8 * i, mask(i));
    let all = match n {
        8 => load(0),
        _ => format!("__builtin_shufflevector({}, {}, {})", load(0), load(1), list(0, n)),
    };
    [
        declaration(DType::I32, n),
        declaration(dt, n),
        format!(
            "#ifndef GL_load_{v}\n#define GL_load_{v}\n\
             static inline {v} gl_load_{v}(const {e}* p, {m} m, {v} a) {{\n\
             #ifdef GL_AVX\n  \
             const {m} x = ({m}){all};\n  return ({v})(x | (({m})a & ~m));\n\
             #else\n  \
             for (int i = 0; i < {n}; i++) if (m[i]) a[i] = p[i];\n  return a;\n\
             #endif\n}}\n#endif\n"
        ),
    ]
    .concat()
}
