//! Plans as text: the judge reports exactly what is marked in `corpus/rejected`, and accepts `corpus/accepted`.
//!
//! A mark is a comment `; error: R6 …` on the step that is to blame, or on `plan` where no one step is. It may
//! name several rules; text after them is for people. Real bytes must agree: what is accepted runs, and a
//! rejected plan either leaves wrong bytes or says `; bytes: right` on its first line, where the rule is
//! stricter than one machine would be.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memfit_ir::text::{self, Document};
use memfit_testkit::Case;
use memfit_testkit::bytes::{Truth, check};
use memfit_verify::{Rule, verify};

fn corpus(folder: &str) -> Vec<(PathBuf, Document)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let read = |path: PathBuf| {
        let document = text::parse(std::fs::read(&path).unwrap());
        let document = document.unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        (path, document)
    };
    files.into_iter().map(read).collect()
}

fn case(document: &Document) -> Case {
    Case {
        graph: Arc::new(document.graph.clone().unwrap()),
        limits: document.limits.clone().unwrap(),
        plan: document.plan.clone().unwrap(),
    }
}

/// Lines and rules marked in the text.
fn marks(document: &Document) -> BTreeSet<(u32, String)> {
    let marks =
        document.comments.iter().filter_map(|(line, text)| Some((line, text.strip_prefix("error:")?)));
    marks
        .flat_map(|(&line, rest)| {
            let is_rule =
                |word: &&str| word.strip_prefix('R').is_some_and(|digits| digits.parse::<u8>().is_ok());
            let rules: Vec<&str> = rest.split_whitespace().take_while(is_rule).collect();
            assert!(!rules.is_empty(), "line {line}: no rule in `error:{rest}`");
            rules.into_iter().map(move |rule| (line, rule.to_owned()))
        })
        .collect()
}

#[test]
fn rejected_plans_are_rejected_for_the_marked_reasons() {
    let mut rules_seen = BTreeSet::new();
    let mut wrong = VecDeque::new();
    for (path, document) in corpus("rejected") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let case = case(&document);
        let expected = marks(&document);
        assert!(!expected.is_empty(), "{name}: nothing is marked");
        let violations = verify(&case.graph, &case.limits, case.plan.clone())
            .map_or_else(|found| found.violations, |_| vec![]);
        let found: BTreeSet<(u32, String)> = violations
            .iter()
            .map(|violation| {
                let line = violation.step.map_or(document.plan_line, |step| document.step_lines[step]);
                (line, violation.rule.to_string())
            })
            .collect();
        if found != expected {
            let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
            wrong.push_back(format!("{name}: marked {expected:?}, reported {found:?}:\n{}", list.join("\n")));
        }
        rules_seen.extend(violations.iter().map(|violation| violation.rule));
        let strict = document.comments.contains(&(1, "bytes: right".to_owned()));
        let ran = check(&Truth::of(&case.graph), &case.graph, &case.limits, &case.plan);
        if ran.is_ok() != strict {
            wrong.push_back(format!("{name}: on real bytes {ran:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.make_contiguous().join("\n\n"));
    for &(rule, name) in Rule::ALL {
        assert!(rules_seen.contains(&rule), "no plan in corpus/rejected breaks {rule} {name}");
    }
}

#[test]
fn accepted_plans_are_accepted_and_right() {
    for (path, document) in corpus("accepted") {
        let case = case(&document);
        let name = path.display();
        let ran = check(&Truth::of(&case.graph), &case.graph, &case.limits, &case.plan);
        let peaks = ran.unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        match verify(&case.graph, &case.limits, case.plan) {
            Ok(verified) => assert_eq!(verified.peaks(), peaks, "{name}"),
            Err(rejected) => panic!("{name}: {rejected}"),
        }
    }
}

#[test]
fn corpus_files_survive_printing() {
    for (path, document) in corpus("accepted").into_iter().chain(corpus("rejected")) {
        let again = text::parse(document.to_string()).unwrap();
        assert_eq!(again.plan, document.plan, "{}", path.display());
        assert_eq!(again.limits, document.limits, "{}", path.display());
        assert_eq!(again.to_string(), document.to_string(), "{}", path.display());
    }
}
