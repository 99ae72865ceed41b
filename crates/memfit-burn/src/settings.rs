//! What a training program may ask for.

use std::path::Path;
use std::time::Duration;

use memfit::Bytes;
use memfit::engine::evict::{self, Sieve};

use crate::meter::Meter;

/// The most bytes that the tensors of a device may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(Bytes);

impl Budget {
    /// No limit: memfit only counts.
    pub const UNLIMITED: Budget = Budget(Bytes(1 << 62));

    /// That many bytes.
    #[must_use]
    pub const fn of(bytes: u64) -> Budget {
        Budget(Bytes(bytes))
    }

    /// That many MiB.
    #[must_use]
    pub const fn mib(mib: u64) -> Budget {
        Budget(Bytes(mib << 20))
    }

    /// That many GiB.
    #[must_use]
    pub const fn gib(gib: u64) -> Budget {
        Budget(Bytes(gib << 30))
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        self.0
    }
}

/// A part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The most bytes.
    pub budget: Budget,
    /// Where the file is made. It has no name, so nothing is left of it however the process ends.
    pub directory: &'static Path,
}

/// When decisions are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// While the step runs.
    #[default]
    Online,
    /// A step is recorded and planned once the optimizer has its state, and the ones after it follow the plan. Needs [`crate::step`].
    Planned,
}

/// All there is to say to [`crate::enable_with`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The limit.
    pub budget: Budget,
    /// Memory of the process for copies of tensors that leave the device between two uses: where a plan says so, and online where
    /// computing them again would take longer.
    pub host: Option<Budget>,
    /// A part of a disk for the same.
    pub disk: Option<Disk>,
    /// Bytes per second at most on the way to host memory and back; by default what is measured here.
    pub link: Option<f64>,
    /// Whether ops may run again. Where not, what goes is stored as long as there is room for it; then a `strategy` that runs
    /// nothing again is to be named for plans, such as `offload:best`.
    pub recompute: bool,
    /// Codecs by which plans may hold tensors between two uses, and which lose nothing: `zvc` and `csr` drop zeros, of which there are
    /// as many as a recorded step has, and `binarize` keeps signs where only those are read. A `strategy` of the family `compress`
    /// may use `zvc` in any case.
    pub lossless: &'static [&'static str],
    /// The same of codecs that lose something, such as `int8+mask`; `gist` and `actnn` stand for several. They are used where no plan
    /// without them fits, or a `strategy` is named that takes them. What is rounded at random draws numbers of its own, which follow
    /// from the tensor and the step.
    pub lossy: &'static [&'static str],
    /// When decisions are made.
    pub mode: Mode,
    /// Whether each step is recorded, for [`crate::take_recorded`].
    pub record: bool,
    /// Who chooses online what goes: a name of [`evict::EVICTORS`], as `memfit strategies` lists them.
    pub evictor: &'static str,
    /// Which candidates it looks at: with [`Sieve::sample`] about √n of n or a number of them, with [`Sieve::share_of_mean`] none that is much smaller than
    /// the others.
    pub sieve: Sieve,
    /// Exponents for the evictor `megengine`: of evicted neighbours, bytes and staleness.
    pub exponents: [f64; 3],
    /// What plans: a name of [`memfit::StepPlanner::strategies`]. By default `auto`, the cheapest of all ways.
    pub strategy: &'static str,
    /// For everything drawn at random in planning.
    pub seed: u64,
    /// The most time that may go into recomputation, since the start; then a training is given up.
    pub patience: Duration,
    /// Counts what the backend takes for itself while an op runs.
    pub meter: Option<Meter>,
    /// Whether that counts within the budget as well. Needs a meter. What an op takes is known once one like it has run
    /// on the device, and not before.
    pub scratch: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            budget: Budget::UNLIMITED,
            host: None,
            disk: None,
            link: None,
            recompute: true,
            lossless: &[],
            lossy: &[],
            mode: Mode::Online,
            record: false,
            evictor: "best",
            sieve: Sieve::default(),
            exponents: evict::Options::default().exponents,
            strategy: memfit::AUTO,
            seed: 0,
            patience: Duration::MAX,
            meter: None,
            scratch: false,
        }
    }
}
