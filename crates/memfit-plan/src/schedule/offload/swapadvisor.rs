//! Searches over orders of ops and pools of blocks at once; what is swapped follows from both.
//!
//! Source: Huang, Jin and Li, "SwapAdvisor: Push Deep Learning Beyond the GPU Memory Limit via Smart Swapping", ASPLOS 2020.
//! Sizes fall into classes, each with so many blocks. Where an op needs a block of a class that has none left, that of the same
//! class goes which is used farthest in the future, right after its last use. A genetic search changes the order, the classes and
//! the blocks (`chromosome.rs`); a plan is as good as its simulated step is short, and survives by softmax. We differ: blocks say
//! what goes, not where it lies, which is the placer's business. So those of all classes may take more than there is, for they need not be in use at once; where live
//! bytes are too many all the same, what is used farthest in the future goes that is of the class of the op's largest operand, or of the next larger one; and
//! what goes and returns does so as late and as early as there is room. Persistent values
//! can't move, so there is no second pass for those that are there at first; orders change only where no host has fixed them; populations and effort are
//! smaller, and counted in evaluations; small tasks are searched with less memory, too (`less.rs`). Guarantee: never slower than its own plan for the order it was given. Time O(evaluations × (ops + gaps) log gaps). Deterministic by seed; ties go to what was found first. Wrong choice where the order is good already:
//! `best` weighs more and is as quick.

use std::collections::BTreeSet;

use memfit_ir::{Bytes, ValueId};
use rayon::prelude::*;

use super::chromosome::{Chromosome, Pool};
use super::random::Random;
use super::{Chooser, Front, Gap, Gaps, Infeasible, LEAST, Moved, RunList, Scheduler, Task, or_less};
use crate::dependencies::Dependencies;
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct SwapAdvisor {
    /// Whether the order is searched for.
    pub orders: bool,
    /// Whether classes and blocks are.
    pub allocation: bool,
}

impl SwapAdvisor {
    /// What the table holds.
    pub const DEFAULT: SwapAdvisor = SwapAdvisor { orders: true, allocation: true };
}

/// Chromosomes of a generation.
const POPULATION: usize = 24;

/// Plans that are timed, with default effort and a step of few ops.
const EVALUATIONS: usize = 480;

/// Ops of all those steps together, at most.
const WORK: usize = 1_200_000;

/// What each part of the search is mutated by: one child in so many.
const MUTATED: usize = 2;

/// A chromosome, and what became of it.
struct Adult {
    genes: Chromosome,
    moved: Option<Moved>,
}

impl Adult {
    fn time(&self) -> u64 {
        self.moved.as_ref().map_or(u64::MAX, |moved| moved.time.0)
    }
}

impl Scheduler for SwapAdvisor {
    fn info(&self) -> Info {
        Info {
            name: "swapadvisor",
            summary: "orders, classes of sizes and blocks by a genetic search; what is used farthest in the future goes",
            source: "Huang et al., SwapAdvisor, ASPLOS 2020",
            year: 2020,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        or_less(task, budget, self.info(), context, |budget, context| self.within(task, budget, context))
    }
}

impl SwapAdvisor {
    /// What is found for `budget` alone.
    fn within(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let chooser = Chooser::of(task, &runs, budget, context)?;
        let deps = Dependencies::of(task.graph);
        let objects = Objects::of(task);
        let pool = Pool { deps: &deps, sizes: objects.sizes.len(), needs: objects.needs(task) };
        let search = Search { way: *self, task, pool: &pool, objects: &objects, budget, context };
        let peaks = objects.peaks(task);
        let (best, lowest) = search.best(pool.first(task.order.clone(), peaks), chooser.lowest());
        let Some(moved) = best.and_then(|best| best.moved) else {
            return Err(Infeasible::new(task, budget, lowest));
        };
        Ok(moved.front(task, &runs))
    }
}

struct Search<'a> {
    way: SwapAdvisor,
    task: &'a Task<'a>,
    pool: &'a Pool<'a>,
    objects: &'a Objects,
    budget: Bytes,
    context: &'a Context<'a>,
}

