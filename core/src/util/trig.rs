//! Sines, cosines and tangents as the host computes them for constants and for the evaluator. Never: what devices compute.
//!
//! They are std's, but for Windows' GNU toolchain: the sine of its C library is the processor's instruction, whose pi has 66 bits, so that it
//! is wrong near multiples of pi and anything for large numbers. There they are those of the crate `libm`, a port of FreeBSD's.

#[cfg(all(windows, target_env = "gnu"))]
pub use libm::{cos, sin, tan};
#[cfg(not(all(windows, target_env = "gnu")))]
pub use std_functions::{cos, sin, tan};

#[cfg(not(all(windows, target_env = "gnu")))]
mod std_functions {
    /// The sine of an angle in radians.
    #[inline]
    pub fn sin(x: f64) -> f64 {
        x.sin()
    }

    /// The cosine of an angle in radians.
    #[inline]
    pub fn cos(x: f64) -> f64 {
        x.cos()
    }

    /// The tangent of an angle in radians.
    #[inline]
    pub fn tan(x: f64) -> f64 {
        x.tan()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that mpmath gives with 80 digits, rounded.
    #[test]
    fn angles_of_every_size_are_reduced_exactly() {
        for (x, want) in [
            (f64::from(f32::MAX), [-0.5218765233336585, 0.8530210398303042, -0.6117979498342481]),
            (1e19, [-0.9270631660486504, -0.37490516955071784, 2.4727937658465273]),
            (355.0, [-3.014435335948845e-5, -0.999999999545659, 3.0144353373184265e-5]),
        ] {
            let got = [sin(x), cos(x), tan(x)];
            assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= 1e-15 * w.abs()), "{x}: {got:?}");
        }
    }
}
