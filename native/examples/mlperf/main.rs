//! Networks of the MLPerf benchmarks at reduced size, each a file that reads like its paper: a forward pass and one training step, whose
//! predictions, losses and gradients are compared with those that PyTorch gave (`tests/zoo/mlperf.py`).
//! `cargo run --release -p gradloom --example mlperf -- [NETWORK..] [--device DEVICE]`

mod bert;
mod compare;
#[path = "../noise/mod.rs"]
mod noise;
mod resnet;
mod retinanet;
mod rnnt;
mod unet3d;
mod weights;

use gradloom::{Result, Runtime};

fn main() -> Result<()> {
    let (mut device, mut wanted, mut args) = ("auto".to_owned(), Vec::new(), std::env::args().skip(1));
    while let Some(a) = args.next() {
        match a.as_str() {
            "--device" => device = args.next().unwrap_or(device),
            _ => wanted.push(a),
        }
    }
    let known = |name: &&String| compare::NETWORKS.iter().any(|n| n.0 == **name);
    if let Some(strange) = wanted.iter().find(|n| !known(n)) {
        let names: Vec<&str> = compare::NETWORKS.iter().map(|n| n.0).collect();
        eprintln!("there is no network {strange}; there are {}", names.join(", "));
        std::process::exit(2);
    }
    for (name, network) in compare::NETWORKS {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == name) {
            continue;
        }
        let mut rt = Runtime::open(&device, 0)?;
        let step = weights::train(&mut rt, &network)?;
        let [before, after] = step.losses;
        let (off, at) = compare::off(name, &step)?;
        println!("{name:9} loss {before:.5}, after a step {after:.5}; off PyTorch's by {off:.1e} of the largest");
        if off > compare::LIMIT {
            eprintln!("{name}: that is more than {:.0e}, {at}", compare::LIMIT);
            std::process::exit(1);
        }
    }
    Ok(())
}
