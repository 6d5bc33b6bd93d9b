//! Valid graphs of which one node is changed at random, through what is public: the change is refused with an error that says
//! why, or the graph gives on the processor what it gives in the evaluator, and no kernel leaves its buffers. And texts and
//! bytes of graphs that were damaged: an error, or a graph by the rules.

use super::random::difference;
use gradloom::{Runtime, Tensor};
use gradloom_core::device::NullDevice;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Bytes, Engine};
use gradloom_core::tensor::wire;
use gradloom_core::uop::eval::eval_tensor;
use gradloom_core::uop::print::{print, print_program};
use gradloom_core::uop::random::{Options, RandomGraph, Rng, tensor_graph};
use gradloom_core::uop::spec::{Stage, verify};
use gradloom_core::uop::{Arg, Graph, Op, ReduceOp, ScatterMode, UOp, parse};
use gradloom_core::{DType, Error, Session};
use gradloom_tests::here;
use gradloom_tests::programs::samples;

const DTYPES: [DType; 6] = [DType::F32, DType::I32, DType::I64, DType::U8, DType::Bool, DType::I16];
/// A changed shape may be large: what takes longer than moments to evaluate is not run.
const MOST: u64 = 1 << 14;

/// One node as `try_node` takes it.
#[derive(Clone, Debug)]
struct Proposal {
    op: Op,
    dtype: DType,
    src: Vec<UOp>,
    arg: Arg,
}

fn number(n: usize, rng: &mut Rng) -> usize {
    match rng.below(8) {
        0 => 0,
        1 => n.saturating_add(1),
        2 => n.saturating_sub(1),
        3 => usize::MAX - rng.below(3),
        4 => n.saturating_mul(2),
        _ => rng.below(20),
    }
}

/// The argument with a number in it changed, or another one altogether.
fn other_arg(arg: &Arg, seen: &[Proposal], rng: &mut Rng) -> Arg {
    let mut arg = arg.clone();
    match &mut arg {
        Arg::Shape(s) if !s.is_empty() => {
            let i = rng.below(s.len());
            s[i] = number(s[i], rng);
        }
        Arg::Axes(a) | Arg::Reduce(_, a) if !a.is_empty() => {
            let i = rng.below(a.len());
            a[i] = rng.below(9) as u8;
        }
        Arg::Pairs(p) if !p.is_empty() => {
            let i = rng.below(p.len());
            p[i] = (number(p[i].0, rng), number(p[i].1, rng));
        }
        Arg::Scatter(_, axis) => *axis = rng.below(6) as u8,
        Arg::Const(c) => *c = if rng.once_in(2) { Scalar::Int(rng.bits() as i64) } else { Scalar::float(1e30) },
        Arg::Buffer { len, .. } => *len = number(*len, rng),
        _ if !seen.is_empty() => return seen[rng.below(seen.len())].arg.clone(),
        _ => return Arg::Param { slot: 0, len: 4 },
    }
    arg
}

fn change(p: &mut Proposal, before: usize, seen: &[Proposal], rng: &mut Rng) {
    match rng.below(6) {
        0 => p.op = Op::ALL[rng.below(Op::ALL.len())],
        1 => p.dtype = if rng.once_in(8) { DType::Void } else { DType::ALL[rng.below(DType::ALL.len())] },
        2 if !p.src.is_empty() && before > 0 => {
            let i = rng.below(p.src.len());
            // now and then one that is not there
            p.src[i] = UOp(rng.below(before + before / 8) as u32);
        }
        3 if !p.src.is_empty() => _ = p.src.remove(rng.below(p.src.len())),
        3 | 4 if before > 0 => p.src.push(UOp(rng.below(before) as u32)),
        _ => p.arg = other_arg(&p.arg, seen, rng),
    }
}

/// The graph again in a session, node by node, with the `at`th node changed.
fn rebuilt(r: &RandomGraph, s: &Session, at: usize, rng: &mut Rng) -> Result<Vec<UOp>, Error> {
    let mut state = s.state();
    let (mut seen, mut images) = (Vec::<Proposal>::new(), vec![UOp(u32::MAX); r.g.len()]);
    for (bytes, u) in r.buffers.iter().zip(r.g.iter().filter(|&u| r.g.op(u) == Op::Buffer)) {
        // ids count up in a fresh session as they do in the graph
        state.add_buffer(r.g.dtype(u), r.g.memory_len(u), Some(Bytes::new(bytes.clone())));
    }
    for u in r.g.iter() {
        let src = r.g.src(u).iter().map(|s| images[s.0 as usize]).collect();
        let mut p = Proposal { op: r.g.op(u), dtype: r.g.dtype(u), src, arg: r.g.arg(u).clone() };
        if u.0 as usize == at {
            change(&mut p, state.graph.len(), &seen, rng);
        }
        images[u.0 as usize] = state.graph.try_node(p.op, p.dtype, &p.src, p.arg.clone())?;
        seen.push(p);
    }
    Ok(r.roots.iter().map(|u| images[u.0 as usize]).collect())
}

