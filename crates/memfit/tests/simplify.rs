//! Simplified graphs need no larger arena, and what hosts are told of fusion and constants holds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use memfit::ir::text::parse;
use memfit::strategies::simplify::fused;
use memfit::{Budget, Bytes, Goal, Graph, Simplification, Tools, input, plan, simplify};
use memfit_testkit::bytes::{Truth, check};
use memfit_testkit::{cases, device, twins};

fn goal() -> Goal {
    Goal::new(device(), Budget::Device)
}

fn done(graph: &Graph) -> Simplification {
    simplify(graph, &goal(), &Tools::none()).unwrap()
}

/// The plan of the new graph is no larger, and in real memory it computes what the new graph does; `memfit-testkit` compares the
/// two graphs.
#[test]
fn random_graphs_need_no_larger_arena() {
    let (mut fewer, mut lower, mut left_out) = (0, 0, 0);
    let count = cases(2_000);
    for seed in 0..count {
        let graph = twins(seed);
        let made = done(&graph);
        let (before, after) = (made.before, made.after);
        assert!(after.peak <= before.peak, "seed {seed}: {before:?} {after:?}");
        assert!(after.ops <= before.ops && after.time <= before.time, "seed {seed}");
        fewer += u64::from(after.ops < before.ops);
        lower += u64::from(after.peak < before.peak);
        left_out += made.left_out.len() as u64;
        let new = &made.rewrite.graph;
        let goal = Goal { budget: Budget::Bytes(after.peak), ..goal() };
        let planned = plan(new, &goal, &Tools::none()).unwrap();
        let mut limits = goal.device.limits();
        limits.banks[0].capacity = after.peak;
        let ran = check(&Truth::of(new), new, &limits, planned.verified.plan());
        assert!(ran.is_ok(), "seed {seed}: {ran:?}");
    }
    let share = |many: u64| 100 * many / count;
    assert!(share(fewer) > 50 && share(lower) > 10 && share(left_out) < 10, "{fewer} {lower} {left_out}");
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| {
        path.to_string_lossy().contains(".json.zst") || path.to_string_lossy().contains(".onnx")
    });
    files.sort();
    files
}

#[test]
fn no_graph_of_the_corpus_needs_a_larger_arena() {
    let mut graphs = 0;
    for path in files("graphs").into_iter().chain(files("onnx")) {
        let bytes = std::fs::read(&path).unwrap();
        let dims = [("batch".to_owned(), 2), ("seq".to_owned(), 16)].into();
        let read = [input::Options { dims, ..input::Options::default() }, input::Options::default()];
        let Some(graph) = read.iter().find_map(|options| input::graph(&bytes, options).ok()) else {
            continue;
        };
        let made = done(&graph);
        assert!(
            made.after.peak <= made.before.peak && made.after.ops <= made.before.ops,
            "{}",
            path.display()
        );
        assert!(
            made.fused.live_peak <= made.after.live_peak.max(made.before.live_peak),
            "{}",
            path.display()
        );
        assert!(made.fused.time <= made.after.time, "{}", path.display());
        graphs += 1;
    }
    assert!(graphs > 25, "{graphs}");
}

/// Where all ops are dead nothing runs, and what lasts has places all the same.
#[test]
fn a_graph_of_dead_ops_has_a_plan() {
    let text = r#"graph "dead"
  v0 = parameter 64 "a"
  v1 = constant 32 "b"
  v2 = activation 4096 "c"
  op0 = forward f(v0, v1) -> v2 "f"
"#;
    let made = done(&graph(text));
    assert_eq!((made.after.ops, made.after.peak, made.before.peak), (0, Bytes(96), Bytes(4096 + 96)));
}

fn graph(text: &str) -> Graph {
    parse(text).unwrap_or_else(|error| panic!("{error}")).graph.unwrap()
}

/// By name of the first op: the ops of each group, and the bytes that it does not store.
fn groups(graph: &Graph) -> Vec<(Vec<String>, u64)> {
    let made = done(graph);
    let group = |finding: &memfit::strategies::simplify::Finding| {
        let ops = finding.ops.iter().map(|&op| made.rewrite.graph.op(op).name.to_owned()).collect();
        (ops, finding.inner.iter().map(|&value| made.rewrite.graph.value(value).size.0).sum())
    };
    made.groups.iter().map(group).collect()
}

