//! The reference interpreter of linear programs. It also checks them: an access out of bounds, a value that is used
//! before it is computed, or a barrier that not all threads reach is an `Error::Internal` that names the node.
//!
//! A program is first translated into instructions (`translate`), where it is worked out how the elements of each
//! operand tile correspond to those of the result, and these are then executed for each thread. Floats are computed op
//! by op in their own dtype, as on a device, without accumulation in f64.

mod translate;

use super::lanes::{Lanes, Positions, Reducer, Run, alu};
use crate::dtype::Scalar;
use crate::uop::mma::{MATRIX_TILES_ENABLED, Side};
use crate::uop::{AxisKind, Graph, Op, UOp};
use crate::{DType, Error, Result};
use smallvec::SmallVec;
use translate::{Align, Code, Inst, LoadMatrix, Memory, Mma, Operand, Place, Translated, translate};

/// Runs a program. `order` lists nodes of `g` in execution order (constants, tile ranges and pointers may be left out);
/// `args` has the bytes of each Param slot, little-endian; every `Grid(d)` range takes the values `0..grid[d]` and
/// every `Local` range all values below its bound. Each thread of a workgroup runs up to the next barrier, one thread
/// after the other; a product of matrix tiles is computed once all threads have reached it.
///
/// The bits of scratch memory start as all ones (NaN for floats), so that reads of memory that was never written are
/// noticed.
pub fn eval_program(
    g: &Graph,
    order: &[UOp],
    args: &mut [Vec<u8>],
    vars: &[(&str, Scalar)],
    grid: [u32; 3],
) -> Result<()> {
    let code = translate(g, order, args, vars)?;
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                run_workgroup(&code, args, [x, y, z])?;
            }
        }
    }
    Ok(())
}

/// The state of one thread.
struct Thread {
    regs: Vec<Option<Lanes>>,
    private: Vec<Vec<u8>>,
    pc: usize,
    local: [usize; 3],
}

fn run_workgroup(code: &Translated, args: &mut [Vec<u8>], group: [u32; 3]) -> Result<()> {
    let ones = |sizes: &[usize]| sizes.iter().map(|&n| vec![0xFF; n]).collect::<Vec<_>>();
    let mut shared = ones(&code.workgroup);
    let [nx, ny, nz] = code.local;
    let mut threads: Vec<Thread> = (0..nx * ny * nz)
        .map(|i| Thread {
            regs: code.initial.clone(),
            private: ones(&code.private),
            pc: 0,
            local: [i % nx, i / nx % ny, i / nx / ny],
        })
        .collect();
    loop {
        let mut stops = Vec::new();
        for t in &mut threads {
            stops.push(t.run(code, args, &mut shared, group)?);
        }
        match stops.first() {
            None | Some(None) if stops.iter().all(Option::is_none) => return Ok(()),
            Some(&stop) if stops.iter().all(|&s| s == stop) => {
                if MATRIX_TILES_ENABLED && let Some(Inst { u, reg: Some(reg), code }) = stop.map(|at| &code.insts[at]) {
                    let done = match code {
                        Code::Mma(mma) => mma.run(&mut threads, &shared, *reg),
                        Code::LoadMatrix(load) => load.run(&mut threads, &shared, *reg),
                        _ => Ok(()),
                    };
                    done.map_err(|what| Error::Internal(format!("{u:?}: {what} (workgroup {group:?})")))?;
                }
            }
            _ => return Err(Error::Internal(format!("threads of workgroup {group:?} wait at different barriers"))),
        }
    }
}

