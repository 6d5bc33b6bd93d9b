//! The frontend against torch: every op's values and gradients, from `fixtures/frontend/cases.txt` (see `make.py` there),
//! computed by the reference interpreter; gradients also against finite differences in f64.

mod calls;
mod cases;
mod custom;
mod decomp;
mod edges;
mod gradcheck;
pub(crate) mod host;
mod kernel;
mod layers;
mod loops;
mod opinfo;
mod random;
mod rearrange;
mod state;
mod wire;

use gradloom_core::device::EvalDevice;
use gradloom_core::engine::Engine;
use gradloom_core::target::{Isa, Lang, Target};
use gradloom_core::{DType, Session, Tensor};
use gradloom_tests::here;
use host::{Value, data, eval, eval_on, tensor};
use std::collections::BTreeMap;

/// One recorded case.
#[derive(Default)]
struct Case {
    inputs: Vec<Recorded>,
    outs: Vec<Recorded>,
    grads: BTreeMap<usize, Recorded>,
}

#[derive(Clone)]
struct Recorded {
    dtype: DType,
    shape: Vec<usize>,
    values: Vec<f64>,
}

fn recorded() -> BTreeMap<String, Case> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for line in include_str!("../../fixtures/frontend/cases.txt").lines() {
        let f: Vec<&str> = line.split('\t').collect();
        let &[name, kind, dtype, shape, values] = f.as_slice() else { panic!("bad line {line}") };
        let dtype = DType::from_name(dtype).expect("a dtype");
        let shape: Vec<usize> =
            shape.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().expect("a size")).collect();
        let numbers: Vec<f64> = values.split(' ').filter(|s| !s.is_empty()).map(|s| s.parse().expect(s)).collect();
        let n = shape.iter().product();
        let values = match kind {
            "in" => data(numbers[0] as u32, n, numbers[1], numbers[2]),
            _ => numbers,
        };
        assert_eq!(values.len(), n, "{name} {kind}");
        let values = match dtype {
            DType::F32 => values.iter().map(|&v| v as f32 as f64).collect(),
            _ => values.iter().map(|v| v.floor()).collect(),
        };
        let r = Recorded { dtype, shape, values };
        let case = cases.entry(name.to_string()).or_default();
        match kind {
            "in" | "inv" => case.inputs.push(r),
            _ if kind.starts_with("out") => case.outs.push(r),
            _ => {
                case.grads.insert(kind[4..].parse().expect("an input number"), r);
            }
        }
    }
    cases
}

fn input(session: &Session, r: &Recorded, float: DType) -> Tensor {
    let dtype = if r.dtype.is_float() { float } else { r.dtype };
    tensor(session, &r.values, &r.shape, dtype)
}

fn compare(what: &str, got: &[f64], want: &[f64], (rtol, atol): (f64, f64), errors: &mut Vec<String>) {
    if got.len() != want.len() {
        return errors.push(format!("{what}: {} elements, not {}", got.len(), want.len()));
    }
    let scale = want.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    for (i, (&a, &b)) in got.iter().zip(want).enumerate() {
        let close = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= rtol * b.abs() + atol * scale.max(1e-3);
        if !close {
            return errors.push(format!("{what}[{i}]: {a:e}, torch has {b:e}"));
        }
    }
}

/// How far results may be from torch's: relative to the value, and to the largest value.
struct Tolerance {
    value: (f64, f64),
    grad: (f64, f64),
}

/// The values and gradients of one case in `every`, in f32, computed by `run`, against torch's in f64. Returns what
/// differs. The environment variable GRADLOOM_CASE picks cases by a part of their name.
fn differences(
    session: &Session,
    every: usize,
    tolerance: &Tolerance,
    run: &mut dyn FnMut(&str, &[&Tensor]) -> Result<Vec<Value>, String>,
) -> Vec<String> {
    let cases = recorded();
    let only = std::env::var("GRADLOOM_CASE").unwrap_or_default();
    let mut errors = Vec::new();
    for (name, case) in cases.iter().filter(|(name, _)| name.contains(&only)).step_by(every) {
        let inputs: Vec<Tensor> = case.inputs.iter().map(|r| input(session, r, DType::F32)).collect();
        let outs = match cases::run(name, session, &inputs) {
            Ok(outs) => outs,
            Err(e) => {
                errors.push(format!("{name}: {e}"));
                continue;
            }
        };
        if outs.len() != case.outs.len() {
            errors.push(format!("{name}: {} outputs, not {}", outs.len(), case.outs.len()));
        }
        let mut all: Vec<&Tensor> = outs.iter().collect();
        let grads = match case.grads.is_empty() {
            true => Vec::new(),
            false => {
                let seed = data(999, outs[0].numel(), -1.0, 1.0);
                let w = tensor(session, &seed, &outs[0].shape(), outs[0].dtype());
                let wanted: Vec<&Tensor> = case.grads.keys().map(|&i| &inputs[i]).collect();
                outs[0].grad_from(&w, &wanted).unwrap_or_else(|e| panic!("{name}: {e}"))
            }
        };
        all.extend(&grads);
        let values = match run(name, &all) {
            Ok(values) => values,
            Err(e) => {
                errors.push(format!("{name}: {e}"));
                continue;
            }
        };
        for (i, (v, want)) in values.iter().zip(&case.outs).enumerate() {
            if v.shape != want.shape || v.dtype.is_float() != want.dtype.is_float() {
                errors.push(format!("{name}: {} {:?}, not {} {:?}", v.dtype, v.shape, want.dtype, want.shape));
                continue;
            }
            compare(&format!("{name} out{i}"), &v.values, &want.values, tolerance.value, &mut errors);
        }
        for ((i, want), v) in case.grads.iter().zip(&values[outs.len()..]) {
            compare(&format!("{name} grad{i}"), &v.values, &want.values, tolerance.grad, &mut errors);
        }
    }
    errors
}

