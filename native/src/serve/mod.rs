//! Serves a language model or an encoder over HTTP with OpenAI's interface (`platform.openai.com/docs/api-reference`), so
//! that its clients work.
//!
//! | file | contents |
//! |---|---|
//! | `request` | parses and checks the bodies of requests |
//! | `reply` | the bodies of answers and errors |
//! | `engine` | the model's thread, in which texts of many clients share steps |
//! | `vectors` | embeddings and reranking, and the thread of an encoder |
//! | `routes` | passes requests to the engine and answers back; server-sent events |
//! | `metrics` | counters for Prometheus |
//! | `page.html` | the page for people, built from `www` by `npm run native:pages` |
//!
//! Requests wait for the model's thread in a queue of limited length; when a client leaves, its text ends before the
//! next step. What a client may use is limited: bytes of a body, tokens, seconds, connections. Never here: TLS and
//! accounts; use a proxy for these.

mod engine;
mod metrics;
mod reply;
mod request;
mod routes;
mod vectors;

use crate::access::Access;
use crate::llm::{Embedder, LanguageModel, Vocabulary};
use crate::text::{ChatTemplate, Tokenizer};
use crate::{Error, Result};
use engine::Work;
use metrics::Metrics;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, Sleep};

/// Limits for clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most bytes of a request's body.
    pub body_bytes: usize,
    /// The most waiting requests; further ones are asked to come back later.
    pub queue: usize,
    /// The most tokens of an answer.
    pub tokens: usize,
    /// The time limit from the arrival of a request to the end of its answer.
    pub time: Duration,
    /// The most open connections; further ones wait to be accepted.
    pub connections: usize,
    /// The time that unfinished answers have when the server is told to end.
    pub grace: Duration,
    /// By which names, and from pages of which origins, it may be asked.
    pub access: Access,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 4 << 20,
            queue: 256,
            tokens: usize::MAX,
            time: Duration::from_secs(600),
            connections: 1024,
            grace: Duration::from_secs(30),
            access: Access::default(),
        }
    }
}

/// What the model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    /// Texts, and vectors of texts.
    Text,
    /// Vectors of texts.
    Vectors,
    /// Scores of pairs of texts.
    Scores,
}

/// What all requests share.
struct Shared {
    name: String,
    serves: Serves,
    /// The names of the adapters that a request may ask for.
    adapters: Vec<String>,
    /// The adapter of requests that name none.
    adapter: Option<String>,
    created: u64,
    tokenizer: Arc<Tokenizer>,
    chat: Option<Arc<ChatTemplate>>,
    vocabulary: usize,
    /// The tokens' bytes, against which grammars are matched; made for the first grammar.
    bytes: OnceLock<Arc<Vocabulary>>,
    capacity: usize,
    limits: Limits,
    work: mpsc::Sender<Work>,
    metrics: Arc<Metrics>,
}

/// What requests need to know of a model.
struct Parts {
    serves: Serves,
    tokenizer: Arc<Tokenizer>,
    chat: Option<Arc<ChatTemplate>>,
    vocabulary: usize,
    capacity: usize,
    adapters: Vec<String>,
    adapter: Option<String>,
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    http: Option<JoinHandle<Result<()>>>,
    engine: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves a model under a name at an address; port 0 takes a free port.
    ///
    /// # Errors
    /// Those of [`LanguageModel::need_tokenizer`], `E_INPUT` for an address that cannot be bound.
    pub fn start(model: LanguageModel, name: &str, address: SocketAddr, limits: Limits) -> Result<Server> {
        let parts = Parts {
            serves: Serves::Text,
            tokenizer: model.need_tokenizer()?.clone(),
            chat: model.chat().cloned(),
            vocabulary: model.decoder().vocabulary()?,
            capacity: model.decoder().capacity(),
            adapters: model.adapters().into_iter().map(str::to_owned).collect(),
            adapter: model.adapter().map(str::to_owned),
        };
        Server::launch(parts, name, address, limits, move |queue, metrics, stop| {
            engine::run(model, queue, metrics, stop);
        })
    }

    /// As [`Server::start`] with an encoder, for embeddings; with a cross-encoder, for reranking.
    ///
    /// # Errors
    /// Those of [`Server::start`]; `E_UNSUPPORTED` for a classifier with several classes.
    pub fn start_embedder(model: Embedder, name: &str, address: SocketAddr, limits: Limits) -> Result<Server> {
        let serves = match model.encoder().labels() {
            None => Serves::Vectors,
            Some(_) => Serves::Scores,
        };
        if serves == Serves::Scores {
            model.check_scores()?;
        }
        let parts = Parts {
            serves,
            tokenizer: model.need_tokenizer()?.clone(),
            chat: None,
            vocabulary: model.encoder().vocabulary()?,
            capacity: model.encoder().capacity(),
            adapters: Vec::new(),
            adapter: None,
        };
        Server::launch(parts, name, address, limits, move |queue, metrics, stop| {
            vectors::run(model, queue, metrics, stop);
        })
    }

