//! One plan for every length of an ONNX model's inputs, against the plans of single lengths and the evaluator.

use gradloom::OnnxModel;
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::engine::{Compiled, GraphPass, Watcher};
use gradloom_core::io::HostTensor;
use gradloom_core::io::npz;
use gradloom_core::io::onnx::{Input, Lengths};
use gradloom_core::render::{Renderer, Source};
use gradloom_core::schedule::{Ast, SchedulePass, Scheduling};
use gradloom_core::target::Target;
use gradloom_core::uop::{AxisKind, Graph, Op, UOp};
use gradloom_core::{DType, Result, Tensor};
use gradloom_tests::here;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

fn file(model: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models").join(model).join("model.onnx")
}

fn i64s(v: &[i64], shape: &[usize]) -> HostTensor {
    HostTensor::new(DType::I64, shape.to_vec(), v.iter().flat_map(|x| x.to_le_bytes()).collect()).unwrap()
}

fn noise(seed: usize, shape: &[usize]) -> HostTensor {
    let n: usize = shape.iter().product();
    let v = (0..n).flat_map(|i| ((i * 7 + seed * 13) as f32 * 0.37).sin().to_le_bytes()).collect();
    HostTensor::new(DType::F32, shape.to_vec(), v).unwrap()
}

fn off(a: &HostTensor, b: &HostTensor) -> f64 {
    assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape));
    let (a, b) = (a.to_f64(), b.to_f64());
    let most = b.iter().fold(1e-9f64, |m, x| m.max(x.abs()));
    assert!(a.iter().all(|x| x.is_finite()));
    a.iter().zip(&b).fold(0.0, |m: f64, (x, y)| m.max((x - y).abs())) / most
}

const PAST: [&str; 4] = ["past_k0", "past_v0", "past_k1", "past_v1"];

/// Inputs of a step: batch, new tokens, tokens before.
fn step(b: usize, s: usize, p: usize) -> Vec<(&'static str, HostTensor)> {
    let ids: Vec<i64> = (0..b * s).map(|i| (i as i64 * 5 + 3 + p as i64) % 50).collect();
    let mut list =
        vec![("input_ids", i64s(&ids, &[b, s])), ("attention_mask", i64s(&vec![1; b * (s + p)], &[b, s + p]))];
    list.extend(PAST.iter().enumerate().map(|(i, name)| (*name, noise(i + 1, &[b, 2, p, 8]))));
    list
}

