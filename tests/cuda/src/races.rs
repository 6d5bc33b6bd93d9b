//! Who has touched each byte of a block's shared memory, and what orders that: barriers alone. An access that nothing orders with an earlier
//! one, where either of the two writes, is a race, and so is a read of a byte that nothing was written to. Times are vector clocks of warps
//! (FastTrack, Flanagan and Freund 2009): a warp's time goes on where it comes to a barrier, and who waits there learns the times of all that
//! came. Threads of one warp are ordered by barriers too: shuffles and products make them meet, but order no memory (PTX ISA, "shfl.sync").

use crate::parse::Entry;
use std::rc::Rc;

/// Threads of a warp.
pub(crate) const WARP: usize = 32;
/// In the place of a thread of its warp: several of them, or all.
const SEVERAL: usize = WARP;

/// Who accesses memory: a thread of a warp, or several of its threads together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Who {
    warp: usize,
    lane: usize,
}

impl Who {
    /// The thread with a number in its block.
    pub(crate) fn thread(number: usize) -> Who {
        Who { warp: number / WARP, lane: number % WARP }
    }

    /// The warp of such a thread, all of whose threads do something together.
    pub(crate) fn warp_of(number: usize) -> Who {
        Who { warp: number / WARP, lane: SEVERAL }
    }

    fn name(self) -> String {
        match self.lane {
            SEVERAL => format!("warp {}", self.warp),
            lane => format!("thread {}", self.warp * WARP + lane),
        }
    }
}

/// What a warp knows of the times of all warps. What goes on by itself keeps what was known when it was started.
pub(crate) type Times = Rc<[u32]>;

/// An access, or none (0): the time of its warp, the place of its instruction in the kernel, and who made it. Packed, so that memory for many
/// of them comes zeroed from the system.
#[derive(Clone, Copy, PartialEq)]
struct Access(u64);

impl Access {
    fn new(time: u32, place: usize, who: Who) -> Access {
        Access(u64::from(time) << 32 | ((place as u64) << 12 & 0xffff_f000) | (who.warp as u64) << 6 | who.lane as u64)
    }

    fn time(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn place(self) -> usize {
        (self.0 >> 12 & 0xf_ffff) as usize
    }

    fn who(self) -> Who {
        Who { warp: (self.0 >> 6 & 63) as usize, lane: (self.0 & 63) as usize }
    }
}

/// The accesses to the shared memory of a block.
pub(crate) struct Races<'a> {
    entry: &'a Entry,
    /// What each warp knows.
    times: Vec<Times>,
    /// What those know that have come to each barrier since it opened last.
    barriers: Vec<Vec<u32>>,
    /// The last write to each byte.
    written: Vec<u64>,
    /// The last read of each byte by each warp.
    read: Vec<u64>,
}

impl<'a> Races<'a> {
    /// A block that begins: nothing was written.
    pub(crate) fn new(entry: &'a Entry, threads: usize, bytes: usize, barriers: usize) -> Races<'a> {
        let warps = threads.div_ceil(WARP);
        let first = |w: usize| (0..warps).map(|i| u32::from(i == w)).collect();
        Races {
            entry,
            times: (0..warps).map(first).collect(),
            barriers: vec![vec![0; warps]; barriers],
            written: vec![0; bytes],
            read: vec![0; bytes * warps],
        }
    }

    /// What a thread's warp knows now.
    pub(crate) fn times(&self, who: Who) -> Times {
        self.times[who.warp].clone()
    }

    /// A warp comes to a barrier: what it did before is known to those that wait there, what it does later is not.
    pub(crate) fn come(&mut self, warp: usize, barrier: usize) {
        learn(&mut self.barriers[barrier], &self.times[warp]);
        let mut times = self.times[warp].to_vec();
        times[warp] += 1;
        self.times[warp] = times.into();
    }

    /// A warp goes on from a barrier at which it has waited.
    pub(crate) fn pass(&mut self, warp: usize, barrier: usize) {
        let mut times = self.times[warp].to_vec();
        learn(&mut times, &self.barriers[barrier]);
        self.times[warp] = times.into();
    }

    /// All that waited have gone on.
    pub(crate) fn open(&mut self, barrier: usize) {
        self.barriers[barrier].fill(0);
    }

    /// Does an access come before all that one does who knows this? Whoever has accessed a byte alone knows that.
    fn is_before(a: Access, who: Who, known: &[u32]) -> bool {
        let by = a.who();
        let own = by.warp == who.warp && by.lane == who.lane && by.lane != SEVERAL;
        let known = known[by.warp];
        a.0 == 0 || own || if by.warp == who.warp { a.time() < known } else { a.time() <= known }
    }

    /// Reads bytes. `known` is what the reader knew when the read began, if that was earlier.
    pub(crate) fn read(
        &mut self,
        place: usize,
        who: Who,
        at: usize,
        bytes: usize,
        known: Option<&Times>,
    ) -> Result<(), String> {
        let now = self.times[who.warp].clone();
        let known = known.unwrap_or(&now);
        let warps = self.times.len();
        for b in at..at + bytes {
            let written = Access(self.written[b]);
            if written.0 == 0 {
                return Err(format!("{} reads shared memory that nothing was written to", self.say(place, who, b)));
            }
            if !Races::is_before(written, who, known) {
                return Err(self.race(place, who, b, written, ["reads", "wrote"]));
            }
            let slot = &mut self.read[b * warps + who.warp];
            let last = Access(*slot);
            let alone = last.time() < now[who.warp] || last.who() == who;
            let who = Who { lane: if alone { who.lane } else { SEVERAL }, ..who };
            *slot = Access::new(now[who.warp], place, who).0;
        }
        Ok(())
    }

    /// Writes bytes, likewise.
    pub(crate) fn write(
        &mut self,
        place: usize,
        who: Who,
        at: usize,
        bytes: usize,
        known: Option<&Times>,
    ) -> Result<(), String> {
        let now = self.times[who.warp].clone();
        let known = known.unwrap_or(&now);
        let warps = self.times.len();
        for b in at..at + bytes {
            let written = Access(self.written[b]);
            if !Races::is_before(written, who, known) {
                return Err(self.race(place, who, b, written, ["writes", "wrote"]));
            }
            let mut reads = self.read[b * warps..][..warps].iter().map(|&a| Access(a));
            if let Some(read) = reads.find(|&a| !Races::is_before(a, who, known)) {
                return Err(self.race(place, who, b, read, ["writes", "read"]));
            }
            self.written[b] = Access::new(now[who.warp], place, who).0;
        }
        Ok(())
    }

    fn say(&self, place: usize, who: Who, at: usize) -> String {
        let inst = &self.entry.code[place];
        format!("kernel {}, line {} `{}`: byte {at:#x}: {}", self.entry.name, inst.line, inst.text, who.name())
    }

    fn race(&self, place: usize, who: Who, at: usize, other: Access, [does, did]: [&str; 2]) -> String {
        let inst = &self.entry.code[other.place()];
        let (here, other) = (self.say(place, who, at), other.who().name());
        format!("{here} {does} what {other} {did} in line {} `{}`, and no barrier is between", inst.line, inst.text)
    }
}

/// Takes over what another one knows.
fn learn(known: &mut [u32], other: &[u32]) {
    known.iter_mut().zip(other).for_each(|(k, &o)| *k = (*k).max(o));
}
