//! What runs: a straight-line program over buffers, each filled once.

use std::collections::BTreeSet;

use crate::{BufferId, Bytes, Codec, CopyId, OpId, StepId, Tier, ValueId};

/// What a buffer or a host copy is claimed to hold. The judge does not believe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// A value, as the graph defines it.
    Value(ValueId),
    /// A value, encoded.
    Encoded(ValueId, Codec),
    /// Scratch memory of one step; nothing is ever read from it afterwards.
    Workspace,
}

impl Content {
    /// The value that it is, or is an encoded form of.
    #[must_use]
    pub fn value(self) -> Option<ValueId> {
        match self {
            Content::Value(value) | Content::Encoded(value, _) => Some(value),
            Content::Workspace => None,
        }
    }

    /// The codec that it is encoded by, if it is.
    #[must_use]
    pub fn codec(self) -> Option<Codec> {
        match self {
            Content::Encoded(_, codec) => Some(codec),
            Content::Value(_) | Content::Workspace => None,
        }
    }
}

/// One stay of something in device memory. A value that is recomputed once has two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// What it holds once the step that defines it has run.
    pub content: Content,
    /// Bytes occupied.
    pub size: Bytes,
    /// The buffer whose very bytes this one takes over (in-place): that buffer must be read by the step
    /// that defines this one, ends there, and must not be freed. What a step encodes takes over an earlier version of the same
    /// storage in the same encoding, which it does not read: that is how a storage is at home encoded.
    pub over: Option<BufferId>,
}

/// One stay of something in another tier: host memory, or a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCopy {
    /// What it holds.
    pub content: Content,
    /// Bytes occupied.
    pub size: Bytes,
    /// Where.
    pub tier: Tier,
}

/// Runs an operation. Operands stand in the program's flat list, see [`Program::reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// The operation.
    pub op: OpId,
    /// Which of the op's algorithms: 0 is its own cost and workspace, `k` is `algorithms[k − 1]`.
    pub algorithm: u16,
    /// Scratch memory, live during this step only; never freed by a step.
    pub workspace: Option<BufferId>,
    start: u32,
    reads: u32,
    writes: u32,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run an operation; the first one of an op computes it, later ones recompute it.
    Compute(Compute),
    /// End a buffer's stay.
    Free(BufferId),
    /// Start copying a buffer to the copy's tier. The copy may be used, and the buffer freed, after an `Await`.
    Offload {
        /// What is copied; it stays readable.
        from: BufferId,
        /// The new host copy.
        to: CopyId,
    },
    /// Start copying from another tier into a new buffer. The buffer may be read after an `Await`.
    Fetch {
        /// What is copied; it stays.
        from: CopyId,
        /// The new buffer.
        to: BufferId,
    },
    /// End a host copy's stay.
    Discard(CopyId),
    /// Wait on this step's lane until an earlier step (a transfer, or a step of another lane) is complete.
    Await(StepId),
    /// Write the encoded form of a value into a new buffer.
    Encode {
        /// Holds the value.
        from: BufferId,
        /// The new buffer, with content [`Content::Encoded`].
        to: BufferId,
    },
    /// Write the value back from its encoded form into a new buffer.
    Decode {
        /// Holds the encoded value.
        from: BufferId,
        /// The new buffer.
        to: BufferId,
    },
}

/// Half-open range of steps `[from, until)` during which a buffer is resident.
///
/// A buffer is resident while the step that defines it runs (`from`) and is gone before the step that frees
/// it (`until`); a buffer taken over in place ends at the step that takes it. Two buffers may share bytes
/// exactly if their lifespans do not meet. Counted in steps, not in time. Buffers that are resident at the
/// start have `from == 0`, workspace `[step, step + 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifespan {
    /// Index of the step that defines the buffer.
    pub from: usize,
    /// Index of the step that ends it, or the length of the program.
    pub until: usize,
}

impl Lifespan {
    /// Whether two buffers are resident at the same time.
    #[must_use]
    pub fn meets(self, other: Lifespan) -> bool {
        self.from < other.until && other.from < self.until
    }
}

/// What runs, in what order, and when memory is given back. Buffers are single-assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Steps, in the order they are issued.
    pub steps: Vec<Step>,
    /// The lane of each step; empty means that all run on lane 0.
    pub lanes: Vec<u16>,
    /// Buffers; `buffers[i]` is named `BufferId(i)`.
    pub buffers: Vec<Buffer>,
    /// Host copies; `copies[i]` is named `CopyId(i)`.
    pub copies: Vec<HostCopy>,
    /// Buffers that are filled before the first step: the graph's sources, plain, or encoded where they are at home so.
    pub resident: Vec<BufferId>,
    /// Host copies that are filled before the first step: persistent sources parked on the host.
    pub parked: Vec<CopyId>,
    operands: Vec<BufferId>,
}

impl Program {
    /// Gives back what was allocated for steps and buffers to come.
    pub fn shrink_to_fit(&mut self) {
        self.steps.shrink_to_fit();
        self.buffers.shrink_to_fit();
        self.operands.shrink_to_fit();
    }

    /// Adds a buffer and names it.
    pub fn buffer(&mut self, content: Content, size: Bytes, over: Option<BufferId>) -> BufferId {
        self.buffers.push(Buffer { content, size, over });
        BufferId::at(self.buffers.len() - 1)
    }

    /// Adds a copy in `tier` and names it.
    pub fn copy(&mut self, content: Content, size: Bytes, tier: Tier) -> CopyId {
        self.copies.push(HostCopy { content, size, tier });
        CopyId::at(self.copies.len() - 1)
    }

