//! `rearrange`: reshape and permute in one step, by names of axes, as in einops (Rogozhnikov, "Einops: Clear and
//! Reliable Tensor Manipulations with Einstein-like Notation", ICLR 2022). Also padding and cropping to given sizes.

use super::Tensor;
use crate::{Error, Result};

/// An axis on one side of a formula.
#[derive(PartialEq)]
enum Group<'a> {
    /// `...`: all remaining axes, each on its own.
    Rest,
    /// The names of the axes that are merged into this one, outermost first; inside parentheses `...` stands for all
    /// remaining axes.
    Of(Vec<&'a str>),
}

impl<'a> Group<'a> {
    fn names(&self) -> &[&'a str] {
        match self {
            Group::Rest => &["..."],
            Group::Of(names) => names,
        }
    }
}

impl Tensor {
    /// Reshapes and permutes by names: `"b (h d) -> b h d"` splits the second axis. Both sides name the same axes.
    /// Names in parentheses are merged into one axis, outermost first; `1` or `()` is an axis of size 1; `...` stands
    /// for axes that stay as they are. `sizes` gives those lengths that do not follow from the shape: for each axis in
    /// parentheses, of all its names but one.
    ///
    /// `Error::Value` for a formula that does not parse or fit the shape, and for names that differ between the sides
    /// or occur twice.
    pub fn rearrange(&self, formula: &str, sizes: &[(&str, usize)]) -> Result<Tensor> {
        let bad = |what: String| Error::value("rearrange", format!("`{formula}`: {what}"));
        let (from, to) = formula.split_once("->").ok_or_else(|| bad("it has no `->`".into()))?;
        let (from, to) = (groups(from).map_err(bad)?, groups(to).map_err(bad)?);
        let shape = self.shape();
        let dots = |side: &[Group<'_>]| side.iter().flat_map(Group::names).filter(|n| **n == "...").count();
        if dots(&from) != dots(&to)
            || dots(&from) > 1
            || from.iter().any(|g| *g != Group::Rest && g.names().contains(&"..."))
        {
            return Err(bad("`...` is on both sides once or on none, and in parentheses on the right alone".into()));
        }
        let named = from.len() - dots(&from);
        if named > shape.len() || dots(&from) == 0 && named != shape.len() {
            return Err(bad(format!("it does not name the axes of {shape:?}")));
        }
        // the split axes: name and length; those of `...` are all called "..."
        let mut axes: Vec<(&str, usize)> = Vec::new();
        let mut at = 0;
        for group in &from {
            if *group == Group::Rest {
                let n = shape.len() - named;
                axes.extend(shape[at..at + n].iter().map(|&len| ("...", len)));
                at += n;
                continue;
            }
            let lens = lengths(group.names(), shape[at], sizes).map_err(bad)?;
            axes.extend(group.names().iter().copied().zip(lens));
            at += 1;
        }
        let mut order = Vec::new();
        let mut out = Vec::new();
        for group in &to {
            let mut len = 1usize;
            for &name in group.names() {
                let found: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].0 == name).collect();
                if name != "..." && found.len() != 1 || found.iter().any(|i| order.contains(i)) {
                    return Err(bad(format!("`{name}` is not one axis on each side")));
                }
                if *group == Group::Rest {
                    out.extend(found.iter().map(|&i| axes[i].1));
                } else {
                    len = found.iter().fold(len, |n, &i| n.saturating_mul(axes[i].1));
                }
                order.extend(found);
            }
            if *group != Group::Rest {
                out.push(len);
            }
        }
        if order.len() != axes.len() {
            let lost = axes.iter().enumerate().find(|(i, _)| !order.contains(i)).map_or("", |(_, a)| a.0);
            return Err(bad(format!("`{lost}` is missing on the right")));
        }
        if let Some((name, _)) = sizes.iter().find(|(name, _)| axes.iter().all(|a| a.0 != *name)) {
            return Err(bad(format!("there is no axis `{name}`")));
        }
        let apart: Vec<usize> = axes.iter().map(|a| a.1).collect();
        let order: Vec<i64> = order.into_iter().map(|i| i as i64).collect();
        self.reshape(&apart)?.permute(&order)?.reshape(&out)
    }

    /// Pads each axis with zeros at its end up to a size; `None` leaves an axis as it is. `Error::Value` for an axis
    /// that is longer, or another number of axes.
    pub fn pad_to(&self, lens: &[Option<usize>]) -> Result<Tensor> {
        let shape = self.shape();
        let pairs = self.ends("pad_to", lens, |now, len| len.checked_sub(now).map(|more| (0, more)))?;
        let pairs: Vec<(usize, usize)> = (0..shape.len()).map(|i| pairs[i].unwrap_or((0, 0))).collect();
        self.pad_zeros(&pairs)
    }

    /// Keeps the first elements of each axis, as many as its size says; `None` leaves an axis as it is. `Error::Value`
    /// for an axis that is shorter, or another number of axes.
    pub fn shrink_to(&self, lens: &[Option<usize>]) -> Result<Tensor> {
        let shape = self.shape();
        let pairs = self.ends("shrink_to", lens, |now, len| (len <= now).then_some((0, len)))?;
        let pairs: Vec<(usize, usize)> = (0..shape.len()).map(|i| pairs[i].unwrap_or((0, shape[i]))).collect();
        self.shrink(&pairs)
    }

    /// `pair(size, wanted)` for each axis with a wanted size; `Error::Value` where it gives none.
    fn ends(
        &self,
        op: &'static str,
        lens: &[Option<usize>],
        pair: impl Fn(usize, usize) -> Option<(usize, usize)>,
    ) -> Result<Vec<Option<(usize, usize)>>> {
        let shape = self.shape();
        let bad = || Error::value(op, format!("lengths {lens:?} for the shape {shape:?}"));
        if lens.len() != shape.len() {
            return Err(bad());
        }
        let ends = shape.iter().zip(lens).map(|(&now, len)| len.map(|len| pair(now, len).ok_or_else(bad)).transpose());
        ends.collect()
    }
}

