//! Files of the corpus: every graph reads and comes back the same, every malformed file is refused with the message
//! that stands in its folder's `messages.txt`.

#![allow(clippy::unwrap_used, reason = "the helpers of tests, too, may fail")]

use std::path::{Path, PathBuf};

use memfit_formats::{FormatError, csv, device_toml, graph_json, plan_json, snapshot};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .map(|all| all.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn every_graph_comes_back_the_same() {
    let mut graphs = 0;
    for path in files("graphs").iter().filter(|path| name(path).contains(".json")) {
        graphs += 1;
        let bytes = std::fs::read(path).unwrap();
        let graph = graph_json::read(&bytes).unwrap_or_else(|error| panic!("{}: {error}", name(path)));
        assert!(graph.op_count() > 0, "{}", name(path));
        let written = graph_json::write(&graph);
        let back = graph_json::read(&written).unwrap();
        assert_eq!(back.digest(), graph.digest(), "{}", name(path));
        assert!(graph_json::write(&back) == written, "{}", name(path));
    }
    assert!(graphs >= 15, "{graphs} graphs");
}

#[test]
fn every_malformed_file_is_refused_as_expected() {
    type Read = fn(&[u8]) -> Option<FormatError>;
    let readers: [(&str, Read); 5] = [
        ("graph", |bytes| graph_json::read(bytes).err()),
        ("plan", |bytes| plan_json::read(bytes).err()),
        ("snapshot", |bytes| snapshot::read(bytes).err()),
        ("csv", |bytes| csv::read(bytes).err()),
        ("device", |bytes| device_toml::read(std::str::from_utf8(bytes).unwrap()).err()),
    ];
    for (folder, read) in readers {
        let mut messages = String::new();
        let paths = files(&format!("malformed/{folder}"));
        for path in paths.iter().filter(|path| name(path) != "messages.txt") {
            let error =
                read(&std::fs::read(path).unwrap()).unwrap_or_else(|| panic!("{} was read", name(path)));
            messages += &format!("{}\n  error: {error}\n", name(path));
            if let Some(hint) = error.hint {
                messages += &format!("  hint: {hint}\n");
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../corpus/malformed/{folder}/messages.txt"));
        if std::env::var_os("MEMFIT_UPDATE_CORPUS").is_some() {
            std::fs::write(&path, &messages).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert!(messages.lines().count() >= 10, "{folder}");
        assert!(messages == expected, "{folder}: `MEMFIT_UPDATE_CORPUS=1` accepts these:\n{messages}");
    }
}
