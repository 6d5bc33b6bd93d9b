//! Random tensor graphs through scheduler, codegen and the interpreter of programs (which checks every memory access),
//! compared with the interpreter of tensor graphs.

#[allow(dead_code, unreachable_pub)] // it has more constructors than are used here
#[path = "../../tests/src/nodes.rs"]
mod nodes;

use gradloom_core::codegen::axes::Kernel;
use gradloom_core::codegen::{Opt, Program, compile};
use gradloom_core::dtype::Scalar;
use gradloom_core::schedule::share::scalar_name;
use gradloom_core::schedule::{Ast, Origin, schedule};
use gradloom_core::target::{Isa, Lang, MatrixTile, Target};
use gradloom_core::uop::eval::{HostValue, eval_program, eval_tensor};
use gradloom_core::uop::mma::MATRIX_TILES_ENABLED;
use gradloom_core::uop::random::{Options, RandomGraph, Rng, tensor_graph};
use gradloom_core::uop::{Arg, Graph, Op, ReduceOp, UOp, print};
use gradloom_core::{DType, Error, Result};
use nodes::MakeNodes;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Turns of loops on a target that shows whether anything counts on more. Axes of random graphs have up to 17 elements, and one thread stores
/// what a sum is repeated for along one of them.
const FEW_TURNS: u32 = 20;

/// What the real targets can do, all run by the interpreter.
fn targets() -> Vec<(&'static str, Target)> {
    let posing = |t: Target| Target { lang: Lang::Eval, ..t };
    let mut list = vec![
        ("eval", Target::eval()),
        ("cpu", posing(Target::x86(Isa::Avx2, 2))),
        ("wasm", posing(Target::wasm(false, 1))),
        ("gpu", posing(Target::wgsl("gpu"))),
        ("gpu of few turns", posing(Target::wgsl("gpu of few turns").emulated())),
        ("gpu with all", posing(Target::wgsl("gpu with all").with_f16().with_subgroup(4))),
    ];
    list[4].1.limits.max_loop_iterations = FEW_TURNS;
    // a build without matrix tiles has not even their layouts
    if MATRIX_TILES_ENABLED {
        let tiles = [MatrixTile::sm80(), MatrixTile::subgroup_matrix()].concat();
        list.push(("gpu with tiles", posing(Target::matrix("gpu with tiles", tiles))));
    }
    list
}

/// Elements of `from` converted to `to`.
fn converted(bytes: &[u8], from: DType, to: DType) -> Vec<u8> {
    let mut out = vec![0; bytes.len() / from.size() * to.size()];
    for (a, b) in bytes.chunks(from.size()).zip(out.chunks_mut(to.size())) {
        Scalar::read(from, a).cast(from, to).write(to, b);
    }
    out
}

/// Is everything that a program computes native to the target? Narrow dtypes may be moved and converted by any.
fn check_native(p: &Program, t: &Target) -> Result<()> {
    for &u in &p.order {
        let (op, dt) = (p.g.op(u), p.g.dtype(u));
        let foreign = op.is_alu() && !matches!(op, Op::Cast | Op::Bitcast | Op::Where) && !t.has_op(op, dt);
        let compared = op.is_compare() && !t.caps.arithmetic.has(p.g.dtype(p.g.src_at(u, 0)));
        let narrow = op == Op::Acc && !t.caps.arithmetic.has(dt);
        if foreign || compared || narrow {
            return Err(Error::Internal(format!("{} is not native to {}", print::line(&p.g, u), t.name)));
        }
    }
    Ok(())
}

/// The graph with its buffers as parameters: what the scheduler takes.
fn closed(r: &RandomGraph) -> (Graph, Vec<UOp>) {
    let mut g = Graph::new();
    let roots = g.import_closed(&r.g, &r.roots, |id| id);
    (g, roots)
}

/// Some opts that fit a kernel: the heuristic would never choose most of them.
fn random_opts(ast: &Ast, t: &Target, rng: &mut Rng) -> Vec<Opt> {
    let mut k = Kernel::new(ast);
    k.settle_axes();
    let mut opts = Vec::new();
    for _ in 0..12 {
        let make = rng.pick::<fn(u8, usize) -> Opt>(&[
            |r, _| Opt::keep(r),
            Opt::upcast,
            Opt::upcast,
            Opt::lane,
            Opt::lane,
            Opt::accum,
            Opt::unroll,
            Opt::unroll,
            Opt::local,
            Opt::group,
            Opt::pad,
        ]);
        let opt = make(rng.below(8) as u8, rng.pick(&[2, 3, 4, 5, 8]));
        if opts.len() < 5 && k.apply(&opt, t).is_ok() {
            opts.push(opt);
        }
    }
    opts
}

