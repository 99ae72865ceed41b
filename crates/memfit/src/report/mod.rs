//! What people look at: plans, steps, snapshots and trainings as one [`Report`], which `memfit_formats::report` writes down.

mod plan;
mod program;
mod read;
mod run;
mod snapshot;
mod what_if;

pub use memfit_formats::report::Report;
pub use plan::{Whose, of_file, of_planned};
pub use program::of_program;
pub use read::{Asked, complete};
pub use run::{is_run, of_run, of_training};
pub use snapshot::of_snapshot;
pub use what_if::{front, what_if};
