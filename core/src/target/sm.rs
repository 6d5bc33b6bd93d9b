//! NVIDIA GPUs by compute capability: which instructions code for each may use. To support a newer one, add a row to
//! `KNOWN` and to [`Sm::ALL`].

use super::{Caps, Copies, DTypeSet, Lang, Limits, Machine, MatrixTile, Target, functions};
use crate::DType;

/// A compute capability times ten: 86 is 8.6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Sm(u16);

/// One row for each capability: compute capability times ten; the first PTX version that knows this target and its
/// matrix tiles; the name of the target; kB of workgroup memory that a kernel may ask for (CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability"); and multiprocessors of a typical GPU, for when no driver reports
/// the number. Code for `sm_90a` may use all features of 9.0 and runs on 9.0 alone.
const KNOWN: [(u16, &str, &str, usize, usize); 6] = [
    (75, "6.5", "sm_75", 64, 40),
    (80, "7.0", "sm_80", 163, 108),
    (86, "7.1", "sm_86", 99, 68),
    (90, "8.0", "sm_90a", 227, 132),
    (100, "8.6", "sm_100", 227, 148),
    (120, "8.7", "sm_120", 99, 170),
];
/// How many blocks of a loop asynchronous copies may have in workgroup memory or on the way there: with fewer, kernels
/// wait for memory; more would only take workgroup memory.
const BLOCKS: usize = 4;

impl Sm {
    /// The capabilities for which code is generated, the oldest first.
    pub const ALL: [Sm; 6] = [Sm(75), Sm(80), Sm(86), Sm(90), Sm(100), Sm(120)];

    /// The newest known capability whose code runs on a GPU of this capability, if there is one.
    pub fn of(major: u32, minor: u32) -> Option<Sm> {
        let has = major.saturating_mul(10).saturating_add(minor);
        let row = KNOWN.iter().rev().find(|k| u32::from(k.0) <= has)?;
        // sm_90a code runs on no other capability
        if row.0 == 90 && has != 90 { Some(Sm(86)) } else { Some(Sm(row.0)) }
    }

    fn row(self) -> &'static (u16, &'static str, &'static str, usize, usize) {
        KNOWN.iter().rfind(|k| k.0 <= self.0).unwrap_or(&KNOWN[0])
    }

    /// The name as PTX's `.target` directive has it.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// The PTX version as the `.version` directive has it.
    pub fn isa(self) -> &'static str {
        self.row().1
    }

    /// Asynchronous copies to workgroup memory (`cp.async`), if the GPU has them.
    fn copies(self) -> Option<Copies> {
        (self.0 >= 80).then_some(Copies { blocks: BLOCKS, bytes: self.row().3 << 10 })
    }

    /// Does it have bf16 arithmetic, and the maximum of floats that propagates NaN?
    pub fn has_bf16(self) -> bool {
        self.0 >= 80
    }
}

impl Target {
    /// An NVIDIA GPU through PTX; drivers fill in how much memory it has.
    pub fn cuda(name: &str, sm: Sm) -> Target {
        use DType::*;
        Target {
            name: name.into(),
            lang: Lang::Ptx,
            caps: Caps {
                sm: Some(sm),
                lanes: 4,
                vector_registers: 32,
                arithmetic: DTypeSet::of(&[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64]),
                fma: true,
                functions: functions::PTX,
                has_local: true,
                subgroup: 32,
                matrix_tiles: match sm.has_bf16() {
                    _ if !crate::uop::mma::MATRIX_TILES_ENABLED => Vec::new(),
                    true if sm.name() == "sm_90a" => [MatrixTile::sm80(), MatrixTile::sm90()].concat(),
                    true => MatrixTile::sm80(),
                    false => MatrixTile::sm75(),
                },
                copies: sm.copies().filter(|_| crate::uop::mma::MATRIX_TILES_ENABLED),
                ..Caps::eval()
            },
            limits: Limits::nvidia(),
            machine: Machine { processors: sm.row().4, ..Machine::gpu() },
        }
        .with_words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_gets_code_that_it_runs() {
        let of = |major, minor| Sm::of(major, minor).map(Sm::name);
        assert_eq!(of(7, 0), None);
        assert_eq!([of(7, 5), of(8, 0), of(8, 9)], [Some("sm_75"), Some("sm_80"), Some("sm_86")]);
        assert_eq!([of(9, 0), of(9, 1), of(12, 1)], [Some("sm_90a"), Some("sm_86"), Some("sm_120")]);
        assert!(Sm::ALL.iter().zip(KNOWN).all(|(sm, row)| sm.0 == row.0));
    }
}