/// Runs with the heuristic's opts, or with random ones. As in an engine, what has too many turns after all is scheduled again.
fn run(r: &RandomGraph, t: &Target, seed: Option<u64>) -> Result<Vec<Vec<u8>>> {
    let mut wish = t.clone();
    loop {
        match run_scheduled(r, t, &wish, seed.map(Rng)) {
            Err(Error::Turns { .. }) if wish.limits.max_loop_iterations > 4 => wish.limits.max_loop_iterations /= 2,
            done => return done,
        }
    }
}

fn run_scheduled(r: &RandomGraph, t: &Target, wish: &Target, mut rng: Option<Rng>) -> Result<Vec<Vec<u8>>> {
    let (g, roots) = closed(r);
    let s = schedule(&g, &roots, r.buffers.len(), wish)?;
    let mut bufs: Vec<Vec<u8>> = s
        .buffers
        .iter()
        .map(|b| match b.origin {
            // a parameter that no kernel needs has no type
            Origin::External(slot) if b.dtype != DType::Void => {
                Ok(converted(&r.buffers[slot as usize], b.dtype, t.stored_as(b.dtype)?))
            }
            _ => Ok(vec![0xFF; b.len * t.stored_as(b.dtype).map_or(0, DType::size)]),
        })
        .collect::<Result<_>>()?;
    for k in &s.kernels {
        let opts = rng.as_mut().map(|rng| random_opts(&k.ast, t, rng));
        let p = compile(&k.ast, t, opts.as_deref()).map_err(|e| match e {
            Error::Internal(what) => {
                let kernel = print::print(&k.ast.g, &[k.ast.sink]);
                Error::Internal(format!("{what}\nopts {opts:?} of the kernel\n{kernel}\nof the graph"))
            }
            e => e,
        })?;
        if p.refused > 0 {
            return Err(Error::Internal(format!("opts were chosen that do not fit {}", p.name)));
        }
        check_native(&p, t)?;
        let mut args: Vec<Vec<u8>> = k.args.iter().map(|&b| bufs[b].clone()).collect();
        let names: Vec<String> = (0..k.scalars.len()).map(scalar_name).collect();
        let values = k.scalars.iter().map(|&v| Scalar::Int(i64::from(v)));
        let vars: Vec<(&str, Scalar)> = names.iter().map(String::as_str).zip(values).collect();
        eval_program(&p.g, &p.order, &mut args, &vars, p.grid)?;
        for (i, &b) in k.args.iter().enumerate() {
            if p.params.get(i).is_some_and(|p| p.written) {
                bufs[b] = args[i].clone();
            }
        }
    }
    let logical = |&b: &usize| Ok(converted(&bufs[b], t.stored_as(s.buffers[b].dtype)?, s.buffers[b].dtype));
    s.roots.iter().map(logical).collect()
}

/// The size of the largest terms that sums of floats may have, if it is far from that of usual values: terms that cancel leave the rounding
/// error of the largest one, and the evaluator adds with more digits. 0 for other graphs.
fn largest_terms(r: &RandomGraph) -> f64 {
    const USUAL: f64 = 1000.0;
    let adds = |u: UOp| matches!((r.g.op(u), r.g.arg(u)), (Op::Reduce | Op::Scan, Arg::Reduce(ReduceOp::Add, _)) if r.g.dtype(u).is_float());
    let read = |u: UOp| match r.g.arg(u) {
        Arg::Buffer { id, .. } => {
            let dt = r.g.dtype(u);
            let values = r.buffers[*id as usize].chunks(dt.size()).map(move |c| Scalar::read(dt, c).as_f64().abs());
            values.filter(|v| v.is_finite()).fold(0.0, f64::max)
        }
        _ => 0.0,
    };
    let largest = r.g.iter().map(read).fold(0.0, f64::max);
    if r.g.iter().any(adds) && largest > USUAL { largest } else { 0.0 }
}

