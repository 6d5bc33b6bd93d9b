//! PTX text -> instructions. What the interpreter does not know is an error that names the line, as with the driver's compiler.

use crate::alu::{self, Alu};
use std::collections::HashMap;

/// A number, or a register's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    Reg(usize),
    Number(u64),
    /// Of the block (`true`) or of the thread in it, and the dimension.
    Index(bool, usize),
}

/// What memory an access is to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
}

/// Elements in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    pub(crate) bytes: usize,
    pub(crate) signed: bool,
}

/// The shape of a product of matrices.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Tile {
    /// 16 by 8 by this, of f16 or bf16.
    Half { k: usize, bf16: bool },
    /// 8 by 8 by 4 of f64.
    Double,
}

#[derive(Debug)]
pub(crate) enum Code {
    Alu {
        f: Alu,
        dest: usize,
        src: [Operand; 3],
    },
    /// A register of several smaller ones, which are `bits` wide.
    Pack {
        dest: usize,
        src: Vec<Operand>,
        bits: u32,
    },
    Unpack {
        dest: Vec<usize>,
        src: Operand,
        bits: u32,
    },
    Param {
        dest: usize,
        at: usize,
    },
    Load {
        space: Space,
        of: Element,
        dest: Vec<usize>,
        base: Operand,
        plus: i64,
    },
    Store {
        space: Space,
        of: Element,
        src: Vec<Operand>,
        base: Operand,
        plus: i64,
    },
    Branch(usize),
    /// One of sixteen, for so many threads or all of them, which may go on if they only say that they have come.
    Barrier {
        number: Operand,
        threads: Option<usize>,
        waits: bool,
    },
    Shuffle {
        dest: usize,
        src: Operand,
        bits: Operand,
    },
    Mma {
        tile: Tile,
        d: Vec<usize>,
        a: Vec<usize>,
        b: Vec<usize>,
        c: Vec<usize>,
    },
    /// Matrices of 8 by 8 from shared memory, whose rows threads address.
    LoadMatrix {
        dest: Vec<usize>,
        base: Operand,
        plus: i64,
        turned: bool,
    },
    /// A copy of so many bytes to shared memory that goes on by itself, and how many of them are read.
    Copy {
        to: (Operand, i64),
        from: (Operand, i64),
        bytes: usize,
        read: Operand,
    },
    /// Ends a group of copies.
    Commit,
    /// Waits for all groups but the last so many.
    Wait(usize),
    /// Starts a product of matrices in shared memory, which is added to the registers of four warps once it is waited for.
    Product(Box<Product>),
    /// What was written to registers is there for products.
    ProductFence,
    /// Ends a group of products.
    ProductCommit,
    /// Waits for all groups of products but the last so many.
    ProductWait(usize),
    /// What was written to memory is there for products.
    ProxyFence,
    Return,
}

/// A product of matrices in shared memory: `wgmma.mma_async` of 16-bit floats.
#[derive(Debug)]
pub(crate) struct Product {
    pub(crate) d: Vec<usize>,
    /// Whether it is added to what they hold, or is the first of their sums.
    pub(crate) adds: usize,
    /// Registers with the left factor, if that is not in memory.
    pub(crate) held: Vec<usize>,
    /// Where the two factors are: descriptors.
    pub(crate) factors: [Operand; 2],
    /// Are neighbours along the sides that are not summed over?
    pub(crate) turned: [bool; 2],
    pub(crate) bf16: bool,
}

impl Code {
    /// Do threads do it together?
    pub(crate) fn meets(&self) -> bool {
        let held = matches!(self, Code::Product(p) if !p.held.is_empty());
        held || matches!(self, Code::Barrier { .. } | Code::Shuffle { .. } | Code::Mma { .. } | Code::LoadMatrix { .. })
    }

