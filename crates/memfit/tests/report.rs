//! Reports say what the clock, the layout and the snapshot say, and no name from a file gets out of its place.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use base64::Engine as _;
use memfit::formats::report::{Figure, Kind, MAX_PAGE, Report, SliceKind, html, memory_viz};
use memfit::formats::{plan_json, snapshot};
use memfit::ir::{Content, GraphBuilder, OpSpec, Program, Role, Step, Tier, ValueSpec};
use memfit::report::{Whose, front, is_run, of_file, of_planned, of_program, of_run, of_snapshot, what_if};
use memfit::{Budget, Bytes, Device, Goal, Graph, Nanos, Options, Planned, Tools, explain, input, plan};
use memfit_sim::{Timeline, simulate};
use memfit_testkit::{case, cases};
use serde_json::Value;

fn corpus(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../corpus/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn graph(name: &str) -> Graph {
    input::graph(&corpus(&format!("graphs/{name}.json.zst")), &input::Options::default()).unwrap()
}

fn device() -> Device {
    input::device("A100-80").unwrap()
}

fn made(graph: &Graph, budget: &str, strategy: Option<&str>) -> (Goal, Planned) {
    let goal = Goal::new(device(), budget.parse().unwrap());
    let goal = strategy.map_or(goal.clone(), |name| goal.with_strategy(name));
    let planned = plan(graph, &goal, &Tools::none()).unwrap_or_else(|failure| panic!("{failure}"));
    (goal, planned)
}

/// What the page holds.
fn data(page: &str) -> Value {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = start + page[start..].find('<').unwrap();
    let packed = base64::engine::general_purpose::STANDARD.decode(&page[start..end]).unwrap();
    serde_json::from_slice(&miniz_oxide::inflate::decompress_to_vec_zlib(&packed).unwrap()).unwrap()
}

fn same_memory(report: &Report, program: &Program, timeline: &Timeline, what: &str) {
    let live = report.live();
    assert_eq!(live.len(), program.steps.len(), "{what}");
    for (at, span) in timeline.steps.iter().enumerate() {
        // What is freed by the very first step was there before it.
        let first = at == 0 && matches!(program.steps[0], Step::Free(_));
        assert!(
            live[at] == span.live || first && live[at] > span.live,
            "{what}: step {at}: {} {}",
            live[at],
            span.live
        );
    }
}

/// Lanes do one thing at a time, and as long as the clock says.
fn same_time(report: &Report, timeline: &Timeline, what: &str) {
    assert_eq!(report.times.len(), report.instants + 1, "{what}");
    assert!(report.times.is_sorted(), "{what}");
    assert_eq!(report.times.last(), Some(&timeline.time), "{what}");
    let mut slices: Vec<_> = report.slices.iter().collect();
    slices.sort_by_key(|slice| (slice.lane, slice.start));
    for pair in slices.windows(2).filter(|pair| pair[0].lane == pair[1].lane) {
        assert!(pair[0].start + pair[0].time <= pair[1].start, "{what}: {pair:?}");
    }
    let sum = |wanted: &dyn Fn(SliceKind) -> bool, lane: Option<usize>| -> Nanos {
        let slices = report.slices.iter().filter(|slice| lane.is_none_or(|lane| slice.lane == lane));
        slices.filter(|slice| wanted(slice.kind)).map(|slice| slice.time).sum()
    };
    for (lane, &busy) in timeline.busy.lanes.iter().enumerate() {
        let works = |kind| !matches!(kind, SliceKind::Stall | SliceKind::Out | SliceKind::In);
        assert_eq!(sum(&works, Some(lane)), busy, "{what}: lane {lane}");
    }
    assert_eq!(sum(&|kind| kind == SliceKind::Recompute, None), timeline.recompute_time, "{what}");
    assert_eq!(sum(&|kind| kind == SliceKind::Out, None), timeline.busy.out, "{what}");
    assert_eq!(sum(&|kind| kind == SliceKind::In, None), timeline.busy.into, "{what}");
}

/// No two boxes overlap.
fn apart(report: &Report, what: &str) {
    let boxes: Vec<_> =
        report.stays.iter().filter(|stay| stay.from < stay.until && stay.bytes > Bytes::ZERO).collect();
    for (at, one) in boxes.iter().enumerate() {
        for other in &boxes[at + 1..] {
            let (a, b) = (one.place.unwrap(), other.place.unwrap());
            let in_time = one.from < other.until && other.from < one.until;
            let in_place =
                a.bank == b.bank && a.offset < b.offset + other.bytes && b.offset < a.offset + one.bytes;
            assert!(!in_time || !in_place, "{what}: {one:?} {other:?}");
        }
    }
}

#[test]
fn a_report_has_the_memory_the_places_and_the_times_of_every_program() {
    let (mut copies, mut lanes) = (0, 0);
    for seed in 0..cases(400) {
        let case = case(seed);
        let (program, layout) = (&case.plan.program, &case.plan.layout);
        let align = case.limits.banks[0].align;
        let device = Device { align, ..device() };
        let (report, timeline) = of_program(Some(&case.graph), program, Some(layout), &device, align);
        let timeline = timeline.unwrap();
        assert_eq!(timeline, simulate(&case.graph, program, Some(layout), &device));
        let what = format!("seed {seed}");
        if program.lanes.iter().all(|lane| *lane == 0) {
            same_memory(&report, program, &timeline, &what);
        }
        same_time(&report, &timeline, &what);
        apart(&report, &what);
        assert_eq!(report.stays.len(), program.buffers.len());
        for ((stay, buffer), place) in report.stays.iter().zip(&program.buffers).zip(&layout.places) {
            assert_eq!((stay.place, stay.bytes), (Some(*place), buffer.size), "{what}");
            let role = report.names.get(stay.role);
            match buffer.content {
                Content::Value(value) => assert_eq!(role, case.graph.value(value).role.name(), "{what}"),
                Content::Encoded(..) => assert_eq!(role, "encoded", "{what}"),
                Content::Workspace => assert_eq!(role, "workspace", "{what}"),
            }
        }
        copies += usize::from(!program.copies.is_empty());
        lanes += usize::from(program.lanes.iter().any(|lane| *lane > 0));
    }
    assert!(copies > 20 && lanes > 20, "{copies} with copies and {lanes} with lanes are too few to tell");
}

#[test]
fn plans_of_real_steps_say_what_their_summaries_say() {
    for (name, budget, strategy) in [
        ("resnet50-train-b32", "floor+50%", None),
        ("gpt2-train-b8-s1024", "floor+30%", Some("offload:best")),
        ("unet-train-b16", "floor+40%", Some("hybrid:best")),
    ] {
        let graph = graph(name);
        let (goal, planned) = made(&graph, budget, strategy);
        let (report, summary) = (of_planned(&graph, &goal, &planned), &planned.summary);
        let program = &planned.verified.plan().program;
        same_memory(&report, program, &planned.timeline, name);
        same_time(&report, &planned.timeline, name);
        assert_eq!(report.live().into_iter().max(), Some(summary.live_peak), "{name}");
        assert_eq!(report.levels[0], ("budget".to_owned(), summary.budget), "{name}");
        assert_eq!(report.levels[1], ("floor".to_owned(), summary.floor), "{name}");
        let page = html(&report);
        let data = data(&page);
        assert!(page.len() <= MAX_PAGE, "{name}: {}", page.len());
        assert_eq!(data["stays"]["name"].as_array().unwrap().len(), program.buffers.len(), "{name}");
        // The same from its file as from the planner.
        let file = plan_json::read(&plan_json::write(&planned.file(&graph, &goal))).unwrap();
        assert_eq!(of_file(&file, Whose { graph: Some(&graph), device: &goal.device }).stays, report.stays);
        let bare = of_file(&file, Whose { graph: None, device: &goal.device });
        assert_eq!(bare.live(), report.live(), "{name}");
        assert!(bare.times.is_empty() && bare.slices.is_empty() && !bare.notes.is_empty());
        assert!(html(&bare).len() < page.len());
    }
}

#[test]
fn large_inputs_fit_a_page() {
    let pages = ["resnet1001-train-b6", "lstm-train-b20-s64", "decoder-7b-train-b1-s2048"].map(|name| {
        let (graph, device) = (graph(name), device());
        let program = Program::eager(&graph);
        (name.to_owned(), of_program(Some(&graph), &program, None, &device, device.align).0)
    });
    let logs = ["lstm", "transformer", "unet", "resnet32"].into_iter().filter_map(|name| {
        let path = format!("{}/../../../shared/data/dtr-logs/{name}.log", env!("CARGO_MANIFEST_DIR"));
        let Ok(bytes) = std::fs::read(&path) else {
            eprintln!("skipped: `../shared/data/dtr-logs/{name}.log` is absent");
            return None;
        };
        let graph = input::graph(&bytes, &input::Options::default()).unwrap();
        let device = device();
        let program = Program::eager(&graph);
        Some((name.to_owned(), of_program(Some(&graph), &program, None, &device, device.align).0))
    });
    for (name, report) in pages.into_iter().chain(logs) {
        let page = html(&report);
        assert!(page.len() <= MAX_PAGE, "{name}: {}", page.len());
        assert_eq!(data(&page)["left"], 0, "{name}: each buffer is drawn");
    }
}

#[test]
fn snapshots_are_drawn_where_their_blocks_were() {
    for name in ["decoder-train", "decoder-oom", "decoder-expandable", "decoder-no-history"] {
        let file = corpus(&format!("snapshots/{name}.pickle.zst"));
        let report = of_snapshot(&file, None, &Tools::none()).unwrap();
        let found = memfit::explain_snapshot(&file, None, 3, &Tools::none()).unwrap();
        assert_eq!((report.kind, report.stays.len()), (Kind::Snapshot, found.allocations), "{name}");
        let live = report.live();
        assert_eq!(live.iter().max(), Some(&found.live_peak), "{name}");
        assert_eq!(live.iter().position(|live| *live == found.live_peak), Some(found.peak_event), "{name}");
        for (role, part) in report.live_by_role() {
            let share = found.by_role.iter().find(|share| share.name == report.names.get(role));
            let failed = report.names.get(role) == "out of memory";
            assert!(
                failed || share.map_or(Bytes::ZERO, |share| share.bytes) >= part[found.peak_event],
                "{name}"
            );
        }
        // What is live at the same time does not overlap.
        let peak = found.peak_event;
        let mut here: Vec<_> = report
            .stays
            .iter()
            .filter(|stay| stay.from <= peak && peak < stay.until)
            .map(|stay| (stay.place.unwrap().offset, stay.size))
            .collect();
        here.sort_unstable();
        for pair in here.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{name}: {pair:?}");
        }
        assert!(html(&report).len() <= MAX_PAGE, "{name}");
        assert_eq!(report.what_if.rows.len(), found.remedies.len(), "{name}");
    }
}

