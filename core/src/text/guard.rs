//! Limits the values in chat templates: rewrites a template so that every value which an expression reads first passes
//! the filter [`FILTER`], which refuses texts and lists that are too long. So a text that is doubled again and again is
//! refused long before memory is exhausted, since an expression makes at most as much as its operands together.
//! Example: `{{ a.b + c }}` becomes `{{ (a.b|_within_limit) + (c|_within_limit) }}`.
//!
//! The source is rewritten token by token, and lines stay the same. Syntax that the rewriter does not know is copied
//! unchanged. The grammar is Jinja's: <https://jinja.palletsprojects.com/en/stable/templates/>.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

/// The filter's name.
pub(super) const FILTER: &str = "_within_limit";

/// Words that are not names of variables.
const WORDS: [&str; 18] = [
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
    "elif",
    "recursive",
    "true",
    "True",
    "false",
    "False",
    "none",
    "None",
    "super",
    "self",
    "caller",
];

/// The source with its values guarded, and the length in bytes of the longest text between tags, including the two
/// bytes that end a tag.
pub(super) fn guarded(source: &str) -> (String, usize) {
    let mut g = Guard { rest: source, out: String::with_capacity(source.len() * 2), depth: 0 };
    let mut longest = 0;
    while let Some(at) = g.rest.find("{{").into_iter().chain(g.rest.find("{%")).chain(g.rest.find("{#")).min() {
        longest = longest.max(at);
        g.copy(at + 2);
        match g.out.as_bytes().last() {
            Some(b'#') => g.copy(g.rest.find("#}").map_or(g.rest.len(), |n| n + 2)),
            Some(b'%') => g.statement(),
            _ => g.expression(None),
        }
    }
    longest = longest.max(g.rest.len());
    g.copy(g.rest.len());
    (g.out, longest)
}

struct Guard<'a> {
    rest: &'a str,
    out: String,
    /// The current nesting of brackets.
    depth: usize,
}

