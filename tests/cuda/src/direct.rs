//! Runs a kernel without the driver's functions, for tests of what it costs.

use crate::banks::Wavefronts;
use crate::exec::{Fault, launch};
use crate::memory::Memory;
use crate::parse::module;
use crate::stream::Launch;
use std::sync::Arc;

/// Runs the only kernel of a text over buffers, with bytes of shared memory beside what it declares. The result has the text of each
/// instruction that accessed shared memory, in the kernel's order, and what it cost.
///
/// # Errors
/// A text that is no such kernel, and everything that a launch can fail by.
pub fn run(
    text: &str,
    grid: [u32; 3],
    shared: usize,
    buffers: &mut [Vec<u8>],
) -> Result<Vec<(String, Wavefronts)>, String> {
    let mut kernels = module(text)?.into_values();
    let (Some(entry), None) = (kernels.next(), kernels.next()) else { return Err("one kernel is run".into()) };
    if entry.parameters.iter().any(|&bytes| bytes != 8) || entry.parameters.len() != buffers.len() {
        return Err(format!("{} buffers for {} parameters", buffers.len(), entry.parameters.len()));
    }
    let mut memory = Memory::of(buffers.iter().map(Vec::len).sum());
    let mut bits = Vec::with_capacity(buffers.len());
    for buffer in buffers.iter() {
        let at = memory.allocate(buffer.len()).ok_or("an empty buffer")?;
        memory.get_mut(at, buffer.len()).ok_or("no such memory")?.copy_from_slice(buffer);
        bits.push(at);
    }
    let entry = Arc::new(entry);
    let l = Launch { entry: entry.clone(), grid, block: entry.block, shared, bits: bits.clone() };
    let banks =
        launch(&l, &mut memory).map_err(|(Fault::Address(what) | Fault::Launch(what) | Fault::Race(what))| what)?;
    for (buffer, at) in buffers.iter_mut().zip(bits) {
        let bytes = buffer.len();
        buffer.copy_from_slice(memory.get(at, bytes).ok_or("no such memory")?);
    }
    Ok(banks.0.into_iter().map(|(place, cost)| (entry.code[place].text.clone(), cost)).collect())
}
