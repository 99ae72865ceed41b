//! Every promise of `SECURITY.md` names what holds it, and that exists.

use std::collections::BTreeSet;

/// Where the promises stand, a row of a table each.
pub(crate) const TABLE: &str = "SECURITY.md";

/// What is wrong in `text`, the table of promises: a row that names nothing, and names of tests, files and commands that there are not.
/// `sources` is all source text, `commands` the names of what `cargo xtask` does.
pub(crate) fn faults(
    text: &str,
    files: &BTreeSet<&str>,
    sources: &[String],
    commands: &[String],
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut rows = 0;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [promise, held_by] = cells[..] else {
            faults.push(format!("{TABLE}:{}: a row has a promise, and what it is tested by", at + 1));
            continue;
        };
        if promise == "Promise" || promise.starts_with('-') {
            continue;
        }
        rows += 1;
        let names: Vec<&str> = held_by.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            faults.push(format!("{TABLE}:{}: no test is named", at + 1));
        }
        let unknown = names.iter().filter(|name| !is_there(name, files, sources, commands));
        faults.extend(unknown.map(|name| format!("{TABLE}:{}: there is no `{name}`", at + 1)));
    }
    if rows == 0 && faults.is_empty() {
        faults.push(format!("{TABLE}: there is no table of promises"));
    }
    faults
}

/// Whether `name` is a command of `cargo xtask`, a file or folder, or a test.
fn is_there(name: &str, files: &BTreeSet<&str>, sources: &[String], commands: &[String]) -> bool {
    if let Some(command) = name.strip_prefix("cargo xtask ") {
        return commands.iter().any(|known| command.split(' ').next() == Some(known));
    }
    if name.contains('/') {
        let folder = format!("{name}/");
        return files.iter().any(|file| *file == name || file.starts_with(&folder));
    }
    let heads = [format!("fn {name}("), format!("def {name}(")];
    sources.iter().any(|text| heads.iter().any(|head| text.contains(head)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_must_exist() {
        let files = BTreeSet::from(["corpus/rejected/a.mfp"]);
        let sources = ["#[test]\nfn holds() {}\n".to_owned(), "def test_holds():\n".to_owned()];
        let commands = ["tidy".to_owned()];
        let of = |row: &str| {
            faults(&format!("| Promise | Tested by |\n| --- | --- |\n{row}\n"), &files, &sources, &commands)
        };
        assert!(of("| It holds | `holds`, `test_holds`, `cargo xtask tidy`, `corpus/rejected` |").is_empty());
        assert_eq!(of("| It holds | somebody |"), ["SECURITY.md:3: no test is named"]);
        assert_eq!(of("| It holds |"), ["SECURITY.md:3: a row has a promise, and what it is tested by"]);
        for gone in ["hold", "test_hold", "cargo xtask ti", "corpus/accepted", "corpus/rejected/b.mfp"] {
            assert_eq!(
                of(&format!("| It | `holds`, `{gone}` |")),
                [format!("SECURITY.md:3: there is no `{gone}`")]
            );
        }
        assert_eq!(faults("", &files, &sources, &commands), ["SECURITY.md: there is no table of promises"]);
    }
}
