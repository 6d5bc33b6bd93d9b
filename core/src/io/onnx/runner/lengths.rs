//! Inputs whose lengths change from run to run: one plan serves all of them, with the lengths as launch scalars.
//!
//! A length is a variable because the caller said so ([`Lengths::Bounds`]), or because it was observed to change; then
//! its bounds are 2 and a power of two, so that a text that grows needs a new plan at few lengths only. Lengths 0 and 1
//! keep plans of their own: an operator may mean something else there (broadcasting), and a step of one token should be
//! as fast as possible. The graph for all lengths is derived from several builds for different lengths
//! ([`crate::engine::lengths`]). Where that fails, each shape has its own plan, and [`super::Runner::notes`] says why.
//!
//! A *family* is such a graph together with its variables. A *capacity* is the padded shape of a tensor, with each
//! length at its upper bound.

mod family;
mod observed;

use self::observed::{Dimension, Label, ObservedInput, is_batch, key, names_of, size_of};
use super::super::build::Feed;
use super::super::model::Port;
use super::super::proto::Dim;
use super::inputs::push_signature;
use super::{Given, Input, Inputs, Runner};
use crate::dtype::DType;
use crate::engine::lengths::{Form, NO_FORM, Variable};
use crate::engine::{Bytes, State};
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::tensor::Tensor;
use crate::uop::UOp;
use crate::util::rows;
use crate::util::sorted::{SortedMap, SortedSet};
use rustc_hash::FxHashMap;
use std::sync::Arc;

pub(super) use self::observed::LengthState;

/// Which lengths of a model's inputs become launch scalars, so that one plan serves all their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Lengths {
    /// None: each shape has its own plan.
    #[default]
    Fixed,
    /// Lengths that were observed to change between runs.
    Seen,
    /// As `Seen`, except for batch dimensions: those that are the first axis of every input which has them. A model
    /// sees few batch sizes, and a plan for each is the fastest.
    Inner,
    /// These dimensions, by their names in the model (`input.axis` for one without a name), with least and largest
    /// length.
    Bounds(SortedMap<String, (usize, usize)>),
}

/// The smallest upper bound of a length that was observed to change.
const MIN_UPPER_BOUND: usize = 32;
/// The most dimensions of one model that may be variables, or follow from variables.
const MAX_NAMES: usize = 32;
/// The most runs whose dimensions are remembered, to find relations between them.
const MAX_ROWS: usize = 32;
/// The most families that are kept, counting failed attempts; beyond that all are dropped.
const MAX_FAMILIES: usize = 64;
/// The largest step in which the lengths of one family may grow. 32 suits networks that halve the resolution of
/// pictures five times.
const MAX_STEP: usize = 32;
/// How many attempts to derive a family for the same dimensions may fail before no more are made.
const MAX_FAILURES: usize = 3;

/// A graph for all lengths of some dimensions.
pub(super) struct Family {
    number: usize,
    vars: Vec<Variable>,
    /// Step and name of the dimension of each variable: the dimension's length is the variable times the step, plus a
    /// remainder.
    names: Vec<(i64, String)>,
    /// For each input the tensor that stands for it in the graph; `None` for a value that is built in.
    pub(super) holders: Vec<Option<Tensor>>,
    inputs: Vec<FamilyInput>,
    pub(super) outputs: Vec<Output>,
}

/// An input of a family.
#[derive(Clone)]
struct FamilyInput {
    name: String,
    dims: Vec<Form>,
    /// The padded sizes of its buffer.
    capacity: Vec<usize>,
    /// The axis along which a run appends to it in place (a key-value cache), and its length after the run.
    grows: Option<(usize, Form)>,
}

/// An output of a family.
pub(super) struct Output {
    pub(super) name: String,
    pub(super) tensor: Tensor,
    dims: Vec<Vec<Form>>,
    /// The padded sizes of its buffer, where there is padding between the elements: the output's own, or those of the
    /// input that it extends in place.
    capacity: Option<Vec<usize>>,
}

/// A family, and the values of its variables in one run.
#[derive(Clone)]
pub(super) struct Chosen {
    pub(super) family: Arc<Family>,
    values: Vec<i64>,
}