/// Is every value exact, and the same in whatever order it is computed? A scatter whose places do not differ although it says so
/// has no order, and a truth value is 0 or 1, which a buffer of another dtype need not hold.
fn has_one_answer(s: &Session, nodes: &[UOp]) -> bool {
    use Op::*;
    let state = s.state();
    let g = &state.graph;
    nodes.iter().all(|&u| match (g.op(u), g.arg(u)) {
        (Exp2 | Log2 | Sin | Cos | Tan | Sqrt | Recip | Div, _) => false,
        (Scatter, Arg::Scatter(ScatterMode::Unique, _)) => false,
        (Reduce | Scan, Arg::Reduce(ReduceOp::Mul, _)) => !g.dtype(u).is_float(),
        (Buffer, Arg::Buffer { id, .. }) => state.buffer(*id).is_some_and(|b| b.dtype == g.dtype(u)),
        _ => true,
    })
}

#[test]
fn a_changed_graph_is_refused_or_gives_its_own_values() {
    let Some(()) = here::device("cpu:guarded", gradloom::open("cpu:guarded", 1).map(|_| ())) else { return };
    let (mut refused, mut ran, mut compared, mut later) = (0, 0, 0, 0);
    for seed in 0..900u64 {
        let o = Options { ops: 3 + seed as usize % 10, dtypes: &DTYPES, special: false, exact: true, max_elems: 120 };
        let r = tensor_graph(seed, o);
        let mut rng = Rng(seed ^ 0xABCD);
        let at = rng.below(r.g.len());
        let mut rt = Runtime::open("cpu:guarded", 1).expect("the cpu device");
        let s = rt.session().clone();
        let roots = match rebuilt(&r, &s, at, &mut rng) {
            Ok(roots) => roots,
            Err(e) => {
                assert_eq!(e.code(), "E_VALUE", "seed {seed}: {e}");
                refused += 1;
                continue;
            }
        };
        let want = {
            let state = s.state();
            if state.graph.reachable(&roots).iter().any(|&u| state.graph.numel(u) > MOST) {
                continue;
            }
            let mut bytes = |id: u32| state.buffer(id)?.host.as_ref().map(|h| h.to_vec());
            eval_tensor(&state.graph, &roots, &mut bytes, &|_| None)
        };
        let nodes = s.state().graph.reachable(&roots);
        let tensors: Vec<Tensor> = roots.iter().map(|&u| Tensor::from_node(&s, u)).collect();
        let refs: Vec<&Tensor> = tensors.iter().collect();
        let got = rt.realize(&refs).and_then(|_| refs.iter().map(|t| rt.read(t)).collect::<Result<Vec<_>, _>>());
        match (want, got) {
            (Ok(want), Ok(got)) => {
                ran += 1;
                if !has_one_answer(&s, &nodes) {
                    continue;
                }
                compared += 1;
                for (w, g) in want.iter().zip(&got) {
                    let wrong = difference(&g.data, w);
                    assert!(wrong.is_none(), "seed {seed}, node {at}: {}", wrong.unwrap_or_default());
                }
            }
            (_, Err(e)) => {
                later += 1;
                assert!(!e.to_string().contains("panic"), "seed {seed}, node {at}: {e}");
            }
            // a buffer that claims to be another: only the evaluator is given its bytes alone
            (Err(_), Ok(_)) => later += 1,
        }
    }
    println!("{refused} changes were refused, {ran} graphs ran, {compared} were compared, {later} were refused later");
    assert!(
        refused > 100 && compared > 100,
        "{refused} changes were refused, {ran} graphs ran, {compared} were compared"
    );
}

/// A node that claims more of a buffer than there is.
#[test]
fn a_buffer_is_not_longer_than_it_is() {
    let Some(()) = here::device("cpu:guarded", gradloom::open("cpu:guarded", 1).map(|_| ())) else { return };
    for len in [9, 4096, 1 << 20] {
        let mut rt = Runtime::open("cpu:guarded", 1).expect("the cpu device");
        let s = rt.session().clone();
        let x = Tensor::new(&s, &[1.0f32; 8], &[8]).unwrap();
        rt.to_vec::<f32>(&x.add(1.0).unwrap()).unwrap();
        let node = x.node();
        let id = s.state().buffer_id(node).unwrap();
        let long = s.state().graph.try_node(Op::Buffer, DType::F32, &[], Arg::Buffer { id, len }).unwrap();
        let y = Tensor::from_node(&s, long);
        assert!(rt.to_vec::<f32>(&y).is_err(), "{len}");
        assert!(rt.to_vec::<f32>(&y.add(1.0).unwrap()).is_err(), "{len}");
    }
}

