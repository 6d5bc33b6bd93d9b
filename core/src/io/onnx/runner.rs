//! Runs a model repeatedly on one engine: the graph is built and planned once per input signature (dtypes and shapes,
//! and the values of value inputs), then replayed.
//!
//! A build may need values that only a device can compute ([`super::stage`]). Such a run has several stages: each stage
//! computes the values that the next build step needs, they are read back, and the plan of the next stage is looked up
//! by what was read. So each combination of such values is built and compiled once, as each shape is.
//!
//! Nothing here blocks: call [`Runner::begin`], then [`Runner::step`] whenever [`Runner::ready`] returns true, until
//! there are outputs.

mod again;
mod inputs;
mod lengths;
mod rewrite;

use self::again::Repeatable;
use self::inputs::push_shape_signature;
use self::lengths::{Chosen, LengthState, LengthSupport};
use super::build::{Bound, Feed};
use super::model::Model;
use super::stage::{Answer, Ask, Build, Call, CallResult, Continuation, Step};
use crate::device::Ticket;
use crate::dtype::{DType, Scalar};
use crate::engine::{Bytes, Engine, Pending, Plan, Replay, Running, Starting};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::io::HostTensor;
use crate::tensor::{ConstantCache, Session, Tensor};
use crate::uop::UOp;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::sync::Arc;

pub use self::again::Again;
pub use self::lengths::Lengths;

/// The most plans that are kept, counting every stage of every combination of values; beyond that all are dropped.
const MAX_PLANS: usize = 1 << 13;
/// The most elements of an input of which a copy is kept on the host, so that a stage that must know its value need not
/// read it back from the device.
const MAX_HOST_COPY_ELEMS: usize = 64;

/// A model, its session, and the plans compiled for it.
pub struct Runner {
    bound: Bound,
    session: Session,
    ready: FxHashMap<Vec<u8>, Ready>,
    /// Large constants computed from the model's own constants; all plans share them.
    folded: ConstantCache,
    /// Buffers that those constants were computed from. They may leave the device once a plan is made that does not
    /// read them; a run that ends before that leaves them to the next run.
    constant_sources: Vec<u32>,
    /// The number of the stage that was captured last.
    stages: u64,
    /// The engine's count of forgotten plans when it was last checked.
    forgotten: u64,
    /// What is known of input lengths that change from run to run, and the plans with those lengths as launch scalars.
    lengths: RefCell<LengthState>,
    /// The functions for changing lengths; `None` until [`Runner::set_lengths`].
    length_support: Option<&'static LengthSupport>,
    repeatable: Option<Repeatable>,
}

/// Where a value of a replayed stage comes from.
enum Source {
    /// The result of this number of the replay.
    Computed(usize),
    /// An input of the stage (of the run, or handed over by the stage before), reshaped to this shape.
    Input(usize, Vec<usize>),
    /// The same value every time.
    Constant(Tensor),
}

/// The captured plan of one stage, with what is needed to replay it.
struct Ready {
    number: u64,
    /// `None` if the stage has nothing to compute.
    replay: Option<Replay>,
    /// The buffers that the plan was captured with in place of inputs: (index in `Run::given`, buffer).
    inputs: Vec<(usize, u32)>,
    sources: Vec<Source>,
    end: End,
    /// Keeps the constants alive.
    _held: Vec<Tensor>,
}

/// What the values that a stage computes are for.
#[derive(Clone)]
enum End {
    /// They are the outputs, with these names.
    Outputs(Arc<Vec<String>>),
    /// The first `wanted` values are read back for the build; the others are those of the build's live values, by
    /// index, that are computed in this stage.
    Ask { wanted: usize, live: Arc<Vec<usize>>, then: Continuation },
}

/// What a caller feeds an input with.
pub enum Input {
    /// Data on the host, which is uploaded.
    Host(HostTensor),
    /// A computed tensor of the runner's session that passed [`Runner::take`].
    Tensor(Tensor),
}

