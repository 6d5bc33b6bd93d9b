//! The device for NVIDIA's GPUs over the emulator of their driver: what is kept from one submission, and from one start, to the next.
#![cfg(target_os = "linux")]

use gradloom::cuda::{CudaDevice, Launches};
use gradloom::{DType, Runtime, Tensor};
use gradloom_core::Error;
use gradloom_core::codegen::compile;
use gradloom_core::device::{BufId, Device, KernelId, Step, View};
use gradloom_core::dtype::Scalar;
use gradloom_core::render::ptx::Ptx;
use gradloom_core::render::{Renderer as _, Source};
use gradloom_core::target::{Sm, Target};
use gradloom_core::tensor::ConvOpts;
use gradloom_core::uop::{Arg, Op};
use gradloom_tests::here;
use gradloom_tests::networks::{Net, kernels as kernels_of, load};
use gradloom_tests::programs::{Sample, samples};
use gradloom_tests::runner;

fn open() -> Option<CudaDevice> {
    crate::emulator::load();
    here::device("cuda", CudaDevice::new(0))
}

fn kernels(device: &mut CudaDevice, some: &[Sample]) -> Vec<KernelId> {
    let target = device.target().clone();
    let source = |s: &Sample| Source::new(&s.program, Ptx.render(&s.program, &target).expect("a text"));
    device.compile(&some.iter().map(source).collect::<Vec<_>>()).expect("samples compile")
}

/// What the driver's compiler made is in the cache: a device that is opened later gives it no text, and computes the same. Code that the
/// driver does not take is made again.
#[test]
fn a_second_start_compiles_nothing() {
    let folder = std::env::temp_dir().join(format!("gradloom-cuda-{}", std::process::id()));
    for start in 0..2 {
        let Some(mut device) = open() else { return };
        device.cache_in(&folder);
        let some: Vec<Sample> = samples(&device.target().clone()).into_iter().step_by(50).collect();
        let kernels = kernels(&mut device, &some);
        assert_eq!(device.translated() == 0, start == 1, "start {start}: {} texts", device.translated());
        for (s, &kernel) in some.iter().zip(&kernels) {
            s.check(&runner::run_one(&mut device, s, kernel).expect("a sample runs")).expect("its known results");
        }
    }
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
}

/// Products of 16-bit floats on a GPU that multiplies what lies in workgroup memory: either factor as it is and turned, numbers that are exact in
/// sums of any order. The emulator refuses a product whose factors change while it goes on, or that copies are not fenced from.
#[test]
fn products_of_hopper_are_exact() {
    crate::emulator::load();
    for (dtype, [m, n, k]) in [
        (DType::F16, [64, 64, 192]),
        (DType::BF16, [64, 128, 64]),
        (DType::F16, [128, 64, 128]),
        (DType::BF16, [128, 128, 256]),
        (DType::F16, [128, 256, 192]),
        (DType::BF16, [256, 256, 256]),
    ] {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            let Some(device) = here::device("cuda:1", CudaDevice::new(1)) else { return };
            let mut runtime = Runtime::on(Box::new(device));
            let s = runtime.session().clone();
            // whole numbers of few bits: every sum is exact, in any order, until it is rounded to the product's dtype
            let of = |i: usize, seed: usize| ((i * 7919 + seed) % 1009 % 7) as f32 - 3.0;
            let matrix = |rows: usize, columns: usize, turned: bool, seed: usize| {
                let all: Vec<f32> = (0..rows * columns).map(|i| of(i, seed)).collect();
                let shape = if turned { [columns, rows] } else { [rows, columns] };
                let x = Tensor::new(&s, &all, &shape).and_then(|t| t.cast(dtype)).expect("a tensor").contiguous();
                (x.clone(), if turned { x.permute(&[1, 0]).expect("a matrix") } else { x })
            };
            let (x, y) = (matrix(m, k, turned[0], 1), matrix(k, n, turned[1], 613));
            runtime.realize(&[&x.0, &y.0]).expect("operands");
            let z = x.1.matmul(&y.1).and_then(|z| z.cast(DType::F32)).expect("a product");
            let got = runtime.to_vec::<f32>(&z).expect("a result");
            let left = |i: usize, p: usize| of(if turned[0] { p * m + i } else { i * k + p }, 1);
            let right = |p: usize, j: usize| of(if turned[1] { j * k + p } else { p * n + j }, 613);
            let element = |at: usize| {
                let sum: f32 = (0..k).map(|p| left(at / n, p) * right(p, at % n)).sum();
                Scalar::float(f64::from(sum)).cast(DType::F64, dtype).as_f64() as f32
            };
            let want: Vec<f32> = (0..m * n).map(element).collect();
            assert_eq!(got, want, "{dtype} {m}x{n}x{k} {turned:?}");
            assert!(want.iter().any(|&x| x != 0.0));
        }
    }
}

