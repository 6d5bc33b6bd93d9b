//! Runs `DIR/model.onnx` on `DIR/input.npz` in the interpreter and compares with `DIR/expected.npz`:
//! `cargo run --release --example eval_model DIR [gpu|cpu|eval]`.
#![allow(missing_docs)]

use gradloom_core::device::EvalDevice;
use gradloom_core::engine::Engine;
use gradloom_core::io::onnx::{Model, Runner};
use gradloom_core::io::{HostTensor, npz};
use gradloom_core::target::Target;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let read = |f: &str| std::fs::read(format!("{}/{f}", args[1]));
    let eval = Target::eval();
    let target = match args.get(2).map(String::as_str) {
        Some("gpu") => {
            Target { lanes: 4, has_local: true, max_local: [256, 256, 64], max_local_total: 256, fma: true, ..eval }
        }
        Some("cpu") => Target { lanes: 8, threads: 2, fma: true, ..eval },
        _ => eval,
    };
    let model = Model::parse(read("model.onnx")?)?;
    let inputs = npz::read(&read("input.npz")?)?;
    let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let expected = npz::read(&read("expected.npz")?)?;
    let mut runner = Runner::new(Arc::new(model), &gradloom_core::tensor::Session::new());
    let mut e = Engine::new(Box::new(EvalDevice::new(target)));
    for round in 0..2 {
        let start = Instant::now();
        let mut run = runner.begin(&mut e, &inputs)?;
        println!("begin {:?} {:?}", start.elapsed(), e.counters());
        if args.get(3).is_some() {
            for call in runner.plan_of(&run).map_or(&[][..], |p| &p.calls) {
                if let Some(c) = e.program(call.program) {
                    println!(
                        "{:40} {:>12} flop {:>10} bytes {} args",
                        c.program.name,
                        c.flops,
                        c.bytes,
                        call.args.len()
                    );
                }
            }
            return Ok(());
        }
        let out = loop {
            if let Some(out) = runner.step(&mut e, &mut run)? {
                break out;
            }
        };
        println!("round {round}: {:?} {:?}", start.elapsed(), e.counters());
        for (name, t) in &out {
            let root = t.root();
            let (ticket, dt, _) = e.read(&mut runner.session().state(), root)?;
            let got = HostTensor::new(dt, t.shape(), e.poll(ticket, dt)?.unwrap_or_default())?.to_f64();
            let want = expected.iter().find(|x| x.0 == *name).map(|x| x.1.to_f64()).unwrap_or_default();
            let scale = want.iter().fold(0f64, |m, x| m.max(x.abs()));
            let err = got.iter().zip(&want).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
            println!("{name} {:?} {}: max err {err:.2e} of {scale:.2e}", t.shape(), got.len() == want.len());
        }
    }
    Ok(())
}
