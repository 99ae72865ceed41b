//! The judge: decides whether a [`Plan`] computes its [`Graph`] within its [`Limits`].
//!
//! # Method
//!
//! The judge executes the plan symbolically. Its memory maps byte ranges to what was last put there. A step
//! must find, in the very bytes of each operand, the value that the graph asks for; so a wrong address, a
//! missing copy or a step out of order shows as *the wrong value arrives*. No lifetime analysis is trusted,
//! none is shared with the planners: this crate uses the data of `memfit-ir` and none of its analyses.
//!
//! # Rules
//!
//! - **R0 graph**: the plan carries the digest of this graph.
//! - **R1 structure**: every id names something; the layout has a place for each buffer; a compute step has
//!   one buffer for each operand of its op, and names one of its algorithms; `lanes` is empty or complete.
//! - **R2 stay**: a buffer or host copy is filled once, used only between then and its end, and ended once. What is there
//!   before the first step is what no op defines, each value once; a copy that is, is what a persistent storage begins with, and so is
//!   what is encoded.
//!   `Free` says that a stay is over and touches nothing: R11 and R12 keep the bytes from whoever comes next until
//!   all who touched them are done.
//! - **R3 size**: a buffer is as large as what it holds (encoded: at least the codec's room for it; workspace: at
//!   least what the algorithm needs), and claims to hold what is put in it.
//! - **R4 place**: a buffer is aligned, inside its bank, and where the graph pins it.
//! - **R5 value**: the bytes read hold exactly the value wanted.
//! - **R6 overwrite**: nothing is written over bytes whose buffer has not ended, be it an input of the same
//!   step or a sibling output.
//! - **R7 in place**: a buffer takes over another's bytes only where the graph has a pair for it, at the same
//!   place with the same size, and always where the pair is a must. What is encoded may take over any: those bytes are given
//!   back by that, and R13 asks whether what is there is at home.
//! - **R8 effect**: `Once` and `Collective` ops run exactly once, `Seeded` ones at least once, and again only
//!   if the host replays generator state, and once their first run is done; first runs keep the graph's order within
//!   {Seeded} and within {Once, Collective}.
//! - **R9 host**: copies in host memory and on disk fit the budget of their tier, counted in issue order, those that are
//!   there before the first step included.
//! - **R10 lossy**: only lossy codecs that the limits name.
//! - **R11 transfer**: nothing touches bytes or copies in flight, except to read what is being read. A
//!   transfer is in flight until an `Await` on it, or on a later one of its queue, or on a step after such. Each tier
//!   has a queue out and one in.
//! - **R12 lane**: two steps on different lanes touch the same bytes, one of them writing, only in an
//!   order that `Await`s enforce; an `Await` names an earlier step; lanes exist, 1,024 of them at most.
//! - **R13 result**: at the end every result is in device memory, and the last version of every persistent storage is
//!   where the first one was at the start, its *home* (the same place and encoding, or a copy in the same tier), so that the step can run
//!   again. A copy of an earlier version is not that.
//! - **R14 codec**: what codecs have left of a value is as much as an op needs of that operand, and all of it where R13 asks
//!   for it; codecs that know numbers encode `f32`.
//!
//! The companion in [`mod@rewrite`] decides about graphs that are made of graphs, before there is a plan; it has rules of its own and
//! shares nothing with this one but the form of a verdict.
//!
//! # Not checked
//!
//! Costs and predicted times; whether the graph's own pairs, sizes, needs, densities and effects are true of the kernels; host
//! addresses; that links keep FIFO order. A value nobody needs may stay uncomputed, unless R8 says
//! otherwise. The program's end waits for all lanes and transfers.

mod execute;
mod memory;
pub mod rewrite;
mod rules;

pub use rules::{Rejected, Rule, Violation};

use memfit_ir::{Bytes, Graph, Limits, Plan, Tier};

/// A plan that passed [`verify`]. Executors accept nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    plan: Plan,
    /// Of each bank, then of each tier.
    peaks: Vec<Bytes>,
}

impl Verified {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Highest address in use plus one in the first bank, over all steps.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        self.peaks().first().copied().unwrap_or_default()
    }

    /// Highest address in use plus one in each bank.
    #[must_use]
    pub fn peaks(&self) -> &[Bytes] {
        &self.peaks[..self.peaks.len() - Tier::ALL.len()]
    }

    /// Largest sum of copies in `tier`.
    #[must_use]
    pub fn tier_peak(&self, tier: Tier) -> Bytes {
        self.peaks[self.peaks.len() - Tier::ALL.len() + tier.index()]
    }
}

/// Reads a plan and either vouches for it or says everything that is wrong with it.
///
/// Time O(s log b) for s operands and b resident buffers, times the number of lanes.
///
/// # Errors
///
/// The violations found, in program order; never an empty list.
pub fn verify(graph: &Graph, limits: &Limits, plan: Plan) -> Result<Verified, Rejected> {
    execute::run(graph, limits, &plan).map(|peaks| Verified { plan, peaks })
}
