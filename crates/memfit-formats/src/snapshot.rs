//! Snapshots of PyTorch's CUDA memory: what `torch.cuda.memory._dump_snapshot` and `pickle.dump(_snapshot(), …)`
//! write, and the bare list of `torch.cuda.memory_snapshot()`.
//!
//! A snapshot says what the caching allocator holds (segments from the driver, cut into blocks) and, where
//! `_record_memory_history` was on, the last events that led there, each with the stack that caused it. The keys are
//! documented at `torch.cuda.memory._snapshot` (2.15); keys and actions that are not known here are skipped, since
//! every release adds some. Stacks begin with the innermost frame. Only plain data is read, so nothing is executed.

use std::collections::BTreeMap;
use std::fmt;

use memfit_ir::Bytes;

use crate::FormatError;
use crate::pickle::{self, Id, Pickle, Value};

/// The most bytes that one snapshot may account for.
const MOST: u64 = 1 << 62;

/// Number of a stack in [`Snapshot::stacks`].
pub type StackId = u32;

/// One line of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// File, as the interpreter or the debug information names it.
    pub file: String,
    /// Line in it; 0 where it isn't known.
    pub line: u64,
    /// Function.
    pub function: String,
}

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// A tensor has it.
    Allocated,
    /// It was given back, but another stream may still use it.
    Awaiting,
    /// Free for reuse.
    Free,
}

/// A part of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: Bytes,
    /// What was asked for: less than its size by rounding.
    pub requested: Bytes,
    /// What it's used for.
    pub state: BlockState,
    /// Who asked for it.
    pub stack: StackId,
}

/// Memory from one call of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the device.
    pub device: u64,
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: Bytes,
    /// Whether it serves requests above 1 MiB.
    pub large: bool,
    /// Whether it can grow.
    pub expandable: bool,
    /// Whether it belongs to a private pool, as CUDA graphs have.
    pub private: bool,
    /// Stream its blocks are for.
    pub stream: u64,
    /// Its parts, by address.
    pub blocks: Vec<Block>,
}

/// What the allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Handed out memory.
    Alloc,
    /// Was given memory back.
    FreeRequested,
    /// May hand it out again.
    FreeCompleted,
    /// Got a segment from the driver, or a part of a growing one.
    SegmentAlloc,
    /// Gave one back.
    SegmentFree,
    /// Had nothing to hand out.
    OutOfMemory,
}

/// One event of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// Where.
    pub address: u64,
    /// How many bytes; those asked for, before rounding.
    pub size: Bytes,
    /// Free bytes of the device, where memory ran out.
    pub device_free: Option<Bytes>,
    /// Who caused it.
    pub stack: StackId,
}

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What the allocator holds.
    pub segments: Vec<Segment>,
    /// The last events of each device, oldest first; empty where none were recorded.
    pub history: Vec<Vec<Event>>,
    /// Each frame once.
    pub frames: Vec<Frame>,
    /// Each stack once, as numbers of frames, innermost first. Stack 0 is empty.
    pub stacks: Vec<Vec<u32>>,
}

