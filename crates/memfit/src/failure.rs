//! The kinds of error that are never mixed: the user's call, the user's file, a budget that is too small, a
//! plan that doesn't fit its graph or its limits, and our own bug.

use memfit_formats::FormatError;
use memfit_ir::Bytes;
use memfit_tiers::SpillError;
use memfit_verify::Rejected;

use crate::held::held;

/// The op whose working set sets what no plan goes below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Index of the op.
    pub op: u32,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// What it reads and does not give up in place: name and bytes.
    pub reads: Vec<(String, Bytes)>,
    /// What it writes: name and bytes.
    pub writes: Vec<(String, Bytes)>,
    /// Its scratch memory.
    pub workspace: Bytes,
    /// Persistent storages that it doesn't touch, but that are in memory while it runs.
    pub resident: Bytes,
}

/// Why a budget is too small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infeasible {
    /// The budget.
    pub budget: Bytes,
    /// The smallest budget that the strategies at hand can do with.
    pub needed: Bytes,
    /// No plan with these means fits below this.
    pub least: Bytes,
    /// Persistent bytes plus the largest single-op working set: the least too, unless parameters and state may be at home
    /// elsewhere.
    pub floor: Bytes,
    /// Whether the budget is below the least: then none of those means can help.
    pub proved: bool,
    /// What the least is proved for: none of these fits below it.
    pub of: &'static str,
    /// The step that forces the least.
    pub witness: Option<Witness>,
    /// What stood in a strategy's way beside bytes.
    pub why: Option<String>,
    /// Whether values were to be moved to other memory.
    pub moves: bool,
}

impl Infeasible {
    /// That `budget` is too small, without a witness: `needed` is enough, and no `of` fits below `least`, which is the floor.
    #[must_use]
    pub fn new(budget: Bytes, needed: Bytes, least: Bytes, of: &'static str) -> Infeasible {
        let (proved, moves) = (false, false);
        Infeasible { budget, needed, least, floor: least, proved, of, witness: None, why: None, moves }
    }

    /// The budget and `other`, as text that tells them apart.
    fn shown(&self, other: Bytes) -> (String, String) {
        let show = |bytes: Bytes| bytes.to_string();
        let exact = |bytes: Bytes| format!("{bytes} ({} B)", bytes.0);
        let (budget, shown) = (show(self.budget), show(other));
        if budget == shown && self.budget != other {
            return (exact(self.budget), exact(other));
        }
        (budget, shown)
    }

    /// What is enough, and what is proved not to be.
    fn hint(&self) -> String {
        let floor = if self.least < self.needed {
            format!("; proved: no {} fits below `{}` ({} B)", self.of, self.least, self.least.0)
        } else {
            String::new()
        };
        // Below the floor, who has offered other memory is told that more of it would not help.
        let witness = self.witness.as_ref().filter(|_| self.moves && self.proved);
        let held = witness.map_or(String::new(), |witness| format!("; {}", held(&brief(&witness.name))));
        format!("`--budget {}` is enough{floor}{held}", above(self.needed))
    }
}

/// A size for people to write that is at least `bytes` and less than a thousandth more: `62.31GiB`.
fn above(bytes: Bytes) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, one)) = units.into_iter().find(|&(_, one)| bytes.0 >= one) else {
        return bytes.0.to_string();
    };
    // Below ten another digit.
    let digits = if bytes.0 / one < 10 { 3 } else { 2 };
    let scale = 10u128.pow(digits);
    let parts = (u128::from(bytes.0) * scale).div_ceil(u128::from(one));
    // What is read back is rounded down to a byte, so one more where that loses one.
    let width = digits as usize;
    let text = |parts: u128| format!("{}.{:0width$}{unit}", parts / scale, parts % scale);
    let enough = |text: &String| text.parse::<Bytes>().is_ok_and(|read| read >= bytes);
    Some(text(parts)).filter(enough).unwrap_or_else(|| text(parts + 1))
}

/// Why there is no result. [`Failure::exit_code`] is the contract of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The call makes no sense: an unknown name, options that contradict each other.
    Usage {
        /// What is wrong.
        message: String,
        /// The next step.
        hint: String,
    },
    /// A file was refused.
    Input(FormatError),
    /// The budget is too small.
    Infeasible(Box<Infeasible>),
    /// The time was over before a plan was found: the best so far and the bound. `None`: before anything was tried.
    Timeout(Option<Box<Infeasible>>),
    /// The machine does not give what was asked for: a disk that can't be written to.
    Resources {
        /// What is wrong.
        message: String,
        /// The next step.
        hint: String,
    },
    /// A plan was made for another graph.
    OtherGraph {
        /// Digest in the plan.
        plan: String,
        /// Digest of the graph.
        graph: String,
    },
    /// A plan that was handed in is wrong.
    Rejected(Rejected),
    /// Our own plan is wrong: a bug.
    Bug {
        /// The pass whose result the verifier refused.
        pass: String,
        /// What the verifier says.
        rejected: Rejected,
        /// Graph, limits and plan in text form, to be attached to a report.
        replay: String,
    },
}

