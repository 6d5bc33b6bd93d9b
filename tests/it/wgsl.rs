//! Every shader that the sample programs give is valid WGSL.

use gradloom_core::render::wgsl::WgslRenderer;
use gradloom_core::render::{Code, Renderer};
use gradloom_core::target::Target;
use gradloom_tests::programs::samples;
use naga::valid::{Capabilities, ValidationFlags, Validator};

#[test]
fn shaders_of_all_samples_validate() {
    validate(&Target::wgsl("wgpu"), Capabilities::empty());
}

#[test]
fn shaders_for_adapters_with_more_validate() {
    let t = Target::wgsl("wgpu").with_f16().with_subgroup(8);
    validate(&t, Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP);
}

fn validate(t: &Target, can: Capabilities) {
    let mut failures = Vec::new();
    let all = samples(t);
    for s in &all {
        let Code::Text(text) = WgslRenderer.render(&s.program, t).unwrap() else { panic!("WGSL is text") };
        // naga has them without being asked
        let text = text.replace("enable subgroups;", "");
        let module = match naga::front::wgsl::parse_str(&text) {
            Ok(m) => m,
            Err(e) => {
                failures.push(format!("{}: {}\n{text}", s.program.name, e.emit_to_string(&text)));
                continue;
            }
        };
        if let Err(e) = Validator::new(ValidationFlags::all(), can).validate(&module) {
            failures.push(format!("{}: {}\n{text}", s.program.name, e.emit_to_string(&text)));
        }
    }
    let n = failures.len();
    failures.truncate(5);
    assert!(n == 0, "{n} of {} shaders are not valid:\n{}", all.len(), failures.join("\n"));
}

/// The shader of one sample.
fn shader(name: &str) -> String {
    let t = Target::wgsl("wgpu");
    let s = samples(&t).into_iter().find(|s| s.program.name == name).expect("the sample is there");
    match WgslRenderer.render(&s.program, &t).unwrap() {
        Code::Text(text) => text,
        _ => panic!("WGSL is text"),
    }
}

#[test]
fn whole_aligned_vectors_are_loaded_and_stored_at_once() {
    let text = shader("matmul_4_64_64");
    for declaration in ["read> b0: array<f32>", "read> b1: array<vec4<f32>>", "read_write> b2: array<vec4<f32>>"] {
        assert!(text.contains(declaration), "{declaration} in\n{text}");
    }
    assert_eq!(text.matches("= fma(").count(), 8, "4 rows of 2 vectors:\n{text}");
    assert_eq!(text.matches("= b1[").count(), 2, "each vector is loaded once a step:\n{text}");
    // an offset of one element is no multiple of four
    assert!(shader("unaligned").contains("read> b0: array<f32>"));
}

#[test]
fn windows_that_overlap_load_an_element_once() {
    // two rows of four results, whose windows are six elements wide: a row of taps at a time, and all taps at once
    for (name, loads) in [("window_12_row", 2 * 6), ("window_12_all", 4 * 6)] {
        let text = shader(name);
        assert_eq!(text.matches("= b1[").count(), loads, "{text}");
        // an index outside of the array is none of its gate's business
        assert!(text.contains("b1[i32(min(u32("), "{text}");
    }
}

#[test]
fn constants_that_no_expression_may_make_come_from_bits() {
    let text = shader("row_max");
    assert!(text.contains("var<private> neg_inf_bits: u32 = 0xff800000u;"), "{text}");
    assert!(text.contains("bitcast<f32>(neg_inf_bits)") && !text.contains("inf)"), "{text}");
}

/// A gate of one token, as decoders have it: two products of a vector that are multiplied. On hardware the threads of a
/// workgroup share each sum, which they do in a kernel of one sum alone; elsewhere one kernel has both.
#[test]
fn threads_share_the_sums_of_a_gate() {
    use gradloom::Runtime;
    use gradloom::tensor::Tensor;
    for (device, kernels) in [("null:wgsl-hardware", 2), ("null:wgsl-software", 1), ("null:wasm", 1)] {
        let mut rt = Runtime::open(device, 1).unwrap();
        let s = rt.session().clone();
        let noise = |n: usize, shape: &[usize]| {
            let data: Vec<f32> = (0..n).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect();
            Tensor::new(&s, &data, shape).unwrap()
        };
        let x = noise(768, &[1, 768]);
        let [gate, up] = [(); 2].map(|()| x.matmul(&noise(768 * 3072, &[768, 3072])).unwrap());
        let y = gate.silu().unwrap().mul(up).unwrap();
        let plan = rt.realize(&[&y]).unwrap();
        assert_eq!(plan.plan().calls.len(), kernels, "{device}");
    }
}