#[test]
fn values_and_gradients_are_torchs() {
    let tolerance = Tolerance { value: (4e-6, 1e-6), grad: (2e-5, 4e-6) };
    let errors = differences(&Session::new(), 1, &tolerance, &mut |_, t| Ok(eval(t)));
    assert!(errors.is_empty(), "{} differ:\n{}", errors.len(), errors.join("\n"));
}

/// The same through the scheduler, the code generator and a device.
fn values_are_torchs_on(engine: &mut Engine, every: usize) {
    let tolerance = Tolerance { value: (1e-5, 4e-6), grad: (5e-5, 1e-5) };
    // buffers are known to an engine by number: one session an engine
    let session = Session::new();
    let errors = differences(&session, every, &tolerance, &mut |_, t| {
        let run = std::panic::AssertUnwindSafe(|| eval_on(engine, t));
        match std::panic::catch_unwind(run) {
            Ok(values) => values.map_err(|e| e.to_string()),
            Err(_) => Err("a panic".into()),
        }
    });
    assert!(errors.is_empty(), "{} differ:\n{}", errors.len(), errors.join("\n"));
}

#[test]
fn values_are_torchs_on_the_program_interpreter() {
    values_are_torchs_on(&mut Engine::new(Box::new(EvalDevice::default())), 1);
}

/// Programs as shaders and vector CPUs get them, run by the interpreter, which checks every address: a driver that clamps
/// would hide an access without its gate.
#[test]
fn values_are_torchs_with_a_shaders_capabilities() {
    let target = Target { lang: Lang::Eval, ..Target::wgsl("shader").with_f16().with_subgroup(8) };
    values_are_torchs_on(&mut Engine::new(Box::new(EvalDevice::new(target))), 1);
}

#[test]
fn values_are_torchs_with_a_vector_cpus_capabilities() {
    let target = Target { lang: Lang::Eval, ..Target::x86(Isa::Avx2, 2) };
    values_are_torchs_on(&mut Engine::new(Box::new(EvalDevice::new(target))), 1);
}

/// What only a mask tells apart from step to step, in loops of any length with and without a rest.
#[test]
fn sums_count_every_one_of_equal_elements() {
    for target in
        [Target::x86(Isa::Avx2, 2), Target::x86(Isa::Avx512, 1), Target::wasm(true, 1), Target::wgsl("shader")]
    {
        let mut engine = Engine::new(Box::new(EvalDevice::new(Target { lang: Lang::Eval, ..target })));
        let s = Session::new();
        let one = tensor(&s, &[3.0], &[], DType::I32);
        for n in [1, 7, 20, 50, 99, 100, 128, 333, 1000] {
            let x = one.expand(&[n]).unwrap();
            let padded = x.pad_zeros(&[(2, 3)]).unwrap();
            let square = one.expand(&[5, n]).unwrap();
            let all = [
                x.sum(&[], false).unwrap(),
                padded.sum(&[], false).unwrap(),
                square.sum(&[], false).unwrap(),
                x.max(&[], false).unwrap(),
            ];
            let got = eval_on(&mut engine, &all.iter().collect::<Vec<_>>()).unwrap();
            let got: Vec<f64> = got.iter().map(|v| v.values[0]).collect();
            let sum = 3.0 * n as f64;
            assert_eq!(got, [sum, sum, 5.0 * sum, 3.0], "{n}");
        }
    }
}

#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
#[test]
fn values_are_torchs_on_the_cpu() {
    let Some(device) = here::device("cpu", gradloom::open("cpu", 2)) else { return };
    values_are_torchs_on(&mut Engine::new(device), 1);
}

