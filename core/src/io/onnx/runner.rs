//! A model ready to run again and again on one engine: graphs are built once per input signature, then replayed.
//!
//! Where a build stops for values that only a device can compute ([`super::stage`]), a run has stages: each computes what the
//! next one has to know, and which plan comes next is looked up by what was read. So every class of values is built and
//! compiled once, as every shape is.
//!
//! Nothing here waits: [`Runner::begin`], then [`Runner::step`] whenever [`Runner::ready`] says so, until there are outputs.

mod inputs;
mod lengths;
mod rewrite;

use self::lengths::{Chosen, Known, Way};
use super::build::{Bound, Feed};
use super::model::Model;
use super::stage::{Answer, Ask, Build, Call, Fed, Step, Then};
use crate::device::Ticket;
use crate::dtype::{DType, Scalar};
use crate::engine::{Bytes, Engine, Pending, Plan, Replay, Running, Starting};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::io::HostTensor;
use crate::tensor::{Folded, Session, Tensor};
use crate::uop::UOp;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::sync::Arc;

pub use self::lengths::Lengths;

/// Plans that are kept, counting every stage of every class of values.
const MOST_PLANS: usize = 1 << 13;
/// An input of so few elements is looked at on the host, where a stage has to know it.
const SMALL: usize = 64;

/// A model, its session, and what it has compiled.
pub struct Runner {
    bound: Bound,
    session: Session,
    ready: FxHashMap<Vec<u8>, Ready>,
    /// Large constants that were computed of the model's own: plans share them.
    folded: Folded,
    /// What constants were computed of: buffers that may leave the device once a plan is made that does not read them. A run that
    /// ends before that leaves them to the next one.
    leaves: Vec<u32>,
    /// The last stage got this number.
    stages: u64,
    /// Plans that the engine had forgotten when this was last looked at.
    forgotten: u64,
    /// Lengths that are launch scalars.
    lengths: RefCell<Known>,
    way: Option<&'static Way>,
}

/// Where a value of a replay comes from.
enum Source {
    /// A root of the replay.
    Computed(usize),
    /// An input, or a value of the stage before it, handed through in this shape.
    Input(usize, Vec<usize>),
    /// The same value every time.
    Constant(Tensor),
}

/// A plan and what it is for.
struct Ready {
    number: u64,
    /// `None` if there is nothing to compute.
    replay: Option<Replay>,
    /// Buffers that it was captured with, of inputs or of the stage before it, and their places.
    inputs: Vec<(usize, u32)>,
    sources: Vec<Source>,
    end: End,
    /// Keeps the constants alive.
    _held: Vec<Tensor>,
}

/// What a stage's values are.
#[derive(Clone)]
enum End {
    /// The outputs, by name.
    Outputs(Arc<Vec<String>>),
    /// What the build has to know, and then what it goes on with: these of its live values.
    Ask { wanted: usize, live: Arc<Vec<usize>>, then: Then },
}

/// What a model is given for an input.
pub enum Input {
    /// Data of the host, which is uploaded.
    Host(HostTensor),
    /// A computed tensor of the runner's session, as [`Runner::take`] gives it.
    Tensor(Tensor),
}

/// Inputs as tensors: uploaded by the first run that uses them, and there for every later one.
#[derive(Clone)]
pub struct Inputs {
    key: Vec<u8>,
    names: Vec<String>,
    feeds: Vec<Feed>,
    given: Vec<Given>,
    /// Where one plan serves every length: they have its room.
    chosen: Option<Chosen>,
}

/// A run under way.
pub struct Run {
    key: Vec<u8>,
    feeds: Vec<(String, Feed)>,
    /// What the plan of a stage may use: the inputs, or all that is left of them after the stage before it.
    given: Vec<Given>,
    random: Option<Tensor>,
    /// The answers of earlier stages, and the values that the last one left to the build.
    answers: Vec<Answer>,
    live: Vec<(usize, Tensor)>,
    /// There once a plan is missing.
    build: Option<Build>,
    asked: Option<Error>,
    /// Where one plan serves every length.
    chosen: Option<Chosen>,
    stage: Stage,
}

