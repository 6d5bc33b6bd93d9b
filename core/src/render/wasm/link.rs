//! Links kernel bodies into one module. It imports memory `e.m` and global `e.s`, the address of the thread's scratch
//! memory, and exports its functions, which the host puts into the table `e.t` from which the driver calls them; the
//! modules of several batches share all three. A kernel module does not import the table itself, because V8 keeps every
//! instance that did so alive for as long as the table.

use super::Kernel;
use wasm_encoder::{
    CodeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalType, ImportSection,
    MemoryType, Module, TypeSection, ValType,
};

/// The most pages of 64 KiB that a 32-bit memory can have.
pub const MAX_PAGES: u32 = 65536;

/// Links kernels into a module that exports each under its number. `shared` says whether memory is shared between
/// threads, and `max_pages` is its maximum size in pages.
pub fn link(kernels: &[Kernel], shared: bool, max_pages: u32) -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], []);
    let mut functions = FunctionSection::new();
    let mut code = CodeSection::new();
    let mut exports = ExportSection::new();
    for (i, k) in (0u32..).zip(kernels) {
        functions.function(0);
        exports.export(&i.to_string(), ExportKind::Func, i);
        code.raw(&k.body);
    }

    let mut module = Module::new();
    module.section(&types).section(&imports(shared, max_pages)).section(&functions).section(&exports).section(&code);
    module.finish()
}

/// The imports that all modules of a device have in common: memory and the scratch address.
pub(super) fn imports(shared: bool, max_pages: u32) -> ImportSection {
    let maximum = Some(max_pages as u64);
    let memory = MemoryType { minimum: 1, maximum, memory64: false, shared, page_size_log2: None };
    let global = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
    let mut imports = ImportSection::new();
    imports.import("e", "m", EntityType::Memory(memory));
    imports.import("e", "s", EntityType::Global(global));
    imports
}

/// A module that validates only on engines with relaxed SIMD, to test for that.
pub fn relaxed_simd_probe() -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::V128; 3], [ValType::V128]);
    let mut functions = FunctionSection::new();
    functions.function(0);
    let mut f = Function::new([]);
    f.instructions().local_get(0).local_get(1).local_get(2).f32x4_relaxed_madd().end();
    let mut code = CodeSection::new();
    code.function(&f);
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&code);
    module.finish()
}