impl Chosen {
    /// Names and values of the launch scalars.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, i64)> {
        self.family.vars.iter().map(|v| v.name.as_str()).zip(self.values.iter().copied())
    }

    /// The outputs of a run as tensors of their actual lengths.
    pub(super) fn outputs(&self, state: &mut State, nodes: &[UOp]) -> Result<Vec<UOp>> {
        let lost = || Error::Internal("an output of a plan for every length is no buffer".to_owned());
        let mut out = Vec::with_capacity(nodes.len());
        for (o, &u) in self.family.outputs.iter().zip(nodes) {
            let size = |forms: &Vec<Form>| forms.iter().map(|f| f.at(&self.values).max(0) as usize).product::<usize>();
            let dims: Vec<usize> = o.dims.iter().map(size).collect();
            let buffer = state.storage(u).and_then(|s| state.buffer_below(s)).ok_or_else(lost)?;
            let id = state.buffer_id(buffer).ok_or_else(lost)?;
            out.push(match &o.capacity {
                Some(capacity) => {
                    let flat = state.buffer_node(id);
                    let whole = state.graph.reshape(flat, capacity);
                    let keep: Vec<(usize, usize)> = dims.iter().map(|&n| (0, n)).collect();
                    state.graph.shrink(whole, &keep)
                }
                None => {
                    state.shorten(id, dims.iter().product());
                    let flat = state.buffer_node(id);
                    state.graph.reshape(flat, &dims)
                }
            });
        }
        Ok(out)
    }
}

/// The functions that a runner needs where lengths change. Calls go through this table, so that builds of the wasm
/// module which never set lengths do not contain the code.
pub(super) struct LengthSupport {
    /// The family for these inputs, if there is one.
    pub(super) chosen: fn(&Runner, &[(&str, Input)]) -> Result<Option<Chosen>>,
    /// Whether a run can use a tensor's buffer without a copy, as far as lengths decide it.
    pub(super) usable_in_place: fn(&Runner, &str, &Tensor, &[(&str, Input)]) -> Option<bool>,
    /// Which inputs must be given by their values after all: another run may have appended to their buffers since they
    /// were taken.
    pub(super) needs_host_data: fn(&Runner, &[(&str, Input)]) -> Result<Vec<usize>>,
    /// The inputs of a run as tensors of the padded sizes.
    pub(super) inputs: fn(&Runner, Vec<(&str, Input)>, Chosen) -> Result<Inputs>,
    /// The graph of a family, reading these inputs.
    pub(super) graph: fn(&Runner, &Chosen, &[Given]) -> Result<Vec<Tensor>>,
    /// The outputs of a run as tensors of their actual lengths.
    pub(super) outputs: fn(&Chosen, &mut State, &[UOp]) -> Result<Vec<UOp>>,
}

static LENGTH_SUPPORT: LengthSupport = LengthSupport {
    chosen: Runner::family_for,
    usable_in_place: Runner::is_usable_in_place,
    needs_host_data: Runner::needs_host_data,
    inputs: Runner::padded_inputs,
    graph: Runner::family_graph,
    outputs: Chosen::outputs,
};

/// For a tensor that is the leading part of a padded buffer along each axis: that buffer and its sizes.
fn view_of(state: &State, node: UOp) -> Option<(u32, Vec<usize>)> {
    let boxed = state.array_box(node).filter(|b| b.pairs.iter().all(|p| p.0 == 0))?;
    Some((boxed.id, boxed.array_shape))
}

/// The bytes of a tensor copied into an array of the padded sizes `capacity`, zero elsewhere.
fn padded_bytes(t: &HostTensor, capacity: &[usize]) -> Vec<u8> {
    let size = t.dtype.size();
    let mut out = vec![0; capacity.iter().product::<usize>() * size];
    let row = t.shape.last().copied().unwrap_or(1) * size;
    if row == 0 {
        return out;
    }
    for (own, at) in t.data.chunks_exact(row).zip(rows(&t.shape, capacity)) {
        out[at * size..at * size + row].copy_from_slice(own);
    }
    out
}

