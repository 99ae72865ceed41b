//! Steps below what lasts, planned from a step in which things were parked for room, and followed: what is at home elsewhere, what
//! moves, what is computed again, and what leaves its plan in mid-step.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    dead_code,
    reason = "a test, and what others share with it"
)]

#[path = "../../memfit-engine/tests/common/numbers.rs"]
mod numbers;
#[path = "../../memfit-engine/tests/common/training.rs"]
mod training;

use std::time::Duration;

use memfit::engine::stepping::Options;
use memfit::engine::{Engine, Fault, Settings};
use memfit::ir::Tier;
use memfit::{Bytes, PORTFOLIO, Steps};
use numbers::Numbers;
use training::{Training, Ways, settings};

const STEPS: usize = 7;
/// The step that leaves its plan, where one does.
const OTHER: usize = 4;

/// What a training came to.
#[derive(Default)]
struct Trained {
    /// Numbers of all that lasts: after some steps, and at the end.
    numbers: Vec<Vec<u64>>,
    /// Steps that followed a plan to its end, and what was stored and repeated in them.
    guided: u64,
    stored: u64,
    again: u64,
}

/// Trains within `settings`; the step `OTHER` does something else before the layer `leaves`.
fn train(seed: u64, settings: &Settings, strategy: &str, leaves: Option<usize>) -> Result<Trained, Fault> {
    let mut engine = Engine::new(Numbers::default(), settings.clone())?;
    let mut steps = Steps::new(Options { settled: 1, ..Options::default() }, strategy, seed).unwrap();
    let mut training = Training::new(&mut engine, seed)?;
    let mut trained = Trained::default();
    for at in 0..STEPS {
        let before = engine.stats();
        steps.begin(&mut engine)?;
        let leaves = leaves.filter(|_| at == OTHER);
        training.step(&mut engine, Ways { alike: true, leaves, ..Ways::default() })?;
        let stepped = steps.end(&mut engine, || Duration::ZERO)?;
        assert!(!stepped.guided || leaves.is_none(), "seed {seed}");
        if stepped.guided {
            let stats = engine.stats();
            trained.guided += 1;
            trained.stored += stats.stored.0 - before.stored.0;
            trained.again += stats.recomputes - before.recomputes;
        }
        if stepped.wants_plan {
            steps.settle(settings)?;
        }
        // Who looks at state moves it, which the next step must get over.
        if at % 3 == 2 || at + 1 == STEPS {
            trained.numbers.push(training.numbers(&mut engine)?);
        }
    }
    assert!(engine.host.most <= settings.budget.0 && engine.stats().peak <= settings.budget, "seed {seed}");
    for (tier, _) in Tier::ALL {
        let capacity = settings.tiers[tier.index()].map_or(Bytes::ZERO, |store| store.capacity);
        assert!(engine.stats().tier_peaks[tier.index()] <= capacity, "seed {seed}");
    }
    Ok(trained)
}

#[test]
fn plans_below_what_lasts_are_followed_to_the_same_numbers() {
    let roomy = Settings::new(Bytes(1 << 30));
    let (mut ran, mut tight, mut guided, mut stored, mut again) = (0, 0, 0, 0, 0);
    for seed in 0..8 {
        let mut engine = Engine::new(Numbers::default(), roomy.clone()).unwrap();
        let lasting = Training::new(&mut engine, seed).unwrap().lasting();
        for (percent, host, disk) in [(90, 300, 0), (75, 0, 300)] {
            let part = |percent: u64| Bytes(lasting * percent / 100);
            let settings = Settings { log: true, ..settings(part(percent), part(host), part(disk)) };
            for leaves in [None, Some(1)] {
                let what = format!("seed {seed}, {percent} %, {leaves:?}");
                let trained = match train(seed, &settings, "offload:best", leaves) {
                    Ok(trained) => trained,
                    Err(Fault::NoRoom(_)) => {
                        tight += 1;
                        continue;
                    }
                    Err(fault) => panic!("{what}: {fault}"),
                };
                let plain = train(seed, &roomy, PORTFOLIO, leaves).unwrap();
                assert_eq!(trained.numbers, plain.numbers, "{what}");
                ran += 1;
                guided += trained.guided;
                stored += trained.stored;
                again += trained.again;
            }
        }
    }
    println!(
        "{ran} ran, {tight} did not fit; {guided} steps followed their plan; {stored} bytes were stored, {again} ops ran again"
    );
}
