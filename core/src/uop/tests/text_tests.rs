//! Tests of printing and parsing: fixed texts, programs, and damaged texts.

use super::super::{Arg, AxisKind, Graph, Op, RangeArg, ReduceOp, Space, hash, parse, print};
use crate::DType;
use crate::dtype::Scalar;

#[test]
fn a_tensor_graph_prints_as_documented() {
    let mut g = Graph::new();
    let b = g.node(Op::Buffer, DType::F32, &[], Arg::Buffer { id: 7, len: 6 });
    let x = g.reshape(b, &[2, 3]);
    let c = g.float(-0.0, DType::F32);
    let y = g.binary(Op::Max, x, c);
    let z = g.pad(y, &[(0, 0), (1, 2)]);
    let r = g.reduce(z, ReduceOp::Add, &[0, 1]);
    let text = "\
%0 f32 = buffer[id=7 len=6]  // [6]
%1 f32 = reshape[2, 3] %0  // [2, 3]
%2 f32 = const[-0.0]
%3 f32 = max %1 %2  // [2, 3]
%4 f32 = pad[0:0, 1:2] %3  // [2, 6]
%5 f32 = reduce[add 0 1] %4  // [1, 1]
roots %5
";
    assert_eq!(print::print(&g, &[r]), text);
    let p = parse::parse(text).unwrap();
    assert_eq!(hash::key(&p.graph, &p.roots), hash::key(&g, &[r]));
}

#[test]
fn a_program_keeps_its_order_and_arguments() {
    let mut g = Graph::new();
    let p = g.param(1, DType::F32, 64);
    let n = g.node(Op::Var, DType::I32, &[], Arg::Var { name: "seq \"len\"\n".into(), min: 1, max: 64 });
    let sh = g.node(Op::Scratch, DType::F32, &[], Arg::Scratch { id: 2, len: 4, space: Space::Workgroup });
    let grid = g.range(2, 0, AxisKind::Grid(1));
    let k = g.node(Op::Range, DType::I32, &[n], Arg::Range(RangeArg { id: 5, kind: AxisKind::Reduce, lane: false }));
    let lane = g.range_with(4, RangeArg { id: 9, kind: AxisKind::Upcast, lane: true });
    let inf = g.constant(Scalar::float(f64::NEG_INFINITY), DType::F32);
    let acc = g.node(Op::Acc, DType::F32, &[inf, lane], Arg::Acc(0));
    let ix = g.node(Op::Index, DType::F32, &[p, k], Arg::Strides(vec![(9, -1)].into()));
    let v = g.load(ix);
    let up = g.node(Op::AccUpdate, DType::Void, &[acc, v], Arg::Reduce(ReduceOp::Max, Default::default()));
    let end = g.node(Op::End, DType::Void, &[k, up], Arg::None);
    let read = g.node(Op::AccRead, DType::F32, &[acc, end], Arg::None);
    let to = g.index(sh, grid);
    let st = g.store(to, read);
    let order = [n, grid, acc, k, ix, v, up, end, read, to, st];
    let text = print::print_program(&g, &order);
    assert!(text.contains("var[\"seq \\\"len\\\"\\n\" min=1 max=64]"), "{text}");
    assert!(text.contains("\n  %"), "loops indent:\n{text}");
    let q = parse::parse(&text).unwrap();
    assert_eq!(print::print_program(&q.graph, &q.order), text);
    let ends = q.order.len() - order.len();
    assert_eq!(hash::key(&q.graph, &q.order[ends..]), hash::key(&g, &order));
}

