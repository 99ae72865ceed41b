//! How much time a step takes under a budget at least, whatever the schedule.
//!
//! Around each first run, what was made before and is due after it must be live, be made again, or wait elsewhere. What exceeds
//! the budget and is made again costs each op in full for all it brings: a covering knapsack, bounded by its fractional
//! relaxation. What waits elsewhere has left before that run, after it was made, and returns after it, before its next use, each no
//! faster than the link carries; what is at home elsewhere need not leave. The best division between the two is found by ternary
//! search, for the time is convex in it. The largest over all first runs is a bound for the given order of first runs. What is
//! left out: that runs need their operands, and how much other memory holds.
//! O(values log values) for each node that is looked at.

use memfit_ir::{Bytes, Nanos, Tier, ValueId, usable_rate};

use super::Task;
use crate::problem::signed;
use crate::{Context, Means};

/// The most nodes that are looked at: those where most is live.
const NODES: usize = 400;

/// Rounds of the ternary search: the interval is a 10¹¹th then, and less than what is taken off for floats.
const ROUNDS: usize = 64;

/// No schedule of `task` within `budget` spends less on later runs, where nothing waits elsewhere.
pub(super) fn extra(task: &Task<'_>, budget: Bytes) -> Nanos {
    let crossings = Crossings::of(task, signed(budget) - task.constant);
    let most = crossings.each().map(|(over, node)| crossings.cover(node).time(over as f64));
    down(most.fold(0.0, f64::max))
}

/// No schedule of `task` by `means` takes less within `budget`, on the device of `context`: with the same order of first runs.
#[must_use]
pub fn least_time(task: &Task<'_>, budget: Bytes, means: Means, context: &Context<'_>) -> Nanos {
    let least = task.least_time();
    // What waits encoded takes some room, and later runs may be shorter by other algorithms.
    let is_encodable = means.compress && (task.graph.is_sparse() || !context.lossy.is_empty());
    if is_encodable || task.has_choices() {
        return least;
    }
    let device = context.device;
    let links = Tier::ALL.iter().filter(|_| means.offload).filter_map(|&(tier, _)| device.link_to(tier));
    let [mut out, mut back] = [0.0, 0.0];
    for link in links {
        out += usable_rate(link.out_bandwidth) / 1e9;
        back += usable_rate(link.in_bandwidth) / 1e9;
    }
    let at_home: i64 = if out > 0.0 { task.movable().iter().map(|one| one.bytes).sum() } else { 0 };
    let crossings = Crossings::of(task, signed(budget) - task.constant);
    let times: Vec<u64> =
        task.cost.iter().scan(0u64, |sum, &cost| Some(std::mem::replace(sum, *sum + cost))).collect();
    let all = task.base_time().0;
    let links = (out > 0.0).then_some((out, back));
    // Not even all that may run again is enough: the floor says so, not this bound.
    let most = crossings.each().fold(0.0, |most: f64, (over, node)| {
        let cover = crossings.cover(node);
        let after = (all - times[node]) as f64;
        let windows = links.map(|links| Windows::of(&crossings, node, &times, links));
        // By bytes that return after the node.
        let time = |moved: f64| {
            let again = match over as f64 - moved {
                left if left <= 0.0 => 0.0,
                _ if !means.recompute => f64::INFINITY,
                left => cover.time(left),
            };
            let stored = moved - at_home as f64;
            let (before, returned) =
                windows.as_ref().map_or((0.0, 0.0), |windows| windows.times(moved, stored));
            before.max(times[node] as f64) + returned.max(after + again)
        };
        let least = match (links.is_some(), means.recompute) {
            // Another node says more already.
            (true, true) if time(0.0).min(time(over as f64)) <= most => most,
            (true, true) => least_of(over as f64, time),
            (true, false) => time(over as f64),
            (false, _) => time(0.0),
        };
        if least.is_finite() { most.max(least) } else { most }
    });
    least.max(down(most))
}

/// The least of a convex function between 0 and `until`.
fn least_of(until: f64, time: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, until);
    for _ in 0..ROUNDS {
        let (one, other) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if time(one) <= time(other) { high = other } else { low = one }
    }
    [0.0, low, high, until].map(time).into_iter().fold(f64::INFINITY, f64::min)
}

/// Whole ns, less what floats may be off by.
fn down(ns: f64) -> Nanos {
    Nanos::from_secs_f64((ns * (1.0 - 1e-9)).floor() / 1e9)
}

/// When what crosses a node may leave before it, and when it is due after it.
struct Windows {
    /// Ns of the node itself, and ns of all from it on.
    own: f64,
    /// Bytes for each ns, out and back.
    rates: (f64, f64),
    /// By who makes them: ns at which they are there, and bytes that are there before.
    made: Vec<(f64, f64)>,
    /// By the next use: bytes that are due after it, and ns of all ops from there on.
    due: Vec<(f64, f64)>,
}

