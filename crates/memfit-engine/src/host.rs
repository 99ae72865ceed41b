//! What the engine needs from whoever owns the device, and a host without a device.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Codec, Dtype, Form, Nanos, Store, Tier};

use crate::ids::StorageId;
use crate::settings::Settings;

/// A byte range of the arena. Without addresses (allocator `ideal`) the offset is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The storage that is in it; none for scratch memory, copies, and what is discarded at once.
    pub storage: Option<StorageId>,
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
    /// The number of the call: equal for a run and its repetitions. Another call may have it once this one is closed.
    pub call: u32,
    /// 0 for the first run.
    pub repetition: u32,
    /// The block of each operand; views have that of their storage.
    pub reads: &'a [Block],
    /// The block of each output. What is discarded at once has no storage; what is overwritten in place has
    /// the bytes of the operand and the name of its new version.
    pub writes: &'a [Block],
    /// The operand whose bytes are those of the output, which is written over it ([`Output::Takes`](crate::Output::Takes)).
    /// Where this is none, all operands stay as they are, but for those that are overwritten in place.
    pub over: Option<usize>,
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
    /// If the device failed; the error names the op and the cause. The engine's tables stay as they were before the op. What a
    /// repetition was to overwrite may be half written then; if a first run has written something, that is the host's to tell.
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError>;

    /// `block` holds a storage from now on.
    fn allocate(&mut self, _block: Block) {}

    /// `block` is free from now on.
    fn release(&mut self, _block: Block) {}

    /// Bytes that an encoded copy in device memory has taken, if the host has given back the rest of its room.
    fn taken(&mut self, _copy: u64) -> Option<Bytes> {
        None
    }

    /// Bytes of scratch memory that the first run which has just ended took, if that was measured: what was asked for was
    /// a guess then, and the call has so much from now on.
    fn workspace(&mut self) -> Option<Bytes> {
        None
    }

    /// Whether somebody else has a pointer to the bytes of `storage`, so that they must stay. Asked before it's evicted
    /// for room; if so, it stays for good.
    fn is_shared(&mut self, _storage: StorageId) -> bool {
        false
    }

    /// `storage` can't be computed again from now on: while it is needed, its bytes must stay, even when the program
    /// has given it up.
    fn keep(&mut self, _storage: StorageId) {}

    /// The call of this number will never be run again. The next call may have the number.
    fn close(&mut self, _call: u32) {}

    /// Time since some start; the staleness of tensors is counted in it.
    fn clock(&mut self) -> Nanos;

    /// The state of the random generator, if it can be put back: called before the first run of a `Seeded` op.
    fn generator(&mut self) -> Option<u64> {
        None
    }

    /// What is in `block`, if the host looks: asked for what an op has just made while its step is recorded, so that plans know what
    /// a codec would make of it.
    fn look(&mut self, _block: Block) -> Seen {
        Seen::default()
    }

    /// Begins to make a copy of what is in `from`, and names it. Until [`Host::wait`] has returned nobody writes to the bytes that it
    /// is made from, or releases them. A copy in device memory is made at once.
    ///
    /// # Errors
    ///
    /// If there is no memory for it, it takes more, or the device failed. Then there is no copy.
    fn store(&mut self, _from: Source, _wanted: Wanted) -> Result<u64, HostError> {
        Err(HostError("there is no memory for copies".to_owned()))
    }

    /// Names a copy of `size` bytes that has been there all the time: for hosts in which nothing is computed.
    ///
    /// # Errors
    ///
    /// If there is none.
    fn find(&mut self, _size: Bytes, _form: Form) -> Result<u64, HostError> {
        Err(HostError("there are no copies that nobody made".to_owned()))
    }

    /// Begins to fill `to`, which has been allocated, from a copy; the copy stays. The bytes are there when
    /// [`Host::wait`] has returned. From a copy in device memory it is done at once.
    ///
    /// # Errors
    ///
    /// If there is no such copy, or it can't be read.
    fn load(&mut self, copy: u64, _to: Block) -> Result<(), HostError> {
        Err(HostError(format!("there is no copy `{copy}`")))
    }

    /// Waits until what is under way with a copy is done.
    ///
    /// # Errors
    ///
    /// If that failed: the copy, or what was to be filled from it, is worth nothing.
    fn wait(&mut self, _copy: u64) -> Result<(), HostError> {
        Ok(())
    }

    /// Forgets a copy, with which nothing is under way.
    fn discard(&mut self, _copy: u64) {}
}

/// What a host has seen of the bytes of a storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The share of the words of four bytes that are not zero.
    pub density: Option<f32>,
    /// What they are.
    pub dtype: Dtype,
}

impl Default for Seen {
    /// Nothing.
    fn default() -> Seen {
        Seen { density: None, dtype: Dtype::Other }
    }
}

/// What a copy is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Where, and in which encoding.
    pub form: Form,
    /// The most bytes that it may take.
    pub room: Bytes,
    /// Start of the noise of a codec that rounds at random: the same for the same value in the same step, whatever happened before.
    pub key: u64,
}