/// How far a root moves if the last digits of all values of buffers change, relative to the tolerance of [`difference`]: a function of a large
/// number changes by more than its rounding error. 0 where it is not finite.
fn change_by_last_digits(r: &RandomGraph, root: usize) -> f64 {
    let value_of = |nudge: f64| {
        let buffer = |id: u32| {
            let dt = r.g.iter().find_map(|u| match r.g.arg(u) {
                Arg::Buffer { id: this, .. } if *this == id => Some(r.g.dtype(u)),
                _ => None,
            })?;
            let mut bytes = r.buffers.get(id as usize)?.clone();
            if dt.is_float() {
                for c in bytes.chunks_exact_mut(dt.size()) {
                    Scalar::from_f64(Scalar::read(dt, c).as_f64() * nudge, dt).write(dt, c);
                }
            }
            Some(bytes)
        };
        let all = eval_tensor(&r.g, &r.roots, &mut |id| buffer(id), &|_| None).ok()?;
        let (dt, size) = (all[root].dtype, all[root].dtype.size());
        Some(all[root].data.chunks(size).map(|c| Scalar::read(dt, c).as_f64()).collect::<Vec<_>>())
    };
    let (Some(a), Some(b)) = (value_of(1.0), value_of(1.0 + 4.0 * f64::from(f32::EPSILON))) else { return 0.0 };
    let change = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).filter(|d| d.is_finite()).fold(0.0, f64::max);
    change / 1e-5
}

/// The first difference, if any. Floats that are sums may have had terms as large as `terms`.
fn difference(got: &[u8], want: &HostValue, loose: f64, terms: f64) -> Option<String> {
    let (dt, size) = (want.dtype, want.dtype.size());
    if got.len() != want.data.len() {
        return Some(format!("{} bytes, {} wanted", got.len(), want.data.len()));
    }
    let read = |b: &[u8]| -> Vec<Scalar> { b.chunks(size).map(|c| Scalar::read(dt, c)).collect() };
    let (got, want) = (read(got), read(&want.data));
    let tol = match dt {
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 1e-5 * loose,
    };
    got.iter().zip(&want).enumerate().find_map(|(i, (g, w))| {
        let same = g == w
            || dt.is_float() && {
                let (g, w) = (g.as_f64(), w.as_f64());
                g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= tol * w.abs().max(0.1).max(terms)
            };
        (!same).then(|| format!("[{i}] {g:?}, {w:?} wanted"))
    })
}

fn divides(g: &Graph) -> bool {
    g.iter().any(|u| match (g.op(u), g.arg(u)) {
        (Op::Idiv | Op::Imod | Op::FloorDiv | Op::FloorMod, _) => true,
        (_, Arg::Recurrence(r)) => divides(&r.body),
        _ => false,
    })
}

fn check(seed: u64, o: Options<'_>) -> std::result::Result<(), String> {
    check_graph(seed, tensor_graph(seed, o), 1.0)
}

fn check_graph(seed: u64, r: RandomGraph, loose: f64) -> std::result::Result<(), String> {
    let want = eval_tensor(&r.g, &r.roots, &mut |id| r.buffers.get(id as usize).cloned(), &|_| None)
        .map_err(|e| format!("seed {seed}: {e}"))?;
    let terms = largest_terms(&r);
    let plain = targets().into_iter().map(|t| (t, None));
    let opted = targets().into_iter().map(|t| (t, Some(seed)));
    for ((name, t), opts) in plain.chain(opted) {
        let how = if opts.is_some() { "random opts" } else { "heuristic" };
        let fail = |what: String| format!("seed {seed} on {name}, {how}: {what}\n{}", print::print(&r.g, &r.roots));
        let got = match catch_unwind(AssertUnwindSafe(|| run(&r, &t, opts))) {
            Ok(Ok(got)) => got,
            // not failures: typed refusals; opts make loops longer, and a quotient of 64-bit integers has 64 turns
            Ok(Err(Error::Turns { .. })) if opts.is_some() || divides(&r.g) => continue,
            Ok(Err(Error::Unsupported { what, .. })) if what.contains("f64") && !t.caps.storage.has(DType::F64) => {
                continue;
            }
            Ok(Err(e)) => return Err(fail(e.to_string())),
            Err(p) => {
                let text = p.downcast_ref::<String>().cloned();
                return Err(fail(format!("panic: {}", text.unwrap_or_default())));
            }
        };
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            if let Some(d) = difference(g, w, loose, terms)
                && difference(g, w, loose, change_by_last_digits(&r, i)).is_some()
            {
                return Err(fail(format!("root {i}: {d}")));
            }
        }
    }
    Ok(())
}

