//! Splits a module that is built like the linker's output, and checks the contents of the resulting modules.

use super::*;
use wasm_encoder::{
    CodeSection, ConstExpr, CustomSection, DataSection, DataSymbolDefinition, ElementSection, Elements, ExportKind,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection, LinkingSection, MemorySection,
    MemoryType, RefType, SymbolTable, TableSection, TableType, TypeSection, ValType,
};
use wasmparser::TypeRef;

/// The address and contents of the data: a number that all functions read, a pointer to slot 1 that only `late` refers
/// to, a number that follows it, and one that nothing refers to.
const START: i32 = 1024;
const DATA: [u32; 4] = [7, 1, 11, 13];

/// `first` reads the first number; `late` calls through the pointer; both call `both`. `pointed` is in slot 1 of the
/// table and reads the third number; `strange` is in slot 2, to which nothing refers. `given` and `taken` are imports;
/// only `pointed` uses the latter.
fn linked() -> Vec<u8> {
    let mut module = Module::new();
    let mut types = TypeSection::new();
    // no function has the first type
    types.ty().function([ValType::I32], []);
    types.ty().function([], [ValType::I32]);
    let mut imports = ImportSection::new();
    imports.import("env", "given", wasm_encoder::EntityType::Function(1));
    imports.import("env", "taken", wasm_encoder::EntityType::Function(1));
    let mut functions = FunctionSection::new();
    functions.function(1).function(1).function(1).function(1).function(1);
    let mut tables = TableSection::new();
    let limits =
        TableType { element_type: RefType::FUNCREF, table64: false, minimum: 3, maximum: Some(3), shared: false };
    tables.table(limits);
    let mut memories = MemorySection::new();
    memories.memory(MemoryType { minimum: 1, maximum: None, memory64: false, shared: false, page_size_log2: None });
    let mut globals = GlobalSection::new();
    let stack = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
    globals.global(stack, &ConstExpr::i32_const(START));
    let mut exports = ExportSection::new();
    exports.export("first", ExportKind::Func, 2).export("late", ExportKind::Func, 3);
    let mut elements = ElementSection::new();
    elements.active(None, &ConstExpr::i32_const(1), Elements::Functions(vec![5, 6].into()));

    // (function, offset within it of a five-byte number, relocation type, symbol)
    let mut code = CodeSection::new();
    let mut relocations: Vec<(usize, usize, u8, u32)> = Vec::new();
    let mut sizes = Vec::new();
    let address = |at: usize| {
        let n = START + 4 * at as i32;
        [0x41, 0x80 | n as u8 & 0x7f, 0x80 | (n >> 7) as u8, 0x80, 0x80, 0]
    };
    let load = [0x28, 2, 0];
    let bodies: [Vec<u8>; 5] = [
        [&address(0)[..], &load, &[0x10, 4, 0x6a, 0x10, 0, 0x6a, 0x0b]].concat(),
        [&address(1)[..], &load, &[0x11, 1, 0, 0x10, 4, 0x6a, 0x0b]].concat(),
        vec![0x23, 0, 0x0b],
        [&address(2)[..], &load, &[0x10, 1, 0x6a, 0x0b]].concat(),
        vec![0x41, 1, 0x0b],
    ];
    for (f, body) in bodies.iter().enumerate() {
        let mut function = Function::new([]);
        function.raw(body.iter().copied());
        code.function(&function);
        sizes.push(body.len() + 1);
        if body[0] == 0x41 && body.len() > 6 {
            // the offset skips the count of locals and the opcode; symbols from 1 on are the data
            relocations.push((f, 2, 4, [1, 2, 0, 3][f]));
        }
    }
    let mut data = DataSection::new();
    data.active(0, &ConstExpr::i32_const(START), DATA.map(u32::to_le_bytes).concat());

    let mut symbols = SymbolTable::new();
    symbols.function(0, 5, Some("pointed"));
    for (i, name) in ["all", "pointer", "behind"].into_iter().enumerate() {
        symbols.data(0, name, Some(DataSymbolDefinition { index: 0, offset: 4 * i as u32, size: 4 }));
    }
    let mut linking = LinkingSection::new();
    linking.symbol_table(&symbols);
    let mut of_code = vec![0, relocations.len() as u8];
    for (f, at, kind, symbol) in relocations {
        let before: usize = sizes[..f].iter().map(|size| size + 1).sum();
        // offset by the count of functions and the length of this function
        of_code.extend([kind, (1 + before + 1 + at) as u8, symbol as u8, 0]);
    }
    // count of segments, flags, offset (four bytes), length; the second number holds slot 1
    let of_data = [1, 1, 2, 1 + 1 + 4 + 1 + 4, 0];
    let mut names = NameSection::new();
    let mut list = NameMap::new();
    let called = ["given", "taken", "first", "late", "both", "pointed", "strange"];
    called.iter().zip(0..).for_each(|(name, i)| list.append(i, name));
    names.functions(&list);
    module.section(&types).section(&imports).section(&functions).section(&tables).section(&memories).section(&globals);
    module.section(&exports).section(&elements).section(&code).section(&data).section(&linking);
    module.section(&CustomSection { name: "reloc.CODE".into(), data: (&of_code[..]).into() });
    module.section(&CustomSection { name: "reloc.DATA".into(), data: (&of_data[..]).into() });
    module.section(&names);
    module.finish()
}

