//! The short way for a run like the one before it: inputs of the same types and shapes, and a plan of little work. Such
//! a run looks nothing up by names and is submitted at once, so that it costs a fraction of what a run in pieces does
//! ([`Runner::begin_in_pieces`]), which matters where kernels take microseconds.

use super::super::build::Feed;
use super::{Given, Run, Runner, swaps, values_of};
use crate::dtype::DType;
use crate::engine::{Bytes, Engine};
use crate::error::Result;
use crate::tensor::Tensor;

/// The most work of a run that is not divided into pieces, in the unit of [`Engine::work`]. It is only an estimate of the
/// run's duration, so a host that must not block looks at how long the run before took, too.
const SHORT_WORK: u64 = 1 << 22;

/// An input of [`Runner::again`].
pub enum Again {
    /// Data on the host.
    Data(Vec<u8>),
    /// A tensor of the runner's session.
    Tensor(Tensor),
}

/// The last run, if its like can take the short way.
pub(super) struct Repeatable {
    /// The number of its plan, and the plan's key.
    number: u64,
    key: Vec<u8>,
    inputs: Vec<(DType, Vec<usize>)>,
}

impl Runner {
    /// The number by which [`Runner::again`] may repeat the run that ended last: its plan is one stage of little work that
    /// reads the inputs, not their values, and gives the model's declared outputs.
    pub fn repeatable(&self) -> Option<u64> {
        self.repeatable.as_ref().map(|r| r.number)
    }

    /// The dtypes and shapes of the inputs of that run, in its order; `None` if another kind of run ended since.
    pub fn repeatable_inputs(&self, number: u64) -> Option<&[(DType, Vec<usize>)]> {
        self.repeatable.as_ref().filter(|r| r.number == number).map(|r| &r.inputs[..])
    }

    /// Notes whether the run that ends with these outputs may be repeated.
    pub(super) fn note_repeatable(&mut self, engine: &Engine, run: &Run, number: u64, outputs: &[String]) {
        if self.repeatable() == Some(number) {
            return;
        }
        let input = |(_, feed): &(String, Feed)| match feed {
            Feed::Tensor(t) => Some((t.dtype(), t.shape())),
            Feed::Known(_) => None,
        };
        let one_stage = run.answers.is_empty() && run.chosen.is_none() && run.random.is_none();
        let declared = outputs.iter().eq(self.model().outputs().iter().map(|p| &p.name));
        let replay = self.ready.get(&run.key).and_then(|ready| ready.replay.as_ref());
        let little = replay.is_some_and(|r| engine.has(r) && engine.work(r) <= SHORT_WORK);
        let inputs = run.feeds.iter().map(input).collect::<Option<Vec<_>>>();
        self.repeatable = inputs.filter(|_| one_stage && declared && little).map(|inputs| Repeatable {
            number,
            key: run.key.clone(),
            inputs,
        });
    }

    /// Repeats the run of this number with other inputs, given in its order. `None` if these inputs or the state of the
    /// engine need the long way; nothing has happened then.
    pub fn again(&mut self, engine: &mut Engine, number: u64, inputs: Vec<Again>) -> Result<Option<Vec<Tensor>>> {
        let Some(last) = self.repeatable.as_ref().filter(|r| r.number == number) else { return Ok(None) };
        let Some(ready) = self.ready.get(&last.key).filter(|r| r.number == number) else { return Ok(None) };
        let Some(replay) = ready.replay.as_ref().filter(|r| engine.has(r)) else { return Ok(None) };
        if inputs.len() != last.inputs.len() || !engine.ready()? {
            return Ok(None);
        }
        let mut given: Vec<Given> = Vec::with_capacity(inputs.len());
        for (input, (dtype, shape)) in inputs.into_iter().zip(&last.inputs) {
            let tensor = match input {
                Again::Data(data) if data.len() == shape.iter().product::<usize>() * dtype.size() => {
                    Tensor::from_bytes(&self.session, *dtype, shape, Bytes::new(data))?
                }
                Again::Tensor(t) if t.dtype() == *dtype && t.shape() == *shape => {
                    let others = given.iter().filter_map(|g| g.tensor.as_ref());
                    if !self.owns_alone(&t, others) {
                        return Ok(None);
                    }
                    t
                }
                _ => return Ok(None),
            };
            given.push(Given { tensor: Some(tensor), small: None });
        }
        let swap = swaps(&ready.inputs, &given);
        let nodes = engine.replay(&mut self.session.state(), replay, &swap)?;
        let values = values_of(ready, &self.session, nodes, &given)?;
        let mut state = self.session.state();
        if state.wants_compaction() || state.wants_memory() {
            engine.collect(&mut state);
        }
        drop(state);
        Ok(Some(values))
    }
}
