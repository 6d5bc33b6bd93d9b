//! Chat templates: messages to the text that a model was trained on. A template is a Jinja program out of a file of the model,
//! so it is untrusted: it reaches no file and no clock, and has limits of steps, of depth, of what it writes and of every text
//! on the way there (`guard.rs`).
//!
//! What Hugging Face's `apply_chat_template` adds to Jinja is here: `raise_exception`, `strftime_now`, `tojson` as Python
//! writes it, `{% generation %}`, and the methods of Python's texts, lists and dicts.

use super::{guard, pystr};
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::io::gguf::{Gguf, Value as Meta};
use crate::io::json::Json;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error as Fault, ErrorKind, State, Value, filters};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Steps of the template's program.
const MAX_STEPS: u64 = 1_000_000;
/// Bytes of what a template writes between its tags, all turns of its loops together.
const MAX_PLAIN: u64 = 1 << 30;
/// Values of a list.
const MAX_ITEMS: usize = 1 << 20;
/// What all values that are written may be together, in parts of the longest text: some are written to a variable first.
const REWRITES: u64 = 16;
/// Calls within calls.
const MAX_DEPTH: usize = 64;
/// Blanks that one filter may put in at once, and other sizes in a template.
const MAX_WIDTH: i64 = 4096;

/// A chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    /// Texts of special tokens that templates name: `bos_token`, `eos_token` and so on.
    tokens: Vec<(String, String)>,
    budget: Budget,
}

/// Bytes of values written so far.
struct Written(u64);

/// What a template is given besides the messages.
#[derive(Clone, Debug, Default)]
pub struct ChatOptions {
    /// Ends the text with what makes the model answer.
    pub add_generation_prompt: bool,
    /// Descriptions of functions that the model may call: a list of JSON schemas.
    pub tools: Option<Json>,
    /// Other variables, by name: `enable_thinking`, `documents` and what else a template knows.
    pub variables: Vec<(String, Json)>,
    /// The date and time that `strftime_now` writes; without it that function is an error.
    pub now: Option<DateTime>,
}

/// A date and time of day, in whichever zone the host tells time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DateTime {
    /// Year of the Gregorian calendar.
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 60.
    pub second: u32,
}

impl ChatTemplate {
    /// Compiles a template's source. Errors name the line.
    pub fn new(source: &str) -> Result<ChatTemplate> {
        ChatTemplate::within(source, Budget::default())
    }

