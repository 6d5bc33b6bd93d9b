//! `Precompiled`: the character map that SentencePiece compiles into a model. It is a Darts double-array trie over
//! UTF-8, whose leaves hold offsets of the replacement texts (sentencepiece, src/normalizer.cc; the trie: darts-clone).

use super::config::err;
use crate::error::Result;

/// A map from characters, and some pairs of them, to replacement texts.
#[derive(Clone, Debug)]
pub(super) struct CharsMap {
    trie: Vec<u32>,
    texts: String,
}

/// Grapheme clusters of more bytes than this are looked up one character at a time.
const LONGEST_CLUSTER: usize = 5;

impl CharsMap {
    /// Reads the map as a file has it: the size of the trie in bytes, the trie, and the texts, each
    /// terminated by a zero byte.
    pub(super) fn new(bytes: &[u8]) -> Result<CharsMap> {
        let cut = || err("the map of characters is cut off");
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut)?;
        let (trie, texts) = rest.split_at_checked(u32::from_le_bytes(*size) as usize).ok_or_else(cut)?;
        let (units, []) = trie.as_chunks::<4>() else { return Err(err("the map of characters has half a unit")) };
        Ok(CharsMap {
            trie: units.iter().map(|&u| u32::from_le_bytes(u)).collect(),
            texts: String::from_utf8(texts.to_vec()).map_err(|_| err("the map of characters holds what is no text"))?,
        })
    }

    /// The parts of a text, each with what the map replaces it by. `ends` are the ends of the text's grapheme clusters.
    pub(super) fn run<'a>(&'a self, text: &'a str, ends: &[usize]) -> Vec<(&'a str, &'a str)> {
        let mut out = Vec::with_capacity(text.len());
        let mut start = 0;
        for &end in ends {
            let cluster = &text[start..end];
            start = end;
            let whole = if cluster.len() <= LONGEST_CLUSTER { self.find(cluster) } else { None };
            match whole {
                Some(t) => out.push((cluster, t)),
                None => {
                    for (i, c) in cluster.char_indices() {
                        let c = &cluster[i..i + c.len_utf8()];
                        out.push((c, self.find(c).unwrap_or(c)));
                    }
                }
            }
        }
        out
    }

    /// The replacement of the shortest prefix of `text` that the map contains. It replaces the whole of `text`,
    /// although only a prefix was found: the tokenizers that models were trained with do so.
    fn find(&self, text: &str) -> Option<&str> {
        let unit = |at: u32| self.trie.get(at as usize).copied();
        let mut at = children(unit(0)?);
        for byte in text.bytes().take_while(|&b| b != 0) {
            at ^= u32::from(byte);
            let u = unit(at)?;
            if u & LABEL != u32::from(byte) {
                return None;
            }
            at ^= children(u);
            if u & LEAF != 0 {
                let text = self.texts.get((unit(at)? & VALUE) as usize..)?;
                return Some(text.split('\0').next().unwrap_or_default());
            }
        }
        None
    }
}

// A unit of the trie has a label and a flag for an attached leaf, or it is a leaf with a value
const LABEL: u32 = 1 << 31 | 0xff;
const LEAF: u32 = 1 << 8;
const VALUE: u32 = !(1 << 31);

/// The position of a unit's children relative to the unit.
fn children(unit: u32) -> u32 {
    (unit >> 10) << ((unit & 1 << 9) >> 6)
}

/// Decodes base64 (RFC 4648, section 4).
pub(super) fn base64(text: &str) -> Result<Vec<u8>> {
    let wrong = || err("the map of characters is no base64");
    let digits = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for &d in group {
            let value = match d {
                b'A'..=b'Z' => d - b'A',
                b'a'..=b'z' => d - b'a' + 26,
                b'0'..=b'9' => d - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return Err(wrong()),
            };
            bits = bits << 6 | u32::from(value);
        }
        let bytes = (bits << (6 * (4 - group.len()))).to_be_bytes();
        if group.len() == 1 {
            return Err(wrong());
        }
        out.extend(&bytes[1..group.len()]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_standard() {
        for (text, plain) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(base64(text).unwrap(), plain.as_bytes());
        }
        assert!(base64("Z").is_err() && base64("Zm9!").is_err());
    }

    #[test]
    fn broken_maps_are_errors_or_change_nothing() {
        assert!(CharsMap::new(&[1, 0]).is_err());
        assert!(CharsMap::new(&[8, 0, 0, 0, 1, 2, 3, 4]).is_err());
        assert!(CharsMap::new(&[0, 0, 0, 0, 0xff]).is_err());
        for unit in [0u32, u32::MAX, LEAF | 97, 1 << 10 | LEAF] {
            let bytes: Vec<u8> = [4u32, unit].iter().flat_map(|u| u.to_le_bytes()).collect();
            let map = CharsMap::new(&bytes).unwrap();
            assert!(map.run("abc", &[1, 2, 3]).iter().all(|(old, new)| old == new));
        }
    }
}
