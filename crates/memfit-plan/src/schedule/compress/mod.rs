//! Compression: which values wait encoded between two of their uses.
//!
//! A codec splits the life of a value: plain around its uses, and in fewer bytes between them. What that saves follows from how
//! dense the graph says the value is, so nothing is encoded of which it says nothing; what encoding takes, and whether it pays,
//! is for the clock to say. All codecs here are lossless.

mod best;
mod cdma;
mod zvc;

pub use best::Best;
pub use cdma::Cdma;
pub use zvc::Zvc;

// What all of the family stands on; strategies import it from here.
use super::layers::turn;
use super::moves::Choices;
use super::refine::refine;
use super::transfers::{Chooser, Waits, Window, leave_when_copied, link, return_one_ahead};
use super::{Front, Infeasible, RunList, Scheduler, Task};

/// Every strategy. This order is the order of the manual.
pub const COMPRESSES: &[&dyn Scheduler] = &[&Zvc::MAPS, &Zvc::ALL, &Cdma, &Best];
