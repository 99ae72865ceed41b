//! Time, event by event.

use std::collections::VecDeque;

use memfit_ir::{BufferId, Bytes, Content, CopyId, Device, Link, Nanos, Program, Step, Tier, usable_rate};

use crate::{Busy, Costs, Timeline};

#[derive(Clone, Debug, Default)]
struct Lane {
    /// Its steps, in order.
    steps: Vec<usize>,
    next: usize,
    /// The step it is in, and when that ends.
    running: Option<(usize, u64)>,
}

/// A transfer that its queue has begun.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    step: usize,
    /// Latency that is left, in ns.
    wait: u64,
    /// Bytes that are left.
    left: f64,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    waiting: VecDeque<usize>,
    running: Option<Transfer>,
}

struct Clock<'a> {
    program: &'a Program,
    costs: &'a Costs,
    device: &'a Device,
    now: u64,
    lanes: Vec<Lane>,
    /// For each tier, to it and from it.
    queues: [[Queue; 2]; Tier::ALL.len()],
    done: Vec<bool>,
    ran: Vec<bool>,
}

/// Fills everything of `timeline` that is counted in time.
pub(crate) fn run(program: &Program, costs: &Costs, device: &Device, timeline: &mut Timeline) {
    let count = (0..program.steps.len()).map(|at| usize::from(program.lane(at)) + 1).max().unwrap_or(1);
    let mut clock = Clock {
        program,
        costs,
        device,
        now: 0,
        lanes: vec![Lane::default(); count],
        queues: Default::default(),
        done: vec![false; program.steps.len()],
        ran: Vec::new(),
    };
    for at in 0..program.steps.len() {
        clock.lanes[usize::from(program.lane(at))].steps.push(at);
    }
    timeline.busy = Busy { lanes: vec![Nanos::ZERO; count], ..Busy::default() };
    loop {
        while clock.issue(timeline) {}
        let Some(next) = clock.next_event() else { break };
        clock.advance(next, timeline);
    }
    timeline.time = Nanos(clock.now);
    timeline.stuck = clock.done.iter().filter(|done| !**done).count();
}