/// Six places for the values of a sample that negates them, in one buffer.
struct Arena {
    buf: BufId,
    gap: usize,
    bytes: usize,
}

impl Arena {
    fn new(device: &mut CudaDevice, first: &[u8]) -> Arena {
        let gap = first.len().next_multiple_of(256);
        let buf = device.alloc(6 * gap).expect("memory");
        device.upload(buf, 0, first).expect("an upload");
        Arena { buf, gap, bytes: first.len() }
    }

    fn at(&self, i: usize) -> View {
        View { buf: self.buf, offset: i * self.gap, bytes: self.bytes }
    }

    fn read(&self, device: &mut CudaDevice, i: usize) -> Vec<f64> {
        let ticket = device.read(self.at(i)).expect("a readback");
        let bytes = device.poll(ticket).expect("a readback").expect("its bytes");
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect()
    }
}

/// Steps that come a second time become a graph, which later ones run by one call, with other buffers and where steps wait for others too.
/// The emulator runs nodes in the last order that is allowed, so a dependency that is missing gives other numbers.
#[test]
fn a_submission_that_comes_again_is_one_graph() {
    let Some(mut device) = open() else { return };
    let all = samples(&device.target().clone());
    let s: Vec<Sample> = all.into_iter().filter(|s| s.program.name == "neg_f32").take(1).collect();
    let kernel = kernels(&mut device, &s)[0];
    let grid = s[0].program.grid;
    let n = s[0].data[0].bytes().len() / 4;
    let values = |seed: usize| (0..n).map(|i| ((i * 7 + seed) % 101) as f32 - 50.0).collect::<Vec<f32>>();
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut expected = Launches::default();
    // from which place the third step reads, and what is new then
    let rounds = [
        (1, 0, Launches { steps: 5, ..Launches::default() }),
        (1, 0, Launches { made: 1, graphs: 1, ..Launches::default() }),
        (1, 0, Launches { graphs: 1, ..Launches::default() }),
        (2, 0, Launches { graphs: 1, changed: 5, ..Launches::default() }),
        (2, 2, Launches { graphs: 1, made: 1, ..Launches::default() }),
        (2, 2, Launches { graphs: 1, ..Launches::default() }),
        (1, 0, Launches { graphs: 1, made: 1, ..Launches::default() }),
    ];
    let arenas = [3, 40].map(|seed| (values(seed), Arena::new(&mut device, &bytes(&values(seed)))));
    for (round, (which, third, new)) in rounds.into_iter().enumerate() {
        let (values, a) = &arenas[which - 1];
        let run = |from, to| Step::Launch { kernel, args: vec![a.at(from), a.at(to)], grid, vars: vec![] };
        let copy = Step::Copy { src: a.at(3), dst: a.at(4) };
        device.submit(&[run(0, 1), run(1, 2), run(third, 3), copy, run(4, 5)]).expect("a submission");
        for (i, sign) in [1.0, -1.0, 1.0, -1.0, -1.0, 1.0].into_iter().enumerate() {
            let want: Vec<f64> = values.iter().map(|&x| sign * f64::from(x)).collect();
            assert_eq!(a.read(&mut device, i), want, "round {round}, place {i}");
        }
        expected.steps += new.steps;
        expected.graphs += new.graphs;
        expected.made += new.made;
        expected.changed += new.changed;
        assert_eq!(device.launches(), expected, "round {round}");
    }
    // a kernel that goes takes its graphs along
    device.release(kernel);
    assert!(device.submit(&[Step::Launch { kernel, args: vec![], grid, vars: vec![] }]).is_err());
}

