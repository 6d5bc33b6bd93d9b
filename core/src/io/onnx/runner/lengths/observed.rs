//! Observes the lengths of a model's inputs: which dimensions change, and which are others plus something. In: the
//! shapes of each run. Out: the dimensions that are variables in it, with their bounds. This module has nothing to do
//! with graphs.

use super::super::super::proto::Dim;
use super::super::inputs::push_signature;
use super::{Family, Lengths, MAX_FAILURES, MAX_NAMES, MAX_ROWS, MIN_UPPER_BOUND};
use crate::dtype::DType;
use crate::engine::lengths::Form;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::util::sorted::{SortedMap, SortedSet};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The lengths of the dimensions in one run, by their names.
type Row = SortedMap<String, usize>;

/// What a runner has observed of the lengths of its inputs.
#[derive(Default)]
pub(in super::super) struct LengthState {
    /// What the caller asked for.
    pub(super) wanted: Lengths,
    /// The first length of each dimension, and whether another one was seen.
    seen: SortedMap<String, (usize, bool)>,
    /// Families by [`key`], which is the same for all runs of a family; `None` where deriving one failed.
    pub(super) families: FxHashMap<Vec<u8>, Option<Arc<Family>>>,
    /// The step of the lengths in a family, where it is more than 1, by the names of the dimensions.
    pub(super) steps: SortedMap<String, usize>,
    /// Number of families that were attempted.
    pub(super) made: usize,
    /// The distinct lengths of the dimensions in earlier runs. Runs with those of the first entry have a plan of their
    /// own.
    rows: Vec<Row>,
    /// Messages for the user, by the names of the dimensions that they are about.
    pub(super) notes: SortedMap<String, String>,
    /// Dimensions for which no family could be derived.
    refused: SortedSet<String>,
    /// How many attempts to derive a family failed, by the names of its dimensions.
    failures: SortedMap<String, usize>,
    /// For each buffer that runs append to in place, its number of valid elements along the growing axis.
    pub(super) filled: FxHashMap<u32, usize>,
}

/// A declared dimension as a sum of names and a number, such as `past + 1`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    pub(super) names: Vec<String>,
    /// The number.
    more: i64,
}

impl Label {
    pub(super) fn of(input: &str, axis: usize, dim: Option<&Dim>) -> Label {
        let own = || Label { names: vec![format!("{input}.{axis}")], more: 0 };
        match dim {
            Some(Dim::Param(text)) => Label::parse(text).unwrap_or_else(own),
            Some(Dim::Value(n)) if *n >= 0 => Label { names: Vec::new(), more: *n },
            _ => own(),
        }
    }

    fn parse(text: &str) -> Option<Label> {
        let mut label = Label { names: Vec::new(), more: 0 };
        for part in text.split('+').map(str::trim) {
            let is_name = part.chars().all(|c| c.is_alphanumeric() || "_.".contains(c));
            match part.parse::<i64>() {
                Ok(n) => label.more = label.more.checked_add(n)?,
                Err(_) if is_name && part.chars().any(char::is_alphabetic) => label.names.push(part.to_owned()),
                Err(_) => return None,
            }
        }
        (!label.names.is_empty()).then_some(label)
    }
}

/// An input as a run was given it.
pub(super) struct ObservedInput {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) labels: Vec<Label>,
    pub(super) value: Option<HostTensor>,
}

/// How a dimension relates to others in all runs so far: files often have several names for one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Relation {
    None,
    /// Always longer than dimension `.0` by the difference that it has now.
    Longer(usize),
    /// Always the sum of two other dimensions.
    Sum(usize, usize),
}

/// A kind of relation to look for.
#[derive(Clone, Copy)]
enum RelationKind {
    /// Equal to another dimension.
    Equal,
    /// Longer than another dimension by a constant.
    Longer,
    /// The sum of two other dimensions.
    Sum,
}

/// The orders in which relations are tried. Where the runs so far fit both, a mask is more likely as long as past and
/// new tokens together than longer than one of them by a constant, so sums come first. If no family can be derived with
/// the first order, the second one is tried.
const ORDERS: [[RelationKind; 3]; 2] = [
    [RelationKind::Equal, RelationKind::Sum, RelationKind::Longer],
    [RelationKind::Equal, RelationKind::Longer, RelationKind::Sum],
];

/// The length of the dimension whose label is this name alone.
pub(super) fn size_of(seen: &[ObservedInput], name: &str) -> Option<usize> {
    let mut all = seen.iter().flat_map(|s| s.labels.iter().zip(&s.shape));
    let own = |(l, _): &(&Label, &usize)| l.more == 0 && l.names.len() == 1 && l.names[0] == name;
    all.find(own).map(|(_, &n)| n)
}