    /// The registers that it writes to, but for those of products that go on.
    fn written(&self) -> Vec<usize> {
        match self {
            Code::Alu { dest, .. }
            | Code::Pack { dest, .. }
            | Code::Param { dest, .. }
            | Code::Shuffle { dest, .. } => {
                vec![*dest]
            }
            Code::Unpack { dest, .. } | Code::Load { dest, .. } | Code::LoadMatrix { dest, .. } => dest.clone(),
            Code::Mma { d, .. } => d.clone(),
            _ => Vec::new(),
        }
    }

    /// Those that it reads.
    fn read(&self) -> Vec<usize> {
        let registers = |list: &[Operand]| {
            list.iter().filter_map(|o| if let Operand::Reg(r) = o { Some(*r) } else { None }).collect::<Vec<usize>>()
        };
        match self {
            Code::Alu { src, .. } => registers(src),
            Code::Pack { src, .. } => registers(src),
            Code::Unpack { src, .. } => registers(&[*src]),
            Code::Load { base, .. } | Code::LoadMatrix { base, .. } => registers(&[*base]),
            Code::Store { src, base, .. } => [registers(src), registers(&[*base])].concat(),
            Code::Shuffle { src, bits, .. } => registers(&[*src, *bits]),
            Code::Mma { a, b, c, .. } => [a.as_slice(), b, c].concat(),
            Code::Copy { to, from, read, .. } => registers(&[to.0, from.0, *read]),
            Code::Product(p) => [p.held.clone(), registers(&p.factors), vec![p.adds]].concat(),
            Code::Barrier { number, .. } => registers(&[*number]),
            _ => Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inst {
    /// It is done where this register is not 0.
    pub(crate) guard: Option<usize>,
    pub(crate) code: Code,
    pub(crate) line: usize,
    pub(crate) text: String,
    /// Registers that it reads, and that it writes to, in kernels with products that go on.
    pub(crate) read: Vec<usize>,
    pub(crate) written: Vec<usize>,
}

/// A kernel.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) code: Vec<Inst>,
    pub(crate) registers: usize,
    /// Bytes of each parameter.
    pub(crate) parameters: Vec<usize>,
    pub(crate) block: [u32; 3],
    pub(crate) shared: usize,
    /// Does it use shared memory that the launch gives?
    pub(crate) parts: bool,
    pub(crate) local: usize,
    /// Has it products that go on?
    pub(crate) products: bool,
}

#[derive(Default)]
struct Parser {
    entry: Entry,
    target: String,
    registers: HashMap<String, usize>,
    parameters: HashMap<String, usize>,
    arrays: HashMap<String, u64>,
    labels: HashMap<String, usize>,
    jumps: Vec<(usize, String)>,
}

/// The kernels of a module by name.
pub(crate) fn module(text: &str) -> Result<HashMap<String, Entry>, String> {
    let mut entries = HashMap::new();
    let mut open: Option<Parser> = None;
    let (mut header, mut launched, mut target) = (0, false, "");
    for (i, line) in text.lines().enumerate() {
        let at = |e: String| format!("line {}: {e}: {}", i + 1, line.trim());
        let line = line.trim();
        if line.is_empty() || matches!(line, "(" | ")" | "{") {
            continue;
        }
        if let Some(name) = line.strip_prefix(".visible .entry ") {
            let mut parser = Parser::default();
            parser.target = target.to_string();
            parser.entry.name = name.trim_end_matches('(').to_string();
            if launched {
                parser.arrays.insert("gl_parts".into(), 0);
            }
            open = Some(parser);
            continue;
        }
        if line == "}" {
            let parser = open.take().ok_or_else(|| at("no kernel ends here".into()))?;
            entries.insert(parser.entry.name.clone(), parser.finish()?);
            continue;
        }
        match &mut open {
            Some(p) => p.line(line, i + 1).map_err(at)?,
            None if line == ".extern .shared .align 1024 .b8 gl_parts[];" => launched = true,
            None if line.starts_with(".target ") => {
                header += 1;
                target = line.trim_start_matches(".target ").trim();
            }
            None if [".version ", ".address_size "].iter().any(|h| line.starts_with(h)) => header += 1,
            None => return Err(at("no instruction stands here".into())),
        }
    }
    if open.is_some() || header < 3 || entries.is_empty() {
        return Err("a module has a version, a target, an address size, and kernels that end".into());
    }
    Ok(entries)
}

/// The least compute capability times ten that has an instruction, in parts (PTX ISA, "Target ISA Notes" of each), or the only target.
fn needed(parts: &[&str]) -> Result<u32, &'static str> {
    match parts {
        ["wgmma", ..] => Err("sm_90a"),
        ["fence", "proxy", ..] => Ok(90),
        ["cp", "async", ..] | ["mma", _, _, "m16n8k16" | "m8n8k4", ..] => Ok(80),
        ["max" | "min", rest @ ..] if rest.contains(&"NaN") => Ok(80),
        _ if parts.iter().any(|p| p.starts_with("bf16")) => Ok(80),
        _ => Ok(75),
    }
}

/// Cuts at commas outside of braces.
fn operands(text: &str) -> Vec<&str> {
    let (mut out, mut depth, mut from) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[from..i].trim());
                from = i + 1;
            }
            _ => {}
        }
    }
    if !text[from..].trim().is_empty() {
        out.push(text[from..].trim());
    }
    out
}

