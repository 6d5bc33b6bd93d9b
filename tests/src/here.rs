//! What this machine has of what tests need. A device that is missing fails its tests, unless `tests/devices.json` lists it as
//! optional, with the reason. One that `GRADLOOM_WITHOUT` names (`llvm,wgpu`) is not tested. What was left out is added to the file that
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
    let without = std::env::var("GRADLOOM_WITHOUT").unwrap_or_default();
    if made.is_err() && !is_built(name) {
        return None;
    }
    // even if it opens: an emulated program finds compilers and drivers whose code it cannot load
    if is_named(name, &without) {
        left_out(name, "GRADLOOM_WITHOUT names it");
        return None;
    }
    match made {
        Ok(device) => Some(device),
        Err(e) => {
            let list = Json::parse(include_bytes!("../devices.json")).expect("a list of devices");
            let listed = list.get(name).and_then(Json::as_str).unwrap_or("required");
            let why = listed.strip_prefix("optional: ");
            let why = why.unwrap_or_else(|| panic!("{name} is missing: {e}. Without it: GRADLOOM_WITHOUT={name}"));
            left_out(name, &format!("{why} ({e})"));
            None
        }
    }
}

/// Is a device in a list like `llvm,wgpu`, by itself or as a variant of one that is?
fn is_named(name: &str, list: &str) -> bool {
    list.split(',').any(|w| w.trim() == name || name.split(':').next() == Some(w.trim()))
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
        assert!(!is_named("llvm", "") && !is_named("llvm", "wgpu"));
        assert!(is_named("wgpu:hardware", "llvm, wgpu") && !is_named("wgpu", "wgpu:hardware"));
        assert!(std::panic::catch_unwind(|| device::<u8, _>("no such device", Err("none"))).is_err());
    }
}
