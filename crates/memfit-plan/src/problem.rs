//! What ordering and scheduling ask of a graph: who reads, defines and mutates what, and how many bytes that is.

use memfit_ir::{Bytes, Csr, Graph, InPlace, OpId, Reuse, ValueId};

/// A graph on a device that aligns buffers, in flat arrays by op and by value.
///
/// Orders and schedules stand on the same one: [`Model`](crate::order::Model) adds what an order needs of each op,
/// [`Task`](crate::schedule::Task) sees it through an order of first runs.
///
/// Bytes are those of buffers rounded up to the alignment, as signed numbers: changes may be negative. Exact while all
/// sizes together stay below 2^62 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// By op: the values it reads, each once.
    pub(crate) reads: Csr<ValueId>,
    /// By op: the values it defines.
    pub(crate) writes: Csr<ValueId>,
    /// By op: the pairs that programs take up, in the order in which they are tried, demanded ones first. No
    /// resident value is the input of a permitted one: its bytes are needed up to the end.
    pub(crate) reuses: Csr<Reuse>,
    /// By op: scratch bytes.
    pub(crate) workspace: Vec<i64>,
    /// By value: its bytes, persistent or not.
    pub(crate) bytes: Vec<i64>,
    /// By value: the op that defines it. Sources have none, and are there before the first step.
    pub(crate) producer: Vec<Option<OpId>>,
    /// By value: the op that mutates it, after whose run it is gone.
    pub(crate) mutator: Vec<Option<OpId>>,
    /// By value: the ops that read it, ascending, each once.
    pub(crate) readers: Csr<OpId>,
    /// By value: whether it is a version of a storage that is there at the start and at the end, whose bytes are
    /// taken from the first step to the last.
    pub(crate) resident: Vec<bool>,
    /// By value: whether it must be there at the end.
    pub(crate) live_out: Vec<bool>,
}

impl Problem {
    /// That of `graph` on a device that aligns buffers to `align`, where programs take up in-place pairs as
    /// `in_place` says: permitted ones only with [`InPlace::May`]. Time and space O(ops + operands).
    pub(crate) fn of(graph: &Graph, align: Bytes, in_place: InPlace) -> Problem {
        let rounded = rounded(graph, align);
        let values = || graph.value_ids().map(|value| graph.value(value));
        let resident = graph.lasting();
        let (mut reads, mut writes, mut reuses) = (Csr::default(), Csr::default(), Csr::default());
        let mut pairs: Vec<(usize, OpId)> = Vec::new();
        let mut seen: Vec<Option<OpId>> = vec![None; graph.value_count()];
        for id in graph.op_ids() {
            let op = graph.op(id);
            let from = pairs.len();
            let fresh = |value: &&ValueId| seen[value.index()].replace(id) != Some(id);
            pairs.extend(op.reads.iter().filter(fresh).map(|value| (value.index(), id)));
            reads.push(pairs[from..].iter().map(|&(value, _)| ValueId::at(value)));
            writes.push(op.writes.iter().copied());
            let must = op.reuses.iter().filter(|pair| pair.must).copied();
            let demanded = |input: ValueId| graph.value(input).mutator == Some(id);
            let forced = |output: ValueId| graph.value(output).over.is_some();
            let outputs = op.writes.iter().filter(|&&output| in_place == InPlace::May && !forced(output));
            let may = outputs.flat_map(|&output| {
                let inputs = graph.value(output).may_over.iter();
                let inputs = inputs.filter(|&&input| !demanded(input) && !resident[input.index()]);
                inputs.map(move |&input| Reuse { input, output, must: false })
            });
            reuses.push(must.chain(may));
        }
        Problem {
            readers: Csr::from_pairs(graph.value_count(), pairs.iter().copied()),
            reads,
            writes,
            reuses,
            workspace: graph.op_ids().map(|op| rounded(graph.op(op).workspace)).collect(),
            bytes: values().map(|value| rounded(value.size)).collect(),
            producer: values().map(|value| value.producer).collect(),
            mutator: values().map(|value| value.mutator).collect(),
            resident,
            live_out: graph.value_ids().map(|value| graph.is_result(value)).collect(),
        }
    }

