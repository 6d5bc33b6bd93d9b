//! The element types of ggml: names, block lengths and sizes.

use crate::dtype::DType;

/// How the elements of a GGUF tensor are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, non_camel_case_types)] // ggml's own names
pub enum Kind {
    F32,
    F16,
    BF16,
    F64,
    I8,
    I16,
    I32,
    I64,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
}

use Kind::*;

/// For each kind: ggml's type number, its name, elements per block, bytes per block.
const KINDS: [(Kind, u32, &str, usize, usize); 33] = [
    (F32, 0, "F32", 1, 4),
    (F16, 1, "F16", 1, 2),
    (BF16, 30, "BF16", 1, 2),
    (F64, 28, "F64", 1, 8),
    (I8, 24, "I8", 1, 1),
    (I16, 25, "I16", 1, 2),
    (I32, 26, "I32", 1, 4),
    (I64, 27, "I64", 1, 8),
    (Q4_0, 2, "Q4_0", 32, 18),
    (Q4_1, 3, "Q4_1", 32, 20),
    (Q5_0, 6, "Q5_0", 32, 22),
    (Q5_1, 7, "Q5_1", 32, 24),
    (Q8_0, 8, "Q8_0", 32, 34),
    (Q8_1, 9, "Q8_1", 32, 36),
    (Q2_K, 10, "Q2_K", 256, 84),
    (Q3_K, 11, "Q3_K", 256, 110),
    (Q4_K, 12, "Q4_K", 256, 144),
    (Q5_K, 13, "Q5_K", 256, 176),
    (Q6_K, 14, "Q6_K", 256, 210),
    (Q8_K, 15, "Q8_K", 256, 292),
    (IQ1_S, 19, "IQ1_S", 256, 50),
    (IQ1_M, 29, "IQ1_M", 256, 56),
    (IQ2_XXS, 16, "IQ2_XXS", 256, 66),
    (IQ2_XS, 17, "IQ2_XS", 256, 74),
    (IQ2_S, 22, "IQ2_S", 256, 82),
    (IQ3_XXS, 18, "IQ3_XXS", 256, 98),
    (IQ3_S, 21, "IQ3_S", 256, 110),
    (IQ4_NL, 20, "IQ4_NL", 32, 18),
    (IQ4_XS, 23, "IQ4_XS", 256, 136),
    (TQ1_0, 34, "TQ1_0", 256, 54),
    (TQ2_0, 35, "TQ2_0", 256, 66),
    (MXFP4, 39, "MXFP4", 32, 17),
    (NVFP4, 40, "NVFP4", 64, 36),
];

impl Kind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = Kind> {
        KINDS.iter().map(|k| k.0)
    }

    fn row(self) -> &'static (Kind, u32, &'static str, usize, usize) {
        KINDS.iter().find(|k| k.0 == self).unwrap_or(&KINDS[0])
    }

    /// The kind with ggml's type number `id`.
    pub fn from_id(id: u32) -> Option<Kind> {
        KINDS.iter().find(|k| k.1 == id).map(|k| k.0)
    }

    /// The kind with ggml's name, such as `Q4_K`.
    pub fn from_name(name: &str) -> Option<Kind> {
        KINDS.iter().find(|k| k.2 == name).map(|k| k.0)
    }

    /// ggml's type number.
    pub fn id(self) -> u32 {
        self.row().1
    }

    /// ggml's name.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Elements per block; the length of a row is a multiple of it.
    pub fn block_elems(self) -> usize {
        self.row().3
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// The dtype of a kind of plain elements; `None` for quantised kinds.
    pub fn plain(self) -> Option<DType> {
        Some(match self {
            F32 => DType::F32,
            F16 => DType::F16,
            BF16 => DType::BF16,
            F64 => DType::F64,
            I8 => DType::I8,
            I16 => DType::I16,
            I32 => DType::I32,
            I64 => DType::I64,
            _ => return None,
        })
    }

    /// The kind that stores a dtype's elements as they are.
    pub fn of(dtype: DType) -> Option<Kind> {
        Kind::all().find(|k| k.plain() == Some(dtype))
    }
}
