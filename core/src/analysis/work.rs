//! What an elementwise op costs before there is code to count: one row for each kind of op, one column for each unit in which somebody asks.
//! Once a kernel is a program, `codegen/cost.rs` prices the instructions that are in it.

use crate::uop::Op;

/// What one op on one element, vector or thread comes to.
pub(crate) struct Work {
    /// Simple operations that take as long among the loads and stores of an elementwise kernel, which hide a part of a long op: what the
    /// scheduler weighs against storing a value.
    pub(crate) hidden: u32,
    /// Instructions of a vector where nothing hides them: what decides which loop of a row kernel gets the vectors.
    pub(crate) instructions: u32,
    /// Instructions in the code of a GPU that a processor emulates, where compiling them costs as well; its maxima look for NaN.
    pub(crate) emulated: u32,
}

/// The row of an op. Functions are counted as the polynomials that they are on most targets.
pub(crate) fn work(op: Op) -> Work {
    let (hidden, instructions, emulated) = match op {
        Op::Exp2 | Op::Log2 => (8, 14, 22),
        Op::Sin | Op::Cos | Op::Tan | Op::Pow => (16, 60, 130),
        Op::Div | Op::Recip | Op::Sqrt => (3, 6, 1),
        Op::Idiv | Op::Imod | Op::FloorDiv | Op::FloorMod => (6, 1, 1),
        Op::Max | Op::Min => (1, 1, 8),
        // they go with the load or store of the value
        Op::Cast | Op::Bitcast => (0, 1, 1),
        // an index is computed and compared with bounds
        Op::Gather | Op::DotBytes => (3, 0, 0),
        op if op.is_alu() => (1, 1, 1),
        _ => (0, 0, 0),
    };
    Work { hidden, instructions, emulated }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asks, a function is dearer than a quotient or a sum, and what is not computed is free.
    #[test]
    fn units_agree_on_what_is_dearer() {
        let all = |op: Op| [work(op).hidden, work(op).instructions, work(op).emulated];
        for op in [Op::Add, Op::Div, Op::Recip] {
            assert!((0..3).all(|i| all(op)[i] < all(Op::Exp2)[i] && all(Op::Exp2)[i] < all(Op::Sin)[i]), "{op:?}");
        }
        assert_eq!([all(Op::Load), all(Op::Range), all(Op::Reshape)], [[0; 3]; 3]);
    }
}
