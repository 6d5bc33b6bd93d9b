//! Builds that stop for values which a device has to compute, and resume once those were read.
//!
//! A node that needs to know a value calls [`Cx::stop`] and returns an error. While the error propagates, every graph
//! and every node with a body saves its position as a [`Frame`]. The caller computes what the [`Ask`] wants, together
//! with all values that the frames still need, and passes both to [`Build::answer`]; the build then resumes at that
//! node with the computed values. So a loop whose end depends on data executes each iteration once, and the nodes after
//! a value that was read are built for that value.

use crate::util::sorted::{SortedMap, SortedSet};
use rustc_hash::FxHashMap;
use std::sync::Arc;

use super::build::{Feed, Scope, run_model};
use super::check;
use super::model::Model;
use super::ops::{Op, OpDef};
use super::proto::NodeProto;
use super::value::{Constants, Cx, FOLD_SHAPES, NodeTrace, Value};
use crate::error::{Error, Result};
use crate::interrupt::{Go, Interrupt};
use crate::io::HostTensor;
use crate::tensor::{Session, Tensor};

/// How often a run may stop for values; a loop whose condition never becomes false fails at this limit.
const MAX_STOPS: usize = if cfg!(test) { 64 } else { 1 << 12 };

/// The saved position of a graph or node at which a build stopped.
pub(super) enum Frame {
    /// A graph that stopped at a node.
    Nodes {
        /// The values that the remaining nodes use.
        values: SortedMap<String, Value>,
        /// Index of the node that runs next.
        at: usize,
        /// Values that were computed for this node besides its inputs, by the name under which it asked.
        computed_for_node: Vec<(&'static str, HostTensor)>,
    },
    /// A node that executes a body repeatedly (`Loop`, `Scan`, `SequenceMap`).
    Loop(LoopState),
}

/// The state of a node with a body after some iterations.
#[derive(Default)]
pub(super) struct LoopState {
    /// Iterations executed.
    pub(super) done: usize,
    /// Loop-carried values.
    pub(super) state: Vec<Value>,
    /// The values collected so far for each scan output.
    pub(super) lists: Vec<Vec<Value>>,
    /// The condition for another iteration.
    pub(super) go: Option<Value>,
}

/// How the build continues with values that were read.
#[derive(Clone)]
pub(super) enum Continuation {
    /// They become known values of the build.
    Know,
    /// One value, handed to the node that asked for it under this name.
    Tell(&'static str),
    /// Nothing is wanted: the build pauses until its caller resumes it.
    Wait,
    /// An operator is executed on the host with them. Only the shapes of its results decide how the build continues.
    Call(Arc<Call>),
}

/// A node to execute on the host.
pub(super) struct Call {
    pub(super) node: NodeProto,
    pub(super) def: &'static OpDef,
    pub(super) opset: i64,
    /// Its inputs: outer `None` for an omitted one, `Some(None)` for one that will be read from the device.
    pub(super) args: Vec<Option<Option<Value>>>,
}

/// A request to stop, as a node makes it.
pub(super) struct Stop {
    pub(super) wanted: Vec<Value>,
    pub(super) then: Continuation,
}

/// A request to compute values, as the runner receives it.
pub(super) struct Ask {
    /// To be computed and read.
    pub(super) wanted: Vec<Tensor>,
    /// Values that the rest of the build uses, to be computed together with `wanted`.
    pub(super) live: Vec<Tensor>,
    pub(super) then: Continuation,
    /// The error to return where no device can compute the values.
    pub(super) error: Error,
}

/// What the runner passes back to the build.
#[derive(Clone)]
pub(super) enum Answer {
    /// The values that were wanted.
    Known(Vec<HostTensor>),
    /// The results of the call.
    Results(Vec<CallResult>),
}

/// A result of a call on the host, and ONNX's number of its element type if it is codes (else 0): uploaded to the
/// device, or kept on the host if it has no elements.
#[derive(Clone)]
pub(super) enum CallResult {
    Tensor(Tensor, i32),
    Empty(HostTensor, i32),
}

/// How a build ended or why it stopped.
pub(super) enum Step {
    Done(Vec<(String, Tensor)>),
    Ask(Ask),
    /// It is not finished, and was asked to pause.
    Paused,
}

/// A build under way.
pub(super) struct Build {
    feeds: Vec<(String, Feed)>,
    key: Option<Tensor>,
    /// Saved positions, the innermost first.
    frames: Vec<Frame>,
    wanted: Vec<Value>,
    live: Vec<Value>,
    then: Continuation,
    /// Counters: nodes run, random draws and host bytes so far.
    progress: (usize, u32, u64),
    stops: usize,
    /// Records of the nodes, in a build that is one of several for different lengths.
    traces: Option<Vec<NodeTrace>>,
}

fn lost() -> Error {
    Error::Internal("a build lost its place".to_owned())
}

impl Build {
    /// A build for these inputs. Random operators draw from `key`, two u32.
    pub(super) fn new(feeds: Vec<(String, Feed)>, key: Option<Tensor>) -> Build {
        let (frames, wanted, live) = (Vec::new(), Vec::new(), Vec::new());
        Build {
            feeds,
            key,
            frames,
            wanted,
            live,
            then: Continuation::Know,
            progress: (0, 0, 0),
            stops: 0,
            traces: None,
        }
    }

