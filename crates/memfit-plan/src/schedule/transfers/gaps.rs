//! The times between two uses of a value, in which it could be elsewhere, or encoded, or both.

use memfit_ir::{Bytes, Device, Form, Link, Need, Tier, ValueId};

use super::codecs::Codecs;
use super::{RunList, Task, signed};

/// Between two uses of a value that follow each other, with at least one run in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) struct Gap {
    pub(in crate::schedule) value: ValueId,
    /// How it waits.
    pub(in crate::schedule) form: Form,
    /// Bytes that are free meanwhile.
    pub(in crate::schedule) size: i64,
    /// Bytes of its copy in another tier, and those that it takes here while a transfer is under way.
    pub(in crate::schedule) copy: u64,
    pub(in crate::schedule) flight: i64,
    /// The run that uses it last before, and the one that uses it next; one beyond all runs for the end of the step.
    pub(in crate::schedule) from: usize,
    pub(in crate::schedule) to: usize,
    /// Whether the run before makes it, so that it can't be copied beside that run.
    pub(in crate::schedule) made: bool,
    /// Ns that its transfers take, or its codec: out, and back.
    pub(in crate::schedule) out: u64,
    pub(in crate::schedule) back: u64,
}

impl Gap {
    /// The runs, of so many, in which the value is away.
    pub(in crate::schedule) fn away(&self, runs: usize) -> std::ops::Range<usize> {
        self.from + 1..self.to.min(runs)
    }

    /// The same for a value of `size` bytes that waits as it is in host memory behind `link`.
    pub(in crate::schedule) fn plain(self, size: Bytes, link: Link) -> Gap {
        let (out, back) = (link.out_time(size).0, link.in_time(size).0);
        let form = Form::Tier(Tier::Host);
        Gap { form, copy: size.0, flight: self.size, out, back, ..self }
    }

    /// Whether it is used last before `turn`, where forward turns to backward, and next after that.
    pub(in crate::schedule) fn crosses(&self, turn: usize) -> bool {
        self.from < turn && self.to >= turn
    }

    /// Ns that are left of it beside both transfers; below 0 if they take longer.
    pub(in crate::schedule) fn slack(&self, step: &Gaps) -> f64 {
        let time = step.begins[self.to] - step.begins[self.from + 1];
        time as f64 - self.out as f64 - self.back as f64
    }
}

impl Gaps {
    /// The first run that holds the most, and what it holds.
    pub(in crate::schedule) fn highest(live: &[i64]) -> Option<(usize, i64)> {
        // Two passes over numbers alone take a fraction of one over pairs.
        let most = live.iter().copied().max()?;
        live.iter().position(|&live| live == most).map(|at| (at, most))
    }
}

/// How values may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::schedule) enum Waits {
    /// In host memory, or on a disk.
    Behind(Link),
    /// Encoded in device memory, where the graph says that this takes less.
    Encoded(Codecs),
    /// In host memory, or on a disk; encoded there where the graph says that this takes less.
    EncodedBehind(Link, Codecs),
}

impl Waits {
    /// Whether ops go on while values leave and come back.
    fn is_asynchronous(self) -> bool {
        match self {
            Waits::Behind(link) | Waits::EncodedBehind(link, _) => link.asynchronous,
            Waits::Encoded(_) => false,
        }
    }

    /// The gap of `value` between these runs; `None` if it can't wait so.
    fn gap(
        self,
        task: &Task<'_>,
        device: &Device,
        (value, asked): (ValueId, (Need, Need)),
        (from, to, made): (usize, usize, bool),
    ) -> Option<Gap> {
        let this = task.graph.value(value);
        let whole = task.size[value.index()];
        let rounded = |room: Bytes| signed(room.round_up(device.align));
        let smaller = |codecs: Codecs| codecs.smallest((&this, task.is_rectified(value)), asked, device);
        let behind = |link: Link, (form, moved, flight): (Form, Bytes, i64)| {
            let (out, back) = (link.out_time(moved).0, link.in_time(moved).0);
            Gap { value, form, size: whole, copy: moved.0, flight, from, to, made, out, back }
        };
        let plain = (Form::Tier(Tier::Host), this.size, whole);
        match self {
            Waits::Behind(link) => Some(behind(link, plain)),
            Waits::EncodedBehind(link, codecs) => {
                let encoded = |(codec, room)| (Form::EncodedOn(Tier::Host, codec), room, rounded(room));
                Some(behind(link, smaller(codecs).map_or(plain, encoded)))
            }
            Waits::Encoded(codecs) => {
                let (codec, room) = smaller(codecs)?;
                let size = whole - rounded(room);
                let (out, back) = device.codec_times(codec, this.size);
                let (form, out, back) = (Form::Encoded(codec), out.0, back.0);
                Some(Gap { value, form, size, copy: 0, flight: 0, from, to, made, out, back })
            }
        }
    }
}

/// A run list as those who move values see it.
pub(in crate::schedule) struct Gaps {
    /// By run: live bytes meanwhile, if all is kept that is used again before it is made again.
    pub(in crate::schedule) live: Vec<i64>,
    /// By run: when it begins, if nothing is waited for; and at the end when all is done.
    pub(in crate::schedule) begins: Vec<u64>,
    pub(in crate::schedule) gaps: Vec<Gap>,
    /// Whether ops go on while transfers are under way.
    pub(in crate::schedule) asynchronous: bool,
}

