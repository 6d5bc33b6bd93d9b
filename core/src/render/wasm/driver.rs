//! The driver module, which runs the launches and copies of a plan. A *job* is a table of *steps* in memory, one launch
//! or copy each, so that a plan costs one call from outside; on shared memory several threads share each step by work
//! stealing. The grid of a launch is counted in blocks. The module exports
//! - `begin(steps, n)`: starts a job of n steps for one thread, after the previous job is done or abandoned.
//! - `go(scratch, end)`: continues that job; returns 0 once it is done. If `end` is finite, it returns 1 as soon as the
//!   clock has passed `end`. To be able to, it runs a launch in slices: a 32nd of the grid first, then slices of twice
//!   the size whenever one took less than [`TARGET_SLICE_MS`].
//!
//! and on shared memory
//! - `post(steps, n, threads, scratch, sync)`: starts a job, after the previous job is done. It runs leading steps that
//!   only one thread runs, but no kernel that threads share.
//! - `help(thread, service, scratch, sync, end)`: takes part in the job until it is done. Thread 0 (the page's main
//!   thread) never sleeps; it returns when there has been nothing to do for a while, so that the caller can check
//!   whether the other threads are still alive, and when the clock has passed `end`.
//! - `serve(thread, service, scratch, sync)`: takes part in all jobs until the service ends.
//! - `dismiss(sync)`: ends the service while no job is running. Services are numbered from 0.
//! - `fail(sync)`: must be called by a thread whose call of `post`, `help` or `serve` threw an exception: the thread
//!   leaves the job, which ends with the current step. The thread may call `help` or `serve` again.
//! - `failed(sync)`: not 0 if that happened. All later jobs end at once.
//! - `state(sync)`: 0 if no job is running, else the state of its current step.
//! - `left(sync)`: number of blocks of the current step that no thread has taken.
//! - `stop(sync)`: threads take no more slices of the job, which ends when the running slices are done.
//!
//! The clock is the imported function `e.n`, in milliseconds.
//!
//! `sync` is the address of [`SYNC_BYTES`] zeroed bytes, a multiple of 8, with the words of `Sync`. A step is five
//! words, see [`DriverStep`].
//!
//! A step is over when all blocks of its grid are taken and every thread that entered it has left. So no thread waits
//! for one that sleeps or comes late (which the main thread may do), and a job goes on while the page does something
//! else. The thread that leaves last closes the step, runs the following steps that only one thread runs, and opens the
//! next shared one. The state word has a number that every change of step increments, and a thread enters a step by a
//! compare-and-exchange of the whole word, so what it read about the step stays true while it is inside.
//!
//! Each thread has a share of a step's grid and takes slices from the beginning of it; a thread that is done takes
//! slices from the ends of the others' shares. So a thread computes the same part of the grid in every kernel, whose
//! data are in its core's caches, and a core that is slower or comes late does less.

use super::func::at;
use super::link::imports;
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, InstructionSink, Module, RefType, TableType, TypeSection, ValType,
};

/// Number of 32-bit words of a step.
pub const STEP_WORDS: usize = 5;
const STEP_BYTES: usize = STEP_WORDS * 4;
/// The most threads that a device may have.
pub const MAX_THREADS: usize = 64;
/// Bytes of the memory block by which threads synchronise: one cache line for the words of `Sync`, and one for each
/// thread's share.
pub const SYNC_BYTES: usize = CACHE_LINE_BYTES * (1 + MAX_THREADS);
/// Bytes of a cache line.
const CACHE_LINE_BYTES: usize = 64;
/// Iterations that a thread spins before it sleeps (if it may): about 0.3 ms, which is longer than a page takes between
/// two runs. Waking a thread takes as long as a small kernel.
const SPIN_ITERATIONS: i32 = 300_000;
/// A thread takes one part in so many of what is left of its own share at a time. So slices are small towards the end
/// of a share, where other threads can help.
const OWN_SLICE_DIVISOR: i32 = 4;
/// The smallest slice is one part in so many of a thread's share, but at least one block.
const MIN_SLICE_DIVISOR: i32 = 32;
/// Milliseconds that a slice should take: slices between two reads of the clock are doubled until one takes that long.
const TARGET_SLICE_MS: f64 = 1.0;

