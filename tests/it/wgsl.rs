//! Every shader that the sample programs give is valid WGSL.

use gradloom_core::render::wgsl::WgslRenderer;
use gradloom_core::render::{Code, Renderer};
use gradloom_core::target::Target;
use gradloom_tests::programs::samples;
use naga::valid::{Capabilities, ValidationFlags, Validator};

#[test]
fn shaders_of_all_samples_validate() {
    let t = Target::wgsl("wgpu");
    let mut failures = Vec::new();
    let all = samples(&t);
    for s in &all {
        let Code::Text(text) = WgslRenderer.render(&s.program, &t).unwrap() else { panic!("WGSL is text") };
        let module = match naga::front::wgsl::parse_str(&text) {
            Ok(m) => m,
            Err(e) => {
                failures.push(format!("{}: {}\n{text}", s.program.name, e.emit_to_string(&text)));
                continue;
            }
        };
        if let Err(e) = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module) {
            failures.push(format!("{}: {}\n{text}", s.program.name, e.emit_to_string(&text)));
        }
    }
    let n = failures.len();
    failures.truncate(5);
    assert!(n == 0, "{n} of {} shaders are not valid:\n{}", all.len(), failures.join("\n"));
}
