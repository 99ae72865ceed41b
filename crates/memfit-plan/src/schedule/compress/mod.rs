//! Compression: which values wait encoded between two of their uses.
//!
//! A codec splits the life of a value: plain around its uses, and in fewer bytes between them. What that saves follows from how
//! dense the graph says the value is, or from the format; what encoding takes, and whether it pays,
//! is for the clock to say. Codecs that lose something are used where the context allows them, and nowhere else.

mod actnn;
mod best;
mod cdma;
mod gist;
mod maps;
mod quantised_state;
mod zvc;

pub use actnn::ActNn;
pub use best::Best;
pub use cdma::Cdma;
pub use gist::Gist;
pub use quantised_state::QuantisedState;
pub use zvc::Zvc;

// What all of the family stands on; strategies import it from here.
use maps::{every, maps};

use super::layers::turn;
use super::moves::Choices;
use super::refine::{encoding, refine};
use super::transfers::{
    Chooser, Codecs, Gap, Waits, Window, leave_when_copied, link, return_one_ahead, timed,
};
use super::{Algorithms, Front, Infeasible, Moved, RunList, Scheduler, Task};

/// Every strategy. This order is the order of the manual.
pub const COMPRESSES: &[&dyn Scheduler] = &[
    &Zvc::MAPS,
    &Zvc::ALL,
    &Gist::LOSSLESS,
    &Gist::WHOLE,
    &ActNn::ALL,
    &ActNn::ENOUGH,
    &QuantisedState,
    &Cdma,
    &Best,
];
