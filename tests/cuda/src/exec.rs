//! Runs kernels: a block at a time, each thread on its own from one meeting to the next. Threads of a warp meet at shuffles and products
//! of matrices, those of a block at barriers; a thread that is missing there, or that is elsewhere, is an error. So is what threads do to the
//! same shared memory with nothing that orders it (`races.rs`). What a launch costs there is counted (`banks.rs`).

use crate::banks::{Banks, Touch};
use crate::memory::Memory;
use crate::parse::{Code, Element, Entry, Inst, Operand, Product, Space, Tile};
use crate::races::{Races, Times, WARP, Who};
use crate::stream::Launch;
use half::{bf16, f16};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Instructions that one thread may do in a launch: a loop without an end is an error.
const MOST: u64 = 1 << 32;

/// What is wrong with a launch.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    /// An access outside of all memory, or one that is not aligned.
    Address(String),
    /// Threads that do not meet, a block of another size, a loop without an end.
    Launch(String),
    /// Accesses to shared memory that nothing orders, or a read of what was not written.
    Race(String),
}

struct Thread {
    registers: Vec<u64>,
    local: Vec<u8>,
    index: [u32; 3],
    /// Its number in the block.
    number: usize,
    /// Its accesses to shared memory since it met others last.
    touched: Vec<Touch>,
    pc: usize,
    done: bool,
    steps: u64,
    /// Copies on their way, in groups, of which the last is open: each is done when it is waited for and no sooner.
    copies: VecDeque<Vec<Copy>>,
    /// Products on their way, likewise.
    products: VecDeque<Vec<Started>>,
    /// What products would not see of this thread yet: bytes that arrived in shared memory since the last fence, and registers.
    unseen: bool,
    unfenced: bool,
    /// The fence after which each register was written to last, counted from 1, and the fences so far.
    written: Vec<u32>,
    fences: u32,
    /// Registers that are sums of products on their way.
    sums: Vec<bool>,
}

/// A copy to shared memory: bytes that are read, and zeros after them.
struct Copy {
    to: u64,
    from: u64,
    bytes: usize,
    read: u64,
    place: usize,
    /// What was known when it was started.
    known: Times,
}

/// Barriers of a block.
const BARRIERS: usize = 16;
/// Bytes of a copy.
const COPY: usize = 16;

struct Block<'a> {
    entry: &'a Entry,
    parameters: &'a [u64],
    memory: &'a mut Memory,
    shared: Vec<u8>,
    races: Races<'a>,
    banks: &'a mut Banks,
    index: [u32; 3],
}

/// Launches a kernel with the bits of its parameters; the result is what its instructions cost in shared memory.
pub(crate) fn launch(l: &Launch, memory: &mut Memory) -> Result<Banks, Fault> {
    let Launch { grid, block, shared, bits: parameters, .. } = l;
    let (entry, grid, block) = (&*l.entry, *grid, *block);
    if entry.parts && entry.shared > 0 {
        return Err(Fault::Launch("declared arrays beside those of the launch".into()));
    }
    if block != entry.block || block.contains(&0) || block.iter().map(|&n| n as usize).product::<usize>() > 1024 {
        return Err(Fault::Launch(format!("a block of {block:?} threads, {:?} wanted", entry.block)));
    }
    let threads = block_size(entry);
    let mut banks = Banks::default();
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                let shared = vec![0xFF; entry.shared + shared];
                let races = Races::new(entry, threads, shared.len(), BARRIERS);
                let index = [x, y, z];
                Block { entry, parameters, memory, shared, races, banks: &mut banks, index }.run(block)?;
            }
        }
    }
    Ok(banks)
}

