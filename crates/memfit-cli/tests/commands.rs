//! The contract of the command line: exit codes, JSON keys, messages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scratch;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memfit_testkit::one_of;
use serde_json::{Value, json};

use scratch::Scratch;

const GRAPH: &str = "corpus/graphs/resnet50-train-b32.json.zst";
/// Where many plans are made: it takes half the time.
const GPT: &str = "corpus/graphs/gpt2-train-b8-s1024.json.zst";
/// A third of its ops.
const SMALL: &str = "corpus/graphs/unet-train-b16.json.zst";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn memfit(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memfit")).args(args).current_dir(root()).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stdout(output)))
}

/// Plans `graph` into a file of `scratch` and returns its path.
fn planned(scratch: &Scratch, graph: &str) -> String {
    let path = scratch.file("plan.json");
    let output = memfit(&["plan", graph, "--budget", "100%", "-o", &path]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    path
}

#[test]
fn every_corpus_graph_fits_its_own_peak() {
    for entry in std::fs::read_dir(root().join("corpus/graphs")).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_str().unwrap().ends_with(".json.zst") {
            continue;
        }
        let output = memfit(&["plan", path.to_str().unwrap(), "--budget", "100%", "--json"]);
        assert_eq!(code(&output), 0, "{}: {}", path.display(), stderr(&output));
        let object = object(&output);
        let bytes =
            |key: &str| object[key].as_u64().unwrap_or_else(|| panic!("{}: no `{key}`", path.display()));
        assert_eq!((&object["status"], &object["verified"]), (&"fits".into(), &true.into()));
        assert!(bytes("peak_bytes") <= bytes("budget_bytes"));
        assert!(bytes("live_peak_bytes") <= bytes("peak_bytes"));
        assert!(bytes("lower_bound_bytes") <= bytes("live_peak_bytes"));
        assert!(bytes("peak_bytes") * 100 <= bytes("live_peak_bytes") * 101, "{}", path.display());
        for key in ["time_ns", "base_time_ns", "recompute_ns", "offload_bytes", "host_peak_bytes", "seed"] {
            bytes(key);
        }
        assert!(object["schema"].is_string() && object["strategy"].is_string());
        assert!(object["overhead"].is_number() && object["planning_seconds"].is_number());
    }
}

#[test]
fn onnx_models_plan_and_damaged_ones_say_where() {
    let files = |folder: &str, ending: &str| -> Vec<String> {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| path.to_str().unwrap().to_owned()).filter(|path| path.ends_with(ending)).collect()
    };
    let models = files("corpus/onnx", ".onnx.zst");
    assert!(models.len() >= 12, "{models:?}");
    for model in models {
        // The exporter before `dynamo` wrote the sizes it was traced with into reshapes.
        let dims: &[&str] = match model.as_str() {
            name if name.contains("legacy") => &["--dim", "batch=2", "--dim", "seq=16"],
            name if name.contains("encoder") => &["--dim", "batch=8", "--dim", "seq=128"],
            _ => &[],
        };
        let args = [&["plan", model.as_str(), "--budget", "100%", "--json"], dims].concat();
        let output = memfit(&args);
        assert_eq!(code(&output), 0, "{model}: {}", stderr(&output));
        assert_eq!(object(&output)["verified"], true, "{model}");
    }
    let damaged = files("corpus/onnx/damaged", ".onnx");
    assert!(damaged.len() >= 5);
    for model in damaged {
        let output = memfit(&["plan", &model]);
        assert_eq!(code(&output), 3, "{model}: {}", stderr(&output));
        assert!(stderr(&output).contains(&format!("`{model}`: ")), "{}", stderr(&output));
    }
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let scratch = Scratch::new("same");
    let first = std::fs::read(planned(&scratch, GRAPH)).unwrap();
    let second = std::fs::read(planned(&scratch, GRAPH)).unwrap();
    assert!(first == second, "two runs gave two plans");
}

#[test]
fn check_accepts_the_plan_and_refuses_what_is_changed() {
    let scratch = Scratch::new("check");
    let path = planned(&scratch, GRAPH);
    let accepted = memfit(&["check", &path, GRAPH, "--json"]);
    assert_eq!(code(&accepted), 0, "{}", stderr(&accepted));
    assert_eq!(object(&accepted)["verified"], true);
    let plan: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let buffers = plan["buffers"].as_array().unwrap().len();
    let steps = plan["steps"].as_array().unwrap().len();
    let live_from_the_start = usize::try_from(plan["resident"][0].as_u64().unwrap()).unwrap();
    let sizable = |plan: &Value, at: usize| plan["buffers"][at]["size"].as_u64().unwrap() > 0;
    let mut changes: Vec<(String, Value)> = Vec::new();
    for k in 1..12 {
        // Offsets: on top of a parameter that is there all the time.
        let at = k * buffers / 12;
        if at != live_from_the_start && sizable(&plan, at) {
            let mut changed = plan.clone();
            changed["buffers"][at]["offset"] = plan["buffers"][live_from_the_start]["offset"].clone();
            changes.push((format!("offset of b{at}"), changed));
        }
        let mut changed = plan.clone();
        changed["buffers"][at]["size"] = (plan["buffers"][at]["size"].as_u64().unwrap() + 512).into();
        changes.push((format!("size of b{at}"), changed));
        let at = k * steps / 12;
        let mut changed = plan.clone();
        changed["steps"].as_array_mut().unwrap().remove(at);
        if plan["steps"][at].get("compute").is_some() {
            changes.push((format!("step {at} removed"), changed));
        }
        let mut changed = plan.clone();
        let moved = changed["steps"].as_array_mut().unwrap().remove(at);
        changed["steps"].as_array_mut().unwrap().insert(0, moved);
        changes.push((format!("step {at} first"), changed));
    }
    for (what, changed) in changes {
        let path = scratch.write("changed.json", changed.to_string());
        let output = memfit(&["check", &path, GRAPH]);
        assert_eq!(code(&output), 6, "{what}: {}", stderr(&output));
    }
}