/// Launch scalars of a graph are those of the run, not those with which it was made.
#[test]
fn a_graph_takes_other_scalars() {
    let Some(mut device) = open() else { return };
    let all = samples(&device.target().clone());
    let s: Vec<Sample> = all.into_iter().filter(|s| !s.vars.is_empty() && s.vars[0] > 0).take(1).collect();
    let kernel = kernels(&mut device, &s)[0];
    let s = &s[0];
    let mut run = |vars: &[u32], times: usize| {
        let mut out = Vec::new();
        for _ in 0..times {
            let mut args = Vec::new();
            for data in &s.data {
                let bytes = data.bytes();
                let buf = device.alloc(bytes.len()).expect("memory");
                device.upload(buf, 0, &bytes).expect("an upload");
                args.push(View { buf, offset: 0, bytes: bytes.len() });
            }
            let spare = device.alloc(args[0].bytes).expect("memory");
            let there = View { buf: spare, offset: 0, bytes: args[0].bytes };
            let launch = Step::Launch { kernel, args: args.clone(), grid: s.program.grid, vars: vars.to_vec() };
            device.submit(&[Step::Copy { src: args[0], dst: there }, launch]).expect("a submission");
            let tickets: Vec<_> = args.iter().map(|&v| device.read(v).expect("a readback")).collect();
            out = tickets.into_iter().map(|t| device.poll(t).expect("a readback").expect("its bytes")).collect();
            args.iter().for_each(|v| device.free(v.buf));
            device.free(spare);
        }
        (out, device.launches().graphs)
    };
    let less: Vec<u32> = s.vars.iter().map(|&v| v - 1).collect();
    let (plain, _) = run(&less, 1);
    let (first, graphs) = run(&s.vars, 2);
    assert!(graphs > 0);
    s.check(&first).expect("known results");
    let (again, _) = run(&less, 1);
    assert!(again == plain, "the scalars of another run");
    assert!(again != first, "{} computes the same with other scalars", s.program.name);
    let (last, graphs) = run(&s.vars, 1);
    assert!(last == first && graphs >= 3);
}

/// What is freed stays in the driver's pool when somebody waits, so the attribute that says so has arrived. The pool gives it back where an
/// allocation would fail for it, and when its device goes.
#[test]
fn freed_memory_stays_in_the_pool_until_it_is_wanted() {
    const BYTES: &str = "GRADLOOM_EMULATED_BYTES";
    const MIB: usize = 1 << 20;
    if std::env::var_os(BYTES).is_none() {
        // a process of its own: the emulator has one memory, which is small here
        let program = std::env::current_exe().expect("this program has a path");
        let name = "cuda::freed_memory_stays_in_the_pool_until_it_is_wanted";
        let mut alone = std::process::Command::new(program);
        alone.args(["--exact", name]).env(BYTES, (64 * MIB).to_string());
        let run = alone.output().expect("the program runs");
        let (said, wrong) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success() && said.contains("1 passed"), "{said}{wrong}");
        return;
    }
    let Some(mut device) = open() else { return };
    let pool = |device: &mut CudaDevice| {
        device.sync().expect("nothing is wrong");
        device.pool_bytes().expect("a pool") as usize
    };
    assert_eq!(pool(&mut device), 0);
    let first = device.alloc(40 * MIB).expect("memory");
    device.free(first);
    assert_eq!(pool(&mut device), 40 * MIB, "what is freed is kept");
    let again = device.alloc(40 * MIB).expect("what was kept");
    device.free(again);
    // 30 MiB are not there beside what is kept
    let other = device.alloc(30 * MIB).expect("the pool gives back what nobody uses");
    assert_eq!(pool(&mut device), 30 * MIB);
    let refused = device.alloc(40 * MIB);
    assert!(matches!(refused, Err(Error::OutOfMemory { bytes, .. }) if bytes == 40 * MIB as u64), "{refused:?}");
    device.upload(other, 0, &[7; 64]).expect("the device goes on");
    let ticket = device.read(View { buf: other, offset: 0, bytes: 64 }).expect("a readback");
    assert_eq!(device.poll(ticket).expect("a readback"), Some(vec![7; 64]));
    drop(device);
    let mut next = open().expect("another device");
    assert_eq!(pool(&mut next), 0);
}

