//! The example that reads digits is trained and then tested: layers, gradients, optimiser and plans together. The digits are fetched
//! (`node scripts/fetch-models.mjs mnist`).

use gradloom::Runtime;
use gradloom_tests::here;

#[path = "../../native/examples/mnist/learn.rs"]
mod learn;

const EPOCHS: usize = 6;

#[test]
fn a_network_learns_to_read_digits() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/datasets/mnist.npz");
    if !std::path::Path::new(path).exists() {
        return here::left_out("mnist", "run `node scripts/fetch-models.mjs mnist` first");
    }
    let Some(mut rt) = here::device("cpu", Runtime::open("cpu", 0)) else { return };
    let learned = learn::learn(&mut rt, &learn::read(path).expect("digits"), EPOCHS).unwrap();
    let (accuracy, c) = (learned.right as f64 / learned.all as f64, rt.counters());
    let (first, last) = (learned.losses[0], learned.losses[learned.losses.len() - 1]);
    eprintln!(
        "mnist: loss {first:.3} to {last:.3}, accuracy {:.1}%, {} plans, peak {} bytes",
        accuracy * 100.0,
        c.plans,
        c.peak_bytes
    );
    assert!(accuracy >= 0.97, "{} of {}", learned.right, learned.all);
    assert!(c.plans <= 6, "{} plans: a step is planned once", c.plans);
    assert!(c.peak_bytes < 64 << 20, "{} bytes: old batches are freed", c.peak_bytes);
}
