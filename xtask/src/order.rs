//! Orders the functions of a wasm module for compression, which improves when similar functions are neighbours. Sorting
//! them by their bytes places instances of the same generic code together, which makes the download of the web module
//! 2% smaller (15 kB of brotli, measured). Placing each function after the one with which it shares the most byte
//! sequences, at whatever offsets, saves another 1%.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{CodeSection, FunctionSection, Module};
use wasmparser::{CodeSectionReader, FunctionBody, FunctionSectionReader, Parser, Payload, TypeRef};

/// The length of the byte sequences (windows) that are compared: about two instructions.
const WINDOW_BYTES: usize = 6;
/// A window that occurs in more functions than this is ignored, since it says nothing about their similarity.
const MAX_WINDOW_FUNCTIONS: usize = 200;
/// The least similarity (see `similarity`) for continuing with the most similar function; below it the order continues
/// with the next unplaced one.
const MIN_SIMILARITY: f64 = 0.3;

/// Gives the indices of function bodies in an order in which each follows one that it shares much with.
pub(crate) fn similarity_order(bodies: &[&[u8]]) -> Vec<usize> {
    let mut sorted: Vec<usize> = (0..bodies.len()).collect();
    sorted.sort_by_key(|&i| bodies[i]);
    let windows: Vec<Vec<u64>> = sorted.iter().map(|&i| windows(bodies[i])).collect();
    let mut functions_with: HashMap<u64, Vec<usize>> = HashMap::new();
    for (i, list) in windows.iter().enumerate() {
        list.iter().for_each(|window| functions_with.entry(*window).or_default().push(i));
    }
    functions_with.retain(|_, list| (2..=MAX_WINDOW_FUNCTIONS).contains(&list.len()));

    let (mut unplaced, mut shared_windows) = (vec![true; sorted.len()], vec![0u32; sorted.len()]);
    let (mut out, mut first, mut next) = (Vec::with_capacity(sorted.len()), 0, None);
    while out.len() < sorted.len() {
        while !unplaced[first] {
            first += 1;
        }
        let at = next.unwrap_or(first);
        unplaced[at] = false;
        out.push(sorted[at]);
        let mut candidates = Vec::new();
        for &i in windows[at].iter().filter_map(|window| functions_with.get(window)).flatten().filter(|&&i| unplaced[i])
        {
            if shared_windows[i] == 0 {
                candidates.push(i);
            }
            shared_windows[i] += 1;
        }
        candidates.sort_unstable();
        let similarity = |i: usize| f64::from(shared_windows[i]) / (windows[i].len() as f64).sqrt();
        let best = candidates.iter().copied().rev().max_by(|&a, &b| similarity(a).total_cmp(&similarity(b)));
        next = best.filter(|&i| similarity(i) >= MIN_SIMILARITY);
        candidates.into_iter().for_each(|i| shared_windows[i] = 0);
    }
    out
}

/// The hashes of about half of a body's windows, selected by hash, so that every body selects the same windows.
fn windows(body: &[u8]) -> Vec<u64> {
    let hash = |window: &[u8]| {
        let mut hasher = DefaultHasher::new();
        window.hash(&mut hasher);
        hasher.finish()
    };
    let mut out: Vec<u64> = body.windows(WINDOW_BYTES).map(hash).filter(|hash| hash % 2 == 0).collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// Rewrites a module with its functions ordered by similarity.
pub(crate) fn by_similarity(module: &[u8]) -> Result<Vec<u8>, String> {
    let fail = |e: &dyn std::fmt::Display| format!("ordering functions: {e}");
    let mut imports = 0;
    let mut bodies: Vec<&[u8]> = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|e| fail(&e))? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    imports += usize::from(matches!(import.map_err(|e| fail(&e))?.ty, TypeRef::Func(_)));
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body.as_bytes()),
            _ => {}
        }
    }
    let order = similarity_order(&bodies);
    let mut index: Vec<u32> = (0..(imports + order.len()) as u32).collect();
    order.iter().enumerate().for_each(|(new, old)| index[imports + old] = (imports + new) as u32);
    let mut out = Module::new();
    Reordered { order, index }.parse_core_module(&mut out, Parser::new(0), module).map_err(|e| fail(&e))?;
    Ok(out.finish())
}

struct Reordered {
    /// Old indices of the module's own functions in their new order.
    order: Vec<usize>,
    /// The new index of each function, imports included.
    index: Vec<u32>,
}

impl Reencode for Reordered {
    type Error = Infallible;

    fn function_index(&mut self, old: u32) -> Result<u32, Error<Infallible>> {
        Ok(self.index[old as usize])
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        let types = section.into_iter().collect::<Result<Vec<u32>, _>>()?;
        for &old in &self.order {
            functions.function(types[old]);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        let bodies = section.into_iter().collect::<Result<Vec<FunctionBody<'_>>, _>>()?;
        for old in std::mem::take(&mut self.order) {
            self.parse_function_body(code, bodies[old].clone())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{EntityType, ExportKind, ExportSection, Function, ImportSection, TypeSection, ValType};

    #[test]
    fn similar_functions_become_neighbours() {
        let body = |first: u8, shared: &[u8]| [&[first, first + 1, first + 2], shared].concat();
        let (even, odd): (Vec<u8>, Vec<u8>) = ((0..200).step_by(2).collect(), (1..200).step_by(2).collect());
        let bodies = [body(0, &even), body(50, &odd), body(100, &even), body(150, &odd)];
        let bodies: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
        // sorting by bytes would interleave the two kinds
        assert_eq!(similarity_order(&bodies), [0, 2, 1, 3]);
        assert_eq!(similarity_order(&[]), [0; 0]);
    }

    #[test]
    fn calls_and_exports_follow_the_new_order() {
        let (mut types, mut imports) = (TypeSection::new(), ImportSection::new());
        types.ty().function([], [ValType::I32]);
        types.ty().function([ValType::I32], [ValType::I32]);
        imports.import("env", "given", EntityType::Function(0));
        let (mut functions, mut exports, mut code) = (FunctionSection::new(), ExportSection::new(), CodeSection::new());
        functions.function(0).function(1);
        exports.export("two", ExportKind::Func, 1).export("sum", ExportKind::Func, 2);
        let (mut two, mut sum) = (Function::new([]), Function::new([]));
        two.instructions().i32_const(2).end();
        sum.instructions().call(0).call(1).i32_add().end();
        code.function(&two).function(&sum);
        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions).section(&exports).section(&code);

        let (mut of, mut names, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let out = by_similarity(&module.finish()).unwrap();
        wasmparser::validate(&out).unwrap();
        for payload in Parser::new(0).parse_all(&out) {
            match payload.unwrap() {
                Payload::FunctionSection(section) => of.extend(section.into_iter().map(Result::unwrap)),
                Payload::ExportSection(section) => {
                    names.extend(section.into_iter().map(|e| e.unwrap()).map(|e| (e.name.to_owned(), e.index)));
                }
                Payload::CodeSectionEntry(body) => bodies.push(body.as_bytes().to_vec()),
                _ => {}
            }
        }
        // opcode 0x10 is a call, 0x41 a constant: the sum comes first, and its call refers to what is second now
        assert_eq!(of, [1, 0]);
        assert_eq!(names, [("two".to_owned(), 2), ("sum".to_owned(), 1)]);
        assert_eq!(bodies, [vec![0, 0x10, 0, 0x10, 2, 0x6a, 0x0b], vec![0, 0x41, 2, 0x0b]]);
    }
}
