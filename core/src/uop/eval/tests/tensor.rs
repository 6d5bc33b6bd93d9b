//! Tensor graphs against answers written out by hand or computed by plain loops.

use super::{f32s, to_f32, to_i32};
use crate::uop::eval::{Evaluated, eval_graph, eval_tensor};
use crate::uop::{Arg, Axes, Graph, Op, ReduceOp, Shape, UOp};
use crate::{DType, Error};

fn buffer(g: &mut Graph, id: u32, dt: DType, shape: &[usize]) -> UOp {
    let len = shape.iter().product();
    let b = g.node(Op::Buffer, dt, &[], Arg::Buffer { id, len });
    g.reshape(b, shape)
}

fn run(g: &Graph, roots: &[UOp], bufs: &[Vec<u8>]) -> Evaluated {
    eval_graph(g, roots, &mut |id| bufs.get(id as usize).cloned(), &|_| None).unwrap()
}

fn iota(g: &mut Graph, shape: &[usize]) -> UOp {
    let n = shape.iter().product();
    let i = g.node(Op::Iota, DType::I32, &[], Arg::Shape(Shape::from_slice(&[n])));
    g.reshape(i, shape)
}

fn ints(g: &Graph, u: UOp) -> Vec<i32> {
    to_i32(&run(g, &[u], &[]).values[0].data)
}

#[test]
fn movement_ops_move() {
    let mut g = Graph::new();
    let x = iota(&mut g, &[2, 3]);
    let t = g.permute(x, &[1, 0]);
    assert_eq!(ints(&g, t), [0, 3, 1, 4, 2, 5]);
    let r = g.reshape(t, &[2, 3]);
    assert_eq!(ints(&g, r), [0, 3, 1, 4, 2, 5]);
    let f = g.flip(x, &[1]);
    assert_eq!(ints(&g, f), [2, 1, 0, 5, 4, 3]);
    let p = g.pad(f, &[(1, 0), (0, 1)]);
    assert_eq!(ints(&g, p), [0, 0, 0, 0, 2, 1, 0, 0, 5, 4, 3, 0]);
    let s = g.shrink(p, &[(1, 3), (1, 3)]);
    assert_eq!(ints(&g, s), [1, 0, 4, 3]);
    let e = g.reshape(s, &[2, 1, 2]);
    let e = g.expand(e, &[2, 2, 2]);
    let e = g.reshape(e, &[2, 4]);
    assert_eq!(ints(&g, e), [1, 0, 1, 0, 4, 3, 4, 3]);
    let e = g.permute(e, &[1, 0]);
    let e = g.reshape(e, &[8]);
    assert_eq!(ints(&g, e), [1, 4, 0, 3, 1, 4, 0, 3]);
}

#[test]
fn reductions_over_any_axes() {
    let mut g = Graph::new();
    let x = iota(&mut g, &[2, 3, 4]);
    let mut check = |op, axes: &[u8], want: &[i32]| {
        let r = g.reduce(x, op, axes);
        assert_eq!(ints(&g, r), want, "{op:?} {axes:?}");
    };
    check(ReduceOp::Add, &[0, 1, 2], &[276]);
    check(ReduceOp::Add, &[0], &[12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34]);
    check(ReduceOp::Add, &[1], &[12, 15, 18, 21, 48, 51, 54, 57]);
    check(ReduceOp::Add, &[0, 2], &[60, 92, 124]);
    check(ReduceOp::Max, &[1, 2], &[11, 23]);
    check(ReduceOp::Min, &[0, 1], &[0, 1, 2, 3]);
    check(ReduceOp::Mul, &[2], &[0, 840, 7920, 32760, 93_024, 212_520]);
    let empty = g.shrink(x, &[(0, 2), (1, 1), (0, 4)]);
    let r = g.reduce(empty, ReduceOp::Max, &[1, 2]);
    assert_eq!(ints(&g, r), [i32::MIN; 2]);
}

