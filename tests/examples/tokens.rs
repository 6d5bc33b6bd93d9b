//! Texts to tokens and back, for `tests/conformance/text.py`: usage `tokens TOKENIZER`. Reads texts from standard input, each after
//! its length in bytes (u32), and writes for each the count of tokens, the tokens, the length of what they decode to, and that.

use gradloom::text::load;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: tokens TOKENIZER")?;
    let tokenizer = load(file.as_ref())?;
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut out = BufWriter::new(std::io::stdout().lock());
    loop {
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => break,
            other => other?,
        }
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        input.read_exact(&mut text)?;
        let ids = tokenizer.encode(std::str::from_utf8(&text)?)?;
        let decoded = tokenizer.decode(&ids)?;
        out.write_all(&(ids.len() as u32).to_le_bytes())?;
        for id in &ids {
            out.write_all(&id.to_le_bytes())?;
        }
        out.write_all(&(decoded.len() as u32).to_le_bytes())?;
        out.write_all(decoded.as_bytes())?;
    }
    Ok(out.flush()?)
}