const TREE: &str = r#"graph "tree"
  v0 = input 4096 "x"
  v1 = input 4096 "y"
  v2 = activation 4096 "a"
  op0 = forward exp(v0) -> v2 "a" moved=8192 may=v0>v2
  v3 = activation 4096 "b"
  op1 = forward neg(v1) -> v3 "b" moved=8192 may=v1>v3
  v4 = activation 4096 "c"
  op2 = forward add(v2, v3) -> v4 "c" moved=12288 may=v2>v4 may=v3>v4
  v5 = output 4096 "d"
  op3 = forward mul(v4, v2) -> v5 "d" moved=12288 may=v4>v5 may=v2>v5
  v6 = output 8 "sum"
  op4 = forward sum(v5) -> v6 "e" moved=4104
  result v5 v6
"#;

#[test]
fn groups_hold_what_is_read_by_element_within_them() {
    let all = |ops: &[&str], bytes| vec![(ops.iter().map(|op| (*op).to_owned()).collect::<Vec<_>>(), bytes)];
    assert_eq!(groups(&graph(TREE)), all(&["a", "b", "c", "d"], 3 * 4096));
    let changed = |from: &str, to: &str| groups(&graph(&TREE.replacen(from, to, 1)));
    // A result is stored; so is what somebody else reads, and what is read as a whole.
    assert_eq!(changed("result v5", "result v3 v5"), all(&["a", "c", "d"], 2 * 4096));
    assert_eq!(changed("sum(v5)", "sum(v3)"), all(&["a", "c", "d"], 2 * 4096));
    assert_eq!(changed(" may=v2>v5", ""), all(&["b", "c", "d"], 2 * 4096));
    assert_eq!(changed("may=v1>v3", "once may=v1>v3"), all(&["a", "c", "d"], 2 * 4096));
    assert_eq!(changed("op2 = forward", "op2 = backward"), vec![]);
    // Nothing is left where no op is element-wise.
    assert_eq!(groups(&graph(&TREE.replace("may=v", "; may=v"))), vec![]);
}

#[test]
fn a_fused_graph_moves_less_in_less_time() {
    let graph = graph(TREE);
    let made = done(&graph);
    let whole = fused(&made.rewrite.graph, &made.groups).unwrap();
    assert_eq!((whole.op_count(), whole.value_count()), (2, 4));
    let op = whole.op(memfit::ir::OpId(0));
    // Three intermediates less: one write each, and five reads.
    assert_eq!(op.moved, Bytes(8192 * 2 + 12288 * 2 - 4096 * (3 + 4)));
    assert_eq!((op.reads.len(), op.writes.len(), op.reuses.len()), (2, 1, 2));
    assert_eq!(made.groups[0].moved, Bytes(4096 * 7));
    assert!(made.fused.time < made.after.time && made.fused.live_peak <= made.after.live_peak);
}

/// What can be computed ahead is told where it does not make the peak rise.
#[test]
fn constants_are_told_by_their_size() {
    let text = |large: u64, small: u64, role: &str| {
        format!(
            r#"graph "constants"
  v0 = {role} {large} "table"
  v1 = input 64 "x"
  v2 = activation {small} "part"
  op0 = forward slice(v0) -> v2 "slice"
  v3 = activation {small} "scaled"
  op1 = forward scale(v2) -> v3 "scale"
  v4 = output 64 "y"
  op2 = forward add(v1, v3) -> v4 "add"
  result v4
"#
        )
    };
    let ahead = |text: &str| {
        let made = done(&graph(text));
        assert_eq!(made.after.ops, 3, "nothing is folded");
        made.ahead
            .iter()
            .map(|found| (found.ops.len(), found.results.len(), found.inner.len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(ahead(&text(4096, 64, "constant")), [(2, 1, 1)]);
    assert_eq!(ahead(&text(64, 4096, "constant")), [(2, 1, 1)]);
    // Parameters change, and a table that others read stays beside what is computed of it.
    assert_eq!(ahead(&text(4096, 64, "parameter")), []);
    let late = r#"
  v5 = activation 9000 "large"
  op3 = forward f(v4) -> v5 "f"
  v6 = output 8 "z"
  op4 = forward g(v5, v0) -> v6 "g"
  result v6
"#;
    let made = done(&graph(&(text(4096, 64, "constant") + late)));
    assert_eq!(made.ahead, [], "the scaled part would be there at the peak");
}
