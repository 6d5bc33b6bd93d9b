//! `setup`: prepares a machine that has only git, rustup, node and Debian for the build and all tests. Each step
//! reports what it looks for, what it does, and what failed. A failing step does not stop the next one, and the end
//! lists what will not work. Nothing that already exists is changed.

use crate::sh;
use crate::wasm::{self, Toolchain};
use std::path::Path;
use std::process::Command;

/// Folders in which Vulkan loaders look for lavapipe's manifest.
const ICD_FOLDERS: [&str; 2] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/// Folders of shared libraries.
const LIBRARIES: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Runs every step. Fails only if nothing can be built, because no compiler for wasm32 is available.
pub(crate) fn setup(args: &[&str]) -> Result<(), String> {
    let browser = !args.contains(&"native");
    let mut missing = Vec::new();
    let toolchain = wasm_toolchain();
    if let Err(why) = &toolchain {
        missing.push(format!("nothing can be built for the browser: {why}"));
    }
    if browser && let Err(why) = chromium() {
        missing.push(format!("browser tests cannot run: {why}"));
    }
    let lavapipe = ICD_FOLDERS.iter().any(|dir| has_file(dir, "lvp"));
    optional("a software Vulkan driver", "mesa-vulkan-drivers", lavapipe, "native WebGPU tests need a real GPU then");
    let loader = LIBRARIES.iter().any(|dir| has_file(dir, "libvulkan.so.1"));
    optional("the Vulkan loader", "libvulkan1", loader, "the native WGPU device will not be found");
    let pocl = has_file("/etc/OpenCL/vendors", "");
    optional("a driver of OpenCL", "pocl-opencl-icd", pocl, "OpenCL is tested where there is another driver then");
    let loader = LIBRARIES.iter().any(|dir| has_file(dir, "libOpenCL.so.1"));
    optional("the OpenCL loader", "ocl-icd-libopencl1", loader, "the OpenCL device will not be found");
    if missing.is_empty() {
        println!("setup: done");
        return Ok(());
    }
    let list = missing.join("\n  - ");
    if toolchain.is_err() {
        return Err(format!("setup: failed\n  - {list}"));
    }
    println!("setup: done, but\n  - {list}");
    Ok(())
}

/// A compiler for wasm32: rustup's when its target can be added, else Debian's with the standard library built from source.
fn wasm_toolchain() -> Result<Toolchain, String> {
    if let Ok(found) = Toolchain::find() {
        println!("setup: wasm32 compiler: {} is here", found.describe());
        return Ok(found);
    }
    println!("setup: wasm32 compiler: asking rustup for the target {}", wasm::TARGET);
    match sh::quiet(Command::new("rustup").args(["target", "add", wasm::TARGET])) {
        Ok(_) if Toolchain::find().is_ok() => println!("setup: wasm32 compiler: rustup added it"),
        answer => {
            let why = answer.err().unwrap_or("it says that it did, but the files are not there".to_string());
            println!("setup: wasm32 compiler: rustup could not: {why}");
            println!("setup: wasm32 compiler: taking Debian's rustc and the sources of its standard library instead");
            // A stale list names an older compiler, which apt would install without complaint.
            refresh_lists();
            apt(&["rustc-web", "cargo-web", "rust-web-src", "lld"])?;
        }
    }
    Toolchain::find()
}

fn chromium() -> Result<(), String> {
    if let Some(path) = std::env::var_os("CHROMIUM") {
        return match Path::new(&path).is_file() {
            true => Ok(println!("setup: Chromium: {} (from CHROMIUM)", path.to_string_lossy())),
            false => Err(format!("CHROMIUM names {}, which is not a file", path.to_string_lossy())),
        };
    }
    if let Some(path) = ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| sh::which(name)) {
        return Ok(println!("setup: Chromium: {} is here", path.display()));
    }
    println!("setup: Chromium: not found, installing it with apt");
    apt(&["chromium", "fonts-liberation"])
}

/// Installs an optional package.
fn optional(what: &str, package: &str, present: bool, without: &str) {
    if present {
        return println!("setup: {what}: is here");
    }
    println!("setup: {what}: not found, installing {package} with apt");
    if let Err(why) = apt(&[package]) {
        println!("setup: {what}: could not be installed ({why}); {without}");
    }
}

/// Installs Debian packages; refreshes the package lists only if the first attempt fails.
fn apt(packages: &[&str]) -> Result<(), String> {
    if sh::which("apt-get").is_none() {
        return Err(format!("there is no apt-get here; install by hand: {}", packages.join(" ")));
    }
    let install = |packages: &[&str]| {
        sh::quiet(apt_get().args(["install", "--yes", "--no-install-recommends"]).args(packages)).map(|_| ())
    };
    if install(packages).is_ok() {
        return Ok(());
    }
    refresh_lists();
    install(packages).map_err(|why| format!("apt-get install {} failed: {why}", packages.join(" ")))
}

fn refresh_lists() {
    println!("setup: apt: refreshing the package lists");
    if let Err(why) = sh::quiet(apt_get().arg("update")) {
        println!("setup: apt: the lists were not refreshed: {why}");
    }
}

/// `apt-get`, through sudo where this is not root.
fn apt_get() -> Command {
    let root = sh::quiet(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    let mut command = Command::new(if root { "apt-get" } else { "sudo" });
    if !root {
        command.args(["--non-interactive", "apt-get"]);
    }
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn has_file(dir: &str, prefix: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
}
