//! The driver module: walks a table of steps in memory, so that a plan costs one call from outside, and keeps threads in
//! step. It exports
//! - `run(steps, n, thread, threads, scratch, sync)`: runs this thread's part of every step. Bit 31 of `thread` says that
//!   the thread may sleep (a page's main thread may not).
//! - `post(steps, n, threads, sync)` (shared memory only): gives a job to all threads that serve. The caller runs its own
//!   part with `run`. With [`LEAVE`] steps they leave `serve` instead.
//! - `serve(sync, thread, scratch, last) -> last` (shared memory only): waits for jobs newer than `last` and runs them,
//!   until the job is to leave. Every thread that serves takes part in every job: one that skipped a job could read the
//!   words of the next twice.
//!
//! `sync` is the address of [`SYNC_BYTES`] zeroed bytes at a multiple of 8, words as in [`Sync`]. A step is four words, see
//! [`DriverStep`].
//!
//! Each thread has a share of a step's grid and takes slices from its beginning; one that is done helps the others from the
//! ends of theirs. So a thread has the same part of the grid in every kernel, whose data lie in its core's caches, and a core
//! that is slower or comes late does less.

use super::func::at;
use super::link::imports;
use wasm_encoder::{
    BlockType, CodeSection, ExportKind, ExportSection, Function, FunctionSection, InstructionSink, Module, TypeSection,
    ValType,
};

/// Bytes of a step.
pub const STEP_BYTES: usize = 16;
/// Most threads of a device.
pub const MAX_THREADS: usize = 64;
/// Bytes of the block that threads share: a line for the words, one for each thread's share.
pub const SYNC_BYTES: usize = LINE * (1 + MAX_THREADS);
/// Bytes of a cache line.
const LINE: usize = 64;
/// Number of steps in a job that means: leave `serve`.
pub const LEAVE: u32 = u32::MAX;
/// Turns of a waiting loop before a thread that may sleep does: about 0.3 ms, longer than what a page does between two runs.
/// Waking a thread takes as long as a small kernel.
const SPIN: i32 = 300_000;
/// A thread takes this part of what is left of its share at a time, so that what others can help with ends with small slices.
const PART: i32 = 4;
/// No slice is a smaller part of a share.
const LAST: i32 = 32;

/// Byte offsets of the words that threads share.
#[derive(Debug)]
pub struct Sync;

impl Sync {
    /// Threads that have arrived at the barrier.
    pub const ARRIVED: u64 = 0;
    /// Barriers passed so far.
    pub const GENERATION: u64 = 4;
    /// Jobs posted so far.
    pub const JOB: u64 = 8;
    /// Address of the job's steps.
    pub const STEPS: u64 = 12;
    /// Number of the job's steps, or [`LEAVE`].
    pub const COUNT: u64 = 16;
    /// Threads that take part in the job.
    pub const THREADS: u64 = 20;
    /// Threads inside `serve`.
    pub const SERVING: u64 = 24;
    /// What is left of the first thread's share: its beginning and, in the upper half, its end. The others' follow, a line
    /// each.
    const SHARES: u64 = LINE as u64;
}

/// One step as the driver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverStep {
    /// Table entry to call, or [`DriverStep::COPY`]; with [`DriverStep::SERIAL`] only thread 0 runs it.
    pub kernel: u32,
    /// Address of the buffer table; of the destination of a copy.
    pub bufs: u32,
    /// Address of the launch scalars; of the source of a copy.
    pub vars: u32,
    /// Grid; bytes of a copy.
    pub grid: u32,
}

impl DriverStep {
    /// Bit of a step that is not worth waking others for.
    pub const SERIAL: u32 = 1 << 31;
    /// The kernel number of a copy.
    pub const COPY: u32 = u32::MAX;

    /// As the driver reads it.
    pub fn to_bytes(self) -> [u8; STEP_BYTES] {
        let mut out = [0; STEP_BYTES];
        for (i, v) in [self.kernel, self.bufs, self.vars, self.grid].into_iter().enumerate() {
            out[i * 4..i * 4 + 4].copy_from_slice(&v.to_le_bytes());
        }
        out
    }
}

const RUN: u32 = 0;
const BARRIER: u32 = 1;
const SERVE: u32 = 2;
const SHARE: u32 = 3;
const SLICES: u32 = 4;
const POST: u32 = 5;

