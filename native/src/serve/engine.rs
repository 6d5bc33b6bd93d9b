//! The thread that runs the model for several texts at once. Prompts are read a piece at a time; between two pieces one
//! step reads the next token of every text that is being generated. A new text takes the slot of the finished text with
//! the longest common prefix, and reads only what is new.

use super::metrics::Metrics;
use super::reply::Refusal;
use crate::llm::{GuessStats, LanguageModel, Matcher, Sampler, SamplingOptions, Stream};
use crate::text::{Encoding, Tokenizer};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// The number of prompt tokens that are read before other texts get a step.
const PIECE: usize = 128;

/// A request to the model.
pub(super) enum Work {
    Text(Box<Job>),
    Vectors(Box<Vectors>),
}

/// Texts of which vectors (embeddings), or scores, are wanted.
pub(super) struct Vectors {
    pub(super) texts: Vec<Encoding>,
    pub(super) lora: Option<String>,
    pub(super) until: Instant,
    pub(super) reply: oneshot::Sender<std::result::Result<Vec<Vec<f32>>, Refusal>>,
}

impl Work {
    /// The adapter that it is for.
    fn lora(&self) -> Option<&str> {
        match self {
            Work::Text(job) => job.lora.as_deref(),
            Work::Vectors(v) => v.lora.as_deref(),
        }
    }
}

/// A text to generate.
pub(super) struct Job {
    pub(super) ids: Vec<u32>,
    pub(super) sampling: SamplingOptions,
    pub(super) stops: Vec<String>,
    pub(super) most: usize,
    /// The adapter.
    pub(super) lora: Option<String>,
    pub(super) ignore_end: bool,
    /// Whether tokens are guessed from repetitions while no other text is generated.
    pub(super) guess: bool,
    pub(super) matcher: Option<Matcher>,
    /// How many of the most likely tokens are reported with each generated token, if log probabilities are wanted.
    pub(super) logprobs: Option<usize>,
    pub(super) begun: Instant,
    pub(super) until: Instant,
    /// The index of the text within its request.
    pub(super) index: usize,
    pub(super) events: mpsc::UnboundedSender<(usize, Event)>,
}

impl Job {
    /// Sends an event. A client that has left is noticed before the next step, so an error is ignored.
    fn tell(&self, event: Event) {
        let _ = self.events.send((self.index, event));
    }

    fn is_plain(&self, sampler: &Sampler) -> bool {
        sampler.is_greedy() && self.logprobs.is_none()
    }
}

/// The log probability of a generated token, as the model has it before temperature, bias and grammars, and the most
/// likely tokens with theirs.
#[derive(Clone, Debug)]
pub(super) struct LogProb {
    pub(super) token: u32,
    pub(super) log: f64,
    pub(super) best: Vec<(u32, f64)>,
}

impl LogProb {
    fn new(logits: &[f32], token: u32, most: usize) -> LogProb {
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let all: f64 = logits.iter().map(|x| f64::from(x - highest).exp()).sum();
        let log = |x: f32| f64::from(x - highest) - all.ln();
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let likelier = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if most > 0 && most < order.len() {
            order.select_nth_unstable_by(most - 1, likelier);
        }
        order.truncate(most);
        order.sort_by(likelier);
        let of = |t: u32| logits.get(t as usize).map_or(f64::NEG_INFINITY, |x| log(*x));
        LogProb { token, log: of(token), best: order.into_iter().map(|t| (t, of(t))).collect() }
    }
}

/// What happened to a text.
pub(super) enum Event {
    Text(String, Vec<LogProb>),
    Done(Done),
    Failed(Refusal),
}

#[derive(Clone, Copy)]
pub(super) struct Done {
    /// OpenAI's `finish_reason`.
    pub(super) reason: &'static str,
    /// The number of generated tokens.
    pub(super) made: usize,
    /// The number of prompt tokens that were not read again.
    pub(super) kept: usize,
}