impl Thread {
    /// Runs to the next barrier, product or load of matrix tiles, and returns its position; or to the end (`None`).
    fn run(
        &mut self,
        code: &Translated,
        args: &mut [Vec<u8>],
        shared: &mut [Vec<u8>],
        group: [u32; 3],
    ) -> Result<Option<usize>> {
        while let Some(inst) = code.insts.get(self.pc) {
            let fail = |what: String| Error::Internal(format!("{:?}: {what} (workgroup {group:?})", inst.u));
            let at = self.pc;
            self.pc += 1;
            let value = match &inst.code {
                Code::Ready => continue,
                Code::Barrier | Code::Mma(_) | Code::LoadMatrix(_) => return Ok(Some(at)),
                Code::Launch(kind) => Lanes::Int(vec![match *kind {
                    AxisKind::Grid(d) => group[d as usize] as i64,
                    AxisKind::Local(d) => self.local[d as usize] as i64,
                    _ => unreachable!("launch ranges are Grid or Local"),
                }]),
                Code::Loop { bound, end } => {
                    let n = self.reg(*bound).map_err(fail)?.get(0).as_i64();
                    if n <= 0 {
                        self.pc = end + 1;
                        continue;
                    }
                    Lanes::Int(vec![0])
                }
                Code::End { start } => {
                    let Code::Loop { bound, .. } = code.insts[*start].code else { unreachable!("ends close loops") };
                    let n = self.reg(bound).map_err(fail)?.get(0).as_i64();
                    let Some(reg) = code.insts[*start].reg else { unreachable!("loops have registers") };
                    let next = self.reg(reg).map_err(fail)?.get(0).as_i64() + 1;
                    if next < n {
                        self.pc = start + 1;
                        self.regs[reg] = Some(Lanes::Int(vec![next]));
                    }
                    continue;
                }
                Code::Alu { op, dt, src, sdt } => {
                    let vals = src.iter().map(|o| self.aligned(o)).collect::<Result<SmallVec<[Aligned<'_>; 3]>, _>>();
                    let vals = vals.map_err(fail)?;
                    let refs: SmallVec<[&Lanes; 3]> = vals.iter().map(|v| v.get()).collect();
                    alu(*op, *dt, &refs, sdt)
                        .ok_or_else(|| fail(format!("{op:?} of {sdt:?} to {dt} is not defined")))?
                }
                Code::Index { offset, add } => {
                    let offset = self.aligned(offset).map_err(fail)?;
                    let Lanes::Int(v) = offset.get() else { return Err(fail("offset is no integer".into())) };
                    Lanes::Int(v.iter().zip(add).map(|(a, b)| a.wrapping_add(*b)).collect())
                }
                Code::Load { mem, at, gated } => {
                    let at = self.aligned(at).map_err(fail)?;
                    let bytes = mem.bytes(args, shared, &self.private);
                    match gated {
                        None => mem.read(bytes, ints(at.get()), None).map_err(fail)?,
                        Some((alt, gate)) => {
                            let (alt, gate) = (self.aligned(alt).map_err(fail)?, self.aligned(gate).map_err(fail)?);
                            let read = mem.read(bytes, ints(at.get()), Some(ints(gate.get()))).map_err(fail)?;
                            let dt = [DType::Bool, mem.dt, mem.dt];
                            alu(Op::Where, mem.dt, &[gate.get(), &read, alt.get()], &dt)
                                .ok_or_else(|| fail("the alternative has another dtype".into()))?
                        }
                    }
                }
                Code::Store { mem, at, value, gate, n } => {
                    let (at, v) = (self.aligned(at).map_err(fail)?, self.aligned(value).map_err(fail)?);
                    let gate = gate.as_ref().map(|o| self.aligned(o)).transpose().map_err(fail)?;
                    let mut raw = Vec::with_capacity(n * mem.dt.size());
                    v.get().append_bytes(mem.dt, &mut raw);
                    let at = ints(at.get()).to_vec();
                    let gate = gate.map(|g| ints(g.get()).to_vec());
                    let bytes = mem.bytes_mut(args, shared, &mut self.private);
                    mem.write(bytes, &at, &raw, gate.as_deref()).map_err(fail)?;
                    continue;
                }
                Code::Acc { init } => self.aligned(init).map_err(fail)?.get().clone(),
                Code::Update { acc, op, dt, steps } => {
                    let mut sum = self.reg(*acc).map_err(fail)?.clone();
                    for step in steps {
                        let x = self.aligned(&step[0]).map_err(fail)?;
                        let next = match step.get(1) {
                            Some(y) => {
                                let y = self.aligned(y).map_err(fail)?;
                                alu(Op::MulAdd, *dt, &[x.get(), y.get(), &sum], &[*dt; 3])
                            }
                            None => alu(op.op(), *dt, &[&sum, x.get()], &[*dt; 2]),
                        };
                        sum = next.ok_or_else(|| fail(format!("accumulating {op:?} of {dt} is not defined")))?;
                    }
                    self.regs[*acc] = Some(sum);
                    continue;
                }
                Code::Copy { from } => self.reg(*from).map_err(fail)?.clone(),
                Code::Fold { op, dt, parts } => {
                    let mut vals: Vec<Lanes> = Vec::new();
                    for p in parts {
                        vals.push(self.aligned(p).map_err(fail)?.get().clone());
                    }
                    while vals.len() > 1 {
                        let pair = |p: &[Lanes]| match p {
                            [a, b] => alu(op.op(), *dt, &[a, b], &[*dt; 2]),
                            _ => Some(p[0].clone()),
                        };
                        vals = vals
                            .chunks(2)
                            .map(pair)
                            .collect::<Option<_>>()
                            .ok_or_else(|| fail(format!("{op:?} of {dt} is not defined")))?;
                    }
                    let of = Reducer { op: *op, dt: *dt };
                    vals.pop().unwrap_or_else(|| of.finish(of.start(1)))
                }
            };
            if let Some(reg) = inst.reg {
                self.regs[reg] = Some(value);
            }
        }
        Ok(None)
    }

    fn reg(&self, r: usize) -> Result<&Lanes, String> {
        self.regs[r].as_ref().ok_or_else(|| "a source has no value yet".to_string())
    }

    fn aligned(&self, o: &Operand) -> Result<Aligned<'_>, String> {
        let v = self.reg(o.reg)?;
        Ok(match &o.align {
            Align::Same => Aligned::Borrowed(v),
            Align::Map(map) => Aligned::Gathered(v.pick(map.iter().map(|&i| i as usize))),
        })
    }
}

