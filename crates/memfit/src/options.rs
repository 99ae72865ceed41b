//! What may be asked of a plan beside its budget: one struct for the command line, Python and Rust.

use memfit_ir::{Bytes, Codec};
use memfit_plan::Means;

/// Which buffers may share bytes when ops run on several lanes: sharing can order two ops that the graph leaves
/// unordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneRule {
    /// Those whose sharing orders no two ops; all of those.
    #[default]
    Reachable,
    /// Those whose ops have the same colour, by longest paths, as MXNet's planner does: a heuristic.
    Colours,
    /// All: ops may wait for each other because of memory.
    AllowSerialize,
}

/// How a plan is made. A strategy is asked for by its name, of whichever family it is: a new family is a row of
/// [`FAMILIES`](memfit_plan::FAMILIES) and no field here.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Strategies instead of the defaults, as `family:name`; of orders, of placers and of recomputations the last one counts.
    /// Where schedulers are named, those are asked and no others. `budget:live` bounds what is live instead of the arena, for
    /// hosts that choose addresses themselves: the arena may then be larger than the budget.
    pub strategies: Vec<String>,
    /// What may be done to make the step fit, whatever is named.
    pub means: Means,
    /// Lossy codecs that may be used. Without one, results are the same bits as ever; with some, none is used where a plan without
    /// fits.
    pub lossy: Vec<Codec>,
    /// The most bytes of copies in host memory, 0 for none; values are moved if that is where the fastest plan is. `None`:
    /// what the device has, for schedulers that are named.
    pub host_budget: Option<Bytes>,
    /// The same for the device's disk. Where nothing is said of host memory and no scheduler is named, all copies go there.
    pub disk_budget: Option<Bytes>,
    /// Whether the host replays generator state, so that random ops may run again; `None`: as the graph says of the
    /// host it comes from.
    pub replays_random: Option<bool>,
    /// Streams of execution that ops are spread over. On several of them ops run once and nothing is moved.
    pub lanes: u16,
    /// How lanes are kept unordered.
    pub lane_rule: LaneRule,
    /// Whether an output may take over an input's bytes where the graph permits it but doesn't demand it.
    pub in_place: bool,
    /// Whether buffers that are not live together may share bytes.
    pub co_share: bool,
    /// Random seed.
    pub seed: u64,
    /// How much work searches do, in multiples of their default.
    pub effort: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            strategies: Vec::new(),
            means: Means::ALL,
            lossy: Vec::new(),
            host_budget: None,
            disk_budget: None,
            replays_random: None,
            lanes: 1,
            lane_rule: LaneRule::Reachable,
            in_place: true,
            co_share: true,
            seed: 0,
            effort: 1,
        }
    }
}
