//! The clock: replays a [`Program`] on a [`Device`] and says how long it takes and how many bytes it holds.
//!
//! Two passes that know nothing of each other. *Memory* walks the steps in the order they are issued and counts
//! bytes, with addresses where a layout is given. *Time* lets lanes, the two queues of each tier's link and
//! awaits run against each other, event by event. Nothing is shared with the judge: it executes values, this
//! counts bytes, and tests compare the two.
//!
//! # What the clock assumes
//!
//! A lane runs its steps one after another, lanes run beside each other without slowing each other down. A
//! transfer joins the queue of its direction when its lane issues it, and runs when those before it are done:
//! first the link's latency, then its bytes at the link's rate. While both directions move bytes and their
//! rates exceed the link's cap together, each gets its share of the cap. Frees, discards and awaits take no
//! time themselves. The program ends when all lanes and queues are done.

#![forbid(unsafe_code)]

mod clock;
mod cost;
mod memory;

pub use cost::{Costs, Fault, Warning};

use memfit_ir::{Bytes, Device, Graph, Layout, Nanos, Program, Tier};

/// When a step ran, and what was live then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Time from the start of the program at which it began. A transfer begins when its queue gets to it.
    pub start: Nanos,
    /// Time at which it was done.
    pub end: Nanos,
    /// Bytes live in device memory while it is issued, each buffer rounded up to the alignment.
    pub live: Bytes,
    /// Bytes of copies in all other tiers then.
    pub copies: Bytes,
}

/// How long each part of the machine was at work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// By lane: time in ops and codecs.
    pub lanes: Vec<Nanos>,
    /// Time in which a link carried something out of the device, over all links.
    pub out: Nanos,
    /// Time in which a link carried something back, over all links.
    pub into: Nanos,
    /// By [`Tier::index`], the same of the link to that tier alone: out of the device, and back.
    pub links: [[Nanos; 2]; Tier::ALL.len()],
}

impl Busy {
    /// Counts time in which the link to the tier with this index carries something out of the device, or back.
    pub(crate) fn carry(&mut self, tier: usize, is_out: bool, time: Nanos) {
        let all = if is_out { &mut self.out } else { &mut self.into };
        *all = *all + time;
        let link = &mut self.links[tier][usize::from(!is_out)];
        *link = *link + time;
    }
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// From the first step to the end of the last lane and queue.
    pub time: Nanos,
    /// Who was busy for how long.
    pub busy: Busy,
    /// Largest sum of live bytes, each buffer rounded up to the alignment; what is resident before the first
    /// step counts.
    pub live_peak: Bytes,
    /// By bank, the highest end of a buffer that is ever filled. Empty without a layout.
    pub peaks: Vec<Bytes>,
    /// By [`Tier::index`], the largest sum of copies in that tier, in the order of issue.
    pub tier_peaks: [Bytes; Tier::ALL.len()],
    /// One for each step of the program.
    pub steps: Vec<Span>,
    /// Run time of all runs of ops but the first of each.
    pub recompute_time: Nanos,
    /// Number of those runs.
    pub recomputes: usize,
    /// Bytes carried to other tiers.
    pub offloaded: Bytes,
    /// Bytes carried from other tiers.
    pub fetched: Bytes,
    /// Costs that could not be taken as they were.
    pub warnings: Vec<Warning>,
    /// Steps that never ran, because what they wait for never happens. 0 for every program the judge accepts.
    pub stuck: usize,
}

impl Timeline {
    /// Largest sum of copies in host memory.
    #[must_use]
    pub fn host_peak(&self) -> Bytes {
        self.tier_peaks[Tier::Host.index()]
    }

    /// Highest end of a filled buffer in bank 0; without a layout [`Timeline::live_peak`].
    #[must_use]
    pub fn peak(&self) -> Bytes {
        self.peaks.first().copied().unwrap_or(self.live_peak)
    }
}

/// Replays `program`. Steps that name what does not exist count nothing.
///
/// Time O(steps × (lanes + log)) and space O(steps + buffers).
#[must_use]
pub fn simulate(graph: &Graph, program: &Program, layout: Option<&Layout>, device: &Device) -> Timeline {
    let costs = Costs::of(graph, device);
    let mut timeline = Timeline { steps: vec![Span::default(); program.steps.len()], ..Timeline::default() };
    memory::count(program, layout, device.align, &mut timeline);
    clock::run(program, &costs, device, &mut timeline);
    timeline.warnings = costs.into_warnings();
    timeline
}