/// The seeds that the environment names, as `0-1000`, or a test's own.
fn seeds_or(own: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("GRADLOOM_RANDOM_GRAPHS") else { return own };
    let (from, to) = text.split_once('-').expect("seeds as in 0-1000");
    from.parse().expect("a seed")..to.parse().expect("a seed")
}

/// Checks many seeds; the smallest failing graph is the message.
fn check_all(seeds: std::ops::Range<u64>, o: impl Fn(u64) -> Options<'static>) {
    let seeds = seeds_or(seeds);
    let total = seeds.end - seeds.start;
    let failures: Vec<String> = seeds.filter_map(|seed| check(seed, o(seed)).err()).collect();
    if let Some(least) = failures.iter().min_by_key(|f| f.lines().count()) {
        let kinds: Vec<&str> = failures.iter().map(|f| f.lines().next().unwrap_or_default()).take(20).collect();
        panic!("{} of {total} fail:\n{}\n\nsmallest: {least}", failures.len(), kinds.join("\n"));
    }
}

#[test]
fn integers_are_exact() {
    use DType::*;
    check_all(0..200, |seed| Options {
        ops: 3 + seed as usize % 16,
        dtypes: &[Bool, I8, I16, I32, I64, U8, U16, U32, U64],
        special: true,
        exact: true,
        max_elems: 300,
    });
}

#[test]
fn floats_agree() {
    use DType::*;
    check_all(10_000..10_200, |seed| Options {
        ops: 3 + seed as usize % 12,
        dtypes: &[F32, F32, F32, F64, I32, Bool],
        special: true,
        exact: true,
        max_elems: 300,
    });
}

#[test]
fn half_precision_agrees() {
    use DType::*;
    check_all(20_000..20_100, |seed| Options {
        ops: 3 + seed as usize % 8,
        dtypes: &[F16, BF16, F32, I16],
        special: true,
        exact: true,
        max_elems: 200,
    });
}

/// Without special values, steps of recurrences have products of matrices too.
#[test]
fn recurrences_agree() {
    use DType::*;
    check_all(40_000..40_200, |seed| Options {
        ops: 3 + seed as usize % 8,
        dtypes: &[F32, F32, F64, I32],
        special: false,
        exact: true,
        max_elems: 200,
    });
}

/// Functions too, in graphs so small that errors stay near those of one op.
#[test]
fn functions_agree() {
    check_all(30_000..30_200, |seed| Options {
        ops: 2 + seed as usize % 3,
        dtypes: &[DType::F32],
        special: false,
        exact: false,
        max_elems: 300,
    });
}

/// The sum of a doubled vector, unrolled by four: two bodies of the unrolled loop are the same load.
#[test]
fn equal_bodies_of_an_unrolled_loop_all_count() {
    for fma in [false, true] {
        let mut t = Target::eval();
        t.caps.fma = fma;
        let mut g = Graph::new();
        let x = g.param(0, DType::F32, 8);
        let x = g.reshape(x, &[8, 1]);
        let x = g.expand(x, &[8, 2]);
        let x = g.reshape(x, &[16]);
        let x = g.binary(Op::Mul, x, x);
        let sum = g.reduce(x, ReduceOp::Add, &[0]);
        let s = schedule(&g, &[sum], 1, &t).unwrap();
        let k = &s.kernels[0];
        let axis = k.ast.g.iter().find(|&u| k.ast.g.op(u) == Op::Range).map(|u| k.ast.g.range_arg(u).id).unwrap();
        let p = compile(&k.ast, &t, Some(&[Opt::unroll(axis, 4)])).unwrap();
        let data: Vec<u8> = (0..8).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let mut args = [vec![0; 4], data];
        eval_program(&p.g, &p.order, &mut args, &[], p.grid).unwrap();
        assert_eq!(args[0], 280f32.to_le_bytes(), "{}", print::print_program(&p.g, &p.order));
    }
}

