//! The repository keeps its own rules: floors, purity of core, file length, heads, words. Same code as `cargo xtask tidy`.

#[path = "../../xtask/src/tidy.rs"]
mod tidy;

use std::path::Path;

#[test]
fn repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies inside the repository");
    let findings = tidy::check(root);
    assert!(findings.is_empty(), "{} to mend:\n{}", findings.len(), findings.join("\n"));
}