impl Block<'_> {
    fn run(&mut self, [nx, ny, nz]: [u32; 3]) -> Result<(), Fault> {
        let mut threads: Vec<Thread> = (0..nx * ny * nz)
            .map(|i| Thread {
                // registers that nothing was written to hold anything
                registers: vec![0xFFFF_FFFF_FFFF_FFFF; self.entry.registers],
                local: vec![0xFF; self.entry.local],
                index: [i % nx, i / nx % ny, i / nx / ny],
                number: i as usize,
                touched: Vec::new(),
                pc: 0,
                done: false,
                steps: 0,
                copies: VecDeque::from([Vec::new()]),
                products: VecDeque::from([Vec::new()]),
                unseen: false,
                unfenced: true,
                written: vec![1; if self.entry.products { self.entry.registers } else { 0 }],
                fences: 0,
                sums: vec![false; if self.entry.products { self.entry.registers } else { 0 }],
            })
            .collect();
        // which barrier each warp waits at, and the threads that have come to each
        let mut waits: Vec<Option<usize>> = vec![None; threads.len().div_ceil(WARP)];
        let mut come = [0usize; BARRIERS];
        while threads.iter().any(|t| !t.done) {
            for (of, (warp, waits)) in threads.chunks_mut(WARP).zip(&mut waits).enumerate() {
                while waits.is_none() && self.warp(warp)? {
                    if self.entry.products && warp.iter().any(|t| t.unseen) {
                        return Err(self.lost("copies that products do not see"));
                    }
                    let Some(first) = warp.iter().position(|t| !t.done) else { break };
                    let Code::Barrier { number, waits: stays, .. } = self.entry.code[warp[first].pc].code else {
                        break;
                    };
                    let number = self.value(&warp[first], number) as usize;
                    if number >= BARRIERS {
                        return Err(self.lost("a barrier that is none"));
                    }
                    self.races.come(of, number);
                    come[number] += warp.iter().filter(|t| !t.done).count();
                    match stays {
                        true => *waits = Some(number),
                        false => warp.iter_mut().filter(|t| !t.done).for_each(|t| t.pc += 1),
                    }
                }
            }
            // each warp is at its end or at a barrier; those that ended are not waited for
            let there = threads.iter().filter(|t| !t.done).count();
            let mut open = there == 0;
            for number in 0..BARRIERS {
                let here = |i: usize| waits[i] == Some(number);
                let of =
                    |(i, w): (usize, &[Thread])| if here(i) { w.iter().find(|t| !t.done).map(|t| t.pc) } else { None };
                let places: Vec<usize> = threads.chunks(WARP).enumerate().filter_map(of).collect();
                let Some(&first) = places.first() else { continue };
                let Code::Barrier { threads: wanted, .. } = self.entry.code[first].code else { continue };
                if places.iter().any(|&p| p != first) && wanted.is_none() {
                    return Err(self.lost("threads of a block wait at different barriers"));
                }
                match come[number].cmp(&wanted.unwrap_or(there)) {
                    Ordering::Less => continue,
                    Ordering::Greater => return Err(self.lost("more threads come to a barrier than it is for")),
                    Ordering::Equal => {}
                }
                (come[number], open) = (0, true);
                for (of, (warp, waits)) in threads.chunks_mut(WARP).zip(&mut waits).enumerate() {
                    if *waits != Some(number) {
                        continue;
                    }
                    *waits = None;
                    self.races.pass(of, number);
                    warp.iter_mut().filter(|t| !t.done).for_each(|t| t.pc += 1);
                }
                self.races.open(number);
            }
            if !open {
                return Err(self.lost("threads of a block wait at different barriers"));
            }
        }
        Ok(())
    }

    fn raced(&self, what: &str) -> Fault {
        Fault::Race(format!("{what} (block {:?})", self.index))
    }

    fn lost(&self, what: &str) -> Fault {
        Fault::Launch(format!("{what} (block {:?})", self.index))
    }

    /// Runs a warp to its end or to a barrier (true).
    fn warp(&mut self, warp: &mut [Thread]) -> Result<bool, Fault> {
        loop {
            for t in warp.iter_mut() {
                self.thread(t)?;
            }
            self.banks.count(warp.iter_mut().map(|t| &mut t.touched).collect());
            let mut places = warp.iter().filter(|t| !t.done).map(|t| t.pc);
            let Some(at) = places.next() else { return Ok(false) };
            if places.any(|p| p != at) {
                return Err(self.lost("threads of a warp do not meet"));
            }
            if matches!(self.entry.code[at].code, Code::Barrier { .. }) {
                return Ok(true);
            }
            self.meet(at, warp)?;
            warp.iter_mut().filter(|t| !t.done).for_each(|t| t.pc += 1);
        }
    }

    /// Runs a thread to where it meets others, or to its end.
    fn thread(&mut self, t: &mut Thread) -> Result<(), Fault> {
        let entry = self.entry;
        while !t.done {
            let Some(inst) = entry.code.get(t.pc) else { return Err(self.lost("a kernel without an end")) };
            t.steps += 1;
            if t.steps > MOST {
                return Err(self.lost("a loop without an end"));
            }
            if inst.guard.is_some_and(|g| t.registers[g] == 0) {
                t.pc += 1;
                continue;
            }
            if entry.products {
                if inst.read.iter().chain(&inst.written).any(|&r| t.sums[r]) {
                    return Err(self.lost(&format!("line {}: a sum of products is not there yet", inst.line)));
                }
                inst.written.iter().for_each(|&r| t.written[r] = t.fences + 1);
            }
            match &inst.code {
                code if code.meets() && inst.guard.is_some() => return Err(self.lost("threads meet under a guard")),
                code if code.meets() => return Ok(()),
                Code::Copy { to, from, bytes, read } => {
                    let at = |(base, plus): (Operand, i64)| self.value(t, base).wrapping_add(plus as u64);
                    let (to, from, read) = (at(*to), at(*from), self.value(t, *read));
                    let known = self.races.times(Who::thread(t.number));
                    let copy = Copy { to, from, bytes: *bytes, read, place: t.pc, known };
                    t.touched.push((t.pc, to as usize, *bytes));
                    t.copies.back_mut().expect("a group is open").push(copy);
                }
                Code::Commit => t.copies.push_back(Vec::new()),
                Code::Wait(n) => {
                    while t.copies.len() > n + 1 {
                        let group = t.copies.pop_front().unwrap_or_default();
                        t.unseen |= !group.is_empty();
                        group.into_iter().try_for_each(|c| self.copy(&c, t.number))?;
                    }
                }
                Code::Product(p) => self.start(p, t, None)?,
                Code::ProductFence => (t.unfenced, t.fences) = (false, t.fences + 1),
                Code::ProductCommit => {
                    t.products.push_back(Vec::new());
                    t.unfenced = true;
                }
                Code::ProductWait(n) => {
                    while t.products.len() > n + 1 {
                        for p in t.products.pop_front().unwrap_or_default() {
                            let sums = p.sums.clone();
                            let p = p.multiply(&self.shared, block_size(entry)).map_err(|what| self.lost(what))?;
                            self.read_factors(&p)?;
                            // a NaN is not equal to itself
                            if p.sums.iter().zip(&sums).any(|(a, b)| a.to_bits() != b.to_bits()) {
                                return Err(self.lost("what a product reads has changed while it went on"));
                            }
                            if p.held.iter().any(|&(r, x)| t.registers[r] != x) {
                                return Err(self.lost("a register of a product has changed while it went on"));
                            }
                            for (&d, x) in p.d.iter().zip(&p.sums) {
                                let sum = if p.adds { f32::from_bits(t.registers[d] as u32) + x } else { *x };
                                t.registers[d] = u64::from(sum.to_bits());
                            }
                        }
                    }
                    t.sums.fill(false);
                    let going = t.products.iter().flatten().flat_map(|p| &p.d);
                    going.for_each(|&d| t.sums[d] = true);
                }
                Code::ProxyFence => t.unseen = false,
                Code::Return => t.done = true,
                Code::Branch(to) => {
                    t.pc = *to;
                    continue;
                }
                Code::Alu { f, dest, src } => {
                    let [a, b, c] = src.map(|o| self.value(t, o));
                    t.registers[*dest] = f(a, b, c);
                }
                Code::Param { dest, at } => t.registers[*dest] = self.parameters[*at],
                Code::Pack { dest, src, bits } => {
                    let parts = src.iter().rev().map(|&o| self.value(t, o));
                    t.registers[*dest] = parts.fold(0, |all, x| all << bits | x & low(*bits));
                }
                Code::Unpack { dest, src, bits } => {
                    let mut x = self.value(t, *src);
                    for &d in dest {
                        t.registers[d] = x & low(*bits);
                        x >>= bits;
                    }
                }
                Code::Load { space, of, dest, base, plus } => {
                    let at = self.value(t, *base).wrapping_add(*plus as u64);
                    let bytes = self.bytes(t, inst, *space, at, *of, dest.len())?.to_vec();
                    if *space == Space::Shared {
                        let (at, n) = (at as usize, bytes.len());
                        t.touched.push((t.pc, at, n));
                        let read = self.races.read(t.pc, Who::thread(t.number), at, n, None);
                        read.map_err(|what| self.raced(&what))?;
                    }
                    for (&d, x) in dest.iter().zip(bytes.chunks_exact(of.bytes)) {
                        t.registers[d] = read(x, *of);
                    }
                }
                Code::Store { space, of, src, base, plus } => {
                    let at = self.value(t, *base).wrapping_add(*plus as u64);
                    let values: Vec<u64> = src.iter().map(|&o| self.value(t, o)).collect();
                    t.unseen |= *space == Space::Shared;
                    let bytes = self.bytes(t, inst, *space, at, *of, src.len())?;
                    for (x, to) in values.iter().zip(bytes.chunks_exact_mut(of.bytes)) {
                        to.copy_from_slice(&x.to_le_bytes()[..of.bytes]);
                    }
                    if *space == Space::Shared {
                        let (at, n) = (at as usize, of.bytes * src.len());
                        t.touched.push((t.pc, at, n));
                        let written = self.races.write(t.pc, Who::thread(t.number), at, n, None);
                        written.map_err(|what| self.raced(&what))?;
                    }
                }
                Code::Barrier { .. } | Code::Shuffle { .. } | Code::Mma { .. } | Code::LoadMatrix { .. } => {}
            }
            t.pc += 1;
        }
        Ok(())
    }

    /// Starts a product of a thread, with the two rows of its left factor if registers hold that.
    fn start(&mut self, p: &Product, t: &mut Thread, rows: Option<[[f32; 16]; 2]>) -> Result<(), Fault> {
        if t.unfenced || p.d.iter().chain(&p.held).any(|&r| t.written[r] > t.fences) {
            return Err(self.lost("a product of registers that were written without a fence"));
        }
        let held = p.held.iter().map(|&r| (r, t.registers[r])).collect();
        let started = Started {
            d: p.d.clone(),
            adds: t.registers[p.adds] != 0,
            held,
            rows,
            factors: p.factors.map(|o| self.value(t, o)),
            turned: p.turned,
            bf16: p.bf16,
            number: t.number,
            place: t.pc,
            known: self.races.times(Who::warp_of(t.number)),
            sums: Vec::new(),
        };
        let started = started.multiply(&self.shared, block_size(self.entry)).map_err(|what| self.lost(what))?;
        self.read_factors(&started)?;
        p.d.iter().for_each(|&d| t.sums[d] = true);
        t.products.back_mut().expect("a group is open").push(started);
        Ok(())
    }

    /// The bytes that a product reads: all that its warp does, once a warp. It reads them from when it is started to when it is waited for.
    fn read_factors(&mut self, p: &Started) -> Result<(), Fault> {
        if p.number % WARP > 0 {
            return Ok(());
        }
        for at in p.footprint() {
            let read = self.races.read(p.place, Who::warp_of(p.number), at, 2, Some(&p.known));
            read.map_err(|what| self.raced(&what))?;
        }
        Ok(())
    }

    fn copy(&mut self, c: &Copy, by: usize) -> Result<(), Fault> {
        let fault = |what: &str| {
            let (to, from, read) = (c.to, c.from, c.read);
            Fault::Address(format!(
                "line {}, block {:?}: {what} from {from:#x} to {to:#x}, {read} bytes",
                self.entry.code[c.place].line, self.index
            ))
        };
        let (n, all) = (c.read as usize, c.bytes);
        if n > all || !c.to.is_multiple_of(all as u64) || n > 0 && !c.from.is_multiple_of(all as u64) {
            return Err(fault("a misaligned copy"));
        }
        let mut bytes = [0; COPY];
        if n > 0 {
            let from = self.memory.get(c.from, n).ok_or_else(|| fault("a copy outside of memory"))?;
            bytes[..n].copy_from_slice(from);
        }
        let to = self.shared.get_mut(c.to as usize..).and_then(|s| s.get_mut(..all));
        match to {
            Some(to) => to.copy_from_slice(&bytes[..all]),
            None => return Err(fault("a copy outside of shared memory")),
        }
        let done = self.races.write(c.place, Who::thread(by), c.to as usize, all, Some(&c.known));
        done.map_err(|what| self.raced(&what))
    }

    fn value(&self, t: &Thread, o: Operand) -> u64 {
        match o {
            Operand::Reg(r) => t.registers[r],
            Operand::Number(n) => n,
            Operand::Index(true, d) => self.index[d].into(),
            Operand::Index(false, d) => t.index[d].into(),
        }
    }

    fn bytes<'b>(
        &'b mut self,
        t: &'b mut Thread,
        inst: &Inst,
        space: Space,
        at: u64,
        of: Element,
        n: usize,
    ) -> Result<&'b mut [u8], Fault> {
        let (block, thread, bytes) = (self.index, t.index, of.bytes * n);
        let fault = move |what: &str| {
            let what = format!("{what} of {bytes} bytes at {at:#x} ({space:?})");
            Fault::Address(format!("line {}, block {block:?}, thread {thread:?}: {what}", inst.line))
        };
        if !at.is_multiple_of(bytes as u64) {
            return Err(fault("a misaligned access"));
        }
        let within = |all: &'b mut Vec<u8>| all.get_mut(at as usize..)?.get_mut(..bytes);
        let found = match space {
            Space::Global => self.memory.get_mut(at, bytes),
            Space::Shared => within(&mut self.shared),
            Space::Local => within(&mut t.local),
        };
        found.ok_or_else(|| fault("an access outside of memory"))
    }

    /// What the threads of a warp do together.
    fn meet(&mut self, place: usize, warp: &mut [Thread]) -> Result<(), Fault> {
        let entry = self.entry;
        match &entry.code[place].code {
            Code::Shuffle { dest, src, bits } => {
                let own: Vec<u64> = warp.iter().map(|t| self.value(t, *src)).collect();
                for i in 0..warp.len() {
                    let from = i ^ self.value(&warp[i], *bits) as usize;
                    let other = warp.get(from).filter(|t| !t.done && !warp[i].done);
                    if other.is_none() {
                        return Err(self.lost("a shuffle with a thread that is not there"));
                    }
                    warp[i].registers[*dest] = own[from];
                }
            }
            Code::Mma { tile, d, a, b, c } => {
                if warp.len() != WARP || warp.iter().any(|t| t.done) {
                    return Err(self.lost("a product of matrices by fewer than 32 threads"));
                }
                multiply(*tile, warp, [d, a, b, c]);
            }
            Code::LoadMatrix { dest, base, plus, turned } => {
                if warp.len() != WARP || warp.iter().any(|t| t.done) {
                    return Err(self.lost("matrices loaded by fewer than 32 threads"));
                }
                // thread 8 i + j addresses row j of the matrix i
                let mut matrices = vec![[[0u16; 8]; 8]; dest.len()];
                let row_at = |t: &Thread| self.value(t, *base).wrapping_add(*plus as u64) as usize;
                let rows: Vec<(usize, usize)> = warp.iter().take(8 * dest.len()).map(|t| (row_at(t), 16)).collect();
                for (&(at, _), row) in rows.iter().zip(matrices.iter_mut().flatten()) {
                    let bytes = self.shared.get(at..).and_then(|s| s.get(..16));
                    let bytes = bytes.filter(|_| at.is_multiple_of(16));
                    let bytes = bytes.ok_or_else(|| self.lost("a row of a matrix outside of memory, or misaligned"))?;
                    for (x, pair) in row.iter_mut().zip(bytes.chunks_exact(2)) {
                        *x = u16::from_le_bytes([pair[0], pair[1]]);
                    }
                }
                self.banks.add(place, &rows);
                for (at, n) in rows {
                    let read = self.races.read(place, Who::warp_of(warp[0].number), at, n, None);
                    read.map_err(|what| self.raced(&what))?;
                }
                for (lane, t) in warp.iter_mut().enumerate() {
                    let (group, pair) = (lane / 4, lane % 4 * 2);
                    for (&d, m) in dest.iter().zip(&matrices) {
                        let [x, y] = [0, 1].map(|i| if *turned { m[pair + i][group] } else { m[group][pair + i] });
                        t.registers[d] = u64::from(x) | u64::from(y) << 16;
                    }
                }
            }
            Code::Product(p) => {
                if warp.len() != WARP || warp.iter().any(|t| t.done) {
                    return Err(self.lost("a product of matrices by fewer than 32 threads"));
                }
                let mut left = [[0f32; 16]; 16];
                for (lane, t) in warp.iter().enumerate() {
                    for i in 0..8 {
                        let row = lane / 4 + if i % 4 < 2 { 0 } else { 8 };
                        let col = lane % 4 * 2 + i % 2 + if i < 4 { 0 } else { 8 };
                        left[row][col] = half(t.registers[p.held[i / 2]] >> (16 * (i % 2)), p.bf16);
                    }
                }
                for (lane, t) in warp.iter_mut().enumerate() {
                    self.start(p, t, Some([left[lane / 4], left[lane / 4 + 8]]))?;
                }
            }
            _ => return Err(self.lost("threads meet at an instruction of one")),
        }
        Ok(())
    }
}