/// What does not change along an axis is multiplied by its length, or is the extreme itself: no kernel has a loop over it. Sums of 16-bit
/// floats keep theirs, since the length need not be such a number.
#[test]
fn repeated_terms_need_no_loop() {
    for (dt, op, loops) in [
        (DType::F32, ReduceOp::Add, 0),
        (DType::I32, ReduceOp::Add, 0),
        (DType::F16, ReduceOp::Add, 1),
        (DType::F16, ReduceOp::Max, 0),
        (DType::I8, ReduceOp::Min, 0),
        (DType::F32, ReduceOp::Mul, 1),
        (DType::Bool, ReduceOp::Add, 0),
    ] {
        let mut g = Graph::new();
        let x = g.param(0, dt, 5);
        let x = g.reshape(x, &[5, 1]);
        let x = g.expand(x, &[5, 1000]);
        let y = g.reduce(x, op, &[1]);
        let s = schedule(&g, &[y], 1, &Target::eval()).unwrap();
        let sums = s.kernels.iter().flat_map(|k| k.ast.g.reachable(&[k.ast.sink]).into_iter().map(|u| k.ast.g.op(u)));
        assert_eq!(sums.filter(|&op| op == Op::Reduce).count(), loops, "{op:?} of {dt}");
    }
}

/// A chain of norms: reductions of a tensor over some axes, read back over them, sometimes through reshapes that group
/// axes, sometimes reduced again at the end. Special values are left out; sums that nearly cancel still depend on order.
fn row_graph(seed: u64) -> RandomGraph {
    let mut rng = Rng(seed);
    let mut g = Graph::new();
    let rank = 1 + rng.below(4);
    let mut shape: Vec<usize> = (0..rank).map(|_| rng.pick(&[1, 2, 3, 4, 6, 8, 17, 24])).collect();
    // long sums differ by their order
    while shape.iter().product::<usize>() > 1000 {
        *shape.iter_mut().max().unwrap() /= 2;
    }
    let n: usize = shape.iter().product();
    let mut buffers = Vec::new();
    let mut buffer = |g: &mut Graph, rng: &mut Rng, shape: &[usize]| {
        let n = shape.iter().product::<usize>();
        let data = (0..n).flat_map(|_| ((rng.below(65) as f32 - 32.0) / 16.0).to_le_bytes()).collect();
        buffers.push(data);
        let arg = Arg::Buffer { id: buffers.len() as u32 - 1, len: n };
        let b = g.node(Op::Buffer, DType::F32, &[], arg);
        g.reshape(b, shape)
    };
    let mut x = buffer(&mut g, &mut rng, &shape);
    for _ in 0..1 + rng.below(2) {
        // as it is, or with an axis split or two joined
        let mut view = shape.clone();
        match rng.below(4) {
            0 if rank > 1 => {
                let last = view.pop().unwrap();
                *view.last_mut().unwrap() *= last;
            }
            1 if shape[0].is_multiple_of(2) => {
                view[0] /= 2;
                view.insert(0, 2);
            }
            _ => {}
        }
        let mut axes: Vec<u8> = (0..view.len() as u8).filter(|_| rng.once_in(2)).collect();
        if axes.is_empty() {
            axes.push(view.len() as u8 - 1);
        }
        let mut y = g.reshape(x, &view);
        for _ in 0..1 + rng.below(3) {
            let op = rng.pick(&[ReduceOp::Add, ReduceOp::Max, ReduceOp::Min]);
            let z = g.binary(Op::Mul, y, y);
            let of = rng.pick(&[y, z]);
            let stat = g.reduce(of, op, &axes);
            let count = axes.iter().map(|&a| view[a as usize]).product::<usize>() as f64;
            let c = g.float(1.0 / count, DType::F32);
            let stat = g.binary(Op::Mul, stat, c);
            let stat = g.expand(stat, &view);
            y = g.binary(rng.pick(&[Op::Sub, Op::Add, Op::Max]), y, stat);
        }
        x = g.reshape(y, &shape);
        if rng.once_in(2) {
            let w = buffer(&mut g, &mut rng, &shape[rank - 1..]);
            let mut ones = vec![1; rank];
            ones[rank - 1] = shape[rank - 1];
            let w = g.reshape(w, &ones);
            let w = g.expand(w, &shape);
            x = g.binary(Op::Mul, x, w);
        }
    }
    if n > 1 && rng.once_in(3) {
        let axis = rng.below(rank) as u8;
        x = g.reduce(x, ReduceOp::Add, &[axis]);
    }
    RandomGraph { g, roots: vec![x], buffers }
}

