//! How an engine works, and what it has done.

use memfit_ir::{Bytes, Codec, Limits, Nanos, Store, Tier};

use crate::allowance::Allowance;
use crate::call::{Dealloc, Regeneration};
use crate::evict;

/// When what goes for room, without a plan, is stored in another tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storing {
    /// It's always dropped.
    #[default]
    Never,
    /// Where that costs less than computing it again.
    WhereCheaper,
    /// As long as there is room.
    Always,
}

/// How an engine works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most bytes in use at any moment: sources, results, scratch memory, everything.
    pub budget: Bytes,
    /// Every range starts at a multiple of this.
    pub align: Bytes,
    /// A name of [`ALLOCATORS`](crate::alloc::ALLOCATORS).
    pub allocator: String,
    /// A name of [`evict::EVICTORS`].
    pub evictor: String,
    /// For the policy.
    pub options: evict::Options,
    /// What happens at the last release.
    pub dealloc: Dealloc,
    /// How evicted inputs come back.
    pub regeneration: Regeneration,
    /// Whether what nobody can need any more leaves the tables. DTR's simulator never forgets.
    pub forget: bool,
    /// Whether a host that asks for it has the past cut where it costs more than it serves: [`crate::Engine::cut_past`].
    pub cut: bool,
    /// The most time that may go into recomputation, since the start.
    pub patience: Nanos,
    /// Whether the engine keeps a log, for [`crate::Engine::end_step`].
    pub log: bool,
    /// Memory for copies beside the device's, by [`Tier::index`]: how much may be used, and the way there. Plans may store
    /// there what they want to have back.
    pub tiers: [Option<Store>; Tier::ALL.len()],
    /// Whether what goes for room, without a plan, may be stored there as well.
    pub storing: Storing,
    /// Whether what nothing can compute again may be stored there too, where nothing else makes room.
    pub parking: bool,
    /// Codecs that plans may use, lossy ones too if they are here, with the plain bytes per second that they encode and decode. With
    /// one, the host is asked how dense what ops make is, while a step is recorded.
    pub codecs: Vec<(Codec, f64, f64)>,
    /// What planning may take of the machine that plans, and what the log of a run may take.
    pub allowance: Allowance,
}

impl Settings {
    /// memfit's own way, within `budget`.
    #[must_use]
    pub fn new(budget: Bytes) -> Settings {
        Settings {
            budget,
            align: Bytes(512),
            allocator: "best-fit".to_owned(),
            evictor: "best".to_owned(),
            options: evict::Options::default(),
            dealloc: Dealloc::default(),
            regeneration: Regeneration::Yielding,
            forget: true,
            cut: true,
            patience: Nanos(u64::MAX),
            log: false,
            tiers: [None; Tier::ALL.len()],
            storing: Storing::Never,
            parking: false,
            codecs: Vec::new(),
            allowance: Allowance::default(),
        }
    }

    /// Exactly as DTR's simulator, with `evictor`.
    #[must_use]
    pub fn simulator(budget: Bytes, evictor: &str) -> Settings {
        Settings {
            align: Bytes(1),
            allocator: "ideal".to_owned(),
            evictor: evictor.to_owned(),
            dealloc: Dealloc::EagerEvict,
            regeneration: Regeneration::Nested,
            forget: false,
            ..Settings::new(budget)
        }
    }

    /// What a plan must keep to that is placed in an arena of `capacity` bytes: hosts replay generators.
    #[must_use]
    pub fn limits(&self, capacity: Bytes) -> Limits {
        let tier = |tier: Tier| self.tiers[tier.index()].map_or(Bytes::ZERO, |store| store.capacity);
        Limits {
            replays_random: true,
            lossy: self.codecs.iter().map(|row| row.0).filter(|codec| codec.is_lossy()).collect(),
            host: tier(Tier::Host),
            disk: tier(Tier::Disk),
            ..Limits::arena(capacity, self.align)
        }
    }
}

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of [`Engine::apply`](crate::Engine::apply) that went through.
    pub calls: u64,
    /// Ns in first runs.
    pub first_ns: u64,
    /// Runs that were repetitions.
    pub recomputes: u64,
    /// Ns in repetitions.
    pub recompute_ns: u64,
    /// Storages evicted for room.
    pub evictions: u64,
    /// Most bytes in use.
    pub peak: Bytes,
    /// Bytes in use.
    pub used: Bytes,
    /// Most bytes that could not go when an op was about to run, its operands and what it makes included. Where nothing was evicted,
    /// no budget below does for the same calls, unless some of that may be in another tier.
    pub unavoidable: Bytes,
    /// Highest end of a range.
    pub height: Bytes,
    /// Times that the bytes were there, but nowhere in one piece.
    pub fragmented: u64,
    /// Scores the policy computed.
    pub evaluations: u64,
    /// Bytes that were copied to other tiers, and back.
    pub stored: Bytes,
    /// See `stored`.
    pub loaded: Bytes,
    /// Bytes that were encoded, as many as they were before.
    pub encoded: Bytes,
    /// Copies that could not be made, or brought back: what they were of was computed again, or stayed.
    pub lost: u64,
    /// Ns spent on codecs and on waiting for copies.
    pub stall_ns: u64,
    /// Most bytes of copies, by [`Tier::index`].
    pub tier_peaks: [Bytes; Tier::ALL.len()],
}

/// How much recomputation is borne.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// So many times the program's own work, beside [`Pace::least`].
    pub(crate) times: f64,
    pub(crate) least: Nanos,
    /// Work of the program, and of repetitions, when the window began.
    pub(crate) own: u64,
    pub(crate) again: u64,
}
