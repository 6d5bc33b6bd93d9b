//! What was seen of the lengths of a model's inputs: which dimensions change, and which are others plus something. In come the shapes of each
//! run; out come the dimensions that are variables in it, with their bounds. Never: graphs.

use super::super::super::proto::Dim;
use super::super::sign;
use super::{Family, LEAST_ROOM, Lengths, MOST_FAILURES, MOST_NAMES, MOST_ROWS};
use crate::dtype::DType;
use crate::engine::lengths::Form;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::util::sorted::{SortedMap, SortedSet};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Sizes of the dimensions in one run, by their names.
type Row = SortedMap<String, usize>;

/// What a runner knows of the lengths of its inputs.
#[derive(Default)]
pub(in super::super) struct Known {
    pub(super) wanted: Lengths,
    /// The first value of each dimension, and whether there was another one.
    seen: SortedMap<String, (usize, bool)>,
    /// By what is the same for all runs of one.
    pub(super) families: FxHashMap<Vec<u8>, Option<Arc<Family>>>,
    /// What lengths change by in a graph, where that is more than one, by the names of the dimensions.
    pub(super) steps: SortedMap<String, usize>,
    /// How many were tried.
    pub(super) made: usize,
    /// Sizes of the dimensions in earlier runs, each once. Those of the first have a plan of their own.
    rows: Vec<Row>,
    /// By the dimensions that they are about.
    pub(super) notes: SortedMap<String, String>,
    /// Dimensions that are part of a graph which cannot be had for every length.
    refused: SortedSet<String>,
    /// How often no graph for every length could be made, by the dimensions that it was about.
    failures: SortedMap<String, usize>,
    /// Of buffers that grow in place, how many elements they have along their axis.
    pub(super) filled: FxHashMap<u32, usize>,
}

/// A dimension as a sum of names and a number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    pub(super) names: Vec<String>,
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

/// An input as it was given.
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) labels: Vec<Label>,
    pub(super) value: Option<HostTensor>,
}

/// What was seen of a dimension in all runs: files often have several names for one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Relation {
    None,
    /// It is always as much longer than another one as it is now.
    Longer(usize),
    /// It is always the sum of two.
    Sum(usize, usize),
}

/// What is looked for among the dimensions.
#[derive(Clone, Copy)]
enum Kind {
    /// Two that are the same.
    Equal,
    /// One that is as much longer than another one as it always was.
    Longer,
    /// One that is the sum of two.
    Sum,
}

/// Which relations come first: where runs have not told them apart, a mask is rather as long as what was there and what is new together than
/// longer than the one by what the other happened to be. The graph is asked: where none can be had of the first order, the second one is tried.
const ORDERS: [[Kind; 3]; 2] = [[Kind::Equal, Kind::Sum, Kind::Longer], [Kind::Equal, Kind::Longer, Kind::Sum]];

/// The size of a dimension with one name.
pub(super) fn size_of(seen: &[Seen], name: &str) -> Option<usize> {
    let mut all = seen.iter().flat_map(|s| s.labels.iter().zip(&s.shape));
    let own = |(l, _): &(&Label, &usize)| l.more == 0 && l.names.len() == 1 && l.names[0] == name;
    all.find(own).map(|(_, &n)| n)
}

impl Label {
    /// A dimension of `n` elements here as a form; what is no variable stays as it is.
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
    /// Its least and largest value; `None` of one that nobody gave bounds for, which follows others or is none.
    pub(super) bounds: Option<(usize, usize)>,
    pub(super) relation: Relation,
    /// What it changes by: lengths with another remainder have another graph.
    pub(super) step: usize,
}

pub(super) fn names_of(dims: &[Dimension]) -> String {
    dims.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Is a dimension the first of every input that has it, and not the only one?
pub(super) fn is_batch(seen: &[Seen], name: &str) -> bool {
    let has = |l: &Label| l.names.iter().any(|n| n == name);
    seen.iter().all(|s| !s.labels.iter().skip(1).any(has) && (s.labels.len() > 1 || !s.labels.iter().any(has)))
}

/// What is the same in all runs of a family.
pub(super) fn key(seen: &[Seen], dims: &[Dimension]) -> Vec<u8> {
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
        sign(&mut key, &s.name, s.dtype, &shape, s.value.as_ref().map(|v| &v.data[..]));
    }
    key
}

impl Known {
    /// May a dimension be a variable?
    pub(super) fn may_change(&self, name: &str) -> bool {
        let seen = self.seen.get(name).is_some_and(|s| s.1);
        let wanted = match &self.wanted {
            Lengths::Fixed => false,
            Lengths::Seen | Lengths::Inner => seen,
            Lengths::Bounds(map) => seen || map.contains_key(name),
        };
        wanted && !self.refused.contains(name)
    }

