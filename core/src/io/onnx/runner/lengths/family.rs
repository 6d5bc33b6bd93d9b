//! Derives a graph for all lengths: the model is built for some lengths, and the numbers that differ between the builds
//! are recognised as affine forms of the lengths ([`crate::engine::lengths`]). In: the shapes of a run and which of its
//! dimensions are variables. Out: a [`Family`], or an error that names the node which prevents one.

use super::super::super::build::Feed;
use super::super::super::stage::{Build, Step};
use super::super::super::value::NodeTrace;
use super::super::Runner;
use super::observed::{Dimension, Label, ObservedInput, Relation, size_of};
use super::{Family, FamilyInput, Output, overflow};
use crate::engine::lengths::{self as forms, Form, MOST_VARIABLES, Points, Tuple, Variable};
use crate::engine::{Bytes, State};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::tensor::Tensor;
use crate::uop::UOp;
use crate::util::sorted::SortedMap;
use rustc_hash::{FxHashMap, FxHashSet};

/// The builds of one graph for different lengths.
struct Builds {
    outputs: Vec<Vec<(String, Tensor)>>,
    /// The tensor that stands for each input, for each build.
    buffers: Vec<Vec<Option<Tensor>>>,
    /// Shapes and values that the nodes of the first build produced.
    traces: Vec<NodeTrace>,
}

type Built = (Vec<(String, Tensor)>, Vec<Option<Tensor>>, Vec<NodeTrace>);

/// Checks a build at the least lengths: do its shapes and known values equal the forms found from the other builds? If
/// a graph means something else for short lengths (a clamped window, a branch), this finds it.
fn check_least(
    points: &Points,
    known: &[Form],
    builds: &[&[NodeTrace]],
    point: &[i64],
    least: &[NodeTrace],
) -> Result<()> {
    let other =
        |m: &NodeTrace| Error::value("lengths", format!("node {}: it makes something else at {point:?}", m.node));
    for (i, m) in least.iter().enumerate() {
        let all: Option<Vec<&NodeTrace>> = builds.iter().map(|b| b.get(i).filter(|o| o.node == m.node)).collect();
        let all = all.ok_or_else(|| other(m))?;
        let differs = |of: &dyn Fn(&NodeTrace) -> Option<i64>| {
            let values: Option<Vec<i64>> = all.iter().map(|m| of(m)).collect();
            let forms = values.and_then(|v| points.product(&v, known));
            let then = forms.map(|f| f.iter().fold(1i64, |n, f| n.saturating_mul(f.at(point))));
            then.zip(of(m)).is_some_and(|(a, b)| a != b)
        };
        for (o, shape) in m.shapes.iter().enumerate() {
            if all.iter().any(|a| a.shapes.get(o).map(Vec::len) != Some(shape.len())) {
                return Err(other(m));
            }
            let dim = |d: usize| move |m: &NodeTrace| m.shapes.get(o)?.get(d).copied();
            let value = |e: usize| move |m: &NodeTrace| m.values.get(o)?.as_ref()?.get(e).map(|v| *v as i64);
            let elems = all[0].values.get(o).and_then(|v| v.as_ref()).map_or(0, Vec::len);
            if (0..shape.len()).any(|d| differs(&dim(d))) || (0..elems).any(|e| differs(&value(e))) {
                return Err(other(m));
            }
        }
    }
    match builds.iter().all(|b| b.len() == least.len()) {
        true => Ok(()),
        false => Err(Error::value("lengths", "it has more nodes for one length than for another")),
    }
}

/// The elements of constant tables that single builds created, by buffer.
fn tables(state: &State, roots: &[Tuple]) -> FxHashMap<u32, Bytes> {
    let builds = roots.first().map_or(0, Tuple::len);
    let mut uses: FxHashMap<u32, usize> = FxHashMap::default();
    for b in 0..builds {
        let own: Vec<UOp> = roots.iter().map(|t| t[b]).collect();
        for id in state.graph.reachable(&own).into_iter().filter_map(|u| state.buffer_id(u)) {
            *uses.entry(id).or_default() += 1;
        }
    }
    // A buffer that all builds use is the same constant in all of them.
    let own = uses.into_iter().filter(|x| x.1 < builds);
    own.filter_map(|(id, _)| Some((id, state.buffer(id)?.host.clone()?))).collect()
}

