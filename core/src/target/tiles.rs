//! The matrix tiles that hardware multiplies in one instruction, as data: [`super::Caps::matrix_tiles`] lists those of a
//! target. The kernel IR has one op for all of them ([`crate::uop::Op::Mma`]), which carries the layout, so a back end
//! only has to print it. Layouts are written in the notation that [`Layout::read`] reads: how the elements of the left
//! factor, the right factor and the product are distributed over threads and registers.

use super::{Caps, Limits, Target};
use crate::DType::{self, *};
use crate::uop::mma::{Layout, Side};

/// A product of small matrices that one instruction computes and adds to an accumulator.
#[derive(Clone, PartialEq, Debug)]
pub struct MatrixTile {
    /// Its shape, the threads that take part (one thread, or a subgroup), and which thread holds which element.
    pub layout: Layout,
    /// The dtype of both factors.
    pub factors: DType,
    /// The dtype of products and sums.
    pub sums: DType,
}

impl MatrixTile {
    /// Elements along m, n and k.
    pub fn sides(&self) -> [usize; 3] {
        [Side::M, Side::N, Side::K].map(|side| self.layout.len(side))
    }

    fn of(factors: DType, sums: DType, layout: &str) -> MatrixTile {
        MatrixTile { layout: Layout::read(layout).expect("layouts of this table are read by a test"), factors, sums }
    }

    /// NVIDIA since compute capability 8.0: `mma.sync.m16n8k16` of 16-bit floats and `mma.sync.m8n8k4` of f64 (PTX ISA,
    /// "Matrix fragments for mma").
    pub fn sm80() -> Vec<MatrixTile> {
        let halves = "k2x4 m1x8 | k1x2 m8x2 k8x2; k2x4 n1x8 | k1x2 k8x2; n2x4 m1x8 | n1x2 m8x2";
        vec![
            MatrixTile::of(BF16, F32, halves),
            MatrixTile::of(F16, F32, halves),
            MatrixTile::of(F64, F64, "k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2"),
        ]
    }

    /// Apple's simdgroup matrices, 8 by 8 by 8. The language leaves it to the hardware which thread holds which
    /// element; on every GPU that has them it is the layout given here, on which libraries rely that fill a thread's
    /// elements themselves (MLX, `steel/gemm/mma.h`).
    pub fn simdgroup() -> Vec<MatrixTile> {
        let layout = "k2x2 m1x4 k4x2 m4x2 | k1x2; n2x2 k1x4 n4x2 k4x2 | n1x2; n2x2 m1x4 n4x2 m4x2 | n1x2";
        [F16, BF16, F32].map(|factors| MatrixTile::of(factors, F32, layout)).into()
    }

    /// AMD RDNA 3 (gfx11): `v_wmma_f32_16x16x16` in waves of 32 threads (RDNA3 ISA, "Wave Matrix Multiply Accumulate").
    /// The instruction expects both factors twice, in either half of the wave; in this layout each half holds one half
    /// of the terms, and gets the other half by an exchange.
    pub fn rdna3() -> Vec<MatrixTile> {
        let layout = "m1x16 k8x2 | k1x8; n1x16 k8x2 | k1x8; n1x16 m1x2 | m2x8";
        [F16, BF16].map(|factors| MatrixTile::of(factors, F32, layout)).into()
    }

    /// AMD RDNA 4 (gfx12): the same product, but no element has to be held twice (RDNA4 ISA, the same section).
    pub fn rdna4() -> Vec<MatrixTile> {
        let layout = "m1x16 k8x2 | k1x8; n1x16 k8x2 | k1x8; n1x16 m8x2 | m1x8";
        [F16, BF16].map(|factors| MatrixTile::of(factors, F32, layout)).into()
    }

    /// AMD CDNA 3 (gfx942): `v_mfma_f32_16x16x16` in waves of 64 threads (CDNA3 ISA, "Matrix Arithmetic Instructions").
    pub fn cdna3() -> Vec<MatrixTile> {
        let layout = "m1x16 k4x4 | k1x4; n1x16 k4x4 | k1x4; n1x16 m4x4 | m1x4";
        [F16, BF16].map(|factors| MatrixTile::of(factors, F32, layout)).into()
    }

    /// NVIDIA at compute capability 9.0: `wgmma.mma_async` of 16-bit floats by the 128 threads of four warps, with both
    /// factors in workgroup memory (PTX ISA, "Asynchronous warpgroup-level matrix instructions"). The hardware also
    /// takes either factor with contiguous elements along the sum or along the factor's own side, and panels of as many
    /// rows as an array has; the layouts listed here are one choice of these.
    pub fn sm90() -> Vec<MatrixTile> {
        let layout = |n: usize| {
            let columns = if n > 64 { format!("n1x64 k1x16 n64x{}", n / 64) } else { format!("n1x{n} k1x16") };
            format!("k1x16 m1x64 @64; {columns} @64; n2x4 m1x8 m16x4 | n1x2 m8x2 n8x{}", n / 8)
        };
        [BF16, F16].into_iter().flat_map(|dt| [256, 128, 64].map(|n| MatrixTile::of(dt, F32, &layout(n)))).collect()
    }