    /// Takes note of a run. The dimensions that are variables in it, those with bounds first, in one or two ways to relate them; none in runs of
    /// the sizes of the first one, which has a plan of its own: who never has other sizes waits for no other plan, and runs a faster one.
    ///
    /// # Errors
    /// `E_INPUT` for a length outside of the bounds that were promised.
    pub(super) fn dimensions(&mut self, seen: &[Seen]) -> Result<Vec<Vec<Dimension>>> {
        let names: SortedSet<&String> = seen.iter().flat_map(|s| &s.labels).flat_map(|l| &l.names).collect();
        let row: Row = names.into_iter().filter_map(|n| Some((n.clone(), size_of(seen, n)?))).collect();
        if !self.rows.contains(&row) {
            if self.rows.len() >= MOST_ROWS {
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
                Lengths::Seen | Lengths::Inner => changes.then(|| (2, n.max(LEAST_ROOM).next_power_of_two())),
            };
            let bounds = bounds.map(|(min, max)| (min.max(2), max));
            let one = Dimension { name: name.clone(), bounds, relation: Relation::None, step: 1 };
            match bounds {
                _ if n < 2 || dims.len() + others.len() >= MOST_NAMES => {}
                Some(_) => dims.push(one),
                None if *changes => others.push(one),
                None => {}
            }
        }
        if self.rows.first() == Some(&row) {
            return Ok(Vec::new());
        }
        let own = dims.len();
        dims.extend(others);
        let mut ways: Vec<Vec<Dimension>> = Vec::new();
        for order in ORDERS {
            let mut dims = dims.clone();
            if own > 0 {
                self.relate(&row, &mut dims, own, order);
            }
            dims.retain(|d| d.bounds.is_some() || d.relation != Relation::None);
            let failed = self.failures.get(&names_of(&dims)).is_some_and(|n| *n >= MOST_FAILURES);
            if !dims.is_empty() && !failed && !ways.contains(&dims) {
                ways.push(dims);
            }
        }
        Ok(ways)
    }

    /// How the dimensions hang together, as far as runs have shown in which all else was as it is now: by the first of `order` that holds. Only
    /// the first `own` of them may be what others are made of.
    fn relate(&self, row: &Row, dims: &mut [Dimension], own: usize, order: [Kind; 3]) {
        let changes = |name: &String| dims.iter().any(|d| d.name == *name);
        let alike = |r: &&Row| row.iter().all(|(n, v)| changes(n) || r.get(n) == Some(v));
        let at = |r: &Row| dims.iter().map(|d| r.get(&d.name).map_or(0, |&v| v as i64)).collect();
        let mut rows: Vec<Vec<i64>> = self.rows.iter().filter(alike).map(at).collect();
        if rows.len() < 2 {
            // a guess: the graph says whether it is right
            let has_all = |r: &&Row| dims.iter().all(|d| r.contains_key(&d.name));
            rows = self.rows.iter().filter(has_all).map(at).collect();
        }
        if rows.len() < 2 {
            return;
        }
        let free = |dims: &[Dimension], j: usize| j < own && dims[j].relation == Relation::None;
        let mut parts: SortedSet<usize> = SortedSet::new();
        let count = dims.len();
        for (kind, i) in order.into_iter().flat_map(|kind| (0..count).map(move |i| (kind, i))) {
            if dims[i].relation != Relation::None || parts.contains(&i) {
                continue;
            }
            let more = |j: usize| rows[0][i] - rows[0][j];
            let moves = rows.iter().any(|r| r[i] != rows[0][i]);
            let same = |j: usize| rows.iter().all(|r| r[i] - r[j] == more(j));
            let found = match kind {
                Kind::Equal => (0..i).find(|&j| free(dims, j) && more(j) == 0 && same(j)).map(Relation::Longer),
                Kind::Longer => (0..i).find(|&j| free(dims, j) && moves && same(j)).map(Relation::Longer),
                Kind::Sum => {
                    let pairs = (0..own).flat_map(|j| (j + 1..own).map(move |k| (j, k)));
                    let apart = |j: usize| j != i && free(dims, j);
                    let sums = |p: &(usize, usize)| rows.iter().all(|r| r[i] == r[p.0] + r[p.1]);
                    let found = pairs.filter(|p| apart(p.0) && apart(p.1)).find(sums);
                    found.map(|(j, k)| {
                        parts.extend([j, k]);
                        Relation::Sum(j, k)
                    })
                }
            };
            dims[i].relation = found.unwrap_or(Relation::None);
        }
    }

    /// A family was made of these dimensions, or could not be for this reason: what is said of them.
    pub(super) fn say(&mut self, dims: &[Dimension], why: Option<&Error>) {
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
