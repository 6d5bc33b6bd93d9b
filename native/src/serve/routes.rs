//! The endpoints: a request is checked, waits for the model, and is answered as a whole or as server-sent events
//! (`html.spec.whatwg.org/multipage/server-sent-events.html`).

use super::engine::{Done, Event, Job, LogProb, Work};
use super::reply::{Form, Refusal, body, count, object, seconds, text, write};
use super::request::{self, Checked, Fields};
use super::vectors::{self, other_use};
use super::{Serves, Shared};
use crate::access::check;
use crate::io::json::Json;
use crate::llm::{Call, Splitter};
use crate::page;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The page for people.
const PAGE: &str = include_str!("page.html");
/// The time limit for receiving a body.
const BODY_TIME: Duration = Duration::from_secs(30);

pub(super) type App = State<Arc<Shared>>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let none = || async { Refusal::new(404, "invalid_request_error", "there is no such address").code("unknown_url") };
    let other = || async { Refusal::new(405, "invalid_request_error", "this address takes another method") };
    let access = Arc::new(shared.limits.access.clone());
    let foreign = |what| Refusal::new(403, "permission_error", what).code("host_not_allowed");
    Router::new()
        .route("/", get(index))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/v1/chat/completions", post(|s: App, r: Request| answered(s, r, Form::Chat)))
        .route("/v1/completions", post(|s: App, r: Request| answered(s, r, Form::Text)))
        .route("/v1/embeddings", post(vectors::embeddings))
        .route("/v1/rerank", post(vectors::rerank))
        .fallback(none)
        .method_not_allowed_fallback(other)
        .layer(from_fn(move |r, next| check(access.clone(), foreign, r, next)))
        .with_state(shared)
}

/// A page for people: a chat with the model, or texts by their relevance.
async fn index(State(s): App) -> Response {
    let serves = match (s.serves, &s.chat) {
        (Serves::Text, Some(_)) => "chat",
        (Serves::Text, None) => "text",
        (Serves::Vectors, _) => "vectors",
        (Serves::Scores, _) => "scores",
    };
    page::html(PAGE.replacen("SERVES", serves, 1))
}

async fn health(State(s): App) -> Response {
    match s.work.is_closed() {
        false => body(StatusCode::OK, &object(vec![("status", text("ok"))])),
        true => Refusal::new(503, "server_error", "the model's thread has ended").into_response(),
    }
}

async fn metrics(State(s): App) -> Response {
    let waiting = s.work.max_capacity() - s.work.capacity();
    let mut r = Response::new(Body::from(s.metrics.text(waiting)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    r.headers_mut().insert(header::CONTENT_TYPE, kind);
    r
}

/// A model, or the model with an adapter.
fn card(s: &Shared, name: &str) -> Json {
    object(vec![
        ("id", text(name)),
        ("object", text("model")),
        ("created", Json::Int(s.created as i64)),
        ("owned_by", text("gradloom")),
        ("context_length", count(s.capacity)),
    ])
}

async fn models(State(s): App) -> Response {
    let adapted = s.adapters.iter().map(|a| card(&s, &request::adapted(&s, a)));
    let all = std::iter::once(card(&s, &s.name)).chain(adapted).collect();
    let list = object(vec![("object", text("list")), ("data", Json::Array(all))]);
    body(StatusCode::OK, &list)
}

async fn model(State(s): App, Path(name): Path<String>) -> Response {
    match name == s.name || s.adapters.iter().any(|a| request::adapted(&s, a) == name) {
        true => body(StatusCode::OK, &card(&s, &name)),
        false => request::no_model(&name).into_response(),
    }
}

/// Reads the body of a request as JSON.
pub(super) async fn json(s: &Shared, r: Request) -> Checked<Json> {
    let large = || {
        let most = s.limits.body_bytes;
        Refusal::new(413, "invalid_request_error", format!("the body has more than {most} bytes"))
            .code("body_too_large")
    };
    let kind = r.headers().get(header::CONTENT_TYPE).and_then(|k| k.to_str().ok()).unwrap_or_default();
    // Pages of other origins cannot send this content type without a preflight request
    if !kind.split(';').next().is_some_and(|k| k.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Refusal::new(415, "invalid_request_error", "the body's content type is not application/json"));
    }
    let length = r.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|n| n > s.limits.body_bytes as u64) {
        return Err(large());
    }
    let slow = |_| Refusal::new(408, "timeout_error", "the body did not come in time").code("timeout");
    let bytes = tokio::time::timeout(BODY_TIME, to_bytes(r.into_body(), s.limits.body_bytes)).await.map_err(slow)?;
    let bytes = bytes.map_err(|_| large())?;
    Json::parse(&bytes).map_err(|e| Refusal::new(400, "invalid_request_error", e.to_string()).code("invalid_json"))
}

