//! Matrix tiles: kernels that multiply them give what the plain evaluation of the graph gives, in every dtype that a tile takes and for
//! shapes that it divides or does not; and the benchmark's networks use them.

use gradloom_core::codegen::cost::{Bound, cost};
use gradloom_core::codegen::count::count;
use gradloom_core::codegen::{Opt, Program, compile, compile_watched};
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::close;
use gradloom_core::schedule::{Ast, Origin, Schedule, schedule};
use gradloom_core::target::{Copies, MatrixTile, Target};
use gradloom_core::tensor::{ConvOpts, Session, Tensor};
use gradloom_core::uop::eval::{eval_program, eval_tensor};
use gradloom_core::uop::mma::Layout;
use gradloom_core::uop::{Arg, Graph, Op, UOp};
use gradloom_core::{DType, Result};
use gradloom_tests::networks::{Net, build, kernels, load};
use gradloom_tests::targets::changed;

pub(crate) fn target() -> Target {
    Target::matrix("tiles", [MatrixTile::sm80(), MatrixTile::subgroup_matrix()].concat())
}

/// A target of four multiprocessors that copies to workgroup memory while it computes.
fn with_copies(name: &str, tiles: Vec<MatrixTile>, bytes: usize) -> Target {
    changed(Target::matrix(name, tiles), |t| {
        t.caps.copies = Some(Copies { blocks: 4, bytes });
        t.machine.processors = 4;
    })
}

/// One that copies to workgroup memory while it computes, and loads matrices from there.
pub(crate) fn copying() -> Target {
    with_copies("copying", MatrixTile::sm80(), 163 << 10)
}

/// One that also multiplies what lies in workgroup memory.
#[cfg(target_os = "linux")]
pub(crate) fn in_memory() -> Target {
    with_copies("panels", [MatrixTile::sm80(), MatrixTile::sm90()].concat(), 227 << 10)
}

/// A target without its tiles.
fn without_tiles(t: Target) -> Target {
    changed(t, |t| t.caps.matrix_tiles.clear())
}

/// One whose only tile is multiplied by subgroups of 32 and 16 by 16 by 16.
fn subgroup_matrices() -> Target {
    Target::matrix("tiles", MatrixTile::subgroup_matrix())
}

/// One on which a thread multiplies matrices alone, in its registers, and shares no memory with others.
fn alone() -> Target {
    let layout = Layout::read("| k1x2 m1x4; | k1x2 n1x4; | n1x4 m1x4").expect("a layout");
    let tiles = vec![MatrixTile { layout, factors: DType::F16, sums: DType::F32 }];
    changed(Target { name: "alone".into(), ..Target::eval() }, |t| t.caps.matrix_tiles = tiles)
}

/// The graph of a tensor with its buffers as params, and how many there are.
pub(crate) fn closed(y: &Tensor) -> (Graph, Vec<UOp>, usize) {
    let node = y.node();
    let (g, roots) = close(&y.session().state().graph, &[node]);
    let params = g.reachable(&roots).into_iter().filter(|&u| g.op(u) == Op::Param).count();
    (g, roots, params)
}

/// Elements of a param. Small integers have sums that are exact in any dtype; others round.
fn elements(g: &Graph, slot: u32, whole: bool) -> Vec<u8> {
    let param = g.iter().find(|&u| matches!(g.arg(u), gradloom_core::uop::Arg::Param { slot: s, .. } if *s == slot));
    let (dt, n) = param.map_or((DType::F32, 0), |u| (g.dtype(u), g.memory_len(u)));
    let mut bytes = vec![0; n * dt.size()];
    for (i, b) in bytes.chunks_exact_mut(dt.size()).enumerate() {
        let x = ((i * 7919 + slot as usize * 613) % 1009) as f64;
        let x = if whole { (x % 7.0) - 3.0 } else { x / 504.0 - 1.0 };
        Scalar::float(x).cast(DType::F64, dt).write(dt, b);
    }
    bytes
}

fn values(bytes: &[u8], dt: DType) -> Vec<f64> {
    bytes.chunks_exact(dt.size()).map(|b| Scalar::read(dt, b).as_f64()).collect()
}

/// Runs a schedule's kernels in the interpreter; what it gives for the first root, and the programs.
fn run(s: &Schedule, g: &Graph, t: &Target, opts: Option<&[Opt]>, whole: bool) -> Result<(Vec<u8>, Vec<Program>)> {
    run_on(s, t, opts, &|slot| elements(g, slot, whole))
}