/// Inputs as tensors. The first run that uses them uploads them; later runs find them on the device.
#[derive(Clone)]
pub struct Inputs {
    key: Vec<u8>,
    names: Vec<String>,
    feeds: Vec<Feed>,
    given: Vec<Given>,
    /// The plan for all lengths that these inputs were padded for, if there is one.
    chosen: Option<Chosen>,
}

/// A run under way.
pub struct Run {
    key: Vec<u8>,
    feeds: Vec<(String, Feed)>,
    /// The tensors that the plan of the next stage may read: the inputs, or after a stage what it left of them and
    /// computed.
    given: Vec<Given>,
    random: Option<Tensor>,
    /// The answers that earlier stages gave the build, and the live values that the last stage computed for it.
    answers: Vec<Answer>,
    live: Vec<(usize, Tensor)>,
    /// The build under way; `None` while every stage's plan was found.
    build: Option<Build>,
    asked: Option<Error>,
    /// The plan for all lengths and this run's values of its variables, if there is one.
    chosen: Option<Chosen>,
    stage: Stage,
}

/// An input of a stage, another tensor in every run; `None` for an input whose value is built into the graph.
#[derive(Clone)]
struct Given {
    tensor: Option<Tensor>,
    /// Its value, if it is small and known on the host.
    small: Option<HostTensor>,
}

enum Stage {
    /// The graph is being built.
    Build,
    /// The passes over the graph run, from the pass with this number on.
    Rewrite(usize, Vec<Tensor>, End),
    /// Large constants are planned, brought to the device and computed.
    PlanFold(Starting, Vec<Tensor>, End),
    Fold(Pending, Vec<Tensor>, End),
    Folding(Running, Vec<Tensor>, End),
    /// The remaining graph is planned.
    Plan(Starting, Vec<Tensor>, End),
    Main(Pending, Planned),
    Replay,
    /// Steps of the plan are submitted, in its first run or in a replay.
    FirstRun(Running, Planned, bool),
    Replaying(Option<Running>),
    Read(Vec<Reading>, Vec<Tensor>, End, u64),
    Done,
}

/// A plan that has not run yet, with what will be kept for its replays.
struct Planned {
    values: Vec<Tensor>,
    sources: Vec<Source>,
    inputs: Vec<(usize, u32)>,
    held: Vec<Tensor>,
    end: End,
}

/// A value that is read back to the host.
enum Reading {
    Pending(Ticket, DType, Vec<usize>),
    Ready(HostTensor),
}

impl Inputs {
    /// Names and tensors of the inputs; `None` for an input whose value is built into the graph.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Option<&Tensor>)> {
        self.names.iter().map(String::as_str).zip(self.given.iter().map(|g| g.tensor.as_ref()))
    }
}

impl Run {
    /// True if the next step plans something, or computes constants or values that the rest of the run depends on.
    pub fn folds(&self) -> bool {
        matches!(self.stage, Stage::Fold(..) | Stage::Folding(..) | Stage::Read(..)) || self.plans()
    }

    /// True if the next piece builds or plans, which needs no device.
    pub fn plans(&self) -> bool {
        matches!(self.stage, Stage::Build | Stage::Rewrite(..) | Stage::PlanFold(..) | Stage::Plan(..))
    }

    /// True if a plan is partly submitted and the next piece submits more of it.
    pub fn is_submitting(&self) -> bool {
        matches!(self.stage, Stage::Folding(..) | Stage::FirstRun(..) | Stage::Replaying(..))
    }

    /// True if the next piece begins to submit the plan of an earlier run.
    pub fn replays(&self) -> bool {
        matches!(self.stage, Stage::Replay)
    }

    /// True if all programs are compiled and the next piece uploads what they read.
    pub fn uploads(&self) -> bool {
        matches!(self.stage, Stage::Fold(..) | Stage::Main(..))
    }

