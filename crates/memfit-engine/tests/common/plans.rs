//! Plans of generated steps in which values are stored, encoded and loaded.
#![allow(clippy::unwrap_used, reason = "a test")]

use memfit_engine::replay::{Trace, recorded};
use memfit_engine::{Settings, StepPlan};
use memfit_ir::{
    Action, Bytes, Codec, Effect, Form, Graph, InPlace, Link, Nanos, OpId, Schedule, Store, Tier, ValueId,
};
use memfit_testkit::{Rng, graph};

pub(crate) const ALIGN: Bytes = Bytes(4);
const FORMS: [Form; 4] = [
    Form::Tier(Tier::Host),
    Form::Tier(Tier::Disk),
    Form::Encoded(Codec::Zvc),
    Form::EncodedOn(Tier::Host, Codec::Zvc),
];

pub(crate) fn settings(budget: Bytes, tier: Bytes) -> Settings {
    let link = Link {
        out_bandwidth: 1e9,
        in_bandwidth: 2e9,
        duplex_cap: f64::INFINITY,
        latency: Nanos(2),
        asynchronous: true,
    };
    let tiers = [Some(Store { capacity: tier, link }); 2];
    Settings { align: ALIGN, tiers, log: true, ..Settings::new(budget) }
}

/// What may be stored, with the places of the runs that use it, in the order of the ops.
fn stays(graph: &Graph) -> Vec<(ValueId, Vec<usize>)> {
    let mut stays = Vec::new();
    for value in graph.value_ids() {
        let this = graph.value(value);
        let Some(maker) = this.producer else { continue };
        let op = graph.op(maker);
        let simple = op.effect == Effect::Pure && op.reuses.is_empty() && this.size > Bytes::ZERO;
        let mut uses = vec![maker.index()];
        uses.extend(this.readers.iter().map(|reader| reader.index()));
        uses.dedup();
        if simple && uses.windows(2).any(|pair| pair[1] - pair[0] > 1) {
            stays.push((value, uses));
        }
    }
    stays
}

/// The step in its own order, in which some values are stored after a use and loaded before the next.
fn schedule(graph: &Graph, rng: &mut Rng) -> Option<Schedule> {
    // By the run that they stand before.
    let mut extra: Vec<Vec<Action>> = vec![Vec::new(); graph.op_count() + 1];
    let mut any = false;
    for (value, uses) in stays(graph) {
        for pair in uses.windows(2) {
            let (from, to) = (pair[0] + 1, pair[1]);
            if to <= from || rng.chance(50) {
                continue;
            }
            let form = FORMS[rng.below(FORMS.len())];
            let gone = from + rng.below(to - from);
            let back = gone + 1 + rng.below(to - gone);
            extra[from].push(Action::Store(value, form));
            extra[gone].push(Action::Release(value, None));
            extra[back.min(to)].push(Action::Load(value, form));
            any = true;
        }
    }
    let mut actions = Vec::new();
    for (at, extra) in extra.iter_mut().enumerate() {
        // Stores stand before releases, and those before loads.
        let rank = |action: &Action| match action {
            Action::Store(..) => 0,
            Action::Release(..) => 1,
            _ => 2,
        };
        extra.sort_by_key(rank);
        actions.append(extra);
        if at < graph.op_count() {
            actions.push(Action::Run { op: OpId::at(at), algorithm: 0 });
        }
    }
    any.then_some(Schedule { actions, ..Schedule::default() })
}

/// The step of a generated graph, limits with room for all of it, and a plan of it with copies; `None` where the graph has
/// nothing to copy.
pub(crate) fn planned(
    seed: u64,
    random: u64,
    time: impl Fn(OpId) -> Nanos,
) -> Option<(Trace, Settings, StepPlan)> {
    let trace = Trace::of_graph(&graph(seed), time);
    let all = recorded(&trace).unwrap();
    let schedule = schedule(&all.graph, &mut Rng::new(random))?;
    let program =
        schedule.program(&all.graph, InPlace::Must).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    let roomy = settings(Bytes(trace.base().peak.0 * 6 + 8192).round_up(ALIGN), Bytes(1 << 20));
    let plan = StepPlan::judge_unplaced(all.graph, &roomy, program)
        .unwrap_or_else(|refusal| panic!("seed {seed}: {refusal}\n{}", refusal.replay));
    Some((trace, roomy, plan))
}
