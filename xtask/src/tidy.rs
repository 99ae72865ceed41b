//! What no compiler checks.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};

use crate::{imports, promises, run, words};

/// The most lines of a source file that is not part of a product crate, its tests apart.
const LONGEST: usize = 600;
/// The most lines of a file in the `src/` of a crate, all of them counted.
const LONGEST_IN_SRC: usize = 500;
/// The most lines of a function there.
const LONGEST_FUNCTION: usize = 90;
/// The most lines of code of the judge: no comments, no blank lines.
const JUDGE: usize = 600;
/// The judge's companion, which is read on its own, and the most lines of code it may have.
const COMPANION: (&str, usize) = ("crates/memfit-verify/src/rewrite.rs", 300);
/// The most bytes of a tracked file.
const LARGEST: u64 = 300_000;
/// Files that may be larger, since tools write and read them.
const MAY_BE_LARGE: [&str; 1] = ["Cargo.lock"];

/// Runs every check and reports all that fail.
/// `commands` are the names of what `cargo xtask` does.
pub(crate) fn check(commands: &[String]) -> Result<()> {
    let listed = run::output("git", ["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let files: BTreeSet<&str> = listed.lines().filter(|file| Path::new(file).is_file()).collect();
    let mut faults: Vec<String> = Vec::new();
    let mut judge = 0;
    let contributing = std::fs::read_to_string(words::TABLE)?;
    let words = words::table(&contributing);
    if words.is_empty() {
        bail!("{}: there is no table of words", words::TABLE);
    }
    faults.extend(imports::faults(&files, |file| std::fs::read_to_string(file).unwrap_or_default()));
    let mut sources = Vec::new();
    for &file in &files {
        let bytes = std::fs::read(file)?;
        if bytes.len() as u64 > LARGEST && !MAY_BE_LARGE.contains(&file) {
            faults.push(format!("{file}: {} bytes, more than {LARGEST}", bytes.len()));
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        faults.extend(paths(file, &text));
        faults.extend(words::faults(file, &text, &words));
        if !file.ends_with(".rs") && !file.ends_with(".py") {
            continue;
        }
        faults.extend(leftovers(file, &text));
        let lines = without_tests(&text).lines().count();
        if lines > LONGEST && !is_generated(&text) && !file.contains("/tests/") {
            faults.push(format!("{file}: {lines} lines, more than {LONGEST}: it holds more than one idea"));
        }
        if file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs") {
            faults.extend(lengths(file, &text));
            faults.extend(reaches(file, &text));
        }
        if *file == *COMPANION.0 {
            let code = without_tests(&text).lines().filter(|line| is_code(line)).count();
            if code > COMPANION.1 {
                faults.push(format!("{file}: {code} lines of code, more than {}", COMPANION.1));
            }
        } else if file.starts_with("crates/memfit-verify/src/") {
            judge += without_tests(&text).lines().filter(|line| is_code(line)).count();
        }
        sources.push(text);
    }
    let security = std::fs::read_to_string(promises::TABLE)?;
    faults.extend(promises::faults(&security, &files, &sources, commands));
    if judge > JUDGE {
        faults.push(format!(
            "crates/memfit-verify: {judge} lines of code, more than {JUDGE}: a judge must be read whole"
        ));
    }
    if faults.is_empty() {
        run::say("tidy: ok");
        return Ok(());
    }
    bail!("not tidy\n{}", faults.join("\n"))
}

/// The text up to the tests at the bottom of a file.
pub(crate) fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

fn is_generated(text: &str) -> bool {
    text.lines().take(10).any(|line| line.contains("@generated"))
}

/// What is too long in a file of a crate.
fn lengths(file: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |what: String, lines: usize, most: usize| {
        if lines > most {
            faults.push(format!("{what}: {lines} lines, more than {most}"));
        }
    };
    check(file.to_owned(), text.lines().count(), LONGEST_IN_SRC);
    for (name, lines) in functions(text) {
        check(format!("{file}: `{name}`"), lines, LONGEST_FUNCTION);
    }
    faults
}

/// Every function with the lines from its head to its last brace. Files are formatted: the last brace stands below the
/// first letter of the head.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let last = format!("{indent}}}");
        // A head without a body ends with a semicolon, a body may stand on the line of its head.
        let ends = |line: &&str| line.trim_end() == last || is_whole(line, indent);
        if let Some(length) = lines[at..].iter().position(ends) {
            functions.push((name, length + 1));
        }
    }
    functions
}