/// What is in braces, or the one operand.
fn list(text: &str) -> Vec<&str> {
    match text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
        Some(inner) => inner.split(',').map(str::trim).collect(),
        None => vec![text],
    }
}

fn number(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0f").filter(|t| t.len() == 8) {
        return u32::from_str_radix(hex, 16).ok().map(u64::from);
    }
    if let Some(hex) = text.strip_prefix("0d").filter(|t| t.len() == 16) {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    text.parse::<i64>().ok().map(|n| n as u64)
}

fn element(ty: &str) -> Option<Element> {
    let bits: usize = ty.get(1..)?.parse().ok()?;
    let known = matches!(bits, 8 | 16 | 32 | 64) && ty.starts_with(['s', 'u', 'b', 'f']);
    known.then_some(Element { bytes: bits / 8, signed: ty.starts_with('s') })
}

impl Parser {
    fn finish(mut self) -> Result<Entry, String> {
        for (at, label) in self.jumps {
            let to = *self.labels.get(&label).ok_or_else(|| format!("no label {label}"))?;
            self.entry.code[at].code = Code::Branch(to);
        }
        self.entry.products = self.entry.code.iter().any(|i| matches!(i.code, Code::Product(_)));
        if self.entry.products {
            for i in &mut self.entry.code {
                (i.read, i.written) = (i.code.read(), i.code.written());
                i.read.extend(i.guard);
            }
        }
        Ok(self.entry)
    }

    fn line(&mut self, line: &str, number: usize) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix(".param ") {
            let (ty, name) = rest.trim_end_matches(',').split_once(' ').ok_or("a parameter without a name")?;
            let of = element(ty.trim_start_matches('.')).ok_or("a parameter of an unknown type")?;
            self.parameters.insert(name.to_string(), self.entry.parameters.len());
            self.entry.parameters.push(of.bytes);
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix(".reqntid ") {
            let sizes: Vec<u32> = rest.split(',').filter_map(|n| n.trim().parse().ok()).collect();
            self.entry.block = sizes.try_into().map_err(|_| "a block has three sizes")?;
            return Ok(());
        }
        if let Some(label) = line.strip_suffix(':') {
            self.labels.insert(label.to_string(), self.entry.code.len());
            return Ok(());
        }
        let line = line.strip_suffix(';').ok_or("an instruction ends with a semicolon")?;
        let text = line.to_string();
        if let Some(rest) = line.strip_prefix(".reg ") {
            return self.declare(rest);
        }
        for (word, shared) in [(".shared ", true), (".local ", false)] {
            if let Some(rest) = line.strip_prefix(word) {
                return self.array(rest, shared);
            }
        }
        let (guard, line) = match line.strip_prefix('@') {
            Some(rest) => {
                let (g, rest) = rest.split_once(' ').ok_or("a guard of nothing")?;
                (Some(self.register(g)?), rest)
            }
            None => (None, line),
        };
        let (op, rest) = line.split_once(' ').unwrap_or((line, ""));
        let code = self.instruction(op, &operands(rest))?;
        self.entry.code.push(Inst { guard, code, line: number, text, read: Vec::new(), written: Vec::new() });
        Ok(())
    }

