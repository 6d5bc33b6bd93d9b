//! Graphs of tensors serialised as bytes, to move them from one session to another. Use: a wasm module that has more
//! operators than the one that holds the data builds a graph over placeholders, and hands it over. Never: a file
//! format. Both sides must be built from the same sources; the bytes begin with a fingerprint of these, so the format
//! needs no versions.
//!
//! Input of [`write`]: output tensors and the inputs that stand for the other side's tensors. [`read`] checks every
//! node, and appends the graph to its session over its own inputs.

use super::{Session, Tensor, check_len};
use crate::dtype::Scalar;
use crate::engine::Bytes;
use crate::uop::{Arg, Op, ReduceOp, ScatterMode, Shape, UOp, spec};
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;

/// The fingerprint of the sources, with which the bytes begin.
const SOURCE_FINGERPRINT: &[u8] = env!("GRADLOOM_SOURCES").as_bytes();
/// Tags that stand where an op's number would. INPUT: an input in its own shape. FLAT_INPUT: an input's elements as a
/// flat array. STORAGE: a buffer, or with the dtype 255 the end of the nodes.
const INPUT: u8 = 255;
const FLAT_INPUT: u8 = 254;
const STORAGE: u8 = 253;
const REDUCTIONS: [ReduceOp; 4] = [ReduceOp::Add, ReduceOp::Mul, ReduceOp::Max, ReduceOp::Min];

/// Writes the graph that leads from `inputs` to `outs`, and the number of random draws that the session has made. Other
/// buffers are written with their host data.
///
/// # Errors
/// `E_VALUE` for nodes that have no meaning in another session, such as launch variables.
pub fn write(session: &Session, outs: &[Tensor], inputs: &[Tensor]) -> Result<Vec<u8>> {
    let nodes = |list: &[Tensor]| list.iter().map(Tensor::node).collect::<Vec<UOp>>();
    let (roots, inputs) = (nodes(outs), nodes(inputs));
    let s = session.state();
    let mut w = SOURCE_FINGERPRINT.to_vec();
    number(&mut w, u64::from(s.draws));
    for &u in &inputs {
        w.push(dtype_number(s.graph.dtype(u)));
        list(&mut w, s.graph.shape(u).iter().map(|&n| n as u64));
    }
    let rows: Vec<Option<UOp>> = inputs.iter().map(|&u| s.storage(u)).collect();
    let place = |u: UOp| {
        let whole = inputs.iter().position(|&i| i == u).map(|i| (INPUT, i));
        whole.or_else(|| rows.iter().position(|&r| r == Some(u)).map(|i| (FLAT_INPUT, i)))
    };
    let mut names: FxHashMap<UOp, usize> = FxHashMap::default();
    for u in s.graph.reachable(&roots) {
        let (op, dtype, src) = (s.graph.op(u), s.graph.dtype(u), s.graph.src(u));
        let at = names.len();
        names.insert(u, at);
        if let Some((kind, i)) = place(u) {
            w.push(kind);
            number(&mut w, i as u64);
            continue;
        }
        let arg = s.graph.arg(u);
        if let Arg::Buffer { id, len } = arg {
            let host = s.buffer(*id).and_then(|b| b.host.as_deref()).unwrap_or(&[]);
            w.extend([STORAGE, dtype_number(dtype)]);
            number(&mut w, *len as u64);
            number(&mut w, host.len() as u64);
            w.extend_from_slice(host);
            continue;
        }
        w.extend([op as u8, dtype_number(dtype)]);
        list(&mut w, src.iter().map(|x| (at - names[x]) as u64));
        write_arg(&mut w, op, arg)?;
    }
    w.push(STORAGE);
    w.push(u8::MAX);
    list(&mut w, roots.iter().map(|u| names[u] as u64));
    Ok(w)
}

