//! Calls of functions in what a model writes: the grammar that lets none come but of functions that there are, with arguments that fit their
//! JSON schemas, and the calls in a text.
//!
//! Two forms are known, which most models are trained on: an object `{"name": .., "arguments": {..}}` that is all of the answer (`parameters`
//! in place of `arguments` is Llama 3's word), and such objects between `<tool_call>` and `</tool_call>` after any text (Hermes, Qwen and
//! others). Models with a form of their own write one of these, if they have to.

use super::grammar::{Grammar, Item, Set};
use super::schema::Builder;
use crate::error::{Error, Result};
use crate::io::json::{Json, write};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Whether functions are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Or a text is written.
    May,
    /// One of them at least.
    Must,
    /// The one of this name.
    This(String),
}

/// A function that may be called.
struct Function<'a> {
    name: &'a str,
    parameters: Option<&'a Json>,
    /// Arguments fit the schema, or the request is refused; else any object does where the schema cannot be kept to.
    strict: bool,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function's name.
    pub name: String,
    /// Its arguments, a JSON object.
    pub arguments: String,
}

fn wrong(what: String) -> Error {
    Error::value("tools", what)
}

/// Functions of a list in OpenAI's form, or of bare `{"name": .., "parameters": ..}`.
fn functions(tools: &Json) -> Result<Vec<Function<'_>>> {
    let list = tools.as_array().ok_or_else(|| wrong("they are no list".into()))?;
    let mut out: Vec<Function<'_>> = Vec::with_capacity(list.len());
    for (at, tool) in list.iter().enumerate() {
        let kind = tool.get("type").and_then(Json::as_str).unwrap_or("function");
        let f = tool.get("function").unwrap_or(tool);
        let name = f.get("name").and_then(Json::as_str).filter(|n| !n.is_empty());
        let name =
            name.filter(|_| kind == "function").ok_or_else(|| wrong(format!("[{at}] is no function with a name")))?;
        if out.iter().any(|f| f.name == name) {
            return Err(wrong(format!("two are called `{name}`")));
        }
        let strict = matches!(f.get("strict"), Some(Json::Bool(true)));
        out.push(Function { name, parameters: f.get("parameters").filter(|p| **p != Json::Null), strict });
    }
    Ok(out)
}

impl Grammar {
    /// Texts with calls of these functions, one or several.
    ///
    /// # Errors
    /// `E_VALUE` for a list that is none, or without the function that is wanted; `E_UNSUPPORTED` for a schema of a `strict` function that
    /// cannot be kept to.
    pub fn from_tools(tools: &Json, calls: &Calls, several: bool) -> Result<Grammar> {
        let mut list = functions(tools)?;
        if let Calls::This(name) = calls {
            list.retain(|f| f.name == name);
        }
        if list.is_empty() {
            let all =
                if let Calls::This(name) = calls { format!("none is called `{name}`") } else { "there is none".into() };
            return Err(wrong(all));
        }
        let mut b = Builder::new(tools)?;
        let mut objects = Vec::new();
        for f in &list {
            objects.push(vec![b.call(f.name, f.parameters, f.strict)?]);
        }
        let object = b.g.add(&objects)?;
        let space = b.space;
        let literal = |text: &str| -> Vec<Item> { text.bytes().map(|c| Item::Set(Set::ranges(&[(c, c)]))).collect() };
        // after a first mark
        let tagged = b.g.reserve();
        let more = match several {
            true => b.g.add(&[Vec::new(), [vec![space], literal(OPEN), vec![Item::Rule(tagged)]].concat()])?,
            false => b.g.add(&[Vec::new()])?,
        };
        b.g.define(tagged, &[[vec![space, object, space], literal(CLOSE), vec![more]].concat()])?;
        let bare = vec![object];
        let start = match calls {
            Calls::May => {
                let text = text(&mut b.g, tagged)?;
                b.g.add(&[vec![bare], text].concat())?
            }
            _ => b.g.add(&[bare, [literal(OPEN), vec![Item::Rule(tagged)]].concat()])?,
        };
        b.finish(start)
    }
}

