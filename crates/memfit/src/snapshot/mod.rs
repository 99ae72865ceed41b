//! What holds the memory in a snapshot of PyTorch's CUDA allocator, and what each remedy would give.

mod remedies;
mod roles;
mod timeline;

use std::cmp::Reverse;

use memfit_formats::snapshot::{self, BlockState, Snapshot};
use memfit_ir::Bytes;

use crate::explain::{Share, shares};
use crate::{Failure, Tools};
pub use remedies::{Certainty, SnapshotRemedy};
pub use roles::SnapshotRole;
pub(crate) use roles::{label, own_frame, roles};
pub(crate) use timeline::Timeline;

/// What the allocator holds at the moment of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes from the driver.
    pub reserved: Bytes,
    /// Bytes that tensors have, rounded up.
    pub allocated: Bytes,
    /// The same before rounding.
    pub requested: Bytes,
    /// Bytes that were given back but that another stream may still use.
    pub awaiting: Bytes,
    /// Bytes that are free for reuse.
    pub free: Bytes,
    /// The largest block of those: more than this can't be handed out without asking the driver.
    pub largest_free: Bytes,
    /// Number of free blocks.
    pub free_blocks: usize,
    /// Number of segments.
    pub segments: usize,
    /// Bytes of segments that only one pool may use, as that of a CUDA graph.
    pub private: Bytes,
    /// Whether segments can grow.
    pub expandable: bool,
}

impl Held {
    fn of(snapshot: &Snapshot, device: u64) -> Held {
        let mut held = Held::default();
        for segment in snapshot.segments.iter().filter(|segment| segment.device == device) {
            held.reserved += segment.size;
            held.segments += 1;
            held.expandable |= segment.expandable;
            if segment.private {
                held.private += segment.size;
            }
            for block in &segment.blocks {
                match block.state {
                    BlockState::Allocated => {
                        held.allocated += block.size;
                        held.requested += block.requested;
                    }
                    BlockState::Awaiting => held.awaiting += block.size,
                    BlockState::Free => {
                        held.free += block.size;
                        held.free_blocks += 1;
                        held.largest_free = held.largest_free.max(block.size);
                    }
                }
            }
        }
        held
    }
}

/// A buffer that is live at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHolder {
    /// Its bytes.
    pub bytes: Bytes,
    /// What it's for.
    pub role: SnapshotRole,
    /// The innermost frame of the stack that asked for it that is neither PyTorch's own nor compiled.
    pub frame: String,
    /// The whole stack, innermost first.
    pub stack: Vec<String>,
    /// Whether it was there before the first event.
    pub from_before: bool,
    /// Whether it could not be had: what was asked for when memory ran out counts as live for that moment.
    pub failed: bool,
}

/// Where the memory of one device went.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotExplanation {
    /// Index of the device: the one that holds most.
    pub device: u64,
    /// Indices of all devices that hold anything.
    pub devices: Vec<u64>,
    /// Number of events that were recorded; none: everything is about the moment of the snapshot.
    pub events: usize,
    /// Allocations that the history knows, and those from before it.
    pub allocations: usize,
    /// Bytes that could not be had, and bytes the device had left then, at the last time memory ran out.
    pub failed: Option<(Bytes, Option<Bytes>)>,
    /// What the allocator holds at the moment of the snapshot.
    pub held: Held,
    /// The most that it held from the driver.
    pub peak_reserved: Bytes,
    /// Largest sum of live bytes, each rounded up to 512; a request that failed counts.
    pub live_peak: Bytes,
    /// Number of the event after which it was reached first; 0: before all.
    pub peak_event: usize,
    /// What was live then, by role.
    pub by_role: Vec<Share>,
    /// The same by frame: see [`SnapshotHolder::frame`].
    pub by_frame: Vec<Share>,
    /// The largest buffers at the peak.
    pub top: Vec<SnapshotHolder>,
    /// What can be done about it; the first row is no remedy at all.
    pub remedies: Vec<SnapshotRemedy>,
}

/// Explains the device of a snapshot that holds most, or `device`; `top` of the largest buffers are listed.
///
/// # Errors
///
/// [`Failure::Input`] for a file that can't be read, [`Failure::Usage`] for a device that holds nothing.
pub fn explain_snapshot(
    file: &[u8],
    device: Option<u64>,
    top: usize,
    tools: &Tools<'_>,
) -> Result<SnapshotExplanation, Failure> {
    let snapshot = snapshot::read(file)?;
    let Chosen { device, devices, timeline } = chosen(&snapshot, device)?;
    let roles = roles(&snapshot, &timeline);
    let frame = |index: usize| label(own_frame(snapshot.frames_of(timeline.buffers[index].stack)));
    let here: Vec<usize> = timeline.at_peak().collect();
    let size = |index: usize| timeline.buffers[index].size;
    let by_role: Vec<_> = here.iter().map(|&i| (roles[i].name().to_owned(), size(i))).collect();
    let by_frame: Vec<_> = here.iter().map(|&i| (frame(i), size(i))).collect();
    let mut largest = here;
    largest.sort_by_key(|&index| (Reverse(size(index)), index));
    largest.truncate(top);
    let holder = |index: usize| SnapshotHolder {
        bytes: size(index),
        role: roles[index],
        frame: frame(index),
        stack: snapshot.frames_of(timeline.buffers[index].stack).map(|frame| label(Some(frame))).collect(),
        from_before: timeline.buffers[index].from == 0,
        failed: timeline.buffers[index].failed,
    };
    let held = Held::of(&snapshot, device);
    Ok(SnapshotExplanation {
        device,
        devices,
        events: timeline.until - 1,
        allocations: timeline.buffers.len(),
        failed: timeline.failed,
        peak_reserved: timeline.reserved,
        live_peak: timeline.peak,
        peak_event: timeline.peak_at,
        by_role: shares(&by_role),
        by_frame: shares(&by_frame),
        top: largest.into_iter().map(holder).collect(),
        remedies: remedies::remedies(&timeline, &roles, &held, tools)?,
        held,
    })
}

/// A device of a snapshot, and what became of its memory.
pub(crate) struct Chosen {
    /// Its index.
    pub(crate) device: u64,
    /// Indices of all devices that hold anything.
    devices: Vec<u64>,
    /// Its history.
    pub(crate) timeline: Timeline,
}

/// The device that holds most, or `device`.
///
/// # Errors
///
/// [`Failure::Usage`] for a device that holds nothing.
pub(crate) fn chosen(snapshot: &Snapshot, device: Option<u64>) -> Result<Chosen, Failure> {
    let mut devices: Vec<u64> = snapshot.segments.iter().map(|segment| segment.device).collect();
    let recorded = snapshot.history.iter().enumerate().filter(|(_, events)| !events.is_empty());
    devices.extend(recorded.filter_map(|(device, _)| u64::try_from(device).ok()));
    devices.sort_unstable();
    devices.dedup();
    let timelines = devices.iter().map(|&device| (device, Timeline::of(snapshot, device)));
    let chosen = match device {
        None => timelines.max_by_key(|(device, timeline)| (timeline.reserved, Reverse(*device))),
        Some(device) => timelines.into_iter().find(|(other, _)| *other == device),
    };
    let Some((device, timeline)) = chosen else {
        let known: Vec<String> = devices.iter().map(u64::to_string).collect();
        let hint = if known.is_empty() {
            "make the snapshot where memory is in use".to_owned()
        } else {
            format!("known: {}", known.join(", "))
        };
        return Err(Failure::usage("the snapshot has nothing of that device", hint));
    };
    Ok(Chosen { device, devices, timeline })
}
