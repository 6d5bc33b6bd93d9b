//! Costs of elementwise ops before there is code to count. The table has one row for each kind of op and one column for
//! each unit in which a pass asks. Once a kernel is a program, `codegen/cost.rs` prices its instructions instead.

use crate::uop::Op;

/// The cost of one op in three units.
pub(crate) struct Work {
    /// The number of simple operations that take as long, in an elementwise kernel whose loads and stores hide part of
    /// the latency of a long op. The scheduler weighs this against storing a value.
    pub(crate) hidden: u32,
    /// Vector instructions where nothing hides their latency. This decides which loop of a row kernel is vectorised.
    pub(crate) instructions: u32,
    /// Instructions of the code that a GPU emulated in software runs, where compiling them costs time as well. Its
    /// maxima and minima test for NaN.
    pub(crate) emulated: u32,
}

/// The cost of an op. Functions count as the polynomials that compute them on most targets.
pub(crate) fn work(op: Op) -> Work {
    let (hidden, instructions, emulated) = match op {
        Op::Exp2 | Op::Log2 => (8, 14, 22),
        Op::Sin | Op::Cos | Op::Tan | Op::Pow => (16, 60, 130),
        Op::Div | Op::Recip | Op::Sqrt => (3, 6, 1),
        Op::Idiv | Op::Imod | Op::FloorDiv | Op::FloorMod => (6, 1, 1),
        Op::Max | Op::Min => (1, 1, 8),
        // casts are part of the load or store of the value
        Op::Cast | Op::Bitcast => (0, 1, 1),
        // the index is computed and compared with the bounds
        Op::Gather | Op::DotBytes | Op::DotPairs => (3, 0, 0),
        op if op.is_alu() => (1, 1, 1),
        _ => (0, 0, 0),
    };
    Work { hidden, instructions, emulated }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In every unit a function costs more than a quotient or a sum, and what computes nothing is free.
    #[test]
    fn units_agree_on_what_is_dearer() {
        let all = |op: Op| [work(op).hidden, work(op).instructions, work(op).emulated];
        for op in [Op::Add, Op::Div, Op::Recip] {
            assert!((0..3).all(|i| all(op)[i] < all(Op::Exp2)[i] && all(Op::Exp2)[i] < all(Op::Sin)[i]), "{op:?}");
        }
        assert_eq!([all(Op::Load), all(Op::Range), all(Op::Reshape)], [[0; 3]; 3]);
    }
}
