//! Compiling takes time and memory in proportion to the graph: chains and fans of every kind of operation are scheduled at
//! two lengths, and what comes out at twice the length is about twice as much. Index arithmetic that is substituted into
//! index arithmetic would grow without bound otherwise.

use gradloom_core::device::EvalDevice;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Engine, close};
use gradloom_core::schedule::schedule;
use gradloom_core::target::{Isa, Target};
use gradloom_core::tensor::{Interpolate, PadMode, ScatterOp, Session, Slice, Tensor};
use gradloom_core::uop::eval::eval_tensor;
use gradloom_core::uop::hash;
use gradloom_core::{DType, Result};
use std::time::{Duration, Instant};

type Build = fn(&Session, usize) -> Result<Vec<Tensor>>;

fn floats(s: &Session, shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    Tensor::new(s, &(0..n).map(|i| (i * 37 % 23) as f32 / 16.0).collect::<Vec<f32>>(), shape)
}

fn places(s: &Session, shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    Tensor::new(s, &(0..n).map(|i| (i * 37 % 31) as i32).collect::<Vec<i32>>(), shape)
}

/// `step` applied `n` times.
fn chain(mut x: Tensor, n: usize, step: impl Fn(&Tensor, usize) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    for i in 0..n {
        x = step(&x, i)?;
    }
    Ok(vec![x])
}

