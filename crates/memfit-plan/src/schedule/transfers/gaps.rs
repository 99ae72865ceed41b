//! The times between two uses of a value, in which it could be elsewhere.

use memfit_ir::{Link, ValueId};

use super::{RunList, Task, narrow, signed};

/// Between two uses of a value that follow each other, with at least one run in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) value: u32,
    /// Bytes that are free meanwhile.
    pub(super) size: i64,
    /// The run that uses it last before, and the one that uses it next; one beyond all runs for the end of the step.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Ns that its transfers take: out, and back.
    pub(super) out: u64,
    pub(super) back: u64,
}

impl Gap {
    /// The runs, of so many, in which the value is away.
    pub(super) fn away(&self, runs: usize) -> std::ops::Range<usize> {
        self.from + 1..self.to.min(runs)
    }
}

/// A run list as those who move values see it.
pub(super) struct Gaps {
    /// By run: live bytes meanwhile, if all is kept that is used again before it is made again.
    pub(super) live: Vec<i64>,
    /// By run: when it begins, if nothing is waited for; and at the end when all is done.
    pub(super) begins: Vec<u64>,
    pub(super) gaps: Vec<Gap>,
    /// Whether ops go on while transfers are under way.
    pub(super) asynchronous: bool,
}

/// What is smaller is not worth a transfer.
const LEAST: i64 = 4 << 10;

impl Gaps {
    /// Those of `runs`; `None` if that is no schedule of `task`. Time O(operands of all runs), and the gaps are sorted.
    pub(super) fn of(task: &Task<'_>, runs: &RunList, link: Link) -> Option<Gaps> {
        let live = runs.profile(task)?.iter().map(|&bytes| signed(bytes)).collect();
        let mut begins = Vec::with_capacity(runs.len() + 1);
        let mut now = 0u64;
        for (node, first) in runs.each(task) {
            begins.push(now);
            let time = if first { &task.cost } else { &task.later_cost };
            now = now.saturating_add(time[node as usize]);
        }
        begins.push(now);
        Some(Gaps { live, begins, gaps: gaps(task, runs, link), asynchronous: link.asynchronous })
    }
}

/// The gaps of all values that may be moved, by their first use, the larger value first.
fn gaps(task: &Task<'_>, runs: &RunList, link: Link) -> Vec<Gap> {
    let may_move: Vec<bool> =
        task.size.iter().enumerate().map(|(at, &size)| size >= LEAST && task.may_move(at)).collect();
    let mut gaps = Vec::new();
    // By value: the run that used it last.
    let mut used: Vec<Option<usize>> = vec![None; task.size.len()];
    let gap = |value: u32, from: Option<usize>, to: usize| {
        let from = from.filter(|&from| to > from + 1)?;
        let exact = task.graph.value(ValueId(value)).size;
        let (out, back) = (link.out_time(exact).0, link.in_time(exact).0);
        Some(Gap { value, size: task.size[value as usize], from, to, out, back })
    };
    for (at, (node, first)) in runs.each(task).enumerate() {
        for &value in task.reads_of(node, first).iter().filter(|&&value| may_move[value as usize]) {
            gaps.extend(gap(value, used[value as usize].replace(at), at));
        }
        for &value in task.writes_of(node, first) {
            used[value as usize] = Some(at);
        }
    }
    for value in (0..used.len()).filter(|&value| may_move[value] && task.live_out[value]) {
        gaps.extend(gap(narrow(value), used[value], runs.len()));
    }
    gaps.sort_by_key(|gap| (gap.from, std::cmp::Reverse(gap.size), gap.value));
    gaps
}
