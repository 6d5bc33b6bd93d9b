//! Storage and order: assign, values that must stay old, gradients across a realize; weak scalars; errors as data.

use super::host::{eval, realize};
use gradloom_core::tensor::{ConvOpts, PadMode, PoolOpts, ScatterOp, Slice};
use gradloom_core::{DType, Error, Session, Tensor};

fn values(t: &Tensor) -> Vec<f64> {
    eval(&[t]).swap_remove(0).values
}

fn of(s: &Session, v: &[f32]) -> Tensor {
    Tensor::new(s, v, &[v.len()]).unwrap()
}

#[test]
fn assign_changes_every_clone_and_no_value_computed_before() {
    let s = Session::new();
    let x = of(&s, &[1., 2., 3.]);
    let (clone, view, before) = (x.clone(), x.detach(), x.mul(10).unwrap());
    x.assign(x.add(1).unwrap()).unwrap();
    let after = x.mul(10).unwrap();
    x.assign(x.mul(&x).unwrap()).unwrap();
    let check = || {
        assert_eq!(values(&x), [4., 9., 16.]);
        assert_eq!(values(&clone), [4., 9., 16.]);
        assert_eq!(values(&view), [1., 2., 3.]);
        assert_eq!(values(&before), [10., 20., 30.]);
        assert_eq!(values(&after), [20., 30., 40.]);
    };
    check();
    realize(&[&x]);
    check();
    s.compact();
    check();
}

#[test]
fn assigns_that_wait_store_what_they_were_given() {
    let s = Session::new();
    let (a, b) = (of(&s, &[1., 2., 3.]), of(&s, &[0., 0., 0.]));
    b.assign(a.mul(2).unwrap()).unwrap();
    a.assign(a.add(100).unwrap()).unwrap();
    realize(&[&a]);
    assert_eq!(values(&a), [101., 102., 103.]);
    assert_eq!(values(&b), [2., 4., 6.]);
    // a reader of what such an assign overwrites
    let (a, b) = (of(&s, &[1., 2., 3.]), of(&s, &[10., 20., 30.]));
    let k = b.mul(1.5).unwrap();
    b.assign(b.add(1).unwrap()).unwrap();
    let m = a.add(&b).unwrap();
    a.assign(a.mul(3).unwrap()).unwrap();
    realize(&[&a]);
    assert_eq!(values(&k), [15., 30., 45.]);
    assert_eq!(values(&m), [12., 23., 34.]);
    assert_eq!((values(&a), values(&b)), (vec![3., 6., 9.], vec![11., 21., 31.]));
}

#[test]
fn assign_after_assign_works_in_place() {
    let s = Session::new();
    let x = of(&s, &[1., 2.]);
    let buffers = s.state().buffers().count();
    for _ in 0..3 {
        x.assign(x.add(1).unwrap()).unwrap();
        realize(&[&x]);
    }
    assert_eq!(values(&x), [4., 5.]);
    assert_eq!(s.state().buffers().count(), buffers);
    x.assign(7).unwrap();
    assert_eq!(values(&x), [7., 7.]);
    assert_eq!(x.assign(of(&s, &[1., 2., 3.])).unwrap_err().code(), "E_SHAPE");
}

#[test]
fn a_gradient_finds_a_parameter_that_was_realized_meanwhile() {
    let s = Session::new();
    let w = Tensor::rand(&s, &[3]).unwrap();
    let loss = w.square().unwrap().sum(&[], false).unwrap();
    realize(&[&w]);
    let g = loss.grad(&[&w]).unwrap().swap_remove(0);
    assert_eq!(values(&g), values(&w.mul(2).unwrap()));
}

#[test]
fn gradients_accumulate_stop_and_nest() {
    let s = Session::new();
    let x = of(&s, &[1., -2.]);
    let unused = of(&s, &[5.]);
    let y = x.mul(&x).unwrap().add(x.detach().mul(&x).unwrap()).unwrap().add(x.mul(3).unwrap()).unwrap();
    let grads = y.sum(&[], false).unwrap().grad(&[&x, &unused]).unwrap();
    assert_eq!(values(&grads[0]), [6., -3.]);
    assert_eq!(values(&grads[1]), [0.]);
    // the second derivative of x^3
    let cube = x.pow(3).unwrap().sum(&[], false).unwrap();
    let first = cube.grad(&[&x]).unwrap().swap_remove(0);
    let second = first.sum(&[], false).unwrap().grad(&[&x]).unwrap().swap_remove(0);
    assert_eq!(values(&second), [6., -12.]);
    assert_eq!(y.grad(&[&x]).unwrap_err().code(), "E_VALUE");
    assert_eq!(y.sum(&[], false).unwrap().grad(&[&x.cast(DType::I32).unwrap()]).unwrap_err().code(), "E_DTYPE");
}

