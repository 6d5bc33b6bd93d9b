//! Results of commands as data, printed as JSON or as aligned text.

use super::style::{self, Styled};
use anstyle::Style;
use std::fmt::{Display, Formatter, Result, Write};

/// The most characters of a row before its last column; longer rows do not fit a line of a wide terminal.
const WIDEST: usize = 120;

/// A JSON value.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Int(i64),
    /// A number, and how many digits are printed after the decimal point.
    Num(f64, usize),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub(crate) fn text(s: impl Display) -> Json {
        Json::Text(s.to_string())
    }

    pub(crate) fn count(n: usize) -> Json {
        Json::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// Formats for people, with styles: a line per field; a list of objects is a table with the names of
    /// its columns above.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        match self {
            Json::Object(fields) => {
                let wide = fields.iter().map(|f| f.0.len()).max().unwrap_or(0);
                for (k, v) in fields {
                    match v {
                        Json::List(rows) if rows.iter().any(|r| matches!(r, Json::Object(_))) => {
                            let _ = writeln!(out, "{}:", Styled(style::NAME, k));
                            table(rows, &mut out);
                        }
                        v => _ = writeln!(out, "{}  {}", Styled(style::NAME, format_args!("{k:wide$}")), v.styled()),
                    }
                }
            }
            Json::List(rows) => table(rows, &mut out),
            v => out.push_str(&v.cell()),
        }
        out
    }

    fn cell(&self) -> String {
        match self {
            Json::Text(s) => s.clone(),
            Json::Null => "-".into(),
            Json::List(l) => format!("[{}]", l.iter().map(Json::cell).collect::<Vec<_>>().join(", ")),
            Json::Object(f) => f.iter().map(|(k, v)| format!("{k} {}", v.cell())).collect::<Vec<_>>().join(", "),
            v => v.to_string(),
        }
    }

    fn styled(&self) -> Styled<String> {
        let style = match self {
            Json::Bool(true) => style::GOOD,
            Json::Bool(false) => style::BAD,
            Json::Null => style::FAINT,
            _ => Style::new(),
        };
        Styled(style, self.cell())
    }
}

fn table(rows: &[Json], out: &mut String) {
    let names = |r: &Json| match r {
        Json::Object(f) => f.iter().map(|x| x.0.clone()).collect(),
        _ => Vec::new(),
    };
    let cells: Vec<Vec<Styled<String>>> = rows
        .iter()
        .map(|r| match r {
            Json::Object(f) => f.iter().map(|x| x.1.styled()).collect(),
            v => vec![v.styled()],
        })
        .collect();
    // A text of several lines is printed below its row, without a title
    let is_long = |c: usize| cells.iter().filter_map(|r| r.get(c)).any(|t| t.1.contains('\n'));
    // Rows with different fields have no columns in common, and so no titles
    let columns = rows.first().map(names).filter(|n| rows.iter().all(|r| names(r) == *n)).unwrap_or_default();
    let columns = columns.into_iter().enumerate().map(|(c, name)| if is_long(c) { String::new() } else { name });
    let title: Vec<Styled<String>> = columns.map(|name| Styled(style::TITLE, name)).collect();
    let all: Vec<&Vec<Styled<String>>> = (!title.is_empty()).then_some(&title).into_iter().chain(&cells).collect();
    let width = |c: usize| {
        let column = all.iter().filter_map(|r| r.get(c)).filter(|t| !t.1.contains('\n'));
        column.map(|t| t.1.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..all.iter().map(|r| r.len()).max().unwrap_or(0)).map(width).collect();
    if !title.is_empty() && widths[..widths.len() - 1].iter().sum::<usize>() > WIDEST {
        return records(rows, out);
    }
    for r in all {
        out.push(' ');
        // Spaces are written before the next cell, so that lines do not end with spaces
        let mut gap = 1;
        for (Styled(style, t), w) in r.iter().zip(&widths) {
            if t.contains('\n') {
                let _ = write!(out, "\n{}", t.trim_end());
            } else if t.is_empty() {
                gap += w + 1;
            } else {
                let _ = write!(out, "{:gap$}{}", "", Styled(*style, t));
                gap = w + 1 - t.chars().count();
            }
        }
        out.push('\n');
    }
}

/// Formats rows that are too long for a line: the first field, and below it a line for each other field
/// that has a value.
fn records(rows: &[Json], out: &mut String) {
    for r in rows {
        let Json::Object(fields) = r else { continue };
        let mut fields =
            fields.iter().filter(|f| !matches!(&f.1, Json::Null) && !matches!(&f.1, Json::List(l) if l.is_empty()));
        let wide = fields.clone().map(|f| f.0.len()).max().unwrap_or(0);
        let _ = writeln!(out, "{}", Styled(style::NAME, fields.next().map(|f| f.1.cell()).unwrap_or_default()));
        for (k, v) in fields {
            let _ = writeln!(out, "  {k:wide$}  {}", v.styled());
        }
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(b) => write!(f, "{b}"),
            Json::Int(i) => write!(f, "{i}"),
            Json::Num(v, digits) if v.is_finite() => write!(f, "{v:.digits$}"),
            Json::Num(..) => f.write_str("null"),
            Json::Text(s) => quote(s, f),
            Json::List(l) => {
                f.write_char('[')?;
                for (i, v) in l.iter().enumerate() {
                    write!(f, "{}{v}", if i > 0 { "," } else { "" })?;
                }
                f.write_char(']')
            }
            Json::Object(o) => {
                f.write_char('{')?;
                for (i, (k, v)) in o.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    quote(k, f)?;
                    write!(f, ":{v}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn quote(s: &str, f: &mut Formatter<'_>) -> Result {
    f.write_char('"')?;
    for c in s.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            c if (c as u32) < 0x20 => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_json_and_text() {
        let row = |n: i64, t: &str| Json::Object(vec![("n".into(), Json::Int(n)), ("t".into(), Json::text(t))]);
        let v = Json::Object(vec![
            ("name".into(), Json::text("a \"b\"\n")),
            ("ms".into(), Json::Num(1.25, 1)),
            ("rows".into(), Json::List(vec![row(1, "x"), row(20, "y")])),
        ]);
        let want = r#"{"name":"a \"b\"\n","ms":1.2,"rows":[{"n":1,"t":"x"},{"n":20,"t":"y"}]}"#;
        assert_eq!(v.to_string(), want);
        let plain = anstream::adapter::strip_str(&v.to_text()).to_string();
        assert!(plain.ends_with("rows:\n  n  t\n  1  x\n  20 y\n"), "{plain}");
        assert!(v.to_text().contains("\u{1b}[1m"), "titles are bold");
    }
}
