//! Tests that the spec of each op accepts legal nodes and refuses illegal ones.

use super::super::graph::UOp;
use super::super::mma::Layout;
use super::super::spec::{Stage, check_node, verify};
use super::super::{Arg, Axes, AxisKind, Graph, Op, Pairs, RangeArg, ReduceOp, ScatterMode, Shape, Space};
use crate::DType::{self, *};
use crate::dtype::Scalar;
use Stage::*;

struct Nodes {
    g: Graph,
    f: UOp,
    i: UOp,
    b: UOp,
    /// A tensor f32 [2, 3].
    t: UOp,
    vector: UOp,
    computed: UOp,
    /// A tensor i32 [2, 3].
    ti: UOp,
    ptr: UOp,
    idx: UOp,
    reg: UOp,
    unroll: UOp,
    acc: UOp,
    two: UOp,
    half: UOp,
    narrow: UOp,
    shared: UOp,
}

fn nodes() -> Nodes {
    let mut g = Graph::new();
    let f = g.float(1.5, F32);
    let i = g.int(3, I32);
    let b = g.bool(true);
    let t = g.node(Op::Buffer, F32, &[], Arg::Buffer { id: 0, len: 6 });
    let t = g.reshape(t, &[2, 3]);
    let vector = g.node(Op::Buffer, F32, &[], Arg::Buffer { id: 2, len: 3 });
    let computed = g.unary(Op::Neg, t);
    let ti = g.node(Op::Buffer, I32, &[], Arg::Buffer { id: 1, len: 6 });
    let ti = g.reshape(ti, &[2, 3]);
    let ptr = g.param(0, F32, 6);
    let idx = g.index(ptr, i);
    let reg = g.range(4, 0, AxisKind::Reduce);
    let unroll = g.range(4, 1, AxisKind::Unroll);
    let acc = g.node(Op::Acc, F32, &[f, unroll], Arg::Acc(0));
    let two = g.range(2, 2, AxisKind::Upcast);
    let halves = g.param(1, F16, 64);
    let half = g.index(halves, i);
    let narrow = g.load(half);
    let shared = g.node(Op::Scratch, F32, &[], Arg::Scratch { id: 0, len: 8, space: Space::Workgroup });
    let shared = g.index(shared, i);
    Nodes { g, f, i, b, t, vector, computed, ti, ptr, idx, reg, unroll, acc, two, half, narrow, shared }
}

fn shape(s: &[usize]) -> Arg {
    Arg::Shape(Shape::from_slice(s))
}

fn axes(a: &[u8]) -> Arg {
    Arg::Axes(Axes::from_slice(a))
}

fn pairs(p: &[(usize, usize)]) -> Arg {
    Arg::Pairs(Pairs::from_slice(p))
}

fn custom(outputs: usize) -> Arg {
    let (name, code) = ("mine".into(), "fn main() {}".into());
    Arg::Custom(Box::new(super::super::custom::Custom { name, code, grid: [1; 3], outputs, ir: None }))
}

/// A step that adds an element of a sequence to the one state, three numbers each.
fn recurrence(steps: usize, states: usize, sequences: usize) -> Arg {
    let mut g = Graph::new();
    let (state, x) = (g.param(0, F32, 3), g.param(1, F32, 3));
    let next = g.binary(Op::Add, state, x);
    let made = super::super::recurrence::Recurrence::new(steps, states, sequences, g, &[next]);
    Arg::Recurrence(Box::new(made.expect("a valid step")))
}

fn scat(how: ScatterMode, axis: u8) -> Arg {
    Arg::Scatter(how, axis)
}

fn red(a: &[u8]) -> Arg {
    Arg::Reduce(ReduceOp::Add, Axes::from_slice(a))
}

fn mma(layout: &str) -> Arg {
    Arg::Mma(Box::new(Layout::read(layout).expect("a layout")))
}

type Case = (Op, DType, Vec<UOp>, Arg, Option<Stage>);