    /// Makes a compute step, to be pushed to [`Program::steps`]: one buffer for each operand of `op`.
    pub fn compute(
        &mut self,
        op: OpId,
        algorithm: u16,
        reads: impl IntoIterator<Item = BufferId>,
        writes: impl IntoIterator<Item = BufferId>,
        workspace: Option<BufferId>,
    ) -> Step {
        let start = self.operands.len();
        self.operands.extend(reads);
        let middle = self.operands.len();
        self.operands.extend(writes);
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Step::Compute(Compute {
            op,
            algorithm,
            workspace,
            start: narrow(start),
            reads: narrow(middle - start),
            writes: narrow(self.operands.len() - middle),
        })
    }

    /// Buffers that `compute` reads, in the op's own order. Empty if the step is not of this program.
    #[must_use]
    pub fn reads(&self, compute: &Compute) -> &[BufferId] {
        let start = compute.start as usize;
        self.operands.get(start..start + compute.reads as usize).unwrap_or(&[])
    }

    /// Buffers that `compute` writes, in the op's own order. Empty if the step is not of this program.
    #[must_use]
    pub fn writes(&self, compute: &Compute) -> &[BufferId] {
        let start = compute.start as usize + compute.reads as usize;
        self.operands.get(start..start + compute.writes as usize).unwrap_or(&[])
    }

    /// Lossy codecs that its buffers and copies are encoded by, in the order of [`Codec::ALL`].
    #[must_use]
    pub fn lossy(&self) -> Vec<Codec> {
        let buffers = self.buffers.iter().map(|buffer| buffer.content);
        let codecs = buffers.chain(self.copies.iter().map(|copy| copy.content)).filter_map(Content::codec);
        let codecs: BTreeSet<Codec> = codecs.filter(|codec| codec.is_lossy()).collect();
        codecs.into_iter().collect()
    }

    /// The lane of step `step`.
    #[must_use]
    pub fn lane(&self, step: usize) -> u16 {
        self.lanes.get(step).copied().unwrap_or(0)
    }

    /// Whether every id in this program names something of it, so that its other methods may be asked. Programs
    /// from files may not be; the judge says what is wrong with them.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let is_buffer = |buffer: &BufferId| buffer.index() < self.buffers.len();
        let is_copy = |copy: &CopyId| copy.index() < self.copies.len();
        let steps = self.steps.iter().all(|step| match step {
            Step::Compute(compute) => {
                let operands = self.reads(compute).iter().chain(self.writes(compute));
                operands.chain(&compute.workspace).all(is_buffer)
            }
            Step::Free(buffer) => is_buffer(buffer),
            Step::Offload { from, to } => is_buffer(from) && is_copy(to),
            Step::Fetch { from, to } => is_copy(from) && is_buffer(to),
            Step::Discard(copy) => is_copy(copy),
            Step::Await(_) => true,
            Step::Encode { from, to } | Step::Decode { from, to } => is_buffer(from) && is_buffer(to),
        });
        let takes = self.buffers.iter().all(|buffer| buffer.over.as_ref().is_none_or(is_buffer));
        steps && takes && self.resident.iter().all(is_buffer) && self.parked.iter().all(is_copy)
    }

    /// The lifespan of every buffer, indexed by [`BufferId::index`]. A buffer that no step defines has the
    /// empty lifespan at the end.
    #[must_use]
    pub fn lifespans(&self) -> Vec<Lifespan> {
        let end = self.steps.len();
        let mut spans = vec![Lifespan { from: end, until: end }; self.buffers.len()];
        for &buffer in &self.resident {
            spans[buffer.index()].from = 0;
        }
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Compute(compute) => {
                    for &buffer in self.writes(compute) {
                        spans[buffer.index()].from = at;
                        if let Some(taken) = self.buffers[buffer.index()].over {
                            spans[taken.index()].until = at;
                        }
                    }
                    if let Some(workspace) = compute.workspace {
                        spans[workspace.index()] = Lifespan { from: at, until: at + 1 };
                    }
                }
                Step::Encode { to, .. } => {
                    spans[to.index()].from = at;
                    if let Some(taken) = self.buffers[to.index()].over {
                        spans[taken.index()].until = at;
                    }
                }
                Step::Fetch { to, .. } | Step::Decode { to, .. } => spans[to.index()].from = at,
                // Sources are resident together before the first step, also one that is freed by it.
                Step::Free(buffer) if spans[buffer.index()].from == 0 => {
                    spans[buffer.index()].until = at.max(1);
                }
                Step::Free(buffer) => spans[buffer.index()].until = at,
                Step::Offload { .. } | Step::Discard(_) | Step::Await(_) => {}
            }
        }
        spans
    }

    /// For every buffer, the first buffer of its in-place chain: all of a chain lie at one offset.
    #[must_use]
    pub fn chain_roots(&self) -> Vec<BufferId> {
        let mut roots: Vec<BufferId> = Vec::with_capacity(self.buffers.len());
        for (index, buffer) in self.buffers.iter().enumerate() {
            let root = match buffer.over {
                // Buffers are numbered in the order they are made, so a predecessor has its root already.
                Some(before) if before.index() < index => roots[before.index()],
                _ => BufferId::at(index),
            };
            roots.push(root);
        }
        roots
    }
}

/// Which in-place pairs of the graph a program takes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InPlace {
    /// Only those the graph demands.
    Must,
    /// Also those it permits whose input no other op reads: they order no two ops that the graph leaves
    /// unordered, so lanes may run side by side.
    SoleReader,
    /// Also each one it permits, where the input dies at that op: first output first, then first input.
    #[default]
    May,
}
