//! Tables of vectors that are looked up by index: one by one, or reduced over bags of indices.

use super::{Layer, Mode, Module, Role, each};
use crate::tensor::{Session, Tensor};
use crate::{DType, Error, Result};

/// A table of vectors, looked up by index.
pub struct Embedding {
    /// The vectors, `[vocabulary, width]`.
    pub weight: Tensor,
    /// A row that gets no gradient.
    pub padding: Option<usize>,
}

impl Embedding {
    /// A table of normally distributed vectors.
    pub fn new(session: &Session, vocabulary: usize, width: usize) -> Result<Embedding> {
        Ok(Embedding { weight: Tensor::randn(session, &[vocabulary, width])?.to_storage()?, padding: None })
    }

    /// This table with a row set to zeros, which training leaves unchanged. `Error::Value` for a row outside the table.
    pub fn padding(mut self, row: usize) -> Result<Embedding> {
        let is_row = row_is(&self.weight, row)?;
        self.weight = is_row.select(0, &self.weight)?.to_storage()?;
        self.padding = Some(row);
        Ok(self)
    }

    /// Looks up integers: `[..] -> [.., width]`; an index out of range gives zeros.
    pub fn forward(&self, index: &Tensor) -> Result<Tensor> {
        let y = self.weight.embedding(index)?;
        match self.padding {
            None => Ok(y),
            Some(row) => index.eq(row)?.unsqueeze(-1)?.select(y.detach(), y),
        }
    }
}

/// Bool `[rows, 1]` that is true for one row of a table.
fn row_is(weight: &Tensor, row: usize) -> Result<Tensor> {
    let rows = weight.dim(0)?;
    if row >= rows {
        return Err(Error::value("embedding", format!("padding row {row} of {rows}")));
    }
    Tensor::iota(weight.session(), rows)?.eq(row)?.unsqueeze(-1)
}

impl Module for Embedding {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", Some(&self.weight))]);
    }
}

impl Layer for Embedding {
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}

/// How the vectors of a bag are reduced to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bag {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// Their elementwise maximum.
    Max,
}

/// A table of vectors whose lookups are reduced over bags of indices, to one vector for each bag. Empty bags give
/// zeros.
pub struct EmbeddingBag {
    /// The vectors, `[vocabulary, width]`.
    pub weight: Tensor,
    /// How the vectors of a bag are reduced.
    pub mode: Bag,
    /// A row that is left out of the reduction.
    pub padding: Option<usize>,
}

impl EmbeddingBag {
    /// A table of normally distributed vectors.
    pub fn new(session: &Session, vocabulary: usize, width: usize, mode: Bag) -> Result<EmbeddingBag> {
        Ok(EmbeddingBag { weight: Tensor::randn(session, &[vocabulary, width])?.to_storage()?, mode, padding: None })
    }

    /// Integers `[bags, n] -> [bags, width]`. `factors` `[bags, n]` multiply the vectors; `Error::Value` unless bags
    /// are summed.
    pub fn forward(&self, index: &Tensor, factors: Option<&Tensor>) -> Result<Tensor> {
        index.want_rank("embedding_bag", 2)?;
        let member = Tensor::full(index.session(), true, DType::Bool, &index.shape())?;
        self.bags(self.weight.embedding(index)?, index, member, factors)
    }

    /// Integers `[n]`, and the index where each bag begins, `[bags]` (ascending, the first is 0), give `[bags, width]`.
    /// `factors` `[n]` as for [`EmbeddingBag::forward`].
    pub fn forward_offsets(&self, index: &Tensor, offsets: &Tensor, factors: Option<&Tensor>) -> Result<Tensor> {
        let n = index.want_rank("embedding_bag", 1)?[0];
        let bags = offsets.want_rank("embedding_bag", 1)?[0];
        let place = Tensor::iota(index.session(), n)?.unsqueeze(0)?.expand(&[bags, n])?;
        let first = offsets.cast(DType::I32)?.unsqueeze(1)?;
        let next = first.slice(&[crate::tensor::Slice::step(Some(1), None, 1)])?;
        let end = Tensor::full(index.session(), n as i32, DType::I32, &[bags.min(1), 1])?;
        let next = Tensor::cat(&[&next, &end], 0)?;
        let member = place.ge(first)?.logical_and(place.lt(next)?)?;
        let index = index.unsqueeze(0)?.expand(&[bags, n])?;
        let factors = factors.map(|f| f.unsqueeze(0)?.expand(&[bags, n])).transpose()?;
        self.bags(self.weight.embedding(&index)?, &index, member, factors.as_ref())
    }

    /// Reduces vectors `[bags, n, width]` over those that `member` `[bags, n]` (bool) says belong to the bag.
    fn bags(&self, vectors: Tensor, index: &Tensor, member: Tensor, factors: Option<&Tensor>) -> Result<Tensor> {
        let member = match self.padding {
            Some(row) => member.logical_and(index.ne(row)?)?,
            None => member,
        };
        let vectors = match (factors, self.mode) {
            (None, _) => vectors,
            (Some(f), Bag::Sum) => vectors.mul(f.unsqueeze(-1)?)?,
            (Some(_), _) => return Err(Error::value("embedding_bag", "factors are for sums")),
        };
        let counted = member.unsqueeze(-1)?;
        let count = member.cast(vectors.dtype())?.sum(&[1], false)?.unsqueeze(-1)?;
        match self.mode {
            Bag::Sum => counted.select(vectors, 0)?.sum(&[1], false),
            Bag::Mean => counted.select(vectors, 0)?.sum(&[1], false)?.div(count.maximum(1)?),
            Bag::Max => {
                let most = counted.select(vectors, f64::NEG_INFINITY)?.max(&[1], false)?;
                count.gt(0)?.select(most, 0)
            }
        }
    }
}

impl Module for EmbeddingBag {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", Some(&self.weight))]);
    }
}