#[test]
fn a_plan_comes_back_as_a_snapshot_of_the_allocator() {
    let graph = graph("unet-train-b16");
    let (goal, planned) = made(&graph, "floor+50%", None);
    let report = of_planned(&graph, &goal, &planned);
    let pickle = memory_viz(&report);
    let read = snapshot::read(&pickle).unwrap();
    let (program, layout) = (&planned.verified.plan().program, &planned.verified.plan().layout);
    assert_eq!(read.segments.len(), 1);
    assert_eq!(read.segments[0].size, layout.height(program, 0).round_up(goal.device.align));
    // The device aligns to what the allocator rounds to, so that sums are the same to the byte.
    let found = memfit::explain_snapshot(&pickle, None, 5, &Tools::none()).unwrap();
    assert_eq!(goal.device.align, Bytes(512));
    assert_eq!(found.live_peak, planned.summary.live_peak);
    let spans = program.lifespans();
    assert_eq!(found.allocations, spans.iter().filter(|span| span.from < span.until).count());
    assert!(found.top.iter().all(|holder| !holder.frame.is_empty()), "{:?}", found.top);
}

/// Names that break out of pages, terminals and lines.
const HOSTILE: [&str; 7] = [
    "</script><img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "\u{1b}[31mred\u{1b}[0m\u{7}",
    "\u{202e}gpj.exe\u{2066}",
    "{{data}}",
    "'\"`${alert(1)}\\",
    "line\nbreak\r\0\u{2028}",
];

fn hostile() -> Graph {
    let mut builder = GraphBuilder::new(HOSTILE[0]);
    let mut before = None;
    for name in HOSTILE {
        let role = if before.is_some() { Role::Activation } else { Role::Input };
        let value = ValueSpec { name: name.to_owned(), size: Bytes(4096), role, ..ValueSpec::default() };
        let value = builder.value(value).unwrap();
        if let Some(read) = before {
            let name = name.to_owned();
            let op = OpSpec {
                kind: name.clone(),
                module: name.clone(),
                name,
                reads: vec![read],
                writes: vec![value],
                ..OpSpec::default()
            };
            builder.op(op).unwrap();
        }
        before = Some(value);
    }
    builder.result(before.unwrap()).unwrap();
    builder.finish().unwrap()
}

#[test]
fn hostile_names_stay_data() {
    let graph = hostile();
    let (goal, planned) = made(&graph, "100%", None);
    let mut report = of_planned(&graph, &goal, &planned);
    report.facts.push((HOSTILE[1].to_owned(), HOSTILE[0].to_owned()));
    report.notes.push(HOSTILE[0].to_owned());
    let page = html(&report);
    for name in HOSTILE {
        assert!(name == "{{data}}" || !page.contains(name), "{name:?} stands in the page itself");
    }
    assert!(!page.contains("{{"), "a mark is left");
    let shown = data(&page).to_string();
    assert!(shown.contains("<img src=x onerror=alert(1)>"), "names are there as data");
    for obeyed in ["\\u001b", "\u{202e}", "\u{2066}", "\\u0000", "\\u0007"] {
        assert!(!shown.contains(obeyed), "{obeyed:?} would be obeyed");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn each_means_is_priced_as_the_planner_prices_it() {
    let graph = graph("vgg16-train-b256");
    let goal = Goal::new(device(), Budget::AboveFloor(0.5));
    let tools = Tools::none();
    let (_, planned) = made(&graph, "floor+50%", None);
    let goal = Goal { budget: Budget::Bytes(planned.summary.budget), ..goal };
    let found = explain(&graph, &goal, 1, 0, &tools).unwrap();
    let table = what_if(&graph, &goal, Some(&found), &tools).unwrap();
    let cell = |name: &str, column: usize| -> Option<f64> {
        let row = table.rows.iter().find(|row| matches!(&row[0], Figure::Text(text) if text == name))?;
        match row[column] {
            Figure::Number(number, _) => Some(number),
            Figure::Text(_) => None,
        }
    };
    assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
    let options = Options {
        means: memfit::Means { recompute: true, offload: false, compress: false },
        ..goal.options.clone()
    };
    let alone = plan(&graph, &Goal { options, ..goal.clone() }, &tools).unwrap().summary;
    assert_eq!(cell("recompute", 1), Some(alone.peak.0 as f64));
    assert_eq!(cell("recompute", 3), Some(alone.time.0 as f64));
    let moved = plan(&graph, &goal.clone().with_strategy("hybrid:best"), &tools).unwrap().summary;
    assert_eq!(cell("hybrid", 3), Some(moved.time.0 as f64));
    assert_eq!(cell("none", 1), Some(found.remedies[0].peak.0 as f64));
    // A budget that needs none of them says nothing of them.
    let all =
        what_if(&graph, &Goal { budget: Budget::Bytes(Bytes::MAX), ..goal.clone() }, Some(&found), &tools)
            .unwrap();
    let halved = |row: &Vec<Figure>| matches!(&row[5], Figure::Text(text) if text.contains("floor+50%"));
    assert_eq!(all.rows.iter().filter(|row| halved(row)).count(), 4);
    let curve = front(&graph, &goal, &tools).unwrap();
    assert!(curve.points.len() > 4 && curve.points.is_sorted_by(|a, b| a.0 <= b.0), "{curve:?}");
}

#[test]
fn what_a_training_printed_becomes_a_report() {
    let printed = br#"{"schema": "memfit-result/1", "command": "run", "status": "fits", "model": "</script>", "batch": 8, "steps": 3,
        "seed": 0, "strategy": "planned", "identical": true, "budget_bytes": 1048576, "floor_bytes": 524288, "peak_bytes": 1000000,
        "measured_peak_bytes": 2000000, "base_measured_peak_bytes": 4000000, "time_ns": 1000, "base_time_ns": 900,
        "overhead": 0.11, "losses": [1.5, 1.25, null]}"#;
    assert!(is_run(printed) && !is_run(b"{}") && !is_run(b"[") && !is_run(b"\x80\x02."));
    let report = of_run(printed).unwrap();
    assert_eq!((report.kind, report.losses[0].points.len()), (Kind::Figures, 2));
    assert!(report.compared.rows.iter().all(|row| row.len() == report.compared.head.len()));
    assert!(!html(&report).contains("</script>\","));
    assert!(of_run(b"{").is_err());
    // What lacks every figure is shown as such.
    assert!(of_run(br#"{"schema": "memfit-result/1", "command": "run"}"#).unwrap().compared.rows.is_empty());
}

#[test]
fn tiers_have_rows_of_their_own() {
    let graph = graph("unet-train-b16");
    let (goal, planned) = made(&graph, "floor+40%", Some("offload:best"));
    let report = of_planned(&graph, &goal, &planned);
    let names: Vec<&str> = report.lanes.iter().map(|lane| lane.name.as_str()).collect();
    assert_eq!(names, ["compute", "out to host", "in from host"]);
    let carried: Bytes =
        report.slices.iter().filter(|slice| slice.kind == SliceKind::Out).map(|slice| slice.bytes).sum();
    assert_eq!(carried, planned.summary.offloaded);
    assert_eq!(planned.timeline.tier_peaks[Tier::Disk.index()], Bytes::ZERO);
}
