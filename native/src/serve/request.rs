//! Parses and checks the bodies of requests. Fields that ask for something unsupported are refused by name;
//! unknown fields are ignored.

use super::Shared;
use super::reply::{Form, Refusal};
use crate::io::json::Json;
use crate::llm::{Calls, Grammar, Matcher, Sampler, SamplingOptions, Vocabulary};
use crate::text::{self, ChatOptions, Tokenizer};
use std::sync::Arc;

pub(super) type Checked<T> = Result<T, Refusal>;

/// The most stop strings of a request.
const MOST_STOPS: usize = 16;
/// The most texts of an embeddings request.
const MOST_INPUTS: usize = 2048;
/// The most answers of a request.
const MOST_ANSWERS: usize = 128;
/// The most `top_logprobs` for chats and for completions.
const MOST_BEST: [usize; 2] = [20, 5];

/// How a text is to be generated.
pub(super) struct Ask {
    pub(super) sampling: SamplingOptions,
    pub(super) stops: Vec<String>,
    /// The most tokens to generate.
    pub(super) most: Option<usize>,
    /// Whether the answer is sent as a stream of events.
    pub(super) stream: bool,
    /// Whether a stream ends with an event that counts tokens.
    pub(super) usage: bool,
    /// Whether to continue after tokens that end a text.
    pub(super) ignore_end: bool,
    /// Whether tokens are guessed from repetitions.
    pub(super) guess: bool,
    /// The grammar of the text.
    pub(super) form: Option<Arc<Grammar>>,
    /// The number of answers to each prompt.
    pub(super) answers: usize,
    /// How many of the most likely tokens are reported with each generated token, if log probabilities are wanted.
    pub(super) logprobs: Option<usize>,
    /// Descriptions of the functions that may be called.
    pub(super) tools: Option<Json>,
}

/// The fields of a body.
pub(super) struct Fields<'a>(&'a Json);

impl<'a> Fields<'a> {
    pub(super) fn new(body: &'a Json) -> Checked<Fields<'a>> {
        match body {
            Json::Object(_) => Ok(Fields(body)),
            _ => Err(Refusal::new(400, "invalid_request_error", "the body is no JSON object")),
        }
    }

    /// The value of a field that is present and not null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Json> {
        self.0.get(name).filter(|v| !matches!(v, Json::Null))
    }

    pub(super) fn need(&self, name: &str) -> Checked<&'a Json> {
        self.get(name).ok_or_else(|| Refusal::field(name, format!("`{name}` is missing")))
    }

    fn number(&self, name: &str, low: f64, high: f64) -> Checked<Option<f64>> {
        let Some(v) = self.get(name) else { return Ok(None) };
        match v.as_f64() {
            Some(x) if (low..=high).contains(&x) => Ok(Some(x)),
            _ => Err(Refusal::field(name, format!("`{name}` is no number from {low} to {high}"))),
        }
    }

    pub(super) fn count(&self, name: &str, least: u64) -> Checked<Option<usize>> {
        let Some(v) = self.get(name) else { return Ok(None) };
        let n = v.as_u64().filter(|n| *n >= least).and_then(|n| usize::try_from(n).ok());
        n.map(Some).ok_or_else(|| Refusal::field(name, format!("`{name}` is no whole number of at least {least}")))
    }

    pub(super) fn flag(&self, name: &str) -> Checked<bool> {
        match self.get(name) {
            None => Ok(false),
            Some(Json::Bool(b)) => Ok(*b),
            Some(_) => Err(Refusal::field(name, format!("`{name}` is neither true nor false"))),
        }
    }

    pub(super) fn text(&self, name: &str) -> Checked<Option<&'a str>> {
        let Some(v) = self.get(name) else { return Ok(None) };
        v.as_str().map(Some).ok_or_else(|| Refusal::field(name, format!("`{name}` is no string")))
    }

    /// Refuses a field that asks for something unsupported. The value `nothing` asks for nothing and is accepted.
    fn without(&self, name: &str, nothing: &Json) -> Checked<()> {
        match self.get(name) {
            Some(v) if v != nothing => {
                Err(Refusal::field(name, format!("`{name}` is not supported")).code("unsupported"))
            }
            _ => Ok(()),
        }
    }
}

