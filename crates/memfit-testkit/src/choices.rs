//! Graphs whose ops have a choice of algorithms.

use memfit_ir::{Algorithm, Bytes, Graph, GraphBuilder, Nanos, OpSpec, Price, ValueSpec};

use crate::Rng;

/// `graph`, of which two ops of three have up to three other algorithms: of 0.3 to 1.2 times the time, with up to 400 `units` of scratch
/// memory or none. The same for the same seed.
///
/// # Panics
///
/// If an op of `graph` has no measured time.
#[must_use]
pub fn with_algorithms(graph: &Graph, unit: u64, seed: u64) -> Graph {
    let mut rng = Rng::new(seed);
    let mut b = GraphBuilder::new("choices");
    let built = "what a graph has makes a graph";
    for id in graph.value_ids() {
        let value = graph.value(id);
        let (size, role, density) = (value.size, value.role, value.density);
        b.value(ValueSpec { size, role, density, ..ValueSpec::default() }).expect(built);
    }
    for id in graph.op_ids() {
        let op = graph.op(id);
        let own = op.time.expect("a measured time").0.max(100);
        let mut spec = OpSpec { time: Some(Nanos(own)), reads: op.reads.to_vec(), ..OpSpec::default() };
        (spec.writes, spec.reuses, spec.effect) = (op.writes.to_vec(), op.reuses.to_vec(), op.effect);
        (spec.phase, spec.needs) = (op.phase, op.needs.to_vec());
        spec.workspace = Bytes(unit * rng.below(3) as u64 * rng.below(40) as u64);
        for _ in 0..rng.below(3) * (1 + rng.below(2)) {
            let time = Nanos(own * (30 + rng.below(90) as u64) / 100);
            let workspace = Bytes(unit * rng.below(400) as u64);
            spec.algorithms.push(Algorithm { workspace, price: Price::Time(time) });
        }
        b.op(spec).expect(built);
    }
    graph.results().iter().for_each(|&value| b.result(value).expect(built));
    b.finish().expect(built)
}