impl Runner {
    /// Sets which lengths of inputs are launch scalars in later runs.
    ///
    /// # Errors
    /// `E_VALUE` for bounds of a dimension that no input has.
    pub fn set_lengths(&mut self, lengths: Lengths) -> Result<()> {
        if let Lengths::Bounds(map) = &lengths {
            self.check_names(map.keys())?;
        }
        let known = self.lengths.get_mut();
        known.wanted = lengths;
        known.families.clear();
        self.length_support = Some(&LENGTH_SUPPORT);
        crate::schedule::needed::enable();
        crate::codegen::live::enable();
        crate::engine::cache::enable();
        Ok(())
    }

    /// Checks that inputs have dimensions of these names, as far as the file declares dimensions.
    fn check_names<'a>(&self, mut names: impl Iterator<Item = &'a String>) -> Result<()> {
        let ports = self.model().inputs();
        let Some(all) = ports.iter().map(|p| p.dims.as_deref()).collect::<Option<Vec<_>>>() else { return Ok(()) };
        let labels = |(p, dims): (&Port, &[Dim])| -> Vec<Label> {
            dims.iter().enumerate().map(|(i, d)| Label::of(&p.name, i, Some(d))).collect()
        };
        let known: SortedSet<String> = ports.iter().zip(all).flat_map(labels).flat_map(|l| l.names).collect();
        let Some(strange) = names.find(|&n| !known.contains(n)) else { return Ok(()) };
        let known: Vec<String> = known.into_iter().collect();
        let what = format!("no input has a dimension `{strange}` that changes; there are [{}]", known.join(", "));
        Err(Error::value("set_lengths", what))
    }

    /// Records the input shapes of a run that was made before [`Runner::set_lengths`]; it counts as the first run.
    ///
    /// # Errors
    /// `E_INPUT` for a length outside of the bounds that were promised.
    pub fn record_shapes(&self, inputs: &[(String, Vec<usize>)]) -> Result<()> {
        let one = |(name, shape): &(String, Vec<usize>)| {
            let (port, _) = self.model().place(name).filter(|p| p.1.is_none())?;
            let dims = port.dims.as_deref().unwrap_or_default();
            let labels = (0..shape.len()).map(|i| Label::of(name, i, dims.get(i))).collect();
            let dtype = port.dtype.unwrap_or(DType::F32);
            Some(ObservedInput { name: name.clone(), dtype, shape: shape.clone(), labels, value: None })
        };
        let seen: Vec<ObservedInput> = inputs.iter().filter_map(one).collect();
        self.lengths.borrow_mut().dimensions(&seen).map(drop)
    }

    /// Takes over the [`Lengths`] of another runner.
    pub(super) fn follow_lengths(&mut self, other: &Runner) {
        self.lengths.get_mut().wanted = other.lengths();
        self.length_support = other.length_support;
    }

    /// Which lengths of inputs are launch scalars.
    pub fn lengths(&self) -> Lengths {
        self.lengths.borrow().wanted.clone()
    }

    /// Notes for the user about the model: why a shape has a plan of its own.
    pub fn notes(&self) -> Vec<String> {
        self.lengths.borrow().notes.values().cloned().collect()
    }

    /// Whether a run can use a tensor's buffer without a copy, as far as lengths decide it; `None` if lengths do not
    /// matter.
    fn is_usable_in_place(&self, name: &str, t: &Tensor, others: &[(&str, Input)]) -> Option<bool> {
        let known = self.lengths.borrow();
        let port = self.model().input(name)?;
        let dims = port.dims.as_deref().unwrap_or_default();
        let shape = t.shape();
        let changes = |(i, n): (usize, &usize)| {
            *n >= 2 && Label::of(name, i, dims.get(i)).names.iter().any(|l| known.may_change(l))
        };
        let state = self.session.state();
        let Some((id, capacity)) = view_of(&state, state.node(t.root())) else {
            return shape.iter().enumerate().any(changes).then_some(false);
        };
        let same = |i: &Input| matches!(i, Input::Tensor(t) if view_of(&state, state.node(t.root())).is_some_and(|v| v.0 == id));
        let grows = |s: &FamilyInput| {
            let fits = |a: usize| known.filled.get(&id) == Some(&shape[a]) && shape[a] >= 2 && shape[a] < capacity[a];
            s.name == name && s.capacity == capacity && s.grows.as_ref().is_some_and(|g| fits(g.0))
        };
        let all = known.families.values().flatten();
        Some(!others.iter().any(|(_, i)| same(i)) && all.flat_map(|f| &f.inputs).any(grows))
    }

    fn needs_host_data(&self, inputs: &[(&str, Input)]) -> Result<Vec<usize>> {
        if !inputs.iter().any(|(_, i)| matches!(i, Input::Tensor(_))) {
            return Ok(Vec::new());
        }
        let chosen = self.chosen(inputs)?;
        let taken = |(i, (name, input)): (usize, &(&str, Input))| match input {
            Input::Host(_) => false,
            Input::Tensor(t) => self.is_usable_in_place(name, t, &inputs[..i]) == Some(false),
        };
        let taken: Vec<bool> = inputs.iter().enumerate().map(taken).collect();
        let state = self.session.state();
        let unfit = |(i, (_, input)): (usize, &(&str, Input))| match (input, &chosen) {
            (Input::Host(_), _) => false,
            _ if taken[i] => true,
            (Input::Tensor(t), Some(c)) => c.family.inputs[i].buffer_of(&state, t).is_none(),
            (Input::Tensor(t), None) => view_of(&state, state.node(t.root())).is_some(),
        };
        Ok(inputs.iter().enumerate().filter(|x| unfit(*x)).map(|x| x.0).collect())
    }

    /// The family for these inputs, if there is one and all tensors among them have its padded sizes.
    fn family_for(&self, inputs: &[(&str, Input)]) -> Result<Option<Chosen>> {
        let Some(chosen) = self.chosen(inputs)? else { return Ok(None) };
        let state = self.session.state();
        let here = |((_, input), slot): (&(&str, Input), &FamilyInput)| match input {
            Input::Host(_) => true,
            Input::Tensor(t) => slot.buffer_of(&state, t).is_some(),
        };
        let fits = inputs.iter().zip(&chosen.family.inputs).all(here);
        drop(state);
        Ok(fits.then_some(chosen))
    }

    /// The family for inputs of these sizes and the values of its variables, if there is one.
    fn chosen(&self, inputs: &[(&str, Input)]) -> Result<Option<Chosen>> {
        let mut known = self.lengths.borrow_mut();
        if known.wanted == Lengths::Fixed || self.model().is_random() {
            return Ok(None);
        }
        let mut seen = Vec::new();
        for (name, input) in inputs {
            let Some((port, None)) = self.model().place(name) else { return Ok(None) };
            let (dtype, shape) = match input {
                Input::Host(t) => (t.dtype, t.shape.clone()),
                Input::Tensor(t) => (t.dtype(), t.shape()),
            };
            port.accepts(dtype, &shape)?;
            let dims = port.dims.as_deref().unwrap_or_default();
            let labels = (0..shape.len()).map(|i| Label::of(name, i, dims.get(i))).collect();
            let value = match input {
                Input::Host(t) if port.is_value => Some(t.clone()),
                _ => None,
            };
            seen.push(ObservedInput { name: (*name).to_owned(), dtype, shape, labels, value });
        }
        let ways = known.dimensions(&seen)?;
        let mut family = None;
        for (i, dims) in ways.iter().enumerate() {
            let step = known.steps.get(&names_of(dims)).copied().unwrap_or(1);
            let dims = in_steps_of(&seen, dims, step);
            family = self.family_of(&mut known, &seen, &dims, i + 1 == ways.len());
            if family.is_some() {
                break;
            }
        }
        let Some(family) = family else { return Ok(None) };
        let values = family.values(&seen);
        Ok(values.map(|values| Chosen { family, values }))
    }

    /// The family for these dimensions; it is derived if it is missing. If that fails, the reason is noted only when
    /// `is_last`: for the last of several ways to relate the dimensions.
    fn family_of(
        &self,
        known: &mut LengthState,
        seen: &[ObservedInput],
        dims: &[Dimension],
        is_last: bool,
    ) -> Option<Arc<Family>> {
        let mut own_key = key(seen, dims);
        if let Some(f) = known.families.get(&own_key) {
            return f.clone();
        }
        if known.families.len() >= MAX_FAMILIES {
            known.families.clear();
        }
        let mut made = self.family(seen, dims, known.made);
        if made.is_err()
            && !matches!(known.wanted, Lengths::Bounds(_))
            && let Some(dims) = with_bounds_of_inputs(seen, dims)
        {
            made = self.family(seen, &dims, known.made).or(made);
        }
        if made.as_ref().is_err_and(|e| e.to_string().contains(NO_FORM))
            && is_last
            && let Some((step, family)) = self.smallest_step(seen, dims, known.made)
        {
            known.steps.insert(names_of(dims), step);
            own_key = key(seen, &in_steps_of(seen, dims, step));
            made = Ok(family);
        }
        if made.is_err()
            && !matches!(known.wanted, Lengths::Bounds(_))
            && let Some(dims) = self.with_largest_buildable_bounds(seen, dims)
        {
            made = self.family(seen, &dims, known.made).or(made);
        }
        known.made += 1;
        if made.is_ok() || is_last {
            known.note_outcome(dims, made.as_ref().err());
        }
        let made = made.ok().map(Arc::new);
        known.families.insert(own_key, made.clone());
        made
    }

    /// Derives a family for lengths that grow in steps, with the smallest power of two as step that works: where
    /// windows have a stride of 2, the result's length is one affine form of an even length, and another one of an odd
    /// length.
    fn smallest_step(&self, seen: &[ObservedInput], dims: &[Dimension], number: usize) -> Option<(usize, Family)> {
        let made = |step: usize| Some((step, self.family(seen, &in_steps_of(seen, dims, step), number).ok()?));
        let (mut best, mut least) = (made(MAX_STEP)?, 2);
        // If a step works, so do its multiples; hence a binary search over powers of two.
        while least < best.0 {
            let log = (least.ilog2() + best.0.ilog2()) / 2;
            match made(1 << log) {
                Some(found) => best = found,
                None => least = 2 << log,
            }
        }
        Some(best)
    }

    /// The inputs of a run as tensors of the family's padded sizes.
    fn padded_inputs(&self, inputs: Vec<(&str, Input)>, chosen: Chosen) -> Result<Inputs> {
        let mut key = b"lengths".to_vec();
        key.extend(chosen.family.number.to_le_bytes());
        let mut out = Inputs { key, names: vec![], feeds: vec![], given: vec![], chosen: None };
        let mut used: SortedSet<u32> = SortedSet::new();
        for ((name, input), slot) in inputs.into_iter().zip(&chosen.family.inputs) {
            let t = match input {
                Input::Host(t) if self.is_value(name) => {
                    push_signature(&mut out.key, name, t.dtype, &t.shape, Some(&t.data));
                    out.names.push(name.to_owned());
                    out.feeds.push(Feed::Known(t));
                    out.given.push(Given { tensor: None, small: None });
                    continue;
                }
                Input::Host(t) => {
                    let data = if t.shape == slot.capacity { t.data } else { padded_bytes(&t, &slot.capacity) };
                    Tensor::from_bytes(&self.session, t.dtype, &[slot.capacity.iter().product()], Bytes::new(data))?
                }
                Input::Tensor(t) => self.in_place(slot, &t)?,
            };
            let id = t.buffer().filter(|id| used.insert(*id));
            let id = id.ok_or_else(|| must_be_host_data(name))?;
            if let Some((_, len)) = &slot.grows {
                let mut known = self.lengths.borrow_mut();
                if known.filled.len() > 1 << 12 {
                    let state = self.session.state();
                    known.filled.retain(|id, _| state.buffer(*id).is_some());
                }
                known.filled.insert(id, len.at(&chosen.values).max(0) as usize);
            }
            out.names.push(name.to_owned());
            out.feeds.push(Feed::Tensor(t.clone()));
            out.given.push(Given { tensor: Some(t), small: None });
        }
        out.chosen = Some(chosen);
        Ok(out)
    }

    /// The flat buffer of a tensor that already has the padded sizes of this input.
    fn in_place(&self, slot: &FamilyInput, t: &Tensor) -> Result<Tensor> {
        let mut state = self.session.state();
        let id = slot.buffer_of(&state, t).ok_or_else(|| must_be_host_data(&slot.name))?;
        let flat = state.buffer_node(id);
        drop(state);
        Ok(Tensor::from_node(&self.session, flat))
    }

    /// The graph of a run's family, with the run's own inputs substituted.
    fn family_graph(&self, chosen: &Chosen, given: &[Given]) -> Result<Vec<Tensor>> {
        let mut state = self.session.state();
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for (h, g) in chosen.family.holders.iter().zip(given) {
            if let (Some(h), Some(t)) = (h, &g.tensor) {
                map.insert(state.node(h.root()), state.node(t.root()));
            }
        }
        let roots: Vec<UOp> = chosen.family.outputs.iter().map(|o| state.node(o.tensor.root())).collect();
        let roots = crate::rewrite::substitute(&mut state.graph, &roots, &map);
        drop(state);
        Ok(roots.into_iter().map(|u| Tensor::from_node(&self.session, u)).collect())
    }
}

