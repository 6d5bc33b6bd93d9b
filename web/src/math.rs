//! The functions of C's mathematics library that the standard library calls for f64, by the host's `Math`. Every host has them, correct to
//! about the last bit as those of the library are, and the library's own with their tables were 7 kB of what a page downloads (brotli,
//! measured). Constants are folded by them; kernels compute such functions themselves.

use js_sys::Math;

/// Defines functions under the names by which compiled code calls them: the linker takes them in place of the library's.
macro_rules! by_host {
    ($($name:ident($($x:ident),*) = $value:expr;)*) => {
        $(
            // SAFETY: the name is that of the C function with these parameters and this result, and it computes the same.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($x: f64),*) -> f64 {
                $value
            }
        )*
    };
}

by_host! {
    cos(x) = Math::cos(x);
    exp(x) = Math::exp(x);
    exp2(x) = Math::pow(2.0, x);
    log(x) = Math::log(x);
    log2(x) = Math::log2(x);
    // C says 1 where JavaScript has NaN
    pow(x, y) = if x == 1.0 || x == -1.0 && y.is_infinite() { 1.0 } else { Math::pow(x, y) };
    sin(x) = Math::sin(x);
    tan(x) = Math::tan(x);
}
