//! The endpoints: a request is checked, waits for the model, and is answered whole or as server-sent events
//! (`html.spec.whatwg.org/multipage/server-sent-events.html`).

use super::Shared;
use super::engine::{Done, Event, Job, Work};
use super::reply::{Refusal, base64, body, count, object, seconds, text, write};
use super::request::{self, Ask, Checked, Fields};
use crate::io::json::Json;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Time that a body may take to come.
const BODY_TIME: Duration = Duration::from_secs(30);

type App = State<Arc<Shared>>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let none = || async { Refusal::new(404, "invalid_request_error", "there is no such address").code("unknown_url") };
    let other = || async { Refusal::new(405, "invalid_request_error", "this address takes another method") };
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/v1/chat/completions", post(|s: App, r: Request| answered(s, r, Form::Chat)))
        .route("/v1/completions", post(|s: App, r: Request| answered(s, r, Form::Text)))
        .route("/v1/embeddings", post(embeddings))
        .fallback(none)
        .method_not_allowed_fallback(other)
        .with_state(shared)
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

fn card(s: &Shared) -> Json {
    object(vec![
        ("id", text(&s.name)),
        ("object", text("model")),
        ("created", Json::Int(s.created as i64)),
        ("owned_by", text("gradloom")),
        ("context_length", count(s.room)),
    ])
}

async fn models(State(s): App) -> Response {
    let list = object(vec![("object", text("list")), ("data", Json::Array(vec![card(&s)]))]);
    body(StatusCode::OK, &list)
}

async fn model(State(s): App, Path(name): Path<String>) -> Response {
    match name == s.name {
        true => body(StatusCode::OK, &card(&s)),
        false => request::no_model(&name).into_response(),
    }
}

/// The body of a request, as JSON.
async fn json(s: &Shared, r: Request) -> Checked<Json> {
    let large = || {
        let most = s.limits.body_bytes;
        Refusal::new(413, "invalid_request_error", format!("the body has more than {most} bytes"))
            .code("body_too_large")
    };
    let kind = r.headers().get(header::CONTENT_TYPE).and_then(|k| k.to_str().ok()).unwrap_or_default();
    // pages of other origins cannot send this kind without asking
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

/// Counts what is refused.
fn counted(s: &Shared, answer: Checked<Response>) -> Response {
    answer.unwrap_or_else(|e| {
        s.metrics.refused.add(1);
        e.into_response()
    })
}

/// On a thread where it may take its time.
async fn aside<T: Send + 'static>(f: impl FnOnce() -> Checked<T> + Send + 'static) -> Checked<T> {
    let broken = |_| Refusal::new(500, "server_error", "a request could not be read");
    tokio::task::spawn_blocking(f).await.map_err(broken)?
}

fn send(s: &Shared, work: Work) -> Checked<()> {
    s.work.try_send(work).map_err(|e| match e {
        mpsc::error::TrySendError::Full(_) => {
            Refusal::new(429, "rate_limit_error", "too many requests wait: try again").code("queue_full")
        }
        mpsc::error::TrySendError::Closed(_) => Refusal::new(503, "server_error", "the model's thread has ended"),
    })
}

fn ended() -> Refusal {
    Refusal::new(500, "server_error", "the model's thread has ended")
}

/// Which endpoint answers.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Chat,
    Text,
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
    let (ask, ids) = aside(move || {
        let f = Fields::new(&json)?;
        request::model(&f, &own)?;
        let ask = request::ask(&f, &own)?;
        let ids = if form == Form::Chat { request::chat(&f, &own)? } else { request::prompt(&f, &own)? };
        Ok((ask, ids))
    })
    .await?;
    let (field, prompt) = (if form == Form::Chat { "messages" } else { "prompt" }, ids.len());
    if prompt == 0 || prompt > s.room {
        let what = format!("`{field}` has {prompt} tokens, there is room for {}", s.room);
        return Err(Refusal::field(field, what).code("context_length_exceeded"));
    }
    let Ask { choice, stops, most, stream, usage, ignore_end, form: matcher } = ask;
    // the last token is made without being read
    let room = (s.room - prompt + 1).min(s.limits.tokens);
    let default = if form == Form::Chat { room } else { 16 };
    let (events, mut come) = mpsc::unbounded_channel();
    let (most, until) = (most.unwrap_or(default).min(room), begun + s.limits.time);
    send(s, Work::Text(Box::new(Job { ids, choice, stops, most, ignore_end, matcher, begun, until, events })))?;
    let head = Head { shared: s.clone(), form, id: format!("{:016x}", request::random()), created: seconds(), prompt };
    if stream {
        return Ok(events_of(head, come, usage));
    }
    let mut all = String::new();
    loop {
        match come.recv().await.ok_or_else(ended)? {
            Event::Text(t) => all += &t,
            Event::Done(done) => return Ok(body(StatusCode::OK, &head.whole(&all, done))),
            Event::Failed(e) => return Err(e),
        }
    }
}