const CASES: &[(&str, Build)] = &[
    ("gathers of one table", |s, n| {
        let table = places(s, &[64])?;
        chain(places(s, &[32])?, n, |x, _| table.index_select(0, x))
    }),
    ("gathers of gathers", |s, n| {
        let at = places(s, &[64])?;
        chain(floats(s, &[64])?, n, |x, _| x.index_select(0, &at))
    }),
    ("gathers at computed places", |s, n| {
        let at = Tensor::arange(s, 0.0, 60.0, 1.0, DType::I32)?;
        chain(floats(s, &[60])?, n, |x, i| x.index_select(0, &at.mul(7)?.add(i as i64 + 1)?.modulo(60)?))
    }),
    ("nearest resizes", |s, n| {
        chain(floats(s, &[1, 2, 17, 13])?, n, |x, i| {
            let size = [[23, 31], [17, 13]][i % 2];
            x.interpolate(&size, Interpolate::Nearest, false)
        })
    }),
    ("linear resizes", |s, n| {
        chain(floats(s, &[1, 1, 7])?, n, |x, i| x.interpolate(&[[11], [7]][i % 2], Interpolate::Linear, false))
    }),
    ("reshapes and transposes", |s, n| {
        let sizes = [[6, 35], [14, 15], [10, 21], [7, 30]];
        chain(floats(s, &[6, 35])?, n, |x, i| x.reshape(&sizes[i % 4])?.t())
    }),
    ("reshapes and flips", |s, n| {
        let sizes = [[6, 35], [14, 15], [10, 21]];
        chain(floats(s, &[6, 35])?, n, |x, i| x.reshape(&sizes[i % 3])?.flip(&[0]))
    }),
    ("pads and slices", |s, n| chain(floats(s, &[40])?, n, |x, i| x.pad_zeros(&[(i % 3, 2)])?.narrow(0, 1, 40))),
    ("reflected pads", |s, n| {
        chain(floats(s, &[40])?, n, |x, _| x.pad(&[(2, 1)], PadMode::Reflect, 0.0)?.narrow(0, 1, 40))
    }),
    ("concatenations", |s, n| {
        let y = floats(s, &[8])?;
        chain(floats(s, &[40])?, n, |x, _| Tensor::cat(&[&y, &x.narrow(0, 3, 32)?], 0))
    }),
    ("growing concatenations", |s, n| {
        let y = floats(s, &[3])?;
        chain(floats(s, &[2])?, n, |x, _| Tensor::cat(&[x, &y], 0))
    }),
    ("slices with strides", |s, n| {
        chain(floats(s, &[64])?, n, |x, _| {
            let odd = x.slice(&[Slice::step(Some(1), None, 2)])?;
            Tensor::cat(&[&odd, &x.slice(&[Slice::step(None, None, 2)])?], 0)
        })
    }),
    ("rolls", |s, n| chain(floats(s, &[50])?, n, |x, i| x.roll(i as i64 % 5 + 1, 0))),
    ("rolls of two axes", |s, n| chain(floats(s, &[6, 10])?, n, |x, i| x.roll(1, 0)?.roll(i as i64 % 3 + 1, 1))),
    ("repeats", |s, n| {
        chain(floats(s, &[12])?, n, |x, i| {
            x.repeat_interleave(2, 0)?.narrow(0, i % 7, 12)?.repeat(&[2])?.narrow(0, 5, 12)
        })
    }),
    ("scatters", |s, n| {
        let (at, y) = (places(s, &[16])?, floats(s, &[16])?);
        chain(floats(s, &[40])?, n, |x, _| x.scatter(0, &at, &y, ScatterOp::Set))
    }),
    ("cumulative sums", |s, n| chain(floats(s, &[40])?, n, |x, _| x.cumsum(0))),
    ("sums that are broadcast", |s, n| chain(floats(s, &[8, 8])?, n, |x, i| x.sum(&[i as i64 % 2], true)?.add(x))),
    ("elementwise operations", |s, n| {
        let y = floats(s, &[256])?;
        chain(floats(s, &[256])?, n, |x, i| if i % 2 == 0 { x.mul(&y) } else { x.sub(&y)?.relu() })
    }),
    ("elementwise operations on new buffers", |s, n| chain(floats(s, &[256])?, n, |x, _| x.mul(&floats(s, &[256])?))),
    ("integer divisions", |s, n| {
        chain(places(s, &[64])?, n, |x, i| x.mul(3)?.add(1)?.modulo(97 + i as i64)?.floor_div(2))
    }),
    ("nested choices", |s, n| {
        let y = floats(s, &[64])?;
        chain(floats(s, &[64])?, n, |x, i| x.gt(i as f64)?.select(&x.add(1.0)?, &y))
    }),
    ("nested choices by place", |s, n| {
        let at = Tensor::arange(s, 0.0, 64.0, 1.0, DType::I32)?;
        let y = floats(s, &[64])?;
        chain(floats(s, &[64])?, n, |x, i| at.lt(i as i64 % 64)?.select(x, &y))
    }),
    ("values added to moved ones", |s, n| chain(floats(s, &[64])?, n, |x, _| x.add(&x.flip(&[0])?))),
    ("values added to shifted ones", |s, n| {
        chain(floats(s, &[64 + n])?, n, |x, _| {
            let m = x.shape()[0] - 1;
            x.narrow(0, 0, m)?.add(&x.narrow(0, 1, m)?)
        })
    }),
    ("outer products summed", |s, n| {
        let y = floats(s, &[12, 1])?;
        chain(floats(s, &[12])?, n, |x, _| x.reshape(&[1, 12])?.mul(&y)?.reshape(&[12, 12])?.sum(&[0], false))
    }),
    ("broadcasts between reshapes", |s, n| {
        chain(floats(s, &[12])?, n, |x, i| x.reshape(&[12, 1])?.expand(&[12, 5])?.reshape(&[60])?.narrow(0, i % 9, 12))
    }),
    ("matrix products", |s, n| {
        let w = floats(s, &[16, 16])?;
        chain(floats(s, &[4, 16])?, n, |x, _| x.matmul(&w)?.relu())
    }),
    ("gradients of a chain", |s, n| {
        let x = floats(s, &[64])?;
        let y = chain(x.clone(), n, |x, _| x.mul(1.5)?.sin())?.remove(0);
        y.sum(&[], false)?.grad(&[&x])
    }),
    ("many results", |s, n| {
        let x = floats(s, &[64])?;
        (0..n).map(|i| x.add(i as f64)?.mul(&floats(s, &[64])?)).collect()
    }),
    ("one concatenation of many", |s, n| {
        let parts = (0..n).map(|i| floats(s, &[i % 5 + 1])).collect::<Result<Vec<_>>>()?;
        Ok(vec![Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?])
    }),
    ("one value with many users", |s, n| {
        let x = floats(s, &[64])?.sum(&[], false)?;
        let parts = (0..n).map(|i| x.mul(i as f64)).collect::<Result<Vec<_>>>()?;
        Ok(vec![Tensor::stack(&parts.iter().collect::<Vec<_>>(), 0)?])
    }),
];

