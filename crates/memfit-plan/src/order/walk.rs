//! A depth-first walk without recursion: chains of a million ops are normal.

use memfit_ir::OpId;

use super::Model;

/// Every op after all that `next` leads to from it. Roots and the ops of `next` are visited by ascending
/// `rank` of the bytes they read and write; ties by ascending id. Time O(n log n + e log e).
pub(super) fn post_order<'m>(
    model: &'m Model,
    next: impl Fn(OpId) -> &'m [OpId],
    rank: impl Fn(i64) -> i64,
) -> Vec<OpId> {
    let moved = |op: OpId| {
        let operands = model.problem.reads.row(op.index()).iter().chain(model.problem.writes.row(op.index()));
        operands.map(|&value| model.problem.bytes[value.index()]).sum()
    };
    let mut by_rank: Vec<OpId> = (0..model.op_count()).map(OpId::at).collect();
    by_rank.sort_by_cached_key(|&op| (rank(moved(op)), op));
    let mut position = vec![0; by_rank.len()];
    by_rank.iter().enumerate().for_each(|(at, op)| position[op.index()] = at);

    let mut seen = vec![false; by_rank.len()];
    let mut order = Vec::with_capacity(by_rank.len());
    let mut open: Vec<(OpId, bool)> = Vec::new(); // `true`: all it leads to has been visited.
    for &root in &by_rank {
        open.push((root, false));
        while let Some((op, done)) = open.pop() {
            if done {
                order.push(op);
            } else if !std::mem::replace(&mut seen[op.index()], true) {
                open.push((op, true));
                let from = open.len();
                let unseen = next(op).iter().filter(|after| !seen[after.index()]);
                open.extend(unseen.map(|&after| (after, false)));
                open[from..].sort_unstable_by_key(|(after, _)| std::cmp::Reverse(position[after.index()]));
            }
        }
    }
    order
}
