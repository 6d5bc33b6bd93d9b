//! Function calls in generated text: a table of the syntaxes that models use, and a splitter that separates calls from
//! text while the text is generated.
//!
//! In each syntax a call begins with a marker string, or with the first character of the answer. What looks like a call
//! and is none (cut off, invalid JSON, arguments that are not an object) is passed on as text. The grammar that
//! constrains a model to these syntaxes is in `tools.rs`.

use crate::error::Result;
use crate::io::json::{Json, write, write_str};
use crate::text::Tokenizer;

/// A function call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function's name.
    pub name: String,
    /// Its arguments as the text of a JSON object.
    pub arguments: String,
}

/// The calls that a parser found, and the text after them; `None` if the text does not have this syntax.
type Read<'a> = Option<(Vec<Call>, &'a str)>;

/// A syntax of calls: a marker and the parser of what follows it.
struct Form {
    mark: &'static str,
    /// Parses the text after the marker; the second argument has the names of the available functions.
    read: for<'a> fn(&'a str, &[String]) -> Read<'a>,
}

pub(super) const TAG: &str = "<tool_call>";
pub(super) const TAG_END: &str = "</tool_call>";
pub(super) const TOOL_CALLS: &str = "[TOOL_CALLS]";
pub(super) const ARGUMENTS: &str = "[ARGS]";
pub(super) const CALL_ID: &str = "[CALL_ID]";
pub(super) const PYTHON: &str = "<|python_tag|>";
pub(super) const FUNCTION_TAG: &str = "<function=";
pub(super) const FUNCTION_TAG_END: &str = "</function>";
pub(super) const FUNCTIONARY: &str = ">>>";
/// The marker of functionary models for text that is addressed to the user, whom they treat as a function named `all`.
const FUNCTIONARY_ALL: &str = ">>>all\n";

/// The syntaxes. A bare object or list at the beginning of an answer needs no marker (Llama 3, Mistral
/// without its special tokens).
const FORMS: [Form; 5] = [
    // Hermes, Qwen: `<tool_call>{"name": .., "arguments": ..}</tool_call>`
    Form { mark: TAG, read: parse_tagged },
    // Mistral: `[TOOL_CALLS][{"name": .., "arguments": ..}]`, later `[TOOL_CALLS]name[ARGS]{..}`, with `[CALL_ID]..` between
    Form { mark: TOOL_CALLS, read: parse_list },
    // Llama 3: `<|python_tag|>{"name": .., "parameters": ..}`, several of them with `;` between, and `<|python_tag|>name.call(key="value")`
    Form { mark: PYTHON, read: parse_python },
    // functionary, Llama 3: `<function=name>{..}</function>`
    Form { mark: FUNCTION_TAG, read: parse_function_tag },
    // functionary: `>>>name`, arguments on the next line; `>>>` may be plain text too, so it counts only
    // before a known function's name
    Form { mark: FUNCTIONARY, read: parse_functionary },
];

/// Markers that vocabularies may contain as special tokens. Decoding leaves special tokens out unless they
/// are asked for.
const MARKERS: [&str; 9] =
    [TAG, TAG_END, TOOL_CALLS, ARGUMENTS, CALL_ID, PYTHON, FUNCTION_TAG, FUNCTION_TAG_END, FUNCTIONARY];

/// Is this token one of the markers?
pub(super) fn is_marker(token: &str) -> bool {
    MARKERS.contains(&token)
}

/// Decodes tokens that may contain calls: special tokens that are markers appear in the text.
///
/// # Errors
/// Those of [`Tokenizer::decode`].
pub fn text_with_calls(tokenizer: &Tokenizer, ids: &[u32]) -> Result<String> {
    tokenizer.decode_showing(ids, &is_marker)
}

/// Separates calls from text while the text is generated. Text that may still turn out to be a call is held back.
#[derive(Debug, Default)]
pub struct Splitter {
    held: String,
    /// Everything from here on is held back: an object at the beginning, or what follows a marker.
    is_call: bool,
    begun: bool,
    names: Vec<String>,
}