    /// True if the run may be dropped now: not while it overwrites earlier values or computes what later runs use.
    pub fn may_stop(&self) -> bool {
        match &self.stage {
            Stage::FirstRun(r, ..) | Stage::Replaying(Some(r)) => r.may_stop(),
            _ => true,
        }
    }

    /// True if the next step needs values that are being read back from the device.
    pub fn reads(&self) -> bool {
        matches!(self.stage, Stage::Read(..))
    }

    /// Why the graph is built in stages, if it is: what the last stage had to know, as the error that a build without a
    /// device returns for it.
    pub fn asked(&self) -> Option<&Error> {
        self.asked.as_ref()
    }

    /// Appends the key of random numbers to the stage's inputs, always as the last one.
    fn push_random_key(&mut self) {
        self.given.extend(self.random.clone().map(|t| Given { tensor: Some(t), small: None }));
    }
}

impl Runner {
    /// A runner for a parsed model. Its tensors live in `session`, which must be the session of the engine it runs on.
    pub fn new(model: Arc<Model>, session: &Session) -> Runner {
        Runner::of(Bound::new(model, session), session)
    }

    fn of(bound: Bound, session: &Session) -> Runner {
        let (ready, folded) = (FxHashMap::default(), ConstantCache::default());
        let (session, lengths) = (session.clone(), RefCell::default());
        Runner {
            bound,
            session,
            ready,
            folded,
            constant_sources: Vec::new(),
            stages: 0,
            forgotten: 0,
            lengths,
            length_support: None,
            repeatable: None,
        }
    }

    /// A runner for [`Model::with_outputs`] of these names, which shares this runner's weights.
    ///
    /// # Errors
    /// Those of [`Model::with_outputs`].
    pub fn with_outputs(&self, names: &[String]) -> Result<Runner> {
        let model = Arc::new(self.model().with_outputs(names)?);
        let mut runner = Runner::of(self.bound.with_model(model), &self.session);
        runner.follow_lengths(self);
        Ok(runner)
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        self.bound.model()
    }

    /// The session that its tensors live in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The replayable plan for these inputs, if a run with their signature was made; the first stage's, where there are
    /// several.
    pub fn replay(&self, inputs: &[(&str, HostTensor)]) -> Option<&Replay> {
        let inputs = inputs.iter().map(|(name, t)| (*name, Input::Host(t.clone()))).collect();
        self.ready.get(&self.inputs(inputs).ok()?.key).and_then(|r| r.replay.as_ref())
    }

    /// The plan that the run executes next.
    pub fn plan_of<'a>(&'a self, run: &'a Run) -> Option<&'a Plan> {
        match &run.stage {
            Stage::Fold(p, ..) | Stage::Main(p, ..) => Some(p.plan()),
            Stage::Replay => self.ready.get(&run.key).and_then(|r| r.replay.as_ref()).map(Replay::plan),
            _ => None,
        }
    }

    /// Starts a run: builds and plans the graph, or finds the plan of an earlier run.
    pub fn begin(&mut self, engine: &mut Engine, inputs: &[(&str, HostTensor)]) -> Result<Run> {
        let inputs = self.inputs(inputs.iter().map(|(name, t)| (*name, Input::Host(t.clone()))).collect())?;
        self.begin_on(engine, &inputs)
    }

    /// As [`Runner::begin`], with inputs that [`Runner::inputs`] has made tensors already.
    pub fn begin_on(&mut self, engine: &mut Engine, inputs: &Inputs) -> Result<Run> {
        let mut run = self.begin_in_pieces(engine, inputs.clone())?;
        self.plan(engine, &mut run)?;
        Ok(run)
    }

    /// Advances a run until the next step depends on the device.
    fn plan(&mut self, engine: &mut Engine, run: &mut Run) -> Result<()> {
        while run.plans() {
            self.step_once(engine, run, u64::MAX)?;
        }
        Ok(())
    }