/// A tensor that is another one in every run; `None` for a value built in.
#[derive(Clone)]
struct Given {
    tensor: Option<Tensor>,
    /// Its value, if it is small and at hand.
    small: Option<HostTensor>,
}

enum Stage {
    /// The graph is built, and gone over by the passes from this number on.
    Build,
    Rewrite(usize, Vec<Tensor>, End),
    /// Constants are planned, and then computed.
    PlanFold(Starting, Vec<Tensor>, End),
    Fold(Pending, Vec<Tensor>, End),
    Folding(Running, Vec<Tensor>, End),
    /// All the rest is planned.
    Plan(Starting, Vec<Tensor>, End),
    Main(Pending, Planned),
    Replay,
    /// Steps are submitted, for the first time or again.
    First(Running, Planned, bool),
    Again(Option<Running>),
    Read(Vec<Reading>, Vec<Tensor>, End, u64),
    Done,
}

/// What is known of a plan before it ran.
struct Planned {
    values: Vec<Tensor>,
    sources: Vec<Source>,
    inputs: Vec<(usize, u32)>,
    held: Vec<Tensor>,
    end: End,
}

/// A value on its way to the host.
enum Reading {
    Waits(Ticket, DType, Vec<usize>),
    Here(HostTensor),
}

impl Inputs {
    /// The tensor of each input, by name; none for a value that is built in.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Option<&Tensor>)> {
        self.names.iter().map(String::as_str).zip(self.given.iter().map(|g| g.tensor.as_ref()))
    }
}

impl Run {
    /// Does the next step compute constants or values that the rest depends on, or plan something?
    pub fn folds(&self) -> bool {
        matches!(self.stage, Stage::Fold(..) | Stage::Folding(..) | Stage::Read(..)) || self.plans()
    }

    /// Does the next piece build or plan, without a look at the device?
    pub fn plans(&self) -> bool {
        matches!(self.stage, Stage::Build | Stage::Rewrite(..) | Stage::PlanFold(..) | Stage::Plan(..))
    }

    /// Does the next piece submit more of a plan of which some is submitted?
    pub fn is_submitting(&self) -> bool {
        matches!(self.stage, Stage::Folding(..) | Stage::First(..) | Stage::Again(..))
    }

    /// Are its programs compiled, and the next piece brings what they read to the device?
    pub fn brings(&self) -> bool {
        matches!(self.stage, Stage::Fold(..) | Stage::Main(..))
    }

    /// May the run be dropped where it is? Not while it overwrites what was there before, or computes what later runs use.
    pub fn may_stop(&self) -> bool {
        match &self.stage {
            Stage::First(r, ..) | Stage::Again(Some(r)) => r.may_stop(),
            _ => true,
        }
    }

    /// Does the next step wait for values on their way back?
    pub fn reads(&self) -> bool {
        matches!(self.stage, Stage::Read(..))
    }

    /// Why the graph is built in stages, if it is: what the last stage had to know, as it is said where nobody can compute it.
    pub fn asked(&self) -> Option<&Error> {
        self.asked.as_ref()
    }

    /// The key of random numbers is the last thing that a plan may use.
    fn give_key(&mut self) {
        self.given.extend(self.random.clone().map(|t| Given { tensor: Some(t), small: None }));
    }
}

impl Runner {
    /// A runner of a parsed model. Its tensors live in `session`, which must be the one session of the engine it runs on.
    pub fn new(model: Arc<Model>, session: &Session) -> Runner {
        Runner::of(Bound::new(model, session), session)
    }

    fn of(bound: Bound, session: &Session) -> Runner {
        let (ready, folded) = (FxHashMap::default(), Folded::default());
        let (session, lengths) = (session.clone(), RefCell::default());
        Runner { bound, session, ready, folded, leaves: Vec::new(), stages: 0, forgotten: 0, lengths, way: None }
    }

    /// A runner of [`Model::with_outputs`], which shares the weights of this one.
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

    /// The plan for the signature that was run last with these inputs, if it was: its first stage, where it has several.
    pub fn replay(&self, inputs: &[(&str, HostTensor)]) -> Option<&Replay> {
        let inputs = inputs.iter().map(|(name, t)| (*name, Input::Host(t.clone()))).collect();
        self.ready.get(&self.inputs(inputs).ok()?.key).and_then(|r| r.replay.as_ref())
    }

