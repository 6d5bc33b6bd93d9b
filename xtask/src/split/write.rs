//! Writes the modules into which a module is split.

use super::Assignment;
use super::bindgen_output::BindgenOutput;
use crate::order;
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use wasm_encoder::reencode::{Error, Reencode, RoundtripReencoder};
use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, ElementSection, Elements, EntityType, ExportKind, ExportSection,
    FunctionSection, ImportSection, Module, NameMap, NameSection, RawSection, SectionId, StartSection, TypeSection,
};
use wasmparser::{Export, ExternalKind};

/// The import module name of parts, which stands for the exports of the modules loaded before them.
const SHARED_EXPORTS: &str = "$";
/// In the primary module, a gap of fewer bytes than this (data that belongs to a part) does not end a data segment: the
/// head of another segment would cost as many bytes.
const MIN_GAP_BYTES: usize = 8;

/// The split of a module, from which each resulting module is written.
pub(super) struct Splitter<'a> {
    pub(super) bound: &'a BindgenOutput<'a>,
    pub(super) assignment: &'a Assignment,
    /// Names of functions, if the modules are to contain them.
    pub(super) names: Option<&'a HashMap<u32, &'a str>>,
    pub(super) parts: usize,
    /// A hash that identifies the build.
    pub(super) build: u64,
}

/// The new indices of functions, and of types in order of first use: a module contains only the types that it uses.
#[derive(Default)]
struct Renumbering {
    functions: HashMap<u32, u32>,
    types: HashMap<u32, u32>,
    /// Old type indices in the order of the new ones.
    in_order: Vec<u32>,
}

impl Reencode for Renumbering {
    type Error = Infallible;

    fn function_index(&mut self, old: u32) -> Result<u32, Error<Infallible>> {
        Ok(self.functions[&old])
    }

    fn type_index(&mut self, old: u32) -> Result<u32, Error<Infallible>> {
        Ok(self.type_of(old))
    }
}

impl Renumbering {
    fn add(&mut self, function: u32) {
        self.functions.insert(function, self.functions.len() as u32);
    }

    fn type_of(&mut self, old: u32) -> u32 {
        *self.types.entry(old).or_insert_with(|| {
            self.in_order.push(old);
            self.in_order.len() as u32 - 1
        })
    }
}