/// A kernel that leaves its memory, or that cannot be launched as it is, breaks the context: all that is asked of the device from then on ends
/// with an error that says that it is lost, and by what.
#[test]
fn a_broken_context_is_a_lost_device() {
    let one_element: fn(&mut Source) = |s| s.params.iter_mut().for_each(|p| p.len = 1);
    let other_threads: fn(&mut Source) = |s| s.local[0] += 1;
    for (wrong, code) in [(one_element, "CUDA_ERROR_ILLEGAL_ADDRESS"), (other_threads, "CUDA_ERROR_LAUNCH_FAILED")] {
        let Some(mut device) = open() else { return };
        let target = device.target().clone();
        let s = samples(&target).into_iter().find(|s| s.program.name == "neg_f32").expect("the sample is there");
        let mut source = Source::new(&s.program, Ptx.render(&s.program, &target).expect("a text"));
        wrong(&mut source);
        let mut args = Vec::new();
        for p in &source.params {
            let bytes = p.len * p.dtype.size();
            args.push(View { buf: device.alloc(bytes).expect("memory"), offset: 0, bytes });
        }
        let view = args[0];
        let kernel = device.compile(&[source]).expect("a kernel")[0];
        let launch = [Step::Launch { kernel, args, grid: s.program.grid, vars: vec![] }];
        device.submit(&launch).expect("nothing is wrong before it runs");
        let is_lost = |e: Error| assert!(matches!(&e, Error::Lost { what, .. } if what.contains(code)), "{e}");
        is_lost(device.sync().unwrap_err());
        is_lost(device.sync().unwrap_err());
        is_lost(device.alloc(64).unwrap_err());
        is_lost(device.upload(view.buf, 0, &[7; 4]).unwrap_err());
        is_lost(device.compile(&[]).unwrap_err());
        is_lost(device.submit(&launch).unwrap_err());
        is_lost(device.submit(&[]).unwrap_err());
        is_lost(device.submit_timed(&launch).unwrap_err());
        is_lost(device.read(view).unwrap_err());
        is_lost(device.pool_bytes().unwrap_err());
        // what is left of it can be dropped, and another one works
        drop(device);
        let mut next = open().expect("another device");
        let buf = next.alloc(64).expect("memory");
        next.upload(buf, 0, &[7; 64]).expect("an upload");
        let ticket = next.read(View { buf, offset: 0, bytes: 64 }).expect("a readback");
        assert_eq!(next.poll(ticket).expect("a readback"), Some(vec![7; 64]));
    }
}

/// More goes to the GPU than the blocks that uploads go through hold, and every byte arrives, though nothing waits in between.
#[test]
fn uploads_arrive_through_few_blocks() {
    let Some(mut device) = open() else { return };
    let part = 3 << 20;
    let bufs: Vec<BufId> = (0..12).map(|_| device.alloc(part).expect("memory")).collect();
    let bytes = |seed: usize| (0..part).map(|i| ((i * 31 + i / 4096 * 7 + seed * 13) % 251) as u8).collect::<Vec<u8>>();
    for (i, &buf) in bufs.iter().enumerate() {
        device.upload(buf, 0, &bytes(i)).expect("an upload");
    }
    let large = device.alloc(3 * part).expect("memory");
    let all = [bytes(90), bytes(91), bytes(92)].concat();
    device.upload(large, 0, &all).expect("an upload");
    let views = bufs.iter().map(|&buf| View { buf, offset: 0, bytes: part });
    let tickets: Vec<_> = views.map(|v| device.read(v).expect("a readback")).collect();
    for (i, ticket) in tickets.into_iter().enumerate() {
        assert!(device.poll(ticket).expect("a readback").expect("its bytes") == bytes(i), "buffer {i}");
    }
    let ticket = device.read(View { buf: large, offset: 0, bytes: 3 * part }).expect("a readback");
    assert!(device.poll(ticket).expect("a readback").expect("its bytes") == all);
}