/// A summary of a module's contents.
#[derive(Debug, Default, PartialEq)]
struct ModuleSummary {
    types: u32,
    imports: Vec<String>,
    exports: Vec<String>,
    names: Vec<String>,
    slots: Vec<(u32, String)>,
    data: Vec<(u32, Vec<u8>)>,
}

fn summarize(module: &[u8]) -> ModuleSummary {
    wasmparser::validate(module).expect("it is valid");
    let mut out = ModuleSummary::default();
    let names = function_names(module).unwrap();
    let name = |f: u32| names[&f].to_string();
    let mut own: Vec<u32> = names.keys().copied().collect();
    own.sort_unstable();
    let mut imported = 0;
    for payload in Parser::new(0).parse_all(module) {
        match payload.unwrap() {
            Payload::TypeSection(section) => out.types = section.count(),
            Payload::ImportSection(section) => {
                for import in section.into_imports().map(Result::unwrap) {
                    imported += u32::from(matches!(import.ty, TypeRef::Func(_)));
                    out.imports.push(import.name.split('.').next().unwrap().to_string());
                }
            }
            Payload::ExportSection(section) => {
                for export in section.into_iter().map(Result::unwrap) {
                    let short = export.name.split('.').next().unwrap();
                    out.exports.push(match export.kind {
                        ExternalKind::Func => format!("{short}={}", name(export.index)),
                        _ => short.to_string(),
                    });
                }
            }
            Payload::ElementSection(section) => {
                out.slots = references::slots(section).unwrap().into_iter().map(|(s, f)| (s, name(f))).collect();
            }
            Payload::DataSection(section) => {
                for segment in references::segments(section).unwrap() {
                    out.data.push((segment.address, segment.bytes.to_vec()));
                }
            }
            _ => {}
        }
    }
    out.names = own.into_iter().filter(|&f| f >= imported).map(name).collect();
    out.names.sort();
    out
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| s.to_string()).collect()
}

const EARLY: Part<'_> = Part { name: "early", after: None, exports: &["first"] };
const LATE: Part<'_> = Part { name: "late", after: None, exports: &["late"] };

#[test]
fn what_only_a_part_reaches_is_its_own_through_calls_slots_and_data() {
    let module = linked();
    wasmparser::validate(&module).unwrap();
    let linked = LinkedModule::new(&module).unwrap();
    let modules = linked.split(&linked.with_numbered_names().unwrap(), &[LATE], true).unwrap();
    let bytes = |at: usize| DATA[at].to_le_bytes().to_vec();
    let at = |i: u32| START as u32 + 4 * i;
    assert_eq!(
        summarize(&modules[0]),
        ModuleSummary {
            types: 1,
            imports: owned(&["given"]),
            exports: owned(&["first=first", "$0=both", "$$t0", "$$m0", "$$g0"]),
            names: owned(&["both", "first", "strange"]),
            slots: vec![(2, "strange".into())],
            // unreferenced data stays in the primary module; a gap of eight bytes costs as much as the head of another
            // segment
            data: vec![(at(0), bytes(0)), (at(3), bytes(3))],
        }
    );
    assert_eq!(
        summarize(&modules[1]),
        ModuleSummary {
            types: 1,
            imports: owned(&["taken", "$0", "$$t0", "$$m0", "$$g0"]),
            exports: owned(&["late=late"]),
            names: owned(&["late", "pointed"]),
            slots: vec![(1, "pointed".into())],
            data: vec![(at(1), [bytes(1), bytes(2)].concat())],
        }
    );
}

