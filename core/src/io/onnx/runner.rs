//! A model ready to run again and again on one engine: graphs are built once per input signature, then replayed.
//!
//! Nothing here waits: [`Runner::begin`], then [`Runner::step`] whenever the engine is ready, until there are outputs.

use super::build::{Bound, Feed};
use super::model::Model;
use crate::engine::{Bytes, Engine, Pending, Plan, Replay, fold};
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::tensor::{Session, Tensor};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A model, its session, and what it has compiled.
pub struct Runner {
    bound: Bound,
    session: Session,
    ready: FxHashMap<Vec<u8>, Ready>,
}

/// Where an output of a replay comes from.
enum Source {
    /// A root of the replay.
    Computed(usize),
    /// An input handed through.
    Input(usize),
    /// The same value every time.
    Constant(Tensor),
}

struct Ready {
    /// `None` if every output is a constant or an input.
    replay: Option<Replay>,
    /// Buffers of the inputs it was captured with, in feed order; `None` for values built in.
    inputs: Vec<Option<u32>>,
    outputs: Vec<(String, Source)>,
    /// Keeps the constants alive.
    _held: Vec<Tensor>,
}

/// Inputs as tensors: uploaded by the first run that uses them, and there for every later one.
#[derive(Clone)]
pub struct Inputs {
    key: Vec<u8>,
    names: Vec<String>,
    feeds: Vec<Feed>,
}

/// A run under way.
pub struct Run {
    key: Vec<u8>,
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<(String, Tensor)>,
    stage: Stage,
}

enum Stage {
    Fold(Pending),
    Main(Pending, Vec<(String, Source)>, Vec<Option<u32>>, Vec<Tensor>),
    Replay,
    Done,
}

impl Run {
    /// Does the next step compute constants, and then plan the rest?
    pub fn folds(&self) -> bool {
        matches!(self.stage, Stage::Fold(_))
    }
}

impl Runner {
    /// A runner of a parsed model. Its tensors live in `session`, which must be the one session of the engine it runs on.
    pub fn new(model: Arc<Model>, session: &Session) -> Runner {
        Runner { bound: Bound::new(model, session), session: session.clone(), ready: FxHashMap::default() }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        self.bound.model()
    }

    /// The session that its tensors live in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The plan for the signature that was run last with these inputs, if it was.
    pub fn replay(&self, inputs: &[(&str, HostTensor)]) -> Option<&Replay> {
        self.ready.get(&self.signature(inputs)).and_then(|r| r.replay.as_ref())
    }

    /// The plan that a run is about to execute.
    pub fn plan_of<'a>(&'a self, run: &'a Run) -> Option<&'a Plan> {
        match &run.stage {
            Stage::Fold(p) | Stage::Main(p, ..) => Some(p.plan()),
            Stage::Replay => self.ready.get(&run.key).and_then(|r| r.replay.as_ref()).map(Replay::plan),
            Stage::Done => None,
        }
    }

    fn is_value(&self, name: &str) -> bool {
        self.model().inputs().iter().any(|p| p.name == name && p.is_value)
    }

    fn signature(&self, inputs: &[(&str, HostTensor)]) -> Vec<u8> {
        let mut key = Vec::new();
        for (name, t) in inputs {
            key.extend_from_slice(name.as_bytes());
            key.push(0);
            key.push(t.dtype as u8);
            key.extend((t.shape.len() as u32).to_le_bytes());
            t.shape.iter().for_each(|n| key.extend((*n as u64).to_le_bytes()));
            if self.is_value(name) {
                key.extend_from_slice(&t.data);
            }
        }
        key
    }

    /// Makes tensors of host data, for any number of runs.
    pub fn inputs(&self, inputs: &[(&str, HostTensor)]) -> Result<Inputs> {
        let feed = |(name, t): &(&str, HostTensor)| match self.is_value(name) {
            true => Ok(Feed::Known(t.clone())),
            false => Tensor::from_bytes(&self.session, t.dtype, &t.shape, Bytes::new(t.data.clone())).map(Feed::Tensor),
        };
        Ok(Inputs {
            key: self.signature(inputs),
            names: inputs.iter().map(|(n, _)| n.to_string()).collect(),
            feeds: inputs.iter().map(feed).collect::<Result<_>>()?,
        })
    }

    /// Starts a run: builds and plans the graph, or finds the plan made before.
    pub fn begin(&mut self, engine: &mut Engine, inputs: &[(&str, HostTensor)]) -> Result<Run> {
        let inputs = self.inputs(inputs)?;
        self.begin_on(engine, &inputs)
    }

    /// The same on inputs that are tensors already.
    pub fn begin_on(&mut self, engine: &mut Engine, inputs: &Inputs) -> Result<Run> {
        let tensor = |f: &Feed| match f {
            Feed::Tensor(t) => Some(t.clone()),
            Feed::Known(_) => None,
        };
        let tensors = inputs.feeds.iter().map(tensor).collect();
        let key = inputs.key.clone();
        if self.ready.contains_key(&key) {
            return Ok(Run { key, inputs: tensors, outputs: Vec::new(), stage: Stage::Replay });
        }
        let feeds: Vec<(&str, Feed)> =
            inputs.names.iter().map(String::as_str).zip(inputs.feeds.iter().cloned()).collect();
        let outputs = self.bound.build(&feeds)?;
        let mut run = Run { key, inputs: tensors, outputs, stage: Stage::Done };
        run.stage = self.first_stage(engine, &run)?;
        Ok(run)
    }

    fn input_buffers(&self, run: &Run) -> Vec<Option<u32>> {
        run.inputs.iter().map(|t| t.as_ref().and_then(buffer_of)).collect()
    }

