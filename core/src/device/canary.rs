//! Checks a GPU before anything is computed on it: small computations with known results, on features that generated
//! shaders rely on. A feature that is wrong (long loops, dot products of bytes, 16-bit floats) is not used; a driver
//! whose arithmetic is wrong is refused. Drivers of devices run the [`sources`] once, on [`questions`], and pass the
//! results to [`judge`].
//!
//! Never: devices, waiting. All operands come from a buffer, so that no shader compiler can compute the results
//! beforehand.

use crate::codegen::ParamInfo;
use crate::render::{Code, Source};
use crate::target::Target;
use crate::{DType, Error, Result};
use std::fmt::Write as _;

/// The consequence of a wrong result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// The adapter is refused.
    Refuse,
    /// Long loops are split over several kernels.
    CutLoops,
    /// The instruction for sums of products of bytes is not used.
    NoWords,
    /// Arrays of 16-bit floats are declared as words, and elements are extracted from them.
    NoF16,
    /// Only reported, since standards leave the behaviour open.
    Say(&'static str),
}

/// A computation, as a WGSL expression of type u32 over the words `q(i)`, and its result.
struct Known {
    name: &'static str,
    ask: &'static str,
    answer: u32,
    then: Then,
}

const fn known(name: &'static str, ask: &'static str, answer: u32, then: Then) -> Known {
    Known { name, ask, answer, then }
}

/// Iterations of the long loop: more than 16 bits can count.
const TURNS: u32 = 65_600;

/// The words that `q(i)` reads.
const QUESTIONS: [u32; 17] = [
    TURNS,
    1,
    0x7fc0_0000, // NaN
    0x7f80_0000, // infinity
    -7i32 as u32,
    2,
    4_000_000_000,
    7,
    1,           // the smallest subnormal
    0x7f61_b1e6, // 3e38
    0x4120_0000, // 10
    0xc030_0000, // -2.75
    0x4000_0000, // 2
    -8i32 as u32,
    0x7bff_3e00, // the halves 1.5 and 65,504
    0x4040_0000, // 3
    0x7f80_0000, // infinity
];

/// The last number of a pseudo-random sequence that starts at zero.
const fn last_random(turns: u32) -> u32 {
    let (mut x, mut i) = (0u32, 0);
    while i < turns {
        x = x.wrapping_mul(1_664_525).wrapping_add(1);
        i += 1;
    }
    x
}

const HELPERS: &str = "fn q(i: u32) -> u32 { return b1[i]; }
fn f(i: u32) -> f32 { return bitcast<f32>(b1[i]); }
fn s(i: u32) -> i32 { return bitcast<i32>(b1[i]); }
fn near(x: f32, want: u32) -> u32 { return select(0u, 1u, abs(bitcast<i32>(x) - bitcast<i32>(want)) <= 3); }
fn is_nan(x: f32) -> u32 { return select(0u, 1u, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u); }
fn turns() -> u32 {
  var x = 0u;
  let n = s(0);
  for (var i: i32 = 0; i < n; i++) { x = x * 1664525u + b1[1]; }
  return x;
}
fn packed() -> u32 {
  atomicAnd(&b2[0], 0xffff00ffu);
  atomicOr(&b2[0], 0x5a00u);
  return atomicLoad(&b2[0]);
}
";

use Then::{CutLoops, NoF16, NoWords, Refuse, Say};

/// What is computed on every adapter. The long loop comes last: a driver that counts iterations would stop all later
/// loops.
const PLAIN: [Known; 25] = [
    known("a quotient of signed integers", "u32(s(4) / s(5))", -3i32 as u32, Refuse),
    known("a remainder of signed integers", "u32(s(4) % s(5))", -1i32 as u32, Refuse),
    known("a quotient by a power of two", "u32(s(13) / 4)", -2i32 as u32, Refuse),
    known("a quotient of large integers", "q(6) / q(7)", 571_428_571, Refuse),
    known("a remainder of large integers", "q(6) % q(7)", 3, Refuse),
    known("a product that wraps", "q(6) * q(7)", 2_230_196_224, Refuse),
    known("a shift to the left", "q(1) << (q(5) + 29u)", 1 << 31, Refuse),
    known("a shift of a negative integer", "u32(s(4) >> q(1))", -4i32 as u32, Refuse),
    known("a shift of a large integer", "q(6) >> q(7)", 31_250_000, Refuse),
    known("leading zeros", "countLeadingZeros(q(5))", 30, Refuse),
    known("the larger of two integers", "u32(max(s(4), s(5)))", 2, Refuse),
    known("the larger of two floats", "bitcast<u32>(max(f(11), f(12)))", 0x4000_0000, Refuse),
    known("a float as an integer", "u32(i32(f(11)))", -2i32 as u32, Refuse),
    known("an integer as a float", "bitcast<u32>(f32(q(6)))", 0x4f6e_6b28, Refuse),
    known("truncation", "bitcast<u32>(trunc(f(11)))", 0xc000_0000, Refuse),
    known("a square root", "near(sqrt(f(12)), 0x3fb504f3u)", 1, Refuse),
    known("a quotient of floats", "near(f(10) / f(15), 0x40555555u)", 1, Refuse),
    known("a product of floats", "bitcast<u32>(f(11) * f(10))", 0xc1dc_0000, Refuse),
    known("a byte of a word", "packed()", 0x5a00, Refuse),
    known("a NaN in memory", "is_nan(f(2))", 1, Say("NaN does not pass through memory")),
    known("infinity less infinity", "is_nan(f(3) - f(16))", 1, Say("infinity less infinity is no NaN")),
    known("overflow", "bitcast<u32>(f(9) * f(10))", 0x7f80_0000, Say("sums and products do not become infinite")),
    known("a NaN compared", "select(0u, 1u, f(2) < f(12))", 0, Say("NaN compares as a number")),
    known("subnormal numbers", "bitcast<u32>(f(8) * f(12))", 2, Say("subnormal numbers are zero")),
    known("a loop of 65,600 turns", "turns()", last_random(TURNS), CutLoops),
];

