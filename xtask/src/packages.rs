//! What is published can be: each crate says what it is, depends on nothing that is not published, and has all that it compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use semver::{Version, VersionReq};
use serde_json::Value;

use crate::{run, tidy};

/// Where packages are unpacked and built, apart: their profiles are others than ours.
const APART: &str = "target/packaged";
/// Categories that we use of those that the registry knows. Others are refused when it is too late.
const CATEGORIES: [&str; 8] = [
    "algorithms",
    "command-line-utilities",
    "compression",
    "data-structures",
    "memory-management",
    "parser-implementations",
    "science",
    "simulation",
];
/// What every package has beside its sources; licences as they stand in the root.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
const README: &str = "README.md";

/// Holds every crate that is published against what a registry, and who builds it from there, asks for. Builds nothing.
///
/// # Errors
///
/// All that is wrong.
pub(crate) fn check() -> Result<()> {
    let packages = workspace()?;
    let mut faults = described(&packages);
    let names: Vec<&str> = packages
        .iter()
        .filter(|package| is_published(package))
        .map(|package| text(package, "name"))
        .collect();
    ensure!(!names.is_empty(), "no crate is published");
    let root = std::env::current_dir()?;
    for package in packages.iter().filter(|package| is_published(package)) {
        let folder =
            Path::new(text(package, "manifest_path")).parent().context("a manifest is in a folder")?;
        let name = text(package, "name");
        let listed =
            run::output("cargo", ["package", "--list", "--allow-dirty", "--offline", "--package", name])?;
        let files: BTreeSet<&str> = listed.lines().collect();
        for licence in LICENCES.into_iter().filter(|licence| files.contains(licence)) {
            if std::fs::read(folder.join(licence))? != std::fs::read(root.join(licence))? {
                faults.push(format!("{name}: `{licence}` is another one than that of the workspace"));
            }
        }
        faults.extend(complete(name, &files, |file| {
            std::fs::read_to_string(folder.join(file)).unwrap_or_default()
        }));
    }
    if faults.is_empty() {
        let complaints = run::complaints("cargo", arguments(&packages, &["--no-verify"]))?;
        faults.extend(warnings(&complaints).map(str::to_owned));
    }
    if faults.is_empty() {
        run::say(&format!("packages: ok, {} crates", names.len()));
        return Ok(());
    }
    bail!("packages\n{}", faults.join("\n"))
}

/// Packs every crate that is published and builds it from what was packed.
pub(crate) fn build() -> Result<()> {
    let packages = workspace()?;
    forget(&packages)?;
    // What is built is thrown away: nobody looks into it with a debugger.
    let variables = [("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_INCREMENTAL", "0")];
    run::command("cargo", arguments(&packages, &["--target-dir", APART]), &variables)?;
    forget(&packages)
}

/// Removes what was unpacked and built the last time: cargo takes a version that it has unpacked for the same one, whatever is in it.
fn forget(packages: &[Value]) -> Result<()> {
    let remove = |folder: &Path| match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("can't remove `{}`", folder.display()))
        }
        _ => Ok(()),
    };
    remove(Path::new(APART))?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).context("cargo has a home")?;
    let Ok(registries) = std::fs::read_dir(home.join("registry/src")) else { return Ok(()) };
    for registry in registries {
        let registry = registry?;
        // A registry in a folder has no host, by which others are called.
        if registry.file_name().to_string_lossy().starts_with('-') {
            for package in packages.iter().filter(|package| is_published(package)) {
                let name = format!("{}-{}", text(package, "name"), text(package, "version"));
                remove(&registry.path().join(name))?;
            }
        }
    }
    Ok(())
}

fn workspace() -> Result<Vec<Value>> {
    let metadata = run::output("cargo", ["metadata", "--format-version", "1", "--no-deps", "--locked"])?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    Ok(metadata["packages"].as_array().context("cargo lists packages")?.clone())
}

