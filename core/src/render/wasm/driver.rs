//! The driver module: walks a table of steps in memory, so that a plan costs one call from outside, and lets threads share
//! them. It exports
//! - `run(steps, n, scratch)`: runs steps on one thread.
//!
//! and on shared memory
//! - `post(steps, n, threads, scratch, sync)`: begins a job of steps, the last job being done; runs no kernel that threads
//!   share.
//! - `help(thread, service, scratch, sync)`: takes part in the job until it is done. Thread 0 (a page's own) never sleeps; it
//!   comes back when there has been nothing to do for a while, so that it can look whether the others still live.
//! - `serve(thread, service, scratch, sync)`: takes part in all jobs until the service ends.
//! - `dismiss(sync)`: ends the service, no job being under way; the next one has the next number, and the first is 0.
//! - `fail(sync)`: for a thread that `post`, `help` or `serve` threw an exception to: gives up its place in the job, which ends
//!   with the step under way. The thread may go on with `help` or `serve`.
//! - `failed(sync)`: not 0 if that happened. Jobs end at once from then on.
//! - `state(sync)`: 0 if no job is under way; else how far its step is.
//!
//! `sync` is the address of [`SYNC_BYTES`] zeroed bytes at a multiple of 8, words as in `Sync`. A step is five words, see
//! [`DriverStep`].
//!
//! A step is over when its grid is used up and every thread that came has left. So nobody waits for a thread that sleeps or
//! comes late, the page's own among them, and a job goes on while the page does something else. Who leaves last closes the
//! step, runs what only one thread runs, and opens the next. The state has a number that each step increments: a thread enters
//! by a compare-and-exchange of the whole state, so what it was told of a step is true while it is inside.
//!
//! Each thread has a share of a step's grid and takes slices from its beginning; one that is done helps the others from the
//! ends of theirs. So a thread has the same part of the grid in every kernel, whose data lie in its core's caches, and a core
//! that is slower or comes late does less.

use super::func::at;
use super::link::imports;
use wasm_encoder::{
    BlockType, CodeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection, InstructionSink, Module,
    RefType, TableType, TypeSection, ValType,
};

/// Bytes of a step.
pub const STEP_BYTES: usize = 20;
/// Most threads of a device.
pub const MAX_THREADS: usize = 64;
/// Bytes of the block that threads share: a line for the words, one for each thread's share.
pub const SYNC_BYTES: usize = LINE * (1 + MAX_THREADS);
/// Bytes of a cache line.
const LINE: usize = 64;
/// Turns of a waiting loop before a thread that may sleep does: about 0.3 ms, longer than what a page does between two runs.
/// Waking a thread takes as long as a small kernel.
const SPIN: i32 = 300_000;
/// A thread takes this part of what is left of its share at a time, so that what others can help with ends with small slices.
const PART: i32 = 4;
/// No slice is a smaller part of a share.
const LAST: i32 = 32;

/// Byte offsets of the words that threads share.
struct Sync;

impl Sync {
    /// [`IDLE`], [`CLOSED`], or [`OPEN`] and how many threads are inside; the number of the step in the upper half.
    const STATE: u64 = 0;
    /// That number alone, which threads wait for.
    const NUMBER: u64 = 4;
    /// Address of the step.
    const STEP: u64 = 8;
    /// Where the job's steps end.
    const END: u64 = 12;
    /// Threads that have a share.
    const THREADS: u64 = 16;
    /// Number of the service.
    const SERVICE: u64 = 20;
    /// Threads that sleep or are about to.
    const SLEEPING: u64 = 24;
    /// Not 0 once a kernel failed.
    const FAILED: u64 = 28;
    /// What is left of the first thread's share: its beginning and, in the upper half, its end. The others' follow, a line
    /// each.
    const SHARES: u64 = LINE as u64;
}

/// There is no step.
const IDLE: i32 = 0;
/// The step is over, and somebody is about to open the next.
const CLOSED: i32 = 1;
/// There is a step, and nobody is inside.
const OPEN: i32 = 2;

/// One step as the driver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverStep {
    /// Table entry to call, or [`DriverStep::COPY`]; with [`DriverStep::SERIAL`] one thread runs it.
    pub kernel: u32,
    /// Address of the buffer table; of the destination of a copy.
    pub bufs: u32,
    /// Address of the launch scalars; of the source of a copy.
    pub vars: u32,
    /// Grid; bytes of a copy.
    pub grid: u32,
    /// Where it begins in the grid: a launch may be cut into several steps.
    pub first: u32,
}

