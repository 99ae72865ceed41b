//! Hybrids: some ops run again and some values wait in host memory, in one plan.
//!
//! What is dear to compute and long unused is worth a transfer, what is cheap to compute is worth another run, and
//! transfers cost nothing as long as the link keeps up. A strategy turns a [`Task`] into a [`Front`].

mod best;
mod block_policies;
mod capuchin;
mod knapsack;
mod mixed;
mod pofo;
mod superneurons;
mod swap_few;
mod swapped_chain;
mod titan;
mod two_level;
mod uniform_blocks;

pub use best::Best;
pub use block_policies::BlockPolicy;
pub use capuchin::Capuchin;
pub use knapsack::Knapsack;
pub use pofo::Pofo;
pub use superneurons::SuperNeurons;
pub use swap_few::SwapFew;
pub use titan::Titan;
pub use uniform_blocks::UniformBlocks;

// What all of the family stands on; strategies import it from here.
use super::editor::Away;
use super::homes::or_parked;
use super::ids::NodeId;
use super::known::once;
use super::layers::{Layer, turn};
use super::less::or_less;
use super::moves::Choices;
use super::offload::QUICK as MOVING;
use super::recompute::{again, climb, rebuild};
use super::refine::{encoding, forms, refine};
use super::transfers::{Chooser, Gap, Gaps, LEAST, Waits, Window, link, on_demand, timed};
use super::{Algorithms, Front, Infeasible, Moved, Point, RunList, Scheduler, Task, blocks, moving, solver};
use crate::problem::signed;

/// Every strategy. This order is the order of the manual.
pub const HYBRIDS: &[&dyn Scheduler] = &[
    &SuperNeurons,
    &Capuchin,
    &SwapFew,
    &Pofo,
    &Titan::TITAN,
    &Titan::GREEDY,
    &UniformBlocks,
    &BlockPolicy::FULL,
    &BlockPolicy::SELECTIVE,
    &BlockPolicy::SELECTIVE_OFFLOAD,
    &BlockPolicy::OFFLOAD,
    &Knapsack,
    &Best,
];

/// The quick ones, from whose steps `best` starts too: each takes less than two seconds on the graphs of the corpus.
const QUICK: &[&dyn Scheduler] =
    &[&SuperNeurons, &Capuchin, &SwapFew, &Pofo, &Titan::TITAN, &Titan::GREEDY, &UniformBlocks, &Knapsack];
