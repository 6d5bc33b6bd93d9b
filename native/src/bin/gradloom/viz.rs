//! `gradloom viz`: serves the page that shows native runs, and starts the program to be shown.

use super::json::Json;
use super::serve::Names;
use super::{Failure, Outcome, Progress};
use clap::Args;
use gradloom::access::Access;
use gradloom::tell::{ADDRESS, VARIABLE};
use gradloom::viz::Viz;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// The file name extensions of models that `gradloom run` takes.
const MODELS: [&str; 2] = ["onnx", "tflite"];

/// Where, and of what.
#[derive(Args)]
pub(crate) struct Job {
    /// Address and port to listen on; any other than the default may be reachable from other machines
    #[arg(long, default_value = ADDRESS)]
    address: SocketAddr,
    #[command(flatten)]
    names: Names,
    /// Model to run, gradloom command, or program that uses gradloom, with arguments (default: wait for programs started with VIZ=1)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<String>,
}

pub(crate) fn viz(job: &Job, commands: &[String], progress: Progress) -> Outcome<Json> {
    let server = Viz::start(job.address, Access::new(&job.names.allow_host, &[])?)?;
    // Programs that start this one wait for this line
    println!("http://{}", server.address());
    let value = match job.address.to_string() == ADDRESS {
        true => "1".to_owned(),
        false => server.address().to_string(),
    };
    let Some((first, rest)) = job.words.split_first() else {
        progress.say(format_args!("waiting for programs started with {VARIABLE}={value}; press Ctrl-C to quit"));
        server.wait();
        return Ok(Json::Text(String::new()));
    };
    let own = || std::env::current_exe().map_err(|e| Failure(format!("this program cannot be found: {e}")));
    let is_model = Path::new(first).extension().is_some_and(|e| MODELS.iter().any(|m| e.eq_ignore_ascii_case(m)));
    let mut command = if is_model {
        let mut c = Command::new(own()?);
        c.arg("run").arg(first);
        c
    } else if commands.contains(first) {
        let mut c = Command::new(own()?);
        c.arg(first);
        c
    } else {
        Command::new(first)
    };
    let address = server.address().to_string();
    let status = command.args(rest).env(VARIABLE, address).status().map_err(|e| Failure(format!("{first}: {e}")))?;
    progress.say(format_args!("{first} exited ({status}); still serving the page, press Ctrl-C to quit"));
    server.wait();
    Ok(Json::Text(String::new()))
}
