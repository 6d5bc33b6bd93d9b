//! Helpers for running programs: finding them, reporting failures, and capturing output.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where `program` is on the PATH.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Runs a command with its output shown; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{name}` ended with {status}")),
        Err(error) => Err(format!("`{name}` did not start: {error}")),
    }
}

/// Runs a command quietly; an error carries what it said went wrong, or its last lines.
pub(crate) fn quiet(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().map_err(|error| format!("`{name}` did not start: {error}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&out.stderr);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let errors: Vec<&str> = lines.iter().filter(|line| line.to_lowercase().starts_with("error")).copied().collect();
    let shown = if errors.is_empty() { &lines } else { &errors };
    let tail = shown[shown.len().saturating_sub(4)..].join("\n      ");
    Err(format!("`{name}` ended with {}\n      {tail}", out.status))
}

/// Runs one of the project's node scripts.
pub(crate) fn node(root: &Path, script: &str, args: &[&str]) -> Result<(), String> {
    run(Command::new("node").arg(root.join(script)).args(args).current_dir(root))
}