/// The same on any params.
pub(crate) fn run_on(
    s: &Schedule,
    t: &Target,
    opts: Option<&[Opt]>,
    params: &dyn Fn(u32) -> Vec<u8>,
) -> Result<(Vec<u8>, Vec<Program>)> {
    let mut buffers: Vec<Vec<u8>> = s
        .buffers
        .iter()
        .map(|b| match b.origin {
            Origin::External(slot) => params(slot),
            _ => vec![0xFF; b.len * b.dtype.size()],
        })
        .collect();
    let mut programs = Vec::new();
    for k in &s.kernels {
        let p = compile(&k.ast, t, opts)?;
        let mut args: Vec<Vec<u8>> = k.args.iter().map(|&b| buffers[b].clone()).collect();
        eval_program(&p.g, &p.order, &mut args, &[], p.grid)?;
        for (&b, bytes) in k.args.iter().zip(args) {
            buffers[b] = bytes;
        }
        programs.push(p);
    }
    Ok((buffers[s.roots[0]].clone(), programs))
}

fn uses_tiles(p: &Program) -> bool {
    p.order.iter().any(|&u| p.g.op(u) == Op::Mma)
}

/// Compiles and runs what a tensor is made of, on a target with tiles; compares with the plain evaluation of its graph.
fn check(what: &str, t: &Target, y: &Tensor, opts: Option<&[Opt]>) -> Vec<Program> {
    let (g, roots, n) = closed(y);
    let dt = g.dtype(roots[0]);
    let s = schedule(&g, &roots, n, t).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut programs = Vec::new();
    for whole in [true, false] {
        let (got, made) = run(&s, &g, t, opts, whole).unwrap_or_else(|e| panic!("{what}: {e}"));
        let want = eval_tensor(&g, &roots, &mut |slot| Some(elements(&g, slot, whole)), &|_| None);
        let want = want.unwrap_or_else(|e| panic!("{what}: {e}"));
        let (got, want) = (values(&got, dt), values(&want[0].data, dt));
        assert_eq!(got.len(), want.len(), "{what}");
        let scale = want.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        let off = match dt {
            _ if whole => 0.0,
            DType::F16 => 4e-3,
            DType::BF16 => 2e-2,
            DType::F32 => 1e-5,
            _ => 1e-13,
        };
        for (i, (a, b)) in got.iter().zip(&want).enumerate() {
            assert!((a - b).abs() <= off * scale, "{what}, element {i}: {a}, {b} wanted");
        }
        assert!(want.iter().any(|&x| x.abs() > 0.5), "{what}: nothing was computed");
        programs = made;
    }
    assert!(programs.iter().all(|p| p.refused == 0), "{what}: opts that do not fit");
    programs
}

pub(crate) fn empty(s: &Session, dt: DType, shape: &[usize]) -> Tensor {
    Tensor::empty(s, dt, shape).expect("a tensor")
}

fn matmul(s: &Session, dt: DType, [m, n, k]: [usize; 3]) -> Tensor {
    empty(s, dt, &[m, k]).matmul(&empty(s, dt, &[k, n])).expect("a product")
}

#[test]
fn products_of_every_dtype_and_shape_are_right() {
    for dt in [DType::F16, DType::BF16, DType::F64] {
        for sides in [[16, 8, 16], [32, 32, 32], [64, 48, 80], [33, 17, 20], [40, 100, 7], [15, 9, 50]] {
            let s = Session::new();
            let programs = check(&format!("{dt} {sides:?}"), &target(), &matmul(&s, dt, sides), None);
            assert_eq!(programs.iter().map(uses_tiles).collect::<Vec<_>>(), [true], "{dt} {sides:?}");
        }
    }
}

/// Copies of a program that go on by themselves, and matrices that it loads.
fn copied(p: &Program) -> [usize; 2] {
    let copies = |u: &&UOp| p.g.op(**u) == Op::Store && *p.g.arg(**u) != Arg::None;
    let loads = |u: &&UOp| p.g.op(**u) == Op::LoadMatrix;
    [p.order.iter().filter(copies).count(), p.order.iter().filter(loads).count()]
}

