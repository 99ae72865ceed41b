//! Memory beside the device's own, for hosts that can show the bytes of a storage: copies in host memory and on disk.
//!
//! The part of [`Host`](memfit_engine::Host) that is the same for all of them. A [`Shelf`] knows copies by their names. What it
//! copies, a thread of its own does for each tier and direction, so ops go on meanwhile; a pool keeps host memory
//! within its size, and a spill file, which has no name, is what there is of the disk. How fast all of that is here is
//! measured by [`rates`].
//!
//! Besides faces, only this crate touches files and starts threads.

pub mod links;
mod pool;
mod queue;
pub mod rates;
#[cfg(target_os = "linux")]
mod ring;
mod room;
mod scratch;
mod shelf;
mod spill;

pub use rates::density;
pub use room::{Disk, Room};
pub use shelf::{Ended, Kept, Shelf, Watch};
pub use spill::SpillError;