/// For every op one legal use and at least one illegal one.
fn cases(n: &Nodes) -> (Vec<Case>, Vec<Case>) {
    use Op::*;
    let &Nodes { f, i, b, t, ti, ptr, idx, reg, unroll, acc, two, half, narrow, shared, .. } = n;
    let none = || Arg::None;
    let range = |id, kind, lane| Arg::Range(RangeArg { id, kind, lane });
    let (tensor, kernel, program) = (Some(Tensor), Some(Kernel), Some(Program));
    let mut good: Vec<Case> = vec![
        (Const, F32, vec![], Arg::Const(Scalar::float(0.5)), tensor),
        (Buffer, F16, vec![], Arg::Buffer { id: 0, len: 9 }, tensor),
        (Param, F16, vec![], Arg::Param { slot: 0, len: 9 }, program),
        (Var, I32, vec![], Arg::Var { name: "n".into(), min: 1, max: 9 }, kernel),
        (Iota, I32, vec![], shape(&[5]), tensor),
        (Reshape, F32, vec![t], shape(&[3, 2]), tensor),
        (Permute, F32, vec![t], axes(&[1, 0]), tensor),
        (Expand, F32, vec![t], shape(&[2, 3]), tensor),
        (Pad, F32, vec![t], pairs(&[(0, 1), (2, 0)]), tensor),
        (Shrink, F32, vec![t], pairs(&[(0, 1), (2, 3)]), tensor),
        (Flip, F32, vec![t], axes(&[1]), tensor),
        (Gather, F32, vec![t, ti], axes(&[1]), tensor),
        (Scatter, F32, vec![t, ti, t], scat(ScatterMode::Overwrite, 1), tensor),
        (Scatter, F32, vec![t, ti, t], scat(ScatterMode::Combine(ReduceOp::Max), 0), tensor),
        (Scan, F32, vec![t], red(&[1]), tensor),
        (Scan, F32, vec![t, t], red(&[0]), tensor),
        (Reduce, F32, vec![t], red(&[1]), tensor),
        (Reduce, F32, vec![f, reg], red(&[]), kernel),
        (Cast, I8, vec![t], none(), tensor),
        (Bitcast, I32, vec![f], none(), program),
        (Neg, I32, vec![i], none(), kernel),
        (Exp2, F32, vec![f], Arg::Number(16), program),
        (Where, F32, vec![b, t, f], none(), tensor),
        (MulAdd, F32, vec![f, f, f], none(), program),
        (DotBytes, I32, vec![i, i, i], none(), program),
        (DotPairs, I32, vec![i, i, i], none(), program),
        (LookupBytes, I32, vec![i, i, i, i, i], none(), program),
        (Contiguous, F32, vec![t], none(), tensor),
        (Detach, F32, vec![t], none(), tensor),
        (Store, Void, vec![t, f], none(), tensor),
        (Store, Void, vec![idx, f], none(), kernel),
        (Store, Void, vec![idx, f, b], none(), program),
        (After, F32, vec![t], none(), tensor),
        (Sink, Void, vec![t], none(), tensor),
        (Range, I32, vec![i], range(5, AxisKind::Loop, false), kernel),
        (Index, F32, vec![ptr, i], Arg::Strides(vec![(1, 4)].into()), program),
        (Load, F32, vec![idx], none(), kernel),
        (Load, F32, vec![idx, f, b], none(), program),
        (Acc, F32, vec![f, unroll], Arg::Acc(1), program),
        (AccUpdate, Void, vec![acc, f], red(&[]), program),
        (AccMulAdd, Void, vec![acc, f, f], none(), program),
        (AccRead, F32, vec![acc], none(), program),
        (AccRead, F32, vec![acc, reg], none(), program),
        (Fold, F32, vec![f, unroll], red(&[]), program),
        (Mma, F32, vec![f, f, i, two], mma("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2"), program),
        (Mma, F32, vec![half, half, i, two], mma("k1x4 m1x8 @8; n1x8 k1x4 @4; n2x4 m1x8 | n1x2"), program),
        (Mma, F32, vec![narrow, half, i, two], mma("k1x4 m1x8 |; n1x8 k1x4 @4; n2x4 m1x8 | n1x2"), program),
        (LoadMatrix, F16, vec![half, i, two], Arg::Number(1), program),
        (End, Void, vec![reg], none(), program),
        (Scratch, F32, vec![], Arg::Scratch { id: 0, len: 8, space: Space::Private }, kernel),
        (Barrier, Void, vec![], none(), program),
        (Barrier, Void, vec![], Arg::Number(2), program),
        (Stage, F32, vec![f, reg], none(), kernel),
        (Stage, F32, vec![f, reg], Arg::Number(1), kernel),
    ];
    let mut bad: Vec<Case> = vec![
        (Const, F32, vec![], Arg::Const(Scalar::float(0.1)), None), // not an f32
        (Const, I8, vec![], Arg::Const(Scalar::Int(128)), None),
        (Const, I32, vec![], Arg::Const(Scalar::float(1.0)), None),
        (Buffer, F32, vec![], Arg::Buffer { id: 0, len: usize::MAX / 2 }, None),
        (Buffer, F32, vec![], Arg::Buffer { id: 0, len: 9 }, kernel),
        (Param, F32, vec![], Arg::Buffer { id: 0, len: 9 }, None),
        (Var, I64, vec![], Arg::Var { name: "n".into(), min: 1, max: 9 }, None),
        (Var, I32, vec![], Arg::Var { name: "n".into(), min: 2, max: 1 }, None),
        (Iota, I64, vec![], shape(&[5]), None),
        (Reshape, F32, vec![t], shape(&[4, 2]), None),
        (Permute, F32, vec![t], axes(&[1, 1]), None),
        (Permute, F32, vec![t], axes(&[1]), None),
        (Expand, F32, vec![t], shape(&[2, 6]), None),
        (Expand, F32, vec![t], shape(&[1, 2, 3]), None),
        (Pad, F32, vec![t], pairs(&[(0, 1)]), None),
        (Pad, F32, vec![t], pairs(&[(usize::MAX, 1), (0, 0)]), None),
        (Shrink, F32, vec![t], pairs(&[(0, 1), (2, 4)]), None),
        (Shrink, F32, vec![t], pairs(&[(1, 0), (2, 3)]), None),
        (Flip, F32, vec![t], axes(&[2]), None),
        (Gather, F32, vec![t, t], axes(&[1]), None),
        (Gather, F32, vec![t, ti], axes(&[0, 1]), None),
        (Scatter, F32, vec![t, t, t], scat(ScatterMode::Overwrite, 1), None),
        (Scatter, F32, vec![t, ti, ti], scat(ScatterMode::Overwrite, 1), None),
        (Scatter, F32, vec![t, ti, t], scat(ScatterMode::Overwrite, 2), None),
        (Scatter, F32, vec![t, ti, t], axes(&[1]), None),
        (Scatter, F32, vec![t, ti, t], scat(ScatterMode::Overwrite, 1), kernel),
        (Scan, F32, vec![t], red(&[2]), None),
        (Scan, F32, vec![t], red(&[0, 1]), None),
        (Scan, F32, vec![t, ti], red(&[1]), None),
        (Scan, I32, vec![ti, ti], red(&[1]), None),
        (Scan, F32, vec![t, t], Arg::Reduce(ReduceOp::Max, Axes::from_slice(&[1])), None),
        (Reduce, F32, vec![t], red(&[2]), None),
        (Reduce, F32, vec![t], red(&[]), None),
        (Reduce, F32, vec![f, reg], red(&[]), tensor),
        (Cast, Void, vec![t], none(), None),
        (Bitcast, I64, vec![f], none(), None),
        (Neg, Bool, vec![b], none(), None),
        (Neg, F32, vec![i], none(), None),
        (Where, F32, vec![i, f, f], none(), None),
        (Where, F32, vec![b, f, i], none(), None),
        (MulAdd, F32, vec![f, f, f], none(), kernel),
        (DotBytes, F32, vec![f, f, f], none(), None),
        (DotBytes, I32, vec![i, i], none(), None),
        (DotPairs, F32, vec![f, f, f], none(), None),
        (DotPairs, I32, vec![i, i], none(), None),
        (LookupBytes, I32, vec![i, i, i, i], none(), None),
        (LookupBytes, F32, vec![f, f, f, f, f], none(), None),
        (Contiguous, F32, vec![], none(), None),
        (Detach, F32, vec![t, t], none(), None),
        (Detach, F32, vec![t], none(), kernel),
        (Store, Void, vec![t, i], none(), None),
        (Store, Void, vec![f, f], none(), None),
        (Store, Void, vec![idx, f], none(), tensor),
        (After, F32, vec![], none(), None),
        (Sink, Void, vec![], none(), program),
        (Range, I32, vec![i], range(200, AxisKind::Loop, false), None),
        (Range, I32, vec![i], range(5, AxisKind::Loop, true), None),
        (Range, F32, vec![f], range(5, AxisKind::Loop, false), None),
        (Index, F32, vec![f, i], none(), None),
        (Index, F32, vec![ptr, f], none(), None),
        (Index, F32, vec![ptr, i], Arg::Strides(vec![(1, 4)].into()), kernel),
        (Index, F32, vec![ptr, i], Arg::Strides(vec![(2, 4), (1, 4)].into()), None),
        (Exp2, F32, vec![f], Arg::Number(16), kernel),
        (Exp2, F32, vec![f], Arg::Number(8), None),
        (Load, F32, vec![ptr], none(), None),
        (Load, F32, vec![idx, f], none(), None),
        (Load, F32, vec![idx, i, b], none(), None),
        (Acc, F32, vec![f, f], Arg::Acc(1), None),
        (AccUpdate, Void, vec![f, f], red(&[]), None),
        (AccUpdate, Void, vec![acc, i], red(&[]), None),
        (AccMulAdd, Void, vec![acc, f], none(), None),
        (AccRead, F32, vec![f], none(), None),
        (Fold, F32, vec![f, reg], red(&[]), None),
        (Mma, F32, vec![f, f, i], mma("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2"), None), // a range is missing
        (Mma, F32, vec![f, f, i, unroll], mma("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2"), None), // a range longer than its digit
        (Mma, F32, vec![f, f, f, two], mma("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2"), None),
        (Mma, F32, vec![f, i, i, two], mma("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2"), None),
        (Mma, F32, vec![f, f, i, two], mma("k1x4 m1x8 |; k1x4 n1x8 |; n1x4 m1x8 | n1x2"), None), // an element in two registers
        (Mma, F32, vec![f, f, i, two], none(), None),
        (Mma, F32, vec![f, f, i, two], mma("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2"), kernel),
        (Mma, F32, vec![half, narrow, i, two], mma("k1x4 m1x8 @8; k1x4 n1x8 |; n2x4 m1x8 | n1x2"), None), // only factor a is in memory
        (LoadMatrix, F16, vec![half, i, two], none(), None),
        (LoadMatrix, F16, vec![half, i, two], Arg::Number(2), None),
        (LoadMatrix, F16, vec![half, i, unroll], Arg::Number(0), None), // range of another length than 2
        (LoadMatrix, F32, vec![idx, i, two], Arg::Number(0), None),     // elements of other than 2 bytes
        (LoadMatrix, F16, vec![half, i], Arg::Number(0), None),
        (Store, Void, vec![shared, f], Arg::Number(16), program), // a copy whose value is not a load
        (End, Void, vec![unroll], none(), None),
        (Scratch, Void, vec![], Arg::Scratch { id: 0, len: 8, space: Space::Private }, None),
        (Barrier, F32, vec![], none(), None),
        (Stage, F32, vec![f, f], none(), None),
        (Stage, F32, vec![f, reg], none(), program),
    ];
    let (row, line) = (n.g.src_at(t, 0), n.g.src_at(ti, 0));
    good.push((Custom, Void, vec![row, line], custom(1), tensor));
    good.push((Custom, Void, vec![ptr], custom(1), kernel));
    bad.extend([
        (Custom, F32, vec![row, line], custom(1), None),
        (Custom, Void, vec![row, line], none(), None),
        (Custom, Void, vec![], custom(0), None),
        (Custom, Void, vec![row], custom(2), None),
        (Custom, Void, vec![row, row], custom(1), None), // reads what it writes
        (Custom, Void, vec![row, t], custom(1), None),   // a view
        (Custom, Void, vec![t, line], custom(1), None),
        (Custom, Void, vec![ptr], custom(1), program),
    ]);
    let (vector, flat) = (n.vector, n.g.src_at(t, 0));
    good.push((Recurrence, F32, vec![vector, t], recurrence(2, 1, 1), tensor));
    bad.extend([
        (Recurrence, F32, vec![vector, t], none(), None),
        (Recurrence, F32, vec![vector, t], recurrence(3, 1, 1), None), // a sequence of two elements
        (Recurrence, F32, vec![vector], recurrence(2, 1, 1), None),
        (Recurrence, F32, vec![vector, t], recurrence(2, 2, 0), None), // states of two shapes
        (Recurrence, F32, vec![flat, t], recurrence(2, 1, 1), None),   // a state of another length
        (Recurrence, I32, vec![vector, t], recurrence(2, 1, 1), None),
        (Recurrence, F32, vec![vector, n.computed], recurrence(2, 1, 1), None), // a sequence that is not in memory
        (Recurrence, F32, vec![vector, t], recurrence(2, 1, 1), kernel),
    ]);
    for op in [Exp2, Log2, Sin, Cos, Tan, Sqrt, Recip, Trunc] {
        good.push((op, F32, vec![t], none(), tensor));
        bad.push((op, I32, vec![i], none(), None));
    }
    for op in [Add, Mul, Max, Min] {
        good.push((op, Bool, vec![b, b], none(), kernel));
        bad.push((op, F32, vec![f, i], none(), None));
        bad.push((op, F32, vec![f], none(), None));
    }
    good.push((Sub, F32, vec![t, f], none(), tensor));
    bad.push((Sub, Bool, vec![b, b], none(), None));
    for op in [Div, Pow] {
        good.push((op, F32, vec![f, f], none(), kernel));
        bad.push((op, I32, vec![i, i], none(), None));
    }
    for op in [Idiv, Imod, FloorDiv, FloorMod, Shl, Shr] {
        good.push((op, I32, vec![i, ti], none(), tensor));
        if op != Imod {
            bad.push((op, F32, vec![f, f], none(), None));
        }
        bad.push((op, Bool, vec![b, b], none(), None));
    }
    good.push((Imod, F32, vec![f, f], none(), kernel));
    bad.push((FloorDiv, I32, vec![i, i], none(), program));
    bad.push((FloorMod, I32, vec![i, i], none(), program));
    for op in [And, Or, Xor] {
        good.push((op, Bool, vec![b, b], none(), program));
        bad.push((op, F32, vec![f, f], none(), None));
    }
    for op in [CmpLt, CmpEq, CmpNe] {
        good.push((op, Bool, vec![f, f], none(), program));
        bad.push((op, F32, vec![f, f], none(), None));
        bad.push((op, Bool, vec![f, i], none(), None));
    }
    (good, bad)
}

