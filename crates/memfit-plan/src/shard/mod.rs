//! Data parallelism that shares what lasts: a step as one of N ranks runs it, as a graph of its own.
//!
//! A stage says what a rank holds a share of, and with that which collective ops come into the step and where. All stages
//! are rows of [`STAGES`], one file each; [`shard`] makes the graph. What comes out is a graph like all others: it is
//! planned, verified and run by the same code. Every rank has the same graph, since shares are padded to one size.
//!
//! A value is split by its elements, whatever its shape: a share is ⌈elements ÷ N⌉ of them, and the last shares are
//! padded. A value of one element is not split. Collective ops have the effect of that name, so no plan drops, repeats or
//! reorders them, and ranks can't disagree about them: what is gathered twice is gathered by two ops of the graph.
//!
//! Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (arXiv:1910.02054).

mod collective;
mod gradients;
mod parameters;
mod replicas;
mod rewrite;
mod split;
mod state;
mod survey;
mod together;
mod units;

pub use collective::{Ring, Traffic};
pub use memfit_engine::evict::Info;
use memfit_ir::{Bytes, Graph, Phase, ValueId};
pub use rewrite::Rewriter;
pub use survey::Holdings;
use survey::Survey;

/// What a rank holds a share of, and how ranks get what they need of each other.
pub trait Stage: Sync {
    /// Name, summary, source.
    fn info(&self) -> Info;

    /// Which kinds of value a rank holds a share of.
    fn shares(&self) -> Shares;

    /// A gradient is finished: brings in what all ranks have of it, for the update to read.
    ///
    /// # Errors
    ///
    /// If the graph gets too large.
    fn reduce(&self, step: &mut Rewriter<'_>, gradient: ValueId) -> Result<ValueId, Refused>;

    /// What an op of `phase` reads of a parameter, of which the rank holds `value`.
    ///
    /// # Errors
    ///
    /// If the graph gets too large.
    fn used(&self, step: &mut Rewriter<'_>, value: ValueId, phase: Phase) -> Result<ValueId, Refused> {
        let _ = (step, phase);
        Ok(value)
    }

    /// A parameter is up to date as far as this rank does that: what it holds of it afterwards.
    ///
    /// # Errors
    ///
    /// If the graph gets too large.
    fn updated(&self, step: &mut Rewriter<'_>, parameter: ValueId) -> Result<ValueId, Refused> {
        let _ = step;
        Ok(parameter)
    }
}

/// Kinds of value that a rank holds a share of, not the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// What only the update touches: moments, copies in 32 bits.
    pub state: bool,
    /// Gradients that wait for the update.
    pub gradients: bool,
    /// Parameters between their uses.
    pub parameters: bool,
}

/// All stages, each sharing more than the one before. The first is data parallelism that shares nothing.
pub const STAGES: &[&dyn Stage] =
    &[&replicas::Replicas, &state::State, &gradients::Gradients, &parameters::Parameters];

/// The stage called `name`.
#[must_use]
pub fn stage(name: &str) -> Option<&'static dyn Stage> {
    STAGES.iter().copied().find(|stage| stage.info().name == name)
}

/// How a step is shared.
#[derive(Clone, Copy)]
pub struct Sharding<'a> {
    /// The ranks, two or more.
    pub ranks: u32,
    /// What they share.
    pub stage: &'a dyn Stage,
    /// What carries their collective ops.
    pub ring: Ring,
    /// Whether whole gradients have memory of their own for the whole step, as the buckets of `DistributedDataParallel` are.
    pub buckets: bool,
    /// Modules whose parameters are gathered together, as `fully_shard` does: paths, in which `*` is any one component. Without any
    /// of them each parameter is gathered by itself.
    pub units: &'a [String],
}

/// A step as one of its ranks runs it.
#[derive(Clone, Debug)]
pub struct Sharded {
    /// The step.
    pub graph: Graph,
    /// What the rank holds.
    pub holdings: Holdings,
    /// What it sends.
    pub traffic: Traffic,
}

/// Why a graph can't be shared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// What is missing, or in the way.
    pub message: String,
    /// The next step.
    pub hint: String,
    /// Whether it is about the call, not the graph.
    pub usage: bool,
}

impl Refused {
    fn graph(message: impl Into<String>, hint: impl Into<String>) -> Refused {
        Refused { message: message.into(), hint: hint.into(), usage: false }
    }

    fn usage(message: impl Into<String>, hint: impl Into<String>) -> Refused {
        Refused { message: message.into(), hint: hint.into(), usage: true }
    }
}

/// The step of one of the ranks that run `graph` together, each on a batch of its own.
///
/// Ops of the phase `update` are taken to work element by element: in a stage that shares the state each does 1/N of its
/// work, and what it makes of one element of many (a norm) is added up over the ranks. Time O(operands log operands).
///
/// # Errors
///
/// If there is one rank or none, or more than there are elements; if the graph does not say what its parameters, gradients
/// and updates are; if an update can't be split; if the graph gets too large.
pub fn shard(graph: &Graph, sharding: &Sharding<'_>) -> Result<Sharded, Refused> {
    if sharding.ranks < 2 {
        let message = format!("`{}` ranks have nothing to share", sharding.ranks);
        return Err(Refused::usage(message, "`--ranks 2` or more"));
    }
    let survey = Survey::of(graph)?;
    let elements = survey.trained.iter().map(|&value| split::elements(graph, value)).max().unwrap_or(0);
    if u64::from(sharding.ranks) > elements {
        let message = format!(
            "`{}` ranks are more than the `{elements}` elements of the largest parameter",
            sharding.ranks
        );
        return Err(Refused::usage(message, format!("`--ranks {elements}` or fewer")));
    }
    let shares = sharding.stage.shares();
    if shares.gradients && sharding.buckets {
        let message = "buckets hold whole gradients, and this stage has shares of them";
        return Err(Refused::usage(message, "`--state` beside them, or no buckets"));
    }
    if !shares.parameters && !sharding.units.is_empty() {
        let message = "units are gathered, and parameters are whole in this stage";
        return Err(Refused::usage(message, "`--parameters` beside them, or no units"));
    }
    if shares.state && !shares.gradients && survey.held(graph).state == Bytes::ZERO {
        return Err(Refused::graph(
            "there is no optimizer state to share: no value of role `state` is touched by updates alone",
            "`--gradients` or `--parameters` share what there is",
        ));
    }
    Rewriter::new(graph, &survey, sharding)?.run()
}
