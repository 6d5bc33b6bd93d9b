//! Word error rate: the fewest words to change, leave out or add, over the words that were spoken.

/// The lines `<s> what was said </s> (name)` of a file as names and texts.
pub(crate) fn transcripts(file: &str) -> Vec<(String, String)> {
    let line = |l: &str| {
        let (text, name) = l.trim().strip_suffix(')')?.rsplit_once('(')?;
        Some((name.to_string(), text.replace("<s>", " ").replace("</s>", " ")))
    };
    file.lines().filter_map(line).collect()
}

/// Lower-case words without punctuation; short forms and digits as they are spoken.
pub(crate) fn words(text: &str) -> Vec<String> {
    let plain: String = text.chars().map(|c| if c.is_alphanumeric() || c == '\'' { c } else { ' ' }).collect();
    let spoken = |w: &str| match w {
        "mr" => "mister".to_string(),
        "mrs" => "missus".to_string(),
        _ => match w.parse::<usize>() {
            Ok(n) if n < NUMBERS.len() => NUMBERS[n].to_string(),
            _ => w.to_string(),
        },
    };
    plain.to_lowercase().split_whitespace().map(spoken).collect()
}

const NUMBERS: [&str; 13] =
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// The edit distance of two lists of words.
pub(crate) fn errors(truth: &[String], heard: &[String]) -> usize {
    let mut row: Vec<usize> = (0..=heard.len()).collect();
    for (i, t) in truth.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, h) in heard.iter().enumerate() {
            let swap = diagonal + usize::from(t != h);
            diagonal = row[j + 1];
            row[j + 1] = swap.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[heard.len()]
}
