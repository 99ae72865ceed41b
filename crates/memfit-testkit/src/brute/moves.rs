//! The fastest step in which values wait elsewhere, by trying everything.

use std::collections::BTreeSet;

use memfit_ir::{Action, Bytes, Device, Form, Graph, InPlace, Nanos, OpId, Schedule, Tier, ValueId};
use memfit_sim::simulate;

/// A value away between two uses of it: copied to `tier` before the op at place `store`, gone once the op at place `gone` is
/// done, which is `store − 1` for right then, and back before the op at place `back`, for the one at place `used`.
#[derive(Clone, Copy, Debug)]
struct Stay {
    value: ValueId,
    tier: Tier,
    store: usize,
    gone: usize,
    back: usize,
    used: usize,
}

/// Time of the fastest step that runs the ops of `graph` once in `order`, with values of at least `least` bytes away between
/// two uses in every tier that `device` has a link to, from each place to each place; live bytes within `budget`, copies within
/// what the device's tiers hold. `None` if there is none. Copies that begin at the same place are made in the order of the uses
/// before them, the larger first; those that come back at the same place in the order of the uses after them. Exponential.
#[must_use]
pub fn fastest_moves(
    graph: &Graph,
    (order, in_place): (&[OpId], InPlace),
    device: &Device,
    (budget, least): (Bytes, Bytes),
) -> Option<Nanos> {
    let mut best = None;
    each_move(graph, (order, in_place), device, least, &mut |peak, time| {
        if peak <= budget {
            best = Some(best.map_or(time, |best: Nanos| best.min(time)));
        }
    });
    best
}

/// Live peaks and times of which none is both larger and slower than another, the smallest first: of all steps whose first runs are
/// the ops of `graph` in its order, with up to `more` other runs of any of them anywhere after, and values away as in
/// [`fastest_moves`]. Exponential.
#[must_use]
pub fn best_steps(
    graph: &Graph,
    in_place: InPlace,
    device: &Device,
    (least, more): (Bytes, usize),
) -> Vec<(Bytes, Nanos)> {
    let mut lists = BTreeSet::from([graph.op_ids().collect::<Vec<OpId>>()]);
    let mut last = lists.clone();
    for _ in 0..more {
        let longer = last.iter().flat_map(|list| {
            let first = |op: OpId| list.iter().position(|&other| other == op).unwrap_or(list.len());
            let places =
                graph.op_ids().flat_map(move |op| (first(op) + 1..list.len()).map(move |at| (op, at)));
            places.map(|(op, at)| [&list[..at], &[op], &list[at..]].concat())
        });
        last = longer.collect();
        lists.extend(last.iter().cloned());
    }
    let mut found: Vec<(Bytes, Nanos)> = Vec::new();
    for list in &lists {
        each_move(graph, (list, in_place), device, least, &mut |peak, time| {
            if found.iter().all(|other| other.0 > peak || other.1 > time) {
                found.retain(|other| other.0 < peak || other.1 < time);
                found.push((peak, time));
            }
        });
    }
    found.sort_unstable();
    found
}

/// Tells `each` the live peak and the time of every step that runs the ops of `order`, some of them more than once.
fn each_move(
    graph: &Graph,
    (order, in_place): (&[OpId], InPlace),
    device: &Device,
    least: Bytes,
    each: &mut dyn FnMut(Bytes, Nanos),
) {
    let ways: Vec<Vec<Stay>> = gaps(graph, order, least).iter().map(|gap| ways(gap, device)).collect();
    choose(&ways, &mut Vec::new(), &mut |stays| {
        let actions = actions(order, stays);
        let Ok(program) = Schedule { actions, ..Schedule::default() }.program(graph, in_place) else {
            return;
        };
        let timeline = simulate(graph, &program, None, device);
        let limits = device.limits();
        let fits = Tier::ALL.iter().all(|&(tier, _)| timeline.tier_peaks[tier.index()] <= limits.tier(tier));
        if fits && timeline.stuck == 0 {
            each(timeline.live_peak, timeline.time);
        }
    });
}

/// A value between two uses: the places of the ops that use it, and whether the first of them makes it.
type Gap = (ValueId, usize, usize, bool);

/// Those with an op in between, by the first use, the larger value first.
fn gaps(graph: &Graph, order: &[OpId], least: Bytes) -> Vec<Gap> {
    let lasting = graph.lasting();
    let mut gaps = Vec::new();
    for value in graph.value_ids() {
        let this = graph.value(value);
        if lasting[value.index()] || this.size < least {
            continue;
        }
        let is_made = |op: OpId| this.producer == Some(op);
        let uses = order.iter().enumerate();
        let uses = uses.filter(|(_, op)| is_made(**op) || graph.op(**op).reads.contains(&value));
        let mut uses: Vec<(usize, bool)> = uses.map(|(at, op)| (at, is_made(*op))).collect();
        if graph.is_result(value) {
            uses.push((order.len(), false));
        }
        // What is made again need not be there before.
        for pair in uses.windows(2).filter(|pair| pair[1].0 > pair[0].0 + 1 && !pair[1].1) {
            gaps.push((value, pair[0].0, pair[1].0, pair[0].1));
        }
    }
    gaps.sort_by_key(|&(value, from, _, _)| (from, std::cmp::Reverse(graph.value(value).size), value));
    gaps
}

fn ways(&(value, from, used, is_made): &Gap, device: &Device) -> Vec<Stay> {
    let tiers = Tier::ALL.into_iter().map(|(tier, _)| tier).filter(|&tier| device.link_to(tier).is_some());
    let mut ways = Vec::new();
    for tier in tiers {
        for store in from + usize::from(is_made)..used {
            for gone in store.max(from + 1) - 1..used - 1 {
                for back in gone + 2..=used {
                    ways.push(Stay { value, tier, store, gone, back, used });
                }
            }
        }
    }
    ways
}

fn choose(ways: &[Vec<Stay>], chosen: &mut Vec<Stay>, each: &mut impl FnMut(&[Stay])) {
    let Some((first, rest)) = ways.split_first() else { return each(chosen) };
    choose(rest, chosen, each);
    for &way in first {
        chosen.push(way);
        choose(rest, chosen, each);
        chosen.pop();
    }
}

fn actions(order: &[OpId], stays: &[Stay]) -> Vec<Action> {
    let mut actions = Vec::new();
    let form = |stay: &Stay| Form::Tier(stay.tier);
    for place in 0..=order.len() {
        let stores = stays.iter().filter(|stay| stay.store == place);
        actions.extend(stores.map(|stay| Action::Store(stay.value, form(stay))));
        let releases = stays.iter().filter(|stay| stay.gone >= stay.store && stay.gone + 1 == place);
        actions.extend(releases.map(|stay| Action::Release(stay.value, None)));
        let mut loads: Vec<&Stay> = stays.iter().filter(|stay| stay.back == place).collect();
        loads.sort_by_key(|stay| stay.used);
        actions.extend(loads.into_iter().map(|stay| Action::Load(stay.value, form(stay))));
        actions.extend(order.get(place).map(|&op| Action::Run { op, algorithm: 0 }));
    }
    actions
}