    fn launch(
        parts: Parts,
        name: &str,
        address: SocketAddr,
        limits: Limits,
        work_on: impl FnOnce(mpsc::Receiver<Work>, &Metrics, &Arc<AtomicBool>) + Send + 'static,
    ) -> Result<Server> {
        let failed = move |e: io::Error| Error::Input { name: address.to_string(), what: e.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (work, queue) = mpsc::channel(limits.queue.max(1));
        let (metrics, ended) = (Arc::new(Metrics::default()), Arc::new(AtomicBool::new(false)));
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            serves: parts.serves,
            adapters: parts.adapters,
            adapter: parts.adapter,
            created: reply::seconds(),
            tokenizer: parts.tokenizer,
            chat: parts.chat,
            vocabulary: parts.vocabulary,
            bytes: OnceLock::new(),
            capacity: parts.capacity,
            limits: limits.clone(),
            work,
            metrics: metrics.clone(),
        });
        let stop = ended.clone();
        let engine = std::thread::Builder::new().name("gradloom-serve-model".into());
        let engine = engine.spawn(move || work_on(queue, &metrics, &stop)).map_err(failed)?;
        let (end, told) = oneshot::channel();
        let http = std::thread::Builder::new().name("gradloom-serve-http".into());
        let http = http.spawn(move || runtime.block_on(serve(listener, shared, told, ended))).map_err(failed)?;
        Ok(Server { address, end: Some(end), http: Some(http), engine: Some(engine) })
    }

    /// The address where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no further requests, lets running ones end within the grace period, and ends.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// Serves until the process is told to end (Ctrl-C, or SIGTERM), then ends as [`Server::stop`] does.
    pub fn until_told(mut self) -> Result<()> {
        let failed = |e: io::Error| Error::Input { name: "signals".into(), what: e.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(told()).map_err(failed)?;
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        // If the server has ended by itself, nobody receives this
        let _ = self.end.take().map(|end| end.send(()));
        let ended = |who: &str| Error::Internal(format!("the {who}'s thread ended with a panic"));
        let http = self.http.take().map_or(Ok(Ok(())), JoinHandle::join);
        let engine = self.engine.take().map_or(Ok(()), JoinHandle::join);
        http.map_err(|_| ended("server"))??;
        engine.map_err(|_| ended("model"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    told: oneshot::Receiver<()>,
    ended: Arc<AtomicBool>,
) -> Result<()> {
    let (grace, idle) = (shared.limits.grace, shared.limits.time.saturating_add(Duration::from_secs(30)));
    let permits = Arc::new(Semaphore::new(shared.limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    let (late, mut now) = tokio::sync::watch::channel(());
    let app = routes::router(shared);
    let told = async move {
        let _ = told.await;
        drop(late);
    };
    let listener = Limited { listener, permits, idle };
    let mut server = std::pin::pin!(axum::serve(listener, app).with_graceful_shutdown(told).into_future());
    // What is not done within the grace period is abandoned
    let done = tokio::select! {
        done = &mut server => done,
        () = async {
            let _ = now.changed().await;
            tokio::time::sleep(grace).await;
            ended.store(true, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(200)).await;
        } => Ok(()),
    };
    ended.store(true, Ordering::Relaxed);
    done.map_err(|e| Error::Input { name: "server".into(), what: e.to_string() })
}

/// A listener that limits the number of open connections.
struct Limited {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    idle: Duration,
}

impl axum::serve::Listener for Limited {
    type Io = Counted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Counted, SocketAddr) {
        let permit = self.permits.clone().acquire_owned().await.ok();
        let (stream, from) = axum::serve::Listener::accept(&mut self.listener).await;
        // Tokens are sent one at a time
        let _ = stream.set_nodelay(true);
        (Counted { stream, idle: self.idle, until: Box::pin(tokio::time::sleep(self.idle)), _permit: permit }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that counts towards the limit. It is closed when nothing is transferred for longer than a
/// request may take.
struct Counted {
    stream: TcpStream,
    idle: Duration,
    until: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Counted {
    /// Passes on the result of a call; an error if nothing has been transferred for too long.
    fn within<T>(&mut self, cx: &mut Context<'_>, came: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if came.is_ready() {
            self.until.as_mut().reset(Instant::now() + self.idle);
            return came;
        }
        self.until.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let came = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.within(cx, came)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.within(cx, came)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(unix)]
async fn told() -> io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        r = tokio::signal::ctrl_c() => r,
        _ = terminate.recv() => Ok(()),
    }
}

#[cfg(not(unix))]
async fn told() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}
