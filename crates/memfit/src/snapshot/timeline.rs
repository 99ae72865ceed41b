//! From events to buffers: who was live when, and when most was.

use std::collections::BTreeMap;

use memfit_formats::snapshot::{Action, BlockState, Snapshot, StackId};
use memfit_ir::Bytes;

/// What PyTorch's caching allocator rounds every request up to.
pub(crate) const UNIT: Bytes = Bytes(512);

/// One stay in memory, from the allocation to the moment its bytes may be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// First time at which it's live: the number of the event that made it, from 1; 0 for what was there before.
    pub(crate) from: usize,
    /// First time at which it's gone; [`Timeline::until`] for what's there to the end.
    pub(crate) until: usize,
    /// Bytes, rounded up as the allocator does.
    pub(crate) size: Bytes,
    /// Where; 0 for what could not be had.
    pub(crate) address: u64,
    /// Who asked for it.
    pub(crate) stack: StackId,
    /// Nothing else was asked for or given back while it lived.
    pub(crate) fleeting: bool,
    /// It could not be had. It counts for one moment: what was needed is what was there and this.
    pub(crate) failed: bool,
}

/// The recorded history of one device, or the one moment of the snapshot where there's none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline {
    /// In the order of birth; those from before the first event by address.
    pub(crate) buffers: Vec<Buffer>,
    /// Times are below this.
    pub(crate) until: usize,
    /// First time at which most bytes were live.
    pub(crate) peak_at: usize,
    /// Live bytes then.
    pub(crate) peak: Bytes,
    /// The most that was held from the driver.
    pub(crate) reserved: Bytes,
    /// The same with what could not be had.
    pub(crate) needed: Bytes,
    /// What could not be had: bytes asked for, and bytes that the device had left; the last such event.
    pub(crate) failed: Option<(Bytes, Option<Bytes>)>,
}

impl Timeline {
    /// The history of `device`. Blocks in use that no event explains were there before the first event; so was what
    /// is given back without having been asked for.
    pub(crate) fn of(snapshot: &Snapshot, device: u64) -> Timeline {
        let at = usize::try_from(device).unwrap_or(usize::MAX);
        let events = snapshot.history.get(at).map_or(&[][..], Vec::as_slice);
        let until = events.len() + 1; // Time 0 is before the first event, time n after the nth.
        let mut before: Vec<(u64, Buffer)> = Vec::new();
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut open: BTreeMap<u64, usize> = BTreeMap::new(); // address → index in `buffers`
        let mut failed = None;
        let (mut held, mut most_held, mut most_needed) = (0i128, 0i128, 0i128); // Relative to the first time.
        let mut last_born = None;
        for (at, event) in events.iter().enumerate() {
            let time = at + 1;
            let size = event.size.max(Bytes(1)).round_up(UNIT);
            let (address, stack) = (event.address, event.stack);
            let buffer = |from| Buffer { from, until, size, address, stack, fleeting: false, failed: false };
            match event.action {
                Action::Alloc => {
                    if let Some(lost) = open.insert(event.address, buffers.len()) {
                        buffers[lost].until = time; // Its end wasn't recorded.
                    }
                    last_born = Some(buffers.len());
                    buffers.push(buffer(time));
                }
                Action::FreeRequested => {
                    let index = open.get(&event.address).copied();
                    if let Some(index) = index.filter(|index| last_born == Some(*index)) {
                        buffers[index].fleeting = true;
                    }
                    last_born = None;
                }
                Action::FreeCompleted => match open.remove(&event.address) {
                    Some(index) => buffers[index].until = time,
                    // The stack is that of whoever gave it back.
                    None => before.push((event.address, Buffer { until: time, stack: 0, ..buffer(0) })),
                },
                Action::SegmentAlloc => held += i128::from(event.size.0),
                Action::SegmentFree => held -= i128::from(event.size.0),
                Action::OutOfMemory => {
                    failed = Some((event.size, event.device_free));
                    most_needed = most_needed.max(held + i128::from(size.0));
                    buffers.push(Buffer { until: time + 1, address: 0, failed: true, ..buffer(time) });
                }
            }
            most_held = most_held.max(held);
        }
        let segments = || snapshot.segments.iter().filter(|segment| segment.device == device);
        for block in segments().flat_map(|segment| &segment.blocks) {
            if block.state != BlockState::Free && !open.contains_key(&block.address) {
                let size = block.requested.max(Bytes(1)).round_up(UNIT);
                let (address, stack) = (block.address, block.stack);
                let buffer = Buffer { from: 0, until, size, address, stack, fleeting: false, failed: false };
                before.push((address, buffer));
            }
        }
        before.sort_by_key(|(address, _)| *address);
        let buffers: Vec<Buffer> = before.into_iter().map(|(_, buffer)| buffer).chain(buffers).collect();
        let reserved: Bytes = segments().map(|segment| segment.size).sum();
        let beyond = |most: i128| Bytes(u64::try_from(most - held).unwrap_or_default());
        let needed = reserved + beyond(most_held.max(most_needed));
        let reserved = reserved + beyond(most_held);
        let mut timeline = Timeline { buffers, until, reserved, needed, failed, ..Timeline::default() };
        (timeline.peak, timeline.peak_at) = timeline.peak_of(|_| true);
        timeline
    }

    /// The most bytes that the buffers which `counts` keeps have together, and the first time at which they do.
    pub(crate) fn peak_of(&self, counts: impl Fn(usize) -> bool) -> (Bytes, usize) {
        let mut change = vec![0i128; self.until + 1];
        for (_, buffer) in self.buffers.iter().enumerate().filter(|(index, _)| counts(*index)) {
            change[buffer.from] += i128::from(buffer.size.0);
            change[buffer.until] -= i128::from(buffer.size.0);
        }
        let (mut live, mut most) = (0, (0, 0));
        for (time, change) in change.iter().take(self.until).enumerate() {
            live += change;
            if live > most.0 {
                most = (live, time);
            }
        }
        (Bytes(u64::try_from(most.0).unwrap_or(u64::MAX)), most.1)
    }

    /// Indices of the buffers that are live at the peak.
    pub(crate) fn at_peak(&self) -> impl Iterator<Item = usize> {
        let at = self.peak_at;
        let live = move |buffer: &Buffer| buffer.from <= at && at < buffer.until;
        self.buffers.iter().enumerate().filter(move |(_, buffer)| live(buffer)).map(|(index, _)| index)
    }
}
