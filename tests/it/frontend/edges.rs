//! Operators at the edges of what they take: rare signs and lengths, singular matrices, input that does not fit. Wanted values
//! are torch's, or follow from the definition.

use super::host::{data, eval};
use gradloom_core::tensor::{Interpolate, Norm, Operand, PoolOpts, ScatterOp};
use gradloom_core::{DType, Error, Session, Tensor};

fn close(got: &Tensor, want: &[f64], limit: f64) {
    let got = &eval(&[got])[0].values;
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= limit || g.is_nan() && w.is_nan(), "{got:?}, {want:?} wanted");
    }
}

#[test]
fn pools_of_powers_keep_the_sign_of_a_sum() {
    let s = Session::new();
    let x = Tensor::new(&s, &[-1f32, -2.0, 3.0, -7.0], &[1, 1, 4]).unwrap();
    let opts = PoolOpts::new(&[2]);
    close(&x.lp_pool(1.0, &opts).unwrap(), &[-3.0, -4.0], 1e-6);
    close(&x.lp_pool(3.0, &opts).unwrap(), &[f64::NAN, f64::NAN], 0.0);
}

#[test]
fn factors_of_singular_matrices() {
    let s = Session::new();
    let a = Tensor::new(&s, &[1f32, 2.0, 2.0, 4.0], &[2, 2]).unwrap();
    let (u, p) = a.polar_factors().unwrap();
    close(&u.t().unwrap().matmul(&u).unwrap(), &[1.0, 0.0, 0.0, 1.0], 1e-5);
    close(&u.matmul(&p).unwrap(), &[1.0, 2.0, 2.0, 4.0], 1e-5);
    close(&a.pinv(None, None, false).unwrap(), &[0.04, 0.08, 0.08, 0.16], 1e-6);
    close(&a.pinv(None, None, true).unwrap(), &[0.04, 0.08, 0.08, 0.16], 1e-6);
    close(&a.matrix_rank(None, None, false).unwrap(), &[1.0], 0.0);
    for shape in [&[][..], &[3], &[2, 2]] {
        let pivots = Tensor::ones(&s, DType::I32, shape).unwrap();
        assert!(matches!(a.lu_unpack(&pivots), Err(Error::Shape { .. })), "pivots {shape:?}");
    }
}

/// Against the definition, at lengths that are prime, have large prime factors, or none.
#[test]
fn fourier_transforms_of_any_length() {
    for n in [521usize, 1031, 2 * 523, 3 * 521, 1024] {
        let s = Session::new();
        let x = data(7, n, -1.0, 1.0);
        let t = Tensor::new(&s, &x, &[n]).unwrap();
        let got = t.rfftn(None, Some(&[-1]), Norm::Backward).unwrap();
        let back = got.irfftn(Some(&[n]), Some(&[-1]), Norm::Backward).unwrap();
        let values = eval(&[&got, &back]);
        for k in [0, 1, 5, n / 3, n / 2] {
            let (mut re, mut im) = (0.0, 0.0);
            for (j, x) in x.iter().enumerate() {
                let angle = -2.0 * std::f64::consts::PI * ((j * k) % n) as f64 / n as f64;
                (re, im) = (re + x * angle.cos(), im + x * angle.sin());
            }
            let (r, i) = (values[0].values[2 * k], values[0].values[2 * k + 1]);
            assert!((r - re).abs() < 1e-9 && (i - im).abs() < 1e-9, "{n}, {k}: {r} {i}, {re} {im} wanted");
        }
        assert!(values[1].values.iter().zip(&x).all(|(a, b)| (a - b).abs() < 1e-11), "{n} and back");
    }
}

#[test]
fn sizes_that_no_memory_holds_are_refused() {
    let s = Session::new();
    assert!(matches!(Tensor::cosine_window(&s, 1 << 40, true, None, &[0.5, 0.5]), Err(Error::Value { .. })));
    let x = Tensor::ones(&s, DType::F32, &[4]).unwrap();
    assert!(x.rfftn(Some(&[1 << 30]), Some(&[-1]), Norm::Backward).is_err());
}

/// The halves of the sum are out of f16's range; the whole is not.
#[test]
fn long_sums_of_halves_are_kept_in_32_bits() {
    use gradloom_core::device::EvalDevice;
    use gradloom_core::engine::Engine;
    use gradloom_core::target::{Lang, Target};
    let s = Session::new();
    let n = 4096;
    let x: Vec<f32> = (0..2 * n).map(|i| if i % n < n / 2 { 32.0 } else { -32.0 }).collect();
    let x = Tensor::new(&s, &x, &[2, n, 1]).unwrap().cast(DType::F16).unwrap().contiguous();
    let w = Tensor::new(&s, &vec![2f32; n * 64], &[1, n, 64]).unwrap().cast(DType::F16).unwrap().contiguous();
    let sum = x.mul(&w).unwrap().sum(&[1], false).unwrap();
    let target = Target { lang: Lang::Eval, ..Target::wgsl("gpu").with_f16() };
    let mut engine = Engine::new(Box::new(EvalDevice::new(target)));
    let got = super::host::eval_on(&mut engine, &[&sum]).unwrap();
    assert!(got[0].values.iter().all(|&v| v == 0.0), "{:?}", &got[0].values[..4]);
}