/// Reads what [`write`] wrote: the output tensors, with tensors of this session as its inputs. The session's random
/// stream is moved to where the writer's was.
///
/// # Errors
/// `E_FORMAT` if the bytes are cut, or were written by another build; `E_SHAPE` or `E_VALUE` for an input of another
/// shape or dtype.
pub fn read(session: &Session, bytes: &[u8], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let bad = || Error::format("graph", "of another build of gradloom, or cut", None);
    let mut r = Reader { rest: bytes.strip_prefix(SOURCE_FINGERPRINT).ok_or_else(bad)? };
    let draws = r.number().ok_or_else(bad)?;
    let inputs: Vec<UOp> = inputs.iter().map(Tensor::node).collect();
    let mut s = session.state();
    for &u in &inputs {
        let dtype = r.dtype().ok_or_else(bad)?;
        let shape: Vec<usize> = r.list().ok_or_else(bad)?.into_iter().map(|n| n as usize).collect();
        if s.graph.shape(u)[..] != shape[..] {
            return Err(Error::Shape { op: "graph", lhs: s.graph.shape(u).to_vec(), rhs: shape });
        }
        if s.graph.dtype(u) != dtype {
            return Err(Error::value(
                "graph",
                format!("a tensor of {} in the place of one of {dtype}", s.graph.dtype(u)),
            ));
        }
    }
    let mut nodes: Vec<UOp> = Vec::new();
    let roots = loop {
        let node = match r.byte().ok_or_else(bad)? {
            kind @ (INPUT | FLAT_INPUT) => {
                let u = r.index().and_then(|i| inputs.get(i).copied()).ok_or_else(bad)?;
                let len = s.graph.memory_len(u);
                if kind == FLAT_INPUT { s.graph.reshape(u, &[len]) } else { u }
            }
            STORAGE => match r.byte().ok_or_else(bad)? {
                u8::MAX => break r.list().ok_or_else(bad)?,
                dtype => {
                    let dtype = *DType::ALL.get(usize::from(dtype)).ok_or_else(bad)?;
                    let (len, held) = (r.index().ok_or_else(bad)?, r.index().ok_or_else(bad)?);
                    check_len("graph", &[len])?;
                    let host = r.take(held).filter(|_| held == 0 || len.checked_mul(dtype.size()) == Some(held));
                    let host = host.ok_or_else(bad)?;
                    s.add_buffer(dtype, len, (held > 0).then(|| Bytes::new(host.to_vec())))
                }
            },
            op => {
                let op = *Op::ALL.get(usize::from(op)).ok_or_else(bad)?;
                let dtype = r.dtype().ok_or_else(bad)?;
                let back = r.list().ok_or_else(bad)?;
                let at = nodes.len();
                let src = back.iter().map(|&b| at.checked_sub(b as usize).and_then(|i| nodes.get(i).copied()));
                let src: Vec<UOp> = src.collect::<Option<_>>().ok_or_else(bad)?;
                let arg = r.arg(op, dtype).ok_or_else(bad)?;
                // each node is verified: a graph that breaks the rules could make kernels read outside their buffers
                spec::check_node(&s.graph, op, dtype, &src, &arg, Some(spec::Stage::Tensor))
                    .map_err(|what| Error::format("graph", format!("{}: {what}", op.name()), None))?;
                s.graph.node(op, dtype, &src, arg)
            }
        };
        nodes.push(node);
    };
    s.draws = draws as u32;
    let roots: Vec<UOp> =
        roots.iter().map(|&i| nodes.get(i as usize).copied()).collect::<Option<_>>().ok_or_else(bad)?;
    drop(s);
    Ok(roots.into_iter().map(|u| Tensor::from_node(session, u)).collect())
}

/// The number of a dtype in [`DType::ALL`]; void has the number after the last.
fn dtype_number(dtype: DType) -> u8 {
    DType::ALL.iter().position(|&d| d == dtype).unwrap_or(DType::ALL.len()) as u8
}

