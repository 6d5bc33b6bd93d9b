//! Counters in Prometheus' text format (`prometheus.io/docs/instrumenting/exposition_formats`).

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that several threads update.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn set(&self, n: usize) {
        self.0.store(n as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct Metrics {
    pub(super) requests: Count,
    pub(super) refused: Count,
    pub(super) failed: Count,
    pub(super) left: Count,
    pub(super) done: Count,
    pub(super) prompt_tokens: Count,
    pub(super) kept_tokens: Count,
    pub(super) made_tokens: Count,
    pub(super) steps: Count,
    pub(super) shared_tokens: Count,
    pub(super) guessed_tokens: Count,
    pub(super) running: Count,
    pub(super) first_us: Count,
    pub(super) device_bytes: Count,
    pub(super) programs: Count,
    pub(super) nodes: Count,
}

impl Metrics {
    /// All counters as text, and the number of waiting requests.
    pub(super) fn text(&self, waiting: usize) -> String {
        let mut out = String::new();
        let mut line = |name: &str, kind: &str, what: &str, value: f64| {
            let name = format!("gradloom_{name}");
            let _ = write!(out, "# HELP {name} {what}\n# TYPE {name} {kind}\n{name} {value}\n");
        };
        let count = |c: &Count| c.get() as f64;
        line("requests_total", "counter", "Requests that reached an endpoint.", count(&self.requests));
        line("requests_refused_total", "counter", "Requests that were answered with an error.", count(&self.refused));
        line("requests_failed_total", "counter", "Texts that ended with an error.", count(&self.failed));
        line("requests_left_total", "counter", "Texts whose client left.", count(&self.left));
        line("requests_done_total", "counter", "Texts that ended well.", count(&self.done));
        line("requests_waiting", "gauge", "Requests in the queue.", waiting as f64);
        line("requests_running", "gauge", "Texts that are read or written.", count(&self.running));
        line("prompt_tokens_total", "counter", "Tokens that were read.", count(&self.prompt_tokens));
        line(
            "prompt_tokens_kept_total",
            "counter",
            "Tokens that were read for a text before.",
            count(&self.kept_tokens),
        );
        line("generated_tokens_total", "counter", "Tokens that were made.", count(&self.made_tokens));
        line("decode_steps_total", "counter", "Runs that read one token of some texts.", count(&self.steps));
        line("decode_step_tokens_total", "counter", "Tokens that these read.", count(&self.shared_tokens));
        line("guessed_tokens_total", "counter", "Tokens that were guessed right.", count(&self.guessed_tokens));
        line("first_token_seconds_sum", "counter", "Seconds to first tokens.", count(&self.first_us) / 1e6);
        line("device_bytes", "gauge", "Bytes on the device.", count(&self.device_bytes));
        line("programs_total", "counter", "Kernels that were compiled.", count(&self.programs));
        line("graph_nodes", "gauge", "Nodes of the model's graph.", count(&self.nodes));
        out
    }
}
