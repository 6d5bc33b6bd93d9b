//! Attention in one kernel, on targets with matrix tiles: its loop over blocks of keys gives what the graph gives in f32, the kernels are counted, and
//! what is no such attention stays apart.
#![cfg(target_os = "linux")]

use crate::tiles::{closed, copying, empty, in_memory, run_on, target};
use gradloom::Runtime;
use gradloom::cuda::CudaDevice;
use gradloom_core::DType;
use gradloom_core::codegen::{Program, compile};
use gradloom_core::device::{Device, EvalDevice};
use gradloom_core::dtype::Scalar;
use gradloom_core::render::ptx::Ptx;
use gradloom_core::render::{Code, Renderer as _};
use gradloom_core::schedule::schedule;
use gradloom_core::target::{MatrixTile, Sm, Target};
use gradloom_core::tensor::{Attention, Session, Tensor};
use gradloom_core::uop::eval::eval_tensor;
use gradloom_core::uop::{Arg, Graph, Op, UOp};
use gradloom_tests::here;

/// Queries, keys, terms of a score, columns of a value, heads, and heads of keys and values.
pub(crate) type Sides = [usize; 6];

/// Attention over two texts.
pub(crate) struct Case {
    pub(crate) dtype: DType,
    pub(crate) sides: Sides,
    pub(crate) causal: bool,
    pub(crate) mask: Option<DType>,
}

pub(crate) const PLAIN: Case = Case { dtype: DType::F16, sides: [64, 64, 32, 32, 2, 2], causal: false, mask: None };

impl Case {
    /// The tensor that a device computes, or the same of factors that are f32.
    pub(crate) fn tensor(&self, s: &Session, wide: bool) -> Tensor {
        let [rows, keys, terms, columns, heads, kv] = self.sides;
        let shapes = [vec![2, heads, rows, terms], vec![2, kv, keys, terms], vec![2, kv, keys, columns]];
        let widen = |x: Tensor| if wide && x.dtype() != DType::Bool { x.cast(DType::F32).expect("f32") } else { x };
        let [q, k, v] = shapes.map(|shape| widen(empty(s, self.dtype, &shape)));
        let mask = self.mask.map(|dt| widen(empty(s, dt, &[rows, keys])));
        // a power of two, so that queries are scaled exactly
        let opts = Attention { causal: self.causal, mask: mask.as_ref(), scale: Some(0.25), dropout: 0.0 };
        q.attention(&k, &v, &opts).expect("attention")
    }
}

fn param(g: &Graph, slot: u32) -> Option<UOp> {
    g.iter().find(|&u| matches!(g.arg(u), Arg::Param { slot: s, .. } if *s == slot))
}

/// Elements of a param from -2 to 2. A mask, of so many elements, leaves some rows nothing if it is of bools, and has infinities if not.
fn elements(g: &Graph, slot: u32, mask: usize) -> Vec<u8> {
    let (dt, n) = param(g, slot).map_or((DType::F32, 0), |u| (g.dtype(u), g.memory_len(u)));
    let mut bytes = vec![0; n * dt.size()];
    for (i, b) in bytes.chunks_exact_mut(dt.size()).enumerate() {
        let x = ((i * 7919 + slot as usize * 613) % 1009) as f64;
        let x = match dt {
            DType::Bool => f64::from(i / 7 % 3 == 1),
            _ if n == mask && i % 5 == 0 => f64::NEG_INFINITY,
            _ => x / 252.0 - 2.0,
        };
        Scalar::float(x).cast(DType::F64, dt).write(dt, b);
    }
    bytes
}

fn values(bytes: &[u8], dt: DType) -> Vec<f64> {
    bytes.chunks_exact(dt.size()).map(|b| Scalar::read(dt, b).as_f64()).collect()
}