/// Changes a text or bytes in one to three places.
fn damaged(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(out.len().max(1));
        match rng.below(5) {
            0 => out.truncate(at),
            1 if at < out.len() => out[at] ^= 1 << rng.below(8),
            2 if at < out.len() => out[at] = rng.bits() as u8,
            3 if at < out.len() => out[at] = rng.pick(b"0123456789%[],=:-"),
            _ if at < out.len() => _ = out.remove(at),
            _ => {}
        }
    }
    out
}

#[test]
fn damaged_texts_are_errors_or_graphs_by_the_rules() {
    let mut texts: Vec<(String, Stage)> = Vec::new();
    for seed in 0..40 {
        let o = Options { ops: 8, dtypes: &DTYPES, special: false, exact: true, max_elems: 120 };
        let r = tensor_graph(seed, o);
        texts.push((print(&r.g, &r.roots), Stage::Tensor));
    }
    let t = gradloom_core::target::Target::wgsl("wgpu");
    texts
        .extend(samples(&t).iter().step_by(4).map(|s| (print_program(&s.program.g, &s.program.order), Stage::Program)));
    let (mut errors, mut good) = (0, 0);
    for (i, (text, stage)) in texts.iter().enumerate() {
        for n in 0..60 {
            let mut rng = Rng((i * 1000 + n) as u64);
            let bad = String::from_utf8_lossy(&damaged(text.as_bytes(), &mut rng)).into_owned();
            let Ok(p) = parse::parse(&bad) else {
                errors += 1;
                continue;
            };
            let g: &Graph = &p.graph;
            let of = if *stage == Stage::Tensor { &p.roots } else { &p.order };
            match verify(g, of, *stage) {
                Ok(()) => good += 1,
                Err(e) => assert_eq!(e.code(), "E_INTERNAL", "{e}"),
            }
        }
    }
    assert!(errors > 500 && good > 100, "{errors} errors, {good} graphs");
}

#[test]
fn damaged_bytes_of_a_graph_are_errors_or_graphs_by_the_rules() {
    let there = Session::new();
    let p = Tensor::empty(&there, DType::F32, &[4, 6]).unwrap();
    let table = Tensor::new(&there, &[1.5f32, -2.0, 0.25, 4.0, 5.0, 6.0], &[6]).unwrap();
    let y = p.mul(&table).unwrap().softmax(-1).unwrap().narrow(0, 1, 2).unwrap().pad_zeros(&[(1, 0), (0, 2)]).unwrap();
    let z = y.cumsum(1).unwrap().t().unwrap().argmax(0, false).unwrap();
    let bytes = wire::write(&there, &[y, z], std::slice::from_ref(&p)).unwrap();
    // the first bytes name the build: behind them begins what may be anything
    let head = env_length(&bytes);
    let (mut errors, mut good) = (0, 0);
    for seed in 0..4000 {
        let mut rng = Rng(seed);
        let bad = [&bytes[..head], &damaged(&bytes[head..], &mut rng)[..]].concat();
        let here = Session::new();
        let x = Tensor::empty(&here, DType::F32, &[4, 6]).unwrap();
        let Ok(outs) = wire::read(&here, &bad, std::slice::from_ref(&x)) else {
            errors += 1;
            continue;
        };
        good += 1;
        let roots: Vec<UOp> = outs.iter().map(Tensor::node).collect();
        let small = {
            let state = here.state();
            let nodes = state.graph.reachable(&roots);
            nodes.iter().all(|&u| state.graph.numel(u) <= MOST)
        };
        if small {
            // planned or refused, as any graph
            let mut engine = Engine::new(Box::new(NullDevice::new(gradloom_core::target::Target::eval())));
            let ids: Vec<_> = outs.iter().map(Tensor::root).collect();
            let _ = engine.start(&mut here.state(), &ids);
        }
    }
    assert!(errors > 500 && good > 50, "{errors} errors, {good} graphs");
}

/// How many bytes name the build: as many as any two graphs of it have in common.
fn env_length(bytes: &[u8]) -> usize {
    let s = Session::new();
    s.state().draws = 1;
    let other = wire::write(&s, &[Tensor::empty(&s, DType::I64, &[3]).unwrap()], &[]).unwrap();
    bytes.iter().zip(&other).take_while(|(a, b)| a == b).count()
}
