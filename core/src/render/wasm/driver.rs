//! The driver module: walks a table of steps in memory, so that a plan costs one call from outside, and lets threads share
//! them. It exports
//! - `begin(steps, n)`: a job of steps for one thread, the last job being done or given up.
//! - `go(scratch, end)`: goes on with it; 0 once it is done. Where `end` is finite it comes back when the clock has passed that, and
//!   so that it can, it runs a launch in slices: a 32nd of the grid at first, then more, as long as they take less than [`SHORT_MS`].
//!
//! and on shared memory
//! - `post(steps, n, threads, scratch, sync)`: begins a job of steps, the last job being done; runs no kernel that threads
//!   share.
//! - `help(thread, service, scratch, sync, end)`: takes part in the job until it is done. Thread 0 (a page's own) never sleeps; it
//!   comes back when there has been nothing to do for a while, so that it can look whether the others still live, and when the clock
//!   has passed `end`.
//! - `serve(thread, service, scratch, sync)`: takes part in all jobs until the service ends.
//! - `dismiss(sync)`: ends the service, no job being under way; the next one has the next number, and the first is 0.
//! - `fail(sync)`: for a thread that `post`, `help` or `serve` threw an exception to: gives up its place in the job, which ends
//!   with the step under way. The thread may go on with `help` or `serve`.
//! - `failed(sync)`: not 0 if that happened. Jobs end at once from then on.
//! - `state(sync)`: 0 if no job is under way; else how far its step is.
//! - `left(sync)`: blocks of its step that no thread has taken.
//! - `stop(sync)`: threads take no more slices of the job, which ends when those under way are done.
//!
//! The clock is the imported function `e.n`, in milliseconds.
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
    BlockType, CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, InstructionSink, Module, RefType, TableType, TypeSection, ValType,
};

/// Bytes of a step.
pub const STEP_WORDS: usize = 5;
const STEP_BYTES: usize = STEP_WORDS * 4;
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
/// Milliseconds: slices between two looks at the clock become larger until they take so long.
const SHORT_MS: f64 = 1.0;

/// The clock is looked at after every eighth short step. A power of two.
const LOOK_EVERY: i32 = 8;

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
    /// Not 0 once the job is to end.
    const STOPPED: u64 = 32;
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
    /// Table entry to call, or [`DriverStep::COPY`]; with [`DriverStep::SERIAL`] one thread runs it, whole; [`DriverStep::SHORT`] beside that
    /// says that it takes so little time that the clock need not be looked at after each of them.
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
    /// Bit of a step of one thread that takes little time.
    pub const SHORT: u32 = 1 << 30;
    /// The kernel number of a copy.
    pub const COPY: u32 = u32::MAX;

    /// As the driver reads it.
    pub fn words(self) -> [u32; STEP_WORDS] {
        [self.kernel, self.bufs, self.vars, self.grid, self.first]
    }
}

/// Functions by number; the clock is imported.
const NOW: u32 = 0;
const WHOLE: u32 = 1;
const BEGIN: u32 = 2;
const GO: u32 = 3;
const SHARE: u32 = 4;
const SLICES: u32 = 5;
const PUBLISH: u32 = 6;
const ADVANCE: u32 = 7;
const WATCH: u32 = 8;
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

/// Types of functions besides those that take n words, which are type n, and type 0, that of kernels.
const WORD_TO_WORD: u32 = 6;
const THREE_TO_WORD: u32 = 7;
const UNTIL: u32 = 8;
const HELP_UNTIL: u32 = 9;
const CLOCK: u32 = 10;

/// Globals by number: the address of scratch memory is imported.
const SCRATCH: u32 = 0;
/// When this thread comes back.
const UNTIL_MS: u32 = 1;
/// The job of one thread: its next step, where its steps end, the next block of a step that has begun, and how many blocks the next slice has,
/// 0 if none has begun.
const NEXT: u32 = 2;
const LAST_STEP: u32 = 3;
const BLOCK: u32 = 4;
const SLICE: u32 = 5;