/// Compares with the graph in f32, of the same numbers; the kernels.
pub(crate) fn check(what: &str, t: &Target, case: &Case) -> Vec<Program> {
    let s = Session::new();
    let (g, roots, n) = closed(&case.tensor(&s, false));
    let (wide, wide_roots, _) = closed(&case.tensor(&s, true));
    let plan = schedule(&g, &roots, n, t).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mask = case.mask.map_or(0, |_| case.sides[0] * case.sides[1]);
    let (got, programs) =
        run_on(&plan, t, None, &|slot| elements(&g, slot, mask)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let want = eval_tensor(&wide, &wide_roots, &mut |slot| Some(elements(&wide, slot, mask)), &|_| None);
    let want = values(&want.unwrap_or_else(|e| panic!("{what}: {e}"))[0].data, DType::F32);
    let got = values(&got, case.dtype);
    assert_eq!(got.len(), want.len(), "{what}");
    // weights are rounded to 16 bits, and so are results
    let off = match case.dtype {
        DType::F32 => 5e-5,
        DType::F16 => 2e-3,
        _ => 1.2e-2,
    };
    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
        assert!(a.is_nan() && b.is_nan() || (a - b).abs() <= off, "{what}, element {i}: {a}, {b} wanted");
    }
    assert!(want.iter().any(|&x| x.abs() > 0.5), "{what}: nothing was computed");
    programs
}

fn one(what: &str, t: &Target, case: &Case) {
    let programs = check(what, t, case);
    assert_eq!(programs.len(), 1, "{what}: more than one kernel");
    let products = programs[0].order.iter().filter(|&&u| programs[0].g.op(u) == Op::Mma).count();
    assert!(products >= 2, "{what}: no matrix tiles");
}

/// Numbers of rows and keys that blocks divide and do not, heads of all widths, heads that share keys.
#[test]
fn one_kernel_gives_what_three_do() {
    for dtype in [DType::F16, DType::BF16] {
        for sides in [
            [64, 64, 32, 32, 2, 2],
            [16, 17, 16, 16, 2, 2],
            [33, 100, 80, 80, 1, 1],
            [17, 130, 64, 64, 1, 1],
            [70, 65, 128, 128, 1, 1],
            [40, 50, 32, 64, 2, 2],
            [40, 50, 64, 24, 2, 2],
            [64, 64, 32, 32, 4, 2],
            [150, 48, 32, 32, 6, 1],
        ] {
            for t in [copying(), target()] {
                one(&format!("{} {dtype} {sides:?}", t.name), &t, &Case { dtype, sides, ..PLAIN });
            }
        }
    }
}

/// The same, by tiles whose factors lie in workgroup memory, weights but for which threads hold.
fn in_panels(what: &str, case: &Case) {
    let programs = check(what, &in_memory(), case);
    assert_eq!(programs.len(), 1, "{what}: more than one kernel");
    let p = &programs[0];
    let layouts = p.order.iter().filter_map(|&u| if let Arg::Mma(l) = p.g.arg(u) { Some(l) } else { None });
    let held: Vec<[bool; 2]> = layouts.map(|l| [l.a.in_memory(), l.b.in_memory()]).collect();
    assert_eq!(held, [[true, true], [false, true]], "{what}");
}

/// Where tiles multiply what lies in workgroup memory: blocks of 64 keys and of 128, one subgroup and two, and rows and keys that they divide and do not.
#[test]
fn factors_in_panels_give_what_three_kernels_do() {
    for dtype in [DType::F16, DType::BF16] {
        for sides in [
            [64, 128, 64, 64, 1, 1],
            [128, 256, 64, 64, 1, 1],
            [100, 300, 64, 64, 1, 1],
            [70, 200, 128, 64, 1, 1],
            [130, 260, 64, 128, 1, 1],
        ] {
            for causal in [false, true] {
                in_panels(&format!("{dtype} {sides:?} {causal}"), &Case { dtype, sides, causal, ..PLAIN });
            }
        }
    }
    for mask in [DType::F16, DType::Bool] {
        let sides = [130, 270, 64, 64, 1, 1];
        in_panels(&format!("{mask}"), &Case { sides, mask: Some(mask), ..PLAIN });
    }
}

