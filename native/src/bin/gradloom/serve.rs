//! `gradloom serve`: serves a language model over HTTP.

use super::generate::Model;
use super::json::Json;
use super::{Cache, Failure, Outcome, Progress};
use clap::Args;
use gradloom::serve::{Limits, Server};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Where, and what clients may use.
#[derive(Args)]
pub(crate) struct How {
    /// The port, 0 for one that is free
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The address; other machines can reach others than this one
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// What clients call the model (default: the name of its file)
    #[arg(long)]
    name: Option<String>,
    /// Texts at once; each takes memory for --context tokens
    #[arg(long, default_value_t = 4)]
    parallel: usize,
    /// Requests that wait; more are told to come back
    #[arg(long, default_value_t = 256)]
    queue: usize,
    /// Bytes of a request at most
    #[arg(long, default_value_t = 4 << 20)]
    max_body: usize,
    /// Tokens of an answer at most, 0 for as many as there is room for
    #[arg(long, default_value_t = 0)]
    max_tokens: usize,
    /// Seconds of a request at most
    #[arg(long, default_value_t = 600)]
    time_limit: u64,
}

pub(crate) fn serve(model: &Model, how: &How, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let host: IpAddr = how.host.parse().map_err(|_| Failure(format!("--host {} is no address", how.host)))?;
    let loaded = model.load(4096, how.parallel.max(1), cache, progress)?;
    let limits = Limits {
        body_bytes: how.max_body,
        queue: how.queue,
        tokens: if how.max_tokens == 0 { usize::MAX } else { how.max_tokens },
        time: Duration::from_secs(how.time_limit),
        ..Limits::default()
    };
    let name = how.name.clone().unwrap_or_else(|| model.name());
    let server = Server::start(loaded, &name, SocketAddr::new(host, how.port), limits)?;
    // Programs that start this one wait for this line
    println!("{name} at http://{}/v1", server.address());
    server.until_told()?;
    progress.say("ended");
    Ok(Json::Text(String::new()))
}
