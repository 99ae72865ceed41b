//! The walk of MXNet's note on memory, "Optimizing Memory Consumption in Deep Learning".

use memfit_ir::{
    Bytes, Content, Graph, GraphBuilder, InPlace, Limits, OpSpec, Program, Reuse, Role, ValueId, ValueSpec,
};
use memfit_plan::Context;
use memfit_plan::place::{Naive, Placer, Problem, RefCount};

use crate::support::device;

/// B = sigmoid(A), C = sigmoid(B), F = pooling(B), E = pooling(C), G = E · F; sigmoid and product may work
/// in place. A belongs to the caller.
fn note() -> Graph {
    let mut graph = GraphBuilder::new("note");
    let mut value = |name: &str, role| {
        graph.value(ValueSpec { name: name.into(), size: Bytes(64), role, ..ValueSpec::default() }).unwrap()
    };
    let a = value("A", Role::Parameter);
    let [b, c, f, e] = ["B", "C", "F", "E"].map(|name| value(name, Role::Activation));
    let g = value("G", Role::Output);
    let mut op = |name: &str, reads: &[ValueId], write: ValueId, in_place: &[ValueId]| {
        let pair = |&input: &ValueId| Reuse { input, output: write, must: false };
        graph
            .op(OpSpec {
                name: name.into(),
                reads: reads.to_vec(),
                writes: vec![write],
                reuses: in_place.iter().map(pair).collect(),
                ..OpSpec::default()
            })
            .unwrap();
    };
    op("B = sigmoid(A)", &[a], b, &[a]);
    op("C = sigmoid(B)", &[b], c, &[b]);
    op("F = pooling(B)", &[b], f, &[]);
    op("E = pooling(C)", &[c], e, &[]);
    op("G = E * F", &[e, f], g, &[e, f]);
    graph.result(g).unwrap();
    graph.finish().unwrap()
}

/// The block each of A, B, C, F, E and G lies in.
fn tags(placer: &dyn Placer, in_place: InPlace) -> Vec<u64> {
    let graph = note();
    let order: Vec<_> = graph.op_ids().collect();
    let program = Program::in_order(&graph, &order, in_place);
    let limits = Limits::arena(Bytes::MAX, Bytes(1));
    let (problem, item_of) = Problem::of(&graph, &program, &limits);
    let device = device();
    let placement = placer.place(&problem, &Context::new(&device)).unwrap();
    let layout = Problem::layout(&placement.places, &item_of);
    graph
        .value_ids()
        .map(|value| {
            let holds = |buffer: &memfit_ir::Buffer| buffer.content == Content::Value(value);
            layout.places[program.buffers.iter().position(holds).unwrap()].offset.0 / 64
        })
        .collect()
}

#[test]
fn the_five_steps_of_the_memory_note() {
    // 1 B gets a new tag. 2 C gets a new tag: not B's in place, for F still reads B. 3 F gets a new tag, and
    // B's goes to the box. 4 E takes the tag out of the box, and C's goes there. 5 G takes over E's in place.
    assert_eq!(tags(&RefCount::DEFAULT, InPlace::May), [0, 1, 2, 3, 1, 1]);
}

#[test]
fn in_place_and_co_share_can_be_switched_off() {
    // Without in-place G finds C's tag in the box; without co-share only G is not new; without both all are.
    assert_eq!(tags(&RefCount::DEFAULT, InPlace::Must), [0, 1, 2, 3, 1, 2]);
    assert_eq!(tags(&Naive, InPlace::May), [0, 1, 2, 3, 4, 4]);
    assert_eq!(tags(&RefCount { match_range: 0, search: false }, InPlace::May), [0, 1, 2, 3, 4, 4]);
    assert_eq!(tags(&Naive, InPlace::Must), [0, 1, 2, 3, 4, 5]);
}