/// Counts refused requests.
pub(super) fn counted(s: &Shared, answer: Checked<Response>) -> Response {
    answer.unwrap_or_else(|e| {
        s.metrics.refused.add(1);
        e.into_response()
    })
}

/// Runs `f` on a thread where it may block.
pub(super) async fn aside<T: Send + 'static>(f: impl FnOnce() -> Checked<T> + Send + 'static) -> Checked<T> {
    let broken = |_| Refusal::new(500, "server_error", "a request could not be read");
    tokio::task::spawn_blocking(f).await.map_err(broken)?
}

pub(super) fn send(s: &Shared, work: Work) -> Checked<()> {
    s.work.try_send(work).map_err(|e| match e {
        mpsc::error::TrySendError::Full(_) => {
            Refusal::new(429, "rate_limit_error", "too many requests wait: try again").code("queue_full")
        }
        mpsc::error::TrySendError::Closed(_) => Refusal::new(503, "server_error", "the model's thread has ended"),
    })
}

pub(super) fn ended() -> Refusal {
    Refusal::new(500, "server_error", "the model's thread has ended")
}

async fn answered(State(s): App, r: Request, form: Form) -> Response {
    s.metrics.requests.add(1);
    let answer = answer(&s, r, form).await;
    counted(&s, answer)
}

async fn answer(s: &Arc<Shared>, r: Request, form: Form) -> Checked<Response> {
    let begun = Instant::now();
    let json = json(s, r).await?;
    let own = s.clone();
    let (lora, ask, prompts, matchers) = aside(move || {
        let f = Fields::new(&json)?;
        let lora = request::model(&f, &own)?;
        if own.serves != Serves::Text {
            return Err(other_use("this model generates no text: it is for embeddings or reranking"));
        }
        let ask = request::ask(&f, &own, form)?;
        let prompts = match form {
            Form::Chat => vec![request::chat(&f, &own, ask.tools.as_ref())?],
            Form::Text => request::prompts(&f, &own)?,
        };
        let count = prompts.len().saturating_mul(ask.answers);
        if count > own.limits.queue {
            let what = format!("{count} answers are wanted at once, {} at most are made", own.limits.queue);
            return Err(Refusal::field("n", what));
        }
        let matcher = |_| ask.form.as_ref().map(|g| request::matcher(g, &own)).transpose();
        let matchers = (0..count).map(matcher).collect::<Checked<Vec<_>>>()?;
        Ok((lora, ask, prompts, matchers))
    })
    .await?;
    let field = if form == Form::Chat { "messages" } else { "prompt" };
    if let Some(ids) = prompts.iter().find(|ids| ids.is_empty() || ids.len() > s.capacity) {
        let what = format!("`{field}` has {} tokens, there is room for {}", ids.len(), s.capacity);
        return Err(Refusal::field(field, what).code("context_length_exceeded"));
    }
    let (events, come) = mpsc::unbounded_channel();
    let until = begun + s.limits.time;
    for (index, matcher) in matchers.into_iter().enumerate() {
        let ids = prompts.get(index / ask.answers).cloned().unwrap_or_default();
        // The last token is generated without being read
        let remaining = (s.capacity - ids.len() + 1).min(s.limits.tokens);
        let most = ask.most.unwrap_or(if form == Form::Chat { remaining } else { 16 }).min(remaining);
        let mut sampling = ask.sampling.clone();
        sampling.seed = sampling.seed.wrapping_add((index % ask.answers) as u64);
        let (stops, ignore_end, guess, logprobs) = (ask.stops.clone(), ask.ignore_end, ask.guess, ask.logprobs);
        let (events, lora) = (events.clone(), lora.clone());
        let job =
            Job { ids, sampling, stops, most, lora, ignore_end, guess, matcher, logprobs, begun, until, index, events };
        // On an error the texts already in the queue end, because the receiver of their events is dropped
        send(s, Work::Text(Box::new(job)))?;
    }
    drop(events);
    let head = Head {
        shared: s.clone(),
        form,
        id: format!("{:016x}", request::random()),
        created: seconds(),
        prompt: prompts.iter().map(Vec::len).sum(),
        has_logprobs: ask.logprobs.is_some(),
    };
    let one = || Answer { calls: ask.tools.as_ref().map(Splitter::new), ..Answer::default() };
    let answers: Vec<Answer> = (0..prompts.len() * ask.answers).map(|_| one()).collect();
    match ask.stream {
        true => Ok(events_of(head, answers, come, ask.usage)),
        false => whole(&head, answers, come).await,
    }
}