    /// Starts a run without building anything yet; the caller advances it with [`Runner::step_once`].
    pub fn begin_in_pieces(&mut self, engine: &mut Engine, inputs: Inputs) -> Result<Run> {
        if self.ready.len() > MAX_PLANS {
            self.ready.clear();
            self.folded = ConstantCache::default();
        }
        let random = self.model().is_random().then(|| self.random_key()).transpose()?;
        let mut run = Run {
            key: inputs.key,
            feeds: inputs.names.into_iter().zip(inputs.feeds).collect(),
            given: inputs.given,
            random,
            answers: Vec::new(),
            live: Vec::new(),
            build: None,
            asked: None,
            chosen: inputs.chosen,
            stage: Stage::Done,
        };
        run.push_random_key();
        self.enter(engine, &mut run);
        Ok(run)
    }

    /// A new key of random numbers, two u32.
    fn random_key(&self) -> Result<Tensor> {
        let words = self.session.next_key();
        let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        Tensor::from_bytes(&self.session, DType::U32, &[2], Bytes::new(bytes))
    }

    /// Enters the next stage: looks its plan up, or starts to build it.
    fn enter(&mut self, engine: &Engine, run: &mut Run) {
        self.forget(engine);
        let known = run.build.is_none() && self.is_here(engine, run);
        run.stage = if known { Stage::Replay } else { Stage::Build };
    }

    /// Builds the graph of the next stage, or as much of it as the interrupt allows.
    fn build(&mut self, engine: &mut Engine, run: &mut Run) -> Result<()> {
        if let (Some(chosen), Some(length_support)) = (&run.chosen, self.length_support) {
            let values = (length_support.graph)(self, chosen, &run.given)?;
            let names = chosen.family.outputs.iter().map(|o| o.name.clone()).collect();
            run.stage = Stage::Rewrite(0, values, End::Outputs(Arc::new(names)));
            return Ok(());
        }
        let mut build = match run.build.take() {
            Some(build) => build,
            None => self.rebuild(run)?,
        };
        let step = self.bound.go(&mut build, engine.interrupt())?;
        run.build = Some(build);
        let (values, end) = match step {
            Step::Paused => {
                run.stage = Stage::Build;
                return Ok(());
            }
            Step::Done(outputs) => {
                let (names, values) = outputs.into_iter().unzip();
                (values, End::Outputs(Arc::new(names)))
            }
            Step::Ask(Ask { mut wanted, live, then, error }) => {
                run.asked = Some(error);
                let n = wanted.len();
                let own = self.depends(run, &live);
                wanted.extend(own.iter().map(|&i| live[i].clone()));
                (wanted, End::Ask { wanted: n, live: Arc::new(own), then })
            }
        };
        run.stage = Stage::Rewrite(0, values, end);
        Ok(())
    }

    /// True if the plan of the next stage is present.
    fn is_here(&self, engine: &Engine, run: &Run) -> bool {
        self.ready.get(&run.key).is_some_and(|r| r.replay.as_ref().is_none_or(|replay| engine.has(replay)))
    }

    /// Releases what belongs to plans that the engine has forgotten; they are built again on demand.
    fn forget(&mut self, engine: &Engine) {
        let forgotten = engine.counters().plans_forgotten;
        if std::mem::replace(&mut self.forgotten, forgotten) == forgotten {
            return;
        }
        self.ready.retain(|_, r| r.replay.as_ref().is_none_or(|replay| engine.has(replay)));
        let replays = self.ready.values().filter_map(|r| r.replay.as_ref());
        let used: FxHashSet<u32> = replays.flat_map(Replay::externals).copied().collect();
        self.folded.keep(&used);
    }

    /// Rebuilds up to the stage that this run has reached, with the answers of its earlier stages.
    fn rebuild(&self, run: &Run) -> Result<Build> {
        let mut build = Build::new(run.feeds.clone(), run.random.clone());
        for (i, answer) in run.answers.iter().enumerate() {
            self.bound.go(&mut build, &Interrupt::default())?;
            // Live values of stages before the last one are never computed again.
            let live = if i + 1 == run.answers.len() { &run.live[..] } else { &[] };
            build.answer(answer.clone(), live)?;
        }
        Ok(build)
    }

