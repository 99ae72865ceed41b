//! Which values of a block are kept, made again and moved, by its shares: an integer programme, or greedily.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use good_lp::{Constraint, Expression, ProblemVariables, Solution, Variable, constraint, variable};

use super::Mix;
use super::cells::{Candidate, Cells};
use super::outer::Shares;
use super::solver::minimise;

/// How values are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    /// By an integer programme.
    Exact,
    /// By time for each byte, descending.
    Greedy,
}

/// What happens to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Fate {
    Kept,
    Again,
    Moved,
}

/// What a selection knows of a value: its size, the time to make it, whether it may run again, and whether it may move.
type Item = (i64, u64, bool, bool);

/// Values of an integer programme, at most: of larger blocks the smallest are decided together.
const MOST: usize = 10;

/// Prices of a block's bytes that are kept beyond its share, or moved more or less than its share, in its forward time.
const EXCESS: f64 = 1e3;
const MISS: f64 = 1e2;

/// Seconds that a solver with a clock may take.
const SECONDS: u32 = 60;

impl Inner {
    /// What becomes of the values of all blocks, equal ones decided once; what the shares leave is handed out to late ones first.
    pub(super) fn select(self, cells: &Cells, shares: &[Shares]) -> Mix {
        let mut known: BTreeMap<(Vec<Item>, [i64; 2]), Vec<Fate>> = BTreeMap::new();
        let mut fates: Vec<Vec<Fate>> = Vec::new();
        let (mut keep, mut moves) = (0.0, 0.0);
        for (cell, share) in cells.all.iter().zip(shares) {
            let items: Vec<Item> = cell.candidates.iter().map(item).collect();
            let all = items.iter().map(|item| item.0).sum::<i64>() as f64;
            let (kept, moved) = ((1.0 - share.again - share.moved).max(0.0) * all, share.moved * all);
            #[allow(clippy::cast_possible_truncation, reason = "shares of bytes")]
            let targets = [kept.round() as i64, moved.round() as i64];
            let fate = known.entry((items, targets)).or_insert_with_key(|(items, targets)| match self {
                Inner::Exact => exact(items, *targets),
                Inner::Greedy => greedy(items, *targets),
            });
            let sum = |which: Fate| {
                let of = cell.candidates.iter().zip(&*fate).filter(|(_, fate)| **fate == which);
                of.map(|(candidate, _)| candidate.size).sum::<i64>() as f64
            };
            keep += kept - sum(Fate::Kept);
            moves += moved - sum(Fate::Moved);
            fates.push(fate.clone());
        }
        for (cell, fates) in cells.all.iter().zip(&mut fates).rev() {
            for (candidate, fate) in
                cell.candidates.iter().zip(fates).rev().filter(|(_, fate)| **fate == Fate::Again)
            {
                let size = candidate.size as f64;
                if size <= keep {
                    (*fate, keep) = (Fate::Kept, keep - size);
                } else if candidate.may_move && size <= moves {
                    (*fate, moves) = (Fate::Moved, moves - size);
                }
            }
        }
        mix(cells, fates.into_iter().flatten())
    }
}

/// What a fate for each candidate, block by block, comes to.
pub(super) fn mix(cells: &Cells, fates: impl Iterator<Item = Fate>) -> Mix {
    let mut mix = Mix::default();
    for (candidate, fate) in cells.all.iter().flat_map(|cell| &cell.candidates).zip(fates) {
        match fate {
            Fate::Kept => false,
            Fate::Again => mix.recomputed.insert(candidate.value),
            Fate::Moved => mix.swapped.insert(candidate.value),
        };
    }
    mix
}

fn item(candidate: &Candidate) -> Item {
    (candidate.size, candidate.time, candidate.may_run, candidate.may_move)
}

