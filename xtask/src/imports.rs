//! Who imports whom within a crate: no circle between files, no strategy that imports a sibling.
//!
//! A `mod.rs` is a table of contents: what it hands on belongs to the file that defines it, and what it defines itself
//! (the trait and the table of a family) may be named by all below it. So it is left out of the circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crates without circles between files.
const CRATES: [&str; 5] = [
    "crates/memfit-engine/src/",
    "crates/memfit-plan/src/",
    "crates/memfit-ir/src/",
    "crates/memfit-sim/src/",
    "crates/memfit-verify/src/",
];

/// A module path, from the root of its crate.
type Module = Vec<String>;

/// The Rust files of one crate.
struct Source {
    /// By module: its file, and its text without comments, strings and tests.
    files: BTreeMap<Module, (String, String)>,
}

/// All that is wrong with the imports of `files`, which are paths from the root of the project.
pub(crate) fn faults(files: &BTreeSet<&str>, read: impl Fn(&str) -> String) -> Vec<String> {
    let mut faults = Vec::new();
    for prefix in CRATES {
        let source = Source::read(prefix, files, &read);
        let edges = source.edges();
        faults.extend(circles(&edges));
        faults.extend(source.siblings(&edges));
    }
    faults
}

/// `schedule/recompute/best.rs` is `schedule::recompute::best`; `mod.rs` and `lib.rs` are their folder.
fn module_of(path: &str) -> Module {
    let mut module: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

/// The text without its tests, comments and strings.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    let line = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        // What is quoted is no path: every second piece.
        code.split('"').step_by(2).collect::<Vec<&str>>().join("\"\"")
    };
    text.lines().map(line).collect::<Vec<String>>().join("\n")
}

/// Paths in `code` that begin with `crate`, `self` or `super`, or stand in a `use` of a module; braces spelled out.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for head in ["crate::", "self::", "super::"] {
        for (at, _) in code.match_indices(head) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
                expand(&code[at..], &mut Vec::new(), &mut paths);
            }
        }
    }
    for (at, _) in code.match_indices("use ") {
        let path = &code[at + 4..];
        if !path.starts_with("crate") && !path.starts_with("self") && !path.starts_with("super") {
            let mut found = Vec::new();
            expand(path, &mut vec!["self".to_owned()], &mut found);
            paths.extend(found);
        }
    }
    paths
}

/// Reads one path, with all its branches, from the start of `text`; what is left of it.
fn expand<'t>(text: &'t str, head: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start();
            if let Some(rest) = rest.strip_prefix('}') {
                return rest;
            }
            if rest.is_empty() {
                return rest;
            }
            let before = rest.len();
            rest = expand(rest, &mut head.clone(), paths);
            // `as name`, commas, and whatever else stands between branches.
            let next = rest.find([',', '}']).unwrap_or(rest.len());
            rest = rest[next..].strip_prefix(',').unwrap_or(&rest[next..]);
            if rest.len() == before {
                return rest;
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    head.push(text[..end].to_owned());
    match text[end..].strip_prefix("::") {
        Some(rest) if end > 0 => expand(rest, head, paths),
        _ => {
            paths.push(head.clone());
            &text[end..]
        }
    }
}

impl Source {
    /// The crate whose files begin with `prefix`.
    fn read(prefix: &str, files: &BTreeSet<&str>, read: impl Fn(&str) -> String) -> Source {
        let files = files.iter().filter(|file| file.starts_with(prefix) && file.ends_with(".rs"));
        let source =
            |file: &&str| (module_of(&file[prefix.len()..]), ((*file).to_owned(), code(&read(file))));
        Source { files: files.map(source).collect() }
    }

    /// By file: the files it imports from, `mod.rs` apart.
    fn edges(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, (file, code)) in &self.files {
            if is_contents(file) {
                continue;
            }
            let to = edges.entry(file.clone()).or_default();
            for path in paths(code) {
                to.extend(
                    self.resolve(module, &path, 0).filter(|other| other != file && !is_contents(other)),
                );
            }
        }
        edges
    }

    /// Folders that hold a family, told by the table in their `mod.rs`: each with what a file in it says that is a strategy.
    /// All other files there are what the family stands on.
    fn families(&self) -> impl Iterator<Item = (&str, String)> {
        let contents = self.files.values().filter(|(file, _)| file.ends_with("/mod.rs"));
        contents.flat_map(|(file, code)| {
            let folder = file.trim_end_matches("mod.rs");
            code.lines().filter_map(move |line| {
                let row = line.strip_prefix("pub const ")?.split_once(": &[")?.1.split_once("] =")?.0;
                match row.strip_prefix("&dyn ") {
                    Some(kind) => Some((folder, format!("impl {kind} for "))),
                    None => (row == "Entry").then(|| (folder, "const INFO: Info".to_owned())),
                }
            })
        })
    }

    /// Strategies that import another one of their family.
    fn siblings(&self, edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
        let mut faults = Vec::new();
        for (folder, says) in self.families() {
            let in_folder = self.files.values().filter(|(file, _)| file.starts_with(folder));
            let strategies: BTreeSet<&String> = in_folder
                .filter(|(file, code)| !is_contents(file) && code.contains(&says))
                .map(|(file, _)| file)
                .collect();
            for file in &strategies {
                for other in edges[*file].iter().filter(|other| strategies.contains(other)) {
                    let other = other[folder.len()..].trim_end_matches(".rs");
                    faults.push(format!("{file}: imports `{other}`, a strategy beside it"));
                }
            }
        }
        faults
    }

    /// The file that defines what `path` names, seen from `module`.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<String> {
        let mut at = module.clone();
        let mut rest = path;
        while let Some((first, more)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                _ => break,
            }
            rest = more;
        }
        while let Some((first, more)) = rest.split_first() {
            let mut below = at.clone();
            below.push(first.clone());
            if !self.files.contains_key(&below) {
                break;
            }
            (at, rest) = (below, more);
        }
        let (file, code) = self.files.get(&at)?;
        if let Some(name) = rest.first().filter(|_| is_contents(file) && depth < 8) {
            // Handed on from somewhere else?
            let handed = paths(code).into_iter().find(|path| path.len() > 1 && path.last() == Some(name));
            if let Some(handed) = handed.filter(|path| path.len() > 2 || path[0] != "self") {
                return self.resolve(&at, &handed, depth + 1).or(Some(file.clone()));
            }
        }
        Some(file.clone())
    }
}

