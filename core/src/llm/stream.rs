//! Turns generated tokens into text as they come: whole characters only, and text that may be the beginning of a stop
//! string is held back.

use crate::error::Result;

/// The text that a sequence of tokens has given so far.
pub struct Stream {
    ids: Vec<u32>,
    /// Index of the first token that is decoded together with new ones: some decoders treat a token
    /// differently after its neighbours.
    from: usize,
    /// Tokens before this index have been returned as text.
    done: usize,
    /// Text that is held back because it may be the beginning of a stop string.
    held: String,
    stops: Vec<String>,
    stopped: bool,
}

/// After so many tokens that do not complete a character, the replacement character is returned rather than waiting on.
const MOST_PARTS: usize = 16;

impl Stream {
    /// An empty stream. The text ends before the first stop string that occurs.
    pub fn new(stops: &[String]) -> Stream {
        let stops = stops.iter().filter(|s| !s.is_empty()).cloned().collect();
        Stream { ids: Vec::new(), from: 0, done: 0, held: String::new(), stops, stopped: false }
    }

    /// Has a stop string occurred?
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes a token; returns the text that is certain. `decode` gives the text of a sequence of tokens.
    pub fn push(&mut self, id: u32, decode: &dyn Fn(&[u32]) -> Result<String>) -> Result<String> {
        self.ids.push(id);
        let (old, all) = (decode(&self.ids[self.from..self.done])?, decode(&self.ids[self.from..])?);
        let part = all.ends_with('\u{fffd}') && self.ids.len() - self.done < MOST_PARTS;
        if part || all.len() <= old.len() || !all.is_char_boundary(old.len()) {
            return Ok(String::new());
        }
        self.from = self.done;
        self.done = self.ids.len();
        let new = all[old.len()..].to_owned();
        Ok(self.certain(&new))
    }

    /// Returns the rest of the text at its end.
    pub fn finish(&mut self, decode: &dyn Fn(&[u32]) -> Result<String>) -> Result<String> {
        let (old, all) = (decode(&self.ids[self.from..self.done])?, decode(&self.ids[self.from..])?);
        self.done = self.ids.len();
        let new = all.get(old.len()..).unwrap_or_default().to_owned();
        let certain = self.certain(&new);
        Ok(if self.stopped { certain } else { certain + &std::mem::take(&mut self.held) })
    }

    /// Returns the part of held and new text that cannot belong to a stop string.
    fn certain(&mut self, new: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held += new;
        if let Some(at) = self.stops.iter().filter_map(|s| self.held.find(s.as_str())).min() {
            self.stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let starts = |at: &usize| self.stops.iter().any(|s| s.starts_with(&self.held[*at..]));
        let keep = self.held.char_indices().map(|c| c.0).find(starts).unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        std::mem::replace(&mut self.held, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decoder whose tokens are bytes.
    fn decode(ids: &[u32]) -> Result<String> {
        let bytes: Vec<u8> = ids.iter().map(|&i| i as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn pieces(text: &[u8], stops: &[&str]) -> (Vec<String>, bool) {
        let mut s = Stream::new(&stops.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        let mut out: Vec<String> = text.iter().map(|&b| s.push(u32::from(b), &decode).unwrap()).collect();
        out.push(s.finish(&decode).unwrap());
        (out, s.stopped())
    }

    #[test]
    fn characters_come_whole() {
        let (out, stopped) = pieces("aé😀b".as_bytes(), &[]);
        assert_eq!(out, ["a", "", "é", "", "", "", "😀", "b", ""]);
        assert!(!stopped);
        assert_eq!(pieces(b"a\xe2\x82", &[]).0.concat(), "a\u{fffd}", "a cut character at the end");
        let broken = [0xffu8; 40];
        assert!(
            pieces(&broken, &[]).0[..20].concat().len() > 3,
            "what never becomes a character does not wait for ever"
        );
    }

    #[test]
    fn stop_strings_are_held_back_and_left_out() {
        let (out, stopped) = pieces(b"one stone stop more", &["stop", "st!"]);
        assert_eq!(out.concat(), "one stone ");
        assert!(stopped);
        assert_eq!(pieces(b"a st", &["stop"]).0.concat(), "a st");
        assert_eq!(pieces("über".as_bytes(), &["übel"]).0.concat(), "über");
    }
}
