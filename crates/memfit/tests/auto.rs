//! `auto` on random graphs: as fast as every named scheduler that is quick, in every budget, with a link and without.
//!
//! A part of the graphs; `MEMFIT_CASES=1000` takes as many.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit::strategies::families::Named;
use memfit::{Budget, Bytes, Device, Failure, Goal, Graph, Means, Nanos, Options, Planned, Tools, plan};
use memfit_testkit::{cases, device, link, mixed as graph, one_of};

const HOST: Bytes = Bytes(1 << 30);

/// Slow, so that not all that could wait elsewhere does, fast, or none.
fn machines(seed: u64) -> [Device; 2] {
    [device(), Device { link: Some(link(seed)), host_memory: HOST, ..device() }]
}

fn planned(graph: &Graph, device: &Device, budget: u64, strategy: Option<&str>) -> Option<Planned> {
    #[allow(clippy::cast_precision_loss, reason = "a percentage")]
    let budget = Budget::AboveFloor(budget as f64 / 100.0);
    let offload = device.link.is_some() && strategy.is_none_or(|name| !name.starts_with("recompute:"));
    let options = Options {
        strategies: strategy.iter().map(|&name| name.to_owned()).collect(),
        means: Means { offload, ..Means::ALL },
        host_budget: offload.then_some(HOST),
        ..Options::default()
    };
    match plan(graph, &Goal { options, ..Goal::new(device.clone(), budget) }, &Tools::none()) {
        Ok(planned) => {
            assert!(planned.summary.peak <= planned.summary.budget);
            Some(planned)
        }
        Err(Failure::Infeasible(_)) => None,
        Err(failure) => panic!("{strategy:?}: {failure:?}"),
    }
}

#[test]
fn auto_is_as_fast_as_every_quick_scheduler_and_more_memory_is_not_slower() {
    let count = cases(2);
    // A part of the strategies, and every other budget, if not asked for more; `MEMFIT_ALL=1` takes all budgets.
    let few = std::env::var("MEMFIT_CASES").is_err();
    let part = if few { one_of(2) } else { 1 };
    let (mut cells, mut named, mut faster) = (0u64, 0u64, 0u64);
    for seed in (0..1000).step_by(usize::try_from((1000 / count).max(1)).unwrap()) {
        // Of both kinds.
        let seed = seed + seed / 250 % 2;
        let graph = graph(seed);
        for device in machines(seed) {
            let mut before: Option<Nanos> = None;
            for budget in [5, 25, 50, 80].into_iter().skip(part - 1).step_by(part) {
                let what = format!("seed {seed}, floor + {budget} %, link {}", device.link.is_some());
                let auto = planned(&graph, &device, budget, None);
                let time = auto.as_ref().map(|planned| planned.summary.time);
                assert!(
                    before.is_none_or(|before| time.is_some_and(|time| time <= before)),
                    "{what}: {time:?}, {before:?}"
                );
                before = time;
                if budget == 25 {
                    let again = planned(&graph, &device, budget, None);
                    let file =
                        |planned: Option<Planned>| planned.map(|planned| planned.verified.plan().clone());
                    assert_eq!(file(auto), file(again), "{what}");
                }
                let waits = |one: &Named| device.link.is_some() || one.family.name != "offload";
                let turn = |at: usize| !few || (at as u64 + cells).is_multiple_of(4);
                for (_, one) in Named::quick().filter(waits).enumerate().filter(|(at, _)| turn(*at)) {
                    let name = one.name();
                    let Some(other) = planned(&graph, &device, budget, Some(&name)) else { continue };
                    let other = other.summary.time;
                    assert!(time.is_some_and(|time| time <= other), "{what}: {time:?}, `{name}` {other}");
                    faster += u64::from(time.is_some_and(|time| time < other));
                    named += 1;
                }
                cells += 1;
            }
        }
    }
    println!("{cells} cells, {named} plans by name, auto faster than {faster} of them");
    let part = part as u64;
    assert!(named > 10 * count / part && faster > 2 * count / part);
}
