//! Kernels that users write as loops in the IR: their values on each device beside those of the same computation in tensors, and which
//! texts are none.

use gradloom::Runtime;
use gradloom_core::tensor::IrKernel;
use gradloom_core::{DType, Error, Result, Session, Tensor};
use gradloom_tests::here;

const SOFTMAX: &str = include_str!("../../fixtures/kernels/softmax.ir");
const MATMUL: &str = include_str!("../../fixtures/kernels/matmul.ir");
const LOOKUP: &str = include_str!("../../fixtures/kernels/lookup.ir");
const DEVICES: [&str; 8] = ["eval", "cpu", "cpu:avx2", "llvm", "c", "wgpu", "vulkan", "opencl"];

fn some(s: &Session, shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..n).map(|i| (i * 37 % 23) as f32 / 8.0 - 1.0).collect();
    Tensor::new(s, &values, shape).expect("values")
}

/// What is computed on a device by kernels, and by tensors.
fn both(rt: &mut Runtime) -> Result<Vec<(Vec<f32>, Vec<f32>)>> {
    let s = rt.session().clone();
    let mut out = Vec::new();
    let mut pair = |got: Tensor, want: Tensor| -> Result<()> {
        assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()));
        let f32s = |t: &Tensor| t.cast(DType::F32);
        out.push((rt.to_vec(&f32s(&got)?)?, rt.to_vec(&f32s(&want)?)?));
        Ok(())
    };
    // of what is still to be computed, of a view, of its own result; and its value goes on
    let x = some(&s, &[7, 5]).permute(&[1, 0])?;
    let softmax = IrKernel::parse("softmax", SOFTMAX)?;
    let once = softmax.launch(&s, &[&x], &[5, 7])?;
    let twice = softmax.launch(&s, &[&once.mul(3)?], &[5, 7])?;
    pair(once.clone(), x.softmax(1)?)?;
    pair(twice.sum(&[0], false)?, x.softmax(1)?.mul(3)?.softmax(1)?.sum(&[0], false)?)?;
    let (a, b) = (some(&s, &[6, 9]).cast(DType::F16)?, some(&s, &[9, 8]).cast(DType::F16)?);
    let product = IrKernel::parse("matmul", MATMUL)?.launch(&s, &[&a, &b], &[6, 8])?;
    pair(product, a.cast(DType::F32)?.matmul(&b.cast(DType::F32)?)?)?;
    let table = Tensor::new(&s, &[3i16, -1, 0, 7, -9, 2, 0, -3, 5, -32768], &[10])?;
    let places: Vec<i32> = (0..33).map(|i| i * 7 % 17 - 3).collect();
    let places = Tensor::new(&s, &places, &[3, 11])?;
    let found = IrKernel::parse("lookup", LOOKUP)?.launch(&s, &[&table, &places], &[3, 11])?;
    pair(found, table.index_select(0, &places.clamp(0, 9)?.reshape(&[33])?)?.gt(0)?.reshape(&[3, 11])?)?;
    Ok(out)
}

#[test]
fn a_kernel_of_loops_has_the_values_of_tensors_on_every_device() {
    for device in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { continue };
        for (i, (got, want)) in both(&mut rt).unwrap_or_else(|e| panic!("{device}: {e}")).iter().enumerate() {
            assert_eq!(got.len(), want.len());
            let close = got.iter().zip(want).all(|(g, w)| (g - w).abs() <= 1e-6 * w.abs().max(1.0));
            assert!(close, "{device}, {i}: {got:?} instead of {want:?}");
        }
    }
}

#[test]
fn a_kernel_of_loops_is_optimised_and_compiled_once() {
    let mut rt = Runtime::open("eval", 1).expect("the evaluator");
    let s = rt.session().clone();
    let softmax = IrKernel::parse("softmax", SOFTMAX).expect("a kernel");
    for round in 0..3 {
        let y = softmax.launch(&s, &[&some(&s, &[5, 7])], &[5, 7]).expect("a launch");
        rt.to_vec::<f32>(&y).expect("values");
        assert_eq!(rt.counters().programs, 1, "round {round}");
    }
}

