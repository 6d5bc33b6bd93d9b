//! How often accesses to shared memory have to be repeated: memory has 32 banks of words of four bytes, each of which gives one word at a time
//! (CUDA C++ Programming Guide, "Shared Memory"). Threads that want one word share it. Accesses of 8 and 16 bytes are made by half and by
//! quarter warps, rows of matrices by eight threads. What one thread does after the other is compared at the next place where they meet.

use crate::races::WARP;
use std::collections::BTreeMap;

const BANKS: usize = 32;
/// Bytes of a bank's word, and of all banks' words.
const WORD: usize = 4;
const ROW: usize = BANKS * WORD;

/// What an instruction has cost, over all warps.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Wavefronts {
    /// Times that a warp did it.
    pub accesses: u64,
    /// Times that memory was asked beyond those that as many bytes need.
    pub extra: u64,
}

/// An access of a thread: where the instruction is in the kernel, the first byte, and how many.
pub(crate) type Touch = (usize, usize, usize);

/// What each instruction has cost.
#[derive(Default)]
pub(crate) struct Banks(pub(crate) BTreeMap<usize, Wavefronts>);

impl Banks {
    /// Counts what the threads of a warp did since they met last, and forgets it.
    pub(crate) fn count(&mut self, mut touched: Vec<&mut Vec<Touch>>) {
        // the threads that did an instruction for the first time since then did it together, and so on
        let mut together: BTreeMap<(usize, usize), Vec<(usize, usize)>> = BTreeMap::new();
        for list in &mut touched {
            let mut times: BTreeMap<usize, usize> = BTreeMap::new();
            for (place, at, bytes) in list.drain(..) {
                let time = times.entry(place).or_default();
                together.entry((place, *time)).or_default().push((at, bytes));
                *time += 1;
            }
        }
        for ((place, _), all) in together {
            self.add(place, &all);
        }
    }

    /// Counts an access of several threads together: the first byte of each, and how many.
    pub(crate) fn add(&mut self, place: usize, all: &[(usize, usize)]) {
        let bytes = all.first().map_or(WORD, |&(_, bytes)| bytes).max(WORD);
        let at_once = (ROW / bytes).min(WARP);
        let total = self.0.entry(place).or_default();
        total.accesses += 1;
        total.extra += all.chunks(at_once).map(|part| wavefronts(part) - 1).sum::<u64>();
    }
}

/// The most words that one bank has to give.
fn wavefronts(part: &[(usize, usize)]) -> u64 {
    let mut words: Vec<usize> = part.iter().flat_map(|&(at, bytes)| at / WORD..(at + bytes).div_ceil(WORD)).collect();
    words.sort_unstable();
    words.dedup();
    let mut banks = [0; BANKS];
    words.iter().for_each(|w| banks[w % BANKS] += 1);
    banks.into_iter().max().unwrap_or(0).max(1)
}