/// What is dearest for its bytes is kept, then moved, as far as the shares go; the rest is made again.
fn greedy(items: &[Item], [kept, moved]: [i64; 2]) -> Vec<Fate> {
    let mut fates: Vec<Fate> =
        items.iter().map(|item| if item.2 { Fate::Again } else { Fate::Kept }).collect();
    let stays = items.iter().filter(|item| !item.2 && !item.3).map(|item| item.0).sum::<i64>();
    let (mut keep, mut moves) = (kept - stays, moved);
    let rate = |at: usize| items[at].1 as f64 / items[at].0.max(1) as f64;
    let mut order: Vec<usize> = (0..items.len()).filter(|&at| items[at].2 || items[at].3).collect();
    order.sort_by(|&one, &other| rate(other).total_cmp(&rate(one)).then(one.cmp(&other)));
    // What can only move goes first.
    order.sort_by_key(|&at| Reverse(!items[at].2));
    for at in order {
        let (size, _, may_run, may_move) = items[at];
        let is_moved = may_move && size <= moves;
        fates[at] = if is_moved && (!may_run || size > keep) {
            moves -= size;
            Fate::Moved
        } else if size <= keep || !may_run {
            keep -= size;
            Fate::Kept
        } else {
            Fate::Again
        };
    }
    fates
}

/// The least of what is kept beyond its share, moved more or less than its share, and made again, as priced. Greedily where the
/// solver gives up.
fn exact(items: &[Item], targets: [i64; 2]) -> Vec<Fate> {
    // The smallest are one.
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&at| (Reverse(items[at].0), at));
    let mut groups: Vec<Vec<usize>> = order.iter().take(MOST).map(|&at| vec![at]).collect();
    let rest: Vec<usize> = order.iter().skip(MOST).copied().collect();
    for (runs, moves) in [(true, true), (true, false), (false, true), (false, false)] {
        let same: Vec<usize> =
            rest.iter().copied().filter(|&at| (items[at].2, items[at].3) == (runs, moves)).collect();
        groups.extend((!same.is_empty()).then_some(same));
    }
    let grouped: Vec<Item> = groups
        .iter()
        .map(|group| {
            let size = group.iter().map(|&at| items[at].0).sum();
            let time = group.iter().map(|&at| items[at].1).fold(0u64, u64::saturating_add);
            (size, time, items[group[0]].2, items[group[0]].3)
        })
        .collect();
    let Some(found) = solved(&grouped, targets) else { return greedy(items, targets) };
    let mut fates = vec![Fate::Kept; items.len()];
    for (group, fate) in groups.iter().zip(found) {
        group.iter().for_each(|&at| fates[at] = fate);
    }
    fates
}

fn solved(items: &[Item], [kept, moved]: [i64; 2]) -> Option<Vec<Fate>> {
    let all = items.iter().map(|item| item.0).sum::<i64>().max(1) as f64;
    let time = items.iter().map(|item| item.1 as f64).sum::<f64>().max(1.0);
    let mut vars = ProblemVariables::new();
    let mut binary = |may: bool| may.then(|| vars.add(variable().binary()));
    let fates: Vec<(Option<Variable>, Option<Variable>)> =
        items.iter().map(|item| (binary(item.2), binary(item.3))).collect();
    let (excess, miss) = (vars.add(variable().min(0.0)), vars.add(variable().min(0.0)));
    let mut price = EXCESS * excess + MISS * miss;
    let (mut keeps, mut moves) = (Expression::from(0.0), Expression::from(0.0));
    let mut rows: Vec<Constraint> = Vec::new();
    for (item, &(again, away)) in items.iter().zip(&fates) {
        let share = item.0 as f64 / all;
        keeps += share;
        for var in [again, away].into_iter().flatten() {
            keeps.add_mul(-share, var);
        }
        if let Some(again) = again {
            price.add_mul(item.1 as f64 / time, again);
        }
        if let Some(away) = away {
            moves.add_mul(share, away);
        }
        if let (Some(again), Some(away)) = (again, away) {
            rows.push(constraint!(again + away <= 1.0));
        }
    }
    rows.push(constraint!(keeps - excess <= kept as f64 / all));
    rows.push(constraint!(moves.clone() - miss <= moved as f64 / all));
    rows.push(constraint!(moves + miss >= moved as f64 / all));
    let solution = minimise(vars, price, rows, SECONDS).ok()?;
    let is = |var: Option<Variable>| var.is_some_and(|var| solution.value(var) > 0.5);
    let fate = |&(again, away): &(Option<Variable>, Option<Variable>)| match (is(again), is(away)) {
        (true, _) => Fate::Again,
        (_, true) => Fate::Moved,
        _ => Fate::Kept,
    };
    Some(fates.iter().map(fate).collect())
}