/// The clock is read only after every so many steps marked [`DriverStep::SHORT`]. A power of two.
const CLOCK_CHECK_INTERVAL: i32 = 8;

/// Byte offsets of the words that threads share.
struct Sync;

impl Sync {
    /// The state, a 64-bit word: the lower half is [`IDLE`], [`CLOSED`], or [`OPEN`] plus the number of threads inside
    /// the step; the upper half is a number that increases with every change of step.
    const STATE: u64 = 0;
    /// The upper half of the state by itself, on which threads wait.
    const NUMBER: u64 = 4;
    /// Address of the current step.
    const STEP: u64 = 8;
    /// Address after the last step of the job.
    const END: u64 = 12;
    /// Number of threads that have a share.
    const THREADS: u64 = 16;
    /// Number of the current service.
    const SERVICE: u64 = 20;
    /// Number of threads that sleep or are about to.
    const SLEEPING: u64 = 24;
    /// Not 0 once a kernel has failed.
    const FAILED: u64 = 28;
    /// Not 0 once the job has been told to end.
    const STOPPED: u64 = 32;
    /// The blocks left of the first thread's share, a 64-bit word: the first block in the lower half, the block after
    /// the last in the upper half. Those of the other threads follow, each in its own cache line.
    const SHARES: u64 = CACHE_LINE_BYTES as u64;
}

/// There is no step.
const IDLE: i32 = 0;
/// The step is over, and one thread is about to open the next.
const CLOSED: i32 = 1;
/// There is a step, and no thread is inside; each thread that enters adds one.
const OPEN: i32 = 2;

/// One step as the driver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverStep {
    /// The kernel's index in the function table, or [`DriverStep::COPY`]. With the bit [`DriverStep::SERIAL`] one
    /// thread runs the whole step; the bit [`DriverStep::SHORT`] beside it says that the step takes so little time that
    /// the clock need not be read after each of them.
    pub kernel: u32,
    /// Address of the buffer table; for a copy, of the destination.
    pub bufs: u32,
    /// Address of the launch scalars; for a copy, of the source.
    pub vars: u32,
    /// The block after the last to compute; for a copy, its number of bytes.
    pub grid: u32,
    /// The first block to compute: a launch may be cut into several steps.
    pub first: u32,
}

impl DriverStep {
    /// The bit of a step that is too small to be shared by threads.
    pub const SERIAL: u32 = 1 << 31;
    /// The bit of a serial step that takes little time.
    pub const SHORT: u32 = 1 << 30;
    /// The kernel number of a copy.
    pub const COPY: u32 = u32::MAX;

    /// The step as the words that the driver reads.
    pub fn words(self) -> [u32; STEP_WORDS] {
        [self.kernel, self.bufs, self.vars, self.grid, self.first]
    }
}

/// The indices of the module's functions, the first of which is the imported clock.
const NOW: u32 = 0;
const RUN_STEP: u32 = 1;
const BEGIN: u32 = 2;
const GO: u32 = 3;
const SHARE: u32 = 4;
const SLICES: u32 = 5;
const PUBLISH: u32 = 6;
const ADVANCE: u32 = 7;
const WAIT_FOR_CHANGE: u32 = 8;
const HELP: u32 = 9;
const SERVE: u32 = 10;
const POST: u32 = 11;
const DISMISS: u32 = 12;
const LEAVE: u32 = 13;
const FAIL: u32 = 14;
const FAILED: u32 = 15;
const STATE: u32 = 16;
const STOP: u32 = 17;
const LEFT: u32 = 18;

/// The indices of function types. Type 0 is that of kernels, types 1 to 5 take that many words and return nothing, and
/// these follow.
const WORD_TO_WORD: u32 = 6;
const THREE_TO_WORD: u32 = 7;
const UNTIL: u32 = 8;
const HELP_UNTIL: u32 = 9;
const CLOCK: u32 = 10;

