//! `gradloom embed` makes vectors of texts, `gradloom rerank` orders documents by what a cross-encoder thinks of them.

use super::generate::Model;
use super::json::Json;
use super::{Cache, Failure, Outcome, Progress};
use clap::Args;
use gradloom::llm::Embedder;
use std::io::{BufRead, IsTerminal};
use std::time::Instant;

/// Digits after the decimal point: f32 has no more.
const DIGITS: usize = 8;

/// What to embed.
#[derive(Args)]
pub(crate) struct Texts {
    #[command(flatten)]
    model: Model,
    /// Texts to embed (default: each line of stdin is a text)
    texts: Vec<String>,
}

/// What to compare.
#[derive(Args)]
pub(crate) struct Documents {
    #[command(flatten)]
    model: Model,
    /// Text that documents are to be relevant for
    #[arg(long)]
    query: String,
    /// Number of documents to print, the most relevant ones; 0 for all
    #[arg(long, default_value_t = 0, value_name = "N")]
    top: usize,
    /// Documents to order (default: each line of stdin is a document)
    documents: Vec<String>,
}

/// The texts given as arguments, or the lines of stdin.
fn texts(given: &[String], what: &str) -> Outcome<Vec<String>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    if std::io::stdin().is_terminal() {
        return Err(Failure(format!("no {what}: give some as arguments, or as lines on stdin")));
    }
    std::io::stdin().lock().lines().map(|line| line.map_err(|e| Failure(e.to_string()))).collect()
}

pub(crate) fn embed(job: &Texts, json: bool, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let texts = texts(&job.texts, "texts")?;
    let (vectors, tokens, seconds) = match Embedder::is_for(job.model.path())? {
        true => {
            let mut model = job.model.load_embedder(cache, progress)?;
            let tokenizer = model.need_tokenizer()?.clone();
            let all =
                texts.iter().map(|t| tokenizer.encode_with(t, None, true)).collect::<gradloom::Result<Vec<_>>>()?;
            let start = Instant::now();
            (model.embed(&all)?, all.iter().map(|t| t.ids.len()).sum::<usize>(), start.elapsed().as_secs_f64())
        }
        false => {
            let mut model = job.model.load(4096, 1, cache, progress)?;
            let tokenizer = model.need_tokenizer()?.clone();
            let all = texts.iter().map(|t| tokenizer.encode(t)).collect::<gradloom::Result<Vec<_>>>()?;
            let start = Instant::now();
            let vectors = all.iter().map(|ids| model.embed(ids)).collect::<gradloom::Result<Vec<_>>>()?;
            (vectors, all.iter().map(Vec::len).sum(), start.elapsed().as_secs_f64())
        }
    };
    let vectors: Vec<Json> =
        vectors.iter().map(|v| Json::List(v.iter().map(|x| Json::Num(f64::from(*x), DIGITS)).collect())).collect();
    progress.say(format_args!("{} texts, {tokens} tokens in {seconds:.3} s", vectors.len()));
    if !json {
        return Ok(Json::Text(vectors.iter().map(|v| format!("{v}\n")).collect()));
    }
    Ok(Json::from(vec![
        ("embeddings", Json::List(vectors)),
        ("tokens", Json::count(tokens)),
        ("seconds", Json::Num(seconds, 4)),
    ]))
}

pub(crate) fn rerank(job: &Documents, json: bool, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let documents = texts(&job.documents, "documents")?;
    if !Embedder::is_for(job.model.path())? {
        return Err(Failure("reranking needs a cross-encoder: an encoder with a classification head".into()));
    }
    let mut model = job.model.load_embedder(cache, progress)?;
    let (tokenizer, capacity) = (model.need_tokenizer()?.clone(), model.encoder().capacity());
    let pair = |d: &String| tokenizer.encode_pair_within(&job.query, d, capacity);
    let pairs = documents.iter().map(pair).collect::<gradloom::Result<Vec<_>>>()?;
    let scores = model.scores(&pairs)?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    order.truncate(if job.top == 0 { order.len() } else { job.top });
    let one = |&i: &usize| {
        let mut row = vec![
            ("index", Json::count(i)),
            ("relevance_score", Json::Num(Embedder::relevance(scores[i]), DIGITS)),
            ("score", Json::Num(f64::from(scores[i]), DIGITS)),
        ];
        if !json {
            row.push(("document", Json::text(documents[i].replace('\n', " "))));
        }
        Json::from(row)
    };
    let rows = Json::List(order.iter().map(one).collect());
    Ok(if json { Json::from(vec![("results", rows)]) } else { rows })
}