/// Tiles of other hardware whose products lie as their left factors do: one product for each step of the second sum, and threads of a row that do not
/// follow each other.
#[test]
fn other_tiles_do_it_too() {
    for (name, tiles) in [("sm75", MatrixTile::sm75()), ("simdgroup", MatrixTile::simdgroup())] {
        let t = Target::matrix(name, tiles);
        one(name, &t, &Case { sides: [40, 50, 32, 32, 2, 2], causal: true, ..PLAIN });
    }
}

/// Rows that look at nothing give NaN, as they do without the loop; keys that are masked by minus infinity count for nothing.
#[test]
fn masks_are_what_they_are_without_the_loop() {
    for t in [copying(), target()] {
        for (rows, keys) in [(64, 64), (40, 100), (100, 40), (200, 200)] {
            let sides = [rows, keys, 32, 32, 1, 1];
            one(&format!("causal {sides:?}"), &t, &Case { sides, causal: true, ..PLAIN });
        }
        for causal in [false, true] {
            for mask in [DType::F16, DType::Bool] {
                let sides = [40, 90, 32, 32, 2, 1];
                one(&format!("{mask} {causal}"), &t, &Case { sides, causal, mask: Some(mask), ..PLAIN });
            }
        }
    }
}

/// Blocks of keys that no row of a workgroup looks at are no turns of its loop.
#[test]
fn a_causal_loop_ends_where_its_rows_do() {
    let ends = |causal| {
        let s = Session::new();
        let (g, roots, n) = closed(&Case { sides: [256, 256, 64, 64, 1, 1], causal, ..PLAIN }.tensor(&s, false));
        let plan = schedule(&g, &roots, n, &copying()).expect("a schedule");
        let p = compile(&plan.kernels[0].ast, &copying(), None).expect("a program");
        let loops = p.order.iter().filter(|&&u| p.g.op(u) == Op::Range && p.g.kind(u).is_loop());
        loops.map(|&u| p.g.const_int(p.g.src_at(u, 0))).collect::<Vec<_>>()
    };
    assert_eq!((ends(false), ends(true)), (vec![Some(4)], vec![None]));
}

/// Scores of f32, weights that somebody else wants, rows that are none, and heads that are too wide.
#[test]
fn other_attention_stays_apart() {
    let kernels = |make: &dyn Fn(&Session) -> Vec<Tensor>| {
        let s = Session::new();
        let made = make(&s);
        let nodes: Vec<UOp> = made.iter().map(Tensor::node).collect();
        let (g, roots) = gradloom_core::engine::close(&s.state().graph, &nodes);
        let n = g.reachable(&roots).into_iter().filter(|&u| g.op(u) == Op::Param).count();
        schedule(&g, &roots, n, &copying()).expect("a schedule").kernels.len()
    };
    let of = |case: Case| kernels(&|s| vec![case.tensor(s, false)]);
    assert_eq!(of(PLAIN), 1);
    assert!(of(Case { dtype: DType::F32, ..PLAIN }) >= 3);
    assert!(of(Case { sides: [1, 64, 32, 32, 2, 2], ..PLAIN }) >= 3);
    assert!(of(Case { sides: [64, 64, 160, 160, 2, 2], ..PLAIN }) >= 3);
    let weights = |s: &Session| {
        let [q, k, v] = [0; 3].map(|_| empty(s, DType::F16, &[2, 64, 32]));
        let (y, w) = q.attention_weighted(&k, &v, &Attention::default()).expect("attention");
        vec![y, w]
    };
    assert!(kernels(&weights) >= 3);
}

