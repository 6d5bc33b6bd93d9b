//! Tensor expressions through scheduler, codegen and the interpreter of programs, compared with the interpreter of tensors.

use gradloom_core::device::EvalDevice;
use gradloom_core::engine::{Bytes, Engine};
use gradloom_core::target::{Caps, Isa, Lang, Limits, Target};
use gradloom_core::tensor::{Attention, ConvOpts, PadMode, PoolOpts, Session, Tensor};
use gradloom_core::uop::eval::eval_tensor;
use gradloom_core::{DType, Result};

/// Targets whose axis opts and tiles are tried, all run by the interpreter.
fn targets() -> Vec<Target> {
    let eval = Target::eval();
    let cpu = Target {
        caps: Caps { lanes: 8, fma: true, ..Caps::eval() },
        limits: Limits { threads: 2, ..Limits::eval() },
        ..eval.clone()
    };
    let gpu = Target {
        caps: Caps { lanes: 4, has_local: true, fma: true, ..Caps::eval() },
        limits: Limits { max_local: [256, 256, 64], max_local_total: 256, ..Limits::eval() },
        ..eval.clone()
    };
    let shader = Target { lang: Lang::Eval, ..Target::wgsl("shader") };
    let avx2 = Target { lang: Lang::Eval, ..Target::x86(Isa::Avx2, 1) };
    vec![eval, cpu, gpu, shader, avx2]
}

