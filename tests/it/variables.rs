//! Values of launch variables are checked at every run, on every device: kernels leave out checks that the bounds make needless.

use gradloom::tensor::Tensor;
use gradloom::{NativeHost, Result, Runtime};
use gradloom_core::DType;
use gradloom_core::dtype::Scalar;

/// The devices of this machine that run in its own memory or take code of it.
fn runtimes() -> Vec<Runtime> {
    ["cpu:guarded", "llvm", "c", "eval"].iter().filter_map(|name| Runtime::open(name, 1).ok()).collect()
}

fn table(rt: &Runtime) -> Tensor {
    let list: Vec<f32> = (0..12).map(|i| i as f32).collect();
    Tensor::new(rt.session(), &list, &[12]).expect("a table")
}

/// Four elements from place `n` of the table.
fn window(rt: &Runtime, min: i32, max: i32) -> Result<Tensor> {
    table(rt).narrow_at(0, &Tensor::variable(rt.session(), "n", min, max)?, 4)?.add(1.0)
}

fn refused(rt: &mut Runtime, t: &Tensor, value: Scalar, what: &str) {
    rt.engine().set_var("n", value);
    let e = rt.realize(&[t]).err().unwrap_or_else(|| panic!("{value:?} ran"));
    assert_eq!(e.code(), "E_INPUT");
    assert!(e.to_string().contains("`n`") && e.to_string().contains(what), "{e}");
}

#[test]
fn values_outside_of_a_variables_bounds_are_refused() {
    for mut rt in runtimes() {
        let y = window(&rt, 0, 8).unwrap();
        assert!(rt.realize(&[&y]).err().is_some_and(|e| e.to_string().contains("no value")));
        for value in [9, 100, -1, -5, 1_000_000_000, 1 << 32, i64::MIN, i64::MAX] {
            refused(&mut rt, &y, Scalar::Int(value), &format!("{value} is outside of the variable's bounds 0..=8"));
        }
        for value in [f64::NAN, f64::INFINITY, 2.5, -1e300] {
            refused(&mut rt, &y, Scalar::float(value), "not a whole number");
        }
        refused(&mut rt, &y, Scalar::float(9.0), "9");
        for (value, want) in [(Scalar::Int(8), 9.0), (Scalar::float(3.0), 4.0)] {
            rt.engine().set_var("n", value);
            let y = window(&rt, 0, 8).unwrap();
            assert_eq!(rt.to_vec::<f32>(&y).unwrap(), [want, want + 1.0, want + 2.0, want + 3.0]);
        }
    }
}

#[test]
fn replays_check_values_too() {
    for mut rt in runtimes() {
        rt.engine().set_var("n", Scalar::Int(2));
        let y = window(&rt, 0, 8).unwrap();
        let replay = rt.realize(&[&y]).unwrap();
        rt.engine().set_var("n", Scalar::Int(400));
        let session = rt.session().clone();
        let again = rt.engine().replay(&mut session.state(), &replay, &Default::default());
        assert_eq!(again.unwrap_err().code(), "E_INPUT");
    }
}

/// One computation may have several variables of one name: the value must suit them all. A kernel that no longer holds the
/// variable, because its bounds decided everything, has its value checked as well.
#[test]
fn every_variable_of_a_name_must_allow_the_value() {
    for mut rt in runtimes() {
        let both = window(&rt, 0, 8).unwrap().add(&window(&rt, -2, 5).unwrap()).unwrap();
        refused(&mut rt, &both, Scalar::Int(6), "6 is outside of the variable's bounds 0..=5");
        refused(&mut rt, &both, Scalar::Int(-1), "0..=5");
        let decided = Tensor::variable(rt.session(), "n", 0, 8).unwrap().lt(9).unwrap();
        refused(&mut rt, &decided, Scalar::Int(20), "0..=8");
        let float = Tensor::variable_f32(rt.session(), "n").add(&both).unwrap();
        refused(&mut rt, &float, Scalar::Int(3), "of f32 and of i32");
    }
}

#[test]
fn plans_out_of_a_cache_keep_the_bounds() {
    let folder = std::env::temp_dir().join(format!("gradloom-variables-{}", std::process::id()));
    for round in 0..2 {
        let Ok(device) = gradloom::open("cpu:guarded", 1) else { return };
        let mut rt = Runtime::with_host(device, NativeHost::with_cache(&folder, 1 << 30));
        let y = window(&rt, 0, 8).unwrap();
        refused(&mut rt, &y, Scalar::Int(100), "0..=8");
        assert_eq!(rt.counters().cache_hits > 0, round == 1, "the second one finds what the first one saved");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn float_variables_take_any_number() {
    for mut rt in runtimes() {
        let x = Tensor::variable_f32(rt.session(), "rate").mul(2.0).unwrap();
        assert_eq!(x.dtype(), DType::F32);
        rt.engine().set_var("rate", Scalar::Int(3));
        assert_eq!(rt.to_vec::<f32>(&x).unwrap(), [6.0]);
    }
}