/// A text in progress.
struct Running {
    job: Job,
    text: usize,
    sampler: Sampler,
    stream: Stream,
    /// Decodes tokens to text.
    decode: fn(&Tokenizer, &[u32]) -> Result<String>,
    /// The number of prompt tokens that have been read.
    read: usize,
    /// The chosen token that has not been read yet.
    next: Option<u32>,
    /// Log probabilities of tokens whose text has not been sent yet.
    logprobs: Vec<LogProb>,
    done: Done,
}

impl Running {
    /// Chooses the next token; records its log probability if wanted.
    fn choose(&mut self, logits: &mut [f32]) -> u32 {
        let Some(most) = self.job.logprobs else { return self.sampler.choose(logits) };
        let before = logits.to_vec();
        let token = self.sampler.choose(logits);
        self.logprobs.push(LogProb::new(&before, token, most));
        token
    }
}

struct Engine<'a> {
    model: LanguageModel,
    metrics: &'a Metrics,
    running: Vec<Running>,
}

/// Works until nobody can send requests any more.
pub(super) fn run(model: LanguageModel, mut queue: mpsc::Receiver<Work>, metrics: &Metrics, stop: &Arc<AtomicBool>) {
    let mut e = Engine { model, metrics, running: Vec::new() };
    // A request for another adapter waits until all running texts are done, and further ones wait behind it
    let mut waiting: Option<Work> = None;
    loop {
        let idle = e.running.is_empty();
        let work = match (idle, &waiting) {
            (true, Some(_)) => waiting.take(),
            (true, None) => queue.blocking_recv(),
            (false, None) if e.running.len() < e.model.texts() => queue.try_recv().ok(),
            (false, _) => None,
        };
        match work {
            Some(w) if stop.load(Ordering::Relaxed) => refuse(w, ending()),
            Some(w) if !idle && w.lora() != e.model.adapter() => waiting = Some(w),
            Some(w) => e.admit(w),
            None if idle => return,
            None => e.step_all(stop.load(Ordering::Relaxed)),
        }
        e.metrics.running.set(e.running.len());
    }
}

pub(super) fn ending() -> Refusal {
    Refusal::new(503, "server_error", "the server is ending")
}

pub(super) fn timed_out() -> Refusal {
    Refusal::new(504, "timeout_error", "the time for a request is over").code("timeout")
}

/// Answers a request with an error; the client may have left.
pub(super) fn refuse(work: Work, why: Refusal) {
    match work {
        Work::Text(job) => job.tell(Event::Failed(why)),
        Work::Vectors(v) => _ = v.reply.send(Err(why)),
    }
}