#[test]
fn a_product_of_matrix_tiles_keeps_its_layout() {
    let layout = "k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2";
    let text = format!(
        "\
%0 f64 = param[slot=0 len=32]  // [32]
%1 i32 = const[32]
%2 i32 = range[id=0 local0] %1  // {{0}}
%3 f64 = index %0 %2  // {{0}}
%4 f64 = load %3  // {{0}}
%5 i32 = const[2]
%6 i32 = range[id=1 upcast] %5  // {{1}}
%7 f64 = mma[{layout}] %4 %4 %2 %6  // {{0 1}}
roots %7
"
    );
    let p = parse::parse(&text).unwrap();
    assert_eq!(print::print(&p.graph, &p.roots), text);
    for (wrong, want) in [
        ("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2; n1x2 |", "bad layout"),
        ("k1x4 m1x8; k1x4 n1x8 |; n2x4 m1x8 | n1x2", "bad layout"),
        ("k1x4 l1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2", "bad layout"),
        ("k1x4 m1x8 @; k1x4 n1x8 @8; n2x4 m1x8 | n1x2", "bad layout"),
        // only the left factor in memory; the product in memory
        ("k1x4 m1x8 @8; k1x4 n1x8 |; n2x4 m1x8 | n1x2", "has no place"),
        ("k1x4 m1x8 @8; k1x4 n1x8 @8; n1x8 m1x8 @8", "has no place"),
        // an element held twice and another one not at all; sides that differ; too many elements; none; too few threads
        ("k1x4 m1x8 |; k1x4 n1x8 |; n1x4 m1x8 | n1x2", "has no place"),
        ("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2 m8x2", "has no place"),
        (
            "k1x255 k1x255 k1x255 k1x255 k1x255 k1x255 k1x255 k1x255 k1x255 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2",
            "has no place",
        ),
        ("k0x0 |; k0x0 |; n0x0 | n1x2", "has no place"),
        ("k1x4 m1x8 |; k1x4 n1x8 |; n4x2 m1x8 | n1x4", "has no place"),
    ] {
        let e = parse::parse(&text.replace(layout, wrong)).err().expect("a refusal").to_string();
        assert!(e.contains(want), "{wrong}: {e}");
    }
}

#[test]
fn bad_text_is_refused_with_its_line() {
    for (text, want) in [
        ("%0 f32 = const[1.0]\n%1 f32 = ad %0 %0", "line 2: unknown op `ad`"),
        ("%0 f99 = const[1.0]", "line 1: unknown dtype `f99`"),
        ("%0 f32 = neg %1", "line 1: %1 is not defined above"),
        ("%0 f32 = const[1.0]\n\n%0 f32 = neg %0", "line 3: %0 is defined twice"),
        ("%0 i8 = const[300]", "no value of its dtype"),
        ("%0 f32 = const[1.0", "`]` expected"),
        ("%0 f32 = const[x]", "bad number `x`"),
        ("%0 f32 = buffer[id=0 len=9999999999999999999]", "larger than any memory"),
        ("%0 f32 = buffer[id=0 len=6]\n%1 f32 = reshape[4, 2] %0", "line 2: another number of elements"),
        ("%0 f32 = buffer[id=0 len=6]\n%1 f32 = reshape[99999999999, 99999999999] %0", "larger than any memory"),
        ("%0 f32 = buffer[id=0 len=6]\n%1 f32 = permute[1] %0", "axis 1 at rank 1"),
        ("%0 i32 = const[3]\n%1 i32 = range[id=200 loop] %0", "range id too large"),
        ("%0 i32 = const[3]\n%1 i32 = range[id=2 round] %0", "unknown range kind `round`"),
        ("%0 i32 = var[\"n min=0 max=3]", "string without an end"),
        ("%0 i32 = var[\"\\u{110000}\" min=0 max=3]", "bad escape"),
        ("hello", "`%` expected at `hello`"),
        ("roots %0", "%0 is not defined above"),
        ("%0 void = end", "source 0 is no loop"),
        ("%0 f32 = where", "0 sources, 3 wanted"),
        ("%0 bool = cmp_lt", "0 sources, 2 wanted"),
    ] {
        let e = parse::parse(text).err().unwrap_or_else(|| panic!("accepted: {text}")).to_string();
        assert!(e.contains(want), "{text}\ngave: {e}\nwanted: {want}");
    }
}

/// Parsing damaged text never panics and never gives a graph with a node that the spec refuses.
#[test]
fn damaged_text_is_harmless() {
    use super::super::random::{Rng, tensor_graph};
    let mut rng = Rng(5);
    for seed in 0..300 {
        let r = tensor_graph(seed, super::options(15));
        let mut text = print::print(&r.g, &r.roots).into_bytes();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(text.len());
            match rng.below(3) {
                0 => text[at] = rng.pick(b"0123456789%[],: -.abfirstn\n"),
                1 => drop(text.remove(at)),
                _ => text.insert(at, rng.pick(b"0123456789%[],: -.\n")),
            }
        }
        let _ = parse::parse(&String::from_utf8_lossy(&text));
    }
}
