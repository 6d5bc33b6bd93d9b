//! What may come next, guessed from the text itself: where its last tokens were there before, the same may follow again. A guess costs
//! nothing to make, and several are checked in one run of a graph that gives the logits of every token.

/// Tokens at the end of the text that must be the same.
const LONGEST: usize = 3;
/// Tokens that are looked through.
const FAR: usize = 4096;

/// At most `most` tokens that may follow.
pub fn guess(text: &[u32], most: usize) -> Vec<u32> {
    let text = &text[text.len().saturating_sub(FAR)..];
    for n in (1..=LONGEST.min(text.len().saturating_sub(1))).rev() {
        let (before, end) = text.split_at(text.len() - n);
        // the last place where it was
        let found = (1..=before.len()).rev().find(|&at| text[..at + n - 1].ends_with(end));
        if let Some(at) = found {
            let follows = &text[at + n - 1..];
            return follows[..follows.len().min(most)].to_vec();
        }
    }
    Vec::new()
}

/// How many of the guesses are what the model chose: `chosen` is the token that follows each of the tokens that were read, the last
/// one that was certain and then the guesses.
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
