//! Parses decimal numbers to f64, rounded to nearest as by std's `parse`, and prints floats as std's formats do. Std
//! needs 10 kB of tables that do not compress and 20 kB of code for this, in a browser's package too; here everything
//! that is not exact in a few steps is computed with long integers. Code that pages load uses nothing else to format
//! floats.

use std::cmp::Ordering;
use std::fmt;

/// Of further digits only whether they are all zero matters: no number half way between two f64 has as many.
const DIGITS: usize = 800;
const CHUNK: u32 = 1_000_000_000;

/// Parses `-? digits (. digits)? (e [+-]? digits)?`; `None` if the text has another form.
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

/// The value of the digits times ten to the power of `scale`.
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
    // both factors are exact, so only the product is rounded
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

/// Divides `long` in place; returns the remainder.
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

/// `long` times two to the power of `-shift`, rounded to nearest even; `beyond` says that the exact value is a little
/// larger.
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
        // the product with the first factor is exact, so only the last one rounds
        Ordering::Less => n as f64 * two_to(-1000) * two_to(power + 1000),
        _ if power > 971 => f64::INFINITY,
        _ => n as f64 * two_to(power),
    }
}

fn two_to(power: i64) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

/// True where code size counts for more than time: std writes a number in half a microsecond, this code in six.
const IS_SMALL: bool = cfg!(target_arch = "wasm32");

/// Prints a number as std does: `{}` and `{:?}` give the same texts as for an f64.
#[derive(Clone, Copy)]
pub struct Shown(pub f64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if IS_SMALL { f.write_str(&self.text(plain)) } else { fmt::Display::fmt(&self.0, f) }
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if IS_SMALL { f.write_str(&self.text(general)) } else { fmt::Debug::fmt(&self.0, f) }
    }
}

impl Shown {
    /// The number as std's `{:e}` writes it.
    pub fn scientific(self) -> String {
        if IS_SMALL { self.text(scientific) } else { format!("{:e}", self.0) }
    }

    fn text(self, form: fn(&str, i32) -> String) -> String {
        let bits = self.0.to_bits();
        // decimals of up to 15 digits are different f64: if one of them is this number, no shorter decimal is
        for places in 0..=22 {
            let ten = (0..places).fold(1.0, |n, _| n * 10.0);
            let n = self.0.abs() * ten;
            if n >= 1e15 {
                break;
            }
            if n == n.floor() && n / ten == self.0.abs() {
                let digits = (n as u64).to_string();
                let point = digits.len() as i32 - places;
                return signed(self.0.is_sign_negative(), form(digits.trim_end_matches('0'), point));
            }
        }
        let (part, power) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32);
        written(self.0, (part, power, 52, 1075), form)
    }
}

/// An f32 as std's `{:?}` writes it.
pub fn of_f32(v: f32) -> String {
    if IS_SMALL { text_of_f32(v) } else { format!("{v:?}") }
}

fn text_of_f32(v: f32) -> String {
    let bits = v.to_bits();
    let (part, power) = (u64::from(bits & ((1 << 23) - 1)), (bits >> 23 & 0xff) as i32);
    written(f64::from(v), (part, power, 23, 150), general)
}

fn signed(negative: bool, text: String) -> String {
    if negative { format!("-{text}") } else { text }
}

/// Prints a float from its fraction bits, stored exponent, number of fraction bits and exponent bias.
fn written(v: f64, (part, power, bits, bias): (u64, i32, u32, i32), form: fn(&str, i32) -> String) -> String {
    if v.is_nan() {
        return "NaN".into();
    }
    let text = match (v.is_infinite(), v == 0.0, power) {
        (true, ..) => "inf".into(),
        (_, true, _) => form("", 1),
        (.., 0) => shortest(part, 1 - bias, false, form),
        // the next number below a power of two is half as far away as the one above
        _ => shortest(part | 1 << bits, power - bias, part == 0 && power > 1, form),
    };
    signed(v.is_sign_negative(), text)
}

/// `n` times two to the power of `power` in the fewest digits that identify it, and of such the nearest (Steele and
/// White 1990, "dragon4"). `form` gets the digits and how many of them stand before the point.
fn shortest(n: u64, power: i32, near_below: bool, form: fn(&str, i32) -> String) -> String {
    let long = |n: u64| if n >> 32 == 0 { vec![n as u32] } else { vec![n as u32, (n >> 32) as u32] };
    // the number and the distances to the midpoints with its neighbours, in units of 1/one
    let (mut left, mut one, mut above, mut below) = (long(n), long(1), long(1), long(1));
    let wider = u32::from(near_below);
    up(&mut left, power.max(0) as u32 + 1 + wider);
    up(&mut one, (-power).max(0) as u32 + 1 + wider);
    up(&mut above, power.max(0) as u32 + wider);
    up(&mut below, power.max(0) as u32);
    // number of digits before the point, or one less
    let bits = 64 - n.leading_zeros() as i32 + power - 1;
    let mut point = (i64::from(bits) * 1233 >> 12) as i32;
    for _ in 0..point {
        times_and(&mut one, 10, 0);
    }
    for _ in point..0 {
        [&mut left, &mut above, &mut below].into_iter().for_each(|l| times_and(l, 10, 0));
    }
    let is_even = n & 1 == 0;
    let past = |left: &[u32], above: &[u32], one: &[u32]| {
        let sum = compare(&plus(left, above), one);
        sum == Ordering::Greater || (is_even && sum == Ordering::Equal)
    };
    while past(&left, &above, &one) {
        times_and(&mut one, 10, 0);
        point += 1;
    }
    let mut digits = String::new();
    loop {
        [&mut left, &mut above, &mut below].into_iter().for_each(|l| times_and(l, 10, 0));
        let mut digit = b'0';
        while compare(&left, &one) != Ordering::Less {
            minus(&mut left, &one);
            digit += 1;
        }
        let low = compare(&left, &below);
        let (low, high) = (low == Ordering::Less || (is_even && low == Ordering::Equal), past(&left, &above, &one));
        if low || high {
            let half = compare(&plus(&left, &left), &one);
            digit += u8::from(high && (!low || half != Ordering::Less));
            digits.push(char::from(digit));
            return form(&digits, point);
        }
        digits.push(char::from(digit));
    }
}

