//! Whether a locked dependency has a known vulnerability, by facts that stand in the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use semver::{Version, VersionReq};
use serde::Deserialize;

use crate::run;

/// What the RustSec Advisory Database says of the crates that are locked.
const FACTS: &str = "xtask/advisories.toml";

/// Where versions are locked, and what else cargo must be told to change one there.
const LOCKS: [(&str, &str); 2] = [
    ("Cargo.lock", ""),
    ("examples/burn-outside/Cargo.lock", " --manifest-path examples/burn-outside/Cargo.toml"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    /// When it was looked up.
    looked_up: String,
    /// The newest advisory that there was then, and its date.
    newest: String,
    state: String,
    /// Names of all crates that were looked up.
    crates: BTreeSet<String>,
    advisory: Vec<Advisory>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisory {
    id: String,
    #[serde(rename = "crate")]
    name: String,
    kind: Kind,
    summary: String,
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
    /// Why it does not matter here.
    accepted: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Vulnerability,
    Unsound,
    Unmaintained,
    Notice,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Vulnerability => "vulnerability",
            Self::Unsound => "unsound",
            Self::Unmaintained => "unmaintained",
            Self::Notice => "notice",
        }
    }
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// Ours have none.
    source: Option<String>,
}

/// A dependency in a lock file.
struct Locked {
    /// Which one of [`LOCKS`].
    at: usize,
    name: String,
    version: Version,
}

/// Holds every version of both lock files against [`FACTS`].
///
/// # Errors
///
/// Every version that an advisory applies to which is not accepted, every crate that was never looked up, and what is wrong in [`FACTS`]:
/// ranges that are none, and reasons for what applies to nothing.
pub(crate) fn check() -> Result<()> {
    run::say(&report(Path::new("."))?);
    Ok(())
}

/// As [`check`], in the repository at `root`.
fn report(root: &Path) -> Result<String> {
    let read =
        |file: &str| std::fs::read_to_string(root.join(file)).with_context(|| format!("can't read `{file}`"));
    let facts: Facts = toml::from_str(&read(FACTS)?).context(FACTS)?;
    let mut locked = Vec::new();
    for (at, (file, _)) in LOCKS.iter().enumerate() {
        let dependencies = packages(at, &read(file)?).context(*file)?;
        ensure!(dependencies.len() > 50, "`{file}` has {} dependencies", dependencies.len());
        locked.extend(dependencies);
    }
    let faults = faults(&facts, &locked);
    if !faults.is_empty() {
        bail!("advisories\n{}", faults.join("\n"));
    }
    let names: BTreeSet<&str> = locked.iter().map(|dependency| dependency.name.as_str()).collect();
    let told: BTreeSet<&str> = facts.advisory.iter().map(|advisory| advisory.name.as_str()).collect();
    let accepted = facts.advisory.iter().filter(|advisory| advisory.accepted.is_some()).count();
    Ok(format!(
        "advisories: ok, {} of {} crates have some, of the database of {} ({}, looked up {}); {accepted} accepted",
        names.intersection(&told).count(),
        names.len(),
        facts.state,
        facts.newest,
        facts.looked_up,
    ))
}

/// What a lock file, the one `at` this place of [`LOCKS`], takes from elsewhere.
fn packages(at: usize, lock: &str) -> Result<Vec<Locked>> {
    let lock: Lock = toml::from_str(lock)?;
    let theirs = lock.package.into_iter().filter(|package| package.source.is_some());
    let locked = theirs.map(|Package { name, version, .. }| {
        let version = version.parse().with_context(|| format!("`{name} {version}` is no version"))?;
        Ok(Locked { at, name, version })
    });
    locked.collect()
}

