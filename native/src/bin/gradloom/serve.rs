//! `gradloom serve`: serves a language model over HTTP.

use super::generate::Model;
use super::json::Json;
use super::{Cache, Failure, Outcome, Progress};
use clap::Args;
use gradloom::access::Access;
use gradloom::llm::Embedder;
use gradloom::serve::{Limits, Server};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Where, and what clients may use.
#[derive(Args)]
pub(crate) struct How {
    /// Port to listen on, 0 for a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// IP address to listen on; any other than the default may be reachable from other machines
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    #[command(flatten)]
    names: Names,
    /// Origin of pages that may use the API from a browser, such as https://example.com, or * for all; repeatable (default: only its own page)
    #[arg(long, value_name = "ORIGIN")]
    cors: Vec<String>,
    /// Model name in the API (default: the file name without extension)
    #[arg(long)]
    name: Option<String>,
    /// Number of texts generated at once; each takes KV cache memory for --context tokens
    #[arg(long, default_value_t = 4)]
    parallel: usize,
    /// Maximum number of waiting requests; further ones are refused with status 429
    #[arg(long, default_value_t = 256)]
    queue: usize,
    /// Maximum size of a request body in bytes
    #[arg(long, default_value_t = 4 << 20)]
    max_body: usize,
    /// Maximum number of tokens per answer, 0 for no limit but the context length
    #[arg(long, default_value_t = 0)]
    max_tokens: usize,
    /// Time limit of a request in seconds
    #[arg(long, default_value_t = 600)]
    time_limit: u64,
}

/// The names of a server.
#[derive(Args)]
pub(crate) struct Names {
    /// Name of this machine by which requests may address the server, beside IP addresses and localhost; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
}

pub(crate) fn serve(model: &Model, how: &How, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let host: IpAddr = how.host.parse().map_err(|_| Failure(format!("--host {} is not an IP address", how.host)))?;
    let limits = Limits {
        body_bytes: how.max_body,
        queue: how.queue,
        tokens: if how.max_tokens == 0 { usize::MAX } else { how.max_tokens },
        time: Duration::from_secs(how.time_limit),
        access: Access::new(&how.names.allow_host, &how.cors)?,
        ..Limits::default()
    };
    let name = how.name.clone().unwrap_or_else(|| model.name());
    let address = SocketAddr::new(host, how.port);
    let server = match Embedder::is_for(model.path())? {
        true => Server::start_embedder(model.load_embedder(cache, progress)?, &name, address, limits)?,
        false => {
            let loaded = model.load_all(4096, how.parallel.max(1), cache, progress)?;
            Server::start(loaded, &name, address, limits)?
        }
    };
    // Programs that start this one wait for this line
    println!("{name} at http://{}/v1", server.address());
    progress.say(format_args!("a page for people is at http://{}/", server.address()));
    server.until_told()?;
    progress.say("server stopped");
    Ok(Json::Text(String::new()))
}
