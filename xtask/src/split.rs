//! Splitting a linked module into one that every page loads and parts that are loaded before one of their exports is first called, as
//! Binaryen's wasm-split does. A part shares memory, tables and globals with the first module, and calls its functions.
//!
//! What the first module's exports lead to is its own: by calls, by functions in slots of the table, by data. Nothing else can run before an
//! export of a part has been called. So a function that only one part's exports lead to is that part's, together with its slots, and so is
//! the data that only they refer to. A part may come after another one, which is loaded before it: what the two share is the other one's.
//! What parts share of which neither comes after the other is in the last module that comes before all of them, which is mostly the first.

mod bound;
mod references;
#[cfg(test)]
mod tests;
mod write;

use bound::Bound;
use references::{References, Referred, text};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use wasm_encoder::{Module, NameMap, NameSection, RawSection};
use wasmparser::{ExternalKind, KnownCustom, Name, Parser, Payload};
use write::Cut;

/// A module that is loaded before one of its exports is first called.
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    /// The part before it in the list that is loaded before it; without one, it is the first module alone.
    pub(crate) after: Option<&'a str>,
    pub(crate) exports: &'a [&'a str],
}

/// A linked module, and the names of its functions.
pub(crate) struct Linked<'a> {
    module: &'a [u8],
    names: HashMap<u32, &'a str>,
}

/// Zeros that nothing names, and fewer than these, align what follows: they come with what is before them.
const PADDING_BYTES: u32 = 16;

impl<'a> Linked<'a> {
    /// A module that was linked with `--emit-relocs`.
    pub(crate) fn new(module: &'a [u8]) -> Result<Linked<'a>, String> {
        Ok(Linked { module, names: function_names(module)? })
    }

    /// The functions whose names hold a text, by their names.
    pub(crate) fn named(&self, text: &str) -> Vec<&'a str> {
        let mut all: Vec<&str> = self.names.values().copied().filter(|name| name.contains(text)).collect();
        all.sort_unstable();
        all
    }