    /// A build that is one of several for different lengths; it records traces.
    pub(super) fn of_lengths(feeds: Vec<(String, Feed)>) -> Build {
        Build { traces: Some(Vec::new()), ..Build::new(feeds, None) }
    }

    /// What each node of the model produced, in a build of lengths.
    pub(super) fn take_traces(&mut self) -> Vec<NodeTrace> {
        self.traces.take().unwrap_or_default()
    }

    /// Builds until the graph is complete, a value must be known, or the interrupt asks to pause.
    pub(super) fn go(
        &mut self,
        model: &Model,
        constants: &Constants,
        session: &Session,
        interrupt: &Interrupt,
    ) -> Result<Step> {
        let mut cx = Cx::new(model, constants, session.clone());
        cx.interrupt = interrupt.clone();
        cx.frames = std::mem::take(&mut self.frames);
        cx.key = self.key.clone();
        cx.traces = self.traces.take();
        if cx.traces.is_some() {
            cx.fold_limit = FOLD_SHAPES;
        }
        cx.resume(self.progress, self.stops > 0);
        let feeds: Vec<(&str, Feed)> = self.feeds.iter().map(|(n, f)| (n.as_str(), f.clone())).collect();
        let out = run_model(&mut cx, &feeds);
        self.progress = cx.progress();
        self.traces = cx.traces.take();
        let (error, stop) = match (out, cx.take_stop()) {
            (Ok(outputs), _) => {
                let lazy = outputs.into_iter().map(|(name, v)| Ok((name, cx.lazy(&v)?)));
                return lazy.collect::<Result<_>>().map(Step::Done);
            }
            (Err(e), None) => return Err(e),
            (Err(e), Some(stop)) => (e, stop),
        };
        if matches!(stop.then, Continuation::Wait) {
            self.frames = std::mem::take(&mut cx.frames);
            return Ok(Step::Paused);
        }
        self.stops += 1;
        if self.stops > MAX_STOPS {
            let what = format!("a run stops for computed values more than {MAX_STOPS} times; a loop may have no end");
            return Err(Error::Model { what, node: None });
        }
        self.frames = std::mem::take(&mut cx.frames);
        self.wanted = stop.wanted;
        // Wanted values that become known need not stay computed on the device.
        let known = if matches!(stop.then, Continuation::Know) { &self.wanted[..] } else { &[] };
        self.live = live_values(&self.frames, known);
        self.then = stop.then.clone();
        let lazy = |list: &[Value]| list.iter().map(|v| cx.lazy(v)).collect::<Result<Vec<_>>>();
        Ok(Step::Ask(Ask { wanted: lazy(&self.wanted)?, live: lazy(&self.live)?, then: stop.then, error }))
    }

    /// Answers the last [`Ask`]: with its wanted values, and with those of its live values that were computed, by
    /// index.
    pub(super) fn answer(&mut self, answer: Answer, live: &[(usize, Tensor)]) -> Result<()> {
        let mut now: FxHashMap<usize, Value> = FxHashMap::default();
        for (i, t) in live {
            let old = self.live.get(*i).ok_or_else(lost)?;
            now.insert(old.id(), Value::lazy(t.clone()).with_code_type(old.code_type()));
        }
        if let Answer::Known(hosts) = &answer {
            for (old, host) in self.wanted.iter().zip(hosts) {
                now.insert(old.id(), Value::known(host.clone()).with_code_type(old.code_type()));
            }
        }
        for frame in &mut self.frames {
            frame.replace(&now);
        }
        match (answer, &self.then, self.frames.first_mut()) {
            (Answer::Known(_), Continuation::Know, _) => {}
            (Answer::Known(mut hosts), Continuation::Tell(name), Some(Frame::Nodes { computed_for_node, .. }))
                if hosts.len() == 1 =>
            {
                computed_for_node.push((name, hosts.swap_remove(0)));
            }
            (Answer::Results(results), Continuation::Call(call), Some(Frame::Nodes { values, at, .. })) => {
                for (name, r) in call.node.outputs.iter().zip(results).filter(|(n, _)| !n.is_empty()) {
                    let v = match r {
                        CallResult::Tensor(t, code_type) => Value::lazy(t).with_code_type(code_type),
                        CallResult::Empty(t, code_type) => Value::known(t).with_code_type(code_type),
                    };
                    values.insert(name.clone(), v);
                }
                *at += 1;
            }
            _ => return Err(lost()),
        }
        (self.wanted, self.live) = (Vec::new(), Vec::new());
        Ok(())
    }
}

impl Frame {
    fn each(&self, mut f: impl FnMut(&Value)) {
        match self {
            Frame::Nodes { values, .. } => values.values().for_each(&mut f),
            Frame::Loop(t) => t.state.iter().chain(t.lists.iter().flatten()).chain(&t.go).for_each(&mut f),
        }
    }

