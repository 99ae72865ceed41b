//! What all schedulers stand on that move values: where there is room for it, and what programs become of it.

mod choose;
mod gaps;
mod tiers;
mod weigh;
mod windows;

pub(super) use choose::{Chooser, link};
pub(super) use gaps::{Gap, Gaps, Pressure, Waits};
pub(super) use weigh::standardise;
pub(super) use windows::{Window, leave_when_copied, on_demand, return_one_ahead};

use super::ids::NodeId;
use super::state::Away;
use super::{Infeasible, Moved, RunList, Task, random};
use crate::problem::signed;
