//! Kernel bodies -> one module: memory 0 is the import `e.m`, function `i` of the table is kernel `i`, and `run` walks a
//! table of steps in memory, so that a plan costs one call from outside.
//!
//! `run(steps, n, thread, threads, scratch, sync)`: `scratch` is the address of this thread's scratch memory, `sync` of two
//! zeroed words that all threads share. Each thread takes its slice of every grid; a barrier separates steps.
//! A step is four words: kernel, buffer table, launch scalars, grid; a kernel of [`DriverStep::COPY`] copies: destination,
//! source, bytes.

use super::Kernel;
use super::func::at;
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, GlobalSection, GlobalType, ImportSection, MemoryType, Module, RefType, TableSection, TableType,
    TypeSection, ValType,
};

/// Pages of 64 KiB that a memory can have.
pub const MAX_PAGES: u32 = 65536;
/// Bytes of a step.
pub const STEP_BYTES: usize = 16;
/// Turns of the barrier's loop before a thread that may sleep does.
const SPIN: i32 = 20_000;

/// One step as the driver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverStep {
    /// Function to call, or [`DriverStep::COPY`].
    pub kernel: u32,
    /// Address of the buffer table; of the destination of a copy.
    pub bufs: u32,
    /// Address of the launch scalars; of the source of a copy.
    pub vars: u32,
    /// Grid; bytes of a copy.
    pub grid: u32,
}

impl DriverStep {
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

/// Links kernels into a module that imports memory `e.m` and exports `run` and `k0`, `k1` ... `shared` says what kind of
/// memory it is; `max_pages` is the memory's maximum.
pub fn link(kernels: &[Kernel], shared: bool, max_pages: u32) -> Vec<u8> {
    let n = kernels.len() as u32;
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], []);
    types.ty().function([ValType::I32; 6], []);
    types.ty().function([ValType::I32; 3], []);

    let mut imports = ImportSection::new();
    let maximum = Some(max_pages as u64);
    let memory = MemoryType { minimum: 1, maximum, memory64: false, shared, page_size_log2: None };
    imports.import("e", "m", EntityType::Memory(memory));

    let mut functions = FunctionSection::new();
    for _ in kernels {
        functions.function(0);
    }
    functions.function(1).function(2);
    let (run, barrier) = (n, n + 1);

    let mut tables = TableSection::new();
    let table = TableType {
        element_type: RefType::FUNCREF,
        table64: false,
        minimum: n as u64,
        maximum: Some(n as u64),
        shared: false,
    };
    tables.table(table);

    let mut globals = GlobalSection::new();
    let mutable = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
    globals.global(mutable, &ConstExpr::i32_const(0));

    let mut exports = ExportSection::new();
    for i in 0..n {
        exports.export(&format!("k{i}"), ExportKind::Func, i);
    }
    exports.export("run", ExportKind::Func, run);

    let mut elements = ElementSection::new();
    let all: Vec<u32> = (0..n).collect();
    elements.active(None, &ConstExpr::i32_const(0), Elements::Functions(all.into()));

    let mut code = CodeSection::new();
    for k in kernels {
        code.raw(&k.body);
    }
    code.function(&run_body(shared, barrier)).function(&barrier_body(shared));

    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&tables).section(&globals);
    module.section(&exports).section(&elements).section(&code);
    module.finish()
}

/// `run(steps, n, thread, threads, scratch, sync)`. A thread number with bit 31 set may sleep in the barrier.
fn run_body(shared: bool, barrier: u32) -> Function {
    let (steps, n, thread, threads, scratch, sync) = (0, 1, 2, 3, 4, 5);
    let (end, grid, lo, hi, sleeps) = (6, 7, 8, 9, 10);
    let mut f = Function::new([(5, ValType::I32)]);
    let mut w = f.instructions();
    w.local_get(scratch).global_set(0);
    w.local_get(thread).i32_const(31).i32_shr_u().local_set(sleeps);
    w.local_get(thread).i32_const(i32::MAX).i32_and().local_set(thread);
    w.local_get(n).i32_eqz().if_(BlockType::Empty).return_().end();
    w.local_get(steps).local_get(n).i32_const(STEP_BYTES as i32).i32_mul().i32_add().local_set(end);
    w.loop_(BlockType::Empty);
    w.local_get(steps).i32_load(at(12, 4)).local_set(grid);
    w.local_get(steps).i32_load(at(0, 4)).i32_const(DriverStep::COPY as i32).i32_eq().if_(BlockType::Empty);
    {
        w.local_get(thread).i32_eqz().if_(BlockType::Empty);
        w.local_get(steps).i32_load(at(4, 4)).local_get(steps).i32_load(at(8, 4)).local_get(grid);
        w.memory_copy(0, 0).end();
    }
    w.else_();
    {
        // thread t of m takes grid*t/m .. grid*(t+1)/m
        for (add, out) in [(0, lo), (1, hi)] {
            w.local_get(grid)
                .i64_extend_i32_u()
                .local_get(thread)
                .i32_const(add)
                .i32_add()
                .i64_extend_i32_u()
                .i64_mul();
            w.local_get(threads).i64_extend_i32_u().i64_div_u().i32_wrap_i64().local_set(out);
        }
        w.local_get(lo).local_get(hi).i32_lt_u().if_(BlockType::Empty);
        w.local_get(steps).i32_load(at(4, 4)).local_get(steps).i32_load(at(8, 4)).local_get(lo).local_get(hi);
        w.local_get(steps).i32_load(at(0, 4)).call_indirect(0, 0).end();
    }
    w.end();
    if shared {
        w.local_get(threads).i32_const(1).i32_gt_u().if_(BlockType::Empty);
        w.local_get(sync).local_get(threads).local_get(sleeps).call(barrier).end();
    }
    w.local_get(steps).i32_const(STEP_BYTES as i32).i32_add().local_tee(steps);
    w.local_get(end).i32_lt_u().br_if(0).end().end();
    f
}

/// `barrier(sync, threads, sleeps)`: the last to arrive clears the count and starts the next generation; the others watch
/// the generation, then sleep if they may.
fn barrier_body(shared: bool) -> Function {
    let (sync, threads, sleeps, generation, turns) = (0, 1, 2, 3, 4);
    let mut f = Function::new([(2, ValType::I32)]);
    let mut w = f.instructions();
    if !shared {
        w.end();
        return f;
    }
    w.local_get(sync).i32_atomic_load(at(4, 4)).local_set(generation);
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(0, 4)).i32_const(1).i32_add().local_get(threads).i32_eq();
    w.if_(BlockType::Empty);
    w.local_get(sync).i32_const(0).i32_atomic_store(at(0, 4));
    w.local_get(sync).i32_const(1).i32_atomic_rmw_add(at(4, 4)).drop();
    w.local_get(sync).i32_const(-1).memory_atomic_notify(at(4, 4)).drop();
    w.return_().end();
    w.block(BlockType::Empty).loop_(BlockType::Empty);
    w.local_get(sync).i32_atomic_load(at(4, 4)).local_get(generation).i32_ne().br_if(1);
    w.local_get(turns).i32_const(1).i32_add().local_tee(turns).i32_const(SPIN).i32_gt_u().local_get(sleeps).i32_and();
    w.if_(BlockType::Empty);
    w.local_get(sync).local_get(generation).i64_const(-1).memory_atomic_wait32(at(4, 4)).drop().end();
    w.br(0).end().end().end();
    f
}