    fn replace(&mut self, now: &FxHashMap<usize, Value>) {
        let change = |v: &mut Value| *v = v.replaced(now);
        match self {
            Frame::Nodes { values, .. } => values.values_mut().for_each(change),
            Frame::Loop(t) => {
                t.state.iter_mut().chain(t.lists.iter_mut().flatten()).chain(&mut t.go).for_each(change);
            }
        }
    }
}

/// All values in the frames that are not known on the host, each once, without those that will become `known`.
fn live_values(frames: &[Frame], known: &[Value]) -> Vec<Value> {
    let mut seen: SortedSet<usize> = crate::util::gather(known.iter().map(Value::id));
    let mut out = Vec::new();
    let mut add = |v: &Value| {
        if v.is_lazy() && seen.insert(v.id()) {
            out.push(v.clone());
        }
    };
    for frame in frames.iter().rev() {
        frame.each(|v| match v.items() {
            Some(items) => items.iter().for_each(&mut add),
            None => add(v),
        });
    }
    out
}

impl Call {
    /// Executes the operator on the values that were read (in the order of its unknown inputs). Each result comes with
    /// ONNX's number of its element type if it is codes.
    pub(super) fn run(
        &self,
        model: &Model,
        session: &Session,
        read: Vec<HostTensor>,
    ) -> Result<Vec<(HostTensor, i32)>> {
        let constants = Constants::default();
        let mut cx = Cx::new(model, &constants, session.clone());
        cx.fold_limit = usize::MAX;
        let mut read = read.into_iter();
        let mut args = Vec::with_capacity(self.args.len());
        for arg in &self.args {
            args.push(match arg {
                Some(Some(v)) => Some(v.clone()),
                Some(None) => Some(Value::known(read.next().ok_or_else(lost)?)),
                None => None,
            });
        }
        let scope = Scope { values: SortedMap::new(), parent: None };
        let mut op = Op { cx: &mut cx, node: &self.node, args, opset: self.opset, scope: &scope, depth: 0 };
        let out = (self.def.build)(&mut op).map_err(|e| check::name_node(e, &self.node))?;
        out.iter().map(|v| Ok((cx.host(v)?.ok_or_else(lost)?, v.code_type()))).collect()
    }
}

impl Cx<'_> {
    /// Stops the build until these values are known; the caller must return an error at once. On trial (`trials > 0`)
    /// the error remains an ordinary one. The bytes to read back are charged to the budget.
    pub(super) fn stop(&self, wanted: Vec<Value>, then: Continuation) -> Result<()> {
        if self.trials == 0 {
            for v in &wanted {
                self.charge((v.len() as u64).saturating_mul(v.dtype().size() as u64))?;
            }
            self.set_stop(Stop { wanted, then });
        }
        Ok(())
    }

    /// Called before each node: counts it, and pauses the build if the interrupt asks for that, after at least one node
    /// and never on trial.
    pub(super) fn pace(&mut self) -> Result<()> {
        let go = self.interrupt.look()?;
        if go == Go::Pause && self.trials == 0 && self.made_progress {
            self.set_stop(Stop { wanted: Vec::new(), then: Continuation::Wait });
            return Err(Error::Internal("a paused build was taken for a failed one".to_owned()));
        }
        self.step()
    }

    /// Saves a frame while a stop propagates.
    pub(super) fn save(&mut self, frame: impl FnOnce() -> Frame) {
        if self.is_stopped() {
            self.frames.push(frame());
        }
    }

    /// The saved state of a node with a body, if the build stopped inside it.
    pub(super) fn take_loop_state(&mut self) -> Option<LoopState> {
        match self.frames.pop() {
            Some(Frame::Loop(t)) => Some(t),
            Some(other) => {
                self.frames.push(other);
                None
            }
            None => None,
        }
    }
}
