//! Graphs, valid by construction.

use memfit_ir::{
    Algorithm, Bytes, Dtype, Effect, Graph, GraphBuilder, Nanos, Need, OpSpec, Phase, Price, Reuse, Role,
    ValueId, ValueSpec,
};

use crate::Rng;

/// A graph as a list of what to build: it can still be changed.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    /// Values, by id.
    pub values: Vec<ValueSpec>,
    /// Ops, in an order in which they can run.
    pub ops: Vec<OpSpec>,
    /// Values demanded at the end.
    pub results: Vec<ValueId>,
}

impl Sketch {
    /// The graph.
    ///
    /// # Panics
    ///
    /// If the sketch contradicts itself: a bug of the generator.
    #[must_use]
    pub fn build(&self) -> Graph {
        let mut builder = GraphBuilder::new("generated");
        for value in &self.values {
            builder.value(value.clone()).expect("a generated value is valid");
        }
        for op in &self.ops {
            builder.op(op.clone()).expect("a generated op is valid");
        }
        for &result in &self.results {
            builder.result(result).expect("a generated result is valid");
        }
        builder.finish().expect("a generated graph is valid")
    }

    pub(crate) fn value(&mut self, role: Role, size: Bytes) -> ValueId {
        let id = ValueId::at(self.values.len());
        self.values.push(ValueSpec { name: id.to_string(), size, role, ..ValueSpec::default() });
        id
    }

    pub(crate) fn size(&self, value: ValueId) -> Bytes {
        self.values[value.index()].size
    }
}

/// A random graph of some kind: a chain, a random DAG or a training step.
#[must_use]
pub fn sketch(seed: u64) -> Sketch {
    let mut rng = Rng::new(seed);
    let mut sketch = match rng.below(5) {
        0 => chain(&mut rng),
        1 | 2 => training(&mut rng),
        _ => dag(&mut rng),
    };
    // Some of what ops make is sparse.
    let made = |value: &&mut ValueSpec| matches!(value.role, Role::Activation | Role::Gradient);
    for (at, value) in (seed..).zip(sketch.values.iter_mut().filter(made)) {
        value.density = [None, Some(0.5), None, Some(0.2), Some(1.0), None, Some(0.0)][(at % 7) as usize];
    }
    add_needs(&mut sketch, seed);
    sketch
}

/// Ops need less than the value of some operands; of some values no op needs more than the sign.
fn add_needs(sketch: &mut Sketch, seed: u64) {
    for (at, op) in (seed..).zip(&mut sketch.ops) {
        let takes = |value: ValueId| op.reuses.iter().any(|pair| pair.must && pair.input == value);
        let need = |(operand, value): (u64, &ValueId)| match (at + 3 * operand) % 11 {
            _ if takes(*value) => Need::Value,
            0 => Need::Shape,
            1 | 2 => Need::Sign,
            _ if (seed + u64::from(value.0)).is_multiple_of(5) => Need::Sign,
            _ => Need::Value,
        };
        op.needs = (0..).zip(&op.reads).map(need).collect();
    }
}

/// A random graph, see [`sketch`].
#[must_use]
pub fn graph(seed: u64) -> Graph {
    sketch(seed).build()
}

fn size(rng: &mut Rng) -> Bytes {
    match rng.below(20) {
        0 => Bytes::ZERO,
        1..6 => Bytes(16),
        6..9 => Bytes(32),
        _ => Bytes(1 + rng.below(40) as u64),
    }
}

/// What an op has besides operands: scratch memory, algorithms, cost.
fn decorate(rng: &mut Rng, op: &mut OpSpec) {
    op.flops = rng.below(1000) as f64;
    op.moved = Bytes(rng.below(1000) as u64);
    if rng.chance(5) {
        op.time = Some(Nanos(rng.bits() >> 40));
    }
    if rng.chance(25) {
        op.workspace = size(rng);
    }
    if rng.chance(15) {
        for _ in 0..=rng.below(2) {
            let price = Price::Time(Nanos(rng.below(99) as u64));
            op.algorithms.push(Algorithm { workspace: size(rng), price });
        }
    }
}

