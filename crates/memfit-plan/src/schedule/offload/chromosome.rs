//! What SwapAdvisor's genetic search changes: an order of ops, classes of sizes, and how many blocks each class has.

use std::collections::BTreeSet;

use memfit_ir::OpId;

use super::random::Random;
use crate::dependencies::Dependencies;

/// An order, and a pool of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chromosome {
    pub(super) order: Vec<OpId>,
    /// By size, ascending: its class. From 0 on, each as the one before it or one more.
    pub(super) class: Vec<usize>,
    /// By class: how many blocks it has, which is how many of its objects are there at once.
    pub(super) blocks: Vec<u64>,
}

/// What all chromosomes of a search share.
pub(super) struct Pool<'a> {
    pub(super) deps: &'a Dependencies,
    /// How many sizes there are.
    pub(super) sizes: usize,
    /// By op: how many objects of which sizes it needs at once, by index.
    pub(super) needs: Vec<Vec<(usize, u64)>>,
}

/// One in so many ops is drawn from all that could run, where an order mutates.
const DRAWN: usize = 10;

impl Pool<'_> {
    /// The least blocks of each class with which every op can run.
    fn least(&self, class: &[usize], classes: usize) -> Vec<u64> {
        let mut least = vec![0; classes];
        let mut here = vec![0; classes];
        for needs in &self.needs {
            needs.iter().for_each(|&(size, count)| here[class[size]] += count);
            for &(size, _) in needs {
                let class = class[size];
                least[class] = u64::max(least[class], std::mem::take(&mut here[class]));
            }
        }
        least
    }

    /// `blocks` of the classes of `class`: none has less than an op needs.
    fn fitted(&self, class: &[usize], mut blocks: Vec<u64>) -> Vec<u64> {
        let least = self.least(class, blocks.len());
        blocks.iter_mut().zip(&least).for_each(|(blocks, &least)| *blocks = (*blocks).max(least));
        blocks
    }

    /// Each size a class of its own, with as many blocks as `peaks` says by size.
    pub(super) fn first(&self, order: Vec<OpId>, peaks: Vec<u64>) -> Chromosome {
        Chromosome { order, class: (0..self.sizes).collect(), blocks: peaks }
    }

    /// A child: each part of it begins as that of `one` and goes on as that of `other`.
    pub(super) fn cross(&self, one: &Chromosome, other: &Chromosome, random: &mut Random) -> Chromosome {
        let cut = random.below(one.order.len() + 1);
        let mut taken = vec![false; one.order.len()];
        one.order[..cut].iter().for_each(|op| taken[op.index()] = true);
        let rest = other.order.iter().filter(|op| !taken[op.index()]);
        let order = one.order[..cut].iter().chain(rest).copied().collect();
        let cut = random.below(self.sizes + 1);
        let mut class = one.class[..cut].to_vec();
        for at in cut..self.sizes {
            let step = match at {
                0 => 0,
                _ if at == cut => usize::from(other.class[at] > class[at - 1]),
                _ => other.class[at] - other.class[at - 1],
            };
            class.push(class.last().map_or(0, |last| last + step));
        }
        // Blocks by size, averaged over the sizes of each class.
        let cut = random.below(self.sizes + 1);
        let (mut sums, mut counts) = (Vec::new(), Vec::new());
        for (at, &class) in class.iter().enumerate() {
            if class == sums.len() {
                sums.push(0u64);
                counts.push(0u64);
            }
            let parent = if at < cut { one } else { other };
            sums[class] = sums[class].saturating_add(parent.blocks[parent.class[at]]);
            counts[class] += 1;
        }
        let blocks = sums.into_iter().zip(counts).map(|(sum, count)| sum / count).collect();
        let blocks = self.fitted(&class, blocks);
        Chromosome { order, class, blocks }
    }

    /// Ops in the order of `parent`, but now and then one that is drawn from all that could run.
    pub(super) fn mutate_order(&self, parent: &mut Chromosome, random: &mut Random) {
        let count = parent.order.len();
        let mut place = vec![0; count];
        parent.order.iter().enumerate().for_each(|(at, op)| place[op.index()] = at);
        let mut left: Vec<usize> = (0..count).map(|op| self.deps.preds(OpId::at(op)).len()).collect();
        let mut ready: BTreeSet<usize> = (0..count).filter(|&op| left[op] == 0).map(|op| place[op]).collect();
        let mut order = Vec::with_capacity(count);
        // Only a part of it is drawn anew: what all of it would be is no neighbour of the parent.
        let from = random.below(count.max(1));
        let until = from + 1 + random.below(count.saturating_sub(from).max(1));
        while !ready.is_empty() {
            let drawn = (from..until).contains(&order.len()) && random.below(DRAWN) == 0;
            let nth = if drawn { random.below(ready.len()) } else { 0 };
            let Some(&at) = ready.iter().nth(nth) else { break };
            ready.remove(&at);
            let op = parent.order[at];
            order.push(op);
            for &after in self.deps.succs(op) {
                left[after.index()] -= 1;
                if left[after.index()] == 0 {
                    ready.insert(place[after.index()]);
                }
            }
        }
        parent.order = order;
    }

    /// One size begins a class or no longer does, and what is larger shifts; and blocks are a few more or fewer.
    pub(super) fn mutate_pool(&self, parent: &mut Chromosome, random: &mut Random) {
        let by_size: Vec<u64> = parent.class.iter().map(|&class| parent.blocks[class]).collect();
        if self.sizes > 1 && random.below(2) == 0 {
            let at = 1 + random.below(self.sizes - 1);
            let more = parent.class[at] == parent.class[at - 1];
            parent.class[at..]
                .iter_mut()
                .for_each(|class| *class = if more { *class + 1 } else { *class - 1 });
        }
        let mut blocks = vec![0; parent.class.last().map_or(0, |last| last + 1)];
        parent.class.iter().zip(by_size).for_each(|(&class, count)| blocks[class] = count);
        for blocks in &mut blocks {
            // The sum of twelve numbers is as good as normal.
            let part = usize::try_from(*blocks / 5).unwrap_or(0);
            let sum: u64 = (0..12).map(|_| random.below(part + 2) as u64).sum();
            *blocks = (*blocks + sum).saturating_sub(6 * (part as u64 + 1));
        }
        parent.blocks = self.fitted(&parent.class, blocks);
    }
}

