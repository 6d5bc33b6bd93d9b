//! How long a run is, and where findings go.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Findings after which a run ends: they are likely to be one.
const MOST_FINDINGS: usize = 20;

/// The limits of a run and what it found.
pub(crate) struct Run {
    target: &'static str,
    /// Where its random numbers begin.
    pub(crate) seed: u64,
    rounds: u64,
    until: Option<Instant>,
    found: Vec<String>,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

/// Where the files of a target are that every run begins with.
pub(crate) fn corpus(target: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fuzz").join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.sort();
    files
}

impl Run {
    /// This many rounds, unless the environment says how many or how long.
    pub(crate) fn new(target: &'static str, rounds: u64) -> Run {
        let minutes = number("GRADLOOM_FUZZ_MINUTES").map(|m| Instant::now() + Duration::from_secs(60 * m));
        let rounds = number("GRADLOOM_FUZZ_ROUNDS").unwrap_or(if minutes.is_some() { u64::MAX } else { rounds });
        Run { target, seed: number("GRADLOOM_FUZZ_SEED").unwrap_or(1), rounds, until: minutes, found: Vec::new() }
    }

    /// The limits of a part that has `share` of the time that is left, and whose findings are this target's.
    pub(crate) fn part(&self, target: &'static str, share: f64) -> Run {
        let left = |until: Instant| Instant::now() + until.saturating_duration_since(Instant::now()).mul_f64(share);
        Run { target, until: self.until.map(left), found: Vec::new(), ..*self }
    }

    /// Is it worth another round?
    pub(crate) fn goes_on(&self, round: u64) -> bool {
        round < self.rounds && self.found.len() < MOST_FINDINGS && self.until.is_none_or(|t| Instant::now() < t)
    }

    /// Keeps a finding as a file of this name.
    pub(crate) fn found(&mut self, name: &str, file: &[u8], what: &str) {
        let dir = match std::env::var_os("GRADLOOM_FUZZ_FINDINGS") {
            Some(dir) => Path::new(&dir).join(self.target),
            None => std::env::temp_dir().join("gradloom-fuzz").join(self.target),
        };
        std::fs::create_dir_all(&dir).expect("a folder for findings");
        let path = dir.join(name);
        std::fs::write(&path, file).expect("a file for a finding");
        self.found.push(format!("{}: {what}", path.display()));
        eprintln!("found {}: {what}", path.display());
    }

    /// Takes over what a part found.
    pub(crate) fn join(&mut self, part: Run) {
        self.found.extend(part.found);
    }

    /// Says what was done, and fails if anything was found.
    pub(crate) fn end(self, done: &str) {
        println!("{}: {done}, {} findings", self.target, self.found.len());
        assert!(self.found.is_empty(), "{}:\n{}", self.target, self.found.join("\n"));
    }
}