fn effect(rng: &mut Rng) -> Effect {
    match rng.below(20) {
        0 | 1 => Effect::Seeded,
        2 => Effect::Once,
        3 => Effect::Collective,
        _ => Effect::Pure,
    }
}

/// Ops one after another, with skip connections, many in place.
fn chain(rng: &mut Rng) -> Sketch {
    let mut sketch = Sketch::default();
    let same = size(rng);
    let mut last = sketch.value(Role::Input, same);
    let mut skip = None;
    for at in 0..2 + rng.below(8) {
        let out_size = if rng.chance(70) { same } else { size(rng) };
        let out = sketch.value(Role::Activation, out_size);
        let mut op = OpSpec { name: format!("link{at}"), kind: "link".into(), ..OpSpec::default() };
        op.reads = vec![last];
        if let Some(skip) = skip.filter(|_| rng.chance(30)) {
            op.reads.push(skip);
        }
        for input in op.reads.clone() {
            if sketch.size(input) == out_size && rng.chance(60) {
                op.reuses.push(Reuse { input, output: out, must: false });
            }
        }
        op.writes = vec![out];
        decorate(rng, &mut op);
        sketch.ops.push(op);
        if rng.chance(40) {
            skip = Some(last);
        }
        last = out;
    }
    sketch.values[last.index()].role = Role::Output;
    sketch.results = vec![last];
    sketch
}

/// Anything goes: several outputs, operands twice, empty values, effects, in-place pairs of both kinds.
fn dag(rng: &mut Rng) -> Sketch {
    let mut sketch = Sketch::default();
    let roles = [Role::Input, Role::Input, Role::Parameter, Role::State, Role::Constant];
    let mut open: Vec<ValueId> = Vec::new(); // May be read still.
    for _ in 0..1 + rng.below(4) {
        let role = rng.pick(&roles).unwrap_or_default();
        let size = size(rng);
        open.push(sketch.value(role, size));
    }
    let sources = open.len();
    for at in 0..1 + rng.below(11) {
        let mut op = OpSpec { name: format!("node{at}"), kind: "node".into(), ..OpSpec::default() };
        for _ in 0..rng.below(4) {
            let recent = open.len().saturating_sub(3);
            let from = if rng.chance(60) { recent } else { 0 };
            if let Some(&value) = open.get(from + rng.below(open.len() - from)) {
                op.reads.push(value);
            }
        }
        op.effect = effect(rng);
        let outputs = match rng.below(10) {
            0 if op.effect != Effect::Pure => 0,
            0..7 => 1,
            7 | 8 => 2,
            _ => 3,
        };
        for _ in 0..outputs {
            let partner = rng.pick(&op.reads).filter(|_| rng.chance(50));
            let out_size = partner.map_or_else(|| size(rng), |value| sketch.size(value));
            let out = sketch.value(Role::Activation, out_size);
            op.writes.push(out);
            let Some(input) = partner else { continue };
            let free = |pair: &Reuse| pair.input != input;
            if rng.chance(30) && op.reuses.iter().filter(|pair| pair.must).all(free) {
                op.reuses.push(Reuse { input, output: out, must: true });
                let role = sketch.values[input.index()].role;
                if role.is_persistent() {
                    sketch.values[out.index()].role = role;
                }
                open.retain(|&value| value != input);
            } else {
                op.reuses.push(Reuse { input, output: out, must: false });
            }
        }
        open.extend(&op.writes);
        decorate(rng, &mut op);
        sketch.ops.push(op);
    }
    for &value in &open {
        let made = value.index() >= sources;
        if rng.chance(if made { 35 } else { 10 }) {
            sketch.results.push(value);
        }
    }
    sketch
}