/// Runs shapes that change one after the other, beside a plan for each: values, and how many plans there are in the end.
fn check(device: &str, model: &str, lengths: Lengths, runs: &[Vec<(&'static str, HostTensor)>], new_plans: usize) {
    check_file(device, &file(model), lengths, runs, new_plans);
}

fn check_file(device: &str, path: &Path, lengths: Lengths, runs: &[Vec<(&'static str, HostTensor)>], new_plans: usize) {
    let model = path.display();
    let Some(opened) = here::device(device, gradloom::open(device, 2)) else { return };
    let mut m = OnnxModel::load(path, opened).unwrap();
    m.set_lengths(lengths).unwrap();
    let mut fixed = OnnxModel::load(path, gradloom::open(device, 2).unwrap()).unwrap();
    let mut first = (0, 0);
    for (i, run) in runs.iter().enumerate() {
        let (got, want) = (m.run(run).unwrap(), fixed.run(run).unwrap());
        for ((name, got), (_, want)) in got.iter().zip(&want) {
            let e = off(got, want);
            assert!(e <= 2e-5, "{device}, {model}, run {i}: `{name}` is off by {e:.1e}");
        }
        let c = m.counters();
        if i < new_plans {
            first = (c.plans, c.programs);
        }
        assert_eq!((c.plans, c.programs), first, "{device}, {model}, run {i}: {:?}", m.notes());
    }
    assert_eq!(m.notes(), Vec::<String>::new(), "{device}, {model}");
}

#[test]
fn one_plan_serves_shapes_that_change() {
    let shapes = [(2, 3, 6), (3, 2, 4), (2, 5, 9), (4, 3, 2), (2, 2, 7), (3, 4, 20), (2, 9, 5)];
    let runs: Vec<_> = shapes.into_iter().map(|(b, s, p)| step(b, s, p)).collect();
    for device in ["eval", "cpu:guarded"] {
        check(device, "zoo_llama_past", Lengths::Seen, if device == "eval" { &runs[..4] } else { &runs }, 2);
    }
}

#[test]
fn an_encoder_has_one_plan_for_batches_of_texts() {
    let run = |(b, n): (usize, usize)| {
        let ids: Vec<i64> = (0..b * n).map(|i| (i as i64 * 11 + 3) % 60).collect();
        // the end of each text is padding
        let mask: Vec<i64> = (0..b * n).map(|i| i64::from(i % n < n - i / n % n)).collect();
        vec![("input_ids", i64s(&ids, &[b, n])), ("attention_mask", i64s(&mask, &[b, n]))]
    };
    let runs: Vec<_> = [(2, 9), (3, 17), (8, 2), (5, 33), (2, 64), (7, 40)].into_iter().map(run).collect();
    let bounds = [("s72", (1, 8)), ("s53", (1, 64))].map(|(n, b)| (n.to_owned(), b));
    check("cpu:guarded", "zoo_t5_encoder", Lengths::Bounds(bounds.into()), &runs, 2);
}

#[test]
fn recurrences_have_one_plan_for_any_number_of_steps() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/onnx/recurrent.onnx");
    let run = |(n, b): (usize, usize)| vec![("x", noise(n, &[n, b, 6]))];
    for device in ["cpu:guarded", "wgpu"] {
        let steps: Vec<_> = [5, 9, 2, 16, 30, 3].into_iter().map(|n| run((n, 2))).collect();
        check_file(device, &path, Lengths::Seen, &steps, 2);
        // the steps of as many texts as there are
        let batches: Vec<_> = [2, 5, 3, 7].into_iter().map(|b| run((4, b))).collect();
        check_file(device, &path, Lengths::Seen, &batches, 2);
    }
}

/// Pictures of a batch.
fn pictures(n: usize, name: &'static str, shape: &[usize; 3]) -> Vec<(&'static str, HostTensor)> {
    vec![(name, noise(n, &[n, shape[0], shape[1], shape[2]]))]
}

#[test]
fn convolutions_have_one_plan_for_batches() {
    let networks: [(&str, &str, &str, [usize; 3]); 2] =
        [("zoo_densenet", "batch", "x", [3, 64, 64]), ("ppocr_cls", "x.0", "x", [3, 48, 192])];
    for (model, dim, input, shape) in networks {
        let bounds = Lengths::Bounds([(dim.to_owned(), (1, 8))].into());
        let runs: Vec<_> = [2, 3, 8, 5, 2, 7].into_iter().map(|n| pictures(n, input, &shape)).collect();
        for device in ["cpu:guarded", "wgpu"] {
            check(device, model, bounds.clone(), if device == "wgpu" { &runs[..3] } else { &runs }, 2);
        }
    }
}

#[test]
fn pictures_of_any_size_have_one_plan() {
    let bounds = |n: usize| Lengths::Bounds(["h", "w"].map(|d| (d.to_owned(), (1, n))).into());
    let larger = |(h, w): (usize, usize)| vec![("LR", noise(h, &[1, h, w, 3]))];
    let runs: Vec<_> = [(8, 9), (12, 11), (9, 14), (20, 7), (2, 3)].into_iter().map(larger).collect();
    check("cpu:guarded", "esrgan_slim_x2", bounds(24), &runs, 2);
    // halves of halves: a plan for all that leave the same remainders by four
    let drawn = |(h, w): (usize, usize)| vec![("image", noise(h, &[1, 3, h, w])), ("style_weights", noise(3, &[26]))];
    let sizes = [(32, 40), (48, 32), (36, 44), (64, 60)];
    check("cpu:guarded", "style_multistyle26", bounds(64), &sizes.map(drawn), 2);
}

/// The most pictures of a batch, a number that the networks have for nothing else.
const ROOM: usize = 13;

/// Takes down of how many kernels some turns of a loop are for nobody.
#[derive(Clone, Default)]
struct Follows(Arc<Mutex<(usize, usize)>>);

impl Watcher for Follows {
    fn wants_graphs(&self) -> bool {
        true
    }
    fn compiled(&mut self, ast: &Ast, _: &Compiled, _: &Target) {
        // constants are computed by kernels of their own
        let of_batch =
            |u: UOp| ast.g.op(u) == Op::Range && ast.g.kind(u) == AxisKind::Loop && ast.g.range_len(u) == ROOM;
        if !ast.live.is_empty() || ast.g.iter().any(of_batch) {
            let mut seen = self.0.lock().unwrap();
            *(if ast.live.is_empty() { &mut seen.1 } else { &mut seen.0 }) += 1;
        }
    }
    fn rewrote(&mut self, _: &GraphPass, _: &Graph, _: &[UOp], _: &[UOp]) {}
    fn scheduled(&mut self, _: &SchedulePass, _: &Scheduling) {}
    fn sees_steps(&self) -> bool {
        false
    }
    fn submit(&mut self, device: &mut dyn Device, step: &Step, _: Option<&Compiled>) -> Result<()> {
        device.submit(std::slice::from_ref(step))
    }
}

#[test]
fn the_work_of_windows_follows_the_batch() {
    let networks: [(&str, &str, &str, &[usize]); 3] = [
        ("zoo_densenet", "batch", "x", &[3, 64, 64]),
        ("ppocr_cls", "x.0", "x", &[3, 48, 192]),
        ("basic_pitch", "unk__749", "serving_default_input_2:0", &[43844, 1]),
    ];
    for (model, dim, input, shape) in networks {
        let mut m = OnnxModel::load(&file(model), gradloom::open("cpu", 1).unwrap()).unwrap();
        m.set_lengths(Lengths::Bounds([(dim.to_owned(), (1, ROOM))].into())).unwrap();
        let run = |n: usize| vec![(input, noise(n, &[&[n], shape].concat()))];
        m.run(&run(2)).unwrap();
        let seen = Follows::default();
        m.engine().watch(Some(Box::new(seen.clone())));
        m.run(&run(3)).unwrap();
        let (follow, all) = *seen.0.lock().unwrap();
        assert!(follow > 10 && all == 0, "{model}: {all} kernels compute the largest batch, {follow} do not");
    }
}

#[test]
fn a_mask_is_as_long_as_the_past_and_what_is_new() {
    // nothing tells at the second shape that the mask is not always three longer than the past
    let shapes = [(2, 3, 6), (2, 3, 9), (2, 4, 9), (3, 2, 5), (2, 9, 7)];
    let runs: Vec<_> = shapes.into_iter().map(|(b, s, p)| step(b, s, p)).collect();
    let bounds = [("s10", (1, 4)), ("s43", (1, 4)), ("s70", (1, 16)), ("s0", (1, 32))].map(|(n, b)| (n.to_owned(), b));
    check("cpu:guarded", "zoo_llama_past", Lengths::Bounds(bounds.into()), &runs, 2);
}

#[test]
fn a_cache_grows_in_place() {
    let bounds = Lengths::Bounds([("s0".to_owned(), (1, 200))].into());
    for (device, steps, lengths) in
        [("eval", 4, bounds.clone()), ("cpu:guarded", 70, Lengths::Seen), ("cpu", 150, bounds)]
    {
        let Some(opened) = here::device(device, gradloom::open(device, 2)) else { continue };
        let mut m = OnnxModel::load(&file("zoo_llama_past"), opened).unwrap();
        let is_seen = lengths == Lengths::Seen;
        m.set_lengths(lengths).unwrap();
        let mut fixed = OnnxModel::load(&file("zoo_llama_past"), gradloom::open("eval", 1).unwrap()).unwrap();
        let mut cache: Vec<Input> = (0..4).map(|i| Input::Host(noise(i + 1, &[1, 2, 2, 8]))).collect();
        let mut hosts: Vec<HostTensor> = (0..4).map(|i| noise(i + 1, &[1, 2, 2, 8])).collect();
        let mut programs = Vec::new();
        for n in 0..steps {
            let list = || step(1, 1, n + 2).into_iter().take(2);
            let inputs = list().map(|(name, t)| (name, Input::Host(t))).chain(PAST.into_iter().zip(cache));
            let inputs = m.inputs_of(inputs.collect()).unwrap();
            let got = m.run_on(&inputs).unwrap();
            programs.push(m.counters().programs);
            // from the second step on an output is the beginning of the input's buffer
            assert!(n < 2 || is_seen || got[1].1.buffer().is_none(), "{device}, step {n}: the cache is copied");
            if n < 5 || n % 20 == 0 {
                let list: Vec<_> = list().chain(PAST.into_iter().zip(hosts)).collect();
                let want = fixed.run(&list).unwrap();
                for ((name, got), (_, want)) in got.iter().zip(&want) {
                    let e = off(&m.read(got).unwrap(), want);
                    assert!(e <= 2e-5, "{device}, step {n}: `{name}` is off by {e:.1e}");
                }
            }
            hosts = got.iter().skip(1).map(|o| m.read(&o.1).unwrap()).collect();
            cache = got.into_iter().skip(1).map(|o| Input::Tensor(o.1)).collect();
            m.collect();
        }
        assert_eq!(m.notes(), Vec::<String>::new(), "{device}");
        // room for 32 first, then for 64, then for 128
        let new: Vec<usize> = (2..steps).filter(|&n| programs[n] > programs[n - 1]).collect();
        assert!(if is_seen { new.len() <= 2 } else { new.is_empty() }, "{device}: kernels compiled in steps {new:?}");
    }
}

#[test]
fn a_tensor_of_an_earlier_step_may_be_continued_again() {
    let mut m = OnnxModel::load(&file("zoo_llama_past"), gradloom::open("cpu", 1).unwrap()).unwrap();
    m.set_lengths(Lengths::Bounds([("s0".to_owned(), (1, 64))].into())).unwrap();
    let mut go = |past: Vec<Input>, n: usize, id: i64| {
        let own = [("input_ids", i64s(&[id], &[1, 1])), ("attention_mask", i64s(&vec![1; n + 1], &[1, n + 1]))];
        let inputs = own.into_iter().map(|(name, t)| (name, Input::Host(t))).chain(PAST.into_iter().zip(past));
        let inputs = m.inputs_of(inputs.collect()).unwrap();
        let out = m.run_on(&inputs).unwrap();
        let logits = m.read(&out[0].1).unwrap().to_f64();
        (logits, out.into_iter().skip(1).map(|o| o.1).collect::<Vec<_>>())
    };
    let tensors = |list: &[gradloom_core::Tensor]| list.iter().cloned().map(Input::Tensor).collect::<Vec<_>>();
    let mut past = (0..4).map(|i| Input::Host(noise(i + 1, &[1, 2, 2, 8]))).collect();
    let mut list = Vec::new();
    for n in 2..6 {
        (_, list) = go(past, n, 7);
        past = tensors(&list);
    }
    let (one, _) = go(tensors(&list), 6, 3);
    let (other, _) = go(tensors(&list), 6, 9);
    let (again, _) = go(tensors(&list), 6, 3);
    assert_ne!(one, other);
    assert!(one.iter().zip(&again).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn lengths_outside_of_their_bounds_are_refused() {
    let mut m = OnnxModel::load(&file("zoo_llama_past"), gradloom::open("eval", 1).unwrap()).unwrap();
    m.set_lengths(Lengths::Bounds([("s0".to_owned(), (1, 4))].into())).unwrap();
    let error = m.run(&step(1, 1, 5)).unwrap_err().to_string();
    assert!(error.contains("s0") && error.contains("between 1 and 4"), "{error}");
    let error = m.set_lengths(Lengths::Bounds([("length".to_owned(), (1, 4))].into())).unwrap_err();
    assert!(error.code() == "E_VALUE" && error.to_string().contains("`length`"), "{error}");
}

/// A device whose memory is full of ones to begin with, which are NaN as floats: who reads what nobody computed has wrong results.
struct Unset(Box<dyn Device>);

impl Device for Unset {
    fn target(&self) -> &Target {
        self.0.target()
    }
    fn renderer(&self) -> &'static dyn Renderer {
        self.0.renderer()
    }
    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let buf = self.0.alloc(bytes)?;
        self.0.upload(buf, 0, &vec![0xff; bytes])?;
        Ok(buf)
    }
    fn free(&mut self, buf: BufId) {
        self.0.free(buf);
    }
    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.0.upload(buf, offset, data)
    }
    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.0.compile(sources)
    }
    fn ready(&mut self) -> Result<bool> {
        self.0.ready()
    }
    fn release(&mut self, kernel: KernelId) {
        self.0.release(kernel);
    }
    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        self.0.submit(steps)
    }
    fn read(&mut self, view: View) -> Result<Ticket> {
        self.0.read(view)
    }
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        self.0.poll(ticket)
    }
    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }
}