#[test]
fn every_op_has_a_line_that_accepts_and_refuses() {
    let n = nodes();
    let (good, bad) = cases(&n);
    for (op, dt, src, arg, stage) in &good {
        let r = check_node(&n.g, *op, *dt, src, arg, *stage);
        assert_eq!(r, Ok(()), "{op:?} {dt} {src:?} {arg:?} {stage:?}");
    }
    for (op, dt, src, arg, stage) in &bad {
        let r = check_node(&n.g, *op, *dt, src, arg, *stage);
        assert!(r.is_err(), "accepted {op:?} {dt} {src:?} {arg:?} {stage:?}");
    }
    for op in Op::ALL {
        assert!(good.iter().any(|c| c.0 == *op), "{op:?} has no legal case");
        assert!(bad.iter().any(|c| c.0 == *op), "{op:?} has no illegal case");
    }
}

#[test]
fn shapes_must_agree_in_tensor_graphs() {
    let mut n = nodes();
    let other = n.g.reshape(n.t, &[3, 2]);
    let e = check_node(&n.g, Op::Add, F32, &[n.t, other], &Arg::None, Some(Tensor)).unwrap_err();
    assert!(e.contains("differ"), "{e}");
}

#[test]
fn kernels_close_their_reductions_and_ranges_are_unique() {
    let mut n = nodes();
    let g = &mut n.g;
    let at = g.index(n.ptr, n.reg);
    let v = g.load(at);
    let open = g.store(n.idx, v);
    let sink = g.sink(&[open]);
    let e = verify(g, &[sink], Kernel).unwrap_err().to_string();
    assert!(e.contains("still open"), "{e}");
    let s = g.reduce_over(v, ReduceOp::Add, &[n.reg]);
    let closed = g.store(n.idx, s);
    let sink = g.sink(&[closed]);
    verify(g, &[sink], Kernel).unwrap();
    let twin = g.range(5, 0, AxisKind::Loop);
    let at = g.index(n.ptr, twin);
    let both = g.store(at, s);
    let sink = g.sink(&[both]);
    let e = verify(g, &[sink], Kernel).unwrap_err().to_string();
    assert!(e.contains("same id"), "{e}");
}

