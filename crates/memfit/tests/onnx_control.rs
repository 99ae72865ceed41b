//! ONNX models with branches and bodies, planned: the worst branch counts, bodies are placed once, and a body can be planned
//! on its own.

#![allow(clippy::unwrap_used, reason = "the helpers of tests, too, may fail")]

use std::path::Path;

use memfit::input::{self, Options};
use memfit::{Budget, Bytes, Failure, Goal, Graph, Tools, plan};

fn read(name: &str, options: &Options) -> Result<Graph, Failure> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/onnx/control").join(name);
    input::graph(&std::fs::read(path).unwrap(), options)
}

fn options(dims: &[(&str, u64)], body: Option<&str>) -> Options {
    let dims = dims.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
    Options { dims, body: body.map(str::to_owned) }
}

fn peak(graph: &Graph) -> u64 {
    let device = input::device("H100").unwrap();
    plan(graph, &Goal::new(device, Budget::Device), &Tools::none()).unwrap().verified.peak().0
}

/// Workspace of the op of control flow, and the peak of the plan, worked out by hand: a matrix has 16 KiB, and what is smaller than
/// 512 bytes takes as much.
#[test]
fn arenas_are_those_worked_out_by_hand() {
    const M: u64 = 16384;
    let cases = [
        // The worst branch holds two values of two matrices; its result is the op's. Beside it: x, h, y, the weight, the condition.
        ("branches.onnx", vec![], 4 * M, 4 * M + 4 * M + 512),
        // Within: what is carried, the count, the condition. Beside it: x, last, and rows of 2,560 bytes.
        ("loop.onnx", vec![], M + 2 * 512, M + 2 * 512 + 2 * M + 2560),
        ("loop_open.onnx", vec![("rows[0]", 7)], M + 2 * 512, M + 2 * 512 + 2 * M + 2048 + 512),
        // Carried at its largest, four matrices; the next version is the result.
        ("growing.onnx", vec![("last[0]", 256), ("last[1]", 64)], 4 * M + 2 * 512, 4 * M + 2 * 512 + 5 * M),
        // State and product, of which the product has no successor in place: its result lies around the body.
        ("scan.onnx", vec![], 2 * 512, 2 * 512 + M + 512 + 2560 + 512 + 2560),
        // Along another axis, slices in and out are copies: row and product, or product, state and slice out.
        ("scan_axis.onnx", vec![], 3 * 512, 3 * 512 + M + 512 + 2560 + 512 + 2560),
        // A loop within: carried, count, condition, and sums that nobody reads.
        ("nested.onnx", vec![], M + 3 * 512, M + 3 * 512 + 4 * M + 512),
        ("deep.onnx", vec![], 0, 2 * M + 512),
    ];
    for (name, dims, workspace, expected) in cases {
        let graph = read(name, &options(&dims, None)).unwrap();
        let held = graph.op_ids().map(|id| graph.op(id).workspace).max().unwrap();
        assert_eq!((held, peak(&graph)), (Bytes(workspace), expected), "{name}");
    }
}

/// A body read on its own has the arena that its op has as workspace.
#[test]
fn a_body_is_planned_alone_as_it_was_within() {
    for (name, body) in [
        ("branches.onnx", "the_if_y/then_branch"),
        ("loop.onnx", "the_loop_last/body"),
        ("nested.onnx", "the_if_y/then_branch"),
    ] {
        let whole = read(name, &options(&[], None)).unwrap();
        let held = whole.op_ids().map(|id| whole.op(id).workspace).max().unwrap();
        let alone = read(name, &options(&[], Some(body))).unwrap();
        assert_eq!((alone.name(), peak(&alone)), (body, held.0), "{name}");
    }
    let error = read("loop.onnx", &options(&[], Some("loop"))).unwrap_err().to_string();
    assert!(error.contains("no branch or body `loop`"), "{error}");
    let graph = br#"{"schema": "memfit-graph/1", "name": "g", "values": [], "ops": [], "results": []}"#;
    let error = input::graph(graph, &options(&[], Some("b"))).unwrap_err().to_string();
    assert!(error.contains("`--body b` is for ONNX models"), "{error}");
}