impl Splitter<'_> {
    /// The first module and the parts.
    pub(super) fn modules(&self) -> Result<Vec<Vec<u8>>, String> {
        let orders: Vec<Vec<u32>> = (0..=self.parts).map(|module| self.functions(module)).collect();
        let mut imported = BTreeSet::new();
        for module in 1..=self.parts {
            imported.extend(
                self.used(&orders[module])?.into_iter().filter(|f| self.assignment.functions[*f as usize] != module),
            );
        }
        // number shared functions in the order of the modules, so that names and indices increase together, which
        // compresses well
        let all = orders.iter().flatten().filter(|f| imported.contains(f));
        let shared: Vec<(u32, String)> = all.zip(0..).map(|(&f, i)| (f, short_name(i))).collect();
        (0..).zip(&orders).map(|(module, own)| self.module(module, own, &shared)).collect()
    }

    /// The functions of a module, similar ones next to each other.
    fn functions(&self, module: usize) -> Vec<u32> {
        let all = self.bound.imports.len() as u32..self.bound.types.len() as u32;
        let own = all.filter(|&f| self.assignment.functions[f as usize] == module);
        let (own, bodies): (Vec<u32>, Vec<&[u8]>) =
            own.filter_map(|f| Some((f, self.bound.body(f)?.as_bytes()))).unzip();
        order::similarity_order(&bodies).into_iter().map(|i| own[i]).collect()
    }

    /// The functions that these functions call, in whichever module they are.
    fn used(&self, own: &[u32]) -> Result<BTreeSet<u32>, String> {
        let mut out = BTreeSet::new();
        for &f in own {
            out.extend(self.bound.calls(f)?);
        }
        Ok(out)
    }

    fn is_export_of(&self, export: &Export<'_>, module: usize) -> bool {
        match export.kind {
            ExternalKind::Func => self.assignment.functions[export.index as usize] == module,
            _ => module == 0,
        }
    }

    /// Writes one module. It exports those of `shared` that are its own, and imports those of other modules that it
    /// calls.
    fn module(&self, module: usize, own: &[u32], shared: &[(u32, String)]) -> Result<Vec<u8>, String> {
        let (bound, same) = (self.bound, &mut RoundtripReencoder);
        let used = self.used(own)?;
        let (mut imports, mut exports, mut new) = (ImportSection::new(), ExportSection::new(), Renumbering::default());
        for (f, import) in (0..).zip(&bound.imports) {
            if used.contains(&f)
                || (module == 0 && bound.exports.iter().any(|e| e.kind == ExternalKind::Func && e.index == f))
            {
                new.add(f);
                imports.import(import.module, import.name, EntityType::Function(new.type_of(bound.types[f as usize])));
            }
        }
        let is_own = |f: &u32| self.assignment.functions[*f as usize] == module;
        for (f, name) in shared.iter().filter(|(f, _)| !is_own(f) && used.contains(f)) {
            new.add(*f);
            imports.import(SHARED_EXPORTS, name, EntityType::Function(new.type_of(bound.types[*f as usize])));
        }
        for &f in own {
            new.add(f);
        }
        // shared tables, memories and globals have the same indices everywhere
        let (mut tables, mut memories, mut globals) = (Vec::new(), Vec::new(), Vec::new());
        for (i, table) in (0..).zip(&bound.tables) {
            tables.push((format!("$$t{i}"), i, same.table_type(*table).map_err(|e| e.to_string())?));
        }
        for (i, memory) in (0..).zip(&bound.memories) {
            // the name contains the build, so that parts of different builds cannot be combined
            memories.push((
                format!("$$m{i}.{:x}", self.build),
                i,
                same.memory_type(*memory).map_err(|e| e.to_string())?,
            ));
        }
        for (i, global) in (0..).zip(&bound.globals) {
            globals.push((format!("$$g{i}"), i, same.global_type(*global).map_err(|e| e.to_string())?));
        }
        for export in bound.exports.iter().filter(|e| self.is_export_of(e, module)) {
            new.parse_export(&mut exports, *export).map_err(|e| e.to_string())?;
        }
        shared.iter().filter(|(f, _)| is_own(f)).for_each(|(f, name)| {
            exports.export(name, ExportKind::Func, new.functions[f]);
        });
        if module == 0 && self.parts > 0 {
            tables.iter().for_each(|(name, i, _)| {
                exports.export(name, ExportKind::Table, *i);
            });
            memories.iter().for_each(|(name, i, _)| {
                exports.export(name, ExportKind::Memory, *i);
            });
            globals.iter().for_each(|(name, i, _)| {
                exports.export(name, ExportKind::Global, *i);
            });
        }
        if module > 0 {
            tables.iter().for_each(|(name, _, ty)| {
                imports.import(SHARED_EXPORTS, name, *ty);
            });
            memories.iter().for_each(|(name, _, ty)| {
                imports.import(SHARED_EXPORTS, name, *ty);
            });
            globals.iter().for_each(|(name, _, ty)| {
                imports.import(SHARED_EXPORTS, name, *ty);
            });
        }

        let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
        for &f in own {
            functions.function(new.type_of(bound.types[f as usize]));
            let body = bound.body(f).expect("it is no import");
            new.parse_function_body(&mut code, body.clone()).map_err(|e| e.to_string())?;
        }
        let mut out = Module::new();
        let raw = |out: &mut Module, id: SectionId| {
            if let Some(data) = bound.raw.get(&(id as u8)) {
                out.section(&RawSection { id: id as u8, data });
            }
        };
        let mut types = TypeSection::new();
        for &old in &new.in_order {
            types.ty().func_type(&same.func_type(bound.signatures[old as usize].clone()).map_err(|e| e.to_string())?);
        }
        out.section(&types).section(&imports).section(&functions);
        if module == 0 {
            [SectionId::Table, SectionId::Memory, SectionId::Global].into_iter().for_each(|id| raw(&mut out, id));
        }
        out.section(&exports);
        if let Some(f) = bound.start.filter(|_| module == 0) {
            out.section(&StartSection { function_index: new.functions[&f] });
        }
        out.section(&self.elements(module, &new)).section(&code).section(&self.data(module));
        if let Some(names) = self.names {
            let mut by_number: Vec<(u32, &str)> = Vec::new();
            for (old, &n) in &new.functions {
                by_number.extend(bound.numbers.get(old).and_then(|&n| names.get(&(n as u32))).map(|name| (n, *name)));
            }
            by_number.sort();
            let (mut list, mut section) = (NameMap::new(), NameSection::new());
            by_number.into_iter().for_each(|(n, name)| list.append(n, name));
            section.functions(&list);
            out.section(&section);
        }
        Ok(out.finish())
    }

    /// The table slots that a module fills.
    fn elements(&self, module: usize, new: &Renumbering) -> ElementSection {
        let mut out = ElementSection::new();
        let mut run: Vec<(u32, u32)> = Vec::new();
        let mut flush = |run: &mut Vec<(u32, u32)>| {
            if let Some(&(first, _)) = run.first() {
                let list: Vec<u32> = run.drain(..).map(|(_, f)| f).collect();
                out.active(None, &ConstExpr::i32_const(first as i32), Elements::Functions(list.into()));
            }
        };
        for (&slot, f) in self.bound.slots.iter().filter(|(_, f)| self.assignment.functions[**f as usize] == module) {
            if run.last().is_some_and(|last| last.0 + 1 != slot) {
                flush(&mut run);
            }
            run.push((slot, new.functions[f]));
        }
        flush(&mut run);
        out
    }

    /// The data that a module initialises.
    fn data(&self, module: usize) -> DataSection {
        let mut out = DataSection::new();
        for segment in &self.bound.data {
            let mut run: Option<(u32, Vec<u8>)> = None;
            let mut flush = |run: &mut Option<(u32, Vec<u8>)>| {
                if let Some((at, bytes)) = run.take() {
                    out.active(0, &ConstExpr::i32_const(at as i32), bytes);
                }
            };
            let end = segment.address + segment.bytes.len() as u32;
            let first = self.assignment.data.partition_point(|d| d.0 < segment.address);
            for &(at, len, target) in self.assignment.data[first..].iter().take_while(|d| d.0 < end) {
                if target != module {
                    continue;
                }
                let from = (at - segment.address) as usize;
                let bytes = &segment.bytes[from..from + len as usize];
                let gap = run.as_ref().map_or(0, |(start, run)| (at - start) as usize - run.len());
                if gap > 0 && (module > 0 || gap >= MIN_GAP_BYTES) {
                    flush(&mut run);
                }
                let (_, run) = run.get_or_insert((at, Vec::new()));
                run.resize(run.len() + if run.is_empty() { 0 } else { gap }, 0);
                run.extend_from_slice(bytes);
            }
            flush(&mut run);
        }
        out
    }
}

/// The `i`-th short name: `$0`, .. `$z`, `$10`, ..
fn short_name(i: u32) -> String {
    let digit = |d: u32| char::from_digit(d, 36).expect("it is below 36");
    match i {
        0..36 => format!("${}", digit(i)),
        _ => format!("{}{}", short_name(i / 36), digit(i % 36)),
    }
}
