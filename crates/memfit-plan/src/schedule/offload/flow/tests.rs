//! Optima of small programmes against trying everything.

use memfit_ir::{Bytes, Device, Graph, InPlace, Link, Nanos, OpId};
use memfit_testkit::{Layered, device, layered};

use super::*;
use crate::Context;
use crate::schedule::transfers::Chooser;
use crate::schedule::{RunList, Task};

/// What one value may do: ns waited for, ns beside ops, ops during which it is away.
#[derive(Clone, Default)]
struct Choice {
    waited: u64,
    beside: Vec<(usize, u64)>,
    away: Vec<std::ops::Range<usize>>,
}

/// All that a value may do in `gaps`, told by when it leaves and returns and not by edges.
fn choices(gaps: &[Gap], mode: Mode) -> Vec<Choice> {
    if mode == Mode::Static {
        let waited = gaps[0].out + gaps.iter().map(|gap| gap.back).sum::<u64>();
        let away = gaps.iter().map(|gap| gap.from + 1..gap.to).collect();
        return vec![Choice::default(), Choice { waited, beside: Vec::new(), away }];
    }
    let near = if let Mode::Asynchronous(near) = mode { near } else { 0 };
    let mut all = vec![(Choice::default(), false)];
    for gap in gaps {
        let mut next = all.clone();
        let is_near = |at: &usize| *at <= gap.from + near || *at + near >= gap.to;
        let inside: Vec<usize> = (gap.from + 1..gap.to).filter(is_near).collect();
        let columns: Vec<usize> = std::iter::once(gap.from).chain(inside.clone()).collect();
        for &gone in &columns {
            // Waited for right after the use, or beside the op of the column.
            for waits in [true, false] {
                let possible =
                    if waits { gone == gap.from } else { near > 0 && !(gap.made && gone == gap.from) };
                // It is back for its next use, or when the op of a later column is done.
                for back in inside.iter().copied().filter(|&at| at > gone).chain([gap.to]) {
                    for (before, copied) in &all {
                        let mut choice = before.clone();
                        match (copied, waits) {
                            (true, false) => continue,
                            (true, true) if near == 0 && gone > gap.from => continue,
                            (false, _) if !possible => continue,
                            (true, true) => {}
                            (false, true) => choice.waited += gap.out,
                            (false, false) => choice.beside.push((gone, gap.out)),
                        }
                        match back == gap.to {
                            true => choice.waited += gap.back,
                            false => choice.beside.push((back, gap.back)),
                        }
                        choice.away.push(gone + 1..back);
                        next.push((choice, true));
                    }
                }
            }
        }
        all = next;
    }
    all.into_iter().map(|(choice, _)| choice).collect()
}

/// The least ns of all that values may do together within `limit`, by trying everything.
fn least(step: &Gaps, limit: i64, values: &[(i64, Vec<Choice>)]) -> Option<u64> {
    fn visit(
        step: &Gaps,
        limit: i64,
        left: &[(i64, Vec<Choice>)],
        now: &mut (Vec<i64>, Vec<u64>, u64),
    ) -> Option<u64> {
        let Some(((size, choices), rest)) = left.split_first() else {
            let time = |at: usize| (step.begins[at + 1] - step.begins[at]).max(now.1[at]);
            let fits = now.0.iter().all(|&live| live <= limit);
            return fits.then(|| now.2 + (0..now.0.len()).map(time).sum::<u64>());
        };
        let mut best = None;
        for choice in choices {
            for sign in [1i64, -1] {
                choice
                    .away
                    .iter()
                    .cloned()
                    .flatten()
                    .filter(|&at| at < now.0.len())
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|at| now.0[at] -= sign * size);
                choice
                    .beside
                    .iter()
                    .for_each(|&(at, ns)| now.1[at] = now.1[at].wrapping_add_signed(sign * ns.cast_signed()));
                now.2 = now.2.wrapping_add_signed(sign * choice.waited.cast_signed());
                if sign == 1 {
                    best = [best, visit(step, limit, rest, now)].into_iter().flatten().min();
                }
            }
        }
        best
    }
    visit(step, limit, values, &mut (step.live.clone(), vec![0; step.live.len()], 0))
}

