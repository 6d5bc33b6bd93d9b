//! Running sample programs on a device.

use crate::programs::{Data, Sample, samples};
use gradloom_core::device::{BufId, Device, Step, View};
use gradloom_core::render::{Renderer, Source};
use gradloom_core::{Error, Result};

/// Compiles all samples of the device's target in one batch, runs each and compares. Returns how many ran; panics with a
/// list of everything that is wrong.
pub fn run_samples(dev: &mut dyn Device, renderer: &dyn Renderer) -> usize {
    let target = dev.target().clone();
    let all = samples(&target);
    let mut failures = Vec::new();
    let mut batch = Vec::new();
    for s in &all {
        match renderer.render(&s.program, &target) {
            Ok(code) => batch.push((s, Source::new(&s.program, code))),
            Err(e) => failures.push(format!("{}: {e}", s.program.name)),
        }
    }
    let sources: Vec<Source> = batch.iter().map(|b| b.1.clone()).collect();
    let kernels = dev.compile(&sources).expect("samples compile");
    while !dev.ready().expect("samples compile") {}
    for ((s, _), &k) in batch.iter().zip(&kernels) {
        match run_one(dev, s, k) {
            Ok(bytes) => failures.extend(s.check(&bytes).err()),
            Err(e) => failures.push(format!("{}: {e}", s.program.name)),
        }
        dev.release(k);
    }
    assert!(failures.is_empty(), "{} of {} samples fail:\n{}", failures.len(), all.len(), failures.join("\n"));
    all.len()
}

/// Runs one compiled sample; the final bytes of every slot.
pub fn run_one(dev: &mut dyn Device, s: &Sample, kernel: gradloom_core::device::KernelId) -> Result<Vec<Vec<u8>>> {
    let bytes: Vec<Vec<u8>> = s.data.iter().map(Data::bytes).collect();
    let mut bufs: Vec<BufId> = Vec::new();
    let mut args = Vec::new();
    for b in &bytes {
        let buf = dev.alloc(b.len())?;
        dev.upload(buf, 0, b)?;
        bufs.push(buf);
        args.push(View { buf, offset: 0, bytes: b.len() });
    }
    dev.submit(&[Step::Launch { kernel, args: args.clone(), grid: s.program.grid, vars: s.vars.clone() }])?;
    let tickets = args.iter().map(|&v| dev.read(v)).collect::<Result<Vec<_>>>()?;
    dev.sync()?;
    let out = tickets.into_iter().map(|t| wait(dev, t)).collect::<Result<Vec<_>>>();
    for b in bufs {
        dev.free(b);
    }
    out
}

fn wait(dev: &mut dyn Device, t: gradloom_core::device::Ticket) -> Result<Vec<u8>> {
    for _ in 0..1_000_000 {
        if let Some(b) = dev.poll(t)? {
            return Ok(b);
        }
    }
    Err(Error::Internal("readback never arrives".into()))
}
