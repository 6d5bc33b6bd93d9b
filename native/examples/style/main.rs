//! A picture painted in one of 26 styles, or in several at once: a network that normalises by the style (Dumoulin, Shlens, Kudlur, "A learned
//! representation for artistic style", 2017), from an ONNX file.
//! `cargo run --release -p gradloom --features images --example style -- [PICTURE] [--style 7[,13..]] [--out FILE.png] [--device DEVICE]`.
//!
//! Without a picture it paints the cat of `tests/models`, and fails where the picture is not onnxruntime's, or where other styles give the same.

mod paint;
#[path = "../pictures/mod.rs"]
mod pictures;

use gradloom::io::{HostTensor, npz};
use gradloom::{Error, OnnxModel, Result};
use paint::{SIDE, STYLES};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How far a value may be from onnxruntime's; they go from 0 to 1.
const LIMIT: f64 = 1e-4;
/// The style of the recorded picture.
const RECORDED: usize = 7;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/models/style_multistyle26")
}

fn recorded(file: &str, name: &str) -> Result<HostTensor> {
    let arrays = npz::read(&gradloom::model::read_file(&folder().join(file))?)?;
    let missing = || Error::Input { name: file.into(), what: format!("has no {name}") };
    arrays.into_iter().find(|a| a.0 == name).map(|a| a.1).ok_or_else(missing)
}

/// Numbers of styles, with commas between.
fn styles(text: &str) -> Option<Vec<usize>> {
    text.split(',').map(|n| n.parse().ok().filter(|&n| n < STYLES)).collect()
}

fn fail(what: &str) -> ! {
    eprintln!("{what}");
    std::process::exit(1);
}

fn main() -> Result<()> {
    let (mut device, mut chosen, mut out, mut path) = ("auto".to_owned(), vec![RECORDED], None, None);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--device" => device = args.next().unwrap_or(device),
            "--style" => match styles(&args.next().unwrap_or_default()) {
                Some(list) => chosen = list,
                None => fail("--style takes numbers from 0 to 25, with commas between"),
            },
            "--out" => out = args.next().map(PathBuf::from),
            _ => path = Some(PathBuf::from(a)),
        }
    }
    let mut model = OnnxModel::load(&folder().join("model.onnx"), gradloom::open(&device, 0)?)?;
    let picture = match &path {
        Some(path) => paint::values(&pictures::read(path)?)?,
        None => recorded("input.npz", "image")?,
    };
    let start = Instant::now();
    let painted = paint::paint(&mut model, &picture, &chosen)?;
    println!("painted in style {chosen:?} in {:.2?}, with compiling", start.elapsed());
    let start = Instant::now();
    paint::paint(&mut model, &picture, &chosen)?;
    println!("and again in {:.2?}", start.elapsed());
    if let Some(out) = out {
        let values: Vec<f32> = painted.iter().map(|&x| x as f32).collect();
        pictures::write(&out, &pictures::picture(&values, SIDE, SIDE))?;
    }
    if path.is_none() {
        let one = paint::paint(&mut model, &picture, &[RECORDED])?;
        let off = paint::most(&one, &recorded("expected.npz", "stylized")?.to_f64());
        println!("off onnxruntime's by {off:.1e}");
        if off > LIMIT {
            fail("that is too much");
        }
        let other = paint::paint(&mut model, &picture, &[(RECORDED + 6) % STYLES])?;
        let both = paint::paint(&mut model, &picture, &[RECORDED, (RECORDED + 6) % STYLES])?;
        let apart = [paint::mean(&one, &other), paint::mean(&one, &both), paint::mean(&other, &both)];
        println!("two styles are {:.2} apart, their mixture {:.2} and {:.2} from them", apart[0], apart[1], apart[2]);
        if apart[0] < 0.05 || apart[1].max(apart[2]) > apart[0] {
            fail("styles are told apart, and mixtures lie between them");
        }
    }
    Ok(())
}
