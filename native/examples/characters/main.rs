//! Texts by a small language model of characters, drawn with temperature, top-k and top-p:
//! `cargo run --release -p gradloom --example characters -- tests/models/textgenrnn [TEXT] [--temperature T] [--top-k K]
//! [--top-p P] [--seed N] [--device DEVICE]`.

mod model;

use gradloom::tensor::Sampling;
use gradloom::{Error, Result, Runtime};
use std::path::Path;
use std::str::FromStr;

fn number<T: FromStr>(name: &str, text: Option<String>) -> Result<T> {
    let text = text.unwrap_or_default();
    text.parse().map_err(|_| Error::value("argument", format!("{name} wants a number, not `{text}`")))
}

fn main() -> Result<()> {
    let (mut device, mut seed, mut plain, mut args) = ("auto".to_string(), 1, Vec::new(), std::env::args().skip(1));
    let mut how = Sampling { temperature: 0.5, ..Sampling::default() };
    while let Some(a) = args.next() {
        match a.as_str() {
            "--device" => device = args.next().unwrap_or(device),
            "--temperature" => how.temperature = number(&a, args.next())?,
            "--top-k" => how.top_k = number(&a, args.next())?,
            "--top-p" => how.top_p = number(&a, args.next())?,
            "--seed" => seed = number(&a, args.next())?,
            _ => plain.push(a),
        }
    }
    let Some(folder) = plain.first() else {
        eprintln!("usage: characters MODEL_FOLDER [TEXT] [--temperature T] [--top-k K] [--top-p P] [--seed N]");
        std::process::exit(2);
    };
    let read = |name: &str| {
        let path = Path::new(folder).join(name);
        std::fs::read(&path).map_err(|e| Error::value("read", format!("{}: {e}", path.display())))
    };
    let mut rt = Runtime::open(&device, 0)?;
    let model = model::CharacterModel::read(rt.session(), &read("weights.npz")?, &read("vocab.json")?)?;
    let start = plain.get(1).map_or("", String::as_str);
    for text in 0..3 {
        println!("{}", model.write(&mut rt, start, &how, seed + text, 200)?);
    }
    Ok(())
}