impl Runner {
    /// The variables for these dimensions, the names of the dimensions, and the inputs' shapes as forms of the
    /// variables.
    fn variables(
        &self,
        seen: &[ObservedInput],
        dims: &[Dimension],
    ) -> Result<(Vec<Variable>, Vec<String>, Vec<FamilyInput>)> {
        let size = |name: &str| size_of(seen, name).unwrap_or(0) as i64;
        let mut vars: Vec<Variable> = Vec::new();
        let mut own_names: Vec<String> = Vec::new();
        let mut by_name: SortedMap<&str, Form> = SortedMap::new();
        for d in dims {
            if let (Relation::None, Some((min, max))) = (d.relation, d.bounds) {
                let (step, one) = (d.step.max(1) as i64, Form::variable(vars.len()));
                let more = size(&d.name) % step;
                let form = Form::number(more).plus(&one, step).ok_or_else(overflow)?;
                by_name.insert(&d.name, form);
                own_names.push(d.name.clone());
                let name = format!("length {} {}", vars.len(), d.name);
                // As for whole lengths, 0 and 1 steps keep plans of their own.
                let least = (min as i64 - more + step - 1).div_euclid(step).max(2);
                vars.push(Variable { name, min: least, max: (max as i64 - more).div_euclid(step).max(least) });
            }
        }
        if vars.is_empty() || vars.len() > MOST_VARIABLES {
            return Err(Error::value("lengths", format!("{} lengths change", vars.len())));
        }
        // Sums are made of variables alone, but a `Longer` dimension may refer to a sum, so these come last.
        let late = |d: &&Dimension| matches!(d.relation, Relation::Longer(_));
        for d in dims.iter().filter(|d| !late(d)).chain(dims.iter().filter(late)) {
            let base = |j: usize| by_name.get(dims.get(j)?.name.as_str()).cloned();
            let form = match d.relation {
                Relation::None => continue,
                Relation::Longer(j) => {
                    let more = size(&d.name) - dims.get(j).map_or(0, |b| size(&b.name));
                    base(j).and_then(|f| f.plus(&Form::number(more), 1))
                }
                Relation::Sum(j, k) => base(j).zip(base(k)).and_then(|(a, b)| a.plus(&b, 1)),
            };
            by_name.insert(&d.name, form.ok_or_else(overflow)?);
        }
        let mut slots = Vec::new();
        for s in seen {
            let form = |(l, &n): (&Label, &usize)| l.form(&by_name, n, &size);
            let dims = s.labels.iter().zip(&s.shape).map(form).collect::<Option<Vec<_>>>().ok_or_else(overflow)?;
            let capacity = dims.iter().map(|f| usize::try_from(f.bounds(&vars).1).ok()).collect::<Option<Vec<_>>>();
            slots.push(FamilyInput {
                name: s.name.clone(),
                dims,
                capacity: capacity.ok_or_else(overflow)?,
                grows: None,
            });
        }
        Ok((vars, own_names, slots))
    }

    /// The same dimensions with smaller upper bounds: the largest lengths for which the model can be built at all (a
    /// table of positions ends somewhere). Found by bisection.
    pub(super) fn with_largest_buildable_bounds(
        &self,
        seen: &[ObservedInput],
        dims: &[Dimension],
    ) -> Option<Vec<Dimension>> {
        if dims.iter().any(|d| d.step > 1) {
            return None;
        }
        let (vars, names, slots) = self.variables(seen, dims).ok()?;
        let now: Vec<i64> = names.iter().map(|n| size_of(seen, n).map(|n| n as i64)).collect::<Option<_>>()?;
        let mut out = dims.to_vec();
        for (i, v) in vars.iter().enumerate() {
            let builds = |n: i64| {
                let mut point = now.clone();
                point[i] = n;
                self.built(seen, &slots, &point).is_ok()
            };
            let (mut good, mut bad) = (now[i], v.max);
            if good >= bad || builds(bad) {
                continue;
            }
            while bad - good > 1 {
                let middle = good + (bad - good) / 2;
                *(if builds(middle) { &mut good } else { &mut bad }) = middle;
            }
            let own = out.iter_mut().find(|d| d.name == names[i])?;
            own.bounds = own.bounds.map(|(min, _)| (min, good as usize));
        }
        (out != dims).then_some(out)
    }