    /// NVIDIA at compute capability 7.5: `mma.sync.m16n8k8` of f16.
    pub fn sm75() -> Vec<MatrixTile> {
        vec![MatrixTile::of(F16, F32, "k2x4 m1x8 | k1x2 m8x2; k2x4 n1x8 | k1x2; n2x4 m1x8 | n1x2 m8x2")]
    }

    /// 16 by 16 by 16 of f16, as subgroup matrices of shading languages have it. These languages leave it to the driver
    /// which thread holds which element, and move whole matrices between memory and registers; the distribution given
    /// here is one of the possible ones.
    pub fn subgroup_matrix() -> Vec<MatrixTile> {
        vec![MatrixTile::of(F16, F32, "m1x16 k8x2 | k1x8; n1x16 k8x2 | k1x8; n1x16 m8x2 | m1x8")]
    }
}

impl Target {
    /// A GPU with these tiles and NVIDIA's limits whose programs are interpreted: for tests of layouts.
    pub fn matrix(name: &str, tiles: Vec<MatrixTile>) -> Target {
        Target {
            name: name.into(),
            lang: super::Lang::Eval,
            caps: Caps {
                lanes: 4,
                vector_registers: 32,
                fma: true,
                has_local: true,
                subgroup: 32,
                matrix_tiles: tiles,
                ..Caps::eval()
            },
            limits: Limits::nvidia(),
            machine: super::Machine::gpu(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_a_tile_has_one_place() {
        let sides = |list: Vec<MatrixTile>| {
            list.iter()
                .map(|t| {
                    assert!(t.layout.is_consistent(), "{}", t.layout);
                    assert_eq!(Layout::read(&t.layout.to_string()).as_ref(), Some(&t.layout));
                    (t.sides(), t.layout.threads(), [&t.layout.a, &t.layout.b, &t.layout.c].map(|s| s.held()))
                })
                .collect::<Vec<_>>()
        };
        let halves = ([16, 8, 16], 32, [8, 4, 4]);
        assert_eq!(sides(MatrixTile::sm80()), [halves, halves, ([8, 8, 4], 32, [1, 1, 2])]);
        let wide = |n: usize| ([64, n, 16], 128, [0, 0, n / 2]);
        let held = |(sides, threads, [_, _, c]): ([usize; 3], usize, [usize; 3])| (sides, threads, [0, 0, c]);
        let of_memory: Vec<_> = sides(MatrixTile::sm90()).into_iter().map(held).collect();
        assert_eq!(of_memory, [256, 128, 64, 256, 128, 64].map(wide));
        assert_eq!(sides(MatrixTile::sm75()), [([16, 8, 8], 32, [4, 2, 4])]);
        assert_eq!(sides(MatrixTile::subgroup_matrix()), [([16, 16, 16], 32, [8, 8, 8])]);
        assert_eq!(sides(MatrixTile::simdgroup()), [([8, 8, 8], 32, [2, 2, 2]); 3]);
        assert_eq!(sides(MatrixTile::rdna3()), [([16, 16, 16], 32, [8, 8, 8]); 2]);
        assert_eq!(sides(MatrixTile::rdna4()), [([16, 16, 16], 32, [8, 8, 8]); 2]);
        assert_eq!(sides(MatrixTile::cdna3()), [([16, 16, 16], 64, [4, 4, 4]); 2]);
    }

    /// Positions of the elements of `mma.m16n8k16` according to PTX: the formulas of its tables, element by element.
    #[test]
    fn fragments_are_those_of_the_ptx_isa() {
        let l = &MatrixTile::sm80()[0].layout;
        for lane in 0..32 {
            let (group, in_group) = (lane >> 2, lane % 4);
            for i in 0..8 {
                let row = if i < 2 || (4..6).contains(&i) { group } else { group + 8 };
                let col = in_group * 2 + (i & 1) + if i < 4 { 0 } else { 8 };
                let coordinates = (l.a.coordinate(Side::M, lane, i), l.a.coordinate(Side::K, lane, i));
                assert_eq!(coordinates, (row, col), "a{i} of {lane}");
            }
            for i in 0..4 {
                let row = in_group * 2 + (i & 1) + if i < 2 { 0 } else { 8 };
                let coordinates = (l.b.coordinate(Side::K, lane, i), l.b.coordinate(Side::N, lane, i));
                assert_eq!(coordinates, (row, group), "b{i} of {lane}");
                let (row, col) = (if i < 2 { group } else { group + 8 }, in_group * 2 + (i & 1));
                let coordinates = (l.c.coordinate(Side::M, lane, i), l.c.coordinate(Side::N, lane, i));
                assert_eq!(coordinates, (row, col), "c{i} of {lane}");
            }
        }
        let l = &MatrixTile::sm80()[2].layout;
        for lane in 0..32 {
            assert_eq!((l.a.coordinate(Side::M, lane, 0), l.a.coordinate(Side::K, lane, 0)), (lane >> 2, lane % 4));
            assert_eq!((l.b.coordinate(Side::K, lane, 0), l.b.coordinate(Side::N, lane, 0)), (lane % 4, lane >> 2));
            for i in 0..2 {
                let coordinates = (l.c.coordinate(Side::M, lane, i), l.c.coordinate(Side::N, lane, i));
                assert_eq!(coordinates, (lane >> 2, lane % 4 * 2 + i));
            }
        }
    }
}