/// Ns of `windows`, as AutoTM counts them, and whether all that is live fits.
fn priced(step: &Gaps, limit: i64, windows: &[Window]) -> (u64, bool) {
    let (mut live, mut moves, mut waited) = (step.live.clone(), vec![0; step.live.len()], 0);
    for window in windows {
        let Gap { from, to, out, back, size, .. } = window.gap;
        match (window.kept, window.store == window.gone) {
            (true, _) => {}
            (false, true) => moves[window.gone] += out,
            (false, false) => {
                assert_eq!(window.gone, from);
                waited += out;
            }
        }
        match window.back == to {
            true => waited += back,
            false => moves[window.back] += back,
        }
        (window.gone + 1..window.back).for_each(|at| live[at] -= size);
    }
    let time = |at: usize| (step.begins[at + 1] - step.begins[at]).max(moves[at]);
    (waited + (0..live.len()).map(time).sum::<u64>(), live.iter().all(|&live| live <= limit))
}

fn linked() -> Device {
    let (out_bandwidth, in_bandwidth) = (4e8, 6e8);
    let link = Link {
        out_bandwidth,
        in_bandwidth,
        duplex_cap: f64::INFINITY,
        latency: Nanos(100),
        asynchronous: true,
    };
    Device { link: Some(link), host_memory: Bytes(1 << 30), ..device() }
}

fn graph(seed: u64) -> Graph {
    let ops = 4 + (seed % 4) as usize;
    layered(Layered { ops, edges: ops * 2, layers: ops / 2, skips: 60, unit: 64, sparse: 0 }, seed)
}

#[test]
fn optima_are_those_of_trying_everything() {
    let device = linked();
    let context = Context::new(&device);
    let (mut compared, mut moved, mut none) = ([0; 3], 0, 0);
    for seed in 0..400 {
        let graph = graph(seed);
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::Must, true, &context);
        if graph.value_count() > 8 + task.value_ids().filter(|&value| task.is_resident(value)).count() {
            continue;
        }
        let runs = RunList::plain(&task);
        let peak = task.reference();
        let budget = Bytes(peak.0 - (peak.0 - task.floor().0.0.min(peak.0)) * (1 + seed % 4) / 4);
        let Ok(mut chooser) = Chooser::of(&task, &runs, budget, &context) else { continue };
        for (at, mode) in [Mode::Static, Mode::Synchronous, Mode::Asynchronous(15)].into_iter().enumerate() {
            let (step, limit) = (chooser.step(), chooser.limit());
            let programme = Programme::of(step, limit, mode);
            let mut gaps: Vec<Gap> = step.gaps.clone();
            gaps.sort_by_key(|gap| (gap.value, gap.from));
            let values: Vec<(i64, Vec<Choice>)> = gaps
                .chunk_by(|one, other| one.value == other.value)
                .map(|gaps| (gaps[0].size, choices(gaps, mode)))
                .collect();
            let ways: f64 = values.iter().map(|(_, choices)| choices.len() as f64).product();
            if ways > 200_000.0 || programme.too_large().is_some() {
                continue;
            }
            let least = least(step, limit, &values);
            compared[at] += 1;
            match (programme.solve(60), least) {
                (Answer::Solved(windows), Some(least)) => {
                    assert_eq!(priced(step, limit, &windows), (least, true), "seed {seed}, {mode:?}");
                    moved += windows.len();
                    let moved =
                        chooser.run_at(&windows).unwrap_or_else(|| panic!("seed {seed}, {mode:?}: no plan"));
                    assert!(moved.peak <= budget, "seed {seed}, {mode:?}");
                }
                (Answer::None, None) => none += 1,
                (Answer::Failed(why), _) => panic!("seed {seed}, {mode:?}: {why}"),
                (_, least) => panic!("seed {seed}, {mode:?}: least {least:?}"),
            }
        }
    }
    assert!(
        compared.iter().all(|&compared| compared > 60) && moved > 100 && none > 0,
        "{compared:?}, {moved} moved, {none}"
    );
}
