//! Sums of products of dequantised bytes are computed in integers: the rewritten graphs give exactly what the graphs as they
//! were give. All scales are powers of two and all sums small, so that floats are exact too.

use gradloom::tensor::{ConvOpts, Tensor};
use gradloom::{Result, Runtime, Session};
use gradloom_core::DType::{self, F32, I8, I32, U8};
use gradloom_core::schedule::integers::in_integers;
use gradloom_core::target::{Isa, Lang, Sm, Target};
use gradloom_core::uop::{Arg, Op, ReduceOp, UOp};
use gradloom_tests::here;

/// A quantised operand: bytes, and what they stand for.
struct Coded {
    bytes: Tensor,
    value: Tensor,
}

fn numbers(n: usize, dt: DType, seed: usize) -> Vec<i64> {
    let low = if dt == U8 { 0 } else { -128 };
    (0..n).map(|i| ((i * 7919 + seed * 131) ^ (i >> 3)) as i64 % 256 + low).collect()
}

/// Bytes of a shape, their zero point, and a scale for each element along `axis`, or one for all.
fn coded(s: &Session, dt: DType, shape: &[usize], zero: i64, axis: Option<usize>, seed: usize) -> Coded {
    let list = numbers(shape.iter().product(), dt, seed);
    let bytes = match dt {
        U8 => Tensor::new(s, &list.iter().map(|&v| v as u8).collect::<Vec<_>>(), shape),
        _ => Tensor::new(s, &list.iter().map(|&v| v as i8).collect::<Vec<_>>(), shape),
    };
    let bytes = bytes.expect("bytes");
    let wide = bytes.cast(F32).and_then(|b| b.sub(zero as f32)).expect("a difference");
    let value = match axis {
        None => wide.mul(0.125),
        Some(a) => {
            let mut along = vec![1; shape.len()];
            along[a] = shape[a];
            let scales: Vec<f32> = (0..shape[a]).map(|i| [0.5, 0.25, 0.0625][i % 3]).collect();
            Tensor::new(s, &scales, &along).and_then(|v| wide.mul(&v))
        }
    };
    Coded { bytes, value: value.expect("a product") }
}

fn buffer(t: &Tensor) -> u32 {
    let s = t.session().state();
    s.storage(s.node(t.root())).and_then(|flat| s.buffer_id(flat)).expect("a buffer")
}

/// The value of `y` on a device as it is, and rewritten for each target that has such instructions. Nothing else than `x` is
/// new in each run.
fn check(what: &str, make: impl Fn(&Session) -> Result<(Tensor, Tensor)>) {
    check_for(&targets(), what, make);
}

fn targets() -> Vec<Target> {
    let mut all =
        vec![Target::x86(Isa::Avx512Vnni, 1), Target::wasm(true, 1).with_pairs(), Target::wgsl("wgpu").with_words()];
    all.extend(Sm::of(8, 0).map(|sm| Target::cuda("cuda", sm)));
    all.push(Target::opencl("opencl").with_words());
    all
}

/// Devices that run what was rewritten for a target: those with its instructions among them, where there are such.
fn devices(t: &Target) -> &'static [&'static str] {
    match t.lang {
        // products of words are what the evaluator ran for the shader language already
        Lang::Ptx if cfg!(target_os = "linux") => &["cuda"],
        Lang::OpenCl => &["opencl:hardware"],
        _ if t.caps.has_local => &["eval", "wgpu", "wgpu:hardware"],
        _ => &["eval", "cpu", "cpu:avx2"],
    }
}

fn open(device: &str) -> Result<Runtime> {
    if device == "cuda" {
        crate::emulator::load();
    }
    Runtime::open(device, 1)
}