#[test]
fn check_tells_another_graph_from_a_damaged_plan() {
    let scratch = Scratch::new("other");
    let path = planned(&scratch, GRAPH);
    let other = memfit(&["check", &path, "corpus/graphs/resnet50-train-b256.json.zst", "--json"]);
    assert_eq!(code(&other), 4);
    assert_eq!(object(&other)["status"], "other-graph");
    let bytes = std::fs::read(&path).unwrap();
    for end in [0, 1, 100, bytes.len() / 2, bytes.len() - 3] {
        let cut = scratch.write("cut.json", &bytes[..end]);
        assert_eq!(code(&memfit(&["check", &cut, GRAPH])), 3, "cut at {end}");
    }
    let packed = scratch.file("plan.json.zst");
    assert_eq!(code(&memfit(&["plan", GRAPH, "--budget", "100%", "-o", &packed])), 0);
    assert_eq!(code(&memfit(&["check", &packed, GRAPH])), 0);
    let mut bytes = std::fs::read(&packed).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    assert_eq!(code(&memfit(&["check", &scratch.write("bad.json.zst", bytes), GRAPH])), 3);
}

#[test]
fn every_byte_of_a_plan_may_be_flipped() {
    let scratch = Scratch::new("flip");
    let graph = "crates/memfit-cli/src/commands/doctor.json";
    let path = planned(&scratch, graph);
    let plan = std::fs::read(&path).unwrap();
    let graph =
        memfit::input::graph(&std::fs::read(root().join(graph)).unwrap(), &Default::default()).unwrap();
    for at in 0..plan.len() {
        for mask in [0x01, 0x04, 0x20, 0x80] {
            let mut flipped = plan.clone();
            flipped[at] ^= mask;
            // Whatever it says, it says it: the exit code of a failure is never that of a bug.
            if let Err(failure) = memfit::check(&flipped, &graph, None, &[]) {
                assert!([3, 4, 6].contains(&failure.exit_code()), "byte {at}: {failure}");
            }
        }
    }
}

