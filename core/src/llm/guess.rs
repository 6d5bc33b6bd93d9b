//! Speculative decoding by lookup in the text itself (prompt lookup): where the last few tokens occurred before, the
//! tokens that followed them there are guessed to follow again. A guess costs next to nothing, and a graph that gives
//! the logits of every token checks several guesses in one run.

/// The longest suffix of the text, in tokens, that is searched for.
const MAX_SUFFIX: usize = 3;
/// Only so many tokens at the end of the text are searched.
const SEARCH_WINDOW: usize = 4096;

/// At most `most` tokens that may follow the text.
pub fn guess(text: &[u32], most: usize) -> Vec<u32> {
    let text = &text[text.len().saturating_sub(SEARCH_WINDOW)..];
    for n in (1..=MAX_SUFFIX.min(text.len().saturating_sub(1))).rev() {
        let (before, end) = text.split_at(text.len() - n);
        // The last earlier occurrence
        let found = (1..=before.len()).rev().find(|&at| text[..at + n - 1].ends_with(end));
        if let Some(at) = found {
            let follows = &text[at + n - 1..];
            return follows[..follows.len().min(most)].to_vec();
        }
    }
    Vec::new()
}

/// How many of the guesses are right. `chosen` has the token that the model chose after each token that was read; those
/// are the last certain token, and then the guesses.
pub fn accepted(guesses: &[u32], chosen: &[u32]) -> usize {
    guesses.iter().zip(chosen).take_while(|(g, c)| g == c).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_may_follow_again() {
        assert_eq!(guess(&[1, 2, 3, 4, 5, 9, 1, 2, 3], 4), [4, 5, 9, 1]);
        assert_eq!(guess(&[1, 2, 3, 7, 2, 3, 8, 2, 3], 1), [8], "the last place");
        assert_eq!(guess(&[4, 4, 4, 4], 3), [4], "what follows is in the text");
        assert_eq!(guess(&[5, 6, 5, 9, 5], 9), [9, 5]);
        assert!(guess(&[1, 2, 3], 4).is_empty());
        assert!(guess(&[1], 4).is_empty() && guess(&[], 4).is_empty());
        assert_eq!(accepted(&[1, 2, 3], &[1, 2, 9, 4]), 2);
        assert_eq!(accepted(&[], &[7]), 0);
    }
}