    /// The same with another limit of what it writes, `template_bytes`.
    pub fn within(source: &str, budget: Budget) -> Result<ChatTemplate> {
        let limit = usize::try_from(budget.template_bytes).unwrap_or(usize::MAX);
        let (source, plain) = guard::guarded(&without_generation_marks(source));
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| wrong(&e))?);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_fuel(Some(MAX_STEPS.min(MAX_PLAIN / (plain as u64).max(1))));
        env.set_recursion_limit(MAX_DEPTH);
        env.set_formatter(move |out, state, v| {
            let sum = state.get_or_insert_extension(Written(0));
            sum.0 = sum.0.saturating_add(v.as_str().map_or(0, |s| s.len() as u64));
            if sum.0 > (limit as u64).saturating_mul(REWRITES) {
                return Err(too_long());
            }
            pystr::write(v, out).map_err(|_| too_long())
        });
        env.add_filter(guard::FILTER, move |v: Value| {
            let long = match v.kind() {
                ValueKind::String => v.as_str().is_some_and(|s| s.len() > limit),
                ValueKind::Seq | ValueKind::Iterable => v.len().is_some_and(|n| n > MAX_ITEMS),
                _ => false,
            };
            if long { Err(too_long()) } else { Ok(v) }
        });
        let replace = Value::from_function(filters::replace);
        env.add_filter("replace", move |state: &mut State<'_, '_>, args: Rest<Value>| {
            check_replaced(&args, limit)?;
            replace.call(state, &args)
        });
        let join = Value::from_function(filters::join);
        env.add_filter("join", move |state: &mut State<'_, '_>, args: Rest<Value>| {
            check_joined(&args, limit)?;
            join.call(state, &args)
        });
        env.set_unknown_method_callback(move |state, value, method, args| {
            let all = || std::iter::once(value).chain(args).cloned().collect::<Vec<_>>();
            match method {
                "format" => check_sizes(std::slice::from_ref(value))?,
                "replace" => check_replaced(&all(), limit)?,
                _ => {}
            }
            minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
        });
        env.add_function("raise_exception", |why: String| -> std::result::Result<Value, Fault> { Err(fault(why)) });
        // nothing is no list
        env.add_test("iterable", |v: Value| {
            matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::String)
        });
        env.add_filter("string", |v: Value| pystr::text(&v));
        env.add_filter("tojson", |v: Value, options: Kwargs| {
            let indent = options.get::<Option<usize>>("indent")?;
            if indent.is_some_and(|n| n as i64 > MAX_WIDTH) {
                return Err(too_large());
            }
            let _: Option<Value> = options.get("ensure_ascii")?;
            options.assert_all_used()?;
            pystr::json(&v, indent).map_err(|_| fault("this is too deep for JSON"))
        });
        limited(&mut env, "indent", Value::from_function(filters::indent));
        limited(&mut env, "batch", Value::from_function(filters::batch));
        limited(&mut env, "slice", Value::from_function(filters::slice));
        limited(&mut env, "format", Value::from_function(filters::format));
        limited(&mut env, "round", Value::from_function(filters::round));
        env.add_template_owned("chat", source).map_err(|e| wrong(&e))?;
        Ok(ChatTemplate { env, tokens: Vec::new(), budget })
    }

    /// Reads the `chat_template` of a `tokenizer_config.json`, and the special tokens there. Of several templates `name` chooses
    /// one, or `default`.
    pub fn from_config(file: &[u8], name: Option<&str>) -> Result<ChatTemplate> {
        let config = Json::parse(file)?;
        let template = config.get("chat_template").ok_or_else(|| err("the file has no chat_template"))?;
        let wanted = name.unwrap_or("default");
        let named = |t: &&Json| t.get("name").and_then(Json::as_str) == Some(wanted);
        let source = match template.as_array() {
            Some(list) => list.iter().find(named).and_then(|t| t.get("template")),
            None => Some(template),
        };
        let source = source.and_then(Json::as_str).ok_or_else(|| err(format!("there is no template `{wanted}`")))?;
        let mut out = ChatTemplate::new(source)?;
        for (key, value) in config.as_object().unwrap_or_default().iter().filter(|(k, _)| k.ends_with("_token")) {
            if let Some(text) = value.as_str().or_else(|| value.get("content")?.as_str()) {
                out.tokens.push((key.clone(), text.to_owned()));
            }
        }
        Ok(out)
    }

    /// Reads the template in a GGUF file's metadata.
    pub fn from_gguf(file: &Gguf) -> Result<ChatTemplate> {
        let source = file.get("tokenizer.chat_template").and_then(Meta::as_str);
        let mut out = ChatTemplate::new(source.ok_or_else(|| err("the file has no chat template"))?)?;
        let tokens = file.get("tokenizer.ggml.tokens").and_then(Meta::as_strings).unwrap_or_default();
        for name in ["bos", "eos", "unk", "pad"] {
            let key = if name == "unk" {
                "unknown"
            } else if name == "pad" {
                "padding"
            } else {
                name
            };
            let id = file.get(&format!("tokenizer.ggml.{key}_token_id")).and_then(Meta::as_u64);
            if let Some(text) = id.and_then(|i| tokens.get(usize::try_from(i).ok()?)) {
                out.tokens.push((format!("{name}_token"), text.clone()));
            }
        }
        Ok(out)
    }

    /// Sets a special token's text, such as `bos_token`.
    pub fn set_token(&mut self, name: &str, text: &str) {
        self.tokens.retain(|t| t.0 != name);
        self.tokens.push((name.to_owned(), text.to_owned()));
    }

    /// The text of messages: a list of objects with `role` and `content`, and what else the template knows. Encode it
    /// without special tokens: the template writes them itself.
    pub fn apply(&self, messages: &Json, options: &ChatOptions) -> Result<String> {
        if messages.as_array().is_none() {
            return Err(err("the messages are no list"));
        }
        let now = options.now;
        let clock = move |format: String| match now {
            Some(now) => Ok(now.format(&format)),
            None => Err(fault("the template asks for the date, and none is given")),
        };
        let tokens = self.tokens.iter().map(|(k, v)| (k.clone(), Value::from(v.clone())));
        let variables = options.variables.iter().map(|(k, v)| (k.clone(), value(v)));
        let own = [
            ("messages".to_owned(), value(messages)),
            ("add_generation_prompt".to_owned(), Value::from(options.add_generation_prompt)),
            ("tools".to_owned(), options.tools.as_ref().map_or(Value::from(()), value)),
            ("strftime_now".to_owned(), Value::from_function(clock)),
        ];
        let context = Value::from_pairs(tokens.chain(own).chain(variables));
        let template = self.env.get_template("chat").map_err(|e| wrong(&e))?;
        // the engine panics on some templates (it cuts an empty text backwards, for one), and a template is anybody's
        let run = || {
            let mut text = Limited { text: Vec::new(), limit: self.budget.template_bytes, wanted: 0 };
            let done = template.render_captured_to(context, &mut text).map(drop).map_err(|e| wrong(&e));
            // the text itself was too long, whatever the engine says of it
            self.budget.template_bytes(text.wanted).grant()?;
            done.map(|()| text.text)
        };
        let text = catch_unwind(AssertUnwindSafe(run)).map_err(|_| err("the template engine failed"))??;
        String::from_utf8(text).map_err(|_| err("the template wrote no text"))
    }
}

