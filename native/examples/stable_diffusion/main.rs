//! Stable Diffusion 1, from a text to a picture, and the U-Net of XL, at reduced size with weights of noise: what each part gives is compared with
//! diffusers and PyTorch (`tests/zoo/stable_diffusion.py`).
//! `cargo run --release -p gradloom --example stable_diffusion -- [DEVICE]`

mod around;
mod blocks;
mod compare;
#[path = "../noise/mod.rs"]
mod noise;
mod unet;

use gradloom::{Result, Runtime};
use std::time::Instant;

fn main() -> Result<()> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let start = Instant::now();
    let (sd, later) = compare::sd(&mut Runtime::open(&device, 0)?)?;
    println!("sd, three steps, with compiling: {:.2?}", start.elapsed());
    let start = Instant::now();
    let sdxl = compare::sdxl(&mut Runtime::open(&device, 0)?)?;
    println!("sdxl, one step, with compiling: {:.2?}", start.elapsed());
    let mut good = later == 0;
    if !good {
        eprintln!("the steps after the second made {later} plans");
    }
    for (name, given) in [("sd", &sd), ("sdxl", &sdxl)] {
        for (what, off) in compare::off(name, given)? {
            println!("{name:4} {what:7} off PyTorch's by {off:.1e} of the largest");
            good &= off <= compare::LIMIT;
        }
    }
    if !good {
        eprintln!("that is more than {:.0e}, or not one plan", compare::LIMIT);
        std::process::exit(1);
    }
    Ok(())
}