fn check_for(targets: &[Target], what: &str, make: impl Fn(&Session) -> Result<(Tensor, Tensor)>) {
    let run = |device: &str, rewritten: Option<&Target>| -> Option<Vec<f32>> {
        let mut rt = here::device(device, open(device))?;
        let s = rt.session().clone();
        let (x, mut y) = make(&s).unwrap_or_else(|e| panic!("{what}: {e}"));
        if let Some(t) = rewritten {
            let input = buffer(&x);
            let node = {
                let mut state = s.state();
                let node = state.node(y.root());
                let new = in_integers(&mut state.graph, &[node], &[input], t);
                let new = new.unwrap_or_else(|| panic!("{what}: nothing was rewritten"))[0];
                let g = &state.graph;
                let add = |u: UOp| matches!(g.arg(u), Arg::Reduce(ReduceOp::Add, _));
                let sums = |u: &UOp| g.op(*u) == Op::Reduce && g.dtype(*u) == F32 && add(*u);
                assert!(!g.value_nodes(&[new]).iter().any(sums), "{what}: a sum of floats is left");
                state.freeze(&[new], &[input]);
                new
            };
            y = Tensor::from_node(&s, node);
        }
        Some(rt.to_vec::<f32>(&y).unwrap_or_else(|e| panic!("{what} on {device}: {e}")))
    };
    let want = run("eval", None).expect("the evaluator");
    assert!(want.iter().any(|v| *v != 0.0), "{what}: only zeros");
    for t in targets {
        for device in devices(t) {
            if let Some(got) = run(device, Some(t)) {
                assert_eq!(got, want, "{what} on {device}, for {:?}", t.caps.dots);
            }
        }
    }
}

#[test]
fn products_of_matrices() {
    // remainders of all tiles; bytes of both signs; zero points inside, at the end, and none
    for (i, (m, k, n)) in
        [(1, 4, 5), (7, 12, 17), (3, 64, 48), (33, 20, 100), (6, 7, 20), (2, 31, 9)].into_iter().enumerate()
    {
        for (x, zx, w, zw) in [(U8, 7, I8, 0), (I8, -128, I8, -3), (U8, 0, U8, 128), (I8, 5, U8, 77)] {
            let axis = [None, Some(1)][i % 2];
            check(&format!("{m}x{k}x{n} of {x} {zx} and {w} {zw}"), |s| {
                let (a, b) = (coded(s, x, &[m, k], zx, None, 1), coded(s, w, &[k, n], zw, axis, 2));
                Ok((a.bytes, a.value.matmul(&b.value)?))
            });
        }
    }
}

#[test]
fn convolutions_with_padding() {
    for (shape, out, k, stride, groups) in [
        ([1usize, 8, 9, 7], 16, 3usize, 1, 1),
        ([2, 4, 6, 11], 5, 3, 2, 1),
        ([1, 20, 7, 7], 20, 3, 1, 20),
        ([1, 3, 11, 8], 16, 3, 2, 1),
        ([2, 7, 6, 5], 9, 3, 1, 1),
        ([1, 8, 5, 6], 12, 1, 2, 2),
    ] {
        for (x, zx, w, zw) in [(I8, -128, I8, 0), (I8, 5, I8, 0), (U8, 130, U8, 100)] {
            let all = targets();
            // channels on their own stay floats where there are no instructions for single products
            let all = if groups == shape[1] { &all[..1] } else { &all };
            check_for(all, &format!("{shape:?} to {out} by {k} of {x} {zx} and {w} {zw}"), |s| {
                let a = coded(s, x, &shape, zx, None, 1);
                let b = coded(s, w, &[out, shape[1] / groups, k, k], zw, Some(0), 2);
                let o = ConvOpts::new().stride(&[stride]).padding(&[k / 2]).groups(groups);
                Ok((a.bytes, a.value.conv(&b.value, None, &o)?))
            });
        }
    }
}