const WORDS: [Known; 1] =
    [known("a product of bytes", "u32(dot4I8Packed(q(1) + 0x01ff02fdu, 0x03040506u))", -3i32 as u32, NoWords)];

const HALVES: [Known; 1] = [known("16-bit floats", "", 0x7bff_4200, NoF16)];

/// Doubles one of the two 16-bit floats in [`QUESTIONS`] and copies the other one.
const HALVES_CODE: &str = "enable f16;
@group(0) @binding(0) var<storage, read_write> b0: array<f16>;
@group(0) @binding(1) var<storage, read> b1: array<f16>;
@compute @workgroup_size(1, 1, 1)
fn main() {
  b0[0] = f16(f32(b1[28]) * 2.0);
  b0[1] = b1[29];
}
";

/// The computations for a target, in one list for each shader.
fn asked(t: &Target) -> Vec<Vec<&'static Known>> {
    let words = if t.caps.dots.is_some() { WORDS.iter() } else { [].iter() };
    let mut all = vec![words.chain(&PLAIN).collect()];
    if t.caps.f16_arrays {
        all.push(HALVES.iter().collect());
    }
    all
}

/// The shaders that do the computations. Each takes a buffer for the results, [`questions`], and a word of zeros, and
/// is launched once with one thread.
pub fn sources(t: &Target) -> Vec<Source> {
    let param = |len: usize, written: bool| ParamInfo { dtype: DType::U32, len, read: true, written };
    let shader = |(at, list): (usize, Vec<&Known>)| {
        let code = if at == 0 { plain(&list) } else { HALVES_CODE.into() };
        let params = vec![param(list.len(), true), param(QUESTIONS.len(), false), param(1, true)];
        Source { name: "canary".into(), code: Code::Text(code), local: [1; 3], params, vars: Vec::new(), scratch: 0 }
    };
    asked(t).into_iter().enumerate().map(shader).collect()
}

fn plain(list: &[&Known]) -> String {
    let mut code = format!(
        "@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
@group(0) @binding(2) var<storage, read_write> b2: array<atomic<u32>>;
{HELPERS}@compute @workgroup_size(1, 1, 1)
fn main() {{
"
    );
    for (i, k) in list.iter().enumerate() {
        let _ = writeln!(code, "  b0[{i}] = {};", k.ask);
    }
    code.push_str("}\n");
    code
}

/// The second buffer of all [`sources`].
pub fn questions() -> Vec<u8> {
    QUESTIONS.iter().flat_map(|q| q.to_le_bytes()).collect()
}

/// Removes from `t` the features that an adapter got wrong. `answers` has the first buffer of each source, in order.
/// Returns what is worth reporting, one line for each wrong result.
///
/// # Errors
/// [`Error::Device`] with the wrong result, if the adapter must be refused.
pub fn judge(t: &mut Target, answers: &[Vec<u8>]) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for (list, bytes) in asked(t).into_iter().zip(answers) {
        let mut words = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        for k in list {
            let got = words.next();
            if got == Some(k.answer) {
                continue;
            }
            let got = got.map_or("nothing".into(), |x| format!("{x:#x}"));
            let wrong = format!("{} is {got}, not {:#x}", k.name, k.answer);
            match k.then {
                Refuse => {
                    let what = format!("the driver's arithmetic is wrong: {wrong}; a newer driver may help");
                    return Err(Error::Device { device: t.name.clone(), what });
                }
                CutLoops => {
                    *t = t.clone().with_loop_limit();
                    said.push(format!("{wrong}: long loops are cut"));
                }
                NoWords => {
                    t.caps.dots = None;
                    said.push(format!("{wrong}: products of bytes are made one by one"));
                }
                NoF16 => {
                    t.caps.f16_arrays = false;
                    said.push(format!("{wrong}: they are taken out of words"));
                }
                Say(what) => said.push(what.into()),
            }
        }
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right results for a target.
    fn right(t: &Target) -> Vec<Vec<u8>> {
        asked(t).iter().map(|list| list.iter().flat_map(|k| k.answer.to_le_bytes()).collect()).collect()
    }

    fn able() -> Target {
        Target::wgsl("gpu").with_f16().with_words()
    }

    #[test]
    fn right_answers_change_nothing() {
        for t in [Target::wgsl("gpu"), able(), Target::wgsl("gpu").emulated()] {
            let mut judged = t.clone();
            assert_eq!(judge(&mut judged, &right(&t)), Ok(vec![]));
            assert_eq!(judged, t);
        }
    }

    #[test]
    fn each_wrong_answer_has_its_consequence() {
        let (mut refused, mut avoided, mut told) = (0, 0, 0);
        for (shader, answers) in right(&able()).iter().enumerate() {
            for at in 0..answers.len() / 4 {
                let mut lies = right(&able());
                lies[shader][4 * at] ^= 1;
                let mut t = able();
                match judge(&mut t, &lies) {
                    Err(Error::Device { what, .. }) => {
                        assert!(what.contains(" is 0x"), "{what}");
                        refused += 1;
                    }
                    Err(e) => panic!("{e}"),
                    Ok(said) => {
                        assert_eq!(said.len(), 1);
                        if t == able() { told += 1 } else { avoided += 1 }
                    }
                }
            }
        }
        assert_eq!((refused, avoided, told), (19, 3, 5));
        // an adapter without results is refused
        assert!(judge(&mut able(), &[vec![], vec![]]).is_err());
    }
}
