//! A schedule: what runs, what is stored and what is loaded, in this order. All else follows from it.
//!
//! Between two uses a value stays in device memory, or it is dropped and computed again, or it waits in another
//! [`Form`]: in another tier, encoded, or both. A schedule says which, and nothing else. Derived from it are:
//!
//! - **Frees.** A stay ends after its last use before what it holds is made again: read by a run or a store, or named
//!   by a [`Action::Release`]. No other frees for the same actions hold fewer bytes at any of them. A copy in another
//!   tier ends when the last load of it has been waited for.
//! - **Waits.** A loaded value is waited for right before its first use; a buffer whose store is under way right before
//!   it is freed or taken over. A release after the store thus says for how long the two go on beside each other.
//! - **Decoding after a fetch.** What comes back encoded is decoded right before its first use; a result at the end.
//! - **In place.** As [`InPlace`] says, where the input's stay ends with the run.
//! - **Homes.** A storage that is there before the first step and after the last stays where it is
//!   ([`Graph::lasting`]). A run that defines a version of it which is there already leaves it alone: what the run
//!   writes goes at once. So an op may run again on loaded copies of the storages that it mutates.
//! - **Homes elsewhere.** A storage of [`Schedule::parked`] begins in another tier, or encoded, and ends so: that form is there
//!   before the first action, and what it holds at the end must have been stored in it. Plain in device memory it is like any other
//!   value: loaded, used, stored where it was mutated, gone after its last use. An encoded home stays where it is: what is stored
//!   there takes over the bytes of the version before.

mod lower;
mod stays;

use std::fmt;

use crate::{Codec, Graph, InPlace, OpId, Program, Tier, ValueId};

/// Where and how a value waits, beside its plain stay in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// As it is, in another tier.
    Tier(Tier),
    /// Encoded, in device memory.
    Encoded(Codec),
    /// Encoded, in another tier.
    EncodedOn(Tier, Codec),
}

impl Form {
    /// The tier that it is in, if that's not device memory.
    #[must_use]
    pub fn tier(self) -> Option<Tier> {
        match self {
            Form::Tier(tier) | Form::EncodedOn(tier, _) => Some(tier),
            Form::Encoded(_) => None,
        }
    }

    /// The codec that it is encoded by, if it is.
    #[must_use]
    pub fn codec(self) -> Option<Codec> {
        match self {
            Form::Encoded(codec) | Form::EncodedOn(_, codec) => Some(codec),
            Form::Tier(_) => None,
        }
    }
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run an op with one of its algorithms, as [`crate::Compute::algorithm`] counts them: the first run of an op
    /// computes it, later ones recompute it.
    Run {
        /// The op.
        op: OpId,
        /// 0 is its own cost and workspace, `k` is `algorithms[k − 1]`.
        algorithm: u16,
    },
    /// Make a form of a value that is in device memory, where it stays. To another tier in encoded form: it is encoded
    /// first, unless that is there already.
    Store(ValueId, Form),
    /// Bring a value back to device memory from a form of it, which stays.
    Load(ValueId, Form),
    /// A use of a value, or of a form of it, that touches nothing: its stay goes on until here.
    Release(ValueId, Option<Form>),
}

/// See the head of the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// What is done, in this order.
    pub actions: Vec<Action>,
    /// Parameters, state and constants that begin and end the step in another tier, or encoded in device memory, by the value that
    /// they begin with; each once.
    pub parked: Vec<(ValueId, Form)>,
}

/// Why a list of actions is no schedule of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unscheduled {
    /// This action names an op, an algorithm or a value that the graph does not have.
    Unknown {
        /// Its index.
        action: usize,
    },
    /// This action needs a value, or a form of it, that is not there.
    Missing {
        /// Its index.
        action: usize,
        /// The value.
        value: ValueId,
        /// The form; `None` is the plain value in device memory.
        form: Option<Form>,
    },
    /// This action loads a version of a storage that is in its home already.
    AtHome {
        /// Its index.
        action: usize,
        /// The value.
        value: ValueId,
    },
    /// A result is not in device memory at the end.
    NoResult {
        /// The value.
        value: ValueId,
    },
    /// Nothing that lasts begins with this value, it is parked twice, or in a form that is no home.
    NotParked {
        /// The value.
        value: ValueId,
    },
    /// A storage that began in another form holds this at the end, which is not there in it.
    NotBack {
        /// The value.
        value: ValueId,
        /// The form.
        form: Form,
    },
}

impl fmt::Display for Unscheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unscheduled::Unknown { action } => write!(f, "action {action} names nothing of the graph"),
            Unscheduled::Missing { action, value, form: None } => {
                write!(f, "action {action} needs {value}, which is not in device memory")
            }
            Unscheduled::Missing { action, value, form: Some(form) } => {
                write!(f, "action {action} needs {value} as {form:?}, which was not stored")
            }
            Unscheduled::AtHome { action, value } => {
                write!(f, "action {action} loads {value}, which is in its home already")
            }
            Unscheduled::NoResult { value } => write!(f, "the result {value} is not there at the end"),
            Unscheduled::NotParked { value } => {
                write!(
                    f,
                    "{value} can't begin in another form: it is not what a storage that lasts begins with, once"
                )
            }
            Unscheduled::NotBack { value, form } => {
                write!(f, "{value} is not there as {form:?} at the end, as its storage began")
            }
        }
    }
}

impl std::error::Error for Unscheduled {}

impl Schedule {
    /// Every op of `order` once, each with its default algorithm.
    #[must_use]
    pub fn in_order(order: &[OpId]) -> Schedule {
        let actions = order.iter().map(|&op| Action::Run { op, algorithm: 0 }).collect();
        Schedule { actions, parked: Vec::new() }
    }

    /// The program of this schedule. Whether ops may run again at all is not asked: the judge does. Time and space
    /// O(ops + operands of all actions), times the logarithm of the number of stored forms for those.
    ///
    /// # Errors
    ///
    /// [`Unscheduled`] for what can't be parked, at the first action that can't be done, or for a result that is missing at
    /// the end.
    pub fn program(&self, graph: &Graph, in_place: InPlace) -> Result<Program, Unscheduled> {
        let stays = stays::Stays::of(graph, self)?;
        Ok(lower::program(graph, &self.actions, in_place, &stays))
    }
}

impl Program {
    /// Every op once, in the graph's own order, each buffer freed right after its last use; in-place only
    /// where the graph demands it.
    #[must_use]
    pub fn eager(graph: &Graph) -> Program {
        let order: Vec<OpId> = graph.op_ids().collect();
        Program::in_order(graph, &order, InPlace::Must)
    }

    /// Every op of `order` once, each buffer freed right after its last use in that order.
    ///
    /// `order` is a permutation of the graph's ops in which every op comes after the ops it depends on. Ops
    /// whose turn comes before an input exists are left out, and so are ids that name no op: the judge will
    /// find the result missing. Time and space O(ops + operands).
    #[must_use]
    pub fn in_order(graph: &Graph, order: &[OpId], in_place: InPlace) -> Program {
        let mut actions = Schedule::in_order(order).actions;
        let stays = stays::Stays::of_doable(graph, &mut actions);
        lower::program(graph, &actions, in_place, &stays)
    }
}