/// What all pieces of an answer say.
struct Head {
    shared: Arc<Shared>,
    form: Form,
    id: String,
    created: u64,
    prompt: usize,
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

    fn usage(&self, done: Done) -> Json {
        object(vec![
            ("prompt_tokens", count(self.prompt)),
            ("completion_tokens", count(done.made)),
            ("total_tokens", count(self.prompt + done.made)),
            ("prompt_tokens_details", object(vec![("cached_tokens", count(done.kept))])),
        ])
    }

    fn whole(&self, all: &str, done: Done) -> Json {
        let (name, what) = match self.form {
            Form::Chat => {
                let message = vec![("role", text("assistant")), ("content", text(all)), ("refusal", Json::Null)];
                ("chat.completion", ("message", object(message)))
            }
            Form::Text => ("text_completion", ("text", text(all))),
        };
        let choice =
            vec![("index", Json::Int(0)), what, ("logprobs", Json::Null), ("finish_reason", text(done.reason))];
        self.around(name, vec![object(choice)], Some(self.usage(done)))
    }

    /// A piece of text, or the end without one.
    fn piece(&self, new: Option<&str>, reason: Option<&str>, first: bool) -> Json {
        let (name, what) = match self.form {
            Form::Chat => {
                let mut delta = Vec::new();
                delta.extend(first.then(|| ("role", text("assistant"))));
                delta.extend(new.map(|t| ("content", text(t))));
                ("chat.completion.chunk", ("delta", object(delta)))
            }
            Form::Text => ("text_completion", ("text", text(new.unwrap_or_default()))),
        };
        let reason = reason.map_or(Json::Null, text);
        let choice = vec![("index", Json::Int(0)), what, ("logprobs", Json::Null), ("finish_reason", reason)];
        self.around(name, vec![object(choice)], None)
    }
}

fn events_of(head: Head, come: mpsc::UnboundedReceiver<Event>, usage: bool) -> Response {
    let mut ready = VecDeque::new();
    if head.form == Form::Chat {
        ready.push_back(line(&head.piece(Some(""), None, true)));
    }
    let mut r = Response::new(Body::from_stream(Events { head, come, usage, ready, over: false }));
    let headers = r.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    r
}

fn line(json: &Json) -> String {
    format!("data: {}\n\n", write(json))
}

/// An answer piece by piece. When the client leaves it is dropped, and with it the end that the engine looks at.
struct Events {
    head: Head,
    come: mpsc::UnboundedReceiver<Event>,
    usage: bool,
    ready: VecDeque<String>,
    over: bool,
}

impl Events {
    fn take(&mut self, event: Option<Event>) {
        let head = &self.head;
        let failed = |e: Refusal| line(&e.json());
        self.over = !matches!(event, Some(Event::Text(_)));
        match event {
            Some(Event::Text(t)) => self.ready.push_back(line(&head.piece(Some(&t), None, false))),
            Some(Event::Done(done)) => {
                self.ready.push_back(line(&head.piece(None, Some(done.reason), false)));
                if self.usage {
                    let name = if head.form == Form::Chat { "chat.completion.chunk" } else { "text_completion" };
                    self.ready.push_back(line(&head.around(name, Vec::new(), Some(head.usage(done)))));
                }
                self.ready.push_back("data: [DONE]\n\n".into());
            }
            Some(Event::Failed(e)) => self.ready.push_back(failed(e)),
            None => self.ready.push_back(failed(ended())),
        }
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

async fn embeddings(State(s): App, r: Request) -> Response {
    s.metrics.requests.add(1);
    let made = embed(&s, r).await;
    counted(&s, made)
}

async fn embed(s: &Arc<Shared>, r: Request) -> Checked<Response> {
    let until = Instant::now() + s.limits.time;
    let json = json(s, r).await?;
    let own = s.clone();
    let (packed, inputs) = aside(move || {
        let f = Fields::new(&json)?;
        request::model(&f, &own)?;
        let packed = match f.text("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(Refusal::field("encoding_format", "`encoding_format` is neither float nor base64")),
        };
        Ok((packed, request::inputs(&f, &own)?))
    })
    .await?;
    let read: usize = inputs.iter().map(Vec::len).sum();
    let mut data = Vec::new();
    for (i, ids) in inputs.into_iter().enumerate() {
        let (reply, made) = oneshot::channel();
        send(s, Work::Embed { ids, until, reply })?;
        let vector = made.await.map_err(|_| ended())??;
        let vector = match packed {
            true => Json::Str(base64(&vector)),
            false => Json::Array(vector.iter().map(|x| Json::Float(f64::from(*x))).collect()),
        };
        data.push(object(vec![("object", text("embedding")), ("index", count(i)), ("embedding", vector)]));
    }
    let usage = object(vec![("prompt_tokens", count(read)), ("total_tokens", count(read))]);
    let all =
        object(vec![("object", text("list")), ("data", Json::Array(data)), ("model", text(&s.name)), ("usage", usage)]);
    Ok(body(StatusCode::OK, &all))
}