#[test]
fn factors_are_copied_ahead_and_loaded_as_matrices() {
    let t = copying();
    for dt in [DType::F16, DType::BF16] {
        for [m, n, k] in [[64, 64, 64], [128, 256, 96], [16, 128, 128], [192, 64, 48], [64, 96, 320]] {
            let s = Session::new();
            // either factor as it is and turned
            let turned = |shape: [usize; 2]| empty(&s, dt, &shape).permute(&[1, 0]).expect("a matrix");
            let ways = [
                ("plain", empty(&s, dt, &[m, k]).matmul(&empty(&s, dt, &[k, n]))),
                ("right turned", empty(&s, dt, &[m, k]).matmul(&turned([n, k]))),
                ("left turned", turned([k, m]).matmul(&empty(&s, dt, &[k, n]))),
                ("of a batch", empty(&s, dt, &[3, m, k]).matmul(&empty(&s, dt, &[3, k, n]))),
                ("of one with itself", {
                    let x = empty(&s, dt, &[m, k]);
                    x.permute(&[1, 0]).and_then(|turned| x.matmul(&turned))
                }),
                ("and more", empty(&s, dt, &[m, k]).matmul(&turned([n, k])).and_then(|y| y.gelu())),
            ];
            for (way, y) in ways {
                let what = format!("{dt} {m} {n} {k} {way}");
                let programs = check(&what, &t, &y.expect("a product"), None);
                let [copies, loads] = copied(&programs[0]);
                assert!(copies > 0 && loads > 0, "{what}: {copies} copies, {loads} loads of matrices");
            }
        }
    }
}

/// One whose tiles multiply what lies in workgroup memory, by 128 threads.
fn from_memory() -> Target {
    with_copies("from memory", [MatrixTile::sm80(), MatrixTile::sm90()].concat(), 227 << 10)
}

fn multiplies_from_memory(p: &Program) -> bool {
    p.order.iter().any(|&u| matches!(p.g.arg(u), Arg::Mma(layout) if layout.in_memory()))
}

#[test]
fn factors_are_multiplied_where_they_lie_in_workgroup_memory() {
    let t = from_memory();
    for (dt, [m, n, k]) in [
        (DType::F16, [64, 64, 192]),
        (DType::BF16, [64, 128, 64]),
        (DType::F16, [128, 64, 128]),
        (DType::BF16, [128, 128, 256]),
        (DType::F16, [128, 256, 192]),
        (DType::BF16, [256, 128, 320]),
    ] {
        let s = Session::new();
        let turned = |shape: [usize; 2]| empty(&s, dt, &shape).permute(&[1, 0]).expect("a matrix");
        let ways = [
            ("plain", empty(&s, dt, &[m, k]).matmul(&empty(&s, dt, &[k, n]))),
            ("right turned", empty(&s, dt, &[m, k]).matmul(&turned([n, k]))),
            ("left turned", turned([k, m]).matmul(&empty(&s, dt, &[k, n]))),
            ("both turned", turned([k, m]).matmul(&turned([n, k]))),
            ("scaled", {
                let x = empty(&s, dt, &[m, k]).mul(0.125).expect("a scaled matrix");
                x.matmul(&turned([n, k]))
            }),
            ("of a batch, and more", {
                let x = empty(&s, dt, &[2, m, k]).matmul(&empty(&s, dt, &[2, k, n]));
                x.and_then(|y| y.relu())
            }),
        ];
        for (way, y) in ways {
            let what = format!("{dt} {m} {n} {k} {way}");
            let programs = check(&what, &t, &y.expect("a product"), None);
            assert!(programs.iter().all(multiplies_from_memory), "{what}: {:?}", programs[0].opts);
            assert_eq!(copied(&programs[0])[0] > 0, k > 64, "{what}: what is copied ahead");
        }
    }
}

#[test]
fn factors_that_cannot_be_copied_whole_are_right() {
    let t = copying();
    for [m, n, k] in [[64, 64, 16], [33, 64, 64], [64, 40, 64], [64, 64, 72], [7, 9, 11]] {
        let s = Session::new();
        check(&format!("{m} {n} {k}"), &t, &matmul(&s, DType::F16, [m, n, k]), None);
    }
    // one factor is computed, the other begins at an odd element
    let s = Session::new();
    let (x, w) = (empty(&s, DType::F16, &[64, 64]), empty(&s, DType::F16, &[64, 65]));
    let w = w.shrink(&[(0, 64), (1, 65)]).expect("a part");
    check("a part", &t, &x.matmul(&w).expect("a product"), None);
    let y = x.relu().expect("values").matmul(&empty(&s, DType::F16, &[64, 64])).expect("a product");
    check("computed", &t, &y, None);
}

