//! What nothing can compute again is parked: training in less than what lasts, with the numbers of plain training; and what
//! is lost is told, never made up.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use common::numbers::Numbers;
use memfit_engine::{Call, Engine, Fault, Output, Recorded, Settings, Storing, TensorId};
use memfit_ir::{Bytes, Effect, Link, Nanos, Role, Store, Tier};
use memfit_testkit::Rng;

const KB: u64 = 1024;

fn settings(budget: Bytes, host: Bytes, disk: Bytes) -> Settings {
    let link = Link {
        out_bandwidth: 1e9,
        in_bandwidth: 1e9,
        duplex_cap: f64::INFINITY,
        latency: Nanos(1),
        asynchronous: true,
    };
    let tier = |capacity: Bytes| (capacity > Bytes::ZERO).then_some(Store { capacity, link });
    let tiers = [tier(host), tier(disk)];
    Settings {
        align: Bytes(1),
        tiers,
        parking: true,
        storing: Storing::WhereCheaper,
        ..Settings::new(budget)
    }
}

/// A training: parameters with a state each, and what the program holds besides.
struct Training {
    weights: Vec<TensorId>,
    states: Vec<TensorId>,
    /// Results that are held from step to step.
    kept: Vec<TensorId>,
    sizes: Vec<u64>,
    rng: Rng,
}

fn op(
    engine: &mut Engine<'_, Numbers>,
    kind: &str,
    reads: &[TensorId],
    outputs: &[Output],
    effect: Effect,
) -> Result<Vec<TensorId>, Fault> {
    let mut made = Vec::new();
    let call = Call { kind, reads, outputs, effect, time: Nanos(10), ..Call::default() };
    engine.apply(&call, &mut made)?;
    Ok(made)
}

impl Training {
    fn new(engine: &mut Engine<'_, Numbers>, seed: u64) -> Result<Training, Fault> {
        let mut rng = Rng::new(seed);
        let layers = 3 + rng.below(6);
        let sizes: Vec<u64> = (0..layers).map(|_| (16 + 4 * rng.below(8) as u64) * KB).collect();
        let mut all = Training { weights: Vec::new(), states: Vec::new(), kept: Vec::new(), sizes, rng };
        for &size in &all.sizes {
            all.weights.push(engine.put(Bytes(size), Role::Parameter)?);
            all.states.push(engine.put(Bytes(size), Role::State)?);
        }
        Ok(all)
    }

    /// Bytes of what lasts.
    fn lasting(&self) -> u64 {
        self.sizes.iter().sum::<u64>() * 2
    }

    fn step(&mut self, engine: &mut Engine<'_, Numbers>, strays: bool) -> Result<(), Fault> {
        let batch = engine.put(Bytes(KB), Role::Input)?;
        let mut chain = vec![batch];
        for (&weight, &size) in self.weights.iter().zip(&self.sizes) {
            let outputs = [Output::Fresh(Bytes(size / 2))];
            let effect = if self.rng.chance(20) { Effect::Seeded } else { Effect::Pure };
            chain.push(op(engine, "layer", &[chain[chain.len() - 1], weight], &outputs, effect)?[0]);
        }
        if strays && self.rng.chance(30) {
            // Something is read in the middle.
            let stray = self.rng.below(self.states.len());
            engine.get(self.states[stray])?;
        }
        let mut gradient =
            op(engine, "loss", &[chain[chain.len() - 1]], &[Output::Fresh(Bytes(KB))], Effect::Pure)?[0];
        for at in (0..self.weights.len()).rev() {
            let size = Bytes(self.sizes[at]);
            let of_weight =
                op(engine, "dw", &[gradient, chain[at]], &[Output::Fresh(size)], Effect::Pure)?[0];
            let before =
                op(engine, "dx", &[gradient, self.weights[at]], &[Output::Fresh(Bytes(KB))], Effect::Pure)?
                    [0];
            engine.del(gradient)?;
            gradient = before;
            let outputs = [Output::InPlace(0), Output::InPlace(1)];
            let reads = [self.weights[at], self.states[at], of_weight];
            let made = op(engine, "update", &reads, &outputs, Effect::Pure)?;
            for old in [self.weights[at], self.states[at], of_weight] {
                engine.del(old)?;
            }
            (self.weights[at], self.states[at]) = (made[0], made[1]);
        }
        // The loss of one step in two is kept.
        if self.rng.chance(50) {
            self.kept.push(gradient);
        } else {
            engine.del(gradient)?;
        }
        for tensor in chain {
            engine.del(tensor)?;
        }
        Ok(())
    }

    fn numbers(&self, engine: &mut Engine<'_, Numbers>) -> Result<Vec<u64>, Fault> {
        let all = self.weights.iter().chain(&self.states).chain(&self.kept);
        all.map(|&tensor| {
            let block = engine.get(tensor)?;
            Ok(engine.host.held[&block.offset.0])
        })
        .collect()
    }
}

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
        training.step(&mut engine, seed.is_multiple_of(3))?;
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
