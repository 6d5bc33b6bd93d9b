//! Matrix products, windows and convolutions on the host. Matrix products of constants fold through here; the rest lets
//! tests run a whole model without a device.

use super::host::{permute, strides, view};
use super::prim::Window;
use crate::dtype::{DType, Scalar};
use crate::io::HostTensor;

/// Product of the last two axes over the broadcast leading axes `lead`.
pub(super) fn matmul(a: &HostTensor, b: &HostTensor, lead: &[usize]) -> HostTensor {
    let (ra, rb) = (a.shape.len(), b.shape.len());
    let (m, k, n) = (a.shape[ra - 2], a.shape[ra - 1], b.shape[rb - 1]);
    let a = super::host::expand(a, &[lead, &[m, k]].concat());
    let b = super::host::expand(b, &[lead, &[k, n]].concat());
    let batch: usize = lead.iter().product();
    let dtype = a.dtype;
    let mut out =
        HostTensor { dtype, shape: [lead, &[m, n]].concat(), data: Vec::with_capacity(batch * m * n * dtype.size()) };
    if dtype.is_float() {
        let (x, y) = (a.to_f64(), b.to_f64());
        let mut row = vec![0f64; n];
        for i in 0..batch * m {
            row.fill(0.0);
            for l in 0..k {
                let v = x[i * k + l];
                let from = (i / m * k + l) * n;
                row.iter_mut().zip(&y[from..from + n]).for_each(|(r, w)| *r += v * w);
            }
            push(&mut out, row.iter().map(|&v| Scalar::float(v).cast(DType::F64, dtype)));
        }
    } else {
        let (x, y) = (a.to_i64(), b.to_i64());
        let mut row = vec![0i64; n];
        for i in 0..batch * m {
            row.fill(0);
            for l in 0..k {
                let v = x[i * k + l];
                let from = (i / m * k + l) * n;
                row.iter_mut().zip(&y[from..from + n]).for_each(|(r, w)| *r = r.wrapping_add(v.wrapping_mul(*w)));
            }
            push(&mut out, row.iter().map(|&v| Scalar::Int(v).cast(DType::I64, dtype)));
        }
    }
    out
}

fn push(out: &mut HostTensor, v: impl Iterator<Item = Scalar>) {
    let mut one = [0; 8];
    for s in v {
        s.write(out.dtype, &mut one);
        out.data.extend_from_slice(&one[..out.dtype.size()]);
    }
}

/// Windows over the last axes: [.., out.., kernel..]. Padding is not applied.
pub(super) fn windows(x: &HostTensor, win: &Window) -> HostTensor {
    let lead = x.shape.len() - win.kernel.len();
    let own = strides(&x.shape);
    let mut shape = x.shape[..lead].to_vec();
    let mut s = own[..lead].to_vec();
    for i in 0..win.kernel.len() {
        let reach = (win.kernel[i] - 1) * win.dilation[i];
        shape.push((x.shape[lead + i] - reach).div_ceil(win.stride[i]));
        s.push(own[lead + i] * win.stride[i] as isize);
    }
    for i in 0..win.kernel.len() {
        shape.push(win.kernel[i]);
        s.push(own[lead + i] * win.dilation[i] as isize);
    }
    view(x, &shape, &s, 0)
}

/// Grouped cross-correlation: pad, windows, one matrix product a group.
pub(super) fn conv(x: &HostTensor, w: &HostTensor, win: &Window, groups: usize) -> HostTensor {
    let zeros = [0, 0];
    let before: Vec<usize> = zeros.iter().copied().chain(win.pads.iter().map(|p| p.0)).collect();
    let after: Vec<usize> = zeros.iter().copied().chain(win.pads.iter().map(|p| p.1)).collect();
    let zero = Scalar::from_i64(0, x.dtype);
    let padded = super::host::pad(x, &before, &after, zero);
    let cols = windows(&padded, win); // [n, c, out.., k..]
    let spatial = win.kernel.len();
    let (n, c, o) = (x.shape[0], x.shape[1], w.shape[0]);
    let out: Vec<usize> = cols.shape[2..2 + spatial].to_vec();
    let (points, taps) = (out.iter().product::<usize>(), win.kernel.iter().product::<usize>());
    // [n, g, c/g * taps, points]
    let order: Vec<usize> = [0, 1].into_iter().chain(2 + spatial..2 + 2 * spatial).chain(2..2 + spatial).collect();
    let mut cols = permute(&cols, &order);
    cols.shape = vec![n, groups, c / groups * taps, points];
    let kernel = HostTensor { shape: vec![groups, o / groups, c / groups * taps], ..w.clone() };
    let mut y = matmul(&kernel, &cols, &[n, groups]);
    y.shape = [&[n, o], &out[..]].concat();
    y
}