#[test]
fn scalars_are_weak() {
    let s = Session::new();
    let of = |dt: DType| Tensor::ones(&s, dt, &[2]).unwrap();
    let sum = |dt: DType, v: f64| of(dt).add(v).unwrap().dtype();
    let int = |dt: DType| of(dt).add(1).unwrap().dtype();
    assert_eq!(sum(DType::F16, 1.5), DType::F16);
    assert_eq!(sum(DType::I64, 1.5), DType::F32);
    assert_eq!(int(DType::U8), DType::U8);
    assert_eq!(int(DType::Bool), DType::I32);
    assert_eq!(of(DType::I8).add(of(DType::F16)).unwrap().dtype(), DType::F16);
    assert_eq!(of(DType::I32).div(of(DType::I32)).unwrap().dtype(), DType::F32);
    assert_eq!(of(DType::U8).sum(&[], false).unwrap().dtype(), DType::U32);
    assert_eq!(of(DType::Bool).gt(0).unwrap().dtype(), DType::Bool);
    assert_eq!(values(&of(DType::I64).mul((1i64 << 40) + 1).unwrap()), [1099511627777., 1099511627777.]);
}

#[test]
fn variables_are_scalars_given_at_launch() {
    let s = Session::new();
    let n = Tensor::variable(&s, "n", 0, 10).unwrap();
    let x = Tensor::arange(&s, 0.0, 6.0, 1.0, DType::I32).unwrap();
    let masked = x.lt(&n).unwrap().select(&x, -1).unwrap();
    assert_eq!(values(&masked), [0., 1., 2., -1., -1., -1.]);
    assert_eq!(Tensor::variable(&s, "m", 3, 1).unwrap_err().code(), "E_VALUE");
}

#[test]
fn empty_tensors_reduce_to_identities() {
    let s = Session::new();
    let e = Tensor::zeros(&s, DType::F32, &[2, 0]).unwrap();
    assert_eq!(values(&e.sum(&[1], false).unwrap()), [0., 0.]);
    assert_eq!(values(&e.prod(&[1], false).unwrap()), [1., 1.]);
    assert_eq!(values(&e.max(&[1], false).unwrap()), [f64::NEG_INFINITY; 2]);
    let x = Tensor::ones(&s, DType::F32, &[2, 1]).unwrap();
    assert_eq!(values(&Tensor::cat(&[&e, &x], 1).unwrap()), [1., 1.]);
    assert_eq!(Tensor::zeros(&s, DType::F32, &[3, 0]).unwrap().matmul(&e.t().unwrap()).unwrap().shape(), [3, 2]);
}

#[test]
fn slices_are_pythons() {
    let s = Session::new();
    let x = Tensor::arange(&s, 0.0, 5.0, 1.0, DType::I32).unwrap();
    let cut = |a: Option<i64>, b: Option<i64>, step: i64| values(&x.slice(&[Slice::step(a, b, step)]).unwrap());
    assert_eq!(cut(Some(-3), None, 1), [2., 3., 4.]);
    assert_eq!(cut(Some(-100), Some(100), 2), [0., 2., 4.]);
    assert_eq!(cut(Some(3), Some(1), 1), [0.; 0]);
    assert_eq!(cut(None, None, -2), [4., 2., 0.]);
    assert_eq!(cut(Some(3), Some(0), -1), [3., 2., 1.]);
    assert_eq!(cut(Some(100), Some(-100), -3), [4., 1.]);
    assert_eq!(cut(Some(1), Some(3), -1), [0.; 0]);
}

