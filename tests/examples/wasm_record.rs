//! Records what the WASM device would be asked to do for a benchmark case, so that `tests/bench/wasm/run.mjs` can time it in
//! Node and Chromium without a build of the package: `cargo run -p gradloom-tests --example wasm_record -- OUT CASE..`.
//! Writes OUT/CASE: memory image, modules, steps, expected outputs, and the text of every kernel.
#![allow(missing_docs)]

use gradloom::engine::{Engine, Plan};
use gradloom::io::{HostTensor, npz};
use gradloom::model::parse;
use gradloom::tensor::{Attention, ConvOpts, Session, Tensor};
use gradloom::{Error, NativeHost, OnnxModel, Result, Runtime};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::wasm::{DriverStep, Kernel, MAX_PAGES, SLACK, driver, link};
use gradloom_core::render::{Code, Source};
use gradloom_core::target::Target;
use gradloom_core::uop::print::print_program;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Record {
    memory: Vec<u8>,
    buffers: Vec<(usize, usize)>,
    kernels: Vec<(Kernel, String)>,
    runs: Vec<Vec<Step>>,
    reads: Vec<(usize, usize)>,
    tickets: BTreeMap<u32, usize>,
}

struct Recorder(Target, Arc<Mutex<Record>>);

fn at(r: &Record, v: &View) -> usize {
    let (start, len) = r.buffers[v.buf.0 as usize];
    assert!(v.offset + v.bytes <= len, "{v:?} is outside of its buffer");
    start + v.offset
}

impl Device for Recorder {
    fn target(&self) -> &Target {
        &self.0
    }
    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let mut r = self.1.lock().unwrap();
        let start = r.memory.len().next_multiple_of(64).max(SLACK);
        r.memory.resize(start + bytes, 0);
        r.buffers.push((start, bytes));
        Ok(BufId(r.buffers.len() as u32 - 1))
    }
    fn free(&mut self, _: BufId) {}
    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        let dst = View { buf, offset, bytes: data.len() };
        if !self.1.lock().unwrap().runs.is_empty() {
            // what ran before found other values there
            let src = View { buf: self.alloc(data.len())?, offset: 0, bytes: data.len() };
            let mut r = self.1.lock().unwrap();
            let start = at(&r, &src);
            r.memory[start..start + data.len()].copy_from_slice(data);
            r.runs.push(vec![Step::Copy { src, dst }]);
            return Ok(());
        }
        let mut r = self.1.lock().unwrap();
        let start = at(&r, &dst);
        r.memory[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }
    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let mut r = self.1.lock().unwrap();
        let mut ids = Vec::new();
        for s in sources {
            let Code::Bytes(b) = &s.code else { return Err(Error::value("record", "not a wasm kernel")) };
            r.kernels.push((Kernel::from_bytes(b).expect("a kernel"), s.name.clone()));
            ids.push(KernelId(r.kernels.len() as u32 - 1));
        }
        Ok(ids)
    }
    fn release(&mut self, _: KernelId) {}
    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        if !steps.is_empty() {
            self.1.lock().unwrap().runs.push(steps.to_vec());
        }
        Ok(())
    }
    fn read(&mut self, v: View) -> Result<Ticket> {
        let mut r = self.1.lock().unwrap();
        let start = at(&r, &v);
        r.reads.push((start, v.bytes));
        let id = r.reads.len() as u32;
        r.tickets.insert(id, v.bytes);
        Ok(Ticket(id))
    }
    fn poll(&mut self, t: Ticket) -> Result<Option<Vec<u8>>> {
        Ok(self.1.lock().unwrap().tickets.remove(&t.0).map(|n| vec![0; n]))
    }
}

/// Numbers in -1..1.
fn data(seed: u32, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2654435769) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x as f32 / u32::MAX as f32 * 2.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn tensor(s: &Session, seed: u32, shape: &[usize]) -> Result<Tensor> {
    Tensor::new(s, &data(seed, shape.iter().product()), shape)
}