/// Bytes between two products: stored once, in the order that the second one wants, and read by others too.
#[test]
fn bytes_between_products() {
    check("a chain", |s| {
        let (a, b) = (coded(s, I8, &[1, 4, 6, 6], -128, None, 1), coded(s, I8, &[8, 4, 3, 3], 0, Some(0), 2));
        let y = a.value.conv(&b.value, None, &ConvOpts::new().padding(&[1]))?;
        let code = y.div(64.0)?.trunc()?.clamp(-100.0, 100.0)?.cast(I8)?;
        let z = code.cast(F32)?.add(3.0)?.mul(0.5)?;
        let c = coded(s, I8, &[20, 8, 1, 1], 0, Some(0), 3);
        let (p, q) = (z.conv(&c.value, None, &ConvOpts::new())?, z.max(&[1], true)?);
        Ok((a.bytes, p.add(&q)?))
    });
}

/// An operand that is repeated along a summed axis counts as often; what is stored for one sum is padded for another.
#[test]
fn repeated_and_padded_operands() {
    for (a, b) in [(&[8usize][..], &[6usize, 8][..]), (&[6, 8], &[1, 8]), (&[3, 1, 8], &[3, 16, 8])] {
        check(&format!("the sum of {a:?} by {b:?}"), |s| {
            let (x, w) = (coded(s, U8, a, 7, None, 1), coded(s, I8, b, 3, None, 2));
            let y = x.value.mul(&w.value)?;
            let axes: Vec<i64> = (0..y.rank() as i64).collect();
            Ok((x.bytes, y.sum(&axes, false)?))
        });
    }
    check("stored with 33 columns, padded to 37", |s| {
        let x = coded(s, I8, &[1, 12, 4, 33], 5, None, 1);
        let (w, v) = (coded(s, I8, &[33, 17], 0, None, 2), coded(s, I8, &[12, 12, 1, 1], 0, None, 3));
        // computed, so that it is stored as the first product wants it
        let code = x.bytes.cast(I32)?.neg()?.clamp(-100, 100)?.cast(I8)?;
        let z = code.cast(F32)?.sub(5.0)?.mul(0.5)?;
        // the first of them says how it is stored
        let first = z.matmul(&w.value)?;
        let second = z.conv(&v.value, None, &ConvOpts::new().padding(&[0, 2]))?;
        Ok((x.bytes, first.add(&second.narrow(3, 20, 17)?)?))
    });
}

#[test]
fn integer_products_wrap_as_they_did() {
    let mut rt = Runtime::open("cpu", 1).expect("the device opens");
    let s = rt.session().clone();
    let (x, w) = (coded(&s, U8, &[5, 1024], 0, None, 1).bytes, coded(&s, I8, &[1024, 33], 0, None, 2).bytes);
    let big = |t: &Tensor, z: i32| t.cast(I32).and_then(|t| t.sub(z)).expect("i32");
    let y = big(&x, 1 << 19).matmul(&big(&w, 3)).expect("a product");
    let want = rt.to_vec::<i32>(&y.add(0).expect("a copy")).expect("values");
    let (input, node) = (buffer(&x), y.node());
    let new = in_integers(&mut s.state().graph, &[node], &[input], &Target::x86(Isa::Avx512Vnni, 1));
    let y = Tensor::from_node(&s, new.expect("it is rewritten")[0]);
    assert_eq!(rt.to_vec::<i32>(&y).expect("values"), want);
}

/// Ordinary graphs stay as they are, and so do scales along what is summed.
#[test]
fn other_sums_are_left_alone() {
    let s = Session::new();
    let (x, w) = (coded(&s, U8, &[8, 16], 3, None, 1), coded(&s, I8, &[16, 8], 0, None, 2));
    let floats = Tensor::new(&s, &[1f32; 128], &[16, 8]).expect("floats");
    let blocks = coded(&s, I8, &[16, 8], 0, Some(0), 2);
    let half = x.value.add(0.5).expect("halves");
    for y in [
        x.value.matmul(&floats),
        x.value.matmul(&blocks.value),
        half.matmul(&w.value),
        x.value.matmul(&x.value.t().expect("turned")),
        w.value.t().and_then(|w| w.matmul(&blocks.value)),
    ] {
        let (node, input) = (y.expect("a product").node(), buffer(&x.bytes));
        let t = Target::x86(Isa::Avx512Vnni, 1);
        assert!(in_integers(&mut s.state().graph, &[node], &[input], &t).is_none());
    }
    // nor does a target without the instructions want it
    let (node, input) = (x.value.matmul(&w.value).expect("a product").node(), buffer(&x.bytes));
    for t in [Target::x86(Isa::Avx2, 1), Target::wasm(true, 1), Target::wgsl("wgpu"), Target::eval()] {
        assert!(in_integers(&mut s.state().graph, &[node], &[input], &t).is_none());
    }
}

