//! The least that can be live while an op runs.
//!
//! What an op finds live depends on which ops have run: all it depends on, none that depends on it, and of the
//! others any set that keeps the dependencies. The set with the fewest live bytes is a minimum cut of the
//! values (a value is cut where its producer has run and a reader has not). Its bytes, with what the op needs,
//! are a lower bound on the peak of every order: on training graphs mostly a tight one, as one op near the
//! loss decides. Source: the view of memory as cuts is Kayaaslan, Lambert, Marchal and Uçar's (Theoretical
//! Computer Science 707, 2018); bounds by minimum cuts, one for each op, are ours. O(n) for the network and a
//! maximum flow (`order/flow.rs`) for each op. The wrong tool for many ops: ask the highest few.

use memfit_ir::OpId;

use super::Model;
use super::flow::{ENDLESS, Network};

/// The fewest live bytes that `op` can find, and the set of ops that have run then (ops that depend on `op`
/// and `op` itself are never in it). `None` if it takes more than `effort`.
pub(super) fn least(model: &Model, op: OpId, effort: usize) -> Option<(i64, Vec<bool>)> {
    const DONE: u32 = 0;
    const LATER: u32 = 1;
    const FREE: u32 = u32::MAX;
    let mut node = vec![FREE; model.op_count()];
    let mut open = vec![op];
    while let Some(op) = open.pop() {
        let preds = model.deps.preds(op).iter().copied();
        open.extend(preds.filter(|pred| std::mem::replace(&mut node[pred.index()], DONE) != DONE));
    }
    node[op.index()] = LATER;
    open.push(op);
    while let Some(op) = open.pop() {
        let succs = model.deps.succs(op).iter().copied();
        open.extend(succs.filter(|succ| std::mem::replace(&mut node[succ.index()], LATER) != LATER));
    }
    let mut nodes = 2;
    for node in node.iter_mut().filter(|node| **node == FREE) {
        *node = nodes;
        nodes += 1;
    }
    let mut network = Network::default();
    for id in (0..model.op_count()).map(OpId::at).filter(|id| node[id.index()] != DONE) {
        for pred in model.deps.preds(id).iter().filter(|pred| node[pred.index()] > LATER) {
            network.edge(node[id.index()], node[pred.index()], ENDLESS, 0);
        }
    }
    let mut certain: i64 = 0; // Live with every set.
    for value in 0..model.problem.value_count() {
        let size = model.problem.bytes[value];
        if model.problem.resident[value] {
            certain += if model.problem.producer[value].is_none() { size } else { 0 };
            continue;
        }
        let from = model.problem.producer[value].map_or(DONE, |op| node[op.index()]);
        let readers = || model.problem.readers.row(value).iter().map(|op| node[op.index()]);
        if from == LATER || size == 0 {
            continue;
        }
        if model.problem.live_out[value] || readers().any(|reader| reader == LATER) {
            if from == DONE {
                certain += size;
            } else {
                network.edge(from, LATER, size, 0);
            }
            continue;
        }
        let mut readers = readers().filter(|&reader| reader != DONE && reader != from);
        let Some(first) = readers.next() else { continue };
        match readers.next() {
            None => network.edge(from, first, size, 0),
            Some(second) => {
                network.edge(from, nodes, size, 0);
                for reader in [first, second].into_iter().chain(readers) {
                    network.edge(nodes, reader, ENDLESS, 0);
                }
                nodes += 1;
            }
        }
    }
    let (flow, side) = network.cut(nodes as usize, effort)?;
    let done = node.iter().map(|&node| node != LATER && side[node as usize]).collect();
    Some((certain + flow, done))
}
