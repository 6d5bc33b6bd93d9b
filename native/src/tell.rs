//! Sends what an engine does to a server: with `VIZ=ADDRESS` in the environment every engine of a process sends the
//! lines of `DEBUG=7` to the page that `gradloom viz` serves at that address. An engine keeps one HTTP request open as
//! long as it lives; each text is a chunk of its body, in the form of a server-sent event
//! (`html.spec.whatwg.org/multipage/server-sent-events.html`), which the server passes on to pages.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The environment variable with the address.
pub const VARIABLE: &str = "VIZ";
/// The default address of `gradloom viz`, and the meaning of `VIZ=1`.
pub const ADDRESS: &str = "127.0.0.1:8764";
/// The path that texts are posted to, and the header with the sender's name. A page of another origin
/// cannot send this header.
pub(crate) const PATH: &str = "/told";
pub(crate) const NAME: &str = "x-gradloom-name";

/// The time limit for connecting to the server and for each write.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to the server.
pub struct VizClient {
    /// `None` once the server is gone.
    stream: Option<TcpStream>,
}

impl VizClient {
    /// Connects to the address in the environment, if there is one; the error is a sentence.
    pub fn of_environment() -> Option<Result<VizClient, String>> {
        let at = std::env::var(VARIABLE).ok().filter(|at| !at.is_empty() && at != "0")?;
        let at = if at == "1" { ADDRESS.to_owned() } else { at };
        let failed = |e: io::Error| format!("{VARIABLE}={at}: {e}: start `gradloom viz` first");
        Some(VizClient::new(&at).map_err(failed))
    }

    /// Connects to the server at an address.
    ///
    /// # Errors
    /// The errors of the connection.
    pub fn new(at: &str) -> io::Result<VizClient> {
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "no such address");
        let to: SocketAddr = at.to_socket_addrs()?.next().ok_or_else(none)?;
        let mut stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        let head = format!("POST {PATH} HTTP/1.1\r\nhost: {to}\r\n{NAME}: {}\r\n", process());
        write!(stream, "{head}content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
        Ok(VizClient { stream: Some(stream) })
    }

    /// Sends a text. Does nothing if the server is gone.
    pub fn tell(&mut self, text: &str) {
        let Some(stream) = &mut self.stream else { return };
        let event = event(text);
        if write!(stream, "{:x}\r\n{event}\r\n", event.len()).is_err() {
            self.stream = None;
        }
    }
}

impl Drop for VizClient {
    fn drop(&mut self) {
        if let Some(stream) = &mut self.stream {
            let _ = stream.write_all(b"0\r\n\r\n");
        }
    }
}

/// Formats a text as a server-sent event. Only line feeds end its lines.
fn event(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8 + 16);
    for line in text.trim_end().split('\n') {
        out.push_str("data: ");
        out.push_str(&line.replace('\r', " "));
        out.push('\n');
    }
    out.push('\n');
    out
}

/// The program's name and arguments, in the characters that a header may contain.
fn process() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let program = program.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    let all = std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ");
    all.chars().take(200).map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn what_is_told_is_one_request_of_chunks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = VizClient::new(&listener.local_addr().unwrap().to_string()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        client.tell("kernel a\n  opts: none\n");
        drop(client);
        let mut all = String::new();
        other.read_to_string(&mut all).unwrap();
        let (head, body) = all.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /told HTTP/1.1\r\n") && head.contains("transfer-encoding: chunked"), "{head}");
        assert_eq!(body, "23\r\ndata: kernel a\ndata:   opts: none\n\n\r\n0\r\n\r\n");
    }

    #[test]
    fn nobody_who_listens_is_no_harm() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = VizClient::new(&listener.local_addr().unwrap().to_string()).unwrap();
        drop(listener);
        for _ in 0..1000 {
            client.tell("launch");
        }
        assert!(client.stream.is_none());
    }
}
