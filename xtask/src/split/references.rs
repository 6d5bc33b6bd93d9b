//! References within a module that was linked with `--emit-relocs`: the linker's relocation records tell which
//! functions take the address of which functions and data, and to what data points. Calls are not included; those are
//! read from the function bodies. Sections and relocations are specified in WebAssembly's tool conventions
//! (Linking.md).

use std::collections::HashMap;
use wasmparser::{
    BinaryReader, ConstExpr, DataKind, DataSectionReader, ElementItems, ElementKind, ElementSectionReader, KnownCustom,
    Linking, Operator, Parser, Payload, RelocSectionReader, RelocationEntry, RelocationType, SymbolInfo, TypeRef,
};

/// A target of a reference that is not a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ReferenceTarget {
    /// A slot of the function table.
    Slot(u32),
    /// A data symbol, as an index into [`References::data`].
    Data(usize),
}

/// The references of a linked module.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Addresses and lengths of data symbols.
    pub(super) data: Vec<(u32, u32)>,
    /// The references of each function, imports included.
    pub(super) functions: Vec<Vec<ReferenceTarget>>,
    /// The references of each data symbol.
    pub(super) pointers: Vec<Vec<ReferenceTarget>>,
}

/// The offset of an active segment, which the linker writes as a constant.
fn constant(offset: &ConstExpr<'_>) -> Result<u32, String> {
    match offset.get_operators_reader().read().map_err(text)? {
        Operator::I32Const { value } => Ok(value as u32),
        other => Err(format!("the offset {other:?} is no constant")),
    }
}

pub(super) fn text(error: wasmparser::Error) -> String {
    error.to_string()
}

/// The slots of the function table, `(slot, function)`.
pub(super) fn slots(section: ElementSectionReader<'_>) -> Result<Vec<(u32, u32)>, String> {
    let mut out = Vec::new();
    for element in section {
        let element = element.map_err(text)?;
        let ElementKind::Active { table_index: None | Some(0), offset_expr } = &element.kind else {
            return Err("an element segment is not for table 0".into());
        };
        let ElementItems::Functions(items) = element.items else {
            return Err("an element segment is no list of functions".into());
        };
        let first = constant(offset_expr)?;
        for (i, function) in (first..).zip(items) {
            out.push((i, function.map_err(text)?));
        }
    }
    Ok(out)
}

/// A data segment: its address, its bytes, and the offset of their end within the section.
pub(super) struct Segment<'a> {
    pub(super) address: u32,
    pub(super) bytes: &'a [u8],
    end: usize,
}

pub(super) fn segments<'a>(section: DataSectionReader<'a>) -> Result<Vec<Segment<'a>>, String> {
    let start = section.range().start;
    let one = |data: wasmparser::Data<'a>| match &data.kind {
        DataKind::Active { offset_expr, .. } => {
            Ok(Segment { address: constant(offset_expr)?, bytes: data.data, end: (data.range.end - start) as usize })
        }
        DataKind::Passive => Err("a data segment is passive".to_string()),
    };
    section.into_iter().map(|data| one(data.map_err(text)?)).collect()
}

/// The sections that contain the relocation records, or to which they apply.
#[derive(Default)]
struct Sections<'a> {
    imports: usize,
    /// End offsets of function bodies within the code section.
    bodies: Vec<usize>,
    segments: Vec<Segment<'a>>,
    slot_of: HashMap<u32, u32>,
    symbols: Vec<SymbolInfo<'a>>,
    of_code: Vec<RelocationEntry>,
    of_data: Vec<RelocationEntry>,
}

impl<'a> Sections<'a> {
    fn read(module: &'a [u8]) -> Result<Sections<'a>, String> {
        let mut out = Sections::default();
        let mut code = 0;
        for payload in Parser::new(0).parse_all(module) {
            match payload.map_err(text)? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        out.imports += usize::from(matches!(import.map_err(text)?.ty, TypeRef::Func(_)));
                    }
                }
                Payload::ElementSection(section) => {
                    out.slot_of = slots(section)?.into_iter().map(|(slot, f)| (f, slot)).collect();
                }
                Payload::CodeSectionStart { unchecked_range, .. } => code = unchecked_range.start,
                Payload::CodeSectionEntry(body) => out.bodies.push((body.range().end - code) as usize),
                Payload::DataSection(section) => out.segments = segments(section)?,
                Payload::CustomSection(section) => match (section.name(), section.as_known()) {
                    (_, KnownCustom::Linking(linking)) => {
                        for part in linking.subsections() {
                            if let Linking::SymbolTable(list) = part.map_err(text)? {
                                out.symbols = list.into_iter().collect::<Result<_, _>>().map_err(text)?;
                            }
                        }
                    }
                    ("reloc.CODE", _) => out.of_code = relocations(section.data(), section.data_offset())?,
                    ("reloc.DATA", _) => out.of_data = relocations(section.data(), section.data_offset())?,
                    _ => {}
                },
                _ => {}
            }
        }
        match out.symbols.is_empty() || out.of_code.is_empty() {
            true => Err("the module was not linked with --emit-relocs".into()),
            false => Ok(out),
        }
    }
}