/// The texts of [`an_encoder_has_one_plan_for_batches_of_texts`], with the ids that `tests/zoo/lengths.py` gives onnxruntime.
fn texts(b: usize, n: usize) -> Vec<(&'static str, HostTensor)> {
    let ids: Vec<i64> = (0..b * n).map(|i| (i as i64 * 5 + 3) % 50).collect();
    let mask: Vec<i64> = (0..b * n).map(|i| i64::from(i % n < n - i / n % n)).collect();
    vec![("input_ids", i64s(&ids, &[b, n])), ("attention_mask", i64s(&mask, &[b, n]))]
}

/// Runs the shapes that onnxruntime ran: the samples of its results, and no kernel after the second shape.
fn fifty(device: Box<dyn Device>, name: &str, model: &str, bounds: &[(&str, (usize, usize))], count: usize) {
    let samples = std::fs::read(file(model).with_file_name("lengths.npz")).unwrap();
    let samples = npz::read(&samples).unwrap();
    let all = |name: &str| samples.iter().find(|s| s.0 == name).unwrap().1.to_f64();
    let shapes: Vec<usize> = all("shapes").into_iter().map(|n| n as usize).collect();
    let rank = shapes.len() / 50;
    let mut m = OnnxModel::load(&file(model), device).unwrap();
    m.set_lengths(Lengths::Bounds(bounds.iter().map(|(n, b)| ((*n).to_owned(), *b)).collect())).unwrap();
    let mut programs = 0;
    for (i, shape) in shapes.chunks(rank).enumerate().take(count) {
        let run = match *shape {
            [b, n] => texts(b, n),
            [b, s, p] => step(b, s, p),
            _ => unreachable!("two or three lengths"),
        };
        for (output, got) in m.run(&run).unwrap() {
            let (got, want) = (got.to_f64(), all(&output));
            let want = &want[i * 8..i * 8 + 8];
            let most = want.iter().fold(1e-9f64, |m, x| m.max(x.abs()));
            for (j, x) in want.iter().enumerate() {
                let e = (got[j * (got.len() - 1) / 7] - x).abs() / most;
                assert!(e <= 5e-5, "{name}, {model}, {shape:?}: `{output}` is off by {e:.1e}");
            }
        }
        match i {
            1 => programs = m.counters().programs,
            2.. => assert_eq!(m.counters().programs, programs, "{name}, {model}, {shape:?}: {:?}", m.notes()),
            _ => {}
        }
    }
    assert_eq!(m.notes(), Vec::<String>::new(), "{name}, {model}");
}