/// How far and how long live bytes are above a limit, summed up so that any part of the step is looked up at once.
pub(in crate::schedule) struct Pressure {
    /// Before each run and at the end: ns above the limit, and bytes above it times ns.
    sums: Vec<(f64, f64)>,
}

impl Pressure {
    pub(in crate::schedule) fn of(step: &Gaps, live: &[i64], limit: i64) -> Pressure {
        let mut pressure = Pressure { sums: vec![(0.0, 0.0); live.len().min(step.live.len()) + 1] };
        pressure.renew(0, step, live, limit);
        pressure
    }

    /// Sums up again, where `live` has changed from the run `from` on.
    pub(super) fn renew(&mut self, from: usize, step: &Gaps, live: &[i64], limit: i64) {
        let (mut time, mut area) = self.sums[from];
        let begins = step.begins[from..].windows(2);
        for ((&live, begins), sums) in live[from..].iter().zip(begins).zip(&mut self.sums[from + 1..]) {
            let above = live.saturating_sub(limit).max(0);
            let ns = if above > 0 { (begins[1] - begins[0]).max(1) as f64 } else { 0.0 };
            time += ns;
            area += above as f64 * ns;
            *sums = (time, area);
        }
    }

    /// Bytes above the limit times ns, while the value of `gap` is away.
    pub(in crate::schedule) fn area(&self, gap: &Gap) -> f64 {
        let away = gap.away(self.sums.len() - 1);
        self.sums[away.end].1 - self.sums[away.start].1
    }

    /// What of that its absence takes off: no more than its size at a time.
    pub(in crate::schedule) fn relief(&self, gap: &Gap) -> f64 {
        let away = gap.away(self.sums.len() - 1);
        let time = self.sums[away.end].0 - self.sums[away.start].0;
        self.area(gap).min(time * gap.size as f64)
    }
}

/// The link over which copies go: that to host memory, or to the disk where there is no other.
pub(in crate::schedule) fn link(device: &Device) -> Option<Link> {
    device.link.or_else(|| device.disk.map(|disk| disk.link))
}

/// What is smaller is not worth a transfer.
pub(in crate::schedule) const LEAST: i64 = 4 << 10;

impl Gaps {
    /// Those of `runs`; `None` if that is no schedule of `task`. Time O(operands of all runs), and the gaps are sorted.
    pub(super) fn of(task: &Task<'_>, runs: &RunList, waits: Waits, device: &Device) -> Option<Gaps> {
        let live = runs.profile(task)?.iter().map(|&bytes| signed(bytes)).collect();
        let mut begins = Vec::with_capacity(runs.len() + 1);
        let mut now = 0u64;
        for (node, first) in runs.each(task) {
            begins.push(now);
            let time = if first { &task.cost } else { &task.later_cost };
            now = now.saturating_add(time[node.index()]);
        }
        begins.push(now);
        Some(Gaps {
            live,
            begins,
            gaps: gaps(task, runs, waits, device),
            asynchronous: waits.is_asynchronous(),
        })
    }
}

/// The gaps of all values that may be moved, by their first use, the larger value first.
fn gaps(task: &Task<'_>, runs: &RunList, waits: Waits, device: &Device) -> Vec<Gap> {
    let may_move: Vec<bool> =
        task.value_ids().map(|value| task.size[value.index()] >= LEAST && task.may_move(value)).collect();
    let mut gaps = Vec::new();
    let asked = asked(task, runs);
    let mut asked = asked.iter();
    // By value: the run that used it last, and whether that made it.
    let mut used: Vec<Option<(usize, bool)>> = vec![None; task.size.len()];
    let gap = |value: ValueId, asked, from: Option<(usize, bool)>, to: usize| {
        let (from, made) = from.filter(|&(from, _)| to > from + 1)?;
        waits.gap(task, device, (value, asked), (from, to, made))
    };
    for (at, (node, first)) in runs.each(task).enumerate() {
        for (&value, &asked) in task.reads_of(node, first).iter().zip(asked.by_ref()) {
            if !may_move[value.index()] {
                continue;
            }
            gaps.extend(gap(value, asked, used[value.index()].replace((at, false)), at));
        }
        for &value in task.writes_of(node, first) {
            used[value.index()] = Some((at, true));
        }
    }
    for value in task.value_ids().filter(|value| may_move[value.index()] && task.live_out[value.index()]) {
        gaps.extend(gap(value, (Need::Value, Need::Value), used[value.index()], runs.len()));
    }
    gaps.sort_by_key(|gap| (gap.from, std::cmp::Reverse(gap.size), gap.value));
    gaps
}

/// For each read of each run, in their order: the least and the most that this one or a later one asks of the value, before it's made
/// again.
fn asked(task: &Task<'_>, runs: &RunList) -> Vec<(Need, Need)> {
    let end = |live_out: &bool| live_out.then_some((Need::Value, Need::Value));
    let mut later: Vec<Option<(Need, Need)>> = task.live_out.iter().map(end).collect();
    let mut asked = Vec::new();
    let all: Vec<_> = runs.each(task).collect();
    for &(node, first) in all.iter().rev() {
        for &value in task.writes_of(node, first) {
            later[value.index()] = None;
        }
        let op = task.graph.op(task.order[node.index()]);
        for &value in task.reads_of(node, first).iter().rev() {
            let need = op.need_of(value);
            let later = &mut later[value.index()];
            let both = later.map_or((need, need), |(least, most)| (least.min(need), most.max(need)));
            *later = Some(both);
            asked.push(both);
        }
    }
    asked.reverse();
    asked
}
