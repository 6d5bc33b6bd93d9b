//! Builds that stop for values which a device has to compute, and go on once somebody has read them.
//!
//! A node that needs to know a value calls [`Cx::stop`] and fails; on the way out every graph and every node with a body saves
//! where it is as a [`Frame`]. The caller computes what the [`Ask`] wants, together with everything that the frames still
//! need, hands both to [`Build::answer`], and the build goes on where it stopped, on what has been computed. So a loop whose
//! end depends on the data runs each turn once, and what follows a value that was read is built for that value.

use crate::util::sorted::{SortedMap, SortedSet};
use rustc_hash::FxHashMap;
use std::sync::Arc;

use super::build::{Feed, Scope, run_model};
use super::check;
use super::model::Model;
use super::ops::{Op, OpDef};
use super::proto::NodeProto;
use super::value::{Constants, Cx, FOLD_SHAPES, Mark, Value};
use crate::error::{Error, Result};
use crate::interrupt::{Go, Interrupt};
use crate::io::HostTensor;
use crate::tensor::{Session, Tensor};

/// A run may stop this often: a loop whose condition never turns false ends here.
const MOST_STOPS: usize = if cfg!(test) { 64 } else { 1 << 12 };

/// Where something stopped.
pub(super) enum Frame {
    /// A graph, at a node.
    Nodes {
        /// The values that the rest of it uses.
        values: SortedMap<String, Value>,
        /// The node that runs next.
        at: usize,
        /// What was computed for this node beyond its inputs.
        found: Vec<(&'static str, HostTensor)>,
    },
    /// A node that runs a body again and again.
    Turns(Turns),
}

/// What a node with a body has after some turns.
#[derive(Default)]
pub(super) struct Turns {
    pub(super) done: usize,
    /// Carried from turn to turn.
    pub(super) state: Vec<Value>,
    /// Collected, a list for each result.
    pub(super) lists: Vec<Vec<Value>>,
    /// Whether there is another turn.
    pub(super) go: Option<Value>,
}

/// What becomes of values that were read.
#[derive(Clone)]
pub(super) enum Then {
    /// The build goes on knowing them.
    Know,
    /// The build goes on knowing one that the node asked for under this name.
    Tell(&'static str),
    /// Nothing is wanted: the build goes on when its caller has time again.
    Wait,
    /// An operator runs on them on the host; only the shapes of its results decide how the build goes on.
    Call(Arc<Call>),
}

/// A node that runs on the host.
pub(super) struct Call {
    pub(super) node: NodeProto,
    pub(super) def: &'static OpDef,
    pub(super) opset: i64,
    /// Its inputs: those to be read are `None` inside.
    pub(super) args: Vec<Option<Option<Value>>>,
}

/// A stop as the node sees it.
pub(super) struct Stop {
    pub(super) wanted: Vec<Value>,
    pub(super) then: Then,
}

/// A stop as the runner sees it.
pub(super) struct Ask {
    /// To be computed and read.
    pub(super) wanted: Vec<Tensor>,
    /// Used by the rest of the build: to be computed with them.
    pub(super) live: Vec<Tensor>,
    pub(super) then: Then,
    /// What to say where nobody can answer.
    pub(super) error: Error,
}

/// What reading gave.
#[derive(Clone)]
pub(super) enum Answer {
    /// The values that were asked for.
    Known(Vec<HostTensor>),
    /// The results of the call.
    Results(Vec<Fed>),
}

/// A result of a call, and ONNX's number of its element type if it is codes: on the device, or, where there is nothing to put
/// there, here.
#[derive(Clone)]
pub(super) enum Fed {
    Tensor(Tensor, i32),
    Empty(HostTensor, i32),
}

/// How far a build got.
pub(super) enum Step {
    Done(Vec<(String, Tensor)>),
    Ask(Ask),
    /// It has something to do yet, and was asked to pause.
    Paused,
}

/// A build under way.
pub(super) struct Build {
    feeds: Vec<(String, Feed)>,
    key: Option<Tensor>,
    /// The innermost first.
    frames: Vec<Frame>,
    wanted: Vec<Value>,
    live: Vec<Value>,
    then: Then,
    /// Nodes, random draws and bytes made on the host so far.
    progress: (usize, u32, u64),
    stops: usize,
    /// Whether the build is one of several for different lengths, and what it then marked.
    marks: Option<Vec<Mark>>,
}

fn lost() -> Error {
    Error::Internal("a build lost its place".to_owned())
}

impl Build {
    /// A build for these inputs. Random operators draw from `key`, two u32.
    pub(super) fn new(feeds: Vec<(String, Feed)>, key: Option<Tensor>) -> Build {
        let (frames, wanted, live) = (Vec::new(), Vec::new(), Vec::new());
        Build { feeds, key, frames, wanted, live, then: Then::Know, progress: (0, 0, 0), stops: 0, marks: None }
    }

    /// The same, as one of several builds for different lengths.
    pub(super) fn of_lengths(feeds: Vec<(String, Feed)>) -> Build {
        Build { marks: Some(Vec::new()), ..Build::new(feeds, None) }
    }

    /// What each node of the model made, in a build of lengths.
    pub(super) fn take_marks(&mut self) -> Vec<Mark> {
        self.marks.take().unwrap_or_default()
    }