#[test]
fn fifty_shapes_give_the_numbers_of_onnxruntime() {
    let encoder = [("s72", (1, 8)), ("s53", (1, 64))];
    let decoder = [("s10", (1, 4)), ("s70", (1, 8)), ("s0", (1, 48))];
    for (name, count) in [("cpu:guarded", 50), ("cpu", 50), ("eval", 6), ("wgpu", 12)] {
        for (model, bounds) in [("zoo_t5_encoder", &encoder[..]), ("zoo_llama_past", &decoder)] {
            let Some(device) = here::device(name, gradloom::open(name, 2)) else { continue };
            fifty(device, name, model, bounds, count);
        }
    }
}

#[test]
fn nobody_reads_what_is_not_computed() {
    let encoder = [("s72", (1, 8)), ("s53", (1, 64))];
    let decoder = [("s10", (1, 4)), ("s70", (1, 8)), ("s0", (1, 48))];
    for (model, dim, shape) in [("zoo_densenet", "batch", [3, 64, 64]), ("ppocr_cls", "x.0", [3, 48, 192])] {
        let lengths = Lengths::Bounds([(dim.to_owned(), (1, 8))].into());
        let mut m = OnnxModel::load(&file(model), Box::new(Unset(gradloom::open("cpu", 2).unwrap()))).unwrap();
        m.set_lengths(lengths).unwrap();
        let mut fixed = OnnxModel::load(&file(model), gradloom::open("cpu", 2).unwrap()).unwrap();
        for n in [2, 3, 7, 5] {
            let (got, want) =
                (m.run(&pictures(n, "x", &shape)).unwrap(), fixed.run(&pictures(n, "x", &shape)).unwrap());
            assert!(off(&got[0].1, &want[0].1) <= 2e-5, "{model}, batch {n}");
        }
    }
    for (model, bounds) in [("zoo_t5_encoder", &encoder[..]), ("zoo_llama_past", &decoder)] {
        for (name, threads) in [("cpu", 1), ("cpu", 3), ("eval", 1)] {
            let device = Unset(gradloom::open(name, threads).unwrap());
            fifty(Box::new(device), name, model, bounds, if name == "eval" { 4 } else { 20 });
        }
    }
}