impl Mma {
    /// Multiplies in each subgroup, which consists of consecutive threads. Products of f16 and bf16 are exact in f32,
    /// so the result differs from that of hardware only by the order of the summation, which here is that of k.
    fn run(&self, threads: &mut [Thread], shared: &[Vec<u8>], reg: usize) -> Result<(), String> {
        let size = self.layout.threads();
        let (elems, [n, k]) = (self.registers.len(), [Side::N, Side::K].map(|side| self.layout.len(side)));
        if !threads.len().is_multiple_of(size) {
            return Err(format!("{} threads multiply in subgroups of {size}", threads.len()));
        }
        for group in threads.chunks_mut(size) {
            let mut all = [Vec::new(), Vec::new()];
            for (number, t) in group.iter().enumerate() {
                if t.aligned(&self.thread)?.get().get(0).as_i64() != number as i64 {
                    return Err(format!("thread {number} of a subgroup has another number"));
                }
                for ((list, registers), memory) in all.iter_mut().zip(&self.factors).zip(&self.memory) {
                    for o in registers.iter().filter(|_| memory.is_none()) {
                        let x = alu(Op::Cast, self.dt, &[t.aligned(o)?.get()], &[self.sdt]);
                        list.push(x.ok_or_else(|| format!("{} to {} is no cast", self.sdt, self.dt))?);
                    }
                }
            }
            let [a, b] = all.map(Lanes::concat);
            if self.layout.in_memory() {
                self.multiply_from_memory(&a, group, shared, reg)?;
                continue;
            }
            for (number, t) in group.iter_mut().enumerate() {
                let coordinates: Vec<_> = self.registers.iter().map(|&r| self.coordinates(number, r)).collect();
                let mut sum = Lanes::splat(Scalar::from_i64(0, self.dt), self.dt, elems);
                for step in 0..k {
                    let x = coordinates.iter().enumerate().map(|(i, p)| self.slots[0][p.0 * k + step] * elems + i);
                    let y = coordinates.iter().enumerate().map(|(i, p)| self.slots[1][step * n + p.1] * elems + i);
                    sum = alu(Op::MulAdd, self.dt, &[&a.pick(x), &b.pick(y), &sum], &[self.dt; 3])
                        .ok_or_else(|| format!("products of {} are not defined", self.dt))?;
                }
                t.regs[reg] = Some(sum);
            }
        }
        Ok(())
    }