#[test]
fn large_matmul_and_long_sums_stay_accurate() {
    let (m, n, k) = (37, 65, 129);
    let mut g = Graph::new();
    let a = buffer(&mut g, 0, DType::F32, &[m, 1, k]);
    let b = buffer(&mut g, 1, DType::F32, &[k, n]);
    let bt = g.permute(b, &[1, 0]);
    let bt = g.reshape(bt, &[1, n, k]);
    let (ae, be) = (g.expand(a, &[m, n, k]), g.expand(bt, &[m, n, k]));
    let p = g.binary(Op::Mul, ae, be);
    let c = g.reduce(p, ReduceOp::Add, &[2]);
    let av: Vec<f32> = (0..m * k).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    let bv: Vec<f32> = (0..k * n).map(|i| ((i * 104_729) % 1000) as f32 / 500.0 - 1.0).collect();
    let got = to_f32(&run(&g, &[c], &[f32s(&av), f32s(&bv)]).values[0].data);
    for i in 0..m {
        for j in 0..n {
            let want: f64 = (0..k).map(|l| (av[i * k + l] * bv[l * n + j]) as f64).sum();
            assert_eq!(got[i * n + j], want as f32);
        }
    }
    // the sum of ten million times 0.1 in f32 must be the correctly rounded exact sum
    let c = g.float(0.1, DType::F32);
    let c = g.reshape(c, &[1]);
    let c = g.expand(c, &[10_000_000]);
    let s = g.reduce(c, ReduceOp::Add, &[0]);
    let got = to_f32(&run(&g, &[s], &[]).values[0].data)[0];
    assert_eq!(got, (0.1f32 as f64 * 1e7) as f32);
}

#[test]
fn convolution_as_expand_multiply_reduce() {
    // x [1, 2, 5, 6] * w [3, 2, 3, 2] -> [1, 3, 3, 5], with the windows on each axis made by padding, reshaping and
    // shrinking
    let (ci, h, w, co, kh, kw) = (2, 5, 6, 3, 3, 2);
    let (oh, ow) = (h - kh + 1, w - kw + 1);
    let mut g = Graph::new();
    let x = buffer(&mut g, 0, DType::F32, &[ci, 1, h, 1, w]);
    let y = g.expand(x, &[ci, kh, h, kw, w]);
    // pad each window row by one element, so that row k of the reshaped tensor starts k elements further on
    let y = g.pad(y, &[(0, 0), (0, 0), (0, 1), (0, 0), (0, 1)]);
    let y = g.permute(y, &[0, 1, 2, 3, 4]);
    let y = g.reshape(y, &[ci, kh * (h + 1), kw * (w + 1)]);
    let y = g.shrink(y, &[(0, ci), (0, kh * h), (0, kw * w)]);
    let y = g.reshape(y, &[ci, kh, h, kw, w]);
    let y = g.shrink(y, &[(0, ci), (0, kh), (0, h), (0, kw), (0, w)]);
    // element i of window k is now x[(k * h + i) mod (h + 1)]; the expected result below uses the same index
    let wt = buffer(&mut g, 1, DType::F32, &[co, ci, kh, 1, kw, 1]);
    let y = g.reshape(y, &[1, ci, kh, h, kw, w]);
    let (ye, we) = (g.expand(y, &[co, ci, kh, h, kw, w]), g.expand(wt, &[co, ci, kh, h, kw, w]));
    let p = g.binary(Op::Mul, ye, we);
    let r = g.reduce(p, ReduceOp::Add, &[1, 2, 4]);
    let xv: Vec<f32> = (0..ci * h * w).map(|i| (i as f32).sin()).collect();
    let wv: Vec<f32> = (0..co * ci * kh * kw).map(|i| (i as f32).cos()).collect();
    let got = to_f32(&run(&g, &[r], &[f32s(&xv), f32s(&wv)]).values[0].data);
    assert_eq!(got.len(), co * h * w);
    let at = |c: usize, i: usize, j: usize| if i < h && j < w { xv[(c * h + i) * w + j] } else { 0.0 };
    for o in 0..co {
        for i in 0..h {
            for j in 0..w {
                let mut want = 0f64;
                for c in 0..ci {
                    for a in 0..kh {
                        for b in 0..kw {
                            let v = at(c, (a * h + i) % (h + 1), (b * w + j) % (w + 1));
                            want += (v * wv[((o * ci + c) * kh + a) * kw + b]) as f64;
                        }
                    }
                }
                assert_eq!(got[(o * h + i) * w + j], want as f32, "{o} {i} {j}");
            }
        }
    }
    assert!(oh <= h && ow <= w);
}