    /// The plan that a run is about to execute.
    pub fn plan_of<'a>(&'a self, run: &'a Run) -> Option<&'a Plan> {
        match &run.stage {
            Stage::Fold(p, ..) | Stage::Main(p, ..) => Some(p.plan()),
            Stage::Replay => self.ready.get(&run.key).and_then(|r| r.replay.as_ref()).map(Replay::plan),
            _ => None,
        }
    }

    fn is_value(&self, name: &str) -> bool {
        self.model().inputs().iter().any(|p| p.name == name && p.is_value)
    }

    /// Starts a run: builds and plans the graph, or finds the plan made before.
    pub fn begin(&mut self, engine: &mut Engine, inputs: &[(&str, HostTensor)]) -> Result<Run> {
        let inputs = self.inputs(inputs.iter().map(|(name, t)| (*name, Input::Host(t.clone()))).collect())?;
        self.begin_on(engine, &inputs)
    }

    /// The same on inputs that are tensors already.
    pub fn begin_on(&mut self, engine: &mut Engine, inputs: &Inputs) -> Result<Run> {
        let mut run = self.begin_in_pieces(engine, inputs)?;
        self.plan(engine, &mut run)?;
        Ok(run)
    }

    /// Goes on with a run until it depends on the device.
    fn plan(&mut self, engine: &mut Engine, run: &mut Run) -> Result<()> {
        while run.plans() {
            self.piece(engine, run, u64::MAX)?;
        }
        Ok(())
    }

    /// Starts a run that [`Runner::piece`] goes on with.
    pub fn begin_in_pieces(&mut self, engine: &mut Engine, inputs: &Inputs) -> Result<Run> {
        if self.ready.len() > MOST_PLANS {
            self.ready.clear();
            self.folded = Folded::default();
        }
        let random = self.model().is_random().then(|| self.random_key()).transpose()?;
        let mut run = Run {
            key: inputs.key.clone(),
            feeds: inputs.names.iter().cloned().zip(inputs.feeds.iter().cloned()).collect(),
            given: inputs.given.clone(),
            random,
            answers: Vec::new(),
            live: Vec::new(),
            build: None,
            asked: None,
            chosen: inputs.chosen.clone(),
            stage: Stage::Done,
        };
        run.give_key();
        self.enter(engine, &mut run);
        Ok(run)
    }

    /// Two new random words.
    fn random_key(&self) -> Result<Tensor> {
        let words = self.session.next_key();
        let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        Tensor::from_bytes(&self.session, DType::U32, &[2], Bytes::new(bytes))
    }

    /// Finds the plan of the stage that comes next, or begins to make it.
    fn enter(&mut self, engine: &Engine, run: &mut Run) {
        self.forget(engine);
        let known = run.build.is_none() && self.is_here(engine, run);
        run.stage = if known { Stage::Replay } else { Stage::Build };
    }