    /// Multiplies in one subgroup where the right factor lies in workgroup memory, and perhaps the left one; `held` has
    /// the left factor if it is in registers.
    fn multiply_from_memory(
        &self,
        held: &Lanes,
        group: &mut [Thread],
        shared: &[Vec<u8>],
        reg: usize,
    ) -> Result<(), String> {
        let (elems, k) = (self.registers.len(), self.layout.len(Side::K));
        let start = |t: &Thread, which: usize| {
            let at = self.memory[which].map(|_| t.aligned(&self.factors[which][0])).transpose()?;
            Ok::<_, String>(at.map_or(Vec::new(), |x| ints(x.get()).to_vec()))
        };
        let starts = [start(&group[0], 0)?, start(&group[0], 1)?];
        for t in group.iter() {
            if start(t, 0)? != starts[0] || start(t, 1)? != starts[1] {
                return Err("threads of a subgroup multiply different matrices".into());
            }
        }
        for (number, t) in group.iter_mut().enumerate() {
            let coordinates: Vec<_> = self.registers.iter().map(|&r| self.coordinates(number, r)).collect();
            let mut sum = Lanes::splat(Scalar::from_i64(0, self.dt), self.dt, elems);
            for step in 0..k {
                let read = |which: usize| {
                    let distribution = [&self.layout.a, &self.layout.b][which];
                    let Some(memory) = self.memory[which] else {
                        let x = coordinates.iter().enumerate().map(|(i, p)| self.slots[0][p.0 * k + step] * elems + i);
                        return Ok(held.pick(x));
                    };
                    let Place::Workgroup(array) = memory.place else {
                        return Err("matrices are in workgroup memory".to_string());
                    };
                    let at = coordinates.iter().enumerate().map(|(i, p)| {
                        let (side, base) = ([p.0, p.1][which], starts[which][i] as usize);
                        let along_k = distribution.contiguous_side() == Some(Side::K);
                        let (along, across) = if along_k { (step, side) } else { (side, step) };
                        distribution.swizzled_offset(base, along, across) as i64
                    });
                    let x = memory.read(&shared[array], &at.collect::<Vec<i64>>(), None)?;
                    alu(Op::Cast, self.dt, &[&x], &[memory.dt])
                        .ok_or_else(|| format!("{} to {} is no cast", memory.dt, self.dt))
                };
                let (a, b) = (read(0)?, read(1)?);
                sum = alu(Op::MulAdd, self.dt, &[&a, &b, &sum], &[self.dt; 3])
                    .ok_or_else(|| format!("products of {} are not defined", self.dt))?;
            }
            t.regs[reg] = Some(sum);
        }
        Ok(())
    }

    /// Row and column of the element of the product that a thread holds in a register.
    fn coordinates(&self, thread: usize, register: u32) -> (usize, usize) {
        let at = |side| self.layout.c.coordinate(side, thread, register as usize);
        (at(Side::M), at(Side::N))
    }
}