impl Windows {
    /// `times`: ns of all ops before each.
    fn of(crossings: &Crossings<'_>, node: usize, times: &[u64], rates: (f64, f64)) -> Windows {
        let task = crossings.task;
        let all = task.base_time().0;
        let (mut born, mut next) = (Vec::new(), Vec::new());
        for value in task.value_ids().filter(|&value| crossings.crosses(value, node)) {
            let (at, size) = (value.index(), task.size[value.index()]);
            born.push((crossings.born[at], size));
            let readers = task.readers.row(at).iter().map(|reader| reader.index());
            next.push((readers.filter(|&reader| reader > node).min().unwrap_or(task.nodes()), size));
        }
        let time = |node: usize| times.get(node).copied().unwrap_or(all);
        born.sort_unstable();
        let mut before = 0;
        let made = born.into_iter().map(|(at, size)| {
            let this = (time(at) as f64, before as f64);
            before += size;
            this
        });
        let made = made.collect();
        next.sort_unstable_by_key(|&(at, _)| std::cmp::Reverse(at));
        let mut after = 0;
        let due = next.chunk_by(|one, other| one.0 == other.0).map(|uses| {
            let this = (after as f64, (all - time(uses[0].0)) as f64);
            after += uses.iter().map(|(_, size)| size).sum::<i64>();
            this
        });
        Windows { own: task.cost[node] as f64, rates, made, due: due.collect() }
    }

    /// Ns up to the node at least if `stored` bytes leave before it, and ns from it on if `moved` bytes return after it, as many of
    /// which as have been stored cross it.
    fn times(&self, moved: f64, stored: f64) -> (f64, f64) {
        let (out, back) = self.rates;
        let left = self.made.iter().filter(|(_, before)| stored > *before);
        let before = left.map(|(there, before)| there + (stored - before) / out);
        let late = self.due.iter().filter(|(after, _)| stored > *after);
        let returned = late.map(|(after, rest)| self.own + (stored - after) / back + rest);
        let whole = if moved > 0.0 { self.own + moved / back } else { 0.0 };
        (before.fold(0.0, f64::max), returned.fold(whole, f64::max))
    }
}

/// What is made before and due after first runs.
struct Crossings<'a> {
    task: &'a Task<'a>,
    /// By value: the first node that it is live before, and the last that uses it.
    born: Vec<usize>,
    last: Vec<usize>,
    /// By how many bytes the budget is exceeded around a node, the most first.
    over: Vec<(i64, usize)>,
}

impl<'a> Crossings<'a> {
    fn of(task: &'a Task<'a>, limit: i64) -> Crossings<'a> {
        let nodes = task.nodes();
        let values = 0..task.size.len();
        let last = |value: usize| match task.readers.row(value).last() {
            _ if task.live_out[value] => nodes,
            Some(reader) => reader.index(),
            None => 0,
        };
        let born = |value: usize| task.producer[value].map_or(0, |producer| producer.index() + 1);
        let (born, last): (Vec<usize>, Vec<usize>) = values.map(|value| (born(value), last(value))).unzip();
        // Bytes that cross each node without being its operands.
        let mut change = vec![0i64; nodes + 2];
        for (value, &size) in task.size.iter().enumerate().filter(|(_, size)| **size > 0) {
            if born[value] < last[value] {
                change[born[value]] += size;
                change[last[value]] -= size;
            }
        }
        let mut over = Vec::with_capacity(nodes);
        let mut live = 0;
        for (node, change) in change.iter().enumerate().take(nodes) {
            live += change;
            let inner = task.reads.row(node).iter().map(|value| value.index());
            let inner: i64 = inner.filter(|&v| last[v] > node).map(|v| task.size[v]).sum();
            over.push((live - inner + task.alone(node) - limit, node));
        }
        over.sort_unstable_by_key(|&(over, node)| (std::cmp::Reverse(over), node));
        Crossings { task, born, last, over }
    }

    fn each(&self) -> impl Iterator<Item = (i64, usize)> + '_ {
        self.over.iter().copied().take(NODES).take_while(|(over, _)| *over > 0)
    }

    /// Whether `value` is there before `node` and due after it, and it does not use it.
    fn crosses(&self, value: ValueId, node: usize) -> bool {
        let at = value.index();
        self.born[at] <= node && self.last[at] > node && !self.task.reads.row(node).contains(&value)
    }

    /// What making again what crosses `node` takes.
    fn cover(&self, node: usize) -> Cover {
        let task = self.task;
        let mut producers: Vec<(f64, i64, u64)> = Vec::new();
        for producer in (0..node).filter(|&producer| task.recomputable[producer]) {
            let brought = task.writes.row(producer).iter().filter(|&&value| self.crosses(value, node));
            let brought: i64 = brought.map(|&value| task.size[value.index()]).sum();
            if brought > 0 {
                producers.push((task.cost[producer] as f64 / brought as f64, brought, task.cost[producer]));
            }
        }
        producers.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        let mut steps = Vec::with_capacity(producers.len());
        let (mut bytes, mut time) = (0.0, 0.0);
        for (rate, brought, cost) in producers {
            steps.push((bytes, time, rate));
            bytes += brought as f64;
            time += cost as f64;
        }
        Cover { steps, bytes, time }
    }
}

/// A fractional knapsack: by bytes the least time that brings them back.
struct Cover {
    /// Bytes and time of all producers that are cheaper, and time for each byte of the next.
    steps: Vec<(f64, f64, f64)>,
    /// Those of all.
    bytes: f64,
    time: f64,
}

impl Cover {
    /// That of all there is, where `bytes` are more than that: the floor says so, not this.
    fn time(&self, bytes: f64) -> f64 {
        if bytes >= self.bytes {
            return self.time;
        }
        let at = self.steps.partition_point(|step| step.0 <= bytes);
        let Some(&(before, time, rate)) = at.checked_sub(1).and_then(|at| self.steps.get(at)) else {
            return 0.0;
        };
        time + rate * (bytes - before)
    }
}