/// The buffer that a tensor is in, whole or the beginning of it.
fn storage_of(t: &Tensor) -> Option<u32> {
    let node = t.node();
    let state = t.session().state();
    state.storage(node).and_then(|s| state.buffer_below(s)).and_then(|b| state.buffer_id(b))
}

/// The caches of the decoder in `grouped.onnx`.
const GROUPED: [&str; 4] =
    ["past_key_values.0.key", "past_key_values.0.value", "past_key_values.1.key", "past_key_values.1.value"];

#[test]
fn grouped_query_attention_grows_its_caches_in_place() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/onnx");
    let samples = npz::read(&std::fs::read(folder.join("grouped.npz")).unwrap()).unwrap();
    let sample = |name: String| samples.iter().find(|s| s.0 == name).map(|s| s.1.clone());
    // caches that grow from nothing, and of a fixed number of rows, more and fewer than the first bound of a length
    let cases = [("one", 0), ("one", 100), ("one", 50), ("two", 0), ("two", 20)];
    for (device, (case, rows)) in ["eval", "cpu:guarded", "wgpu"].into_iter().flat_map(|d| cases.map(|c| (d, c))) {
        let Some(opened) = here::device(device, gradloom::open(device, 2)) else { continue };
        let mut m = OnnxModel::load(&folder.join("grouped.onnx"), opened).unwrap();
        m.set_lengths(Lengths::Seen).unwrap();
        let texts = if case == "one" { 1 } else { 2 };
        let zeros = HostTensor::new(DType::F32, vec![texts, 2, rows, 16], vec![0; texts * 2 * rows * 16 * 4]).unwrap();
        let mut past: Vec<Input> = GROUPED.map(|_| Input::Host(zeros.clone())).into();
        let (mut plans, mut ids) = (Vec::new(), Vec::new());
        for step in 0.. {
            let part = |name: &str| sample(format!("{case}.{step}.{name}"));
            let Some(want) = part("logits").filter(|_| device != "eval" || step < 4) else { break };
            let own = [("input_ids", part("ids").unwrap()), ("attention_mask", part("mask").unwrap())];
            let tokens = own[0].1.shape[1];
            let inputs = own.into_iter().map(|(name, t)| (name, Input::Host(t))).chain(GROUPED.into_iter().zip(past));
            let inputs = m.inputs_of(inputs.collect()).unwrap();
            let out = m.run_on(&inputs).unwrap();
            let got = m.read(&out[0].1).unwrap().to_f64();
            for (text, want) in want.to_f64().chunks(50).enumerate() {
                let last = if step == 0 { [5, 3][text] } else { tokens } - 1;
                let e =
                    got[(text * tokens + last) * 50..].iter().zip(want).fold(0f64, |e, (a, b)| e.max((a - b).abs()));
                assert!(e <= 1e-4, "{device}, {case}, {rows} rows, step {step}: text {text} is off by {e:.1e}");
            }
            plans.push(m.counters().plans);
            ids.push(storage_of(&out[1].1));
            past = out.into_iter().skip(1).map(|o| Input::Tensor(o.1)).collect();
            m.collect();
        }
        let steps = plans.len();
        let new: Vec<usize> = (2..steps).filter(|&n| plans[n] > plans[n - 1]).collect();
        // a chunk of several tokens has a plan of its own, and so have lengths beyond 32
        assert!(new.iter().all(|n| *n == 4 || *n > 20), "{device}, {case}, {rows} rows: new plans in steps {new:?}");
        assert!(new.len() <= 3, "{device}, {case}, {rows} rows: new plans in steps {new:?}");
        let copied: Vec<usize> = (3..steps).filter(|&n| ids[n] != ids[n - 1]).collect();
        assert!(rows > 0 || copied.len() <= 4, "{device}, {case}: the caches are copied in steps {copied:?}");
        assert_eq!(m.notes(), Vec::<String>::new(), "{device}, {case}, {rows} rows");
    }
}