/// Appends a number as LEB128 (7 bits per byte, the lowest first).
fn number(w: &mut Vec<u8>, mut n: u64) {
    while n > 127 {
        w.push(n as u8 | 128);
        n >>= 7;
    }
    w.push(n as u8);
}

/// Appends the number of items, then the items.
fn list(w: &mut Vec<u8>, items: impl ExactSizeIterator<Item = u64>) {
    number(w, items.len() as u64);
    items.for_each(|n| number(w, n));
}

/// Appends a node's argument; the op tells the reader which kind it is.
fn write_arg(w: &mut Vec<u8>, op: Op, arg: &Arg) -> Result<()> {
    let reduction = |op: ReduceOp| REDUCTIONS.iter().position(|&r| r == op).unwrap_or(0) as u64;
    match arg {
        Arg::None => {}
        Arg::Const(Scalar::Int(i)) => number(w, *i as u64),
        Arg::Const(Scalar::Float(bits)) => number(w, *bits),
        Arg::Shape(s) => list(w, s.iter().map(|&n| n as u64)),
        Arg::Axes(a) => list(w, a.iter().map(|&n| u64::from(n))),
        Arg::Pairs(p) => list(w, p.iter().flat_map(|&(a, b)| [a as u64, b as u64]).collect::<Vec<_>>().into_iter()),
        Arg::Reduce(op, axes) => {
            number(w, reduction(*op));
            list(w, axes.iter().map(|&n| u64::from(n)));
        }
        Arg::Scatter(how, axis) => {
            let how = match how {
                ScatterMode::Combine(op) => reduction(*op),
                ScatterMode::Overwrite => 4,
                ScatterMode::Unique => 5,
            };
            number(w, how);
            number(w, u64::from(*axis));
        }
        _ => {
            let what = format!("{} has no meaning in another session", op.name());
            return Err(Error::value("graph", what));
        }
    }
    Ok(())
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(part)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn number(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            n |= u64::from(b & 127) << shift;
            if b < 128 {
                return Some(n);
            }
        }
        None
    }

    fn index(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn list(&mut self) -> Option<Vec<u64>> {
        (0..self.number()?).map(|_| self.number()).collect()
    }

    fn dtype(&mut self) -> Option<DType> {
        let n = usize::from(self.byte()?);
        if n == DType::ALL.len() { Some(DType::Void) } else { DType::ALL.get(n).copied() }
    }

    fn axes<C: FromIterator<u8>>(&mut self) -> Option<C> {
        Some(self.list()?.into_iter().map(|n| n as u8).collect())
    }

    /// Reads the argument of an op as [`write_arg`] wrote it.
    fn arg(&mut self, op: Op, dtype: DType) -> Option<Arg> {
        Some(match op {
            Op::Const if dtype.is_float() => Arg::Const(Scalar::Float(self.number()?)),
            Op::Const => Arg::Const(Scalar::Int(self.number()? as i64)),
            Op::Iota | Op::Reshape | Op::Expand => {
                Arg::Shape(self.list()?.into_iter().map(|n| n as usize).collect::<Shape>())
            }
            Op::Permute | Op::Flip | Op::Gather => Arg::Axes(self.axes()?),
            Op::Pad | Op::Shrink => {
                let list = self.list()?;
                Arg::Pairs(list.chunks_exact(2).map(|p| (p[0] as usize, p[1] as usize)).collect())
            }
            Op::Reduce | Op::Scan => Arg::Reduce(*REDUCTIONS.get(self.index()?)?, self.axes()?),
            Op::Scatter => {
                let how = match self.index()? {
                    4 => ScatterMode::Overwrite,
                    5 => ScatterMode::Unique,
                    op => ScatterMode::Combine(*REDUCTIONS.get(op)?),
                };
                Arg::Scatter(how, self.number()? as u8)
            }
            _ => Arg::None,
        })
    }
}