/// The indices of the globals. The first is imported: the address of this thread's scratch memory.
const SCRATCH: u32 = 0;
/// The time at which `help` is to return, in milliseconds.
const UNTIL_MS: u32 = 1;
/// The state of a job for one thread: the address of its next step, the address after its last step, the next block of
/// a step that has been started, and the number of blocks of the next slice (0 if no step has been started).
const NEXT: u32 = 2;
const LAST_STEP: u32 = 3;
const BLOCK: u32 = 4;
const SLICE: u32 = 5;

/// The driver module as bytes. `shared` says whether memory is shared between threads, and `max_pages` is its maximum
/// size in pages.
pub fn driver(shared: bool, max_pages: u32) -> Vec<u8> {
    use ValType::{F64, I32};
    let mut types = TypeSection::new();
    types.ty().function([I32; 4], []);
    for n in 1..=5 {
        types.ty().function(vec![I32; n], []);
    }
    types.ty().function([I32], [I32]);
    types.ty().function([I32; 3], [I32]);
    types.ty().function([I32, F64], [I32]);
    types.ty().function([I32, I32, I32, I32, F64], [I32]);
    types.ty().function([], [F64]);
    let mut functions = FunctionSection::new();
    functions.function(1).function(2).function(UNTIL);
    let mut exports = ExportSection::new();
    exports.export("begin", ExportKind::Func, BEGIN).export("go", ExportKind::Func, GO);
    let mut code = CodeSection::new();
    code.function(&run_step()).function(&begin()).function(&go());
    if shared {
        for (function, params) in [
            (share(), 2),
            (slices(), THREE_TO_WORD),
            (publish(), 2),
            (advance(), 2),
            (wait_for_change(), 3),
            (help(), HELP_UNTIL),
            (serve(), 4),
            (post(), 5),
            (dismiss(), 1),
            (leave(), WORD_TO_WORD),
            (fail(), 1),
            (failed(), WORD_TO_WORD),
            (state(), WORD_TO_WORD),
            (stop(), 1),
            (left(), WORD_TO_WORD),
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
            ("stop", STOP),
            ("left", LEFT),
        ];
        list.iter().for_each(|(name, f)| _ = exports.export(name, ExportKind::Func, *f));
    }
    let table = TableType { element_type: RefType::FUNCREF, table64: false, minimum: 0, maximum: None, shared: false };
    let mut imports = imports(shared, max_pages);
    imports.import("e", "t", EntityType::Table(table));
    imports.import("e", "n", EntityType::Function(CLOCK));
    let mut globals = GlobalSection::new();
    let mutable = |val_type| GlobalType { val_type, mutable: true, shared: false };
    globals.global(mutable(F64), &ConstExpr::f64_const(f64::INFINITY.into()));
    for _ in NEXT..=SLICE {
        globals.global(mutable(I32), &ConstExpr::i32_const(0));
    }
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&globals).section(&exports).section(&code);
    module.finish()
}

