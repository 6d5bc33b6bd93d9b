//! Helper functions in WGSL, printed into the shaders that use them, for cases that the language leaves undefined: NaN
//! and infinities, divisions by zero, conversions, and rounding to 16-bit floats.

use super::dialect::{Wgsl, memory_type, scalar_type};
use crate::DType::{self, F32, I32, U32};
use crate::uop::Op;
use crate::util::decimal::{Shown, of_f32};

/// Replaces `{f}`, `{i}`, `{u}` and `{b}` in a template by the f32, i32, u32 and bool types with this number of lanes.
fn fill(template: &str, lanes: usize) -> String {
    let of = |dt| memory_type(dt, lanes);
    template.replace("{f}", &of(F32)).replace("{i}", &of(I32)).replace("{u}", &of(U32)).replace("{b}", &of(DType::Bool))
}

impl Wgsl {
    fn template(&mut self, name: String, text: &str, lanes: usize) -> String {
        let text = fill(text, lanes).replace("{name}", &name);
        self.require_helper(name, |_| text)
    }

    /// An f32 constant. Inf and NaN, which WGSL does not allow as constants, are made of the bits in a private
    /// variable.
    pub(super) fn float(&mut self, v: f32) -> String {
        if v.is_finite() {
            // the shortest decimal form of the largest f32 is above its value, which Tint refuses; the digits of its
            // f64 are exact
            let s = if v.abs() == f32::MAX { format!("{:?}", Shown(f64::from(v))) } else { of_f32(v) };
            return if v.is_sign_negative() { format!("({s}f)") } else { format!("{s}f") };
        }
        let (name, bits) = match v {
            _ if v.is_nan() => ("nan_bits", 0x7fc0_0000u32),
            _ if v > 0.0 => ("inf_bits", 0x7f80_0000),
            _ => ("neg_inf_bits", 0xff80_0000),
        };
        self.require_helper(name.into(), |_| format!("var<private> {name}: u32 = {bits:#x}u;\n"));
        format!("bitcast<f32>({name})")
    }

    pub(super) fn is_nan(&mut self, lanes: usize) -> String {
        self.has_exponent("is_nan", ">", lanes)
    }

    pub(super) fn is_not_finite(&mut self, lanes: usize) -> String {
        self.has_exponent("is_not_finite", ">=", lanes)
    }

    /// The name of a helper that compares the bits of `|x|` with those of infinity; `than` is `>` (NaN) or `>=` (NaN or
    /// infinite).
    fn has_exponent(&mut self, name: &str, than: &str, lanes: usize) -> String {
        let text = "fn {name}(x: {f}) -> {b} {\n  \
            return (bitcast<{u}>(x) & {u}(0x7fffffffu)) {than} {u}(0x7f800000u);\n}\n";
        self.template(format!("{name}_{lanes}"), &text.replace("{than}", than), lanes)
    }

    /// The name of a maximum or minimum that gives NaN if either operand is NaN. With `second_is_not_nan` the second
    /// operand is known not to be NaN.
    pub(super) fn min_max_helper(&mut self, op: Op, second_is_not_nan: bool, lanes: usize) -> String {
        let nan = self.is_nan(lanes);
        let f = if op == Op::Max { "max" } else { "min" };
        if second_is_not_nan {
            let text =
                format!("fn {{name}}(x: {{f}}, y: {{f}}) -> {{f}} {{\n  return select({f}(x, y), x, {nan}(x));\n}}\n");
            return self.template(format!("{f}_number_{lanes}"), &text, lanes);
        }
        let text = format!(
            "fn {{name}}(x: {{f}}, y: {{f}}) -> {{f}} {{\n  \
            return select(select({f}(x, y), y, {nan}(y)), x, {nan}(x));\n}}\n"
        );
        self.template(format!("{f}_{lanes}"), &text, lanes)
    }

