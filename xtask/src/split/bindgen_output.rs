//! The sections of the module to be split: wasm-bindgen's output for the module whose functions are named by their
//! indices.

use super::references::{Segment, segments, slots, text};
use super::{function_names, is_bindgen_function};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wasmparser::{
    Export, FuncType, FunctionBody, GlobalType, Import, MemoryType, Operator, Parser, Payload, TableType, TypeRef,
};

/// The parsed sections of the module.
#[derive(Default)]
pub(super) struct BindgenOutput<'a> {
    /// Sections that are copied unchanged.
    pub(super) raw: BTreeMap<u8, &'a [u8]>,
    pub(super) imports: Vec<Import<'a>>,
    /// All function types, and the type index of each function.
    pub(super) signatures: Vec<FuncType>,
    pub(super) types: Vec<u32>,
    pub(super) tables: Vec<TableType>,
    pub(super) memories: Vec<MemoryType>,
    pub(super) globals: Vec<GlobalType>,
    pub(super) exports: Vec<Export<'a>>,
    pub(super) start: Option<u32>,
    pub(super) slots: BTreeMap<u32, u32>,
    pub(super) data: Vec<Segment<'a>>,
    pub(super) bodies: Vec<FunctionBody<'a>>,
    /// For each function, its index in the original linked module.
    pub(super) numbers: HashMap<u32, usize>,
}

impl<'a> BindgenOutput<'a> {
    /// Reads a module whose functions are named by index, as [`LinkedModule::with_numbered_names`] wrote them.
    pub(super) fn read(module: &'a [u8], names: &HashMap<u32, &str>) -> Result<BindgenOutput<'a>, String> {
        let mut out = BindgenOutput::default();
        for payload in Parser::new(0).parse_all(module) {
            let payload = payload.map_err(text)?;
            if let Some((id, range)) = payload.as_section() {
                out.raw.insert(id, &module[range.start as usize..range.end as usize]);
            }
            match payload {
                Payload::TypeSection(list) => {
                    out.signatures = list.into_iter_err_on_gc_types().collect::<Result<_, _>>().map_err(text)?;
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.map_err(text)?;
                        let TypeRef::Func(ty) = import.ty else { return Err("an import is no function".into()) };
                        out.types.push(ty);
                        out.imports.push(import);
                    }
                }
                Payload::FunctionSection(list) => {
                    out.types.extend(list.into_iter().collect::<Result<Vec<_>, _>>().map_err(text)?);
                }
                Payload::TableSection(list) => {
                    for table in list {
                        out.tables.push(table.map_err(text)?.ty);
                    }
                }
                Payload::MemorySection(list) => {
                    out.memories = list.into_iter().collect::<Result<_, _>>().map_err(text)?
                }
                Payload::GlobalSection(list) => {
                    for global in list {
                        out.globals.push(global.map_err(text)?.ty);
                    }
                }
                Payload::ExportSection(list) => {
                    out.exports = list.into_iter().collect::<Result<_, _>>().map_err(text)?
                }
                Payload::StartSection { func, .. } => out.start = Some(func),
                Payload::ElementSection(list) => out.slots = slots(list)?.into_iter().collect(),
                Payload::DataSection(list) => out.data = segments(list)?,
                Payload::CodeSectionEntry(body) => out.bodies.push(body),
                _ => {}
            }
        }
        let bindgen_functions: HashMap<&str, u32> =
            names.iter().filter(|n| is_bindgen_function(n.1)).map(|(&f, &name)| (name, f)).collect();
        if bindgen_functions.len() != names.values().filter(|name| is_bindgen_function(name)).count() {
            return Err("two of wasm-bindgen's own functions have one name".into());
        }
        let names = function_names(module)?;
        for f in out.imports.len() as u32..out.types.len() as u32 {
            // functions without an index were added by wasm-bindgen; they contain only calls
            let Some(name) = names.get(&f) else { continue };
            if let Some(number) = bindgen_functions.get(name).copied().or_else(|| name.parse().ok()) {
                out.numbers.insert(f, number as usize);
            }
        }
        Ok(out)
    }

    pub(super) fn body(&self, function: u32) -> Option<&FunctionBody<'a>> {
        (function as usize).checked_sub(self.imports.len()).map(|i| &self.bodies[i])
    }

    /// The bytes of an address range, if a single segment contains it.
    pub(super) fn bytes(&self, address: u32, len: u32) -> Option<&'a [u8]> {
        let within = |s: &Segment<'a>| s.bytes.get(address.checked_sub(s.address)? as usize..)?.get(..len as usize);
        self.data.iter().find_map(within)
    }

    /// The functions that a function calls.
    pub(super) fn calls(&self, function: u32) -> Result<BTreeSet<u32>, String> {
        let mut out = BTreeSet::new();
        let Some(body) = self.body(function) else { return Ok(out) };
        for operator in body.get_operators_reader().map_err(text)? {
            match operator.map_err(text)? {
                Operator::Call { function_index: f }
                | Operator::ReturnCall { function_index: f }
                | Operator::RefFunc { function_index: f } => drop(out.insert(f)),
                _ => {}
            }
        }
        Ok(out)
    }
}
