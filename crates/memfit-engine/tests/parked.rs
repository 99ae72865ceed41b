//! What nothing can compute again is parked: training in less than what lasts, with the numbers of plain training; and what
//! is lost is told, never made up.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use common::numbers::Numbers;
use common::training::{Training, Ways, settings};
use memfit_engine::{Engine, Fault, Recorded, Settings};
use memfit_ir::{Bytes, Tier};

/// Numbers after each of some steps; what was recorded.
fn train(
    seed: u64,
    settings: &Settings,
    loses: Option<u64>,
    steps: bool,
) -> Result<(Vec<Vec<u64>>, Vec<Recorded>), Fault> {
    let host = Numbers { loses, ..Numbers::default() };
    let mut engine = Engine::new(host, settings.clone())?;
    let mut training = Training::new(&mut engine, seed)?;
    let (mut numbers, mut recorded) = (Vec::new(), Vec::new());
    for at in 0..4 {
        if steps {
            engine.begin_step()?;
        }
        training.step(&mut engine, Ways { strays: seed.is_multiple_of(3), ..Ways::default() })?;
        if steps {
            recorded.push(engine.end_step()?);
        }
        if at % 2 == 1 || seed.is_multiple_of(2) {
            numbers.push(training.numbers(&mut engine)?);
        }
    }
    let stats = engine.stats();
    assert!(engine.host.most <= settings.budget.0 && stats.peak <= settings.budget, "seed {seed}");
    for (tier, _) in Tier::ALL {
        let capacity = settings.tiers[tier.index()].map_or(Bytes::ZERO, |store| store.capacity);
        assert!(stats.tier_peaks[tier.index()] <= capacity, "seed {seed}");
    }
    // At the end of the budget all comes back.
    engine.lift_budget();
    for tensor in engine.held() {
        engine.restore(tensor)?;
    }
    assert!(!engine.has_parked(), "seed {seed}");
    Ok((numbers, recorded))
}

fn lasting(seed: u64) -> u64 {
    let mut engine = Engine::new(Numbers::default(), Settings::new(Bytes(1 << 30))).unwrap();
    Training::new(&mut engine, seed).unwrap().lasting()
}

#[test]
fn training_below_what_lasts_has_the_numbers_of_plain_training() {
    let (mut fitted, mut tight, mut gone, mut whole) = (0, 0, 0, 0);
    for seed in 0..1000 {
        let plain = train(seed, &Settings::new(Bytes(1 << 30)), None, false).unwrap().0;
        let lasting = lasting(seed);
        for (percent, host, disk) in [(95, 150, 0), (80, 0, 200), (70, 50, 200), (60, 300, 0)] {
            let part = |percent: u64| Bytes(lasting * percent / 100);
            for (steps, loses) in [(false, None), (true, None), (true, Some(1 + 30 * (1 + seed % 4)))] {
                let settings = settings(part(percent), part(host), part(disk));
                let what = format!("seed {seed}, {percent} %, steps {steps}, loses {loses:?}");
                match train(seed, &settings, loses, steps) {
                    Ok((numbers, recorded)) => {
                        assert_eq!(numbers, plain, "{what}");
                        fitted += 1;
                        whole += recorded.iter().filter(|recorded| !recorded.moved_home).count();
                    }
                    Err(Fault::NoRoom(_)) => tight += 1,
                    Err(Fault::Gone { why, .. }) if loses.is_some() => {
                        assert!(why.0.starts_with("the disk"), "{what}: {why}");
                        gone += 1;
                    }
                    Err(fault) => panic!("{what}: {fault}"),
                }
            }
        }
    }
    println!("{fitted} fitted, {tight} did not, {gone} lost a copy; {whole} logs are whole");
    assert!(fitted > 4000 && gone > 500, "{fitted} {gone} {tight}");
}
