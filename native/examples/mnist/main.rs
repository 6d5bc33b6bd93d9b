//! Reads handwritten digits: a small convolutional network, trained on MNIST and tested on digits it has not seen.
//! `cargo run --release -p gradloom --example mnist -- [DEVICE] [EPOCHS] [FILE]`: the file is Keras' `mnist.npz`, which
//! `node scripts/fetch-models.mjs mnist` puts where it is looked for.

mod learn;

use gradloom::{Result, Runtime};
use std::time::Instant;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let epochs = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(10);
    let digits = learn::read(args.get(2).map_or(".cache/datasets/mnist.npz", String::as_str))?;
    let mut rt = Runtime::open(args.first().map_or("auto", String::as_str), 0)?;
    let begin = Instant::now();
    let learned = learn::learn(&mut rt, &digits, epochs)?;
    let seconds = begin.elapsed().as_secs_f64();
    if let (Some(first), Some(last)) = (learned.losses.first(), learned.losses.last()) {
        println!("{} steps in {seconds:.1} s: loss {first:.3} to {last:.3}", learned.losses.len());
    }
    let right = learned.right as f64 / learned.all as f64;
    println!("{:.2} % of {} digits that it has not seen are right", 100.0 * right, learned.all);
    if right < 0.95 {
        eprintln!("that is not learned: 95 % were expected");
        std::process::exit(1);
    }
    Ok(())
}
