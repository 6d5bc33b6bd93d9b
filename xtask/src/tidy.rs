//! `tidy`: the repository's rules that no compiler checks: layering within core, purity of core, file length, file
//! heads, trailing blanks, and words and paths that must not occur. Uses only std, because `tests/it/arch.rs` includes
//! this very file as a module, so that `cargo test` enforces the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The floors of core, lowest first. A module imports from lower floors and, without a cycle, from its own.
const FLOORS: [&[&str]; 9] = [
    &["budget", "dtype", "error", "interrupt", "util"],
    &["uop", "target", "analysis"],
    &["rewrite", "rules"],
    &["schedule", "grad"],
    &["codegen"],
    &["render", "device"],
    &["engine"],
    &["tensor", "nn", "optim"],
    &["io", "text", "llm"],
];

/// Names that core must not use, as it has no IO, clock, environment, threads or async. (The trait `std::io::Write`
/// alone is harmless.)
const IMPURE: [&str; 15] = [
    "std::fs",
    "std::net",
    "std::thread",
    "std::time",
    "std::env",
    "std::process",
    "std::io;",
    "std::io::{",
    "std::io::std",
    "std::io::Read",
    "println!(",
    "eprintln!(",
    "async fn",
    ".await",
    "unsafe {",
];

/// The folder of the ONNX operators, where shapes and input lists must not be indexed directly, because a model chooses
/// its ranks and arities. `Value::dim`, `Value::shape_in`, `Value::nth_last` and `Op::arg` return errors that name the
/// node instead.
const ONNX_FOLDER: &str = "core/src/io/onnx";

/// Forbidden direct accesses in that folder.
const DIRECT_ACCESSES: [&str; 6] =
    [".shape()[", ".args[", ".node.inputs[", ".node.outputs[", ".rank() - 1", ".rank() - 2"];

/// The most lines of a file.
const MAX_LINES: usize = 800;

/// The most columns of a line. rustfmt wraps code at 120; this limits what it leaves alone: strings, comments,
/// hand-aligned rule tables.
const MAX_COLUMNS: usize = 160;

/// Folders without source files of the project.
const SKIPPED: [&str; 7] = ["target", "node_modules", "dist", "pkg", ".git", ".cache", "tmp"];

/// Text that must not occur in the repository: paths of one machine, and unfinished code.
const FORBIDDEN: [&str; 7] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("..", "/sha", "red"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

/// Checks the repository at `root` and prints every finding.
#[allow(dead_code, reason = "the test that includes this file calls `check`")]
pub(crate) fn report(root: &Path) -> Result<(), String> {
    let findings = check(root);
    if findings.is_empty() {
        println!("tidy: nothing to mend");
        return Ok(());
    }
    Err(format!("tidy: {} to mend\n{}", findings.len(), findings.join("\n")))
}

/// Every finding, as `path:line: what`.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for file in source_files(root) {
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else { continue };
        check_text(&file, &text, &mut findings);
        let rust = file.extension().is_some_and(|ext| ext == "rs");
        if rust && file.starts_with("core/src") && !is_test_file(&file) {
            check_purity(&file, &text, &mut findings);
        }
        if rust && file.starts_with(ONNX_FOLDER) && !is_test_file(&file) {
            check_accessors(&file, &text, &mut findings);
        }
        // `watch.rs` prints kernels
        let is_target_independent =
            ["analysis", "schedule", "codegen", "rules", "engine", "tensor", "grad", "nn", "optim", "io", "llm"]
                .iter()
                .any(|m| file.starts_with(format!("core/src/{m}")) && !file.ends_with("engine/watch.rs"));
        if rust && is_target_independent && !is_test_file(&file) {
            check_languages(&file, &text, &mut findings);
        }
    }
    check_floors(root, &mut findings);
    findings
}

/// The project's source files, relative to the root, in a stable order.
fn source_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !SKIPPED.iter().any(|skip| name == *skip || name.starts_with("target")) {
                folders.push(path);
            } else if kind.is_file() && is_text(&name) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// A path with slashes, on Windows too.
fn shown(path: &Path) -> String {
    path.display().to_string().replace(std::path::MAIN_SEPARATOR, "/")
}

fn is_text(name: &str) -> bool {
    let known = ["rs", "toml", "md", "ts", "js", "mjs", "html", "css", "json", "sh", "yml", "uop", "wgsl"];
    name != "package-lock.json" && name.rsplit_once('.').is_some_and(|(_, ext)| known.contains(&ext))
}