/// Whether a text begins with a given string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    Yes,
    No,
    /// The text is too short to tell.
    Perhaps,
}

fn begins(text: &str, with: &str) -> Begins {
    match () {
        () if text.starts_with(with) => Begins::Yes,
        () if with.starts_with(text) => Begins::Perhaps,
        () => Begins::No,
    }
}

/// `Yes` if any is `Yes`, else `Perhaps` if any is, else `No`.
fn any(list: impl Iterator<Item = Begins>) -> Begins {
    list.fold(Begins::No, |all, b| match (all, b) {
        (Begins::Yes, _) | (_, Begins::Yes) => Begins::Yes,
        (Begins::Perhaps, _) | (_, Begins::Perhaps) => Begins::Perhaps,
        _ => Begins::No,
    })
}

impl Splitter {
    /// A splitter for these function descriptions, in the form that [`super::Grammar::from_tools`] takes.
    pub fn new(tools: &Json) -> Splitter {
        let name = |tool: &Json| tool.get("function").unwrap_or(tool).get("name")?.as_str().map(str::to_owned);
        Splitter {
            names: tools.as_array().unwrap_or_default().iter().filter_map(name).collect(),
            ..Splitter::default()
        }
    }

    /// Takes new text; returns the text that is certainly not part of a call.
    pub fn push(&mut self, new: &str) -> String {
        self.held += new;
        if !self.begun && !self.held.is_empty() {
            match self.start() {
                Begins::Perhaps => return String::new(),
                start => (self.begun, self.is_call) = (true, start == Begins::Yes),
            }
            self.drop_mark(&FUNCTIONARY_ALL[FUNCTIONARY.len()..]);
        }
        let mut out = String::new();
        while !self.is_call {
            let found = self.held.char_indices().map(|c| (c.0, self.mark(&self.held[c.0..])));
            let found = found.into_iter().find(|(_, mark)| *mark != Begins::No);
            let (at, mark) = found.unwrap_or((self.held.len(), Begins::No));
            let rest = self.held.split_off(at);
            out += &std::mem::replace(&mut self.held, rest);
            self.is_call = mark == Begins::Yes;
            if !self.drop_mark(FUNCTIONARY_ALL) {
                break;
            }
        }
        out
    }

    /// Does `>>>all` mean text for the user? Not if one of the functions is really named `all`.
    fn all_means_user(&self) -> bool {
        !self.names.is_empty() && self.names.iter().all(|name| name != "all")
    }

    /// Removes a marker of text for the user from the beginning of the held text, if it is there; the text
    /// after it is no call.
    fn drop_mark(&mut self, mark: &str) -> bool {
        let is_one = self.is_call && self.all_means_user() && self.held.starts_with(mark);
        if is_one {
            self.is_call = false;
            self.held.drain(..mark.len());
        }
        is_one
    }

    /// Does the answer begin with a call that has no marker?
    fn start(&self) -> Begins {
        let list = match self.held.strip_prefix('[').map(str::trim_start) {
            Some("") => Begins::Perhaps,
            Some(inner) => begins(inner, "{"),
            None => Begins::No,
        };
        // The prompt may already have ended with the marker `>>>`, so that the answer begins with the name
        let names = self.names.iter().map(|name| begins(&self.held, &format!("{name}\n{{")));
        let all = self.all_means_user().then(|| begins(&self.held, &FUNCTIONARY_ALL[FUNCTIONARY.len()..]));
        any([begins(&self.held, "{"), list].into_iter().chain(names).chain(all))
    }

    fn mark(&self, text: &str) -> Begins {
        any(FORMS.iter().map(|form| match form.mark {
            FUNCTIONARY => {
                let names = self.names.iter().map(|name| begins(text, &format!("{FUNCTIONARY}{name}\n")));
                any(names.chain(self.all_means_user().then(|| begins(text, FUNCTIONARY_ALL))))
            }
            mark => begins(text, mark),
        }))
    }

    /// All calls in a complete text.
    #[cfg(test)]
    pub(super) fn all(mut self, text: &str) -> Vec<Call> {
        self.push(text);
        self.finish().1
    }