#[test]
fn random_slices_agree_with_a_loop() {
    let s = Session::new();
    let n = 7i64;
    let x = Tensor::arange(&s, 0.0, n as f64, 1.0, DType::I32).unwrap();
    let (mut slices, mut wanted) = (Vec::new(), Vec::new());
    for start in -9..=9i64 {
        for end in -9..=9i64 {
            for step in [-3, -2, -1, 1, 2, 3] {
                let at = |v: i64, lo: i64, hi: i64| (if v < 0 { v + n } else { v }).clamp(lo, hi);
                let (mut i, stop) = match step > 0 {
                    true => (at(start, 0, n), at(end, 0, n)),
                    false => (at(start, -1, n - 1), at(end, -1, n - 1)),
                };
                let mut list = Vec::new();
                while if step > 0 { i < stop } else { i > stop } {
                    list.push(i as f64);
                    i += step;
                }
                slices.push(x.slice(&[Slice::step(Some(start), Some(end), step)]).unwrap());
                wanted.push(list);
            }
        }
    }
    let got = eval(&slices.iter().collect::<Vec<_>>());
    for (g, w) in got.iter().zip(&wanted) {
        assert_eq!(&g.values, w);
    }
}

#[test]
fn misuse_is_a_typed_error_that_says_what() {
    let s = Session::new();
    let z = |shape: &[usize]| Tensor::zeros(&s, DType::F32, shape).unwrap();
    let (a, b) = (z(&[2, 3]), z(&[4, 3]));
    let code = |r: Result<Tensor, Error>| r.unwrap_err().code();
    assert_eq!(a.matmul(&b).unwrap_err().to_string(), "matmul: shape [2, 3] does not fit [4, 3]");
    assert_eq!(a.add(&b).unwrap_err().to_string(), "add: shape [2, 3] does not fit [4, 3]");
    assert_eq!(code(a.sum(&[2], false)), "E_AXIS");
    assert_eq!(code(a.sum(&[1, -1], false)), "E_VALUE");
    assert_eq!(code(a.reshape(&[4, -1])), "E_VALUE");
    assert_eq!(code(a.reshape(&[-1, -1])), "E_VALUE");
    assert_eq!(code(a.reshape(&[-2, 3])), "E_VALUE");
    assert_eq!(code(a.permute(&[0, 0])), "E_VALUE");
    assert_eq!(code(a.expand(&[2, 4])), "E_SHAPE");
    assert_eq!(code(a.bit_and(&b)), "E_SHAPE");
    assert_eq!(code(a.bit_and(1)), "E_DTYPE");
    assert_eq!(code(a.gather(0, &z(&[1, 3]))), "E_DTYPE");
    assert_eq!(code(a.pad(&[(0, 0), (3, 0)], PadMode::Reflect, 0)), "E_VALUE");
    assert_eq!(code(a.shrink(&[(0, 3), (0, 3)])), "E_VALUE");
    assert_eq!(code(a.bitcast(DType::F64)), "E_DTYPE");
    assert_eq!(code(z(&[1, 2, 5]).conv(&z(&[3, 2, 6]), None, &ConvOpts::new())), "E_VALUE");
    assert_eq!(code(z(&[1, 2, 5]).conv(&z(&[3, 1, 3]), None, &ConvOpts::new())), "E_SHAPE");
    assert_eq!(code(z(&[1, 2, 5]).max_pool(&PoolOpts::new(&[0]))), "E_VALUE");
    assert_eq!(code(z(&[3]).argmax(1, false)), "E_AXIS");
    assert_eq!(code(Tensor::zeros(&s, DType::F32, &[1 << 40, 1 << 40])), "E_VALUE");
    assert_eq!(code(Tensor::zeros(&s, DType::F32, &[0, usize::MAX, usize::MAX])), "E_VALUE");
    assert_eq!(code(a.repeat(&[1 << 30, 1 << 30])), "E_VALUE");
    assert_eq!(code(a.pad_zeros(&[(usize::MAX, 1), (0, 0)])), "E_VALUE");
    assert_eq!(code(Tensor::new(&s, &[1f32], &[2])), "E_VALUE");
    assert_eq!(code(Tensor::arange(&s, 0.0, 1.0, 0.0, DType::F32)), "E_VALUE");
    assert_eq!(code(a.add(z(&[2, 3]).add(&b))), "E_SHAPE");
    assert_eq!(code(Tensor::zeros(&Session::new(), DType::F32, &[3]).unwrap().add(&a)), "E_VALUE");
}

#[test]
fn narrow_dtypes_keep_theirs() {
    let s = Session::new();
    for dt in [DType::F16, DType::BF16, DType::F64] {
        let x = Tensor::new(&s, &[0.5f32, -1.0, 2.0, 0.25], &[2, 2]).unwrap().cast(dt).unwrap();
        for y in [
            x.softmax(1),
            x.gelu(),
            x.matmul(&x),
            x.layer_norm(1, None, None, 1e-5),
            x.sigmoid(),
            x.mean(&[], false),
            x.erf(),
        ] {
            assert_eq!(y.unwrap().dtype(), dt);
        }
        let soft = values(&x.softmax(1).unwrap());
        assert!((soft[0] + soft[1] - 1.0).abs() < 0.01, "{dt} {soft:?}");
    }
}

