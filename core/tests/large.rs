//! Sums over more terms than 32 bits count: products that are never made, of sizes that fit into any memory themselves. Planned and
//! compiled, not run: `cargo test --target i686-unknown-linux-gnu` checks every number on the way on a machine of 32 bits, as
//! WebAssembly is one.

use gradloom_core::device::EvalDevice;
use gradloom_core::engine::Engine;
use gradloom_core::target::{Isa, Lang, Target};
use gradloom_core::tensor::{Attention, ConvOpts, Session, Tensor};
use gradloom_core::{DType, Error, Result};

fn compiled(name: &str, f: impl Fn(&Session) -> Result<Tensor>) {
    let eval = |t: Target| Target { lang: Lang::Eval, ..t };
    let emulated = eval(Target::wgsl("emulated").emulated());
    for t in [eval(Target::wasm(false, 4)), eval(Target::wgsl("gpu")), emulated, eval(Target::x86(Isa::Avx2, 2))] {
        let s = Session::new();
        let y = f(&s).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut e = Engine::new(Box::new(EvalDevice::new(t.clone())));
        let p = e.start(&mut s.state(), &[y.root()]).unwrap_or_else(|e| panic!("{name} on {}: {e}", t.name));
        assert!(p.plan().calls.len() < 12, "{name} on {}: {} kernels", t.name, p.plan().calls.len());
    }
}

fn empty(s: &Session, shape: &[usize]) -> Tensor {
    Tensor::empty(s, DType::F32, shape).unwrap()
}

#[test]
fn products_of_large_matrices() {
    compiled("matmul", |s| empty(s, &[2048, 4096]).matmul(&empty(s, &[4096, 1024])));
    compiled("linear", |s| {
        empty(s, &[2, 512, 4096]).linear(&empty(s, &[2048, 4096]), Some(&empty(s, &[2048])))?.silu()
    });
}

#[test]
fn convolutions_of_large_pictures() {
    let conv = |s: &Session, w: &[usize]| {
        let opts = ConvOpts { padding: vec![(1, 1), (1, 1)], ..ConvOpts::default() };
        empty(s, &[1, 64, 320, 640]).conv(&empty(s, w), None, &opts)?.relu()
    };
    compiled("conv", |s| conv(s, &[64, 64, 3, 3]));
}

#[test]
fn attention_over_long_texts() {
    compiled("attention", |s| {
        let [q, k, v] = [0, 1, 2].map(|_| empty(s, &[1, 7, 2048, 192]));
        q.attention(&k, &v, &Attention::default())
    });
}

#[test]
fn what_no_memory_holds_is_refused() {
    let s = Session::new();
    let n = 1 << 20;
    let y = empty(&s, &[n, 1]).mul(empty(&s, &[1, n])).unwrap();
    if cfg!(target_pointer_width = "32") {
        let mut e = Engine::new(Box::new(EvalDevice::new(Target::eval())));
        let got = e.start(&mut s.state(), &[y.root()]).err();
        assert!(matches!(got, Some(Error::OutOfMemory { .. } | Error::Value { .. })), "{got:?}");
    }
    assert!(Tensor::empty(&s, DType::F32, &[n, n, n]).is_err());
}
