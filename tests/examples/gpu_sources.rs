//! What GPUs are given to compile: the kernels of the device samples and of the benchmark's networks, in f32 and in f16, as texts in a
//! kernel language like C, some kernels each, in files of a folder. A driver's compiler then reads them without its hardware.
//!
//! usage: gpu_sources metal|cuda:CAPABILITY|hip:gfx1100|hip:gfx1200|hip:gfx942 FOLDER [NETWORK..]

use gradloom_core::codegen::{Program, compile};
use gradloom_core::render::{self, Source, gpu_c};
use gradloom_core::target::{MatrixTile, Target};
use gradloom_core::{DType, Error, Result};
use gradloom_tests::networks::{BENCHMARKS, Net, build, kernels, load};
use gradloom_tests::programs::samples;
use std::collections::HashSet;
use std::path::Path;

/// Kernels in a file.
const PART: usize = 40;

fn target(name: &str) -> Result<Target> {
    Ok(match name.split_once(':').unwrap_or((name, "")) {
        ("metal", _) => Target::metal(name),
        ("cuda", capability) => {
            Target::cuda_c(name, capability.parse().map_err(|_| Error::value("capability", capability))?)
        }
        ("hip", "gfx1100") => Target::hip(name, 32, MatrixTile::rdna3()),
        ("hip", "gfx1200") => Target::hip(name, 32, MatrixTile::rdna4()),
        ("hip", "gfx942") => Target::hip(name, 64, MatrixTile::cdna3()),
        _ => return Err(Error::value("target", name)),
    })
}

fn programs(t: &Target, networks: &[String]) -> Result<Vec<Program>> {
    let mut out: Vec<Program> = samples(t).into_iter().map(|s| s.program).collect();
    for name in networks {
        for float in [DType::F32, DType::F16] {
            let net = Net::of(float);
            let outs = build(&net, name)?;
            let nodes = load(&net, &outs, t)?;
            for (ast, _) in kernels(&net, &nodes, t)? {
                out.push(compile(&ast, t, None)?);
            }
        }
    }
    Ok(out)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder, rest @ ..] = &args[..] else {
        return Err(Error::value("arguments", "gpu_sources TARGET FOLDER [NETWORK..]"));
    };
    let t = target(name)?;
    let networks: Vec<String> = if rest.is_empty() { BENCHMARKS.map(String::from).into() } else { rest.to_vec() };
    let (mut seen, mut sources, mut tiles) = (HashSet::new(), Vec::new(), 0);
    for p in programs(&t, &networks)? {
        let code = render::render(&p, &t)?;
        let render::Code::Text(text) = &code else { continue };
        if seen.insert(text.clone()) {
            tiles += usize::from(text.contains("gl_mma"));
            sources.push(Source::new(&p, code));
        }
    }
    for (i, part) in sources.chunks(PART).enumerate() {
        let written = std::fs::write(Path::new(folder).join(format!("{i:03}.txt")), gpu_c::unit(part)?);
        written.map_err(|e| Error::value("folder", format!("{folder}: {e}")))?;
    }
    println!("{} kernels for {name}, {tiles} with matrix tiles", sources.len());
    Ok(())
}