impl DriverStep {
    /// Bit of a step that is not worth sharing.
    pub const SERIAL: u32 = 1 << 31;
    /// The kernel number of a copy.
    pub const COPY: u32 = u32::MAX;

    /// As the driver reads it.
    pub fn to_bytes(self) -> [u8; STEP_BYTES] {
        let mut out = [0; STEP_BYTES];
        for (i, v) in [self.kernel, self.bufs, self.vars, self.grid, self.first].into_iter().enumerate() {
            out[i * 4..i * 4 + 4].copy_from_slice(&v.to_le_bytes());
        }
        out
    }
}

const WHOLE: u32 = 0;
const RUN: u32 = 1;
const SHARE: u32 = 2;
const SLICES: u32 = 3;
const PUBLISH: u32 = 4;
const ADVANCE: u32 = 5;
const WATCH: u32 = 6;
const HELP: u32 = 7;
const SERVE: u32 = 8;
const POST: u32 = 9;
const DISMISS: u32 = 10;
const LEAVE: u32 = 11;
const FAIL: u32 = 12;
const FAILED: u32 = 13;
const STATE: u32 = 14;

/// The driver module.
pub fn driver(shared: bool, max_pages: u32) -> Vec<u8> {
    let mut types = TypeSection::new();
    // type 0 is that of kernels, type n takes n words, the last one gives one
    types.ty().function([ValType::I32; 4], []);
    for n in 1..=5 {
        types.ty().function(vec![ValType::I32; n], []);
    }
    types.ty().function([ValType::I32; 4], [ValType::I32]);
    types.ty().function([ValType::I32], [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(1).function(3);
    let mut exports = ExportSection::new();
    exports.export("run", ExportKind::Func, RUN);
    let mut code = CodeSection::new();
    code.function(&whole()).function(&run());
    if shared {
        for (function, params) in [
            (share(), 2),
            (slices(), 3),
            (publish(), 2),
            (advance(), 2),
            (watch(), 3),
            (help(), 6),
            (serve(), 4),
            (post(), 5),
            (dismiss(), 1),
            (leave(), 7),
            (fail(), 1),
            (failed(), 7),
            (state(), 7),
        ] {
            functions.function(params);
            code.function(&function);
        }
        let list = [
            ("help", HELP),
            ("serve", SERVE),
            ("post", POST),
            ("dismiss", DISMISS),
            ("fail", FAIL),
            ("failed", FAILED),
            ("state", STATE),
        ];
        list.iter().for_each(|(name, f)| _ = exports.export(name, ExportKind::Func, *f));
    }
    let table = TableType { element_type: RefType::FUNCREF, table64: false, minimum: 0, maximum: None, shared: false };
    let mut imports = imports(shared, max_pages);
    imports.import("e", "t", EntityType::Table(table));
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&exports).section(&code);
    module.finish()
}

/// `whole(step)`: all of a step.
fn whole() -> Function {
    let (step, kernel) = (0, 1);
    let mut f = Function::new([(1, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(step).i32_load(at(0, 4)).local_tee(kernel).i32_const(DriverStep::COPY as i32).i32_eq();
    w.if_(BlockType::Empty);
    w.local_get(step).i32_load(at(4, 4)).local_get(step).i32_load(at(8, 4)).local_get(step).i32_load(at(12, 4));
    w.memory_copy(0, 0).else_();
    w.local_get(step).i32_load(at(4, 4)).local_get(step).i32_load(at(8, 4)).local_get(step).i32_load(at(16, 4));
    w.local_get(step).i32_load(at(12, 4)).local_get(kernel).i32_const(i32::MAX).i32_and().call_indirect(0, 0);
    w.end().end();
    f
}

fn run() -> Function {
    let (steps, n, scratch) = (0, 1, 2);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.local_get(scratch).global_set(0);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(n).i32_eqz().br_if(1);
    w.local_get(steps).call(WHOLE);
    w.local_get(steps).i32_const(STEP_BYTES as i32).i32_add().local_set(steps);
    w.local_get(n).i32_const(1).i32_sub().local_set(n).br(0).end().end().end();
    f
}

/// `share(step, sync)`: of n blocks in all, thread t of m gets n*t/m .. n*(t+1)/m.
fn share() -> Function {
    let (step, sync, t, threads) = (0, 1, 2, 3);
    let mut f = Function::new([(2, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(sync).i32_load(at(Sync::THREADS, 4)).local_set(threads);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(t).local_get(threads).i32_ge_u().br_if(1);
    w.local_get(sync).local_get(t).i32_const(LINE as i32).i32_mul().i32_add();
    for add in [0, 1] {
        blocks(&mut w, step);
        w.i64_extend_i32_u().local_get(t).i32_const(add).i32_add().i64_extend_i32_u().i64_mul();
        w.local_get(threads).i64_extend_i32_u().i64_div_u();
        w.local_get(step).i32_load(at(16, 4)).i64_extend_i32_u().i64_add();
    }
    w.i64_const(32).i64_shl().i64_or().i64_store(at(Sync::SHARES, 8));
    w.local_get(t).i32_const(1).i32_add().local_set(t).br(0).end().end().end();
    f
}

/// The number of a step's blocks.
fn blocks(w: &mut InstructionSink<'_>, step: u32) {
    w.local_get(step).i32_load(at(12, 4)).local_get(step).i32_load(at(16, 4)).i32_sub();
}

/// `slices(step, thread, sync)`: runs slices until none is left: first of the thread's own share, from its beginning, then of
/// the others', from their ends.
fn slices() -> Function {
    let (step, thread, sync) = (0, 1, 2);
    let (i, word, least, lo, hi, n, threads, now) = (3, 4, 5, 6, 7, 8, 9, 10);
    let mut f = Function::new([(7, ValType::I32), (1, ValType::I64)]);
    let mut w = f.instructions();
    w.local_get(sync).i32_load(at(Sync::THREADS, 4)).local_set(threads);
    blocks(&mut w, step);
    w.local_get(threads).i32_div_u().i32_const(LAST).i32_div_u();
    w.local_tee(least).i32_eqz().if_(BlockType::Empty).i32_const(1).local_set(least).end();
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(i).local_get(threads).i32_ge_u().br_if(1);
    w.local_get(thread).local_get(i).i32_add().local_get(threads).i32_rem_u();
    w.i32_const(LINE as i32).i32_mul().local_get(sync).i32_add().local_set(word);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(word).i64_atomic_load(at(Sync::SHARES, 8)).local_tee(now).i32_wrap_i64().local_set(lo);
    w.local_get(now).i64_const(32).i64_shr_u().i32_wrap_i64().local_set(hi);
    w.local_get(lo).local_get(hi).i32_ge_u().br_if(1);
    // n = min(hi - lo, max(least, a part of it))
    w.local_get(hi).local_get(lo).i32_sub().local_tee(n).i32_const(PART).i32_const(2).local_get(i).i32_eqz().select();
    w.i32_div_u().local_tee(n).local_get(least).local_get(n).local_get(least).i32_gt_u().select().local_tee(n);
    w.local_get(hi).local_get(lo).i32_sub().local_get(n).local_get(hi).local_get(lo).i32_sub().i32_lt_u().select();
    w.local_set(n);
    // what the share becomes
    w.local_get(word).local_get(now);
    w.local_get(now).local_get(n).i64_extend_i32_u().i64_add();
    w.local_get(now).local_get(n).i64_extend_i32_u().i64_const(32).i64_shl().i64_sub();
    w.local_get(i).i32_eqz().select();
    w.i64_atomic_rmw_cmpxchg(at(Sync::SHARES, 8)).local_get(now).i64_ne().br_if(0);
    w.local_get(step).i32_load(at(4, 4)).local_get(step).i32_load(at(8, 4));
    w.local_get(lo).local_get(hi).local_get(n).i32_sub().local_get(i).i32_eqz().select().local_tee(lo);
    w.local_get(lo).local_get(n).i32_add();
    w.local_get(step).i32_load(at(0, 4)).call_indirect(0, 0);
    w.br(0).end().end();
    w.local_get(i).i32_const(1).i32_add().local_set(i).br(0).end().end().end();
    f
}

/// `publish(state, sync)`: the next number with this state. Only for who closed the step.
fn publish() -> Function {
    let (state, sync) = (0, 1);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.local_get(sync);
    w.local_get(sync).i32_atomic_load(at(Sync::NUMBER, 4)).i32_const(1).i32_add().i64_extend_i32_u();
    w.i64_const(32).i64_shl().local_get(state).i64_extend_i32_u().i64_or();
    w.i64_atomic_store(at(Sync::STATE, 8));
    // who goes to sleep counts itself first and looks at the number then: one of us sees the other
    w.local_get(sync).i32_atomic_load(at(Sync::SLEEPING, 4)).if_(BlockType::Empty);
    w.local_get(sync).i32_const(-1).memory_atomic_notify(at(Sync::NUMBER, 4)).drop().end().end();
    f
}

/// `advance(step, sync)`: opens the next step from this one on that threads share, or ends the job, at once if a kernel failed.
/// What only one thread runs is run here.
fn advance() -> Function {
    let (step, sync) = (0, 1);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.loop_(BlockType::Empty);
    w.local_get(step).local_get(sync).i32_load(at(Sync::END, 4)).i32_ne();
    w.local_get(sync).i32_atomic_load(at(Sync::FAILED, 4)).i32_eqz().i32_and().if_(BlockType::Empty);
    {
        w.local_get(step).i32_load(at(0, 4)).i32_const(0).i32_lt_s().if_(BlockType::Empty);
        w.local_get(step).call(WHOLE);
        w.local_get(step).i32_const(STEP_BYTES as i32).i32_add().local_set(step).br(2).end();
        w.local_get(step).local_get(sync).call(SHARE);
        w.local_get(sync).local_get(step).i32_store(at(Sync::STEP, 4));
        w.i32_const(OPEN).local_get(sync).call(PUBLISH).return_();
    }
    w.end().end();
    // a job that no thread could share was never opened: nobody needs to know of its end
    w.local_get(sync).i32_atomic_load(at(Sync::STATE, 4)).i32_const(IDLE).i32_ne().if_(BlockType::Empty);
    w.i32_const(IDLE).local_get(sync).call(PUBLISH).end().end();
    f
}

/// `watch(number, thread, sync)`: until the number is another one. Threads of their own sleep after a while, and thread 0 gives up.
fn watch() -> Function {
    let (number, thread, sync, turns) = (0, 1, 2, 3);
    let mut f = Function::new([(1, ValType::I32)]);
    let mut w = f.instructions();
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(sync).i32_atomic_load(at(Sync::NUMBER, 4)).local_get(number).i32_ne().br_if(1);
    w.local_get(turns).i32_const(1).i32_add().local_tee(turns).i32_const(SPIN).i32_gt_u().if_(BlockType::Empty);
    w.local_get(thread).i32_eqz().br_if(2);
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(Sync::SLEEPING, 4)).drop();
    w.local_get(sync).local_get(number).i64_const(-1).memory_atomic_wait32(at(Sync::NUMBER, 4)).drop();
    w.local_get(sync).i32_const(1).i32_atomic_rmw_sub(at(Sync::SLEEPING, 4)).drop().end();
    w.br(0).end().end().end();
    f
}

/// `help(thread, service, scratch, sync) -> number`: that of the state in which there was nothing to do any more, or had been
/// nothing for a while.
fn help() -> Function {
    let (thread, service, scratch, sync, state) = (0, 1, 2, 3, 4);
    let number = |w: &mut InstructionSink<'_>| _ = w.local_get(state).i64_const(32).i64_shr_u().i32_wrap_i64();
    let wait = |w: &mut InstructionSink<'_>| {
        number(w);
        w.local_get(thread).local_get(sync).call(WATCH);
        // did it give up?
        w.local_get(thread).i32_eqz().local_get(sync).i32_atomic_load(at(Sync::NUMBER, 4));
        number(w);
        w.i32_eq().i32_and();
    };
    let mut f = Function::new([(1, ValType::I64)]);
    let mut w = f.instructions();
    w.local_get(scratch).global_set(0);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(sync).i64_atomic_load(at(Sync::STATE, 8)).local_set(state);
    // after the state: steps that are opened after the end of this service are not entered
    w.local_get(sync).i32_atomic_load(at(Sync::SERVICE, 4)).local_get(service).i32_ne().br_if(1);
    w.local_get(state).i32_wrap_i64().i32_const(IDLE).i32_eq().br_if(1);
    w.local_get(state).i32_wrap_i64().i32_const(CLOSED).i32_eq().if_(BlockType::Empty);
    wait(&mut w);
    w.br_if(2).br(1).end();
    w.local_get(sync).local_get(state).local_get(state).i64_const(1).i64_add();
    w.i64_atomic_rmw_cmpxchg(at(Sync::STATE, 8)).local_get(state).i64_ne().br_if(0);
    w.local_get(sync).i32_load(at(Sync::STEP, 4)).local_get(thread).local_get(sync).call(SLICES);
    w.local_get(sync).call(LEAVE).br_if(0);
    wait(&mut w);
    w.br_if(1).br(0).end().end();
    number(&mut w);
    w.end();
    f
}

/// `leave(sync) -> closed`: out of the step. The last one closes it and advances, unless somebody came to have a look.
fn leave() -> Function {
    let (sync, state) = (0, 1);
    let mut f = Function::new([(1, ValType::I64)]);
    let mut w = f.instructions();
    w.local_get(sync).i64_const(1).i64_atomic_rmw_sub(at(Sync::STATE, 8)).i64_const(1).i64_sub().local_tee(state);
    w.i32_wrap_i64().i32_const(OPEN).i32_eq().if_(BlockType::Empty);
    {
        w.local_get(sync).local_get(state).local_get(state).i64_const((OPEN - CLOSED) as i64).i64_sub();
        w.i64_atomic_rmw_cmpxchg(at(Sync::STATE, 8)).local_get(state).i64_eq().if_(BlockType::Empty);
        w.local_get(sync).i32_load(at(Sync::STEP, 4)).i32_const(STEP_BYTES as i32).i32_add();
        w.local_get(sync).call(ADVANCE).i32_const(1).return_().end();
    }
    w.end().i32_const(0).end();
    f
}

/// A thread that fails is inside of a step, or closed it and advances, or advances to the first one.
fn fail() -> Function {
    let (sync, state) = (0, 1);
    let mut f = Function::new([(1, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(sync).i32_const(1).i32_atomic_store(at(Sync::FAILED, 4));
    w.local_get(sync).i32_atomic_load(at(Sync::STATE, 4)).local_tee(state).i32_const(CLOSED).i32_eq();
    w.if_(BlockType::Empty).i32_const(0).local_get(sync).call(ADVANCE).end();
    w.local_get(state).i32_const(CLOSED).i32_gt_u().if_(BlockType::Empty).local_get(sync).call(LEAVE).drop().end();
    w.end();
    f
}

fn failed() -> Function {
    let mut f = Function::new([]);
    f.instructions().local_get(0).i32_atomic_load(at(Sync::FAILED, 4)).end();
    f
}

fn state() -> Function {
    let mut f = Function::new([]);
    f.instructions().local_get(0).i32_atomic_load(at(Sync::STATE, 4)).end();
    f
}

fn serve() -> Function {
    let (thread, service, scratch, sync, number) = (0, 1, 2, 3, 4);
    let mut f = Function::new([(1, ValType::I32)]);
    let mut w = f.instructions();
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(thread).local_get(service).local_get(scratch).local_get(sync).call(HELP).local_set(number);
    w.local_get(sync).i32_atomic_load(at(Sync::SERVICE, 4)).local_get(service).i32_ne().br_if(1);
    w.local_get(number).local_get(thread).local_get(sync).call(WATCH).br(0).end().end().end();
    f
}

fn post() -> Function {
    let (steps, n, threads, scratch, sync) = (0, 1, 2, 3, 4);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.local_get(scratch).global_set(0);
    w.local_get(sync).local_get(threads).i32_store(at(Sync::THREADS, 4));
    w.local_get(sync).local_get(steps).local_get(n).i32_const(STEP_BYTES as i32).i32_mul().i32_add();
    w.i32_store(at(Sync::END, 4));
    w.local_get(steps).local_get(sync).call(ADVANCE).end();
    f
}

fn dismiss() -> Function {
    let sync = 0;
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(Sync::SERVICE, 4)).drop();
    w.i32_const(IDLE).local_get(sync).call(PUBLISH).end();
    f
}
