//! The server of a page that shows native runs live: processes send what their engines compile and launch
//! ([`crate::tell`]), and the pages of this server show it as it arrives. The page itself is built from `www/viz` by
//! `npm run native:pages`.
//!
//! In: `POST /told`, one request for each engine, whose body is a stream of server-sent events. Out: `GET /`, the page,
//! and `GET /events`, everything received so far and everything that is received later. Each event that a page gets has
//! the number of its engine.

use crate::access::{Access, check};
use crate::page;
use crate::tell::{NAME, PATH};
use crate::{Error, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_core::Stream;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// The page, with its script and its styles.
const PAGE: &str = include_str!("viz/page.html");
/// The most bytes of one text; the connection to an engine that sends more is closed.
const TEXT_BYTES: usize = 32 << 20;
/// The most bytes of kernels and graphs that are kept for pages that are opened later.
const KEPT_BYTES: usize = 256 << 20;
/// The number of launches that are kept, of all engines together.
const LAUNCHES: usize = 20_000;
/// The most events that a page may be behind. A slower page is disconnected; it reconnects by itself and
/// gets what is kept.
const BEHIND: usize = 100_000;

/// The events received so far, and the connected pages.
#[derive(Default)]
struct History {
    engines: u64,
    /// Engines, kernels and graphs, in the order of arrival.
    kept: Vec<Bytes>,
    kept_bytes: usize,
    launches: VecDeque<Bytes>,
    pages: Vec<mpsc::Sender<Bytes>>,
}

impl History {
    fn hand_on(&mut self, event: &Bytes) {
        self.pages.retain(|page| page.try_send(event.clone()).is_ok());
    }

    /// Passes on and keeps an event that all pages need, including later ones.
    fn keep(&mut self, event: Bytes) {
        self.hand_on(&event);
        if self.kept_bytes + event.len() <= KEPT_BYTES {
            self.kept_bytes += event.len();
            self.kept.push(event);
        }
    }

    fn launch(&mut self, event: Bytes) {
        self.hand_on(&event);
        self.launches.push_back(event);
        if self.launches.len() > LAUNCHES {
            self.launches.pop_front();
        }
    }
}

type Shared = Arc<Mutex<History>>;

fn locked(history: &Shared) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running server; it ends when it is dropped.
pub struct Viz {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Viz {
    /// Listens at an address, for pages and engines that `access` allows; port 0 takes a free port.
    ///
    /// # Errors
    /// `E_INPUT` for an address that cannot be bound.
    pub fn start(address: SocketAddr, access: Access) -> Result<Viz> {
        let failed = move |e: std::io::Error| Error::Input { name: address.to_string(), what: e.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let access = Arc::new(access);
        let (end, told_to_end) = oneshot::channel::<()>();
        let app = Router::new()
            .route("/", get(index))
            .route("/events", get(events))
            .route(PATH, post(receive_events))
            .layer(from_fn(move |r, next| check(access.clone(), |what| what + "\n", r, next)))
            .with_state(Shared::default());
        let serve = async move {
            tokio::select! {
                // An error of the listener ends it as well
                _ = std::future::IntoFuture::into_future(axum::serve(listener, app)) => {}
                _ = told_to_end => {}
            }
        };
        let thread = std::thread::Builder::new().name("gradloom-viz".into());
        let thread = thread.spawn(move || runtime.block_on(serve)).map_err(failed)?;
        Ok(Viz { address, end: Some(end), thread: Some(thread) })
    }

    /// The address where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the process ends.
    pub fn wait(mut self) {
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Viz {
    fn drop(&mut self) {
        let _ = self.end.take().map(|end| end.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn index() -> Response {
    page::html(PAGE)
}

async fn events(State(shared): State<Shared>) -> Response {
    let (page, come) = mpsc::channel(BEHIND);
    let mut history = locked(&shared);
    // A page that reconnects must forget what it knew, because everything kept is sent again
    let first = std::iter::once(Bytes::from_static(b"event: fresh\ndata:\n\n"));
    let ready = first.chain(history.kept.iter().cloned()).chain(history.launches.iter().cloned()).collect();
    history.pages.push(page);
    drop(history);
    let mut r = Response::new(Body::from_stream(Events { ready, come }));
    let h = r.headers_mut();
    h.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    h.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    r
}

/// The events for a page: first the kept ones.
struct Events {
    ready: VecDeque<Bytes>,
    come: mpsc::Receiver<Bytes>,
}

impl Stream for Events {
    type Item = std::result::Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.ready.pop_front() {
            Some(event) => Poll::Ready(Some(Ok(event))),
            None => self.come.poll_recv(cx).map(|event| event.map(Ok)),
        }
    }
}

/// Receives the events of an engine.
async fn receive_events(State(shared): State<Shared>, request: Request) -> Response {
    let Some(name) = request.headers().get(NAME).and_then(|n| n.to_str().ok()).map(str::to_owned) else {
        // A page of another origin cannot send this field
        return (StatusCode::FORBIDDEN, "this is for engines\n").into_response();
    };
    let number = {
        let mut history = locked(&shared);
        history.engines += 1;
        let number = history.engines;
        history.keep(Bytes::from(format!("event: begin\ndata: {number}\ndata: {name}\n\n")));
        number
    };
    let _ending = Ending { shared: &shared, number };
    match listen(&shared, request.into_body(), number).await {
        true => StatusCode::NO_CONTENT.into_response(),
        false => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// Reports that an engine has ended, however it ended: if its process dies, this handler's future is dropped.
struct Ending<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        locked(self.shared).keep(Bytes::from(format!("event: end\ndata: {}\n\n", self.number)));
    }
}

/// Passes on the events of an engine until it ends. Returns false if the body is not a stream of events.
async fn listen(shared: &Shared, body: Body, number: u64) -> bool {
    let mut stream = body.into_data_stream();
    let mut left: Vec<u8> = Vec::new();
    while let Some(Ok(bytes)) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
        // The end of an event may be split between two chunks
        let mut from = left.len().saturating_sub(1);
        left.extend_from_slice(&bytes);
        let mut begin = 0;
        while let Some(at) = left[from..].windows(2).position(|w| w == b"\n\n") {
            let end = from + at + 2;
            let text = &left[begin..end];
            let Some(first) = text.strip_prefix(b"data: ") else { return false };
            let event = [format!("event: told\ndata: {number}\n").as_bytes(), text].concat();
            let is_launch = first.first() == Some(&b' ');
            let mut history = locked(shared);
            if is_launch {
                history.launch(event.into())
            } else {
                history.keep(event.into())
            }
            (begin, from) = (end, end);
        }
        left.drain(..begin);
        if left.len() > TEXT_BYTES {
            return false;
        }
    }
    left.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tell::VizClient;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;

    fn ask(viz: &Viz, request: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(viz.address()).unwrap();
        write!(stream, "{request} HTTP/1.1\r\n\r\n").unwrap();
        BufReader::new(stream)
    }

    /// lines of events, without the sizes of chunks
    fn lines(from: &mut BufReader<TcpStream>, until: &str) -> Vec<String> {
        let mut all = Vec::new();
        while all.last().is_none_or(|l| l != until) {
            let mut line = String::new();
            assert!(from.read_line(&mut line).unwrap() > 0, "it ends before {until}: {all:?}");
            let line = line.trim_end().to_owned();
            if line.starts_with("event: ") || line.starts_with("data: ") {
                all.push(line);
            }
        }
        all
    }

    #[test]
    fn pages_are_told_what_was_and_what_is() {
        let viz = Viz::start(([127, 0, 0, 1], 0).into(), Access::default()).unwrap();
        let mut client = VizClient::new(&viz.address().to_string()).unwrap();
        client.tell("kernel a\n  opts: none");
        client.tell("     1 a  3.5 us ");
        let mut early = ask(&viz, &format!("GET /events HTTP/1.1\r\nhost: {}\r\nx: ", viz.address()));
        let first = ["event: told", "data: 1", "data: kernel a", "data:   opts: none", "event: told", "data: 1"];
        let got = lines(&mut early, "data:      1 a  3.5 us");
        assert!(got.windows(first.len()).any(|w| w == first), "{got:?}");
        client.tell("kernel b");
        assert_eq!(lines(&mut early, "data: kernel b"), ["event: told", "data: 1", "data: kernel b"]);
        drop(client);
        assert_eq!(lines(&mut early, "data: 1"), ["event: end", "data: 1"]);
        // a process that dies in the middle of a text
        let mut gone = TcpStream::connect(viz.address()).unwrap();
        let head =
            format!("POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\n{NAME}: x\r\ntransfer-encoding: chunked\r\n\r\n");
        write!(gone, "{head}9\r\ndata: ker").unwrap();
        assert_eq!(lines(&mut early, "data: x"), ["event: begin", "data: 2", "data: x"]);
        drop(gone);
        assert_eq!(lines(&mut early, "data: 2"), ["event: end", "data: 2"]);
        // a page that is opened later: launches are last
        let mut late = ask(&viz, &format!("GET /events HTTP/1.1\r\nhost: {}\r\nx: ", viz.address()));
        let got = lines(&mut late, "data:      1 a  3.5 us");
        assert!(got.contains(&"data: kernel b".to_owned()), "{got:?}");
    }

    #[test]
    fn others_are_refused() {
        let viz = Viz::start(([127, 0, 0, 1], 0).into(), Access::default()).unwrap();
        for (request, status) in [
            ("GET / HTTP/1.1\r\nhost: 127.0.0.1:1\r\nconnection: close\r\nx: ", "200"),
            ("GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\nx: ", "403"),
            ("GET /events HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\nx: ", "403"),
            ("POST /told HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: 0\r\nx: ", "403"),
            (
                "POST /told HTTP/1.1\r\nhost: 127.0.0.1\r\nx-gradloom-name: a\r\nconnection: close\r\ncontent-length: 4\r\nx: ",
                "400",
            ),
        ] {
            let mut stream = TcpStream::connect(viz.address()).unwrap();
            write!(stream, "{request}\r\n\r\nnone").unwrap();
            let mut all = String::new();
            stream.read_to_string(&mut all).unwrap();
            assert!(all.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {all:.100}");
        }
    }
}
