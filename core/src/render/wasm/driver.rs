//! The driver module: walks a table of steps in memory, so that a plan costs one call from outside, and keeps threads in
//! step. It exports
//! - `run(steps, n, thread, threads, scratch, sync)`: runs this thread's slice of every step. Bit 31 of `thread` says that
//!   the thread may sleep (a page's main thread may not).
//! - `serve(sync, thread, scratch, last) -> last` (shared memory only): waits for jobs newer than `last` and runs them,
//!   until the job is to leave. Every thread that serves takes part in every job: one that skipped a job could read the
//!   words of the next twice.
//!
//! `sync` is the address of [`SYNC_BYTES`] zeroed bytes, words as in [`Sync`]. A step is four words, see [`DriverStep`].

use super::func::at;
use super::link::imports;
use wasm_encoder::{
    BlockType, CodeSection, ExportKind, ExportSection, Function, FunctionSection, InstructionSink, Module, TypeSection,
    ValType,
};

/// Bytes of a step.
pub const STEP_BYTES: usize = 16;
/// Bytes of the block that threads share.
pub const SYNC_BYTES: usize = 64;
/// Number of steps in a job that means: leave `serve`.
pub const LEAVE: u32 = u32::MAX;
/// Turns of a waiting loop before a thread that may sleep does.
const SPIN: i32 = 20_000;

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

/// The driver module.
pub fn driver(shared: bool, max_pages: u32) -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], []);
    types.ty().function([ValType::I32; 6], []);
    types.ty().function([ValType::I32; 3], []);
    types.ty().function([ValType::I32; 4], [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(1);
    let mut exports = ExportSection::new();
    exports.export("run", ExportKind::Func, RUN);
    let mut code = CodeSection::new();
    code.function(&run(shared));
    if shared {
        functions.function(2).function(3);
        exports.export("serve", ExportKind::Func, SERVE);
        code.function(&barrier()).function(&serve());
    }
    let mut module = Module::new();
    module.section(&types).section(&imports(shared, max_pages)).section(&functions).section(&exports).section(&code);
    module.finish()
}

fn run(shared: bool) -> Function {
    let (steps, n, thread, threads, scratch, sync) = (0, 1, 2, 3, 4, 5);
    let (end, kernel, grid, lo, hi, sleeps, open) = (6, 7, 8, 9, 10, 11, 12);
    let mut f = Function::new([(7, ValType::I32)]);
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
            wait_unless(&mut w, open, |w| _ = w.i32_const(2).i32_eq(), (sync, threads, sleeps));
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
            wait_unless(&mut w, open, |w| _ = w.i32_const(0).i32_ne(), (sync, threads, sleeps));
            w.i32_const(2).local_set(open);
        }
        // thread t of m takes grid*t/m .. grid*(t+1)/m
        for (add, out) in [(0, lo), (1, hi)] {
            w.local_get(grid).i64_extend_i32_u();
            w.local_get(thread).i32_const(add).i32_add().i64_extend_i32_u().i64_mul();
            w.local_get(threads).i64_extend_i32_u().i64_div_u().i32_wrap_i64().local_set(out);
        }
        w.local_get(lo).local_get(hi).i32_lt_u().if_(BlockType::Empty);
        w.local_get(steps).i32_load(at(4, 4)).local_get(steps).i32_load(at(8, 4)).local_get(lo).local_get(hi);
        w.local_get(kernel).call_indirect(0, 0).end();
    }
    w.end();
    w.local_get(steps).i32_const(STEP_BYTES as i32).i32_add().local_set(steps).br(0).end().end();
    if shared {
        w.local_get(threads).i32_const(1).i32_gt_u().if_(BlockType::Empty);
        w.local_get(sync).local_get(threads).local_get(sleeps).call(BARRIER).end();
    }
    w.end();
    f
}

/// A barrier if there are several threads and `when(open)`.
fn wait_unless(
    w: &mut InstructionSink<'_>,
    open: u32,
    when: impl Fn(&mut InstructionSink<'_>),
    (sync, threads, sleeps): (u32, u32, u32),
) {
    w.local_get(threads).i32_const(1).i32_gt_u().local_get(open);
    when(w);
    w.i32_and().if_(BlockType::Empty).local_get(sync).local_get(threads).local_get(sleeps).call(BARRIER).end();
}

/// `barrier(sync, threads, sleeps)`: the last to arrive clears the count and starts the next generation; the others watch
/// the generation.
fn barrier() -> Function {
    let (sync, threads, sleeps, generation, turns) = (0, 1, 2, 3, 4);
    let mut f = Function::new([(2, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(sync).i32_atomic_load(at(Sync::GENERATION, 4)).local_set(generation);
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(Sync::ARRIVED, 4)).i32_const(1).i32_add();
    w.local_get(threads).i32_eq().if_(BlockType::Empty);
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