    /// Ends the text: returns the text that was still held, or the calls in it. A call that was cut off is
    /// returned as text.
    pub fn finish(&mut self) -> (String, Vec<Call>) {
        let rest = std::mem::take(&mut self.held);
        match self.is_call.then(|| self.calls(&rest)).flatten() {
            Some(found) => found,
            None => (rest, Vec::new()),
        }
    }

    /// Parses consecutive calls; after them only text for the user may follow.
    fn calls(&self, text: &str) -> Option<(String, Vec<Call>)> {
        let (mut out, rest) = calls(text, &self.names)?;
        let Some(rest) = rest.strip_prefix(FUNCTIONARY_ALL).filter(|_| self.all_means_user()) else {
            return rest.is_empty().then_some((String::new(), out));
        };
        let mut more = Splitter { names: self.names.clone(), begun: true, ..Splitter::default() };
        let text = more.push(rest);
        let (end, others) = more.finish();
        out.extend(others);
        Some((text + &end, out))
    }
}

/// Parses consecutive calls, and gives the text after them, which is empty or in no known syntax.
fn calls<'a>(text: &'a str, names: &[String]) -> Read<'a> {
    let mut rest = text.trim();
    let bare = match FORMS.iter().any(|form| rest.starts_with(form.mark)) {
        true => None,
        false if rest.starts_with(['{', '[']) => Some(parse_bare(rest)?),
        false => Some(parse_functionary(rest, names)?),
    };
    let mut out = Vec::new();
    if let Some((list, after)) = bare {
        out.extend(list);
        rest = after.trim_start();
    }
    let next = |rest: &'a str| {
        let (form, inner) = FORMS.iter().find_map(|form| Some((form, rest.strip_prefix(form.mark)?)))?;
        (form.read)(inner, names)
    };
    while let Some((list, after)) = next(rest) {
        out.extend(list);
        rest = after.trim_start();
    }
    (!out.is_empty()).then_some((out, rest))
}

/// Parses a call as a bare JSON object, or several as a list of objects.
fn parse_bare(text: &str) -> Read<'_> {
    let (value, rest) = value(text)?;
    let list = match &value {
        Json::Array(list) => list.iter().map(call).collect::<Option<Vec<_>>>()?,
        one => vec![call(one)?],
    };
    Some((list, rest))
}

fn parse_tagged<'a>(text: &'a str, _: &[String]) -> Read<'a> {
    let (value, rest) = value(text)?;
    Some((vec![call(&value)?], rest.trim_start().strip_prefix(TAG_END)?))
}

fn parse_list<'a>(text: &'a str, _: &[String]) -> Read<'a> {
    let text = text.trim_start();
    if text.starts_with(['[', '{']) {
        return parse_bare(text);
    }
    let (name, rest) = text.split_once(ARGUMENTS)?;
    let name = name.split_once(CALL_ID).map_or(name, |(name, _)| name).trim();
    let (arguments, rest) = arguments(rest)?;
    Some((vec![Call { name: is_name(name)?.into(), arguments }], rest))
}

fn parse_python<'a>(text: &'a str, _: &[String]) -> Read<'a> {
    let mut rest = text.trim_start();
    if !rest.starts_with('{') {
        let (name, inner) = rest.split_once(".call(")?;
        let (arguments, rest) = keywords(inner)?;
        return Some((vec![Call { name: is_name(name)?.into(), arguments }], rest));
    }
    let mut out = Vec::new();
    loop {
        let (object, after) = value(rest)?;
        out.push(call(&object)?);
        match after.trim_start().strip_prefix(';') {
            Some(next) => rest = next,
            None => return Some((out, after)),
        }
    }
}

fn parse_function_tag<'a>(text: &'a str, _: &[String]) -> Read<'a> {
    let (name, rest) = text.split_once('>')?;
    let (arguments, rest) = arguments(rest)?;
    Some((vec![Call { name: is_name(name)?.into(), arguments }], rest.trim_start().strip_prefix(FUNCTION_TAG_END)?))
}

