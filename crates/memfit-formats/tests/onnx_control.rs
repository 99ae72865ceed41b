//! ONNX models with branches and bodies: what their ops read, write and need; and no damage makes the reader panic. What is
//! wrong with `corpus/onnx/damaged/control_*.onnx` is told in `onnx.rs`' table of messages.

#![allow(clippy::unwrap_used, reason = "the helpers of tests, too, may fail")]

mod common;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;

use memfit_formats::onnx::{OnnxOptions, read, read_planned};
use memfit_ir::{Bytes, Graph, Role, ValueId};

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/onnx/control").join(name);
    std::fs::read(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn dims(dims: &[(&str, u64)]) -> OnnxOptions {
    OnnxOptions { dims: dims.iter().map(|&(name, size)| (name.to_owned(), size)).collect() }
}

/// The model, and its branches and bodies in the order in which they were planned.
fn planned(name: &str, options: &OnnxOptions) -> (Graph, Vec<Graph>) {
    let bodies = RefCell::new(Vec::new());
    let plan = |body: &Graph| {
        bodies.borrow_mut().push(body.clone());
        Ok(Bytes(1000 * bodies.borrow().len() as u64))
    };
    let graph = read_planned(&file(name), options, &plan).unwrap_or_else(|error| panic!("{name}: {error}"));
    (graph, bodies.into_inner())
}

/// Ops with operands, results and workspace; values with their bytes.
fn shown(graph: &Graph) -> String {
    let mut text = format!("{}\n", graph.name());
    let named = |all: &[ValueId]| {
        let name = |&id: &ValueId| format!("{}:{}", graph.value(id).name, graph.value(id).size.0);
        all.iter().map(name).collect::<Vec<_>>().join(" ")
    };
    for op in graph.op_ids().map(|id| graph.op(id)) {
        writeln!(text, "  {} [{}] -> [{}] + {}", op.name, named(op.reads), named(op.writes), op.workspace.0)
            .unwrap();
    }
    text
}

#[test]
fn a_branch_captures_by_name_and_its_weights_are_the_models() {
    let (graph, bodies) = planned("branches.onnx", &dims(&[]));
    let text = bodies.iter().chain([&graph]).map(shown).collect::<String>();
    insta::assert_snapshot!(text, @r"
    the_if_y/then_branch
      the_if_y/then_branch/the_concat_w1 [h:0 h:0] -> [the_if_y/then_branch/w1:32768] + 0
      the_if_y/then_branch/the_tanh_w2 [the_if_y/then_branch/w1:32768] -> [the_if_y/then_branch/w2:32768] + 0
      the_if_y/then_branch/the_matmul_w3 [the_if_y/then_branch/w2:32768 the_if_y/then_branch/m:0] -> [the_if_y/then_branch/w3:32768] + 0
      the_if_y/then_branch/the_slice_t [the_if_y/then_branch/w3:32768] -> [the_if_y/then_branch/t:0] + 0
    the_if_y/else_branch
      the_if_y/else_branch/the_tanh_e [x:0] -> [the_if_y/else_branch/e:0] + 0
    control
      the_relu_h [x:16384] -> [h:16384] + 0
      the_if_y [c:1 x:16384 h:16384 the_if_y/then_branch/m:16384] -> [y:16384] + 2000
      the_neg_z [y:16384] -> [z:16384] + 0
    ");
    // Weights lie in another file, whose record says another length: the dimensions count.
    let weight =
        graph.value_ids().map(|id| graph.value(id)).find(|value| value.role == Role::Parameter).unwrap();
    assert_eq!((weight.name, weight.size), ("the_if_y/then_branch/m", Bytes(16384)));
}

#[test]
fn a_branch_that_the_model_takes_stands_in_place_of_its_node() {
    let (graph, bodies) = planned("chosen.onnx", &dims(&[]));
    assert!(bodies.is_empty());
    insta::assert_snapshot!(shown(&graph), @r"
    control
      the_relu_h [x:16384] -> [h:16384] + 0
      the_if_y/the_concat_w1 [h:16384 h:16384] -> [the_if_y/w1:32768] + 0
      the_if_y/the_tanh_w2 [the_if_y/w1:32768] -> [the_if_y/w2:32768] + 0
      the_if_y/the_matmul_w3 [the_if_y/w2:32768 the_if_y/m:16384] -> [the_if_y/w3:32768] + 0
      the_if_y/the_slice_t [the_if_y/w3:32768] -> [the_if_y/t:16384] + 0
      the_neg_z [the_if_y/t:16384] -> [z:16384] + 0
    ");
}

#[test]
fn bodies_within_bodies_reach_what_is_outermost() {
    let (graph, bodies) = planned("nested.onnx", &dims(&[]));
    let text = bodies.iter().chain([&graph]).map(shown).collect::<String>();
    insta::assert_snapshot!(text, @r"
    the_if_y/then_branch/the_loop_last/body/the_if_s/then_branch
      the_if_y/then_branch/the_loop_last/body/the_if_s/then_branch/the_matmul_p [the_if_y/then_branch/the_loop_last/body/carried:0 far:0] -> [the_if_y/then_branch/the_loop_last/body/the_if_s/then_branch/p:0] + 0
    the_if_y/then_branch/the_loop_last/body/the_if_s/else_branch
      the_if_y/then_branch/the_loop_last/body/the_if_s/else_branch/the_add_q [the_if_y/then_branch/the_loop_last/body/carried:0 h:0] -> [the_if_y/then_branch/the_loop_last/body/the_if_s/else_branch/q:0] + 0
    the_if_y/then_branch/the_loop_last/body
      the_if_y/then_branch/the_loop_last/body/the_if_s [the_if_y/then_branch/the_loop_last/body/carried:16384 c:0 far:0 h:0] -> [the_if_y/then_branch/the_loop_last/body/s:0] + 2000
      the_if_y/then_branch/the_loop_last/body/the_reducesum_total [the_if_y/then_branch/the_loop_last/body/s:0] -> [the_if_y/then_branch/the_loop_last/body/total:0] + 0
    the_if_y/then_branch
      the_if_y/then_branch/the_loop_last [h:0 c:0 far:0] -> [the_if_y/then_branch/last:0 the_if_y/then_branch/sums:20] + 3000
    the_if_y/else_branch
      the_if_y/else_branch/the_tanh_e [x:0] -> [the_if_y/else_branch/e:0] + 0
    control
      the_relu_h [x:16384] -> [h:16384] + 0
      the_if_y [far:16384 c:1 x:16384 h:16384] -> [y:16384] + 5000
    ");
    let (graph, _) = planned("in_function.onnx", &dims(&[]));
    insta::assert_snapshot!(shown(&graph), @r"
    control
      first/the_if_r [c:1 x:16384] -> [y:16384] + 2000
    ");
}

#[test]
fn loops_and_scans_carry_and_gather() {
    let mut text = String::new();
    for (name, options) in [
        ("loop.onnx", dims(&[])),
        ("loop_open.onnx", dims(&[("rows[0]", 7)])),
        ("growing.onnx", dims(&[("last[0]", 256), ("last[1]", 64)])),
        ("scan.onnx", dims(&[])),
        ("scan_axis.onnx", dims(&[])),
        ("scan_old.onnx", dims(&[])),
    ] {
        let (graph, bodies) = planned(name, &options);
        for graph in bodies.iter().chain([&graph]) {
            text += &shown(graph);
        }
    }
    insta::assert_snapshot!(text, @r"
    the_loop_last/body
      the_loop_last/body/the_add_d [the_loop_last/body/s:16384 x:0] -> [the_loop_last/body/d:16384] + 0
      the_loop_last/body/the_tanh_after [the_loop_last/body/d:16384] -> [the_loop_last/body/after:0] + 0
      the_loop_last/body/the_reducemax_row [the_loop_last/body/after:0] -> [the_loop_last/body/row:0] + 0
    control
      the_loop_last [x:16384] -> [last:16384 rows:2560] + 1000
    the_loop_last/body
      the_loop_last/body/the_add_d [the_loop_last/body/s:16384 x:0] -> [the_loop_last/body/d:16384] + 0
      the_loop_last/body/the_tanh_after [the_loop_last/body/d:16384] -> [the_loop_last/body/after:0] + 0
      the_loop_last/body/the_reducemax_row [the_loop_last/body/after:0] -> [the_loop_last/body/row:0] + 0
    control
      the_loop_last [n:8 x:16384] -> [last:16384 rows:1792] + 1000
    the_loop_last/body
      the_loop_last/body/the_concat_after [the_loop_last/body/s:65536 x:0] -> [the_loop_last/body/after:0] + 0
    control
      the_loop_last [x:16384] -> [last:65536] + 1000
    the_scan_last/body
      the_scan_last/body/the_matmul_p [the_scan_last/body/row:0 far:0] -> [the_scan_last/body/p:256] + 0
      the_scan_last/body/the_add_next [the_scan_last/body/p:256 the_scan_last/body/state:256] -> [the_scan_last/body/next:0] + 0
      the_scan_last/body/the_sigmoid_out [the_scan_last/body/next:0] -> [the_scan_last/body/out:0] + 0
    control
      the_scan_last [far:16384 zero:256 rows:2560] -> [last:256 outs:2560] + 1000
    the_scan_last/body
      the_scan_last/body/the_matmul_p [the_scan_last/body/row:256 far:0] -> [the_scan_last/body/p:256] + 0
      the_scan_last/body/the_add_next [the_scan_last/body/p:256 the_scan_last/body/state:256] -> [the_scan_last/body/next:0] + 0
      the_scan_last/body/the_sigmoid_out [the_scan_last/body/next:0] -> [the_scan_last/body/out:256] + 0
    control
      the_scan_last [far:16384 zero:256 rows:2560] -> [last:256 outs:2560] + 1000
    the_scan_last/body
      the_scan_last/body/the_matmul_p [the_scan_last/body/row:0 far:0] -> [the_scan_last/body/p:256] + 0
      the_scan_last/body/the_add_next [the_scan_last/body/p:256 the_scan_last/body/state:256] -> [the_scan_last/body/next:0] + 0
      the_scan_last/body/the_sigmoid_out [the_scan_last/body/next:0] -> [the_scan_last/body/out:0] + 0
    control
      the_scan_last [far:16384 zero:512 rows:5120] -> [last:512 outs:5120] + 1000
    ");
}

#[test]
fn what_only_a_run_can_tell_takes_the_users_bound() {
    let shape = |name: &str, options: OnnxOptions| {
        let (graph, _) = planned(name, &options);
        let value = graph.value(*graph.results().last().unwrap());
        (value.name.to_owned(), value.shape.to_vec())
    };
    assert_eq!(shape("sizes.onnx", dims(&[])), ("y".to_owned(), vec![64, 64]));
    assert_eq!(shape("ranks.onnx", dims(&[("y[0]", 4096)])), ("y".to_owned(), vec![4096]));
    let found = dims(&[("places[0]", 2), ("places[1]", 100)]);
    assert_eq!(shape("found.onnx", found), ("y".to_owned(), vec![2, 100]));
    for (name, options, expected) in [
        (
            "ranks.onnx",
            dims(&[("y[0]", 4)]),
            "node `the_if_y` (If): `y` is told to be `4`, which does not hold `4096` and `64×64`",
        ),
        ("ranks.onnx", dims(&[("nothing[0]", 4)]), "no dimension of this model is called `nothing[0]`"),
        ("ranks.onnx", dims(&[("y", 4)]), "no dimension of this model is called `y`"),
        (
            "growing.onnx",
            dims(&[("last[0]", 1 << 62), ("last[1]", 64)]),
            "input `the_loop_last/body/s`: the size of shape `4611686018427387904×64` overflows 64 bits",
        ),
    ] {
        assert_eq!(read(&file(name), &options).unwrap_err().to_string(), expected);
    }
}

/// A plan of a body that fails is told at its node.
#[test]
fn what_the_planner_says_of_a_body_is_told_at_its_node() {
    let error = read_planned(&file("loop.onnx"), &dims(&[]), &|_| Err("no".to_owned())).unwrap_err();
    assert_eq!(error.to_string(), "node `the_loop_last` (Loop): its branch or body can't be planned: no");
}

#[test]
fn no_flip_or_cut_makes_it_panic() {
    for name in ["branches.onnx", "nested.onnx", "scan_axis.onnx", "in_function.onnx"] {
        common::survives_every_flip_and_cut(&file(name), |bytes| read(bytes, &OnnxOptions::default()));
    }
    for (seed, name) in (0u64..).zip(["nested.onnx", "scan_old.onnx", "deep.onnx", "loop.onnx"]) {
        common::survives_random_damage(&file(name), seed, |bytes| read(bytes, &OnnxOptions::default()));
    }
}