/// The longest chain of a case that is scheduled here, and more nodes than any of its kernels has.
const LONG: usize = 48;
const LARGEST: usize = 1200;

fn schedule_of(build: Build, n: usize) -> Result<Vec<usize>> {
    let s = Session::new();
    let outs = build(&s, n)?;
    let roots: Vec<_> = outs.iter().map(Tensor::node).collect();
    let (_, externals) = hash::closed_key(&s.state().graph, &roots);
    let (g, closed) = close(&s.state().graph, &roots);
    let plan = schedule(&g, &closed, externals.len(), &Target::x86(Isa::Avx512, 1))?;
    Ok(plan.kernels.iter().map(|k| k.ast.g.len()).collect())
}

/// Kernels come to an end however long the chain is, and twice the chain is not many times the nodes (what is
/// computed again in each kernel grows until that is too much).
#[test]
fn nodes_grow_with_the_length_of_a_chain() {
    for (name, build) in CASES {
        let begun = Instant::now();
        let (half, whole) = (schedule_of(*build, LONG / 2).unwrap(), schedule_of(*build, LONG).unwrap());
        let sum = |list: &[usize]| list.iter().sum::<usize>();
        assert!(sum(&whole) <= 5 * sum(&half) + 100, "{name}: {half:?} then {whole:?}");
        assert!(whole.iter().all(|n| *n < LARGEST), "{name}: {whole:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{name} took {:?}", begun.elapsed());
    }
}

/// Chains of a thousand moves are a few kernels of bounded index arithmetic, found in proportion to their length.
#[test]
fn a_thousand_moves_in_a_row_are_planned_in_proportion() {
    for (name, most) in [("gathers of one table", 4), ("nearest resizes", 260), ("reshapes and transposes", 70)] {
        let build = CASES.iter().find(|c| c.0 == name).expect("a case").1;
        let begun = Instant::now();
        let (half, whole) = (schedule_of(build, 500).unwrap(), schedule_of(build, 1000).unwrap());
        let sum = |list: &[usize]| list.iter().sum::<usize>();
        assert!(whole.len() <= most, "{name}: {} kernels", whole.len());
        assert!(10 * sum(&whole) <= 22 * sum(&half), "{name}: {} nodes, then {}", sum(&half), sum(&whole));
        assert!(begun.elapsed() < Duration::from_secs(60), "{name} took {:?}", begun.elapsed());
    }
}

/// Where a chain is cut, the values stay.
#[test]
fn values_are_those_of_the_evaluator() {
    for (name, build) in CASES {
        let s = Session::new();
        let outs = build(&s, 20).unwrap();
        let roots: Vec<_> = outs.iter().map(Tensor::node).collect();
        let want = {
            let state = s.state();
            let mut host = |id: u32| state.buffer(id).and_then(|b| b.host.as_ref().map(|h| h.to_vec()));
            eval_tensor(&state.graph, &roots, &mut host, &|_| None).unwrap()
        };
        let mut engine = Engine::new(Box::new(EvalDevice::default()));
        let ids: Vec<_> = outs.iter().map(Tensor::root).collect();
        let pending = engine.start(&mut s.state(), &ids).unwrap();
        engine.finish(&mut s.state(), pending).unwrap();
        for (t, want) in outs.iter().zip(want) {
            let (ticket, dt, _) = engine.read(&mut s.state(), t.root()).unwrap();
            let got = engine.poll(ticket, dt).unwrap().unwrap();
            let read = |b: &[u8]| b.chunks_exact(4).map(|c| Scalar::read(dt, c).as_f64()).collect::<Vec<_>>();
            for (i, (a, b)) in read(&got).into_iter().zip(read(&want.data)).enumerate() {
                let near = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-4 * (1.0 + b.abs());
                assert!(near, "{name} [{i}]: {a}, {b} wanted");
            }
        }
    }
}
