//! Running sample programs on a device.

use crate::programs::{Data, Sample, samples};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::{Renderer, Source};
use gradloom_core::{Error, Result};
use std::future::{Future, ready};
use std::task::{Context, Poll, Waker};

/// Compiles all samples of the device's target in one batch, runs each and compares. Returns how many ran; panics with a
/// list of everything that is wrong.
pub fn run_samples(dev: &mut dyn Device, renderer: &dyn Renderer) -> usize {
    block(run_samples_async(dev, renderer, || ready(())))
}

/// The same where waiting must be awaited: `wait` ends when the device may have news.
pub async fn run_samples_async<F: Future<Output = ()>>(
    dev: &mut dyn Device,
    renderer: &dyn Renderer,
    wait: impl Fn() -> F,
) -> usize {
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
    while !dev.ready().expect("samples compile") {
        wait().await;
    }
    for ((s, _), &k) in batch.iter().zip(&kernels) {
        match run_one_async(dev, s, k, &wait).await {
            Ok(bytes) => failures.extend(s.check(&bytes).err()),
            Err(e) => failures.push(format!("{}: {e}", s.program.name)),
        }
        dev.release(k);
    }
    assert!(failures.is_empty(), "{} of {} samples fail:\n{}", failures.len(), all.len(), failures.join("\n"));
    all.len()
}

/// Runs one compiled sample; the final bytes of every slot.
pub fn run_one(dev: &mut dyn Device, s: &Sample, kernel: KernelId) -> Result<Vec<Vec<u8>>> {
    block(run_one_async(dev, s, kernel, &|| ready(())))
}

async fn run_one_async<F: Future<Output = ()>>(
    dev: &mut dyn Device,
    s: &Sample,
    kernel: KernelId,
    wait: &impl Fn() -> F,
) -> Result<Vec<Vec<u8>>> {
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
    let mut out = Ok(Vec::new());
    for t in tickets {
        match (arrive(dev, t, wait).await, &mut out) {
            (Ok(b), Ok(list)) => list.push(b),
            (Err(e), Ok(_)) => out = Err(e),
            _ => {}
        }
    }
    for b in bufs {
        dev.free(b);
    }
    out
}

async fn arrive<F: Future<Output = ()>>(dev: &mut dyn Device, t: Ticket, wait: &impl Fn() -> F) -> Result<Vec<u8>> {
    for _ in 0..1_000_000 {
        if let Some(b) = dev.poll(t)? {
            return Ok(b);
        }
        wait().await;
    }
    Err(Error::Internal("readback never arrives".into()))
}

/// Runs a future that is never pending.
pub(crate) fn block<T>(f: impl Future<Output = T>) -> T {
    match std::pin::pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(v) => v,
        Poll::Pending => panic!("a device that blocks has nothing to await"),
    }
}