impl Wanted {
    /// A copy for which nothing is drawn.
    #[must_use]
    pub const fn plain(form: Form, room: Bytes) -> Wanted {
        Wanted { form, room, key: 0 }
    }
}

/// What a copy is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A storage.
    Block(Block),
    /// An encoded copy, which stays encoded: only where it is changes.
    Copy(u64),
}

/// A host without a device: an op takes the time that its call expects, on a virtual clock; a transfer takes what its link
/// does, one after the other in each direction, beside the ops; a codec takes what the settings say, in between.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualHost {
    clock: Nanos,
    /// Whether `Seeded` ops may be repeated.
    pub replays_random: bool,
    drawn: u64,
    tiers: [Option<Store>; Tier::ALL.len()],
    /// By tier: when the queue to it and the one from it are done.
    queues: [[u64; 2]; Tier::ALL.len()],
    /// Plain bytes per second of codecs, `(encode, decode)`.
    codecs: Vec<(Codec, f64, f64)>,
    copies: BTreeMap<u64, Copied>,
    copied: u64,
}

/// A copy that there would be.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Copied {
    size: Bytes,
    /// Without one it is in device memory.
    tier: Option<Tier>,
    codec: Option<Codec>,
    /// When what is under way with it is done.
    done: u64,
}

impl Default for VirtualHost {
    /// The clock starts at 1 ns, as that of DTR's simulator.
    fn default() -> Self {
        VirtualHost::of(&Settings::new(Bytes::MAX))
    }
}

impl VirtualHost {
    /// One with the memory for copies in other tiers, and the codecs, that `settings` has.
    #[must_use]
    pub fn of(settings: &Settings) -> VirtualHost {
        VirtualHost {
            clock: Nanos(1),
            replays_random: true,
            drawn: 0,
            tiers: settings.tiers,
            codecs: settings.codecs.clone(),
            queues: [[0; 2]; Tier::ALL.len()],
            copies: BTreeMap::new(),
            copied: 0,
        }
    }

    /// `codec` has been at work on `plain` bytes, by the rate that `of` takes.
    fn code(&mut self, codec: Option<Codec>, plain: Bytes, of: impl Fn(&(Codec, f64, f64)) -> f64) {
        if let Some(rate) = self.codecs.iter().find(|(known, ..)| Some(*known) == codec).map(of) {
            self.clock = self.clock + Nanos::from_secs_f64(plain.0 as f64 / rate.max(1.0));
        }
    }

    /// When a transfer of `size` is done that joins the queue now.
    fn transfer(&mut self, tier: Tier, direction: usize, size: Bytes) -> Result<u64, HostError> {
        let missing = || HostError(format!("there is no {} for copies", tier.name()));
        let link = self.tiers[tier.index()].ok_or_else(missing)?.link;
        let time = if direction == 0 { link.out_time(size) } else { link.in_time(size) };
        let queue = &mut self.queues[tier.index()][direction];
        *queue = (*queue).max(self.clock.0).saturating_add(time.0);
        if !link.asynchronous {
            self.clock = Nanos(*queue);
        }
        Ok(*queue)
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

    fn store(&mut self, from: Source, Wanted { form, room, .. }: Wanted) -> Result<u64, HostError> {
        let lost = |copy| HostError(format!("there is no copy `{copy}`"));
        let (size, before) = match from {
            Source::Block(block) if form.codec().is_some() => {
                self.code(form.codec(), block.size, |&(_, encode, _)| encode);
                (room, None)
            }
            Source::Block(block) => (block.size, None),
            Source::Copy(copy) => {
                let copied = self.copies.get(&copy).ok_or_else(|| lost(copy))?;
                (copied.size, copied.tier)
            }
        };
        let tier = form.tier();
        let done = match (tier, before) {
            (Some(tier), _) => self.transfer(tier, 0, size)?,
            (None, Some(from)) => self.transfer(from, 1, size)?,
            (None, None) => self.clock.0,
        };
        self.copied += 1;
        self.copies.insert(self.copied, Copied { size, tier, codec: form.codec(), done });
        Ok(self.copied)
    }

    fn find(&mut self, size: Bytes, form: Form) -> Result<u64, HostError> {
        self.copied += 1;
        let (tier, codec, done) = (form.tier(), form.codec(), self.clock.0);
        self.copies.insert(self.copied, Copied { size, tier, codec, done });
        Ok(self.copied)
    }

    fn load(&mut self, copy: u64, to: Block) -> Result<(), HostError> {
        let lost = || HostError(format!("there is no copy `{copy}`"));
        let copied = *self.copies.get(&copy).ok_or_else(lost)?;
        let done = match copied.tier {
            Some(tier) => self.transfer(tier, 1, copied.size)?,
            None => copied.done,
        };
        self.code(copied.codec, to.size, |&(_, _, decode)| decode);
        self.copies.insert(copy, Copied { done, ..copied });
        Ok(())
    }

    fn wait(&mut self, copy: u64) -> Result<(), HostError> {
        let done = self.copies.get(&copy).map_or(0, |copied| copied.done);
        self.clock = Nanos(self.clock.0.max(done));
        Ok(())
    }

    fn discard(&mut self, copy: u64) {
        self.copies.remove(&copy);
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
