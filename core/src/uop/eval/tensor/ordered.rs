//! Scatter, Scan and Recurrence, whose elements must be processed in order.

use super::Eval;
use crate::dtype::Scalar;
use crate::uop::eval::lanes::{Lanes, Reducer};
use crate::uop::eval::view::View;
use crate::uop::recurrence::Recurrence;
use crate::uop::{ReduceOp, ScatterMode, UOp};
use crate::{DType, Result};

impl Eval<'_> {
    pub(super) fn scatter(&mut self, u: UOp, how: ScatterMode, axis: usize) -> View {
        let (g, dt) = (self.g, self.g.dtype(u));
        let (x, idx, src) = (self.view(g.src_at(u, 0)), self.view(g.src_at(u, 1)), self.view(g.src_at(u, 2)));
        let (shape, updates) = (g.shape(u).clone(), g.shape(g.src_at(u, 1)).clone());
        let n = src.numel();
        let at = idx.read(0, n, &mut self.runs);
        let values = src.read(0, n, &mut self.runs);
        let op = if let ScatterMode::Combine(op) = how { op } else { ReduceOp::Add };
        let of = Reducer { op, dt };
        let mut out = wide(x.read(0, x.numel(), &mut self.runs));
        let mut place = vec![0usize; shape.len()];
        for i in 0..n {
            // a u64 index above i64::MAX is negative here, and out of range either way
            if let Some(k) = usize::try_from(at.get(i).as_i64()).ok().filter(|k| *k < shape[axis]) {
                let own = std::mem::replace(&mut place[axis], k);
                let to = place.iter().zip(&shape).fold(0, |at, (p, n)| at * n + p);
                place[axis] = own;
                match how {
                    ScatterMode::Combine(_) => of.fold(&mut out, to, &values, i..i + 1),
                    ScatterMode::Unique | ScatterMode::Overwrite => set(&mut out, to, &values, i),
                }
            }
            for (p, n) in place.iter_mut().zip(&updates).rev() {
                *p += 1;
                if *p < *n {
                    break;
                }
                *p = 0;
            }
        }
        view(of, out, &shape)
    }

    pub(super) fn recurrence(&mut self, u: UOp, r: &Recurrence, vars: &dyn Fn(&str) -> Option<Scalar>) -> Result<View> {
        let g = self.g;
        let src: Vec<Vec<u8>> = g.src(u).iter().map(|&s| self.view(s).to_bytes()).collect();
        Ok(View::new(r.eval(&src, vars)?, g.dtype(u), g.shape(u)))
    }

    pub(super) fn scan(&mut self, u: UOp, op: ReduceOp, axis: usize) -> View {
        let (g, dt) = (self.g, self.g.dtype(u));
        let x = self.view(g.src_at(u, 0));
        let factors = g.src(u).get(1).map(|&a| self.view(a));
        let (shape, n) = (g.shape(u).clone(), x.numel());
        let values = x.read(0, n, &mut self.runs);
        let factors = factors.map(|a| a.read(0, n, &mut self.runs));
        let of = Reducer { op, dt };
        let mut out = of.start(n);
        let step: usize = shape[axis + 1..].iter().product();
        for i in 0..n {
            if i / step % shape[axis] > 0 {
                let before = out.pick(std::iter::once(i - step));
                set(&mut out, i, &before, 0);
                if let (Some(a), Lanes::F64(v)) = (&factors, &mut out) {
                    v[i] *= a.get(i).as_f64();
                }
            }
            of.fold(&mut out, i, &values, i..i + 1);
        }
        view(of, out, &shape)
    }
}

/// Converts floats to f64, in which the evaluator accumulates.
fn wide(v: Lanes) -> Lanes {
    match v {
        Lanes::F32(v) => Lanes::F64(v.into_iter().map(f64::from).collect()),
        v => v,
    }
}

fn set(out: &mut Lanes, to: usize, from: &Lanes, i: usize) {
    match (out, from) {
        (Lanes::F64(o), from) => o[to] = from.get(i).as_f64(),
        (Lanes::Int(o), Lanes::Int(v)) => o[to] = v[i],
        _ => unreachable!("values of one dtype"),
    }
}

fn view(of: Reducer, out: Lanes, shape: &[usize]) -> View {
    let mut data = Vec::with_capacity(out.len() * of.dt.size().max(1));
    match of.dt {
        DType::Void => {}
        dt => of.finish(out).append_bytes(dt, &mut data),
    }
    View::new(data, of.dt, shape)
}
