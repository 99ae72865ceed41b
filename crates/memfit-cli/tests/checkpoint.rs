//! `memfit checkpoint`: to the byte and back, what is refused, and what a file is like when that happens.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scratch;

use std::process::{Command, Output};

use serde_json::{Map, Value, json};

use scratch::Scratch;

impl Scratch {
    /// `words`, in which a name that ends with a dot and three letters is a file of this folder.
    fn memfit(&self, words: &str) -> Output {
        let words: Vec<&str> = std::iter::once("checkpoint").chain(words.split(' ')).collect();
        Command::new(env!("CARGO_BIN_EXE_memfit")).args(words).current_dir(&self.0).output().unwrap()
    }

    fn good(&self, words: &str) -> Value {
        let output = self.memfit(&format!("{words} --json"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}: {text}");
        if output.stdout.is_empty() { Value::Null } else { serde_json::from_slice(&output.stdout).unwrap() }
    }

    /// Exit status and message of a command that fails.
    fn bad(&self, words: &str) -> (i32, String) {
        let output = self.memfit(&format!("{words} --json"));
        let object: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(object["exit_code"], output.status.code().unwrap());
        (output.status.code().unwrap(), object["error"].as_str().unwrap().to_owned())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }
}

/// A file with two types, spaces after its header, metadata, and numbers that move with `step`.
fn safetensors(step: u8) -> Vec<u8> {
    let mut state = 1u64;
    let weights: Vec<u8> = (0..4000)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let near = (state >> 40) as f32 / 16_777_216.0 - 0.5;
            (near * (1.0 + f32::from(step) * 1e-5)).to_le_bytes()
        })
        .collect();
    let mut header = Map::new();
    header.insert("z.step".into(), json!({ "dtype": "U8", "shape": [], "data_offsets": [0, 1] }));
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    header.insert("a.w".into(), json!({ "dtype": "F32", "shape": [40, 100], "data_offsets": [1, 16_001] }));
    let text = Value::Object(header).to_string() + "\n   ";
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &[step], &weights].concat()
}

#[test]
fn files_come_back_to_the_byte() {
    let scratch = Scratch::new("checkpoint-bytes");
    for step in 0..3 {
        scratch.write(&format!("{step}.st"), safetensors(step));
    }
    let packed = scratch.good("pack 0.st -o 0.mfc");
    assert!(packed["bytes"].as_u64() < packed["plain_bytes"].as_u64(), "{packed}");
    assert_eq!(packed["tensors"].as_array().unwrap().len(), 2);
    scratch.good("unpack 0.mfc -o back.st");
    assert!(scratch.read("back.st") == safetensors(0));
    // Differences of differences: to a file, to a packed one, to a chain.
    let changed = scratch.good("diff 0.st 1.st -o 1.mfc");
    assert_eq!(changed["base"], packed["digest"]);
    assert!(changed["bytes"].as_u64().unwrap() * 3 < packed["bytes"].as_u64().unwrap() * 2, "{changed}");
    scratch.good("diff 1.mfc 2.st --base 0.mfc -o 2.mfc");
    for (words, step) in [
        ("unpack 1.mfc --base 0.st -o back.st", 1),
        ("unpack 1.mfc --base 0.mfc -o back.st", 1),
        ("unpack 2.mfc --base 1.st -o back.st", 2),
        ("unpack 2.mfc --base 0.mfc --base 1.mfc -o back.st", 2),
    ] {
        scratch.good(words);
        assert!(scratch.read("back.st") == safetensors(step), "{words}");
    }
    // A difference made whole again.
    scratch.good("pack 2.mfc --base 0.st --base 1.mfc -o whole.mfc");
    scratch.good("unpack whole.mfc -o back.st");
    assert!(scratch.read("back.st") == safetensors(2));
    let out = scratch.memfit("unpack whole.mfc -o -");
    assert!(out.stdout == safetensors(2));
}