#[test]
fn kernel_languages_print_their_tiles() {
    use DType::{BF16, F16, F32, F64};
    let hip = |name: &str, wave, tiles| Target::hip(name, wave, tiles);
    for (t, instruction, dtypes) in [
        (Target::metal("metal"), "simdgroup_multiply_accumulate", &[F16, BF16, F32][..]),
        (Target::cuda_c("cuda", 80), "mma.sync.aligned", &[F16, BF16, F64]),
        (hip("gfx1100", 32, MatrixTile::rdna3()), "_w32(", &[F16, BF16]),
        (hip("gfx1200", 32, MatrixTile::rdna4()), "_w32_gfx12(", &[F16, BF16]),
        (hip("gfx942", 64, MatrixTile::cdna3()), "mfma_f32_16x16x16", &[F16, BF16]),
    ] {
        for &dt in dtypes {
            let s = Session::new();
            let (g, roots, n) = closed(&matmul(&s, dt, [64, 64, 64]));
            let kernels = schedule(&g, &roots, n, &t).expect("a schedule").kernels;
            let programs: Vec<Program> =
                kernels.iter().map(|k| compile(&k.ast, &t, None).expect("a program")).collect();
            let printed = programs.iter().map(|p| match gradloom_core::render::render(p, &t) {
                Ok(gradloom_core::render::Code::Text(text)) => text.contains(instruction),
                _ => panic!("{} {dt} is not printed", t.name),
            });
            assert!(printed.into_iter().any(|tiles| tiles), "{} {dt} has no {instruction}", t.name);
        }
    }
}

#[test]
fn tiles_of_other_kinds_are_used_alike() {
    for (t, threads) in [(subgroup_matrices(), 32), (alone(), 1)] {
        for sides in [[16, 16, 16], [32, 48, 64], [30, 20, 18]] {
            let s = Session::new();
            let programs = check(&format!("{} {sides:?}", t.name), &t, &matmul(&s, DType::F16, sides), None);
            assert!(programs.iter().all(uses_tiles), "{} {sides:?}", t.name);
            assert_eq!(programs[0].local[0], threads);
        }
    }
}

#[test]
fn contractions_of_all_kinds_are_right() {
    let t = target();
    for dt in [DType::F16, DType::F64] {
        let s = Session::new();
        let x = |shape: &[usize]| empty(&s, dt, shape);
        let same = ConvOpts::new().padding(&[1, 1]);
        let strided = ConvOpts::new().padding(&[1, 1]).stride(&[2, 2]);
        let list = [
            ("a batch", x(&[3, 24, 20]).matmul(&x(&[3, 20, 16]))),
            ("a transposed factor", x(&[24, 32]).matmul(&x(&[40, 32]).t().expect("a matrix"))),
            ("a bias and an activation", x(&[20, 32]).linear(&x(&[24, 32]), Some(&x(&[24]))).and_then(|y| y.relu())),
            ("a prologue", x(&[20, 30]).relu().and_then(|a| a.add(1.0)?.matmul(&x(&[30, 24]).neg()?))),
            ("a convolution", x(&[2, 16, 9, 9]).conv(&x(&[24, 16, 3, 3]), None, &same)),
            ("a strided convolution", x(&[1, 20, 27, 27]).conv(&x(&[17, 20, 3, 3]), Some(&x(&[17])), &strided)),
            ("a convolution of points", x(&[2, 32, 5, 5]).conv(&x(&[16, 32, 1, 1]), None, &ConvOpts::new())),
            ("a convolution of groups", x(&[1, 32, 8, 8]).conv(&x(&[32, 16, 3, 3]), None, &same.clone().groups(2))),
        ];
        for (what, y) in list {
            let programs = check(&format!("{what} of {dt}"), &t, &y.expect("a graph"), None);
            assert!(programs.iter().any(uses_tiles), "{what} of {dt}: no tile is used");
        }
        // an operand of 16 bits and one of 32, whose product no tile takes
        let mixed =
            empty(&s, DType::F16, &[32, 32]).cast(DType::F32).and_then(|a| a.matmul(&empty(&s, DType::F32, &[32, 32])));
        assert!(!check("mixed dtypes", &t, &mixed.expect("a graph"), None).iter().any(uses_tiles));
    }
}

#[test]
fn opts_beside_the_tile_keep_the_numbers() {
    let tile = [Opt::tile(0, 16), Opt::tile(1, 8), Opt::tile(2, 16)];
    let lists: [&[Opt]; 6] = [
        &[],
        &[Opt::upcast(0, 2), Opt::upcast(1, 4)],
        &[Opt::local(0, 2), Opt::local(1, 2)],
        &[Opt::unroll(2, 2)],
        &[Opt::split(2, 2), Opt::unroll(2, 2), Opt::upcast(1, 2)],
        &[Opt::swap(0, 1), Opt::pad(1, 3), Opt::local(1, 3)],
    ];
    for list in lists {
        let opts = [&tile[..], list].concat();
        let s = Session::new();
        let text: Vec<String> = opts.iter().map(ToString::to_string).collect();
        let programs = check(&text.join(", "), &target(), &matmul(&s, DType::F16, [64, 64, 64]), Some(&opts));
        assert!(programs.iter().all(uses_tiles));
    }
    // columns of a tile along rows of the product, and both ways round
    let turned = [Opt::tile(1, 16), Opt::tile(0, 8), Opt::tile(2, 16)];
    let s = Session::new();
    assert!(check("turned", &target(), &matmul(&s, DType::BF16, [24, 32, 16]), Some(&turned)).iter().all(uses_tiles));
}