    /// Indices of those values that depend on the stage's inputs, so that they differ from run to run.
    fn depends(&self, run: &Run, values: &[Tensor]) -> Vec<usize> {
        let buffers: FxHashSet<u32> = self.input_buffers(run).into_iter().flatten().collect();
        let state = self.session.state();
        let nodes: Vec<UOp> = values.iter().map(|t| state.node(t.root())).collect();
        let mut found: FxHashSet<UOp> = FxHashSet::default();
        for u in state.graph.reachable(&nodes) {
            let own = state.buffer_id(u).is_some_and(|id| buffers.contains(&id));
            if own || state.graph.src(u).iter().any(|s| found.contains(s)) {
                found.insert(u);
            }
        }
        (0..values.len()).filter(|&i| found.contains(&nodes[i])).collect()
    }

    fn input_buffers(&self, run: &Run) -> Vec<Option<u32>> {
        run.given.iter().map(|g| g.tensor.as_ref().and_then(Tensor::buffer)).collect()
    }

    fn main_stage(&self, run: &Run, pending: Pending, values: Vec<Tensor>, end: End) -> Stage {
        let inputs = self.input_buffers(run);
        let mut sources = Vec::new();
        for t in &values {
            let node = t.node();
            sources.push(match pending.nodes().iter().position(|&n| n == node) {
                Some(i) => Source::Computed(i),
                None => match inputs.iter().position(|b| b.is_some() && *b == t.buffer()) {
                    Some(i) => Source::Input(i, t.shape()),
                    None => Source::Constant(t.clone()),
                },
            });
        }
        let held = pending
            .externals()
            .iter()
            .filter(|b| !inputs.contains(&Some(**b)))
            .map(|&b| {
                let node = self.session.state().buffer_node(b);
                Tensor::from_node(&self.session, node)
            })
            .collect();
        let mut used: Vec<(usize, u32)> = Vec::new();
        for (i, b) in inputs.iter().enumerate().filter_map(|(i, b)| Some((i, (*b)?))) {
            if pending.externals().contains(&b) && used.iter().all(|u| u.1 != b) {
                used.push((i, b));
            }
        }
        Stage::Main(pending, Planned { values, sources, inputs: used, held, end })
    }

