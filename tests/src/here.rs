//! What this machine has of what tests need. A device that is missing fails its tests, unless `tests/devices.json` lists it as
//! optional, with the reason, or `GRADLOOM_WITHOUT` names it (`llvm,wgpu`). What was left out is added to the file that
//! `GRADLOOM_LEFT_OUT` names, a line each, so that `npm test` can say it at its end.

use gradloom_core::io::json::Json;
use std::fmt::Display;
use std::io::Write as _;

/// Is a device that this build does not have left out without a word? wgpu is there with a feature alone.
fn is_built(name: &str) -> bool {
    cfg!(feature = "wgpu") || !name.starts_with("wgpu")
}

/// The device, or nothing where this machine may lack it.
///
/// # Panics
/// If the device is required.
pub fn device<T, E: Display>(name: &str, made: Result<T, E>) -> Option<T> {
    match made {
        Ok(device) => Some(device),
        Err(_) if !is_built(name) => None,
        Err(e) => {
            let without = std::env::var("GRADLOOM_WITHOUT").unwrap_or_default();
            let list = Json::parse(include_bytes!("../devices.json")).expect("a list of devices");
            let named = list.get(name).and_then(Json::as_str).unwrap_or("required");
            match reason(name, named, &without) {
                Some(why) => left_out(name, &format!("{why} ({e})")),
                None => panic!("{name} is missing: {e}. Without it: GRADLOOM_WITHOUT={name}"),
            }
            None
        }
    }
}

/// Why a test may go without a device, if it may.
fn reason(name: &str, listed: &str, without: &str) -> Option<String> {
    if without.split(',').any(|w| w.trim() == name || name.split(':').next() == Some(w.trim())) {
        return Some("GRADLOOM_WITHOUT names it".into());
    }
    listed.strip_prefix("optional: ").map(String::from)
}

/// Notes that something was not tested.
pub fn left_out(what: &str, why: &str) {
    let line = format!("{what}: {why}\n");
    eprint!("not tested: {line}");
    if let Some(path) = std::env::var_os("GRADLOOM_LEFT_OUT") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut f| f.write_all(line.as_bytes())).expect("the file for notes can be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_required_unless_there_is_a_reason() {
        assert_eq!(device::<u8, String>("eval", Ok(1)), Some(1));
        assert_eq!(reason("llvm", "required", ""), None);
        assert_eq!(reason("llvm", "required", "wgpu"), None);
        assert_eq!(reason("cpu:avx512", "optional: few have it", "").as_deref(), Some("few have it"));
        assert!(reason("wgpu:hardware", "required", "llvm, wgpu").is_some());
        assert!(std::panic::catch_unwind(|| device::<u8, _>("no such device", Err("none"))).is_err());
    }
}