    fn first_stage(&self, engine: &mut Engine, run: &Run) -> Result<Stage> {
        let inputs: Vec<u32> = self.input_buffers(run).into_iter().flatten().collect();
        let roots: Vec<_> = run.outputs.iter().map(|(_, t)| t.root()).collect();
        let constants = {
            let mut state = self.session.state();
            let nodes: Vec<_> = roots.iter().map(|&r| state.node(r)).collect();
            fold::constant_nodes(&state.graph, &nodes, &inputs)
                .into_iter()
                .map(|n| state.add_root(n))
                .collect::<Vec<_>>()
        };
        if constants.is_empty() {
            return self.main_stage(engine, run);
        }
        let mut state = self.session.state();
        let pending = engine.start(&mut state, &constants)?;
        for r in constants {
            state.release(r);
        }
        Ok(Stage::Fold(pending))
    }

    fn main_stage(&self, engine: &mut Engine, run: &Run) -> Result<Stage> {
        let roots: Vec<_> = run.outputs.iter().map(|(_, t)| t.root()).collect();
        let buffers = self.input_buffers(run);
        {
            let mut state = self.session.state();
            let nodes: Vec<_> = roots.iter().map(|&r| state.node(r)).collect();
            let inputs: Vec<u32> = buffers.iter().flatten().copied().collect();
            state.freeze(&nodes, &inputs);
        }
        let pending = engine.start(&mut self.session.state(), &roots)?;
        let mut outputs = Vec::new();
        for (name, t) in &run.outputs {
            let node = t.node();
            let source = match pending.nodes().iter().position(|&n| n == node) {
                Some(i) => Source::Computed(i),
                None => match buffers.iter().position(|b| b.is_some() && *b == buffer_of(t)) {
                    Some(i) => Source::Input(i),
                    None => Source::Constant(t.clone()),
                },
            };
            outputs.push((name.clone(), source));
        }
        let held = pending
            .externals()
            .iter()
            .filter(|b| !buffers.contains(&Some(**b)))
            .map(|&b| {
                let node = self.session.state().buffer_node(b);
                Tensor::from_node(&self.session, node)
            })
            .collect();
        Ok(Stage::Main(pending, outputs, buffers, held))
    }

    /// Goes on with a run once the engine is ready. `Some` when the outputs are computed (or submitted).
    pub fn step(&mut self, engine: &mut Engine, run: &mut Run) -> Result<Option<Vec<(String, Tensor)>>> {
        match std::mem::replace(&mut run.stage, Stage::Done) {
            Stage::Fold(pending) => {
                engine.finish(&mut self.session.state(), pending)?;
                run.stage = self.main_stage(engine, run)?;
                Ok(None)
            }
            Stage::Main(pending, outputs, inputs, held) => {
                let computes = !pending.nodes().is_empty();
                let replay = engine.finish(&mut self.session.state(), pending)?;
                let replay = computes.then_some(replay);
                self.ready.insert(run.key.clone(), Ready { replay, inputs, outputs, _held: held });
                Ok(Some(std::mem::take(&mut run.outputs)))
            }
            Stage::Replay => self.again(engine, run).map(Some),
            Stage::Done => Err(Error::Internal("a finished run was stepped".into())),
        }
    }

    /// Seconds per call of the plan for these inputs, each kernel run to its end. `None` before their first run.
    pub fn time_calls(
        &mut self,
        engine: &mut Engine,
        inputs: &Inputs,
        clock: &mut dyn FnMut() -> f64,
    ) -> Result<Option<(Plan, Vec<f64>)>> {
        let Some(Ready { replay: Some(replay), inputs: old, .. }) = self.ready.get(&inputs.key) else {
            return Ok(None);
        };
        let mut swap: FxHashMap<u32, u32> = FxHashMap::default();
        for (old, feed) in old.iter().zip(&inputs.feeds) {
            let Feed::Tensor(t) = feed else { continue };
            swap.extend(old.zip(buffer_of(t)));
        }
        let times = engine.time_calls(&mut self.session.state(), replay, &swap, clock)?;
        Ok(Some((replay.plan().clone(), times)))
    }

    fn again(&mut self, engine: &mut Engine, run: &mut Run) -> Result<Vec<(String, Tensor)>> {
        let ready = &self.ready[&run.key];
        let mut swap: FxHashMap<u32, u32> = FxHashMap::default();
        for (old, t) in ready.inputs.iter().zip(&run.inputs) {
            if let (Some(old), Some(new)) = (old, t.as_ref().and_then(buffer_of)) {
                swap.insert(*old, new);
            }
        }
        let mut computed = Vec::new();
        if let Some(replay) = &ready.replay {
            let nodes = engine.replay(&mut self.session.state(), replay, &swap)?;
            computed.extend(nodes.into_iter().map(|n| Tensor::from_node(&self.session, n)));
        }
        let value = |s: &Source| match s {
            Source::Computed(i) => Ok(computed[*i].clone()),
            Source::Input(i) => run.inputs[*i].clone().ok_or_else(|| Error::Internal("an input is gone".into())),
            Source::Constant(t) => Ok(t.clone()),
        };
        let out = ready.outputs.iter().map(|(n, s)| Ok((n.clone(), value(s)?))).collect();
        if self.session.state().wants_compaction() {
            engine.collect(&mut self.session.state());
        }
        out
    }

    /// Frees the device memory of values that nobody holds any more.
    pub fn collect(&mut self, engine: &mut Engine) {
        engine.collect(&mut self.session.state());
    }
}

fn buffer_of(t: &Tensor) -> Option<u32> {
    let state = t.session().state();
    let flat = state.storage(state.node(t.root()))?;
    state.buffer_id(flat)
}
