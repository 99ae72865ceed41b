//! How much time must be spent on running ops again under a budget, whatever the schedule.
//!
//! Around each first run, what was made before and is due after it must be live or be made again. What exceeds
//! the budget must be made again, each op at its full cost for all it brings: a covering knapsack, bounded
//! by its fractional relaxation. The largest over all first runs is a bound for the given order of first
//! runs. O(values log values) for each node that is looked at.

use memfit_ir::{Bytes, Nanos, ValueId};

use super::Task;
use crate::problem::signed;

/// The most nodes that are looked at: those where most is live.
const NODES: usize = 400;

/// No schedule of `task` within `budget` spends less on later runs.
pub(super) fn extra(task: &Task<'_>, budget: Bytes) -> Nanos {
    let limit = signed(budget) - task.constant;
    let nodes = task.nodes();
    // Bytes that cross each node without being its operands.
    let last = |value: usize| match task.readers.row(value).last() {
        _ if task.live_out[value] => nodes,
        Some(reader) => reader.index(),
        None => 0,
    };
    let born = |value: usize| task.producer[value].map_or(0, |producer| producer.index() + 1);
    let mut change = vec![0i64; nodes + 2];
    for value in (0..task.size.len()).filter(|&value| task.size[value] > 0) {
        if born(value) < last(value) {
            change[born(value)] += task.size[value];
            change[last(value)] -= task.size[value];
        }
    }
    let mut crossing = Vec::with_capacity(nodes);
    let mut live = 0;
    for (node, change) in change.iter().enumerate().take(nodes) {
        live += change;
        let inner = task.reads.row(node).iter().map(|value| value.index());
        let inner: i64 = inner.filter(|&v| last(v) > node).map(|v| task.size[v]).sum();
        crossing.push((live - inner + task.alone(node) - limit, node));
    }
    crossing.sort_unstable_by_key(|&(over, node)| (std::cmp::Reverse(over), node));
    let mut most = 0.0f64;
    for &(over, node) in crossing.iter().take(NODES).take_while(|(over, _)| *over > 0) {
        most = most.max(cover(task, node, over, &last));
    }
    Nanos::from_secs_f64((most * (1.0 - 1e-9)).floor() / 1e9)
}

/// The least time that brings back `over` bytes of what crosses `node`.
fn cover(task: &Task<'_>, node: usize, over: i64, last: &dyn Fn(usize) -> usize) -> f64 {
    let crosses = |value: ValueId| last(value.index()) > node && !task.reads.row(node).contains(&value);
    let mut producers: Vec<(f64, i64, u64)> = Vec::new();
    for producer in (0..node).filter(|&producer| task.recomputable[producer]) {
        let brought = task.writes.row(producer).iter().filter(|&&value| crosses(value));
        let brought: i64 = brought.map(|&value| task.size[value.index()]).sum();
        if brought > 0 {
            producers.push((task.cost[producer] as f64 / brought as f64, brought, task.cost[producer]));
        }
    }
    producers.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let (mut left, mut time) = (over, 0.0);
    for (rate, brought, cost) in producers {
        if brought >= left {
            return time + rate * left as f64;
        }
        left -= brought;
        time += cost as f64;
    }
    time // Not even all of it is enough: the floor says so, not this bound.
}