impl Clock<'_> {
    /// Lets every lane and queue begin what it can begin now; whether anything changed.
    fn issue(&mut self, timeline: &mut Timeline) -> bool {
        let mut changed = false;
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].running.is_none() {
                let Some(&at) = self.lanes[lane].steps.get(self.lanes[lane].next) else { break };
                if !self.begin(lane, at, timeline) {
                    break;
                }
                changed = true;
                self.lanes[lane].next += 1;
            }
        }
        for (tier, _) in Tier::ALL {
            let wait = self.device.link_to(tier).map_or(0, |link| link.latency.0);
            for direction in 0..2 {
                let queue = &mut self.queues[tier.index()][direction];
                if queue.running.is_none()
                    && let Some(step) = queue.waiting.pop_front()
                {
                    let left = bytes(self.program, step).0 as f64;
                    queue.running = Some(Transfer { step, wait, left });
                    timeline.steps[step].start = Nanos(self.now);
                    changed = true;
                }
            }
        }
        changed
    }

    /// What encoding `plain` as `packed` takes, and decoding that.
    fn codec_times(&self, plain: BufferId, packed: BufferId) -> (Nanos, Nanos) {
        let buffer = |buffer: BufferId| self.program.buffers.get(buffer.index());
        let size = buffer(plain).map_or(Bytes::ZERO, |plain| plain.size);
        match buffer(packed).map(|packed| packed.content) {
            Some(Content::Encoded(_, codec)) => self.device.codec_times(codec, size),
            _ => (self.device.launch, self.device.launch), // The judge accepts no such step.
        }
    }

    /// Begins step `at` on `lane`; false if it must wait.
    fn begin(&mut self, lane: usize, at: usize, timeline: &mut Timeline) -> bool {
        timeline.steps[at].start = Nanos(self.now);
        timeline.steps[at].end = Nanos(self.now);
        let time = match self.program.steps[at] {
            Step::Compute(ref compute) => {
                let time = self.costs.of_step(compute);
                let op = compute.op.index();
                if self.ran.len() <= op {
                    self.ran.resize(op + 1, false);
                }
                if std::mem::replace(&mut self.ran[op], true) {
                    timeline.recompute_time = timeline.recompute_time + time;
                    timeline.recomputes += 1;
                }
                time
            }
            Step::Encode { from: plain, to: packed } => self.codec_times(plain, packed).0,
            Step::Decode { from: packed, to: plain } => self.codec_times(plain, packed).1,
            Step::Offload { to: copy, .. } | Step::Fetch { from: copy, .. } => {
                let (tier, size) = (self.tier(copy), bytes(self.program, at));
                let is_out = matches!(self.program.steps[at], Step::Offload { .. });
                let Some(link) = self.device.link_to(tier).filter(|link| !link.asynchronous) else {
                    self.queues[tier.index()][usize::from(!is_out)].waiting.push_back(at);
                    return true;
                };
                // The lane is held up, and not busy.
                let time = if is_out { link.out_time(size) } else { link.in_time(size) };
                timeline.busy.carry(tier.index(), is_out, time);
                self.lanes[lane].running = Some((at, self.now.saturating_add(time.0)));
                return true;
            }
            Step::Await(step) if !self.done.get(step.index()).copied().unwrap_or(true) => return false,
            Step::Free(_) | Step::Discard(_) | Step::Await(_) => {
                self.done[at] = true;
                return true;
            }
        };
        let end = self.now.saturating_add(time.0);
        timeline.busy.lanes[lane] = timeline.busy.lanes[lane] + time;
        self.lanes[lane].running = Some((at, end));
        true
    }

    fn tier(&self, copy: CopyId) -> Tier {
        self.program.copies.get(copy.index()).map_or(Tier::Host, |copy| copy.tier)
    }

    /// Bytes per nanosecond to `tier` and back, as things are now.
    fn rates(&self, tier: Tier) -> [f64; 2] {
        let Some(Link { out_bandwidth, in_bandwidth, duplex_cap, .. }) = self.device.link_to(tier) else {
            return [1.0; 2]; // No link, and still a transfer: 1 GB/s, for the judge knows no links.
        };
        let mut rates = [usable_rate(out_bandwidth) / 1e9, usable_rate(in_bandwidth) / 1e9];
        let cap = usable_rate(duplex_cap) / 1e9;
        let moves = |queue: &Queue| queue.running.is_some_and(|transfer| transfer.wait == 0);
        if self.queues[tier.index()].iter().all(moves) && rates[0] + rates[1] > cap {
            let share = cap / (rates[0] + rates[1]);
            rates = [rates[0] * share, rates[1] * share];
        }
        rates
    }

    fn all_rates(&self) -> [[f64; 2]; Tier::ALL.len()] {
        Tier::ALL.map(|(tier, _)| self.rates(tier))
    }

    /// How long until something ends; `None` if nothing runs.
    fn next_event(&self) -> Option<u64> {
        let lanes = self.lanes.iter().filter_map(|lane| lane.running.map(|(_, end)| end - self.now));
        let queues =
            self.queues.iter().zip(self.all_rates()).flat_map(|(queues, rates)| queues.iter().zip(rates));
        let queues = queues.filter_map(|(queue, rate)| {
            let transfer = queue.running?;
            if transfer.wait > 0 {
                return Some(transfer.wait);
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
            Some((transfer.left / rate).ceil() as u64)
        });
        lanes.chain(queues).min()
    }

    fn advance(&mut self, by: u64, timeline: &mut Timeline) {
        let rates = self.all_rates();
        self.now = self.now.saturating_add(by);
        for lane in &mut self.lanes {
            if let Some((at, end)) = lane.running.filter(|&(_, end)| end <= self.now) {
                lane.running = None;
                self.done[at] = true;
                timeline.steps[at].end = Nanos(end);
            }
        }
        let both = self.queues.iter_mut().flatten().zip(rates.into_iter().flatten()).enumerate();
        for (queue, (state, rate)) in both {
            let Some(transfer) = &mut state.running else { continue };
            timeline.busy.carry(queue / 2, queue % 2 == 0, Nanos(by));
            if transfer.wait > 0 {
                transfer.wait = transfer.wait.saturating_sub(by);
                if transfer.wait > 0 || transfer.left > 0.0 {
                    continue;
                }
            } else {
                transfer.left -= rate * by as f64;
            }
            // A millionth of a byte is what rounding leaves.
            if transfer.left <= 1e-6 {
                self.done[transfer.step] = true;
                timeline.steps[transfer.step].end = Nanos(self.now);
                state.running = None;
            }
        }
    }
}

/// What the transfer `step` carries.
fn bytes(program: &Program, step: usize) -> Bytes {
    match program.steps[step] {
        Step::Offload { from: buffer, .. } | Step::Fetch { to: buffer, .. } => {
            program.buffers.get(buffer.index()).map_or(Bytes::ZERO, |buffer| buffer.size)
        }
        _ => Bytes::ZERO,
    }
}
