//! Simplification: the same results of fewer ops, before there is any plan.
//!
//! A pass proposes [`Change`]s of a graph; [`simplify`] keeps those that don't raise the peak and makes the graph anew. What comes
//! out is a [`memfit_ir::Rewrite`]: a claim that the judge's companion (`memfit_verify::rewrite`) checks from both graphs alone. Two passes change nothing and
//! tell what a host could do: [`Finding`]s.
//!
//! Ops are the same, or something by an identity, only where the graph says what they were told beside their operands
//! ([`Op::attributes`](memfit_ir::Op::attributes)). Ops with an effect stay: the generator's state and what other ranks wait for
//! are needed by somebody outside of the graph.

mod attributes;
mod common;
mod constants;
mod dead;
mod edit;
mod fusion;
mod guard;
mod identities;
mod parts;
mod trial;
mod views;

pub use edit::{Change, apply};
pub use fusion::fused;
pub use guard::{Kept, Simplified, simplify};
pub use identities::{CASTS, COPIES, NEUTRAL, lossless};
pub use views::VIEWS;

use memfit_ir::{Bytes, Device, Graph, Nanos, OpId, ValueId};

/// One pass.
pub struct Pass {
    /// Lower case, words joined by `-`.
    pub name: &'static str,
    /// One line, lower case, no full stop.
    pub summary: &'static str,
    /// What it does.
    pub work: Work,
}

/// What a pass does.
#[derive(Clone, Copy)]
pub enum Work {
    /// Proposes changes of a graph.
    Rewrite(fn(&Graph) -> Vec<Change>),
    /// Tells what a host could do with a graph that runs on a device.
    Tell(fn(&Graph, &Device) -> Vec<Finding>),
}

/// What a host could do with some ops.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The ops, ascending.
    pub ops: Vec<OpId>,
    /// What they compute that others need, ascending.
    pub results: Vec<ValueId>,
    /// What they compute for themselves alone, ascending.
    pub inner: Vec<ValueId>,
    /// Bytes that no longer travel between memory and processor in a step.
    pub moved: Bytes,
    /// Predicted time that a step no longer takes; nothing where times were measured.
    pub time: Nanos,
}

/// Every pass, in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass { name: "dead", summary: "ops and inputs that nobody needs", work: Work::Rewrite(dead::propose) },
    Pass {
        name: "views",
        summary: "reshapes that see the same bytes, read through or done in place",
        work: Work::Rewrite(views::propose),
    },
    Pass {
        name: "identities",
        summary: "transposes of transposes, casts there and back, copies, x * 1 and x + 0 where bits stay equal",
        work: Work::Rewrite(identities::propose),
    },
    Pass {
        name: "common",
        summary: "ops that compute what another op has computed",
        work: Work::Rewrite(common::propose),
    },
    Pass {
        name: "constants",
        summary: "values that can be computed ahead, from constants alone",
        work: Work::Tell(constants::find),
    },
    Pass {
        name: "fusion",
        summary: "groups of element-wise ops whose intermediates a fusing compiler need not store",
        work: Work::Tell(fusion::find),
    },
];