    /// The same module with its functions' numbers as their names, so that another tool's output tells which one is which, and without
    /// the records that such a tool would leave as they are.
    pub(crate) fn numbered(&self) -> Result<Vec<u8>, String> {
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
                // wasm-bindgen makes the names of exports of these
                name if is_kept(name) => numbers.append(f, name),
                _ => numbers.append(f, &f.to_string()),
            }
        }
        // the linker puts it first, and wasm-bindgen looks for its name
        globals.append(0, "__stack_pointer");
        let mut names = NameSection::new();
        names.functions(&numbers);
        names.globals(&globals);
        out.section(&names);
        Ok(out.finish())
    }

    /// Cuts what wasm-bindgen made of the numbered module: the first module, then the parts in their order. With `named` functions have
    /// the names they had.
    pub(crate) fn split(&self, bound: &[u8], parts: &[Part<'_>], named: bool) -> Result<Vec<Vec<u8>>, String> {
        let refs = references::read(self.module)?;
        if (0..).zip(&refs.functions).any(|(f, list)| !list.is_empty() && !self.names.contains_key(&f)) {
            return Err("a function has no name that its number could take the place of".into());
        }
        let module = bound;
        let bound = Bound::read(module, &self.names)?;
        let homes = homes(&bound, &refs, parts)?;
        let mut hasher = DefaultHasher::new();
        module.hash(&mut hasher);
        let names = named.then_some(&self.names);
        Cut { bound: &bound, homes: &homes, names, parts: parts.len(), build: hasher.finish() }.modules()
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

/// The functions that wasm-bindgen brings along and calls by their names.
fn is_kept(name: &str) -> bool {
    name.starts_with("__wbindgen") || name.starts_with("__externref")
}

/// Which module has what: 0 is the first one.
struct Homes {
    functions: Vec<usize>,
    /// Of stretches of memory, `(address, length)`.
    data: Vec<(u32, u32, usize)>,
}

/// For each module, the first one among them, a bit for itself and for each that is loaded before it.
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

fn homes(bound: &Bound<'_>, refs: &References, parts: &[Part<'_>]) -> Result<Homes, String> {
    let loaded = loaded_with(parts)?;
    let count = bound.types.len();
    let node = |r: &Referred| match r {
        Referred::Slot(s) => bound.slots.get(s).map(|&f| f as usize),
        Referred::Data(i) => Some(count + i),
    };
    let mut edges: Vec<Vec<usize>> = Vec::with_capacity(count + refs.data.len());
    for f in 0..count as u32 {
        let calls = bound.calls(f)?.into_iter().map(|f| f as usize);
        let named = bound.numbers.get(&f).and_then(|&n| refs.functions.get(n));
        edges.push(calls.chain(named.into_iter().flatten().filter_map(node)).collect());
    }
    edges.extend(refs.pointers.iter().map(|list| list.iter().filter_map(node).collect::<Vec<_>>()));

    let mut roots: Vec<(u64, usize)> = bound.start.iter().map(|&f| (1, f as usize)).collect();
    for export in bound.exports.iter().filter(|e| e.kind == ExternalKind::Func) {
        let part = parts.iter().position(|p| p.exports.contains(&export.name));
        roots.push((part.map_or(1, |i| 2 << i), export.index as usize));
    }
    let missing = |name: &&&str| !bound.exports.iter().any(|e| e.name == **name);
    if let Some(name) = parts.iter().flat_map(|p| p.exports).find(missing) {
        return Err(format!("there is no export {name}"));
    }
    // whoever calls what is in a slot that nothing refers to is not in this module
    let referred: BTreeSet<Referred> = refs.functions.iter().chain(&refs.pointers).flatten().copied().collect();
    let strange = bound.slots.iter().filter(|(slot, _)| !referred.contains(&Referred::Slot(**slot)));
    roots.extend(strange.map(|(_, &f)| (1, f as usize)));
    let mut masks = vec![0u64; edges.len()];
    while let Some((mask, at)) = roots.pop() {
        if masks[at] | mask != masks[at] {
            masks[at] |= mask;
            roots.extend(edges[at].iter().map(|&to| (mask, to)));
        }
    }

    // the last module that is there with every one of those that lead to it
    let home = |mask: u64| {
        let with = loaded.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, all)| all);
        with.copied().reduce(|a, b| a & b).map_or(0, |all| all.ilog2() as usize)
    };
    // symbols may lie in one another: bytes are where all that name them are
    let mut ends: BTreeSet<u32> = refs.data.iter().flat_map(|&(at, len)| [at, at + len]).collect();
    ends.extend(bound.data.iter().flat_map(|s| [s.address, s.address + s.bytes.len() as u32]));
    let ends: Vec<u32> = ends.into_iter().collect();
    let mut of_bytes = vec![0u64; ends.len()];
    for (&(at, len), mask) in refs.data.iter().zip(&masks[count..]) {
        let from = ends.partition_point(|&e| e < at);
        let within = ends[from..].iter().zip(&mut of_bytes[from..]).take_while(|(e, _)| **e < at + len);
        within.for_each(|(_, bytes)| *bytes |= mask);
    }
    let mut data: Vec<(u32, u32, usize)> = Vec::new();
    for (e, &mask) in ends.windows(2).zip(&of_bytes) {
        let is_zero = || bound.bytes(e[0], e[1] - e[0]).is_some_and(|b| b.iter().all(|&b| b == 0));
        let padding = mask == 0 && e[1] - e[0] < PADDING_BYTES && is_zero();
        let before = data.last().filter(|_| padding).map(|d| d.2);
        data.push((e[0], e[1] - e[0], before.unwrap_or(home(mask))));
    }
    Ok(Homes { functions: masks[..count].iter().map(|&m| home(m)).collect(), data })
}