/// The name of the model with an adapter.
pub(super) fn adapted(shared: &Shared, adapter: &str) -> String {
    format!("{}:{adapter}", shared.name)
}

/// Checks that the requested model is the one that is served; the adapter that it is to have, by the model's name
/// (`name:adapter`) or the field `lora`, in which an empty text means none.
pub(super) fn model(f: &Fields<'_>, shared: &Shared) -> Checked<Option<String>> {
    f.need("model")?;
    let name = f.text("model")?.unwrap_or_default();
    let named = match name == shared.name {
        true => None,
        false => Some(shared.adapters.iter().find(|a| adapted(shared, a) == name).ok_or_else(|| no_model(name))?),
    };
    match (f.text("lora")?, named) {
        (None, None) => Ok(shared.adapter.clone()),
        (Some(""), None) => Ok(None),
        (None, Some(adapter)) => Ok(Some(adapter.clone())),
        (Some(lora), named) if named.is_none_or(|named| named == lora) => {
            match shared.adapters.iter().any(|a| a == lora) {
                true => Ok(Some(lora.to_owned())),
                false => Err(Refusal::field("lora", format!("there is no adapter `{lora}`"))),
            }
        }
        (Some(lora), _) => Err(Refusal::field("lora", format!("`lora` is `{lora}`, and the model is `{name}`"))),
    }
}

/// The documents of a reranking request, each a text or an object with a `text`.
pub(super) fn documents(f: &Fields<'_>) -> Checked<Vec<String>> {
    let wrong = || Refusal::field("documents", format!("`documents` is no list of texts, {MOST_INPUTS} at most"));
    let list = f.need("documents")?.as_array().filter(|l| !l.is_empty() && l.len() <= MOST_INPUTS);
    let one = |d: &Json| d.as_str().or_else(|| d.get("text").and_then(Json::as_str)).map(str::to_owned);
    list.ok_or_else(wrong)?.iter().map(|d| one(d).ok_or_else(wrong)).collect()
}

pub(super) fn no_model(name: &str) -> Refusal {
    let e = Refusal::new(404, "invalid_request_error", format!("the model `{name}` is not served here"));
    Refusal { param: Some("model".into()), ..e }.code("model_not_found")
}

/// Parses the fields that chats and completions have in common.
pub(super) fn ask(f: &Fields<'_>, shared: &Shared, kind: Form) -> Checked<Ask> {
    for (name, nothing) in [
        ("echo", Json::Bool(false)),
        ("suffix", Json::Str(String::new())),
        ("functions", Json::Array(Vec::new())),
        ("audio", Json::Bool(false)),
    ] {
        f.without(name, &nothing)?;
    }
    let answers = f.count("n", 1)?.unwrap_or(1);
    if answers > MOST_ANSWERS {
        return Err(Refusal::field("n", format!("{MOST_ANSWERS} answers at most are made for a request")));
    }
    // A larger value would ask for the best of several answers
    f.without("best_of", &Json::Int(answers as i64))?;
    let one = |x: f64, old: f64| if x == 0.0 { old } else { x };
    let seed = match f.get("seed") {
        None => random(),
        Some(Json::Int(i)) => *i as u64,
        Some(_) => return Err(Refusal::field("seed", "`seed` is no whole number")),
    };
    let sampling = SamplingOptions {
        temperature: f.number("temperature", 0.0, 2.0)?.unwrap_or(1.0),
        top_p: one(f.number("top_p", 0.0, 1.0)?.unwrap_or(1.0), f64::MIN_POSITIVE),
        top_k: f.count("top_k", 0)?.unwrap_or(0),
        min_p: f.number("min_p", 0.0, 1.0)?.unwrap_or(0.0),
        presence: f.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        frequency: f.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        repetition: f.number("repetition_penalty", 0.01, 100.0)?.unwrap_or(1.0),
        bias: bias(f, shared.vocabulary)?,
        seed,
    };
    Sampler::new(&sampling)?;
    let most = match f.count("max_completion_tokens", 1)? {
        Some(n) => Some(n),
        None => f.count("max_tokens", 1)?,
    };
    if most.is_some_and(|n| n > shared.limits.tokens) {
        let most = shared.limits.tokens;
        return Err(Refusal::field("max_tokens", format!("{most} tokens at most are made for a request")));
    }
    let usage = match f.get("stream_options") {
        None => false,
        Some(o) => Fields::new(o)?.flag("include_usage")?,
    };
    let stream = f.flag("stream")?;
    let mut form = form(f)?;
    if let Some(text) = f.text("grammar")? {
        if form.is_some() {
            return Err(Refusal::field("grammar", "`grammar` together with `response_format`").code("unsupported"));
        }
        let made = Grammar::from_gbnf(text);
        form = Some(made.map_err(|e| Refusal { param: Some("grammar".into()), ..Refusal::from(e) })?);
    }
    let (tools, grammar) = match kind {
        Form::Chat => tools(f)?,
        Form::Text => (None, None),
    };
    if grammar.is_some() && form.is_some() {
        let what = "`response_format` or `grammar` together with `tools` is not supported";
        return Err(Refusal::field("response_format", what).code("unsupported"));
    }
    form = form.or(grammar);
    let form = form.map(Arc::new);
    // A grammar that no text fits is refused at once
    form.as_ref().map(|g| matcher(g, shared)).transpose()?;
    let (ignore_end, guess) = (f.flag("ignore_eos")?, f.flag("guess")?);
    let logprobs = logprobs(f, kind)?;
    Ok(Ask { sampling, stops: stops(f)?, most, stream, usage, ignore_end, guess, form, answers, logprobs, tools })
}