impl Snapshot {
    /// The frames of a stack, innermost first.
    pub fn frames_of(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &Frame> {
        let frames = self.stacks.get(stack as usize).map_or(&[][..], Vec::as_slice);
        frames.iter().filter_map(|&frame| self.frames.get(frame as usize))
    }
}

/// Whether a file looks like a pickle, as snapshots are.
#[must_use]
pub fn is_snapshot(bytes: &[u8]) -> bool {
    pickle::is_pickle(bytes)
}

/// Reads a snapshot, plain or compressed with Zstandard.
///
/// # Errors
///
/// If the pickle is damaged or holds more than plain data, a key is missing, or a number makes no sense. The error
/// names the place.
pub fn read(bytes: &[u8]) -> Result<Snapshot, FormatError> {
    let bytes = crate::unpack(bytes)?;
    let pickle = pickle::read(&bytes)?;
    let mut reader = Reader {
        pickle: &pickle,
        snapshot: Snapshot::default(),
        known: Known::default(),
        total: 0,
        left: bytes.len(),
    };
    reader.snapshot.stacks.push(Vec::new());
    reader.known.stacks.insert(Vec::new(), 0);
    let root = pickle.root();
    let segments = match pickle.get(root) {
        Value::List(_) => root,
        _ => pickle.item(root, "segments").ok_or_else(|| {
            let message = "there is no key `segments`, so this is not a snapshot of PyTorch's CUDA memory";
            FormatError::new("", message)
                .hint("`torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")` makes one")
        })?,
    };
    for (at, &segment) in reader.entries(segments, || "segments".into())?.iter().enumerate() {
        let segment = reader.segment(segment, at)?;
        reader.snapshot.segments.push(segment);
    }
    if let Some(traces) = pickle.item(root, "device_traces") {
        for (device, &trace) in reader.entries(traces, || "device_traces".into())?.iter().enumerate() {
            let mut events = Vec::new();
            for (at, &event) in
                reader.entries(trace, || format!("device_traces[{device}]"))?.iter().enumerate()
            {
                events.extend(reader.event(event, device, at)?);
            }
            reader.snapshot.history.push(events);
        }
    }
    Ok(reader.snapshot)
}

/// What has been read before.
#[derive(Default)]
struct Known {
    /// By number in the pickle.
    lists: BTreeMap<Id, StackId>,
    dicts: BTreeMap<Id, u32>,
    /// By content.
    stacks: BTreeMap<Vec<u32>, StackId>,
    frames: BTreeMap<Frame, u32>,
}

struct Reader<'a> {
    pickle: &'a Pickle<'a>,
    snapshot: Snapshot,
    known: Known,
    /// Bytes of all segments.
    total: u64,
    /// Segments, blocks and events that may still come: each takes a byte of the file at least.
    left: usize,
}

impl<'a> Reader<'a> {
    fn list(&self, id: Id, place: impl FnOnce() -> String) -> Result<&'a [Id], FormatError> {
        match self.pickle.get(id) {
            Value::List(items) => Ok(items),
            _ => Err(FormatError::new(place(), "a list is expected")),
        }
    }

    /// A list of segments, blocks or events. A pickle may name one list any number of times, so a small file could say that
    /// there are more of them than memory holds; no allocator writes that.
    fn entries(&mut self, id: Id, place: impl Fn() -> String) -> Result<&'a [Id], FormatError> {
        let list = self.list(id, &place)?;
        let left = self.left.checked_sub(list.len());
        self.left = left.ok_or_else(|| {
            FormatError::new(
                place(),
                "more entries than the file has bytes: it names the same ones again and again",
            )
        })?;
        Ok(list)
    }

    fn optional(&self, dict: Id, key: &str, place: impl fmt::Display) -> Result<Option<u64>, FormatError> {
        let Some(id) = self.pickle.item(dict, key) else { return Ok(None) };
        match *self.pickle.get(id) {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        }
        .map(Some)
        .ok_or_else(|| {
            FormatError::new(format!("{place}.{key}"), "a whole number from 0 to 2^64 − 1 is expected")
        })
    }

    fn number(&self, dict: Id, key: &str, place: impl fmt::Display) -> Result<u64, FormatError> {
        let found = self.optional(dict, key, &place)?;
        found.ok_or_else(|| FormatError::new(place.to_string(), format!("there is no key `{key}`")))
    }

    fn size(&self, dict: Id, key: &str, place: impl fmt::Display) -> Result<Bytes, FormatError> {
        let number = self.number(dict, key, &place)?;
        if number >= MOST {
            return Err(FormatError::new(format!("{place}.{key}"), "2^62 bytes or more are no size"));
        }
        Ok(Bytes(number))
    }

    fn text(&self, dict: Id, key: &str) -> &'a str {
        match self.pickle.item(dict, key).map(|id| self.pickle.get(id)) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    fn is_true(&self, dict: Id, key: &str) -> bool {
        self.pickle.item(dict, key).is_some_and(|id| *self.pickle.get(id) == Value::Bool(true))
    }

    fn segment(&mut self, dict: Id, at: usize) -> Result<Segment, FormatError> {
        let place = format!("segments[{at}]");
        let size = self.size(dict, "total_size", &place)?;
        self.total = self.total.saturating_add(size.0);
        if self.total >= MOST {
            return Err(FormatError::new(place, "all segments together reach 2^62 bytes"));
        }
        let address = self.number(dict, "address", &place)?;
        let pool = self.pickle.item(dict, "segment_pool_id").map(|id| self.pickle.get(id));
        let is_zero = |id: &Id| *self.pickle.get(*id) == Value::Int(0);
        let private = matches!(pool, Some(Value::List(parts)) if !parts.iter().all(is_zero));
        let list = self.pickle.item(dict, "blocks");
        let list = list.ok_or_else(|| FormatError::new(place.clone(), "there is no key `blocks`"))?;
        let list = self.entries(list, || format!("{place}.blocks"))?;
        let (mut blocks, mut next) = (Vec::with_capacity(list.len()), address);
        for (at, &block) in list.iter().enumerate() {
            let place = format!("{place}.blocks[{at}]");
            let block = self.block(block, next, &place)?;
            next = block.address.saturating_add(block.size.0);
            blocks.push(block);
        }
        let held: Bytes = blocks.iter().map(|block| block.size).sum();
        if held > size {
            return Err(FormatError::new(place, format!("its blocks hold {} B of {} B", held.0, size.0)));
        }
        Ok(Segment {
            device: self.optional(dict, "device", &place)?.unwrap_or_default(),
            address,
            size,
            large: self.text(dict, "segment_type") == "large",
            expandable: self.is_true(dict, "is_expandable"),
            private,
            stream: self.optional(dict, "stream", &place)?.unwrap_or_default(),
            blocks,
        })
    }

    /// `next` is where the block begins if it doesn't say.
    fn block(&mut self, dict: Id, next: u64, place: &str) -> Result<Block, FormatError> {
        let size = self.size(dict, "size", place)?;
        let state = match self.text(dict, "state") {
            "active_allocated" => BlockState::Allocated,
            "active_awaiting_free" | "active_pending_free" => BlockState::Awaiting,
            "inactive" => BlockState::Free,
            other => {
                let other: String = other.chars().take(100).collect();
                return Err(FormatError::new(
                    format!("{place}.state"),
                    format!("`{other}` is no state of a block"),
                ));
            }
        };
        let requested = self.optional(dict, "requested_size", place)?.map_or(size, Bytes).min(size);
        let address = self.optional(dict, "address", place)?.unwrap_or(next);
        Ok(Block { address, size, requested, state, stack: self.stack(dict, place)? })
    }

    fn event(&mut self, dict: Id, device: usize, at: usize) -> Result<Option<Event>, FormatError> {
        let action = match self.text(dict, "action") {
            "alloc" => Action::Alloc,
            "free_requested" => Action::FreeRequested,
            "free_completed" | "free" => Action::FreeCompleted,
            "segment_alloc" | "segment_map" => Action::SegmentAlloc,
            "segment_free" | "segment_unmap" => Action::SegmentFree,
            "oom" => Action::OutOfMemory,
            _ => return Ok(None),
        };
        let place = format!("device_traces[{device}][{at}]");
        Ok(Some(Event {
            action,
            address: self.optional(dict, "addr", &place)?.unwrap_or_default(),
            size: self.size(dict, "size", &place)?,
            device_free: self.optional(dict, "device_free", &place)?.map(Bytes),
            stack: self.stack(dict, &place)?,
        }))
    }

    /// The stack under `frames`; an event without one has the empty stack.
    fn stack(&mut self, dict: Id, place: &str) -> Result<StackId, FormatError> {
        let Some(id) = self.pickle.item(dict, "frames") else { return Ok(0) };
        if let Some(&stack) = self.known.lists.get(&id) {
            return Ok(stack);
        }
        let list = self.list(id, || format!("{place}.frames"))?;
        let frames: Vec<u32> =
            list.iter().map(|&frame| self.frame(frame, place)).collect::<Result<_, _>>()?;
        let next = number_of(self.snapshot.stacks.len(), place)?;
        let stack = *self.known.stacks.entry(frames).or_insert_with_key(|frames| {
            self.snapshot.stacks.push(frames.clone());
            next
        });
        self.known.lists.insert(id, stack);
        Ok(stack)
    }

    fn frame(&mut self, dict: Id, place: &str) -> Result<u32, FormatError> {
        if let Some(&frame) = self.known.dicts.get(&dict) {
            return Ok(frame);
        }
        let line = self.pickle.item(dict, "line").map(|id| self.pickle.get(id));
        let line =
            if let Some(Value::Int(line)) = line { u64::try_from(*line).unwrap_or_default() } else { 0 };
        let frame = Frame {
            file: self.text(dict, "filename").to_owned(),
            line,
            function: self.text(dict, "name").to_owned(),
        };
        let next = number_of(self.snapshot.frames.len(), place)?;
        let number = *self.known.frames.entry(frame).or_insert_with_key(|frame| {
            self.snapshot.frames.push(frame.clone());
            next
        });
        self.known.dicts.insert(dict, number);
        Ok(number)
    }
}

fn number_of(count: usize, place: &str) -> Result<u32, FormatError> {
    u32::try_from(count).map_err(|_| FormatError::new(place, "more than 2^32 stacks or frames"))
}
