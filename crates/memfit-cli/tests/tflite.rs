//! `memfit` over TensorFlow Lite models: planned, placed, explained, and handed back with their offsets in them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memfit::formats::tflite::offsets_in;

const SMALL: &str = "corpus/tflite/small.tflite";
const DEVICE: &str = "examples/tflite/microcontroller.toml";

fn memfit(args: &[&str]) -> (i32, String, Output) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO_BIN_EXE_memfit")).args(args).current_dir(root).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    (output.status.code().unwrap(), text, output)
}

fn scratch(name: &str) -> String {
    let path: PathBuf = std::env::temp_dir().join(format!("memfit-tflite-{}-{name}", std::process::id()));
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_plan_becomes_offsets_in_the_model() {
    let (plan, out) = (scratch("plan.json"), scratch("out.tflite"));
    for (model, dims) in [
        (SMALL, &[][..]),
        ("corpus/tflite/stateful.tflite", &[]),
        ("corpus/tflite/open.tflite", &["--dim", "x[0]=1"]),
    ] {
        let base = [
            "plan",
            model,
            "--device",
            DEVICE,
            "--order",
            "given",
            "--no-recompute",
            "--no-offload",
            "-o",
            &plan,
        ];
        let (code, text, _) = memfit(&[&base[..], dims].concat());
        assert_eq!(code, 0, "{text}");
        let (code, text, _) =
            memfit(&[&["export", &plan, model, "--to", "tflite", "-o", &out][..], dims].concat());
        assert_eq!(code, 0, "{text}");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (before, after) = (std::fs::read(root.join(model)).unwrap(), std::fs::read(&out).unwrap());
        assert!(after.ends_with(&before));
        let offsets = offsets_in(&after).unwrap().unwrap();
        assert!(offsets.iter().any(|&offset| offset >= 0), "{offsets:?}");
        // What has offsets plans to the same.
        let again = [&["check", &plan, &out][..], dims].concat();
        assert_eq!(memfit(&again).0, 0, "{}", memfit(&again).1);
    }
    let (code, text, _) = memfit(&["export", &plan, "corpus/tflite/stateful.tflite", "--to", "tflite"]);
    assert_eq!(code, 4, "a plan of another model: {text}");
    for path in [plan, out] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn tensors_of_a_model_are_placed_and_explained() {
    for (placer, peak) in [("tflite-micro", "512"), ("tflite-arena", "512"), ("best", "512")] {
        let (code, text, _) = memfit(&["place", SMALL, "--placer", placer]);
        assert!(code == 0 && text.contains(&format!("verified: {peak} B")), "{text}");
    }
    let (code, text, output) = memfit(&["place", SMALL, "-o", "-"]);
    assert_eq!(code, 0, "{text}");
    let rows = String::from_utf8(output.stdout).unwrap();
    assert!(rows.starts_with("id,lower,upper,size") && rows.contains("\n2:c,1,3,256"), "{rows}");
    let (code, text, _) = memfit(&["explain", SMALL]);
    assert!(code == 0 && text.contains("CONV_2D"), "{text}");
}

#[test]
fn messages_say_what_to_do() {
    let plan = scratch("refused.json");
    let (code, text, _) = memfit(&["plan", SMALL, "-o", &plan]);
    assert_eq!(code, 0, "{text}");
    for (args, exit, part) in [
        (&["plan", "corpus/tflite/open.tflite"][..], 3, "--dim 'x[0]=1'"),
        (&["plan", "corpus/tflite/open.tflite", "--dim", "x[0]=8"], 3, "convert the model with fixed shapes"),
        (&["place", "corpus/tflite/open.tflite"], 3, "--dim 'x[0]=1'"),
        (&["plan", "corpus/tflite/damaged/while.tflite"], 3, "op 1 (WHILE): control flow"),
        (&["plan", "corpus/tflite/damaged/cut.tflite"], 3, "lies outside of the file"),
        (&["export", &plan, "--to", "tflite"], 2, "memfit export PLAN MODEL.tflite"),
    ] {
        let (code, text, _) = memfit(args);
        assert!(code == exit && text.contains(part), "{args:?}: {code}: {text}");
    }
    std::fs::remove_file(plan).unwrap();
}
