//! Tuned opts as lines of text: those that come with a release, for kernels of the benchmark models, and those that an
//! application found for its own model and brings along.
//!
//! A line is `KEY OP AXIS AMOUNT, OP AXIS AMOUNT, ..`. The key is 16 hexadecimal digits of the kernel's label and the
//! family of devices, so lines of all devices may stand together; one whose kernel never comes does nothing. `#` begins a
//! comment. What a search on the machine at hand found goes before all of them.

use crate::codegen::{Opt, OptOp};
use crate::{Error, Result};
use rustc_hash::FxHashMap;

/// Opts of a line, how many lanes or threads one may ask for or pad to, and how many copies of a kernel's body all of them
/// together: programs and their loops must stay small, whoever wrote the line.
const MAX_OPTS: usize = 64;
const MAX_WIDTH: u32 = 1 << 10;
const MAX_COPIES: u64 = 1 << 12;

/// The lines of this release: `gradloom tune --save` and `tests/bench/browser/run.mjs --tune` wrote them.
const SHIPPED: &[&str] = if cfg!(target_arch = "wasm32") {
    &[include_str!("tuned/wasm.txt")]
} else {
    &[include_str!("tuned/wasm.txt"), include_str!("tuned/cpu.txt")]
};

/// Tuned opts by kernel and device family.
pub(super) struct Tuned(FxHashMap<u64, Vec<Opt>>);

impl Tuned {
    /// Those of this release.
    pub(super) fn shipped() -> Tuned {
        let mut all = Tuned(FxHashMap::default());
        for text in SHIPPED {
            // that they are well formed is tested
            let _ = all.add(text);
        }
        all
    }

    /// Adds the lines of a text, before those there are; returns how many. A bad line is an error, and then none is added.
    pub(super) fn add(&mut self, text: &str) -> Result<usize> {
        let mut found = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                let bad = || Error::format("tuned opts", format!("line {} is none: `{line}`", number + 1), None);
                found.push(parse(line).ok_or_else(bad)?);
            }
        }
        let n = found.len();
        self.0.extend(found);
        Ok(n)
    }

    /// Those of a kernel, by [`super::cache::line_label`].
    pub(super) fn get(&self, label: u64) -> Option<&[Opt]> {
        self.0.get(&label).map(Vec::as_slice)
    }
}

/// The line for the opts of a kernel.
pub(super) fn line(label: u64, opts: &[Opt]) -> String {
    let opts: Vec<String> = opts.iter().map(ToString::to_string).collect();
    format!("{label:016x} {}", opts.join(", ")).trim_end().to_string()
}

fn parse(line: &str) -> Option<(u64, Vec<Opt>)> {
    let (key, list) = line.split_once(' ').unwrap_or((line, ""));
    let whole = key.len() == 16 && key.bytes().all(|b| b.is_ascii_hexdigit());
    let key = u64::from_str_radix(key, 16).ok().filter(|_| whole)?;
    let opts = list.split(',').map(str::trim).filter(|o| !o.is_empty()).map(one).collect::<Option<Vec<_>>>()?;
    in_bounds(&opts).then_some((key, opts))
}

/// May a line have these opts? The search takes no others.
pub(super) fn in_bounds(opts: &[Opt]) -> bool {
    let copies = |o: &Opt| match o.op {
        OptOp::Upcast | OptOp::Accum | OptOp::Unroll | OptOp::Dot => u64::from(o.amount.max(1)),
        _ => 1,
    };
    let all = opts.iter().try_fold(1u64, |n, o| n.checked_mul(copies(o)).filter(|&n| n <= MAX_COPIES));
    let width = |o: &Opt| matches!(o.op, OptOp::Lane | OptOp::PadTo | OptOp::Local | OptOp::Group);
    let wide = opts.iter().any(|o| width(o) && o.amount > MAX_WIDTH);
    opts.len() <= MAX_OPTS && all.is_some() && !wide
}

fn one(text: &str) -> Option<Opt> {
    let mut words = text.split_whitespace();
    let op = OptOp::from_name(words.next()?)?;
    let opt = Opt { op, axis: words.next()?.parse().ok()?, amount: words.next()?.parse().ok()? };
    words.next().is_none().then_some(opt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were() {
        let opts = [Opt { op: OptOp::Lane, axis: 3, amount: 16 }, Opt { op: OptOp::Stage, axis: 255, amount: 0x18001 }];
        let entry = 0x0123_4567_89ab_cdef;
        let mut tuned = Tuned(FxHashMap::default());
        let text = format!("# a model\n\n{}\n{} # no opts\n", line(entry, &opts), line(5, &[]));
        assert_eq!(tuned.add(&text).unwrap(), 2);
        assert_eq!(tuned.get(entry), Some(&opts[..]));
        assert_eq!(tuned.get(5), Some(&[][..]));
        assert_eq!(tuned.get(6), None);
    }

    #[test]
    fn bad_lines_are_named_and_nothing_is_added() {
        let good = line(1, &[]);
        for bad in [
            "12 lane 0 8",
            "00000000000000zz lane 0 8",
            "0000000000000001 lane 0",
            "0000000000000001 bend 0 8",
            "0000000000000001 lane 0 8 9",
            "0000000000000001 upcast 0 4294967295",
            "0000000000000001 lane 0 4096",
            "0000000000000001 padto 0 4294967295",
            "0000000000000001 upcast 0 64, unroll 1 65",
        ] {
            let mut tuned = Tuned(FxHashMap::default());
            let error = tuned.add(&format!("{good}\n{bad}")).unwrap_err();
            assert!(error.to_string().contains("line 2"), "{error}");
            assert_eq!(tuned.get(1), None);
        }
    }

    #[test]
    fn what_is_shipped_is_well_formed() {
        for text in SHIPPED {
            assert!(Tuned(FxHashMap::default()).add(text).unwrap() > 0);
        }
    }
}
