//! Vectors of texts (`/v1/embeddings`), and the relevance of documents for a query (`/v1/rerank`, in the form of Jina's and
//! Cohere's interfaces): the endpoints, and the thread of an encoder, which reads texts of several requests at once.

use super::engine::{Vectors, Work, ending, refuse, timed_out};
use super::metrics::Metrics;
use super::reply::{Refusal, base64, body, count, object, text};
use super::request::{self, Checked, Fields};
use super::routes::{App, aside, counted, ended, json, send};
use super::{Serves, Shared};
use crate::io::json::Json;
use crate::llm::Embedder;
use crate::text::Encoding;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// The number of texts that are read between two looks at the queue.
const PIECE: usize = 64;

/// Works until nobody can send requests any more.
pub(super) fn run(mut model: Embedder, mut queue: mpsc::Receiver<Work>, metrics: &Metrics, stop: &Arc<AtomicBool>) {
    while let Some(first) = queue.blocking_recv() {
        let mut all: Vec<Vectors> = Vec::new();
        let mut next = Some(first);
        while let Some(work) = next {
            match work {
                work if stop.load(Ordering::Relaxed) => refuse(work, ending()),
                Work::Vectors(v) if v.reply.is_closed() => metrics.left.add(1),
                Work::Vectors(v) if Instant::now() <= v.until => all.push(*v),
                work => {
                    metrics.failed.add(1);
                    refuse(work, timed_out());
                }
            }
            let texts: usize = all.iter().map(|v| v.texts.len()).sum();
            // What came meanwhile is read together with it
            next = if texts < PIECE { queue.try_recv().ok() } else { None };
        }
        metrics.running.set(all.len());
        answer(&mut model, all, metrics, stop);
        metrics.running.set(0);
        let c = model.counters();
        metrics.device_bytes.set(c.peak_bytes);
        metrics.programs.set(c.programs as usize);
    }
}

fn answer(model: &mut Embedder, all: Vec<Vectors>, metrics: &Metrics, stop: &Arc<AtomicBool>) {
    let texts: Vec<Encoding> = all.iter().flat_map(|v| v.texts.iter().cloned()).collect();
    metrics.prompt_tokens.add(texts.iter().map(|t| t.ids.len()).sum());
    let mut made: Result<Vec<Vec<f32>>, Refusal> = Ok(Vec::with_capacity(texts.len()));
    for piece in texts.chunks(PIECE) {
        let new = match stop.load(Ordering::Relaxed) {
            true => Err(ending()),
            false => model.values(piece).map_err(Refusal::from),
        };
        match (&mut made, new) {
            (Ok(made), Ok(new)) => made.extend(new),
            (_, Err(e)) => {
                made = Err(e);
                break;
            }
            (Err(_), _) => break,
        }
    }
    for v in all {
        let own = match &mut made {
            Ok(made) => Ok(made.drain(..v.texts.len().min(made.len())).collect()),
            Err(e) => Err(e.clone()),
        };
        let count = if own.is_ok() { &metrics.done } else { &metrics.failed };
        count.add(1);
        // The client may have left
        let _ = v.reply.send(own);
    }
}

pub(super) async fn embeddings(State(s): App, r: Request) -> Response {
    s.metrics.requests.add(1);
    let made = embed(&s, r).await;
    counted(&s, made)
}

pub(super) async fn rerank(State(s): App, r: Request) -> Response {
    s.metrics.requests.add(1);
    let made = ordered(&s, r).await;
    counted(&s, made)
}

/// The values of texts: all of a request at once if the model is an encoder, one after the other if it also generates
/// text, so that texts which are being generated go on.
async fn values(s: &Arc<Shared>, texts: Vec<Encoding>, lora: Option<String>, until: Instant) -> Checked<Vec<Vec<f32>>> {
    let size = if s.serves == Serves::Text { 1 } else { texts.len().max(1) };
    let mut out = Vec::with_capacity(texts.len());
    for part in texts.chunks(size) {
        let (reply, made) = oneshot::channel();
        let work = Vectors { texts: part.to_vec(), lora: lora.clone(), until, reply };
        send(s, Work::Vectors(Box::new(work)))?;
        out.extend(made.await.map_err(|_| ended())??);
    }
    Ok(out)
}

