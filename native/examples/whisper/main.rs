//! Speech to text with Whisper tiny.en:
//! `cargo run --release -p gradloom --example whisper -- MODEL_FOLDER FILE.wav.. [--device DEVICE] [--words FILE]`.
//!
//! `node scripts/fetch-models.mjs whisper` fetches the model into `.cache/models/whisper_tiny_en`; the sound is 16-bit PCM
//! with one channel at 16 kHz. With `--words`, a file of lines `what was said (name of the sound)`, the word error rate is
//! printed too: `node scripts/fetch-models.mjs speech` fetches such recordings into `.cache/datasets/speech`.

mod audio;
mod model;
mod score;

use gradloom::io::safetensors;
use gradloom::nn::StateDict;
use gradloom::{Error, Result, Runtime};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<()> {
    let (mut device, mut paths, mut args) = ("auto".to_string(), Vec::new(), std::env::args().skip(1));
    let mut words_file = None;
    while let Some(a) = args.next() {
        match a.as_str() {
            "--device" => device = args.next().unwrap_or(device),
            "--words" => words_file = args.next(),
            _ => paths.push(a),
        }
    }
    let [folder, sounds @ ..] = paths.as_slice() else {
        eprintln!("usage: whisper MODEL_FOLDER FILE.wav.. [--device DEVICE] [--words FILE]");
        std::process::exit(2);
    };
    let read = |path: &Path| std::fs::read(path).map_err(|e| Error::value("read", format!("{}: {e}", path.display())));
    let folder = Path::new(folder);
    let mut rt = Runtime::open(&device, 0)?;
    let session = rt.session().clone();
    let dict: StateDict =
        safetensors::tensors(&session, Arc::new(read(&folder.join("model.safetensors"))?))?.into_iter().collect();
    let whisper = model::Whisper::new(&session, &dict)?;
    let said_truly = match &words_file {
        Some(file) => score::transcripts(&String::from_utf8_lossy(&read(Path::new(file))?)),
        None => Vec::new(),
    };
    let (mut errors, mut spoken) = (0, 0);
    let words = model::Words::read(&read(&folder.join("vocabulary.txt"))?);
    for path in sounds {
        let samples = audio::read_wav(&read(Path::new(path))?)?;
        let start = Instant::now();
        let sound = whisper.encode(&audio::log_mel(&session, &samples)?)?;
        rt.realize(&[&sound])?;
        let heard = start.elapsed();
        let said = whisper.transcribe(&mut rt, &sound)?;
        let text = words.text(&said);
        println!("{path}:{text}");
        let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((_, truth)) = said_truly.iter().find(|t| t.0 == name) {
            let (truth, heard) = (score::words(truth), score::words(&text));
            let wrong = score::errors(&truth, &heard);
            println!("  {wrong} of {} words wrong, spoken: {}", truth.len(), truth.join(" "));
            errors += wrong;
            spoken += truth.len();
        }
        eprintln!(
            "  {:.1} s of sound: encoder {heard:.2?}, {} tokens {:.2?}",
            samples.len() as f64 / 16e3,
            said.len(),
            start.elapsed() - heard
        );
        rt.collect();
    }
    if spoken > 0 {
        println!("word error rate: {errors} of {spoken}, {:.1} %", 100.0 * errors as f64 / spoken as f64);
    }
    Ok(())
}
