//! Boxes around what a YOLOv8 finds in a picture:
//! `cargo run --release -p gradloom --features images --example yolo -- [PICTURE] [--model FILE.onnx] [--out FILE.png] [--score 0.25] [--device DEVICE]`.
//!
//! The weights are those in an ONNX file as Ultralytics exports it; the network is written here (`model.rs`). `node scripts/fetch-models.mjs yolo`
//! fetches the default one into `.cache/models/yolov8n_nudenet`, whose licence is the AGPL. Without a picture it looks at the astronaut of
//! `tests/models`, and fails where numbers are not onnxruntime's or the face is not found.

mod boxes;
mod model;
#[path = "../pictures/mod.rs"]
mod pictures;

use gradloom::engine::Bytes;
use gradloom::io::npz;
use gradloom::io::onnx::{Model, Network, Train, proto};
use gradloom::nn::StateDict;
use gradloom::tensor::{Interpolate, PadMode, PoolOpts, Session};
use gradloom::{DType, Error, Result, Runtime, Tensor};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Pixels of a side that the network looks at.
const SIDE: usize = 320;
/// How much two boxes of one class may overlap.
const IOU: f32 = 0.45;
/// How far what it gives may be from onnxruntime's, as a part of the largest.
const LIMIT: f64 = 1e-4;
/// Where the astronaut's face is, in pixels, by another implementation, and its class.
const FACE: ([f32; 4], usize) = ([108.4, 51.6, 171.6, 112.2], 1);

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// `[1, 3, 320, 320]` with the picture at its top left, and how many pixels of the picture one of those is. What becomes several times smaller is
/// means of whole pixels first, then it is linear between them.
fn fitted(s: &Session, picture: &pictures::Picture) -> Result<(Tensor, f32)> {
    let times = picture.width.max(picture.height) as f32 / SIDE as f32;
    let side = |n: usize| ((n as f32 / times).round() as usize).clamp(1, SIDE);
    let (rows, columns) = (side(picture.height), side(picture.width));
    let t = Tensor::new(s, &picture.pixels, &[1, picture.height, picture.width, 3])?;
    let t = t.permute(&[0, 3, 1, 2])?.cast(DType::F32)?.div(255.0)?;
    let whole = (times as usize).max(1).min(picture.height).min(picture.width);
    let t = if whole > 1 { t.avg_pool(&PoolOpts::new(&[whole; 2]))? } else { t };
    let t = t.interpolate(&[rows, columns], Interpolate::Linear, false)?;
    let more = |n: usize| (0, (SIDE - n) as i64);
    Ok((t.pad(&[(0, 0), (0, 0), more(rows), more(columns)], PadMode::Constant, 0.0)?, times))
}

/// Names of classes, which such files have as a dictionary of Python's.
fn names(file: &[u8]) -> Result<Vec<String>> {
    let model = proto::parse_model(file)?;
    let text = model.metadata.iter().find(|p| p.0 == "names").map_or("", |p| &p.1);
    let name = |pair: &str| Some(pair.split_once(": ")?.1.trim_matches(['\'', '"', '}']).to_owned());
    Ok(text.split(", ").filter_map(name).collect())
}

/// The astronaut's input, and what onnxruntime gives for it.
fn recorded() -> Result<[gradloom::io::HostTensor; 2]> {
    let read = |name: &str| -> Result<gradloom::io::HostTensor> {
        let path = in_repository("tests/models/yolov8n_nudenet").join(name);
        let mut arrays = npz::read(&gradloom::model::read_file(&path)?)?;
        arrays.pop().map(|a| a.1).ok_or_else(|| Error::Input { name: name.into(), what: "is empty".into() })
    };
    Ok([read("input.npz")?, read("expected.npz")?])
}

fn fail(what: String) -> ! {
    eprintln!("{what}");
    std::process::exit(1);
}

fn main() -> Result<()> {
    let mut file = in_repository(".cache/models/yolov8n_nudenet/model.onnx");
    let (mut device, mut least, mut out, mut path) = ("auto".to_owned(), 0.25, None, None);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--device" => device = args.next().unwrap_or(device),
            "--model" => file = args.next().map_or(file, PathBuf::from),
            "--out" => out = args.next().map(PathBuf::from),
            "--score" => least = args.next().and_then(|a| a.parse().ok()).unwrap_or(least),
            _ => path = Some(PathBuf::from(a)),
        }
    }
    let mut rt = Runtime::open(&device, 0)?;
    let session = rt.session().clone();
    let bytes = gradloom::model::read_file(&file)?;
    let names = names(&bytes)?;
    let weights: StateDict =
        Network::new(&Model::parse(bytes)?, &session, &Train::All)?.parameters().into_iter().collect();
    let yolo = model::Yolo { session: session.clone(), weights: &weights };

    let known = if path.is_none() { Some(recorded()?) } else { None };
    let (image, times, mut picture) = match (&path, &known) {
        (Some(path), _) => {
            let picture = pictures::read(path)?;
            let (image, times) = fitted(&session, &picture)?;
            (image, times, picture)
        }
        (None, Some([input, _])) => {
            let image = Tensor::from_bytes(&session, input.dtype, &input.shape, Bytes::new(input.data.clone()))?;
            let values: Vec<f32> = input.to_f64().into_iter().map(|x| x as f32).collect();
            (image, 1.0, pictures::picture(&values, SIDE, SIDE))
        }
        (None, None) => return Ok(()),
    };
    let given = yolo.forward(&image)?;
    let start = Instant::now();
    let values = rt.to_vec::<f32>(&given)?;
    let took = start.elapsed();
    let found = boxes::found(&values, given.shape()[2], least, IOU, times);
    for one in &found {
        let name = names.get(one.class).map_or_else(|| format!("class {}", one.class), Clone::clone);
        println!("{name}: {:.1} %, {:.0?}", 100.0 * one.score, one.sides);
    }
    println!("{} found in {took:.2?}, with compiling", found.len());
    if let Some(out) = out {
        boxes::draw(&mut picture, &found);
        pictures::write(&out, &picture)?;
    }
    if let Some([_, want]) = known {
        let want = want.to_f64();
        let scale = want.iter().fold(0f64, |m, x| m.max(x.abs()));
        let off = |(a, b): (&f32, &f64)| if a.is_finite() { (f64::from(*a) - b).abs() / scale } else { f64::INFINITY };
        let most = values.iter().zip(&want).map(off).fold(0.0, f64::max);
        println!("off onnxruntime's numbers by {most:.1e} of the largest");
        if values.len() != want.len() || most > LIMIT {
            fail(format!("that is more than {LIMIT:.0e}"));
        }
        if !found.iter().any(|f| f.class == FACE.1 && boxes::overlap(f.sides, FACE.0) > 0.8) {
            fail("the astronaut's face was not found".into());
        }
    }
    Ok(())
}
