//! The text form of graphs and programs: one node per line, such as `%3 f32 = add %1 %2`, with the argument in brackets
//! and derived properties (shape, ids of open ranges) in a comment. [`super::parse`] reads it back. Nodes are numbered
//! consecutively in the order of printing, so that graphs of equal structure have equal texts.

use super::{Arg, AxisKind, Graph, Op, ReduceOp, ScatterMode, Space, UOp};
use crate::dtype::Scalar;
use crate::util::decimal::Shown;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

/// The text of all nodes that `roots` need, sources first, and of a last line that names the roots.
pub fn print(g: &Graph, roots: &[UOp]) -> String {
    let mut out = String::new();
    let names = lines(g, &g.reachable(roots), &mut out);
    out.push_str("roots");
    for r in roots {
        let _ = write!(out, " %{}", names[r]);
    }
    out.push('\n');
    out
}

/// The text of a program in execution order, indented by loop depth. Nodes that are not in the order (constants, tile
/// ranges, pointers) come first.
pub fn print_program(g: &Graph, order: &[UOp]) -> String {
    let placed: FxHashSet<UOp> = order.iter().copied().collect();
    let mut all: Vec<UOp> = g.reachable(order).into_iter().filter(|u| !placed.contains(u)).collect();
    all.extend_from_slice(order);
    let mut out = String::new();
    lines(g, &all, &mut out);
    out
}

/// The text of one node for error messages; numbers are those of the graph.
pub fn line(g: &Graph, u: UOp) -> String {
    let mut out = String::new();
    write_line(g, u, &|u| u.0, &mut out);
    out
}

fn lines(g: &Graph, nodes: &[UOp], out: &mut String) -> FxHashMap<UOp, u32> {
    let names: FxHashMap<UOp, u32> = nodes.iter().enumerate().map(|(i, &u)| (u, i as u32)).collect();
    // a loop indents what follows only if an End closes it, which is so in programs alone
    let ended: FxHashSet<UOp> = nodes.iter().filter(|&&u| g.op(u) == Op::End).map(|&u| g.src_at(u, 0)).collect();
    let mut depth = 0usize;
    for &u in nodes {
        if g.op(u) == Op::End {
            depth = depth.saturating_sub(1);
        }
        let _ = write!(out, "{:1$}", "", 2 * depth);
        write_line(g, u, &|s| names[&s], out);
        write_comment(g, u, out);
        out.push('\n');
        if ended.contains(&u) {
            depth += 1;
        }
    }
    names
}

fn write_line(g: &Graph, u: UOp, name: &dyn Fn(UOp) -> u32, out: &mut String) {
    let _ = write!(out, "%{} {} = {}", name(u), g.dtype(u), g.op(u).name());
    write_arg(g.arg(u), out);
    for &s in g.src(u) {
        let _ = write!(out, " %{}", name(s));
    }
}

fn write_comment(g: &Graph, u: UOp, out: &mut String) {
    let (shape, ranges) = (g.shape(u), g.ranges(u));
    if shape.is_empty() && ranges == 0 {
        return;
    }
    out.push_str("  //");
    if !shape.is_empty() {
        let _ = write!(out, " {shape:?}");
    }
    if ranges != 0 {
        let ids: Vec<String> = (0..128).filter(|i| ranges >> i & 1 == 1).map(|i| i.to_string()).collect();
        let _ = write!(out, " {{{}}}", ids.join(" "));
    }
}

/// Writes the argument in brackets; nothing for `Arg::None`.
fn write_arg(arg: &Arg, out: &mut String) {
    fn list<T>(items: &[T], out: &mut String, f: impl Fn(&T) -> String) {
        let items: Vec<String> = items.iter().map(f).collect();
        let _ = write!(out, "[{}]", items.join(", "));
    }
    let _ = match arg {
        Arg::None => Ok(()),
        Arg::Const(Scalar::Int(i)) => write!(out, "[{i}]"),
        Arg::Const(Scalar::Float(b)) => write!(out, "[{:?}]", Shown(f64::from_bits(*b))),
        Arg::Buffer { id, len } => write!(out, "[id={id} len={len}]"),
        Arg::Param { slot, len } => write!(out, "[slot={slot} len={len}]"),
        Arg::Var { name, min, max } => write!(out, "[{name:?} min={min} max={max}]"),
        Arg::Shape(s) => return list(s, out, usize::to_string),
        Arg::Axes(a) => return list(a, out, u8::to_string),
        Arg::Pairs(p) => return list(p, out, |(a, b)| format!("{a}:{b}")),
        Arg::Reduce(op, axes) => {
            let axes: String = axes.iter().map(|a| format!(" {a}")).collect();
            write!(out, "[{}{axes}]", reduce_name(*op))
        }
        Arg::Range(r) => write!(out, "[id={} {}{}]", r.id, kind_name(r.kind), if r.lane { " lane" } else { "" }),
        Arg::Strides(s) => return list(s, out, |(id, stride)| format!("{id}:{stride}")),
        Arg::Scatter(how, axis) => write!(out, "[{} {axis}]", scatter_name(*how)),
        Arg::Number(n) => write!(out, "[{n}]"),
        Arg::Acc(id) => write!(out, "[id={id}]"),
        Arg::Custom(c) => {
            let [x, y, z] = c.grid;
            let loops = if c.ir.is_some() { " loops" } else { "" };
            write!(out, "[{:?} outputs={} x={x} y={y} z={z}{loops} {:?}]", c.name, c.outputs, c.code)
        }
        Arg::Recurrence(r) => {
            // a page, which has no parser either, does without the step
            let body = if cfg!(target_arch = "wasm32") { String::new() } else { print(&r.body, &r.next) };
            write!(out, "[steps={} states={} sequences={} {body:?}]", r.steps, r.states, r.sequences)
        }
        Arg::Mma(layout) => write!(out, "[{layout}]"),
        Arg::Scratch { id, len, space } => write!(out, "[id={id} len={len} {}]", space_name(*space)),
    };
}

pub(super) fn reduce_name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Add => "add",
        ReduceOp::Mul => "mul",
        ReduceOp::Max => "max",
        ReduceOp::Min => "min",
    }
}

pub(super) fn scatter_name(how: ScatterMode) -> &'static str {
    match how {
        ScatterMode::Unique => "apart",
        ScatterMode::Overwrite => "last",
        ScatterMode::Combine(op) => reduce_name(op),
    }
}

pub(super) fn space_name(space: Space) -> String {
    match space {
        Space::Workgroup => "workgroup".into(),
        Space::Private => "private".into(),
        Space::Subgroup(bits) => format!("subgroup{bits}"),
    }
}

pub(super) fn kind_name(kind: AxisKind) -> String {
    match kind {
        AxisKind::Grid(d) => format!("grid{d}"),
        AxisKind::Local(d) => format!("local{d}"),
        AxisKind::Loop => "loop".into(),
        AxisKind::Reduce => "reduce".into(),
        AxisKind::Upcast => "upcast".into(),
        AxisKind::Unroll => "unroll".into(),
        AxisKind::Dot => "dot".into(),
        AxisKind::Accum => "accum".into(),
        AxisKind::Fill => "fill".into(),
        AxisKind::Walk => "walk".into(),
        AxisKind::Tile => "tile".into(),
    }
}
