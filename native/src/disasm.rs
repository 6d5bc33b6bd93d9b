//! Machine code as text, for people.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};

/// The instructions of a kernel as the x86-64 renderer lays it out: a jump over the constants, the constants, the code.
pub fn disassemble(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut formatter = IntelFormatter::new();
    let start = match bytes {
        [0xe9, a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]) as usize + 5,
        _ => 0,
    };
    let Some(code) = bytes.get(start..) else { return out };
    if start > 0 {
        out.push_str(&format!("; {} bytes of constants\n", start.saturating_sub(64)));
    }
    let mut decoder = Decoder::with_ip(64, code, start as u64, DecoderOptions::NONE);
    let mut i = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut i);
        let mut line = String::new();
        formatter.format(&i, &mut line);
        out.push_str(&format!("{:6x}  {line}\n", i.ip()));
    }
    out
}