/// The state of one answer.
#[derive(Default)]
struct Answer {
    text: String,
    logprobs: Vec<LogProb>,
    /// Separates function calls from text, if functions are available.
    calls: Option<Splitter>,
    called: Vec<Call>,
    done: Option<Done>,
}

impl Answer {
    /// Adds text; returns the text that is certainly not part of a call.
    fn take(&mut self, new: &str, logprobs: Vec<LogProb>) -> String {
        self.logprobs.extend(logprobs);
        match &mut self.calls {
            Some(calls) => calls.push(new),
            None => new.to_owned(),
        }
    }

    /// Ends the answer; returns the rest of the text.
    fn end(&mut self, done: Done) -> String {
        let (rest, called) = self.calls.take().map(|mut c| c.finish()).unwrap_or_default();
        let reason = if called.is_empty() { done.reason } else { "tool_calls" };
        self.done = Some(Done { reason, ..done });
        self.called = called;
        rest
    }
}

/// Waits for all answers and sends them at once.
async fn whole(
    head: &Head,
    mut answers: Vec<Answer>,
    mut come: mpsc::UnboundedReceiver<(usize, Event)>,
) -> Checked<Response> {
    while answers.iter().any(|a| a.done.is_none()) {
        let (at, event) = come.recv().await.ok_or_else(ended)?;
        let Some(answer) = answers.get_mut(at) else { continue };
        let new = match event {
            Event::Text(t, logprobs) => answer.take(&t, logprobs),
            Event::Done(done) => answer.end(done),
            Event::Failed(e) => return Err(e),
        };
        answer.text += &new;
    }
    Ok(body(StatusCode::OK, &head.whole(&answers)))
}

/// What all pieces of an answer contain.
struct Head {
    shared: Arc<Shared>,
    form: Form,
    id: String,
    created: u64,
    /// The number of tokens of all prompts.
    prompt: usize,
    has_logprobs: bool,
}

impl Head {
    fn around(&self, object_name: &str, choices: Vec<Json>, usage: Option<Json>) -> Json {
        let prefix = if self.form == Form::Chat { "chatcmpl" } else { "cmpl" };
        let mut fields = vec![
            ("id", text(&format!("{prefix}-{}", self.id))),
            ("object", text(object_name)),
            ("created", Json::Int(self.created as i64)),
            ("model", text(&self.shared.name)),
            ("choices", Json::Array(choices)),
        ];
        fields.extend(usage.map(|u| ("usage", u)));
        object(fields)
    }

    fn usage(&self, answers: &[Answer]) -> Json {
        let done = || answers.iter().filter_map(|a| a.done);
        let (made, kept) = (done().map(|d| d.made).sum::<usize>(), done().map(|d| d.kept).max().unwrap_or_default());
        object(vec![
            ("prompt_tokens", count(self.prompt)),
            ("completion_tokens", count(made)),
            ("total_tokens", count(self.prompt + made)),
            ("prompt_tokens_details", object(vec![("cached_tokens", count(kept))])),
        ])
    }

