//! Makes the inputs of runs. In: host data and tensors that are computed already. Out: tensors that plans read, and the
//! key by which the plan for them is found.

use super::super::build::Feed;
use super::lengths::must_be_host_data;
use super::{Given, Input, Inputs, MAX_HOST_COPY_ELEMS, Runner};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::Result;
use crate::tensor::Tensor;

impl Runner {
    pub(super) fn is_value(&self, name: &str) -> bool {
        self.model().inputs().iter().any(|p| p.name == name && p.is_value)
    }

    /// A computed tensor as the input `name` beside the inputs `others`, if a run can use its buffer without a copy.
    /// `None` if the caller must give its values instead: for an input whose value decides shapes, for a tensor that is
    /// not computed yet, and for a buffer that the plan would read twice, as another input or as a constant.
    /// Assignments to the tensor after this call do not reach the input.
    pub fn take(&self, name: &str, t: &Tensor, others: &[(&str, Input)]) -> Option<Input> {
        let fits = self.fits(name, t, others);
        fits.then(|| Input::Tensor(Tensor::from_node(&self.session, t.node())))
    }

    fn fits(&self, name: &str, t: &Tensor, others: &[(&str, Input)]) -> bool {
        if self.is_value(name) || !t.session().is(&self.session) {
            return false;
        }
        let any =
            self.length_support.and_then(|length_support| (length_support.usable_in_place)(self, name, t, others));
        any.unwrap_or_else(|| self.is_whole(name, t, others))
    }

    fn is_whole(&self, name: &str, t: &Tensor, others: &[(&str, Input)]) -> bool {
        let others = others.iter().filter_map(|(_, i)| match i {
            Input::Tensor(t) => Some(t),
            Input::Host(_) => None,
        });
        !self.is_value(name) && self.owns_alone(t, others)
    }

    /// Whether a tensor is computed and has a buffer of its own in the runner's session, which none of the others has.
    pub(super) fn owns_alone<'a>(&self, t: &Tensor, mut others: impl Iterator<Item = &'a Tensor>) -> bool {
        let Some(id) = t.buffer().filter(|_| t.session().is(&self.session)) else { return false };
        self.session.state().buffer(id).is_some_and(|b| !b.constant) && others.all(|o| o.buffer() != Some(id))
    }

    /// Indices of the inputs whose values the caller must give after all, known only when all inputs are: tensors whose
    /// buffers do not have the padded sizes of the plan for these lengths, and, where there is no such plan, tensors
    /// that are only the beginning of their buffer.
    pub fn unfit(&self, inputs: &[(&str, Input)]) -> Result<Vec<usize>> {
        self.length_support.map_or(Ok(Vec::new()), |length_support| (length_support.needs_host_data)(self, inputs))
    }

    /// Makes tensors from inputs, for any number of runs. A tensor that [`Runner::take`] would refuse is an error that
    /// names the input.
    pub fn inputs(&self, inputs: Vec<(&str, Input)>) -> Result<Inputs> {
        if let Some(length_support) = self.length_support
            && let Some(chosen) = (length_support.chosen)(self, &inputs)?
        {
            return (length_support.inputs)(self, inputs, chosen);
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
                    push_signature(&mut out.key, name, t.dtype, &t.shape, value.then_some(&t.data[..]));
                    let small = (t.len() <= MAX_HOST_COPY_ELEMS).then(|| t.clone());
                    if value {
                        (Feed::Known(t), Given { tensor: None, small })
                    } else {
                        let t = Tensor::from_bytes(&self.session, t.dtype, &t.shape, Bytes::new(t.data))?;
                        (Feed::Tensor(t.clone()), Given { tensor: Some(t), small })
                    }
                }
                Input::Tensor(t) => {
                    if !self.is_whole(name, &t, rest.as_slice()) {
                        return Err(must_be_host_data(name));
                    }
                    push_signature(&mut out.key, name, t.dtype(), &t.shape(), None);
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

pub(super) fn push_signature(key: &mut Vec<u8>, name: &str, dtype: DType, shape: &[usize], data: Option<&[u8]>) {
    key.extend_from_slice(name.as_bytes());
    key.push(0);
    push_shape_signature(key, dtype, shape);
    key.extend_from_slice(data.unwrap_or_default());
}

pub(super) fn push_shape_signature(key: &mut Vec<u8>, dtype: DType, shape: &[usize]) {
    key.push(dtype as u8);
    key.extend((shape.len() as u32).to_le_bytes());
    shape.iter().for_each(|n| key.extend((*n as u64).to_le_bytes()));
}
