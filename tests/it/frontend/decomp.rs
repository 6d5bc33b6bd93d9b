//! Decompositions of matrices whose singular values or eigenvalues nearly coincide.

use super::host::{data, eval};
use gradloom_core::{Session, Tensor};

/// An orthogonal matrix: a product of reflections.
fn orthogonal(seed: u32, n: usize) -> Vec<f64> {
    let mut q: Vec<f64> = (0..n * n).map(|i| f64::from(u8::from(i % (n + 1) == 0))).collect();
    for r in 0..3 {
        let v = data(seed + r, n, -1.0, 1.0);
        let norm: f64 = v.iter().map(|x| x * x).sum();
        for row in q.chunks_exact_mut(n) {
            let dot: f64 = row.iter().zip(&v).map(|(a, b)| a * b).sum();
            row.iter_mut().zip(&v).for_each(|(a, b)| *a -= 2.0 * dot * b / norm);
        }
    }
    q
}

/// `P diag(s) Q^T`.
fn matrix(session: &Session, s: &[f64], p: &[f64], q: &[f64]) -> Tensor {
    let n = s.len();
    let at = |i: usize, j: usize| (0..n).map(|k| p[i * n + k] * s[k] * q[j * n + k]).sum::<f64>() as f32;
    let values: Vec<f32> = (0..n * n).map(|i| at(i / n, i % n)).collect();
    Tensor::new(session, &values, &[n, n]).unwrap()
}

/// The largest entry of `|X^T X - 1|`; NaN if there is one.
fn askew(x: &Tensor) -> f64 {
    let gram = &eval(&[&x.t().unwrap().matmul(x).unwrap()])[0];
    let n = gram.shape[0];
    let want = |i: usize| f64::from(u8::from(i % (n + 1) == 0));
    gram.values
        .iter()
        .enumerate()
        .map(|(i, v)| (v - want(i)).abs())
        .fold(0.0, |m, d| if d <= m || m.is_nan() { m } else { d })
}

#[test]
fn near_values_have_vectors_at_right_angles() {
    let session = Session::new();
    for (i, gap) in [0.0, 1e-7, 1e-6, 3e-6, 1e-5, 1e-4, 6e-4, 1e-2].into_iter().enumerate() {
        for top in [1.5, 4.0, 12.0] {
            let s = [top, 1.0 + gap, 1.0, 0.7, 0.7 - gap];
            let (p, q) = (orthogonal(10 * i as u32, s.len()), orthogonal(500 + 10 * i as u32, s.len()));
            let (u, values, vh) = matrix(&session, &s, &p, &q).svd(true).unwrap();
            let got = &eval(&[&values])[0].values;
            // values are roots of those of A^T A, which are right to rounding of the largest
            let limit = 2e-6 * top * top;
            for (g, w) in got.iter().zip(s) {
                assert!((g - w).abs() < limit, "gap {gap}, top {top}: {got:?}");
            }
            let (u, v) = (askew(&u), askew(&vh.t().unwrap()));
            assert!(u < 2e-5 && v < 2e-5, "gap {gap}, top {top}: {u} {v}");
            let (values, vectors) = matrix(&session, &s, &p, &p).eigh(false).unwrap();
            let got = &eval(&[&values])[0].values;
            for (g, w) in got.iter().rev().zip(s) {
                assert!((g - w).abs() < 2e-6 * top, "gap {gap}, top {top}: {got:?}");
            }
            assert!(askew(&vectors) < 2e-5, "gap {gap}, top {top}: {}", askew(&vectors));
        }
    }
}