/// A matcher of a grammar, at the beginning of a text.
pub(super) fn matcher(grammar: &Arc<Grammar>, shared: &Shared) -> Checked<Matcher> {
    let vocabulary = shared.bytes.get_or_init(|| Arc::new(Vocabulary::new(&shared.tokenizer, shared.vocabulary)));
    Ok(Matcher::new(grammar, vocabulary)?)
}

/// Log probabilities. In a chat `logprobs` is a flag and `top_logprobs` the number; in a completion
/// `logprobs` is the number.
fn logprobs(f: &Fields<'_>, kind: Form) -> Checked<Option<usize>> {
    let [chat, text] = MOST_BEST;
    let (name, most, wanted) = match kind {
        Form::Chat => ("top_logprobs", chat, f.flag("logprobs")?),
        Form::Text => ("logprobs", text, true),
    };
    let Some(n) = f.count(name, 0)? else {
        return Ok((wanted && kind == Form::Chat).then_some(0));
    };
    match () {
        () if n > most => Err(Refusal::field(name, format!("`{name}` is {n}, {most} at most"))),
        () if !wanted && n > 0 => Err(Refusal::field(name, "`top_logprobs` needs `logprobs`")),
        () => Ok(wanted.then_some(n)),
    }
}

/// The descriptions of functions for the chat template, and the grammar of their calls.
fn tools(f: &Fields<'_>) -> Checked<(Option<Json>, Option<Grammar>)> {
    let wrong = |what: &str| Refusal::field("tool_choice", format!("`tool_choice` {what}"));
    let several = f.get("parallel_tool_calls").is_none() || f.flag("parallel_tool_calls")?;
    let list = f.get("tools").filter(|l| l.as_array().is_none_or(|l| !l.is_empty()));
    let calls = match f.get("tool_choice") {
        None => Calls::May,
        Some(Json::Str(s)) => match s.as_str() {
            "none" => return Ok((None, None)),
            "auto" => Calls::May,
            "required" => Calls::Must,
            _ => return Err(wrong("is not none, auto, required or a function")),
        },
        Some(choice) => {
            let name = choice.get("function").and_then(|f| f.get("name")).and_then(Json::as_str);
            Calls::This(name.ok_or_else(|| wrong("is not none, auto, required or a function"))?.to_owned())
        }
    };
    let Some(list) = list else {
        return match calls {
            Calls::May => Ok((None, None)),
            _ => Err(wrong("needs `tools`")),
        };
    };
    let made = Grammar::from_tools(list, &calls, several);
    let grammar = made.map_err(|e| Refusal { param: Some("tools".into()), ..Refusal::from(e) })?;
    Ok((Some(list.clone()), Some(grammar)))
}