/// Parses one side of a formula into its axes.
fn groups(side: &str) -> std::result::Result<Vec<Group<'_>>, String> {
    let mut out: Vec<Group<'_>> = Vec::new();
    let mut rest = side.trim_start();
    let mut open = false;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '(' | ')' => 1,
            _ => rest.find(|c: char| c.is_whitespace() || c == '(' || c == ')').unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(end);
        match word {
            "(" if open => return Err("parentheses do not nest".into()),
            ")" if !open => return Err("`)` without `(`".into()),
            "..." if !open => out.push(Group::Rest),
            "(" | "1" if !open => out.push(Group::Of(Vec::new())),
            ")" | "1" => {}
            _ if word != "..." && !is_name(word) => return Err(format!("`{word}` is no name")),
            _ if open => {
                if let Some(Group::Of(names)) = out.last_mut() {
                    names.push(word);
                }
            }
            _ => out.push(Group::Of(vec![word])),
        }
        open = (open || word == "(") && word != ")";
        rest = after.trim_start();
    }
    if open { Err("`(` without `)`".into()) } else { Ok(out) }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The lengths of the names that an axis of size `len` is split into; one of them may be inferred.
fn lengths(group: &[&str], len: usize, sizes: &[(&str, usize)]) -> std::result::Result<Vec<usize>, String> {
    let given: Vec<Option<usize>> = group.iter().map(|name| sizes.iter().find(|s| s.0 == *name).map(|s| s.1)).collect();
    let known = given.iter().flatten().fold(1usize, |n, &l| n.saturating_mul(l));
    let open = given.iter().filter(|l| l.is_none()).count();
    let left = len.checked_div(known).unwrap_or(0);
    let fits = match open {
        0 => known == len,
        1 => known != 0 && left * known == len,
        _ => return Err(format!("of {group:?} one size may be left open")),
    };
    if !fits {
        return Err(format!("{group:?} do not make up an axis of {len}"));
    }
    Ok(given.into_iter().map(|l| l.unwrap_or(left)).collect())
}
