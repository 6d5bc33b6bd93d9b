//! Attention on targets with workgroup memory: one kernel, whose scores are in no buffer, with the evaluator's results.

use gradloom_core::codegen::{Opt, compile};
use gradloom_core::device::EvalDevice;
use gradloom_core::engine::Engine;
use gradloom_core::target::{Lang, Target};
use gradloom_core::tensor::{Attention, Session, Tensor};
use gradloom_core::uop::eval::eval_tensor;

fn seeded(s: &Session, shape: &[usize], seed: u32) -> Tensor {
    let n: usize = shape.iter().product();
    let mut x = seed.wrapping_mul(2654435761).wrapping_add(12345);
    let data: Vec<f32> = (0..n)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            4.0 * ((x >> 8) as f32 / (1 << 23) as f32 - 1.0)
        })
        .collect();
    Tensor::new(s, &data, shape).unwrap()
}

fn floats(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

fn shader() -> Target {
    Target { lang: Lang::Eval, ..Target::wgsl("shader") }
}

/// How many kernels a value takes on a target, run by the interpreter, whose results are those of the graph.
fn kernels(t: &Target, make: impl Fn(&Session) -> Tensor) -> usize {
    let s = Session::new();
    let y = make(&s);
    let want = {
        let state = s.state();
        let mut host = |id: u32| state.buffer(id).and_then(|b| b.host.as_ref().map(|h| h.to_vec()));
        eval_tensor(&state.graph, &[state.node(y.root())], &mut host, &|_| None).unwrap().remove(0).data
    };
    let mut e = Engine::new(Box::new(EvalDevice::new(t.clone())));
    let p = e.start(&mut s.state(), &[y.root()]).unwrap();
    let n = p.plan().calls.len();
    e.finish(&mut s.state(), p).unwrap();
    let (ticket, dt, _) = e.read(&mut s.state(), y.root()).unwrap();
    let (got, want) = (floats(&e.poll(ticket, dt).unwrap().unwrap()), floats(&want));
    for (i, (x, y)) in got.iter().zip(&want).enumerate() {
        assert!((x - y).abs() <= 1e-4 || x.is_nan() && y.is_nan(), "[{i}]: {x}, not {y}");
    }
    n
}

fn heads(s: &Session, queries: [usize; 2], keys: [usize; 2], width: usize, o: &Attention) -> Tensor {
    let [rows, heads] = queries;
    let q = seeded(s, &[1, heads, rows, width], 1);
    let [k, v] = [2, 3].map(|seed| seeded(s, &[1, keys[1], keys[0], width], seed));
    q.attention(&k, &v, o).unwrap()
}

#[test]
fn scores_stay_in_workgroup_memory() {
    let plain = Attention::default();
    for (rows, keys, width) in [(64, 64, 32), (96, 160, 64), (33, 197, 40), (16, 8, 16), (70, 70, 80)] {
        let n = kernels(&shader(), |s| heads(s, [rows, 2], [keys, 2], width, &plain));
        assert_eq!(n, 1, "{rows} rows, {keys} keys, {width} wide");
    }
}

#[test]
fn masks_and_shared_heads_are_part_of_the_kernel() {
    let causal = Attention { causal: true, ..Attention::default() };
    assert_eq!(kernels(&shader(), |s| heads(s, [80, 2], [80, 2], 32, &causal)), 1, "causal");
    assert_eq!(kernels(&shader(), |s| heads(s, [48, 4], [64, 2], 16, &causal)), 1, "heads share keys");
    let added = |s: &Session| {
        let mask = seeded(s, &[1, 1, 40, 72], 7);
        heads(s, [40, 2], [72, 2], 16, &Attention { mask: Some(&mask), ..Attention::default() })
    };
    assert_eq!(kernels(&shader(), added), 1, "a mask that is added");
    // the first keys of some rows are masked, and all of one
    let hidden = |s: &Session| {
        let bits: Vec<bool> = (0..40 * 72).map(|i| i / 72 != 3 && i % 72 > 40 - i / 72).collect();
        let mask = Tensor::new(s, &bits, &[1, 1, 40, 72]).unwrap();
        heads(s, [40, 2], [72, 2], 16, &Attention { mask: Some(&mask), ..Attention::default() })
    };
    assert_eq!(kernels(&shader(), hidden), 1, "a mask that hides");
}

#[test]
fn more_is_not_one_kernel() {
    // a processor that plays a GPU has no fast memory of a workgroup; one row is a vector times matrices
    let plain = Attention::default();
    assert_eq!(kernels(&shader().by_processor(), |s| heads(s, [64, 2], [64, 2], 32, &plain)), 3);
    assert!(kernels(&shader(), |s| heads(s, [1, 2], [64, 2], 32, &plain)) > 1);
}

/// Bytes that the kernels of a value read and write at least, and the opts of the first.
fn traffic(t: &Target, make: impl Fn(&Session) -> Tensor) -> (Vec<u64>, String) {
    let s = Session::new();
    let y = make(&s);
    let state = s.state();
    let (g, roots) = gradloom_core::engine::close(&state.graph, &[state.node(y.root())]);
    let kernels = gradloom_core::schedule::schedule(&g, &roots, 4, t).unwrap().kernels;
    let programs: Vec<_> = kernels.iter().map(|k| compile(&k.ast, t, None).unwrap()).collect();
    (programs.iter().map(|p| p.bytes).collect(), Opt::list(&programs[0].opts))
}

#[test]
fn memory_sees_queries_keys_values_and_results() {
    let make = |s: &Session| heads(s, [1024, 12], [1024, 12], 64, &Attention::default());
    let t = Target::wgsl("shader");
    let (own, opts) = traffic(&t, make);
    let tensor = 4 * 12 * 1024 * 64;
    assert_eq!(own, [4 * tensor]);
    assert!(opts.contains("stage p2 in") && opts.contains("stage p3 in"), "{opts}");
    // scores and weights go through memory twice each
    let (three, _) = traffic(&t.by_processor(), make);
    assert_eq!(three.iter().sum::<u64>(), 4 * tensor + 4 * (4 * 12 * 1024 * 1024));
}
