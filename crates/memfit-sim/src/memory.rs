//! Bytes, step by step, in the order of issue.

use memfit_ir::{BufferId, Bytes, CopyId, Layout, Program, Step, Tier};

use crate::Timeline;

/// Who is in memory.
struct Memory<'a> {
    program: &'a Program,
    layout: Option<&'a Layout>,
    align: Bytes,
    here: Vec<bool>,
    stored: Vec<bool>,
    live: Bytes,
    copies: [Bytes; Tier::ALL.len()],
    peaks: Vec<Bytes>,
}

/// Fills everything of `timeline` that is counted in bytes.
pub(crate) fn count(program: &Program, layout: Option<&Layout>, align: Bytes, timeline: &mut Timeline) {
    let mut memory = Memory {
        program,
        layout,
        align,
        here: vec![false; program.buffers.len()],
        stored: vec![false; program.copies.len()],
        live: Bytes::ZERO,
        copies: [Bytes::ZERO; Tier::ALL.len()],
        peaks: Vec::new(),
    };
    if layout.is_some() {
        memory.peaks.push(Bytes::ZERO);
    }
    for &buffer in &program.resident {
        memory.fill(buffer);
    }
    for &copy in &program.parked {
        memory.store(copy);
    }
    timeline.live_peak = memory.live;
    timeline.tier_peaks = memory.copies;
    for (at, step) in program.steps.iter().enumerate() {
        let live = memory.step(step, timeline);
        timeline.steps[at].live = live;
        timeline.steps[at].copies = memory.copies.into_iter().sum();
        timeline.live_peak = timeline.live_peak.max(live);
        for (peak, now) in timeline.tier_peaks.iter_mut().zip(memory.copies) {
            *peak = (*peak).max(now);
        }
    }
    timeline.peaks = memory.peaks;
}

impl Memory<'_> {
    /// Bytes live on the device while `step` is issued.
    fn step(&mut self, step: &Step, timeline: &mut Timeline) -> Bytes {
        match *step {
            Step::Compute(ref compute) => {
                if let Some(scratch) = compute.workspace {
                    self.fill(scratch);
                }
                for &buffer in self.program.writes(compute) {
                    // Taken over: the old stay ends where the new one begins.
                    if let Some(over) = self.program.buffers.get(buffer.index()).and_then(|b| b.over) {
                        self.end(over);
                    }
                    self.fill(buffer);
                }
                let live = self.live;
                if let Some(scratch) = compute.workspace {
                    self.end(scratch);
                }
                return live;
            }
            Step::Free(buffer) => self.end(buffer),
            Step::Offload { from, to } => {
                timeline.offloaded += self.size(from);
                self.store(to);
            }
            Step::Fetch { to, .. } => {
                timeline.fetched += self.size(to);
                self.fill(to);
            }
            Step::Discard(copy) => self.discard(copy),
            Step::Encode { to, .. } => {
                if let Some(over) = self.program.buffers.get(to.index()).and_then(|b| b.over) {
                    self.end(over);
                }
                self.fill(to);
            }
            Step::Decode { to, .. } => self.fill(to),
            Step::Await(_) => {}
        }
        self.live
    }

    fn size(&self, buffer: BufferId) -> Bytes {
        self.program.buffers.get(buffer.index()).map_or(Bytes::ZERO, |buffer| buffer.size)
    }

    fn fill(&mut self, buffer: BufferId) {
        let size = self.size(buffer);
        if let Some(here) = self.here.get_mut(buffer.index())
            && !std::mem::replace(here, true)
        {
            self.live += size.round_up(self.align);
            if let Some(place) = self.layout.and_then(|layout| layout.place(buffer)) {
                let bank = usize::from(place.bank);
                if self.peaks.len() <= bank {
                    self.peaks.resize(bank + 1, Bytes::ZERO);
                }
                self.peaks[bank] = self.peaks[bank].max(place.offset + size);
            }
        }
    }

    fn end(&mut self, buffer: BufferId) {
        let size = self.size(buffer).round_up(self.align);
        if let Some(here) = self.here.get_mut(buffer.index())
            && std::mem::replace(here, false)
        {
            self.live = self.live.saturating_sub(size);
        }
    }

    fn store(&mut self, copy: CopyId) {
        if let Some(stored) = self.stored.get_mut(copy.index())
            && !std::mem::replace(stored, true)
        {
            let copy = self.program.copies[copy.index()];
            self.copies[copy.tier.index()] += copy.size;
        }
    }

    fn discard(&mut self, copy: CopyId) {
        if let Some(stored) = self.stored.get_mut(copy.index())
            && std::mem::replace(stored, false)
        {
            let copy = self.program.copies[copy.index()];
            let now = &mut self.copies[copy.tier.index()];
            *now = now.saturating_sub(copy.size);
        }
    }
}