#[test]
fn rows_agree() {
    let failures: Vec<String> = (0..300).filter_map(|seed| check_graph(seed, row_graph(seed), 30.0).err()).collect();
    let least = failures.iter().min_by_key(|f| f.lines().count());
    assert!(least.is_none(), "{} of 300 fail, smallest: {}", failures.len(), least.unwrap());
}

/// Reductions of joined parts, each of which varies along some axes alone: steps of an unrolled loop that the others are not
/// needed for. Numbers whose sums are exact in any order.
fn joined_graph(seed: u64) -> RandomGraph {
    let mut rng = Rng(seed);
    let mut g = Graph::new();
    let mut shape: Vec<usize> = (0..1 + rng.below(3)).map(|_| rng.pick(&[1, 2, 3, 4, 6])).collect();
    let (place, parts) = (rng.below(shape.len() + 1), rng.pick(&[2, 3, 4]));
    shape.insert(place, 1);
    let mut buffers = Vec::new();
    let mut whole: Option<UOp> = None;
    for i in 0..parts {
        let own: Vec<usize> = shape.iter().map(|&n| if rng.once_in(2) { n } else { 1 }).collect();
        let n = own.iter().product();
        buffers.push((0..n).flat_map(|_| (1.0 + rng.below(8) as f32).to_le_bytes()).collect());
        let b = g.node(Op::Buffer, DType::F32, &[], Arg::Buffer { id: i as u32, len: n });
        let x = g.reshape(b, &own);
        let x = g.expand(x, &shape);
        let pairs: Vec<(usize, usize)> =
            (0..shape.len()).map(|a| if a == place { (i, parts - 1 - i) } else { (0, 0) }).collect();
        let x = g.pad(x, &pairs);
        whole = Some(whole.map_or(x, |w| g.binary(Op::Add, w, x)));
    }
    let mut axes: Vec<u8> = (0..shape.len() as u8).filter(|&a| a as usize == place || !rng.once_in(4)).collect();
    axes.sort_unstable();
    let x = g.reduce(whole.unwrap(), rng.pick(&[ReduceOp::Add, ReduceOp::Add, ReduceOp::Max]), &axes);
    RandomGraph { g, roots: vec![x], buffers }
}

#[test]
fn joined_parts_all_count() {
    let failures: Vec<String> = (0..400).filter_map(|seed| check_graph(seed, joined_graph(seed), 1.0).err()).collect();
    let least = failures.iter().min_by_key(|f| f.lines().count());
    assert!(least.is_none(), "{} of 400 fail, smallest: {}", failures.len(), least.unwrap());
}

/// Layer norm over the last axis, group norm through a reshape, softmax over the first axis: one kernel each. A matrix
/// product before a softmax stays a kernel of its own.
#[test]
fn norms_are_one_kernel() {
    let one = |t: &Target, make: &dyn Fn(&mut Graph) -> UOp| {
        let mut g = Graph::new();
        let root = make(&mut g);
        schedule(&g, &[root], 2, t).unwrap().kernels.len()
    };
    let spread = |g: &mut Graph, x: UOp, op: ReduceOp, axis: u8, shape: &[usize]| {
        let r = g.reduce(x, op, &[axis]);
        g.expand(r, shape)
    };
    let norm = |g: &mut Graph, x: UOp, axis: u8, shape: &[usize]| {
        let mean = spread(g, x, ReduceOp::Add, axis, shape);
        let d = g.binary(Op::Sub, x, mean);
        let sq = g.binary(Op::Mul, d, d);
        let var = spread(g, sq, ReduceOp::Add, axis, shape);
        let root = g.unary(Op::Sqrt, var);
        g.binary(Op::Div, d, root)
    };
    let softmax = |g: &mut Graph, x: UOp, axis: u8, shape: &[usize]| {
        let max = spread(g, x, ReduceOp::Max, axis, shape);
        let d = g.binary(Op::Sub, x, max);
        let e = g.unary(Op::Exp2, d);
        let sum = spread(g, e, ReduceOp::Add, axis, shape);
        g.binary(Op::Div, e, sum)
    };
    for t in [Target::x86(Isa::Avx2, 2), Target::wasm(true, 1)] {
        let input = |g: &mut Graph, shape: &[usize]| {
            let x = g.param(0, DType::F32, shape.iter().product());
            g.reshape(x, shape)
        };
        let layer = one(&t, &|g| {
            let x = input(g, &[256, 512]);
            norm(g, x, 1, &[256, 512])
        });
        let group = one(&t, &|g| {
            let x = input(g, &[4, 32, 16, 16]);
            let x = g.reshape(x, &[4, 8, 1024]);
            let y = norm(g, x, 2, &[4, 8, 1024]);
            g.reshape(y, &[4, 32, 16, 16])
        });
        let columns = one(&t, &|g| {
            let x = input(g, &[512, 256]);
            softmax(g, x, 0, &[512, 256])
        });
        let scores = one(&t, &|g| {
            let (a, b) = (input(g, &[256, 1, 64]), g.param(1, DType::F32, 256 * 64));
            let b = g.reshape(b, &[1, 256, 64]);
            let (a, b) = (g.expand(a, &[256, 256, 64]), g.expand(b, &[256, 256, 64]));
            let ab = g.binary(Op::Mul, a, b);
            let s = g.reduce(ab, ReduceOp::Add, &[2]);
            let s = g.reshape(s, &[256, 256]);
            softmax(g, s, 1, &[256, 256])
        });
        assert_eq!((layer, group, columns, scores), (1, 1, 1, 2), "on {}", t.name);
    }
}

