//! What kernels on processors have in vectors, by their text: wrong speed would fail no comparison of numbers.

use crate::tiles::closed;
use gradloom::tensor::ConvOpts;
use gradloom::{Result, Runtime, Session, Tensor};
use gradloom_core::DType::{F32, F64, I64};
use gradloom_core::codegen::{Opt, compile};
use gradloom_core::device::NullDevice;
use gradloom_core::render::{Code, render};
use gradloom_core::schedule::schedule;
use gradloom_core::target::{Isa, Target};

/// The text of the last kernel of a graph.
fn text(t: &Target, make: impl Fn(&Session) -> Result<Tensor>) -> String {
    let mut rt = Runtime::on(Box::new(NullDevice::new(t.clone())));
    let tensor = make(&rt.session().clone()).expect("a graph");
    let replay = rt.realize(&[&tensor]).expect("compiles");
    let last = replay.plan().calls.last().expect("a kernel").program;
    printed(&rt.engine().program(last).expect("it was compiled").source.code)
}

fn printed(code: &Code) -> String {
    match code {
        Code::Bytes(bytes) => gradloom::disasm::disassemble(bytes),
        Code::Text(text) => text.clone(),
        Code::Program(p) => panic!("{} is not printed", p.name),
    }
}

/// A matrix product with these lanes along its columns.
fn product(t: &Target, lanes: usize) -> String {
    let s = Session::new();
    let [a, b] = [[6, 40], [40, 48]].map(|shape| Tensor::empty(&s, F32, &shape).expect("a tensor"));
    let c = a.matmul(&b).expect("a product");
    let (g, roots, buffers) = closed(&c);
    let plan = schedule(&g, &roots, buffers, t).expect("a schedule");
    let program = compile(&plan.kernels[0].ast, t, Some(&[Opt::lane(1, lanes)])).expect("compiles");
    assert_eq!(program.refused, 0, "{}", program.name);
    printed(&render(&program, t).expect("renders"))
}

/// Vectors in C and LLVM have a power of two of lanes.
#[test]
fn lanes_of_three_vectors_are_vectors() {
    let c = product(&Target::c(8, 16, 1), 24);
    assert!(c.contains("f32x8") && !c.contains("_l0"), "{c}");
    let llvm = product(&Target::llvm(8, 16, 1), 24);
    assert!(llvm.contains("<8 x float>") && !llvm.contains("<24 x"), "{llvm}");
}

/// Rows of an image with padding: lanes at its edges are masked, none is loaded by itself.
#[test]
fn masked_rows_are_vectors_in_c() {
    let c = text(&Target::c(8, 16, 1), |s| {
        let [x, w] = [[1, 8, 30, 30], [8, 1, 3, 3]].map(|shape| Tensor::empty(s, F32, &shape));
        x?.conv(&w?, None, &ConvOpts::new().groups(8).padding(&[1]))
    });
    assert!(c.contains("gl_load_f32x") && !c.contains("_l0"), "{c}");
}

/// Products of 64-bit values.
#[test]
fn wide_products_are_in_vectors() {
    let square = |t: &Target, dtype| {
        text(t, |s| Tensor::empty(s, dtype, &[64, 64])?.matmul(&Tensor::empty(s, dtype, &[64, 64])?))
    };
    for (isa, register) in [(Isa::Avx2, "ymm"), (Isa::Avx512, "zmm")] {
        let t = Target::x86(isa, 1);
        let floats = square(&t, F64);
        let fused = floats.lines().filter(|l| l.contains("vfmadd") && l.contains("pd") && l.contains(register)).count();
        assert!(fused >= 8, "{fused} in {register}:\n{floats}");
        let ints = square(&t, I64);
        let added = ints.lines().filter(|l| l.contains("vpaddq") && l.contains(register)).count();
        assert!(added >= 4, "{added} in {register}:\n{ints}");
    }
    let c = square(&Target::c(8, 16, 1), F64);
    assert!(c.contains("f64x4") && !c.contains("f64x8"), "{c}");
    let llvm = square(&Target::llvm(8, 16, 1), F64);
    assert!(llvm.contains("x double> @llvm.f") || llvm.contains("fmul <"), "{llvm}");
}
