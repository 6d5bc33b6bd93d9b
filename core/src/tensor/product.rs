//! Products of tensors over chosen axes: einsum, tensordot, Kronecker products, chains of matrices, cross products,
//! pairwise distances.

use super::{Tensor, check_axis};
use crate::util::sort;
use crate::{Error, Result};

impl Tensor {
    /// Einstein summation, for example `"bij,bjk->bik"`. Letters name axes, and those missing from the result are
    /// summed. A letter that occurs twice in one operand takes its diagonal. `...` stands for axes that broadcast.
    /// Without `->` the result has the broadcast axes, then the letters that occur once, in alphabetical order.
    /// Operands are combined from left to right, and each letter is summed as soon as nothing after it needs it.
    /// `Error::Value` for an equation that does not parse or fit the operands.
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
        let bad = |what: &str| Error::value("einsum", format!("`{equation}`: {what}"));
        let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, output) = match text.split_once("->") {
            Some((i, o)) => (i.to_string(), Some(o.to_string())),
            None => (text.clone(), None),
        };
        let terms: Vec<&str> = inputs.split(',').collect();
        if terms.len() != operands.len() || operands.is_empty() {
            return Err(bad(&format!("{} terms for {} operands", terms.len(), operands.len())));
        }
        // axes as numbers: a letter is its character code; broadcast axes are -1, -2, .. from the last one
        let parse = |term: &str, rank: Option<usize>, dots: usize| -> Result<Vec<i32>> {
            let (before, after) = match term.split_once("...") {
                Some((a, b)) => (a, Some(b)),
                None => (term, None),
            };
            let letters = |s: &str| -> Result<Vec<i32>> {
                let ok = s.chars().all(|c| c.is_ascii_alphabetic());
                if ok { Ok(s.chars().map(|c| c as i32).collect()) } else { Err(bad("axes are letters")) }
            };
            let mut axes = letters(before)?;
            if let Some(after) = after {
                let tail = letters(after)?;
                let n = match rank {
                    Some(r) => r.checked_sub(axes.len() + tail.len()).ok_or_else(|| bad("too many letters"))?,
                    None => dots,
                };
                axes.extend((1..=n as i32).rev().map(|i| -i));
                axes.extend(tail);
            }
            match rank {
                Some(r) if r != axes.len() => Err(bad(&format!("`{term}` does not name {r} axes"))),
                _ => Ok(axes),
            }
        };
        let mut labels = Vec::new();
        for (term, t) in terms.iter().zip(operands) {
            labels.push(parse(term, Some(t.rank()), 0)?);
        }
        let dots = labels.iter().flatten().filter(|&&l| l < 0).map(|&l| -l as usize).max().unwrap_or(0);
        let out = match &output {
            Some(o) => parse(o, None, dots)?,
            None => {
                let all: Vec<i32> = labels.iter().flatten().copied().collect();
                let mut once: Vec<i32> =
                    all.iter().copied().filter(|l| *l > 0 && all.iter().filter(|m| *m == l).count() == 1).collect();
                sort::ascending(&mut once);
                (1..=dots as i32).rev().map(|i| -i).chain(once).collect()
            }
        };
        if (0..out.len()).any(|i| out[..i].contains(&out[i])) {
            return Err(bad("the result names an axis twice"));
        }
        if let Some(l) = out.iter().find(|l| **l > 0 && !labels.iter().any(|x| x.contains(l))) {
            return Err(bad(&format!("no operand has the axis `{}`", *l as u8 as char)));
        }
        let mut parts: Vec<(Tensor, Vec<i32>)> = Vec::new();
        for (t, l) in operands.iter().zip(labels) {
            parts.push(t.take_diagonals(l)?);
        }
        let mut joined = parts.remove(0);
        loop {
            let needed = |l: i32| out.contains(&l) || parts.iter().any(|p| p.1.contains(&l));
            let Some((next, next_labels)) = parts.first().cloned() else {
                let gone: Vec<i64> = (0..joined.1.len()).filter(|&i| !needed(joined.1[i])).map(|i| i as i64).collect();
                let mut t = joined.0;
                if !gone.is_empty() {
                    t = t.sum(&gone, false)?;
                    joined.1.retain(|&l| out.contains(&l));
                }
                // the remaining axes in the order of the result
                let order: Option<Vec<i64>> =
                    out.iter().map(|l| joined.1.iter().position(|m| m == l).map(|p| p as i64)).collect();
                return t.permute(&order.ok_or_else(|| bad("an axis of the result is missing"))?);
            };
            let rest = &parts[1..];
            let later = |l: i32| out.contains(&l) || rest.iter().any(|p| p.1.contains(&l));
            joined = Tensor::einsum_pair(joined, (next, next_labels), &later)?;
            parts.remove(0);
        }
    }

    /// Takes the diagonal where a label occurs twice, which becomes one last axis.
    fn take_diagonals(&self, mut labels: Vec<i32>) -> Result<(Tensor, Vec<i32>)> {
        let mut t = self.clone();
        while let Some((i, j)) = (0..labels.len())
            .flat_map(|i| (i + 1..labels.len()).map(move |j| (i, j)))
            .find(|&(i, j)| labels[i] == labels[j])
        {
            let shape = t.shape();
            if shape[i] != shape[j] {
                return Err(Error::value("einsum", format!("one letter names axes of {} and {}", shape[i], shape[j])));
            }
            t = t.diagonal_of(0, i as i64, j as i64)?;
            let label = labels[i];
            labels.remove(j);
            labels.remove(i);
            labels.push(label);
        }
        Ok((t, labels))
    }

    /// The product of two labelled tensors, summed over the labels that `later` does not need.
    fn einsum_pair(
        (a, la): (Tensor, Vec<i32>),
        (b, lb): (Tensor, Vec<i32>),
        later: &dyn Fn(i32) -> bool,
    ) -> Result<(Tensor, Vec<i32>)> {
        let mut all = la.clone();
        all.extend(lb.iter().filter(|l| !la.contains(l)));
        let aligned = |t: &Tensor, l: &[i32]| -> Result<Tensor> {
            let order: Vec<i64> = all.iter().filter_map(|x| l.iter().position(|y| y == x)).map(|p| p as i64).collect();
            let shape = t.shape();
            let wide: Vec<usize> = all.iter().map(|x| l.iter().position(|y| y == x).map_or(1, |p| shape[p])).collect();
            t.permute(&order)?.reshape(&wide)
        };
        let dtype = a.dtype().promote(b.dtype());
        let product = aligned(&a.cast(dtype)?, &la)?.mul(aligned(&b.cast(dtype)?, &lb)?)?;
        let gone: Vec<i64> = (0..all.len()).filter(|&i| !later(all[i])).map(|i| i as i64).collect();
        all.retain(|&l| later(l));
        Ok((if gone.is_empty() { product } else { product.sum(&gone, false)? }, all))
    }

    /// The product of two tensors summed over pairs of axes; the result has the remaining axes of `a`, then those of
    /// `b`. In a pair, a size of 1 broadcasts. `Error::Shape` where sizes differ otherwise.
    pub fn tensordot(a: &Tensor, b: &Tensor, axes_a: &[i64], axes_b: &[i64]) -> Result<Tensor> {
        let misfit = || Error::Shape { op: "tensordot", lhs: a.shape(), rhs: b.shape() };
        if axes_a.len() != axes_b.len() {
            return Err(misfit());
        }
        let of =
            |t: &Tensor, l: &[i64]| l.iter().map(|&x| check_axis("tensordot", x, t.rank())).collect::<Result<Vec<_>>>();
        let (xa, xb) = (of(a, axes_a)?, of(b, axes_b)?);
        let (sa, sb) = (a.shape(), b.shape());
        if xa.iter().zip(&xb).any(|(&i, &j)| sa[i] != sb[j] && sa[i] != 1 && sb[j] != 1) {
            return Err(misfit());
        }
        if xa.iter().zip(&xb).any(|(&i, &j)| sa[i] != sb[j]) {
            // sizes of 1 broadcast, as torch
            let grown = |s: &[usize], own: &[usize], o: &[usize], other: &[usize]| {
                let mut s = s.to_vec();
                own.iter().zip(other).for_each(|(&i, &j)| s[i] = s[i].max(o[j]));
                s
            };
            let (ga, gb) = (grown(&sa, &xa, &sb, &xb), grown(&sb, &xb, &sa, &xa));
            return Tensor::tensordot(&a.expand(&ga)?, &b.expand(&gb)?, axes_a, axes_b);
        }
        let k: usize = xa.iter().map(|&i| sa[i]).product();
        let free = |n: usize, used: &[usize]| (0..n).filter(|i| !used.contains(i)).collect::<Vec<_>>();
        let (fa, fb) = (free(sa.len(), &xa), free(sb.len(), &xb));
        let order = |x: &[usize], y: &[usize]| x.iter().chain(y).map(|&i| i as i64).collect::<Vec<_>>();
        let rows: usize = fa.iter().map(|&i| sa[i]).product();
        let cols: usize = fb.iter().map(|&i| sb[i]).product();
        let left = a.permute(&order(&fa, &xa))?.reshape(&[rows, k])?;
        let right = b.permute(&order(&xb, &fb))?.reshape(&[k, cols])?;
        let shape: Vec<usize> = fa.iter().map(|&i| sa[i]).chain(fb.iter().map(|&i| sb[i])).collect();
        left.matmul(&right)?.reshape(&shape)
    }

    /// The Kronecker product: a block matrix of `other` times each element of `self`; each axis has the product of the
    /// sizes.
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let full = |t: &Tensor| {
            let mut s = vec![1; rank - t.rank()];
            s.extend(t.shape());
            s
        };
        let (a, b) = (full(self), full(other));
        let (mut sa, mut sb, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for (&n, &m) in a.iter().zip(&b) {
            sa.extend([n, 1]);
            sb.extend([1, m]);
            out.push(n * m);
        }
        self.reshape(&sa)?.mul(other.reshape(&sb)?)?.reshape(&out)
    }

    /// The product of a chain of matrices, in the order with the fewest multiplications; the first and the last may be
    /// vectors. `Error::Value` for an empty chain.
    pub fn multi_dot(chain: &[Tensor]) -> Result<Tensor> {
        let (Some(first), Some(last)) = (chain.first(), chain.last()) else {
            return Err(Error::value("multi_dot", "there are no matrices"));
        };
        if let [one] = chain {
            return Ok(one.clone());
        }
        let mut ms = chain.to_vec();
        let n = ms.len();
        if first.rank() == 1 {
            ms[0] = first.unsqueeze(0)?;
        }
        if last.rank() == 1 {
            ms[n - 1] = last.unsqueeze(1)?;
        }
        let mut sizes = vec![ms[0].want_rank("multi_dot", 2)?[0]];
        for m in &ms {
            sizes.push(m.want_rank("multi_dot", 2)?[1]);
        }
        // the classical dynamic programming: cost[i][j] is the least cost of the product of matrices i to j
        let mut cost = vec![vec![0u128; n]; n];
        let mut cut = vec![vec![0; n]; n];
        for len in 1..n {
            for i in 0..n - len {
                let j = i + len;
                let at = |k: usize| cost[i][k] + cost[k + 1][j] + (sizes[i] * sizes[k + 1] * sizes[j + 1]) as u128;
                let k = (i..j).min_by_key(|&k| at(k)).expect("a chain has a cut");
                (cost[i][j], cut[i][j]) = (at(k), k);
            }
        }
        let mut done: Vec<Vec<Option<Tensor>>> = vec![vec![None; n]; n];
        for (i, m) in ms.iter().enumerate() {
            done[i][i] = Some(m.clone());
        }
        for len in 1..n {
            for i in 0..n - len {
                let j = i + len;
                let k = cut[i][j];
                let (Some(a), Some(b)) = (done[i][k].clone(), done[k + 1][j].clone()) else { continue };
                done[i][j] = Some(a.matmul(&b)?);
            }
        }
        let mut out = done[0][n - 1].take().ok_or_else(|| Error::Internal("a chain has a product".into()))?;
        if last.rank() == 1 {
            out = out.squeeze(-1)?;
        }
        if first.rank() == 1 { out.squeeze(0) } else { Ok(out) }
    }

    /// The cross product of vectors of 3 elements along an axis. `Error::Value` for another size.
    pub fn cross(&self, other: &Tensor, axis: i64) -> Result<Tensor> {
        let (a, b) = self.broadcast_with(other)?;
        if a.dim(axis)? != 3 {
            return Err(Error::value("cross", format!("axis {axis} of {:?} is not of size 3", a.shape())));
        }
        let turned = |t: &Tensor, by: i64| t.roll(-by, axis);
        turned(&a, 1)?.mul(turned(&b, 2)?)?.sub(turned(&a, 2)?.mul(turned(&b, 1)?)?)
    }

    /// The p-norm distances between all pairs of rows: `[.., n, d]` and `[.., m, d]` give `[.., n, m]`.
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        if self.rank() < 2 || other.rank() < 2 || self.dim(-1)? != other.dim(-1)? {
            return Err(Error::Shape { op: "cdist", lhs: self.shape(), rhs: other.shape() });
        }
        self.unsqueeze(-2)?.sub(other.unsqueeze(-3)?)?.vector_norm(p, &[-1], false)
    }

    /// The p-norm distances between all pairs of rows `i < j` of a matrix `[n, d]`: `[n (n-1) / 2]`.
    pub fn pdist(&self, p: f64) -> Result<Tensor> {
        let n = self.want_rank("pdist", 2)?[0];
        let pairs = Tensor::triangle_indices(self.session(), n, n, 1, false)?;
        let row = |i: i64| self.index_select(0, &pairs.select_at(0, i)?);
        row(0)?.sub(row(1)?)?.vector_norm(p, &[-1], false)
    }

    /// The bilinear form `x1^T W_k x2 + b_k` for each output k: `[.., in1]` and `[.., in2]` with `weight`
    /// `[out, in1, in2]` and `bias` `[out]` give `[.., out]`.
    pub fn bilinear(&self, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let w = weight.want_rank("bilinear", 3)?;
        if self.shape().last() != Some(&w[1]) || other.shape().last() != Some(&w[2]) {
            return Err(Error::Shape { op: "bilinear", lhs: self.shape(), rhs: w });
        }
        // [.., out, in2]
        let left =
            self.matmul(&weight.transpose(0, 1)?.reshape(&[w[1], w[0] * w[2]])?)?.unflatten(-1, &[w[0], w[2]])?;
        let y = left.mul(other.unsqueeze(-2)?)?.sum(&[-1], false)?;
        match bias {
            Some(b) => y.add(b),
            None => Ok(y),
        }
    }
}