impl DateTime {
    /// The date as C's `strftime` writes it, in English. Letters that it does not know stay.
    fn format(&self, format: &str) -> String {
        const MONTHS: [&str; 12] = [
            "January",
            "February",
            "March",
            "April",
            "May",
            "June",
            "July",
            "August",
            "September",
            "October",
            "November",
            "December",
        ];
        const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
        let month = MONTHS[(self.month.clamp(1, 12) - 1) as usize];
        // Zeller's congruence with March as the first month
        let (y, m) = if self.month < 3 { (self.year - 1, self.month + 12) } else { (self.year, self.month) };
        let day = self.day as i32 + (13 * (m as i32 + 1)) / 5 + y + y.div_euclid(4) - y.div_euclid(100)
            + y.div_euclid(400)
            - 1;
        let day = DAYS[day.rem_euclid(7) as usize];
        let hour = (self.hour + 11) % 12 + 1;
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('Y') => out += &self.year.to_string(),
                Some('y') => out += &format!("{:02}", self.year.rem_euclid(100)),
                Some('m') => out += &format!("{:02}", self.month),
                Some('d') => out += &format!("{:02}", self.day),
                Some('e') => out += &format!("{:2}", self.day),
                Some('H') => out += &format!("{:02}", self.hour),
                Some('I') => out += &format!("{hour:02}"),
                Some('M') => out += &format!("{:02}", self.minute),
                Some('S') => out += &format!("{:02}", self.second),
                Some('p') => out += if self.hour < 12 { "AM" } else { "PM" },
                Some('B') => out += month,
                Some('b' | 'h') => out += &month[..3],
                Some('A') => out += day,
                Some('a') => out += &day[..3],
                Some('F') => out += &self.format("%Y-%m-%d"),
                Some('T') => out += &self.format("%H:%M:%S"),
                Some('%') => out.push('%'),
                other => out.extend(['%'].into_iter().chain(other)),
            }
        }
        out
    }
}