fn up(long: &mut Vec<u32>, bits: u32) {
    times_and(long, 1 << (bits % 32), 0);
    long.splice(..0, std::iter::repeat_n(0, bits as usize / 32));
}

fn plus(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut carry = 0;
    let mut word = |i: usize| {
        carry += u64::from(a.get(i).copied().unwrap_or(0)) + u64::from(b.get(i).copied().unwrap_or(0));
        let word = carry as u32;
        carry >>= 32;
        word
    };
    (0..=a.len().max(b.len())).map(&mut word).collect()
}

/// Subtracts `b` from `a`, which is not smaller.
fn minus(a: &mut [u32], b: &[u32]) {
    let mut borrow = 0;
    for (i, word) in a.iter_mut().enumerate() {
        let n = i64::from(*word) - i64::from(b.get(i).copied().unwrap_or(0)) + borrow;
        *word = n as u32;
        borrow = n >> 32;
    }
}

fn compare(a: &[u32], b: &[u32]) -> Ordering {
    let word = |l: &[u32], i: usize| l.get(i).copied().unwrap_or(0);
    let words = (0..a.len().max(b.len())).rev();
    words.map(|i| word(a, i).cmp(&word(b, i))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

/// All digits in positional notation, as by std's `{}`.
fn plain(digits: &str, point: i32) -> String {
    let zeros = |n: i32| "0".repeat(n.max(0) as usize);
    let (whole, part) = digits.split_at((point.max(0) as usize).min(digits.len()));
    let whole = if point > 0 { format!("{whole}{}", zeros(point - whole.len() as i32)) } else { "0".into() };
    if part.is_empty() { whole } else { format!("{whole}.{}{part}", zeros(-point)) }
}

/// As std's `{:?}`: at least one digit after the point, and scientific notation where the number is large or small.
fn general(digits: &str, point: i32) -> String {
    if digits.is_empty() || (-3..=16).contains(&point) {
        let text = plain(digits, point);
        return if text.contains('.') { text } else { text + ".0" };
    }
    scientific(digits, point)
}

/// As std's `{:e}`.
fn scientific(digits: &str, point: i32) -> String {
    match digits.split_at_checked(1) {
        None => "0e0".into(),
        Some((first, "")) => format!("{first}e{}", point - 1),
        Some((first, rest)) => format!("{first}.{rest}e{}", point - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(v: f64) {
        assert_eq!((Shown(v).text(plain), Shown(v).text(general)), (format!("{v}"), format!("{v:?}")));
        assert_eq!(Shown(v).text(scientific), format!("{v:e}"));
        let v = v as f32;
        assert_eq!(text_of_f32(v), format!("{v:?}"));
    }

    #[test]
    fn numbers_are_written_as_std_writes_them() {
        let mut list = vec![
            0.0,
            1.0,
            0.1,
            0.3,
            1e-5,
            1e-4,
            9.9e-5,
            1e15,
            1e16,
            9_999_999_999_999_998.0,
            123_456.789,
            1e21,
            1e22,
            1e23,
        ];
        list.extend([
            5e-324,
            2.2250738585072014e-308,
            f64::MIN_POSITIVE,
            f64::MAX,
            f64::EPSILON,
            1.0 / 3.0,
            2.0f64.powi(-44),
            9e-265,
        ]);
        list.extend([
            f64::INFINITY,
            f64::NAN,
            f64::from(f32::MAX),
            f64::from(f32::MIN_POSITIVE),
            1e-45,
            16_777_216.0,
            3.4e38,
            0.2 + 0.1,
        ]);
        list.extend((-1074..1024).map(|p| two_to(i64::from(p).max(-1022)) * two_to((i64::from(p) + 1022).min(0))));
        list.extend((-320..309).map(|p| parse(&format!("1e{p}")).unwrap()));
        list.iter()
            .flat_map(|&v| [v, -v, f64::from_bits(v.to_bits().wrapping_sub(1)), f64::from_bits(v.to_bits() + 1)])
            .for_each(show);
        let mut x = 88_172_645_463_325_252u64;
        for i in 0..20_000u32 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            show(f64::from_bits(x));
            show(f64::from(f32::from_bits(x as u32)));
            show((x >> 40) as f64 / 10f64.powi((i % 30) as i32));
            show(x as f64 / f64::from(i));
        }
    }

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
        // half way between two numbers, plus a little far behind
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
