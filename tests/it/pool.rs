//! Gradients of pools that several sums read: how they are cut into kernels, and that rows which are no whole vectors give
//! the values of the tensor graph.

use super::frontend::host::eval;
use gradloom::tensor::{PoolOpts, Tensor};
use gradloom::{Result, Runtime, Session};
use gradloom_core::DType;
use gradloom_tests::here;

const DEVICES: [&str; 6] = ["cpu", "cpu:avx2", "llvm", "c", "wgpu", "eval"];

/// What a normalisation before a pool of 2x2 reads of its gradient: sums of it, and of its products with the input.
fn sums(s: &Session, shape: &[usize; 4]) -> Result<Vec<Tensor>> {
    let n: usize = shape.iter().product();
    // some windows have their largest value twice
    let data: Vec<f32> = (0..n).map(|i| ((i * 7919) % 61) as f32 / 16.0 - 2.0).collect();
    let x = Tensor::new(s, &data, shape)?;
    let y = x.max_pool(&PoolOpts::new(&[2, 2]))?;
    let y = y.mul(&y)?.sum(&[], false)?;
    let dx = y.grad(&[&x])?.remove(0);
    let axes = [0, 2, 3];
    let centred = x.sub(x.mean(&axes, true)?)?;
    Ok(vec![dx.sum(&axes, false)?, dx.mul(centred)?.sum(&axes, false)?, dx])
}

#[test]
fn gradients_of_pools() {
    for shape in [[3, 5, 20, 20], [2, 3, 8, 40], [4, 2, 6, 6], [1, 2, 4, 18]] {
        let s = Session::new();
        let want = eval(&sums(&s, &shape).expect("a graph").iter().collect::<Vec<_>>());
        for device in DEVICES {
            let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { continue };
            let got = sums(&rt.session().clone(), &shape).expect("a graph");
            rt.realize(&got.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{shape:?} on {device}: {e}"));
            for (which, (t, w)) in got.iter().zip(&want).enumerate() {
                for (i, (g, w)) in rt.to_vec::<f32>(t).expect("values").into_iter().zip(&w.values).enumerate() {
                    let off = (f64::from(g) - w).abs();
                    assert!(off <= 1e-4 * w.abs().max(1.0), "{shape:?} on {device}, {which}[{i}]: {g} instead of {w}");
                }
            }
        }
    }
}

#[test]
fn what_a_pool_chose_is_compared_again_not_stored() {
    let mut rt = Runtime::open("cpu", 1).expect("a processor");
    let list = sums(&rt.session().clone(), &[64, 32, 20, 20]).expect("a graph");
    let replay = rt.realize(&list.iter().collect::<Vec<_>>()).expect("a run");
    for c in &replay.plan().calls {
        let source = rt.engine().program(c.program).expect("a program").source.clone();
        assert!(source.params.iter().all(|p| p.dtype != DType::Bool), "{} stores truth values", source.name);
    }
}
