//! The style of text on a terminal. Streams that are not terminals get plain text, and so do all streams if `NO_COLOR`
//! is set or `--color never` is given.

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use clap::builder::Styles;
use std::fmt::{Display, Formatter, Result};

/// Names of fields, kernels and columns.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default().bold();
/// The word `error` of a failed command.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Supported, gained, or true.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Refused, unavailable, or false.
pub(crate) const BAD: Style = AnsiColor::Yellow.on_default();
/// Secondary information: how a number came about, missing values.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Titles of columns.
pub(crate) const TITLE: Style = Style::new().bold();

/// The styles of `--help`.
pub(crate) const HELP: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// `--color`.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals, unless NO_COLOR or CLICOLOR_FORCE say otherwise
    Auto,
    Always,
    Never,
}

impl Color {
    /// Sets the choice for everything that is printed from then on.
    pub(crate) fn settle(self) {
        match self {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        }
        .write_global();
    }
}

/// A text with a style. A width in a format applies to the text and not to the escape codes around it, so
/// that columns stay aligned.
pub(crate) struct Styled<T>(pub(crate) Style, pub(crate) T);

impl<T: Display> Display for Styled<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Styled(style, text) = self;
        write!(f, "{style}")?;
        text.fmt(f)?;
        write!(f, "{style:#}")
    }
}
