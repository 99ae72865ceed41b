//! Golden plans: every `corpus/plans/*.mfg` says in lines `; run:` what is to be run, and the file beside it what comes of that: what is
//! printed, the exit code, and the plan in the text form. `cargo xtask bless` writes those files anew.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use memfit::formats::plan_json;
use memfit::ir::text;

/// What stands in a line for the file itself, its folder, and a file for the plan.
const SIGNS: [&str; 3] = ["%s", "%S", "%t"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/plans")
}

/// What comes of the lines of `path`, in a scratch folder of `name`'s own.
fn ran(path: &Path, name: &str) -> String {
    let scratch = std::env::temp_dir().join(format!("memfit-golden-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let (file, plan) = (format!("{name}.mfg"), scratch.join("plan.json"));
    let places = [file.as_str(), ".", plan.to_str().unwrap()];
    let mut told = String::new();
    let text = std::fs::read_to_string(path).unwrap();
    for line in text.lines().filter_map(|line| line.strip_prefix("; run: ")) {
        let words = line.split_whitespace().map(|word| {
            SIGNS.iter().zip(places).fold(word.to_owned(), |word, (sign, place)| word.replace(sign, place))
        });
        let output = Command::new(env!("CARGO_BIN_EXE_memfit"))
            .args(words)
            .env("NO_COLOR", "1")
            .env("COLUMNS", "200")
            .current_dir(folder())
            .output()
            .unwrap();
        writeln!(told, "$ memfit {line}").unwrap();
        for stream in [output.stdout, output.stderr] {
            told.push_str(&String::from_utf8(stream).unwrap().replace(plan.to_str().unwrap(), "%t"));
        }
        writeln!(told, "exit {}", output.status.code().unwrap()).unwrap();
        if let Ok(bytes) = std::fs::read(&plan) {
            let read = plan_json::read(&bytes).unwrap();
            told.push_str(&text::print(None, None, Some(&read.plan)));
            std::fs::remove_file(&plan).unwrap();
        }
        told.push('\n');
    }
    std::fs::remove_dir_all(&scratch).unwrap();
    told
}

#[test]
fn golden_plans_come_out_as_they_are_written_down() {
    let blesses = std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "mfg"));
    files.sort();
    assert!(files.len() >= 10, "{}", files.len());
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (found, beside) = (ran(&path, name), path.with_extension("txt"));
        assert!(found.contains("\nexit "), "{name}: no line says `; run:`");
        if blesses {
            std::fs::write(&beside, &found).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&beside).unwrap_or_default();
        if expected != found {
            let differs = expected.lines().zip(found.lines()).position(|(one, other)| one != other);
            let line = differs.unwrap_or(expected.lines().count().min(found.lines().count()));
            let of = |text: &str| text.lines().nth(line).unwrap_or_default().to_owned();
            wrong.push(format!(
                "{name}.txt:{}:\n  expected {}\n  found    {}",
                line + 1,
                of(&expected),
                of(&found)
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "if that is meant, `cargo xtask bless` and look at the difference\n{}",
        wrong.join("\n")
    );
}