    /// Builds the graph for several lengths and derives one for all of them.
    pub(super) fn family(&self, seen: &[ObservedInput], dims: &[Dimension], number: usize) -> Result<Family> {
        let (vars, own_names, slots) = self.variables(seen, dims)?;
        let points = Points::new(&vars);
        let built = points.lists().iter().map(|p| self.built(seen, &slots, p)).collect::<Result<Vec<_>>>()?;
        let known: Vec<Form> = slots.iter().flat_map(|s| s.dims.clone()).filter(|f| !f.is_number()).collect();
        let traces: Vec<&[NodeTrace]> = built.iter().map(|b| &b.2[..]).collect();
        for point in Points::least(&vars) {
            check_least(&points, &known, &traces, &point, &self.built(seen, &slots, &point)?.2)?;
        }
        let (mut builds, mut buffers, mut traces) = (Vec::new(), Vec::new(), Vec::new());
        for (outputs, own, own_traces) in built {
            builds.push(outputs);
            buffers.push(own);
            traces = if traces.is_empty() { own_traces } else { traces };
        }
        let same = |b: &Vec<(String, Tensor)>| b.iter().map(|o| &o.0).eq(builds[0].iter().map(|o| &o.0));
        if !builds.iter().all(same) {
            return Err(Error::value("lengths", "it has other outputs for other lengths"));
        }
        self.join((seen, dims), slots, (vars, own_names), &points, &Builds { outputs: builds, buffers, traces }, number)
    }

    /// Builds the graph at one point of the variables: its outputs, the tensors that stand for its inputs, and its
    /// traces.
    fn built(&self, seen: &[ObservedInput], slots: &[FamilyInput], point: &[i64]) -> Result<Built> {
        let (mut feeds, mut own) = (Vec::new(), Vec::new());
        for (s, slot) in seen.iter().zip(slots) {
            let shape: Vec<usize> = slot.dims.iter().map(|f| f.at(point).max(0) as usize).collect();
            let feed = match &s.value {
                Some(v) => Feed::Known(v.clone()),
                None => Feed::Tensor(Tensor::over_buffer(&self.session, s.dtype, &shape, None)),
            };
            own.push(if let Feed::Tensor(t) = &feed { Some(t.clone()) } else { None });
            feeds.push((s.name.clone(), feed));
        }
        let mut build = Build::of_lengths(feeds);
        match self.bound.go(&mut build, &Interrupt::default())? {
            Step::Done(out) => Ok((out, own, build.take_traces())),
            Step::Ask(ask) => Err(ask.error),
            Step::Paused => Err(Error::Internal("nobody asked the build to pause".to_owned())),
        }
    }

