//! Sample programs with inputs and the results they must give, computed here in plain Rust (not by any renderer or by the
//! interpreter). [`samples`] builds them for a target: with `has_local` over Grid(0..2) and Local, else over Grid(0) only.
//!
//! Memory types: where a target does not store a dtype, parameters are declared with [`stored`] and values are cast.

pub mod alu;
mod build;
mod dots;
mod kernels;
mod masked;
mod ops;
mod rows;
mod stages;
mod tiles;

pub use build::{Build, Data, stored};
pub use dots::dot;
pub use kernels::matmul;
pub use ops::powers;

use gradloom_core::DType;
use gradloom_core::codegen::Program;
use gradloom_core::dtype::Scalar;
use gradloom_core::target::Target;

/// How close a result must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tol {
    /// Same value, sign of zero included; NaN equals NaN.
    Exact,
    /// Within `rel * max(|want|, floor)`.
    Rel {
        /// Relative error.
        rel: f64,
        /// Magnitude below which the error is absolute.
        floor: f64,
    },
    /// So many units in the last place of f32.
    Ulp(f64),
}

impl Tol {
    /// A few units in the last place of `dt` (floats); exact for integers.
    pub fn of(dt: DType) -> Tol {
        match dt {
            DType::F32 => Tol::Rel { rel: 5e-7, floor: 1e-36 },
            DType::F64 => Tol::Rel { rel: 1e-15, floor: 1e-300 },
            DType::F16 => Tol::Rel { rel: 1e-3, floor: 6e-5 },
            DType::BF16 => Tol::Rel { rel: 8e-3, floor: 1e-36 },
            _ => Tol::Exact,
        }
    }
}

/// A program, what its buffers hold at first, and what they must hold after.
pub struct Sample {
    /// The program.
    pub program: Program,
    /// Initial content by slot (written slots too: elements that the program does not store must stay).
    pub data: Vec<Data>,
    /// Wanted content by slot, for the written ones.
    pub want: Vec<Option<Vec<Scalar>>>,
    /// Launch scalars.
    pub vars: Vec<u32>,
    /// Tolerance of float results.
    pub tol: Tol,
}

impl Sample {
    /// Compares the final bytes of all slots with what is wanted; the first differences as text.
    pub fn check(&self, got: &[Vec<u8>]) -> std::result::Result<(), String> {
        for (slot, want) in self.want.iter().enumerate() {
            let dt = self.program.params[slot].dtype;
            let got = Data::from_bytes(dt, &got[slot]).values;
            let want = want.as_ref().unwrap_or(&self.data[slot].values);
            if got.len() != want.len() {
                return Err(format!("{}: slot {slot} has {} elements", self.program.name, got.len()));
            }
            let bad: Vec<usize> = (0..got.len()).filter(|&i| !close(got[i], want[i], dt, self.tol)).collect();
            if !bad.is_empty() {
                let list: Vec<String> =
                    bad.iter().take(6).map(|&i| format!("[{i}] got {:?} want {:?}", got[i], want[i])).collect();
                let name = &self.program.name;
                return Err(format!("{name}: slot {slot} ({dt}), {} wrong of {}: {list:?}", bad.len(), got.len()));
            }
        }
        Ok(())
    }
}

fn close(got: Scalar, want: Scalar, dt: DType, tol: Tol) -> bool {
    let (g, w) = (got.as_f64(), want.as_f64());
    if !dt.is_float() || got == want || (g.is_nan() && w.is_nan()) {
        return got == want || (dt.is_float() && g.is_nan() && w.is_nan());
    }
    match tol {
        Tol::Exact => false,
        Tol::Rel { .. } | Tol::Ulp(_) if g.is_infinite() || w.is_infinite() => false,
        Tol::Ulp(ulp) => {
            (g - w).abs()
                <= ulp
                    * f64::from(f32::EPSILON)
                    * 2f64.powi((w.abs() as f32).max(f32::MIN_POSITIVE).log2().floor() as i32)
        }
        Tol::Rel { rel, floor } => (g - w).abs() <= rel * w.abs().max(floor),
    }
}

/// Every sample that a target can run.
pub fn samples(t: &Target) -> Vec<Sample> {
    let mut out = Vec::new();
    ops::add(t, &mut out);
    tiles::add(t, &mut out);
    kernels::add(t, &mut out);
    rows::add(t, &mut out);
    masked::add(t, &mut out);
    dots::add(t, &mut out);
    stages::add(t, &mut out);
    out
}
