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

/// Mean and variance, and whether they are within five standard errors of those wanted (of the fourth moment given).
fn check(what: &str, t: &Tensor, mean: f64, var: f64) {
    let v = &eval(&[t])[0].values;
    let n = v.len() as f64;
    let m = v.iter().sum::<f64>() / n;
    let centred = |p: i32| v.iter().map(|x| (x - m).powi(p)).sum::<f64>() / n;
    let (s2, s4) = (centred(2), centred(4));
    assert!(v.iter().all(|x| x.is_finite()), "{what} is not finite");
    assert!((m - mean).abs() <= 5.0 * (var / n).sqrt(), "{what}: mean {m}, not {mean}");
    assert!(
        (s2 - var).abs() <= 5.0 * ((s4 - s2 * s2).max(0.0) / n).sqrt() + 1e-3 * var,
        "{what}: variance {s2}, not {var}"
    );
}

#[test]
fn more_distributions_have_their_moments() {
    let s = Session::new();
    s.manual_seed(11);
    let n = &[20_000];
    let of = |v: f64| Tensor::full(&s, v, DType::F32, n).unwrap();
    check("exponential", &Tensor::exponential(&s, 2.0, n).unwrap(), 0.5, 0.25);
    check("gumbel", &Tensor::gumbel(&s, n).unwrap(), 0.5772157, 1.644934);
    check("laplace", &Tensor::laplace(&s, 1.0, 2.0, n).unwrap(), 1.0, 8.0);
    let p = 0.3f64;
    check("geometric", &Tensor::geometric(&s, p, n).unwrap(), 1.0 / p, (1.0 - p) / (p * p));
    let e = (0.25f64).exp();
    check("log normal", &Tensor::log_normal(&s, 0.0, 0.5, n).unwrap(), e.sqrt(), (e - 1.0) * e);
    for a in [0.3, 1.0, 2.5, 40.0] {
        check(&format!("gamma {a}"), &of(a).gamma_of().unwrap(), a, a);
    }
    check("beta", &of(2.0).beta_of(&of(3.0)).unwrap(), 0.4, 0.04);
    for rate in [0.0, 0.5, 4.0, 9.9, 10.0, 35.0, 500.0, 5000.0] {
        check(&format!("poisson {rate}"), &of(rate).poisson_of().unwrap(), rate, rate);
    }
    check("bernoulli", &of(0.2).bernoulli_of().unwrap().cast(DType::F32).unwrap(), 0.2, 0.16);
    let cauchy = eval(&[&Tensor::cauchy(&s, 1.0, 2.0, n).unwrap()]).swap_remove(0).values;
    let within = cauchy.iter().filter(|x| (-1.0..3.0).contains(*x)).count();
    assert!((9_600..10_400).contains(&within), "{within} of 20000 within the quartiles");
    let d = Tensor::full(&s, 2.0, DType::F32, &[500, 4]).unwrap().dirichlet_of().unwrap();
    assert!(eval(&[&d.sum(&[1], false).unwrap()])[0].values.iter().all(|x| (x - 1.0).abs() < 1e-5));
    check("dirichlet", &d.flatten(0, 1).unwrap(), 0.25, 0.25 * 0.75 / 9.0);
}

/// Shares of each value of a tensor of small integers.
fn shares(t: &Tensor, k: usize) -> Vec<f64> {
    let v = &eval(&[t])[0].values;
    (0..k).map(|i| v.iter().filter(|x| **x == i as f64).count() as f64 / v.len() as f64).collect()
}

fn assert_near(what: &str, got: &[f64], wanted: &[f64], by: f64) {
    assert!(got.iter().zip(wanted).all(|(a, b)| (a - b).abs() < by), "{what}: {got:?}, not {wanted:?}");
}

#[test]
fn categories_come_as_often_as_they_weigh() {
    let s = Session::new();
    s.manual_seed(2);
    let w = Tensor::new(&s, &[1f32, 0., 5., 2., 2.], &[5]).unwrap();
    let wanted = [0.1, 0.0, 0.5, 0.2, 0.2];
    let drawn = w.multinomial(20_000, true).unwrap();
    assert_near("with replacement", &shares(&drawn, 5), &wanted, 0.015);
    assert_eq!(shares(&drawn, 5)[1], 0.0);
    // two without replacement: P(first = i) is the weight; no pair has one twice; P(0 in the pair) by the formula
    let rows = w.unsqueeze(0).unwrap().expand(&[20_000, 5]).unwrap();
    let pairs = rows.multinomial(2, false).unwrap();
    let first = pairs.select_at(1, 0).unwrap();
    assert_near("without replacement", &shares(&first, 5), &wanted, 0.015);
    let v = eval(&[&pairs]).swap_remove(0).values;
    assert!(v.chunks(2).all(|p| p[0] != p[1] && p[0] != 1.0 && p[1] != 1.0));
    let has_zero = v.chunks(2).filter(|p| p.contains(&0.0)).count() as f64 / 20_000.0;
    let formula = 0.1 + 0.5 * 0.1 / 0.5 + 2.0 * 0.2 * 0.1 / 0.8;
    assert!((has_zero - formula).abs() < 0.015, "{has_zero} {formula}");
    let logits = rows.log().unwrap();
    assert_near("categorical", &shares(&logits.categorical().unwrap(), 5), &wanted, 0.015);
    assert_eq!(w.multinomial(6, false).unwrap_err().code(), "E_VALUE");
}

