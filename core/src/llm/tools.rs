//! Function calls in generated text: the grammar that allows calls only of functions that exist, with arguments that
//! fit their JSON schemas. It covers each syntax that models are trained on (`calls.rs`): an object or a list of
//! objects that is the whole answer, and calls that begin with a marker, after any text. Of arguments in Python's
//! syntax only the form is checked, not names or types.

use super::calls::{
    ARGUMENTS, CALL_ID, FUNCTION_TAG, FUNCTION_TAG_END, FUNCTIONARY, PYTHON, TAG, TAG_END, TOOL_CALLS, is_name,
};
use super::grammar::{Grammar, Item, Set};
use super::schema::{Builder, literal};
use crate::error::{Error, Result};
use crate::io::json::Json;

/// Whether functions are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calls {
    /// A call or a text.
    May,
    /// At least one call.
    Must,
    /// A call of the function of this name.
    This(String),
}

/// A function that may be called.
struct Function<'a> {
    name: &'a str,
    parameters: Option<&'a Json>,
    /// Whether arguments must fit the schema, so that a schema which no grammar can express is an error; otherwise such
    /// a schema allows any object.
    strict: bool,
}

fn wrong(what: String) -> Error {
    Error::value("tools", what)
}

/// The functions of a list in OpenAI's format, or of bare `{"name": .., "parameters": ..}`.
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
    /// The grammar of texts with calls of these functions, one call or (if `several`) more.
    ///
    /// # Errors
    /// `E_VALUE` for a value that is no list of functions, or lacks the wanted one; `E_UNSUPPORTED` for the schema of a
    /// `strict` function that no grammar can express.
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
        let given = list.iter().map(|f| b.arguments(f.parameters, f.strict)).collect::<Result<Vec<_>>>()?;
        let forms = Forms::new(&mut b, &list, &given, several)?;
        let marked = |(mark, rule): &(String, u32)| [literal(mark), vec![Item::Rule(*rule)]].concat();
        let mut ways = vec![vec![forms.object], vec![forms.list]];
        match calls {
            Calls::May => ways.extend(text(&mut b.g, &forms.marked)?),
            _ => {
                ways.extend(forms.marked.iter().map(marked));
                // The prompt may already have ended with the marker `>>>`
                let direct = forms
                    .marked
                    .iter()
                    .filter_map(|(mark, rule)| Some((mark.strip_prefix(FUNCTIONARY)?.into(), *rule)));
                ways.extend(direct.map(|way| marked(&way)));
            }
        }
        let start = b.g.add(&ways)?;
        b.g.show_words();
        b.finish(start)
    }
}

/// The rules for the syntaxes of calls.
struct Forms {
    object: Item,
    list: Item,
    /// Each marker with the rule of what follows it.
    marked: Vec<(String, u32)>,
}

