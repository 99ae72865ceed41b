//! Memory and kernels.

use memfit_ir::{BufferId, Bytes, Codec, Compute, Content, Graph, Limits, OpId, Plan, ValueId};

use super::codebook::Codebook;
use super::kernel::{element, filled, hash, is_paired, pair, start, whole, written};

/// What went wrong, without where.
pub(super) type Ran<T> = Result<T, &'static str>;

/// A byte range in a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    bank: usize,
    start: usize,
    end: usize,
}

/// No test needs a bank larger than this.
const LARGEST: u64 = 1 << 24;

/// Device memory.
pub(super) struct Machine<'a> {
    pub(super) graph: &'a Graph,
    pub(super) limits: &'a Limits,
    pub(super) plan: &'a Plan,
    pub(super) backwards: bool,
    banks: Vec<Vec<u8>>,
    pub(super) peaks: Vec<Bytes>,
    /// Buffers that some step has filled.
    pub(super) filled: Vec<bool>,
    noise: u8,
    codes: Codebook,
}

/// A kernel that has written its outputs but is not over: what must not have changed when it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    inputs: Vec<(Span, u64)>,
    outputs: Vec<Span>,
    workspace: Option<(Span, u8)>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(graph: &'a Graph, limits: &'a Limits, plan: &'a Plan, backwards: bool) -> Self {
        Machine {
            graph,
            limits,
            plan,
            backwards,
            banks: vec![Vec::new(); limits.banks.len()],
            peaks: vec![Bytes::ZERO; limits.banks.len()],
            filled: vec![false; plan.program.buffers.len()],
            noise: 0x31,
            codes: Codebook::default(),
        }
    }

    pub(super) fn noise(&mut self) -> u8 {
        self.noise = self.noise.wrapping_mul(5).wrapping_add(0x4D);
        self.noise
    }

    /// `size` bytes where `buffer` lies.
    pub(super) fn span(&mut self, buffer: BufferId, size: Bytes) -> Ran<Span> {
        let place = self.plan.layout.place(buffer).ok_or("a buffer without a place")?;
        let bank = self.limits.banks.get(usize::from(place.bank)).ok_or("a bank that does not exist")?;
        if place.offset.0 % bank.align.0.max(1) != 0 {
            return Err("a misaligned address");
        }
        let end = place.offset.checked_add(size).filter(|&end| end <= bank.capacity);
        let end = end.ok_or("an address beyond its bank")?;
        if end.0 > LARGEST {
            return Err("too large to run here");
        }
        let (bank, cast) = (usize::from(place.bank), |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(0));
        let span = Span { bank, start: cast(place.offset), end: cast(end) };
        let noise = self.noise();
        let memory = &mut self.banks[bank];
        if memory.len() < span.end {
            memory.resize(span.end, noise);
        }
        Ok(span)
    }

    /// All bytes of `buffer`, as many as it says it has.
    pub(super) fn all(&mut self, buffer: BufferId) -> Ran<Span> {
        let size = self.plan.program.buffers.get(buffer.index()).ok_or("a buffer that does not exist")?.size;
        self.span(buffer, size)
    }

    /// As [`Machine::all`], of a buffer that is filled now with `content`.
    pub(super) fn fill_span(&mut self, buffer: BufferId, content: Option<ValueId>) -> Ran<Span> {
        let span = self.all(buffer)?;
        let size = self.plan.program.buffers[buffer.index()].size;
        let place = self.plan.layout.place(buffer).ok_or("a buffer without a place")?;
        let pin = content.and_then(|value| self.graph.value(value).pin);
        let elsewhere = |offset: Bytes| offset != place.offset;
        if pin.is_some_and(|pin| pin.bank != place.bank || pin.offset.is_some_and(elsewhere)) {
            return Err("a pinned value elsewhere");
        }
        let peak = &mut self.peaks[span.bank];
        *peak = (*peak).max(place.offset + size);
        self.filled[buffer.index()] = true;
        Ok(span)
    }

    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        &self.banks[span.bank][span.start..span.end]
    }

    pub(super) fn store(&mut self, span: Span, bytes: &[u8]) {
        let into = &mut self.banks[span.bank][span.start..span.end];
        into.iter_mut().zip(bytes).for_each(|(into, from)| *into = *from);
    }

    pub(super) fn scribble(&mut self, span: Span) -> u8 {
        let noise = self.noise();
        self.banks[span.bank][span.start..span.end].fill(noise);
        noise
    }

    /// Forgets everything.
    pub(super) fn scribble_all(&mut self) {
        let noise = self.noise();
        self.banks.iter_mut().for_each(|bank| bank.fill(noise));
    }

    fn value_size(&self, value: ValueId) -> Ran<Bytes> {
        if value.index() >= self.graph.value_count() {
            return Err("a value that does not exist");
        }
        Ok(self.graph.value(value).size)
    }

    /// Runs a kernel up to where it has written everything.
    pub(super) fn begin(&mut self, compute: &Compute, salt: u64) -> Ran<Pending> {
        let op = self.graph.op(compute.op);
        let (read, write) = (self.plan.program.reads(compute), self.plan.program.writes(compute));
        if read.len() != op.reads.len() || write.len() != op.writes.len() {
            return Err("operands do not match the op");
        }
        let mut inputs = Vec::with_capacity(read.len());
        for (&buffer, &value) in read.iter().zip(op.reads) {
            inputs.push(self.span(buffer, self.graph.value(value).size)?);
        }
        let mut outputs = Vec::with_capacity(write.len());
        for (&buffer, &value) in write.iter().zip(op.writes) {
            self.fill_span(buffer, Some(value))?;
            outputs.push(self.span(buffer, self.graph.value(value).size)?);
        }
        let workspace = self.workspace(compute)?;
        let workspace = workspace.map(|span| (span, self.scribble(span)));
        // An input may be overwritten where an output takes its bytes over, and nowhere else.
        let mut kept: Vec<(Span, u64)> = Vec::with_capacity(inputs.len());
        for (at, &span) in inputs.iter().enumerate() {
            let takes = |pair: &memfit_ir::Reuse| {
                pair.input == op.reads[at]
                    && op.writes.iter().zip(&outputs).any(|(&out, &to)| out == pair.output && to == span)
            };
            if !op.reuses.iter().any(takes) {
                kept.push((span, hash(0, self.bytes(span))));
            }
        }
        let mut state = start(compute.op.index(), salt);
        for (at, &span) in inputs.iter().enumerate().filter(|&(at, _)| !is_paired(&op, at)) {
            state = whole(state, at, op.need(at), self.bytes(span));
        }
        let most = outputs.iter().map(|span| (span.end - span.start).div_ceil(2)).max().unwrap_or(0);
        let mut firsts = vec![0; outputs.len()];
        let fills: Vec<usize> = op.writes.iter().map(|&value| filled(&self.graph.value(value))).collect();
        let paired: Vec<(usize, Span)> =
            inputs.iter().copied().enumerate().filter(|&(at, _)| is_paired(&op, at)).collect();
        for step in 0..most {
            let at = if self.backwards { most - 1 - step } else { step };
            let mut state = state;
            for &(operand, span) in &paired {
                state = element(state, operand, op.need(operand), self.bytes(span), at);
            }
            for (output, first) in firsts.iter_mut().enumerate() {
                *first = written(state, output, at);
            }
            for step in 0..outputs.len() {
                let output = if self.backwards { outputs.len() - 1 - step } else { step };
                let (span, first) = (outputs[output], firsts[output]);
                let memory = &mut self.banks[span.bank][span.start..span.end];
                for (into, byte) in memory.iter_mut().skip(2 * at).zip(pair(first, 2 * at, fills[output])) {
                    *into = byte;
                }
            }
        }
        Ok(Pending { inputs: kept, outputs, workspace })
    }

    /// Scratch bytes: as many as the algorithm takes, or as it is given.
    fn workspace(&mut self, compute: &Compute) -> Ran<Option<Span>> {
        let op = self.graph.op(compute.op);
        let needed = match usize::from(compute.algorithm).checked_sub(1) {
            None => op.workspace,
            Some(at) => op.algorithms.get(at).ok_or("an algorithm that does not exist")?.workspace,
        };
        match compute.workspace {
            None if needed > Bytes::ZERO => Err("no workspace"),
            None => Ok(None),
            Some(buffer) => {
                self.fill_span(buffer, None)?;
                self.filled[buffer.index()] = false;
                let given = self.plan.program.buffers[buffer.index()].size;
                self.span(buffer, needed.max(given)).map(Some)
            }
        }
    }

    /// Ends a kernel: had anybody touched what it was working on, its outputs are worth nothing.
    pub(super) fn finish(&mut self, pending: &Pending) {
        let changed = pending.inputs.iter().any(|&(span, was)| hash(0, self.bytes(span)) != was);
        let dirty = |&(span, was): &(Span, u8)| self.bytes(span).iter().any(|&byte| byte != was);
        let spoilt = changed || pending.workspace.as_ref().is_some_and(dirty);
        if let Some((span, _)) = pending.workspace {
            self.scribble(span);
        }
        if spoilt {
            for &span in &pending.outputs {
                self.scribble(span);
            }
        }
    }

    /// Writes the encoded form of what `from` holds.
    pub(super) fn encode(&mut self, from: BufferId, to: BufferId) -> Ran<()> {
        let Some(Content::Encoded(value, codec)) = self.content(to) else {
            return Err("no codec to encode with");
        };
        let size = self.value_size(value)?;
        let source = self.span(from, size)?;
        self.fill_span(to, None)?;
        let this = self.graph.value(value);
        let target = self.span(to, codec.room(&this))?;
        let before = hash(0, self.bytes(source));
        let plain = self.bytes(source).to_vec();
        let encoded = self.pack(plain, (value, codec), target.end - target.start);
        self.store(target, &encoded);
        if hash(0, self.bytes(source)) != before {
            self.scribble(target);
        }
        Ok(())
    }

    /// `plain`, which `value` is, encoded into `room` bytes.
    pub(super) fn pack(&mut self, plain: Vec<u8>, (value, codec): (ValueId, Codec), room: usize) -> Vec<u8> {
        let this = self.graph.value(value);
        let allowed = !codec.is_lossy() || self.limits.lossy.contains(&codec);
        self.codes.encode(plain, codec, allowed && codec.suits(this.dtype), room, filled(&this))
    }

    /// Whether `right` comes out of what is encoded at `span`.
    pub(super) fn unpacks_to(&self, span: Span, codec: Codec, right: &[u8]) -> bool {
        self.codes.decode(self.bytes(span), codec, right.len()).as_deref() == Some(right)
    }

    /// Writes back what `from` holds encoded.
    pub(super) fn decode(&mut self, from: BufferId, to: BufferId) -> Ran<()> {
        let Some(Content::Encoded(value, codec)) = self.content(from) else {
            return Err("no codec to decode with");
        };
        let size = self.value_size(value)?;
        let source = self.span(from, codec.room(&self.graph.value(value)))?;
        self.fill_span(to, Some(value))?;
        let target = self.span(to, size)?;
        let before = hash(0, self.bytes(source));
        let bytes = self.codes.decode(self.bytes(source), codec, target.end - target.start);
        match bytes {
            Some(bytes) => self.store(target, &bytes),
            None => drop(self.scribble(target)),
        }
        if hash(0, self.bytes(source)) != before {
            self.scribble(target);
        }
        Ok(())
    }

    pub(super) fn content(&self, buffer: BufferId) -> Option<Content> {
        self.plan.program.buffers.get(buffer.index()).map(|buffer| buffer.content)
    }

    pub(super) fn op_exists(&self, op: OpId) -> Ran<()> {
        if op.index() < self.graph.op_count() { Ok(()) } else { Err("an op that does not exist") }
    }
}
