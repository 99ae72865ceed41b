//! Words that nobody who comes from outside should have to learn: the table of `CONTRIBUTING.md`, held against what users read.

/// Where the table stands.
pub(crate) const TABLE: &str = "CONTRIBUTING.md";

/// The heading above it.
const HEADING: &str = "## Words we don't use";

/// A word or phrase, and what is said instead.
pub(crate) struct Word<'a> {
    word: String,
    instead: &'a str,
}

/// The rows of the table in `text`.
pub(crate) fn table(text: &str) -> Vec<Word<'_>> {
    let rows =
        text.split(HEADING).nth(1).unwrap_or_default().lines().skip_while(|line| !line.starts_with("|--"));
    rows.skip(1)
        .take_while(|line| line.starts_with('|'))
        .filter_map(|row| {
            let mut cells = row.trim_matches('|').split('|').map(str::trim);
            Some(Word { word: cells.next()?.to_lowercase(), instead: cells.next()? })
        })
        .collect()
}

/// Lines of `file` in which a user reads one of `words`.
pub(crate) fn faults(file: &str, text: &str, words: &[Word<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(read) = read_by_users(file, line) else { continue };
        let read = read.to_lowercase();
        for Word { word, instead } in words.iter().filter(|word| holds(&read, &word.word)) {
            faults.push(format!("{file}:{}: \"{word}\": say {instead}", at + 1));
        }
    }
    faults
}

/// What users read of `line`: everything in pages, help and Python (docstrings are its reference); of Rust, in faces, the text of
/// messages.
fn read_by_users(file: &str, line: &str) -> Option<String> {
    let is_page = file.ends_with("README.md") || file.starts_with("docs/") && file.ends_with(".md");
    let is_help = file.ends_with(".snap") && file.contains("help");
    let is_python = file.starts_with("python/memfit/") && file.ends_with(".py");
    if is_page || is_help || is_python {
        return Some(line.to_owned());
    }
    let faces =
        ["crates/memfit-cli/src/", "crates/memfit/src/", "crates/memfit-py/src/", "crates/memfit-burn/src/"];
    if !faces.iter().any(|face| file.starts_with(face)) || line.trim_start().starts_with("//") {
        return None;
    }
    let text: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
    Some(text.join(" "))
}

/// Whether `word` stands in `text` on its own, not as part of another or of a name.
fn holds(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_table_are_found_where_users_read() {
        let page = format!(
            "a judge\n{HEADING}\n\ntext\n\n| word | instead |\n|---|---|\n| Judge | verifier |\n| in vain | without effect |\n\nmore"
        );
        let words = table(&page);
        assert_eq!(words.len(), 2);
        let all = |file: &str, text: &str| faults(file, text, &words).len();
        assert_eq!(all("README.md", "The judge\nis in vain"), 2);
        assert_eq!(all("README.md", "judged, `judge_accepts`, adjudge"), 0);
        assert_eq!(all("docs/a.md", "In Vain"), 1);
        assert_eq!(all("ARCHITECTURE.md", "judge"), 0);
        assert_eq!(all("crates/memfit-cli/src/a.rs", "// \"judge\"\nlet judge = \"the judge\";"), 1);
        assert_eq!(all("crates/memfit-plan/src/a.rs", "\"the judge\""), 0);
    }
}