    fn whole(&self, answers: &[Answer]) -> Json {
        let name = if self.form == Form::Chat { "chat.completion" } else { "text_completion" };
        let one = |(index, a): (usize, &Answer)| {
            let what = match self.form {
                Form::Chat => {
                    let content = if a.called.is_empty() || !a.text.is_empty() { text(&a.text) } else { Json::Null };
                    let mut message = vec![("role", text("assistant")), ("content", content), ("refusal", Json::Null)];
                    if !a.called.is_empty() {
                        message.push(("tool_calls", Json::Array(self.calls(index, &a.called, false))));
                    }
                    ("message", object(message))
                }
                Form::Text => ("text", text(&a.text)),
            };
            let reason = a.done.map_or(Json::Null, |d| text(d.reason));
            let logprobs = self.logprobs(&a.logprobs, 0);
            object(vec![("index", count(index)), what, ("logprobs", logprobs), ("finish_reason", reason)])
        };
        self.around(name, answers.iter().enumerate().map(one).collect(), Some(self.usage(answers)))
    }

    /// Function calls as JSON; in a stream they have an `index`.
    fn calls(&self, answer: usize, calls: &[Call], numbered: bool) -> Vec<Json> {
        let one = |(i, call): (usize, &Call)| {
            let function = object(vec![("name", text(&call.name)), ("arguments", text(&call.arguments))]);
            let id = text(&format!("call_{}_{answer}_{i}", self.id));
            let mut fields = if numbered { vec![("index", count(i))] } else { Vec::new() };
            fields.extend([("id", id), ("type", text("function")), ("function", function)]);
            object(fields)
        };
        calls.iter().enumerate().map(one).collect()
    }

    /// Log probabilities of tokens. The first token begins at the character `from` of the answer.
    fn logprobs(&self, list: &[LogProb], from: usize) -> Json {
        if !self.has_logprobs {
            return Json::Null;
        }
        let tokenizer = &self.shared.tokenizer;
        let bytes = |t: u32| {
            let special = || tokenizer.token(t).map(|s| s.as_bytes().to_vec());
            tokenizer.bytes(t).or_else(special).unwrap_or_default()
        };
        let written = |t: u32| String::from_utf8_lossy(&bytes(t)).into_owned();
        let told = |t: u32, log: f64| {
            let bytes = bytes(t).iter().map(|b| Json::Int(i64::from(*b))).collect();
            vec![("token", text(&written(t))), ("logprob", Json::Float(log)), ("bytes", Json::Array(bytes))]
        };
        if self.form == Form::Chat {
            let one = |c: &LogProb| {
                let best = c.best.iter().map(|(t, log)| object(told(*t, *log))).collect();
                let mut fields = told(c.token, c.log);
                fields.push(("top_logprobs", Json::Array(best)));
                object(fields)
            };
            return object(vec![("content", Json::Array(list.iter().map(one).collect())), ("refusal", Json::Null)]);
        }
        let best = |c: &LogProb| Json::Object(c.best.iter().map(|(t, log)| (written(*t), Json::Float(*log))).collect());
        let mut at = from;
        let mut offset = |c: &LogProb| {
            at += written(c.token).chars().count();
            count(at - written(c.token).chars().count())
        };
        object(vec![
            ("tokens", Json::Array(list.iter().map(|c| text(&written(c.token))).collect())),
            ("token_logprobs", Json::Array(list.iter().map(|c| Json::Float(c.log)).collect())),
            ("top_logprobs", Json::Array(list.iter().map(best).collect())),
            ("text_offset", Json::Array(list.iter().map(&mut offset).collect())),
        ])
    }

