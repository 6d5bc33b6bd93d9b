//! Rows of the table: arithmetic, comparison, logic, unary and special functions, activations.

use super::*;

ops! {
    // ---- arithmetic
    "add" | "__radd__" (s: Session, input: Operand, other: Operand, alpha: Option<Operand>) either(&s, input, scaled(&s, other,
        alpha)?, |a, b| a.add(b));
    "sub" | "subtract" (s: Session, input: Operand, other: Operand, alpha: Option<Operand>) either(&s, input, scaled(&s, other,
        alpha)?, |a, b| a.sub(b));
    "rsub" | "__rsub__" (s: Session, input: Operand, other: Operand, alpha: Option<Operand>) either(&s, other, scaled(&s, input,
        alpha)?, |a, b| a.sub(b));
    "mul" | "multiply" | "__rmul__" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.mul(b));
    "div" | "divide" | "true_divide" (s: Session, input: Operand, other: Operand, rounding_mode: Option<&str>) match rounding_mode {
        None => either(&s, input, other, |a, b| a.div(b)),
        Some("floor") => either(&s, input, other, |a, b| a.floor_div(b)),
        Some(_) => either(&s, input, other, |a, b| a.trunc_div(b)),
    };
    "__rdiv__" (s: Session, input: Operand, other: Operand) either(&s, other, input, |a, b| a.div(b));
    "floor_divide" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.floor_div(b));
    "remainder" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.modulo(b));
    "__rmod__" (s: Session, input: Operand, other: Operand) either(&s, other, input, |a, b| a.modulo(b));
    "fmod" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.fmod(b));
    "pow" (s: Session, input: Operand, exponent: Operand) either(&s, input, exponent, |a, b| a.pow(b));
    "__rpow__" (s: Session, input: Operand, exponent: Operand) either(&s, exponent, input, |a, b| a.pow(b));
    "float_power" (s: Session, input: Operand, exponent: Operand) tensor(&s, input)?.to_float()?.pow(exponent);
    "maximum" (input: Tensor, other: Operand) input.maximum(other);
    "minimum" (input: Tensor, other: Operand) input.minimum(other);
    "fmax" (input: Tensor, other: Tensor) input.fmax(&other);
    "fmin" (input: Tensor, other: Tensor) input.fmin(&other);
    "addcmul" (input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Operand = Operand::Int(1)) input.add(tensor1.mul(tensor2)?.mul(value)?);
    "addcdiv" (input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Operand = Operand::Int(1)) input.add(tensor1.mul(value)?.div(tensor2)?);
    "lerp" (input: Tensor, end: Tensor, weight: Operand) input.lerp(&end, weight);
    "clamp" | "clip" (input: Tensor, min: Option<Operand>, max: Option<Operand>) input.clamp_to(min, max);
    "clamp_min" (input: Tensor, min: Operand) input.maximum(min);
    "clamp_max" (input: Tensor, max: Operand) input.minimum(max);
    "copysign" (s: Session, input: Tensor, other: Operand) input.to_float()?.copysign(&tensor(&s, other)?);
    "ldexp" (input: Tensor, other: Tensor) input.to_float()?.mul(other.to_float()?.exp2()?);
    "nan_to_num" (input: Tensor, nan: f64 = 0.0, posinf: Option<f64>, neginf: Option<f64>) input.nan_to_num(nan, posinf, neginf);
    "hypot" (input: Tensor, other: Tensor) input.hypot(&other);
    "atan2" | "arctan2" (input: Tensor, other: Tensor) input.atan2(&other);
    "logaddexp" (input: Tensor, other: Tensor) input.logaddexp(&other);
    "logaddexp2" (input: Tensor, other: Tensor) input.logaddexp2(&other);
    "heaviside" (input: Tensor, values: Tensor) input.heaviside(&values);
    "gcd" (input: Tensor, other: Tensor) input.gcd(&other);
    "lcm" (input: Tensor, other: Tensor) input.lcm(&other);
    "nextafter" (input: Tensor, other: Tensor) input.nextafter(&other);
    "frexp" (input: Tensor) input.frexp();
    "dist" (input: Tensor, other: Tensor, p: f64 = 2.0) input.sub(other)?.norm(p, &[], false);
    // ---- comparison and logic
    "eq" (input: Tensor, other: Operand) input.eq(other);
    "ne" (input: Tensor, other: Operand) input.ne(other);
    "lt" (input: Tensor, other: Operand) input.lt(other);
    "le" (input: Tensor, other: Operand) input.le(other);
    "gt" (input: Tensor, other: Operand) input.gt(other);
    "ge" (input: Tensor, other: Operand) input.ge(other);
    "isclose" (input: Tensor, other: Tensor, rtol: f64 = 1e-5, atol: f64 = 1e-8, equal_nan: bool = false) {
        let near = input.isclose(&other, rtol, atol)?;
        if equal_nan { near.logical_or(input.isnan()?.logical_and(other.isnan()?)?) } else { Ok(near) }
    };
    "allclose" (input: Tensor, other: Tensor, rtol: f64 = 1e-5, atol: f64 = 1e-8) input.allclose(&other, rtol, atol);
    "logical_and" (input: Tensor, other: Operand) input.logical_and(other);
    "logical_or" (input: Tensor, other: Operand) input.logical_or(other);
    "logical_xor" (input: Tensor, other: Operand) input.logical_xor(other);
    "logical_not" (input: Tensor) input.logical_not();
    "bitwise_and" | "__rand__" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.bit_and(b));
    "bitwise_or" | "__ror__" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.bit_or(b));
    "bitwise_xor" | "__rxor__" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.bit_xor(b));
    "bitwise_not" (input: Tensor) input.bit_not();
    "bitwise_left_shift" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.shift_left(b));
    "bitwise_right_shift" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| a.shift_right(b));
    "isnan" (input: Tensor) input.isnan();
    "isinf" (input: Tensor) input.isinf();
    "isfinite" (input: Tensor) input.isfinite();
    "isposinf" (input: Tensor) input.eq(f64::INFINITY);
    "isneginf" (input: Tensor) input.eq(f64::NEG_INFINITY);
    "isreal" (input: Tensor) Tensor::full(input.session(), true, DType::Bool, &input.shape());
    "signbit" (input: Tensor) input.signbit();
    "where" (condition: Tensor, input: Operand, other: Operand) match (input, other) {
        (Operand::Tensor(a), b) => condition.select(a, b),
        (a, Operand::Tensor(b)) => b.scalar_lhs(a, |l, r| condition.select(l, r)),
        (a, b) => condition.select(Tensor::scalar(condition.session(), a)?, b),
    };
    "masked_fill" (input: Tensor, mask: Tensor, value: Operand) input.masked_fill(&mask, value);
    // ---- unary
    "neg" | "negative" (input: Tensor) input.neg();
    "positive" | "conj" | "conj_physical" | "real" | "resolve_conj" | "resolve_neg" | "alias_copy" (input: Tensor) Ok(input);
    "abs" | "absolute" (input: Tensor) input.abs();
    "sign" | "sgn" (input: Tensor) input.sign();
    "floor" (input: Tensor) input.floor();
    "ceil" (input: Tensor) input.ceil();
    "trunc" | "fix" (input: Tensor) input.trunc();
    "round" (input: Tensor, decimals: i64 = 0) input.round_to(decimals.clamp(-400, 400) as i32);
    "frac" (input: Tensor) input.frac();
    "square" (input: Tensor) input.square();
    "sqrt" (input: Tensor) input.sqrt();
    "rsqrt" (input: Tensor) input.rsqrt();
    "reciprocal" (input: Tensor) input.reciprocal();
    "exp" (input: Tensor) input.exp();
    "exp2" (input: Tensor) input.exp2();
    "expm1" (input: Tensor) input.expm1();
    "log" (input: Tensor) input.log();
    "log2" (input: Tensor) input.log2();
    "log10" (input: Tensor) input.log10();
    "log1p" (input: Tensor) input.log1p();
    "sin" (input: Tensor) input.sin();
    "cos" (input: Tensor) input.cos();
    "tan" (input: Tensor) input.tan();
    "asin" | "arcsin" (input: Tensor) input.asin();
    "acos" | "arccos" (input: Tensor) input.acos();
    "atan" | "arctan" (input: Tensor) input.atan();
    "sinh" (input: Tensor) input.sinh();
    "cosh" (input: Tensor) input.cosh();
    "tanh" (input: Tensor) input.tanh();
    "asinh" | "arcsinh" (input: Tensor) input.asinh();
    "acosh" | "arccosh" (input: Tensor) input.acosh();
    "atanh" | "arctanh" (input: Tensor) input.atanh();
    "angle" (input: Tensor) input.angle();
    "deg2rad" (input: Tensor) input.mul(std::f64::consts::PI / 180.0);
    "rad2deg" (input: Tensor) input.mul(180.0 / std::f64::consts::PI);
    "sinc" (input: Tensor) input.sinc();
    "sigmoid" | "special.expit" (input: Tensor) input.sigmoid();
    "logit" (input: Tensor, eps: Option<f64>) input.logit(eps);
    // ---- special functions
    "erf" (input: Tensor) input.erf();
    "erfc" (input: Tensor) input.erfc();
    "special.erfcx" (input: Tensor) input.erfcx();
    "erfinv" (input: Tensor) input.erfinv();
    "lgamma" (input: Tensor) input.lgamma();
    "digamma" (input: Tensor) input.digamma();
    "polygamma" | "special.polygamma" (input: Tensor, n: usize) input.polygamma(n);
    "mvlgamma" (input: Tensor, p: usize) input.mvlgamma(p);
    "special.zeta" (s: Session, input: Operand, other: Operand) either(&s, input, other, |a, b| { let q = a.full_operand(&b)?; a.zeta(&q) });
    "igamma" (input: Tensor, other: Tensor) input.igamma(&other);
    "igammac" (input: Tensor, other: Tensor) input.igammac(&other);
    "i0" | "special.modified_bessel_i0" (input: Tensor) input.i0();
    "special.i0e" (input: Tensor) input.i0e();
    "special.i1" | "special.modified_bessel_i1" (input: Tensor) input.i1();
    "special.i1e" (input: Tensor) input.i1e();
    "special.modified_bessel_k0" (input: Tensor) input.k0();
    "special.modified_bessel_k1" (input: Tensor) input.k1();
    "special.scaled_modified_bessel_k0" (input: Tensor) input.k0e();
    "special.scaled_modified_bessel_k1" (input: Tensor) input.k1e();
    "special.airy_ai" (input: Tensor) input.airy_ai();
    "special.bessel_j0" (input: Tensor) input.j0();
    "special.bessel_j1" (input: Tensor) input.j1();
    "special.bessel_y0" (input: Tensor) input.y0();
    "special.bessel_y1" (input: Tensor) input.y1();
    "special.spherical_bessel_j0" (input: Tensor) input.div(std::f64::consts::PI)?.sinc();
    "special.entr" (input: Tensor) input.entr();
    "special.ndtr" (input: Tensor) input.ndtr();
    "special.ndtri" (input: Tensor) input.ndtri();
    "special.log_ndtr" (input: Tensor) input.log_ndtr();
    "xlogy" (s: Session, input: Operand, other: Operand) { let y = tensor(&s, other)?; either(&s, input, Operand::Tensor(y), |a,
        b| { let y = a.full_operand(&b)?; a.xlogy(&y) }) };
    "special.xlog1py" (s: Session, input: Operand, other: Operand) { let y = tensor(&s, other)?; either(&s, input, Operand::Tensor(y),
        |a, b| { let y = a.full_operand(&b)?; a.xlog1py(&y) }) };
    "special.chebyshev_polynomial_t" (s: Session, input: Operand, n: Operand) tensor(&s, input)?.orthogonal("chebyshev_t", &tensor(&s, n)?);
    "special.chebyshev_polynomial_u" (s: Session, input: Operand, n: Operand) tensor(&s, input)?.orthogonal("chebyshev_u", &tensor(&s, n)?);
    "special.chebyshev_polynomial_v" (s: Session, input: Operand, n: Operand) tensor(&s, input)?.orthogonal("chebyshev_v", &tensor(&s, n)?);
    "special.chebyshev_polynomial_w" (s: Session, input: Operand, n: Operand) tensor(&s, input)?.orthogonal("chebyshev_w", &tensor(&s, n)?);
    "special.shifted_chebyshev_polynomial_t" (s: Session, input: Operand, n: Operand) tensor(&s,
        input)?.mul(2.0)?.sub(1)?.orthogonal("chebyshev_t", &tensor(&s, n)?);
    "special.shifted_chebyshev_polynomial_u" (s: Session, input: Operand, n: Operand) tensor(&s,
        input)?.mul(2.0)?.sub(1)?.orthogonal("chebyshev_u", &tensor(&s, n)?);
    "special.shifted_chebyshev_polynomial_v" (s: Session, input: Operand, n: Operand) tensor(&s,
        input)?.mul(2.0)?.sub(1)?.orthogonal("chebyshev_v", &tensor(&s, n)?);
    "special.shifted_chebyshev_polynomial_w" (s: Session, input: Operand, n: Operand) tensor(&s,
        input)?.mul(2.0)?.sub(1)?.orthogonal("chebyshev_w", &tensor(&s, n)?);
    "special.hermite_polynomial_h" (s: Session, input: Operand, n: Operand) tensor(&s, input)?.orthogonal("hermite_h", &tensor(&s, n)?);
    "special.hermite_polynomial_he" (s: Session, input: Operand, n: Operand) tensor(&s, input)?.orthogonal("hermite_he", &tensor(&s, n)?);
    "special.laguerre_polynomial_l" (s: Session, input: Operand, n: Operand) tensor(&s, input)?.orthogonal("laguerre", &tensor(&s, n)?);
    "special.legendre_polynomial_p" (s: Session, input: Operand, n: Operand) tensor(&s, input)?.orthogonal("legendre", &tensor(&s, n)?);
    // ---- activations
    "nn.functional.relu" | "relu" (input: Tensor, inplace: bool = false) { let _ = inplace; input.relu() };
    "nn.functional.relu6" (input: Tensor, inplace: bool = false) { let _ = inplace; input.relu6() };
    "nn.functional.leaky_relu" (input: Tensor, negative_slope: f64 = 0.01, inplace: bool = false) { let _ = inplace;
        input.leaky_relu(negative_slope) };
    "nn.functional.prelu" | "prelu" (input: Tensor, weight: Tensor) { let w = if weight.numel() == 1 { weight.reshape(&[0usize;
        0])? } else { weight.per_channel("prelu", &input.shape())? }; input.prelu(&w) };
    "nn.functional.elu" (input: Tensor, alpha: f64 = 1.0, inplace: bool = false) { let _ = inplace; input.elu(alpha) };
    "nn.functional.celu" | "celu" (input: Tensor, alpha: f64 = 1.0, inplace: bool = false) { let _ = inplace; input.celu(alpha) };
    "nn.functional.selu" | "selu" (input: Tensor, inplace: bool = false) { let _ = inplace; input.selu() };
    "nn.functional.silu" (input: Tensor, inplace: bool = false) { let _ = inplace; input.silu() };
    "nn.functional.mish" (input: Tensor, inplace: bool = false) { let _ = inplace; input.mish() };
    "nn.functional.gelu" (input: Tensor, approximate: &str = "none") if approximate == "tanh" { input.gelu_tanh() } else { input.gelu() };
    // x sigmoid(1.702 x), which models write out
    "quick_gelu" (input: Tensor) input.quick_gelu();
    "nn.functional.glu" (input: Tensor, dim: i64 = -1) input.glu(dim);
    "nn.functional.softplus" (input: Tensor, beta: f64 = 1.0, threshold: f64 = 20.0) { let soft = input.softplus(beta)?;
        input.mul(beta)?.gt(threshold)?.select(&input, soft) };
    "nn.functional.softsign" (input: Tensor) input.softsign();
    "nn.functional.logsigmoid" (input: Tensor) input.log_sigmoid();
    "nn.functional.hardsigmoid" (input: Tensor, inplace: bool = false) { let _ = inplace; input.hard_sigmoid(1.0 / 6.0, 0.5) };
    "nn.functional.hardswish" (input: Tensor, inplace: bool = false) { let _ = inplace; input.hard_swish() };
    "nn.functional.hardtanh" (input: Tensor, min_val: Operand = Operand::Int(-1), max_val: Operand = Operand::Int(1),
        inplace: bool = false) { let _ = inplace; input.clamp(input.full_operand(&min_val)?, input.full_operand(&max_val)?) };
    "nn.functional.hardshrink" (input: Tensor, lambd: f64 = 0.5) input.hardshrink(lambd);
    "nn.functional.softshrink" (input: Tensor, lambd: f64 = 0.5) input.softshrink(lambd);
    "nn.functional.tanhshrink" (input: Tensor) input.sub(input.tanh()?);
    "nn.functional.threshold" (input: Tensor, threshold: Operand, value: Operand, inplace: bool = false) { let _ = inplace;
        input.gt(threshold)?.select(&input, input.full_operand(&value)?) };
    // ---- dtypes
    "bfloat16" (input: Tensor) input.cast(DType::BF16);
    "half" (input: Tensor) input.cast(DType::F16);
    "float" (input: Tensor) input.cast(DType::F32);
    "double" (input: Tensor) input.cast(DType::F64);
    "long" (input: Tensor) input.cast(DType::I64);
    "int" (input: Tensor) input.cast(DType::I32);
    "short" (input: Tensor) input.cast(DType::I16);
    "char" (input: Tensor) input.cast(DType::I8);
    "byte" (input: Tensor) input.cast(DType::U8);
    "bool" (input: Tensor) input.to_bool();
}

/// `other * alpha`, the second operand of torch's `add` and `sub`.
fn scaled(s: &Session, other: Operand, alpha: Option<Operand>) -> Result<Operand> {
    match alpha {
        None | Some(Operand::Int(1)) => Ok(other),
        Some(a) => Ok(Operand::Tensor(either(s, other, a, |a, b| a.mul(b))?)),
    }
}
