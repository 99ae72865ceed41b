//! Training steps with parameters, state and constants that are large enough to be worth a transfer.

use memfit_ir::{Bytes, Graph, Nanos, OpSpec, Phase, Reuse, Role, ValueId};

use crate::{Rng, Sketch};

/// Writes one step.
struct Writer {
    sketch: Sketch,
    rng: Rng,
    unit: u64,
}

/// A layer, and what is needed to update it.
struct Layer {
    input: ValueId,
    weight: ValueId,
    states: Vec<ValueId>,
}

/// Forward, backward and update of `layers` layers, with sizes that are multiples of `unit` bytes; the same for the same seed.
///
/// What lasts is used in all phases: weights forward, backward and in the update, some of them by two layers; running statistics,
/// small and large ones, are mutated forward; constants are read wherever chance wants; optimizer state is used by its update,
/// right after the gradient or at the end of the step, by one op for each layer, by two ops, or by one for two layers.
#[must_use]
pub fn trained(layers: usize, unit: u64, seed: u64) -> Graph {
    let mut w = Writer { sketch: Sketch::default(), rng: Rng::new(seed ^ 0x7261_696e), unit };
    let (batch, label) = (w.value(Role::Input), w.small(Role::Input));
    let table = w.value(Role::Constant);
    let late = w.rng.chance(60);
    let mut made: Vec<Layer> = Vec::new();
    let mut now = batch;
    for at in 0..layers {
        let tied = (at > 0 && w.rng.chance(15)).then(|| made[0].weight);
        let weight = tied.unwrap_or_else(|| w.value(Role::Parameter));
        let states: Vec<ValueId> = match tied {
            None => (0..w.rng.below(3)).map(|_| w.like(weight, Role::State)).collect(),
            Some(_) => Vec::new(),
        };
        let mut reads = vec![now, weight];
        if w.rng.chance(20) {
            reads.push(table);
        }
        let out = w.value(Role::Activation);
        w.op("linear", Phase::Forward, &reads, &[out], &[]);
        made.push(Layer { input: now, weight, states });
        now = if w.rng.chance(30) { w.norm(out) } else { out };
    }
    let (loss, mut gradient) = (w.small(Role::Output), w.like(now, Role::Gradient));
    w.op("loss", Phase::Forward, &[now, label], &[loss, gradient], &[]);
    w.sketch.results.push(loss);
    let mut updates: Vec<(Layer, ValueId)> = Vec::new();
    for layer in made.into_iter().rev() {
        let (before, of_weight) = (w.like(layer.input, Role::Gradient), w.like(layer.weight, Role::Gradient));
        w.op("backward", Phase::Backward, &[gradient, layer.input, layer.weight], &[before, of_weight], &[]);
        gradient = before;
        // What another layer's backward pass still reads is updated at the end.
        if late || w.is_shared(layer.weight) {
            updates.push((layer, of_weight));
        } else {
            w.update(&[(layer, of_weight)]);
        }
    }
    w.finish(updates)
}

impl Writer {
    fn value(&mut self, role: Role) -> ValueId {
        let size = Bytes(self.unit * (1 + self.rng.below(400)) as u64);
        self.sketch.value(role, size)
    }

    fn small(&mut self, role: Role) -> ValueId {
        self.sketch.value(role, Bytes(4))
    }

    fn like(&mut self, value: ValueId, role: Role) -> ValueId {
        let size = self.sketch.size(value);
        self.sketch.value(role, size)
    }

    /// Whether more than one forward op reads `weight`.
    fn is_shared(&self, weight: ValueId) -> bool {
        let reads = |op: &&OpSpec| op.phase == Phase::Forward && op.reads.contains(&weight);
        self.sketch.ops.iter().filter(reads).count() > 1
    }

    /// `mutated`: the input and the output of each pair that must lie at one place.
    fn op(
        &mut self,
        kind: &str,
        phase: Phase,
        reads: &[ValueId],
        writes: &[ValueId],
        mutated: &[(ValueId, ValueId)],
    ) {
        let time = Some(Nanos(1000 * (1 + self.rng.below(400)) as u64));
        let reuses = mutated.iter().map(|&(input, output)| Reuse { input, output, must: true }).collect();
        let name = format!("{kind}{}", self.sketch.ops.len());
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.sketch.ops.push(OpSpec {
            name,
            kind: kind.into(),
            phase,
            reads,
            writes,
            reuses,
            time,
            ..OpSpec::default()
        });
    }

    /// A norm that keeps running statistics, which are small or as large as all else.
    fn norm(&mut self, input: ValueId) -> ValueId {
        let statistics = if self.rng.chance(50) { self.small(Role::State) } else { self.value(Role::State) };
        let (after, out) = (self.like(statistics, Role::State), self.like(input, Role::Activation));
        self.op("norm", Phase::Forward, &[input, statistics], &[out, after], &[(statistics, after)]);
        out
    }

    /// One op that updates all of `layers`, or two for a layer alone.
    fn update(&mut self, layers: &[(Layer, ValueId)]) {
        let (mut reads, mut writes, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        let is_alone = layers.len() == 1 && self.rng.chance(25);
        for (layer, gradient) in layers {
            let mut weight = layer.weight;
            if is_alone {
                let decayed = self.like(weight, Role::Parameter);
                self.op("decay", Phase::Update, &[weight], &[decayed], &[(weight, decayed)]);
                weight = decayed;
            }
            reads.push(*gradient);
            for (before, role) in [(weight, Role::Parameter)]
                .into_iter()
                .chain(layer.states.iter().map(|&state| (state, Role::State)))
            {
                let after = self.like(before, role);
                reads.push(before);
                writes.push(after);
                pairs.push((before, after));
            }
        }
        self.op("update", Phase::Update, &reads, &writes, &pairs);
    }

    /// Updates what has not been, and makes the graph.
    fn finish(mut self, updates: Vec<(Layer, ValueId)>) -> Graph {
        let mut last: Option<(Layer, ValueId)> = None;
        let mut seen: Vec<ValueId> = Vec::new();
        for (layer, gradient) in updates.into_iter().rev() {
            // A weight of two layers is updated by the gradient of one.
            if seen.contains(&layer.weight) {
                continue;
            }
            seen.push(layer.weight);
            match last.take() {
                Some(before) if self.rng.chance(40) => self.update(&[before, (layer, gradient)]),
                Some(before) => {
                    self.update(&[before]);
                    last = Some((layer, gradient));
                }
                None => last = Some((layer, gradient)),
            }
        }
        if let Some(before) = last {
            self.update(&[before]);
        }
        self.sketch.build()
    }
}