    /// `.pred %p<9>` or `.pred %a, %b`.
    fn declare(&mut self, rest: &str) -> Result<(), String> {
        let (_, names) = rest.split_once(' ').ok_or("registers without a name")?;
        for name in names.split(',').map(str::trim) {
            let Some((name, n)) = name.strip_suffix('>').and_then(|n| n.split_once('<')) else {
                self.registers.insert(name.to_string(), self.entry.registers);
                self.entry.registers += 1;
                continue;
            };
            for i in 0..n.parse::<usize>().map_err(|_| "a number of registers")? {
                self.registers.insert(format!("{name}{i}"), self.entry.registers);
                self.entry.registers += 1;
            }
        }
        Ok(())
    }

    /// `.align 16 .b8 name[bytes]`.
    fn array(&mut self, rest: &str, shared: bool) -> Result<(), String> {
        let (align, name, size) = rest
            .strip_prefix(".align ")
            .and_then(|r| r.strip_suffix(']'))
            .and_then(|r| r.split_once(" .b8 "))
            .and_then(|(align, r)| r.split_once('[').map(|(name, size)| (align, name, size)))
            .ok_or("an array of an unknown kind")?;
        let size: usize = size.parse().map_err(|_| "an array of no size")?;
        let align: usize = align.parse().ok().filter(|a| matches!(a, 16 | 1024)).ok_or("an unknown alignment")?;
        let total = if shared { &mut self.entry.shared } else { &mut self.entry.local };
        *total = total.next_multiple_of(align);
        self.arrays.insert(name.to_string(), *total as u64);
        *total = (*total + size).next_multiple_of(16);
        if shared && *total > 48 << 10 {
            return Err(format!("{total} bytes of shared memory"));
        }
        Ok(())
    }

    fn register(&self, name: &str) -> Result<usize, String> {
        self.registers.get(name).copied().ok_or_else(|| format!("no register {name}"))
    }

    fn all(&self, text: &str) -> Result<Vec<usize>, String> {
        list(text).into_iter().map(|r| self.register(r)).collect()
    }

    fn operand(&mut self, text: &str) -> Result<Operand, String> {
        for (prefix, block) in [("%ctaid.", true), ("%tid.", false)] {
            if let Some(d) = text.strip_prefix(prefix) {
                return ["x", "y", "z"].iter().position(|n| *n == d).map(|d| Operand::Index(block, d)).ok_or(d.into());
            }
        }
        if text.starts_with('%') {
            return self.register(text).map(Operand::Reg);
        }
        if text == "gl_parts" {
            self.entry.parts = true;
        }
        let known = self.arrays.get(text).copied().or_else(|| number(text));
        known.map(Operand::Number).ok_or_else(|| format!("no operand {text}"))
    }

