//! Writes the PTX of the device samples and of the benchmarks' networks for each compute capability into a folder, for NVIDIA's assembler
//! to read (`npm run check:ptx`): a module for the samples and one for each network.
//!
//! usage: ptx FOLDER [NETWORK..]

use gradloom_core::codegen::{Program, compile};
use gradloom_core::render::ptx::{Ptx, unit};
use gradloom_core::render::{Renderer, Source};
use gradloom_core::target::{Sm, Target};
use gradloom_core::{DType, Error};
use gradloom_tests::networks::{Net, build, kernels, load};
use gradloom_tests::programs::samples;
use std::path::Path;

/// Those of the benchmarks, and products of 16-bit floats.
const NETWORKS: [&str; 14] = [
    "matmul:1024",
    "matvec:1024",
    "conv:56",
    "softmax:1024",
    "layernorm:1024",
    "gelu:65536",
    "sum:65536",
    "mobilenetv2",
    "resnet50",
    "minilm:64",
    "bert:2",
    "gpt2step:64",
    "mnist-step:64",
    "lstm:16",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: ptx FOLDER [NETWORK..]")?;
    let named: Vec<String> = args.collect();
    let all = || NETWORKS.iter().map(|n| n.to_string()).collect();
    let names: Vec<String> = if named.is_empty() { all() } else { named };
    for sm in Sm::ALL {
        let t = Target::cuda("cuda", sm);
        let at = Path::new(&folder).join(sm.name());
        std::fs::create_dir_all(&at)?;
        let programs: Vec<Program> = samples(&t).into_iter().map(|s| s.program).collect();
        write(&at.join("samples.ptx"), &programs, &t)?;
        for name in &names {
            for dt in [DType::F32, DType::F16, DType::BF16] {
                if dt != DType::F32 && !name.starts_with("matmul") && !name.starts_with("bert") {
                    continue;
                }
                let net = Net::of(dt);
                let outs = build(&net, name)?;
                let nodes = load(&net, &outs, &t)?;
                let programs = kernels(&net, &nodes, &t)?
                    .iter()
                    .map(|(ast, _)| compile(ast, &t, None))
                    .collect::<Result<Vec<Program>, Error>>()?;
                write(&at.join(format!("{}-{dt}.ptx", name.replace(':', "-"))), &programs, &t)?;
            }
        }
    }
    Ok(())
}

fn write(path: &Path, programs: &[Program], t: &Target) -> Result<(), Box<dyn std::error::Error>> {
    let sources = programs.iter().map(|p| Ok(Source::new(p, Ptx.render(p, t)?))).collect::<Result<Vec<_>, Error>>()?;
    std::fs::write(path, unit(&sources)?)?;
    println!("{}: {} kernels", path.display(), programs.len());
    Ok(())
}
