//! The times between two uses of a value, in which it could be elsewhere.

use memfit_ir::{Link, ValueId};

use super::{RunList, Task, narrow, signed};

/// Between two uses of a value that follow each other, with at least one run in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) value: u32,
    /// Bytes that are free meanwhile.
    pub(super) size: i64,
    /// The node that uses it last before, and the one that uses it next; one beyond all nodes for the end of the step.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Ns that its transfers take: out, and back.
    pub(super) out: u64,
    pub(super) back: u64,
}

impl Gap {
    /// The nodes, of so many, that run while the value is away.
    pub(super) fn away(&self, nodes: usize) -> std::ops::Range<usize> {
        self.from + 1..self.to.min(nodes)
    }
}

/// A task as offloading sees it.
pub(super) struct Gaps {
    /// By node: live bytes while it runs, if all is kept.
    pub(super) live: Vec<i64>,
    /// By node: when it begins, if nothing is waited for; and at the end when all is done.
    pub(super) begins: Vec<u64>,
    pub(super) gaps: Vec<Gap>,
}

/// What is smaller is not worth a transfer.
const LEAST: i64 = 4 << 10;

impl Gaps {
    /// `None` if `task` is none that can be run as it is.
    pub(super) fn of(task: &Task<'_>, link: Link) -> Option<Gaps> {
        let live = RunList::plain(task).profile(task)?;
        let live = live.iter().map(|&bytes| signed(bytes)).collect();
        let mut begins = Vec::with_capacity(task.nodes() + 1);
        let mut now = 0u64;
        for &cost in &task.cost {
            begins.push(now);
            now = now.saturating_add(cost);
        }
        begins.push(now);
        Some(Gaps { live, begins, gaps: gaps(task, link) })
    }
}

/// The gaps of all values that may be moved, by their first use, the larger value first.
fn gaps(task: &Task<'_>, link: Link) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for (value, &size) in task.size.iter().enumerate() {
        if size < LEAST || !task.may_move(value) {
            continue;
        }
        let exact = task.graph.value(ValueId::at(value)).size;
        let (out, back) = (link.out_time(exact).0, link.in_time(exact).0);
        let producer = usize::try_from(task.producer[value]).ok().filter(|&node| node < task.nodes());
        let readers = task.readers.row(value).iter().map(|&node| node as usize);
        let end = task.live_out[value].then_some(task.nodes());
        let mut before: Option<usize> = None;
        for used in producer.into_iter().chain(readers).chain(end) {
            if let Some(from) = before.filter(|&from| used > from + 1) {
                gaps.push(Gap { value: narrow(value), size, from, to: used, out, back });
            }
            before = Some(used);
        }
    }
    gaps.sort_by_key(|gap| (gap.from, std::cmp::Reverse(gap.size), gap.value));
    gaps
}
