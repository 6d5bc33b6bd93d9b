//! The text form of opts, as `gradloom kernels` prints them and as files of tuned opts contain them: `upcast r1 by 6`,
//! `pad r0 to 16`, `swap r0 with r2`, `join r0 with r1`, `keep r3`, `stage p2 in r3`, `stage p2 load 1 outside apart`.
//! `r` precedes a range's id and `p` a parameter's slot.

use super::{Level, Opt, Part, Staging};
use crate::uop::mma::MATRIX_TILES_ENABLED;
use std::fmt::{Display, Formatter, Result};

impl Part {
    /// All parts.
    pub const ALL: [Part; 9] = [
        Part::Loop,
        Part::Upcast,
        Part::Lane,
        Part::Accum,
        Part::Unroll,
        Part::Dot,
        Part::Tile,
        Part::Local,
        Part::Group,
    ];

    /// The verb in the text form of a cut to this part.
    pub const fn verb(self) -> &'static str {
        match self {
            Part::Loop => "split",
            Part::Upcast => "upcast",
            Part::Lane => "lane",
            Part::Accum => "accum",
            Part::Unroll => "unroll",
            Part::Dot => "dot",
            Part::Tile => "tile",
            Part::Local => "local",
            Part::Group => "group",
        }
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Level::Outside => f.write_str("outside"),
            Level::In(r) => write!(f, "in r{r}"),
        }
    }
}

impl Display for Opt {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Opt::Cut { axis, by, part } => write!(f, "{} r{axis} by {by}", part.verb()),
            Opt::Pad { axis, to } => write!(f, "pad r{axis} to {to}"),
            Opt::Swap { axis, with } => write!(f, "swap r{axis} with r{with}"),
            Opt::Join { axis, with } => write!(f, "join r{axis} with r{with}"),
            Opt::Keep { axis } => write!(f, "keep r{axis}"),
            Opt::Stage(Staging { param, load, level, separate_windows }) => {
                write!(f, "stage p{param} ")?;
                if *load > 0 {
                    write!(f, "load {load} ")?;
                }
                write!(f, "{level}{}", if *separate_windows { " apart" } else { "" })
            }
        }
    }
}

impl Opt {
    /// Parses the text form of one opt; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Opt> {
        let mut words = text.split_whitespace();
        let verb = words.next()?;
        let rest: Vec<&str> = words.collect();
        let number = |word: &str| word.parse::<u32>().ok();
        let range = |word: &str| word.strip_prefix('r')?.parse::<u8>().ok();
        Some(match (verb, rest.as_slice()) {
            ("pad", [axis, "to", to]) => Opt::Pad { axis: range(axis)?, to: number(to)? },
            ("swap", [axis, "with", with]) => Opt::Swap { axis: range(axis)?, with: range(with)? },
            ("join", [axis, "with", with]) if MATRIX_TILES_ENABLED => {
                Opt::Join { axis: range(axis)?, with: range(with)? }
            }
            ("keep", [axis]) => Opt::Keep { axis: range(axis)? },
            ("stage", [param, rest @ ..]) => {
                let (load, rest) = match rest {
                    ["load", load, rest @ ..] => (load.parse().ok()?, rest),
                    _ => (0, rest),
                };
                let (level, rest) = match rest {
                    ["outside", rest @ ..] => (Level::Outside, rest),
                    ["in", r, rest @ ..] => (Level::In(range(r)?), rest),
                    _ => return None,
                };
                let separate_windows = match rest {
                    [] => false,
                    ["apart"] => true,
                    _ => return None,
                };
                Opt::Stage(Staging { param: number(param.strip_prefix('p')?)?, load, level, separate_windows })
            }
            (_, [axis, "by", by]) => {
                let part = Part::ALL.into_iter().find(|p| p.verb() == verb)?;
                Opt::Cut { axis: range(axis)?, by: number(by)?, part }
            }
            _ => return None,
        })
    }

    /// Parses a comma-separated list of opts; `None` if any of them is not one.
    pub fn parse_list(text: &str) -> Option<Vec<Opt>> {
        text.split(',').map(str::trim).filter(|o| !o.is_empty()).map(Opt::parse).collect()
    }

    /// The comma-separated list that [`Opt::parse_list`] reads.
    pub fn list(opts: &[Opt]) -> String {
        opts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let staging = Staging { param: 2, load: 0, level: Level::Outside, separate_windows: false };
        let mut opts: Vec<Opt> = Part::ALL.into_iter().map(|part| Opt::Cut { axis: 3, by: 16, part }).collect();
        opts.extend([Opt::pad(0, 2), Opt::swap(1, 4), Opt::join(2, 5), Opt::keep(7), Opt::Stage(staging)]);
        opts.extend([
            Opt::Stage(Staging { separate_windows: true, ..staging }),
            Opt::Stage(Staging { load: 2, level: Level::In(9), separate_windows: true, ..staging }),
        ]);
        assert_eq!(Opt::parse_list(&Opt::list(&opts)), Some(opts));
        assert_eq!(
            Opt::parse("stage p2 load 1 in r3 apart").map(|o| o.to_string()).unwrap(),
            "stage p2 load 1 in r3 apart"
        );
    }

    #[test]
    fn other_texts_are_no_opts() {
        for bad in [
            "",
            "bend r0 by 2",
            "upcast 0 by 2",
            "upcast r0 by",
            "upcast r256 by 2",
            "upcast r0 by 2 3",
            "upcast r0 by -2",
            "pad r0 by 2",
            "swap r0 with 2",
            "join r0 and r2",
            "keep p1",
            "stage p1",
            "stage r1 outside",
            "stage p1 in p2",
            "stage p1 load outside",
            "stage p1 outside together",
        ] {
            assert_eq!(Opt::parse(bad), None, "{bad}");
        }
    }
}
