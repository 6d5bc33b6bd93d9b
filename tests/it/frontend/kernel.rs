//! Kernels that users write: their values beside those of the same computation in tensors, their place in the order, and where they are refused.

use super::host::eval_on;
use gradloom::Runtime;
use gradloom_core::device::EvalDevice;
use gradloom_core::engine::Engine;
use gradloom_core::tensor::CustomKernel;
use gradloom_core::uop::{Op, parse, print};
use gradloom_core::{DType, Error, Result, Session, Tensor};

const F32: DType = DType::F32;

fn runtime() -> Option<Runtime> {
    gradloom_tests::here::device("wgpu", Runtime::open("wgpu", 1))
}

/// The outputs of code over inputs by name.
fn launch(
    code: &str,
    inputs: &[(&str, &Tensor)],
    outputs: &[(&str, DType, Vec<usize>)],
    groups: u32,
) -> Result<Vec<Tensor>> {
    let kernel = CustomKernel { name: "mine", code, workgroups: [groups, 1, 1], inputs, outputs };
    Tensor::custom_kernel(inputs[0].1.session(), &kernel)
}

/// `2 x + 1`, one workgroup of 8 each.
fn scaled(x: &Tensor) -> Result<Tensor> {
    let code = "@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < arrayLength(&y)) { y[id.x] = 2.0 * x[id.x] + 1.0; }
    }";
    let outs = launch(code, &[("x", x)], &[("y", F32, x.shape())], x.numel().div_ceil(8) as u32)?;
    Ok(outs[0].clone())
}

fn floats(rt: &mut Runtime, t: &Tensor) -> Vec<f32> {
    rt.to_vec(t).unwrap()
}

#[test]
fn a_kernel_of_the_user_is_computed_in_order_with_all_else() {
    let Some(mut rt) = runtime() else { return };
    let s = rt.session().clone();
    let x = Tensor::new(&s, &[1f32, 2., 3., 4., 5., 6.], &[2, 3]).unwrap();
    // of what is still to be computed, of a view, of another such kernel; and its value goes on
    let y = scaled(&x.mul(10).unwrap()).unwrap();
    assert_eq!(y.shape(), [2, 3]);
    let turned = scaled(&x.permute(&[1, 0]).unwrap()).unwrap();
    let twice = scaled(&scaled(&x).unwrap()).unwrap();
    let sum = y.add(&twice).unwrap().sum(&[1], false).unwrap();
    assert_eq!(floats(&mut rt, &sum), [21. + 41. + 61. + 7. + 11. + 15., 81. + 101. + 121. + 19. + 23. + 27.]);
    assert_eq!(floats(&mut rt, &turned), [3., 9., 5., 11., 7., 13.]);
    assert_eq!(floats(&mut rt, &y), [21., 41., 61., 81., 101., 121.]);
}

#[test]
fn a_kernel_has_several_outputs_and_dtypes() {
    let Some(mut rt) = runtime() else { return };
    let s = rt.session().clone();
    let x = Tensor::new(&s, &[3f32, -1., 2., 7., 0.5], &[5]).unwrap();
    let bytes = Tensor::new(&s, &[1u8, 2, 3, 250, 5], &[5]).unwrap();
    let code = "@compute @workgroup_size(1) fn main() {
        var best = 0u;
        for (var i = 0u; i < 5u; i++) {
            if (x[i] > x[best]) { best = i; }
            at[i] = i32((b[i / 4u] >> (8u * (i % 4u))) & 255u);
        }
        most[0] = x[best];
        place[0] = best;
    }";
    let outputs = [("most", F32, vec![]), ("place", DType::U32, vec![1]), ("at", DType::I32, vec![5])];
    let out = launch(code, &[("x", &x), ("b", &bytes)], &outputs, 1).unwrap();
    rt.realize(&out.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(rt.to_vec::<f32>(&out[0]).unwrap(), [7.0]);
    assert_eq!(rt.to_vec::<u32>(&out[1]).unwrap(), [3]);
    assert_eq!(rt.to_vec::<i32>(&out[2]).unwrap(), [1, 2, 3, 250, 5]);
}

#[test]
fn a_kernel_reads_what_was_there_before_an_assign() {
    let Some(mut rt) = runtime() else { return };
    let s = rt.session().clone();
    let x = Tensor::new(&s, &[1f32, 2.], &[2]).unwrap();
    let before = scaled(&x).unwrap();
    x.assign(x.mul(100).unwrap()).unwrap();
    let after = scaled(&x).unwrap();
    rt.realize(&[&x]).unwrap();
    assert_eq!(floats(&mut rt, &before), [3., 5.]);
    assert_eq!(floats(&mut rt, &after), [201., 401.]);
}