impl Forms {
    fn new(b: &mut Builder<'_>, list: &[Function<'_>], given: &[Item], several: bool) -> Result<Forms> {
        let space = b.space;
        let objects = list.iter().zip(given).map(|(f, given)| Ok(vec![b.call(f.name, *given)?]));
        let objects = objects.collect::<Result<Vec<_>>>()?;
        let object = b.g.add(&objects)?;
        // What may follow a call: nothing, or another call after a separator
        let more = |b: &mut Builder<'_>, again: Vec<Vec<Item>>| {
            let again = if several { again } else { Vec::new() };
            b.g.add(&[vec![Vec::new()], again].concat())
        };
        let next = b.g.reserve();
        let after = more(b, vec![[literal(","), vec![space, object, Item::Rule(next)]].concat()])?;
        b.g.define(next, &[vec![after]])?;
        let list_of = [literal("["), vec![space, object, Item::Rule(next), space], literal("]")].concat();
        let list_of = b.g.add(&[list_of])?;

        let tagged = b.g.reserve();
        let after = more(b, vec![[vec![space], literal(TAG), vec![Item::Rule(tagged)]].concat()])?;
        b.g.define(tagged, &[[vec![space, object, space], literal(TAG_END), vec![after]].concat()])?;

        // Functions whose names can stand without quotes
        let plain: Vec<(&str, Item)> =
            list.iter().zip(given).filter_map(|(f, g)| Some((is_name(f.name)?, *g))).collect();
        let listed = b.g.reserve();
        let one = b.g.reserve();
        let after = more(b, vec![[literal(TOOL_CALLS), vec![Item::Rule(one)]].concat()])?;
        let letter = Item::Set(Set::ranges(&[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')]));
        let letters = b.g.repeated(&[letter], &[], (1, None))?;
        let number = b.g.add(&[Vec::new(), [literal(CALL_ID), vec![letters]].concat()])?;
        let of = |(name, given): &(&str, Item)| {
            [literal(name), vec![number], literal(ARGUMENTS), vec![*given, after]].concat()
        };
        b.g.define(one, &plain.iter().map(of).collect::<Vec<_>>())?;
        let spaced = b.g.add(&[Vec::new(), literal(" ")])?;
        b.g.define(listed, &[vec![spaced, list_of], vec![Item::Rule(one)]])?;

        let python = b.g.reserve();
        let next = b.g.reserve();
        let after = more(b, vec![[literal(";"), vec![space, object, Item::Rule(next)]].concat()])?;
        b.g.define(next, &[vec![after]])?;
        let keywords = b.keywords()?;
        let called =
            |(name, _): &(&str, Item)| [literal(name), literal(".call("), vec![keywords], literal(")")].concat();
        let mut ways: Vec<Vec<Item>> = plain.iter().map(called).collect();
        ways.push(vec![space, object, Item::Rule(next)]);
        b.g.define(python, &ways)?;

        let named = b.g.reserve();
        let after = more(b, vec![[vec![space], literal(FUNCTION_TAG), vec![Item::Rule(named)]].concat()])?;
        let of = |(name, given): &(&str, Item)| {
            [literal(name), literal(">"), vec![space, *given, space], literal(FUNCTION_TAG_END), vec![after]].concat()
        };
        b.g.define(named, &plain.iter().map(of).collect::<Vec<_>>())?;

        let marks = [(TAG, tagged), (TOOL_CALLS, listed), (PYTHON, python), (FUNCTION_TAG, named)];
        let mut marked: Vec<(String, u32)> = marks.into_iter().map(|(mark, rule)| (mark.to_owned(), rule)).collect();
        let functionary: Vec<u32> = plain.iter().map(|_| b.g.reserve()).collect();
        let lines = plain.iter().map(|(name, _)| format!("{FUNCTIONARY}{name}\n"));
        let again = lines.clone().zip(&functionary);
        let again = again.map(|(mark, rule)| [vec![space], literal(&mark), vec![Item::Rule(*rule)]].concat()).collect();
        let after = more(b, again)?;
        for ((_, given), rule) in plain.iter().zip(&functionary) {
            b.g.define(*rule, &[vec![*given, after]])?;
        }
        marked.extend(lines.zip(functionary));
        Ok(Forms { object, list: list_of, marked })
    }
}

/// Any text up to the first marker, after which the marker's rule follows; the text does not begin with an object. The
/// rules are the states of an Aho-Corasick automaton for the markers (Aho and Corasick 1975).
fn text(g: &mut Grammar, marks: &[(String, u32)]) -> Result<Vec<Vec<Item>>> {
    // The automaton's states: the prefixes of markers that the text may end with, the empty one first
    let mut places: Vec<&[u8]> = vec![b""];
    for (mark, _) in marks {
        let parts = (1..mark.len()).map(|n| &mark.as_bytes()[..n]);
        let new: Vec<&[u8]> = parts.filter(|part| !places.contains(part)).collect();
        places.extend(new);
    }
    let rules: Vec<u32> = places.iter().map(|_| g.reserve()).collect();
    let mut bytes: Vec<u8> = marks.iter().flat_map(|(mark, _)| mark.bytes()).collect();
    bytes.sort_unstable();
    bytes.dedup();
    let ways = |place: &[u8], without: &[u8]| {
        // Transitions to other states than the first one: a byte, and the rule that follows it
        let mut found: Vec<(u8, u32)> = Vec::new();
        for b in &bytes {
            let seen = [place, &[*b]].concat();
            let ends = marks.iter().find(|(mark, _)| seen.ends_with(mark.as_bytes())).map(|(_, rule)| *rule);
            let longest =
                || (0..seen.len()).find_map(|n| places.iter().position(|p| !p.is_empty() && *p == &seen[n..]));
            found.extend(ends.or_else(|| Some(rules[longest()?])).map(|rule| (*b, rule)));
        }
        let mut other = Vec::new();
        let mut low = 0u16;
        for b in 0..=256u16 {
            if b == 256 || without.contains(&(b as u8)) || found.iter().any(|f| u16::from(f.0) == b) {
                other.extend((low < b).then(|| (low as u8, (b - 1) as u8)));
                low = b + 1;
            }
        }
        let mut all = vec![Vec::new(), vec![Item::Set(Set::ranges(&other)), Item::Rule(rules[0])]];
        all.extend(found.iter().map(|(b, rule)| vec![Item::Set(Set::ranges(&[(*b, *b)])), Item::Rule(*rule)]));
        all
    };
    for (place, rule) in places.iter().zip(&rules) {
        g.define(*rule, &ways(place, &[]))?;
    }
    Ok(ways(&[], b"{"))
}

#[cfg(test)]
mod tests {
    use super::super::calls::Splitter;
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
            r#"[{"name": "now", "arguments": {}}]"#,
            r#"[{"name": "now", "arguments": {}}, {"name": "weather", "arguments": {"city": "Oslo"}}]"#,
            r#"[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "weather", "arguments": {"city": "Oslo"}}]"#,
            r#"[TOOL_CALLS]weather[ARGS]{"city": "Rome"}[TOOL_CALLS]now[CALL_ID]a1[ARGS]{}"#,
            r#"<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}; {"name": "now", "parameters": {}}"#,
            r#"<|python_tag|>weather.call(city="Rome", days=3)"#,
            "<|python_tag|>now.call()",
            r#"<function=weather>{"city": "Rome"}</function><function=now>{}</function>"#,
            ">>>weather\n{\"city\": \"Rome\"}\n>>>now\n{}",
            "weather\n{\"city\": \"Rome\"}",
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
            "[]",
            r#"[TOOL_CALLS]weather[ARGS]{"city": "Bonn"}"#,
            r#"[TOOL_CALLS]other[ARGS]{}"#,
            r#"[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Bonn"}}]"#,
            r#"<|python_tag|>{"name": "weather", "parameters": {"city": "Bonn"}}"#,
            "<|python_tag|>other.call()",
            "<|python_tag|>now.call(3)",
            r#"<function=weather>{"city": "Bonn"}</function>"#,
            "<function=now>{}",
            ">>>weather\n{\"city\": \"Bonn\"}",
            "weather\n{\"city\": \"Bonn\"}",
        ];
        for text in good {
            assert!(fits(&must, text), "{text}");
            let mut s = Splitter::new(&Json::parse(TOOLS.as_bytes()).unwrap());
            assert_eq!(s.push(text), "");
            let (rest, calls) = s.finish();
            assert!(rest.is_empty() && !calls.is_empty(), "{text}");
            assert!(calls.iter().all(|c| ["weather", "now"].contains(&&*c.name)), "{text}");
        }
        bad.iter().for_each(|text| assert!(!fits(&must, text), "{text}"));
        let may = grammar(TOOLS, &Calls::May, false).unwrap();
        let after = |text: &str| format!("Let me see <b>.\n<tool_call>\n{text}\n</tool_call>");
        good[..4]
            .iter()
            .chain(&[
                "",
                "hello <tool",
                "<think>x</think> 3 < 4",
                " {",
                ">>> 1 + 1",
                ">>>other\n[1]",
                "[1] [TOOL_CAL",
                "<<tool_call",
                "now\nx",
            ])
            .for_each(|text| assert!(fits(&may, text), "{text}"));
        assert!(fits(&may, &after(good[0])) && !fits(&may, &after("{}")) && !fits(&may, good[4]), "one call");
        for marked in good
            .iter()
            .chain(&bad[bad.len() - 10..])
            .filter(|text| text.starts_with(['<', '>']) || text.starts_with("[TOOL"))
        {
            let is_one =
                good.contains(marked) && Splitter::new(&Json::parse(TOOLS.as_bytes()).unwrap()).all(marked).len() == 1;
            assert_eq!(fits(&may, &format!("<> > [TOOL {marked}")), is_one, "{marked}");
        }
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
}