/// What a sampler keeps: where the logits are still finite.
fn kept(t: &Tensor) -> Vec<usize> {
    eval(&[t])[0].values.iter().enumerate().filter(|x| x.1.is_finite()).map(|x| x.0).collect()
}

#[test]
fn samplers_keep_what_they_should() {
    let s = Session::new();
    // probabilities 0.4 0.3 0.15 0.1 0.05, shuffled; then with signs and ties
    let p = [0.1f32, 0.4, 0.05, 0.3, 0.15];
    let x = Tensor::new(&s, &p.map(|p| p.ln() + 3.0), &[5]).unwrap();
    assert_eq!(kept(&x.keep_top_k(2).unwrap()), [1, 3]);
    assert_eq!(kept(&x.keep_top_k(9).unwrap()), [0, 1, 2, 3, 4]);
    assert_eq!(kept(&x.keep_top_p(0.6).unwrap()), [1, 3]);
    assert_eq!(kept(&x.keep_top_p(0.71).unwrap()), [1, 3, 4]);
    assert_eq!(kept(&x.keep_top_p(0.3).unwrap()), [1]);
    assert_eq!(kept(&x.keep_top_p(1.0).unwrap()), [0, 1, 2, 3, 4]);
    assert_eq!(kept(&x.keep_min_p(0.3).unwrap()), [1, 3, 4]);
    let signs = Tensor::new(&s, &[-1f32, 2., -0.5, 0., -0., 2.], &[6]).unwrap();
    assert_eq!(kept(&signs.keep_top_k(1).unwrap()), [1, 5]);
    assert_eq!(kept(&signs.keep_top_k(3).unwrap()), [1, 3, 4, 5]);
    assert_eq!(kept(&signs.keep_top_k(5).unwrap()), [1, 2, 3, 4, 5]);
    let seen = Tensor::new(&s, &[1i32, 0, -1, 1], &[4]).unwrap();
    let v = eval(&[&signs.repetition_penalty(&seen, 2.0).unwrap()]).swap_remove(0).values;
    assert_eq!(v, [-2., 1., -0.5, 0., 0., 2.]);
    // rows have thresholds of their own; against a sort
    let many = Tensor::randn(&s, &[3, 200]).unwrap().to_storage().unwrap();
    let v = eval(&[&many, &many.keep_top_k(17).unwrap(), &many.keep_top_p(0.5).unwrap()]);
    for row in 0..3 {
        let of = |i: usize| v[i].values[row * 200..][..200].to_vec();
        let mut sorted = of(0);
        sorted.sort_by(|a, b| b.total_cmp(a));
        let finite = |i: usize| of(i).into_iter().filter(|x| x.is_finite()).collect::<Vec<_>>();
        assert_eq!(finite(1).len(), 17);
        assert!(finite(1).iter().all(|x| *x >= sorted[16]));
        let total: f64 = sorted.iter().map(|x| x.exp()).sum();
        let mut sum = 0.0;
        let n = 1 + sorted
            .iter()
            .position(|x| {
                sum += x.exp() / total;
                sum >= 0.5
            })
            .unwrap();
        assert_eq!(finite(2).len(), n);
    }
}

#[test]
fn samples_follow_the_options_and_the_key() {
    use gradloom_core::tensor::Sampling;
    let s = Session::new();
    s.manual_seed(4);
    let p = [0.1f32, 0.4, 0.05, 0.3, 0.15];
    let x = Tensor::new(&s, &p.map(f32::ln), &[5]).unwrap().unsqueeze(0).unwrap().expand(&[20_000, 5]).unwrap();
    let how = Sampling { temperature: 0.5, top_k: 3, ..Sampling::default() };
    let squares = 0.16 + 0.09 + 0.0225;
    let wanted = [0.0, 0.16 / squares, 0.0, 0.09 / squares, 0.0225 / squares];
    assert_near("top k, cooler", &shares(&x.sample(&how, None, None).unwrap(), 5), &wanted, 0.015);
    let how = Sampling { top_p: 0.65, min_p: 0.1, ..Sampling::default() };
    assert_near("top p", &shares(&x.sample(&how, None, None).unwrap(), 5), &[0., 4. / 7., 0., 3. / 7., 0.], 0.015);
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    assert_eq!(shares(&x.sample(&greedy, None, None).unwrap(), 5)[1], 1.0);
    let key = |a: u32| Tensor::new(&s, &[a, 1], &[2]).unwrap();
    let draw = |k: u32| x.sample(&Sampling::default(), None, Some(&key(k))).unwrap();
    let v = eval(&[&draw(1), &draw(1), &draw(2)]);
    assert_eq!(v[0].values, v[1].values);
    assert_ne!(v[0].values, v[2].values);
}

#[test]
fn a_permutation_has_every_number_once() {
    let s = Session::new();
    let mut v = eval(&[&Tensor::randperm(&s, 500).unwrap()]).swap_remove(0).values;
    assert!(v.windows(2).any(|w| w[0] > w[1]), "it is not the identity");
    v.sort_by(f64::total_cmp);
    assert!(v.iter().enumerate().all(|(i, &x)| x == i as f64));
}