#[test]
fn equal_kernels_share_a_plan_and_others_do_not() {
    let Some(mut rt) = runtime() else { return };
    let s = rt.session().clone();
    let run = |rt: &mut Runtime, factor: &str| {
        let x = Tensor::new(&s, &[5f32], &[1]).unwrap();
        let code = format!("@compute @workgroup_size(1) fn main() {{ y[0] = x[0] * {factor}; }}");
        let y = launch(&code, &[("x", &x)], &[("y", F32, vec![1])], 1).unwrap();
        floats(rt, &y[0])
    };
    assert_eq!(run(&mut rt, "2.0"), [10.]);
    let plans = rt.counters().plans;
    assert_eq!(run(&mut rt, "2.0"), [10.]);
    assert_eq!(rt.counters().plans, plans);
    assert_eq!(run(&mut rt, "3.0"), [15.]);
    assert_eq!(rt.counters().plans, plans + 1);
}

#[test]
fn a_kernel_has_the_gradient_that_it_is_given() {
    let Some(mut rt) = runtime() else { return };
    let s = rt.session().clone();
    let x = Tensor::new(&s, &[1f32, 2., 3.], &[3]).unwrap();
    let none = scaled(&x).unwrap().sum(&[], false).unwrap().grad(&[&x]).unwrap_err();
    assert!(matches!(&none, Error::Unsupported { context, .. } if context.contains("`mine`")), "{none}");
    // of memory that is seen in another shape too
    let rows = Tensor::new(&s, &[1f32, 2., 3., 4.], &[2, 2]).unwrap();
    let none = scaled(&rows).unwrap().sum(&[], false).unwrap().grad(&[&rows]).unwrap_err();
    assert!(matches!(&none, Error::Unsupported { .. }), "{none}");
    let y = scaled(&x).unwrap().custom_grad(&[&x], |dy| Ok(vec![dy.mul(2)?])).unwrap();
    let loss = y.mul(&y).unwrap().sum(&[], false).unwrap();
    let dx = loss.grad(&[&x]).unwrap().swap_remove(0);
    assert_eq!(floats(&mut rt, &dx), [12., 20., 28.]);
}

#[test]
fn devices_that_run_no_such_code_say_so() {
    let s = Session::new();
    let x = Tensor::new(&s, &[1f32], &[1]).unwrap();
    let mut engine = Engine::new(Box::new(EvalDevice::default()));
    let refused = |e: Error, device: &str| {
        assert_eq!(e.code(), "E_UNSUPPORTED");
        assert!(e.to_string().contains("`mine`") && e.to_string().contains(device), "{e}");
    };
    refused(eval_on(&mut engine, &[&scaled(&x).unwrap()]).map(drop).unwrap_err(), "eval");
    let mut rt = Runtime::open("cpu", 1).unwrap();
    let x = Tensor::new(rt.session(), &[1f32], &[1]).unwrap();
    refused(rt.realize(&[&scaled(&x).unwrap()]).map(drop).unwrap_err(), "cpu");
    // and goes on
    assert_eq!(rt.to_vec::<f32>(&x.add(1).unwrap()).unwrap(), [2.0]);
}

#[test]
fn a_mistake_in_the_code_is_the_devices_error() {
    let Some(mut rt) = runtime() else { return };
    let x = Tensor::new(rt.session(), &[1f32], &[1]).unwrap();
    let y = launch("fn main( {", &[("x", &x)], &[("y", F32, vec![1])], 1).unwrap();
    let e = rt.realize(&[&y[0]]).map(drop).unwrap_err();
    assert!(e.code() == "E_DEVICE" && e.to_string().contains("mine"), "{e}");
    assert_eq!(floats(&mut rt, &x.add(1).unwrap()), [2.0]);
}

#[test]
fn what_is_launched_is_checked() {
    let s = Session::new();
    let x = Tensor::new(&s, &[1f32], &[1]).unwrap();
    let code = |inputs: &[(&str, &Tensor)], outputs: &[(&str, DType, Vec<usize>)], groups| {
        launch("", inputs, outputs, groups).map(|_| ()).unwrap_err().code()
    };
    let y = [("y", F32, vec![1])];
    assert_eq!(code(&[("x", &x)], &[], 1), "E_VALUE");
    assert_eq!(code(&[("x", &x)], &[("y", F32, vec![0])], 1), "E_VALUE");
    assert_eq!(code(&[("x", &x)], &y, 0), "E_VALUE");
    for name in ["y", "main", "a b", "", "x;", "9"] {
        assert_eq!(code(&[(name, &x)], &y, 1), "E_VALUE", "{name}");
    }
    assert_eq!(code(&[("x", &x)], &[("y", DType::F64, vec![1])], 1), "E_UNSUPPORTED");
    let other = Tensor::new(&Session::new(), &[1f32], &[1]).unwrap();
    assert_eq!(code(&[("x", &x), ("o", &other)], &y, 1), "E_VALUE");
}

#[test]
fn a_kernel_is_printed_and_read_back() {
    let s = Session::new();
    let x = Tensor::new(&s, &[1f32], &[1]).unwrap();
    let node = scaled(&x).unwrap().node();
    let g = &s.state().graph;
    let text = print::print(g, &[node]);
    let back = parse::parse(&text).unwrap();
    assert_eq!(print::print(&back.graph, &back.roots), text);
    let custom = |g: &gradloom_core::uop::Graph| g.iter().find(|&u| g.op(u) == Op::Custom).map(|u| g.arg(u).clone());
    assert_eq!(custom(&back.graph), custom(g));
}