/// The driver module.
pub fn driver(shared: bool, max_pages: u32) -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], []);
    types.ty().function([ValType::I32; 6], []);
    types.ty().function([ValType::I32; 3], []);
    types.ty().function([ValType::I32; 4], [ValType::I32]);
    types.ty().function([ValType::I32; 5], []);
    let mut functions = FunctionSection::new();
    functions.function(1);
    let mut exports = ExportSection::new();
    exports.export("run", ExportKind::Func, RUN);
    let mut code = CodeSection::new();
    code.function(&run(shared));
    if shared {
        functions.function(0).function(3).function(2).function(4).function(0);
        exports.export("serve", ExportKind::Func, SERVE).export("post", ExportKind::Func, POST);
        code.function(&barrier()).function(&serve()).function(&share()).function(&slices()).function(&post());
    }
    let mut module = Module::new();
    module.section(&types).section(&imports(shared, max_pages)).section(&functions).section(&exports).section(&code);
    module.finish()
}

fn run(shared: bool) -> Function {
    let (steps, n, thread, threads, scratch, sync) = (0, 1, 2, 3, 4, 5);
    let (end, kernel, grid, sleeps, open) = (6, 7, 8, 9, 10);
    let mut f = Function::new([(5, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(scratch).global_set(0);
    w.local_get(thread).i32_const(31).i32_shr_u().local_set(sleeps);
    w.local_get(thread).i32_const(i32::MAX).i32_and().local_set(thread);
    w.local_get(steps).local_get(n).i32_const(STEP_BYTES as i32).i32_mul().i32_add().local_set(end);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(steps).local_get(end).i32_ge_u().br_if(1);
    w.local_get(steps).i32_load(at(0, 4)).local_set(kernel);
    w.local_get(steps).i32_load(at(12, 4)).local_set(grid);
    // `open`: steps since the last barrier were serial, so that another serial one may follow at once
    w.local_get(kernel).i32_const(0).i32_lt_s().if_(BlockType::Empty);
    {
        if shared {
            wait_unless(&mut w, open, |w| _ = w.i32_const(2).i32_eq(), (sync, threads, sleeps, grid));
            w.i32_const(1).local_set(open);
        }
        w.local_get(thread).i32_eqz().if_(BlockType::Empty);
        w.local_get(kernel).i32_const(DriverStep::COPY as i32).i32_eq().if_(BlockType::Empty);
        w.local_get(steps).i32_load(at(4, 4)).local_get(steps).i32_load(at(8, 4)).local_get(grid).memory_copy(0, 0);
        w.else_();
        w.local_get(steps).i32_load(at(4, 4)).local_get(steps).i32_load(at(8, 4)).i32_const(0).local_get(grid);
        w.local_get(kernel).i32_const(i32::MAX).i32_and().call_indirect(0, 0);
        w.end().end();
    }
    w.else_();
    {
        if shared {
            wait_unless(&mut w, open, |w| _ = w.i32_const(0).i32_ne(), (sync, threads, sleeps, grid));
            w.i32_const(2).local_set(open);
        }
        let whole = |w: &mut InstructionSink<'_>| {
            w.local_get(steps).i32_load(at(4, 4)).local_get(steps).i32_load(at(8, 4)).i32_const(0).local_get(grid);
            w.local_get(kernel).call_indirect(0, 0);
        };
        if shared {
            w.local_get(threads).i32_const(1).i32_gt_u().if_(BlockType::Empty);
            w.local_get(steps).local_get(grid).local_get(thread).local_get(threads).local_get(sync).call(SLICES);
            w.else_();
            whole(&mut w);
            w.end();
        } else {
            whole(&mut w);
        }
    }
    w.end();
    w.local_get(steps).i32_const(STEP_BYTES as i32).i32_add().local_set(steps).br(0).end().end();
    if shared {
        w.local_get(threads).i32_const(1).i32_gt_u().if_(BlockType::Empty);
        w.local_get(sync).local_get(threads).local_get(sleeps).i32_const(0).call(BARRIER).end();
    }
    w.end();
    f
}

/// A barrier if there are several threads and `when(open)`.
fn wait_unless(
    w: &mut InstructionSink<'_>,
    open: u32,
    when: impl Fn(&mut InstructionSink<'_>),
    (sync, threads, sleeps, grid): (u32, u32, u32, u32),
) {
    w.local_get(threads).i32_const(1).i32_gt_u().local_get(open);
    when(w);
    w.i32_and().if_(BlockType::Empty);
    w.local_get(sync).local_get(threads).local_get(sleeps).local_get(grid).call(BARRIER).end();
}

/// `barrier(sync, threads, sleeps, grid)`: the last to arrive clears the count, shares out the grid of the next step and
/// starts the next generation; the others watch the generation.
fn barrier() -> Function {
    let (sync, threads, sleeps, grid, generation, turns) = (0, 1, 2, 3, 4, 5);
    let mut f = Function::new([(2, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(sync).i32_atomic_load(at(Sync::GENERATION, 4)).local_set(generation);
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(Sync::ARRIVED, 4)).i32_const(1).i32_add();
    w.local_get(threads).i32_eq().if_(BlockType::Empty);
    w.local_get(grid).local_get(threads).local_get(sync).call(SHARE);
    w.local_get(sync).i32_const(0).i32_atomic_store(at(Sync::ARRIVED, 4));
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(Sync::GENERATION, 4)).drop();
    w.local_get(sync).i32_const(-1).memory_atomic_notify(at(Sync::GENERATION, 4)).drop();
    w.return_().end();
    watch(&mut w, sync, Sync::GENERATION, generation, turns, |w| _ = w.local_get(sleeps));
    w.end();
    f
}

/// Until the word differs from `old`: spins, then sleeps if `sleeps` gives 1.
fn watch(
    w: &mut InstructionSink<'_>,
    sync: u32,
    word: u64,
    old: u32,
    turns: u32,
    sleeps: impl Fn(&mut InstructionSink<'_>),
) {
    w.i32_const(0).local_set(turns);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(sync).i32_atomic_load(at(word, 4)).local_get(old).i32_ne().br_if(1);
    w.local_get(turns).i32_const(1).i32_add().local_tee(turns).i32_const(SPIN).i32_gt_u();
    sleeps(w);
    w.i32_and().if_(BlockType::Empty);
    w.local_get(sync).local_get(old).i64_const(-1).memory_atomic_wait32(at(word, 4)).drop().end();
    w.br(0).end().end();
}

fn serve() -> Function {
    let (sync, thread, scratch, last, turns) = (0, 1, 2, 3, 4);
    let mut f = Function::new([(1, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(Sync::SERVING, 4)).drop();
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    watch(&mut w, sync, Sync::JOB, last, turns, |w| _ = w.i32_const(1));
    w.local_get(sync).i32_atomic_load(at(Sync::JOB, 4)).local_set(last);
    w.local_get(sync).i32_atomic_load(at(Sync::COUNT, 4)).i32_const(LEAVE as i32).i32_eq().br_if(1);
    w.local_get(sync).i32_atomic_load(at(Sync::STEPS, 4)).local_get(sync).i32_atomic_load(at(Sync::COUNT, 4));
    w.local_get(thread).i32_const(i32::MIN).i32_or().local_get(sync).i32_atomic_load(at(Sync::THREADS, 4));
    w.local_get(scratch).local_get(sync).call(RUN).br(0).end().end();
    w.local_get(sync).i32_const(1).i32_atomic_rmw_sub(at(Sync::SERVING, 4)).drop();
    w.local_get(last).end();
    f
}

/// `share(grid, threads, sync)`: thread t of m gets grid*t/m .. grid*(t+1)/m.
fn share() -> Function {
    let (grid, threads, sync, t) = (0, 1, 2, 3);
    let mut f = Function::new([(1, ValType::I32)]);
    let mut w = f.instructions();
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(t).local_get(threads).i32_ge_u().br_if(1);
    w.local_get(sync).local_get(t).i32_const(LINE as i32).i32_mul().i32_add();
    for add in [0, 1] {
        w.local_get(grid).i64_extend_i32_u().local_get(t).i32_const(add).i32_add().i64_extend_i32_u().i64_mul();
        w.local_get(threads).i64_extend_i32_u().i64_div_u();
    }
    w.i64_const(32).i64_shl().i64_or().i64_store(at(Sync::SHARES, 8));
    w.local_get(t).i32_const(1).i32_add().local_set(t).br(0).end().end().end();
    f
}

/// `slices(step, grid, thread, threads, sync)`: runs slices until none is left: first of the thread's own share, from its
/// beginning, then of the others', from their ends.
fn slices() -> Function {
    let (step, grid, thread, threads, sync) = (0, 1, 2, 3, 4);
    let (i, word, least, lo, hi, n, now) = (5, 6, 7, 8, 9, 10, 11);
    let mut f = Function::new([(6, ValType::I32), (1, ValType::I64)]);
    let mut w = f.instructions();
    w.local_get(grid).local_get(threads).i32_div_u().i32_const(LAST).i32_div_u().local_tee(least).i32_eqz();
    w.if_(BlockType::Empty).i32_const(1).local_set(least).end();
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

/// `post(steps, n, threads, sync)`. The first step's grid is shared out here, since no barrier comes before it.
fn post() -> Function {
    let (steps, n, threads, sync) = (0, 1, 2, 3);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.local_get(sync).local_get(steps).i32_store(at(Sync::STEPS, 4));
    w.local_get(sync).local_get(n).i32_store(at(Sync::COUNT, 4));
    w.local_get(sync).local_get(threads).i32_store(at(Sync::THREADS, 4));
    w.local_get(n).i32_const(LEAVE as i32).i32_ne().if_(BlockType::Empty);
    w.local_get(steps).i32_load(at(12, 4)).local_get(threads).local_get(sync).call(SHARE).end();
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(Sync::JOB, 4)).drop();
    w.local_get(sync).i32_const(-1).memory_atomic_notify(at(Sync::JOB, 4)).drop().end();
    f
}
