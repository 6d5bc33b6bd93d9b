//! The parser of the IR's text form, which [`super::print`] writes. Every node is checked against the spec before it is
//! added, so that no text, however damaged, yields a graph on which the compiler panics. Errors name the line.

use super::custom::{Custom, KernelGraph};
use super::mma::Layout;
use super::print::{kind_name, reduce_name, scatter_name, space_name};
use super::recurrence::Recurrence;
use super::spec::Stage;
use super::{Arg, AxisKind, Graph, Op, RangeArg, ReduceOp, ScatterMode, Space, UOp, spec};
use crate::dtype::Scalar;
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;

/// The result of parsing a text.
#[derive(Clone)]
pub struct Parsed {
    /// The nodes.
    pub graph: Graph,
    /// The nodes that the `roots` line names; empty if there is no such line.
    pub roots: Vec<UOp>,
    /// The node of each line, in the order of the text; for a program this is its execution order.
    pub order: Vec<UOp>,
}

/// Parses a printed graph or program. Comments run from `//` to the end of the line; blank lines are ignored.
pub fn parse(text: &str) -> Result<Parsed> {
    let mut p = Parsed { graph: Graph::new(), roots: Vec::new(), order: Vec::new() };
    let mut names = FxHashMap::default();
    for (i, line) in text.lines().enumerate() {
        let at = |what: String| Error::format("uop", format!("line {}: {what}", i + 1), None);
        read_line(&mut p, &mut names, line).map_err(at)?;
    }
    Ok(p)
}

/// Parses the text of a user's kernel, which must have one root. Each node is checked by itself; the rules for whole
/// graphs are left to [`super::spec::verify`].
pub fn kernel_graph(text: &str) -> Result<KernelGraph> {
    let Parsed { graph, roots, .. } = parse(text)?;
    match *roots {
        [sink] => Ok(KernelGraph::new(graph, sink)),
        _ => Err(Error::format("uop", format!("a kernel has one root, not {}", roots.len()), None)),
    }
}

type Names = FxHashMap<u32, UOp>;
type Read<T> = std::result::Result<T, String>;

fn read_line(p: &mut Parsed, names: &mut Names, line: &str) -> Read<()> {
    let mut c = Cursor { rest: line };
    if c.at_end() {
        return Ok(());
    }
    if c.eat("roots") {
        while !c.at_end() {
            p.roots.push(c.node(names)?);
        }
        return Ok(());
    }
    let name = c.name()?;
    let dt = c.word("a dtype")?;
    let dt = DType::from_name(dt).ok_or_else(|| format!("unknown dtype `{dt}`"))?;
    c.expect("=")?;
    let word = c.word("an op")?;
    let op = Op::ALL.iter().copied().find(|o| o.name() == word).ok_or_else(|| format!("unknown op `{word}`"))?;
    let arg = if c.eat("[") { c.arg(op, dt)? } else { Arg::None };
    let mut src = Vec::new();
    while !c.at_end() {
        src.push(c.node(names)?);
    }
    spec::check_node(&p.graph, op, dt, &src, &arg, None)?;
    let u = p.graph.node(op, dt, &src, arg);
    if names.insert(name, u).is_some() {
        return Err(format!("%{name} is defined twice"));
    }
    p.order.push(u);
    Ok(())
}

struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', ',', '\r']);
    }

    fn at_end(&mut self) -> bool {
        self.skip();
        self.rest.is_empty() || self.rest.starts_with("//")
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Read<()> {
        if self.eat(token) { Ok(()) } else { Err(format!("`{token}` expected at `{}`", self.rest)) }
    }

    /// Consumes the longest run of characters that `of` accepts; an error that asks for `what` if there is none.
    fn run(&mut self, what: &str, of: impl Fn(char) -> bool) -> Read<&'a str> {
        self.skip();
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        if token.is_empty() {
            return Err(format!("{what} expected at `{}`", self.rest));
        }
        self.rest = rest;
        Ok(token)
    }

    fn word(&mut self, what: &str) -> Read<&'a str> {
        self.run(what, |c| c.is_ascii_alphanumeric() || c == '_')
    }

    fn number<T: std::str::FromStr>(&mut self) -> Read<T> {
        let token = self.run("a number", |c| c.is_ascii_alphanumeric() || "+-.".contains(c))?;
        token.parse().map_err(|_| format!("bad number `{token}`"))
    }

    fn name(&mut self) -> Read<u32> {
        self.expect("%")?;
        self.number()
    }

    fn node(&mut self, names: &Names) -> Read<UOp> {
        let n = self.name()?;
        names.get(&n).copied().ok_or_else(|| format!("%{n} is not defined above"))
    }

    fn field<T: std::str::FromStr>(&mut self, name: &str) -> Read<T> {
        self.expect(name)?;
        self.expect("=")?;
        self.number()
    }

    /// Parses items up to the closing bracket, which is not consumed.
    fn list<T, C: FromIterator<T>>(&mut self, item: impl Fn(&mut Self) -> Read<T>) -> Read<C> {
        let mut out = Vec::new();
        loop {
            self.skip();
            if self.rest.starts_with(']') {
                return Ok(out.into_iter().collect());
            }
            out.push(item(self)?);
        }
    }

    fn pair<A: std::str::FromStr, B: std::str::FromStr>(&mut self) -> Read<(A, B)> {
        let a = self.number()?;
        self.expect(":")?;
        Ok((a, self.number()?))
    }

    /// Parses a string literal as `{:?}` prints it.
    fn quoted(&mut self) -> Read<Box<str>> {
        self.expect("\"")?;
        let mut out = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((i, ch)) = chars.next() {
            match ch {
                '"' => {
                    self.rest = &self.rest[i + 1..];
                    return Ok(out.into());
                }
                '\\' => match chars.next().map(|c| c.1) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('0') => out.push('\0'),
                    Some('u') => {
                        let hex: String =
                            chars.by_ref().map(|c| c.1).skip_while(|c| *c == '{').take_while(|c| *c != '}').collect();
                        let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                        out.push(code.ok_or_else(|| format!("bad escape \\u{{{hex}}}"))?);
                    }
                    Some(c @ ('"' | '\\' | '\'')) => out.push(c),
                    _ => return Err("bad escape in a string".into()),
                },
                c => out.push(c),
            }
        }
        Err("string without an end".into())
    }

    fn one_of<T: Copy>(&mut self, what: &str, all: &[T], name: impl Fn(T) -> String) -> Read<T> {
        let word = self.word(what)?;
        all.iter().copied().find(|&x| name(x) == word).ok_or_else(|| format!("unknown {what} `{word}`"))
    }

    fn arg(&mut self, op: Op, dt: DType) -> Read<Arg> {
        let arg = match op {
            // a constant may be written in decimal: it is rounded to the nearest value of the dtype
            Op::Const if dt.is_float() => Arg::Const(Scalar::from_f64(self.number()?, dt)),
            Op::Const => Arg::Const(Scalar::Int(self.number()?)),
            Op::Buffer => Arg::Buffer { id: self.field("id")?, len: self.field("len")? },
            Op::Param => Arg::Param { slot: self.field("slot")?, len: self.field("len")? },
            Op::Var => Arg::Var { name: self.quoted()?, min: self.field("min")?, max: self.field("max")? },
            Op::Reshape | Op::Expand | Op::Iota => Arg::Shape(self.list(Self::number)?),
            Op::Permute | Op::Flip | Op::Gather | Op::Contiguous => Arg::Axes(self.list(Self::number)?),
            Op::Pad | Op::Shrink => Arg::Pairs(self.list(Self::pair)?),
            Op::Reduce | Op::Scan | Op::AccUpdate | Op::Fold => {
                use ReduceOp::*;
                let how = self.one_of("reduction", &[Add, Mul, Max, Min], |r| reduce_name(r).to_string())?;
                Arg::Reduce(how, self.list(Self::number)?)
            }
            Op::Scatter => {
                use ReduceOp::*;
                use ScatterMode::*;
                let all = [Unique, Overwrite, Combine(Add), Combine(Mul), Combine(Max), Combine(Min)];
                let how = self.one_of("scatter", &all, |h| scatter_name(h).to_string())?;
                Arg::Scatter(how, self.number()?)
            }
            Op::Range => {
                use AxisKind::*;
                let id = self.field("id")?;
                #[rustfmt::skip]
                let kinds = [
                    Grid(0), Grid(1), Grid(2), Local(0), Local(1), Local(2), Loop, Reduce, Upcast, Unroll, Accum, Fill,
                    Walk, Dot, Tile,
                ];
                let kind = self.one_of("range kind", &kinds, kind_name)?;
                Arg::Range(RangeArg { id, kind, lane: self.eat("lane") })
            }
            Op::Index => Arg::Strides(self.list(Self::pair)?),
            Op::Acc | Op::AccMulAdd => Arg::Acc(self.field("id")?),
            Op::Store | Op::Barrier | Op::Stage | Op::LoadMatrix | Op::Exp2 => Arg::Number(self.number()?),
            Op::Custom => {
                let (name, outputs) = (self.quoted()?, self.field("outputs")?);
                let grid = [self.field("x")?, self.field("y")?, self.field("z")?];
                let (is_ir, code) = (self.eat("loops"), self.quoted()?);
                let ir = if is_ir { Some(kernel_graph(&code).map_err(|e| e.to_string())?) } else { None };
                Arg::Custom(Box::new(Custom { name, outputs, grid, code, ir }))
            }
            // in a page nothing reads one, and its code would come along with every kernel that a user writes
            Op::Recurrence if cfg!(not(target_arch = "wasm32")) => {
                let (steps, states) = (self.field("steps")?, self.field("states")?);
                let (sequences, body) = (self.field("sequences")?, self.quoted()?);
                let Parsed { graph, roots, .. } = parse(&body).map_err(|e| e.to_string())?;
                spec::verify(&graph, &roots, Stage::Tensor).map_err(|e| e.to_string())?;
                let made = Recurrence::new(steps, states, sequences, graph, &roots);
                Arg::Recurrence(Box::new(made.map_err(|e| e.to_string())?))
            }
            Op::Mma => {
                let text = self.run("a layout", |c| c != ']')?;
                Arg::Mma(Box::new(Layout::read(text).ok_or_else(|| format!("bad layout `{text}`"))?))
            }
            Op::Scratch => {
                let (id, len) = (self.field("id")?, self.field("len")?);
                let mut spaces = vec![Space::Workgroup, Space::Private];
                spaces.extend((0..7).map(|bit| Space::Subgroup(1 << bit)));
                let space = self.one_of("memory space", &spaces, space_name)?;
                Arg::Scratch { id, len, space }
            }
            _ => return Err(format!("{} takes no argument", op.name())),
        };
        self.expect("]")?;
        Ok(arg)
    }
}
