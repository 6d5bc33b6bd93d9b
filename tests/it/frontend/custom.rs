//! Gradients that the user gives, and checkpoints: values, first and second order, and what a checkpoint saves.

use super::host::{eval, eval_on};
use gradloom_core::device::EvalDevice;
use gradloom_core::engine::{Engine, RootId};
use gradloom_core::{DType, Result, Session, Tensor};

fn values(t: &Tensor) -> Vec<f64> {
    eval(&[t]).swap_remove(0).values
}

fn of(s: &Session, v: &[f32]) -> Tensor {
    Tensor::new(s, v, &[v.len()]).unwrap()
}

/// Rounds; the gradient passes straight through.
fn straight_through(x: &Tensor) -> Result<Tensor> {
    x.round()?.custom_grad(&[x], |dy| Ok(vec![dy.clone()]))
}

/// `x^3` by its own rule.
fn cube(x: &Tensor) -> Result<Tensor> {
    x.mul(x)?.mul(x)?.custom_grad(&[x], |dy| Ok(vec![dy.mul(x.square()?.mul(3)?)?]))
}

#[test]
fn a_gradient_of_ones_own_replaces_the_ops() {
    let s = Session::new();
    let x = of(&s, &[0.4, 1.6, -2.7]);
    let y = straight_through(&x).unwrap();
    let g = y.mul(of(&s, &[1., 2., 3.])).unwrap().sum(&[], false).unwrap().grad(&[&x]).unwrap();
    assert_eq!(values(&y), [0., 2., -3.]);
    assert_eq!(values(&g[0]), [1., 2., 3.]);
    // a rule that is not the derivative is used all the same
    let odd = x.exp().unwrap().custom_grad(&[&x], |dy| Ok(vec![dy.mul(7)?])).unwrap();
    assert_eq!(values(&odd.sum(&[], false).unwrap().grad(&[&x]).unwrap()[0]), [7.0; 3]);
}

#[test]
fn gradients_of_ones_own_nest_and_have_gradients() {
    let s = Session::new();
    let x = of(&s, &[1., -2., 0.5]);
    // (x^3)^3 = x^9, twice the same rule
    let y = cube(&cube(&x).unwrap()).unwrap().sum(&[], false).unwrap();
    let first = y.grad(&[&x]).unwrap().swap_remove(0);
    let second = first.sum(&[], false).unwrap().grad(&[&x]).unwrap().swap_remove(0);
    let wanted: Vec<f64> = [1f64, -2., 0.5].iter().map(|x| 9.0 * x.powi(8)).collect();
    assert_eq!(values(&first), wanted);
    let wanted: Vec<f64> = [1f64, -2., 0.5].iter().map(|x| 72.0 * x.powi(7)).collect();
    assert_eq!(values(&second), wanted);
}

#[test]
fn gradients_of_ones_own_survive_compaction_and_devices() {
    let s = Session::new();
    let mut engine = Engine::new(Box::new(EvalDevice::default()));
    let x = of(&s, &[2., 3.]).mul(1).unwrap();
    let y = cube(&x).unwrap();
    engine.collect(&mut s.state());
    let loss = y.sum(&[], false).unwrap();
    let g = loss.grad(&[&x]).unwrap().swap_remove(0);
    // the place of the gradient is no input of the plan
    let got = eval_on(&mut engine, &[&y, &g]).unwrap();
    assert_eq!((got[0].values.clone(), got[1].values.clone()), (vec![8., 27.], vec![12., 27.]));
}

#[test]
fn gradients_of_ones_own_are_checked() {
    let s = Session::new();
    let x = of(&s, &[1., 2.]);
    let code = |r: Result<Tensor>| r.unwrap_err().code();
    assert_eq!(code(x.exp().unwrap().custom_grad(&[&x], |_| Ok(vec![]))), "E_VALUE");
    assert_eq!(code(x.exp().unwrap().custom_grad(&[&x], |dy| Ok(vec![dy.sum(&[], false)?]))), "E_SHAPE");
    let i = x.cast(DType::I32).unwrap();
    assert_eq!(code(x.exp().unwrap().custom_grad(&[&i], |dy| Ok(vec![dy.clone()]))), "E_DTYPE");
    assert_eq!(code(i.custom_grad(&[&x], |dy| Ok(vec![dy.clone()]))), "E_DTYPE");
}