fn is_contents(file: &str) -> bool {
    matches!(Path::new(file).file_name().and_then(|name| name.to_str()), Some("mod.rs" | "lib.rs"))
}

/// One fault for each file from which its imports lead back to it.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for start in edges.keys() {
        let mut seen: BTreeSet<&String> = BTreeSet::new();
        let mut todo: Vec<&String> = edges[start].iter().collect();
        while let Some(file) = todo.pop() {
            if seen.insert(file) {
                todo.extend(edges.get(file).into_iter().flatten());
            }
        }
        if seen.contains(start) {
            let back: Vec<&str> =
                edges[start].iter().filter(|to| reaches(edges, to, start)).map(String::as_str).collect();
            faults.push(format!("{start}: its imports lead back to it, by way of {}", back.join(", ")));
        }
    }
    faults
}

fn reaches(edges: &BTreeMap<String, BTreeSet<String>>, from: &String, to: &String) -> bool {
    let mut seen: BTreeSet<&String> = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(file) = todo.pop() {
        if file == to {
            return true;
        }
        if seen.insert(file) {
            todo.extend(edges.get(file).into_iter().flatten());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let names: BTreeSet<&str> = files.iter().map(|(name, _)| *name).collect();
        faults(&names, |name| {
            files.iter().find(|(known, _)| *known == name).map_or(String::new(), |f| f.1.into())
        })
    }

    #[test]
    fn circles_are_found_through_what_a_mod_hands_on() {
        let root = "crates/memfit-sim/src/";
        let lib = (format!("{root}lib.rs"), "mod a;\nmod b;\npub use a::{One, Two};\nuse b::Three;\n");
        let a = (format!("{root}a.rs"), "use crate::{Three};\n// use super::a::One;\n");
        let b = (format!("{root}b.rs"), "use std::fmt;\nfn f() { let x = super::One; }\n");
        let clean = (format!("{root}b.rs"), "use std::fmt;\n#[cfg(test)]\nmod tests { use super::One; }\n");
        let faults = found(&[(&lib.0, lib.1), (&a.0, a.1), (&b.0, b.1)]);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert_eq!(found(&[(&lib.0, lib.1), (&a.0, a.1), (&clean.0, clean.1)]), Vec::<String>::new());
    }

    #[test]
    fn a_strategy_that_imports_a_sibling_is_found() {
        let root = "crates/memfit-plan/src/schedule/recompute/";
        let table = (
            format!("{root}mod.rs"),
            "mod best;\nmod chen;\nmod search;\npub use chen::Chen;\npub const ALL: &[&dyn Way] = &[&Chen];\n",
        );
        let best = (
            format!("{root}best.rs"),
            "use super::search::Search;\nuse super::{Chen, Front};\nimpl Way for Best {}\n",
        );
        let chen = (format!("{root}chen.rs"), "use super::search;\nimpl Way for Chen {}\n");
        let search = (format!("{root}search.rs"), "");
        let files = [&table, &best, &chen, &search].map(|file| (file.0.as_str(), file.1));
        let faults = found(&files);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains("`chen`"), "{faults:?}");
    }

    /// A family whose folder isn't told would be one in which all may import all.
    #[test]
    fn every_family_has_a_folder_and_every_row_a_file() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
        let listed = crate::run::output("git", ["-C", root, "ls-files", "--full-name"]).unwrap();
        let files: BTreeSet<&str> = listed.lines().collect();
        let mut found = Vec::new();
        for prefix in CRATES {
            let source = Source::read(prefix, &files, |name| {
                std::fs::read_to_string(format!("{root}{name}")).unwrap_or_default()
            });
            for (folder, says) in source.families() {
                let files = source.files.values().filter(|(file, _)| file.starts_with(folder));
                let rows = files.filter(|(_, code)| code.contains(&says)).count();
                let name = folder.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
                assert!(rows > 2, "{folder}: {rows} strategies");
                found.push(name);
            }
        }
        let mut families: Vec<&str> = memfit_plan::FAMILIES.iter().map(|family| family.name).collect();
        // Its stages are a table too, and don't import each other.
        families.push("shard");
        families.iter_mut().for_each(|name| *name = if *name == "allocate" { "alloc" } else { name });
        found.sort_unstable();
        families.sort_unstable();
        assert_eq!(found, families);
    }
}
