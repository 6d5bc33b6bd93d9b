//! Speech to text with Whisper tiny.en:
//! `cargo run --release -p gradloom --example whisper -- MODEL_FOLDER FILE.wav.. [--device DEVICE]`.
//!
//! `node scripts/fetch-models.mjs whisper` fetches the model into `.cache/models/whisper_tiny_en`; the sound is 16-bit PCM
//! with one channel at 16 kHz.

mod audio;
mod model;

use gradloom::io::safetensors;
use gradloom::nn::StateDict;
use gradloom::{Error, Result, Runtime};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<()> {
    let (mut device, mut paths, mut args) = ("auto".to_string(), Vec::new(), std::env::args().skip(1));
    while let Some(a) = args.next() {
        match a.as_str() {
            "--device" => device = args.next().unwrap_or(device),
            _ => paths.push(a),
        }
    }
    let [folder, sounds @ ..] = paths.as_slice() else {
        eprintln!("usage: whisper MODEL_FOLDER FILE.wav.. [--device DEVICE]");
        std::process::exit(2);
    };
    let read = |path: &Path| std::fs::read(path).map_err(|e| Error::value("read", format!("{}: {e}", path.display())));
    let folder = Path::new(folder);
    let mut rt = Runtime::open(&device, 0)?;
    let session = rt.session().clone();
    let dict: StateDict =
        safetensors::tensors(&session, Arc::new(read(&folder.join("model.safetensors"))?))?.into_iter().collect();
    let whisper = model::Whisper::new(&session, &dict)?;
    let words = model::Words::read(&read(&folder.join("vocabulary.txt"))?);
    for path in sounds {
        let samples = audio::read_wav(&read(Path::new(path))?)?;
        let start = Instant::now();
        let sound = whisper.encode(&audio::log_mel(&session, &samples)?)?;
        rt.realize(&[&sound])?;
        let heard = start.elapsed();
        let said = whisper.transcribe(&mut rt, &sound)?;
        println!("{path}:{}", words.text(&said));
        eprintln!(
            "  {:.1} s of sound: encoder {heard:.2?}, {} tokens {:.2?}",
            samples.len() as f64 / 16e3,
            said.len(),
            start.elapsed() - heard
        );
        rt.collect();
    }
    Ok(())
}
