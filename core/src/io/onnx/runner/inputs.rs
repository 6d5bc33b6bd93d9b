//! Inputs of runs: in come values of the host and tensors that are computed already; out come tensors that plans read, and the key of the
//! plan for them.

use super::super::build::Feed;
use super::lengths::by_values;
use super::{Given, Input, Inputs, Runner, SMALL, sign};
use crate::engine::Bytes;
use crate::error::Result;
use crate::tensor::Tensor;

impl Runner {
    /// A tensor as the input `name` beside `others`, if a run can use it where it is. Else a run takes its values: of an
    /// input that shapes depend on, of what is not computed yet, and of a buffer that a plan would find twice, as another
    /// input or as a constant. What is assigned to the tensor from now on does not reach the input.
    pub fn take(&self, name: &str, t: &Tensor, others: &[(&str, Input)]) -> Option<Input> {
        let fits = self.fits(name, t, others);
        fits.then(|| Input::Tensor(Tensor::from_node(&self.session, t.node())))
    }

    fn fits(&self, name: &str, t: &Tensor, others: &[(&str, Input)]) -> bool {
        if self.is_value(name) || !t.session().is(&self.session) {
            return false;
        }
        let any = self.way.and_then(|way| (way.takes)(self, name, t, others));
        any.unwrap_or_else(|| self.is_whole(name, t, others))
    }

    fn is_whole(&self, name: &str, t: &Tensor, others: &[(&str, Input)]) -> bool {
        if self.is_value(name) || !t.session().is(&self.session) {
            return false;
        }
        let Some(id) = t.buffer() else { return false };
        let own = self.session.state().buffer(id).is_some_and(|b| !b.constant);
        let same = |i: &Input| matches!(i, Input::Tensor(t) if t.buffer() == Some(id));
        own && !others.iter().any(|(_, i)| same(i))
    }

    /// Which of these tensors a run must have by their values after all, now that all of its inputs are known: those without the room of
    /// the plan for these lengths, and beginnings of buffers where there is no such plan.
    pub fn unfit(&self, inputs: &[(&str, Input)]) -> Result<Vec<usize>> {
        self.way.map_or(Ok(Vec::new()), |way| (way.unfit)(self, inputs))
    }

    /// Makes tensors of inputs, for any number of runs. A tensor that [`Runner::take`] would not give is an error that names
    /// the input.
    pub fn inputs(&self, inputs: Vec<(&str, Input)>) -> Result<Inputs> {
        if let Some(way) = self.way
            && let Some(chosen) = (way.chosen)(self, &inputs)?
        {
            return (way.inputs)(self, inputs, chosen);
        }
        self.inputs_of_one_length(inputs)
    }

    fn inputs_of_one_length(&self, inputs: Vec<(&str, Input)>) -> Result<Inputs> {
        let mut out = Inputs { key: vec![], names: vec![], feeds: vec![], given: vec![], chosen: None };
        let mut rest = inputs.into_iter();
        while let Some((name, input)) = rest.next() {
            let value = self.is_value(name);
            let (feed, given) = match input {
                Input::Host(t) => {
                    sign(&mut out.key, name, t.dtype, &t.shape, value.then_some(&t.data[..]));
                    let small = (t.len() <= SMALL).then(|| t.clone());
                    if value {
                        (Feed::Known(t), Given { tensor: None, small })
                    } else {
                        let t = Tensor::from_bytes(&self.session, t.dtype, &t.shape, Bytes::new(t.data))?;
                        (Feed::Tensor(t.clone()), Given { tensor: Some(t), small })
                    }
                }
                Input::Tensor(t) => {
                    if !self.is_whole(name, &t, rest.as_slice()) {
                        return Err(by_values(name));
                    }
                    sign(&mut out.key, name, t.dtype(), &t.shape(), None);
                    (Feed::Tensor(t.clone()), Given { tensor: Some(t), small: None })
                }
            };
            out.names.push(name.to_string());
            out.feeds.push(feed);
            out.given.push(given);
        }
        Ok(out)
    }
}
