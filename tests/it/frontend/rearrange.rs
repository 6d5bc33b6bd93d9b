//! Axes by name, lengths at the end, and comparison as a whole.

use super::host::eval;
use gradloom_core::{DType, Session, Tensor};

fn values(t: &Tensor) -> Vec<f64> {
    eval(&[t]).swap_remove(0).values
}

fn count(s: &Session, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::arange(s, 0.0, n as f64, 1.0, DType::F32).unwrap().reshape(shape).unwrap()
}

#[test]
fn names_move_axes() {
    let s = Session::new();
    let x = count(&s, &[2, 6, 4]);
    let same = |a: Tensor, b: Tensor| {
        assert_eq!(a.shape(), b.shape());
        assert_eq!(values(&a), values(&b));
    };
    let split = x.reshape(&[2usize, 3, 2, 4]).unwrap().permute(&[0, 2, 1, 3]).unwrap();
    same(x.rearrange("b (h d) c -> b d h c", &[("h", 3)]).unwrap(), split.clone());
    same(x.rearrange("b (h d) c -> b d h c", &[("d", 2)]).unwrap(), split);
    same(x.rearrange("b h c->(c b) h", &[]).unwrap(), {
        x.permute(&[2, 0, 1]).unwrap().reshape(&[8usize, 6]).unwrap()
    });
    same(x.rearrange("... c -> c ...", &[]).unwrap(), x.permute(&[2, 0, 1]).unwrap());
    same(x.rearrange("b ... -> (...) b", &[]).unwrap(), {
        x.permute(&[1, 2, 0]).unwrap().reshape(&[24usize, 2]).unwrap()
    });
    same(x.rearrange("b h c -> b 1 h () c", &[]).unwrap(), x.reshape(&[2usize, 1, 6, 1, 4]).unwrap());
    same(x.rearrange("b h c -> b 1 h () c", &[]).unwrap().rearrange("b 1 h 1 c -> b h c", &[]).unwrap(), x);
}

#[test]
fn what_does_not_fit_is_refused() {
    let s = Session::new();
    let x = count(&s, &[2, 6]);
    let bad = [
        "a b",
        "a -> a",
        "a b c -> a b c",
        "a b -> a",
        "a a -> a a",
        "a b -> a b b",
        "(a b -> a b",
        "a b) -> a b",
        "a b -> a c",
        "(a c) b -> a c b",
        "... b -> b",
        "((a) b) -> a b",
        "a 2 -> a 2",
        "1 b -> b",
    ];
    for formula in bad {
        let e = x.rearrange(formula, &[]).expect_err(formula).to_string();
        assert!(e.contains("rearrange") && e.contains(formula), "{e}");
    }
    assert!(x.rearrange("a (b c) -> a b c", &[("b", 4)]).is_err());
    assert!(x.rearrange("a (b c) -> a b c", &[("b", 0)]).is_err());
    assert!(x.rearrange("a b -> b a", &[("z", 2)]).is_err());
}

#[test]
fn lengths_at_the_end() {
    let s = Session::new();
    let x = count(&s, &[2, 3]);
    let wide = x.pad_to(&[None, Some(4)]).unwrap();
    assert_eq!(values(&wide), [0., 1., 2., 0., 3., 4., 5., 0.]);
    assert_eq!(values(&wide.shrink_to(&[Some(1), Some(2)]).unwrap()), [0., 1.]);
    assert!(x.pad_to(&[Some(1), None]).is_err() && x.shrink_to(&[Some(3), None]).is_err());
    assert!(x.pad_to(&[None]).is_err() && x.shrink_to(&[None]).is_err());
}

#[test]
fn all_close_or_not() {
    let s = Session::new();
    let of = |v: &[f32]| Tensor::new(&s, v, &[v.len()]).unwrap();
    let close = |a: &Tensor, b: &Tensor| values(&a.allclose(b, 1e-5, 1e-8).unwrap())[0] != 0.0;
    let (a, inf) = (of(&[1.0, 1e6]), of(&[f32::INFINITY, 2.0]));
    assert!(close(&a, &of(&[1.000001, 1e6 + 1.0])) && close(&inf, &inf));
    assert!(!close(&a, &of(&[1.0001, 1e6])) && !close(&inf, &of(&[f32::MAX, 2.0])));
    assert!(!close(&of(&[f32::NAN]), &of(&[f32::NAN])));
    assert!(close(&of(&[]), &of(&[])));
}
