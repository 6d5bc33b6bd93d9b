//! How text looks on a terminal. Streams that are no terminal get it plain, and so do all where `NO_COLOR` is set or `--color never` is given.

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use clap::builder::Styles;
use std::fmt::{Display, Formatter, Result};

/// What fields, kernels and columns are called.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default().bold();
/// That a command failed.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
/// What is supported, gained or done.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What is refused or not there.
pub(crate) const BAD: Style = AnsiColor::Yellow.on_default();
/// What one reads last: how a number came about, what has no value.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Titles of columns.
pub(crate) const TITLE: Style = Style::new().bold();

/// Those of `--help`.
pub(crate) const HELP: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// `--color`.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals, unless the environment says otherwise
    Auto,
    Always,
    Never,
}

impl Color {
    /// Settles it for all that is printed from now on.
    pub(crate) fn settle(self) {
        match self {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        }
        .write_global();
    }
}

/// A text in a style. A width in a format applies to the text alone and not to the escape codes around it, so columns stay aligned.
pub(crate) struct Styled<T>(pub(crate) Style, pub(crate) T);

impl<T: Display> Display for Styled<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Styled(style, text) = self;
        write!(f, "{style}")?;
        text.fmt(f)?;
        write!(f, "{style:#}")
    }
}
