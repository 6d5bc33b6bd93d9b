//! Splits a linked wasm module into a primary module, which every page loads, and parts that are loaded before one of
//! their exports is first called, like Binaryen's wasm-split. A part shares memory, tables and globals with the primary
//! module and calls its functions.
//!
//! Everything reachable from the primary module's exports belongs to the primary module: through calls, functions in
//! table slots, and data. Code of a part can only run after one of the part's exports has been called. So a function
//! that is reachable from the exports of a single part alone belongs to that part, together with its table slots and
//! the data that only such functions refer to. A part may require another part to be loaded before it; what the two
//! share belongs to the latter. What unrelated parts share belongs to the last module that all of them require, usually
//! the primary one.

mod bindgen_output;
mod references;
#[cfg(test)]
mod tests;
mod write;

use bindgen_output::BindgenOutput;
use references::{ReferenceTarget, References, text};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use wasm_encoder::{Module, NameMap, NameSection, RawSection};
use wasmparser::{ExternalKind, KnownCustom, Name, Parser, Payload};
use write::Splitter;

/// A part: a module that is loaded before one of its exports is first called.
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    /// The part that must be loaded before this one, and precedes it in the list; `None` for the primary module alone.
    pub(crate) after: Option<&'a str>,
    pub(crate) exports: &'a [&'a str],
}

/// A linked module, and the names of its functions.
pub(crate) struct LinkedModule<'a> {
    module: &'a [u8],
    names: HashMap<u32, &'a str>,
}

/// A run of fewer zero bytes than this that no symbol covers is alignment padding and stays with the data before it.
const MAX_PADDING_BYTES: u32 = 16;

impl<'a> LinkedModule<'a> {
    /// Reads a module that was linked with `--emit-relocs`.
    pub(crate) fn new(module: &'a [u8]) -> Result<LinkedModule<'a>, String> {
        Ok(LinkedModule { module, names: function_names(module)? })
    }

    /// The names of all functions that contain a text, sorted.
    pub(crate) fn names_containing(&self, text: &str) -> Vec<&'a str> {
        let mut all: Vec<&str> = self.names.values().copied().filter(|name| name.contains(text)).collect();
        all.sort_unstable();
        all
    }

    /// The module with functions named by their indices, so that functions can be identified in the output of another
    /// tool, and without the relocation records, which that tool would leave out of date.
    pub(crate) fn with_numbered_names(&self) -> Result<Vec<u8>, String> {
        let mut out = Module::new();
        for payload in Parser::new(0).parse_all(self.module) {
            let payload = payload.map_err(text)?;
            if let Payload::CustomSection(section) = &payload
                && (section.name() == "linking" || section.name() == "name" || section.name().starts_with("reloc."))
            {
                continue;
            }
            if let Some((id, range)) = payload.as_section() {
                out.section(&RawSection { id, data: &self.module[range.start as usize..range.end as usize] });
            }
        }
        let (mut numbers, mut globals) = (NameMap::new(), NameMap::new());
        let known: BTreeSet<u32> = self.names.keys().copied().collect();
        for f in known {
            match self.names[&f] {
                // wasm-bindgen derives names of exports from these
                name if is_bindgen_function(name) => numbers.append(f, name),
                _ => numbers.append(f, &f.to_string()),
            }
        }
        // the linker makes it the first global, and wasm-bindgen looks it up by name
        globals.append(0, "__stack_pointer");
        let mut names = NameSection::new();
        names.functions(&numbers);
        names.globals(&globals);
        out.section(&names);
        Ok(out.finish())
    }