/// One infinite element is in the results that it weighs something in, and in no other.
#[test]
fn infinities_stay_where_they_are() {
    let (inf, s) = (f64::INFINITY, Session::new());
    let row = |v: &[f32]| Tensor::new(&s, v, &[1, 1, 1, v.len()]).unwrap();
    let x = row(&[1.0, 2.0, f32::INFINITY, 4.0]);
    let up = |how| x.interpolate(&[1, 8], how, false).unwrap();
    close_or_infinite(&up(Interpolate::Linear), &[1.0, 1.25, 1.75, inf, inf, inf, inf, 4.0]);
    let corners = x.interpolate(&[1, 7], Interpolate::Linear, true).unwrap();
    close_or_infinite(&corners, &[1.0, 1.5, 2.0, inf, inf, inf, 4.0]);
    let corners = x.interpolate(&[1, 4], Interpolate::Cubic(-0.75), true).unwrap();
    close_or_infinite(&corners, &[1.0, 2.0, inf, 4.0]);
    let pooled = row(&[1.0, 2.0, 3.0, 4.0, f32::INFINITY]).adaptive_avg_pool(&[1, 3]).unwrap();
    close_or_infinite(&pooled, &[1.5, 3.0, inf]);
    // the last place is outside of the image, next to the infinity
    let x = row(&[f32::INFINITY, 2.0, 3.0, 4.0]);
    let grid = Tensor::new(&s, &[-1.0f32, 0.0, 1.0 / 3.0, 0.0, -3.0, 0.0], &[1, 1, 3, 2]).unwrap();
    close_or_infinite(&x.grid_sample(&grid, "bilinear", "zeros", true).unwrap(), &[inf, 3.0, 0.0]);
    let boxes = Tensor::new(&s, &[0.0f32, 1.5, 0.0, 3.5, 1.0], &[1, 5]).unwrap();
    close_or_infinite(&x.roi_align(&boxes, (1, 2), 1.0, 1, true).unwrap(), &[2.5, 3.5]);
}

fn close_or_infinite(got: &Tensor, want: &[f64]) {
    let got = &eval(&[got])[0].values;
    let near = |(g, w): (&f64, &f64)| g == w || (g - w).abs() <= 1e-5;
    assert!(got.len() == want.len() && got.iter().zip(want).all(near), "{got:?}, {want:?} wanted");
}

/// Out of range on one axis reads 0 and writes nothing, whatever other row the flat position would be in.
#[test]
fn indices_out_of_range_on_an_inner_axis() {
    let s = Session::new();
    let x = Tensor::new(&s, &[1f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let rows = Tensor::new(&s, &[0, 1, 1, -1], &[4]).unwrap();
    let columns = Tensor::new(&s, &[2, -3, 1, -2], &[4]).unwrap();
    let at = [Some(rows.clone()), Some(columns.clone())];
    close(&x.index(&at).unwrap(), &[0.0, 0.0, 4.0, 3.0], 0.0);
    let both = Tensor::stack(&[&rows, &columns], -1).unwrap();
    close(&x.gather_nd(&both, 0).unwrap(), &[0.0, 0.0, 4.0, 3.0], 0.0);
    let new = Tensor::new(&s, &[10f32, 20.0, 30.0, 40.0], &[4]).unwrap();
    close(&x.index_put(&at, &new, true).unwrap(), &[1.0, 2.0, 43.0, 34.0], 0.0);
    close(&x.scatter_nd(&both, &new, ScatterOp::Set).unwrap(), &[1.0, 2.0, 40.0, 30.0], 0.0);
    let row = Tensor::new(&s, &[1f32, 2.0, 3.0, 4.0], &[4]).unwrap();
    let places = Tensor::new(&s, &[-5, 4, 2], &[3]).unwrap();
    close(&row.index_fill(0, &places, &Operand::Float(9.0)).unwrap(), &[1.0, 2.0, 9.0, 4.0], 0.0);
    // as wide as the index is, not as i32 is
    let far = Tensor::new(&s, &[1i64 << 32, -(1 << 32) + 1, 3], &[3]).unwrap();
    close(&row.index(&[Some(far)]).unwrap(), &[0.0, 0.0, 4.0], 0.0);
}
