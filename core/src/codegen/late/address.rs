//! Address splitting: the part of an offset that is affine in tile axes becomes constant strides of the Index, so that
//! a renderer computes one scalar offset per access and adds a constant for each register. A load of one element for
//! all lanes loses a mask of its lanes, which would make it a gather.

use crate::DType;
use crate::analysis::affine;
use crate::codegen::axes::Kernel;
use crate::rewrite::substitute1;
use crate::rules::simplify_with;
use crate::uop::{Arg, Graph, Op, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Splits the offset of every Index.
pub fn split_addresses(k: &mut Kernel) {
    k.tiles = k.ranges().into_iter().filter(|&r| k.g.kind(r).is_tile()).collect();
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in k.nodes() {
        let src: SmallVec<[UOp; 4]> = k.g.srcs(u).iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
        let v = if k.g.op(u) == Op::Index { split(k, src[0], src[1]) } else { k.g.with_src(u, &src) };
        image.insert(u, masked_afterwards(&mut k.g, v).unwrap_or(v));
    }
    k.sink = image[&k.sink];
}

/// A load of one element under a mask of several lanes as a load without a mask, of whose result the lanes are masked;
/// `None` for other nodes, and where the element may be outside the buffer.
fn masked_afterwards(g: &mut Graph, u: UOp) -> Option<UOp> {
    let (Op::Load, &[index, alt, gate]) = (g.op(u), &g.srcs(u)[..]) else { return None };
    let Arg::Param { len, .. } = *g.arg(g.src_at(index, 0)) else { return None };
    let (at, dt) = (g.src_at(index, 1), g.dtype(u));
    let is_lane = |r: UOp| g.op(r) == Op::Range && g.range_arg(r).lane && !g.depends(index, r);
    let (least, most) = g.bounds(at);
    let inside = least >= 0 && most < len as i64 && *g.arg(index) == Arg::None;
    if !inside || !g.reachable(&[gate]).into_iter().any(is_lane) {
        return None;
    }
    if dt == DType::Bool && g.const_int(alt) == Some(0) {
        let load = g.load(index);
        return Some(g.binary(Op::And, gate, load));
    }
    (dt.size() >= 4).then(|| {
        let load = g.load(index);
        g.select(gate, load, alt)
    })
}

fn split(k: &mut Kernel, ptr: UOp, at: UOp) -> UOp {
    let a = affine(&k.g, at);
    let mut strides: SmallVec<[(u8, i64); 4]> = SmallVec::new();
    let mut zero_map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for &(r, _) in &a.terms {
        let id = k.g.range_arg(r).id;
        if !k.g.kind(r).is_tile() || zero_map.contains_key(&r) {
            continue;
        }
        if let Some(c) = a.stride(&k.g, r).filter(|&c| c != 0) {
            strides.push((id, c));
            let zero = k.g.int(0, k.g.dtype(r));
            zero_map.insert(r, zero);
        }
    }
    sort::ascending(&mut strides);
    let mut base = at;
    if !zero_map.is_empty() {
        base = substitute1(&mut k.g, at, &zero_map);
        base = simplify_with(&mut k.g, base, &mut k.memo);
    }
    let dt = k.g.dtype(ptr);
    let arg = if strides.is_empty() { Arg::None } else { Arg::Strides(strides) };
    k.g.node(Op::Index, dt, &[ptr, base], arg)
}