#[cfg(test)]
mod tests {
    use memfit_testkit::{Layered, layered};

    use super::*;

    /// Whatever is crossed and mutated, orders can run, classes climb by steps, and blocks are enough and not too many.
    #[test]
    fn children_are_chromosomes() {
        for seed in 0..40 {
            let ops = 6 + (seed % 30) as usize;
            let graph = layered(
                Layered { ops, edges: ops * 2, layers: ops / 2, skips: 60, unit: 64, sparse: 0 },
                seed,
            );
            let deps = Dependencies::of(&graph);
            let mut random = Random::new(seed);
            let sizes = 1 + (seed % 9) as usize;
            let needs = (0..ops).map(|op| vec![(op % sizes, 2)]).collect();
            let pool = Pool { deps: &deps, sizes, needs };
            let peaks: Vec<u64> = (0..sizes).map(|_| 5 + random.next() % 90).collect();
            let order: Vec<OpId> = graph.op_ids().collect();
            let mut one = pool.first(order, peaks);
            let mut other = one.clone();
            let mut differ = 0;
            for _ in 0..60 {
                pool.mutate_order(&mut other, &mut random);
                pool.mutate_pool(&mut other, &mut random);
                let child = pool.cross(&one, &other, &mut random);
                for each in [&other, &child] {
                    assert!(deps.allow(&each.order), "seed {seed}");
                    assert!(each.class[0] == 0 && each.class.windows(2).all(|pair| pair[1] - pair[0] <= 1));
                    let classes = each.class.last().unwrap() + 1;
                    let least = pool.least(&each.class, classes);
                    assert_eq!(classes, each.blocks.len(), "seed {seed}");
                    assert!(each.blocks.iter().zip(&least).all(|(blocks, least)| blocks >= least));
                }
                differ += usize::from(child != one);
                one = child;
            }
            assert!(differ > 20, "seed {seed}: {differ}");
        }
    }
}