/// The heuristic leads to the instruction: with weights that stay, packed, and with windows.
#[test]
fn products_of_bytes_are_one_instruction() {
    use gradloom_core::device::NullDevice;
    use gradloom_core::render::{Code, wasm};
    let text = |t: Target, make: &dyn Fn(&Session) -> Result<(Tensor, Tensor)>| -> String {
        let pairs = t.lang == gradloom_core::target::Lang::Wasm;
        let mut rt = Runtime::on(Box::new(NullDevice::new(t)));
        let s = rt.session().clone();
        let (x, w) = make(&s).expect("a graph");
        w.freeze();
        let replay = rt.realize(&[&x]).expect("compiles");
        let last = replay.plan().calls.last().expect("a kernel").program;
        match &rt.engine().program(last).expect("it was compiled").source.code {
            Code::Bytes(bytes) if pairs => {
                let kernel = wasm::Kernel::from_bytes(bytes).expect("a kernel");
                let module = wasm::link(&[kernel], false, wasm::MAX_PAGES);
                wasmprinter::print_bytes(&module).expect("a module")
            }
            Code::Bytes(bytes) => gradloom::disasm::disassemble(bytes),
            Code::Text(text) => text.clone(),
            _ => panic!("neither bytes nor text"),
        }
    };
    let product = |s: &Session| {
        let (x, w) = (coded(s, U8, &[64, 256], 0, None, 1).bytes, coded(s, I8, &[256, 96], 0, None, 2).bytes);
        Ok((x.cast(I32)?.matmul(&w.cast(I32)?)?, w))
    };
    let windows = |s: &Session| {
        let x = coded(s, U8, &[1, 8, 8, 32], 0, None, 1).bytes;
        let w = coded(s, I8, &[48, 32, 3, 3], 0, None, 2).bytes;
        let o = ConvOpts::new().padding(&[1]);
        Ok((x.permute(&[0, 3, 1, 2])?.cast(I32)?.conv(&w.cast(I32)?, None, &o)?, w))
    };
    for make in [&product as &dyn Fn(&Session) -> Result<(Tensor, Tensor)>, &windows] {
        let with = text(Target::x86(Isa::Avx512Vnni, 1), make);
        assert!(with.contains("vpdpbusd") && !with.contains("vpmulld"), "{with}");
        let without = text(Target::x86(Isa::Avx512, 1), make);
        assert!(!without.contains("vpdpbusd") && without.contains("vpmulld"), "{without}");
    }
    let gpus = [
        (Sm::of(8, 0).map(|sm| Target::cuda("cuda", sm)), "dp4a.s32.s32", ".s8"),
        (Some(Target::cuda_c("cuda", 80)), "gl_dot(", "const i8*"),
        (Some(Target::hip("hip", 32, Vec::new())), "gl_dot(", "const i8*"),
        (Some(Target::opencl("opencl").with_words()), "gl_dot(", "const i8*"),
    ];
    for (t, product_of_words, bytes) in gpus {
        let t = t.expect("the table has it");
        let signed = |s: &Session| {
            let (x, w) = (coded(s, I8, &[64, 256], 0, None, 1).bytes, coded(s, I8, &[256, 96], 0, None, 2).bytes);
            Ok((x.cast(I32)?.matmul(&w.cast(I32)?)?, w))
        };
        let text = text(t, &signed);
        assert!(text.contains(product_of_words) && !text.contains(bytes), "{text}");
    }
    // bytes of 16 bits, and plain ones
    for (dt, has) in [(DType::I16, true), (U8, false)] {
        let product = |s: &Session| {
            let (x, w) = (coded(s, U8, &[64, 256], 0, None, 1).bytes, coded(s, I8, &[256, 96], 0, None, 2).bytes);
            let x = x.cast(dt)?.contiguous();
            Ok((x.cast(I32)?.matmul(&w.cast(I32)?)?, w))
        };
        let with = text(Target::wasm(true, 1).with_pairs(), &product);
        assert_eq!(with.contains("i32x4.dot_i16x8_s"), has, "{with}");
    }
}

