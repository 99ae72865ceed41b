//! Lowers the peak of an order by searching small parts of it exactly.
//!
//! An op that all ops before it lead to and that leads to all ops after it is a *waist*: whatever the order,
//! the same ops have run before it. So the parts between waists have their optima independently, and the peak
//! is the largest of theirs. The part that holds the peak is searched (`order/exact.rs`), forwards, then
//! backwards; where it has more than 2048 ops or takes too long, windows of it around the peak are, with what runs
//! before and after the window held fixed. Source: divide and conquer at single-node cuts is Serenity's (Ahn
//! et al., MLSys 2020, §3.2); windows are ours. Never worse than the order it is given; optimal if all parts
//! that matter are searched to the end. Time bounded by the number of states, space O(n + states). The wrong
//! choice where a low order differs from the given one by moving ops farther than a window: see
//! `order/beam.rs`.

use memfit_ir::OpId;

use super::exact::{Found, Limits, search};
use super::part::{Part, WIDEST};
use super::{Known, Ledger, Model};
use crate::Context;

/// Lowers `known.peak` towards `known.bound`, with at most a third of `budget` (in ops looked at), which is
/// reduced by what that took.
pub(super) fn improve(model: &Model, known: &mut Known, budget: &mut usize, context: &Context<'_>) {
    let mut work = *budget / 3; // The rest is for others.
    *budget -= work;
    lower(model, known, &mut work, context);
    *budget += work;
}

fn lower(model: &Model, known: &mut Known, work: &mut usize, context: &Context<'_>) {
    let mut local = vec![None; model.op_count()];
    while known.peak > known.bound && *work > 0 && !(context.stop)() {
        let (at, peak) = highest(model, &known.order);
        if peak < known.peak {
            known.peak = peak.max(model.floor());
            continue;
        }
        let (from, until) = between_waists(model, &known.order, at);
        let mut windows = vec![(from, until)];
        if until - from > WIDEST {
            windows.clear();
        }
        for width in [128, 64, 32, 512].into_iter().filter(|&width| width < until - from) {
            for before in [width / 2, width / 4, width - width / 4] {
                let start = at.saturating_sub(before).max(from).min(until - width);
                windows.push((start, start + width));
            }
        }
        let mut lowered = false;
        for window in windows {
            let whole = window == (from, until);
            // Most narrow windows show nothing: they must be cheap. Half is for each direction.
            let share =
                if whole { *work * 2 / 3 } else { (*work).min(WORK_OF_AN_OP * (window.1 - window.0)) };
            let before = prefix(model, &known.order[..window.0]);
            let part = Part::new(model, &before, &known.order[window.0..window.1], &mut local);
            let (found, ordered) = both_ways(part, known, share, context);
            *work = work.saturating_sub(found.work() + model.op_count()); // And the prefix.
            match found {
                Found::Best { path, .. } => {
                    known.order[window.0..window.1].copy_from_slice(&ordered.order(&path));
                    lowered = true;
                    break;
                }
                Found::AtLeast { level, .. } if whole => {
                    known.bound = known.bound.max(level.min(known.peak));
                    if level >= known.peak {
                        break;
                    }
                }
                Found::AtLeast { .. } => {}
            }
            if *work == 0 || (context.stop)() {
                break;
            }
        }
        if !lowered {
            return;
        }
        known.peak = highest(model, &known.order).1.max(model.floor());
    }
}

/// Searches a part forwards and backwards, with ever more work: either way may be easy where the other is hard.
/// Returns what was found last, and the part the way it was read then; the work is that of all searches.
fn both_ways(part: Part, known: &Known, share: usize, context: &Context<'_>) -> (Found, Part) {
    let mut ways = [part.reversed(), part];
    let mut spent = 0;
    let mut level = known.bound;
    let mut least = 50_000usize;
    let mut forwards = false;
    loop {
        ways.swap(0, 1);
        forwards = !forwards;
        let work = least.min(share / 2);
        let limits = Limits { from: known.bound, below: known.peak, work, stop: context.stop };
        let mut found = search(&ways[0], limits);
        let (Found::Best { work, .. } | Found::AtLeast { work, .. }) = &mut found;
        spent += *work;
        *work = spent;
        if let Found::AtLeast { level: shown, .. } = &mut found {
            level = level.max(*shown);
            *shown = level;
        }
        if !forwards && least >= share / 2 || !found.capped(known.peak) || (context.stop)() {
            let [way, _] = ways;
            return (found, way);
        }
        if !forwards {
            least = least.saturating_mul(8);
        }
    }
}

/// What a window may cost for each of its ops.
const WORK_OF_AN_OP: usize = 1500;

/// The first op at which the most bytes are live, by its position, and those bytes.
fn highest(model: &Model, order: &[OpId]) -> (usize, i64) {
    let mut ledger = Ledger::new(model);
    let mut most = (0, i64::MIN);
    for (at, &op) in order.iter().enumerate() {
        let hill = ledger.run(op);
        if hill > most.1 {
            most = (at, hill);
        }
    }
    most
}

fn prefix<'m>(model: &'m Model, order: &[OpId]) -> Ledger<'m> {
    let mut ledger = Ledger::new(model);
    for &op in order {
        ledger.run(op);
    }
    ledger
}

/// The range of positions around `at` from one waist to the next, the first included. Time O(ops + dependencies).
fn between_waists(model: &Model, order: &[OpId], at: usize) -> (usize, usize) {
    let mut position = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, op)| position[op.index()] = at);
    // All ops after `p` are reached from it if none of them has all it depends on before `p`, and all before
    // lead to it if none has its first user after `p`: follow the path either makes.
    let last_pred = |op: &OpId| model.deps.preds(*op).iter().map(|op| position[op.index()]).max();
    let first_succ = |op: &OpId| model.deps.succs(*op).iter().map(|op| position[op.index()]).min();
    let mut reaches = vec![usize::MAX; order.len()]; // Least last predecessor of the ops after.
    for p in (0..order.len().saturating_sub(1)).rev() {
        let of_next = last_pred(&order[p + 1]).map_or(0, |before| before + 1);
        reaches[p] = reaches[p + 1].min(of_next);
    }
    let mut led = 0; // Largest first successor of the ops before.
    let (mut from, mut until) = (0, order.len());
    for p in 0..order.len() {
        let waist = led <= p && reaches[p] > p;
        if waist && p <= at {
            from = p;
        }
        if waist && p > at {
            until = p;
            break;
        }
        led = led.max(first_succ(&order[p]).unwrap_or(usize::MAX));
    }
    (from, until)
}