/// A deep network whose layers have several wide values each; the gradients of its weights.
fn deep(x: &Tensor, weights: &[Tensor], checkpoints: bool) -> Vec<Tensor> {
    let block = |x: &Tensor, w: &Tensor| -> Result<Tensor> {
        let h = x.matmul(w)?.tanh()?.contiguous();
        let h = h.matmul(w)?.tanh()?.contiguous();
        let h = h.matmul(w)?.sigmoid()?.contiguous();
        h.matmul(w)
    };
    let mut y = x.clone();
    for w in weights {
        y = match checkpoints {
            true => Tensor::checkpoint(&[&y], |x| block(&x[0], w)).unwrap(),
            false => block(&y, w).unwrap(),
        };
    }
    let loss = y.square().unwrap().mean(&[], false).unwrap();
    loss.grad(&weights.iter().chain([x]).collect::<Vec<_>>()).unwrap()
}

/// Bytes of the arenas in which a plan keeps its temporaries, and the values.
fn planned(t: &[Tensor]) -> (usize, Vec<Vec<f64>>) {
    let mut engine = Engine::new(Box::new(EvalDevice::default()));
    let arenas = {
        let mut s = t[0].session().state();
        let roots: Vec<RootId> = t.iter().map(|t| t.root()).collect();
        engine.start(&mut s, &roots).unwrap().plan().arenas.iter().sum()
    };
    (arenas, eval_on(&mut engine, &t.iter().collect::<Vec<_>>()).unwrap().into_iter().map(|v| v.values).collect())
}

#[test]
fn checkpoints_save_memory_and_change_no_gradient() {
    let run = |checkpoints: bool| {
        let s = Session::new();
        s.manual_seed(1);
        let x = Tensor::randn(&s, &[64, 8]).unwrap();
        let w: Vec<Tensor> = (0..6).map(|_| Tensor::randn(&s, &[8, 8]).unwrap().to_storage().unwrap()).collect();
        super::host::realize(&w.iter().chain([&x]).collect::<Vec<_>>());
        planned(&deep(&x, &w, checkpoints))
    };
    let ((all, plain), (few, again)) = (run(false), run(true));
    eprintln!("temporaries: {all} bytes, with checkpoints {few}");
    for (a, b) in plain.iter().flatten().zip(again.iter().flatten()) {
        assert!((a - b).abs() <= 1e-6 * a.abs().max(1e-3), "{a} {b}");
    }
    assert!(few * 2 < all, "{few} bytes with checkpoints, {all} without");
}

#[test]
fn a_checkpoint_repeats_its_random_numbers_and_refuses_assigns() {
    let s = Session::new();
    let x = of(&s, &[1.; 40]);
    let y = Tensor::checkpoint(&[&x], |x| x[0].dropout(0.5)).unwrap();
    let g = y.sum(&[], false).unwrap().grad(&[&x]).unwrap().swap_remove(0);
    assert_eq!(values(&y), values(&g));
    let r = Tensor::checkpoint(&[&x], |x| {
        let t = x[0].mul(2)?.to_storage()?;
        t.add(1)
    });
    assert_eq!(r.unwrap_err().code(), "E_UNSUPPORTED");
    // second order
    let z = Tensor::checkpoint(&[&x], |x| x[0].pow(3)).unwrap().sum(&[], false).unwrap();
    let first = z.grad(&[&x]).unwrap().swap_remove(0);
    let second = first.sum(&[], false).unwrap().grad(&[&x]).unwrap().swap_remove(0);
    assert!(values(&second).iter().all(|v| (v - 6.0).abs() < 1e-4));
}