/// Parses `{"type": "text"}`, `{"type": "json_object"}` or `{"type": "json_schema", "json_schema": {"schema": ..}}`.
fn form(f: &Fields<'_>) -> Checked<Option<Grammar>> {
    let name = "response_format";
    let wrong = |what: &str| Refusal::field(name, format!("`{name}` {what}"));
    let Some(wanted) = f.get(name) else { return Ok(None) };
    let grammar = match wanted.get("type").and_then(Json::as_str) {
        Some("text") => return Ok(None),
        Some("json_object") => Grammar::json_object(),
        Some("json_schema") => {
            let schema = wanted.get("json_schema").and_then(|j| j.get("schema"));
            Grammar::from_schema(schema.ok_or_else(|| wrong("has no `json_schema.schema`"))?)
        }
        _ => return Err(wrong("has a `type` that is not text, json_object or json_schema")),
    };
    grammar.map(Some).map_err(|e| Refusal { param: Some(name.into()), ..Refusal::from(e) })
}

fn bias(f: &Fields<'_>, vocabulary: usize) -> Checked<Vec<(u32, f32)>> {
    let wrong = |what: &str| Refusal::field("logit_bias", format!("`logit_bias` {what}"));
    let Some(map) = f.get("logit_bias") else { return Ok(Vec::new()) };
    let map = map.as_object().ok_or_else(|| wrong("is no object"))?;
    let one = |(token, by): &(String, Json)| {
        let token: u32 = token.parse().map_err(|_| wrong("has a key that is no token's number"))?;
        if token as usize >= vocabulary {
            return Err(wrong(&format!("has the token {token}, there are {vocabulary}")));
        }
        let by = by.as_f64().filter(|b| (-100.0..=100.0).contains(b));
        let by = by.ok_or_else(|| wrong("has a value that is no number from -100 to 100"))?;
        // The lowest value means never
        Ok((token, if by == -100.0 { f32::NEG_INFINITY } else { by as f32 }))
    };
    map.iter().map(one).collect()
}

