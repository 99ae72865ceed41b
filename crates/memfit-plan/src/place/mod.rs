//! Placement: an address for every buffer of a fixed program.

mod arena;
mod best;
mod best_fit;
mod bfc;
mod caching;
mod descent;
mod dive;
mod exact;
mod fit;
mod greedy_by_breadth;
mod greedy_by_size;
mod heap;
mod hill_climb;
pub mod lanes;
mod largest_first;
mod micro_greedy;
mod naive;
mod plateau;
mod problem;
mod push_down;
mod rank;
mod refcount;
mod runtime;
mod size_or_duration_first;
mod skyline;
mod smart_pool;
pub mod spread;
mod stack;
mod whole_life_first;

pub use best::Best;
pub use best_fit::BestFit;
pub use bfc::Bfc;
pub use caching::Caching;
pub use dive::Dive;
pub use exact::Exact;
pub use greedy_by_breadth::GreedyByBreadth;
pub use greedy_by_size::GreedyBySize;
pub use hill_climb::HillClimb;
pub use largest_first::LargestFirst;
pub use micro_greedy::MicroGreedy;
pub use naive::Naive;
pub use problem::{Item, Lanes, Problem};
pub use push_down::PushDown;
pub use refcount::RefCount;
pub use size_or_duration_first::SizeOrDurationFirst;
pub use smart_pool::SmartPool;
pub use stack::Stack;
pub use whole_life_first::WholeLifeFirst;

use memfit_ir::{Bytes, Place};

use crate::{Context, Info};

/// Assigns every item a place so that items live at the same time do not overlap.
pub trait Placer: Sync {
    /// What people are told about this placer.
    fn info(&self) -> Info;

    /// Whether it takes milliseconds on a training step, so that tables can show it beside the chosen one.
    fn is_quick(&self) -> bool {
        true
    }

    /// Whether it replays the allocator of a framework: what a step takes there today.
    fn replays_allocator(&self) -> bool {
        false
    }

    /// Lays out `problem` as low as this placer can.
    ///
    /// # Errors
    ///
    /// [`Unplaced`] if the problem asks for what this placer does not do, or its pins contradict each other,
    /// or the banks are too small. A single bank is never too small: its capacity is for the caller to
    /// compare with [`Placement::height`].
    fn place(&self, problem: &Problem, context: &Context<'_>) -> Result<Placement, Unplaced>;
}

/// A place for each item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Indexed as [`Problem::items`].
    pub places: Vec<Place>,
    /// Highest end of an item in bank 0, rounded up to its alignment.
    pub height: Bytes,
    /// No layout of this problem is lower than this. At least [`Problem::lower_bound`] where there is one
    /// bank.
    pub bound: Bytes,
    /// What a run-time allocator would hold: `height`, except for the replayed allocators, which round
    /// requests and keep what is freed.
    pub reserved: Bytes,
}

/// Why a placer returned nothing. Never a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// The problem has what this placer does not do, or what cannot be: a noun to be put after "does not do".
    Unsupported(&'static str),
    /// No layout was found within the banks; `proved` if there is none.
    TooSmall {
        /// Bytes that bank 0 would have needed.
        needed: Bytes,
        /// Whether no layout at all could do with less.
        proved: bool,
    },
}

/// Every placer, cheapest first. This order is the order of the manual.
pub const PLACERS: &[&dyn Placer] = &[
    &Naive,
    &RefCount::DEFAULT,
    &Caching,
    &Bfc,
    &BestFit,
    &PushDown,
    &Stack::BySize,
    &Stack::ByConflicts,
    &LargestFirst,
    &MicroGreedy,
    &GreedyBySize,
    &WholeLifeFirst,
    &SmartPool,
    &GreedyByBreadth,
    &SizeOrDurationFirst,
    &HillClimb::DEFAULT,
    &Dive,
    &Exact::DEFAULT,
    &Best::DEFAULT,
];

/// The placer called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Placer> {
    PLACERS.iter().copied().find(|placer| placer.info().name == name)
}
