//! Disassembles machine code for people to read.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};

/// The last instruction of every AArch64 kernel (`ret`); no x86-64 kernel ends with these bytes.
const ARM64_RET: [u8; 4] = [0xc0, 0x03, 0x5f, 0xd6];

/// Disassembles a kernel in the layout of the x86-64 and AArch64 renderers: a jump over the constants, the constants,
/// the code. AArch64 code is printed as instruction words for another program to disassemble (`llvm-mc --disassemble`).
pub fn disassemble(bytes: &[u8]) -> String {
    if bytes.ends_with(&ARM64_RET) {
        return words(bytes);
    }
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

fn words(bytes: &[u8]) -> String {
    let all = || bytes.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    // The first instruction may be a branch over the constants; its distance counts words
    let start = all().next().filter(|w| w >> 26 == 0b000101).map_or(0, |w| (w & 0x3ff_ffff) as usize);
    let mut out = String::new();
    if start > 0 {
        out.push_str(&format!("; {} bytes of constants\n", 4 * start.saturating_sub(16)));
    }
    for (i, w) in all().enumerate().skip(start) {
        out.push_str(&format!("{:6x}  .inst 0x{w:08x}\n", 4 * i));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_arm64_begin_behind_the_constants() {
        let mut bytes = vec![0; 128];
        bytes[..4].copy_from_slice(&(0x1400_0000u32 | 32).to_le_bytes());
        bytes.extend_from_slice(&ARM64_RET);
        assert_eq!(disassemble(&bytes), "; 64 bytes of constants\n    80  .inst 0xd65f03c0\n");
        assert_eq!(disassemble(&[0xc3]), "     0  ret\n");
    }
}