    /// Splits the output of wasm-bindgen for the numbered module: the primary module, then the parts in order. With
    /// `keep_names`, functions keep their original names.
    pub(crate) fn split(&self, bound: &[u8], parts: &[Part<'_>], keep_names: bool) -> Result<Vec<Vec<u8>>, String> {
        let refs = references::read(self.module)?;
        if (0..).zip(&refs.functions).any(|(f, list)| !list.is_empty() && !self.names.contains_key(&f)) {
            return Err("a function has no name that its number could take the place of".into());
        }
        let module = bound;
        let bound = BindgenOutput::read(module, &self.names)?;
        let assignment = assign_modules(&bound, &refs, parts)?;
        let mut hasher = DefaultHasher::new();
        module.hash(&mut hasher);
        let names = keep_names.then_some(&self.names);
        Splitter { bound: &bound, assignment: &assignment, names, parts: parts.len(), build: hasher.finish() }.modules()
    }
}

fn function_names(module: &[u8]) -> Result<HashMap<u32, &str>, String> {
    let mut out = HashMap::new();
    for payload in Parser::new(0).parse_all(module) {
        let Payload::CustomSection(section) = payload.map_err(text)? else { continue };
        let KnownCustom::Name(parts) = section.as_known() else { continue };
        for part in parts {
            let Name::Function(list) = part.map_err(text)? else { continue };
            for naming in list {
                let naming = naming.map_err(text)?;
                out.insert(naming.index, naming.name);
            }
        }
    }
    Ok(out)
}

/// The functions that wasm-bindgen adds and calls by name.
fn is_bindgen_function(name: &str) -> bool {
    name.starts_with("__wbindgen") || name.starts_with("__externref")
}

/// The module to which each function and data range belongs: 0 is the primary one.
struct Assignment {
    functions: Vec<usize>,
    /// `(address, length, module)` of each range of memory.
    data: Vec<(u32, u32, usize)>,
}

/// For each module, including the primary one, a bit set of itself and the modules that are loaded before it.
fn loaded_with(parts: &[Part<'_>]) -> Result<Vec<u64>, String> {
    let mut out = vec![1];
    for (i, part) in parts.iter().enumerate() {
        let before = match part.after {
            None => 0,
            Some(name) => match parts[..i].iter().position(|p| p.name == name) {
                Some(at) => at + 1,
                None => return Err(format!("there is no part {name} before {}", part.name)),
            },
        };
        out.push(out[before] | 2 << i);
    }
    Ok(out)
}

fn assign_modules(bound: &BindgenOutput<'_>, refs: &References, parts: &[Part<'_>]) -> Result<Assignment, String> {
    let loaded = loaded_with(parts)?;
    let count = bound.types.len();
    let node = |r: &ReferenceTarget| match r {
        ReferenceTarget::Slot(s) => bound.slots.get(s).map(|&f| f as usize),
        ReferenceTarget::Data(i) => Some(count + i),
    };
    let mut edges: Vec<Vec<usize>> = Vec::with_capacity(count + refs.data.len());
    for f in 0..count as u32 {
        let calls = bound.calls(f)?.into_iter().map(|f| f as usize);
        let linked_refs = bound.numbers.get(&f).and_then(|&n| refs.functions.get(n));
        edges.push(calls.chain(linked_refs.into_iter().flatten().filter_map(node)).collect());
    }
    edges.extend(refs.pointers.iter().map(|list| list.iter().filter_map(node).collect::<Vec<_>>()));

    let mut roots: Vec<(u64, usize)> = bound.start.iter().map(|&f| (1, f as usize)).collect();
    for export in bound.exports.iter().filter(|e| e.kind == ExternalKind::Func) {
        let part = parts.iter().position(|p| p.exports.contains(&export.name));
        roots.push((part.map_or(1, |i| 2 << i), export.index as usize));
    }
    let is_missing = |name: &&&str| !bound.exports.iter().any(|e| e.name == **name);
    if let Some(name) = parts.iter().flat_map(|p| p.exports).find(is_missing) {
        return Err(format!("there is no export {name}"));
    }
    // a slot that nothing in this module refers to is called from outside, so its function belongs to the primary
    // module
    let referred: BTreeSet<ReferenceTarget> = refs.functions.iter().chain(&refs.pointers).flatten().copied().collect();
    let unreferenced = bound.slots.iter().filter(|(slot, _)| !referred.contains(&ReferenceTarget::Slot(**slot)));
    roots.extend(unreferenced.map(|(_, &f)| (1, f as usize)));
    let mut masks = vec![0u64; edges.len()];
    while let Some((mask, at)) = roots.pop() {
        if masks[at] | mask != masks[at] {
            masks[at] |= mask;
            roots.extend(edges[at].iter().map(|&to| (mask, to)));
        }
    }

    // the last module that is loaded together with each of the modules that reach it
    let module_of = |mask: u64| {
        let with = loaded.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, all)| all);
        with.copied().reduce(|a, b| a & b).map_or(0, |all| all.ilog2() as usize)
    };
    // symbols may overlap: a byte is needed by everything that refers to any symbol which covers it
    let mut ends: BTreeSet<u32> = refs.data.iter().flat_map(|&(at, len)| [at, at + len]).collect();
    ends.extend(bound.data.iter().flat_map(|s| [s.address, s.address + s.bytes.len() as u32]));
    let ends: Vec<u32> = ends.into_iter().collect();
    let mut byte_masks = vec![0u64; ends.len()];
    for (&(at, len), mask) in refs.data.iter().zip(&masks[count..]) {
        let from = ends.partition_point(|&e| e < at);
        let within = ends[from..].iter().zip(&mut byte_masks[from..]).take_while(|(e, _)| **e < at + len);
        within.for_each(|(_, bytes)| *bytes |= mask);
    }
    let mut data: Vec<(u32, u32, usize)> = Vec::new();
    for (e, &mask) in ends.windows(2).zip(&byte_masks) {
        let is_zero = || bound.bytes(e[0], e[1] - e[0]).is_some_and(|b| b.iter().all(|&b| b == 0));
        let padding = mask == 0 && e[1] - e[0] < MAX_PADDING_BYTES && is_zero();
        let before = data.last().filter(|_| padding).map(|d| d.2);
        data.push((e[0], e[1] - e[0], before.unwrap_or(module_of(mask))));
    }
    Ok(Assignment { functions: masks[..count].iter().map(|&m| module_of(m)).collect(), data })
}