    /// Joins the builds to one graph for all lengths.
    fn join(
        &self,
        (seen, dims): (&[ObservedInput], &[Dimension]),
        mut slots: Vec<FamilyInput>,
        (vars, names): (Vec<Variable>, Vec<String>),
        points: &Points,
        Builds { outputs: builds, buffers, traces }: &Builds,
        number: usize,
    ) -> Result<Family> {
        let mut state = self.session.state();
        let roots: Vec<Tuple> =
            (0..builds[0].len()).map(|o| builds.iter().map(|b| state.node(b[o].1.root())).collect()).collect();
        let roots = forms::with_equal_recurrences(&mut state.graph, roots);
        let id = |state: &State, t: &Tensor| {
            let node = state.node(t.root());
            state.storage(node).and_then(|s| state.buffer_id(s)).unwrap_or(u32::MAX)
        };
        let ids: Vec<Vec<u32>> = (0..seen.len())
            .map(|i| buffers.iter().filter_map(|b| b[i].as_ref()).map(|t| id(&state, t)).collect())
            .collect();
        // Where an output is an input with elements appended (a key-value cache), the input's buffer is padded for the
        // output, so that the run appends in place.
        let mut places: Vec<Option<usize>> = Vec::new();
        for t in &roots {
            let found = forms::grown(&state.graph, points, &roots, t, &ids);
            let found = found.filter(|g| !places.contains(&Some(g.input)) && slots[g.input].dims.len() > g.axis);
            places.push(found.as_ref().map(|g| g.input));
            if let Some(g) = found {
                let capacity = usize::try_from(g.len.bounds(&vars).1).map_err(|_| overflow())?;
                slots[g.input].capacity[g.axis] = capacity;
                slots[g.input].grows = Some((g.axis, g.len));
            }
        }
        let mut holders = Vec::new();
        for (s, slot) in seen.iter().zip(&slots) {
            let len = slot.capacity.iter().try_fold(1usize, |n, m| n.checked_mul(*m)).ok_or_else(overflow)?;
            self.model().budget().tensor_elems(len as u64).grant()?;
            holders.push(s.value.is_none().then(|| state.add_buffer(s.dtype, len, None)));
        }
        let given: Vec<forms::Given> = slots
            .iter()
            .zip(&ids)
            .zip(&holders)
            .filter_map(|((s, ids), h)| {
                Some(forms::Given {
                    buffers: ids.clone(),
                    node: (*h)?,
                    dims: s.dims.clone(),
                    capacity: s.capacity.clone(),
                    grows: s.grows.is_some(),
                })
            })
            .collect();
        let named = |stuck: forms::Stuck| {
            let at = traces.iter().find(|m| m.nodes > stuck.node.0 as usize).map_or("the graph", |m| m.node.as_str());
            Error::value("lengths", format!("node {at}: {}", stuck.why))
        };
        let mut made = Vec::new();
        let tables = tables(&state, &roots);
        {
            let mut all = forms::Lengths::new(&mut state.graph, &vars, points, &given, tables);
            for (t, place) in roots.iter().zip(&places) {
                if place.is_some() {
                    all.grow(t).map_err(named)?;
                }
            }
            for (t, place) in roots.iter().zip(&places) {
                let x = all.tensor(t).map_err(named)?;
                let dims = x.axes.iter().map(|a| a.iter().map(|f| f.len.clone()).collect()).collect();
                let (node, capacity) = if place.is_some() { (x.node, None) } else { all.output(&x) };
                made.push((x.node, node, capacity, dims));
            }
        }
        let mut taken = FxHashSet::default();
        for ((node, _, _, _), place) in made.iter().zip(&places) {
            let whole = state.storage(*node).is_some_and(|s| state.buffer_id(s).is_some());
            if place.is_none() && (whole || !taken.insert(*node)) {
                return Err(Error::value("lengths", "an output is an input, a weight, or another output"));
            }
        }
        drop(state);
        let tensor = |u: UOp| Tensor::from_node(&self.session, u);
        let holders = holders.into_iter().map(|h| h.map(tensor)).collect();
        let outputs = builds[0]
            .iter()
            .zip(made)
            .zip(places)
            .map(|(((name, _), (_, node, capacity, dims)), place)| {
                let capacity = place.map(|i| slots[i].capacity.clone()).or(capacity);
                Output { name: name.clone(), tensor: tensor(node), dims, capacity }
            })
            .collect();
        let step_of = |name: &String| dims.iter().find(|d| d.name == *name).map_or(1, |d| d.step.max(1) as i64);
        let names = names.into_iter().map(|name| (step_of(&name), name)).collect();
        Ok(Family { number, vars, names, holders, inputs: slots, outputs })
    }
}