/// Forward, backward and update of a few layers, as a framework would capture them.
fn training(rng: &mut Rng) -> Sketch {
    let mut sketch = Sketch::default();
    let width = size(rng);
    let layers = 1 + rng.below(3);
    let momentum = rng.chance(40);
    let reduce = rng.chance(30);
    let batch = sketch.value(Role::Input, width);
    let label = sketch.value(Role::Input, Bytes(4));
    let weights: Vec<ValueId> = (0..layers).map(|_| sketch.value(Role::Parameter, Bytes(24))).collect();
    let states: Vec<ValueId> =
        weights.iter().filter(|_| momentum).map(|_| sketch.value(Role::State, Bytes(24))).collect();
    let push = |sketch: &mut Sketch, rng: &mut Rng, kind: &str, phase, op: OpSpec| {
        let name = format!("{kind}{}", sketch.ops.len());
        let mut op = OpSpec { name, kind: kind.into(), phase, ..op };
        if op.effect == Effect::Pure {
            decorate(rng, &mut op);
        }
        sketch.ops.push(op);
    };
    let spec = |reads: &[ValueId], writes: &[ValueId]| OpSpec {
        reads: reads.to_vec(),
        writes: writes.to_vec(),
        ..OpSpec::default()
    };
    let pair = |input, output, must| vec![Reuse { input, output, must }];
    let (mut acts, mut masks) = (vec![batch], Vec::new());
    for &weight in &weights {
        let input = acts[acts.len() - 1];
        let linear = sketch.value(Role::Activation, width);
        push(&mut sketch, rng, "linear", Phase::Forward, spec(&[input, weight], &[linear]));
        let active = sketch.value(Role::Activation, width);
        let act = OpSpec { reuses: pair(linear, active, false), ..spec(&[linear], &[active]) };
        push(&mut sketch, rng, "relu", Phase::Forward, act);
        if rng.chance(30) {
            let dropped = sketch.value(Role::Activation, width);
            let mask = sketch.value(Role::Activation, Bytes(width.0.div_ceil(8)));
            let op = OpSpec {
                effect: Effect::Seeded,
                reuses: pair(active, dropped, false),
                ..spec(&[active], &[dropped, mask])
            };
            push(&mut sketch, rng, "dropout", Phase::Forward, op);
            masks.push(Some(mask));
            acts.push(dropped);
        } else {
            masks.push(None);
            acts.push(active);
        }
    }
    let loss = sketch.value(Role::Output, Bytes(4));
    let mut gradient = sketch.value(Role::Gradient, width);
    push(&mut sketch, rng, "loss", Phase::Forward, spec(&[acts[layers], label], &[loss, gradient]));
    sketch.results.push(loss);
    for layer in (0..layers).rev() {
        let mut reads = vec![gradient, acts[layer], acts[layer + 1], weights[layer]];
        reads.extend(masks[layer]);
        let before = sketch.value(Role::Gradient, width);
        let mut weight_gradient = sketch.value(Role::Gradient, Bytes(24));
        let op = OpSpec { reuses: pair(gradient, before, false), ..spec(&reads, &[before, weight_gradient]) };
        push(&mut sketch, rng, "backward", Phase::Backward, op);
        gradient = before;
        if reduce {
            let reduced = sketch.value(Role::Gradient, Bytes(24));
            let op = OpSpec {
                effect: Effect::Collective,
                reuses: pair(weight_gradient, reduced, true),
                ..spec(&[weight_gradient], &[reduced])
            };
            push(&mut sketch, rng, "all-reduce", Phase::Backward, op);
            weight_gradient = reduced;
        }
        let weight = weights[layer];
        let updated = sketch.value(Role::Parameter, Bytes(24));
        let mut op =
            OpSpec { reuses: pair(weight, updated, true), ..spec(&[weight, weight_gradient], &[updated]) };
        if let Some(&state) = states.get(layer) {
            let updated_state = sketch.value(Role::State, Bytes(24));
            op.reads.push(state);
            op.writes.push(updated_state);
            op.reuses.extend(pair(state, updated_state, true));
        }
        push(&mut sketch, rng, "update", Phase::Update, op);
    }
    for value in &mut sketch.values {
        value.dtype = Dtype::Other;
    }
    sketch
}
