//! Trains the language model of `tests/models/verses` in f32, on what `prepare.py` there made:
//! `cargo run -p gradloom-tests --example verses -- .cache/verses [STEPS] [--from FOLDER] [--device DEVICE] [--threads N]`.
//! The same steps on the same device give the same weights. FOLDER has an earlier result to go on from. Writes
//! `model.safetensors`, `config.json` and GGUF files in F16, Q8_0, Q4_0 and Q4_K beside the tokens.

mod export;
mod model;

use gradloom::dtype::Scalar;
use gradloom::optim::{Adam, AdamOpts, Optimizer, Schedule, clip_grad_norm};
use gradloom::{Error, Result, Runtime, Tensor};
use model::Llama;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Texts of a step, and tokens of each.
const BATCH: usize = 4;
const TIME: usize = 256;
const RATE: f64 = 3e-3;

struct Args {
    folder: PathBuf,
    steps: usize,
    from: Option<PathBuf>,
    device: String,
    threads: usize,
}

fn args() -> Result<Args> {
    let mut out = Args { folder: ".cache/verses".into(), steps: 2000, from: None, device: "cpu".into(), threads: 1 };
    let (mut plain, mut list) = (Vec::new(), std::env::args().skip(1));
    let number = |text: &str| text.parse().map_err(|_| Error::value("argument", format!("`{text}` is no number")));
    while let Some(a) = list.next() {
        match a.as_str() {
            "--from" => out.from = list.next().map(PathBuf::from),
            "--device" => out.device = list.next().unwrap_or_default(),
            "--threads" => out.threads = number(&list.next().unwrap_or_default())?,
            _ => plain.push(a),
        }
    }
    if let Some(folder) = plain.first() {
        out.folder = folder.into();
    }
    if let Some(steps) = plain.get(1) {
        out.steps = number(steps)?;
    }
    Ok(out)
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::value("read", format!("{}: {e}", path.display())))
}

/// Where the texts of a step begin: every place once in turn, in an order that looks like none.
fn places(step: usize, tokens: usize) -> [usize; BATCH] {
    let room = tokens - TIME - 1;
    std::array::from_fn(|i| {
        let n = (step * BATCH + i) as u64;
        // the golden ratio's multiples are spread evenly
        ((n as u128 * 0x9e37_79b9_7f4a_7c15 % (1 << 64)) * room as u128 >> 64) as usize
    })
}

/// One step on a batch; its loss goes to `shown`. What else it computes is nobody's, so that a run of its plan makes no buffers.
fn step_of(net: &Llama, opt: &mut Adam, [x, y]: [&Tensor; 2], shown: &Tensor) -> Result<()> {
    let loss = net.forward(x)?.cross_entropy(y, None, 0.0)?;
    let grads = loss.grad(&net.parameters().iter().collect::<Vec<_>>())?;
    opt.step(&clip_grad_norm(&grads, 1.0, 2.0)?.0)?;
    shown.assign(&loss.reshape(&[1])?)
}

fn main() -> Result<()> {
    let args = args()?;
    let tokens: Vec<i32> = read(&args.folder.join("tokens.bin"))?
        .chunks_exact(2)
        .map(|b| i32::from(u16::from_le_bytes([b[0], b[1]])))
        .collect();
    let mut rt = Runtime::open(&args.device, args.threads)?;
    let s = rt.session().clone();
    s.manual_seed(1);
    let net = match &args.from {
        Some(folder) => Llama::read(&s, &read(&folder.join("model.safetensors"))?)?,
        None => Llama::new(&s)?,
    };
    let lr = Tensor::variable_f32(&s, "lr");
    let opts = AdamOpts { beta2: 0.98, weight_decay: 0.05, decoupled: true, ..AdamOpts::default() };
    let mut opt = Adam::new(net.parameters(), &lr, opts)?;
    rt.realize(&opt.tensors().iter().collect::<Vec<_>>())?;
    println!("{} parameters, {} tokens", net.parameters().iter().map(Tensor::numel).sum::<usize>(), tokens.len());

    let rate = Schedule::Warmup {
        steps: 100.min(args.steps / 10),
        then: Box::new(Schedule::Cosine { steps: args.steps, floor: 0.05 }),
    };
    let batch = |step: usize, by: usize| -> Vec<i32> {
        places(step, tokens.len()).iter().flat_map(|&at| tokens[at + by..][..TIME].to_vec()).collect()
    };
    let bytes = |list: &[i32]| -> Vec<u8> { list.iter().flat_map(|t| t.to_le_bytes()).collect() };
    let x = Tensor::new(&s, &batch(0, 0), &[BATCH, TIME])?;
    let y = Tensor::new(&s, &batch(0, 1), &[BATCH * TIME])?;
    let shown = Tensor::empty(&s, gradloom::DType::F32, &[1])?;
    step_of(&net, &mut opt, [&x, &y], &shown)?;
    let mut all = opt.tensors();
    all.push(shown.clone());
    rt.engine().set_var("lr", Scalar::float(RATE * rate.at(0)));
    let replay = rt.realize(&all.iter().collect::<Vec<_>>())?;
    let (begin, mut mean) = (Instant::now(), 0.0);
    for step in 1..args.steps {
        rt.write(&x, &bytes(&batch(step, 0)))?;
        rt.write(&y, &bytes(&batch(step, 1)))?;
        rt.engine().set_var("lr", Scalar::float(RATE * rate.at(step)));
        drop(rt.replay(&replay)?);
        let got = rt.fetch(&shown)?;
        let loss = f64::from(f32::from_le_bytes([got[0], got[1], got[2], got[3]]));
        mean = if step == 1 { loss } else { 0.98 * mean + 0.02 * loss };
        if step % 50 == 0 || step + 1 == args.steps {
            let speed = (step * BATCH * TIME) as f64 / begin.elapsed().as_secs_f64();
            let megabytes = rt.counters().bytes >> 20;
            println!("step {step}: loss {mean:.3}, {speed:.0} tokens a second, {megabytes} MB");
        }
        if step % 500 == 0 || step + 1 == args.steps {
            export::write(&mut rt, &net, &args.folder)?;
        }
    }
    Ok(())
}
