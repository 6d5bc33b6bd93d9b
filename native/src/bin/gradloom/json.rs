//! Results as data: printed as JSON or as aligned text.

use std::fmt::{Display, Formatter, Result, Write};

/// A JSON value.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Int(i64),
    /// Printed with so many digits after the point.
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

    /// For people: a line per field, a line per row of a list of objects, columns aligned.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        match self {
            Json::Object(fields) => {
                let wide = fields.iter().map(|f| f.0.len()).max().unwrap_or(0);
                for (k, v) in fields {
                    match v {
                        Json::List(rows) if rows.iter().any(|r| matches!(r, Json::Object(_))) => {
                            let _ = writeln!(out, "{k}:");
                            table(rows, &mut out);
                        }
                        v => _ = writeln!(out, "{k:wide$}  {}", v.cell()),
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
}

fn table(rows: &[Json], out: &mut String) {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|r| match r {
            Json::Object(f) => f.iter().map(|x| x.1.cell()).collect(),
            v => vec![v.cell()],
        })
        .collect();
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        let column = cells.iter().filter_map(|r| r.get(c)).filter(|t| !t.contains('\n'));
        column.map(|t| t.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for r in &cells {
        let mut line = String::from(" ");
        for (t, w) in r.iter().zip(&widths) {
            if t.contains('\n') {
                let _ = write!(line, "\n{t}");
            } else {
                let _ = write!(line, " {t:w$}");
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
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
        assert!(v.to_text().ends_with("rows:\n  1  x\n  20 y\n"), "{}", v.to_text());
    }
}
