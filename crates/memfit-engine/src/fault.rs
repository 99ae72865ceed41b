//! What can go wrong, in words for the host's user.

use std::fmt;

use memfit_ir::{Bytes, Nanos, Tier};

use crate::call::TensorId;
use crate::host::HostError;
use crate::plan::Refusal;

/// Something that can't make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The tensor that stands for the storage.
    pub tensor: TensorId,
    /// Its bytes.
    pub size: Bytes,
    /// Who keeps it there.
    pub why: Why,
}

/// Why a storage can't go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// An op that is about to run reads it.
    Operand,
    /// The user pinned it.
    Pinned,
    /// It can't be computed again: a parameter, an input, the result of an op with effects.
    Source,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Operand => "operands of the op",
            Why::Pinned => "pinned by the user",
            Why::Source => "can't be computed again",
        })
    }
}

/// There is no room, and nothing more that could go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The op that needs it.
    pub op: String,
    /// Its outputs and workspace.
    pub asked: Bytes,
    /// What can't go, in the order of the tables.
    pub holding: Vec<Holding>,
    /// The budget.
    pub budget: Bytes,
    /// The smallest budget with which this call would have gone on, as things stand; later ones may need more. Not over the budget if the bytes are there, but
    /// nowhere in one piece.
    pub enough: Bytes,
}

impl NoRoom {
    fn sum(&self, why: Why) -> Bytes {
        self.holding.iter().filter(|holding| holding.why == why).map(|holding| holding.size).sum()
    }
}

/// What stands for an op where a tensor comes in that none has made.
pub(crate) const PUT: &str = "put";

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoRoom { op, asked, budget, enough, .. } = self;
        match op.as_str() {
            PUT => {
                write!(f, "out of memory: a tensor that comes in takes `{asked}`, the budget is `{budget}`")?
            }
            _ => write!(f, "out of memory: op `{op}` takes `{asked}` more, the budget is `{budget}`")?,
        }
        let mut separator = ":";
        for why in [Why::Operand, Why::Pinned, Why::Source] {
            if self.sum(why) > Bytes::ZERO {
                write!(f, "{separator} `{}` {why}", self.sum(why))?;
                separator = ",";
            }
        }
        if enough > budget {
            write!(f, "; less than `{enough}` is not enough for it")
        } else {
            write!(f, "; as many bytes are free, but not in one piece")
        }
    }
}

/// Recomputation takes so long that there is taken to be no way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thrashing {
    /// Ns of the program's own ops since it was looked at last.
    pub own: Nanos,
    /// Ns of repetitions in that time.
    pub again: Nanos,
    /// The op that was repeated last, what can't go, and as [`NoRoom::enough`] a budget in which nothing that the program holds
    /// would have had to go; less may do.
    pub no_room: NoRoom,
}

impl fmt::Display for Thrashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Thrashing { own, again, no_room: NoRoom { op, budget, enough, .. } } = self;
        write!(
            f,
            "no way within the budget of `{budget}`: recomputation has taken `{again}`, the program's own ops `{own}`, and `{op}` was \
             computed again last; `{enough}` would hold all that the program holds here, and less may do"
        )
    }
}

fn name_of(tier: Tier) -> &'static str {
    match tier {
        Tier::Host => "host memory",
        Tier::Disk => "the spill file",
    }
}

/// Why the engine could not do what the host asked for. Its tables are as before the call, but for evictions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A tensor that the program does not hold.
    #[error("`{0}` is not a tensor that is held")]
    Unknown(TensorId),
    /// A call that contradicts itself.
    #[error("{0}")]
    BadCall(String),
    /// The budget is too small.
    #[error("{0}")]
    NoRoom(Box<NoRoom>),
    /// A tensor that was given away and can't be computed again.
    #[error("`{0}` is gone and can't be computed again")]
    Lost(TensorId),
    /// What was in another tier alone can't be brought back from there, and nothing can compute it again.
    #[error("`{tensor}` was stored in {tier} alone, and can't be brought back: {why}", tier = name_of(*tier))]
    Gone {
        /// What it is.
        tensor: TensorId,
        /// Where it was.
        tier: Tier,
        /// What the host says.
        why: HostError,
    },
    /// More time went into recomputation than the settings allow.
    #[error("recomputation took more than `{0}`")]
    TooSlow(Nanos),
    /// Recomputation took too long beside the program's own ops: [`crate::Engine::limit_pace`].
    #[error("{0}")]
    Thrashing(Box<Thrashing>),
    /// Planning has used up its memory or its time.
    #[error("planning has used up the memory or the time that it may take")]
    OverAllowance,
    /// Nothing that was asked for a plan found one within the budget.
    #[error("no plan was found by `{0}`")]
    NoPlan(String),
    /// The judge refuses a plan that memfit has made: a bug in memfit.
    #[error("the verifier refuses a plan of memfit's own, which is a bug: {0}")]
    Refused(#[from] Box<Refusal>),
    /// The device failed.
    #[error("{0}")]
    Host(#[from] HostError),
}
