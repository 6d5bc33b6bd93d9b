//! Changes of a model by its structure: what it says of ranks, sizes, element types, operands, results and attributes.

use crate::message::*;
use gradloom_core::uop::random::Rng;

/// Numbers at which something ends.
const EDGES: [i64; 16] =
    [0, 1, -1, 2, -2, 3, 7, 64, 255, 65536, i32::MAX as i64, i32::MIN as i64, 1 << 32, 1 << 62, i64::MAX, i64::MIN];
/// Element types of a tensor: floats, integers of all widths, bool, strings, and types that hardly anything takes.
const ELEMS: [u64; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 21];

fn some<T: Copy>(r: &mut Rng, of: &[T]) -> Option<T> {
    (!of.is_empty()).then(|| r.pick(of))
}

/// One to four changes; with `edges` also to numbers at the ends of f32.
pub(super) fn mutate(r: &mut Rng, model: &Message, ops: &[(&str, &str)], edges: bool) -> Message {
    let mut m = model.clone();
    for _ in 0..1 + r.below(4) {
        let Some((place, mut g)) = graph(&m) else { return m };
        let _ = change(r, &mut g, ops, edges);
        m.set_inner(place, &g);
    }
    m
}

/// Tries one change; none where the model has nothing of the kind.
fn change(r: &mut Rng, g: &mut Message, ops: &[(&str, &str)], edges: bool) -> Option<()> {
    match r.below(20) {
        0..6 => {
            let place = some(r, &g.places(GRAPH_INPUT))?;
            let mut v = g.inner(place)?;
            change_value(r, &mut v)?;
            g.set_inner(place, &v);
        }
        6 => {
            let place = some(r, &g.places(GRAPH_INITIALIZER))?;
            let mut t = g.inner(place)?;
            change_tensor(r, &mut t)?;
            g.set_inner(place, &t);
        }
        7 => drop(g.0.remove(r.below(g.0.len().max(1)).min(g.0.len().checked_sub(1)?))),
        8 => {
            // an operand that was known becomes an input, or an input is not there
            let kind = r.pick(&[GRAPH_INITIALIZER, GRAPH_INPUT]);
            let place = some(r, &g.places(kind))?;
            g.0.remove(place);
        }
        _ => {
            let place = some(r, &g.places(GRAPH_NODE))?;
            let mut n = g.inner(place)?;
            change_node(r, &mut n, ops, edges)?;
            g.set_inner(place, &n);
        }
    }
    Some(())
}

fn change_value(r: &mut Rng, v: &mut Message) -> Option<()> {
    let at = *v.places(2).first()?;
    let mut ty = v.inner(at)?;
    let tensor_at = *ty.places(1).first()?;
    let mut tensor = ty.inner(tensor_at)?;
    if r.once_in(3) {
        let elem = *tensor.places(1).first()?;
        tensor.0[elem].1 = Wire::Number(r.pick(&ELEMS));
    } else {
        let shape_at = *tensor.places(2).first()?;
        let mut shape = tensor.inner(shape_at)?;
        let dim = |n: i64| (1, Wire::Bytes(Message::default().with_number(1, n as u64).bytes()));
        let n = shape.0.len();
        match r.below(7) {
            0 => shape.0.clear(),
            1 => shape.0.insert(r.below(n + 1), dim(1)),
            2 => shape.0.insert(r.below(n + 1), dim(2)),
            3 if n > 0 => drop(shape.0.remove(r.below(n))),
            4 if n > 0 => shape.0[r.below(n)] = dim(r.pick(&[0, 1, 2, 3, 5, 17])),
            5 if n > 0 => shape.0[r.below(n)] = dim(r.pick(&EDGES)),
            6 => shape.0.extend((0..4).map(|_| dim(1))),
            _ => return None,
        }
        tensor.set_inner(shape_at, &shape);
    }
    ty.set_inner(tensor_at, &tensor);
    v.set_inner(at, &ty);
    Some(())
}

/// Sizes and the element type of a constant, whose bytes may then be too few or too many.
fn change_tensor(r: &mut Rng, t: &mut Message) -> Option<()> {
    match r.below(4) {
        0 => t.0.retain(|f| f.0 != 1),
        1 => {
            let at = *t.places(2).first()?;
            t.0[at].1 = Wire::Number(r.pick(&ELEMS));
        }
        2 => t.0.push((1, Wire::Number(r.pick(&EDGES) as u64))),
        _ => {
            // what it holds: sizes, axes, counts
            let at = some(r, &t.places(9))?;
            let Wire::Bytes(b) = &mut t.0[at].1 else { return None };
            let edge = r.pick(&EDGES).to_le_bytes();
            let from = r.below(b.len().div_ceil(8)) * 8;
            let n = b.len().saturating_sub(from).min(8);
            b[from..from + n].copy_from_slice(&edge[..n]);
        }
    }
    Some(())
}

