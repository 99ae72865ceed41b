//! A plan that can be edited: steps own their operands, and awaits follow the step they name.

use memfit_ir::{
    Buffer, BufferId, Bytes, Content, CopyId, Digest, HostCopy, Layout, OpId, Place, Plan, Program, Step,
    StepId, Tier, ValueId,
};

/// What a line does: [`Step`] with its operands inside.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of `Step` and `Compute`")]
pub enum Act {
    Compute {
        op: OpId,
        algorithm: u16,
        reads: Vec<BufferId>,
        writes: Vec<BufferId>,
        workspace: Option<BufferId>,
    },
    Free(BufferId),
    Offload {
        from: BufferId,
        to: CopyId,
    },
    Fetch {
        from: CopyId,
        to: BufferId,
    },
    Discard(CopyId),
    /// Names a line by its tag.
    Await(u32),
    Encode {
        from: BufferId,
        to: BufferId,
    },
    Decode {
        from: BufferId,
        to: BufferId,
    },
}

/// A step with its lane and a name that stays when lines move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Unique within the draft.
    pub tag: u32,
    /// Lane it runs on.
    pub lane: u16,
    /// What it does.
    pub act: Act,
}

/// An editable plan.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Steps, in order.
    pub lines: Vec<Line>,
    /// As [`Program::buffers`].
    pub buffers: Vec<Buffer>,
    /// As [`Layout::places`].
    pub places: Vec<Place>,
    /// As [`Program::copies`].
    pub copies: Vec<HostCopy>,
    /// As [`Program::resident`].
    pub resident: Vec<BufferId>,
    /// As [`Program::parked`].
    pub parked: Vec<CopyId>,
    tags: u32,
}

impl Draft {
    /// The tier that the source `value` is in before the first step, if it's not in device memory.
    pub(crate) fn parked_in(&self, value: ValueId) -> Option<Tier> {
        let mut copies = self.parked.iter().map(|copy| &self.copies[copy.index()]);
        copies.find(|copy| copy.content == Content::Value(value)).map(|copy| copy.tier)
    }

    /// An editable copy of `plan`.
    #[must_use]
    pub fn of(plan: &Plan) -> Draft {
        let program = &plan.program;
        let mut draft = Draft {
            buffers: program.buffers.clone(),
            places: plan.layout.places.clone(),
            copies: program.copies.clone(),
            resident: program.resident.clone(),
            parked: program.parked.clone(),
            ..Draft::default()
        };
        for (at, step) in program.steps.iter().enumerate() {
            let act = match *step {
                Step::Compute(compute) => Act::Compute {
                    op: compute.op,
                    algorithm: compute.algorithm,
                    reads: program.reads(&compute).to_vec(),
                    writes: program.writes(&compute).to_vec(),
                    workspace: compute.workspace,
                },
                Step::Free(buffer) => Act::Free(buffer),
                Step::Offload { from, to } => Act::Offload { from, to },
                Step::Fetch { from, to } => Act::Fetch { from, to },
                Step::Discard(copy) => Act::Discard(copy),
                Step::Await(step) => Act::Await(step.0),
                Step::Encode { from, to } => Act::Encode { from, to },
                Step::Decode { from, to } => Act::Decode { from, to },
            };
            let line = draft.line(act, program.lane(at));
            draft.lines.push(line);
        }
        draft
    }

    /// The plan for the graph with digest `graph`. An await on a line that's gone names step 2³² − 1.
    #[must_use]
    pub fn plan(&self, graph: Digest) -> Plan {
        let mut program = Program::default();
        program.buffers.clone_from(&self.buffers);
        program.copies.clone_from(&self.copies);
        program.resident.clone_from(&self.resident);
        program.parked.clone_from(&self.parked);
        let mut steps = vec![StepId(u32::MAX); self.tags as usize];
        for (at, line) in self.lines.iter().enumerate() {
            steps[line.tag as usize] = StepId::at(at);
        }
        for line in &self.lines {
            let step = match &line.act {
                Act::Compute { op, algorithm, reads, writes, workspace } => {
                    let (reads, writes) = (reads.iter().copied(), writes.iter().copied());
                    program.compute(*op, *algorithm, reads, writes, *workspace)
                }
                Act::Free(buffer) => Step::Free(*buffer),
                Act::Offload { from, to } => Step::Offload { from: *from, to: *to },
                Act::Fetch { from, to } => Step::Fetch { from: *from, to: *to },
                Act::Discard(copy) => Step::Discard(*copy),
                Act::Await(tag) => Step::Await(steps.get(*tag as usize).copied().unwrap_or(StepId(u32::MAX))),
                Act::Encode { from, to } => Step::Encode { from: *from, to: *to },
                Act::Decode { from, to } => Step::Decode { from: *from, to: *to },
            };
            program.steps.push(step);
        }
        if self.lines.iter().any(|line| line.lane != 0) {
            program.lanes = self.lines.iter().map(|line| line.lane).collect();
        }
        Plan { graph, program, layout: Layout { places: self.places.clone() } }
    }

    /// A line with a tag of its own, to be put where the caller wants it.
    pub fn line(&mut self, act: Act, lane: u16) -> Line {
        self.tags += 1;
        Line { tag: self.tags - 1, lane, act }
    }

    /// Appends a line on lane 0.
    pub fn push(&mut self, act: Act) {
        let line = self.line(act, 0);
        self.lines.push(line);
    }

    /// Adds a buffer without a place.
    pub fn buffer(&mut self, content: Content, size: Bytes, over: Option<BufferId>) -> BufferId {
        self.buffers.push(Buffer { content, size, over });
        BufferId::at(self.buffers.len() - 1)
    }

    /// Adds a copy in another tier.
    pub fn copy(&mut self, content: Content, size: Bytes, tier: Tier) -> CopyId {
        self.copies.push(HostCopy { content, size, tier });
        CopyId::at(self.copies.len() - 1)
    }
}

impl Act {
    /// Buffers that are filled by this line; workspace last.
    pub fn fills(&self) -> impl Iterator<Item = BufferId> + '_ {
        let (writes, one): (&[BufferId], _) = match self {
            Act::Compute { writes, workspace, .. } => (writes, *workspace),
            Act::Fetch { to, .. } | Act::Encode { to, .. } | Act::Decode { to, .. } => (&[], Some(*to)),
            _ => (&[], None),
        };
        writes.iter().copied().chain(one)
    }

    /// Buffers that this line reads.
    pub fn reads(&self) -> impl Iterator<Item = BufferId> + '_ {
        let (reads, one): (&[BufferId], _) = match self {
            Act::Compute { reads, .. } => (reads, None),
            Act::Offload { from, .. } | Act::Encode { from, .. } | Act::Decode { from, .. } => {
                (&[], Some(*from))
            }
            _ => (&[], None),
        };
        reads.iter().copied().chain(one)
    }
}
