//! What a host says to the engine: tensors, calls, settings.

use std::fmt;

use memfit_ir::{Bytes, Effect, Nanos, Need};

/// Names a tensor that the host holds: a storage version, or a view of one.
///
/// The number may be used again after the last reference is gone and nothing needs the tensor any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

impl TensorId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// What one output of an op is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// A storage of its own, of that many bytes.
    Fresh(Bytes),
    /// A view of the argument at this position: no bytes of its own. It is gone whenever its storage is, and
    /// comes back by running its op.
    View(usize),
    /// The argument at this position, overwritten: a new version of the whole storage, in the same bytes. The
    /// old version is gone from memory, but can be computed again if it ever could. Views of the old version go on
    /// showing that one: a host whose views alias makes them anew.
    InPlace(usize),
    /// A storage of its own of that many bytes, as [`Output::Fresh`], which the first run writes over the argument at this
    /// position. The program gives that up with the op, and the kernel certainly has no other bytes for its output where
    /// [`Run::over`](crate::Run::over) says so. Both count once then. A repetition leaves its operands as they are. Of an op that
    /// makes nothing else.
    Takes(Bytes, usize),
}

impl Output {
    /// Bytes that the op takes for it.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        match self {
            Output::Fresh(bytes) | Output::Takes(bytes, _) => *bytes,
            Output::View(_) | Output::InPlace(_) => Bytes::ZERO,
        }
    }
}

/// One op that the host wants done.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What it does, as its framework calls it.
    pub kind: &'a str,
    /// Tensors read; one may stand there twice.
    pub reads: &'a [TensorId],
    /// What it makes.
    pub outputs: &'a [Output],
    /// Expected run time, until the host has measured it.
    pub time: Nanos,
    /// Scratch bytes while it runs.
    pub workspace: Bytes,
    /// Whether that is a guess: a plan that knows better is believed.
    pub guessed: bool,
    /// What it needs of each of `reads`; empty if that is everything.
    pub needs: &'a [Need],
    /// What it does besides. Only `Pure` ops, and `Seeded` ones of hosts that replay, are ever run again.
    pub effect: Effect,
}

impl Default for Call<'_> {
    fn default() -> Self {
        Call {
            kind: "",
            reads: &[],
            outputs: &[],
            time: Nanos::ZERO,
            workspace: Bytes::ZERO,
            guessed: false,
            needs: &[],
            effect: Effect::Pure,
        }
    }
}

/// What happens to bytes when the program gives up its last reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dealloc {
    /// The bytes go at once, unless the program holds what is gone and would be computed from them: then the evictor says when.
    #[default]
    EvictUnneeded,
    /// The bytes go at once; the tensor stays recomputable while others may need it. As DTR has it.
    EagerEvict,
    /// The tensor goes for good, its children stay for good; waits until no evicted tensor depends on it.
    Banish,
    /// Nothing: the bytes go when they are evicted, or when nothing can need them any more.
    Ignore,
}

impl Dealloc {
    /// Every mode with its name on the command line.
    pub const ALL: [(Dealloc, &str); 4] = [
        (Dealloc::EvictUnneeded, "evict-unneeded"),
        (Dealloc::EagerEvict, "eager-evict"),
        (Dealloc::Banish, "banish"),
        (Dealloc::Ignore, "ignore"),
    ];

    /// The mode called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Dealloc> {
        Dealloc::ALL.iter().find(|(_, known)| *known == name).map(|(mode, _)| *mode)
    }
}

/// What becomes of a tensor's bytes at the release of one reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They stay: the program holds them otherwise, or has pinned them.
    Held,
    /// They may go: they can be computed again.
    Repeatable,
    /// They stay: they can't be computed again, and others may have to be computed from them.
    Needed,
    /// They go: nothing can need them.
    Free,
}

/// How evicted inputs are brought back: always depth first, over a stack that is a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regeneration {
    /// As DTR: all inputs of all unfinished ops stay until they have run, or there is no room.
    Nested,
    /// The working set of each op to run is checked first; and where room runs out, unfinished ops give up inputs they
    /// have, the outermost first and each once, to be brought back in turn.
    #[default]
    Yielding,
}