impl Search<'_> {
    /// The fastest that is found from `first` on, and the least that one came to which was too large.
    fn best(&self, first: Chromosome, mut lowest: Option<Bytes>) -> (Option<Adult>, Option<Bytes>) {
        let mut random = Random::new(self.context.seed);
        let mut left =
            (EVALUATIONS * self.context.effort.max(1) as usize).min(WORK / self.task.nodes().max(1)).max(1);
        let base = self.task.base_time().0;
        let mut adults: Vec<Adult> = Vec::new();
        let mut children = vec![first];
        loop {
            children.truncate(left);
            left -= children.len();
            let grown: Vec<(Adult, Option<Bytes>)> =
                children.into_par_iter().map(|genes| self.grown(genes)).collect();
            for (adult, too_large) in grown {
                lowest = [lowest, too_large].into_iter().flatten().min();
                adults.push(adult);
            }
            adults = survivors(adults, &mut random);
            let fastest = adults.first().map_or(u64::MAX, Adult::time);
            let is_fixed = !self.may_reorder() && !self.way.allocation;
            if left == 0 || fastest <= base || is_fixed || (self.context.stop)() {
                let best = adults.into_iter().next().filter(|best| best.moved.is_some());
                return (best, lowest);
            }
            children = (0..POPULATION).map(|_| self.child(&adults, &mut random)).collect();
        }
    }

    fn may_reorder(&self) -> bool {
        self.way.orders && !self.task.is_issued()
    }

    fn child(&self, adults: &[Adult], random: &mut Random) -> Chromosome {
        let (one, other) = (random.below(adults.len()), random.below(adults.len()));
        let mut child = self.pool.cross(&adults[one].genes, &adults[other].genes, random);
        if self.may_reorder() && random.below(MUTATED) == 0 {
            self.pool.mutate_order(&mut child, random);
        }
        if self.way.allocation && random.below(MUTATED) == 0 {
            self.pool.mutate_pool(&mut child, random);
        }
        child
    }

    /// The plan of `genes`, and what it came to if that is too much.
    fn grown(&self, genes: Chromosome) -> (Adult, Option<Bytes>) {
        let other = (genes.order != self.task.order).then(|| self.task.reordered(&genes.order, self.context));
        let task = other.as_ref().unwrap_or(self.task);
        let runs = RunList::plain(task);
        let Ok(mut chooser) = Chooser::of(task, &runs, self.budget, self.context) else {
            return (Adult { genes, moved: None }, None);
        };
        let moved = chooser.settled(|chooser| {
            let swapped = self.swapped(task, &genes, (chooser.step(), chooser.limit()))?;
            chooser.run(&swapped)
        });
        (Adult { genes, moved }, chooser.lowest())
    }

    /// The gaps in which values are away, if no more blocks of a class are taken than it has, and no more bytes than `limit`.
    fn swapped(
        &self,
        task: &Task<'_>,
        genes: &Chromosome,
        (step, limit): (&Gaps, i64),
    ) -> Option<Vec<usize>> {
        let classes = genes.blocks.len();
        let mut there = There {
            step,
            taken: self.objects.taken(task, genes),
            live: step.live.clone(),
            idle: vec![BTreeSet::new(); classes],
            is_away: vec![false; step.gaps.len()],
        };
        let class = |gap: &Gap| self.objects.of_value[gap.value.index()].map(|size| genes.class[size]);
        let mut gaps = step.gaps.iter().enumerate().peekable();
        for run in 0..step.live.len() {
            while let Some((at, gap)) = gaps.next_if(|(_, gap)| gap.from < run) {
                there.idle[class(gap)?].insert((gap.to, at));
            }
            for class in 0..classes {
                let most = i64::try_from(genes.blocks[class]).unwrap_or(i64::MAX);
                while there.taken[class][run] > most && there.swap(class, run) {}
            }
            // Where all classes have room, that of the largest object goes, or of a larger one: one makes room for one.
            let needs = &self.pool.needs[task.order[run].index()];
            let largest = needs.iter().map(|&(size, _)| genes.class[size]).max().unwrap_or(0);
            while there.live[run] > limit {
                let mut victims = (largest..classes).chain((0..largest).rev());
                victims.find(|&class| there.swap(class, run))?;
            }
        }
        Some((0..there.is_away.len()).filter(|&at| there.is_away[at]).collect())
    }
}

/// What is there while a plan is made.
struct There<'a> {
    step: &'a Gaps,
    /// By class and run: blocks that are taken.
    taken: Vec<Vec<i64>>,
    live: Vec<i64>,
    /// By class: gaps in which the value is there, by when it's used next.
    idle: Vec<BTreeSet<(usize, usize)>>,
    is_away: Vec<bool>,
}

impl There<'_> {
    /// Swaps that value of `class` which is used farthest after `run`; whether there is one.
    fn swap(&mut self, class: usize, run: usize) -> bool {
        let Some((to, at)) = self.idle[class].pop_last().filter(|&(to, _)| to > run) else { return false };
        let gap = &self.step.gaps[at];
        let away = gap.away(self.live.len());
        debug_assert_eq!(away.end, to.min(self.live.len()));
        self.live[away.clone()].iter_mut().for_each(|live| *live -= gap.size);
        self.taken[class][away].iter_mut().for_each(|taken| *taken -= 1);
        self.is_away[at] = true;
        true
    }
}

