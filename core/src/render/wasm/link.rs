//! Kernel bodies -> one module. It imports memory `e.m`, the table `e.t` that its functions are put into, and global `e.s`,
//! the address of the thread's scratch memory; modules of several batches share all three, so that one driver runs them.

use super::Kernel;
use wasm_encoder::{
    CodeSection, ConstExpr, ElementSection, Elements, EntityType, Function, FunctionSection, GlobalType, ImportSection,
    MemoryType, Module, RefType, TableType, TypeSection, ValType,
};

/// Pages of 64 KiB that a memory can have.
pub const MAX_PAGES: u32 = 65536;

/// Links kernels into a module; kernel `i` becomes entry `base + i` of the table. `shared` says what kind of memory it is,
/// `max_pages` is that memory's maximum.
pub fn link(kernels: &[Kernel], base: u32, shared: bool, max_pages: u32) -> Vec<u8> {
    let n = kernels.len() as u32;
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], []);
    let mut functions = FunctionSection::new();
    let mut code = CodeSection::new();
    for k in kernels {
        functions.function(0);
        code.raw(&k.body);
    }
    let mut elements = ElementSection::new();
    let all: Vec<u32> = (0..n).collect();
    elements.active(None, &ConstExpr::i32_const(base as i32), Elements::Functions(all.into()));

    let mut module = Module::new();
    module.section(&types).section(&imports(shared, max_pages)).section(&functions);
    module.section(&elements).section(&code);
    module.finish()
}

/// The three things that every module of a device shares.
pub(super) fn imports(shared: bool, max_pages: u32) -> ImportSection {
    let maximum = Some(max_pages as u64);
    let memory = MemoryType { minimum: 1, maximum, memory64: false, shared, page_size_log2: None };
    let table = TableType { element_type: RefType::FUNCREF, table64: false, minimum: 0, maximum: None, shared: false };
    let global = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
    let mut imports = ImportSection::new();
    imports.import("e", "m", EntityType::Memory(memory));
    imports.import("e", "t", EntityType::Table(table));
    imports.import("e", "s", EntityType::Global(global));
    imports
}

/// A module that is valid exactly where the engine has relaxed SIMD.
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
