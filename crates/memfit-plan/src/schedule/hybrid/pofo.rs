//! The best checkpoints of a chain of blocks, with part of what is kept behind the link, by dynamic programming.
//!
//! Source: Beaumont, Eyraud-Dubois and Shilova, "Efficient Combination of Rematerialization and Offloading for Training DNNs",
//! NeurIPS 2021 (POFO). The programme is that of `swapped_chain.rs`: of each block the insides, or of each stretch of blocks what
//! enters it, is kept or moved, and what is not kept is computed again as rotor has it. We differ: the chain is that of the forward
//! pass, cut where least crosses, into at most 20 blocks; it is solved for ten sizes of memory, and the clock says which of the
//! plans that fit is the fastest. The optimum of its model for chains of few blocks (a test holds it against trying
//! everything); of longer ones 16 states with as much that stays are kept before each block. Time O(sizes × blocks² × sizes of memory × states). Ties go
//! to what keeps more. Wrong choice for graphs that are no chain: much crosses every cut.

use std::collections::BTreeSet;

use memfit_ir::{Bytes, ValueId};

use super::blocks::{self, Block, blocks};
use super::mixed::{Transfers, better, crossing, of_runs};
use super::swapped_chain::{Chain, Found, Rotor, Stage};
use super::{Front, Infeasible, RunList, Scheduler, Task, link, signed, turn};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Pofo;

/// Blocks of the chain, and units of memory that are told apart, at most.
const BLOCKS: usize = 20;
const UNITS: usize = 50;

/// Sizes of memory that the chain is solved for: so many parts in a hundred of what there is.
const PARTS: [usize; 10] = [100, 92, 84, 76, 68, 60, 50, 40, 30, 20];

impl Scheduler for Pofo {
    fn info(&self) -> Info {
        Info {
            name: "pofo",
            summary: "the best checkpoints and transfers of a chain of blocks, by dynamic programming",
            source: "Beaumont et al., POFO, NeurIPS 2021",
            year: 2021,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let turn = turn(task);
        let chain = blocks(task, turn, BLOCKS);
        let room = signed(budget) - task.constant;
        let plain = RunList::plain(task);
        let mut best = of_runs(task, (&plain, &BTreeSet::new()), budget, &Transfers::Hidden, context);
        if best.is_ok() || chain.is_empty() || room <= 0 {
            return best;
        }
        let unit = (room / i64::try_from(UNITS).unwrap_or(1)).max(1);
        let stages = stages(task, turn, &chain, unit);
        let rotor = Rotor::of(&stages, UNITS);
        // Bytes in a ns are units in as many ns.
        let rate = link(context.device).map_or(0.0, |link| link.out_bandwidth.min(link.in_bandwidth));
        let rate = rate / 1e9 / unit as f64;
        let mut seen: Vec<Found> = Vec::new();
        for part in PARTS {
            if (context.stop)() {
                break;
            }
            let memory = UNITS * part / 100;
            let Some(found) = (Chain { stages: &stages, rotor: &rotor, memory, rate }).solve() else {
                continue;
            };
            if seen.iter().any(|seen| seen.segments == found.segments) {
                continue;
            }
            let (again, swapped) = lowered(task, turn, (&chain, &stages, &rotor), &found);
            let runs = blocks::schedule(task, turn, &chain, &again);
            let runs = blocks::pruned(task, runs, context);
            best = better(best, of_runs(task, (&runs, &swapped), budget, &Transfers::Hidden, context));
            seen.push(found);
        }
        best
    }
}

/// The blocks of `chain` as the programme sees them.
fn stages(task: &Task<'_>, turn: usize, chain: &[Block], unit: i64) -> Vec<Stage> {
    let units = |bytes: i64| usize::try_from((bytes + unit - 1) / unit).unwrap_or(usize::MAX >> 8);
    let mut stages: Vec<Stage> = chain
        .iter()
        .map(|block| Stage {
            forward: block.time,
            backward: 0,
            enters: units(block.enters).min(UNITS + 1),
            saves: units(block.saves).min(UNITS + 1),
        })
        .collect();
    // The backward pass of a block goes on until that of the block before begins.
    let begins: Vec<Option<usize>> = chain.iter().map(|block| block.backward(task, turn)).collect();
    for node in turn..task.nodes() {
        let open = (0..chain.len()).rev().filter(|&at| begins[at].is_some_and(|begin| begin <= node));
        let at = open.min().unwrap_or(chain.len() - 1);
        stages[at].backward = stages[at].backward.saturating_add(task.cost[node]);
    }
    stages
}

/// By block what runs again before its backward pass, and what is moved.
fn lowered(
    task: &Task<'_>,
    turn: usize,
    (chain, stages, rotor): (&[Block], &[Stage], &Rotor),
    found: &Found,
) -> (Vec<Vec<usize>>, BTreeSet<ValueId>) {
    let mut again: Vec<Vec<usize>> = vec![Vec::new(); chain.len()];
    let mut swapped = BTreeSet::new();
    let saved = crossing(task, turn);
    for segment in &found.segments {
        let (from, last) = (segment.from, segment.until - 1);
        if let Some(room) = segment.room {
            again[last].extend(from..segment.until);
            rotor.again(stages, (from, last), room, &mut again);
        }
        if !segment.moved {
            continue;
        }
        let block = &chain[from];
        let inside = |value: &ValueId| {
            let producer = task.producer[value.index()].map(|node| node.index());
            producer.is_some_and(|node| (block.from..block.until).contains(&node))
        };
        match segment.room {
            None => swapped.extend(saved.iter().copied().filter(inside)),
            Some(_) => swapped.extend(block.entering(task, turn)),
        }
    }
    (again, swapped)
}