#[cfg(test)]
mod tests {
    use memfit_testkit::Rng;

    use super::*;

    fn signed(rng: &mut Rng, most: usize) -> i64 {
        i64::try_from(rng.below(most)).unwrap()
    }

    /// What the programme counts.
    fn price(items: &[Item], [kept, moved]: [i64; 2], fates: &[Fate]) -> f64 {
        let sum = |which: Fate| {
            let of = items.iter().zip(fates).filter(|(_, fate)| **fate == which);
            of.fold((0.0, 0.0), |sum, (item, _)| (sum.0 + item.0 as f64, sum.1 + item.1 as f64))
        };
        let all = items.iter().map(|item| item.0).sum::<i64>().max(1) as f64;
        let time = items.iter().map(|item| item.1 as f64).sum::<f64>().max(1.0);
        let excess = (sum(Fate::Kept).0 - kept as f64).max(0.0) / all;
        let miss = (sum(Fate::Moved).0 - moved as f64).abs() / all;
        EXCESS * excess + MISS * miss + sum(Fate::Again).1 / time
    }

    fn may(item: &Item, fate: Fate) -> bool {
        match fate {
            Fate::Kept => true,
            Fate::Again => item.2,
            Fate::Moved => item.3,
        }
    }

    #[test]
    fn the_programme_is_as_good_as_trying_everything_and_greedy_keeps_to_what_may_be() {
        let mut mixed = 0;
        for seed in 0..150 {
            let mut rng = Rng::new(seed);
            let count = 1 + rng.below(6);
            let items: Vec<Item> = (0..count)
                .map(|_| (1 + signed(&mut rng, 40), rng.below(50) as u64, rng.below(5) > 0, rng.below(3) > 0))
                .collect();
            let all: i64 = items.iter().map(|item| item.0).sum();
            let most = usize::try_from(all).unwrap() + 1;
            let targets = [signed(&mut rng, most), signed(&mut rng, 30)];
            let mut least = f64::INFINITY;
            for code in 0..3usize.pow(u32::try_from(count).unwrap()) {
                let fates: Vec<Fate> = (0..count)
                    .map(|at| {
                        [Fate::Kept, Fate::Again, Fate::Moved]
                            [code / 3usize.pow(u32::try_from(at).unwrap()) % 3]
                    })
                    .collect();
                if items.iter().zip(&fates).all(|(item, &fate)| may(item, fate)) {
                    least = least.min(price(&items, targets, &fates));
                }
            }
            let found = exact(&items, targets);
            assert!(items.iter().zip(&found).all(|(item, &fate)| may(item, fate)), "seed {seed}");
            let priced = price(&items, targets, &found);
            assert!((priced - least).abs() < 1e-6 * (1.0 + least), "seed {seed}: {priced}, {least}");
            let quick = greedy(&items, targets);
            assert!(items.iter().zip(&quick).all(|(item, &fate)| may(item, fate)), "seed {seed}");
            let is = |which: Fate| found.contains(&which);
            mixed += usize::from(is(Fate::Kept) && is(Fate::Again) && is(Fate::Moved));
        }
        assert!(mixed > 10, "{mixed}");
    }
}