#[test]
fn programs_are_ordered_and_nested() {
    let mut g = Graph::new();
    let p = g.param(0, F32, 16);
    let (a, b) = (g.range(4, 0, AxisKind::Loop), g.range(4, 1, AxisKind::Loop));
    let four = g.idx(4);
    let row = g.binary(Op::Mul, a, four);
    let at = g.binary(Op::Add, row, b);
    let ix = g.index(p, at);
    let v = g.load(ix);
    let st = g.store(ix, v);
    let end_b = g.node(Op::End, Void, &[b, st], Arg::None);
    let end_a = g.node(Op::End, Void, &[a, end_b], Arg::None);
    let check = |order: &[UOp], want: &str| match verify(&g, order, Program) {
        Ok(()) => assert_eq!(want, "", "accepted {order:?}"),
        Err(e) => assert!(!want.is_empty() && e.to_string().contains(want), "{want}: {e}"),
    };
    check(&[a, row, b, at, ix, v, st, end_b, end_a], "");
    check(&[a, b, row, at, ix, v, st, end_b, end_a], "");
    check(&[b, a, row, at, ix, v, st, end_b, end_a], "does not close the innermost");
    check(&[a, row, b, ix, at, v, st, end_b, end_a], "is not placed before it");
    check(&[a, row, row, b, at, ix, v, st, end_b, end_a], "placed twice");
    check(&[a, row, b, at, ix, v, st, end_b], "without an End");
    let late = g.clone().node(Op::Neg, F32, &[v], Arg::None);
    let mut g2 = g.clone();
    let late2 = g2.node(Op::Neg, F32, &[v], Arg::None);
    assert_eq!(late, late2);
    let e = verify(&g2, &[a, row, b, at, ix, v, st, end_b, late2, end_a], Program).unwrap_err().to_string();
    assert!(e.contains("inside a loop that is closed"), "{e}");
}