/// The outputs of a case made of tensor methods.
fn build(s: &Session, case: &str) -> Result<Option<Vec<Tensor>>> {
    let t = |seed, shape: &[usize]| tensor(s, seed, shape);
    let conv = |ci: usize, co: usize, hw: usize, k: usize, stride: usize, groups: usize| {
        let w = tensor(s, 2, &[co, ci / groups, k, k])?;
        let opts = ConvOpts::new().padding(&[k / 2]).stride(&[stride]).groups(groups);
        tensor(s, 1, &[1, ci, hw, hw])?.conv(&w, None, &opts)
    };
    if let Some(n) = case.strip_prefix("matmul").and_then(|n| n.parse::<usize>().ok()) {
        return Ok(Some(vec![t(1, &[n, n])?.matmul(&t(2, &[n, n])?)?]));
    }
    let one = match case {
        "gemv" => t(1, &[1, 2048])?.matmul(&t(2, &[2048, 4096])?)?,
        "conv3x3" => conv(64, 64, 56, 3, 1, 1)?,
        "conv3x3s2" => conv(64, 64, 56, 3, 2, 1)?,
        "conv1x1" => conv(128, 128, 28, 1, 1, 1)?,
        "dwconv3x3" => conv(128, 128, 56, 3, 1, 128)?,
        "softmax" => t(1, &[1024, 1024])?.softmax(-1)?,
        "layernorm" => t(1, &[1024, 1024])?.layer_norm(1, Some(&t(2, &[1024])?), Some(&t(3, &[1024])?), 1e-5)?,
        "eltwise" => {
            let x = t(1, &[1024, 1024])?;
            let a = x.mul(2.0)?.add(1.0)?.relu()?.mul(&x.sigmoid()?)?;
            a.sub(x.mul(&x)?.neg()?.exp()?.mul(0.5)?)?
        }
        "gelu" => t(1, &[1024, 1024])?.gelu()?,
        "tanh" => t(1, &[1024, 1024])?.tanh()?,
        "exp" => t(1, &[1024, 1024])?.exp()?,
        "log" => t(1, &[1024, 1024])?.abs()?.log()?,
        "sigmoid" => t(1, &[1024, 1024])?.sigmoid()?,
        "reduce" => t(1, &[2048, 2048])?.sum(&[1], false)?,
        "transpose" => t(1, &[1024, 1024])?.t()?.contiguous(),
        "attention" => {
            let shape = [1, 8, 256, 64];
            t(1, &shape)?.attention(&t(2, &shape)?, &t(3, &shape)?, &Attention::default())?
        }
        "attention512" | "causal512" => {
            let shape = [1, 12, 512, 64];
            let opts = Attention { causal: case == "causal512", ..Attention::default() };
            t(1, &shape)?.attention(&t(2, &shape)?, &t(3, &shape)?, &opts)?
        }
        "mlp_train" => {
            let (x, w1, w2) = (t(1, &[128, 784])?, t(2, &[784, 256])?, t(3, &[256, 10])?);
            let classes: Vec<f32> = (0..1280).map(|i| ((i / 10 * 7) % 10 == i % 10) as u32 as f32).collect();
            let hot = Tensor::new(s, &classes, &[128, 10])?;
            let logits = x.matmul(&w1)?.relu()?.matmul(&w2)?;
            let loss = logits.log_softmax(-1)?.mul(&hot)?.sum(&[], false)?.mul(-1.0 / 128.0)?;
            let g = loss.grad(&[&w1, &w2])?;
            // not assigned, so that every run does the same
            return Ok(Some(vec![loss, w1.sub(g[0].mul(0.1)?)?, w2.sub(g[1].mul(0.1)?)?]));
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![one]))
}

/// What a case gave: expected outputs in the order they are read, and a text per kernel call of the last plan.
struct Case {
    expected: Vec<HostTensor>,
    programs: Vec<Program>,
}

struct Program {
    text: String,
    name: String,
    flops: u64,
    bytes: u64,
}

fn programs(engine: &Engine, plan: &Plan) -> Vec<Program> {
    let found = plan.calls.iter().filter_map(|c| engine.program(c.program));
    found
        .map(|c| Program {
            text: c.program.as_ref().map_or(String::new(), |p| print_program(&p.g, &p.order)),
            name: c.source.name.clone(),
            flops: c.flops,
            bytes: c.bytes,
        })
        .collect()
}

fn run(case: &str, device: Box<dyn Device>) -> Result<Case> {
    let dir = Path::new(case);
    if dir.join("model.onnx").exists() {
        let arrays = |name| npz::read(&std::fs::read(dir.join(name)).expect("an npz"));
        let (inputs, expected) = (arrays("input.npz")?, arrays("expected.npz")?);
        let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let mut m = OnnxModel::with_host(parse(&dir.join("model.onnx"))?, device, NativeHost::without_cache());
        let out = m.run(&inputs)?;
        let plan = m.plan(&inputs)?.unwrap_or_default();
        let want = |name: &str| expected.iter().find(|e| e.0 == name).expect("an expected output").1.clone();
        let expected = out.iter().map(|(name, _)| want(name)).collect();
        return Ok(Case { expected, programs: programs(m.engine(), &plan) });
    }
    // what a cache holds has no text
    let mut rt = Runtime::with_host(device, NativeHost::without_cache());
    let s = rt.session().clone();
    let outs = build(&s, case)?.ok_or_else(|| Error::value("record", format!("no case {case}")))?;
    let replay = rt.realize(&outs.iter().collect::<Vec<_>>())?;
    let programs = programs(rt.engine(), replay.plan());
    outs.iter().try_for_each(|t| rt.read(t).map(drop))?;
    let mut native = Runtime::open("cpu", 1)?;
    let s = native.session().clone();
    let outs = build(&s, case)?.unwrap_or_default();
    native.realize(&outs.iter().collect::<Vec<_>>())?;
    Ok(Case { expected: outs.iter().map(|t| native.read(t)).collect::<Result<_>>()?, programs })
}