/// Any text up to a mark, after which `tagged` follows; it does not begin with an object.
fn text(g: &mut Grammar, tagged: u32) -> Result<Vec<Vec<Item>>> {
    let mark = OPEN.as_bytes();
    // by how many bytes of a mark were there; the first byte comes nowhere else in it
    let states: Vec<u32> = mark.iter().map(|_| g.reserve()).collect();
    let ways = |k: usize, without: &[u8]| {
        let next = match states.get(k + 1) {
            Some(state) => Item::Rule(*state),
            None => Item::Rule(tagged),
        };
        let taken = [&[mark[0], mark[k]], without].concat();
        let mut other = Vec::new();
        let mut low = 0u16;
        for b in 0..=256u16 {
            if b == 256 || taken.contains(&(b as u8)) {
                other.extend((low < b).then(|| (low as u8, (b - 1) as u8)));
                low = b + 1;
            }
        }
        let mut all = vec![Vec::new(), vec![Item::Set(Set::ranges(&other)), Item::Rule(states[0])]];
        all.push(vec![Item::Set(Set::ranges(&[(mark[k], mark[k])])), next]);
        if k > 0 {
            all.push(vec![Item::Set(Set::ranges(&[(mark[0], mark[0])])), Item::Rule(states[1])]);
        }
        all
    };
    for (k, state) in states.iter().enumerate() {
        g.define(*state, &ways(k, &[]))?;
    }
    Ok(ways(0, b"{"))
}

/// Tells calls from text while it is made.
#[derive(Debug, Default)]
pub struct Splitter {
    held: String,
    /// All from here on is held back: an object at the beginning, or what follows a mark.
    is_call: bool,
    begun: bool,
}

impl Splitter {
    /// Takes text; gives what of it is surely no part of a call.
    pub fn push(&mut self, new: &str) -> String {
        self.held += new;
        if !self.begun && !self.held.is_empty() {
            self.begun = true;
            self.is_call = self.held.starts_with('{');
        }
        if self.is_call {
            return String::new();
        }
        if let Some(at) = self.held.find(OPEN) {
            self.is_call = true;
            let rest = self.held.split_off(at);
            return std::mem::replace(&mut self.held, rest);
        }
        let keep = self.held.char_indices().map(|c| c.0).find(|at| OPEN.starts_with(&self.held[*at..]));
        let rest = self.held.split_off(keep.unwrap_or(self.held.len()));
        std::mem::replace(&mut self.held, rest)
    }

    /// The rest: text, or calls. What was cut off in a call is text.
    pub fn finish(&mut self) -> (String, Vec<Call>) {
        let rest = std::mem::take(&mut self.held);
        match self.is_call.then(|| calls(&rest)).flatten() {
            Some(list) => (String::new(), list),
            None => (rest, Vec::new()),
        }
    }
}

/// Calls one after the other, and nothing else.
fn calls(text: &str) -> Option<Vec<Call>> {
    if text.starts_with('{') {
        return Some(vec![call(text)?]);
    }
    let mut out = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (inner, after) = rest.strip_prefix(OPEN)?.split_once(CLOSE)?;
        out.push(call(inner)?);
        rest = after.trim_start();
    }
    Some(out)
}

