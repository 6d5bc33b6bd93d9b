//! Gives the crate a fingerprint of its own sources, which is part of every key that outlives a process: code cached by
//! one build of the compiler is never run by another.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    list(Path::new("src"), &mut files);
    files.sort();
    // two FNV-1a lanes; nobody attacks this, it only has to differ
    let (mut a, mut b) = (0xCBF2_9CE4_8422_2325u64, 0x6C62_272E_07BB_0142u64);
    for file in &files {
        let text = std::fs::read(file).unwrap_or_default();
        let name = file.to_string_lossy().replace('\\', "/");
        for &byte in name.as_bytes().iter().chain(&text).filter(|&&byte| byte != b'\r') {
            a = (a ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
            b = (b.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }
    println!("cargo:rustc-env=GRADLOOM_SOURCES={a:016x}{b:016x}");
}

fn list(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            list(&path, out);
        } else {
            out.push(path);
        }
    }
}
