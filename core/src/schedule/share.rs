//! Merges kernels that differ only in constant offsets of their addresses into one kernel, in which launch scalars take
//! the place of the offsets. The steps of an unrolled recurrence, for example, read one slice after the other of a
//! buffer, and each step would be compiled by itself otherwise.

use super::{Ast, Kernel};
use crate::DType;
use crate::uop::{Arg, Graph, Op, UOp, hash};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The fewest distinct kernels that are merged. In the merged kernel an unknown scalar replaces each constant, so it
/// simplifies less well than the kernels do by themselves.
const MIN_MEMBERS: usize = 4;
/// The largest power of two, in elements, that is factored out of the offsets as a known multiple. It tells code
/// generation how far addresses are aligned, and larger alignments make no difference.
const MAX_STEP: i64 = 64;

/// What replaces the constant part of an address.
#[derive(Clone, Copy)]
enum Offset {
    /// The constant itself, which is the same in all kernels.
    Constant(i64),
    /// `step` times launch scalar `scalar`, which is at most `max`.
    Scalar { scalar: usize, step: i64, max: i64 },
}

/// The name of a kernel's launch scalar; [`crate::tensor::Tensor::variable`] refuses such names.
pub fn scalar_name(i: usize) -> String {
    format!("@{i}")
}

/// The number in a name that [`scalar_name`] made.
pub fn scalar_number(name: &str) -> Option<usize> {
    name.strip_prefix('@')?.parse().ok()
}

/// Gives each group of kernels that differ only in offsets one graph, and each call the values of its scalars.
pub fn share(kernels: &mut [Kernel]) {
    let mut groups: FxHashMap<u128, Vec<(usize, Vec<i64>)>> = FxHashMap::default();
    for (i, k) in kernels.iter().enumerate() {
        let offsets: Vec<i64> = addresses(&k.ast).into_iter().map(|u| constant_part(&k.ast.g, u).1).collect();
        // conditions on needed iterations are a kernel's own, so a kernel that has any is not merged, and a kernel with
        // scalars has been merged already
        if !offsets.is_empty() && k.ast.live.is_empty() && k.scalars.is_empty() {
            let any: Vec<Offset> =
                (0..offsets.len()).map(|scalar| Offset::Scalar { scalar, step: 1, max: 0 }).collect();
            let open = with_offsets(&k.ast, &any);
            groups.entry(hash::key(&open.g, &[open.sink])).or_default().push((i, offsets));
        }
    }
    for members in groups.into_values() {
        let mut distinct: Vec<&Vec<i64>> = members.iter().map(|m| &m.1).collect();
        sort::ascending(&mut distinct);
        distinct.dedup();
        if distinct.len() < MIN_MEMBERS {
            continue;
        }
        // offsets that change by the same multiples share a scalar
        let mut scalars: Vec<Vec<i64>> = Vec::new();
        let column = |c: usize| members.iter().map(|m| m.1[c]).collect::<Vec<i64>>();
        let offsets: Vec<Offset> = (0..members[0].1.len())
            .map(|c| {
                let values = column(c);
                if values.iter().all(|v| *v == values[0]) {
                    return Offset::Constant(values[0]);
                }
                let changing = values.iter().filter(|v| **v > 0);
                let step = changing.fold(MAX_STEP, |step, v| step.min(v & v.wrapping_neg()));
                let values: Vec<i64> = values.iter().map(|v| v / step).collect();
                let max = values.iter().copied().max().unwrap_or(0);
                let scalar = scalars.iter().position(|s| *s == values).unwrap_or_else(|| {
                    scalars.push(values);
                    scalars.len() - 1
                });
                Offset::Scalar { scalar, step, max }
            })
            .collect();
        let common = with_offsets(&kernels[members[0].0].ast, &offsets);
        for (at, (kernel, _)) in members.iter().enumerate() {
            kernels[*kernel].ast = common.clone();
            kernels[*kernel].scalars = scalars.iter().map(|s| s[at] as i32).collect();
        }
    }
}

/// The addresses (Index nodes) of a kernel, in an order that depends on its structure alone: numbers of nodes do not
/// always agree in kernels that differ only in offsets.
fn addresses(ast: &Ast) -> Vec<UOp> {
    let (g, mut found, mut seen, mut stack) = (&ast.g, Vec::new(), vec![false; ast.g.len()], vec![ast.sink]);
    while let Some(u) = stack.pop() {
        if !std::mem::replace(&mut seen[u.0 as usize], true) {
            if g.op(u) == Op::Index && *g.arg(u) == Arg::None {
                found.push(u);
            }
            stack.extend(g.src(u).iter().rev());
        }
    }
    found
}

/// The parts of an address of the form `rest + c`, where `c` is not negative.
fn constant_part(g: &Graph, index: UOp) -> (UOp, i64) {
    let offset = g.src_at(index, 1);
    let c = if g.op(offset) == Op::Add { g.const_int(g.src_at(offset, 1)) } else { None };
    match c.filter(|c| (1..=i32::MAX as i64).contains(c)) {
        Some(c) => (g.src_at(offset, 0), c),
        None => (offset, 0),
    }
}

/// The kernel with the constant parts of its addresses replaced by `offsets`, in order.
fn with_offsets(ast: &Ast, offsets: &[Offset]) -> Ast {
    let (from, order, mut g) = (&ast.g, addresses(ast), Graph::new());
    let mut image: Vec<UOp> = Vec::with_capacity(from.len());
    for u in from.iter() {
        let mut src: SmallVec<[UOp; 4]> = from.src(u).iter().map(|s| image[s.0 as usize]).collect();
        if let Some(at) = order.iter().position(|&a| a == u) {
            let (offset, (rest, _)) = (offsets[at], constant_part(from, u));
            src[1] = image[rest.0 as usize];
            if !matches!(offset, Offset::Constant(0)) {
                let c = offset.node(&mut g, from.dtype(rest));
                src[1] = g.binary(Op::Add, src[1], c);
            }
        }
        image.push(g.node(from.op(u), from.dtype(u), &src, from.arg(u).clone()));
    }
    // a fresh graph, numbered canonically and without unused nodes
    let mut clean = Graph::new();
    let sink = clean.import(&g, &[image[ast.sink.0 as usize]], |_, _| None)[0];
    Ast::new(clean, sink)
}

impl Offset {
    fn node(self, g: &mut Graph, dt: DType) -> UOp {
        match self {
            Offset::Constant(c) => g.int(c, dt),
            Offset::Scalar { scalar, step, max } => {
                let (var, step) = (launch_scalar(g, scalar, max, dt), g.int(step, dt));
                g.binary(Op::Mul, var, step)
            }
        }
    }
}

/// A launch scalar of a kernel, from 0 to `max`: each call gives its own value ([`Kernel::scalars`]).
pub(super) fn launch_scalar(g: &mut Graph, number: usize, max: i64, dt: DType) -> UOp {
    let arg = Arg::Var { name: scalar_name(number).into(), min: 0, max };
    let var = g.node(Op::Var, DType::I32, &[], arg);
    g.cast(var, dt)
}
