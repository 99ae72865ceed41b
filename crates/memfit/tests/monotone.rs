//! `auto` on random graphs with a link: more memory, of the device or of the host, and no slower plan but seldom.
//!
//! A part of the graphs, each at a part of the cells; `MEMFIT_CASES=1000` takes as many, each at all cells. `MEMFIT_ALL=1` takes a thousand graphs, each at one of the
//! squares of two budgets and two amounts of host memory that are neighbours, in turn. `MEMFIT_SEEDS=80..90` names graphs.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit::{Budget, Bytes, Device, Failure, Goal, Graph, Options, Tools, plan};
use memfit_testkit::{cases, device, link, mixed as graph};

/// Parts of what lies between floor and peak, in percent.
const BUDGETS: [u32; 6] = [5, 15, 30, 50, 70, 90];

/// All values may wait in host memory at once, a quarter of their bytes, or a sixteenth.
const PARTS: [u64; 3] = [16, 4, 1];

/// With a link that is slow, so that not all that could wait elsewhere does, or fast.
fn machine(seed: u64) -> Device {
    Device { link: Some(link(seed)), host_memory: Bytes::MAX, ..device() }
}

/// Ns of the plan, and of the step with every op once, and who made it.
fn time(graph: &Graph, device: &Device, budget: u32, host: Bytes) -> Option<(u64, u64, String)> {
    let options = Options { host_budget: Some(host), ..Options::default() };
    let goal = Goal { options, ..Goal::new(device.clone(), Budget::AboveFloor(f64::from(budget) / 100.0)) };
    match plan(graph, &goal, &Tools::none()) {
        Ok(planned) => Some((planned.summary.time.0, planned.summary.base_time.0, planned.summary.strategy)),
        Err(Failure::Infeasible(_)) => None,
        Err(failure) => panic!("floor + {budget} %, {host}: {failure:?}"),
    }
}

/// As many of a thousand, of both kinds; or the range that `MEMFIT_SEEDS` names.
fn seeds(count: u64) -> Vec<u64> {
    if let Ok(range) = std::env::var("MEMFIT_SEEDS") {
        let (from, to) = range.split_once("..").unwrap();
        return (from.parse().unwrap()..to.parse().unwrap()).collect();
    }
    let each = (0..1000).step_by(usize::try_from((1000 / count).max(1)).unwrap());
    each.map(|seed| seed + u64::from(count < 1000) * (seed / 100 % 2)).collect()
}

/// Whether a part of the cells is enough.
fn few() -> bool {
    ["MEMFIT_ALL", "MEMFIT_CASES"].iter().all(|name| std::env::var(name).is_err())
}

/// Budgets and parts at which the graph of `seed` is planned.
fn cells(seed: u64) -> (&'static [u32], &'static [u64]) {
    if few() {
        return (&[5, 50], &[16, 1]);
    }
    if std::env::var("MEMFIT_ALL").is_err() {
        return (&BUDGETS, &PARTS);
    }
    let at = usize::try_from(seed).unwrap();
    let (budget, part) = (at % (BUDGETS.len() - 1), at / (BUDGETS.len() - 1) % (PARTS.len() - 1));
    (&BUDGETS[budget..budget + 2], &PARTS[part..part + 2])
}

#[test]
fn more_memory_of_either_kind_is_seldom_slower() {
    let count = if std::env::var("MEMFIT_ALL").is_ok() { 1000 } else { cases(2) };
    let (mut pairs, mut breaches) = (0u32, Vec::new());
    let mut of_graphs = 0;
    for seed in seeds(count) {
        let (graph, device) = (graph(seed), machine(seed));
        let total: Bytes = graph.value_ids().map(|id| graph.value(id).size).sum();
        let (budgets, parts) = cells(seed);
        let row = |part: &u64| -> Vec<_> {
            budgets.iter().map(|&budget| time(&graph, &device, budget, Bytes(total.0 / part))).collect()
        };
        let rows: Vec<_> = parts.iter().map(row).collect();
        let mut compared = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            for (pair, after) in row.iter().enumerate() {
                let what = format!("seed {seed}, 1/{}, floor + {} %", parts[at], budgets[pair]);
                if pair > 0 {
                    compared.push((&row[pair - 1], after, format!("{what}, device")));
                }
                if at > 0 {
                    compared.push((&rows[at - 1][pair], after, format!("{what}, host")));
                }
            }
        }
        let before = pairs;
        for (less, more, what) in compared {
            let Some((less, base, by)) = less else { continue };
            pairs += 1;
            let (time, then) =
                more.as_ref().map_or((f64::INFINITY, "none"), |(time, _, by)| (*time as f64, by));
            if time > *less as f64 {
                let slower = (time - *less as f64) / (*base).max(1) as f64 * 100.0;
                println!("{what}, {} ops, {by}, {then}: {slower:.2} % slower", graph.op_count());
                breaches.push(slower);
            }
        }
        println!("seed {seed}: {} pairs", pairs - before);
        of_graphs += u32::from(pairs > before);
    }
    breaches.sort_by(|one, other| other.total_cmp(one));
    println!(
        "{of_graphs} graphs, {pairs} pairs, {} breaches: largest {:?} %",
        breaches.len(),
        breaches.first()
    );
    // Seldom slower, not never: searches are local ones.
    let least = if few() { 5 } else { 10 };
    assert!(pairs > least && breaches.len() * 50 <= pairs as usize);
}