#[test]
fn a_prompt_as_long_as_a_bound_leaves_room_for_an_answer() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/onnx/grouped.onnx");
    for prompt in [30, 32, 64] {
        let mut m = OnnxModel::load(&path, gradloom::open("cpu", 1).unwrap()).unwrap();
        m.set_lengths(Lengths::Seen).unwrap();
        let none = HostTensor::new(DType::F32, vec![1, 2, 0, 16], vec![]).unwrap();
        let mut past: Vec<Input> = (0..4).map(|_| Input::Host(none.clone())).collect();
        let mut plans = Vec::new();
        for step in 0..8 {
            let (new, all) = (if step == 0 { prompt } else { 1 }, prompt + step);
            let ids: Vec<i64> = (0..new as i64).map(|i| 3 + i % 40).collect();
            let own = [("input_ids", i64s(&ids, &[1, new])), ("attention_mask", i64s(&vec![1; all], &[1, all]))];
            let inputs = own.into_iter().map(|(name, t)| (name, Input::Host(t))).chain(GROUPED.into_iter().zip(past));
            let inputs = m.inputs_of(inputs.collect()).unwrap();
            let out = m.run_on(&inputs).unwrap();
            past = out.into_iter().skip(1).map(|o| Input::Tensor(o.1)).collect();
            plans.push(m.counters().plans);
            m.collect();
        }
        let new: Vec<usize> = (1..8).filter(|&n| plans[n] > plans[n - 1]).collect();
        assert_eq!(new, [1], "a prompt of {prompt}: new plans in steps");
    }
}

#[test]
fn caches_of_other_lengths_are_refused() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/onnx/grouped.onnx");
    for (keys, values) in [(5, 9), (0, 9), (9, 5)] {
        let mut m = OnnxModel::load(&path, gradloom::open("eval", 1).unwrap()).unwrap();
        let past = |rows: usize| noise(rows, &[1, 2, rows, 16]);
        let run = m.run(&[
            ("input_ids", i64s(&[3], &[1, 1])),
            ("attention_mask", i64s(&[1; 6], &[1, 6])),
            ("past_key_values.0.key", past(keys)),
            ("past_key_values.0.value", past(values)),
            ("past_key_values.1.key", past(keys)),
            ("past_key_values.1.value", past(values)),
        ]);
        assert!(run.is_err(), "{keys} rows of keys, {values} of values");
    }
}