fn call(text: &str) -> Option<Call> {
    let object = Json::parse(text.trim().as_bytes()).ok()?;
    let name = object.get("name")?.as_str()?.to_owned();
    let given = object.get("arguments").or_else(|| object.get("parameters"))?;
    given.as_object()?;
    let mut arguments = String::new();
    write(&mut arguments, given);
    Some(Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::super::grammar::tests::fits;
    use super::*;
    use std::sync::Arc;

    const TOOLS: &str = r##"[
        {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
            "city": {"$ref": "#/$defs/city"}, "days": {"type": "integer"}}, "required": ["city"],
            "$defs": {"city": {"enum": ["Rome", "Oslo"]}}}}},
        {"name": "now"}]"##;

    fn grammar(tools: &str, calls: &Calls, several: bool) -> Result<Arc<Grammar>> {
        Grammar::from_tools(&Json::parse(tools.as_bytes()).unwrap(), calls, several).map(Arc::new)
    }

    #[test]
    fn calls_are_of_functions_that_there_are() {
        let must = grammar(TOOLS, &Calls::Must, true).unwrap();
        let good = [
            r#"{"name": "weather", "arguments": {"city": "Rome"}}"#,
            r#"{"name":"weather","parameters":{"city": "Oslo", "days": 3}}"#,
            r#"{"name": "now", "arguments": {"any": [1]}}"#,
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
            "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
        ];
        let bad = [
            "",
            "hello",
            r#"{"name": "weather", "arguments": {"city": "Rome"}"#,
            r#"{"name": "weather", "arguments": {"city": "Bonn"}}"#,
            r#"{"name": "weather", "arguments": {}}"#,
            r#"{"name": "other", "arguments": {}}"#,
            r#"{"name": "now", "arguments": 3}"#,
            r#"{"name": "now", "arguments": {}} so"#,
            "<tool_call>{\"name\": \"now\", \"arguments\": {}}",
        ];
        for text in good {
            assert!(fits(&must, text), "{text}");
            let mut s = Splitter::default();
            assert_eq!(s.push(text), "");
            assert!(s.finish().1.iter().all(|c| ["weather", "now"].contains(&&*c.name)), "{text}");
        }
        bad.iter().for_each(|text| assert!(!fits(&must, text), "{text}"));
        let may = grammar(TOOLS, &Calls::May, false).unwrap();
        let after = |text: &str| format!("Let me see <b>.\n<tool_call>\n{text}\n</tool_call>");
        good[..4]
            .iter()
            .chain(&["", "hello <tool", "<think>x</think> 3 < 4", " {"])
            .for_each(|text| assert!(fits(&may, text), "{text}"));
        assert!(fits(&may, &after(good[0])) && !fits(&may, &after("{}")) && !fits(&may, good[4]), "one call");
        [bad[2], bad[3], bad[5], "{", "<tool_call>", "x<tool_call>y"]
            .iter()
            .for_each(|text| assert!(!fits(&may, text), "{text}"));
        let this = grammar(TOOLS, &Calls::This("now".into()), true).unwrap();
        assert!(fits(&this, good[2]) && !fits(&this, good[0]));
    }

    #[test]
    fn schemas_that_cannot_be_kept_to_take_any_object_unless_they_are_strict() {
        let list = |strict: bool| {
            let text = format!(
                r#"[{{"name": "f", "strict": {strict}, "parameters": {{"type": "object", "properties": {{"a": {{"type": "string", "pattern": "x"}}}}}}}}]"#
            );
            grammar(&text, &Calls::Must, true)
        };
        assert!(fits(&list(false).unwrap(), r#"{"name": "f", "arguments": {"b": 1}}"#));
        assert_eq!(list(true).unwrap_err().code(), "E_UNSUPPORTED");
        for bad in [
            "{}",
            "[]",
            "[3]",
            r#"[{"name": ""}]"#,
            r#"[{"name": "a"}, {"name": "a"}]"#,
            r#"[{"type": "web", "name": "a"}]"#,
        ] {
            assert_eq!(grammar(bad, &Calls::May, true).unwrap_err().code(), "E_VALUE", "{bad}");
        }
        assert!(grammar(TOOLS, &Calls::This("x".into()), true).is_err());
    }

    #[test]
    fn text_comes_at_once_and_calls_at_the_end() {
        let mut s = Splitter::default();
        let parts: Vec<String> =
            ["I look", " <too", "l> <tool", "_call>{\"name\": \"a\", ", "\"arguments\": {}}</tool_call>"]
                .map(|t| s.push(t))
                .into();
        assert_eq!(parts, ["I look", " ", "<tool> ", "", ""]);
        let want = Call { name: "a".into(), arguments: "{}".into() };
        assert_eq!(s.finish(), (String::new(), vec![want]));
        let mut s = Splitter::default();
        assert_eq!(
            (s.push("{\"name\": \"a\", \"argu"), s.finish()),
            (String::new(), ("{\"name\": \"a\", \"argu".into(), vec![]))
        );
        let mut s = Splitter::default();
        assert_eq!((s.push("a <tool"), s.finish()), ("a ".into(), ("<tool".into(), vec![])));
    }
}
