//! WGSL functions that shaders carry when they use them: corners that the language leaves open.

use super::dialect::{Wgsl, memory_type, scalar_type};
use crate::DType::{self, F32, I32, U32};
use crate::uop::Op;
use crate::util::decimal::{Shown, of_f32};

/// Fills `{f}`, `{i}`, `{u}`, `{b}`: the f32, i32, u32 and bool types of so many lanes.
fn fill(template: &str, lanes: usize) -> String {
    let of = |dt| memory_type(dt, lanes);
    template.replace("{f}", &of(F32)).replace("{i}", &of(I32)).replace("{u}", &of(U32)).replace("{b}", &of(DType::Bool))
}

impl Wgsl {
    fn template(&mut self, name: String, text: &str, lanes: usize) -> String {
        let text = fill(text, lanes).replace("{name}", &name);
        self.need(name, |_| text)
    }

    /// An f32 constant. Inf and NaN come from bits that the compiler can not see as constants.
    pub(super) fn float(&mut self, v: f32) -> String {
        if v.is_finite() {
            // the shortest digits of the largest number are above it, which Tint refuses; as an f64 it is exact
            let s = if v.abs() == f32::MAX { format!("{:?}", Shown(f64::from(v))) } else { of_f32(v) };
            return if v.is_sign_negative() { format!("({s}f)") } else { format!("{s}f") };
        }
        let (name, bits) = match v {
            _ if v.is_nan() => ("nan_bits", 0x7fc0_0000u32),
            _ if v > 0.0 => ("inf_bits", 0x7f80_0000),
            _ => ("neg_inf_bits", 0xff80_0000),
        };
        self.need(name.into(), |_| format!("var<private> {name}: u32 = {bits:#x}u;\n"));
        format!("bitcast<f32>({name})")
    }

    pub(super) fn is_nan(&mut self, lanes: usize) -> String {
        self.has_exponent("is_nan", ">", lanes)
    }

    pub(super) fn is_not_finite(&mut self, lanes: usize) -> String {
        self.has_exponent("is_not_finite", ">=", lanes)
    }

    /// Are the bits of a size `>` or `>=` those of infinity?
    fn has_exponent(&mut self, name: &str, than: &str, lanes: usize) -> String {
        let text = "fn {name}(x: {f}) -> {b} {\n  \
            return (bitcast<{u}>(x) & {u}(0x7fffffffu)) {than} {u}(0x7f800000u);\n}\n";
        self.template(format!("{name}_{lanes}"), &text.replace("{than}", than), lanes)
    }

    /// Maximum or minimum that gives NaN if either is NaN; of a value and a `number`, if the value is.
    pub(super) fn extreme(&mut self, op: Op, number: bool, lanes: usize) -> String {
        let nan = self.is_nan(lanes);
        let f = if op == Op::Max { "max" } else { "min" };
        if number {
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

    /// f32 to i32 or u32: truncates, saturates, NaN gives 0.
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

    /// Integer quotient or remainder with a divisor that may be 0 or -1: drivers do not all keep the language's promise.
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

    /// Rounds f32 to the nearest f16, ties to even, beyond the range to infinity.
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

    /// The bits of an f16 that an f32 holds. `pack2x16float` gives NaN for infinities on some drivers, as the language lets it.
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

    /// Rounds f32 to the nearest bf16, ties to even.
    pub(super) fn round_bf16(&mut self, lanes: usize) -> String {
        let text = "fn {name}(x: {f}) -> {f} {\n  \
            let a = bitcast<{u}>(x);\n  \
            let r = (a + {u}(0x7fffu) + ((a >> {u}(16u)) & {u}(1u))) & {u}(0xffff0000u);\n  \
            return bitcast<{f}>(select(r, {u}(0x7fc00000u), (a & {u}(0x7fffffffu)) > {u}(0x7f800000u)));\n}\n";
        self.template(format!("round_bf16_{lanes}"), text, lanes)
    }
}