impl Engine<'_> {
    fn admit(&mut self, work: Work) {
        let until = match &work {
            Work::Text(job) => job.until,
            Work::Vectors(v) => v.until,
        };
        if Instant::now() > until {
            self.metrics.failed.add(1);
            return refuse(work, timed_out());
        }
        if let Err(e) = self.model.use_adapter(work.lora()) {
            self.metrics.failed.add(1);
            return refuse(work, e.into());
        }
        match work {
            Work::Text(job) if job.events.is_closed() => self.metrics.left.add(1),
            Work::Text(job) => self.begin(*job),
            Work::Vectors(v) if v.reply.is_closed() => self.metrics.left.add(1),
            Work::Vectors(v) => {
                let text = self.free(&[]).0;
                let mut one = |t: &Encoding| {
                    self.metrics.prompt_tokens.add(t.ids.len());
                    self.model.choose_text(text, 0).and_then(|()| self.model.embed(&t.ids))
                };
                let made: Result<Vec<_>> = v.texts.iter().map(&mut one).collect();
                let count = if made.is_ok() { &self.metrics.done } else { &self.metrics.failed };
                count.add(1);
                // The client may have left
                let _ = v.reply.send(made.map_err(Refusal::from));
            }
        }
    }

    /// The unused text slot with the longest common prefix, and the length of that prefix.
    fn free(&self, ids: &[u32]) -> (usize, usize) {
        let free = (0..self.model.texts()).filter(|t| self.running.iter().all(|r| r.text != *t));
        let mut best = (0, 0);
        for (i, text) in free.enumerate() {
            let kept = self.model.shared(text, ids);
            if i == 0 || kept > best.1 {
                best = (text, kept);
            }
        }
        best
    }

    fn begin(&mut self, mut job: Job) {
        // The last token is always read, because its logits are wanted
        let known = job.ids.split_last().map_or(&[][..], |(_, rest)| rest);
        let (text, kept) = self.free(known);
        let made = Sampler::new(&job.sampling).and_then(|s| self.model.choose_text(text, kept).map(|()| s));
        let mut sampler = match made {
            Ok(sampler) => sampler,
            Err(e) => {
                self.metrics.failed.add(1);
                return refuse(Work::Text(Box::new(job)), e.into());
            }
        };
        job.ids.iter().for_each(|&t| sampler.see_prompt(t));
        let calls = job.matcher.as_ref().is_some_and(Matcher::has_calls);
        let decode = if calls { Tokenizer::decode_with_calls } else { Tokenizer::decode };
        if let Some(matcher) = job.matcher.take() {
            sampler.constrain(matcher, self.model.ends());
        }
        self.metrics.kept_tokens.add(kept);
        let stream = Stream::new(&job.stops);
        let done = Done { reason: "stop", made: 0, kept };
        let (read, next, logprobs) = (kept, None, Vec::new());
        self.running.push(Running { job, text, sampler, stream, decode, read, next, logprobs, done });
    }

    /// Reads a piece of one prompt, and does a step of all texts that are being generated.
    fn step_all(&mut self, stop: bool) {
        let now = Instant::now();
        let mut left = 0;
        self.running.retain(|r| {
            let why = if stop { Some(ending()) } else { (now > r.job.until).then(timed_out) };
            let gone = r.job.events.is_closed();
            left += usize::from(gone);
            if let (Some(why), false) = (&why, gone) {
                r.job.tell(Event::Failed(why.clone()));
            }
            why.is_none() && !gone
        });
        self.metrics.left.add(left);
        let done = self.read_prompt().and_then(|()| self.step());
        if let Err(e) = done {
            // The contents of these texts' caches on the device are unknown
            self.metrics.failed.add(self.running.len());
            for r in std::mem::take(&mut self.running) {
                let _ = self.model.choose_text(r.text, 0);
                r.job.tell(Event::Failed(Refusal::from(e.clone())));
            }
        }
        let c = self.model.counters();
        self.metrics.device_bytes.set(c.peak_bytes);
        self.metrics.programs.set(c.programs as usize);
        let nodes = self.model.runtime().session().state().graph.len();
        self.metrics.nodes.set(nodes);
    }

    fn read_prompt(&mut self) -> Result<()> {
        let Some(i) = self.running.iter().position(|r| r.read < r.job.ids.len()) else { return Ok(()) };
        let r = &mut self.running[i];
        let upto = r.job.ids.len().min(r.read + PIECE);
        self.model.choose_text(r.text, r.read)?;
        self.model.read(&r.job.ids[r.read..upto])?;
        self.metrics.prompt_tokens.add(upto - r.read);
        r.read = upto;
        if upto < r.job.ids.len() {
            return Ok(());
        }
        let token = match r.job.is_plain(&r.sampler) {
            true => self.model.best()?,
            false => r.choose(&mut self.model.logits()?),
        };
        self.metrics.first_us.add(r.job.begun.elapsed().as_micros() as usize);
        self.take(i, token, 0)?;
        self.sweep();
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let of = |(i, r): (usize, &Running)| r.next.map(|t| (i, r.text, t));
        let list: Vec<(usize, usize, u32)> = self.running.iter().enumerate().filter_map(of).collect();
        let plain = |(i, ..): &(usize, usize, u32)| self.running[*i].job.is_plain(&self.running[*i].sampler);
        let plain = list.iter().all(plain);
        let vocabulary = self.model.decoder().vocabulary()?;
        // With a single text row 0 is its row; otherwise rows are indexed by text
        let alone = match list[..] {
            [] => return Ok(()),
            [(i, text, token)] => {
                let keep = self.model.text(text).len();
                self.model.choose_text(text, keep)?;
                if plain && self.running[i].job.guess {
                    return self.step_guessing(i, token);
                }
                self.model.read(&[token])?;
                true
            }
            _ => {
                self.model.read_each(&list.iter().map(|l| (l.1, l.2)).collect::<Vec<_>>())?;
                false
            }
        };
        self.metrics.steps.add(1);
        self.metrics.shared_tokens.add(list.len());
        let best = self.model.best_each()?;
        let mut logits = if plain { Vec::new() } else { self.model.logits_each()? };
        for (i, text, _) in list {
            let row = if alone { 0 } else { text };
            let r = &mut self.running[i];
            let lost = || Error::Internal("a text has no row of logits".into());
            let token = match r.job.is_plain(&r.sampler) {
                true => *best.get(row).ok_or_else(lost)?,
                false => {
                    let row = logits.get_mut(row * vocabulary..(row + 1) * vocabulary).ok_or_else(lost)?;
                    r.choose(row)
                }
            };
            self.take(i, token, 0)?;
        }
        self.sweep();
        Ok(())
    }

    /// Reads the token of the only text, and guesses of those after it.
    fn step_guessing(&mut self, i: usize, token: u32) -> Result<()> {
        let r = &self.running[i];
        let (right, next) = self.model.read_guessing(token, r.job.most - r.done.made, &mut GuessStats::default())?;
        self.metrics.steps.add(1);
        self.metrics.shared_tokens.add(1 + right.len());
        self.metrics.guessed_tokens.add(right.len());
        for (read, token) in right.iter().chain([&next]).enumerate() {
            self.take(i, *token, right.len() - read)?;
            if self.running[i].next.is_none() {
                break;
            }
        }
        self.sweep();
        Ok(())
    }

    /// Records the token that was chosen for a text, and sends its text. So many tokens from it on have been read already.
    fn take(&mut self, i: usize, token: u32, ahead: usize) -> Result<()> {
        let r = &mut self.running[i];
        r.next = None;
        r.sampler.see(token);
        if let Some(e) = r.sampler.failed() {
            // The other texts continue
            r.job.tell(Event::Failed(Refusal::from(e.clone())));
            return Ok(());
        }
        let tokenizer = self.model.tokenizer().cloned();
        let tokenizer = tokenizer.ok_or_else(|| Error::Internal("the tokenizer is gone".into()))?;
        let decode = |ids: &[u32]| (r.decode)(&tokenizer, ids);
        if !r.job.ignore_end && self.model.ends().contains(&token) {
            r.logprobs.pop();
            return Ok(());
        }
        self.metrics.made_tokens.add(1);
        r.done.made += 1;
        let new = r.stream.push(token, &decode)?;
        if !new.is_empty() {
            r.job.tell(Event::Text(new, std::mem::take(&mut r.logprobs)));
        }
        let full = self.model.text(r.text).len() - ahead >= self.model.decoder().capacity();
        if r.stream.stopped() || r.sampler.is_complete() {
            return Ok(());
        }
        if r.done.made >= r.job.most || full {
            r.done.reason = "length";
            return Ok(());
        }
        r.next = Some(token);
        Ok(())
    }

    /// Ends the texts whose prompt has been read and that have no next token.
    fn sweep(&mut self) {
        let tokenizer = self.model.tokenizer().cloned();
        let metrics = self.metrics;
        self.running.retain_mut(|r| {
            if r.next.is_some() || r.read < r.job.ids.len() {
                return true;
            }
            if r.sampler.failed().is_some() {
                metrics.failed.add(1);
                return false;
            }
            let decode = |ids: &[u32]| tokenizer.as_ref().map_or(Ok(String::new()), |t| (r.decode)(t, ids));
            let rest = r.stream.finish(&decode).unwrap_or_default();
            if !rest.is_empty() || !r.logprobs.is_empty() {
                r.job.tell(Event::Text(rest, std::mem::take(&mut r.logprobs)));
            }
            if r.stream.stopped() {
                r.done.reason = "stop";
            }
            r.job.tell(Event::Done(r.done));
            metrics.done.add(1);
            false
        });
    }
}