fn check_text(file: &Path, text: &str, findings: &mut Vec<String>) {
    let name = shown(file);
    let ext = file.extension().map(|ext| ext.to_string_lossy().into_owned()).unwrap_or_default();
    let code = ["rs", "ts", "js", "mjs"].contains(&ext.as_str());
    let golden = file.starts_with("tests/golden") || ["json", "uop"].contains(&ext.as_str());
    let lines = text.lines().count();
    if code && lines > MAX_LINES && !text.starts_with("// Generated") {
        findings.push(format!("{name}:{lines}: longer than {MAX_LINES} lines; split it by concept"));
    }
    let first = text.lines().find(|line| !line.starts_with("#!/")).unwrap_or_default();
    if ext == "rs" && !first.starts_with("//!") {
        findings.push(format!("{name}:1: opens without `//!` saying what lives here"));
    }
    if code && ext != "rs" && !first.starts_with("//") && !first.starts_with("/**") {
        findings.push(format!("{name}:1: opens without a comment saying what lives here"));
    }
    if !text.is_empty() && !text.ends_with('\n') && !golden {
        findings.push(format!("{name}:{lines}: the last line has no line end"));
    }
    for (index, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", index + 1);
        if line.ends_with(' ') || line.ends_with('\t') {
            findings.push(format!("{place}: blanks at the end of the line"));
        }
        if code && line.chars().count() > MAX_COLUMNS {
            findings.push(format!("{place}: longer than {MAX_COLUMNS} columns"));
        }
        for word in FORBIDDEN.iter().filter(|word| line.contains(**word)) {
            findings.push(format!("{place}: `{word}` does not belong in the repository"));
        }
    }
}

/// Checks that core does not use the host, outside of comments and test modules.
fn check_purity(file: &Path, text: &str, findings: &mut Vec<String>) {
    for (index, line) in code_lines(text) {
        for word in IMPURE.iter().filter(|word| line.contains(**word)) {
            findings.push(format!("{}:{}: core must not use `{word}`", shown(file), index + 1));
        }
    }
}

/// Checks that decisions about kernels depend on the target's capabilities and machine, not on the output language.
fn check_languages(file: &Path, text: &str, findings: &mut Vec<String>) {
    for (index, _) in code_lines(text).filter(|(_, line)| line.contains("Lang::")) {
        let place = format!("{}:{}", shown(file), index + 1);
        findings.push(format!("{place}: a language is no machine: ask the target what it can do"));
    }
}

/// Checks that operators read ranks and inputs through accessors that return errors.
fn check_accessors(file: &Path, text: &str, findings: &mut Vec<String>) {
    for (index, line) in code_lines(text) {
        for word in DIRECT_ACCESSES.iter().filter(|word| line.contains(**word)) {
            let place = format!("{}:{}", shown(file), index + 1);
            findings.push(format!(
                "{place}: `{word}` panics on a model that chooses another rank: use an accessor that can fail"
            ));
        }
    }
}

/// The lines of a file that are code and not tests, with comments cut off.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = test_module(text).unwrap_or(usize::MAX);
    text.lines().enumerate().take(end).map(|(index, line)| (index, line.split("//").next().unwrap_or_default()))
}

/// The line where a file's own test module begins: `#[cfg(test)]`, other attributes, `mod .. {`.
fn test_module(text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len()).filter(|at| lines[*at] == "#[cfg(test)]").find(|at| {
        let item = lines[at + 1..].iter().find(|line| !line.starts_with("#["));
        item.is_some_and(|item| item.contains("mod ") && item.ends_with('{'))
    })
}

/// The floor (layer) of a module of core.
fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// Checks that no module imports from a floor above its own, and that the modules of one floor do not import each other
/// in a cycle.
fn check_floors(root: &Path, findings: &mut Vec<String>) {
    let source = root.join("core/src");
    let lib = std::fs::read_to_string(source.join("lib.rs")).unwrap_or_default();
    let exports = root_exports(&lib);
    let mut same_floor_imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in source_files(&source) {
        let module = file.iter().next().map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
        let module = module.trim_end_matches(".rs").to_string();
        if module == "lib" || is_test_file(&file) || file.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let Some(floor) = floor_of(&module) else {
            findings.push(format!("core/src/{}:1: module `{module}` has no floor in xtask/src/tidy.rs", shown(&file)));
            continue;
        };
        let text = std::fs::read_to_string(source.join(&file)).unwrap_or_default();
        for (line, import) in crate_imports(&text) {
            let target = exports.get(&import).cloned().unwrap_or(import);
            match floor_of(&target) {
                Some(other) if other > floor => findings.push(format!(
                    "core/src/{}:{line}: `{module}` on floor {floor} imports `{target}` from floor {other} above it",
                    shown(&file)
                )),
                Some(other) if other == floor && floor > 0 && target != module => {
                    same_floor_imports.entry(module.clone()).or_default().insert(target);
                }
                Some(_) => {}
                None => findings.push(format!(
                    "core/src/{}:{line}: `crate::{target}` is on no floor; name the module it lives in",
                    shown(&file)
                )),
            }
        }
    }
    for (from, targets) in &same_floor_imports {
        for to in targets.iter().filter(|to| *to > from && reaches(&same_floor_imports, to, from)) {
            findings.push(format!("core/src/{from}: `{from}` and `{to}` import each other"));
        }
    }
}

