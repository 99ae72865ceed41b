//! memfit makes deep-learning training and inference fit in a memory budget, exactly and provably.
//!
//! The front door: a [`Graph`] and a [`Goal`] go in, a [`Verified`] plan or a [`Failure`] comes out. A plan is
//! a program (what runs in which order, when memory is given back) and a layout (an address for each buffer);
//! it's only handed out after the verifier has checked it.
//!
//! ```
//! use memfit::{Budget, Goal, Tools, input, plan};
//!
//! let file = br#"{
//!     "schema": "memfit-graph/1", "name": "two ops",
//!     "values": [{"name": "x", "bytes": 4096, "role": "input"}, {"name": "h", "bytes": 8192},
//!                {"name": "y", "bytes": 4096, "role": "output"}],
//!     "ops": [{"name": "up", "kind": "matmul", "reads": [0], "writes": [1]},
//!             {"name": "down", "kind": "matmul", "reads": [1], "writes": [2]}],
//!     "results": [2]
//! }"#;
//! let graph = input::graph(file, &input::Options::default())?;
//! let device = input::device("H100")?;
//! let planned = plan(&graph, &Goal::new(device, Budget::OfPeak(1.0)), &Tools::none())?;
//! assert_eq!(planned.verified.peak().0, 12288);
//! # Ok::<(), memfit::Failure>(())
//! ```

#![forbid(unsafe_code)]

mod bodies;
mod check;
mod choice;
pub mod explain;
mod failure;
mod floor;
mod goal;
mod held;
mod host_settings;
pub mod input;
mod largest;
pub mod objects;
mod options;
mod pipeline;
mod placing;
mod planner;
pub mod profile;
mod replaying;
pub mod report;
mod sharding;
mod simplify;
pub mod snapshot;
mod stepping;
mod steps;
mod sweep;
mod timing;
mod trial;

pub use check::{check, check_text};
pub use explain::{Explanation, explain};
pub use failure::{Failure, Infeasible, Witness};
pub use floor::Floor;
pub use goal::{BadBudget, Budget, Goal};
pub use held::held;
pub use host_settings::{host_settings, lossy_codecs};
pub use largest::{Batches, Largest, Tried, largest, largest_that};
pub use options::{LaneRule, Options};
pub use pipeline::{LaneSummary, NotDone, PlacerRow, Planned, Summary, Tools, plan};
pub use placing::{PlaceGoal, Placed, place};
pub use sharding::{Comparison, Rank, shard};
pub use simplify::{Figures, Simplification, simplify};
pub use snapshot::{SnapshotExplanation, explain_snapshot};
pub use stepping::{AUTO, PLANNING_SECONDS, PORTFOLIO, StepPlanner};
pub use steps::Steps;
pub use sweep::{Outcome, compare, sweep};
pub use timing::{Parts, Timing};

pub use replaying::{Recording, ReplayGoal, Replayed, recording, replay_recording};

pub use memfit_checkpoint as checkpoint;
pub use memfit_codec as codec;
pub use memfit_engine as engine;
pub use memfit_formats as formats;
pub use memfit_ir as ir;
pub use memfit_ir::{Bytes, Device, Graph, Nanos};
pub use memfit_plan as strategies;
pub use memfit_plan::{FAMILIES, Family, Means};
pub use memfit_tiers as tiers;
pub use memfit_verify::{Rejected, Verified, Violation};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
