//! Networks as chains of layers, of which shapes say all: what published figures of memory are about.
//!
//! A layer's forward op keeps its output; its backward op works on the input, the gradient of the output and that of the input,
//! and where it has to, on the output. Data is not counted, as in the papers whose figures these are.

use memfit_ir::{Bytes, Graph, Nanos, OpSpec, Phase, Reuse, Role, ValueId, ValueSpec};

use crate::Sketch;

/// A layer: what it is, how large and how long. Its backward op takes twice the time.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// `conv`, `pool`, …
    pub kind: &'static str,
    /// Bytes of its output.
    pub output: Bytes,
    /// Bytes of its weights, which have a gradient of the same size.
    pub weights: Bytes,
    /// Time of its forward op.
    pub time: Nanos,
    /// Whether it works in place: its output lies over its input, and the gradient that it makes over the one that it reads.
    pub in_place: bool,
}

impl Layer {
    /// What its backward op reads beside the gradient of its output, of its input and its output. The maximum of a pool is
    /// found again by its output; who works in place has no other.
    fn needs(&self) -> (bool, bool) {
        (!self.in_place, self.in_place || matches!(self.kind, "pool" | "softmax"))
    }
}

/// One step of the network of `layers`, one after the other.
#[must_use]
pub fn chain(layers: &[Layer]) -> Graph {
    let mut net = Net { sketch: Sketch::default() };
    let of_layer =
        |(at, layer): (usize, &Layer)| (layer.weights > Bytes::ZERO).then_some((at, layer.weights));
    let weights: Vec<Option<ValueId>> = layers
        .iter()
        .enumerate()
        .map(|layer| {
            let (at, size) = of_layer(layer)?;
            Some(net.value(size, Role::Parameter, format!("weights{at}")))
        })
        .collect();
    let mut maps: Vec<ValueId> = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        let output = net.value(layer.output, Role::Activation, format!("{}{at}", layer.kind));
        let input = maps.last().copied();
        let reads = input.into_iter().chain(weights[at]).collect();
        net.op((layer, Phase::Forward), reads, vec![output], input);
        maps.push(output);
    }
    let mut gradient: Option<ValueId> = None;
    for (at, layer) in layers.iter().enumerate().rev() {
        let input = at.checked_sub(1).map(|before| maps[before]);
        let (needs_input, needs_output) = layer.needs();
        let mut reads: Vec<ValueId> = gradient.into_iter().chain(weights[at]).collect();
        reads.extend(input.filter(|_| needs_input));
        reads.extend(Some(maps[at]).filter(|_| needs_output || gradient.is_none()));
        let mut writes = Vec::new();
        let old = gradient;
        if let Some(before) = at.checked_sub(1) {
            let size = layers[before].output;
            gradient = Some(net.value(size, Role::Gradient, format!("d{}{before}", layers[before].kind)));
            writes.extend(gradient);
        }
        let own = weights[at].map(|_| net.value(layer.weights, Role::Gradient, format!("dweights{at}")));
        let end = writes.is_empty() && own.is_none();
        let results: Vec<ValueId> =
            own.into_iter().chain(end.then(|| net.value(Bytes(4), Role::Output, "end".to_owned()))).collect();
        writes.extend(&results);
        net.sketch.results.extend(results);
        net.op((layer, Phase::Backward), reads, writes, old);
    }
    net.sketch.build()
}

struct Net {
    sketch: Sketch,
}

impl Net {
    fn value(&mut self, size: Bytes, role: Role, name: String) -> ValueId {
        self.sketch.values.push(ValueSpec { size, role, name, ..ValueSpec::default() });
        ValueId::at(self.sketch.values.len() - 1)
    }