/// The driver module.
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
    code.function(&whole()).function(&begin()).function(&go());
    if shared {
        for (function, params) in [
            (share(), 2),
            (slices(), THREE_TO_WORD),
            (publish(), 2),
            (advance(), 2),
            (watch(), 3),
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
    // what one thread runs whole, and everything where nobody waits
    w.local_get(step).i32_load(at(0, 4)).i32_const(0).i32_lt_s();
    w.local_get(end).f64_const(f64::INFINITY.into()).f64_eq().global_get(SLICE).i32_eqz().i32_and().i32_or();
    w.if_(BlockType::Empty).local_get(step).call(WHOLE);
    next(&mut w);
    w.else_();
    {
        w.global_get(SLICE).i32_eqz().if_(BlockType::Empty);
        w.local_get(step).i32_load(at(16, 4)).global_set(BLOCK);
        blocks(&mut w, step);
        w.i32_const(LAST).i32_div_u().local_tee(n).i32_const(1).local_get(n).select().global_set(SLICE).end();
        w.local_get(step).i32_load(at(12, 4)).global_get(BLOCK).i32_sub().local_set(left);
        // n = min(slice, left), and all that is left where nobody waits any more
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
        // most short steps are followed by the next one without a look at the clock; the number of a copy has all bits, so one is added first
        w.local_get(step).i32_load(at(0, 4)).i32_const(1).i32_add().i32_const(DriverStep::SHORT as i32).i32_and();
        w.if_(BlockType::Empty);
        w.local_get(short).i32_const(1).i32_add().local_tee(short).i32_const(LOOK_EVERY - 1).i32_and().br_if(2);
        w.end();
        // a slice that took little time is followed by one twice as large
        w.local_get(then).call(NOW).local_tee(then).f64_const((-SHORT_MS).into()).f64_add().f64_gt();
        w.if_(BlockType::Empty).global_get(SLICE).i32_const(1).i32_shl().global_set(SLICE).end();
    }
    w.end();
    w.br(0).end().unreachable().end();
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
/// the others', from their ends. Gives 1 where thread 0 leaves some because its time is over.
fn slices() -> Function {
    let (step, thread, sync) = (0, 1, 2);
    let (i, word, least, lo, hi, n, threads, waits, now) = (3, 4, 5, 6, 7, 8, 9, 10, 11);
    let mut f = Function::new([(8, ValType::I32), (1, ValType::I64)]);
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
    w.local_get(sync).i32_atomic_load(at(Sync::STOPPED, 4)).br_if(3);
    w.local_get(thread).i32_eqz().global_get(UNTIL_MS).f64_const(f64::INFINITY.into()).f64_lt().i32_and();
    w.local_tee(waits).if_(BlockType::Empty);
    w.call(NOW).global_get(UNTIL_MS).f64_ge().if_(BlockType::Empty).i32_const(1).return_().end().end();
    // n = min(hi - lo, max(least, a part of it)); as little as may be between two looks at the clock
    w.i32_const(0)
        .local_get(hi)
        .local_get(lo)
        .i32_sub()
        .local_tee(n)
        .i32_const(PART)
        .i32_const(2)
        .local_get(i)
        .i32_eqz()
        .select();
    w.i32_div_u().local_get(waits).select().local_tee(n);
    w.local_get(least).local_get(n).local_get(least).i32_gt_u().select().local_tee(n);
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
    w.local_get(i).i32_const(1).i32_add().local_set(i).br(0).end().end().i32_const(0).end();
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

/// `advance(step, sync)`: opens the next step from this one on that threads share, or ends the job, at once if a kernel failed or the
/// job is to stop.
/// What only one thread runs is run here.
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

/// `help(thread, service, scratch, sync, end) -> number`: that of the state in which there was nothing to do any more, or had been
/// nothing for a while, or time was over.
fn help() -> Function {
    let (thread, service, scratch, sync, end, state) = (0, 1, 2, 3, 4, 5);
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
    w.local_get(scratch).global_set(SCRATCH).local_get(end).global_set(UNTIL_MS);
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
    // some of the step is left, so leaving does not close it; should the others do that meanwhile, this thread closes it when it is back
    w.if_(BlockType::Empty).local_get(sync).i64_const(1).i64_atomic_rmw_sub(at(Sync::STATE, 8)).drop().br(2).end();
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
    w.local_get(thread).local_get(service).local_get(scratch).local_get(sync);
    w.f64_const(f64::INFINITY.into()).call(HELP).local_set(number);
    w.local_get(sync).i32_atomic_load(at(Sync::SERVICE, 4)).local_get(service).i32_ne().br_if(1);
    w.local_get(number).local_get(thread).local_get(sync).call(WATCH).br(0).end().end().end();
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
    w.local_get(word).i32_const(LINE as i32).i32_add().local_set(word);
    w.local_get(t).i32_const(1).i32_add().local_set(t).br(0).end().end().local_get(sum).end();
    f
}