/// Whether this is a file of tests, which may import from any floor.
fn is_test_file(file: &Path) -> bool {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    stem == "tests" || stem.ends_with("_tests") || file.iter().any(|part| part == "tests")
}

fn reaches(edges: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            open.extend(edges.get(at).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

/// Names that lib.rs re-exports, with the module each comes from: `pub use dtype::{DType, ..}` and `#[macro_export]`s.
fn root_exports(lib: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in lib.split(';') {
        let Some((_, path)) = statement.rsplit_once("pub use ") else { continue };
        let path = path.trim().trim_start_matches("crate::").trim_start_matches("self::");
        let Some((module, names)) = path.split_once("::") else { continue };
        for name in names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty()) {
            exports.insert(name.to_string(), module.to_string());
        }
    }
    exports
}

/// The first name after each `crate::`, with its line; a group `crate::{a::b, c}` gives each of its first names.
fn crate_imports(text: &str) -> Vec<(usize, String)> {
    let mut code = String::new();
    let mut line_starts = Vec::new();
    for (_, line) in code_lines(text) {
        line_starts.push(code.len());
        let _ = writeln!(code, "{line}");
    }
    let mut imports = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let line = line_starts.partition_point(|start| *start <= at);
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => imports.extend(group_heads(group).into_iter().map(|head| (line, head))),
            None => imports.push((line, head_of(rest))),
        }
    }
    imports.retain(|(_, name)| !name.is_empty());
    imports
}

fn head_of(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The first names of a brace group, the opening brace already eaten.
fn group_heads(group: &str) -> Vec<String> {
    let mut depth = 0usize;
    let mut heads = vec![head_of(group)];
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.push(head_of(&group[at + 1..])),
            _ => {}
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_groups_and_paths() {
        let text = "use crate::uop::{Op, Arg};\nuse crate::{dtype::DType, rewrite::{a, b}, error::Error};\n\
                    // crate::nothing\nfn f() -> crate::Result<()> { $crate::io::x }\n";
        let names: Vec<(usize, String)> = crate_imports(text);
        let expected = [(1, "uop"), (2, "dtype"), (2, "rewrite"), (2, "error"), (4, "Result")];
        assert_eq!(names, expected.map(|(line, name)| (line, name.to_string())));
    }

    #[test]
    fn upward_imports_and_circles_are_findings() {
        let root = std::env::temp_dir().join(format!("gradloom-tidy-{}", std::process::id()));
        let source = root.join("core/src");
        std::fs::create_dir_all(source.join("uop")).expect("a temporary folder can be made");
        let write = |name: &str, text: &str| std::fs::write(source.join(name), text).expect("a file can be written");
        write("lib.rs", "//! lib\npub use error::{Error, Result};\npub mod uop;\n");
        write("uop/mod.rs", "//! uop\nuse crate::Result;\nuse crate::schedule::plan;\n");
        write("rewrite.rs", "//! rewrite\nuse crate::rules::x;\n");
        write(
            "rules.rs",
            "//! rules\nuse crate::rewrite::x;\n#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\n use crate::io::x;\n}\n",
        );
        std::fs::create_dir_all(source.join("io/onnx/ops")).expect("a folder can be made");
        write("io/onnx/ops/nn.rs", "//! nn\nfn f(x: &Value) -> usize {\n    x.shape()[1] // x.shape()[0]\n}\n");
        std::fs::create_dir_all(source.join("schedule")).expect("a folder can be made");
        write("schedule/cost.rs", "//! cost\nfn f(t: &Target) -> bool {\n    t.lang == Lang::Wasm // Lang::Wgsl\n}\n");
        write("attic.rs", "fn old() { std::fs::read(\"x\"); } \n");
        let findings = check(&root).join("\n");
        std::fs::remove_dir_all(&root).expect("the temporary folder can be removed");
        for expected in [
            "uop/mod.rs:3: `uop` on floor 1 imports `schedule` from floor 3",
            "`rewrite` and `rules` import each other",
            "`attic` has no floor",
            "core must not use `std::fs`",
            "io/onnx/ops/nn.rs:3: `.shape()[` panics",
            "schedule/cost.rs:3: a language is no machine",
            "attic.rs:1: opens without `//!`",
            "attic.rs:1: blanks at the end",
        ] {
            assert!(findings.contains(expected), "`{expected}` not among\n{findings}");
        }
        assert_eq!(findings.lines().count(), 8, "{findings}");
    }
}