fn block_size(entry: &Entry) -> usize {
    entry.block.iter().map(|&n| n as usize).product()
}

/// The lower half of a word.
fn half(bits: u64, brain: bool) -> f32 {
    if brain { bf16::from_bits(bits as u16).to_f32() } else { f16::from_bits(bits as u16).to_f32() }
}

/// A product of matrices in shared memory that goes on: what it will add to the registers of one thread.
struct Started {
    d: Vec<usize>,
    /// It is added to what they hold.
    adds: bool,
    /// Registers with a left factor, and what they held.
    held: Vec<(usize, u64)>,
    /// The rows of such a factor that the thread's sums are of.
    rows: Option<[[f32; 16]; 2]>,
    factors: [u64; 2],
    turned: [bool; 2],
    bf16: bool,
    /// The thread's number in its block.
    number: usize,
    place: usize,
    /// What its warp knew when it was started.
    known: Times,
    sums: Vec<f32>,
}

impl Started {
    /// Where an element of a factor is, by its matrix' descriptor (PTX ISA, "Matrix descriptor" and "Strides", with a swizzle of 128 bytes).
    fn at(&self, which: usize, across: usize, k: usize) -> usize {
        let field = |at: u32| (self.factors[which] >> at & 0x3fff) as usize * 16;
        let (start, leading, stride) = (field(0), field(16), field(32));
        let at = match self.turned[which] {
            // 64 neighbours are a row, eight rows along k an atom
            true => across % 64 * 2 + across / 64 * leading + k % 8 * 128 + k / 8 * stride,
            false => k * 2 + across % 8 * 128 + across / 8 * stride,
        };
        let at = start + at;
        at ^ (at >> 7 & 7) << 4
    }