    /// True if the device is ready for the next step: everything is compiled, and what the step reads has arrived. Ask
    /// again when the device has made progress.
    pub fn ready(&self, engine: &mut Engine, run: &mut Run) -> Result<bool> {
        let Stage::Read(list, ..) = &mut run.stage else { return engine.ready() };
        for r in list.iter_mut() {
            let Reading::Pending(ticket, dtype, shape) = r else { continue };
            match engine.poll(*ticket, *dtype)? {
                Some(data) => *r = Reading::Ready(HostTensor::new(*dtype, std::mem::take(shape), data)?),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Advances a run, which must be ready, until it depends on the device again. `Some` when the outputs are computed
    /// (or submitted).
    pub fn step(&mut self, engine: &mut Engine, run: &mut Run) -> Result<Option<Vec<(String, Tensor)>>> {
        loop {
            if run.may_stop() {
                engine.interrupt().check()?;
            }
            let work = engine.portion();
            let out = self.step_once(engine, run, work)?;
            if out.is_some() || !(run.plans() || run.is_submitting() || run.uploads() && engine.ready()?) {
                return Ok(out);
            }
        }
    }

    /// As [`Runner::step`], but one piece of work: as much of a build as the engine's interrupt allows, one pass over
    /// its graph or of the scheduler, one kernel to compile, or the submission of steps worth about `work` (the unit of
    /// `Engine::portion`).
    pub fn step_once(
        &mut self,
        engine: &mut Engine,
        run: &mut Run,
        work: u64,
    ) -> Result<Option<Vec<(String, Tensor)>>> {
        match std::mem::replace(&mut run.stage, Stage::Done) {
            Stage::Build => {
                self.build(engine, run)?;
                Ok(None)
            }
            Stage::Rewrite(pass, values, end) => {
                run.stage = self.rewrite(engine, run, pass, values, end)?;
                Ok(None)
            }
            Stage::PlanFold(mut starting, values, end) => {
                run.stage = match engine.go_on(&mut starting)? {
                    None => Stage::PlanFold(starting, values, end),
                    Some(pending) => Stage::Fold(pending, values, end),
                };
                Ok(None)
            }
            Stage::Plan(mut starting, values, end) => {
                run.stage = match engine.go_on(&mut starting)? {
                    None => Stage::Plan(starting, values, end),
                    Some(pending) => {
                        let mut constant_sources = std::mem::take(&mut self.constant_sources);
                        constant_sources.retain(|id| !pending.externals().contains(id));
                        engine.let_go(&self.session.state(), &constant_sources);
                        self.main_stage(run, pending, values, end)
                    }
                };
                Ok(None)
            }
            Stage::Fold(pending, values, end) => {
                engine.freeze_reads(&mut self.session.state(), &pending);
                run.stage = if engine.bring(&mut self.session.state(), &pending)? {
                    Stage::Folding(engine.launch(&mut self.session.state(), pending)?, values, end)
                } else {
                    Stage::Fold(pending, values, end)
                };
                Ok(None)
            }
            Stage::Folding(mut running, values, end) => {
                if !engine.submit_some(&mut running, work)? {
                    run.stage = Stage::Folding(running, values, end);
                    return Ok(None);
                }
                let replay = engine.concluded_constants(&mut self.session.state(), running)?;
                self.constant_sources.extend(replay.externals());
                run.stage = self.plan_stage(engine, run, values, end)?;
                Ok(None)
            }
            Stage::Main(pending, p) => {
                if !engine.bring(&mut self.session.state(), &pending)? {
                    run.stage = Stage::Main(pending, p);
                    return Ok(None);
                }
                let computes = !pending.nodes().is_empty();
                set_lengths(engine, run);
                let running = engine.launch(&mut self.session.state(), pending)?;
                run.stage = Stage::FirstRun(running, p, computes);
                Ok(None)
            }
            Stage::FirstRun(mut running, p, computes) => {
                if !engine.submit_some(&mut running, work)? {
                    run.stage = Stage::FirstRun(running, p, computes);
                    return Ok(None);
                }
                let replay = engine.concluded(&mut self.session.state(), running)?;
                let replay = computes.then_some(replay.unpinned());
                self.stages += 1;
                let number = self.stages;
                let Planned { values, sources, inputs, held, end } = p;
                let ready = Ready { number, replay, inputs, sources, end: end.clone(), _held: held };
                self.ready.insert(run.key.clone(), ready);
                self.computed(engine, run, values, end, number)
            }
            Stage::Replay if !self.is_here(engine, run) => {
                self.enter(engine, run);
                Ok(None)
            }
            Stage::Replay => {
                set_lengths(engine, run);
                let ready = &self.ready[&run.key];
                let swap = swaps(&ready.inputs, &run.given);
                let replay = ready.replay.as_ref();
                let launch = |r| engine.launch_again(&mut self.session.state(), r, &swap);
                run.stage = Stage::Replaying(replay.map(launch).transpose()?);
                self.step_once(engine, run, work)
            }
            Stage::Replaying(mut running) => {
                if let Some(r) = &mut running
                    && !engine.submit_some(r, work)?
                {
                    run.stage = Stage::Replaying(running);
                    return Ok(None);
                }
                let (values, end, number) = self.replayed_values(engine, run, running)?;
                self.computed(engine, run, values, end, number)
            }
            Stage::Read(list, values, end, number) => {
                let here = |r| match r {
                    Reading::Ready(t) => Ok(t),
                    Reading::Pending(..) => Err(Error::Internal("a run was stepped before it was ready".into())),
                };
                let read = list.into_iter().map(here).collect::<Result<Vec<_>>>()?;
                self.answered(engine, run, read, values, end, number)?;
                Ok(None)
            }
            Stage::Done => Err(Error::Internal("a finished run was stepped".into())),
        }
    }

    /// Continues after the values of a stage are computed: returns them if they are the outputs, or starts to read back
    /// those that the build needs.
    fn computed(
        &mut self,
        engine: &mut Engine,
        run: &mut Run,
        values: Vec<Tensor>,
        end: End,
        number: u64,
    ) -> Result<Option<Vec<(String, Tensor)>>> {
        let wanted = match &end {
            End::Outputs(names) => {
                run.build = None;
                self.note_repeatable(engine, run, number, names);
                let mut state = self.session.state();
                if state.wants_compaction() || state.wants_memory() {
                    engine.collect(&mut state);
                }
                drop(state);
                let values = match (&run.chosen, self.length_support) {
                    (Some(chosen), Some(length_support)) => {
                        let nodes: Vec<UOp> = values.iter().map(Tensor::node).collect();
                        let nodes = (length_support.outputs)(chosen, &mut self.session.state(), &nodes)?;
                        nodes.into_iter().map(|u| Tensor::from_node(&self.session, u)).collect()
                    }
                    _ => values,
                };
                return Ok(Some(names.iter().cloned().zip(values).collect()));
            }
            End::Ask { wanted, .. } => *wanted,
        };
        let inputs = self.input_buffers(run);
        let mut list = Vec::with_capacity(wanted);
        for t in values.iter().take(wanted) {
            let buffer = t.buffer();
            let at = inputs.iter().position(|b| b.is_some() && *b == buffer);
            list.push(match at.and_then(|i| run.given.get(i)?.small.clone()) {
                Some(small) => Reading::Ready(HostTensor { shape: t.shape(), ..small }),
                None => {
                    let (ticket, dtype, _) = engine.read(&mut self.session.state(), t.root())?;
                    Reading::Pending(ticket, dtype, t.shape())
                }
            });
        }
        run.stage = Stage::Read(list, values, end, number);
        Ok(None)
    }

    /// Continues after the values that a stage needs were read: answers the build and enters the next stage.
    fn answered(
        &mut self,
        engine: &mut Engine,
        run: &mut Run,
        read: Vec<HostTensor>,
        values: Vec<Tensor>,
        end: End,
        number: u64,
    ) -> Result<()> {
        let End::Ask { wanted, live, then } = end else {
            return Err(Error::Internal("outputs were read".into()));
        };
        let mut key = number.to_le_bytes().to_vec();
        let inputs = self.input_buffers(run);
        // Later stages use nothing of earlier ones but these live values.
        let carry = |t: &Tensor| {
            let buffer = t.buffer();
            let at = inputs.iter().position(|b| b.is_some() && *b == buffer);
            let small = at.and_then(|i| run.given.get(i)?.small.clone()).map(|s| HostTensor { shape: t.shape(), ..s });
            Given { tensor: Some(t.clone()), small }
        };
        let mut given: Vec<Given> = values.iter().skip(wanted).map(carry).collect();
        let answer = match then {
            Continuation::Call(call) => Answer::Results(self.call(&call, read, &mut key, &mut given)?),
            Continuation::Know | Continuation::Tell(_) | Continuation::Wait => {
                for t in &read {
                    push_shape_signature(&mut key, t.dtype, &t.shape);
                    key.extend_from_slice(&t.data);
                }
                Answer::Known(read)
            }
        };
        run.given = given;
        run.push_random_key();
        run.live = live.iter().copied().zip(values.into_iter().skip(wanted)).collect();
        if let Some(build) = &mut run.build {
            build.answer(answer.clone(), &run.live)?;
        }
        run.answers.push(answer);
        run.key = key;
        self.enter(engine, run);
        Ok(())
    }

    /// Runs an operator on the host and makes its results inputs of the next stage.
    fn call(
        &self,
        call: &Call,
        read: Vec<HostTensor>,
        key: &mut Vec<u8>,
        given: &mut Vec<Given>,
    ) -> Result<Vec<CallResult>> {
        let mut out = Vec::new();
        for (t, code_type) in call.run(self.model(), &self.session, read)? {
            push_shape_signature(key, t.dtype, &t.shape);
            if t.is_empty() {
                given.push(Given { tensor: None, small: None });
                out.push(CallResult::Empty(t, code_type));
                continue;
            }
            let small = (t.len() <= MAX_HOST_COPY_ELEMS).then(|| t.clone());
            let t = Tensor::from_bytes(&self.session, t.dtype, &t.shape, Bytes::new(t.data))?;
            given.push(Given { tensor: Some(t.clone()), small });
            out.push(CallResult::Tensor(t, code_type));
        }
        Ok(out)
    }

    /// Seconds that each call (kernel launch) of the plan for these inputs takes, each waited for on its own. `None`
    /// before their first run.
    pub fn time_calls(
        &mut self,
        engine: &mut Engine,
        inputs: &Inputs,
        clock: &mut dyn FnMut() -> f64,
    ) -> Result<Option<(Plan, Vec<f64>)>> {
        let Some(Ready { replay: Some(replay), inputs: old, .. }) = self.ready.get(&inputs.key) else {
            return Ok(None);
        };
        if !engine.has(replay) {
            return Ok(None);
        }
        let swap = swaps(old, &inputs.given);
        let times = engine.time_calls(&mut self.session.state(), replay, &swap, clock)?;
        Ok(Some((replay.plan().clone(), times)))
    }

    /// The values of a plan after a replay.
    fn replayed_values(
        &mut self,
        engine: &mut Engine,
        run: &Run,
        ran: Option<Running>,
    ) -> Result<(Vec<Tensor>, End, u64)> {
        let ready = &self.ready[&run.key];
        let nodes = ran.map(|ran| engine.values(&mut self.session.state(), ran)).transpose()?.unwrap_or_default();
        let values = values_of(ready, &self.session, nodes, &run.given)?;
        Ok((values, ready.end.clone(), ready.number))
    }

    /// Frees the device memory of values that nothing refers to any more.
    pub fn collect(&mut self, engine: &mut Engine) {
        engine.collect(&mut self.session.state());
    }
}

/// The values of a stage, from the results of its replay and its inputs.
fn values_of(ready: &Ready, session: &Session, nodes: Vec<UOp>, given: &[Given]) -> Result<Vec<Tensor>> {
    let computed: Vec<Tensor> = nodes.into_iter().map(|n| Tensor::from_node(session, n)).collect();
    let value = |s: &Source| match s {
        Source::Computed(i) => Ok(computed[*i].clone()),
        Source::Input(i, shape) => {
            let t = given.get(*i).and_then(|g| g.tensor.as_ref());
            t.ok_or_else(|| Error::Internal("an input is gone".into()))?.reshape(shape)
        }
        Source::Constant(t) => Ok(t.clone()),
    };
    ready.sources.iter().map(value).collect()
}

/// Sets a run's lengths as the engine's launch scalars.
fn set_lengths(engine: &mut Engine, run: &Run) {
    for (name, n) in run.chosen.iter().flat_map(Chosen::variables) {
        engine.set_var(name, Scalar::Int(n));
    }
}

/// The buffers to exchange in a replay: captured buffer to the buffer of this run's input.
fn swaps(captured: &[(usize, u32)], given: &[Given]) -> FxHashMap<u32, u32> {
    let now = |i: usize| given.get(i).and_then(|g| g.tensor.as_ref()).and_then(Tensor::buffer);
    captured.iter().filter_map(|&(i, old)| Some((old, now(i)?))).collect()
}
