//! The device suite on a device: `device_suite DEVICE`. Prints `pass N`, the number of samples that gave their known results, or lists
//! those that do not and fails.

use gradloom_core::render;
use gradloom_tests::runner::run_samples;
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".to_string());
    match gradloom::open(&name, 2) {
        Ok(mut device) => {
            let renderer = render::of(device.target().lang);
            println!("pass {}", run_samples(&mut *device, renderer));
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}
