//! The sample programs are valid by the spec: what renderers are tested on is what they may rely on.

use gradloom_core::target::Target;
use gradloom_core::uop::print::print_program;
use gradloom_core::uop::spec::{Stage, verify};
use gradloom_core::uop::{hash, parse};
use gradloom_tests::programs::samples;

#[test]
fn samples_are_valid_and_round_trip_through_text() {
    for t in [Target::eval(), Target::wgsl("wgpu"), Target::wasm(true, 1), Target::c(8, 16, 1)] {
        for s in samples(&t) {
            let p = &s.program;
            verify(&p.g, &p.order, Stage::Program).unwrap_or_else(|e| panic!("{}: {e}", p.name));
            let text = print_program(&p.g, &p.order);
            let q = parse::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", p.name));
            let placed = &q.order[q.order.len() - p.order.len()..];
            assert_eq!(hash::key(&q.graph, placed), hash::key(&p.g, &p.order), "{}", p.name);
        }
    }
}
