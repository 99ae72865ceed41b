//! `memfit run`: real training within a budget, by the process's own account.
#![cfg(feature = "run")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.args(words.split_whitespace());
    command
}

fn memfit(words: &str) -> Output {
    command(words).output().unwrap()
}

fn object(words: &str) -> Value {
    object_of(&mut command(words))
}

fn object_of(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_budget_is_kept_and_changes_nothing() {
    for mode in ["online", "planned"] {
        let words =
            format!("run gpt --batch 4 --steps 5 --budget floor+60% --gradients --mode {mode} --json");
        let run = object(&words);
        let bytes = |key: &str| run[key].as_u64().unwrap();
        assert_eq!(run["identical"], true, "{run:#}");
        assert!(bytes("peak_bytes") <= bytes("budget_bytes"), "{run:#}");
        assert!(bytes("recomputes") > 0, "{run:#}");
        if mode == "planned" {
            assert!(bytes("guided_steps") > 0 && bytes("diverged_steps") == 0, "{run:#}");
            assert!(bytes("predicted_time_ns") > 0 && bytes("planned_time_ns") > 0, "{run:#}");
        }
        // What lies beyond the tensors: the backend's own buffers, and the tables, batches and threads of the process.
        let process = 4 << 20;
        let most = bytes("budget_bytes") + bytes("temporaries_bytes") + process;
        assert!(bytes("measured_peak_bytes") <= most, "{run:#}");
        assert!(bytes("measured_peak_bytes") < bytes("base_measured_peak_bytes"), "{run:#}");
        assert_eq!(run["losses"].as_array().unwrap().len(), 5);
        let falls = run["losses"][4].as_f64() < run["losses"][0].as_f64();
        assert!(falls, "the data can be learnt: {run:#}");
    }
}

#[test]
fn a_page_shows_the_step_that_ran_and_the_object_alone_its_figures() {
    let folder = std::env::temp_dir().join(format!("memfit-run-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (page, alone) = (file("page.html"), file("alone.html"));
    let words = "run gpt --batch 2 --steps 2 --budget floor+60% --json --report";
    let run = object_of(command(words).arg(&page));
    assert_eq!((&run["identical"], &run["command"]), (&true.into(), &"run".into()));
    std::fs::write(file("run.json"), run.to_string()).unwrap();
    let shown = object_of(command("report --json").arg(file("run.json")).args(["-o", &alone]));
    assert_eq!((&shown["kind"], &shown["buffers"]), (&"training".into(), &0.into()));
    // The step has thousands of buffers; figures alone have none.
    let size = |path: &str| std::fs::metadata(path).unwrap().len();
    assert!(size(&page) > size(&alone) + 10_000, "{} {}", size(&page), size(&alone));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn scratch_may_count_within_the_budget() {
    let words = "run unet --batch 4 --steps 3 --budget floor+50% --json";
    let counted = format!("{words} --scratch");
    let bytes = |run: &Value, key: &str| run[key].as_u64().unwrap();
    let tensors = object(words);
    // A kernel has a buffer for each thread that takes part: with one thread nothing is put down to that.
    let alone = object_of(command(&counted).env("RAYON_NUM_THREADS", "1"));
    for (all, unforeseen) in [(&alone, 0), (&object(&counted), 4 << 20)] {
        for key in ["floor_bytes", "unconstrained_peak_bytes"] {
            assert!(bytes(&tensors, key) < bytes(all, key), "{key}: {tensors:#} {all:#}");
        }
        assert_eq!((&all["identical"], &all["scratch_counts"]), (&true.into(), &true.into()));
        assert!(bytes(all, "peak_bytes") <= bytes(all, "budget_bytes"), "{all:#}");
        // Tables, batches and threads, and nothing else.
        let process = bytes(all, "measured_peak_bytes").saturating_sub(bytes(all, "budget_bytes"));
        let unforeseen = bytes(all, "unforeseen_scratch_bytes").min(unforeseen);
        assert!(process <= (2 << 20) + unforeseen && bytes(all, "temporaries_bytes") > 0, "{all:#}");
    }
}

#[test]
fn a_budget_below_the_floor_says_what_would_do() {
    let output = memfit("run gpt --batch 2 --steps 2 --budget 1MiB");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("its floor is"), "{message}");
    let least: u64 = message.split("--budget ").nth(1).unwrap().split('`').next().unwrap().parse().unwrap();
    let run = object(&format!("run gpt --batch 2 --steps 2 --budget {} --json", least + least / 10));
    assert_eq!(run["identical"], true);
    let infeasible = memfit("run gpt --batch 2 --steps 2 --budget 1MiB --json");
    assert_eq!(infeasible.status.code(), Some(1));
    let object: Value = serde_json::from_slice(&infeasible.stdout).unwrap();
    assert_eq!(object["status"], "infeasible");
    assert!(object["floor_bytes"].as_u64() <= object["least_bytes"].as_u64());
}

#[test]
fn a_killed_run_leaves_no_file() {
    let dir = std::env::temp_dir().join(format!("memfit-killed-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let mut command = command("run gpt --batch 2 --steps 30 --budget floor+60% --verbose");
    for place in ["TMPDIR", "HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        command.env(place, &dir);
    }
    command.current_dir(&dir).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let under_way = lines.any(|line| line.unwrap().starts_with("online: step 1 of"));
    // On Unix this is signal 9: nothing of the process runs any more.
    child.kill().unwrap();
    let status = child.wait().unwrap();
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(under_way && !status.success(), "it was in the middle of its work");
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
}

/// A directory of the test's own, removed at its end.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("memfit-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_network_trains_whose_tensors_are_on_disk() {
    let directory = Directory::new("spill");
    let spill = directory.0.display();
    for more in ["", " --host-budget 256KiB --mode planned"] {
        let words = format!(
            "run gpt --batch 4 --steps 4 --budget floor+30% --no-recompute --disk-budget 64MiB --spill {spill} --json{more}"
        );
        let run = object(&words);
        let bytes = |key: &str| run[key].as_u64().unwrap();
        // Views of what was away are made again, which takes next to nothing.
        assert_eq!((&run["identical"], bytes("lost_copies")), (&true.into(), 0), "{run:#}");
        assert!(bytes("recompute_ns") < bytes("time_ns") / 10, "{run:#}");
        assert!(bytes("peak_bytes") <= bytes("budget_bytes"), "{run:#}");
        assert!((1..=64 << 20).contains(&bytes("disk_peak_bytes")), "{run:#}");
        assert!(bytes("host_peak_bytes") <= if more.is_empty() { 0 } else { 256 << 10 }, "{run:#}");
        assert!(directory.is_empty(), "the file has no name");
    }
}

/// Parameters and state leave between their uses, so a budget may lie below the floor.
#[test]
fn a_network_trains_whose_state_is_elsewhere() {
    let directory = Directory::new("parked");
    let spill = directory.0.display();
    let words = "run gpt --batch 2 --steps 6 --strategy offload:best --json --budget";
    let (floor, bound) = {
        let output = memfit(&format!("{words} 1MiB --host-budget 1GiB"));
        assert_eq!(output.status.code(), Some(1));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        (told["floor_bytes"].as_u64().unwrap(), told["lower_bound_bytes"].as_u64().unwrap())
    };
    assert!(bound < floor * 9 / 10, "{bound} {floor}");
    let budget = bound + (floor - bound) * 3 / 4;
    let disk = format!("--mode planned --disk-budget 1GiB --spill {spill}");
    for tier in ["--mode online --host-budget 1GiB", &disk] {
        let run = object(&format!("{words} {budget} {tier}"));
        assert_eq!(run["identical"], true, "{run:#}");
        assert!(run["peak_bytes"].as_u64().unwrap() <= budget, "{run:#}");
        assert!(directory.is_empty(), "the file has no name");
    }
}

/// What is on the disk alone can't come back from a file that somebody has cut: that is told, and no number is made up.
#[cfg(target_os = "linux")]
#[test]
fn a_spill_file_that_is_cut_ends_the_training() {
    let directory = Directory::new("cut");
    let spill = directory.0.display();
    let words =
        format!("run gpt --batch 2 --steps 200 --budget 5MiB --disk-budget 1GiB --spill {spill} --verbose");
    let mut child = command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let fds = format!("/proc/{}/fd", child.id());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("online: step 1 of")), "it trains");
    let cutter = std::thread::spawn({
        let directory = directory.0.clone();
        move || {
            // Until the process is gone.
            while let Ok(all) = std::fs::read_dir(&fds) {
                let paths = all.flatten().map(|entry| entry.path());
                let is_spilled = |path: &std::path::PathBuf| {
                    std::fs::read_link(path).is_ok_and(|to| to.starts_with(&directory))
                };
                for path in paths.filter(is_spilled) {
                    let file = std::fs::OpenOptions::new().write(true).open(path);
                    let _ = file.and_then(|file| file.set_len(0));
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    });
    let last: Vec<String> = lines.filter(|line| !line.starts_with("online: step")).collect();
    let status = child.wait().unwrap();
    cutter.join().unwrap();
    let message = last.join("\n");
    assert_eq!(status.code(), Some(5), "{message}");
    assert!(message.contains("was stored in the spill file alone, and can't be brought back"), "{message}");
}

#[test]
fn a_disk_that_fails_is_named() {
    let words = "run gpt --batch 2 --steps 2 --budget floor+60% --disk-budget 64MiB --spill there/is/none";
    let output = memfit(words);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{message}");
    assert!(message.contains("copies can't be written to `there/is/none`"), "{message}");
    assert_eq!(memfit("run gpt --disk-budget 1MiB").status.code(), Some(2));
    assert_eq!(memfit("run gpt --spill .").status.code(), Some(2));
    // What is written beyond a few blocks fails as on a full disk: the copies are lost, and computed again.
    let directory = Directory::new("full");
    let (binary, spill) = (env!("CARGO_BIN_EXE_memfit"), directory.0.display());
    let run = format!(
        "trap '' XFSZ; ulimit -f 9000; exec '{binary}' run unet --batch 16 --steps 2 --budget floor+40% --no-recompute \
         --disk-budget 1GiB --spill '{spill}' --json"
    );
    let output = Command::new("bash").args(["-c", &run]).output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(object["identical"], true, "{object:#}");
    assert!(object["lost_copies"].as_u64().unwrap() > 0, "{object:#}");
    let why = object["lost_why"].as_str().unwrap();
    assert!(why.starts_with("writing `") && why.contains("File too large"), "{why}");
}

/// Whether a process has a file of `directory` open that has no name any more.
fn has_spilled(process: u32, directory: &std::path::Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets
        .into_iter()
        .any(|target| target.starts_with(directory) && target.to_string_lossy().ends_with("(deleted)"))
}

/// At moments drawn while steps move tensors to the disk: `MEMFIT_CASES=1000` for as many of them.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_run_leaves_nothing_on_its_disk() {
    let directory = Directory::new("killed-spill");
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    let words =
        "run gpt --batch 1 --steps 8 --budget floor+40% --no-recompute --verbose --disk-budget 64MiB --spill";
    command.args(words.split_whitespace()).arg(&directory.0).stdout(Stdio::null()).stderr(Stdio::piped());
    let moments = memfit_testkit::cases(12);
    let mut rng = memfit_testkit::Rng::new(1);
    let mut caught = 0;
    for moment in 0..moments {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("online: step 1 of")), "steps on a disk begin");
        std::thread::sleep(std::time::Duration::from_micros(rng.below(150_000) as u64));
        let spilled = has_spilled(child.id(), &directory.0);
        child.kill().unwrap();
        let killed = !child.wait().unwrap().success();
        caught += u64::from(spilled && killed);
        assert!(directory.is_empty(), "after moment {moment}");
    }
    println!("{caught} of {moments} runs were killed with a file on the disk");
    assert!(caught * 2 > moments, "{caught} of {moments} were in the middle of it");
}