fn seeded(s: &Session, shape: &[usize], seed: u32) -> Tensor {
    let n: usize = shape.iter().product();
    let mut x = seed.wrapping_mul(2654435761).wrapping_add(12345);
    let data: Vec<f32> = (0..n)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            (x >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::new(s, &data, shape).unwrap()
}

fn reference(t: &Tensor) -> Vec<u8> {
    let s = t.session().state();
    let node = s.node(t.root());
    let host = |id: u32| s.buffer(id).and_then(|b| b.host.as_ref().map(|h| h.to_vec()));
    let mut host = host;
    eval_tensor(&s.graph, &[node], &mut host, &|_| None).unwrap().remove(0).data
}

fn floats(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

fn check(name: &str, f: impl Fn(&Session) -> Result<Tensor>) {
    for target in targets() {
        let s = Session::new();
        let t = f(&s).unwrap();
        let want = reference(&t);
        let mut e = Engine::new(Box::new(EvalDevice::new(target.clone())));
        let p = e.start(&mut s.state(), &[t.root()]).unwrap_or_else(|e| panic!("{name}: {e}"));
        let n = p.plan().calls.len();
        for c in &p.plan().calls {
            println!("{name} {} {}", target.caps.lanes, e.program(c.program).unwrap().source.name);
        }
        e.finish(&mut s.state(), p).unwrap_or_else(|e| panic!("{name} ({n} kernels): {e}"));
        let (ticket, dt, _) = e.read(&mut s.state(), t.root()).unwrap();
        let got = e.poll(ticket, dt).unwrap().unwrap();
        if t.dtype() == DType::F32 {
            let (a, b) = (floats(&got), floats(&want));
            let scale = b.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
            for (i, (x, y)) in a.iter().zip(&b).enumerate() {
                assert!(
                    (x - y).abs() <= 2e-5 * scale || x == y || (x.is_nan() && y.is_nan()),
                    "{name} [{i}]: {x} != {y} on {target:?}"
                );
            }
        } else {
            assert_eq!(got, want, "{name}");
        }
    }
}

#[test]
fn elementwise_and_views() {
    check("add", |s| seeded(s, &[5, 7], 1).add(&seeded(s, &[5, 7], 2)));
    check("broadcast", |s| seeded(s, &[5, 1, 8], 1).mul(&seeded(s, &[3, 8], 2)));
    check("permute", |s| seeded(s, &[4, 6, 8], 1).permute(&[2, 0, 1])?.add(1.0));
    check("flip", |s| seeded(s, &[4, 6], 1).flip(&[0, 1])?.mul(2.0));
    check("pad", |s| seeded(s, &[4, 6], 1).add(1.0)?.pad(&[(1, 2), (0, 3)], PadMode::Constant, 0.0));
    check("cat", |s| Tensor::cat(&[&seeded(s, &[2, 6], 1), &seeded(s, &[3, 6], 2).add(1.0)?], 0));
    check("arange", |s| Tensor::arange(s, 0.0, 10.0, 1.0, DType::I32)?.mul(3));
    check("const", |s| Tensor::full(s, 2.5, DType::F32, &[3, 4]));
    check("reshape", |s| seeded(s, &[4, 6], 1).permute(&[1, 0])?.reshape(&[3i64, 8])?.add(0.5));
}

#[test]
fn reductions() {
    check("sum all", |s| seeded(s, &[13, 7], 1).sum(&[], false));
    check("sum rows", |s| seeded(s, &[13, 24], 1).sum(&[1], true));
    check("sum cols", |s| seeded(s, &[13, 24], 1).sum(&[0], false));
    check("max", |s| seeded(s, &[13, 24], 1).max(&[-1], false));
    check("softmax", |s| seeded(s, &[5, 33], 1).softmax(-1));
    check("mean var", |s| seeded(s, &[5, 32], 1).var(&[-1], 0, false));
    check("argmax", |s| seeded(s, &[5, 9], 1).argmax(1, false));
}

#[test]
fn contractions() {
    check("matmul", |s| seeded(s, &[12, 20], 1).matmul(&seeded(s, &[20, 16], 2)));
    check("matmul odd", |s| seeded(s, &[7, 5], 1).matmul(&seeded(s, &[5, 9], 2)));
    check("linear", |s| seeded(s, &[3, 24], 1).linear(&seeded(s, &[10, 24], 2), Some(&seeded(s, &[10], 3))));
    check("one-hot", |s| {
        let i = Tensor::new(s, &[3i64, 0, 7, -1, 2], &[5])?;
        i.one_hot(6)?.cast(DType::F32)?.matmul(&seeded(s, &[6, 8], 2))
    });
    check("bmm", |s| seeded(s, &[2, 3, 4, 5], 1).matmul(&seeded(s, &[2, 3, 5, 6], 2)));
    check("conv", |s| {
        let o = ConvOpts::new().padding(&[1, 1]);
        seeded(s, &[1, 3, 8, 8], 1).conv(&seeded(s, &[4, 3, 3, 3], 2), Some(&seeded(s, &[4], 3)), &o)?.relu()
    });
    check("conv twice", |s| {
        let o = ConvOpts::new().padding(&[1, 1]);
        let a = seeded(s, &[1, 3, 8, 8], 1).conv(&seeded(s, &[4, 3, 3, 3], 2), None, &o)?.relu()?;
        a.conv(&seeded(s, &[4, 4, 3, 3], 5), None, &o.stride(&[2, 2]))?.add(1.0)
    });
    check("grouped", |s| {
        let o = ConvOpts::new().groups(2).dilation(&[2, 2]);
        seeded(s, &[2, 4, 9, 9], 1).conv(&seeded(s, &[6, 2, 3, 3], 2), None, &o)
    });
    check("residual", |s| {
        let x = seeded(s, &[6, 6], 1);
        let (a, b) = (x.matmul(&seeded(s, &[6, 6], 2))?, x.matmul(&seeded(s, &[6, 6], 3))?);
        a.add(&b)?.relu()?.matmul(&a)
    });
    check("pool", |s| seeded(s, &[1, 2, 7, 7], 1).max_pool(&PoolOpts::new(&[3, 3])));
}

fn run(e: &mut Engine, s: &Session, roots: &[&Tensor]) -> gradloom_core::engine::Replay {
    let ids: Vec<_> = roots.iter().map(|t| t.root()).collect();
    let p = e.start(&mut s.state(), &ids).unwrap();
    e.finish(&mut s.state(), p).unwrap()
}

fn values(e: &mut Engine, t: &Tensor) -> Vec<f32> {
    let s = t.session();
    let (ticket, dt, _) = e.read(&mut s.state(), t.root()).unwrap();
    floats(&e.poll(ticket, dt).unwrap().unwrap())
}

#[test]
fn assigns_run_once_and_readers_see_the_old_value() {
    for target in targets() {
        let s = Session::new();
        let mut e = Engine::new(Box::new(EvalDevice::new(target)));
        let w = Tensor::new(&s, &[1.0f32, 2.0, 3.0, 4.0], &[4]).unwrap();
        let before = w.mul(10.0).unwrap();
        w.assign(&w.add(1.0).unwrap()).unwrap();
        let after = w.mul(100.0).unwrap();
        run(&mut e, &s, &[&w, &after]);
        assert_eq!(values(&mut e, &w), [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(values(&mut e, &after), [200.0, 300.0, 400.0, 500.0]);
        run(&mut e, &s, &[&before]);
        assert_eq!(values(&mut e, &before), [10.0, 20.0, 30.0, 40.0]);
        w.assign(&w.flip(&[0]).unwrap()).unwrap();
        run(&mut e, &s, &[&w]);
        assert_eq!(values(&mut e, &w), [5.0, 4.0, 3.0, 2.0]);
        run(&mut e, &s, &[&w]);
        assert_eq!(values(&mut e, &w), [5.0, 4.0, 3.0, 2.0]);
    }
}

#[test]
fn a_training_step_is_planned_once() {
    let s = Session::new();
    let mut e = Engine::new(Box::new(EvalDevice::default()));
    let w = Tensor::new(&s, &[0.5f32; 6], &[3, 2]).unwrap();
    for step in 0..5 {
        let x = Tensor::new(&s, &[step as f32, 1.0, 2.0], &[1, 3]).unwrap();
        let y = x.matmul(&w).unwrap();
        w.assign(&w.sub(&y.sum(&[], false).unwrap().mul(0.01).unwrap()).unwrap()).unwrap();
        run(&mut e, &s, &[&y, &w]);
        e.collect(&mut s.state());
    }
    assert_eq!(e.counters().plans, 1);
    assert_eq!(e.counters().plan_hits, 4);
}

#[test]
fn replay_takes_new_inputs_and_variables_and_never_aliases() {
    let s = Session::new();
    let mut e = Engine::new(Box::new(EvalDevice::default()));
    let x = Tensor::new(&s, &[1.0f32, 2.0, 3.0], &[3]).unwrap();
    let k = Tensor::variable(&s, "k", 0, 100).unwrap();
    let y = x.mul(&k.cast(DType::F32).unwrap()).unwrap();
    let buffer = |t: &Tensor| {
        let st = s.state();
        st.storage(st.node(t.root())).and_then(|b| st.buffer_id(b)).unwrap()
    };
    let input = buffer(&x);
    e.set_var("k", gradloom_core::dtype::Scalar::Int(2));
    let replay = run(&mut e, &s, &[&y]);
    let other = Tensor::new(&s, &[10.0f32, 20.0, 30.0], &[3]).unwrap();
    let id = buffer(&other);
    e.set_var("k", gradloom_core::dtype::Scalar::Int(3));
    let nodes = e.replay(&mut s.state(), &replay, &[(input, id)].into_iter().collect()).unwrap();
    let z = Tensor::from_node(&s, nodes[0]);
    assert_eq!(values(&mut e, &y), [2.0, 4.0, 6.0]);
    assert_eq!(values(&mut e, &z), [30.0, 60.0, 90.0]);
}

/// A page keeps gradients alive beside the parameters, and roots' numbers are reused as tensors come and go.
#[test]
fn a_training_step_with_live_gradients_is_planned_once() {
    use gradloom_core::optim::{Adam, AdamOpts, Optimizer};
    let s = Session::new();
    let mut e = Engine::new(Box::new(EvalDevice::default()));
    let mut params: Vec<Tensor> = Vec::new();
    for (i, shape) in [[6, 8], [8, 8], [8, 8], [8, 3]].iter().enumerate() {
        params.push(seeded(&s, shape, i as u32).to_storage().unwrap());
        params.push(seeded(&s, &[shape[1]], i as u32 + 9).to_storage().unwrap());
    }
    let mut adam = Adam::new(params.clone(), 0.01, AdamOpts::default()).unwrap();
    let mut odd: Vec<Tensor> = Vec::new();
    let mut plans = Vec::new();
    for step in 0..120u32 {
        let x = seeded(&s, &[4, 6], step + 50);
        let mut h = x.clone();
        for (i, p) in params.chunks(2).enumerate() {
            let y = h.matmul(&p[0]).unwrap().add(&p[1]).unwrap();
            h = if i == 1 { y.relu().unwrap().add(&h).unwrap() } else { y.tanh().unwrap() };
        }
        let loss = h.square().unwrap().mean(&[], false).unwrap();
        let grads = loss.grad(&params.iter().collect::<Vec<_>>()).unwrap();
        if step % 7 == 3 {
            odd.push(seeded(&s, &[2], step)); // takes a root number away
        }
        if step % 11 == 10 {
            odd.clear();
        }
        adam.step(&grads).unwrap();
        let mut roots: Vec<&Tensor> = vec![&loss];
        let state = adam.tensors();
        roots.extend(state.iter());
        run(&mut e, &s, &roots);
        plans.push(e.counters().plans);
    }
    // the first step starts from other storage than the later ones
    assert!(e.counters().plans <= 3, "{plans:?}");
}

/// Seven elements are rounded up to eight: lanes past the end must be gated, on loads of gathered values too.
#[test]
fn padded_axes_are_gated() {
    for software in [false, true] {
        for mut target in targets() {
            target.machine.software = software;
            let s = Session::new();
            let mut e = Engine::new(Box::new(EvalDevice::new(target)));
            let x = Tensor::new(&s, &[3.0f32, 1.0, 2.0, 3.0, 1.0, 5.0, 0.0], &[7]).unwrap();
            let (sorted, index) = x.sort(0, true).unwrap();
            run(&mut e, &s, &[&sorted, &index]);
            assert_eq!(values(&mut e, &sorted), [5.0, 3.0, 3.0, 2.0, 1.0, 1.0, 0.0]);
            let index = index.cast(DType::F32).unwrap();
            run(&mut e, &s, &[&index]);
            assert_eq!(values(&mut e, &index), [5.0, 0.0, 3.0, 2.0, 1.0, 4.0, 6.0]);
        }
    }
}

#[test]
fn states_of_an_optimiser_may_be_assigned_in_any_order() {
    // both new values read both old ones; the shared part is no kernel of its own
    for first in [true, false] {
        let s = Session::new();
        let mut e = Engine::new(Box::new(EvalDevice::default()));
        let new = |d: &[f32]| Tensor::new(&s, d, &[d.len()]).unwrap().to_storage().unwrap();
        let (p, v, g) = (new(&[1.0, -2.0, 0.5]), new(&[0.0, 1.0, 2.0]), new(&[2.0, -2.0, 4.0]));
        run(&mut e, &s, &[&p, &v, &g]);
        let next_v = v.mul(0.5).unwrap().add(&g.add(&p.mul(0.25).unwrap()).unwrap()).unwrap();
        let next_p = p.sub(&next_v.mul(0.5).unwrap()).unwrap();
        if first {
            p.assign(&next_p).unwrap();
            v.assign(&next_v).unwrap();
        } else {
            v.assign(&next_v).unwrap();
            p.assign(&next_p).unwrap();
        }
        drop((next_p, next_v));
        run(&mut e, &s, &[&p, &v]);
        assert_eq!(values(&mut e, &v), [2.25, -2.0, 5.125], "{first}");
        assert_eq!(values(&mut e, &p), [-0.125, -1.0, -2.0625], "{first}");
    }
}

/// Products with a weight [in, out] and one [out, in], neither a multiple of any tile.
fn two_layers(s: &Session, a: &Tensor, b: &Tensor, rows: usize) -> Tensor {
    let x = seeded(s, &[rows, 37], 3);
    x.matmul(a).unwrap().relu().unwrap().linear(b, None).unwrap()
}

fn buffer(t: &Tensor) -> u32 {
    let state = t.session().state();
    state.storage(state.node(t.root())).and_then(|b| state.buffer_id(b)).unwrap()
}

/// The larger one; NaN if one is.
fn larger(a: f32, b: f32) -> f32 {
    if b <= a || a.is_nan() { a } else { b }
}

#[test]
fn frozen_weights_are_packed_once_and_kept_once() {
    let bytes = |t: &Tensor| Bytes::new(reference(t));
    for target in targets() {
        let s = Session::new();
        let mut e = Engine::new(Box::new(EvalDevice::new(target.clone())));
        let (da, db) = (bytes(&seeded(&s, &[37, 53], 1)), bytes(&seeded(&s, &[41, 53], 2)));
        // the test holds the bytes too, as a model holds its file
        let a = Tensor::from_bytes(&s, DType::F32, &[37, 53], da.clone()).unwrap();
        let b = Tensor::from_bytes(&s, DType::F32, &[41, 53], db.clone()).unwrap();
        let want = reference(&two_layers(&s, &a, &b, 5));
        a.freeze();
        b.freeze();
        let close = |got: &[f32], what: &str| {
            let want = floats(&want);
            let worst = got.iter().zip(&want).map(|(x, y)| (x - y).abs()).fold(0.0, larger);
            assert!(got.len() == want.len() && worst < 1e-4, "{what} on {}: off by {worst}", target.name);
        };
        let y = two_layers(&s, &a, &b, 5);
        let replay = run(&mut e, &s, &[&y]);
        close(&values(&mut e, &y), "first");
        let (first, calls) = (e.counters().launches, replay.plan().calls.len() as u64);
        // threads of a workgroup share blocks of the operands instead
        assert!(target.caps.has_local || first > calls, "something was packed on {}", target.name);
        let nodes = e.replay(&mut s.state(), &replay, &Default::default()).unwrap();
        assert_eq!(e.counters().launches, first + calls, "but only once");
        close(&values(&mut e, &Tensor::from_node(&s, nodes[0])), "again");
        // another plan, and one more than may have copies
        for rows in [1, 9] {
            let y = two_layers(&s, &a, &b, rows);
            let want = reference(&two_layers(&s, &seeded(&s, &[37, 53], 1), &seeded(&s, &[41, 53], 2), rows));
            run(&mut e, &s, &[&y]);
            let worst = values(&mut e, &y).iter().zip(floats(&want)).map(|(x, y)| (x - y).abs()).fold(0.0, larger);
            assert!(worst < 1e-4, "{rows} rows: off by {worst}");
        }
        // contents that change after all
        let other = seeded(&s, &[37, 53], 7);
        let want = reference(&two_layers(&s, &other, &seeded(&s, &[41, 53], 2), 5));
        let (id, data) = (buffer(&a), reference(&other));
        e.write(&mut s.state(), id, &data).unwrap();
        let nodes = e.replay(&mut s.state(), &replay, &Default::default()).unwrap();
        let got = values(&mut e, &Tensor::from_node(&s, nodes[0]));
        let worst = got.iter().zip(floats(&want)).map(|(x, y)| (x - y).abs()).fold(0.0, larger);
        assert!(worst < 1e-4, "written: off by {worst}");
        a.assign(&a.mul(0.0).unwrap()).unwrap();
        run(&mut e, &s, &[&a]);
        let nodes = e.replay(&mut s.state(), &replay, &Default::default()).unwrap();
        let got = values(&mut e, &Tensor::from_node(&s, nodes[0]));
        assert!(got.iter().all(|&v| v == 0.0), "assigned on {}", target.name);
    }
}

#[test]
fn a_value_may_read_a_storage_before_and_after_an_assign() {
    let s = Session::new();
    let mut e = Engine::new(Box::new(EvalDevice::default()));
    let p = Tensor::new(&s, &[1.0f32, 2.0, 3.0], &[3]).unwrap().to_storage().unwrap();
    run(&mut e, &s, &[&p]);
    let old = p.mul(10.0).unwrap();
    p.assign(&p.add(1.0).unwrap()).unwrap();
    let both = old.add(&p).unwrap();
    run(&mut e, &s, &[&both, &p]);
    assert_eq!(values(&mut e, &both), [12.0, 23.0, 34.0]);
    assert_eq!(values(&mut e, &p), [2.0, 3.0, 4.0]);
}

#[test]
fn a_packed_weight_of_a_file_is_on_the_device_once() {
    for target in targets() {
        let s = Session::new();
        let mut e = Engine::new(Box::new(EvalDevice::new(target.clone())));
        let file = Bytes::new(vec![0x3d; 4 * 64 * 256]);
        let w = Tensor::from_bytes(&s, DType::F32, &[256, 64], file.clone()).unwrap();
        w.freeze();
        let y = seeded(&s, &[4, 64], 1).linear(&w, None).unwrap();
        run(&mut e, &s, &[&y]);
        e.trim();
        let rest = e.counters().bytes - 4 * (4 * 64 + 4 * 256);
        // a copy may be rounded up to whole tiles
        assert!(rest < file.len() * 5 / 4, "{rest} bytes on {}", target.name);
    }
}

#[test]
fn memory_of_values_between_kernels_is_given_back_and_taken_again() {
    let s = Session::new();
    let mut e = Engine::new(Box::new(EvalDevice::new(Target::eval())));
    let x = seeded(&s, &[64, 64], 1);
    let (y, z) = (x.matmul(&x).unwrap(), seeded(&s, &[64, 64], 2));
    let product = |t: &Tensor| t.matmul(t).unwrap().contiguous().softmax(-1).unwrap().contiguous().matmul(t).unwrap();
    run(&mut e, &s, &[&x, &z, &y]);
    let held = |e: &mut Engine| {
        e.collect(&mut s.state());
        e.trim();
        e.counters().bytes
    };
    let before = held(&mut e);
    let first = product(&y);
    run(&mut e, &s, &[&first]);
    assert!(e.counters().bytes > before + 4 * 64 * 64, "the plan has values of its own");
    let want = values(&mut e, &first);
    assert_eq!(held(&mut e), before + 4 * 64 * 64);
    // the same plan again, of another value
    let second = product(&z);
    run(&mut e, &s, &[&second]);
    assert_ne!(values(&mut e, &second), want);
    let again = product(&y);
    run(&mut e, &s, &[&again]);
    assert_eq!(values(&mut e, &again), want);
}

#[test]
fn attention_over_parts_of_one_tensor_is_one_kernel() {
    let s = Session::new();
    let all = seeded(&s, &[1, 64, 192], 3);
    let part = |i: usize| all.narrow(2, i * 64, 64)?.reshape(&[1, 64, 2, 32])?.permute(&[0, 2, 1, 3]);
    let (q, k, v): (Tensor, Tensor, Tensor) = (part(0).unwrap(), part(1).unwrap(), part(2).unwrap());
    let y = q.matmul(&k.t().unwrap()).unwrap().softmax(-1).unwrap().matmul(&v).unwrap();
    let want = floats(&reference(&y));
    let mut e = Engine::new(Box::new(EvalDevice::new(Target { lang: Lang::Eval, ..Target::x86(Isa::Avx512, 1) })));
    let replay = run(&mut e, &s, &[&y]);
    assert_eq!(replay.plan().calls.len(), 1);
    for (a, b) in values(&mut e, &y).iter().zip(&want) {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} instead of {b}");
    }
}

#[test]
fn rows_are_not_reduced_for_each_element_of_what_pads_them() {
    let s = Session::new();
    let x = seeded(&s, &[4, 24, 24], 5);
    let y = x.standardize(&[1, 2], 1e-5).unwrap().pad(&[(0, 0), (3, 3), (3, 3)], PadMode::Reflect, 0).unwrap();
    let want = floats(&reference(&y));
    let mut e = Engine::new(Box::new(EvalDevice::new(Target { lang: Lang::Eval, ..Target::x86(Isa::Avx512, 1) })));
    let replay = run(&mut e, &s, &[&y]);
    let flops: u64 = replay.plan().calls.iter().map(|c| e.program(c.program).unwrap().flops).sum();
    assert!(flops < 100 * 4 * 30 * 30, "{flops} operations");
    for (a, b) in values(&mut e, &y).iter().zip(&want) {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} instead of {b}");
    }
}

#[test]
fn small_states_of_any_shape_are_assigned_in_one_kernel() {
    for target in targets() {
        let most = target.limits.max_buffers;
        let s = Session::new();
        let mut e = Engine::new(Box::new(EvalDevice::new(target)));
        let shapes: [&[usize]; 5] = [&[32], &[10], &[1], &[3, 5, 7], &[32]];
        let make = |seed: u32| -> Vec<Tensor> {
            (0u32..).zip(shapes).map(|(i, n)| seeded(&s, n, seed + i).to_storage().unwrap()).collect()
        };
        let (states, grads) = (make(1), make(9));
        run(&mut e, &s, &states.iter().chain(&grads).collect::<Vec<_>>());
        let old: Vec<Vec<f32>> = states.iter().map(|t| values(&mut e, t)).collect();
        for (p, g) in states.iter().zip(&grads) {
            p.assign(&p.mul(0.5).unwrap().sub(&g.mul(0.25).unwrap()).unwrap()).unwrap();
        }
        let replay = run(&mut e, &s, &states.iter().collect::<Vec<_>>());
        assert_eq!(replay.plan().calls.len(), 10usize.div_ceil(most));
        for ((p, g), old) in states.iter().zip(&grads).zip(&old) {
            let want: Vec<f32> = old.iter().zip(values(&mut e, g)).map(|(p, g)| p * 0.5 - g * 0.25).collect();
            assert_eq!(values(&mut e, p), want);
        }
    }
}

#[test]
fn heads_that_share_keys_and_values_are_rows_of_one_kernel() {
    let s = Session::new();
    let (q, k, v) = (seeded(&s, &[1, 6, 48, 32], 1), seeded(&s, &[1, 2, 48, 32], 2), seeded(&s, &[1, 2, 48, 32], 3));
    let y = q.attention(&k, &v, &Attention::default()).unwrap();
    let want = floats(&reference(&y));
    let mut e = Engine::new(Box::new(EvalDevice::new(Target { lang: Lang::Eval, ..Target::x86(Isa::Avx512, 1) })));
    let replay = run(&mut e, &s, &[&y]);
    assert_eq!(replay.plan().calls.len(), 1);
    let grid = e.program(replay.plan().calls[0].program).unwrap().grid[0];
    assert!(grid <= 6, "keys and values are packed {grid} times");
    for (a, b) in values(&mut e, &y).iter().zip(&want) {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} instead of {b}");
    }
}

/// Each length is a plan of its own; what was not used for long is forgotten, and made again where it is wanted again.
#[test]
fn plans_of_many_shapes_stay_within_the_budget() {
    for target in targets().into_iter().take(2) {
        let s = Session::new();
        let mut e = Engine::new(Box::new(EvalDevice::new(target)));
        e.set_cache_bytes(400 << 10);
        let one = |e: &mut Engine, n: usize| {
            let x = Tensor::new(&s, &vec![0.5f32; n], &[n]).unwrap();
            let y = x.mul(2.0).unwrap().sum(&[], false).unwrap().add(&x).unwrap();
            let replay = run(e, &s, &[&y]);
            assert_eq!(values(e, &y), vec![n as f32 + 0.5; n]);
            (replay, x)
        };
        let (kept, first) = one(&mut e, 5);
        let mut most = 0;
        for n in 6..106 {
            one(&mut e, n);
            e.collect(&mut s.state());
            most = most.max(e.cached_bytes());
        }
        assert!(most <= 500 << 10, "{most} bytes");
        let plans = e.counters().plans;
        assert!(e.counters().plans_forgotten > 50, "{:?}", e.counters());
        // one that somebody holds is there still; one that was forgotten is made again
        assert!(e.has(&kept));
        let nodes = e.replay(&mut s.state(), &kept, &Default::default()).unwrap();
        assert_eq!(values(&mut e, &Tensor::from_node(&s, nodes[0])), [5.5; 5]);
        one(&mut e, 5);
        assert_eq!(e.counters().plans, plans, "held, so known");
        one(&mut e, 6);
        assert_eq!(e.counters().plans, plans + 1, "forgotten, so made again");
        // without a pin nothing keeps it
        let loose = kept.unpinned();
        e.set_cache_bytes(0);
        assert!(!e.has(&loose));
        drop(first);
    }
}

/// Buffers are numbered by their session, so those of another one with the same numbers must not be taken for them.
#[test]
fn an_engine_computes_the_tensors_of_one_session() {
    let mut e = Engine::new(Box::new(EvalDevice::default()));
    let (first, second) = (Session::new(), Session::new());
    let one = Tensor::new(&first, &[1.0f32, 2.0, 3.0], &[3]).unwrap();
    let y = one.mul(2.0).unwrap();
    let replay = run(&mut e, &first, &[&y]);
    // the same graph, so that the plan is known
    let other = Tensor::new(&second, &[10.0f32, 20.0, 30.0], &[3]).unwrap();
    let z = other.mul(2.0).unwrap();
    let refused = e.start(&mut second.state(), &[z.root()]).err().expect("the other session is refused");
    assert_eq!(refused.code(), "E_VALUE", "{refused}");
    assert!(refused.to_string().contains("session"), "{refused}");
    assert_eq!(e.read(&mut second.state(), other.root()).unwrap_err().code(), "E_VALUE");
    assert_eq!(e.write(&mut second.state(), 0, &[0; 12]).unwrap_err().code(), "E_VALUE");
    assert_eq!(e.replay(&mut second.state(), &replay, &Default::default()).unwrap_err().code(), "E_VALUE");
    drop((other, z));
    e.collect(&mut second.state());
    assert_eq!(values(&mut e, &y), [2.0, 4.0, 6.0], "the first session is as it was");
    // one that is gone leaves the engine to the next, with none of its buffers
    drop((one, y, first));
    let third = Session::new();
    let x = Tensor::new(&third, &[7.0f32, 8.0, 9.0], &[3]).unwrap();
    let y = x.mul(2.0).unwrap();
    run(&mut e, &third, &[&y]);
    assert_eq!(values(&mut e, &y), [14.0, 16.0, 18.0]);
    assert_eq!(e.replay(&mut third.state(), &replay, &Default::default()).unwrap_err().code(), "E_VALUE");
    assert_eq!(e.start(&mut second.state(), &[]).err().map(|e| e.code()), Some("E_VALUE"));
}

/// A large weight goes to the device some megabytes at a time; what was begun is finished by whoever needs it, or freed.
#[test]
fn a_large_weight_is_uploaded_in_parts() {
    let s = Session::new();
    let mut e = Engine::new(Box::new(EvalDevice::default()));
    let n = (9 << 20) / 4;
    let data: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    let begin = |e: &mut Engine| {
        let x = Tensor::new(&s, &data, &[n]).unwrap();
        let y = x.narrow(0, n - 3, 3).unwrap().add(1.0).unwrap();
        let pending = e.start(&mut s.state(), &[y.root()]).unwrap();
        assert!(!e.bring(&mut s.state(), &pending).unwrap(), "not all at once");
        (x, y, pending)
    };
    let want: Vec<f32> = data[n - 3..].iter().map(|v| v + 1.0).collect();
    let (x, y, pending) = begin(&mut e);
    let mut pieces = 1;
    while !e.bring(&mut s.state(), &pending).unwrap() {
        pieces += 1;
    }
    assert!(pieces >= 2, "{pieces} pieces of 9 MB");
    e.finish(&mut s.state(), pending).unwrap();
    assert_eq!(values(&mut e, &y), want);
    assert_eq!(values(&mut e, &x), data);
    // another one takes its place, and then all at once
    let (one, first, _) = begin(&mut e);
    let (other, second, pending) = begin(&mut e);
    e.finish(&mut s.state(), pending).unwrap();
    assert_eq!(values(&mut e, &second), want);
    run(&mut e, &s, &[&first]);
    assert_eq!(values(&mut e, &first), want);
    drop((x, y, one, first, other, second, begin(&mut e)));
    e.collect(&mut s.state());
    e.trim();
    assert_eq!(e.counters().bytes, 0, "nothing is held");
}
