//! Formats template values as Python does: `str`, `repr` and `json.dumps`.

use crate::io::json::write_str;
use minijinja::Value;
use minijinja::value::ValueKind;
use std::fmt::{self, Write};

/// The deepest nesting of a value; a deeper one is an error.
const MAX_DEPTH: usize = 128;

/// The most bytes of JSON text; deep nesting with a wide indentation makes mostly spaces.
const MAX_JSON: usize = 16 << 20;

/// `str(v)` as a string.
pub(super) fn text(v: &Value) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail, so an error means a value that is nested too deep: then its beginning has to do
    let _ = write(v, &mut out);
    out
}

/// Writes `str(v)`; an undefined value writes nothing.
pub(super) fn write(v: &Value, out: &mut impl Write) -> fmt::Result {
    match (v.kind(), v.as_str()) {
        (ValueKind::Undefined, _) => Ok(()),
        (_, Some(s)) => out.write_str(s),
        _ => repr(v, out, 0),
    }
}

/// `repr(v)`
fn repr(v: &Value, out: &mut impl Write, depth: usize) -> fmt::Result {
    if depth > MAX_DEPTH {
        return Err(fmt::Error);
    }
    match v.kind() {
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool => out.write_str(if v.is_true() { "True" } else { "False" }),
        ValueKind::String => quote(v.as_str().unwrap_or_default(), out),
        ValueKind::Seq => {
            let (open, close) = if v.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.write_char(open)?;
            for (i, item) in items(v).enumerate() {
                out.write_str(if i > 0 { ", " } else { "" })?;
                repr(&item, out, depth + 1)?;
            }
            out.write_str(if v.is_tuple() && v.len() == Some(1) { "," } else { "" })?;
            out.write_char(close)
        }
        ValueKind::Map => {
            out.write_char('{')?;
            for (i, key) in items(v).enumerate() {
                out.write_str(if i > 0 { ", " } else { "" })?;
                repr(&key, out, depth + 1)?;
                out.write_str(": ")?;
                repr(&v.get_item(&key).unwrap_or_default(), out, depth + 1)?;
            }
            out.write_char('}')
        }
        _ => number(v, out),
    }
}

/// The items of a list, or the keys of a dict.
fn items(v: &Value) -> impl Iterator<Item = Value> {
    v.try_iter().into_iter().flatten()
}

/// Writes a number, or any other value by its default format. A float has a decimal point, or an exponent
/// of two digits.
fn number(v: &Value, out: &mut impl Write) -> fmt::Result {
    if v.kind() != ValueKind::Number || v.is_integer() {
        return write!(out, "{v}");
    }
    let Ok(x) = f64::try_from(v.clone()) else { return write!(out, "{v}") };
    if !x.is_finite() {
        return out.write_str(if x.is_nan() {
            "nan"
        } else if x > 0.0 {
            "inf"
        } else {
            "-inf"
        });
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        return write!(out, "{x:?}");
    }
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    write!(out, "{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Writes a string in Python's quotes.
fn quote(s: &str, out: &mut impl Write) -> fmt::Result {
    let mark = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.write_char(mark)?;
    for c in s.chars() {
        match c {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\\' => out.write_str("\\\\")?,
            c if c == mark => write!(out, "\\{c}")?,
            c if (c as u32) < 0x20 || (0x7f..0xa1).contains(&(c as u32)) || c == '\u{ad}' => {
                write!(out, "\\x{:02x}", c as u32)?
            }
            c => out.write_char(c)?,
        }
    }
    out.write_char(mark)
}

/// `json.dumps(v, ensure_ascii=False, indent=indent)`
pub(super) fn json(v: &Value, indent: Option<usize>) -> std::result::Result<String, fmt::Error> {
    let mut out = String::new();
    dump(v, indent, 0, &mut out)?;
    Ok(out)
}

fn dump(v: &Value, indent: Option<usize>, depth: usize, out: &mut String) -> fmt::Result {
    if depth > MAX_DEPTH || out.len() > MAX_JSON {
        return Err(fmt::Error);
    }
    let line = |out: &mut String, depth: usize, last: bool| match indent {
        Some(n) => {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', n * depth));
        }
        None => out.push_str(if last { "" } else { " " }),
    };
    // Before each item: the comma after the previous one, and the line break
    let next = |out: &mut String, i: usize| {
        if i > 0 {
            out.push(',');
        }
        if i > 0 || indent.is_some() {
            line(out, depth + 1, false);
        }
    };
    match v.kind() {
        ValueKind::None | ValueKind::Undefined => out.push_str("null"),
        ValueKind::Bool => out.push_str(if v.is_true() { "true" } else { "false" }),
        ValueKind::String => write_str(out, v.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut count = 0;
            for item in items(v) {
                next(out, count);
                dump(&item, indent, depth + 1, out)?;
                count += 1;
            }
            if count > 0 {
                line(out, depth, true);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut count = 0;
            for key in items(v) {
                next(out, count);
                write_str(out, &text(&key));
                out.push_str(": ");
                dump(&v.get_item(&key).unwrap_or_default(), indent, depth + 1, out)?;
                count += 1;
            }
            if count > 0 {
                line(out, depth, true);
            }
            out.push('}');
        }
        _ => match f64::try_from(v.clone()) {
            Ok(x) if x.is_nan() => out.push_str("NaN"),
            Ok(x) if x.is_infinite() => out.push_str(if x > 0.0 { "Infinity" } else { "-Infinity" }),
            _ => number(v, out)?,
        },
    }
    Ok(())
}