    /// Where all elements are that the thread's warp reads.
    fn footprint(&self) -> Vec<usize> {
        let first = 16 * (self.number / WARP % 4);
        let rows = if self.rows.is_some() { 0 } else { 16 };
        let elements = |which: usize, from: usize, n: usize| {
            (from..from + n).flat_map(move |across| (0..16).map(move |k| self.at(which, across, k)))
        };
        elements(0, first, rows).chain(elements(1, 0, 2 * self.d.len())).collect()
    }

    /// Computes what the product is by what lies in memory now.
    fn multiply(mut self, shared: &[u8], threads: usize) -> Result<Started, &'static str> {
        if !threads.is_multiple_of(4 * WARP) {
            return Err("a product by threads that are no four warps");
        }
        let element = |which: usize, across: usize, k: usize| {
            let descriptor = self.factors[which];
            if descriptor >> 62 != 1 || descriptor >> 49 & 7 != 0 {
                return Err("a matrix without a swizzle of 128 bytes");
            }
            let at = self.at(which, across, k);
            let bytes = shared.get(at..at + 2).ok_or("a matrix outside of shared memory")?;
            Ok(half(u64::from(u16::from_le_bytes([bytes[0], bytes[1]])), self.bf16))
        };
        let (warp, lane) = (self.number / WARP % 4, self.number % WARP);
        let mut sums = Vec::with_capacity(self.d.len());
        for i in 0..self.d.len() {
            let row = 16 * warp + lane / 4 + 8 * (i / 2 % 2);
            let column = 8 * (i / 4) + lane % 4 * 2 + i % 2;
            let mut sum = 0f32;
            for k in 0..16 {
                let left = match &self.rows {
                    Some(rows) => rows[i / 2 % 2][k],
                    None => element(0, row, k)?,
                };
                sum = left.mul_add(element(1, column, k)?, sum);
            }
            sums.push(sum);
        }
        self.sums = sums;
        Ok(self)
    }
}

