//! Recurrences: a step, written with tensor methods, that is computed once for each element of some sequences.

use super::{Session, Tensor, check_repetitions};
use crate::uop::recurrence::{Recurrence, held};
use crate::uop::{Arg, Graph, Op, UOp};
use crate::{Error, Result};
use rustc_hash::FxHashMap;

/// The operation named in errors.
const OP: &str = "recurrence";

/// The values of a state of [`Tensor::recurrence`].
#[derive(Clone, Debug)]
pub struct States {
    /// After each step, `[n, ..]`.
    pub after: Tensor,
    /// After the last step, `[..]`; the initial value if there are no steps.
    pub last: Tensor,
}

impl Tensor {
    /// Computes the next states from the present ones, once for each index along axis 0 of the `sequences`, which all
    /// have the same number n of elements there. `step` receives the states and the elements of the sequences, without
    /// that axis, and returns as many next states, of the shapes and dtype of the initial ones. Returns the values of
    /// each state.
    ///
    /// Whatever else the step reads is the same in every step. The step is part of the graph once, however many steps
    /// there are, and where a processor computes one thread's steps faster than it launches kernels for them, all steps
    /// are a single kernel.
    ///
    /// # Errors
    /// `E_VALUE` for no states or no sequences, for another number of next states, and for a step with an operation
    /// other than elementwise ones, movement and reductions; `E_SHAPE` and `E_DTYPE` where states or sequences do not
    /// fit; and the errors of `step`.
    pub fn recurrence(
        initial: &[&Tensor],
        sequences: &[&Tensor],
        step: impl FnOnce(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<Vec<States>> {
        let (Some(&first), Some(&lead)) = (initial.first(), sequences.first()) else {
            return Err(Error::value(OP, "there are no states or no sequences"));
        };
        let (session, dtype, shape) = (first.session(), first.dtype(), first.shape());
        let steps = lead.dim(0)?;
        check_repetitions(OP, steps)?;
        for x in initial.iter().chain(sequences) {
            Tensor::same_session(OP, first, x)?;
        }
        if let Some(x) = initial.iter().find(|x| x.shape() != shape) {
            return Err(Error::Shape { op: OP, lhs: x.shape(), rhs: shape });
        }
        if let Some(x) = initial.iter().find(|x| x.dtype() != dtype) {
            return Err(Error::DType { op: OP, dtype: x.dtype(), why: format!("another state is {dtype}") });
        }
        if let Some(x) = sequences.iter().find(|x| x.rank() == 0 || x.shape()[0] != steps) {
            return Err(Error::Shape { op: OP, lhs: x.shape(), rhs: lead.shape() });
        }
        let place = |dtype, shape: &[usize]| Tensor::over_buffer(session, dtype, shape, None);
        let states: Vec<Tensor> = initial.iter().map(|_| place(dtype, &shape)).collect();
        let elements: Vec<Tensor> = sequences.iter().map(|x| place(x.dtype(), &x.shape()[1..])).collect();
        let next = step(&states, &elements)?;
        if next.len() != initial.len() {
            return Err(Error::value(OP, format!("a step gives {} next states for {}", next.len(), initial.len())));
        }
        for x in &next {
            if x.shape() != shape {
                return Err(Error::Shape { op: OP, lhs: x.shape(), rhs: shape });
            }
            if x.dtype() != dtype {
                return Err(Error::DType { op: OP, dtype: x.dtype(), why: format!("the states are {dtype}") });
            }
            Tensor::same_session(OP, first, x)?;
        }
        if first.numel() == 0 || steps == 0 {
            let mut whole = shape.clone();
            whole.insert(0, steps);
            let each = |x: &&Tensor| {
                let after = Tensor::zeros(session, dtype, &whole)?;
                Ok(States { after, last: (*x).clone() })
            };
            return initial.iter().map(each).collect();
        }
        let (body, constants) = body(session, states.iter().chain(&elements), &next);
        let all = Recurrence::new(steps, initial.len(), sequences.len(), body.0, &body.1)?;
        let rows: Vec<Tensor> = sequences.iter().map(|x| x.in_memory_as_is()).collect();
        let mut s = session.state();
        let mut src: Vec<UOp> = initial.iter().map(|x| s.node(x.root())).collect();
        src.extend(rows.iter().map(|x| s.node(x.root())));
        src.extend(constants);
        let node = s.graph.node(Op::Recurrence, dtype, &src, Arg::Recurrence(Box::new(all)));
        drop(s);
        let whole = Tensor::from_node(session, node);
        // each is one slice of the whole: where the steps are unrolled, only what is sliced is joined
        let part = |state: usize, from: usize| {
            let mut pairs: Vec<(usize, usize)> = whole.shape().iter().map(|&n| (0, n)).collect();
            (pairs[0], pairs[1]) = ((state, state + 1), (from, steps + 1));
            whole.map(|g, u| g.shrink(u, &pairs))
        };
        let mut all = shape.clone();
        all.insert(0, steps);
        let each = |i: usize| Ok(States { after: part(i, 1).reshape(&all)?, last: part(i, steps).reshape(&shape)? });
        (0..initial.len()).map(each).collect()
    }

    /// The tensor in memory, in its shape.
    fn in_memory_as_is(&self) -> Tensor {
        self.map(|g, u| materialised(g, u))
    }
}

/// The value in memory, row-major and whole: a copy to be stored where it is not.
fn materialised(g: &mut Graph, u: UOp) -> UOp {
    match g.op(held(g, u)) {
        Op::Buffer | Op::Contiguous | Op::After => u,
        _ => g.node(Op::Contiguous, g.dtype(u), &[u], Arg::None),
    }
}

/// The graph of a step with its results, in which the `places` and then what else the step reads are parameters; and
/// the nodes of the session that the latter stand for.
fn body<'a>(
    session: &Session,
    places: impl Iterator<Item = &'a Tensor>,
    next: &[Tensor],
) -> ((Graph, Vec<UOp>), Vec<UOp>) {
    let mut s = session.state();
    let mut slots: FxHashMap<UOp, u32> = FxHashMap::default();
    for (slot, x) in (0u32..).zip(places) {
        slots.insert(held(&s.graph, s.node(x.root())), slot);
    }
    let roots: Vec<UOp> = next.iter().map(|x| s.node(x.root())).collect();
    let g = &mut s.graph;
    let nodes = g.value_nodes(&roots);
    let mut inside = vec![false; g.len()];
    for &u in &nodes {
        inside[u.0 as usize] = slots.contains_key(&u) || g.value_src(u).iter().any(|s| inside[s.0 as usize]);
    }
    // what steps read and do not change: views of it stay in the step, and so do numbers
    let mut constants: Vec<UOp> = Vec::new();
    let n_places = slots.len() as u32;
    let mut body = Graph::new();
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut keep: Vec<UOp> = roots.clone();
    let mut wanted = vec![false; g.len()];
    while let Some(u) = keep.pop() {
        if std::mem::replace(&mut wanted[u.0 as usize], true) {
            continue;
        }
        if inside[u.0 as usize] && !slots.contains_key(&u) || g.op(u).is_movement() || is_marker(g, u, &inside) {
            keep.extend_from_slice(g.value_src(u));
        }
    }
    for u in nodes.into_iter().filter(|u| wanted[u.0 as usize]) {
        let made = match slots.get(&u) {
            Some(&slot) => body.param(slot, g.dtype(u), g.memory_len(u)),
            None if is_marker(g, u, &inside) => image[&g.src_at(u, 0)],
            None if inside[u.0 as usize] || g.op(u).is_movement() || matches!(g.op(u), Op::Const | Op::Iota) => {
                let src: Vec<UOp> = g.src(u).iter().map(|s| image[s]).collect();
                body.node(g.op(u), g.dtype(u), &src, g.arg(u).clone())
            }
            None => {
                let slot = n_places + constants.len() as u32;
                constants.push(u);
                let row = body.param(slot, g.dtype(u), g.memory_len(u));
                let shape = g.shape(u).clone();
                body.reshape(row, &shape)
            }
        };
        image.insert(u, made);
    }
    let next = roots.iter().map(|r| image[r]).collect();
    let constants = constants.into_iter().map(|u| materialised(g, u)).collect();
    ((body, next), constants)
}

/// Does the op mark a value, in a way that means nothing inside a step, and not change it?
fn is_marker(g: &Graph, u: UOp, inside: &[bool]) -> bool {
    g.op(u) == Op::Detach || g.op(u) == Op::Contiguous && inside[u.0 as usize]
}
