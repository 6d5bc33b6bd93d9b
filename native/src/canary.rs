//! Asks a device questions with known answers ([`gradloom_core::device::canary`]) before anything is computed on it.
//! The answers of a driver are remembered for the life of the process, because a software driver takes a tenth of a
//! second to compile the shaders.

use gradloom_core::Result;
use gradloom_core::device::canary::{judge, questions, sources};
use gradloom_core::device::{BufId, Device, Step, View};
use gradloom_core::render::{Source, wgsl};
use gradloom_core::target::Target;
use std::collections::HashMap;
use std::sync::Mutex;

/// Answers by driver and by the capabilities that it claims.
static KNOWN: Mutex<Option<HashMap<String, Vec<Vec<u8>>>>> = Mutex::new(None);

/// The device's target without the features that it got wrong, and notes on these, a line each.
///
/// # Errors
/// [`gradloom_core::Error::Device`] if no result of the device can be trusted.
pub fn examine(dev: &mut dyn Device) -> Result<(Target, Vec<String>)> {
    let answers = answers(dev)?;
    judged(dev.target(), &answers)
}

/// As [`examine`], but asks a driver of this name only once.
pub(crate) fn examine_once(dev: &mut dyn Device, driver: &str) -> Result<(Target, Vec<String>)> {
    let t = dev.target();
    let key = format!("{} {driver} {:?} {}", t.name, t.caps.dots, t.caps.f16_arrays);
    let known = KNOWN.lock().unwrap_or_else(|e| e.into_inner()).as_ref().and_then(|k| k.get(&key).cloned());
    let answers = match known {
        Some(known) => known,
        None => {
            let answers = answers(dev)?;
            let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
            known.get_or_insert_default().insert(key, answers.clone());
            answers
        }
    };
    judged(dev.target(), &answers)
}

/// Runs the kernel that probes subgroups ([`wgsl::subgroup`]), and gives the bytes that it wrote.
pub(crate) fn subgroups(dev: &mut dyn Device, probe: Source) -> Result<Vec<u8>> {
    let kernel = dev.compile(&[probe])?[0];
    let bytes = 4 * wgsl::PROBE_THREADS;
    let view = View { buf: dev.alloc(bytes)?, offset: 0, bytes };
    dev.submit(&[Step::Launch { kernel, args: vec![view], grid: [1; 3], vars: Vec::new() }])?;
    let ticket = dev.read(view)?;
    let found = loop {
        if let Some(found) = dev.poll(ticket)? {
            break found;
        }
    };
    dev.free(view.buf);
    dev.release(kernel);
    Ok(found)
}

fn judged(t: &Target, answers: &[Vec<u8>]) -> Result<(Target, Vec<String>)> {
    let mut t = t.clone();
    let said = judge(&mut t, answers)?;
    Ok((t, said))
}

/// The device's answer to each of the test kernels.
fn answers(dev: &mut dyn Device) -> Result<Vec<Vec<u8>>> {
    let sources = sources(dev.target());
    let kernels = dev.compile(&sources)?;
    while !dev.ready()? {
        std::thread::yield_now();
    }
    let mut bufs: Vec<BufId> = Vec::new();
    let mut view = |dev: &mut dyn Device, bytes: usize| -> Result<View> {
        let buf = dev.alloc(bytes)?;
        bufs.push(buf);
        Ok(View { buf, offset: 0, bytes })
    };
    let asked = view(dev, questions().len())?;
    dev.upload(asked.buf, 0, &questions())?;
    let mut steps = Vec::new();
    let mut written = Vec::new();
    for (source, &kernel) in sources.iter().zip(&kernels) {
        let answer = view(dev, 4 * source.params[0].len)?;
        let args = vec![answer, asked, view(dev, 4)?];
        written.push(answer);
        steps.push(Step::Launch { kernel, args, grid: [1; 3], vars: Vec::new() });
    }
    dev.submit(&steps)?;
    let mut answers = Vec::new();
    for view in written {
        let ticket = dev.read(view)?;
        dev.sync()?;
        answers.push(loop {
            if let Some(bytes) = dev.poll(ticket)? {
                break bytes;
            }
            std::thread::yield_now();
        });
    }
    bufs.into_iter().for_each(|buf| dev.free(buf));
    kernels.into_iter().for_each(|k| dev.release(k));
    Ok(answers)
}
