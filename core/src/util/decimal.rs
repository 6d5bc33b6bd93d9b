//! Decimal numbers as f64, rounded to the nearest as std's `parse` does. That one has a table of ten kilobytes that do not compress,
//! in a browser's package too; here what is not exact in a few steps is computed with long integers.

use std::cmp::Ordering;

/// Digits beyond these only matter as a whole: no number between two f64 has as many.
const DIGITS: usize = 800;
const CHUNK: u32 = 1_000_000_000;

/// The number that `-? digits (. digits)? (e [+-]? digits)?` is; none if the text is something else.
pub fn parse(text: &str) -> Option<f64> {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).map_or((rest, None), |(m, e)| (m, Some(e)));
    let (whole, part) = mantissa.split_once('.').map_or((mantissa, None), |(w, p)| (w, Some(p)));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || part.is_some_and(|p| !digits(p)) {
        return None;
    }
    let mut scale = match exponent {
        None => 0,
        Some(e) => {
            let (below, e) = (e.starts_with('-'), e.strip_prefix(['+', '-']).unwrap_or(e));
            if !digits(e) {
                return None;
            }
            let e = e.bytes().fold(0i64, |n, b| (n * 10 + i64::from(b - b'0')).min(1 << 40));
            if below { -e } else { e }
        }
    };
    scale -= part.map_or(0, str::len) as i64;
    let all = whole.bytes().chain(part.unwrap_or_default().bytes()).map(|b| b - b'0').skip_while(|&d| d == 0);
    let n = value(all, scale);
    Some(if negative { -n } else { n })
}

/// The digits, times ten to the power of `scale`.
fn value(digits: impl Iterator<Item = u8>, mut scale: i64) -> f64 {
    let (mut long, mut count, mut beyond) = (Vec::new(), 0, false);
    for d in digits {
        if count < DIGITS {
            times_and(&mut long, 10, u32::from(d));
            count += 1;
        } else {
            beyond |= d != 0;
            scale += 1;
        }
    }
    if long.is_empty() {
        return 0.0;
    }
    // both factors are exact, and so there is one rounding
    if count <= 15 && scale.abs() <= 22 {
        let n = long.iter().rev().fold(0.0, |n, &w| n * 4_294_967_296.0 + f64::from(w));
        let ten = (0..scale.abs()).fold(1.0, |n, _| n * 10.0);
        return if scale < 0 { n / ten } else { n * ten };
    }
    match count as i64 + scale {
        310.. => return f64::INFINITY,
        ..-330 => return 0.0,
        _ => {}
    }
    let mut shift = 0;
    if scale < 0 {
        // enough bits for the quotient: a power of ten has fewer than 3.4 times as many as it has zeros
        let words = (scale.unsigned_abs() as usize * 34 / 10 + 96) / 32;
        long.splice(..0, std::iter::repeat_n(0, words));
        shift = 32 * words as i64;
    }
    while scale != 0 {
        let step = scale.unsigned_abs().min(9) as u32;
        let by = if step == 9 { CHUNK } else { 10u32.pow(step) };
        if scale > 0 {
            times_and(&mut long, by, 0);
        } else {
            beyond |= over(&mut long, by) != 0;
        }
        scale -= i64::from(step) * scale.signum();
    }
    rounded(&long, shift, beyond)
}

fn times_and(long: &mut Vec<u32>, by: u32, and: u32) {
    let mut carry = u64::from(and);
    for word in long.iter_mut() {
        carry += u64::from(*word) * u64::from(by);
        *word = carry as u32;
        carry >>= 32;
    }
    if carry > 0 {
        long.push(carry as u32);
    }
}

/// Divides; the remainder.
fn over(long: &mut Vec<u32>, by: u32) -> u64 {
    let mut rest = 0;
    for word in long.iter_mut().rev() {
        rest = rest << 32 | u64::from(*word);
        *word = (rest / u64::from(by)) as u32;
        rest %= u64::from(by);
    }
    while long.last() == Some(&0) {
        long.pop();
    }
    rest
}

/// `long` times two to the power of `-shift`, and a little more if there is something `beyond`.
fn rounded(long: &[u32], shift: i64, beyond: bool) -> f64 {
    let bit = |i: i64| i >= 0 && long.get(i as usize / 32).is_some_and(|w| w >> (i % 32) & 1 == 1);
    let top = long.last().map_or(0, |w| 32 * long.len() as i64 - i64::from(w.leading_zeros()));
    // bits that are kept: fewer where the number is subnormal
    let kept = (top - shift + 1074).min(53);
    let least = top - kept;
    let mut n = (least.max(0)..top).rev().fold(0u64, |n, i| n << 1 | u64::from(bit(i)));
    if least < 0 {
        n <<= -least;
    }
    let below = beyond || (0..least - 1).any(bit);
    n += u64::from(bit(least - 1) && (below || n & 1 == 1));
    let power = least - shift;
    match power.cmp(&-1000) {
        // the product is exact, and the first factor of it too
        Ordering::Less => n as f64 * two_to(-1000) * two_to(power + 1000),
        _ if power > 971 => f64::INFINITY,
        _ => n as f64 * two_to(power),
    }
}

fn two_to(power: i64) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let (mine, std) = (parse(text).unwrap(), text.parse::<f64>().unwrap());
        assert_eq!(mine.to_bits(), std.to_bits(), "{text}: {mine:?}, not {std:?}");
    }

    #[test]
    fn numbers_are_those_of_std() {
        for text in [
            "0",
            "-0",
            "0.0",
            "1",
            "-1.5",
            "0.1",
            "1e0",
            "1E+5",
            "123456789012345678",
            "9007199254740993",
            "1e22",
            "1e23",
            "1e308",
            "1.7976931348623157e308",
            "1.7976931348623158e308",
            "1.7976931348623159e308",
            "1e309",
            "1e400",
            "1e99999999999999999999",
            "2.2250738585072014e-308",
            "2.2250738585072011e-308",
            "5e-324",
            "2.4703282292062327e-324",
            "2.4703282292062328e-324",
            "1e-324",
            "1e-400",
            "1e-99999999999999999999",
            "0e99999",
            "00012.50",
            "4.9406564584124654e-324",
            "8.41e21",
            "0.000001",
            "6.02214076e23",
            "1.00000000000000011102230246251565404236316680908203125",
            "1.00000000000000011102230246251565404236316680908203124",
            "1.00000000000000011102230246251565404236316680908203126",
        ] {
            check(text);
        }
        // half way between two numbers, and a little more far behind
        check(&format!("9007199254740993.{}1", "0".repeat(2000)));
        check(&format!("0.{}17", "0".repeat(330)));
        check(&format!("{}e-{}", "7".repeat(1200), 1190));
    }

    #[test]
    fn random_numbers_are_those_of_std() {
        let mut x = 88_172_645_463_325_252u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        for i in 0..100_000 {
            let f = f64::from_bits(next());
            if (f as f32).is_finite() {
                check(&format!("{:e}", f as f32));
            }
            if f.is_finite() {
                check(&format!("{f:e}"));
            }
            let digits = next() % 10u64.pow(1 + i % 19);
            check(&format!("{digits}e{}", next() as i64 % 340));
            check(&format!("{}.{digits}", next() % 1000));
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "", "-", ".", "1.", ".5", "1e", "1e+", "e5", "+1", "1_0", "0x1", "inf", "NaN", "1 ", "--1", "1.-2",
            "1e1.5", "١",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
