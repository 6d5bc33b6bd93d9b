//! General categories of characters, which std lacks. The table `categories.bin` is written by
//! `tests/fixtures/make_unicode.py`.

use std::sync::OnceLock;

/// A set of categories as a bit mask, in the order of [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Categories(pub u32);

const NAMES: [&str; 30] = [
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
    "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn",
];
const NEW_PUNCTUATION: u32 = 1 << 30;
const NEW_MARK: u32 = 1 << 31;
static RUNS: &[u8] = include_bytes!("categories.bin");
/// The category of each character of the first plane, and for the other planes the runs of equal category as (first
/// code point, category).
static TABLE: OnceLock<(Vec<u8>, Vec<(u32, u8)>)> = OnceLock::new();

impl Categories {
    pub(super) const MARK: Categories = Categories(0b111 << 5 | NEW_MARK);
    /// Without the marks that are newer than BERT's tables.
    pub(super) const NONSPACING: Categories = Categories(1 << 5);
    /// Without the punctuation that is newer than BERT's tables.
    const PUNCTUATION: Categories = Categories(0b111_1111 << 11);
    /// The categories Cc, Cf, Cs, Co.
    pub(super) const OTHER: Categories = Categories(0b1111 << 25);
    pub(super) const DIGIT: Categories = Categories(1 << 8);
    const CONNECTOR: Categories = Categories(1 << 11);

    /// A category or group of categories by name: `L`, `Lu`, `Letter` ...
    pub(super) fn from_name(name: &str) -> Option<Categories> {
        let short = match name {
            "Letter" => "L",
            "Mark" => "M",
            "Number" => "N",
            "Punctuation" => "P",
            "Symbol" => "S",
            n => n,
        };
        let mut bits = NAMES.iter().enumerate().filter(|n| n.1.starts_with(short)).fold(0, |m, n| m | 1 << n.0);
        bits |= if matches!(short, "P" | "Po") { NEW_PUNCTUATION } else { 0 };
        bits |= if matches!(short, "M" | "Mn") { NEW_MARK } else { 0 };
        (bits != 0 && !short.is_empty()).then_some(Categories(bits))
    }

    pub(super) fn has(self, c: char) -> bool {
        self.0 >> category(c) & 1 != 0
    }
}

fn category(c: char) -> u8 {
    let (plane, rest) = TABLE.get_or_init(build);
    let code = c as u32;
    match plane.get(code as usize) {
        Some(&cat) => cat,
        None => {
            let at = rest.partition_point(|r| r.0 <= code);
            at.checked_sub(1).and_then(|i| rest.get(i)).map_or(29, |r| r.1)
        }
    }
}

fn build() -> (Vec<u8>, Vec<(u32, u8)>) {
    let (mut plane, mut rest) = (Vec::with_capacity(0x10000), Vec::new());
    let (mut code, mut run, mut shift) = (0u32, 0u32, 0);
    let mut bytes = RUNS.iter();
    while let Some(&b) = bytes.next() {
        run |= u32::from(b & 127) << shift;
        shift += 7;
        if b < 128 {
            let cat = bytes.next().copied().unwrap_or(29);
            let here = (code + run).min(0x10000).saturating_sub(code);
            plane.resize(plane.len() + here as usize, cat);
            if here < run {
                rest.push((code + here, cat));
            }
            code += run;
            (run, shift) = (0, 0);
        }
    }
    (plane, rest)
}

/// Punctuation of any script and all ASCII symbols, according to BERT's tables.
pub(super) fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || c == '\u{166d}' || Categories::PUNCTUATION.has(c)
}

/// Word characters: letters and characters like them, marks, digits, connectors.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphabetic() || Categories(Categories::MARK.0 | Categories::DIGIT.0 | Categories::CONNECTOR.0).has(c)
}

/// As [`is_word`], and the zero-width joiner and non-joiner: what Rust's regular expressions count as word characters.
pub(super) fn is_rust_word(c: char) -> bool {
    is_word(c) || matches!(c, '\u{200c}' | '\u{200d}')
}