    /// An event of a streamed answer: text, or calls, or the end.
    fn piece(&self, index: usize, new: &Piece<'_>) -> Json {
        let (name, what) = match self.form {
            Form::Chat => {
                let delta = match new {
                    Piece::First => vec![("role", text("assistant")), ("content", text(""))],
                    Piece::Text(t, ..) => vec![("content", text(t))],
                    Piece::Calls(calls) => vec![("tool_calls", Json::Array(self.calls(index, calls, true)))],
                    Piece::End(_) => Vec::new(),
                };
                ("chat.completion.chunk", ("delta", object(delta)))
            }
            Form::Text => ("text_completion", ("text", text(if let Piece::Text(t, ..) = new { t } else { "" }))),
        };
        let reason = if let Piece::End(reason) = new { text(reason) } else { Json::Null };
        let logprobs = if let Piece::Text(_, list, from) = new { self.logprobs(list, *from) } else { Json::Null };
        let choice = vec![("index", count(index)), what, ("logprobs", logprobs), ("finish_reason", reason)];
        self.around(name, vec![object(choice)], None)
    }
}

/// The content of an event.
enum Piece<'a> {
    First,
    /// Text, the log probabilities of its tokens, and the number of characters before it.
    Text(&'a str, &'a [LogProb], usize),
    Calls(&'a [Call]),
    End(&'a str),
}

fn events_of(head: Head, answers: Vec<Answer>, come: mpsc::UnboundedReceiver<(usize, Event)>, usage: bool) -> Response {
    let mut ready = VecDeque::new();
    if head.form == Form::Chat {
        ready.extend((0..answers.len()).map(|i| line(&head.piece(i, &Piece::First))));
    }
    let events = Events { head, characters: vec![0; answers.len()], answers, come, usage, ready, over: false };
    let mut r = Response::new(Body::from_stream(events));
    let headers = r.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    r
}

fn line(json: &Json) -> String {
    format!("data: {}\n\n", write(json))
}

/// A stream of answers. When the client leaves, the stream is dropped, and with it the receiver, which the
/// engine notices.
struct Events {
    head: Head,
    answers: Vec<Answer>,
    /// For each answer, the number of characters sent.
    characters: Vec<usize>,
    come: mpsc::UnboundedReceiver<(usize, Event)>,
    usage: bool,
    ready: VecDeque<String>,
    over: bool,
}

impl Events {
    fn take(&mut self, event: Option<(usize, Event)>) {
        let (at, event) = event.unwrap_or_else(|| (0, Event::Failed(ended())));
        let Some(answer) = self.answers.get_mut(at) else { return };
        match event {
            Event::Text(t, logprobs) => {
                let new = answer.take(&t, logprobs);
                self.say(at, &new);
            }
            Event::Done(done) => {
                let rest = answer.end(done);
                let called = std::mem::take(&mut answer.called);
                self.say(at, &rest);
                if !called.is_empty() {
                    self.ready.push_back(line(&self.head.piece(at, &Piece::Calls(&called))));
                }
                let reason = self.answers.get(at).and_then(|a| a.done).map_or(done.reason, |d| d.reason);
                self.ready.push_back(line(&self.head.piece(at, &Piece::End(reason))));
                if self.answers.iter().all(|a| a.done.is_some()) {
                    self.close();
                }
            }
            Event::Failed(e) => {
                self.ready.push_back(line(&e.json()));
                self.over = true;
            }
        }
    }

    /// Sends new text, and the log probabilities of tokens that were waiting for it.
    fn say(&mut self, at: usize, new: &str) {
        let (Some(answer), Some(out)) = (self.answers.get_mut(at), self.characters.get_mut(at)) else { return };
        if new.is_empty() && (answer.logprobs.is_empty() || answer.calls.is_some()) {
            return;
        }
        let logprobs = std::mem::take(&mut answer.logprobs);
        self.ready.push_back(line(&self.head.piece(at, &Piece::Text(new, &logprobs, *out))));
        *out += new.chars().count();
    }

    fn close(&mut self) {
        if self.usage {
            let name = if self.head.form == Form::Chat { "chat.completion.chunk" } else { "text_completion" };
            let usage = self.head.usage(&self.answers);
            self.ready.push_back(line(&self.head.around(name, Vec::new(), Some(usage))));
        }
        self.ready.push_back("data: [DONE]\n\n".into());
        self.over = true;
    }
}

impl futures_core::Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(t) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Bytes::from(t))));
            }
            if self.over {
                return Poll::Ready(None);
            }
            match self.come.poll_recv(cx) {
                Poll::Ready(event) => self.take(event),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