fn low(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// An element as a register has it: of 32 bits with its sign, or with zeros.
fn read(bytes: &[u8], of: Element) -> u64 {
    let mut raw = [0; 8];
    raw[..bytes.len()].copy_from_slice(bytes);
    let x = u64::from_le_bytes(raw);
    match (of.bytes, of.signed) {
        (1, true) => u64::from(x as u8 as i8 as i32 as u32),
        (2, true) => u64::from(x as u16 as i16 as i32 as u32),
        _ => x,
    }
}

/// `d = a b + c`, whose elements are where the tables of "Matrix fragments for mma" put them. Sums go along k.
fn multiply(tile: Tile, warp: &mut [Thread], [d, a, b, c]: [&[usize]; 4]) {
    match tile {
        Tile::Half { k, bf16: brain } => {
            let float = |bits: u64| {
                if brain { bf16::from_bits(bits as u16).to_f32() } else { f16::from_bits(bits as u16).to_f32() }
            };
            // the i-th half of a list of registers that hold two each
            let half = |t: &Thread, r: &[usize], i: usize| float(t.registers[r[i / 2]] >> (16 * (i % 2)) & 0xffff);
            let (mut left, mut right) = (vec![[0f32; 16]; 16], vec![[0f32; 8]; 16]);
            for (lane, t) in warp.iter().enumerate() {
                let (group, in_group) = (lane / 4, lane % 4);
                for i in 0..2 * a.len() {
                    let row = if i % 4 < 2 { group } else { group + 8 };
                    let col = in_group * 2 + i % 2 + if i < 4 { 0 } else { 8 };
                    left[row][col] = half(t, a, i);
                }
                for i in 0..2 * b.len() {
                    let row = in_group * 2 + i % 2 + if i < 2 { 0 } else { 8 };
                    right[row][group] = half(t, b, i);
                }
            }
            for (lane, t) in warp.iter_mut().enumerate() {
                for i in 0..4 {
                    let (row, col) = (lane / 4 + if i < 2 { 0 } else { 8 }, lane % 4 * 2 + i % 2);
                    let sum = f32::from_bits(t.registers[c[i]] as u32);
                    let sum = (0..k).fold(sum, |s, j| left[row][j].mul_add(right[j][col], s));
                    t.registers[d[i]] = u64::from(sum.to_bits());
                }
            }
        }
        Tile::Double => {
            let (mut left, mut right) = ([[0f64; 4]; 8], [[0f64; 8]; 4]);
            for (lane, t) in warp.iter().enumerate() {
                left[lane / 4][lane % 4] = f64::from_bits(t.registers[a[0]]);
                right[lane % 4][lane / 4] = f64::from_bits(t.registers[b[0]]);
            }
            for (lane, t) in warp.iter_mut().enumerate() {
                for i in 0..2 {
                    let (row, col) = (lane / 4, lane % 4 * 2 + i);
                    let sum = f64::from_bits(t.registers[c[i]]);
                    let sum = (0..4).fold(sum, |s, j| left[row][j].mul_add(right[j][col], s));
                    t.registers[d[i]] = sum.to_bits();
                }
            }
        }
    }
}