fn parse_functionary<'a>(text: &'a str, names: &[String]) -> Read<'a> {
    let (name, rest) = text.split_once('\n')?;
    let name = names.iter().find(|known| *known == name)?;
    let (arguments, rest) = arguments(rest)?;
    Some((vec![Call { name: name.clone(), arguments }], rest))
}

/// The text as a function name, if it consists of the characters that names without quotes may have.
pub(super) fn is_name(name: &str) -> Option<&str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (!name.is_empty() && name.chars().all(fits)).then_some(name)
}

/// A call from its JSON object with `name` and `arguments` (or `parameters`).
fn call(object: &Json) -> Option<Call> {
    let name = object.get("name")?.as_str()?.to_owned();
    let given = object.get("arguments").or_else(|| object.get("parameters"))?;
    given.as_object()?;
    Some(Call { name, arguments: written(given) })
}

fn arguments(text: &str) -> Option<(String, &str)> {
    let (object, rest) = value(text)?;
    object.as_object()?;
    Some((written(&object), rest))
}

fn written(value: &Json) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

/// Parses the JSON object or list at the beginning of a text; also gives the text after it.
fn value(text: &str) -> Option<(Json, &str)> {
    let text = text.trim_start();
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (at, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        // All the characters matched above are one byte long
        if depth == 0 {
            let (value, rest) = text.split_at_checked(at + 1)?;
            return Some((Json::parse(value.as_bytes()).ok()?, rest));
        }
    }
    None
}

/// Converts Python keyword arguments, up to the closing parenthesis, to the text of a JSON object.
fn keywords(text: &str) -> Option<(String, &str)> {
    let (mut out, mut rest) = (String::from("{"), text.trim_start());
    loop {
        if let Some(after) = rest.strip_prefix(')') {
            return Some((out + "}", after));
        }
        if out.len() > 1 {
            rest = rest.strip_prefix(',')?.trim_start();
            out.push(',');
        }
        let (key, after) = rest.split_once('=')?;
        write_str(&mut out, is_name(key.trim())?);
        out.push(':');
        rest = python_value(&mut out, after.trim_start())?.trim_start();
    }
}