/// What is computed on the emulator of a GPU and what the evaluator computes.
fn on_the_emulated_gpu(number: usize, dtype: DType, [rows, keys, width]: [usize; 3], causal: bool) {
    let Some(device) = here::device("cuda", CudaDevice::new(number)) else { return };
    let devices: [Box<dyn Device>; 2] = [Box::new(device), Box::new(EvalDevice::default())];
    let [got, want] = devices.map(|device| {
        let mut runtime = Runtime::on(device);
        let s = runtime.session().clone();
        let matrix = |rows: usize, seed: usize| {
            let of = |i: usize| ((i * 7919 + seed) % 1009) as f32 / 252.0 - 2.0;
            let all: Vec<f32> = (0..2 * rows * width).map(of).collect();
            let x = Tensor::new(&s, &all, &[2, rows, width]).and_then(|t| t.cast(dtype));
            x.expect("a tensor").contiguous()
        };
        let (q, k, v) = (matrix(rows, 1), matrix(keys, 613), matrix(keys, 77));
        runtime.realize(&[&q, &k, &v]).expect("operands");
        let opts = Attention { causal, scale: Some(0.25), ..Attention::default() };
        let y = q.attention(&k, &v, &opts).and_then(|y| y.contiguous().cast(DType::F32)).expect("attention");
        runtime.to_vec::<f32>(&y).expect("a result")
    });
    let off = got.iter().zip(&want).fold(0.0f32, |m, (x, y)| m.max((x - y).abs()));
    // the evaluator rounds scores to 16 bits
    let most = if dtype == DType::F16 { 3e-2 } else { 3e-1 };
    assert!(got.len() == want.len() && off < most, "{number} {dtype} {rows} {keys} {width}: {off}");
}

/// On the emulator of NVIDIA's driver, on which a copy is done when somebody waits for it and no sooner: mma.sync of both capabilities.
#[test]
fn the_emulated_gpu_gives_what_the_evaluator_gives() {
    crate::emulator::load();
    for number in 0..2 {
        for (sides, causal) in
            [([64, 64, 32], false), ([40, 200, 64], false), ([150, 150, 32], true), ([260, 290, 16], true)]
        {
            on_the_emulated_gpu(number, DType::F16, sides, causal);
        }
    }
}

/// The same where tiles multiply what lies in workgroup memory, which goes on until somebody waits for it: nobody may ask for sums before, or change what is
/// multiplied.
#[test]
fn products_that_go_on_give_what_the_evaluator_gives() {
    crate::emulator::load();
    for dtype in [DType::F16, DType::BF16] {
        for (sides, causal) in [
            ([64, 128, 64], false),
            ([128, 128, 64], true),
            ([130, 300, 64], true),
            ([64, 512, 128], false),
            ([200, 400, 128], true),
        ] {
            on_the_emulated_gpu(1, dtype, sides, causal);
        }
    }
}

/// Masks by places are jumped over where they leave everything, and workgroups whose rows look at most keys are the first.
#[test]
fn masks_are_computed_where_they_matter() {
    let t = Target::cuda("cuda", Sm::ALL[3]);
    for causal in [false, true] {
        let s = Session::new();
        let case = Case { sides: [1024, 1024, 128, 128, 4, 4], causal, ..PLAIN };
        let (g, roots, n) = closed(&case.tensor(&s, false));
        let plan = schedule(&g, &roots, n, &t).expect("a schedule");
        let p = compile(&plan.kernels[0].ast, &t, None).expect("a program");
        let Code::Text(text) = Ptx.render(&p, &t).expect("a text") else { panic!("PTX is text") };
        let (jump, multiply) = (text.find("bra $skip"), text.rfind("wgmma.mma_async"));
        assert_eq!(jump.is_some(), causal);
        assert!(jump <= multiply && multiply.is_some());
        // blocks of rows are the dimension that changes last where they are not alike
        assert_eq!(p.grid, if causal { [4, 2, 8] } else { [8, 4, 2] });
    }
}

/// What there is for this on NVIDIA's GPUs: one kernel, with copies that go on by themselves.
#[test]
fn gpus_with_matrix_tiles_get_one_kernel() {
    for sm in Sm::ALL {
        let t = Target::cuda("cuda", sm);
        let s = Session::new();
        let (g, roots, n) = closed(&Case { sides: [512, 512, 128, 128, 4, 4], ..PLAIN }.tensor(&s, false));
        let plan = schedule(&g, &roots, n, &t).expect("a schedule");
        assert_eq!(plan.kernels.len(), 1, "{}", sm.name());
        let p = compile(&plan.kernels[0].ast, &t, None).expect("a program");
        let copies = p.order.iter().any(|&u| p.g.op(u) == Op::Store && *p.g.arg(u) != Arg::None);
        assert_eq!((copies, p.refused), (t.caps.copies.is_some(), 0), "{}", sm.name());
    }
}