    /// The op of `layer` in a phase; its first output lies over `input` if the layer works in place.
    fn op(
        &mut self,
        (layer, phase): (&Layer, Phase),
        reads: Vec<ValueId>,
        writes: Vec<ValueId>,
        input: Option<ValueId>,
    ) {
        let (name, time) = match phase {
            Phase::Backward => (format!("{}_backward", layer.kind), Nanos(2 * layer.time.0)),
            _ => (layer.kind.to_owned(), layer.time),
        };
        let over = input.filter(|_| layer.in_place).zip(writes.first().copied());
        let reuses = over.map(|(input, output)| Reuse { input, output, must: true }).into_iter().collect();
        let (kind, time) = (name.clone(), Some(time));
        self.sketch.ops.push(OpSpec { name, kind, phase, reads, writes, reuses, time, ..OpSpec::default() });
    }
}

/// Operations per ns of a Titan X (Maxwell) at three fifths of its peak, and bytes per ns at four fifths of its bandwidth.
const FLOPS: f64 = 7e3 * 0.6;
const BYTES: f64 = 336.0 * 0.8;

/// Bytes of a map of `channels` of `side` × `side` numbers for each of `batch` images.
fn map(batch: u64, channels: u64, side: u64) -> Bytes {
    Bytes(4 * batch * channels * side * side)
}

/// AlexNet with inputs of 227 × 227, as SuperNeurons measures it: every layer with an output of its own, weights left out.
#[must_use]
pub fn alexnet(batch: u64) -> Graph {
    let layers: [(&str, u64, u64); 23] = [
        ("conv", 96, 55),
        ("relu", 96, 55),
        ("lrn", 96, 55),
        ("pool", 96, 27),
        ("conv", 256, 27),
        ("relu", 256, 27),
        ("lrn", 256, 27),
        ("pool", 256, 13),
        ("conv", 384, 13),
        ("relu", 384, 13),
        ("conv", 384, 13),
        ("relu", 384, 13),
        ("conv", 256, 13),
        ("relu", 256, 13),
        ("pool", 256, 6),
        ("linear", 4096, 1),
        ("relu", 4096, 1),
        ("dropout", 4096, 1),
        ("linear", 4096, 1),
        ("relu", 4096, 1),
        ("dropout", 4096, 1),
        ("linear", 1000, 1),
        ("softmax", 1000, 1),
    ];
    let layers = layers.map(|(kind, channels, side)| {
        let output = map(batch, channels, side);
        let time = nanos(output.0 as f64 / BYTES);
        Layer { kind, output, weights: Bytes::ZERO, time, in_place: false }
    });
    chain(&layers)
}

fn nanos(time: f64) -> Nanos {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    Nanos(time.ceil() as u64)
}

/// VGG-E, which vDNN calls VGG-16: 16 convolutions, 3 fully connected layers, activations in place.
#[must_use]
pub fn vgg19(batch: u64) -> Graph {
    let mut layers = Vec::new();
    let (mut inputs, mut side) = (3u64, 224u64);
    for (channels, count) in [(64, 2), (128, 2), (256, 4), (512, 4), (512, 4)] {
        for _ in 0..count {
            let weights = 9 * inputs * channels;
            weighted(&mut layers, "conv", weights, side * side * batch, map(batch, channels, side));
            inputs = channels;
        }
        side /= 2;
        let output = map(batch, channels, side);
        let time = nanos(5.0 * output.0 as f64 / BYTES);
        layers.push(Layer { kind: "pool", output, weights: Bytes::ZERO, time, in_place: false });
    }
    let mut inputs = inputs * side * side;
    for outputs in [4096, 4096, 1000] {
        weighted(&mut layers, "linear", inputs * outputs, batch, map(batch, outputs, 1));
        inputs = outputs;
    }
    chain(&layers)
}

/// Adds a layer of so many weights, each of which works `times`, and its activation.
fn weighted(layers: &mut Vec<Layer>, kind: &'static str, weights: u64, times: u64, output: Bytes) {
    let time = nanos(2.0 * (weights * times) as f64 / FLOPS);
    layers.push(Layer { kind, output, weights: Bytes(4 * weights), time, in_place: false });
    let time = nanos(2.0 * output.0 as f64 / BYTES);
    layers.push(Layer { kind: "relu", output, weights: Bytes::ZERO, time, in_place: true });
}