/// Whether `line`, indented as the head of a function, ends it.
fn is_whole(line: &str, indent: &str) -> bool {
    let inner = line.strip_prefix(indent).unwrap_or_default();
    !inner.starts_with(' ') && (inner.ends_with(';') || inner.ends_with('}'))
}

/// The name of the function whose head begins in `line`.
fn function(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let is_prefix = |word: &&str| {
        ["const", "async", "unsafe", "extern", "\"C\"", "pub"].contains(word)
            || word.starts_with("pub(")
            || *word == "in"
    };
    let mut word = words.next()?;
    while is_prefix(&word) || word.ends_with(')') && word.contains("::") {
        word = words.next()?;
    }
    let name = if word == "fn" { words.next()? } else { return None };
    name.split(['(', '<']).next()
}

/// Lines by which a crate other than the command line would open files, connect, or start programs.
fn reaches(file: &str, text: &str) -> Vec<String> {
    // What is spilled has a file without a name.
    if file.starts_with("crates/memfit-cli/") || file.starts_with("crates/memfit-tiers/") {
        return Vec::new();
    }
    let doors = ["std::fs", "std::net", "std::process::Command", "std::os"];
    let code = without_tests(text).lines().enumerate().filter(|(_, line)| is_code(line));
    code.filter(|(_, line)| doors.iter().any(|door| line.contains(door)))
        .map(|(at, _)| {
            format!(
                "{file}:{}: only the command line and `memfit-tiers` open files, or start programs",
                at + 1
            )
        })
        .collect()
}

/// Lines that name a place on somebody's machine.
fn paths(file: &str, text: &str) -> Vec<String> {
    if file == "Cargo.lock" {
        return Vec::new();
    }
    // In pieces, so that this file does not name them.
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if places.iter().any(|place| line.contains(place)) {
            faults.push(format!("{file}:{}: names a path of one machine", at + 1));
        }
    }
    faults
}

/// Stubs and notes to self.
fn leftovers(file: &str, text: &str) -> Vec<String> {
    let marks = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("#[ig", "nore"),
        concat!("FIX", "ME"),
    ];
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if marks.iter().any(|mark| line.contains(mark)) {
            faults.push(format!("{file}:{}: something is left undone", at + 1));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_open_no_files() {
        let text = "use std::fs::File;\n// std::net\n\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(reaches("crates/a/src/lib.rs", text).len(), 1);
        assert_eq!(reaches("crates/memfit-cli/src/files.rs", text).len(), 0);
    }

    #[test]
    fn functions_are_measured_from_head_to_brace() {
        let long = format!(
            "    pub(in crate::a) const fn long<T>(\n        a: T,\n    ) {{\n{}    }}\n",
            "        x();\n".repeat(90)
        );
        let text = format!(
            "impl A {{\n{long}    fn short() {{}}\n    fn none();\n}}\nasync fn last() {{\n    fn inner() {{\n    }}\n}}\n"
        );
        let expected = [("long", 94), ("short", 1), ("none", 1), ("last", 4), ("inner", 2)];
        assert_eq!(functions(&text), expected);
        let faults = lengths("crates/a/src/lib.rs", &text);
        assert_eq!(faults, ["crates/a/src/lib.rs: `long`: 94 lines, more than 90"]);
        let file = "\n".repeat(501);
        assert_eq!(lengths("crates/a/src/lib.rs", &file), ["crates/a/src/lib.rs: 501 lines, more than 500"]);
        assert!(lengths("crates/a/src/lib.rs", &file[1..]).is_empty());
    }
}
