//! A training whose parameters and state may be in other memory.

use memfit_engine::{Call, Engine, Fault, Output, Settings, Storing, TensorId};
use memfit_ir::{Bytes, Effect, Link, Nanos, Role, Store};
use memfit_testkit::Rng;

use super::numbers::{Numbers, apply, put};

const KB: u64 = 1024;

/// What parks in that much memory of the host's and of a disk.
pub(crate) fn settings(budget: Bytes, host: Bytes, disk: Bytes) -> Settings {
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
pub(crate) struct Training {
    weights: Vec<TensorId>,
    states: Vec<TensorId>,
    /// Results that are held from step to step.
    kept: Vec<TensorId>,
    sizes: Vec<u64>,
    /// Whether the layer draws random numbers, where all steps are alike.
    seeded: Vec<bool>,
    rng: Rng,
}

/// How a step differs from others.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ways {
    /// Some state may be read in the middle.
    pub(crate) strays: bool,
    /// It does the same as all other steps that are alike.
    pub(crate) alike: bool,
    /// After so many layers the program does something else besides.
    pub(crate) leaves: Option<usize>,
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
    apply(engine, &call, &mut made)?;
    Ok(made)
}

impl Training {
    pub(crate) fn new(engine: &mut Engine<'_, Numbers>, seed: u64) -> Result<Training, Fault> {
        let mut rng = Rng::new(seed);
        let layers = 3 + rng.below(6);
        let sizes: Vec<u64> = (0..layers).map(|_| (16 + 4 * rng.below(8) as u64) * KB).collect();
        let seeded = sizes.iter().map(|_| rng.chance(20)).collect();
        let (weights, states, kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut all = Training { weights, states, kept, sizes, seeded, rng };
        for &size in &all.sizes {
            all.weights.push(put(engine, Bytes(size), Role::Parameter)?);
            all.states.push(put(engine, Bytes(size), Role::State)?);
        }
        Ok(all)
    }

    /// Bytes of what lasts.
    pub(crate) fn lasting(&self) -> u64 {
        self.sizes.iter().sum::<u64>() * 2
    }

    pub(crate) fn step(&mut self, engine: &mut Engine<'_, Numbers>, ways: Ways) -> Result<(), Fault> {
        let batch = put(engine, Bytes(KB), Role::Input)?;
        let mut chain = vec![batch];
        for (at, (&weight, &size)) in self.weights.iter().zip(&self.sizes).enumerate() {
            if ways.leaves == Some(at) {
                let other = op(engine, "other", &[weight], &[Output::Fresh(Bytes(KB))], Effect::Pure)?[0];
                engine.del(other)?;
            }
            let outputs = [Output::Fresh(Bytes(size / 2))];
            let draws = if ways.alike { self.seeded[at] } else { self.rng.chance(20) };
            let effect = if draws { Effect::Seeded } else { Effect::Pure };
            chain.push(op(engine, "layer", &[chain[chain.len() - 1], weight], &outputs, effect)?[0]);
        }
        if ways.strays && self.rng.chance(30) {
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
        if !ways.alike && self.rng.chance(50) {
            self.kept.push(gradient);
        } else {
            engine.del(gradient)?;
        }
        for tensor in chain {
            engine.del(tensor)?;
        }
        Ok(())
    }

    /// A step has failed: all that it holds goes, but for what lasts.
    pub(crate) fn abandon(&self, engine: &mut Engine<'_, Numbers>) {
        for tensor in engine.held() {
            if ![&self.weights, &self.states, &self.kept].iter().any(|lasting| lasting.contains(&tensor)) {
                engine.del(tensor).unwrap();
            }
        }
    }

    pub(crate) fn numbers(&self, engine: &mut Engine<'_, Numbers>) -> Result<Vec<u64>, Fault> {
        let all = self.weights.iter().chain(&self.states).chain(&self.kept);
        all.map(|&tensor| {
            let block = engine.get(tensor)?;
            Ok(engine.host.held[&block.offset.0])
        })
        .collect()
    }
}