    /// The name of a conversion from f32 to i32 or u32 that truncates, saturates, and gives 0 for NaN.
    pub(super) fn saturate(&mut self, to: &str, lanes: usize) -> String {
        let nan = self.is_nan(lanes);
        let text = if to == "i32" {
            format!(
                "fn {{name}}(x: {{f}}) -> {{i}} {{\n  \
                let r = {{i}}(clamp(x, {{f}}(-2147483648.0), {{f}}(2147483520.0)));\n  \
                return select(select(r, {{i}}(2147483647), x >= {{f}}(2147483648.0)), {{i}}(0), {nan}(x));\n}}\n"
            )
        } else {
            format!(
                "fn {{name}}(x: {{f}}) -> {{u}} {{\n  \
                let r = {{u}}(clamp(x, {{f}}(0.0), {{f}}(4294967040.0)));\n  \
                return select(select(r, {{u}}(0xffffffffu), x >= {{f}}(4294967296.0)), {{u}}(0u), {nan}(x));\n}}\n"
            )
        };
        self.template(format!("to_{to}_{lanes}"), &text, lanes)
    }

    /// The name of an integer quotient or remainder whose divisor may be 0 or -1. WGSL defines these cases, but not all
    /// drivers implement them.
    pub(super) fn divide(&mut self, op: Op, dt: DType, lanes: usize) -> String {
        let ty = scalar_type(dt);
        let (sign, zero) = if op == Op::Idiv { ("/", "x") } else { ("%", "{t}(0)") };
        let test =
            if ty == "i32" { "(y == {t}(0)) | ((x == {t}(-2147483648)) & (y == {t}(-1)))" } else { "y == {t}(0)" };
        let text = format!(
            "fn {{name}}(x: {{t}}, y: {{t}}) -> {{t}} {{\n  let odd = {test};\n  \
            return select(x {sign} select(y, {{t}}(1), odd), {zero}, odd);\n}}\n"
        );
        let text = text.replace("{t}", &memory_type(dt, lanes));
        self.template(format!("{}_{ty}_{lanes}", op.name()), &text, lanes)
    }

    /// The name of a function that rounds f32 to the nearest f16, ties to even, and to infinity beyond the range of
    /// f16.
    pub(super) fn round_f16(&mut self, lanes: usize) -> String {
        let text = "fn {name}(x: {f}) -> {f} {\n  \
            let bits = bitcast<{u}>(x);\n  \
            let a = bits & {u}(0x7fffffffu);\n  \
            let normal = (a + {u}(0xfffu) + ((a >> {u}(13u)) & {u}(1u))) & {u}(0xffffe000u);\n  \
            let capped = select(normal, {u}(0x7f800000u), normal >= {u}(0x47800000u));\n  \
            let small = bitcast<{u}>(round(abs(x) * {f}(16777216.0)) * {f}(5.9604645e-8));\n  \
            let r = select(capped, small, a < {u}(0x38800000u));\n  \
            let n = select(r, {u}(0x7fc00000u), a > {u}(0x7f800000u));\n  \
            return bitcast<{f}>(n | (bits & {u}(0x80000000u)));\n}\n";
        self.template(format!("round_f16_{lanes}"), text, lanes)
    }

    /// The name of a function from an f32 with an f16 value to the bits of that f16. `pack2x16float` would not do: for
    /// infinities it gives NaN on some drivers, which the language allows.
    pub(super) fn f16_bits(&mut self, lanes: usize) -> String {
        let text = "fn {name}(x: {f}) -> {u} {\n  \
            let bits = bitcast<{u}>(x);\n  \
            let a = bits & {u}(0x7fffffffu);\n  \
            let normal = min((a - {u}(0x38000000u)) >> {u}(13u), {u}(0x7c00u));\n  \
            let r = select(normal, {u}(abs(x) * {f}(16777216.0)), a < {u}(0x38800000u));\n  \
            let n = select(r, {u}(0x7e00u), a > {u}(0x7f800000u));\n  \
            return n | ((bits >> {u}(16u)) & {u}(0x8000u));\n}\n";
        self.template(format!("f16_bits_{lanes}"), text, lanes)
    }

    /// The name of a function that rounds f32 to the nearest bf16, ties to even.
    pub(super) fn round_bf16(&mut self, lanes: usize) -> String {
        let text = "fn {name}(x: {f}) -> {f} {\n  \
            let a = bitcast<{u}>(x);\n  \
            let r = (a + {u}(0x7fffu) + ((a >> {u}(16u)) & {u}(1u))) & {u}(0xffff0000u);\n  \
            return bitcast<{f}>(select(r, {u}(0x7fc00000u), (a & {u}(0x7fffffffu)) > {u}(0x7f800000u)));\n}\n";
        self.template(format!("round_bf16_{lanes}"), text, lanes)
    }
}
