//! Kernels stay inside their buffers: each buffer ends where a page ends, and the page behind it may not be touched. A kernel
//! that leaves its buffer ends this process.

use gradloom::c::CDevice;
use gradloom::memory::Guard;
use gradloom::tensor::{ConvOpts, PoolOpts};
use gradloom::{Result, Runtime, Session, Tensor};
use gradloom_core::device::Device;
use gradloom_core::render::Renderer;
use gradloom_core::render::c::CRenderer;
use gradloom_tests::here;
use gradloom_tests::runner::run_samples;

type Pair = (Box<dyn Device>, Box<dyn Renderer>);

/// Devices of which this machine has what they need.
fn devices() -> Vec<(&'static str, Pair)> {
    let mut all: Vec<(&'static str, Pair)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        use gradloom::cpu::{CpuDevice, detect};
        use gradloom_core::render::x86::X86;
        use gradloom_core::target::Isa;
        for (name, isa) in [("cpu:avx2", Isa::Avx2), ("cpu:avx512", Isa::Avx512)] {
            if here::device(name, detect().filter(|&have| have >= isa).ok_or("not this processor")).is_some() {
                let dev = CpuDevice::with_isa(isa, 1).expect("it was detected").with_guard(Guard::After);
                all.push((name, (Box::new(dev), Box::new(X86))));
            }
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let dev = gradloom::cpu::CpuDevice::new(1).expect("every such processor has what it takes");
        let renderer = gradloom_core::render::arm64::Arm64;
        all.push(("cpu", (Box::new(dev.with_guard(Guard::After)), Box::new(renderer))));
    }
    #[cfg(unix)]
    if let Some(dev) = here::device("llvm", gradloom::llvm::open(1)) {
        let renderer = gradloom_core::render::llvm::LlvmRenderer;
        all.push(("llvm", (Box::new(dev.with_guard(Guard::After)), Box::new(renderer))));
    }
    if let Some(dev) = here::device("c", CDevice::new()) {
        all.push(("c", (Box::new(dev.with_guard(Guard::After)), Box::new(CRenderer))));
    }
    all
}

#[test]
fn samples_stay_inside_their_buffers() {
    for (name, (mut dev, renderer)) in devices() {
        // a compiler process takes long for hundreds of kernels, and its scalar loads are as the interpreter checks them
        if name == "c" {
            continue;
        }
        assert!(run_samples(&mut *dev, &*renderer) > 100);
    }
}

fn numbers(s: &Session, shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let list: Vec<f32> = (0..n as i64).map(|i| (i * i % 23 - 11) as f32 * 0.125).collect();
    Tensor::new(s, &list, shape)
}

/// Operations whose vectors do not divide what they read: every other element, rows of odd lengths, repeated elements.
fn operations(s: &Session) -> Result<Vec<Tensor>> {
    let mut out = Vec::new();
    for n in [7, 20, 33] {
        let x = numbers(s, &[3, n, n])?.unsqueeze(0)?;
        for (window, stride) in [(2, 2), (3, 2), (1, 3)] {
            out.push(x.max_pool(&PoolOpts::new(&[window, window]).stride(&[stride, stride]))?);
        }
        let rows = numbers(s, &[5, n])?;
        out.push(rows.softmax(-1)?);
        out.push(rows.layer_norm(1, None, None, 1e-5)?);
        out.push(rows.sum(&[-1], false)?);
        out.push(rows.sum(&[0], false)?);
        out.push(numbers(s, &[n, 5])?.t()?.mul(2.0)?);
        out.push(rows.flip(&[1])?.add(1.0)?);
        let twice = rows.unsqueeze(2)?.expand(&[5, n, 2])?.reshape(&[5, 2 * n])?;
        out.push(twice.add(1.0)?);
        out.push(numbers(s, &[n, 2 * n])?.reshape(&[n, n, 2])?.shrink(&[(0, n), (0, n), (1, 2)])?.add(1.0)?);
        out.push(rows.matmul(&numbers(s, &[n, 37])?)?);
        out.push(rows.matmul(&numbers(s, &[n, 1])?)?);
        for stride in [1, 2] {
            let opts = ConvOpts::new().stride(&[stride]).padding(&[1]);
            out.push(x.conv(&numbers(s, &[6, 3, 3, 3])?, None, &opts)?);
            out.push(x.conv(&numbers(s, &[3, 1, 3, 3])?, None, &opts.groups(3))?);
        }
    }
    Ok(out)
}

/// A network for digits, on a batch, with its gradients.
fn network(s: &Session) -> Result<Vec<Tensor>> {
    let x = numbers(s, &[5, 1, 28, 28])?;
    let (a, b) = (numbers(s, &[32, 1, 5, 5])?, numbers(s, &[64, 32, 5, 5])?);
    let w = numbers(s, &[64 * 16, 10])?;
    let pooled = |x: &Tensor| x.relu()?.max_pool(&PoolOpts::new(&[2, 2]));
    let y = pooled(&x.conv(&a, None, &ConvOpts::new())?)?;
    let y = pooled(&y.mul(0.01)?.conv(&b, None, &ConvOpts::new())?)?;
    let y = y.flatten(1, -1)?.mul(0.01)?.matmul(&w)?;
    let loss = y.mul(0.01)?.tanh()?.sum(&[], false)?;
    let mut out = loss.grad(&[&a, &b, &w])?;
    out.push(y);
    Ok(out)
}

fn results(dev: Box<dyn Device>) -> Vec<Vec<f32>> {
    let mut rt = Runtime::on(dev);
    let s = rt.session().clone();
    let mut all = operations(&s).expect("operations");
    all.extend(network(&s).expect("network"));
    rt.realize(&all.iter().collect::<Vec<_>>()).expect("one plan");
    all.iter().map(|t| rt.to_vec::<f32>(t).expect("values")).collect()
}

#[test]
fn operations_and_a_network_stay_inside_their_buffers() {
    let want = results(gradloom::open("cpu", 1).or_else(|_| gradloom::open("eval", 1)).expect("a device"));
    for (name, (dev, _)) in devices() {
        for (i, (got, want)) in results(dev).iter().zip(&want).enumerate() {
            assert_eq!(got.len(), want.len());
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-3 * (1.0 + b.abs());
            assert!(got.iter().zip(want).all(near), "{name}: result {i}");
        }
    }
}