/// What is wrong, a line each.
fn faults(facts: &Facts, locked: &[Locked]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut by_name: BTreeMap<&str, Vec<(&Advisory, Ranges)>> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for advisory in &facts.advisory {
        let id = &advisory.id;
        if !ids.insert(id) {
            faults.push(format!("{FACTS}: {id} is there twice"));
        }
        if !facts.crates.contains(&advisory.name) {
            faults.push(format!("{FACTS}: {id} is of `{}`, which `crates` does not name", advisory.name));
        }
        match Ranges::of(advisory) {
            Ok(ranges) => by_name.entry(&advisory.name).or_default().push((advisory, ranges)),
            Err(error) => faults.push(format!("{FACTS}: {id}: {error:#}")),
        }
    }
    let mut applies = BTreeSet::new();
    for dependency in locked {
        let Locked { at, name, version } = dependency;
        let (file, options) = LOCKS[*at];
        if !facts.crates.contains(name) {
            faults.push(format!(
                "{file}: `{name} {version}` was never looked up\n  hint: look in `crates/{name}` of the RustSec Advisory Database, and \
                 add what is there, and the name, to `{FACTS}`"
            ));
        }
        let of_it = by_name.get(name.as_str()).into_iter().flatten();
        for (advisory, _) in of_it.filter(|(_, ranges)| ranges.apply(version)) {
            applies.insert(&advisory.id);
            if advisory.accepted.is_none() {
                faults.push(format!("{file}: {}", hit(advisory, dependency, options)));
            }
        }
    }
    for advisory in &facts.advisory {
        match &advisory.accepted {
            Some(why) if why.trim().is_empty() => {
                faults.push(format!("{FACTS}: {}: `accepted` says why", advisory.id));
            }
            Some(_) if !applies.contains(&advisory.id) => faults.push(format!(
                "{FACTS}: {} applies to no locked version of `{}`\n  hint: take its `accepted` out",
                advisory.id, advisory.name
            )),
            _ => {}
        }
    }
    faults
}

/// An advisory that applies, and what to do about it.
fn hit(advisory: &Advisory, dependency: &Locked, options: &str) -> String {
    let Advisory { id, kind, summary, patched, .. } = advisory;
    let Locked { name, version, .. } = dependency;
    let accept = format!("say why it does not matter here, `accepted = \"why\"` of {id} in `{FACTS}`");
    let next = if patched.is_empty() {
        format!("no version is patched: use another crate, or {accept}")
    } else {
        format!(
            "patched is {}: `cargo update -p {name}@{version} --precise VERSION{options}`; where no such version is compatible, {accept}",
            patched.join(" or ")
        )
    };
    format!("`{name} {version}` has {id} ({}): {summary}\n  hint: {next}", kind.name())
}

/// Versions that an advisory does not apply to.
struct Ranges(Vec<VersionReq>);

impl Ranges {
    fn of(advisory: &Advisory) -> Result<Self> {
        let all = advisory.patched.iter().chain(&advisory.unaffected);
        let parse = |range: &String| {
            VersionReq::parse(range).with_context(|| format!("`{range}` is no range of versions"))
        };
        all.map(parse).collect::<Result<_>>().map(Self)
    }

