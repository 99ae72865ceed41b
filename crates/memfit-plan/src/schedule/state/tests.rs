//! What is kept up to date against what is counted anew.

use memfit_ir::{Bytes, Device, InPlace, OpId};

use super::super::random::Random;
use super::*;
use crate::Context;

/// What is kept up to date is what counting anew gives.
#[test]
fn the_profile_matches_a_new_one() {
    let device = Device {
        name: "test".into(),
        memory: Bytes(1 << 40),
        align: Bytes(8),
        flops: Vec::new(),
        bandwidth: 1e12,
        efficiency: (1.0, 1.0),
        launch: memfit_ir::Nanos(10),
        copy: None,
        codecs: Vec::new(),
        link: None,
        host_memory: Bytes::ZERO,
        disk: None,
    };
    let context = Context::new(&device);
    let (mut changes, mut absences) = (0, 0);
    for seed in 0..400 {
        let graph = memfit_testkit::graph(seed);
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::May, true, &context);
        let limit = signed_half(&task);
        let mut random = Random::new(seed);
        let away = if seed % 2 == 0 { Vec::new() } else { away(&task, &mut random) };
        absences += away.len();
        let Some(mut state) = State::new(&task, &RunList::plain(&task), limit, &away) else { continue };
        let again: Vec<NodeId> = task.node_ids().filter(|n| task.recomputable[n.index()]).collect();
        for _ in 0..60 {
            state.begin();
            let before = (state.mem.clone(), state.over, state.cost, state.runs.schedule());
            let mut right = true;
            for _ in 0..=random.below(3) {
                right = right && step(&mut state, &again, &mut random);
            }
            if !right || random.below(3) == 0 {
                // Some of it first.
                state.take_back(random.below(state.done().len() + 1));
                state.take_back(0);
                assert_eq!(before, (state.mem.clone(), state.over, state.cost, state.runs.schedule()));
            }
            assert!((0..state.runs.len()).all(|at| state.runs.position(state.runs.at(at)) == at));
            let Some(new) = State::new(&task, &state.runs.schedule(), limit, &away) else {
                panic!("seed {seed}: no schedule after a change that was right");
            };
            assert_eq!((&state.mem, state.over), (&new.mem, new.over), "seed {seed}");
            changes += 1;
        }
    }
    assert!(changes > 1000 && absences > 300, "{changes} {absences}");
}

/// Some of the gaps between uses, in part or whole.
fn away(task: &Task<'_>, random: &mut Random) -> Vec<Away> {
    let mut away = Vec::new();
    for value in task.value_ids().filter(|&value| task.may_move(value)) {
        let end = task.live_out[value.index()].then_some(task.end());
        let readers = task.readers.row(value.index()).iter().copied();
        let uses = task.producer[value.index()].into_iter().chain(readers).chain(end);
        let uses: Vec<usize> = uses.map(NodeId::index).collect();
        for pair in uses.windows(2).filter(|pair| pair[1] > pair[0] + 1) {
            let gone = pair[0] + random.below(pair[1] - pair[0] - 1);
            let back = gone + 2 + random.below(pair[1] - gone - 1);
            if random.below(2) == 0 && back <= pair[1] {
                away.push(Away { value, gone: NodeId::at(gone), back: NodeId::at(back) });
            }
        }
    }
    away
}

/// Inserts or removes a run at random; whether every read still finds its value.
fn step(state: &mut State<'_, '_>, again: &[NodeId], random: &mut Random) -> bool {
    let extras = state.runs.extra().len();
    if extras > 0 && random.below(3) == 0 {
        return state.remove(state.runs.extra()[random.below(extras)]);
    }
    let Some(&node) = again.get(random.below(again.len())) else { return true };
    let from = state.runs.position(RunId::first(node)) + 1;
    let position = from + random.below(state.runs.len() - from);
    !state.in_time(node, position) || state.insert(node, position).1
}

/// Half of what the plain schedule takes.
fn signed_half(task: &Task<'_>) -> i64 {
    let peak = RunList::plain(task).cost(task).map_or(0, |cost| cost.peak.0);
    crate::problem::signed(Bytes(peak / 2))
}