#[test]
fn what_a_part_shares_with_one_that_comes_after_it_is_its_own() {
    let module = linked();
    let linked = LinkedModule::new(&module).unwrap();
    let after = Part { after: Some("early"), ..LATE };
    let modules = linked.split(&linked.with_numbered_names().unwrap(), &[EARLY, after], true).unwrap();
    let all: Vec<ModuleSummary> = modules.iter().map(|m| summarize(m)).collect();
    let called = |all: &[ModuleSummary]| all.iter().map(|s| s.names.join(" ")).collect::<Vec<_>>();
    assert_eq!(called(&all), ["strange", "both first", "late pointed"]);
    assert_eq!(all[0].exports, owned(&["$$t0", "$$m0", "$$g0"]));
    assert_eq!(all[1].exports, owned(&["first=first", "$0=both"]));
    assert_eq!(all[1].imports, owned(&["given", "$$t0", "$$m0", "$$g0"]));
    assert_eq!(all[2].imports, owned(&["taken", "$0", "$$t0", "$$m0", "$$g0"]));
    assert_eq!(all[1].data, [(START as u32, DATA[0].to_le_bytes().to_vec())]);
    // what unrelated parts share is in the primary module
    let modules = linked.split(&linked.with_numbered_names().unwrap(), &[EARLY, LATE], true).unwrap();
    let all: Vec<ModuleSummary> = modules.iter().map(|m| summarize(m)).collect();
    assert_eq!(called(&all), ["both strange", "first", "late pointed"]);
    assert_eq!(all[0].exports, owned(&["$0=both", "$$t0", "$$m0", "$$g0"]));
}

#[test]
fn without_parts_all_stays_in_one_module() {
    let module = linked();
    let linked = LinkedModule::new(&module).unwrap();
    let modules = linked.split(&linked.with_numbered_names().unwrap(), &[], true).unwrap();
    let all = summarize(&modules[0]);
    assert_eq!((modules.len(), all.imports), (1, owned(&["given", "taken"])));
    assert_eq!(all.exports, owned(&["first=first", "late=late"]));
    assert_eq!(all.slots, [(1, "pointed".into()), (2, "strange".into())]);
    assert_eq!(all.data, [(START as u32, DATA.map(u32::to_le_bytes).concat())]);
}

/// Copies the sections of a module, of its custom sections only those that are `kept`.
fn copy(module: &[u8], kept: impl Fn(&str) -> bool) -> Module {
    let mut out = Module::new();
    for payload in Parser::new(0).parse_all(module).map(Result::unwrap) {
        let drops = matches!(&payload, Payload::CustomSection(section) if !kept(section.name()));
        if let Some((id, range)) = payload.as_section().filter(|_| !drops) {
            out.section(&RawSection { id, data: &module[range.start as usize..range.end as usize] });
        }
    }
    out
}

#[test]
fn parts_of_another_build_do_not_join() {
    let module = linked();
    let linked = LinkedModule::new(&module).unwrap();
    let numbered = linked.with_numbered_names().unwrap();
    let mut other = copy(&numbered, |_| true);
    other.section(&CustomSection { name: "other".into(), data: (&[][..]).into() });
    let memory = |bound: &[u8]| {
        let first = linked.split(bound, &[LATE], false).unwrap().remove(0);
        let mut found = None;
        for payload in Parser::new(0).parse_all(&first) {
            if let Payload::ExportSection(section) = payload.unwrap() {
                let is_memory = |e: &wasmparser::Export<'_>| e.kind == ExternalKind::Memory;
                found = section.into_iter().map(Result::unwrap).find(is_memory).map(|e| e.name.to_string());
            }
        }
        found.expect("the memory is exported")
    };
    assert_eq!(memory(&numbered), memory(&numbered));
    assert_ne!(memory(&numbered), memory(&other.finish()));
}

#[test]
fn what_is_missing_is_an_error_and_not_a_wrong_split() {
    let module = linked();
    let linked = LinkedModule::new(&module).unwrap();
    let numbered = linked.with_numbered_names().unwrap();
    let gone = Part { name: "gone", after: None, exports: &["none"] };
    assert_eq!(linked.split(&numbered, &[gone], false).unwrap_err(), "there is no export none");
    let before_its_own = [Part { after: Some("early"), ..LATE }, EARLY];
    assert_eq!(linked.split(&numbered, &before_its_own, false).unwrap_err(), "there is no part early before late");
    let without = LinkedModule::new(&numbered).unwrap();
    assert!(without.split(&numbered, &[LATE], false).unwrap_err().contains("--emit-relocs"));
    let nameless = copy(&module, |section| section != "name").finish();
    let nameless = LinkedModule::new(&nameless).unwrap();
    assert!(nameless.split(&nameless.with_numbered_names().unwrap(), &[LATE], false).unwrap_err().contains("no name"));
}