fn kernel(t: &Target, y: &Tensor) -> Ast {
    let (g, roots, n) = closed(y);
    schedule(&g, &roots, n, t).expect("a schedule").kernels.remove(0).ast
}

#[test]
fn opts_that_lead_to_no_tile_are_refused() {
    let s = Session::new();
    let f16 = kernel(&target(), &matmul(&s, DType::F16, [64, 64, 64]));
    let f32 = kernel(&target(), &matmul(&s, DType::F32, [64, 64, 64]));
    for (ast, sides) in [(&f16, [16, 8, 8]), (&f16, [8, 8, 4]), (&f16, [16, 3, 16]), (&f32, [16, 8, 16])] {
        let opts = [Opt::tile(0, sides[0]), Opt::tile(1, sides[1]), Opt::tile(2, sides[2])];
        assert!(compile(ast, &target(), Some(&opts)).is_err(), "{sides:?}");
    }
    assert!(compile(&f16, &target(), Some(&[Opt::tile(0, 16), Opt::tile(1, 8)])).is_err(), "no terms");
    let none = without_tiles(target());
    let opts = [Opt::tile(0, 16), Opt::tile(1, 8), Opt::tile(2, 16)];
    assert!(compile(&f16, &none, Some(&opts)).is_err(), "a target without tiles");
    assert!(compile(&f16, &target(), Some(&opts)).is_ok());
}

#[test]
fn a_tile_is_cheaper_and_does_the_same_work() {
    let t = target();
    let s = Session::new();
    let ast = kernel(&t, &matmul(&s, DType::F16, [1024, 1024, 1024]));
    let tiled = compile(&ast, &t, None).expect("a program");
    let plain = compile(&ast, &without_tiles(t.clone()), None).expect("a program");
    assert!(uses_tiles(&tiled) && !uses_tiles(&plain));
    assert_eq!((count(&tiled).flops, tiled.flops), (2 << 30, 2 << 30));
    let [with, without] = [&tiled, &plain].map(|p| cost(p, &t));
    assert!(with.ns < without.ns && with.bound != Bound::Arithmetic, "{with:?}, {without:?} without tiles");
}

#[test]
fn networks_of_16_bits_are_mostly_matrix_tiles() {
    let t = target();
    let least = [
        ("matmul:256", 1.0),
        ("matmul:1024", 1.0),
        ("wmatmul:1024", 1.0),
        ("conv:56", 1.0),
        ("resnet50:1", 0.9),
        ("resnet50:8", 0.9),
        ("bertmini", 0.9),
        ("bert:12", 0.9),
    ];
    for (name, least) in least {
        let net = Net::of(DType::F16);
        let outs = build(&net, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let nodes = load(&net, &outs, &t).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (mut tiled, mut all, mut predicted) = (0, 0, [0.0; 2]);
        for (ast, launches) in kernels(&net, &nodes, &t).unwrap_or_else(|e| panic!("{name}: {e}")) {
            let mut broken = None;
            let p = compile_watched(&ast, &t, None, &mut |pass, lowering| {
                broken = broken.take().or(lowering.verify(pass).err());
            });
            let p = p.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(broken.is_none(), "{name}: {broken:?}");
            assert_eq!(p.refused, 0, "{name}: opts that do not fit {}", p.name);
            let work = p.flops * launches as u64;
            all += work;
            tiled += if uses_tiles(&p) { work } else { 0 };
            let plain = without_tiles(t.clone());
            let without = compile(&ast, &plain, None).unwrap_or_else(|e| panic!("{name}: {e}"));
            predicted[0] += cost(&p, &t).ns * launches as f64;
            predicted[1] += cost(&without, &plain).ns * launches as f64;
        }
        let share = tiled as f64 / all as f64;
        println!("{name}: {share:.3} of {all} operations; {predicted:.0?} ns with and without");
        assert!(share >= least, "{name}: only {share:.3} of the operations are in kernels with tiles");
        assert!(predicted[0] < predicted[1], "{name}: {predicted:?} ns with and without");
    }
}