/// Where a template writes, up to a limit.
struct Limited {
    text: Vec<u8>,
    limit: u64,
    /// The length with what was refused.
    wanted: u64,
}

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.wanted = self.text.len() as u64 + bytes.len() as u64;
        if self.wanted > self.limit {
            return Err(std::io::Error::other("the text is too long"));
        }
        self.text.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Puts a limit before a filter that makes as much as its arguments say.
fn limited(env: &mut Environment<'static>, name: &'static str, filter: Value) {
    env.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<Value>| {
        check_sizes(if name == "format" { &args } else { &args[args.len().min(1)..] })?;
        filter.call(state, &args)
    });
}

/// Refuses numbers, and numbers in formats, that are absurd as sizes.
fn check_sizes(args: &[Value]) -> std::result::Result<(), Fault> {
    for a in args {
        let large = match a.kind() {
            ValueKind::Number => a.as_i64().is_none_or(|n| n > MAX_WIDTH),
            ValueKind::String => {
                a.as_str().is_some_and(|t| t.as_bytes().windows(5).any(|w| w.iter().all(u8::is_ascii_digit)))
            }
            ValueKind::Map if a.is_kwargs() => {
                let keys = a.try_iter()?;
                for k in keys {
                    check_sizes(&[a.get_item(&k)?])?;
                }
                false
            }
            _ => false,
        };
        if large {
            return Err(too_large());
        }
    }
    Ok(())
}

/// Refuses `text.replace(from, to)` whose result is too long: every place may grow.
fn check_replaced(args: &[Value], limit: usize) -> std::result::Result<(), Fault> {
    let mut texts = args.iter().map(|a| a.as_str().unwrap_or_default());
    let (text, from, to) = (texts.next(), texts.next(), texts.next());
    let (Some(text), Some(from), Some(to)) = (text, from, to) else { return Ok(()) };
    let places = text.matches(from).count();
    let most = places.checked_mul(to.len()).and_then(|n| n.checked_add(text.len()));
    if most.is_none_or(|n| n > limit) { Err(too_long()) } else { Ok(()) }
}

/// Refuses a list whose texts, joined, are too long.
fn check_joined(args: &[Value], limit: usize) -> std::result::Result<(), Fault> {
    let (Some(list), between) = (args.first(), args.get(1).and_then(Value::as_str).unwrap_or_default()) else {
        return Ok(());
    };
    let mut sum = 0usize;
    for item in list.try_iter()? {
        sum = sum.saturating_add(between.len() + item.as_str().map_or(1, str::len));
        if sum > limit {
            return Err(too_long());
        }
    }
    Ok(())
}

fn too_long() -> Fault {
    fault("a text or a list in the template is too long")
}

fn too_large() -> Fault {
    fault("a size in the template is too large")
}

fn fault(why: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(ErrorKind::InvalidOperation, why)
}

fn err(what: impl Into<String>) -> Error {
    Error::format("chat template", what, None)
}

fn wrong(e: &Fault) -> Error {
    let what = e.detail().map_or_else(|| e.kind().to_string(), str::to_owned);
    err(e.line().map_or_else(|| what.clone(), |line| format!("{what} (line {line})")))
}

/// `{% generation %}` marks what the model wrote, for training: the text is the same without.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some((tag, after)) = rest[start + 2..].split_once("%}") else { break };
        let word = tag.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
        out.push_str(&rest[..start + 2]);
        match word {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        out.push_str("%}");
        rest = after;
    }
    out + rest
}

fn value(j: &Json) -> Value {
    match j {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Int(i) => Value::from(*i),
        Json::Float(f) => Value::from(*f),
        Json::Str(s) => Value::from(s.as_str()),
        Json::Array(a) => a.iter().map(value).collect(),
        Json::Object(o) => Value::from_pairs(o.iter().map(|(k, v)| (k.clone(), value(v)))),
    }
}