/// Those that live on, the fastest first: it does in any case, the others by softmax of how far behind it they are.
fn survivors(mut adults: Vec<Adult>, random: &mut Random) -> Vec<Adult> {
    adults.sort_by_key(Adult::time);
    let best = adults.first().map_or(0, Adult::time) as f64;
    while adults.len() > POPULATION {
        // The weight of what goes is the inverse of that of what stays.
        let weight = |adult: &Adult| match adult.moved {
            Some(_) => ((adult.time() as f64 - best) / best.max(1.0)).min(30.0).exp(),
            None => 30f64.exp(),
        };
        let total: f64 = adults[1..].iter().map(weight).sum();
        let mut drawn = random.unit() * total;
        let goes = adults[1..].iter().position(|adult| {
            drawn -= weight(adult);
            drawn < 0.0
        });
        adults.remove(goes.map_or(adults.len() - 1, |at| at + 1));
    }
    adults
}

/// What takes blocks: values that come and go and are worth a transfer, and scratch memory.
struct Objects {
    /// All sizes, ascending.
    sizes: Vec<i64>,
    /// By value, and by op: which of them.
    of_value: Vec<Option<usize>>,
    of_op: Vec<Option<usize>>,
}

impl Objects {
    fn of(task: &Task<'_>) -> Objects {
        let mut by_op = vec![0; task.nodes()];
        task.order.iter().zip(&task.workspace).for_each(|(op, &bytes)| by_op[op.index()] = bytes);
        let is_object = |bytes: &&i64| **bytes >= LEAST;
        let mut sizes: Vec<i64> = task.size.iter().chain(&by_op).filter(is_object).copied().collect();
        sizes.sort_unstable();
        sizes.dedup();
        let index = |bytes: &i64| sizes.binary_search(bytes).ok();
        let of_value = task.size.iter().map(index).collect();
        let of_op = by_op.iter().map(index).collect();
        Objects { of_value, of_op, sizes }
    }

    /// By op: how many of which size it needs at once.
    fn needs(&self, task: &Task<'_>) -> Vec<Vec<(usize, u64)>> {
        let of_node = |node: usize| {
            let operands = task.reads.row(node).iter().chain(task.writes.row(node));
            let values = operands.filter_map(|value| self.of_value[value.index()]);
            let mut sizes: Vec<usize> = values.chain(self.of_op[task.order[node].index()]).collect();
            sizes.sort_unstable();
            let counted = sizes.chunk_by(|one, other| one == other);
            counted.map(|same| (same[0], same.len() as u64)).collect()
        };
        let mut needs = vec![Vec::new(); task.nodes()];
        (0..task.nodes()).for_each(|node| needs[task.order[node].index()] = of_node(node));
        needs
    }

    /// By list that `list` puts a size on, of so many, and by node: objects that are there.
    fn there(&self, task: &Task<'_>, lists: usize, list: impl Fn(usize) -> usize) -> Vec<Vec<i64>> {
        let nodes = task.nodes();
        let mut there = vec![vec![0i64; nodes + 1]; lists];
        for value in 0..task.size.len() {
            let Some(size) = self.of_value[value] else { continue };
            let from = task.producer[value].map_or(0, |node| node.index());
            let last = task.readers.row(value).last().map_or(from, |reader| reader.index());
            let to = if task.live_out[value] { nodes } else { (last + 1).min(nodes) };
            // What takes over bytes of another is there from the next op on.
            let over = task.producer[value].is_some_and(|node| {
                let dies = |input: ValueId| {
                    !task.live_out[input.index()] && task.readers.row(input.index()).last() == Some(&node)
                };
                let mut is_over = false;
                task.each_reuse(node.index(), dies, |pair| is_over |= pair.output.index() == value);
                is_over
            });
            let from = (from + usize::from(over)).min(to);
            there[list(size)][from] += 1;
            there[list(size)][to] -= 1;
        }
        for there in &mut there {
            let mut sum = 0;
            there.iter_mut().for_each(|count| {
                sum += *count;
                *count = sum;
            });
        }
        for (node, op) in task.order.iter().enumerate() {
            if let Some(size) = self.of_op[op.index()] {
                there[list(size)][node] += 1;
            }
        }
        there
    }

    fn taken(&self, task: &Task<'_>, genes: &Chromosome) -> Vec<Vec<i64>> {
        self.there(task, genes.blocks.len(), |size| genes.class[size])
    }

    /// By size: the most that are there at once.
    fn peaks(&self, task: &Task<'_>) -> Vec<u64> {
        let there = self.there(task, self.sizes.len(), |size| size);
        let most = |counts: Vec<i64>| counts.into_iter().max().unwrap_or(0).unsigned_abs();
        there.into_iter().map(most).collect()
    }
}