async fn embed(s: &Arc<Shared>, r: Request) -> Checked<Response> {
    let until = Instant::now() + s.limits.time;
    let json = json(s, r).await?;
    let own = s.clone();
    let (lora, packed, inputs) = aside(move || {
        let f = Fields::new(&json)?;
        let lora = request::model(&f, &own)?;
        if own.serves == Serves::Scores {
            return Err(other_use("this model orders documents: use /v1/rerank"));
        }
        let packed = match f.text("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(Refusal::field("encoding_format", "`encoding_format` is neither float nor base64")),
        };
        Ok((lora, packed, request::inputs(&f, &own)?))
    })
    .await?;
    let read: usize = inputs.iter().map(Vec::len).sum();
    let texts =
        inputs.into_iter().map(|ids| Encoding { type_ids: vec![0; ids.len()], ids, ..Encoding::default() }).collect();
    let mut data = Vec::new();
    for (i, vector) in values(s, texts, lora, until).await?.into_iter().enumerate() {
        let vector = match packed {
            true => Json::Str(base64(&vector)),
            false => Json::Array(vector.iter().map(|x| Json::Float(f64::from(*x))).collect()),
        };
        data.push(object(vec![("object", text("embedding")), ("index", count(i)), ("embedding", vector)]));
    }
    let all = object(vec![
        ("object", text("list")),
        ("data", Json::Array(data)),
        ("model", text(&s.name)),
        ("usage", usage(read)),
    ]);
    Ok(body(StatusCode::OK, &all))
}

fn usage(read: usize) -> Json {
    object(vec![("prompt_tokens", count(read)), ("total_tokens", count(read))])
}

/// The error of a request that this kind of model is not for.
pub(super) fn other_use(what: &str) -> Refusal {
    let e = Refusal::new(400, "invalid_request_error", what);
    Refusal { param: Some("model".into()), ..e }.code("unsupported")
}

async fn ordered(s: &Arc<Shared>, r: Request) -> Checked<Response> {
    let until = Instant::now() + s.limits.time;
    let json = json(s, r).await?;
    let own = s.clone();
    let (documents, pairs, most, shown) = aside(move || {
        let f = Fields::new(&json)?;
        request::model(&f, &own)?;
        if own.serves != Serves::Scores {
            return Err(other_use("this model orders no documents: a cross-encoder does"));
        }
        let documents = request::documents(&f)?;
        let query = f.need("query").and_then(|_| f.text("query"))?.unwrap_or_default();
        let pair = |d: &String| Ok(own.tokenizer.encode_pair_within(query, d, own.capacity)?);
        let pairs = documents.iter().map(pair).collect::<Checked<Vec<_>>>()?;
        let most = f.count("top_n", 1)?.unwrap_or(documents.len());
        Ok((documents, pairs, most, f.flag("return_documents")?))
    })
    .await?;
    let read: usize = pairs.iter().map(|p| p.ids.len()).sum();
    let scores = values(s, pairs, None, until).await?.concat();
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let one = |&i: &usize| {
        let relevance = Embedder::relevance(scores[i]);
        let mut fields = vec![("index", count(i)), ("relevance_score", Json::Float(relevance))];
        if let Some(d) = documents.get(i).filter(|_| shown) {
            fields.push(("document", object(vec![("text", text(d))])));
        }
        object(fields)
    };
    let results = order.iter().take(most).map(one).collect();
    let all = object(vec![
        ("object", text("list")),
        ("model", text(&s.name)),
        ("results", Json::Array(results)),
        ("usage", usage(read)),
    ]);
    Ok(body(StatusCode::OK, &all))
}