fn stops(f: &Fields<'_>) -> Checked<Vec<String>> {
    let wrong = || Refusal::field("stop", format!("`stop` is neither a string nor a list of {MOST_STOPS} at most"));
    match f.get("stop") {
        None => Ok(Vec::new()),
        Some(Json::Str(s)) => Ok(vec![s.clone()]),
        Some(Json::Array(list)) if list.len() <= MOST_STOPS => {
            list.iter().map(|s| s.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// The tokens of a chat's messages together with descriptions of functions.
pub(super) fn chat(f: &Fields<'_>, shared: &Shared, tools: Option<&Json>) -> Checked<Vec<u32>> {
    let none = || Refusal::field("messages", "the model has no chat template that is known").code("unsupported");
    let template = shared.chat.as_ref().ok_or_else(none)?;
    let wrong = |i: usize, what: &str| Refusal::field("messages", format!("`messages[{i}]` {what}"));
    let list = f.need("messages")?.as_array().filter(|l| !l.is_empty());
    let list = list.ok_or_else(|| Refusal::field("messages", "`messages` is no list of at least one"))?;
    let mut messages = Vec::new();
    for (i, m) in list.iter().enumerate() {
        let role = m.get("role").and_then(Json::as_str).ok_or_else(|| wrong(i, "has no `role`"))?;
        let content = match m.get("content") {
            Some(Json::Str(s)) => s.clone(),
            Some(Json::Array(parts)) => {
                let text = |p: &Json| match p.get("type").and_then(Json::as_str) {
                    Some("text") => p.get("text").and_then(Json::as_str).map(str::to_owned),
                    _ => None,
                };
                let parts = parts.iter().map(|p| text(p).ok_or_else(|| wrong(i, "has a part that is no text")));
                parts.collect::<Checked<Vec<_>>>()?.concat()
            }
            None | Some(Json::Null) => String::new(),
            Some(_) => return Err(wrong(i, "has a `content` that is no text")),
        };
        // A newer name of an old role
        let role = if role == "developer" { "system" } else { role };
        let mut fields = m.as_object().unwrap_or_default().to_vec();
        fields.retain(|(k, _)| k != "role" && k != "content");
        fields.iter_mut().filter(|(k, _)| k == "tool_calls").for_each(|(_, calls)| *calls = called(calls));
        fields.extend([("role".into(), Json::Str(role.into())), ("content".into(), Json::Str(content))]);
        messages.push(Json::Object(fields));
    }
    let (tools, now) = (tools.cloned(), Some(text::now()));
    let options = ChatOptions { add_generation_prompt: true, tools, now, ..ChatOptions::default() };
    let text = template.apply(&Json::Array(messages), &options)?;
    // The template writes the special tokens itself
    Ok(shared.tokenizer.encode_with(&text, None, false)?.ids)
}

/// Earlier calls: their arguments arrive as text, but templates expect objects.
fn called(calls: &Json) -> Json {
    let Some(list) = calls.as_array() else { return calls.clone() };
    let with = |of: &Json, name: &str, value: Json| {
        let mut fields = of.as_object().unwrap_or_default().to_vec();
        fields.iter_mut().filter(|(k, _)| k == name).for_each(|(_, v)| *v = value.clone());
        Json::Object(fields)
    };
    let one = |call: &Json| {
        let function = call.get("function")?;
        let arguments = Json::parse(function.get("arguments")?.as_str()?.as_bytes()).ok()?;
        Some(with(call, "function", with(function, "arguments", arguments)))
    };
    Json::Array(list.iter().map(|call| one(call).unwrap_or_else(|| call.clone())).collect())
}

/// The tokens of a completion's prompts, which are given as text or as tokens.
pub(super) fn prompts(f: &Fields<'_>, shared: &Shared) -> Checked<Vec<Vec<u32>>> {
    texts(f, "prompt", shared)
}

/// The tokens of the texts to embed.
pub(super) fn inputs(f: &Fields<'_>, shared: &Shared) -> Checked<Vec<Vec<u32>>> {
    f.without("dimensions", &Json::Null)?;
    let all = texts(f, "input", shared)?;
    let fits = |ids: &Vec<u32>| !ids.is_empty() && ids.len() <= shared.capacity;
    match all.iter().all(fits) {
        true => Ok(all),
        false => Err(Refusal::field("input", format!("a text has no token, or more than {}", shared.capacity))),
    }
}

/// Parses one or more texts, given as strings or as lists of tokens.
fn texts(f: &Fields<'_>, name: &str, shared: &Shared) -> Checked<Vec<Vec<u32>>> {
    let wrong =
        || Refusal::field(name, format!("`{name}` is neither text nor tokens, nor a list of {MOST_INPUTS} at most"));
    let v = f.need(name)?;
    match v {
        Json::Str(s) => Ok(vec![encode(&shared.tokenizer, s)?]),
        Json::Array(list) if matches!(list.first(), Some(Json::Int(_))) => Ok(vec![tokens(name, list, shared)?]),
        Json::Array(list) if !list.is_empty() && list.len() <= MOST_INPUTS => {
            let one = |v: &Json| match v {
                Json::Str(s) => encode(&shared.tokenizer, s),
                Json::Array(list) => tokens(name, list, shared),
                _ => Err(wrong()),
            };
            list.iter().map(one).collect()
        }
        _ => Err(wrong()),
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Checked<Vec<u32>> {
    Ok(tokenizer.encode(text)?)
}

fn tokens(name: &str, list: &[Json], shared: &Shared) -> Checked<Vec<u32>> {
    let wrong = || Refusal::field(name, format!("`{name}` has what is no token, there are {}", shared.vocabulary));
    let one = |v: &Json| v.as_u64().filter(|t| *t < shared.vocabulary as u64).map(|t| t as u32).ok_or_else(wrong);
    list.iter().map(one).collect()
}

/// A random number.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