/// Shapes at random, bytes of both signs at their ends, zero points anywhere: each device gives what the evaluator gives.
#[test]
fn products_of_any_shape() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    for _ in 0..12 {
        // sums of less than four products are no group
        let (m, k, n) = (1 + below(9), 4 + below(61), 1 + below(40));
        let [(x, zx), (w, zw)] = [0, 1].map(|_| match below(2) {
            0 => (U8, below(256) as i64),
            _ => (I8, below(256) as i64 - 128),
        });
        let all = targets();
        // what is rounded up by more than it has stays as it is
        if (k.next_multiple_of(4) - k) * 5 > k * 2 {
            continue;
        }
        check_for(&all[2..], &format!("{m}x{k}x{n} of {x} {zx} and {w} {zw}"), |s| {
            let (a, b) = (coded(s, x, &[m, k], zx, None, m), coded(s, w, &[k, n], zw, None, n));
            Ok((a.bytes, a.value.matmul(&b.value)?))
        });
    }
}

/// Vectors of two digits with blocks of half bytes and of bytes: what the chains of both digits multiply is made once, for
/// four vectors too, which share two registers of rows, and nothing is put aside.
#[test]
fn chains_of_two_digits_stay_in_registers() {
    use gradloom_core::device::NullDevice;
    use gradloom_core::engine::Bytes;
    use gradloom_core::io::gguf::{self, Activations, Data, Gguf, Kind, Use};
    use gradloom_core::render::Code;
    for (kind, vectors, made) in [(Kind::Q4_0, 1, 4 * 8), (Kind::Q8_0, 1, 0), (Kind::Q4_0, 8, 2 * 4)] {
        let mut rt = Runtime::on(Box::new(NullDevice::new(Target::x86(Isa::Avx512Vnni, 1))));
        let s = rt.session().clone();
        let shape = [512, 768];
        let bytes = vec![0; shape[0] * shape[1] / kind.block_elems() * kind.block_bytes()];
        let data = Data { name: "w", kind, shape: &shape, bytes: &bytes };
        let file = Bytes::from(gguf::write(&[], &[data]).expect("a file"));
        let index = Gguf::parse(&file).expect("an index");
        let uses = |_: &str| Use::Product(Activations::I16);
        let list = gguf::matrices_of(&s, &file, &index.entries, &uses).expect("matrices");
        let words = list[0].2.as_ref().and_then(|p| p.words()).expect("words");
        let x = Tensor::empty(&s, DType::F32, &[vectors, shape[1]]).expect("vectors");
        let replay = rt.realize(&[&words.products(&x).expect("a product")]).expect("compiles");
        let last = replay.plan().calls.last().expect("a kernel").program;
        let Code::Bytes(code) = &rt.engine().program(last).expect("it was compiled").source.code else {
            panic!("no code")
        };
        let text = gradloom::disasm::disassemble(code);
        let vectors_aside = text.lines().filter(|l| l.contains("mm") && l.contains("[rsp")).count();
        assert_eq!(vectors_aside, 0, "{kind:?} and {vectors}:\n{text}");
        assert_eq!(text.matches("vpand").count(), made, "{kind:?} and {vectors}:\n{text}");
        assert!(text.matches("vpdpbusd").count() >= 64, "{kind:?} and {vectors}:\n{text}");
    }
}