    /// The pairs of `op` that programs must take up.
    pub(crate) fn demanded(&self, op: usize) -> &[Reuse] {
        let pairs = self.reuses.row(op);
        &pairs[..pairs.partition_point(|pair| pair.must)]
    }

    /// The pairs of `op` that programs take up where the input ends with it, in the order in which they are tried.
    pub(crate) fn permitted(&self, op: usize) -> &[Reuse] {
        let pairs = self.reuses.row(op);
        &pairs[pairs.partition_point(|pair| pair.must)..]
    }

    /// Number of ops.
    pub(crate) fn op_count(&self) -> usize {
        self.workspace.len()
    }

    /// Number of values.
    pub(crate) fn value_count(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of all values of which `is_meant` says so of their index.
    pub(crate) fn sum(&self, is_meant: impl Fn(usize) -> bool) -> i64 {
        (0..self.value_count()).filter(|&value| is_meant(value)).map(|value| self.bytes[value]).sum()
    }
}

/// How bytes of `graph` are rounded up to `align`. Sums must not wrap, not even where an absurd alignment makes every
/// buffer absurdly large.
fn rounded(graph: &Graph, align: Bytes) -> impl Fn(Bytes) -> i64 {
    let all = graph.value_ids().map(|value| graph.value(value).size);
    let all = all.chain(graph.op_ids().map(|op| graph.op(op).workspace));
    let total: Bytes = all.map(|bytes| bytes.round_up(align)).sum();
    let count = i64::try_from(graph.value_count() + graph.op_count() + 1).unwrap_or(i64::MAX);
    let most = if total.0 < 1 << 62 { 1 << 62 } else { (1 << 62) / count };
    move |bytes| i64::try_from(bytes.round_up(align).0).unwrap_or(i64::MAX).min(most)
}

/// A number of bytes that is known not to be negative.
pub(crate) fn bytes(amount: i64) -> Bytes {
    Bytes(u64::try_from(amount).unwrap_or(0))
}

/// A number of bytes as it is counted here: budgets beyond measure become a limit that is never met.
pub(crate) fn signed(amount: Bytes) -> i64 {
    i64::try_from(amount.0).unwrap_or(i64::MAX >> 1).min(i64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use memfit_ir::text::parse;

    use super::*;

    /// A storage that lasts has a size like all others, in each of its versions, and is no input of a permitted pair.
    #[test]
    fn what_is_resident_has_a_size_and_stays() {
        let text = r#"graph "a step"
  v0 = parameter 10 "w"
  v1 = input 20 "x"
  v2 = activation 10 "y"
  op0 = forward f(v0, v0, v1) -> v2 "f" may=v0>v2
  v3 = gradient 10 "g"
  op1 = backward g(v2) -> v3 "g" may=v2>v3
  v4 = parameter 10 "w'"
  op2 = update u(v0, v3) -> v4 "u" must=v0>v4
"#;
        let graph = parse(text).unwrap().graph.unwrap();
        let problem = Problem::of(&graph, Bytes(16), InPlace::May);
        assert_eq!(problem.bytes, [16, 32, 16, 16, 16]);
        assert_eq!(problem.resident, [true, false, false, false, true]);
        assert_eq!(problem.live_out, [false, false, false, false, true]);
        assert_eq!((problem.mutator[0], problem.producer[4]), (Some(OpId(2)), Some(OpId(2))));
        assert_eq!(
            (problem.reads.row(0), problem.readers.row(0)),
            (&[ValueId(0), ValueId(1)][..], &[OpId(0), OpId(2)][..])
        );
        let pair = |input, output, must| Reuse { input: ValueId(input), output: ValueId(output), must };
        assert_eq!(
            (0..3).map(|op| problem.permitted(op)).collect::<Vec<_>>(),
            [&[][..], &[pair(2, 3, false)], &[]]
        );
        assert_eq!(
            (0..3).map(|op| problem.demanded(op)).collect::<Vec<_>>(),
            [&[][..], &[], &[pair(0, 4, true)]]
        );
        assert!(Problem::of(&graph, Bytes(16), InPlace::Must).permitted(1).is_empty());
    }
}
