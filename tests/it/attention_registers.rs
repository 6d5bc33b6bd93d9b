//! Attention in one kernel on GPUs without matrix tiles, and in f32: it gives what the graph gives, keeps to the limits of devices, stores no scores, and
//! is chosen where these are many.
#![cfg(target_os = "linux")]

use crate::attention::{Case, PLAIN, check};
use crate::tiles::{closed, empty};
use gradloom::Runtime;
use gradloom_core::codegen::{Program, compile};
use gradloom_core::dtype::Scalar;
use gradloom_core::schedule::{Origin, Schedule, schedule};
use gradloom_core::target::{DTypeSet, Machine, Sm, Target};
use gradloom_core::tensor::{Attention, Session, Tensor};
use gradloom_core::uop::{Arg, Op};
use gradloom_core::{DType, Result};
use gradloom_tests::here;
use gradloom_tests::targets::changed;

/// On a machine that keeps nothing in a cache the smallest scores are too many.
fn with(resident_bytes: f64, t: Target) -> Target {
    Target { machine: Machine { resident_bytes, ..t.machine }, ..t }
}

/// WebGPU's least limits, with every dtype as it is.
fn least() -> Target {
    changed(with(0.0, Target::wgsl("least")), |t| t.caps.storage = DTypeSet::ALL)
}

/// Checks values; the kernel is one, in which threads share queries or keys, and weights.
fn one(what: &str, t: &Target, case: &Case) {
    let programs = check(what, t, case);
    assert_eq!(programs.len(), 1, "{what}: more than one kernel");
    assert!(arrays(&programs[0]) >= 2, "{what}: nothing is shared");
}

fn arrays(p: &Program) -> usize {
    p.order.iter().filter(|&&u| matches!(p.g.arg(u), Arg::Scratch { .. })).count()
}

fn f32_of(sides: [usize; 6]) -> Case {
    Case { dtype: DType::F32, sides, ..PLAIN }
}

fn planned(case: &Case, t: &Target) -> Schedule {
    let s = Session::new();
    let (g, roots, n) = closed(&case.tensor(&s, false));
    schedule(&g, &roots, n, t).expect("a schedule")
}

/// Bytes of buffers between kernels.
fn between(s: &Schedule) -> usize {
    s.buffers.iter().filter(|b| matches!(b.origin, Origin::Temp)).map(|b| b.len * b.dtype.size()).sum()
}

/// Numbers of rows and keys that blocks divide and do not, heads of all widths, heads that share keys.
#[test]
fn one_kernel_gives_what_three_do() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for sides in [
            [64, 64, 32, 32, 2, 2],
            [33, 100, 80, 80, 1, 1],
            [17, 130, 64, 64, 1, 1],
            [70, 65, 128, 128, 1, 1],
            [40, 50, 40, 40, 2, 2],
            [40, 90, 32, 64, 2, 2],
            [64, 64, 32, 32, 4, 2],
            [150, 48, 36, 20, 6, 1],
        ] {
            one(&format!("{dtype} {sides:?}"), &least(), &Case { dtype, sides, ..PLAIN });
        }
    }
}

/// Rows that look at nothing give NaN, as they do without the loop; keys that are masked by minus infinity count for nothing.
#[test]
fn masks_are_what_they_are_without_the_loop() {
    for (rows, keys) in [(64, 64), (40, 100), (100, 40), (200, 200)] {
        let sides = [rows, keys, 32, 32, 1, 1];
        one(&format!("causal {sides:?}"), &least(), &Case { causal: true, ..f32_of(sides) });
    }
    for causal in [false, true] {
        for mask in [DType::F32, DType::Bool] {
            let case = Case { causal, mask: Some(mask), ..f32_of([40, 90, 32, 32, 2, 1]) };
            one(&format!("{mask} {causal}"), &least(), &case);
        }
    }
}

/// Blocks of keys that no row of a workgroup looks at are no turns of its loop.
#[test]
fn a_causal_loop_ends_where_its_rows_do() {
    let ends = |causal| {
        let plan = planned(&Case { causal, ..f32_of([256, 256, 64, 64, 1, 1]) }, &least());
        let p = compile(&plan.kernels[0].ast, &least(), None).expect("a program");
        let loops = p.order.iter().filter(|&&u| p.g.op(u) == Op::Range && p.g.kind(u).is_loop());
        loops.filter(|&&u| p.g.const_int(p.g.src_at(u, 0)).is_none()).count()
    };
    assert_eq!((ends(false), ends(true)), (0, 1));
}

/// Workgroups and their memory are no larger than devices allow, on those that allow least too.
#[test]
fn limits_of_devices_are_kept() {
    for (bytes, threads) in [(16 << 10, 256), (16 << 10, 128), (32 << 10, 256), (48 << 10, 1024), (64 << 10, 64)] {
        for t in
            [Target::wgsl("t"), Target::opencl("t"), Target::metal("t"), Target::cuda("t", Sm::of(8, 0).expect("one"))]
        {
            let t = changed(t, |t| (t.limits.workgroup_bytes, t.limits.max_local_total) = (bytes, threads));
            for width in [32, 40, 64, 80, 96, 128] {
                let plan = planned(&f32_of([1100, 1100, width, width, 4, 4]), &t);
                assert_eq!(plan.kernels.len(), 1, "{bytes} {threads} {width} {}", t.name);
                let p = compile(&plan.kernels[0].ast, &t, None).expect("a program");
                let taken = p.workgroup_arrays().1;
                let most = t.caps.copies.map_or(bytes, |c| c.bytes.max(bytes));
                assert!(taken <= most && p.local.iter().product::<u32>() <= threads, "{width}: {taken} of {bytes}");
            }
        }
    }
}

