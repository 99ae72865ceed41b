//! From runs to the steps of a program.

use memfit_ir::{BufferId, Bytes, Content, Program, Step};

use super::Task;
use super::task::SNAPSHOT;

/// A program in the making.
pub(super) struct Lowering<'t, 'g> {
    task: &'t Task<'g>,
    pub(super) program: Program,
    /// By value: the buffer that holds it now.
    holder: Vec<Option<BufferId>>,
    /// By node: how many runs are to come.
    left: Vec<u32>,
    ran: Vec<bool>,
    /// By node: the buffers of its snapshots.
    snapshots: Vec<Vec<BufferId>>,
}

impl<'t, 'g> Lowering<'t, 'g> {
    pub(super) fn new(task: &'t Task<'g>, runs: &[u32]) -> Self {
        let mut left = vec![0; task.nodes()];
        for &node in runs {
            left[node as usize] += 1;
        }
        Lowering {
            task,
            program: Program::default(),
            holder: vec![None; task.graph.value_count()],
            ran: vec![false; task.nodes()],
            snapshots: vec![Vec::new(); task.nodes()],
            left,
        }
    }

    /// Sources are there; those that nothing needs go at once.
    pub(super) fn sources(&mut self) {
        let (task, graph) = (self.task, self.task.graph);
        for value in graph.value_ids().filter(|&value| graph.value(value).producer.is_none()) {
            let buffer = self.program.buffer(Content::Value(value), graph.value(value).size, None);
            self.program.resident.push(buffer);
            self.holder[value.index()] = Some(buffer);
        }
        for value in 0..self.holder.len() {
            if task.readers.row(value).is_empty() && !task.live_out[value] {
                self.free(value);
            }
        }
    }

    fn free(&mut self, value: usize) {
        if let Some(buffer) = self.holder[value].take() {
            self.program.steps.push(Step::Free(buffer));
        }
    }

    /// One run of `node`, after which its operands in `dying` are not needed.
    pub(super) fn run(&mut self, node: u32, dying: &[u32]) -> Option<()> {
        let (task, at) = (self.task, node as usize);
        let graph = task.graph;
        let op = graph.op(task.order[at]);
        let first = !std::mem::replace(&mut self.ran[at], true);
        self.left[at] -= 1;
        let snapped = task.snapped.row(at);
        let mut unpacked: Vec<(u32, BufferId)> = Vec::new();
        for (index, &(input, _)) in snapped.iter().enumerate() {
            let (value, size) = (memfit_ir::ValueId(input), graph.value(memfit_ir::ValueId(input)).size);
            if !first {
                let to = self.program.buffer(Content::Value(value), size, None);
                self.program.steps.push(Step::Decode { from: self.snapshots[at][index], to });
                unpacked.push((input, to));
            } else if self.left[at] > 0 {
                let content = Content::Encoded(value, SNAPSHOT);
                let to = self.program.buffer(content, SNAPSHOT.bound(size), None);
                self.program.steps.push(Step::Encode { from: self.holder[value.index()]?, to });
                self.snapshots[at].push(to);
            }
        }
        let find = |value: u32| unpacked.iter().find(|(input, _)| *input == value).map(|&(_, buffer)| buffer);
        let reads = op.reads.iter().map(|value| find(value.0).or(self.holder[value.index()]));
        let reads: Vec<BufferId> = reads.collect::<Option<_>>()?;
        let mut over: Vec<(u32, u32)> = Vec::new();
        task.each_reuse(at, |value| dying.contains(&value), |pair| over.push((pair.output.0, pair.input.0)));
        let mut writes = Vec::with_capacity(op.writes.len());
        let mut aside: Vec<BufferId> = Vec::new();
        for &value in op.writes {
            let taken = over.iter().find(|(output, _)| *output == value.0).map(|&(_, input)| input);
            let copy = taken.and_then(find);
            let taken = copy.or_else(|| taken.and_then(|input| self.holder[input as usize].take()));
            let buffer = self.program.buffer(Content::Value(value), graph.value(value).size, taken);
            if copy.is_some() {
                aside.push(buffer);
            } else {
                self.holder[value.index()] = Some(buffer);
            }
            writes.push(buffer);
        }
        let scratch =
            (op.workspace > Bytes::ZERO).then(|| self.program.buffer(Content::Workspace, op.workspace, None));
        let step = self.program.compute(task.order[at], 0, reads, writes, scratch);
        self.program.steps.push(step);
        if !first && self.left[at] == 0 {
            aside.append(&mut self.snapshots[at]);
        }
        self.program.steps.extend(aside.into_iter().map(Step::Free));
        let is_aside =
            |value: u32| !first && snapped.iter().any(|&(input, output)| value == input || value == output);
        for &value in dying.iter().filter(|&&value| !is_aside(value)) {
            self.free(value as usize);
        }
        Some(())
    }
}
