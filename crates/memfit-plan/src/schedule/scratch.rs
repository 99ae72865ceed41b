//! Faster algorithms in memory that a program leaves free.
//!
//! Schedulers that know nothing of algorithms leave ops as they are given. Ops run one after the other, so what each may take as
//! scratch memory is what no buffer takes while it runs: of the algorithms that have room in all runs of an op, the fastest is the
//! best choice, whatever the others take. An op that has no room as it is goes by the fastest that has, slower or not. All runs of an op
//! go by one algorithm, so that they give the same bits. Time O(steps).

use memfit_ir::{Bytes, Content, Device, Graph, Program, Step};

use crate::liveness::Profile;
use crate::problem::signed;

/// `program` with the fastest algorithms that keep what is live within `budget`, if there is another than it has. Ties go to less scratch
/// memory, then to the earlier one; of equal times what the program has stays.
#[must_use]
pub fn by_fastest_algorithms(
    graph: &Graph,
    program: &Program,
    budget: Bytes,
    device: &Device,
) -> Option<Program> {
    let live = Profile::of(program, device.align).live;
    let mut room = vec![i64::MAX; graph.op_count()];
    for (step, live) in program.steps.iter().zip(live) {
        let Step::Compute(compute) = step else { continue };
        let own = compute.workspace.map_or(Bytes::ZERO, |own| program.buffers[own.index()].size);
        let beside = live.saturating_sub(own.round_up(device.align));
        let room = &mut room[compute.op.index()];
        *room = (*room).min(signed(budget) - signed(beside));
    }
    let mut filled = program.clone();
    let mut is_other = false;
    for at in 0..filled.steps.len() {
        let Step::Compute(mut compute) = filled.steps[at] else { continue };
        let op = graph.op(compute.op);
        let cost = |number: usize| match number.checked_sub(1).map(|other| &op.algorithms[other]) {
            None => (op.workspace, device.time(&op)),
            Some(other) => (other.workspace, device.time_by(&op, other)),
        };
        let room = room[compute.op.index()];
        let has_room = |number: &usize| signed(cost(*number).0.round_up(device.align)) <= room;
        let now = usize::from(compute.algorithm);
        let key = |number: &usize| (cost(*number).1, *number != now, cost(*number).0, *number);
        let Some(best) = (0..=op.algorithms.len()).filter(has_room).min_by_key(key) else { continue };
        let Some(number) = u16::try_from(best).ok().filter(|_| best != now) else { continue };
        let size = cost(best).0;
        compute.algorithm = number;
        match compute.workspace {
            Some(own) => filled.buffers[own.index()].size = size,
            None if size > Bytes::ZERO => {
                compute.workspace = Some(filled.buffer(Content::Workspace, size, None));
            }
            None => {}
        }
        filled.steps[at] = Step::Compute(compute);
        is_other = true;
    }
    is_other.then_some(filled)
}

#[cfg(test)]
mod tests {
    use memfit_ir::{InPlace, OpId};
    use memfit_testkit::{device, mixed, with_algorithms};

    use super::*;

    /// Of each op the least time that any of its algorithms takes with what is live beside its runs, and the algorithm it has.
    fn brute(graph: &Graph, program: &Program, budget: Bytes, device: &Device) -> Vec<(Option<u64>, u64)> {
        let spans = program.lifespans();
        let found = graph.op_ids().map(|id| {
            let op = graph.op(id);
            let mut ways = vec![(op.workspace, device.time(&op).0)];
            ways.extend(op.algorithms.iter().map(|way| (way.workspace, device.time_by(&op, way).0)));
            let mut now = 0;
            for (at, step) in program.steps.iter().enumerate() {
                let Step::Compute(compute) = step else { continue };
                if compute.op != id {
                    continue;
                }
                now = ways[usize::from(compute.algorithm)].1;
                let others = (0..spans.len()).filter(|&buffer| {
                    let meets = spans[buffer].from <= at && at < spans[buffer].until;
                    meets && compute.workspace.is_none_or(|own| own.index() != buffer)
                });
                let live: Bytes =
                    others.map(|other| program.buffers[other].size.round_up(device.align)).sum();
                ways.retain(|way| live + way.0.round_up(device.align) <= budget);
            }
            (ways.iter().map(|way| way.1).min(), now)
        });
        found.collect()
    }

    #[test]
    fn each_op_goes_by_the_fastest_that_has_room() {
        let (mut faster, mut rescued) = (0, 0);
        for seed in 0..200 {
            let (graph, device) = (with_algorithms(&mixed(seed), 64 << (seed % 4 * 2), seed), device());
            let order: Vec<OpId> = graph.op_ids().collect();
            let program = Program::in_order(&graph, &order, InPlace::May);
            let peak = Profile::of(&program, device.align).peak().0;
            for part in [8, 15, 16, 24] {
                let budget = Bytes(peak.0 * part / 16);
                let made = by_fastest_algorithms(&graph, &program, budget, &device);
                let is_other = made.is_some();
                let made = made.unwrap_or_else(|| program.clone());
                let best = brute(&graph, &program, budget, &device);
                for ((best, before), (_, after)) in best.iter().zip(brute(&graph, &made, budget, &device)) {
                    assert_eq!(after, best.unwrap_or(*before), "seed {seed}, {part}/16");
                    faster += u32::from(after < *before);
                }
                let then = Profile::of(&made, device.align).peak().0;
                assert!(then <= peak.max(budget) && (part < 16 || then <= budget), "seed {seed}, {part}/16");
                rescued += u32::from(is_other && peak > budget && then <= budget);
                assert_eq!(made.steps.len(), program.steps.len());
            }
        }
        assert!(faster > 200 && rescued > 3, "{faster} {rescued}");
    }
}