#[test]
fn integer_extremes_wrap_and_long_sorts_are_stable() {
    let s = Session::new();
    let x = Tensor::new(&s, &[i32::MIN, i32::MAX, -1], &[3]).unwrap();
    assert_eq!(values(&x.abs().unwrap()), [i32::MIN as f64, i32::MAX as f64, 1.0]);
    assert_eq!(values(&x.max_pool(&PoolOpts::new(&[3])).unwrap()), [i32::MAX as f64]);
    assert_eq!(values(&x.add(1).unwrap()), [(i32::MIN + 1) as f64, i32::MIN as f64, 0.0]);
    // 4099 elements, few distinct: the network must keep equal ones in order
    let n = 4099;
    let data: Vec<i32> = (0..n).map(|i| (i * 7919 % 13) as i32).collect();
    for descending in [false, true] {
        let order = values(&Tensor::new(&s, &data, &[n]).unwrap().argsort(0, descending).unwrap());
        let mut want: Vec<usize> = (0..n).collect();
        want.sort_by_key(|&i| if descending { -data[i] } else { data[i] });
        assert!(order.iter().zip(&want).all(|(&a, &b)| a == b as f64), "descending {descending}");
    }
}

/// What torch gives in i64 is i32 here, and either is taken as an index.
#[test]
fn places_are_i32_and_indices_of_any_integer_type() {
    let s = Session::new();
    let x = Tensor::new(&s, &[3.0f32, 1.0, 2.0, 2.0, 5.0, 0.0], &[2, 3]).unwrap();
    let image = x.reshape(&[1, 1, 2, 3]).unwrap();
    let row = x.reshape(&[6]).unwrap();
    let edges = Tensor::new(&s, &[0.5f32, 2.5], &[2]).unwrap();
    let places = [
        ("argmax", x.argmax(1, false).unwrap()),
        ("argmin", x.argmin(1, false).unwrap()),
        ("sort", x.sort(1, false).unwrap().1),
        ("argsort", x.argsort(1, true).unwrap()),
        ("topk", x.topk(2, 1, true).unwrap().1),
        ("max", x.max_along(1, false).unwrap().1),
        ("kthvalue", x.kthvalue(2, 1, false).unwrap().1),
        ("median", x.median(1, false).unwrap().1),
        ("mode", x.mode(1, false).unwrap().1),
        ("cummax", x.cummax_with_indices(1).unwrap().1),
        ("nonzero", x.nonzero_counted().unwrap().0),
        ("count of nonzero", x.nonzero_counted().unwrap().1),
        ("count of unique", row.unique_counted().unwrap().1),
        ("count_nonzero", x.count_nonzero(&[], false).unwrap()),
        ("searchsorted", edges.searchsorted(&row, false).unwrap()),
        ("max_pool", image.max_pool_with_indices(&PoolOpts::new(&[2, 2])).unwrap().1),
        ("pivots", x.lu_factor(true).unwrap().1),
    ];
    for (name, t) in &places {
        assert_eq!(t.dtype(), DType::I32, "{name}");
    }
    for dtype in [DType::I64, DType::I16, DType::U8] {
        let index = places[4].1.cast(dtype).unwrap();
        let got = [
            x.gather(1, &index).unwrap(),
            x.index_select(0, &places[0].1.cast(dtype).unwrap().clamp(0, 1).unwrap()).unwrap(),
            x.zeros_like().unwrap().scatter(1, &index, &x.narrow(1, 0, 2).unwrap(), ScatterOp::Add).unwrap(),
        ];
        let values: Vec<Vec<f64>> = eval(&got.iter().collect::<Vec<_>>()).into_iter().map(|v| v.values).collect();
        assert_eq!(values[0], [3.0, 2.0, 5.0, 2.0], "{dtype}");
        assert_eq!(values[1], [3.0, 1.0, 2.0, 2.0, 5.0, 0.0], "{dtype}");
        assert_eq!(values[2], [3.0, 0.0, 1.0, 5.0, 2.0, 0.0], "{dtype}");
    }
}