/// A compiler process per kernel is slow: a sample.
#[test]
fn values_are_torchs_through_the_c_compiler() {
    let Some(device) = here::device("c", gradloom::c::CDevice::new()) else { return };
    values_are_torchs_on(&mut Engine::new(Box::new(device)), 12);
}

/// The driver's compiler is slow: a sample.
#[test]
fn values_are_torchs_through_opencl() {
    let Some(device) = here::device("opencl", gradloom::opencl::OpenClDevice::new()) else { return };
    values_are_torchs_on(&mut Engine::new(Box::new(device)), 200);
}

/// Kernels as they are for Metal, on the processor: a sample.
#[test]
fn values_are_torchs_through_metals_language() {
    let Some(device) = here::device("c:metal", gradloom::c::CDevice::host("metal")) else { return };
    values_are_torchs_on(&mut Engine::new(Box::new(device)), 40);
}

/// Milliseconds of compiling a kernel: a sample.
#[cfg(unix)]
#[test]
fn values_are_torchs_through_llvm() {
    let Some(device) = here::device("llvm", gradloom::llvm::open(2)) else { return };
    values_are_torchs_on(&mut Engine::new(Box::new(device)), 3);
}

/// On a GPU or a software driver.
#[cfg(feature = "wgpu")]
#[test]
fn values_are_torchs_on_wgpu() {
    let Some(device) = here::device("wgpu", gradloom::wgpu::WgpuDevice::new()) else { return };
    values_are_torchs_on(&mut Engine::new(Box::new(device)), 1);
}

/// Workgroups that share reductions, exchanges within subgroups, f16 in memory, where the driver has them.
#[cfg(feature = "wgpu")]
#[test]
fn values_are_torchs_as_on_a_gpu_of_hardware() {
    let Some(mut device) = here::device("wgpu:hardware", gradloom::wgpu::WgpuDevice::new()) else { return };
    device.as_hardware();
    let t = gradloom_core::device::Device::target(&device);
    eprintln!("subgroups of {}, arrays of f16: {}", t.caps.subgroup, t.caps.f16_arrays);
    values_are_torchs_on(&mut Engine::new(Box::new(device)), 3);
}

/// Gradients against central differences along a random direction, in f64.
#[test]
fn gradients_are_finite_differences() {
    let cases = recorded();
    let mut errors = Vec::new();
    let mut checked = 0;
    for (name, case) in cases.iter().filter(|(_, c)| !c.grads.is_empty()) {
        // at ties and kinks there is no derivative to compare with; layers hold f32 parameters
        if name.starts_with("nn_")
            || [
                "frac",
                "ties",
                "_zero",
                "_inf",
                "prod_zeros",
                "far",
                "pow_frac",
                "atan_wide",
                "sinh_small",
                "asinh_wide",
                "log1p_small",
            ]
            .iter()
            .any(|k| name.contains(k))
        {
            continue;
        }
        let session = Session::new();
        let loss = |inputs: &[Tensor]| -> Tensor {
            let out = cases::run(name, &session, inputs).unwrap_or_else(|e| panic!("{name}: {e}")).swap_remove(0);
            let w = Tensor::new(&session, &data(999, out.numel(), -1.0, 1.0), &out.shape()).unwrap();
            out.mul(w).and_then(|t| t.sum(&[], false)).unwrap()
        };
        let inputs: Vec<Tensor> = case.inputs.iter().map(|r| input(&session, r, DType::F64)).collect();
        for &i in case.grads.keys() {
            let h = 1e-6;
            let direction = data(777, inputs[i].numel(), -1.0, 1.0);
            let d = Tensor::new(&session, &direction, &inputs[i].shape()).unwrap();
            let moved = |by: f64| {
                let mut moved = inputs.clone();
                moved[i] = inputs[i].add(d.mul(by)).unwrap();
                loss(&moved)
            };
            let grad = loss(&inputs).grad(&[&inputs[i]]).unwrap_or_else(|e| panic!("{name}: {e}")).swap_remove(0);
            let slope = grad.mul(&d).and_then(|t| t.sum(&[], false)).unwrap();
            let size = grad.abs().and_then(|t| t.sum(&[], false)).unwrap();
            let v = eval(&[&moved(h), &moved(-h), &slope, &size]);
            let (difference, slope) = ((v[0].values[0] - v[1].values[0]) / (2.0 * h), v[2].values[0]);
            if (difference - slope).abs() > 1e-4 * v[3].values[0].max(1e-3) {
                errors.push(format!("{name} input {i}: gradient {slope}, difference {difference}"));
            }
            checked += 1;
        }
    }
    assert!(errors.is_empty(), "{} of {checked}:\n{}", errors.len(), errors.join("\n"));
    assert!(checked > 150, "only {checked} gradients were checked");
}