#[test]
fn a_snapshot_is_explained() {
    let file = "corpus/snapshots/decoder-oom.pickle.zst";
    let text = stdout(&memfit(&["explain", file, "--top", "2"]));
    for part in [
        "live bytes at the peak",
        "out of memory: 562 MiB were asked for with 476 MiB left on the device",
        "model/decoder.py:14 forward",
        "could not be had",
        "… 3 more: `--top 5`",
        "what each remedy would give",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let object = object(&memfit(&["explain", file, "--json"]));
    assert_eq!(object["schema"], "memfit-result/1");
    let remedies = object["remedies"].as_array().unwrap();
    let peak = |name: &str| {
        let row = remedies.iter().find(|row| row["name"] == name).unwrap();
        row["peak_bytes"].as_u64().unwrap()
    };
    assert_eq!(Some(peak("live")), object["live_peak_bytes"].as_u64());
    assert!(peak("live") <= peak("place") && peak("place") < peak("none"));
    let output = memfit(&["explain", "corpus/malformed/snapshot/calls-a-function.pickle"]);
    assert_eq!(code(&output), 3);
    assert!(stderr(&output).contains("only plain data is read"), "{}", stderr(&output));
    assert_eq!(code(&memfit(&["explain", file, "--index", "9"])), 2);
}

#[test]
fn a_budget_for_live_bytes_leaves_the_arena_to_others() {
    for budget in ["floor+30%", "floor+60%"].into_iter().skip(one_of(2) - 1) {
        let live =
            object(&memfit(&["plan", SMALL, "--budget", budget, "--strategy", "budget:live", "--json"]));
        let arena = object(&memfit(&["plan", SMALL, "--budget", budget, "--json"]));
        let bytes = |object: &Value, key: &str| object[key].as_u64().unwrap();
        assert_eq!((&live["status"], &live["verified"]), (&"fits".into(), &true.into()));
        assert!(live["strategy"].as_str().is_some_and(|strategy| strategy.ends_with("+budget:live")));
        assert!(bytes(&live, "live_peak_bytes") <= bytes(&live, "budget_bytes"));
        assert!(bytes(&live, "live_peak_bytes") <= bytes(&live, "peak_bytes"));
        assert!(bytes(&live, "time_ns") <= bytes(&arena, "time_ns"), "what fits in an arena is live in it");
    }
}

#[test]
fn a_budget_below_the_floor_names_the_step() {
    let output = memfit(&["plan", GRAPH, "--budget", "300MiB", "--json"]);
    assert_eq!(code(&output), 1);
    let object = object(&output);
    assert_eq!((&object["status"], &object["proved"]), (&"infeasible".into(), &true.into()));
    assert!(object["witness"]["reads"].as_array().is_some_and(|reads| !reads.is_empty()));
    let needed = object["needed_bytes"].as_u64().unwrap();
    // The hint stands in the object, too: a whole search for the least budget is dear.
    let hint = object["hint"].as_str().unwrap();
    for part in ["iB` is enough", "proved: no plan that keeps parameters and state on the device fits below"]
    {
        assert!(hint.contains(part), "no `{part}` in: {hint}");
    }
    let text = stderr(&output);
    for part in ["no plan fits `300 MiB`", "reads", "writes", hint] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    let said = hint.split('`').nth(1).unwrap().trim_start_matches("--budget ");
    assert_eq!(code(&memfit(&["plan", GRAPH, "--budget", said])), 0, "what is enough is enough");
    assert_eq!(code(&memfit(&["plan", GRAPH, "--budget", &needed.to_string()])), 0);
    let keep_all = ["plan", GRAPH, "--no-recompute", "--json", "--budget"];
    let needed =
        self::object(&memfit(&[&keep_all[..], &["300MiB"]].concat()))["needed_bytes"].as_u64().unwrap();
    assert_eq!(code(&memfit(&[&keep_all[..], &[&needed.to_string()]].concat())), 0);
    assert_eq!(code(&memfit(&[&keep_all[..], &[&(needed - 512).to_string()]].concat())), 1);
}

#[test]
fn wrong_calls_end_with_a_next_step() {
    for (args, exit, part) in [
        (&["plan", GRAPH, "--budget", "much"][..], 2, "is not a budget"),
        (&["plan", GRAPH, "--budget", "60"], 2, "did you mean `60%` or `60GiB`?"),
        (
            &["plan", GRAPH, "--lanes", "2", "--strategy", "recompute:best"],
            2,
            "leave out the strategy or `--lanes`",
        ),
        (&["plan", "/dev/null"], 3, "the file is empty"),
        (&["plan", "corpus/snapshots/decoder-oom.pickle.zst"], 3, "memfit explain FILE"),
        (&["place", "README.md", "--align", "9223372036854775808"], 3, "README.md"),
        (&["plan", GRAPH, "--order", "magic"], 2, "known: given"),
        (&["plan", GRAPH, "--placer", "magic"], 2, "known: naive"),
        (&["plan", GRAPH, "--strategy", "sort:best"], 2, "memfit strategies"),
        (&["plan", GRAPH, "--device", "abacus"], 2, "known: K40"),
        (&["plan", GRAPH, "--dim", "batch=8"], 2, "leave it out"),
        (&["plan", "no-such-file.json"], 3, "can't read `no-such-file.json`"),
        (&["plan", "README.md"], 3, "README.md"),
        (&["check", GRAPH, GRAPH], 3, "schema"),
        (&["check", GRAPH], 2, "memfit check PLAN GRAPH"),
        (&["place", "README.md"], 3, "README.md"),
        (&["plan", GRAPH, "-o", "no/such/folder/plan.json"], 5, "can't write"),
        (&["check", GRAPH, "corpus/malformed/plan/other-digest.json"], 3, "memfit check PLAN GRAPH"),
        (&["plan", "corpus/malformed/plan/other-digest.json"], 3, "memfit check PLAN GRAPH"),
        (&["plan", "corpus/onnx/encoder_dynamo.onnx.zst"], 3, "`--dim batch=8 --dim seq=8`"),
        (&["frobnicate"], 2, "unrecognized subcommand"),
    ] {
        let output = memfit(args);
        let text = stderr(&output);
        assert_eq!(code(&output), exit, "{args:?}: {text}");
        assert!(text.contains(part), "{args:?}: no `{part}` in: {text}");
        assert!(text.starts_with("error"), "{args:?}: {text}");
    }
}

#[test]
fn json_is_one_object_of_one_schema_whatever_happens() {
    let plan = "crates/memfit-cli/src/commands/doctor.json";
    for (args, exit, status) in [
        (&["frobnicate", "--json"][..], 2, "usage"),
        (&["--json", "plan"], 2, "usage"),
        (&["plan", plan, "--json", "--budget", "much"], 2, "usage"),
        (&["plan", plan, "--json", "--order", "magic"], 2, "usage"),
        (&["plan", "README.md", "--json"], 3, "bad-input"),
        (&["plan", plan, "--json", "--budget", "1KiB"], 1, "infeasible"),
        (&["plan", plan, "--json"], 0, "fits"),
        (&["explain", plan, "--json"], 0, "done"),
        (&["compare", plan, "--json"], 0, "done"),
        (&["sweep", plan, "--points", "2", "--json"], 0, "done"),
        (&["strategies", "--json"], 0, "done"),
        (&["doctor", "--json"], 0, "ok"),
    ] {
        let output = memfit(args);
        assert_eq!(code(&output), exit, "{args:?}");
        let object: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", stderr(&output)));
        assert_eq!(object["schema"], "memfit-result/1", "{args:?}");
        assert_eq!(object["status"], status, "{args:?}");
        let command = args.iter().find(|word| !word.starts_with('-') && **word != "frobnicate");
        assert_eq!(object["command"].as_str(), command.copied(), "{args:?}");
        if exit != 0 {
            assert!(object["error"].as_str().is_some_and(|error| error.len() > 5), "{args:?}: {object}");
            assert_eq!(object["exit_code"], exit, "{args:?}");
        }
    }
    // What is after `--` is no option.
    assert!(memfit(&["plan", "--", "--json"]).stdout.is_empty());
}

#[test]
fn what_files_say_reaches_no_terminal_as_a_command() {
    let scratch = Scratch::new("escapes");
    let bad = "\u{1b}[31m\u{1b}]8;;http://a\u{7}\u{202e}";
    let json = |value: &str| value.replace('\u{1b}', "\\u001b").replace('\u{7}', "\\u0007");
    let graph = format!(
        r#"{{"schema": "memfit-graph/1", "name": "{0}", "values": [{{"name": "{0}", "bytes": 4096}}],
            "ops": [{{"kind": "{0}", "name": "{0}", "reads": [], "writes": [0]}}], "results": [0]}}"#,
        json(bad)
    );
    let good = scratch.write("good.json", &graph);
    let unknown = scratch.write("unknown.json", graph.replace("\"results\"", &format!("\"{}\"", json(bad))));
    let list = scratch.write("list.csv", format!("id,lower,upper,size\n{bad},0,5,{bad}\n"));
    let log = scratch.write("log", format!("{{\"INSTRUCTION\": \"{}\"}}\n", json(bad)));
    let text = scratch.write("text.mfg", format!("graph {bad} {{\n"));
    let device = scratch.write("device.toml", format!("\"{}\" = 1\n", json(bad)));
    for args in [
        &["plan", good.as_str(), "--budget", "1KiB"][..],
        &["plan", good.as_str(), "--verbose"],
        &["explain", good.as_str()],
        &["compare", good.as_str()],
        &["plan", unknown.as_str()],
        &["plan", text.as_str()],
        &["place", list.as_str()],
        &["replay", log.as_str()],
        &["plan", good.as_str(), "--device", device.as_str()],
        &["plan", good.as_str(), "--order", bad],
        &["plan", bad],
    ] {
        // As a terminal would get it.
        let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
        let output = command.args(args).env("CLICOLOR_FORCE", "1").current_dir(root()).output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        let mut shown = String::from_utf8(all).unwrap();
        for ours in
            ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[36m", "\u{1b}[39m", "\u{1b}[22m"]
        {
            shown = shown.replace(ours, "");
        }
        let bare = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!shown.contains(bare), "{args:?}: {shown:?}");
        assert!(!shown.is_empty(), "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_pipes_are_written_to() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
    let scratch = Scratch::new("outputs");
    let graph = "crates/memfit-cli/src/commands/doctor.json";
    let write = |path: &str| memfit(&["plan", graph, "--budget", "1GiB", "-o", path]);
    let (real, link) = (scratch.write("real.json", ""), scratch.file("link.json"));
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real.json", &link).unwrap();
    assert_eq!(code(&write(&link)), 0);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(code(&memfit(&["check", &real, graph])), 0);
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    let pipe = scratch.file("pipe.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("cat").arg(&pipe).stdout(std::process::Stdio::piped()).spawn().unwrap();
    assert_eq!(code(&write(&pipe)), 0);
    let through = reader.wait_with_output().unwrap().stdout;
    assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(through == std::fs::read(&real).unwrap());
    assert_eq!(code(&write("/dev/null")), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn files_are_whole_or_as_they_were() {
    let graph = "crates/memfit-cli/src/commands/doctor.json";
    let scratch = Scratch::new("whole");
    let (old, bytes) = (scratch.write("plan.json", "as it was"), b"as it was");
    let binary = env!("CARGO_BIN_EXE_memfit");
    // No file may grow beyond a block of 512 bytes, then there is no room on the device, no such folder, a folder.
    let small = format!("trap '' XFSZ; ulimit -f 1; exec {binary} plan {graph} --budget 1GiB -o {old}");
    let small = Command::new("sh").args(["-c", &small]).current_dir(root()).output().unwrap();
    let write = |path: &str| memfit(&["plan", graph, "--budget", "1GiB", "-o", path]);
    let folder = scratch.file("");
    for failed in [small, write("/dev/full"), write(&scratch.file("none/plan.json")), write(&folder)] {
        assert_eq!(code(&failed), 5, "{}", stderr(&failed));
        assert!(stderr(&failed).starts_with("error: can't write `"), "{}", stderr(&failed));
    }
    assert_eq!(std::fs::read(&old).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_time_limit_is_told_from_a_budget() {
    let limited = memfit(&["plan", GRAPH, "--budget", "floor+3%", "--time-limit", "0.001", "--json"]);
    assert_eq!((code(&limited), &object(&limited)["status"]), (5, &"timeout".into()));
    assert!(object(&limited)["needed_bytes"].as_u64() > object(&limited)["budget_bytes"].as_u64());
    let compared =
        object(&memfit(&["compare", GRAPH, "--budget", "floor+3%", "--time-limit", "0.001", "--json"]));
    let rows = compared["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["status"] == "not-tried"));
}

#[test]
fn half_the_memory_costs_time_and_says_how_much() {
    let output = memfit(&["plan", GRAPH, "--budget", "50%", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let object = object(&output);
    let number = |key: &str| object[key].as_u64().unwrap();
    assert!(number("peak_bytes") <= number("budget_bytes"));
    assert!(number("budget_bytes") * 2 <= number("unconstrained_peak_bytes"));
    assert!(number("recompute_ns") > 0);
    // Beside the ops that run again, snapshots are taken and unpacked.
    assert!(number("time_ns") >= number("base_time_ns") + number("recompute_ns"));
    assert_eq!(code(&memfit(&["plan", GRAPH, "--budget", "50%", "--no-recompute"])), 1);
}

#[test]
fn compare_and_sweep_show_what_fits() {
    let small = "crates/memfit-cli/src/commands/doctor.json";
    let listed = object(&memfit(&["strategies", "--json"]));
    let listed =
        listed["strategies"].as_array().unwrap().iter().filter(|one| !family(&listed, one).online).count();
    let compared = object(&memfit(&["compare", small, "--budget", "100%", "--json"]));
    assert_eq!(compared["rows"].as_array().unwrap().len(), listed);
    let scratch = Scratch::new("sweep");
    let svg = scratch.file("curve.svg");
    let swept = object(&memfit(&["sweep", GRAPH, "--points", "2", "--svg", &svg, "--json"]));
    let rows = swept["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!((&rows[0]["status"], &rows[1]["status"]), (&"fits".into(), &"fits".into()));
    assert!(rows[0]["overhead"].as_f64().unwrap() <= rows[1]["overhead"].as_f64().unwrap());
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
}

#[test]
fn in_place_and_co_share_can_be_switched_off() {
    let peak = |args: &[&str]| {
        let all = [&["plan", GRAPH, "--budget", "1TiB", "--json"], args].concat();
        object(&memfit(&all))["peak_bytes"].as_u64().unwrap()
    };
    let (both, no_share, neither) =
        (peak(&[]), peak(&["--no-co-share"]), peak(&["--no-co-share", "--no-in-place"]));
    assert!(both < no_share && no_share < neither, "{both} {no_share} {neither}");
    assert!(peak(&["--no-in-place"]) >= both);
}

#[test]
fn place_reads_and_writes_lists_of_buffers() {
    let scratch = Scratch::new("place");
    let list =
        scratch.write("list.csv", "id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,4\nd,9,21,4\ne,0,21,4\n");
    let placed = memfit(&["place", &list, "--capacity", "12", "-o", "-"]);
    assert_eq!(code(&placed), 0, "{}", stderr(&placed));
    let rows: Vec<Vec<String>> =
        stdout(&placed).lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
    assert_eq!(rows[0], ["id", "lower", "upper", "size", "offset"]);
    let number = |cell: &String| cell.parse::<u64>().unwrap();
    for (i, a) in rows[1..].iter().enumerate() {
        assert!(number(&a[4]) + number(&a[3]) <= 12);
        for b in &rows[i + 2..] {
            let together = number(&a[1]) < number(&b[2]) && number(&b[1]) < number(&a[2]);
            let apart = number(&a[4]) + number(&a[3]) <= number(&b[4])
                || number(&b[4]) + number(&b[3]) <= number(&a[4]);
            assert!(!together || apart, "{a:?} {b:?}");
        }
    }
    let tight = memfit(&["place", &list, "--capacity", "11", "--json"]);
    assert_eq!(code(&tight), 1);
    let tight = object(&tight);
    assert_eq!((&tight["needed_bytes"], &tight["proved"]), (&12.into(), &true.into()));
}

#[test]
fn a_plan_leaves_as_c_json_and_csv() {
    let scratch = Scratch::new("export");
    let path = planned(&scratch, GRAPH);
    let peak = object(&memfit(&["check", &path, GRAPH, "--json"]))["peak_bytes"].as_u64().unwrap();
    let header = scratch.file("plan.h");
    let output = memfit(&["export", &path, GRAPH, "--to", "c-header", "--prefix", "net", "-o", &header]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let main = scratch.write(
        "main.c",
        "#include <stdio.h>\n#include \"plan.h\"\nint main(void) {\n    uint64_t end = 0;\n    \
         for (uint32_t i = 0; net_buffer_at(i); ++i) {\n        \
         const struct net_buffer *b = net_buffer_at(i);\n        \
         if (b->offset + b->size > end) end = b->offset + b->size;\n    }\n    \
         printf(\"%llu %llu %llu\", (unsigned long long)net_total_size(),\n        \
         (unsigned long long)end, (unsigned long long)net_bank_alignment(0));\n    return 0;\n}\n",
    );
    for source in [&main, &header] {
        let program = scratch.file("main");
        let args = ["-Wall", "-Wextra", "-Werror", "-std=c99", "-x", "c", source, "-o", &program];
        let compile = if source == &main {
            &args[..]
        } else {
            &["-Wall", "-Werror", "-std=c99", "-fsyntax-only", source]
        };
        let output = Command::new("cc").args(compile).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let printed = Command::new(scratch.file("main")).output().unwrap();
    let rounded = peak.next_multiple_of(512);
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), format!("{rounded} {peak} 512"));

    let listed = object(&memfit(&["export", &path, GRAPH, "--to", "json"]));
    assert_eq!(listed["total_bytes"], rounded);
    assert!(listed["buffers"].as_array().unwrap().iter().any(|b| b["name"] == "fc.weight"));
    let rows = stdout(&memfit(&["export", &path, GRAPH, "--to", "csv"]));
    assert_eq!(rows.lines().count(), listed["buffers"].as_array().unwrap().len() + 1);
    let unchecked = memfit(&["export", &path, "--to", "csv"]);
    assert_eq!(code(&unchecked), 0);
    assert!(stderr(&unchecked).contains("not verified"));
}

/// What is listed of the family that `strategy` is of.
struct Family {
    online: bool,
    schedules: bool,
}

fn family(listed: &Value, strategy: &Value) -> Family {
    let mut families = listed["families"].as_array().unwrap().iter();
    let family = families.find(|family| family["name"] == strategy["family"]).unwrap();
    let schedules = !family["means"].as_array().unwrap().is_empty();
    Family { online: family["online"].as_bool().unwrap(), schedules }
}

#[test]
fn every_strategy_of_the_tables_can_be_named() {
    let listed = object(&memfit(&["strategies", "--json"]));
    let small = "crates/memfit-cli/src/commands/doctor.json";
    let planned = |strategy: &&Value| !family(&listed, strategy).online;
    for strategy in listed["strategies"].as_array().unwrap().iter().filter(planned) {
        let name = format!("{}:{}", strategy["family"].as_str().unwrap(), strategy["name"].as_str().unwrap());
        let output = memfit(&["plan", small, "--budget", "1GiB", "--strategy", &name, "--json"]);
        assert_eq!(code(&output), 0, "{name}: {}", stderr(&output));
        // Schedulers are asked only where keeping everything does not fit.
        let used = object(&output)["strategy"].as_str().unwrap().contains(&name);
        assert_eq!(used, !family(&listed, strategy).schedules, "{name}");
        assert!(strategy["source"].as_str().is_some_and(|source| !source.is_empty()), "{name}");
    }
    assert!(listed["devices"].as_array().unwrap().len() >= 11);
    let text = stdout(&memfit(&["strategies"]));
    for family in listed["families"].as_array().unwrap() {
        let (name, summary) = (family["name"].as_str().unwrap(), family["summary"].as_str().unwrap());
        assert!(text.lines().any(|line| line == format!("{name}: {summary}")), "{name}\n{text}");
        assert!(
            text.contains(&format!("{name}:{} (default)", family["default"].as_str().unwrap())),
            "{name}"
        );
    }
}

#[test]
fn every_policy_and_allocator_replays_a_graph() {
    let listed = object(&memfit(&["strategies", "--json"]));
    let small = "crates/memfit-cli/src/commands/doctor.json";
    for strategy in listed["strategies"].as_array().unwrap() {
        let option = match strategy["family"].as_str().unwrap() {
            "evict" => "--evictor",
            "allocate" => "--allocator",
            _ => continue,
        };
        let name = strategy["name"].as_str().unwrap();
        let output = memfit(&["replay", small, "--budget", "1GiB", option, name, "--json"]);
        assert_eq!(code(&output), 0, "{option} {name}: {}", stderr(&output));
        assert_eq!(object(&output)["recompute_ns"], 0);
    }
    let tight = memfit(&["replay", small, "--budget", "10KiB", "--json"]);
    assert_eq!((code(&tight), &object(&tight)["status"]), (1, &"infeasible".into()));
    assert_eq!(code(&memfit(&["replay", small, "--evictor", "magic"])), 2);
}

#[test]
fn a_plan_is_saved_judged_and_followed_in_the_next_run() {
    let scratch = Scratch::new("replay");
    let (profile, plan) = (scratch.file("profile.json.zst"), scratch.file("plan.json"));
    let run = |more: &[&str]| {
        let args = [&["replay", GRAPH, "--budget", "floor+50%", "--json"], more].concat();
        memfit(&args)
    };
    let save = ["--save-profile", &profile, "--save-plan", &plan];
    let planned = run(&[&["--mode", "planned"], &save[..]].concat());
    assert_eq!(code(&planned), 0, "{}", stderr(&planned));
    assert!(object(&planned)["recompute_ns"].as_u64() > Some(0));
    // The judge and the planner read both like any other plan and graph.
    assert_eq!(code(&memfit(&["check", &plan, &profile])), 0);
    assert_eq!(code(&memfit(&["explain", &profile])), 0);
    let load = ["--load-profile", &profile, "--load-plan", &plan];
    let loaded = object(&run(&load));
    assert_eq!((&loaded["strategy"], &loaded["guided"]), (&"evict:loaded".into(), &true.into()));
    for key in ["recompute_ns", "peak_bytes", "arena_bytes", "time_ns"] {
        assert_eq!(loaded[key], object(&planned)[key], "{key}");
    }
    // Another step leaves the plan at its first op and goes on by itself.
    let other =
        memfit(&[&["replay", "corpus/graphs/vgg16-train-b256.json.zst", "--json"], &load[..]].concat());
    assert_eq!((code(&other), &object(&other)["guided"]), (0, &false.into()), "{}", stderr(&other));
    // Too small a budget, another graph, damaged files, a wrong plan, calls that make no sense.
    let small = memfit(&[&["replay", GRAPH, "--budget", "1GiB"], &load[..]].concat());
    assert_eq!(code(&small), 1, "{}", stderr(&small));
    assert_eq!(code(&run(&["--load-profile", GRAPH, "--load-plan", &plan])), 4);
    let text = std::fs::read_to_string(&plan).unwrap();
    let cut = scratch.write("cut.json", &text[..text.len() / 2]);
    assert_eq!(code(&run(&["--load-profile", &profile, "--load-plan", &cut])), 3);
    assert_eq!(code(&run(&["--load-profile", &cut, "--load-plan", &plan])), 3);
    let wrong = scratch.write("wrong.json", text.replacen("\"budget_bytes\": 1", "\"budget_bytes\": ", 1));
    assert_eq!(code(&run(&["--load-profile", &profile, "--load-plan", &wrong])), 6);
    assert_eq!(code(&run(&save)), 2);
    assert_eq!(code(&run(&["--load-plan", &plan])), 2);
    assert_eq!(code(&run(&[&["--mode", "planned", "--allocator", "ideal"], &save[..]].concat())), 2);
}

#[test]
fn explain_adds_up() {
    let found = object(&memfit(&["explain", GRAPH, "--json"]));
    let sum = |key: &str| -> u64 {
        found[key].as_array().unwrap().iter().map(|share| share["bytes"].as_u64().unwrap()).sum()
    };
    let peak = found["live_peak_bytes"].as_u64().unwrap();
    assert_eq!(sum("peak_by_role"), peak);
    assert_eq!(sum("peak_by_module"), peak);
    assert_eq!(sum("peak_by_kind"), peak);
    assert_eq!(sum("static"), found["static_bytes"].as_u64().unwrap());
    let live: Vec<u64> =
        found["live_bytes"].as_array().unwrap().iter().map(|b| b.as_u64().unwrap()).collect();
    assert_eq!(live.iter().max(), Some(&peak));
    assert_eq!(live.len() as u64, found["ops"].as_u64().unwrap());
    assert!(found["remedies"].as_array().unwrap().len() >= 5);
}

#[test]
fn doctor_and_completions_work() {
    assert_eq!(object(&memfit(&["doctor", "--json"]))["status"], "ok");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(stdout(&memfit(&["completions", shell])).contains("memfit"), "{shell}");
    }
}

const TWINS: &str = r#"graph "twins\u{1b}"
  v0 = input 4096 "x"
  v1 = activation 4096 "a"
  op0 = forward f(v0) -> v1 "f" attributes="k=1"
  v2 = activation 4096 "b"
  op1 = forward f(v0) -> v2 "g\u{1b}" attributes="k=1"
  v3 = activation 8192 "unread"
  op2 = forward h(v0) -> v3 "dead"
  v4 = output 4096 "y"
  op3 = forward add(v1, v2) -> v4 "add" attributes="k=2" may=v1>v4 may=v2>v4
  v5 = activation 4096 "m"
  op4 = seeded(v0) -> v5 "m" seeded
  result v4
"#;

#[test]
fn simplified_graphs_are_verified_and_written() {
    let scratch = Scratch::new("simplify");
    let graph = scratch.write("twins.mfg", TWINS);
    let (to, packed) = (scratch.file("out.json"), scratch.file("out.json.zst"));
    let done = memfit(&["simplify", &graph, "-o", &to, "--json"]);
    assert_eq!(code(&done), 0, "{}", stderr(&done));
    let told = object(&done);
    assert_eq!((&told["status"], &told["verified"]), (&json!("done"), &json!(true)));
    assert_eq!((&told["before"]["ops"], &told["after"]["ops"]), (&json!(5), &json!(3)));
    let whys: Vec<&Value> = told["removed"].as_array().unwrap().iter().map(|row| &row["why"]).collect();
    assert_eq!(whys, [&json!("common"), &json!("dead")]);
    assert_eq!(told["replaced"], json!([{"value": 2, "name": "b", "by": 1, "by_name": "a"}]));
    assert!(told["after"]["peak_bytes"].as_u64() < told["before"]["peak_bytes"].as_u64());
    // What was written is that graph, and nothing more can be done to it.
    assert_eq!(code(&memfit(&["simplify", &graph, "-o", &packed])), 0);
    for written in [&to, &packed] {
        let again = object(&memfit(&["simplify", written, "--json"]));
        assert_eq!(again["graph_digest"], told["simplified_digest"]);
        assert_eq!((&again["removed"], &again["after"]["ops"]), (&json!([]), &json!(3)));
    }
    let text = memfit(&["simplify", &graph]);
    assert!(stdout(&text).contains("verified") && !stdout(&text).contains('\u{1b}'), "{}", stdout(&text));
    let plan = scratch.file("plan.json");
    let planned = object(&memfit(&["plan", &graph, "--simplify", "--json"]));
    assert_eq!(planned["graph_digest"], told["simplified_digest"]);
    assert_eq!(planned["peak_bytes"], told["after"]["peak_bytes"]);
    assert_eq!(code(&memfit(&["plan", &graph, "--simplify", "-o", &plan])), 0);
    assert_eq!(code(&memfit(&["check", &plan, &to])), 0);
    assert_eq!(code(&memfit(&["check", &plan, &graph])), 4);
    let to_stdout = memfit(&["simplify", &graph, "-o", "-"]);
    assert_eq!(object(&to_stdout)["schema"], "memfit-graph/1");
    assert_eq!(code(&memfit(&["simplify", "corpus/malformed/no-such-file"])), 3);
}

#[test]
fn the_help_does_not_change_unnoticed() {
    if !cfg!(feature = "run") {
        return; // It has a line less.
    }
    let mut text = stdout(&memfit(&["--help"]));
    for command in [
        "plan",
        "check",
        "explain",
        "report",
        "place",
        "compare",
        "sweep",
        "shard",
        "simplify",
        "replay",
        "run",
        "export",
        "strategies",
        "doctor",
        "completions",
    ] {
        text += &format!("\n# memfit {command} --help\n{}", stdout(&memfit(&[command, "--help"])));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn values_move_to_host_memory_where_that_is_allowed() {
    let object = |args: &[&str]| -> Value {
        let output = memfit(&[&["plan", GPT, "--json", "--budget", "floor+50%"], args].concat());
        assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let bytes = |object: &Value, key: &str| object[key].as_u64().unwrap();
    let recomputed = object(&[]);
    assert_eq!((bytes(&recomputed, "offload_bytes"), bytes(&recomputed, "host_peak_bytes")), (0, 0));
    let moved = object(&["--strategy", "offload:best"]);
    assert!(moved["strategy"].as_str().unwrap().contains("offload:best"));
    assert_eq!(bytes(&moved, "recompute_ns"), 0);
    assert!(bytes(&moved, "offload_bytes") >= bytes(&moved, "host_peak_bytes"));
    assert!(
        bytes(&moved, "host_peak_bytes") > 0 && bytes(&moved, "peak_bytes") <= bytes(&moved, "budget_bytes")
    );
    assert!(bytes(&moved, "stall_ns") <= bytes(&moved, "time_ns") - bytes(&moved, "base_time_ns"));
    // Beside recomputation the faster of both is taken; no more is moved than there is room for.
    let both = object(&["--host-budget", "256GiB"]);
    let fastest = bytes(&moved, "time_ns").min(bytes(&recomputed, "time_ns"));
    assert!(bytes(&both, "time_ns") < fastest);
    assert!(both["strategy"].as_str().unwrap().contains("hybrid:best"));
    assert!(bytes(&both, "recompute_ns") > 0 && bytes(&both, "offload_bytes") > 0);
    // Who runs every op once has no hybrid either.
    let once = object(&["--strategy", "hybrid:best", "--host-budget", "256GiB", "--no-recompute"]);
    assert_eq!((bytes(&once, "recompute_ns"), bytes(&once, "time_ns")), (0, bytes(&moved, "time_ns")));
    let little = object(&["--host-budget", "1MiB"]);
    assert!(bytes(&little, "host_peak_bytes") <= 1 << 20);
    let none = object(&["--strategy", "offload:best", "--strategy", "recompute:best", "--no-offload"]);
    assert_eq!(bytes(&none, "time_ns"), bytes(&recomputed, "time_ns"));
    for moving in ["offload:best", "hybrid:best", "hybrid:worst"] {
        assert_eq!(code(&memfit(&["plan", GPT, "--strategy", moving, "--lanes", "2"])), 2);
    }
}

/// Six layers and their gradients, whose maps are as dense as `density` says, if it says anything.
fn layers(density: Option<f64>) -> String {
    let layers = 6;
    let mut values = vec![json!({"name": "x", "bytes": 1 << 20, "role": "input"})];
    let mut ops = Vec::new();
    for at in 0..layers {
        let mut map = json!({"name": format!("map{at}"), "bytes": 1 << 20});
        if let Some(density) = density {
            map["density"] = json!(density);
        }
        values.push(map);
        ops.push(json!({"name": format!("layer{at}"), "kind": "relu", "reads": [at], "writes": [at + 1], "time_ns": 1_000_000}));
    }
    values.push(json!({"name": "loss", "bytes": 1 << 20, "role": "gradient"}));
    ops.push(json!({"name": "loss", "kind": "loss", "phase": "backward", "reads": [layers], "writes": [layers + 1], "time_ns": 1_000_000}));
    for at in 0..layers {
        let (gradient, map) = (layers + 1 + at, layers - at);
        values.push(json!({"name": format!("gradient{at}"), "bytes": 1 << 20, "role": "gradient"}));
        let (reads, writes) = ([gradient, map], [gradient + 1]);
        ops.push(json!({"name": format!("back{at}"), "kind": "back", "phase": "backward", "reads": reads, "writes": writes, "time_ns": 1_000_000}));
    }
    let results = [values.len() - 1];
    json!({"schema": "memfit-graph/1", "name": "layers", "values": values, "ops": ops, "results": results})
        .to_string()
}

#[test]
fn sparse_values_wait_without_their_zeros() {
    let scratch = Scratch::new("sparse");
    let sparse = scratch.write("sparse.json", layers(Some(0.25)));
    let dense = scratch.write("dense.json", layers(None));
    let plan = |graph: &str, args: &[&str]| {
        memfit(&[&["plan", graph, "--json", "--budget", "floor+60%"], args].concat())
    };
    // A codec takes no memory elsewhere, so nobody has to ask for it.
    for args in [&[][..], &["--strategy", "compress:best"]] {
        let told = object(&plan(&sparse, args));
        assert!(told["strategy"].as_str().unwrap().contains("compress:best"), "{told}");
        assert!(
            told["encoded_bytes"].as_u64().unwrap() > 0 && told["codec_ns"].as_u64().unwrap() > 0,
            "{told}"
        );
        assert_eq!((&told["recompute_ns"], &told["offload_bytes"]), (&json!(0), &json!(0)));
        assert_eq!(
            told["time_ns"].as_u64(),
            told["base_time_ns"].as_u64().zip(told["codec_ns"].as_u64()).map(|(a, b)| a + b)
        );
    }
    let once = object(&plan(&sparse, &["--strategy", "recompute:best"]));
    assert_eq!(once["encoded_bytes"], 0);
    let output = plan(&dense, &["--strategy", "compress:best"]);
    assert_eq!(code(&output), 1);
    assert!(stdout(&output).contains("says of no value that it is sparse"), "{}", stdout(&output));
    // What is written down is checked against the graph that says so, and against no other.
    let file = scratch.file("plan.json");
    assert_eq!(code(&plan(&sparse, &["-o", &file])), 0);
    assert_eq!(code(&memfit(&["check", &file, &sparse])), 0);
    assert_ne!(code(&memfit(&["check", &file, &dense])), 0);
}
