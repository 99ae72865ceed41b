//! What all schedulers stand on that move values: where there is room for it, and what programs become of it.

mod choose;
mod gaps;
mod windows;

pub(super) use choose::Chooser;

use super::state::Away;
use super::task::{narrow, signed};
use super::{Moved, RunList, Task, random};
