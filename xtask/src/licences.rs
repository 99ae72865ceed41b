//! Under which licences the crates stand that are built into what users get.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::run;

/// Licences that may be combined with `MIT OR Apache-2.0`. That of Mozilla asks for the source of files of its own that were changed, and
/// none are; the other one with a name of its own is of a list of certificates.
const ALLOWED: [&str; 15] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Holds every dependency that is built, for any feature, against [`ALLOWED`].
///
/// # Errors
///
/// Every crate whose licence is another one, or that tells none.
pub(crate) fn check() -> Result<()> {
    let metadata = run::output("cargo", ["metadata", "--format-version", "1", "--locked"])?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo names its packages")?;
    let by_id: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let built = built(&metadata)?;
    ensure!(built.len() > 50, "`cargo metadata` tells of {} dependencies", built.len());
    let mut refused = Vec::new();
    for package in built.iter().filter_map(|id| by_id.get(id.as_str())) {
        let name = package["name"].as_str().unwrap_or_default();
        match package["license"].as_str() {
            Some(licence) if is_allowed(licence) => {}
            Some(licence) => refused.push(format!("{name}: {licence}")),
            None => refused.push(format!("{name}: no licence is told")),
        }
    }
    if refused.is_empty() {
        run::say(&format!("licences: ok, of {} crates", built.len()));
        return Ok(());
    }
    bail!("licences\n{}", refused.join("\n"))
}

/// What the workspace's crates depend on other than for tests and builds alone.
fn built(metadata: &Value) -> Result<BTreeSet<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo resolves dependencies")?;
    let normal = |dependency: &Value| {
        let kinds = dependency["dep_kinds"].as_array()?;
        kinds
            .iter()
            .any(|kind| kind["kind"].is_null())
            .then(|| dependency["pkg"].as_str().map(str::to_owned))?
    };
    let of: BTreeMap<&str, Vec<String>> = nodes
        .iter()
        .filter_map(|node| {
            let all = node["deps"].as_array()?;
            Some((node["id"].as_str()?, all.iter().filter_map(normal).collect()))
        })
        .collect();
    let members = metadata["workspace_members"].as_array().context("cargo names its members")?;
    let mut todo: Vec<String> = members.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if seen.insert(id.clone()) {
            todo.extend(of.get(id.as_str()).into_iter().flatten().cloned());
        }
    }
    Ok(seen)
}

/// Whether an SPDX expression leaves a choice that is allowed.
fn is_allowed(licence: &str) -> bool {
    // Brackets stand around alternatives only, and `/` is the old form of `OR`.
    let all = licence.split(" AND ").map(|part| part.trim().trim_matches(['(', ')']));
    all.into_iter().all(|part| {
        part.replace('/', " OR ")
            .split(" OR ")
            .any(|one| ALLOWED.contains(&one.trim().trim_matches(['(', ')'])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_leave_a_choice_or_not() {
        for allowed in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "", "MITX", "(GPL-3.0 OR LGPL-2.1) AND MIT"] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }
}
