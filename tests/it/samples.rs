//! The interpreter gives the known results of every sample program, in the shape of each target.

use gradloom_core::dtype::Scalar;
use gradloom_core::target::{Isa, Target};
use gradloom_core::uop::eval::eval_program;
use gradloom_tests::programs::{Data, samples};

fn check(t: &Target) {
    let mut failures = Vec::new();
    let all = samples(t);
    for s in &all {
        let p = &s.program;
        let mut args: Vec<Vec<u8>> = s.data.iter().map(Data::bytes).collect();
        let scalars = s.vars.iter().map(|bits| bits.to_le_bytes());
        let vars: Vec<(&str, Scalar)> =
            p.vars.iter().zip(scalars).map(|(v, b)| (&*v.name, Scalar::read(v.dtype, &b))).collect();
        match eval_program(&p.g, &p.order, &mut args, &vars, p.grid) {
            Ok(()) => failures.extend(s.check(&args).err()),
            Err(e) => failures.push(format!("{}: {e}", p.name)),
        }
    }
    assert!(failures.is_empty(), "{} of {} samples fail:\n{}", failures.len(), all.len(), failures.join("\n"));
}

#[test]
fn interpreter_runs_scalar_samples() {
    check(&Target::eval());
}

#[test]
fn interpreter_runs_cpu_samples() {
    check(&Target::x86(Isa::Avx2, 1));
    check(&Target::x86(Isa::Avx512, 1));
    check(&Target::wasm(true, 1));
}

#[test]
fn interpreter_runs_gpu_samples() {
    check(&Target::wgsl("wgpu"));
}