#[test]
fn gather_takes_and_gives_zero_outside() {
    let mut g = Graph::new();
    let x = iota(&mut g, &[3, 4]);
    let ten = g.int(10, DType::I32);
    let x = g.binary(Op::Add, x, ten);
    let i = buffer(&mut g, 0, DType::I64, &[3, 2]);
    let r = g.node(Op::Gather, DType::I32, &[x, i], Arg::Axes(Axes::from_slice(&[1])));
    let idx: Vec<u8> = [3i64, 0, -1, 1, 2, 4].iter().flat_map(|v| v.to_le_bytes()).collect();
    let got = run(&g, &[r], &[idx]);
    assert_eq!(to_i32(&got.values[0].data), [13, 10, 0, 15, 20, 0]);
}

#[test]
fn scalars_broadcast_and_f16_rounds_each_op() {
    let mut g = Graph::new();
    let x = buffer(&mut g, 0, DType::F32, &[2]);
    let h = g.cast(x, DType::F16);
    let one = g.float(1.0, DType::F16);
    let y = g.binary(Op::Add, h, one);
    let y = g.binary(Op::Sub, y, one);
    let y = g.cast(y, DType::F32);
    // 2^-11 is lost when added to 1 in f16 (tie to even); 3 * 2^-11 becomes 2^-9
    let got = run(&g, &[y], &[f32s(&[2f32.powi(-11), 3.0 * 2f32.powi(-11)])]);
    assert_eq!(to_f32(&got.values[0].data), [0.0, 2f32.powi(-9)]);
}

#[test]
fn assign_writes_a_view_and_orders_reads() {
    let mut g = Graph::new();
    let b = g.node(Op::Buffer, DType::F32, &[], Arg::Buffer { id: 0, len: 6 });
    let m = g.reshape(b, &[2, 3]);
    let col = g.shrink(m, &[(0, 2), (1, 2)]);
    let v = g.float(9.0, DType::F32);
    let st = g.store(col, v);
    let b1 = g.after(b, &[st]);
    let old = g.binary(Op::Add, b, b);
    let new = g.binary(Op::Add, b1, b1);
    let m1 = g.reshape(b1, &[2, 3]);
    let row = g.shrink(m1, &[(0, 1), (0, 3)]);
    let twice = g.binary(Op::Add, row, row);
    let st2 = g.store(row, twice);
    let b2 = g.after(b1, &[st2]);
    let got = run(&g, &[old, new, b2], &[f32s(&[0., 1., 2., 3., 4., 5.])]);
    assert_eq!(to_f32(&got.values[0].data), [0., 2., 4., 6., 8., 10.]);
    assert_eq!(to_f32(&got.values[1].data), [0., 18., 4., 6., 18., 10.]);
    assert_eq!(to_f32(&got.values[2].data), [0., 18., 4., 3., 9., 5.]);
    assert_eq!(got.writes, [(0, f32s(&[0., 18., 4., 3., 9., 5.]))]);
}

#[test]
fn missing_or_short_storage_is_a_typed_error() {
    let mut g = Graph::new();
    let b = g.node(Op::Buffer, DType::F32, &[], Arg::Buffer { id: 7, len: 6 });
    for data in [None, Some(vec![0; 23])] {
        let e = eval_tensor(&g, &[b], &mut |_| data.clone(), &|_| None).unwrap_err();
        assert!(matches!(e, Error::Input { ref name, .. } if name == "buffer 7"), "{e}");
    }
}

#[test]
fn elementwise_chains_longer_than_a_tape() {
    let mut g = Graph::new();
    let mut x = iota(&mut g, &[10_000]);
    let one = g.int(1, DType::I32);
    for _ in 0..300 {
        x = g.binary(Op::Add, x, one);
        x = g.unary(Op::Neg, x);
    }
    let got = ints(&g, x);
    assert!(got.iter().enumerate().all(|(i, &v)| v == i as i32));
}