impl LoadMatrix {
    /// Loads in each subgroup of 32 threads: thread `8 i + j` supplies the address of row `j` of matrix `i`.
    fn run(&self, threads: &mut [Thread], shared: &[Vec<u8>], reg: usize) -> Result<(), String> {
        let Place::Workgroup(array) = self.mem.place else { return Err("matrices are in workgroup memory".into()) };
        for group in threads.chunks_mut(32) {
            let mut rows = Vec::with_capacity(group.len());
            for (number, t) in group.iter().enumerate() {
                if t.aligned(&self.thread)?.get().get(0).as_i64() != number as i64 {
                    return Err(format!("thread {number} of a subgroup has another number"));
                }
                rows.push(ints(t.aligned(&self.at)?.get()).to_vec());
            }
            if rows.len() != 32 {
                return Err(format!("{} threads load in a subgroup", rows.len()));
            }
            for (number, t) in group.iter_mut().enumerate() {
                let place = |(i, &register): (usize, &u32)| {
                    let (matrix, second) = (register as usize / 2, register as usize % 2);
                    let pair = 2 * (number % 4) + second;
                    let (row, column) = if self.transposed { (pair, number / 4) } else { (number / 4, pair) };
                    let start = rows[8 * matrix + row][i];
                    if start % 8 != 0 {
                        return Err(format!("a row of a matrix begins at element {start}, which is not aligned"));
                    }
                    Ok(start + column as i64)
                };
                let at = self.registers.iter().enumerate().map(place).collect::<Result<Vec<i64>, String>>()?;
                t.regs[reg] = Some(self.mem.read(&shared[array], &at, None)?);
            }
        }
        Ok(())
    }
}

enum Aligned<'a> {
    Borrowed(&'a Lanes),
    Gathered(Lanes),
}

impl Aligned<'_> {
    fn get(&self) -> &Lanes {
        match self {
            Aligned::Borrowed(v) => v,
            Aligned::Gathered(v) => v,
        }
    }
}

impl Memory {
    fn bytes<'a>(self, args: &'a [Vec<u8>], shared: &'a [Vec<u8>], private: &'a [Vec<u8>]) -> &'a [u8] {
        match self.place {
            Place::Arg(i) => &args[i],
            Place::Workgroup(i) => &shared[i],
            Place::Private(i) => &private[i],
        }
    }

    fn bytes_mut<'a>(
        self,
        args: &'a mut [Vec<u8>],
        shared: &'a mut [Vec<u8>],
        private: &'a mut [Vec<u8>],
    ) -> &'a mut [u8] {
        match self.place {
            Place::Arg(i) => &mut args[i],
            Place::Workgroup(i) => &mut shared[i],
            Place::Private(i) => &mut private[i],
        }
    }

    /// The byte position of element `at`; an error if it is out of bounds.
    fn position(self, at: i64) -> Result<usize, String> {
        match usize::try_from(at) {
            Ok(i) if i < self.len => Ok(i * self.dt.size()),
            _ => Err(format!("element {at} is outside storage of {} elements", self.len)),
        }
    }

    /// Reads the elements at `at`; where the gate is false, memory is not accessed and the value is zero.
    fn read(self, bytes: &[u8], at: &[i64], gate: Option<&[i64]>) -> Result<Lanes, String> {
        let size = self.dt.size();
        let mut raw = vec![0; at.len() * size];
        for (i, (&at, out)) in at.iter().zip(raw.chunks_exact_mut(size)).enumerate() {
            if gate.is_none_or(|g| g[i] != 0) {
                let p = self.position(at)?;
                out.copy_from_slice(&bytes[p..p + size]);
            }
        }
        let n = at.len();
        Ok(Lanes::read(self.dt, &raw, Positions { runs: &[Run { start: 0, stride: 1, n }], n }))
    }

    fn write(self, bytes: &mut [u8], at: &[i64], raw: &[u8], gate: Option<&[i64]>) -> Result<(), String> {
        let size = self.dt.size();
        for (i, (&at, v)) in at.iter().zip(raw.chunks_exact(size)).enumerate() {
            if gate.is_none_or(|g| g[i] != 0) {
                let p = self.position(at)?;
                bytes[p..p + size].copy_from_slice(v);
            }
        }
        Ok(())
    }
}

fn ints(v: &Lanes) -> &[i64] {
    match v {
        Lanes::Int(v) => v,
        _ => &[],
    }
}
