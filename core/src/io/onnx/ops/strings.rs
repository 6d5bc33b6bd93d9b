//! Operators that look into strings; they run on the host.

use super::super::fold::evaluate;
use super::super::strings::STRING;
use super::super::value::Value;
use super::{Op, OpDef, host_op};
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::broadcast_shape;
use crate::util::case;
use std::sync::Arc;

pub(super) const OPS: &[OpDef] =
    &[host_op("StringConcat", concat), host_op("StringNormalizer", normalize), host_op("StringSplit", split)];

/// The strings of an input.
fn texts(o: &Op<'_, '_>, i: usize) -> Result<(Vec<usize>, Vec<Arc<str>>)> {
    let Some(codes) = o.cx.host(&o.arg(i)?)? else { return o.unknown(i) };
    let list = o.cx.model.texts(&codes)?;
    Ok((codes.shape, list))
}

/// A tensor of strings as a value of the build.
pub(super) fn value(o: &Op<'_, '_>, shape: Vec<usize>, texts: &[impl AsRef<str>]) -> Result<Value> {
    Ok(Value::known(o.cx.model.strings(shape, texts)?).with_code_type(STRING))
}

/// The most strings that one operator may create, in elements and in bytes: a file of a few kilobytes could ask for any
/// number.
const MAX_STRINGS: usize = 1 << 24;
/// The limit in bytes.
const MAX_BYTES: usize = 1 << 28;

fn budget(o: &Op<'_, '_>, count: usize, bytes: impl Iterator<Item = usize>) -> Result<()> {
    let bytes = if count > MAX_STRINGS { usize::MAX } else { bytes.fold(0, usize::saturating_add) };
    if bytes > MAX_BYTES {
        return o.fail(format!("more than {MAX_STRINGS} strings or {MAX_BYTES} bytes of them"));
    }
    Ok(())
}

fn concat(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let both = [0, 1].map(|i| match o.cx.host(&o.arg(i)?)? {
        Some(t) => Ok(t),
        None => o.unknown(i),
    });
    let [a, b] = both;
    let (a, b) = (a?, b?);
    let shape = broadcast_shape("StringConcat", &a.shape, &b.shape)?;
    budget(o, o.cx.check_shape(&shape)?, std::iter::empty())?;
    let wide = |t: HostTensor| o.cx.model.texts(&evaluate(vec![t], &|t| Ok(vec![t[0].expand(&shape)?]))?[0]);
    let (a, b) = (wide(a)?, wide(b)?);
    budget(o, a.len(), a.iter().chain(&b).map(|t| t.len()))?;
    let list: Vec<String> = a.iter().zip(b).map(|(a, b)| format!("{a}{b}")).collect();
    Ok(vec![value(o, shape.to_vec(), &list)?])
}

/// Removes stop words and changes the case of the rest. If nothing is left, the result is one empty string.
fn normalize(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (shape, list) = texts(o, 0)?;
    let lead = match *shape {
        [_] => vec![],
        [1, _] => vec![1],
        _ => return o.fail(format!("strings of shape [n] or [1, n] are wanted, not {shape:?}")),
    };
    let exact = o.flag("is_case_sensitive", false)?;
    let same = |s: &str| if exact { s.to_owned() } else { case::lower(s) };
    let stop: Vec<String> = o.strs("stopwords")?.iter().map(|s| same(s)).collect();
    let change: fn(&str) -> String = match &*o.str("case_change_action", "NONE")? {
        "NONE" => str::to_owned,
        "LOWER" => case::lower,
        "UPPER" => case::upper,
        other => return o.fail(format!("a change of case `{other}`")),
    };
    let mut out: Vec<String> = list.iter().filter(|s| !stop.contains(&same(s))).map(|s| change(s)).collect();
    if out.is_empty() {
        out.push(String::new());
    }
    Ok(vec![value(o, [lead, vec![out.len()]].concat(), &out)?])
}

/// The pieces along a new last axis, padded with empty strings, and their number.
fn split(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (shape, list) = texts(o, 0)?;
    let delimiter = o.str("delimiter", "")?;
    let most = o.int_opt("maxsplit")?.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let pieces: Vec<Vec<&str>> = list.iter().map(|s| pieces(s, &delimiter, most)).collect();
    let width = pieces.iter().map(Vec::len).max().unwrap_or(0);
    let wide = [&*shape, &[width]].concat();
    budget(o, o.cx.check_shape(&wide)?, std::iter::empty())?;
    let filled: Vec<&str> = pieces.iter().flat_map(|p| (0..width).map(|i| p.get(i).copied().unwrap_or(""))).collect();
    let counts: Vec<i64> = pieces.iter().map(|p| p.len() as i64).collect();
    Ok(vec![value(o, wide, &filled)?, Value::known(HostTensor::from_i64(shape, &counts)?)])
}

/// Splits as Python's `str.split` does: without a delimiter at runs of white space, ignoring those at both ends.
fn pieces<'t>(text: &'t str, delimiter: &str, most: usize) -> Vec<&'t str> {
    if !delimiter.is_empty() {
        return text.splitn(most.saturating_add(1), delimiter).collect();
    }
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(char::is_whitespace).filter(|_| out.len() < most);
        let (piece, left) = rest.split_at(end.unwrap_or(rest.len()));
        out.push(piece);
        rest = left.trim_start();
    }
    out
}
