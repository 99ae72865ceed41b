//! When copies are made and fetched: the rules of torchtitan's pass for offloading.

use super::cells::Cells;
use super::{RunList, Task, Window, turn};

/// Each copy is begun after the last forward use and waited for at the end of the next block's forward pass; what is away is
/// fetched when the backward pass of the block after it begins. After the last block comes what is in no block: the rest of the
/// forward pass, and the begin of the backward pass. What the backward pass makes again is not copied.
pub(super) fn deferred(task: &Task<'_>, cells: &Cells, runs: &RunList, whole: &[Window]) -> Vec<Window> {
    let turn = turn(task);
    let count = cells.all.len();
    let mut ends = vec![None; count];
    let mut begins = vec![None; count];
    let mut middle = None;
    for (at, (node, _)) in runs.each(task).enumerate().filter(|(_, (_, first))| *first) {
        if node.index() < turn {
            if let Some(cell) = cells.of[node.index()] {
                ends[cell] = Some(at);
            }
            continue;
        }
        middle = middle.or(Some(at));
        if let Some(cell) = cells.all.iter().position(|cell| cell.backward.0 == node.index()) {
            begins[cell] = begins[cell].or(Some(at));
        }
    }
    let middle = middle.unwrap_or_else(|| runs.len());
    let cell_of = |window: &Window| {
        let producer = task.producer[window.gap.value.index()];
        producer.and_then(|node| cells.of.get(node.index()).copied().flatten())
    };
    let crossing = whole.iter().filter(|window| window.gap.from < middle);
    let mut windows: Vec<Window> = crossing
        .map(|&window| {
            let (from, to) = (window.gap.from, window.gap.to);
            let (end, begin) = match cell_of(&window).map(|cell| cell + 1) {
                Some(next) if next < count => (ends[next], begins[next]),
                Some(_) => (middle.checked_sub(1), Some(middle)),
                None => (None, None),
            };
            let gone = end.unwrap_or(from).clamp(from, to - 2);
            let back = begin.unwrap_or(to).clamp(gone + 2, to);
            Window { gone, back, ..window }
        })
        .collect();
    windows.sort_by_key(|window| (window.gap.from, window.gap.to, window.gap.value));
    windows
}
