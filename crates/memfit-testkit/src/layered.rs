//! Layered random graphs: what greedy rules and unbounded effort are worst at.

use std::collections::BTreeSet;

use memfit_ir::{Bytes, Graph, Nanos, OpSpec, ValueId, ValueSpec};

use crate::{Rng, Sketch};

/// The shape of a layered random graph, after those that MOCCASIN (ICML 2023) is measured on.
#[derive(Clone, Copy, Debug)]
pub struct Layered {
    /// Ops, each of which makes one value. At least two: the first and the last op are alone in their layers.
    pub ops: usize,
    /// Pairs of an op and one that reads what it makes, as far as there are so many.
    pub edges: usize,
    /// Layers between the first op and the last one.
    pub layers: usize,
    /// Edges in a hundred that lead beyond the next layer.
    pub skips: usize,
    /// Bytes that all sizes are multiples of.
    pub unit: u64,
    /// Of so many values one is sparse; 0 for none.
    pub sparse: usize,
}

/// A graph of layers of random widths, whose ops read random ones of the layer before and some of earlier layers. Sizes
/// of 1 to 600 units, times up to 1 ms, the same for the same seed.
#[must_use]
pub fn layered(shape: Layered, seed: u64) -> Graph {
    let mut rng = Rng::new(seed);
    let layers = layers(shape, &mut rng);
    let mut edges = BTreeSet::new();
    for pair in layers.windows(2) {
        // Everybody reads something and is read by somebody.
        for &op in &pair[1] {
            edges.insert((op, pick(&mut rng, &pair[0])));
        }
        for &op in &pair[0] {
            if !pair[1].iter().any(|&reader| edges.contains(&(reader, op))) {
                edges.insert((pick(&mut rng, &pair[1]), op));
            }
        }
    }
    for _ in 0..100 * shape.edges {
        if edges.len() >= shape.edges {
            break;
        }
        let from = rng.below(layers.len() - 1);
        let beyond = layers.len() - from - 2;
        let skip = if rng.chance(shape.skips) { rng.below(beyond + 1) } else { 0 };
        edges.insert((pick(&mut rng, &layers[from + 1 + skip]), pick(&mut rng, &layers[from])));
    }
    let mut sketch = Sketch::default();
    for op in 0..shape.ops {
        let size = Bytes(shape.unit * (1 + rng.below(600)) as u64);
        let is_sparse = shape.sparse > 0 && op % shape.sparse == 0;
        let density = is_sparse.then(|| [0.1, 0.3, 0.5, 0.8][op % 4]);
        sketch.values.push(ValueSpec { size, density, ..ValueSpec::default() });
        let reads = edges.range((op, 0)..(op + 1, 0)).map(|&(_, from)| ValueId::at(from)).collect();
        let time = Some(Nanos(1000 * rng.below(1000) as u64));
        let writes = vec![ValueId::at(op)];
        sketch.ops.push(OpSpec { kind: "node".into(), reads, writes, time, ..OpSpec::default() });
    }
    sketch.results.extend(shape.ops.checked_sub(1).map(ValueId::at));
    sketch.build()
}

/// The ops of each layer.
fn layers(shape: Layered, rng: &mut Rng) -> Vec<Vec<usize>> {
    let inner = shape.ops.saturating_sub(2);
    let mut starts: BTreeSet<usize> = BTreeSet::from([1]);
    while starts.len() < shape.layers.min(inner) {
        starts.insert(1 + rng.below(inner));
    }
    let starts: Vec<usize> = std::iter::once(0).chain(starts).chain([inner + 1, shape.ops]).collect();
    starts.windows(2).map(|pair| (pair[0]..pair[1]).collect()).collect()
}

fn pick(rng: &mut Rng, layer: &[usize]) -> usize {
    layer[rng.below(layer.len())]
}
