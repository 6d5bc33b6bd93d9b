//! Uploads to devices with memory of their own of what is made on the way there, by several threads, a part each.

use gradloom_core::Result;
use gradloom_core::device::{BufId, Device, Write};

/// Bytes that are worth another thread, which takes some ten microseconds to begin.
const WORTH_A_THREAD: usize = 1 << 20;
/// Bytes that are made before they are sent.
const SENT: usize = 32 << 20;

/// Has memory written by some threads, several times `step` bytes by each.
fn in_parts(threads: usize, to: &mut [u8], step: usize, write: &Write<'_>) {
    let parts = threads.min(to.len() / WORTH_A_THREAD).max(1);
    let part = to.len().div_ceil(parts).next_multiple_of(step.max(1));
    if parts == 1 || part >= to.len() {
        return write(0, to);
    }
    std::thread::scope(|s| {
        let mut all = to.chunks_mut(part).enumerate();
        let own = all.next();
        for (i, to) in all {
            s.spawn(move || write(i * part, to));
        }
        if let Some((_, to)) = own {
            write(0, to);
        }
    });
}

/// Uploads what `write` makes ([`Device::upload_made`]), a piece after the other, each made by all threads of the machine.
pub(crate) fn upload(device: &mut dyn Device, buf: BufId, len: usize, step: usize, write: &Write<'_>) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let piece = SENT.next_multiple_of(step.max(1));
    let mut bytes = vec![0; piece.min(len)];
    for at in (0..len).step_by(piece) {
        let part = &mut bytes[..piece.min(len - at)];
        in_parts(threads, part, step, &|from, to| write(at + from, to));
        device.upload(buf, at, part)?;
    }
    Ok(())
}