/// Scores as many as an encoder of speech has are not stored: 54 MB in each of its layers.
#[test]
fn many_scores_are_not_stored() {
    for t in [Target::wgsl("t"), Target::opencl("t"), Target::cuda_c("t", 75), Target::hip("t", 32, Vec::new())] {
        let case = || f32_of([1500, 1500, 64, 64, 6, 6]);
        let (fused, apart) = (planned(&case(), &t), planned(&case(), &with(f64::INFINITY, t.clone())));
        assert_eq!((fused.kernels.len(), between(&fused)), (1, 0), "{}", t.name);
        assert!(apart.kernels.len() == 3 && between(&apart) > 2 * 6 * 1500 * 1500 * 4, "{}", t.name);
    }
}

/// Scores that stay in a cache, few queries, wide heads, weights that somebody else wants.
#[test]
fn others_stay_apart() {
    let t = Target::wgsl("t");
    let kernels = |case: Case, t: &Target| planned(&case, t).kernels.len();
    assert!(kernels(f32_of([128, 128, 64, 64, 4, 4]), &t) >= 3);
    assert!(kernels(f32_of([1, 64, 32, 32, 2, 2]), &least()) >= 3);
    assert!(kernels(f32_of([64, 64, 160, 160, 2, 2]), &least()) >= 3);
    assert!(kernels(f32_of([64, 64, 32, 32, 2, 2]), &changed(least(), |t| t.limits.workgroup_bytes = 1 << 10)) >= 3);
    assert!(kernels(f32_of([64, 640, 32, 32, 2, 2]), &changed(least(), |t| t.limits.max_loop_iterations = 200)) >= 3);
    let s = Session::new();
    let [q, k, v] = [0; 3].map(|_| empty(&s, DType::F32, &[2, 64, 32]));
    let (y, w) = q.attention_weighted(&k, &v, &Attention::default()).expect("attention");
    let nodes = [y.node(), w.node()];
    let (g, roots) = gradloom_core::engine::close(&s.state().graph, &nodes);
    let n = g.reachable(&roots).into_iter().filter(|&u| g.op(u) == Op::Param).count();
    assert!(schedule(&g, &roots, n, &least()).expect("a schedule").kernels.len() >= 3);
}

/// On every driver, with more scores than stay in a cache: beside sums in f64.
#[test]
fn devices_give_what_sums_in_f64_are() {
    crate::emulator::load();
    let (heads, shared, width) = (4, 2, 16);
    for name in ["wgpu:hardware", "vulkan:hardware", "opencl:hardware", "cuda", "c:metal", "c:cuda", "c:hip"] {
        for (rows, keys, causal, dt) in
            [(530, 521, false, DType::F32), (521, 530, true, DType::F32), (530, 520, true, DType::F16)]
        {
            let opened: Result<Runtime> = gradloom::open(name, 1).map(Runtime::on);
            let Some(mut runtime) = here::device(name, opened) else { continue };
            let s = runtime.session().clone();
            let numbers = |n: usize, seed: usize| -> Vec<f32> {
                let all = (0..n).map(|i| ((i * 7919 + seed) % 1009) as f64 / 252.0 - 2.0);
                all.map(|x| Scalar::float(x).cast(DType::F64, dt).as_f64() as f32).collect()
            };
            let [q, k, v] = [(heads, rows, 1), (shared, keys, 613), (shared, keys, 77)]
                .map(|(n, len, seed)| (numbers(n * len * width, seed), [1, n, len, width]));
            let tensors = [&q, &k, &v]
                .map(|x| Tensor::new(&s, &x.0, &x.1).and_then(|x| x.cast(dt)).expect("a tensor").contiguous());
            runtime.realize(&tensors.iter().collect::<Vec<_>>()).expect("operands");
            let opts = Attention { causal, scale: Some(0.25), ..Attention::default() };
            let y = tensors[0].attention(&tensors[1], &tensors[2], &opts).expect("attention");
            let y = y.contiguous().cast(DType::F32).expect("f32");
            let off = if dt == DType::F32 { 1e-4 } else { 3e-3 };
            let got = runtime.to_vec::<f32>(&y).expect("a result");
            for head in 0..heads {
                let of = |x: &[f32], head: usize, i: usize, n: usize| {
                    let at = (head * n + i) * width;
                    x[at..at + width].iter().map(|&x| f64::from(x)).collect::<Vec<f64>>()
                };
                let own = head * shared / heads;
                for row in [0, 1, 63, 64, 300, rows - 1] {
                    let query = of(&q.0, head, row, rows);
                    let seen = if causal { keys.min(row + 1) } else { keys };
                    let score = |key| query.iter().zip(of(&k.0, own, key, keys)).map(|(x, y)| x * y).sum::<f64>() / 4.0;
                    let scores: Vec<f64> = (0..seen).map(score).collect();
                    let most = scores.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(x));
                    let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
                    let all: f64 = weights.iter().sum();
                    for column in 0..width {
                        let sum: f64 =
                            weights.iter().enumerate().map(|(i, w)| w * of(&v.0, own, i, keys)[column]).sum();
                        let x = f64::from(got[(head * rows + row) * width + column]);
                        assert!(
                            (x - sum / all).abs() < off,
                            "{name} {dt} {head} {row} {column}: {x}, {} wanted",
                            sum / all
                        );
                    }
                }
            }
        }
    }
}
