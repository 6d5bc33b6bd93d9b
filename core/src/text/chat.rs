//! Chat templates: they turn a list of messages into the text format that a model was trained on. A template is a Jinja
//! program from a model's file, so it is untrusted: it has no access to files or clocks, and there are limits of its
//! steps, its nesting, its output, and the length of every intermediate text (`guard.rs`).
//!
//! Implements what Hugging Face's `apply_chat_template` adds to Jinja: `raise_exception`, `strftime_now`, `tojson` in
//! Python's format, `{% generation %}`, and the methods of Python's strings, lists and dicts.

use super::{guard, pystr};
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::io::gguf::{Gguf, Value as Meta};
use crate::io::json::Json;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error as Fault, ErrorKind, State, Value, filters};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most instructions that a template may execute.
const MAX_STEPS: u64 = 1_000_000;
/// The most bytes of literal text (between tags) that a template may write in total, over all iterations of its loops.
const MAX_PLAIN: u64 = 1 << 30;
/// The most items of a list.
const MAX_ITEMS: usize = 1 << 20;
/// The limit of all values that are written, as a multiple of the longest allowed output. It is above 1 because some
/// values are first written to a variable and then again to the output.
const REWRITES: u64 = 16;
/// The deepest nesting of calls.
const MAX_DEPTH: usize = 64;
/// The largest size argument of a filter, such as the spaces of an indentation.
const MAX_WIDTH: i64 = 4096;

/// A chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    /// Names and texts of the special tokens that templates refer to: `bos_token`, `eos_token` and so on.
    tokens: Vec<(String, String)>,
    budget: Budget,
}

/// The number of bytes of values that were written so far.
struct Written(u64);

/// The inputs of a template besides the messages.
#[derive(Clone, Debug, Default)]
pub struct ChatOptions {
    /// Ends the text with the prefix after which the model writes its answer.
    pub add_generation_prompt: bool,
    /// Descriptions of the functions that the model may call: a list of JSON schemas.
    pub tools: Option<Json>,
    /// Further variables by name: `enable_thinking`, `documents` and whatever else a template reads.
    pub variables: Vec<(String, Json)>,
    /// The date and time for `strftime_now`; without it a call of that function is an error.
    pub now: Option<DateTime>,
}

/// A date and time of day in the host's time zone.
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

    /// As [`ChatTemplate::new`], with the limit of the output from `budget.template_bytes`.
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
        // In Python's Jinja, undefined and None are not iterable
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

    /// Reads the `chat_template` of a `tokenizer_config.json`, and the special tokens there. If there are several
    /// templates, `name` selects one, or `default` without a name.
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

    /// Sets the text of a special token such as `bos_token`.
    pub fn set_token(&mut self, name: &str, text: &str) {
        self.tokens.retain(|t| t.0 != name);
        self.tokens.push((name.to_owned(), text.to_owned()));
    }

    /// Formats messages: a list of objects with `role`, `content` and whatever else the template reads. Encode the text
    /// without special tokens, because the template writes them itself.
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
        // The engine panics on some templates (for one, when it slices an empty string backwards), and
        // templates are untrusted
        let run = || {
            let mut text = Limited { text: Vec::new(), limit: self.budget.template_bytes, wanted: 0 };
            let done = template.render_captured_to(context, &mut text).map(drop).map_err(|e| wrong(&e));
            // If the output was too long, that is the error, whatever the engine reports
            self.budget.template_bytes(text.wanted).grant()?;
            done.map(|()| text.text)
        };
        let text = catch_unwind(AssertUnwindSafe(run)).map_err(|_| err("the template engine failed"))??;
        String::from_utf8(text).map_err(|_| err("the template wrote no text"))
    }
}

impl DateTime {
    /// Formats the date like C's `strftime`, in English. Unknown letters are copied.
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
        // Zeller's congruence, with March as the first month
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

/// A template's output, up to a limit.
struct Limited {
    text: Vec<u8>,
    limit: u64,
    /// The length including the part that was refused.
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

/// Registers a filter with a check of its size arguments before each call.
fn limited(env: &mut Environment<'static>, name: &'static str, filter: Value) {
    env.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<Value>| {
        check_sizes(if name == "format" { &args } else { &args[args.len().min(1)..] })?;
        filter.call(state, &args)
    });
}

/// Refuses numbers, and numbers within format strings, that are absurdly large as sizes.
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

/// Refuses `text.replace(from, to)` if the result would be too long.
fn check_replaced(args: &[Value], limit: usize) -> std::result::Result<(), Fault> {
    let mut texts = args.iter().map(|a| a.as_str().unwrap_or_default());
    let (text, from, to) = (texts.next(), texts.next(), texts.next());
    let (Some(text), Some(from), Some(to)) = (text, from, to) else { return Ok(()) };
    let places = text.matches(from).count();
    let most = places.checked_mul(to.len()).and_then(|n| n.checked_add(text.len()));
    if most.is_none_or(|n| n > limit) { Err(too_long()) } else { Ok(()) }
}

/// Refuses to join a list of texts if the result would be too long.
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

/// `{% generation %}` encloses what the model wrote, for training. Replaces it by a condition that is always true,
/// which writes the same text.
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
