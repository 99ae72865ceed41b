//! What ordering needs of a graph: dependencies, and who brings and takes how many bytes.

use memfit_ir::{Bytes, Csr, Graph, InPlace, OpId, ValueId};

use crate::dependencies::Dependencies;

/// A graph reduced to the question of its order, in flat arrays. Made once and shared by all orders.
///
/// Bytes are those of buffers rounded up to the alignment, as signed numbers: changes may be negative.
/// Values are named by their index. Exact while all sizes together stay below 2^62 bytes.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) deps: Dependencies,
    /// By value: its bytes.
    pub(super) size: Vec<i64>,
    /// By value: whether it is there before the first step.
    pub(super) source: Vec<bool>,
    /// By value: the op that defines it.
    pub(super) producer: Vec<Option<OpId>>,
    /// By value: whether it stays to the end.
    pub(super) kept: Vec<bool>,
    /// By value: the ops that read it, each once.
    pub(super) readers: Csr<OpId>,
    /// By op: the values it reads, each once.
    pub(super) reads: Csr<u32>,
    /// By op: the values it defines.
    pub(super) writes: Csr<u32>,
    /// By value: whether its bytes are resident from the first step to the last: the versions of a storage
    /// that is there at the start and kept at the end.
    pub(super) permanent: Vec<bool>,
    /// By op: outputs and workspace, less the bytes it must take over.
    pub(super) needs: Vec<i64>,
    /// By op: outputs that stay when it's done.
    pub(super) makes: Vec<i64>,
    /// By op: permitted takeovers `(output, input)`, in the order in which they are tried.
    pub(super) takes: Csr<(u32, u32)>,
    /// Bytes of all sources, which are there before the first step.
    pub(super) sources: i64,
    /// The same without those that nothing reads or keeps.
    pub(super) start: i64,
    /// Bytes of all results, which are there after the last step.
    pub(super) end: i64,
    /// Whether the program has any step at all.
    steps: bool,
}

impl Model {
    /// The model of `graph` on a device that aligns buffers to `align`, where programs take up in-place pairs
    /// as `in_place` says. Time and space O(ops + operands).
    #[must_use]
    pub fn new(graph: &Graph, align: Bytes, in_place: InPlace) -> Model {
        let all = graph.value_ids().map(|value| graph.value(value).size);
        let all = all.chain(graph.op_ids().map(|op| graph.op(op).workspace));
        let total: Bytes = all.map(|bytes| bytes.round_up(align)).sum();
        // Sums must not wrap, not even where an absurd alignment makes every buffer absurdly large.
        let count = index(graph.value_count() + graph.op_count() + 1);
        let most = if total.0 < 1 << 62 { 1 << 62 } else { (1 << 62) / i64::from(count) };
        let rounded = |bytes: Bytes| i64::try_from(bytes.round_up(align).0).unwrap_or(i64::MAX).min(most);
        let size: Vec<i64> = graph.value_ids().map(|value| rounded(graph.value(value).size)).collect();
        let kept: Vec<bool> = graph.value_ids().map(|value| graph.is_result(value)).collect();
        let mut reads = Csr::default();
        let mut takes = Csr::default();
        let mut pairs: Vec<(usize, OpId)> = Vec::new();
        let mut seen: Vec<Option<OpId>> = vec![None; size.len()];
        for id in graph.op_ids() {
            let op = graph.op(id);
            let fresh = |value: &&ValueId| seen[value.index()].replace(id) != Some(id);
            let from = pairs.len();
            pairs.extend(op.reads.iter().filter(fresh).map(|value| (value.index(), id)));
            reads.push(pairs[from..].iter().map(|&(value, _)| index(value)));
            let demanded = |input: ValueId| graph.value(input).mutator == Some(id);
            let forced = |output: ValueId| graph.value(output).over.is_some();
            let outputs = op.writes.iter().filter(|&&output| in_place == InPlace::May && !forced(output));
            takes.push(outputs.flat_map(|&output| {
                let inputs = graph.value(output).may_over.iter().filter(|&&input| !demanded(input));
                inputs.map(move |input| (output.0, input.0))
            }));
        }
        let mut writes = Csr::default();
        graph.op_ids().for_each(|id| writes.push(graph.op(id).writes.iter().map(|value| value.0)));
        let readers = Csr::from_pairs(size.len(), pairs.iter().copied());
        let stays = |value: usize| kept[value] || !readers.row(value).is_empty();
        let (mut needs, mut makes) = (Vec::new(), Vec::new());
        for id in graph.op_ids() {
            let op = graph.op(id);
            let outputs: i64 = op.writes.iter().map(|value| size[value.index()]).sum();
            let taken = op.reuses.iter().filter(|pair| pair.must).map(|pair| size[pair.output.index()]);
            needs.push(outputs + rounded(op.workspace) - taken.sum::<i64>());
            makes.push(op.writes.iter().map(|v| v.index()).filter(|&v| stays(v)).map(|v| size[v]).sum());
        }
        let producer: Vec<Option<OpId>> = graph.value_ids().map(|v| graph.value(v).producer).collect();
        let source: Vec<bool> = producer.iter().map(Option::is_none).collect();
        let sources = (0..size.len()).filter(|&v| source[v]).map(|v| size[v]).sum();
        let start = (0..size.len()).filter(|&v| source[v] && stays(v)).map(|v| size[v]).sum();
        let end = (0..size.len()).filter(|&v| kept[v]).map(|v| size[v]).sum();
        let steps = graph.op_count() > 0 || (0..size.len()).any(|v| source[v] && !stays(v));
        let deps = Dependencies::of(graph);
        let permanent = graph.lasting();
        Model {
            deps,
            size,
            source,
            producer,
            kept,
            readers,
            reads,
            writes,
            permanent,
            needs,
            makes,
            takes,
            sources,
            start,
            end,
            steps,
        }
    }

    /// Number of ops.
    #[must_use]
    pub fn op_count(&self) -> usize {
        self.needs.len()
    }

    /// What must run before what.
    #[must_use]
    pub fn dependencies(&self) -> &Dependencies {
        &self.deps
    }

    /// Bytes that are live at some step, whatever the order: before the first op all sources, after the last
    /// one all results.
    pub(super) fn floor(&self) -> i64 {
        let end = if self.op_count() > 0 { self.end } else { 0 };
        if self.steps { self.sources.max(end) } else { 0 }
    }
}

/// An index that is known to be in range of a graph's ids.
pub(super) fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// A number of bytes that is known not to be negative.
pub(super) fn bytes(amount: i64) -> Bytes {
    Bytes(u64::try_from(amount).unwrap_or(0))
}