#[test]
fn what_makes_a_text_no_kernel_is_said() {
    let change = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    let cases = [
        (change(SOFTMAX, "%30 void = sink %29\n", ""), "%30 is not defined"),
        (change(SOFTMAX, "reduce[max]", "reduce[least]"), "least"),
        (change(LOOKUP, "bool = param[slot=0 len=33]", "bool = param[slot=3 len=33]"), "parameter 0"),
        (change(SOFTMAX, "%28 f32 = index %2 %21", "%28 f32 = index %2 %5"), "does not count"),
        (change(SOFTMAX, "%6 i32 = mul %4 %1", "%6 i32 = mul %4 %0"), "leaves elements out"),
        (change(SOFTMAX, "slot=1 len=35", "slot=1 len=34"), "from 0 to 34, of 34 elements"),
        (change(SOFTMAX, "slot=1 len=35", "slot=2 len=35"), "parameter 1 is not there"),
        (change(SOFTMAX, "slot=1 len=35", "slot=9 len=35"), "8 parameters"),
        (change(SOFTMAX, "index %3 %21", "index %2 %21"), "it does not read"),
        (change(SOFTMAX, "range[id=2 reduce]", "range[id=2 upcast]"), "kind"),
        (change(SOFTMAX, "range[id=2 reduce]", "range[id=1 reduce]"), "same id"),
        (change(SOFTMAX, "reduce[add] %19 %13", "reduce[add] %19 %7"), "depends on a loop"),
        (change(LOOKUP, "%10 i32 = max %9 %1", "%10 i32 = max %9 %9"), "clamp"),
        (change(LOOKUP, "store %15 %14", "store %15 %14 %14"), "no condition"),
        (change(MATMUL, "store %23 %20", "store %3 %20"), "parameter 0"),
        (change(MATMUL, "roots %25", "roots %25 %24"), "one root"),
        (change(MATMUL, "%0 i32 = const[6]", "%0 i32 = const[0]"), "1 or more"),
        (change(MATMUL, "%22 i32 = add %21 %7", "%22 i32 = add %21 %8"), "48 elements"),
        (String::new(), "one root"),
    ];
    for (text, what) in cases {
        let e = IrKernel::parse("mine", &text).err().unwrap_or_else(|| panic!("{what}: is taken\n{text}")).to_string();
        assert!(e.contains(what), "{e}, not {what}");
    }
}

#[test]
fn operands_are_those_of_the_parameters() {
    let s = Session::new();
    let softmax = IrKernel::parse("softmax", SOFTMAX).expect("a kernel");
    assert_eq!(softmax.params(), [(DType::F32, 35), (DType::F32, 35)]);
    let (x, short, whole) =
        (some(&s, &[5, 7]), some(&s, &[5, 6]), Tensor::new(&s, &[1i32; 35], &[35]).expect("values"));
    let code =
        |inputs: &[&Tensor], shape: &[usize]| softmax.launch(&s, inputs, shape).err().map_or("none", |e| e.code());
    assert_eq!(code(&[&x], &[5, 7]), "none");
    assert_eq!(code(&[&x], &[35]), "none");
    assert_eq!(code(&[&x], &[5, 6]), "E_SHAPE");
    assert_eq!(code(&[&short], &[5, 7]), "E_SHAPE");
    assert_eq!(code(&[&whole], &[5, 7]), "E_DTYPE");
    assert_eq!(code(&[], &[5, 7]), "E_VALUE");
    assert_eq!(code(&[&some(&Session::new(), &[5, 7])], &[5, 7]), "E_VALUE");
    let y = softmax.launch(&s, &[&x], &[5, 7]).expect("a launch");
    let no_gradient = y.sum(&[], false).and_then(|l| l.grad(&[&x]));
    let e = no_gradient.err().expect("it came without one");
    assert!(matches!(e, Error::Unsupported { .. }), "{e}");
}