impl FamilyInput {
    /// The buffer of a tensor, if that has the padded sizes of this input.
    fn buffer_of(&self, state: &State, t: &Tensor) -> Option<u32> {
        let node = state.node(t.root());
        match view_of(state, node) {
            Some((id, capacity)) => (capacity == self.capacity).then_some(id),
            None if state.graph.shape(node).as_slice() == self.capacity => {
                state.storage(node).and_then(|s| state.buffer_id(s))
            }
            None => None,
        }
    }
}

pub(super) fn must_be_host_data(name: &str) -> Error {
    Error::Input { name: name.into(), what: "this tensor must be given by its values".into() }
}

/// The same dimensions with this step. A batch is not subject to windows or strides, and keeps step 1.
fn in_steps_of(seen: &[ObservedInput], dims: &[Dimension], step: usize) -> Vec<Dimension> {
    let of = |d: &Dimension| if is_batch(seen, &d.name) { 1 } else { step };
    dims.iter().map(|d| Dimension { step: of(d), ..d.clone() }).collect()
}

/// The same dimensions with upper bounds that are sizes of inputs' fixed dimensions, where there are such sizes between
/// the length now and the bound: a mask for a cache of fixed size is not longer than the cache.
fn with_bounds_of_inputs(seen: &[ObservedInput], dims: &[Dimension]) -> Option<Vec<Dimension>> {
    let axes = seen.iter().flat_map(|s| s.labels.iter().zip(&s.shape));
    let fixed: Vec<usize> =
        axes.filter(|(l, _)| !dims.iter().any(|d| l.names.contains(&d.name))).map(|x| *x.1).collect();
    let smaller = |d: &Dimension| {
        let now = size_of(seen, &d.name)?;
        let (min, max) = d.bounds?;
        let size = fixed.iter().copied().filter(|n| (now..max).contains(n)).max()?;
        Some((min, size))
    };
    let out: Vec<Dimension> = dims.iter().map(|d| Dimension { bounds: smaller(d).or(d.bounds), ..d.clone() }).collect();
    (out != dims).then_some(out)
}

fn overflow() -> Error {
    Error::value("lengths", "a length overflows")
}

impl Family {
    /// The values of the variables for these shapes; `None` where the shapes do not fit the family.
    fn values(&self, seen: &[ObservedInput]) -> Option<Vec<i64>> {
        let value = |(step, name): &(i64, String)| size_of(seen, name).map(|n| n as i64 / step);
        let values = self.names.iter().map(value).collect::<Option<Vec<_>>>()?;
        let fits = |(s, slot): (&ObservedInput, &FamilyInput)| {
            s.name == slot.name && s.shape.iter().zip(&slot.dims).all(|(&n, f)| f.at(&values) == n as i64)
        };
        let inside = self.vars.iter().zip(&values).all(|(v, n)| (v.min..=v.max).contains(n));
        (inside && seen.len() == self.inputs.len() && seen.iter().zip(&self.inputs).all(fits)).then_some(values)
    }
}