/// The deepest nesting of brackets that is rewritten; the template engine itself allows less.
const MAX_DEPTH: usize = 200;

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl<'a> Guard<'a> {
    /// Copies `n` bytes.
    fn copy(&mut self, n: usize) {
        let (now, rest) = self.rest.split_at_checked(n).unwrap_or((self.rest, ""));
        self.out.push_str(now);
        self.rest = rest;
    }

    fn copy_while(&mut self, test: impl Fn(char) -> bool) {
        self.copy(self.rest.find(|c| !test(c)).unwrap_or(self.rest.len()));
    }

    fn starts(&self, any: &[&str]) -> bool {
        any.iter().any(|s| self.rest.starts_with(s))
    }

    /// Is the end of a tag next?
    fn ends(&self) -> bool {
        self.rest.is_empty() || self.starts(&["}}", "%}", "-}}", "-%}", "+}}", "+%}"])
    }

    /// The next word, which is not copied yet.
    fn word(&self) -> &'a str {
        self.rest.split(|c| !is_word(c)).next().unwrap_or_default()
    }

    fn blanks(&mut self) {
        self.copy_while(char::is_whitespace);
    }

    /// Copies a string literal.
    fn text(&mut self, quote: char) {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|&(_, c)| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        self.copy(end.map_or(self.rest.len(), |(i, _)| i + 1));
    }

    /// Copies text without rewriting it, up to the end of the tag or until `stop` is true; string literals and brackets
    /// are copied whole.
    fn plain(&mut self, stop: impl Fn(&Guard<'_>) -> bool) {
        let mut depth = 0usize;
        while !self.rest.is_empty() && (depth > 0 || !self.ends() && !stop(self)) {
            match self.rest.chars().next() {
                Some(q @ ('"' | '\'')) => self.text(q),
                Some(c) => {
                    match c {
                        '(' | '[' | '{' => depth += 1,
                        ')' | ']' | '}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    if is_word(c) { self.copy_while(is_word) } else { self.copy(c.len_utf8()) }
                }
                None => {}
            }
        }
    }

    fn statement(&mut self) {
        if self.starts(&["-", "+"]) {
            self.copy(1);
        }
        self.blanks();
        let word = self.word();
        self.copy(word.len());
        match word {
            "raw" => {
                let end = self.rest.match_indices("endraw").find(|(i, _)| {
                    let before = self.rest.get(..*i).unwrap_or_default().trim_end_matches(['-', '+', ' ', '\t', '\n']);
                    before.ends_with("{%")
                });
                self.copy(end.map_or(self.rest.len(), |(i, _)| i));
                self.plain(|_| false);
            }
            "set" => {
                self.plain(|g| g.rest.starts_with('=') && !g.rest.starts_with("=="));
                self.expression(None);
            }
            "for" => {
                self.plain(|g| g.word() == "in");
                self.expression(None);
            }
            "call" => {
                self.blanks();
                if self.rest.starts_with('(') {
                    self.copy(1);
                    self.plain(|g| g.rest.starts_with(')'));
                }
                self.expression(None);
            }
            "if" | "elif" | "with" | "do" => self.expression(None),
            _ => self.plain(|_| false),
        }
    }

    /// Rewrites an expression up to a closing bracket, or up to the end of the tag.
    fn expression(&mut self, close: Option<char>) {
        loop {
            self.blanks();
            let Some(c) = self.rest.chars().next() else { return };
            if close.map_or_else(|| self.ends(), |close| c == close) {
                return;
            }
            match c {
                '"' | '\'' => self.text(c),
                '(' | '[' | '{' => self.brackets(c),
                // The name of an attribute or of a filter
                '.' | '|' => {
                    self.copy(1);
                    self.blanks();
                    self.copy_while(|c| is_word(c) || c == '.' && c != '(');
                }
                '0'..='9' => self.copy_while(is_word),
                c if is_word(c) => self.name(),
                c => self.copy(c.len_utf8()),
            }
        }
    }

    /// Rewrites the expression in a pair of brackets.
    fn brackets(&mut self, open: char) {
        if self.depth >= MAX_DEPTH {
            return self.copy(self.rest.len());
        }
        self.depth += 1;
        self.copy(1);
        self.expression(Some(match open {
            '(' => ')',
            '[' => ']',
            _ => '}',
        }));
        self.copy(1);
        self.depth -= 1;
    }

    fn name(&mut self) {
        let word = self.word();
        let after = self.rest.get(word.len()..).unwrap_or_default();
        if WORDS.contains(&word) {
            self.copy(word.len());
            if word == "is" {
                self.blanks();
                if self.word() == "not" {
                    self.copy(3);
                    self.blanks();
                }
                self.copy_while(is_word);
            }
            return;
        }
        let next = after.trim_start();
        if next.starts_with('=') && !next.starts_with("==") || word == "loop" && after.starts_with('(') {
            self.copy(word.len());
            return;
        }
        // A variable with its attributes, items and calls is one value
        self.out.push('(');
        self.copy(word.len());
        loop {
            match self.rest.chars().next() {
                Some(open @ ('(' | '[')) => self.brackets(open),
                Some('.') => {
                    self.copy(1);
                    self.copy_while(is_word);
                }
                _ => break,
            }
        }
        self.out.push('|');
        self.out.push_str(FILTER);
        self.out.push(')');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_guarded_and_the_rest_stays() {
        let short = |s: &str| guarded(s).0.replace(FILTER, "_");
        assert_eq!(short("a {{ b }} c"), "a {{ (b|_) }} c");
        assert_eq!(short("{{ b.c[d](e, f=g)|upper ~ 'x }}' }}"), "{{ (b.c[(d|_)]((e|_), f=(g|_))|_)|upper ~ 'x }}' }}");
        assert_eq!(short("{%- set ns.x = ns.x ~ y -%}"), "{%- set ns.x = (ns.x|_) ~ (y|_) -%}");
        assert_eq!(short("{% set x %}{% endset %}{# {{ no }} #}"), "{% set x %}{% endset %}{# {{ no }} #}");
        assert_eq!(
            short("{% for k, v in m.items() if v is not none %}"),
            "{% for k, v in (m.items()|_) if (v|_) is not none %}"
        );
        assert_eq!(short("{{ {'a': {'b': c}} }}"), "{{ {'a': {'b': (c|_)}} }}");
        assert_eq!(
            short("{% macro f(a, b=c) %}{{ a == b }}{% endmacro %}"),
            "{% macro f(a, b=c) %}{{ (a|_) == (b|_) }}{% endmacro %}"
        );
        assert_eq!(short("{% raw %}{{ a }}{% endraw %}{{ b }}"), "{% raw %}{{ a }}{% endraw %}{{ (b|_) }}");
        assert_eq!(
            short("{{ x if y is defined and z[1:] else 1.5 }}"),
            "{{ (x|_) if (y|_) is defined and (z[1:]|_) else 1.5 }}"
        );
        assert_eq!(guarded("123{{ a }}4567 {% if b %}").1, "}}4567 ".len());
        for broken in ["{{", "{{ a", "{% set", "{% raw %}", "{{ 'a", "{{ a[", "{#", "{{ \u{e9}('"] {
            assert!(!guarded(broken).0.is_empty());
        }
    }
}
