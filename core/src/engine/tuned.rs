//! Tuned opts as lines of text: those that come with a release, for kernels of the benchmark models, and those that an
//! application found for its own model and brings along.
//!
//! A line is `KEY OPT, OPT, ..`, with opts as [`Opt::parse`] reads them. The key is 16 hexadecimal digits, a hash of
//! the kernel's label and the family of devices, so one text may hold lines for all devices; a line whose kernel never
//! occurs has no effect. `#` begins a comment. Opts that a search on this machine found take precedence over all lines.

use crate::codegen::{Opt, Part};
use crate::{Error, Result};
use rustc_hash::FxHashMap;

/// Limits for a line: the number of opts, the lanes or threads that one opt may ask for or the length that it may pad
/// to, and the copies of a kernel's body that all opts make together. They keep programs and their compile times small,
/// whoever wrote the line.
const MAX_OPTS: usize = 64;
const MAX_WIDTH: u32 = 1 << 10;
const MAX_COPIES: u64 = 1 << 12;

/// The lines of this release, written by `gradloom tune --save` and `tests/bench/browser/run.mjs --tune`.
const SHIPPED: &[&str] = if cfg!(target_arch = "wasm32") {
    &[include_str!("tuned/wasm.txt")]
} else {
    &[include_str!("tuned/wasm.txt"), include_str!("tuned/cpu.txt")]
};

/// Tuned opts that were added, by kernel and device family. The lines of this release are only parsed when a kernel
/// with that key occurs, since most programs have none.
#[derive(Default)]
pub(super) struct Tuned(FxHashMap<u64, Vec<Opt>>);

impl Tuned {
    /// Adds the lines of a text, which take precedence over those added before; returns how many. If a line is
    /// malformed this is an error, and no line is added.
    pub(super) fn add(&mut self, text: &str) -> Result<usize> {
        let mut found = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = plain(line);
            if !line.is_empty() {
                let bad = || Error::format("tuned opts", format!("line {} is none: `{line}`", number + 1), None);
                found.push(parse(line).ok_or_else(bad)?);
            }
        }
        let n = found.len();
        self.0.extend(found);
        Ok(n)
    }

    /// The opts of a kernel, by [`super::cache::line_label`].
    pub(super) fn get(&self, label: u64) -> Option<Vec<Opt>> {
        self.0.get(&label).cloned().or_else(|| shipped(label))
    }
}

/// The opts of this release for a label; of two lines with the same label the last one counts. A test checks that all
/// lines are well formed.
fn shipped(label: u64) -> Option<Vec<Opt>> {
    let key = format!("{label:016x}");
    let lines = SHIPPED.iter().rev().flat_map(|text| text.lines().rev());
    let line = lines.into_iter().find(|line| line.starts_with(&key))?;
    Some(parse(plain(line))?.1)
}

/// The line without its comment.
fn plain(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// The line for the opts of a kernel.
pub(super) fn line(label: u64, opts: &[Opt]) -> String {
    format!("{label:016x} {}", Opt::list(opts)).trim_end().to_string()
}

fn parse(line: &str) -> Option<(u64, Vec<Opt>)> {
    let (key, list) = line.split_once(' ').unwrap_or((line, ""));
    let whole = key.len() == 16 && key.bytes().all(|b| b.is_ascii_hexdigit());
    let key = u64::from_str_radix(key, 16).ok().filter(|_| whole)?;
    let opts = Opt::parse_list(list)?;
    in_bounds(&opts).then_some((key, opts))
}

/// Are these opts within the limits for a line? The search only tries lists that are.
pub(super) fn in_bounds(opts: &[Opt]) -> bool {
    let copies = |o: &Opt| match *o {
        Opt::Cut { by, part: Part::Upcast | Part::Accum | Part::Unroll | Part::Dot, .. } => u64::from(by.max(1)),
        _ => 1,
    };
    let all = opts.iter().try_fold(1u64, |n, o| n.checked_mul(copies(o)).filter(|&n| n <= MAX_COPIES));
    let width = |o: &Opt| match *o {
        Opt::Cut { by: n, part: Part::Lane | Part::Local | Part::Group, .. } | Opt::Pad { to: n, .. } => n,
        _ => 1,
    };
    opts.len() <= MAX_OPTS && all.is_some() && opts.iter().all(|o| width(o) <= MAX_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::{Level, Staging};

    #[test]
    fn lines_come_back_as_they_were() {
        let copy = Staging { param: 1, load: 1, level: Level::Outside, separate_windows: true };
        let opts = [Opt::lane(3, 16), Opt::Stage(copy)];
        let entry = 0x0123_4567_89ab_cdef;
        let mut tuned = Tuned::default();
        let text = format!("# a model\n\n{}\n{} # no opts\n", line(entry, &opts), line(5, &[]));
        assert_eq!(tuned.add(&text).unwrap(), 2);
        assert_eq!(tuned.get(entry), Some(opts.into()));
        assert_eq!(tuned.get(5), Some(vec![]));
        assert_eq!(tuned.get(6), None);
    }

    #[test]
    fn bad_lines_are_named_and_nothing_is_added() {
        let good = line(1, &[]);
        for bad in [
            "12 lane r0 by 8",
            "00000000000000zz lane r0 by 8",
            "0000000000000001 lane r0",
            "0000000000000001 bend r0 by 8",
            "0000000000000001 lane r0 by 8 9",
            "0000000000000001 upcast r0 by 4294967295",
            "0000000000000001 lane r0 by 4096",
            "0000000000000001 pad r0 to 4294967295",
            "0000000000000001 upcast r0 by 64, unroll r1 by 65",
        ] {
            let mut tuned = Tuned::default();
            let error = tuned.add(&format!("{good}\n{bad}")).unwrap_err();
            assert!(error.to_string().contains("line 2"), "{error}");
            assert_eq!(tuned.get(1), None);
        }
    }

    #[test]
    fn what_is_shipped_is_well_formed() {
        for text in SHIPPED {
            assert!(Tuned::default().add(text).unwrap() > 0);
        }
    }

    #[test]
    fn what_is_shipped_is_found_and_others_lines_go_first() {
        let mut all = Tuned::default();
        for text in SHIPPED {
            all.add(text).unwrap();
        }
        assert!(all.0.len() > 20);
        let mut tuned = Tuned::default();
        for (label, opts) in &all.0 {
            assert_eq!(tuned.get(*label).as_ref(), Some(opts), "{label:016x}");
        }
        let label = *all.0.keys().next().unwrap();
        tuned.add(&line(label, &[])).unwrap();
        assert_eq!(tuned.get(label), Some(vec![]));
    }
}