    /// Builds until it is done or has to know something.
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
        cx.marks = self.marks.take();
        if cx.marks.is_some() {
            cx.fold_limit = FOLD_SHAPES;
        }
        cx.resume(self.progress, self.stops > 0);
        let feeds: Vec<(&str, Feed)> = self.feeds.iter().map(|(n, f)| (n.as_str(), f.clone())).collect();
        let out = run_model(&mut cx, &feeds);
        self.progress = cx.progress();
        self.marks = cx.marks.take();
        let (error, stop) = match (out, cx.take_stop()) {
            (Ok(outputs), _) => {
                let lazy = outputs.into_iter().map(|(name, v)| Ok((name, cx.lazy(&v)?)));
                return lazy.collect::<Result<_>>().map(Step::Done);
            }
            (Err(e), None) => return Err(e),
            (Err(e), Some(stop)) => (e, stop),
        };
        if matches!(stop.then, Then::Wait) {
            self.frames = std::mem::take(&mut cx.frames);
            return Ok(Step::Paused);
        }
        self.stops += 1;
        if self.stops > MOST_STOPS {
            let what = format!("a run stops for computed values more than {MOST_STOPS} times; a loop may have no end");
            return Err(Error::Model { what, node: None });
        }
        self.frames = std::mem::take(&mut cx.frames);
        self.wanted = stop.wanted;
        // what will be known is not left to a device
        let known = if matches!(stop.then, Then::Know) { &self.wanted[..] } else { &[] };
        self.live = live_values(&self.frames, known);
        self.then = stop.then.clone();
        let lazy = |list: &[Value]| list.iter().map(|v| cx.lazy(v)).collect::<Result<Vec<_>>>();
        Ok(Step::Ask(Ask { wanted: lazy(&self.wanted)?, live: lazy(&self.live)?, then: stop.then, error }))
    }

    /// What the last ask wanted, and those of its live values that were computed, by their place.
    pub(super) fn answer(&mut self, answer: Answer, live: &[(usize, Tensor)]) -> Result<()> {
        let mut now: FxHashMap<usize, Value> = FxHashMap::default();
        for (i, t) in live {
            let old = self.live.get(*i).ok_or_else(lost)?;
            now.insert(old.id(), Value::lazy(t.clone()).with_narrow(old.narrow()));
        }
        if let Answer::Known(hosts) = &answer {
            for (old, host) in self.wanted.iter().zip(hosts) {
                now.insert(old.id(), Value::known(host.clone()).with_narrow(old.narrow()));
            }
        }
        for frame in &mut self.frames {
            frame.replace(&now);
        }
        match (answer, &self.then, self.frames.first_mut()) {
            (Answer::Known(_), Then::Know, _) => {}
            (Answer::Known(mut hosts), Then::Tell(name), Some(Frame::Nodes { found, .. })) if hosts.len() == 1 => {
                found.push((name, hosts.swap_remove(0)));
            }
            (Answer::Results(results), Then::Call(call), Some(Frame::Nodes { values, at, .. })) => {
                for (name, r) in call.node.outputs.iter().zip(results).filter(|(n, _)| !n.is_empty()) {
                    let v = match r {
                        Fed::Tensor(t, narrow) => Value::lazy(t).with_narrow(narrow),
                        Fed::Empty(t, narrow) => Value::known(t).with_narrow(narrow),
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
            Frame::Turns(t) => t.state.iter().chain(t.lists.iter().flatten()).chain(&t.go).for_each(&mut f),
        }
    }

    fn replace(&mut self, now: &FxHashMap<usize, Value>) {
        let change = |v: &mut Value| *v = v.replaced(now);
        match self {
            Frame::Nodes { values, .. } => values.values_mut().for_each(change),
            Frame::Turns(t) => {
                t.state.iter_mut().chain(t.lists.iter_mut().flatten()).chain(&mut t.go).for_each(change);
            }
        }
    }
}

/// Everything in the frames that only a device knows, each once, without what will be `known`.
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
    /// Runs it on what was read, in the order of its unknown inputs: results, and what codes they are.
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
        out.iter().map(|v| Ok((cx.host(v)?.ok_or_else(lost)?, v.narrow()))).collect()
    }
}

impl Cx<'_> {
    /// Stops the build until these values are known; the caller returns an error at once. In a trial it stays an error. What
    /// is read back counts against the budget.
    pub(super) fn stop(&self, wanted: Vec<Value>, then: Then) -> Result<()> {
        if self.trials == 0 {
            for v in &wanted {
                self.charge((v.len() as u64).saturating_mul(v.dtype().size() as u64))?;
            }
            self.set_stop(Stop { wanted, then });
        }
        Ok(())
    }

    /// Before a node: whether the build goes on. After one node at least it may pause, except in a trial.
    pub(super) fn pace(&mut self) -> Result<()> {
        let go = self.interrupt.look()?;
        if go == Go::Pause && self.trials == 0 && self.moved {
            self.set_stop(Stop { wanted: Vec::new(), then: Then::Wait });
            return Err(Error::Internal("a paused build was taken for a failed one".to_owned()));
        }
        self.step()
    }

    /// Saves where something was, on the way out of a stop.
    pub(super) fn save(&mut self, frame: impl FnOnce() -> Frame) {
        if self.is_stopped() {
            self.frames.push(frame());
        }
    }

    /// Where a node with a body was when the build stopped inside of it.
    pub(super) fn turns(&mut self) -> Option<Turns> {
        match self.frames.pop() {
            Some(Frame::Turns(t)) => Some(t),
            Some(other) => {
                self.frames.push(other);
                None
            }
            None => None,
        }
    }
}