/// `run_step(step)`: runs a step completely, be it a launch or a copy.
fn run_step() -> Function {
    let (step, kernel) = (0, 1);
    let mut f = Function::new([(1, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(step).i32_load(at(0, 4)).local_tee(kernel).i32_const(DriverStep::COPY as i32).i32_eq();
    w.if_(BlockType::Empty);
    w.local_get(step).i32_load(at(4, 4)).local_get(step).i32_load(at(8, 4)).local_get(step).i32_load(at(12, 4));
    w.memory_copy(0, 0).else_();
    w.local_get(step).i32_load(at(4, 4)).local_get(step).i32_load(at(8, 4)).local_get(step).i32_load(at(16, 4));
    let entry = !(DriverStep::SERIAL | DriverStep::SHORT) as i32;
    w.local_get(step).i32_load(at(12, 4)).local_get(kernel).i32_const(entry).i32_and().call_indirect(0, 0);
    w.end().end();
    f
}

fn begin() -> Function {
    let (steps, n) = (0, 1);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.local_get(steps).global_set(NEXT).i32_const(0).global_set(SLICE);
    w.local_get(steps).local_get(n).i32_const(STEP_BYTES as i32).i32_mul().i32_add().global_set(LAST_STEP).end();
    f
}

fn go() -> Function {
    let (scratch, end, step, n, left, short, then) = (0, 1, 2, 3, 4, 5, 6);
    let mut f = Function::new([(4, ValType::I32), (1, ValType::F64)]);
    let mut w = f.instructions();
    let next = |w: &mut InstructionSink<'_>| {
        w.local_get(step).i32_const(STEP_BYTES as i32).i32_add().global_set(NEXT);
    };
    w.local_get(scratch).global_set(SCRATCH);
    w.local_get(end).f64_const(f64::INFINITY.into()).f64_lt().if_(BlockType::Empty).call(NOW).local_set(then).end();
    w.loop_(BlockType::Empty);
    w.global_get(NEXT)
        .local_tee(step)
        .global_get(LAST_STEP)
        .i32_eq()
        .if_(BlockType::Empty)
        .i32_const(0)
        .return_()
        .end();
    w.local_get(then).local_get(end).f64_ge().if_(BlockType::Empty).i32_const(1).return_().end();
    // a step runs whole if it is serial, or if there is no deadline and no slice of it has run
    w.local_get(step).i32_load(at(0, 4)).i32_const(0).i32_lt_s();
    w.local_get(end).f64_const(f64::INFINITY.into()).f64_eq().global_get(SLICE).i32_eqz().i32_and().i32_or();
    w.if_(BlockType::Empty).local_get(step).call(RUN_STEP);
    next(&mut w);
    w.else_();
    {
        w.global_get(SLICE).i32_eqz().if_(BlockType::Empty);
        w.local_get(step).i32_load(at(16, 4)).global_set(BLOCK);
        blocks(&mut w, step);
        w.i32_const(MIN_SLICE_DIVISOR).i32_div_u().local_tee(n).i32_const(1).local_get(n).select();
        w.global_set(SLICE).end();
        w.local_get(step).i32_load(at(12, 4)).global_get(BLOCK).i32_sub().local_set(left);
        // n = min(slice, left) if there is a deadline, else all that is left
        w.global_get(SLICE).local_get(left);
        w.global_get(SLICE)
            .local_get(left)
            .i32_lt_u()
            .local_get(end)
            .f64_const(f64::INFINITY.into())
            .f64_lt()
            .i32_and();
        w.select().local_set(n);
        w.local_get(step).i32_load(at(4, 4)).local_get(step).i32_load(at(8, 4));
        w.global_get(BLOCK).global_get(BLOCK).local_get(n).i32_add();
        w.local_get(step).i32_load(at(0, 4)).call_indirect(0, 0);
        w.global_get(BLOCK).local_get(n).i32_add().global_set(BLOCK);
        w.local_get(n).local_get(left).i32_eq().if_(BlockType::Empty).i32_const(0).global_set(SLICE);
        next(&mut w);
        w.end();
    }
    w.end();
    w.local_get(end).f64_const(f64::INFINITY.into()).f64_lt().if_(BlockType::Empty);
    {
        // after most short steps the next one follows without reading the clock; a copy's number has all bits set, so
        // that adding one clears the bit that is tested
        w.local_get(step).i32_load(at(0, 4)).i32_const(1).i32_add().i32_const(DriverStep::SHORT as i32).i32_and();
        w.if_(BlockType::Empty);
        w.local_get(short).i32_const(1).i32_add().local_tee(short);
        w.i32_const(CLOCK_CHECK_INTERVAL - 1).i32_and().br_if(2);
        w.end();
        // if the slice took less than TARGET_SLICE_MS, the next one has twice the size
        w.local_get(then).call(NOW).local_tee(then).f64_const((-TARGET_SLICE_MS).into()).f64_add().f64_gt();
        w.if_(BlockType::Empty).global_get(SLICE).i32_const(1).i32_shl().global_set(SLICE).end();
    }
    w.end();
    w.br(0).end().unreachable().end();
    f
}

/// `share(step, sync)`: sets the shares of a step of n blocks: thread t of m gets blocks n*t/m .. n*(t+1)/m.
fn share() -> Function {
    let (step, sync, t, threads) = (0, 1, 2, 3);
    let mut f = Function::new([(2, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(sync).i32_load(at(Sync::THREADS, 4)).local_set(threads);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(t).local_get(threads).i32_ge_u().br_if(1);
    w.local_get(sync).local_get(t).i32_const(CACHE_LINE_BYTES as i32).i32_mul().i32_add();
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

/// Pushes the number of blocks of a step.
fn blocks(w: &mut InstructionSink<'_>, step: u32) {
    w.local_get(step).i32_load(at(12, 4)).local_get(step).i32_load(at(16, 4)).i32_sub();
}

/// `slices(step, thread, sync)`: runs slices until no block is left: first of the thread's own share, from its
/// beginning, then of the other threads' shares, from their ends. Returns 1 if thread 0 stopped early because its
/// deadline has passed, else 0.
fn slices() -> Function {
    let (step, thread, sync) = (0, 1, 2);
    let (i, word, least, lo, hi, n, threads, waits, now) = (3, 4, 5, 6, 7, 8, 9, 10, 11);
    let mut f = Function::new([(8, ValType::I32), (1, ValType::I64)]);
    let mut w = f.instructions();
    w.local_get(sync).i32_load(at(Sync::THREADS, 4)).local_set(threads);
    blocks(&mut w, step);
    w.local_get(threads).i32_div_u().i32_const(MIN_SLICE_DIVISOR).i32_div_u();
    w.local_tee(least).i32_eqz().if_(BlockType::Empty).i32_const(1).local_set(least).end();
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(i).local_get(threads).i32_ge_u().br_if(1);
    w.local_get(thread).local_get(i).i32_add().local_get(threads).i32_rem_u();
    w.i32_const(CACHE_LINE_BYTES as i32).i32_mul().local_get(sync).i32_add().local_set(word);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(word).i64_atomic_load(at(Sync::SHARES, 8)).local_tee(now).i32_wrap_i64().local_set(lo);
    w.local_get(now).i64_const(32).i64_shr_u().i32_wrap_i64().local_set(hi);
    w.local_get(lo).local_get(hi).i32_ge_u().br_if(1);
    w.local_get(sync).i32_atomic_load(at(Sync::STOPPED, 4)).br_if(3);
    w.local_get(thread).i32_eqz().global_get(UNTIL_MS).f64_const(f64::INFINITY.into()).f64_lt().i32_and();
    w.local_tee(waits).if_(BlockType::Empty);
    w.call(NOW).global_get(UNTIL_MS).f64_ge().if_(BlockType::Empty).i32_const(1).return_().end().end();
    // n = min(hi - lo, max(least, part of hi - lo)); thread 0 with a deadline takes `least`, to read the clock often
    w.i32_const(0)
        .local_get(hi)
        .local_get(lo)
        .i32_sub()
        .local_tee(n)
        .i32_const(OWN_SLICE_DIVISOR)
        .i32_const(2)
        .local_get(i)
        .i32_eqz()
        .select();
    w.i32_div_u().local_get(waits).select().local_tee(n);
    w.local_get(least).local_get(n).local_get(least).i32_gt_u().select().local_tee(n);
    w.local_get(hi).local_get(lo).i32_sub().local_get(n).local_get(hi).local_get(lo).i32_sub().i32_lt_u().select();
    w.local_set(n);
    // the share without the slice: its beginning moves for the thread's own share, its end for another's
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
    w.local_get(i).i32_const(1).i32_add().local_set(i).br(0).end().end().i32_const(0).end();
    f
}

/// `publish(state, sync)`: increments the number, sets the state and wakes sleeping threads. Only the thread that
/// closed the step may call it.
fn publish() -> Function {
    let (state, sync) = (0, 1);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.local_get(sync);
    w.local_get(sync).i32_atomic_load(at(Sync::NUMBER, 4)).i32_const(1).i32_add().i64_extend_i32_u();
    w.i64_const(32).i64_shl().local_get(state).i64_extend_i32_u().i64_or();
    w.i64_atomic_store(at(Sync::STATE, 8));
    // a thread that goes to sleep first counts itself and then reads the number, so either it sees the new number or it
    // is seen here
    w.local_get(sync).i32_atomic_load(at(Sync::SLEEPING, 4)).if_(BlockType::Empty);
    w.local_get(sync).i32_const(-1).memory_atomic_notify(at(Sync::NUMBER, 4)).drop().end().end();
    f
}

/// `advance(step, sync)`: runs the serial steps from this one on, and opens the next step that threads share. It ends
/// the job if there is none, or at once if a kernel has failed or the job is to stop.
fn advance() -> Function {
    let (step, sync) = (0, 1);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.loop_(BlockType::Empty);
    w.local_get(step).local_get(sync).i32_load(at(Sync::END, 4)).i32_ne();
    w.local_get(sync).i32_atomic_load(at(Sync::FAILED, 4)).local_get(sync).i32_atomic_load(at(Sync::STOPPED, 4));
    w.i32_or().i32_eqz().i32_and().if_(BlockType::Empty);
    {
        w.local_get(step).i32_load(at(0, 4)).i32_const(0).i32_lt_s().if_(BlockType::Empty);
        w.local_get(step).call(RUN_STEP);
        w.local_get(step).i32_const(STEP_BYTES as i32).i32_add().local_set(step).br(2).end();
        w.local_get(step).local_get(sync).call(SHARE);
        w.local_get(sync).local_get(step).i32_store(at(Sync::STEP, 4));
        w.i32_const(OPEN).local_get(sync).call(PUBLISH).return_();
    }
    w.end().end();
    // a job without shared steps was never opened, so no thread has to be told that it is over
    w.local_get(sync).i32_atomic_load(at(Sync::STATE, 4)).i32_const(IDLE).i32_ne().if_(BlockType::Empty);
    w.i32_const(IDLE).local_get(sync).call(PUBLISH).end().end();
    f
}

/// `wait_for_change(number, thread, sync)`: waits until the number of the state differs from `number`. After
/// [`SPIN_ITERATIONS`] iterations worker threads sleep, and thread 0 returns.
fn wait_for_change() -> Function {
    let (number, thread, sync, turns) = (0, 1, 2, 3);
    let mut f = Function::new([(1, ValType::I32)]);
    let mut w = f.instructions();
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(sync).i32_atomic_load(at(Sync::NUMBER, 4)).local_get(number).i32_ne().br_if(1);
    w.local_get(turns).i32_const(1).i32_add().local_tee(turns);
    w.i32_const(SPIN_ITERATIONS).i32_gt_u().if_(BlockType::Empty);
    w.local_get(thread).i32_eqz().br_if(2);
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(Sync::SLEEPING, 4)).drop();
    w.local_get(sync).local_get(number).i64_const(-1).memory_atomic_wait32(at(Sync::NUMBER, 4)).drop();
    w.local_get(sync).i32_const(1).i32_atomic_rmw_sub(at(Sync::SLEEPING, 4)).drop().end();
    w.br(0).end().end().end();
    f
}

/// `help(thread, service, scratch, sync, end) -> number`: takes part in the job. Returns the number of the state in
/// which the job or the service was over, or nothing had been left to do for a while, or the deadline had passed.
fn help() -> Function {
    let (thread, service, scratch, sync, end, state) = (0, 1, 2, 3, 4, 5);
    let number = |w: &mut InstructionSink<'_>| _ = w.local_get(state).i64_const(32).i64_shr_u().i32_wrap_i64();
    let wait = |w: &mut InstructionSink<'_>| {
        number(w);
        w.local_get(thread).local_get(sync).call(WAIT_FOR_CHANGE);
        // has thread 0 given up while the number is still the same?
        w.local_get(thread).i32_eqz().local_get(sync).i32_atomic_load(at(Sync::NUMBER, 4));
        number(w);
        w.i32_eq().i32_and();
    };
    let mut f = Function::new([(1, ValType::I64)]);
    let mut w = f.instructions();
    w.local_get(scratch).global_set(SCRATCH).local_get(end).global_set(UNTIL_MS);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(sync).i64_atomic_load(at(Sync::STATE, 8)).local_set(state);
    // the service is read after the state, so that steps which are opened after the end of this service are never
    // entered
    w.local_get(sync).i32_atomic_load(at(Sync::SERVICE, 4)).local_get(service).i32_ne().br_if(1);
    w.local_get(state).i32_wrap_i64().i32_const(IDLE).i32_eq().br_if(1);
    w.local_get(state).i32_wrap_i64().i32_const(CLOSED).i32_eq().if_(BlockType::Empty);
    wait(&mut w);
    w.br_if(2).br(1).end();
    w.local_get(sync).local_get(state).local_get(state).i64_const(1).i64_add();
    w.i64_atomic_rmw_cmpxchg(at(Sync::STATE, 8)).local_get(state).i64_ne().br_if(0);
    w.local_get(sync).i32_load(at(Sync::STEP, 4)).local_get(thread).local_get(sync).call(SLICES);
    // thread 0 has no time left: it leaves without closing the step, some of whose blocks were left; if the others
    // finish these meanwhile, thread 0 closes the step when it comes back
    w.if_(BlockType::Empty).local_get(sync).i64_const(1).i64_atomic_rmw_sub(at(Sync::STATE, 8)).drop().br(2).end();
    w.local_get(sync).call(LEAVE).br_if(0);
    wait(&mut w);
    w.br_if(1).br(0).end().end();
    number(&mut w);
    w.end();
    f
}

/// `leave(sync) -> closed`: leaves the step. The last thread to leave closes it and advances, unless another one has
/// entered meanwhile.
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

/// `fail(sync)`: a thread whose kernel threw an exception was inside a step, or had closed a step and was advancing, or
/// was advancing to the first step.
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
    w.local_get(thread).local_get(service).local_get(scratch).local_get(sync);
    w.f64_const(f64::INFINITY.into()).call(HELP).local_set(number);
    w.local_get(sync).i32_atomic_load(at(Sync::SERVICE, 4)).local_get(service).i32_ne().br_if(1);
    w.local_get(number).local_get(thread).local_get(sync).call(WAIT_FOR_CHANGE).br(0).end().end().end();
    f
}

fn post() -> Function {
    let (steps, n, threads, scratch, sync) = (0, 1, 2, 3, 4);
    let mut f = Function::new([]);
    let mut w = f.instructions();
    w.local_get(scratch).global_set(SCRATCH);
    w.local_get(sync).i32_const(0).i32_atomic_store(at(Sync::STOPPED, 4));
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

fn stop() -> Function {
    let mut f = Function::new([]);
    f.instructions().local_get(0).i32_const(1).i32_atomic_store(at(Sync::STOPPED, 4)).end();
    f
}

fn left() -> Function {
    let (sync, word, t, sum, share) = (0, 1, 2, 3, 4);
    let mut f = Function::new([(3, ValType::I32), (1, ValType::I64)]);
    let mut w = f.instructions();
    w.local_get(sync).local_set(word);
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(t).local_get(sync).i32_load(at(Sync::THREADS, 4)).i32_ge_u().br_if(1);
    w.local_get(word).i64_atomic_load(at(Sync::SHARES, 8)).local_set(share);
    w.local_get(sum).local_get(share).i64_const(32).i64_shr_u().i32_wrap_i64().i32_add();
    w.local_get(share).i32_wrap_i64().i32_sub().local_set(sum);
    w.local_get(word).i32_const(CACHE_LINE_BYTES as i32).i32_add().local_set(word);
    w.local_get(t).i32_const(1).i32_add().local_set(t).br(0).end().end().local_get(sum).end();
    f
}
