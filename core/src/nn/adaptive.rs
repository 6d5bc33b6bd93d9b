//! The adaptive softmax (Grave et al. 2017) for many classes: one softmax over the frequent classes and clusters of
//! rarer ones; each cluster has a softmax of its own, on a narrower projection of the input. Named as torch's
//! `AdaptiveLogSoftmaxWithLoss`.

use super::{Linear, Module, Role, join};
use crate::tensor::{Session, Tensor};
use crate::{Error, Result};

/// The log-probabilities of many classes, which are numbered by falling frequency.
pub struct AdaptiveLogSoftmax {
    /// The map to the frequent classes, followed by one output for each cluster.
    pub head: Linear,
    /// For each cluster the projection of the input, and the map to its classes.
    pub tail: Vec<[Linear; 2]>,
    /// The first class of each cluster, followed by the number of classes.
    cutoffs: Vec<usize>,
}

impl AdaptiveLogSoftmax {
    /// `cutoffs` are the first classes of the clusters, ascending and below `classes`. The projection of cluster `i`
    /// has `inputs / divide^(i + 1)` features. `Error::Value` for other cutoffs, or a `divide` below 1.
    pub fn new(
        s: &Session,
        inputs: usize,
        classes: usize,
        cutoffs: &[usize],
        divide: f64,
    ) -> Result<AdaptiveLogSoftmax> {
        let mut ends = cutoffs.to_vec();
        ends.push(classes);
        if cutoffs.is_empty() || cutoffs[0] == 0 || ends.windows(2).any(|w| w[0] >= w[1]) || divide < 1.0 {
            return Err(Error::value(
                "adaptive_softmax",
                format!("cutoffs {cutoffs:?} of {classes}, division {divide}"),
            ));
        }
        let cluster = |i: usize| -> Result<[Linear; 2]> {
            let width = ((inputs as f64 / divide.powi(i as i32 + 1)) as usize).max(1);
            let classes = ends[i + 1] - ends[i];
            Ok([Linear::new(s, inputs, width)?.without_bias(), Linear::new(s, width, classes)?.without_bias()])
        };
        let tail = (0..cutoffs.len()).map(cluster).collect::<Result<Vec<_>>>()?;
        let head = Linear::new(s, inputs, cutoffs[0] + cutoffs.len())?.without_bias();
        Ok(AdaptiveLogSoftmax { head, tail, cutoffs: ends })
    }

    /// The log-probabilities of all classes: `[.., inputs] -> [.., classes]`.
    pub fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let head = self.head.forward(x)?.log_softmax(-1)?;
        let first = self.cutoffs[0];
        let mut parts = vec![head.narrow(-1, 0, first)?];
        for (i, [narrow, classes]) in self.tail.iter().enumerate() {
            let own = classes.forward(&narrow.forward(x)?)?.log_softmax(-1)?;
            parts.push(own.add(head.narrow(-1, first + i, 1)?)?);
        }
        Tensor::cat(&parts.iter().collect::<Vec<_>>(), -1)
    }

    /// The log-probability of each target, `[..]`, and the mean loss (a scalar), for `x` `[.., inputs]` and integer
    /// targets `[..]`.
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor)> {
        let picked = self.log_prob(x)?.gather(-1, &target.unsqueeze(-1)?)?.squeeze(-1)?;
        let loss = picked.mean(&[], false)?.neg()?;
        Ok((picked, loss))
    }
}

impl Module for AdaptiveLogSoftmax {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.head.visit(&join(prefix, "head"), f);
        for (i, pair) in self.tail.iter().enumerate() {
            for (j, part) in pair.iter().enumerate() {
                part.visit(&join(prefix, &format!("tail.{i}.{j}")), f);
            }
        }
    }
}
