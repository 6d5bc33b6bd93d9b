//! Methods by name on arguments that nobody means: each of these once panicked, asked for all memory or went on for hours.

use super::host::{eval, eval_on};
use gradloom_core::engine::Engine;
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

/// The larger of two, taken from both, as a softmax does it; of a value that is chosen by a mask.
fn centred(dt: DType) -> Tensor {
    let s = Session::new();
    let x = Tensor::new(&s, &[255u8], &[1]).expect("a tensor");
    let mask: Vec<f32> = (0..36).map(|i| ((i * 7) % 5) as f32 - 1.0).collect();
    let mask = Tensor::new(&s, &mask, &[2, 2, 3, 3]).expect("a tensor");
    let x = mask.select(&x, 0).and_then(|x| x.cast(dt)).expect("a selection");
    let up = x.max(&[1], true).and_then(|top| x.sub(top)?.exp()).expect("powers");
    up.sum(&[1], true).and_then(|sum| up.div(sum)).expect("a softmax")
}

#[test]
fn softmaxes_of_broadcast_selections() {
    for dt in [DType::F16, DType::F32, DType::F64] {
        let want = eval(&[&centred(dt)]);
        for device in ["cpu", "cpu:avx2"] {
            let mut engine = Engine::new(gradloom::open(device, 1).expect(device));
            let got = eval_on(&mut engine, &[&centred(dt)]).expect(device);
            for (g, w) in got[0].values.iter().zip(&want[0].values) {
                assert!((g - w).abs() < 1e-3, "{device} {dt}: {:?}, not {:?}", got[0].values, want[0].values);
            }
        }
    }
}
