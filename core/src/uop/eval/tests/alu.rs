//! Compares every elementwise op on every dtype that it takes with numpy: `alu.txt` is written by
//! tests/fixtures/make_alu.py.

use crate::DType;
use crate::dtype::Scalar;
use crate::uop::Op;
use crate::uop::eval::{eval_alu, eval_tensor};
use crate::uop::{Arg, Graph, UOp};
use std::collections::BTreeSet;

struct Case {
    op: Op,
    dt: DType,
    ins: Vec<DType>,
    cols: Vec<Vec<u8>>,
}

fn cases() -> Vec<Case> {
    let bytes = |text: &str| -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b' ').collect();
        digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    };
    include_str!("alu.txt")
        .lines()
        .map(|line| {
            let mut parts = line.split('|');
            let head: Vec<&str> = parts.next().unwrap().split_whitespace().collect();
            Case {
                op: *Op::ALL.iter().find(|o| o.name() == head[0]).unwrap(),
                dt: DType::from_name(head[1]).unwrap(),
                ins: head[2..].iter().map(|d| DType::from_name(d).unwrap()).collect(),
                cols: parts.map(bytes).collect(),
            }
        })
        .collect()
}

#[test]
fn elementwise_ops_equal_numpy() {
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for c in cases() {
        seen.insert((c.op, c.ins[c.ins.len() - 1]));
        let at = |k: usize, dt: DType, i: usize| Scalar::read(dt, &c.cols[k][i * dt.size()..]);
        let n = c.cols[0].len() / c.ins[0].size();
        // as constants
        for i in 0..n {
            let src: Vec<(Scalar, DType)> = c.ins.iter().enumerate().map(|(k, &dt)| (at(k, dt, i), dt)).collect();
            let (got, want) = (eval_alu(c.op, c.dt, &src), at(c.ins.len(), c.dt, i));
            if got != Some(want) {
                wrong.push(format!("{:?} to {} of {src:?}: {got:?}, numpy {want:?}", c.op, c.dt));
            }
        }
        // as tensors
        let mut g = Graph::new();
        let src: Vec<UOp> =
            (0..c.ins.len()).map(|k| g.node(Op::Buffer, c.ins[k], &[], Arg::Buffer { id: k as u32, len: n })).collect();
        let u = g.node(c.op, c.dt, &src, Arg::None);
        let got = eval_tensor(&g, &[u], &mut |id| Some(c.cols[id as usize].clone()), &|_| None).unwrap().remove(0);
        for (i, b) in got.data.chunks(c.dt.size()).enumerate() {
            assert_eq!(Scalar::read(c.dt, b), at(c.ins.len(), c.dt, i), "{:?} {} [{i}]", c.op, c.dt);
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    // the file has every elementwise op, on every kind of dtype that it takes
    for &op in Op::ALL.iter().filter(|o| o.is_alu() && **o != Op::MulAdd) {
        assert!(seen.iter().any(|s| s.0 == op), "{op:?} is not covered");
    }
    for dt in DType::ALL {
        for op in [Op::Cast, Op::Where, Op::CmpLt, Op::Max] {
            assert!(seen.contains(&(op, dt)), "{op:?} on {dt} is not covered");
        }
    }
}

#[test]
fn multiply_add_is_fused_and_ops_refuse_other_dtypes() {
    let f = |v: f64| (Scalar::float(v), DType::F32);
    // (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24: lost when the product is rounded first
    let a = f(1.0 + 2f64.powi(-12));
    let got = eval_alu(Op::MulAdd, DType::F32, &[a, a, f(-1.0 - 2f64.powi(-11))]);
    assert_eq!(got, Some(Scalar::float(2f64.powi(-24))));
    assert_eq!(eval_alu(Op::MulAdd, DType::I8, &[(Scalar::Int(100), DType::I8); 3]), Some(Scalar::Int(116)));
    let b = (Scalar::Int(1), DType::Bool);
    for (op, dt, src) in [
        (Op::Sub, DType::Bool, vec![b, b]),
        (Op::Idiv, DType::F32, vec![f(1.0), f(1.0)]),
        (Op::Div, DType::Bool, vec![b, b]),
        (Op::And, DType::F32, vec![f(1.0), f(1.0)]),
        (Op::Sin, DType::Bool, vec![b]),
        (Op::Reshape, DType::F32, vec![f(1.0)]),
    ] {
        assert_eq!(eval_alu(op, dt, &src), None, "{op:?} {dt}");
    }
}
