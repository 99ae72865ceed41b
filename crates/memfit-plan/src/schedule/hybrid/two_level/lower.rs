//! When copies are made and fetched: the rules of torchtitan's pass for offloading.

use super::cells::Cells;
use super::{RunList, Task, Window, turn};

/// Each copy is begun after the last forward use and waited for at the end of the next block's forward pass; what is away is
/// fetched when the backward pass of the block after it begins.
pub(super) fn deferred(task: &Task<'_>, cells: &Cells, runs: &RunList, whole: &[Window]) -> Vec<Window> {
    let turn = turn(task);
    let count = cells.all.len();
    let mut ends = vec![None; count];
    let mut begins = vec![None; count];
    for (at, (node, _)) in runs.each(task).enumerate().filter(|(_, (_, first))| *first) {
        if node.index() < turn {
            if let Some(cell) = cells.of[node.index()] {
                ends[cell] = Some(at);
            }
        } else if let Some(cell) = cells.all.iter().position(|cell| cell.backward.0 == node.index()) {
            begins[cell] = begins[cell].or(Some(at));
        }
    }
    let cell_of = |window: &Window| {
        let producer = task.producer[window.gap.value.index()];
        producer.and_then(|node| cells.of.get(node.index()).copied().flatten())
    };
    let mut windows: Vec<Window> = whole
        .iter()
        .map(|&window| {
            let (from, to) = (window.gap.from, window.gap.to);
            let next = cell_of(&window).map(|cell| cell + 1).filter(|&next| next < count);
            let gone = next.and_then(|next| ends[next]).unwrap_or(from).clamp(from, to - 2);
            let back = next.and_then(|next| begins[next]).unwrap_or(to).clamp(gone + 2, to);
            Window { gone, back, ..window }
        })
        .collect();
    windows.sort_by_key(|window| (window.gap.from, window.gap.to, window.gap.value));
    windows
}