/// Appends a Python literal to `out` as JSON; gives the text after it.
fn python_value<'a>(out: &mut String, text: &'a str) -> Option<&'a str> {
    if text.starts_with(['{', '[']) {
        let (value, rest) = value(text)?;
        write(out, &value);
        return Some(rest);
    }
    if let Some(quote) = text.chars().next().filter(|c| "'\"".contains(*c)) {
        let (mut string, mut chars) = (String::new(), text.char_indices().skip(1));
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => string.push(match chars.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    other => other,
                }),
                c if c == quote => {
                    write_str(out, &string);
                    return text.get(at + 1..);
                }
                c => string.push(c),
            }
        }
        return None;
    }
    let (word, rest) = text.split_at(text.find([',', ')'])?);
    let value = match word.trim() {
        "True" => Json::Bool(true),
        "False" => Json::Bool(false),
        "None" => Json::Null,
        number => Json::parse(number.as_bytes()).ok()?,
    };
    write(out, &value);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splitter() -> Splitter {
        Splitter::new(
            &Json::parse(br#"[{"type": "function", "function": {"name": "weather"}}, {"name": "now"}]"#).unwrap(),
        )
    }

    /// The text and the calls of an answer; checks that they are the same however the answer is cut into pieces.
    fn split(text: &str) -> (String, Vec<(String, String)>) {
        let of = |pieces: &[&str]| {
            let mut s = splitter();
            let before: String = pieces.iter().map(|p| s.push(p)).collect();
            let (after, calls) = s.finish();
            (before + &after, calls.into_iter().map(|c| (c.name, c.arguments)).collect::<Vec<_>>())
        };
        let whole = of(&[text]);
        let ends: Vec<usize> = text.char_indices().map(|c| c.0).skip(1).collect();
        for at in ends {
            let (a, b) = text.split_at(at);
            assert_eq!(of(&[a, b]), whole, "{a:?} {b:?}");
        }
        let mut one = [0; 4];
        let mut s = splitter();
        let mut before: String = text.chars().map(|c| s.push(c.encode_utf8(&mut one))).collect();
        before += &s.finish().0;
        assert_eq!(before, whole.0, "a character at a time");
        whole
    }

    #[test]
    fn each_form_is_read_whatever_pieces_it_comes_in() {
        let rome = ("weather", r#"{"city":"Rome"}"#);
        let now = ("now", "{}");
        for (text, before, want) in [
            (r#"{"name": "weather", "arguments": {"city": "Rome"}}"#, "", vec![rome]),
            (r#"{"name": "weather", "parameters": {"city": "Rome"}}"#, "", vec![rome]),
            (
                r#"[{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "now", "arguments": {}}]"#,
                "",
                vec![rome, now],
            ),
            ("[ {\"name\": \"now\", \"arguments\": {}}]\n", "", vec![now]),
            ("I look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "I look.\n", vec![now]),
            (
                "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n\
                 <tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>",
                "",
                vec![now, rome],
            ),
            (
                r#"[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}, "id": "VvvODy9mT"}, {"name": "now", "arguments": {}}]"#,
                "",
                vec![rome, now],
            ),
            (r#"Wait. [TOOL_CALLS]weather[ARGS]{"city": "Rome"}[TOOL_CALLS]now[ARGS]{}"#, "Wait. ", vec![rome, now]),
            (r#"[TOOL_CALLS]weather[CALL_ID]abc123DEF[ARGS]{"city": "Rome"}"#, "", vec![rome]),
            (r#"<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}"#, "", vec![rome]),
            (
                r#"<|python_tag|>{"name": "now", "parameters": {}}; {"name": "weather", "parameters": {"city": "Rome"}}"#,
                "",
                vec![now, rome],
            ),
            (r#"<|python_tag|>weather.call(city="Rome")"#, "", vec![rome]),
            ("<|python_tag|>now.call()", "", vec![now]),
            (
                r#"<|python_tag|>brave_search.call(query='a "b"\n', n=-3, safe=True, of=[1, {"x": ")"}], last=None)"#,
                "",
                vec![("brave_search", r#"{"query":"a \"b\"\n","n":-3,"safe":true,"of":[1,{"x":")"}],"last":null}"#)],
            ),
            (r#"So: <function=weather>{"city": "Rome"}</function>"#, "So: ", vec![rome]),
            ("<function=weather>\n{\"city\": \"Rome\"}\n</function>\n<function=now>{}</function>", "", vec![rome, now]),
            (">>>weather\n{\"city\": \"Rome\"}", "", vec![rome]),
            // text after `>>>all` is for the user
            (">>>all\nI look.>>>weather\n{\"city\": \"Rome\"}>>>now\n{}", "I look.", vec![rome, now]),
            (">>>all\nI look.", "I look.", vec![]),
            ("all\nI look.>>>now\n{}", "I look.", vec![now]),
            ("all\nI look >>>all\nonce >>> more", "I look once >>> more", vec![]),
            (">>>now\n{}\n>>>all\nSo.>>>weather\n{\"city\": \"Rome\"}", "So.", vec![now, rome]),
            ("now\n{}>>>all\nSo", "So", vec![now]),
            ("weather\n{\"city\": \"Rome\"}\n>>>now\n{}", "", vec![rome, now]),
            // markers inside of strings do not count
            (
                r#"<tool_call>{"name": "weather", "arguments": {"city": "</tool_call> } \" é"}}</tool_call>"#,
                "",
                vec![("weather", r#"{"city":"</tool_call> } \" é"}"#)],
            ),
        ] {
            let want: Vec<_> = want.iter().map(|(n, a)| (n.to_string(), a.to_string())).collect();
            assert_eq!(split(text), (before.to_string(), want), "{text}");
        }
    }

    #[test]
    fn what_is_no_call_is_text() {
        for text in [
            "",
            "hello",
            "{",
            "{}",
            "[",
            "[1, 2]",
            "[{}]",
            "[{\"name\": \"now\"}]",
            "weather",
            "weather\n{",
            "now\nand here",
            r#"{"name": "weather", "argu"#,
            r#"{"name": "now", "arguments": 3}"#,
            r#"{"name": 3, "arguments": {}}"#,
            r#"{"name": "now", "arguments": {}} and so on"#,
            "a <tool",
            "<tool_call>",
            "<tool_call>]</tool_call>",
            "<tool_call>{\"name\": \"now\", \"arguments\": {}}",
            "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> so",
            "[TOOL_CALLS]",
            "[TOOL_CALLS][",
            "[TOOL_CALLS]é[ARGS]{}",
            "[TOOL_CALLS]now[ARGS]",
            "[TOOL_CALLS]now[ARGS]3",
            "[TOOL_CALLS]now[CALL_ID][ARGS",
            "<|python_tag|>",
            "<|python_tag|>print(1)",
            "<|python_tag|>now.call(",
            "<|python_tag|>now.call(a)",
            "<|python_tag|>now.call(a=)",
            "<|python_tag|>now.call(a='",
            "<|python_tag|>now.call(a='\\",
            "<|python_tag|>now.call(a=1 b=2)",
            "<|python_tag|>{\"name\": \"now\", \"parameters\": {}};",
            "<function=",
            "<function=now>",
            "<function=now>{}",
            "<function=>{}</function>",
            "<function=now>[]</function>",
            ">>> 1 + 1\n2",
            ">>>other\n{}",
            ">>>now\n",
            ">>>now\n{]}",
            ">>>al",
            ">>>all",
            ">>>all {}",
            "al",
            "all",
            "allow\n",
            ">>>now\n{} so>>>all\nSo",
            "a >>>no",
        ] {
            assert_eq!(split(text), (text.to_string(), vec![]), "{text}");
        }
        // nested deeper than the JSON parser accepts
        let deep = format!("<tool_call>{{\"name\": \"now\", \"arguments\": {}", "[".repeat(100_000));
        let mut s = splitter();
        assert_eq!((s.push(&deep), s.finish()), (String::new(), (deep, vec![])));
    }

    #[test]
    fn text_comes_at_once_and_calls_at_the_end() {
        let mut s = splitter();
        let parts: Vec<String> =
            ["I look", " <too", "l> <tool", "_call>{\"name\": \"a\", ", "\"arguments\": {}}</tool_call>"]
                .map(|t| s.push(t))
                .into();
        assert_eq!(parts, ["I look", " ", "<tool> ", "", ""]);
        let want = Call { name: "a".into(), arguments: "{}".into() };
        assert_eq!(s.finish(), (String::new(), vec![want]));
        let mut s = splitter();
        assert_eq!((s.push("[1"), s.push("]: >"), s.push(">> x")), ("[1".into(), "]: ".into(), ">>> x".into()));
        assert_eq!((s.push("a <tool"), s.finish()), ("a ".into(), ("<tool".into(), vec![])));
        // text for the user is not delayed by its marker
        let mut s = splitter();
        let parts = [">>", ">al", "l\nI ", "look", ">>>n", "ow\n{}"].map(|t| s.push(t));
        assert_eq!(parts, ["", "", "I ", "look", "", ""]);
        assert_eq!(s.finish().1.len(), 1);
    }

    #[test]
    fn a_function_that_is_called_all_is_a_function() {
        let with = |tools: &str, text: &str| {
            let mut s = Splitter::new(&Json::parse(tools.as_bytes()).unwrap());
            let before = s.push(text);
            let (after, calls) = s.finish();
            (before + &after, calls.len())
        };
        assert_eq!(with(r#"[{"name": "all"}]"#, ">>>all\n{}"), (String::new(), 1));
        assert_eq!(with(r#"[{"name": "all"}]"#, ">>>all\nHi"), (">>>all\nHi".into(), 0));
        // without any function, `>>>all` is plain text
        assert_eq!(with("[]", ">>>all\nHi"), (">>>all\nHi".into(), 0));
    }
}
