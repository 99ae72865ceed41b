//! The README's console blocks are true: each command prints exactly what stands under it.
//!
//! `MEMFIT_UPDATE_README=1 cargo test -p memfit-cli --test readme` writes what they print now.

use std::path::Path;
use std::process::Command;

const PROMPT: &str = "$ cargo run --release -- ";

#[test]
fn the_readme_shows_what_the_commands_print() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let mut fresh = String::new();
    let mut rest = readme.as_str();
    let mut blocks = 0;
    while let Some(at) = rest.find("```console\n") {
        let (before, block) = rest.split_at(at + "```console\n".len());
        let (block, after) = block.split_at(block.find("```").unwrap());
        let command = block.lines().next().unwrap();
        let words = command.strip_prefix(PROMPT).unwrap().split_whitespace();
        let output =
            Command::new(env!("CARGO_BIN_EXE_memfit")).args(words).current_dir(&root).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        fresh += &format!("{before}{command}\n{}", String::from_utf8_lossy(&output.stdout));
        rest = after;
        blocks += 1;
    }
    fresh += rest;
    assert!(blocks >= 2, "the README has its two commands");
    if std::env::var_os("MEMFIT_UPDATE_README").is_some() {
        std::fs::write(&path, fresh).unwrap();
        return;
    }
    assert_eq!(readme, fresh, "the README is out of date; see the head of this test");
}
