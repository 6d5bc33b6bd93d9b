//! One pass on one kernel each: `tests/ir/*.ir` have a kernel as the scheduler makes it, a target, a pass, and the text after that pass.
//! `BLESS=1 cargo test -p gradloom-tests --test it passes` takes what passes make of them now.
//!
//! The head of a file is comments: `target`, one of those below; `opts`, as `gradloom kernels --passes` prints them, or `chosen`; `pass`.
//! The kernel follows, then a line `----`, then what is wanted: a graph, or `the same`.

use gradloom_core::codegen::{Opt, PASSES, compile_watched};
use gradloom_core::schedule::Ast;
use gradloom_core::target::{Isa, MatrixTile, Target};
use gradloom_core::uop::parse::parse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn target(name: &str) -> Option<Target> {
    Some(match name {
        "x86-avx2" => Target::x86(Isa::Avx2, 1),
        "x86-avx512" => Target::x86(Isa::Avx512, 1),
        "wasm" => Target::wasm(false, 1),
        "wgsl" => Target::wgsl("webgpu"),
        "wgsl-hardware" => Target { subgroup: 32, workgroup_bytes: 32768, ..Target::wgsl("webgpu").with_f16() },
        "tiles" => Target::matrix("tiles", [MatrixTile::sm80(), MatrixTile::subgroup_matrix()].concat()),
        "wgsl-emulated" => Target::wgsl("webgpu").emulated(),
        _ => return None,
    })
}

/// What follows `// name: ` in a file's head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|l| l.strip_prefix("// ")?.strip_prefix(name)?.strip_prefix(": "))
}

/// The text after the pass that a file names.
fn after(input: &str) -> Result<String, String> {
    let named = |name: &str| field(input, name).ok_or(format!("`{name}` is missing"));
    let t = target(named("target")?).ok_or("unknown target")?;
    let opts = match named("opts")? {
        "chosen" => None,
        "none" => Some(Vec::new()),
        list => Some(Opt::parse_list(list).ok_or("unknown opts")?),
    };
    let pass = named("pass")?;
    if PASSES.iter().all(|p| p.name != pass) {
        return Err(format!("there is no pass `{pass}`"));
    }
    let kernel = parse(input).map_err(|e| e.to_string())?;
    let ast = Ast::new(kernel.graph, *kernel.roots.first().ok_or("`roots` is missing")?);
    let (mut last, mut text) = (String::new(), None);
    compile_watched(&ast, &t, opts.as_deref(), &mut |p, l| {
        let now = l.text();
        if p.name == pass {
            text = Some(if now == last { "the same\n".into() } else { now.clone() });
        }
        last = now;
    })
    .map_err(|e| e.to_string())?;
    text.ok_or(format!("`{pass}` does not run for this target"))
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ir");
    let mut list: Vec<_> = std::fs::read_dir(folder).expect("tests/ir").map(|e| e.expect("an entry").path()).collect();
    list.retain(|p| p.extension().is_some_and(|e| e == "ir"));
    list.sort();
    list
}

#[test]
fn passes_do_what_files_say() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for path in files() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a text");
        let (input, want) = text.split_once("----\n").unwrap_or((&text, ""));
        let got = after(input).unwrap_or_else(|e| panic!("{name}: {e}"));
        if bless {
            std::fs::write(&path, format!("{input}----\n{got}")).expect("the file is writable");
        } else if got != want {
            let at = got.lines().zip(want.lines()).position(|(a, b)| a != b).unwrap_or(want.lines().count());
            wrong.push(format!("{name}, line {at} of the result: {:?}", got.lines().nth(at).unwrap_or("missing")));
        }
        seen.insert(field(input, "pass").unwrap_or_default().to_owned());
    }
    assert!(wrong.is_empty(), "run with BLESS=1 if the change is meant:\n{}", wrong.join("\n"));
    let unseen: Vec<&str> = PASSES.iter().map(|p| p.name).filter(|p| !seen.contains(*p)).collect();
    assert_eq!(unseen, Vec::<&str>::new(), "passes without a file");
}