impl Failure {
    /// An error in the call.
    #[must_use]
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Usage { message: message.into(), hint: hint.into() }
    }

    /// The process's exit status.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Infeasible(_) => 1,
            Failure::Usage { .. } => 2,
            Failure::Input(_) => 3,
            Failure::OtherGraph { .. } => 4,
            Failure::Timeout(_) | Failure::Resources { .. } => 5,
            Failure::Rejected(_) => 6,
            Failure::Bug { .. } => 70,
        }
    }

    /// The next step for the user, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Failure::Usage { hint, .. } | Failure::Resources { hint, .. } => Some(hint.clone()),
            Failure::Input(error) => error.hint.clone(),
            Failure::Infeasible(infeasible) => Some(infeasible.hint()),
            Failure::Timeout(None) => Some("a longer `--time-limit`".into()),
            Failure::Timeout(Some(so_far)) => Some(format!("a longer `--time-limit`; {}", so_far.hint())),
            Failure::OtherGraph { .. } => {
                Some("plan this graph again, or name the graph the plan was made for".into())
            }
            Failure::Rejected(_) => Some("do not run this plan; make a new one with `memfit plan`".into()),
            Failure::Bug { .. } => {
                Some("this is a bug in memfit; please report it with the replay file".into())
            }
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage { message, .. } | Failure::Resources { message, .. } => f.write_str(message),
            Failure::Input(error) => error.fmt(f),
            Failure::Infeasible(infeasible) => infeasible.fmt(f),
            Failure::Timeout(None) => f.write_str("not tried: the time was over before"),
            Failure::Timeout(Some(so_far)) => {
                let (budget, needed) = so_far.shown(so_far.needed);
                write!(
                    f,
                    "the time was over before a plan within `{budget}` was found: the best so far needs `{needed}`"
                )
            }
            Failure::OtherGraph { plan, graph } => {
                write!(f, "the plan was made for another graph: it names `{plan}`, this is `{graph}`")
            }
            Failure::Rejected(rejected) => write!(f, "the plan is wrong\n{rejected}"),
            Failure::Bug { pass, rejected, .. } if rejected.violations.is_empty() => {
                write!(f, "what `{pass}` made can't be spread over lanes")
            }
            Failure::Bug { pass, rejected, .. } => {
                write!(f, "the verifier refuses the plan that `{pass}` made\n{rejected}")
            }
        }
    }
}

impl std::fmt::Display for Infeasible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (budget, other) = self.shown(if self.proved { self.least } else { self.needed });
        write!(f, "no plan fits `{budget}`")?;
        let Some(witness) = &self.witness else {
            return match self.proved {
                true => write!(f, ": at least `{other}` are in memory at one time"),
                false => write!(f, ": the lowest layout that was found needs `{other}`"),
            };
        };
        let (name, kind) = (brief(&witness.name), brief(&witness.kind));
        if self.proved {
            write!(f, ": step `{name}` ({kind}) alone needs `{other}`")?;
        } else {
            write!(f, ": the best plan needs `{other}`; the largest step is `{name}` ({kind})")?;
        }
        if let Some(why) = &self.why {
            write!(f, "\n    {why}")?;
        }
        let list = |operands: &[(String, Bytes)]| {
            let mut largest: Vec<&(String, Bytes)> = operands.iter().collect();
            largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
            let more = largest.len().saturating_sub(OPERANDS);
            largest.truncate(OPERANDS);
            let shown = largest.iter().map(|(name, bytes)| format!("%{} `{bytes}`", brief(name)));
            let shown = shown.collect::<Vec<_>>().join(", ");
            if more > 0 { format!("{shown} and {more} more") } else { shown }
        };
        if !witness.reads.is_empty() {
            write!(f, "\n    reads     {}", list(&witness.reads))?;
        }
        if !witness.writes.is_empty() {
            write!(f, "\n    writes    {}", list(&witness.writes))?;
        }
        if witness.workspace > Bytes::ZERO {
            write!(f, "\n    workspace `{}`", witness.workspace)?;
        }
        if witness.resident > Bytes::ZERO {
            write!(f, "\n    beside    parameters, state and constants `{}`", witness.resident)?;
        }
        Ok(())
    }
}

/// Operands of a step that an error lists: the largest.
const OPERANDS: usize = 8;

/// A name for people, in one line.
fn brief(name: &str) -> String {
    memfit_formats::brief(name, 120)
}

impl std::error::Error for Failure {}

impl From<SpillError> for Failure {
    fn from(error: SpillError) -> Failure {
        let hint =
            "`--spill` (in Python `spill`) names a directory that may be written to, on a disk with room"
                .to_owned();
        Failure::Resources { message: error.to_string(), hint }
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Failure {
        Failure::Input(error)
    }
}
