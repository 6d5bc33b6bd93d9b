//! Methods by name on arguments that nobody means: each of these once panicked, asked for all memory or went on for hours.

use gradloom_core::tensor::call::{Value, call};
use gradloom_core::{DType, Session, Tensor};

fn ones(s: &Session, shape: &[usize]) -> Value {
    Value::Tensor(Tensor::ones(s, DType::F32, shape).expect("a tensor"))
}

#[test]
fn arguments_that_nobody_means_are_refused() {
    let s = Session::new();
    let (int, list) = (Value::Int, |l: &[i64]| Value::List(l.iter().map(|&i| Value::Int(i)).collect()));
    let large = 1 << 40;
    let cases = [
        ("mvlgamma", vec![ones(&s, &[]), int(large)]),
        ("tensordot", vec![ones(&s, &[1]), ones(&s, &[1]), int(large)]),
        ("tensordot", vec![ones(&s, &[1]), ones(&s, &[1]), int(i64::MIN)]),
        ("vsplit", vec![ones(&s, &[4, 4]), int(large)]),
        ("linalg.vander", vec![ones(&s, &[3]), int(large)]),
        ("diff", vec![Value::Tensor(Tensor::zeros(&s, DType::F32, &[1 << 30]).expect("a tensor")), int(large)]),
        ("combinations", vec![ones(&s, &[3]), int(large), Value::Bool(true)]),
        ("tril_indices", vec![int(1 << 20), int(1 << 20)]),
        (
            "repeat_interleave",
            vec![ones(&s, &[3]), Value::Tensor(Tensor::new(&s, &[i64::MAX], &[1]).expect("a tensor"))],
        ),
        ("nn.functional.pixel_shuffle", vec![ones(&s, &[1, 4, 2, 2]), int(i64::MAX)]),
        ("_chunk_cat", vec![Value::List(vec![ones(&s, &[1, 2])]), int(0), int(0)]),
        (
            "native_group_norm",
            vec![
                ones(&s, &[1, 4, 4]),
                Value::None,
                Value::None,
                int(1),
                int(i64::MAX),
                int(4),
                int(1),
                Value::Float(0.0),
            ],
        ),
        ("constant_pad_nd", vec![ones(&s, &[3]), list(&[-1, i64::MIN])]),
        ("nn.functional.max_pool3d", vec![ones(&s, &[3, 3]), list(&[1, 3])]),
        ("unflatten", vec![ones(&s, &[2, 3]), int(-1), list(&[1 << 31, 1 << 31, 4])]),
        ("unbind", vec![Value::Tensor(Tensor::zeros(&s, DType::F32, &[1 << 30]).expect("a tensor"))]),
        ("split", vec![Value::Tensor(Tensor::zeros(&s, DType::F32, &[1 << 30]).expect("a tensor")), int(1)]),
        ("chunk", vec![Value::Tensor(Tensor::zeros(&s, DType::F32, &[1 << 30]).expect("a tensor")), int(1 << 30)]),
    ];
    for (name, args) in cases {
        let e = call(&s, name, &args, &[]).err().unwrap_or_else(|| panic!("{name} takes {args:?}"));
        assert!(["E_VALUE", "E_BUDGET", "E_SHAPE"].contains(&e.code()), "{name}: {e}");
    }
    // more decimals than a number has
    let t = Tensor::new(&s, &[1.5f32, -2.25], &[2]).expect("a tensor");
    call(&s, "round", &[Value::Tensor(t), Value::Int(1 << 31)], &[]).expect("rounded");
}