#[test]
fn what_is_refused_leaves_the_old_file() {
    let scratch = Scratch::new("checkpoint-refused");
    scratch.write("0.st", safetensors(0));
    scratch.write("1.st", safetensors(1));
    scratch.good("pack 0.st -o 0.mfc");
    scratch.good("diff 0.st 1.st -o 1.mfc");
    scratch.write("old.st", b"old");
    let mut broken = scratch.read("0.mfc");
    broken[5000] ^= 1;
    scratch.write("broken.mfc", &broken);
    let mut later = scratch.read("0.mfc");
    later[8] = 9;
    scratch.write("later.mfc", &later);
    scratch.write("text.st", b"hello, this is no checkpoint");
    for (words, code, part) in [
        ("unpack broken.mfc -o old.st", 3, "tensor `a.w` is damaged"),
        ("unpack later.mfc -o old.st", 3, "version 9"),
        ("unpack text.st -o old.st", 3, "this is no checkpoint"),
        ("unpack 1.mfc -o old.st", 2, "holds only what differs"),
        ("unpack 1.mfc --base 1.st -o old.st", 4, "tensor `a.w` of the base"),
        ("unpack 1.mfc --base broken.mfc -o old.st", 3, "the base can't be used: tensor `a.w` is damaged"),
        ("unpack gone.mfc -o old.st", 3, "can't read `gone.mfc`"),
        ("unpack 0.mfc -o nowhere/x.st", 5, "can't write `nowhere/x.st`"),
        ("pack 0.st --codec bounded -o old.st", 2, "`--bound`"),
        ("pack 0.st --codec kmeans --bound 1 -o old.st", 2, "`--clusters`"),
        ("pack 0.st --codec bounded --bound 0 -o old.st", 2, "`0` is no bound"),
        ("verify broken.mfc", 6, "tensor `a.w` is damaged"),
        ("verify later.mfc", 3, "version 9"),
    ] {
        let (found, message) = scratch.bad(words);
        assert_eq!(found, code, "{words}: {message}");
        assert!(message.contains(part), "{words}: {message}");
    }
    assert_eq!(scratch.read("old.st"), b"old");
    let left = std::fs::read_dir(&scratch.0)
        .unwrap()
        .flatten()
        .filter(|file| file.path().to_string_lossy().ends_with("tmp"));
    assert_eq!(left.count(), 0);
    let verified = scratch.good("verify 1.mfc");
    assert_eq!((&verified["verified"], &verified["unpacked"]), (&json!(true), &json!(false)));
    assert_eq!(scratch.good("verify 1.mfc --base 0.st")["unpacked"], true);
}

#[test]
fn what_is_lost_is_what_was_allowed() {
    let scratch = Scratch::new("checkpoint-lossy");
    scratch.write("0.st", safetensors(0));
    for how in
        ["bounded --bound 1e-3", "delta-dnn --bound 1e-3", "deepsz --bound 1e-3", "kmeans --clusters 64"]
    {
        scratch.good(&format!("pack 0.st --codec {how} -o 0.mfc"));
        scratch.good("unpack 0.mfc -o back.st");
        let (plain, back) = (safetensors(0), scratch.read("back.st"));
        assert_eq!(plain.len(), back.len());
        assert!(plain != back);
        let floats = |bytes: &[u8]| -> Vec<f32> {
            let tail = &bytes[bytes.len() - 16_000..];
            tail.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
        };
        let allowed = if how.starts_with("kmeans") { 0.05 } else { 1e-3 };
        assert!(floats(&plain).iter().zip(floats(&back)).all(|(x, y)| (x - y).abs() <= allowed), "{how}");
    }
    let table = scratch.memfit("pack 0.st -v --codec bounded --bound 1e-3 -o 0.mfc");
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(text.contains("a.w") && text.contains("bounded") && text.contains("± 1e-3"), "{text}");
}