fn change_node(r: &mut Rng, n: &mut Message, ops: &[(&str, &str)], edges: bool) -> Option<()> {
    let (inputs, outputs) = (n.places(NODE_INPUT), n.places(NODE_OUTPUT));
    match r.below(16) {
        0 => drop(n.0.remove(some(r, &inputs)?)),
        1 => n.0[some(r, &inputs)?].1 = Wire::Bytes(Vec::new()),
        2 => {
            let twice = n.0[some(r, &inputs)?].clone();
            n.0.push(twice);
        }
        3 => {
            let (a, b) = (some(r, &inputs)?, some(r, &inputs)?);
            n.0.swap(a, b);
        }
        4 => n.0.push((NODE_OUTPUT, Wire::Bytes(b"extra".to_vec()))),
        5 => drop(n.0.remove(some(r, &outputs)?)),
        6 => {
            let (domain, op) = r.pick(ops);
            let at = *n.places(NODE_OP).first()?;
            n.0[at].1 = Wire::Bytes(op.into());
            n.0.retain(|f| f.0 != NODE_DOMAIN);
            n.0.push((NODE_DOMAIN, Wire::Bytes(domain.into())));
        }
        7 => {
            let names =
                ["axis", "axes", "keepdims", "to", "k", "size", "num_outputs", "depth", "group", "mode", "dtype"];
            let name = r.pick(&names);
            let attribute = Message::default().with(1, name).with_number(3, r.pick(&EDGES) as u64).with_number(20, 2);
            n.0.push((NODE_ATTRIBUTE, Wire::Bytes(attribute.bytes())));
        }
        8 => drop(n.0.remove(some(r, &n.places(NODE_ATTRIBUTE))?)),
        _ => {
            let at = some(r, &n.places(NODE_ATTRIBUTE))?;
            let mut a = n.inner(at)?;
            change_attribute(r, &mut a, edges)?;
            n.set_inner(at, &a);
        }
    }
    Some(())
}

/// The fields of an attribute: f 2, i 3, s 4, t 5, g 6, floats 7, ints 8, strings 9, type 20.
fn change_attribute(r: &mut Rng, a: &mut Message, edges: bool) -> Option<()> {
    let ints = |r: &mut Rng, a: &Message| -> Vec<i64> {
        let mut list: Vec<i64> =
            a.0.iter().filter(|f| f.0 == 8).map(|f| if let Wire::Number(v) = f.1 { v as i64 } else { 1 }).collect();
        match r.below(4) {
            0 => list.clear(),
            1 => list.push(r.pick(&EDGES)),
            2 => list.truncate(list.len() / 2),
            _ if list.is_empty() => list = vec![r.pick(&EDGES); 2],
            _ => {
                let at = r.below(list.len());
                list[at] = r.pick(&EDGES);
            }
        }
        list
    };
    let kind = a.places(20).first().map(|&p| a.0[p].1.clone());
    // of its own type for the most part
    let kind = match kind {
        Some(Wire::Number(k)) if !r.once_in(4) => k,
        _ => r.pick(&[1, 2, 3, 6, 7, 8]),
    };
    let own = a.clone();
    match kind {
        1 => {
            let ends = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40];
            let v = if edges && r.once_in(2) { r.pick(&ends) } else { r.pick(&[0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-3]) };
            a.0.retain(|f| f.0 == 1);
            a.0.push((2, Wire::Four(v.to_le_bytes())));
        }
        2 => {
            a.0.retain(|f| f.0 == 1);
            a.0.push((3, Wire::Number(r.pick(&EDGES) as u64)));
        }
        3 => {
            let texts = [
                "",
                "linear",
                "cubic",
                "nearest",
                "constant",
                "reflect",
                "SAME_UPPER",
                "VALID",
                "ij,jk->ik",
                "é",
                "%%%",
            ];
            a.0.retain(|f| f.0 == 1);
            a.0.push((4, Wire::Bytes(r.pick(&texts).into())));
        }
        6 => {
            a.0.retain(|f| f.0 == 1);
            a.0.extend((0..r.below(4)).map(|i| (7, Wire::Four((i as f32 - 1.0).to_le_bytes()))));
        }
        7 => {
            let list = ints(r, &own);
            a.0.retain(|f| f.0 == 1);
            a.0.extend(list.into_iter().map(|v| (8, Wire::Number(v as u64))));
        }
        8 => {
            a.0.retain(|f| f.0 == 1);
            a.0.extend((0..r.below(3)).map(|_| (9, Wire::Bytes(b"a".to_vec()))));
        }
        4 => {
            let at = *a.places(5).first()?;
            let mut t = a.inner(at)?;
            change_tensor(r, &mut t)?;
            a.set_inner(at, &t);
            return Some(());
        }
        _ => return None,
    }
    a.0.push((20, Wire::Number(kind)));
    Some(())
}