    /// A version before a release is in none of the usual ranges, so that an advisory rather applies to it.
    fn apply(&self, version: &Version) -> bool {
        !self.0.iter().any(|range| range.matches(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An advisory of `a`, with these lines in addition.
    fn of_a(lines: &str) -> String {
        let head = "id = \"RUSTSEC-1-1\"\ncrate = \"a\"\nkind = \"unsound\"\nsummary = \"it leaks\"";
        format!("\n[[advisory]]\n{head}\n{lines}\n")
    }

    /// What is wrong with `versions` of a crate in the lock file `at`, by these advisories.
    fn of(advisories: &str, at: usize, name: &str, versions: &[&str]) -> Result<Vec<String>> {
        let head = "looked_up = \"2026-01-02\"\nnewest = \"RUSTSEC-1-1\"\nstate = \"2026-01-01\"\ncrates = [\"a\", \"b\"]";
        let facts = toml::from_str(&format!("{head}\n{advisories}"))?;
        let source = "source = \"registry\"";
        let entry =
            |version: &&str| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n{source}\n");
        let ours = "[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let lock: String = versions.iter().map(entry).chain([ours.to_owned()]).collect();
        Ok(faults(&facts, &packages(at, &lock)?))
    }

    #[test]
    fn dependencies_have_no_known_vulnerability_that_is_not_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let report = report(root).unwrap();
        assert!(report.starts_with("advisories: ok, "), "{report}");
    }

    #[test]
    fn a_locked_version_is_hit_or_not() {
        let ranges = of_a("patched = [\">= 1.2.3\", \">= 0.9.5, < 1.0.0\"]\nunaffected = [\"< 0.5.0\"]");
        for good in ["1.2.3", "1.2.3+build", "2.0.0", "0.9.5", "0.9.99", "0.4.9"] {
            assert_eq!(of(&ranges, 0, "a", &[good]).unwrap(), Vec::<String>::new(), "{good}");
        }
        for bad in ["1.2.2", "1.0.0", "0.9.4", "0.5.0", "1.2.3-alpha.1"] {
            let [fault] = &of(&ranges, 0, "a", &["2.0.0", bad]).unwrap()[..] else { panic!("{bad}") };
            for part in [
                &format!("Cargo.lock: `a {bad}` has RUSTSEC-1-1 (unsound): it leaks"),
                "patched is >= 1.2.3 or >= 0.9.5, < 1.0.0",
                &format!("`cargo update -p a@{bad} --precise VERSION`"),
            ] {
                assert!(fault.contains(part), "{part}: {fault}");
            }
            // Another crate is none of its business.
            assert!(of(&ranges, 0, "b", &[bad]).unwrap().is_empty());
        }
        let [elsewhere] = &of(&ranges, 1, "a", &["1.0.0"]).unwrap()[..] else { panic!() };
        assert!(elsewhere.starts_with("examples/burn-outside/Cargo.lock: "), "{elsewhere}");
        assert!(
            elsewhere.contains("VERSION --manifest-path examples/burn-outside/Cargo.toml`"),
            "{elsewhere}"
        );
        let [never_patched] = &of(&of_a("patched = []"), 0, "a", &["9.0.0"]).unwrap()[..] else { panic!() };
        assert!(never_patched.contains("no version is patched"), "{never_patched}");
    }

    #[test]
    fn what_is_accepted_must_apply_and_say_why() {
        let accepted = of_a("patched = [\">= 2\"]\naccepted = \"nobody calls it\"");
        assert!(of(&accepted, 0, "a", &["1.0.0"]).unwrap().is_empty());
        assert!(of(&accepted, 0, "a", &["2.0.0", "1.0.0"]).unwrap().is_empty());
        for (name, versions) in [("a", &["2.0.0"][..]), ("a", &[]), ("b", &["1.0.0"])] {
            let [stale] = &of(&accepted, 0, name, versions).unwrap()[..] else { panic!("{name}") };
            assert!(
                stale.contains("RUSTSEC-1-1 applies to no locked version of `a`")
                    && stale.contains("hint: take"),
                "{stale}"
            );
        }
        let silent = of_a("patched = []\naccepted = \" \"");
        let faults = of(&silent, 0, "a", &["1.0.0"]).unwrap();
        assert_eq!(faults, ["xtask/advisories.toml: RUSTSEC-1-1: `accepted` says why"]);
    }

    #[test]
    fn what_was_never_looked_up_is_told() {
        let [fault] = &of("advisory = []", 0, "c", &["1.0.0"]).unwrap()[..] else { panic!() };
        assert!(fault.starts_with("Cargo.lock: `c 1.0.0` was never looked up\n  hint: "), "{fault}");
        assert!(fault.contains("`crates/c` of the RustSec"), "{fault}");
        let other = of_a("patched = []").replace("crate = \"a\"", "crate = \"A\"");
        let faults = of(&other, 0, "a", &["1.0.0"]).unwrap();
        assert_eq!(faults, ["xtask/advisories.toml: RUSTSEC-1-1 is of `A`, which `crates` does not name"]);
    }

    #[test]
    fn facts_are_of_their_form() {
        for (broken, part) in [
            (of_a("patched = [\">> 1\"]"), "RUSTSEC-1-1: `>> 1` is no range of versions"),
            (of_a("patched = []\nunaffected = [\"\"]"), "RUSTSEC-1-1: `` is no range of versions"),
            (of_a("patched = [\"*\"]").repeat(2), "RUSTSEC-1-1 is there twice"),
        ] {
            let faults = of(&broken, 0, "a", &["1.0.0"]).unwrap();
            assert!(faults.len() == 1 && faults[0].contains(part), "{part}: {faults:?}");
        }
        for (broken, part) in [
            (of_a("patched = []\naccept = \"typo\""), "accept"),
            (of_a(""), "patched"),
            (of_a("patched = []").replace("unsound", "odd"), "odd"),
            (format!("more = 1\n{}", of_a("patched = []")), "more"),
        ] {
            let error = format!("{:#}", of(&broken, 0, "a", &["1.0.0"]).unwrap_err());
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
