//! Products of narrow numbers summed in wide ones, over a panel packed in groups: what a dot product instruction takes.

use super::build::{Build, Data, noise, stored};
use super::{Sample, Tol};
use crate::nodes::MakeNodes;
use gradloom_core::DType::{self, *};
use gradloom_core::target::Target;
use gradloom_core::uop::AxisKind;

pub(super) fn add(t: &Target, out: &mut Vec<Sample>) {
    out.push(dot(t, BF16, BF16, 2));
    for (a, b) in [(U8, I8), (I8, U8), (I8, I8), (U8, U8)] {
        out.push(dot(t, a, b, 4));
    }
    for (a, b) in [(I16, I8), (I16, U8), (I16, I16)] {
        out.push(dot(t, a, b, 2));
    }
}

/// Values of all magnitudes, the extremes among them.
fn value(dt: DType, i: usize) -> f64 {
    match dt {
        BF16 => noise(i),
        U8 => (i * 53 % 256) as f64,
        I16 => ((i * 1237 + 11) % 8192) as f64 - 4096.0,
        _ => (i * 53 % 256) as f64 - 128.0,
    }
}

/// Three rows of `a` (row-major) by two vectors of columns of `b`, of which `group` values in a row share a lane.
pub fn dot(t: &Target, a: DType, b: DType, group: usize) -> Sample {
    let (l, rows, regs, steps) = (t.caps.lanes.max(1), 3, 2, 5);
    let (n, k) = (regs * l, steps * group);
    let acc_dt = if a == BF16 { F32 } else { I32 };
    let x = Data::new(stored(t, a), rows * k, |i| value(a, i));
    let z = Data::new(stored(t, b), k * n, |i| value(b, i + 7));
    // b[step][column][group]
    let packed = |q: usize, j: usize| z.f((q / group * n + j) * group + q % group);
    let want = Data::new(acc_dt, rows * n, |i| (0..k).map(|q| x.f(i / n * k + q) * packed(q, i % n)).sum());
    let mut s = Build::new(t);
    s.tol = if a == BF16 { Tol::Rel { rel: 1e-5, floor: 1.0 } } else { Tol::Exact };
    let (px, pz, py) = (s.input(x), s.input(z), s.output(want));
    let (mi, ni) = (s.tile(rows, AxisKind::Upcast, false), s.tile(regs, AxisKind::Upcast, false));
    let qi = s.tile(group, AxisKind::Unroll, false);
    let (mut of_b, mut of_y) = (vec![(ni, (l * group) as i64), (qi, 1)], vec![(mi, n as i64), (ni, l as i64)]);
    if l > 1 {
        let lane = s.tile(l, AxisKind::Upcast, true);
        of_b.push((lane, group as i64));
        of_y.push((lane, 1));
    }
    let zero = if acc_dt == F32 { s.g.float(0.0, F32) } else { s.g.idx(0) };
    let axes: Vec<_> = of_y.iter().map(|s| s.0).collect();
    let none = s.g.idx(0);
    let acc = s.acc(0, zero, &axes);
    let r = s.open(steps, AxisKind::Reduce);
    let (at_a, at_b) = (s.times(r, group as i64), s.times(r, (n * group) as i64));
    let va = s.load(px, at_a, &[(mi, k as i64), (qi, 1)], a);
    let vb = s.load(pz, at_b, &of_b, b);
    let (va, vb) = (s.g.cast(va, acc_dt), s.g.cast(vb, acc_dt));
    let u = s.mul_add(acc, va, vb);
    let e = s.end(r, &[u]);
    let v = s.read(acc, &[e]);
    s.store(py, none, &of_y, v);
    s.finish(&format!("dot_{a}_{b}"))
}
