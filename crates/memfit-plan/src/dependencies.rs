//! Which ops must run before which: the constraints every order keeps.

use memfit_ir::{Csr, Effect, Graph, OpId};

/// The ops that each op must come after, and those that must come after it.
///
/// Three kinds of edge, each pair of ops once: an op runs after the ops that define its inputs; an op that
/// mutates a storage (a *must* pair) runs after every other reader of the version it overwrites; seeded ops
/// keep the graph's order among themselves, and so do, together, once and collective ops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    preds: Csr<OpId>,
    succs: Csr<OpId>,
}

impl Dependencies {
    /// The dependencies of `graph`. Time and space O(ops + operands).
    #[must_use]
    pub fn of(graph: &Graph) -> Dependencies {
        let mut edges: Vec<(OpId, OpId)> = Vec::new();
        let (mut seeded, mut outside): (Option<OpId>, Option<OpId>) = (None, None);
        for id in graph.op_ids() {
            let op = graph.op(id);
            edges.extend(op.reads.iter().filter_map(|&value| Some((graph.value(value).producer?, id))));
            for pair in op.reuses.iter().filter(|pair| pair.must) {
                let readers = graph.value(pair.input).readers.iter();
                edges.extend(readers.filter(|&&reader| reader != id).map(|&reader| (reader, id)));
            }
            let chain = match op.effect {
                Effect::Pure => continue,
                Effect::Seeded => &mut seeded,
                Effect::Once | Effect::Collective => &mut outside,
            };
            edges.extend(chain.replace(id).map(|before| (before, id)));
        }
        let count = graph.op_count();
        // Rows of preds are filled in the order of the edges; a row is a set, so repetitions go first.
        let mut last = vec![None; count];
        let succs = Csr::from_pairs(count, edges.iter().map(|&(before, after)| (before.index(), after)));
        let mut unique: Vec<(OpId, OpId)> = Vec::with_capacity(edges.len());
        for before in graph.op_ids() {
            for &after in succs.row(before.index()) {
                if last[after.index()].replace(before) != Some(before) {
                    unique.push((before, after));
                }
            }
        }
        Dependencies {
            preds: Csr::from_pairs(count, unique.iter().map(|&(before, after)| (after.index(), before))),
            succs: Csr::from_pairs(count, unique.iter().map(|&(before, after)| (before.index(), after))),
        }
    }

    /// Ops that `op` directly depends on, ascending, each once.
    #[must_use]
    pub fn preds(&self, op: OpId) -> &[OpId] {
        self.preds.row(op.index())
    }

    /// Ops that directly depend on `op`, each once.
    #[must_use]
    pub fn succs(&self, op: OpId) -> &[OpId] {
        self.succs.row(op.index())
    }

    /// Number of ops.
    #[must_use]
    pub fn op_count(&self) -> usize {
        self.preds.rows()
    }

    /// Whether `order` holds every op once, each after all it depends on.
    #[must_use]
    pub fn allow(&self, order: &[OpId]) -> bool {
        let mut done = vec![false; self.op_count()];
        order.len() == done.len()
            && order.iter().all(|&op| {
                op.index() < done.len()
                    && self.preds(op).iter().all(|before| done[before.index()])
                    && !std::mem::replace(&mut done[op.index()], true)
            })
    }
}

#[cfg(test)]
mod tests {
    use memfit_ir::{Bytes, Effect, GraphBuilder, OpId, OpSpec, Reuse, Role, ValueId, ValueSpec};

    use super::Dependencies;

    /// Values of 8 bytes, the first `sources` of them parameters; ops as (reads, writes, effect).
    fn graph(sources: usize, values: usize, ops: &[(&[u32], &[u32], Effect, bool)]) -> memfit_ir::Graph {
        let mut b = GraphBuilder::new("t");
        for at in 0..values {
            let role = if at < sources { Role::Parameter } else { Role::Activation };
            b.value(ValueSpec { size: Bytes(8), role, ..ValueSpec::default() }).unwrap();
        }
        for &(reads, writes, effect, must) in ops {
            let reads: Vec<_> = reads.iter().map(|&v| ValueId(v)).collect();
            let writes: Vec<_> = writes.iter().map(|&v| ValueId(v)).collect();
            let reuses = if must { vec![Reuse { input: reads[0], output: writes[0], must }] } else { vec![] };
            b.op(OpSpec { reads, writes, effect, reuses, ..OpSpec::default() }).unwrap();
        }
        b.finish().unwrap()
    }

    #[test]
    fn an_update_comes_after_the_last_reader_of_its_parameter() {
        let g = graph(
            1,
            5,
            &[
                (&[0], &[1], Effect::Pure, false),
                (&[0, 1, 1], &[2], Effect::Pure, false),
                (&[], &[3], Effect::Pure, false),
                (&[0, 3], &[4], Effect::Pure, true),
            ],
        );
        let deps = Dependencies::of(&g);
        assert_eq!(deps.preds(OpId(1)), [OpId(0)]);
        assert_eq!(deps.preds(OpId(3)), [OpId(0), OpId(1), OpId(2)]);
        assert_eq!(deps.succs(OpId(0)), [OpId(1), OpId(3)]);
        let order = |ids: &[u32]| ids.iter().map(|&id| OpId(id)).collect::<Vec<_>>();
        assert!(deps.allow(&order(&[2, 0, 1, 3])));
        for wrong in [&[0, 2, 3, 1][..], &[0, 1, 2], &[0, 1, 1, 3], &[0, 1, 2, 9]] {
            assert!(!deps.allow(&order(wrong)), "{wrong:?}");
        }
    }

    #[test]
    fn effects_keep_their_order_in_two_chains() {
        use Effect::{Collective, Once, Pure, Seeded};
        let g = graph(
            0,
            0,
            &[
                (&[], &[], Seeded, false),
                (&[], &[], Once, false),
                (&[], &[], Pure, false),
                (&[], &[], Seeded, false),
                (&[], &[], Collective, false),
            ],
        );
        let deps = Dependencies::of(&g);
        assert_eq!(deps.preds(OpId(3)), [OpId(0)]);
        assert_eq!(deps.preds(OpId(4)), [OpId(1)]);
        assert!([0, 1, 2].iter().all(|&op| deps.preds(OpId(op)).is_empty()));
        assert!(Dependencies::default().allow(&[]));
    }
}
