//! A graph, limits and a good plan, from one number.

use std::sync::Arc;

use memfit_ir::{Bank, Bytes, Codec, Graph, Limits, Pin, Place, Plan, Tier, text};

use crate::rewrite::{Habits, rewrite};
use crate::sketch::sketch;
use crate::{Draft, Rng, lanes, place};

/// Something to judge.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is to be computed.
    pub graph: Arc<Graph>,
    /// What it must keep to.
    pub limits: Limits,
    /// The claim.
    pub plan: Plan,
}

impl Case {
    /// The case as a `.mfp` text that reproduces it.
    #[must_use]
    pub fn replay(&self) -> String {
        text::print(Some(&self.limits), Some(&self.graph), Some(&self.plan))
    }
}

/// A good plan with steps of every kind, the same for the same seed.
#[must_use]
pub fn case(seed: u64) -> Case {
    let mut attempt = 0;
    loop {
        let mut rng = Rng::new(seed ^ (attempt << 48));
        if let Some(case) = try_case(&mut rng) {
            return case;
        }
        attempt += 1;
    }
}

fn try_case(rng: &mut Rng) -> Option<Case> {
    let mut sketch = sketch(rng.bits());
    let mut graph = sketch.build();
    let host = rng.chance(50);
    let coded = rng.chance(35);
    let codecs: Vec<Codec> =
        Codec::ALL.iter().map(|(codec, _)| *codec).filter(|_| coded && rng.chance(60)).collect();
    let habits = Habits {
        disturb: if rng.chance(25) { 0 } else { 10 + rng.below(60) },
        host,
        codecs,
        replays_random: rng.chance(30),
        in_place: [0, 50, 100][rng.below(3)],
    };
    let mut rough = rewrite(&graph, &habits, rng)?;
    let bank = |name: &str, rng: &mut Rng| Bank {
        name: name.to_owned(),
        capacity: Bytes::ZERO,
        align: Bytes([1, 4, 16, 16, 64][rng.below(5)]),
    };
    let mut banks = vec![bank("arena", rng)];
    if rng.chance(15) {
        banks.push(bank("sram", rng));
    }
    place::place(&mut rough, &mut banks, rng);
    let mut draft = rough.draft;
    let lanes = if rng.chance(70) { 1 } else { 2 + u16::try_from(rng.below(2)).ok()? };
    lanes::schedule(&mut draft, &graph, lanes, rng);
    if rng.chance(10) {
        for value in graph.value_ids() {
            if let Some(place) = only_place(&draft, value).filter(|_| rng.chance(40)) {
                let offset = rng.chance(70).then_some(place.offset);
                sketch.values[value.index()].pin = Some(Pin { bank: place.bank, offset });
            }
        }
        graph = sketch.build();
    }
    for bank in &mut banks {
        if rng.chance(30) {
            bank.capacity += Bytes(rng.below(100) as u64);
        }
    }
    let limits = Limits {
        banks,
        host: lanes::tier_peak(&draft, Tier::Host) + slack(rng),
        disk: lanes::tier_peak(&draft, Tier::Disk) + slack(rng),
        lossy: habits.codecs.into_iter().filter(|codec| codec.is_lossy()).collect(),
        replays_random: habits.replays_random,
        lanes,
    };
    let plan = draft.plan(graph.digest());
    Some(Case { graph: Arc::new(graph), limits, plan })
}

fn slack(rng: &mut Rng) -> Bytes {
    Bytes(if rng.chance(30) { rng.below(50) as u64 } else { 0 })
}

/// The place of every buffer of `value`, if they are all at one.
fn only_place(draft: &Draft, value: memfit_ir::ValueId) -> Option<Place> {
    let of_value =
        |(buffer, _): &(&memfit_ir::Buffer, &Place)| buffer.content == memfit_ir::Content::Value(value);
    let mut places = draft.buffers.iter().zip(&draft.places).filter(of_value).map(|(_, place)| *place);
    let first = places.next()?;
    places.all(|place| place == first).then_some(first)
}