/// A contraction of two tensors of f32.
struct Product {
    what: &'static str,
    shapes: [&'static [usize]; 2],
    of: fn(&Tensor, &Tensor) -> gradloom::Result<Tensor>,
    /// Bytes that one copy moves, for each of its kinds.
    copies: &'static [u32],
}

fn conv(x: &Tensor, w: &Tensor, stride: usize, padding: i64) -> gradloom::Result<Tensor> {
    x.conv(w, None, &ConvOpts { stride: vec![stride; 2], padding: vec![(padding, padding); 2], ..ConvOpts::default() })
}

fn product(
    what: &'static str,
    shapes: [&'static [usize]; 2],
    copies: &'static [u32],
    of: fn(&Tensor, &Tensor) -> gradloom::Result<Tensor>,
) -> Product {
    Product { what, shapes, of, copies }
}

fn products() -> Vec<Product> {
    vec![
        product("both as they are", [&[64, 48], &[48, 64]], &[16], |a, b| a.matmul(b)),
        product("the second turned", [&[64, 48], &[64, 48]], &[16], |a, b| a.matmul(&b.permute(&[1, 0])?)),
        product("the first turned", [&[48, 64], &[48, 64]], &[16], |a, b| a.permute(&[1, 0])?.matmul(b)),
        product("both turned", [&[48, 64], &[64, 48]], &[16], |a, b| a.permute(&[1, 0])?.matmul(&b.permute(&[1, 0])?)),
        product("rows and columns rounded up", [&[70, 48], &[48, 68]], &[16], |a, b| a.matmul(b)),
        product("rows that begin anywhere", [&[65, 50], &[50, 67]], &[4], |a, b| a.matmul(b)),
        product("terms rounded up", [&[64, 34], &[34, 64]], &[4, 16], |a, b| a.matmul(b)),
        product("side by side", [&[3, 64, 32], &[3, 32, 64]], &[16], |a, b| a.matmul(b)),
        product("few rows", [&[16, 256], &[256, 64]], &[16], |a, b| a.matmul(b)),
        product("few rows, the second turned", [&[16, 256], &[64, 256]], &[16], |a, b| a.matmul(&b.permute(&[1, 0])?)),
        product("and more", [&[64, 48], &[48, 64]], &[16], |a, b| a.matmul(b)?.add(1.0)?.gelu()),
        product("a window", [&[2, 8, 12, 12], &[16, 8, 3, 3]], &[4, 16], |x, w| conv(x, w, 1, 1)),
        product("a window in steps", [&[1, 8, 25, 25], &[20, 8, 3, 3]], &[4, 16], |x, w| conv(x, w, 2, 1)),
        product("a wide window", [&[1, 3, 24, 24], &[16, 3, 7, 7]], &[4], |x, w| conv(x, w, 2, 3)),
        product("points", [&[2, 32, 8, 8], &[24, 32, 1, 1]], &[16], |x, w| conv(x, w, 1, 0)),
        product("points in steps", [&[2, 32, 14, 14], &[24, 32, 1, 1]], &[4, 16], |x, w| conv(x, w, 2, 0)),
        product("points of odd images", [&[3, 32, 7, 7], &[24, 32, 1, 1]], &[4, 16], |x, w| conv(x, w, 1, 0)),
    ]
}

/// The bytes of the copies that a product's kernel makes ahead, each number once.
fn copied(p: &Product) -> Vec<u32> {
    let (net, t) = (Net::of(DType::F32), Target::cuda("cuda", Sm::ALL[3]));
    let [a, b] = p.shapes.map(|shape| net.input_of(DType::F32, shape).expect("an input"));
    let nodes = load(&net, &[(p.of)(&a, &b).expect("a product")], &t).expect("a graph");
    let mut found = Vec::new();
    for (ast, _) in kernels_of(&net, &nodes, &t).expect("kernels") {
        let program = compile(&ast, &t, None).expect("a program");
        assert_eq!(program.refused, 0, "{}: opts that do not fit", p.what);
        let copies = program.order.iter().filter(|&&u| program.g.op(u) == Op::Store);
        found.extend(copies.filter_map(|&u| if let Arg::Number(n) = program.g.arg(u) { Some(*n) } else { None }));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Factors of f32 are copied some blocks ahead, in rows of 16 bytes or an element at a time, and the products are right on the emulator, on which
/// a copy is done when somebody waits for it and no sooner.
#[test]
fn factors_of_f32_are_copied_ahead() {
    crate::emulator::load();
    let Some(mut gpu) = here::device("cuda", Runtime::open("cuda", 0)) else { return };
    let mut eval = Runtime::open("eval", 0).expect("the evaluator");
    for p in products() {
        assert_eq!(copied(&p), p.copies, "{}", p.what);
        let session = gpu.session().clone();
        let given = p.shapes.map(|shape| Tensor::rand(&session, shape).expect("values").sub(0.5).expect("values"));
        let here = [0, 1].map(|i| eval.bring(&given[i], &mut gpu).expect("the same"));
        let got = gpu.to_vec::<f32>(&(p.of)(&given[0], &given[1]).expect("a product")).expect("values");
        let want = eval.to_vec::<f32>(&(p.of)(&here[0], &here[1]).expect("a product")).expect("values");
        let off = got.iter().zip(&want).fold(0.0f32, |m, (x, y)| m.max((x - y).abs()));
        assert!(got.len() == want.len() && off < 1e-4, "{}: {off}", p.what);
    }
}
