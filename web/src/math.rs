//! The C math functions that Rust's standard library calls for f64, implemented by the host's `Math`, whose accuracy of
//! about one ulp is that of the C library. Linking the library's own functions with their tables would add 7 kB to the
//! download (brotli, measured). They are used to fold constants; kernels compute such functions themselves.

use js_sys::Math;

/// Defines functions under the symbol names that compiled code calls; the linker uses them instead of the library's.
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
    // in C the result is 1 in these cases, in JavaScript NaN
    pow(x, y) = if x == 1.0 || x == -1.0 && y.is_infinite() { 1.0 } else { Math::pow(x, y) };
    sin(x) = Math::sin(x);
    tan(x) = Math::tan(x);
}