impl Label {
    /// This dimension as a form of the variables. One without variables is its current length `n`.
    pub(super) fn form(&self, vars: &SortedMap<&str, Form>, n: usize, size: &dyn Fn(&str) -> i64) -> Option<Form> {
        let mut sum = Form::number(self.more);
        if self.names.iter().all(|name| !vars.contains_key(name.as_str())) {
            return Some(Form::number(n as i64));
        }
        for name in &self.names {
            let one = vars.get(name.as_str()).cloned().unwrap_or_else(|| Form::number(size(name)));
            sum = sum.plus(&one, 1)?;
        }
        Some(sum)
    }
}

/// A dimension that may be a variable.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dimension {
    pub(super) name: String,
    /// Least and largest length; `None` without known bounds: then it is a variable only if it follows from others.
    pub(super) bounds: Option<(usize, usize)>,
    pub(super) relation: Relation,
    /// The step in which it changes: lengths with another remainder modulo it belong to another family.
    pub(super) step: usize,
}

pub(super) fn names_of(dims: &[Dimension]) -> String {
    dims.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// True if the dimension is the first axis of every input that has it, and none of these inputs has rank 1.
pub(super) fn is_batch(seen: &[ObservedInput], name: &str) -> bool {
    let has = |l: &Label| l.names.iter().any(|n| n == name);
    seen.iter().all(|s| !s.labels.iter().skip(1).any(has) && (s.labels.len() > 1 || !s.labels.iter().any(has)))
}

/// The key of a family: everything that is the same in all of its runs.
pub(super) fn key(seen: &[ObservedInput], dims: &[Dimension]) -> Vec<u8> {
    let mut key = format!("{dims:?}").into_bytes();
    let size = |name: &str| size_of(seen, name).unwrap_or(0) as i64;
    for d in dims {
        if let Relation::Longer(j) = d.relation {
            key.extend((size(&d.name) - dims.get(j).map_or(0, |b| size(&b.name))).to_le_bytes());
        }
        key.extend((size(&d.name) % d.step.max(1) as i64).to_le_bytes());
    }
    for s in seen {
        let changes = |l: &Label| l.names.iter().any(|n| dims.iter().any(|d| d.name == *n));
        let shape: Vec<usize> =
            s.labels.iter().zip(&s.shape).map(|(l, &n)| if changes(l) { usize::MAX } else { n }).collect();
        push_signature(&mut key, &s.name, s.dtype, &shape, s.value.as_ref().map(|v| &v.data[..]));
    }
    key
}

impl LengthState {
    /// True if a dimension may be a variable.
    pub(super) fn may_change(&self, name: &str) -> bool {
        let seen = self.seen.get(name).is_some_and(|s| s.1);
        let wanted = match &self.wanted {
            Lengths::Fixed => false,
            Lengths::Seen | Lengths::Inner => seen,
            Lengths::Bounds(map) => seen || map.contains_key(name),
        };
        wanted && !self.refused.contains(name)
    }

    /// Records a run, and returns the dimensions that are variables in it, those with bounds first, in one or two ways
    /// to relate them. Empty for runs with the lengths of the very first one, which has a plan of its own: a user whose
    /// lengths never change then waits for no second plan, and runs the faster one.
    ///
    /// # Errors
    /// `E_INPUT` for a length outside of the bounds that were promised.
    pub(super) fn dimensions(&mut self, seen: &[ObservedInput]) -> Result<Vec<Vec<Dimension>>> {
        let names: SortedSet<&String> = seen.iter().flat_map(|s| &s.labels).flat_map(|l| &l.names).collect();
        let row: Row = names.into_iter().filter_map(|n| Some((n.clone(), size_of(seen, n)?))).collect();
        if !self.rows.contains(&row) {
            if self.rows.len() >= MAX_ROWS {
                self.rows.pop();
            }
            self.rows.push(row.clone());
        }
        let (mut dims, mut others) = (Vec::new(), Vec::new());
        let own_plans: SortedSet<&String> = match self.wanted {
            Lengths::Inner => row.keys().filter(|name| is_batch(seen, name)).collect(),
            _ => SortedSet::new(),
        };
        for (name, &n) in row.iter().filter(|r| !own_plans.contains(r.0)) {
            let (first, changes) = self.seen.or_insert_with(name.clone(), || (n, false));
            *changes |= *first != n;
            // a dimension that was empty at first is a cache that grows: after a prompt there is room for a quarter more
            let likely = if *first == 0 { n + n / 4 } else { n };
            let bounds = match &self.wanted {
                Lengths::Fixed => None,
                Lengths::Bounds(map) => {
                    let range = map.get(name).copied();
                    if let Some((min, max)) = range.filter(|r| n < r.0 || n > r.1) {
                        let what = format!("it is {n}, between {min} and {max} was promised");
                        return Err(Error::Input { name: name.clone(), what });
                    }
                    range
                }
                Lengths::Seen | Lengths::Inner => changes.then(|| (2, likely.max(MIN_UPPER_BOUND).next_power_of_two())),
            };
            let bounds = bounds.map(|(min, max)| (min.max(2), max));
            let one = Dimension { name: name.clone(), bounds, relation: Relation::None, step: 1 };
            match bounds {
                _ if n < 2 || dims.len() + others.len() >= MAX_NAMES => {}
                Some(_) => dims.push(one),
                None if *changes => others.push(one),
                None => {}
            }
        }
        if self.rows.first() == Some(&row) {
            return Ok(Vec::new());
        }
        let n_free = dims.len();
        dims.extend(others);
        let mut ways: Vec<Vec<Dimension>> = Vec::new();
        for order in ORDERS {
            let mut dims = dims.clone();
            if n_free > 0 {
                self.relate(&row, &mut dims, n_free, order);
            }
            dims.retain(|d| d.bounds.is_some() || d.relation != Relation::None);
            let failed = self.failures.get(&names_of(&dims)).is_some_and(|n| *n >= MAX_FAILURES);
            if !dims.is_empty() && !failed && !ways.contains(&dims) {
                ways.push(dims);
            }
        }
        Ok(ways)
    }

    /// Finds relations between dimensions from earlier runs in which all other dimensions were as they are now; the
    /// first kind in `order` that holds is taken. Only the first `n_free` dimensions may be operands of a relation.
    fn relate(&self, row: &Row, dims: &mut [Dimension], n_free: usize, order: [RelationKind; 3]) {
        let changes = |name: &String| dims.iter().any(|d| d.name == *name);
        let alike = |r: &&Row| row.iter().all(|(n, v)| changes(n) || r.get(n) == Some(v));
        // Lengths that are too short for a variable now. They are constants of the family, but where a past of 5 and 1 new
        // token follow a first run of 5 new tokens, only all three together tell that the mask is as long as both.
        let is_short = |(n, v): &(&String, &usize)| **v < 2 && self.seen.get(*n).is_some_and(|s| s.1) && !changes(n);
        let short: Vec<&String> = row.iter().filter(is_short).map(|r| r.0).collect();
        let names: Vec<&String> = dims.iter().map(|d| &d.name).chain(short).collect();
        let at = |r: &Row| names.iter().map(|n| r.get(*n).map_or(0, |&v| v as i64)).collect();
        let mut rows: Vec<Vec<i64>> = self.rows.iter().filter(alike).map(at).collect();
        if rows.len() < 2 {
            // Too few such runs: guess from all runs. Deriving the family shows whether the guess is right.
            let has_all = |r: &&Row| dims.iter().all(|d| r.contains_key(&d.name));
            rows = self.rows.iter().filter(has_all).map(at).collect();
        }
        if rows.len() < 2 {
            return;
        }
        let free = |dims: &[Dimension], j: usize| j < n_free && dims[j].relation == Relation::None;
        let mut parts: SortedSet<usize> = SortedSet::new();
        let (count, columns) = (dims.len(), names.len());
        for (kind, i) in order.into_iter().flat_map(|kind| (0..count).map(move |i| (kind, i))) {
            if dims[i].relation != Relation::None || parts.contains(&i) {
                continue;
            }
            let more = |j: usize| rows[0][i] - rows[0][j];
            let moves = rows.iter().any(|r| r[i] != rows[0][i]);
            let same = |j: usize| rows.iter().all(|r| r[i] - r[j] == more(j));
            let found = match kind {
                RelationKind::Equal => (0..i).find(|&j| free(dims, j) && more(j) == 0 && same(j)).map(Relation::Longer),
                RelationKind::Longer => (0..i).find(|&j| free(dims, j) && moves && same(j)).map(Relation::Longer),
                RelationKind::Sum => {
                    let pairs = (0..n_free).flat_map(|j| (j + 1..n_free).chain(count..columns).map(move |k| (j, k)));
                    let apart = |j: usize| j != i && (j >= count || free(dims, j));
                    let sums = |p: &(usize, usize)| rows.iter().all(|r| r[i] == r[p.0] + r[p.1]);
                    let found = pairs.filter(|p| apart(p.0) && apart(p.1)).find(sums);
                    found.map(|(j, k)| {
                        parts.extend([j, k]);
                        if k < count { Relation::Sum(j, k) } else { Relation::Longer(j) }
                    })
                }
            };
            dims[i].relation = found.unwrap_or(Relation::None);
        }
    }

    /// Notes that a family was derived for these dimensions, or why not.
    pub(super) fn note_outcome(&mut self, dims: &[Dimension], why: Option<&Error>) {
        let names: Vec<&str> = dims.iter().map(|d| d.name.as_str()).collect();
        let all = names_of(dims);
        match why {
            None => {
                self.refused.retain(|n| !names.contains(&n.as_str()));
                self.notes.retain(|of, _| !of.split(", ").all(|n| names.contains(&n)));
            }
            Some(why) => {
                *self.failures.or_insert_with(all.clone(), || 0) += 1;
                self.refused.extend(names.into_iter().map(str::to_owned));
                self.notes.insert(all.clone(), format!("each length of {all} has a plan of its own: {why}"));
            }
        }
    }
}