fn relocations(bytes: &[u8], at: u64) -> Result<Vec<RelocationEntry>, String> {
    let section = RelocSectionReader::new(BinaryReader::new(bytes, at)).map_err(text)?;
    section.entries().into_iter().collect::<Result<_, _>>().map_err(text)
}

/// Reads a module's references.
pub(super) fn read(module: &[u8]) -> Result<References, String> {
    let from = Sections::read(module)?;
    let mut out = References { functions: vec![Vec::new(); from.imports + from.bodies.len()], ..Default::default() };
    let mut number = HashMap::new();
    for (i, symbol) in (0u32..).zip(&from.symbols) {
        if let SymbolInfo::Data { symbol: Some(s), .. } = symbol
            && let Some(segment) = from.segments.get(s.index as usize)
        {
            number.insert(i, out.data.len());
            out.data.push((segment.address + s.offset, s.size));
        }
    }
    let target_of = |entry: &RelocationEntry| match entry.ty {
        RelocationType::TableIndexSleb | RelocationType::TableIndexI32 => {
            match from.symbols.get(entry.index as usize) {
                // a function without a slot is never called through the table
                Some(SymbolInfo::Func { index, .. }) => {
                    Ok(from.slot_of.get(index).map(|&slot| ReferenceTarget::Slot(slot)))
                }
                _ => Err("a table index is not that of a function".to_string()),
            }
        }
        RelocationType::MemoryAddrLeb | RelocationType::MemoryAddrSleb | RelocationType::MemoryAddrI32 => {
            Ok(number.get(&entry.index).map(|&i| ReferenceTarget::Data(i)))
        }
        RelocationType::FunctionIndexLeb
        | RelocationType::TypeIndexLeb
        | RelocationType::GlobalIndexLeb
        | RelocationType::TableNumberLeb => Ok(None),
        other => Err(format!("relocations of kind {other:?} are not known here")),
    };
    for entry in &from.of_code {
        if let Some(target) = target_of(entry)? {
            let body = from.bodies.partition_point(|&end| end <= entry.offset as usize);
            out.functions[from.imports + body].push(target);
        }
    }

    out.pointers = vec![Vec::new(); out.data.len()];
    let mut in_order: Vec<usize> = (0..out.data.len()).collect();
    in_order.sort_by_key(|&i| out.data[i]);
    // symbols may overlap: an alias, a part of a table
    let longest = out.data.iter().map(|d| d.1).max().unwrap_or(0);
    for entry in &from.of_data {
        let Some(target) = target_of(entry)? else { continue };
        let at = entry.offset as usize;
        let segment = from.segments.iter().find(|s| (s.end - s.bytes.len()..s.end).contains(&at));
        let segment = segment.ok_or("a relocation lies in no data segment")?;
        let within = at + segment.bytes.len() - segment.end;
        let address = segment.address + within as u32;
        let expected = match target {
            ReferenceTarget::Slot(slot) => slot,
            ReferenceTarget::Data(i) => out.data[i].0.wrapping_add(entry.addend as u32),
        };
        if !segment.bytes[within..].starts_with(&expected.to_le_bytes()) {
            return Err(format!("the pointer at {address} is not the one that the linker's records tell of"));
        }
        let after = in_order.partition_point(|&i| out.data[i].0 <= address);
        let near = in_order[..after].iter().rev().take_while(|&&i| address - out.data[i].0 <= longest);
        let owners: Vec<usize> = near.copied().filter(|&i| address - out.data[i].0 < out.data[i].1).collect();
        if owners.is_empty() {
            return Err(format!("the pointer at {address} belongs to no symbol"));
        }
        owners.into_iter().for_each(|i| out.pointers[i].push(target));
    }
    Ok(out)
}
