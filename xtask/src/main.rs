//! `cargo xtask TASK`: the project's own tasks, so that a clone needs no tool beyond cargo and node. Each task has its
//! own file; this one selects the task and turns an error into an exit code.

mod imports;
mod order;
mod setup;
mod sh;
mod split;
mod tidy;
mod wasm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask TASK
  setup [native]   install what a build and the tests need; says what it does and what failed
                   (`native` leaves the browser alone)
  wasm             build the web crate and write its JavaScript bindings to web/pkg
  wasm --tests     the same for the test module of JavaScript hosts, to tests/web/pkg
  wasm --names     functions keep their names, for profiles and for scripts/functions.mjs
  size             sizes of the npm package against its download budget
  tidy             check floors, file length, file heads and forbidden words
  serve [DIR]      serve a folder on localhost (see scripts/serve.mjs)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let root = repository_root();
    let result = match args.first().map(String::as_str) {
        Some("setup") => setup::setup(&rest),
        Some("wasm") => wasm::build(&root, &rest),
        Some("size") => sh::node(&root, "scripts/size.mjs", &rest),
        Some("serve") => sh::node(&root, "scripts/serve.mjs", &rest),
        Some("tidy") => tidy::report(&root),
        _ => Err(USAGE.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace manifest: xtask always sits one below it.
fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies inside the repository").to_path_buf()
}