/// `cargo package` for all that is published.
fn arguments<'a>(packages: &'a [Value], more: &[&'a str]) -> Vec<&'a str> {
    let private = packages.iter().filter(|package| !is_published(package));
    let without = private.flat_map(|package| ["--exclude", text(package, "name")]);
    ["package", "--workspace", "--allow-dirty", "--offline"]
        .into_iter()
        .chain(without)
        .chain(more.iter().copied())
        .collect()
}

/// What cargo warns of, but that tests and examples are left out, which is meant.
fn warnings(complaints: &str) -> impl Iterator<Item = &str> {
    let left_out = ["warning: ignoring test `", "warning: ignoring example `"];
    complaints
        .lines()
        .filter(|line| line.starts_with("warning"))
        .filter(move |line| !left_out.iter().any(|start| line.starts_with(start)))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// What is wrong in the manifests, by `cargo metadata`.
fn described(packages: &[Value]) -> Vec<String> {
    let by_name: BTreeMap<&str, &Value> =
        packages.iter().map(|package| (text(package, "name"), package)).collect();
    let mut faults = Vec::new();
    for package in packages.iter().filter(|package| is_published(package)) {
        let name = text(package, "name");
        let mut fault = |what: &str| faults.push(format!("{name}: {what}"));
        for key in ["description", "documentation", "license", "readme"] {
            if text(package, key).is_empty() {
                fault(&format!("`{key}` is missing"));
            }
        }
        let words = |key: &str| -> Vec<&str> {
            package[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let keywords = words("keywords");
        if keywords.is_empty() || keywords.len() > 5 || !keywords.iter().all(|word| is_keyword(word)) {
            fault("one to five keywords of at most 20 letters, digits, `-`, `_` and `+`");
        }
        let categories = words("categories");
        if categories.is_empty() || !categories.iter().all(|category| CATEGORIES.contains(category)) {
            fault("its categories are none, or not among those that `xtask/src/packages.rs` lists");
        }
        for dependency in ours(package) {
            let on = text(dependency, "name");
            let wanted = text(dependency, "req");
            let is_dropped = text(dependency, "kind") == "dev" && wanted == "*";
            let Some(other) = by_name.get(on).filter(|_| !is_dropped) else { continue };
            if wanted == "*" {
                fault(&format!("the dependency on `{on}` has a path and no version"));
            } else if !is_published(other) {
                fault(&format!("the dependency on `{on}` has a version, but that is not published"));
            } else if !is_met(wanted, text(other, "version")) {
                fault(&format!("the dependency on `{on}` wants {wanted}, which is not what stands here"));
            }
        }
    }
    faults.extend(circle(packages).map(|names| format!("none of these can be published first: {names}")));
    faults
}

fn is_keyword(word: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_+".contains(letter);
    word.len() <= 20
        && word.starts_with(|first: char| first.is_ascii_alphanumeric())
        && word.chars().all(allowed)
}

fn is_met(wanted: &str, version: &str) -> bool {
    match (VersionReq::parse(wanted), Version::parse(version)) {
        (Ok(wanted), Ok(version)) => wanted.matches(&version),
        _ => false,
    }
}

/// The dependencies of a package that have a path.
fn ours(package: &Value) -> impl Iterator<Item = &Value> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    all.filter(|dependency| dependency["path"].is_string())
}

/// Crates that wait for one another, tests included: a version must be published before it is named.
fn circle(packages: &[Value]) -> Option<String> {
    let mut waits: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages.iter().filter(|package| is_published(package)) {
        let named = ours(package).filter(|dependency| text(dependency, "req") != "*");
        waits.insert(text(package, "name"), named.map(|dependency| text(dependency, "name")).collect());
    }
    loop {
        let free = waits.iter().find(|(_, on)| on.iter().all(|name| !waits.contains_key(name)));
        let Some((&name, _)) = free else { break };
        waits.remove(name);
    }
    let left: Vec<&str> = waits.into_keys().collect();
    (!left.is_empty()).then(|| left.join(", "))
}

/// What is missing among the `files` of a package.
fn complete(name: &str, files: &BTreeSet<&str>, read: impl Fn(&str) -> String) -> Vec<String> {
    let wanted = [README].into_iter().chain(LICENCES);
    let missing = wanted.filter(|wanted| !files.contains(wanted));
    let mut faults: Vec<String> = missing.map(|file| format!("{name}: `{file}` is not packed")).collect();
    for &file in files.iter().filter(|file| file.ends_with(".rs")) {
        let source = read(file);
        for included in included(tidy::without_tests(&source)) {
            let at = Path::new(file).parent().unwrap_or(Path::new("")).join(included);
            if !within(&at).is_some_and(|at| files.contains(at.as_str())) {
                faults.push(format!("{name}: `{file}` includes `{included}`, which is not packed"));
            }
        }
    }
    faults
}

/// The files that a source names to the compiler.
fn included(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for start in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""] {
        found.extend(source.split(start).skip(1).filter_map(|rest| rest.split('"').next()));
    }
    found
}

/// A path without `..` and `.`; none where it leads out of the package.
fn within(path: &Path) -> Option<String> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            _ => return None,
        }
    }
    plain.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two crates that can be published, and one for their tests.
    fn packages() -> Vec<Value> {
        let on =
            |name: &str, req: &str, kind: Value| json!({"name": name, "req": req, "kind": kind, "path": "."});
        let package = |name: &str, dependencies: Vec<Value>| {
            json!({
                "name": name, "version": "0.1.0", "publish": null, "dependencies": dependencies,
                "description": "a", "documentation": "b", "license": "c", "readme": "d",
                "keywords": ["memory"], "categories": ["science"],
            })
        };
        let mut kit = package("kit", vec![on("low", "*", Value::Null)]);
        kit["publish"] = json!([]);
        kit["keywords"] = json!([]);
        let low = package("low", vec![on("kit", "*", json!("dev"))]);
        vec![kit, low, package("high", vec![on("low", "^0.1.0", Value::Null), on("kit", "*", json!("dev"))])]
    }

    #[test]
    fn manifests_are_held_to_what_a_registry_asks() {
        assert_eq!(described(&packages()), Vec::<String>::new());
        let dependency =
            |req: &str, name: &str| json!([{"name": name, "req": req, "kind": null, "path": "."}]);
        let developed = json!([{"name": "high", "req": "^0.1.0", "kind": "dev", "path": "."}]);
        let cases = [
            (2, "description", json!(null), "high: `description` is missing"),
            (1, "documentation", json!(""), "low: `documentation` is missing"),
            (1, "license", json!(null), "low: `license` is missing"),
            (1, "readme", json!(null), "low: `readme` is missing"),
            (1, "keywords", json!([]), "one to five keywords"),
            (1, "keywords", json!(["a", "b", "c", "d", "e", "f"]), "one to five keywords"),
            (1, "keywords", json!(["two words"]), "one to five keywords"),
            (1, "keywords", json!(["dynamic-rematerialisation"]), "one to five keywords"),
            (1, "categories", json!(["deep-learning"]), "its categories"),
            (2, "dependencies", dependency("*", "low"), "on `low` has a path and no version"),
            (2, "dependencies", dependency("^0.2.0", "low"), "on `low` wants ^0.2.0"),
            (2, "dependencies", dependency("^0.1.0", "kit"), "on `kit` has a version"),
            (2, "dependencies", dependency("*", "kit"), "on `kit` has a path and no version"),
            (1, "dependencies", developed, "none of these can be published first: high, low"),
        ];
        for (at, key, value, expected) in cases {
            let mut packages = packages();
            packages[at][key] = value.clone();
            let faults = described(&packages);
            assert!(faults.len() == 1 && faults[0].contains(expected), "{key} {value}: {faults:?}");
        }
    }

    #[test]
    fn a_package_has_what_it_compiles() {
        let files = BTreeSet::from([
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "README.md",
            "data/a.toml",
            "src/a/b.rs",
            "src/c.rs",
        ]);
        let with = |source: &'static str| {
            complete(
                "a",
                &files,
                move |file| {
                    if file == "src/a/b.rs" { source.to_owned() } else { String::new() }
                },
            )
        };
        for packed in
            ["include_str!(\"../../data/a.toml\")", "#[path = \"../c.rs\"]\nmod c;", "include!(\"./b.rs\")"]
        {
            assert_eq!(with(packed), Vec::<String>::new(), "{packed}");
        }
        let tested =
            "\n#[cfg(test)]\nmod tests {\n    const A: &str = include_str!(\"../../../corpus/a\");\n}\n";
        assert_eq!(with(tested), Vec::<String>::new());
        for outside in [
            "include_str!(\"../../../LICENSE-MIT\")",
            "include_bytes!(\"../../data/b.toml\")",
            "#[path = \"../../tests/common.rs\"]",
            "include!(\"/src/c.rs\")",
        ] {
            assert_eq!(with(outside).len(), 1, "{outside}");
        }
        let bare = complete("a", &BTreeSet::from(["src/c.rs", "LICENSE-MIT"]), |_| String::new());
        assert_eq!(bare, ["a: `README.md` is not packed", "a: `LICENSE-APACHE` is not packed"]);
    }

    #[test]
    fn what_is_left_out_on_purpose_is_no_warning() {
        let said = "   Packaging a v0.1.0\nwarning: ignoring test `a` as `tests/a.rs` is not included in the published package\n\
                    warning: manifest has no documentation, homepage or repository\n  |\n";
        assert_eq!(
            warnings(said).collect::<Vec<_>>(),
            ["warning: manifest has no documentation, homepage or repository"]
        );
    }
}