/// Assigns of tensors that depend on each other at the same place are one kernel; a permuted read is not, and neither is a
/// reader of the old state.
#[test]
fn steps_are_one_kernel() {
    let n = 24;
    let kernels = |make: &dyn Fn(&mut Graph, [UOp; 3]) -> Vec<UOp>| {
        let mut g = Graph::new();
        let x = [0, 1, 2].map(|i| g.param(i, DType::F32, n));
        let roots = make(&mut g, x);
        schedule(&g, &roots, 3, &Target::x86(Isa::Avx2, 1)).unwrap()
    };
    let assign = |g: &mut Graph, x: UOp, v: UOp| {
        let store = g.store(x, v);
        g.after(x, &[store])
    };
    let step = kernels(&|g, [p, m, d]| {
        let half = g.float(0.5, DType::F32);
        let scaled = g.binary(Op::Mul, m, half);
        let v = g.binary(Op::Add, scaled, d);
        let m = assign(g, m, v);
        let v = g.binary(Op::Sub, p, m);
        vec![m, assign(g, p, v)]
    });
    assert_eq!(step.kernels.len(), 1);
    let (written, read) = step.kernels[0].split_args();
    assert_eq!((written.len(), read.len()), (2, 1), "{:?}", step.kernels[0].args);
    let p = compile(&step.kernels[0].ast, &Target::x86(Isa::Avx2, 1), None).unwrap();
    let bytes = |v: f32| (0..n).flat_map(|i| (v + i as f32).to_le_bytes()).collect::<Vec<u8>>();
    let start = [bytes(100.0), bytes(10.0), bytes(1.0)];
    let mut args: Vec<Vec<u8>> = step.kernels[0].args.iter().map(|&b| start[b].clone()).collect();
    eval_program(&p.g, &p.order, &mut args, &[], p.grid).unwrap();
    let result = |b: usize| {
        let at = step.kernels[0].args.iter().position(|&x| x == b).unwrap();
        f32::from_le_bytes(args[at][4..8].try_into().unwrap())
    };
    assert_eq!((result(1), result(0)), (0.5 * 11.0 + 2.0, 101.0 - 7.5));

    let flipped = kernels(&|g, [p, m, d]| {
        let v = g.binary(Op::Add, m, d);
        let m = assign(g, m, v);
        let back = g.node(Op::Flip, DType::F32, &[m], Arg::Axes([0].into_iter().collect()));
        let v = g.binary(Op::Sub, p, back);
        vec![m, assign(g, p, v)]
    });
    assert_eq!(flipped.kernels.len(), 2);
    let overwritten = kernels(&|g, [p, m, d]| {
        let back = g.node(Op::Flip, DType::F32, &[d], Arg::Axes([0].into_iter().collect()));
        let v = g.binary(Op::Add, m, back);
        let m = assign(g, m, v);
        let v = g.binary(Op::Sub, d, p);
        vec![m, assign(g, d, v)]
    });
    assert_eq!(overwritten.kernels.len(), 2);
}
