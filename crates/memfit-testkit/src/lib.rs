//! What memfit is tested with: inputs that are valid by construction, ways to spoil them, and real bytes.
//!
//! Everything starts from a `u64` seed and is the same on every machine. [`case()`] makes a graph, limits and
//! a good plan with steps of every kind; [`MUTATORS`] make wrong ones of it; [`bytes::check`] runs either in
//! real memory and says whether the right bytes come out. Development only: no product crate depends on it.

#![forbid(unsafe_code)]

mod actions;
mod case;
mod chain;
mod choices;
mod draft;
mod lanes;
mod layered;
mod mixed;
mod mutate;
mod place;
mod rewrite;
mod rng;
mod shrink;
mod sketch;
mod trained;
mod trial;
mod twins;

pub mod brute;
pub mod bytes;

pub use actions::schedule;
pub use case::{Case, case};
pub use chain::{Layer, alexnet, chain, vgg19};
pub use choices::with_algorithms;
pub use draft::{Act, Draft, Line};
pub use lanes::peak_of_copies;
pub use layered::{Layered, layered};
pub use mixed::{link, mixed};
pub use mutate::{MUTATORS, Mutator, Patient};
pub use rng::Rng;
pub use shrink::shrink;
pub use sketch::{Sketch, graph, sketch};
pub use trained::trained;
pub use trial::{Verdict, mutant, try_plan};
pub use twins::twins;

use memfit_ir::{Bytes, Device, Dtype, Nanos};

/// How many random cases a test takes: `MEMFIT_CASES`, else `few`.
#[must_use]
pub fn cases(few: u64) -> u64 {
    std::env::var("MEMFIT_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// Of how many cases a slow suite takes one: `few`, or with `MEMFIT_ALL=1` each.
#[must_use]
pub fn one_of(few: usize) -> usize {
    if std::env::var_os("MEMFIT_ALL").is_some() { 1 } else { few }
}

/// A device that costs can come from, for tests of which no figure depends on it. Buffers are aligned to 16 bytes.
#[must_use]
pub fn device() -> Device {
    Device {
        name: "test".to_owned(),
        memory: Bytes::MAX,
        align: Bytes(16),
        flops: vec![(Dtype::F32, 1e12)],
        bandwidth: 1e11,
        efficiency: (1.0, 1.0),
        launch: Nanos(1000),
        copy: None,
        codecs: Vec::new(),
        link: None,
        host_memory: Bytes::ZERO,
        disk: None,
    }
}