    /// `[base+plus]`.
    fn address(&mut self, text: &str) -> Result<(Operand, i64), String> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or("no address")?;
        let (base, plus) = inner.split_once('+').unwrap_or((inner, "0"));
        Ok((self.operand(base)?, plus.parse().map_err(|_| "an offset that is no number")?))
    }

    fn instruction(&mut self, op: &str, x: &[&str]) -> Result<Code, String> {
        let parts: Vec<&str> = op.split('.').collect();
        let arg = |i: usize| x.get(i).copied().ok_or_else(|| "an operand is missing".to_string());
        let has = self.target.trim_start_matches("sm_").trim_end_matches('a').parse::<u32>().unwrap_or(0);
        if needed(&parts).map_or_else(|only| self.target != only, |least| has < least) {
            return Err(format!("an instruction that {} does not have", self.target));
        }
        match parts.as_slice() {
            ["ret"] => return Ok(Code::Return),
            ["bar", what @ ("sync" | "arrive")] => {
                let threads = x.get(1).map(|n| n.parse::<usize>().map_err(|_| "a number of threads")).transpose()?;
                let (number, waits) = (self.operand(arg(0)?)?, *what == "sync");
                return Ok(Code::Barrier { number, threads, waits });
            }
            ["bra"] => {
                self.jumps.push((self.entry.code.len(), arg(0)?.to_string()));
                return Ok(Code::Branch(usize::MAX));
            }
            ["ld", "param", _] => {
                let name = arg(1)?.trim_matches(['[', ']']);
                let at = *self.parameters.get(name).ok_or("no such parameter")?;
                return Ok(Code::Param { dest: self.register(arg(0)?)?, at });
            }
            ["ld" | "st", space, rest @ ..] => return self.access(parts[0] == "ld", space, rest, arg(0)?, arg(1)?),
            ["shfl", "sync", "bfly", "b32"] if arg(3)? == "31" && arg(4)? == "0xffffffff" => {
                let (dest, src) = (self.register(arg(0)?)?, self.operand(arg(1)?)?);
                return Ok(Code::Shuffle { dest, src, bits: self.operand(arg(2)?)? });
            }
            ["mma", "sync", "aligned", shape, "row", "col", "f32", of @ ("f16" | "bf16"), _, "f32"] => {
                let k = match *shape {
                    "m16n8k16" => 16,
                    "m16n8k8" => 8,
                    _ => return Err("a product of an unknown shape".into()),
                };
                return self.mma(Tile::Half { k, bf16: *of == "bf16" }, x, [4, k / 4, k / 8, 4]);
            }
            ["mma", "sync", "aligned", "m8n8k4", "row", "col", "f64", "f64", "f64", "f64"] => {
                return self.mma(Tile::Double, x, [2, 1, 1, 2]);
            }
            ["ldmatrix", "sync", "aligned", "m8n8", n, turn @ .., "shared", "b16"] => {
                let (dest, (base, plus)) = (self.all(arg(0)?)?, self.address(arg(1)?)?);
                if *n != format!("x{}", dest.len()) || !(turn.is_empty() || turn == ["trans"]) {
                    return Err("matrices of an unknown kind".into());
                }
                return Ok(Code::LoadMatrix { dest, base, plus, turned: !turn.is_empty() });
            }
            ["cp", "async", cache, "shared", "global"] => {
                let (to, from) = (self.address(arg(0)?)?, self.address(arg(1)?)?);
                let bytes = match (*cache, arg(2)?) {
                    ("cg" | "ca", "16") => 16,
                    ("ca", "8") => 8,
                    ("ca", "4") => 4,
                    _ => return Err("a copy of an unknown kind".into()),
                };
                let read = x.get(3).map_or(Ok(Operand::Number(bytes)), |t| self.operand(t))?;
                return Ok(Code::Copy { to, from, bytes: bytes as usize, read });
            }
            ["wgmma", "mma_async", "sync", "aligned", shape, "f32", of @ ("f16" | "bf16"), _] => {
                let d = self.all(arg(0)?)?;
                let held = if arg(1)?.starts_with('{') { self.all(arg(1)?)? } else { Vec::new() };
                let fits = *shape == format!("m64n{}k16", 2 * d.len()) && [arg(4)?, arg(5)?] == ["1"; 2];
                let orders = if held.is_empty() { 2 } else { 1 };
                let known = matches!(held.len(), 0 | 4) && x.len() == 6 + orders;
                if !fits || !known || parts[6] != parts[7] || !d.len().is_multiple_of(4) {
                    return Err("a product of an unknown kind".into());
                }
                let left = if held.is_empty() { self.operand(arg(1)?)? } else { Operand::Number(0) };
                let (factors, adds) = ([left, self.operand(arg(2)?)?], self.register(arg(3)?)?);
                let turned = [held.is_empty() && arg(6)? == "1", arg(5 + orders)? == "1"];
                let bf16 = *of == "bf16";
                return Ok(Code::Product(Box::new(Product { d, adds, held, factors, turned, bf16 })));
            }
            ["wgmma", "fence", "sync", "aligned"] => return Ok(Code::ProductFence),
            ["wgmma", "commit_group", "sync", "aligned"] => return Ok(Code::ProductCommit),
            ["wgmma", "wait_group", "sync", "aligned"] => {
                return Ok(Code::ProductWait(arg(0)?.parse().map_err(|_| "a number of groups")?));
            }
            ["fence", "proxy", "async", "shared::cta"] => return Ok(Code::ProxyFence),
            ["cp", "async", "commit_group"] => return Ok(Code::Commit),
            ["cp", "async", "wait_group"] => {
                return Ok(Code::Wait(arg(0)?.parse().map_err(|_| "a number of groups")?));
            }
            ["mov", ty] if arg(0)?.starts_with('{') => {
                let dest = self.all(arg(0)?)?;
                let bits = element(ty).map_or(0, |e| e.bytes * 8) / dest.len().max(1);
                return Ok(Code::Unpack { dest, src: self.operand(arg(1)?)?, bits: bits as u32 });
            }
            ["mov", ty] if arg(1)?.starts_with('{') => {
                let src = list(arg(1)?).into_iter().map(|r| self.register(r).map(Operand::Reg));
                let src = src.collect::<Result<Vec<_>, _>>()?;
                let bits = element(ty).map_or(0, |e| e.bytes * 8) / src.len().max(1);
                return Ok(Code::Pack { dest: self.register(arg(0)?)?, src, bits: bits as u32 });
            }
            _ => {}
        }
        let f = alu::find(op).ok_or("an unknown instruction")?;
        let mut src = [Operand::Number(0); 3];
        for (slot, text) in src.iter_mut().zip(&x[1.min(x.len())..]) {
            *slot = self.operand(text)?;
        }
        Ok(Code::Alu { f, dest: self.register(arg(0)?)?, src })
    }

    fn mma(&self, tile: Tile, x: &[&str], sizes: [usize; 4]) -> Result<Code, String> {
        let lists = x.iter().map(|t| self.all(t)).collect::<Result<Vec<_>, _>>()?;
        let lengths: Vec<usize> = lists.iter().map(Vec::len).collect();
        match <[Vec<usize>; 4]>::try_from(lists) {
            Ok([d, a, b, c]) if lengths == sizes => Ok(Code::Mma { tile, d, a, b, c }),
            _ => Err(format!("a product with {lengths:?} registers")),
        }
    }

    fn access(&mut self, load: bool, space: &str, rest: &[&str], first: &str, second: &str) -> Result<Code, String> {
        let space = match space {
            "global" => Space::Global,
            "shared" => Space::Shared,
            "local" => Space::Local,
            _ => return Err(format!("no space {space}")),
        };
        let rest: Vec<&str> = rest.iter().copied().filter(|w| *w != "nc").collect();
        let (n, ty) = match rest.as_slice() {
            ["v2", ty] => (2, ty),
            ["v4", ty] => (4, ty),
            [ty] => (1, ty),
            _ => return Err("an access of an unknown kind".into()),
        };
        let of = element(ty).ok_or("an access of an unknown type")?;
        if of.bytes * n > 16 {
            return Err("a vector of more than 16 bytes".into());
        }
        let (values, address) = if load { (first, second) } else { (second, first) };
        if list(values).len() != n {
            return Err(format!("{n} values wanted"));
        }
        let (base, plus) = self.address(address)?;
        if load {
            return Ok(Code::Load { space, of, dest: self.all(values)?, base, plus });
        }
        let src = list(values).into_iter().map(|r| self.operand(r)).collect::<Result<Vec<_>, _>>()?;
        Ok(Code::Store { space, of, src, base, plus })
    }
}
