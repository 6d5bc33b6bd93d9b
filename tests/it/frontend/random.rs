//! The random stream: bits equal to JAX's, and the distributions made of them.

use super::host::eval;
use gradloom_core::{DType, Session, Tensor};

/// `jax.random.bits(jax.random.fold_in(jax.random.key(seed), draw), (n,))`, recorded from jax 0.10.2 with 64-bit seeds.
#[test]
fn bits_are_jaxs() {
    let s = Session::new();
    s.manual_seed(42);
    let a = Tensor::rand_bits(&s, &[5]).unwrap();
    let b = Tensor::rand(&s, &[5]).unwrap().bitcast(DType::U32).unwrap();
    let v = eval(&[&a, &b]);
    assert_eq!(v[0].values, [0x87bf2d4du32, 0x503881c0, 0xe6cab0b5, 0xb2c5f2aa, 0x9e398d98].map(f64::from));
    assert_eq!(v[1].values, [1060784180u32, 1061794224, 1043992080, 1048999800, 1038272016].map(f64::from));
    s.manual_seed((1 << 40) + 7);
    for _ in 0..3 {
        Tensor::rand(&s, &[1]).unwrap();
    }
    let c = Tensor::rand_bits(&s, &[3]).unwrap();
    let key = Tensor::new(&s, &[1u32 << 8, 7], &[2]).unwrap();
    let d = Tensor::rand_bits_keyed(&key, 3, &[3]).unwrap();
    let v = eval(&[&c, &d]);
    assert_eq!(v[0].values, [0x9abdcb08u32, 0x791944af, 0xd8228db1].map(f64::from));
    assert_eq!(v[0].values, v[1].values);
}

fn moments(t: &Tensor) -> (f64, f64, f64, f64) {
    let v = &eval(&[t])[0].values;
    let n = v.len() as f64;
    let mean = v.iter().sum::<f64>() / n;
    let var = v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let (lo, hi) = v.iter().fold((f64::MAX, f64::MIN), |(a, b), &x| (a.min(x), b.max(x)));
    (mean, var, lo, hi)
}

#[test]
fn distributions_have_their_moments() {
    let s = Session::new();
    let n = 20_000;
    let near = |a: f64, b: f64, by: f64| assert!((a - b).abs() < by, "{a} is not near {b}");
    let (mean, var, lo, hi) = moments(&Tensor::rand(&s, &[n]).unwrap());
    near(mean, 0.5, 0.01);
    near(var, 1.0 / 12.0, 0.003);
    assert!((0.0..0.001).contains(&lo) && (0.999..1.0).contains(&hi));
    let (mean, var, lo, hi) = moments(&Tensor::normal(&s, 2.0, 3.0, &[n]).unwrap());
    near(mean, 2.0, 0.08);
    near(var, 9.0, 0.35);
    assert!(lo < -5.0 && hi > 9.0 && lo.is_finite() && hi.is_finite());
    let (mean, _, lo, hi) = moments(&Tensor::randint(&s, -3, 5, &[n]).unwrap());
    near(mean, 0.5, 0.08);
    assert_eq!((lo, hi), (-3.0, 4.0));
    let (_, _, lo, hi) = moments(&Tensor::randint(&s, i32::MIN, i32::MAX, &[n]).unwrap());
    assert!(lo < -2.1e9 && hi > 2.1e9);
    let (mean, ..) = moments(&Tensor::bernoulli(&s, 0.3, &[n]).unwrap());
    near(mean, 0.3, 0.01);
    let (mean, var, lo, hi) = moments(&Tensor::kaiming_uniform(&s, 5f64.sqrt(), &[200, 100]).unwrap());
    near(mean, 0.0, 0.002);
    near(var, 0.01 / 3.0, 0.0002);
    assert!(lo >= -0.1 && hi <= 0.1);
    let dropped = Tensor::ones(&s, DType::F32, &[n]).unwrap().dropout(0.25).unwrap();
    let (mean, _, lo, hi) = moments(&dropped);
    near(mean, 1.0, 0.02);
    assert_eq!(lo, 0.0);
    near(hi, 4.0 / 3.0, 1e-6);
}

#[test]
fn a_permutation_has_every_number_once() {
    let s = Session::new();
    let mut v = eval(&[&Tensor::randperm(&s, 500).unwrap()]).swap_remove(0).values;
    assert!(v.windows(2).any(|w| w[0] > w[1]), "it is not the identity");
    v.sort_by(f64::total_cmp);
    assert!(v.iter().enumerate().all(|(i, &x)| x == i as f64));
}
