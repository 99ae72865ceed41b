//! What all schedulers stand on that move values: where there is room for it, and what programs become of it.

mod choose;
mod codecs;
mod fastest;
mod gaps;
mod greedy;
mod score;
mod tiers;
mod timed;
mod weigh;
mod windows;

pub(super) use choose::Chooser;
pub(super) use codecs::{Codecs, is_masked};
pub(super) use gaps::{Gap, Gaps, LEAST, Pressure, Waits, link};
pub(super) use timed::timed;
pub(super) use weigh::standardise;
#[cfg(test)]
pub(super) use windows::program;
pub(super) use windows::{
    Leave, Window, leave_in_time, leave_when_copied, live_of, on_demand, return_one_ahead,
};

use super::editor::Away;
use super::homes::{HomeStay, ahead, beside};
use super::ids::NodeId;
use super::{Algorithms, Front, Infeasible, Moved, RunList, Task, random};
use crate::problem::signed;