/// Appends bytes to the image at a multiple of 64.
fn put(image: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let start = image.len().next_multiple_of(64);
    image.resize(start, 0);
    image.extend_from_slice(bytes);
    start
}

fn words(v: &[u32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// As on x86, or (FLOATS=1) without products of pairs.
fn target(relaxed: bool) -> Target {
    let t = Target::wasm(relaxed, 1);
    if std::env::var_os("FLOATS").is_none() { t.with_pairs() } else { t }
}

fn save(case: &str, dir: &Path, relaxed: bool) -> Result<()> {
    let record = Arc::new(Mutex::new(Record::default()));
    let found = run(case, Box::new(Recorder(target(relaxed), record.clone())))?;
    let r = record.lock().unwrap();
    let mut image = r.memory.clone();
    let mut runs = Vec::new();
    for steps in &r.runs {
        let mut encoded = Vec::new();
        for step in steps {
            let s = match step {
                Step::Launch { kernel, args, grid, vars } => {
                    let table: Vec<u32> = args.iter().map(|v| at(&r, v) as u32).collect();
                    let bufs = put(&mut image, &words(&table)) as u32;
                    let vars = put(&mut image, &words(vars)) as u32;
                    DriverStep { kernel: kernel.0, bufs, vars, grid: grid[0], first: 0 }
                }
                Step::Copy { src, dst } => DriverStep {
                    kernel: DriverStep::COPY,
                    bufs: at(&r, dst) as u32,
                    vars: at(&r, src) as u32,
                    grid: src.bytes as u32,
                    first: 0,
                },
            };
            encoded.extend(s.words().iter().flat_map(|w| w.to_le_bytes()));
        }
        runs.push(format!("[{},{}]", put(&mut image, &encoded), steps.len()));
    }
    let scratch = r.kernels.iter().map(|k| k.0.scratch as usize).max().unwrap_or(0);
    let scratch = put(&mut image, &vec![0; scratch]);
    let bodies: Vec<Kernel> = r.kernels.iter().map(|k| k.0.clone()).collect();
    let module = link(&bodies, false, MAX_PAGES);
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).expect("a file");
    write("kernels.wasm", &module);
    write("driver.wasm", &driver(false, MAX_PAGES));
    write("image.bin", &image);
    write("kernels.wat", wasmprinter::print_bytes(&module).expect("a valid module").as_bytes());
    let mut outputs = Vec::new();
    // the first reads are the outputs; a model is run again for its plan
    for (i, (want, read)) in found.expected.iter().zip(&r.reads).enumerate() {
        if want.dtype == gradloom::DType::F32 {
            write(&format!("expected{i}.bin"), &want.data);
            outputs.push(format!("[{},{},\"expected{i}.bin\"]", read.0, want.data.len() / 4));
        }
    }
    let mut text = String::new();
    let mut steps = Vec::new();
    for p in &found.programs {
        let _ = writeln!(text, "== {}\n{}", p.name, p.text);
        steps.push(format!("[\"{}\",{},{}]", p.name, p.flops, p.bytes));
    }
    write("programs.txt", text.as_bytes());
    let json = format!(
        "{{\"runs\":[{}],\"scratch\":{scratch},\"kernels\":{},\"outputs\":[{}],\"steps\":[{}]}}",
        runs.join(","),
        bodies.len(),
        outputs.join(","),
        steps.join(",")
    );
    write("case.json", json.as_bytes());
    println!("{case}: {} kernels, {} bytes of code", bodies.len(), module.len());
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((out, cases)) = args.split_first() else { panic!("usage: wasm_record OUT CASE..") };
    let relaxed = std::env::var_os("PLAIN").is_none();
    for case in cases {
        let name = Path::new(case).file_name().expect("a case").to_string_lossy().to_string();
        let dir = PathBuf::from(out).join(name);
        std::fs::create_dir_all(&dir).expect("a folder");
        save(case, &dir, relaxed)?;
    }
    Ok(())
}
