//! What the engine needs from whoever owns the device, and a host without a device.

use memfit_ir::{Bytes, Nanos};

/// A byte range of the arena. Without addresses (allocator `ideal`) the offset is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Names the storage version; stays the same when it is computed again.
    pub storage: u32,
    /// First byte.
    pub offset: Bytes,
    /// Number of bytes.
    pub size: Bytes,
}

/// One run of an op.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What it does, as given in [`crate::Call::kind`].
    pub kind: &'a str,
    /// The number of the call: equal for a run and its repetitions.
    pub call: u64,
    /// 0 for the first run.
    pub repetition: u32,
    /// The block of each operand; views have that of their storage.
    pub reads: &'a [Block],
    /// The block of each output. What is discarded at once has the storage `u32::MAX`; what is overwritten in place has
    /// the bytes of the operand and the name of its new version.
    pub writes: &'a [Block],
    /// Scratch memory; of size 0 if none was asked for.
    pub workspace: Block,
    /// Bytes of the budget that are left beside all blocks, those of this run too.
    pub room: Bytes,
    /// How long it is expected to take.
    pub expected: Nanos,
    /// What [`Host::generator`] returned before the first run of a `Seeded` op.
    pub generator: Option<u64>,
}

/// Why the host could not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// The device, as the engine sees it. All calls come from one thread, in the order in which they take effect.
pub trait Host {
    /// Runs an op and says how long it took. A repetition of a `Seeded` op must draw the same numbers again.
    ///
    /// # Errors
    ///
    /// If the device failed. The engine's tables stay as they were before the op.
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError>;

    /// `block` holds a storage from now on.
    fn allocate(&mut self, _block: Block) {}

    /// `block` is free from now on.
    fn release(&mut self, _block: Block) {}

    /// Bytes of scratch memory that the first run which has just ended took, if that was measured: what was asked for was
    /// a guess then, and the call has so much from now on.
    fn workspace(&mut self) -> Option<Bytes> {
        None
    }

    /// Whether somebody else has a pointer to the bytes of `storage`, so that they must stay. Asked before it's evicted
    /// for room; if so, it stays for good.
    fn is_shared(&mut self, _storage: u32) -> bool {
        false
    }

    /// `storage` can't be computed again from now on: while it is needed, its bytes must stay, even when the program
    /// has given it up.
    fn keep(&mut self, _storage: u32) {}

    /// The call of this number will never be run again.
    fn close(&mut self, _call: u64) {}

    /// Time since some start; the staleness of tensors is counted in it.
    fn clock(&mut self) -> Nanos;

    /// The state of the random generator, if it can be put back: called before the first run of a `Seeded` op.
    fn generator(&mut self) -> Option<u64> {
        None
    }

    /// Copies a block to host memory and returns a name for the copy; `None` if there is no such memory.
    fn copy_out(&mut self, _block: Block) -> Option<u64> {
        None
    }

    /// Copies back what [`Host::copy_out`] named, and forgets the copy.
    ///
    /// # Errors
    ///
    /// If there is no such copy.
    fn copy_in(&mut self, copy: u64, _block: Block) -> Result<(), HostError> {
        Err(HostError(format!("there is no copy `{copy}`")))
    }
}

/// A host without a device: an op takes the time that its call expects, on a virtual clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualHost {
    clock: Nanos,
    /// Whether `Seeded` ops may be repeated.
    pub replays_random: bool,
    drawn: u64,
}

impl Default for VirtualHost {
    /// The clock starts at 1 ns, as that of DTR's simulator.
    fn default() -> Self {
        VirtualHost { clock: Nanos(1), replays_random: true, drawn: 0 }
    }
}

impl Host for VirtualHost {
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError> {
        self.clock = self.clock + run.expected;
        Ok(run.expected)
    }

    fn clock(&mut self) -> Nanos {
        self.clock
    }

    fn generator(&mut self) -> Option<u64> {
        self.drawn += 1;
        self.replays_random.then_some(self.drawn)
    }
}

/// What a run is expected to take after one that took `measured`, in ns; `before` is 0 if nothing was known. A machine that is
/// busy with something else only makes runs longer, so less counts at once, and more by a quarter at most.
#[must_use]
pub fn expected(before: u64, measured: u64) -> u64 {
    match measured.checked_sub(before) {
        Some(more) if before > 0 => before.saturating_add(more.min(before) / 4),
        _ => measured,
    }
}