    /// Builds the graph of the stage that comes next, or some of it.
    fn build(&mut self, engine: &mut Engine, run: &mut Run) -> Result<()> {
        if let (Some(chosen), Some(way)) = (&run.chosen, self.way) {
            let values = (way.graph)(self, chosen, &run.given)?;
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

    /// Is there a plan for the stage that comes next?
    fn is_here(&self, engine: &Engine, run: &Run) -> bool {
        self.ready.get(&run.key).is_some_and(|r| r.replay.as_ref().is_none_or(|replay| engine.has(replay)))
    }

    /// Lets go of what belongs to plans that the engine has forgotten: they are built again if they are wanted again.
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

    /// A build that is where this run is, its earlier stages answered.
    fn rebuild(&self, run: &Run) -> Result<Build> {
        let mut build = Build::new(run.feeds.clone(), run.random.clone());
        for (i, answer) in run.answers.iter().enumerate() {
            self.bound.go(&mut build, &Interrupt::default())?;
            // what came before the last stage is never computed again
            let live = if i + 1 == run.answers.len() { &run.live[..] } else { &[] };
            build.answer(answer.clone(), live)?;
        }
        Ok(build)
    }

    /// The places of the values that depend on inputs or on earlier stages.
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

    /// Is the device ready for the next step: everything compiled, and what it reads there? Ask again when the device got
    /// further.
    pub fn ready(&self, engine: &mut Engine, run: &mut Run) -> Result<bool> {
        let Stage::Read(list, ..) = &mut run.stage else { return engine.ready() };
        for r in list.iter_mut() {
            let Reading::Waits(ticket, dtype, shape) = r else { continue };
            match engine.poll(*ticket, *dtype)? {
                Some(data) => *r = Reading::Here(HostTensor::new(*dtype, std::mem::take(shape), data)?),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Goes on with a run once it is ready, until it depends on the device again. `Some` when the outputs are computed (or
    /// submitted).
    pub fn step(&mut self, engine: &mut Engine, run: &mut Run) -> Result<Option<Vec<(String, Tensor)>>> {
        loop {
            if run.may_stop() {
                engine.interrupt().check()?;
            }
            let work = engine.portion();
            let out = self.piece(engine, run, work)?;
            if out.is_some() || !(run.plans() || run.is_submitting() || run.brings() && engine.ready()?) {
                return Ok(out);
            }
        }
    }

    /// The same in pieces: as much of a build as the engine's interrupt allows, a pass over its graph or of the scheduler, a kernel that is
    /// compiled, or the submission of about so much `work`.
    pub fn piece(&mut self, engine: &mut Engine, run: &mut Run, work: u64) -> Result<Option<Vec<(String, Tensor)>>> {
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
                        let mut leaves = std::mem::take(&mut self.leaves);
                        leaves.retain(|id| !pending.externals().contains(id));
                        engine.let_go(&self.session.state(), &leaves);
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
                self.leaves.extend(replay.externals());
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
                run.stage = Stage::First(running, p, computes);
                Ok(None)
            }
            Stage::First(mut running, p, computes) => {
                if !engine.submit_some(&mut running, work)? {
                    run.stage = Stage::First(running, p, computes);
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
                run.stage = Stage::Again(replay.map(launch).transpose()?);
                Ok(None)
            }
            Stage::Again(mut running) => {
                if let Some(r) = &mut running
                    && !engine.submit_some(r, work)?
                {
                    run.stage = Stage::Again(running);
                    return Ok(None);
                }
                let (values, end, number) = self.again(engine, run, running)?;
                self.computed(engine, run, values, end, number)
            }
            Stage::Read(list, values, end, number) => {
                let here = |r| match r {
                    Reading::Here(t) => Ok(t),
                    Reading::Waits(..) => Err(Error::Internal("a run was stepped before it was ready".into())),
                };
                let read = list.into_iter().map(here).collect::<Result<Vec<_>>>()?;
                self.answered(engine, run, read, values, end, number)?;
                Ok(None)
            }
            Stage::Done => Err(Error::Internal("a finished run was stepped".into())),
        }
    }

    /// The values of a stage are computed: they are the outputs, or some of them are read.
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
                let mut state = self.session.state();
                if state.wants_compaction() || state.wants_memory() {
                    engine.collect(&mut state);
                }
                drop(state);
                let values = match (&run.chosen, self.way) {
                    (Some(chosen), Some(way)) => {
                        let nodes: Vec<UOp> = values.iter().map(Tensor::node).collect();
                        let nodes = (way.outputs)(chosen, &mut self.session.state(), &nodes)?;
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
                Some(small) => Reading::Here(HostTensor { shape: t.shape(), ..small }),
                None => {
                    let (ticket, dtype, _) = engine.read(&mut self.session.state(), t.root())?;
                    Reading::Waits(ticket, dtype, t.shape())
                }
            });
        }
        run.stage = Stage::Read(list, values, end, number);
        Ok(None)
    }

    /// What a stage asked for was read: goes on to the stage of its class.
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
        // nothing of earlier stages is used by later ones, but through these
        let carry = |t: &Tensor| {
            let buffer = t.buffer();
            let at = inputs.iter().position(|b| b.is_some() && *b == buffer);
            let small = at.and_then(|i| run.given.get(i)?.small.clone()).map(|s| HostTensor { shape: t.shape(), ..s });
            Given { tensor: Some(t.clone()), small }
        };
        let mut given: Vec<Given> = values.iter().skip(wanted).map(carry).collect();
        let answer = match then {
            Then::Call(call) => Answer::Results(self.call(&call, read, &mut key, &mut given)?),
            Then::Know | Then::Tell(_) | Then::Wait => {
                for t in &read {
                    sign_shape(&mut key, t.dtype, &t.shape);
                    key.extend_from_slice(&t.data);
                }
                Answer::Known(read)
            }
        };
        run.given = given;
        run.give_key();
        run.live = live.iter().copied().zip(values.into_iter().skip(wanted)).collect();
        if let Some(build) = &mut run.build {
            build.answer(answer.clone(), &run.live)?;
        }
        run.answers.push(answer);
        run.key = key;
        self.enter(engine, run);
        Ok(())
    }

    /// Runs an operator on the host; its results become inputs of the next stage.
    fn call(&self, call: &Call, read: Vec<HostTensor>, key: &mut Vec<u8>, given: &mut Vec<Given>) -> Result<Vec<Fed>> {
        let mut out = Vec::new();
        for (t, narrow) in call.run(self.model(), &self.session, read)? {
            sign_shape(key, t.dtype, &t.shape);
            if t.is_empty() {
                given.push(Given { tensor: None, small: None });
                out.push(Fed::Empty(t, narrow));
                continue;
            }
            let small = (t.len() <= SMALL).then(|| t.clone());
            let t = Tensor::from_bytes(&self.session, t.dtype, &t.shape, Bytes::new(t.data))?;
            given.push(Given { tensor: Some(t.clone()), small });
            out.push(Fed::Tensor(t, narrow));
        }
        Ok(out)
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
        if !engine.has(replay) {
            return Ok(None);
        }
        let swap = swaps(old, &inputs.given);
        let times = engine.time_calls(&mut self.session.state(), replay, &swap, clock)?;
        Ok(Some((replay.plan().clone(), times)))
    }

    /// The values of a plan that ran again.
    fn again(&mut self, engine: &mut Engine, run: &Run, ran: Option<Running>) -> Result<(Vec<Tensor>, End, u64)> {
        let ready = &self.ready[&run.key];
        let mut computed = Vec::new();
        if let Some(ran) = ran {
            let nodes = engine.values(&mut self.session.state(), ran)?;
            computed.extend(nodes.into_iter().map(|n| Tensor::from_node(&self.session, n)));
        }
        let value = |s: &Source| match s {
            Source::Computed(i) => Ok(computed[*i].clone()),
            Source::Input(i, shape) => {
                let t = run.given.get(*i).and_then(|g| g.tensor.as_ref());
                t.ok_or_else(|| Error::Internal("an input is gone".into()))?.reshape(shape)
            }
            Source::Constant(t) => Ok(t.clone()),
        };
        let values = ready.sources.iter().map(value).collect::<Result<_>>()?;
        Ok((values, ready.end.clone(), ready.number))
    }

    /// Frees the device memory of values that nobody holds any more.
    pub fn collect(&mut self, engine: &mut Engine) {
        engine.collect(&mut self.session.state());
    }
}

/// Gives a run's lengths to the engine.
fn set_lengths(engine: &mut Engine, run: &Run) {
    for (name, n) in run.chosen.iter().flat_map(Chosen::variables) {
        engine.set_var(name, Scalar::Int(n));
    }
}

/// Which buffers stand for those that a plan was captured with.
fn swaps(captured: &[(usize, u32)], given: &[Given]) -> FxHashMap<u32, u32> {
    let now = |i: usize| given.get(i).and_then(|g| g.tensor.as_ref()).and_then(Tensor::buffer);
    captured.iter().filter_map(|&(i, old)| Some((old, now(i)?))).collect()
}

fn sign(key: &mut Vec<u8>, name: &str, dtype: DType, shape: &[usize], data: Option<&[u8]>) {
    key.extend_from_slice(name.as_bytes());
    key.push(0);
    sign_shape(key, dtype, shape);
    key.extend_from_slice(data.unwrap_or_default());
}

fn sign_shape(key: &mut Vec<u8>, dtype: DType, shape: &[usize]) {
    key.push(dtype as u8);
    key.extend((shape.len() as u32).to_le_bytes());
    shape.iter().for_each(|n| key.extend((*n as u64).to_le_bytes()));
}
