//! Kernels that users wrote as loops: in the place of a graph of values they are taken as they are, over the buffers of this device, whose
//! elements may be stored in a wider dtype.

use super::{Lower, Pending, fuse};
use crate::uop::custom::Loops;
use crate::uop::{Arg, Op, UOp};
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

impl Lower<'_> {
    pub(super) fn loops(mut self, u: UOp, loops: &Loops) -> Result<Pending> {
        let (g, body) = (self.g, &loops.graph);
        let mut params: SmallVec<[UOp; 8]> = SmallVec::new();
        for (slot, &s) in (0u32..).zip(g.src(u)) {
            let buffer = self.buffers.of[&fuse::storage(g, s)];
            let info = self.buffers.list[buffer];
            params.push(self.k.param(slot, self.t.stored_as(info.dtype)?, info.len));
            self.args.push(buffer);
        }
        self.wait_for(&g.src(u)[1..]);
        let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut store = None;
        for n in body.reachable(&[loops.sink]) {
            let mut src: SmallVec<[UOp; 4]> = body.src(n).iter().map(|s| image[s]).collect();
            let dt = body.dtype(n);
            let made = match (body.op(n), body.arg(n)) {
                (Op::Param, Arg::Param { slot, .. }) => params[*slot as usize],
                (Op::Index, _) => self.k.index(src[0], src[1]),
                (Op::Load, _) => {
                    let stored = self.k.dtype(src[0]);
                    if let Some(other) = src.get_mut(1) {
                        *other = self.k.cast(*other, stored);
                    }
                    let load = self.k.node(Op::Load, stored, &src, Arg::None);
                    self.k.cast(load, dt)
                }
                (Op::Store, _) => {
                    src[1] = self.k.cast(src[1], self.k.dtype(src[0]));
                    *store.insert(self.k.node(Op::Store, DType::Void, &src, Arg::None))
                }
                (Op::Sink, _) => break,
                (op, arg) => self.k.node(op, dt, &src, arg.clone()),
            };
            image.insert(n, made);
        }
        let store = store.ok_or_else(|| Error::Internal("a kernel of loops that stores nothing".into()))?;
        let written = (self.args[0], self.versions[&u]);
        Ok(self.finished(u, store, written))
    }
}
