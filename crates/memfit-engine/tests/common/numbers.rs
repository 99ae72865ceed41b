//! A host whose storages hold numbers: what is computed wrongly comes out wrong.

use memfit_engine::{Block, Call, Engine, Host, HostError, Output, Run, TensorId};
use memfit_ir::{Bytes, Effect, Nanos, Role};

/// A host that computes: every storage holds a number, every op a hash of what it reads.
#[derive(Default)]
pub(crate) struct Numbers {
    pub(crate) clock: u64,
    pub(crate) held: std::collections::BTreeMap<u64, u64>,
    pub(crate) seeds: u64,
    pub(crate) used: u64,
    pub(crate) most: u64,
    pub(crate) fails: bool,
    /// What it says that every first run took as scratch memory.
    pub(crate) measured: Option<Bytes>,
    /// Scratch memory that the last run had, and the bytes that were left beside it.
    pub(crate) had: (Bytes, Bytes),
}

impl Host for Numbers {
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError> {
        if self.fails {
            return Err(HostError("the device is on fire".to_owned()));
        }
        self.had = (run.workspace.size, run.room);
        let mut hash =
            run.kind.bytes().fold(run.generator.unwrap_or(7), |hash, byte| hash * 31 + u64::from(byte));
        for read in run.reads {
            let number = self.held.get(&read.offset.0).copied().expect("an operand is in memory");
            hash = (hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        if ["snapshot", "scratch", "commit"].contains(&run.kind) {
            let from = run.reads[run.reads.len() - 1];
            self.held.insert(run.writes[0].offset.0, self.held[&from.offset.0]);
            self.clock += run.expected.0;
            return Ok(run.expected);
        }
        for (at, write) in run.writes.iter().enumerate() {
            self.held.insert(write.offset.0, hash.wrapping_add(at as u64));
        }
        self.clock += run.expected.0;
        Ok(run.expected)
    }

    fn allocate(&mut self, block: Block) {
        self.used += block.size.0;
        self.most = self.most.max(self.used);
        self.held.insert(block.offset.0, block.size.0);
    }

    fn release(&mut self, block: Block) {
        self.used -= block.size.0;
        self.held.remove(&block.offset.0);
    }

    fn clock(&mut self) -> Nanos {
        Nanos(self.clock)
    }

    fn workspace(&mut self) -> Option<Bytes> {
        self.measured
    }

    fn generator(&mut self) -> Option<u64> {
        self.seeds += 1;
        Some(self.seeds * 1001)
    }
}

pub(crate) const KB: Bytes = Bytes(1024);

pub(crate) fn op(
    engine: &mut Engine<'_, Numbers>,
    kind: &str,
    reads: &[TensorId],
    outputs: &[Output],
) -> Vec<TensorId> {
    let mut made = Vec::new();
    engine.apply(&Call { kind, reads, outputs, time: Nanos(10), ..Call::default() }, &mut made).unwrap();
    made
}

pub(crate) fn number(engine: &mut Engine<'_, Numbers>, tensor: TensorId) -> u64 {
    let block = engine.get(tensor).unwrap();
    engine.host.held[&block.offset.0]
}

/// A training step: a chain of layers with views, in-place activation, dropout, and an update in place. The new
/// weight and what is in it.
pub(crate) fn step(engine: &mut Engine<'_, Numbers>, weight: TensorId, layers: u64) -> (TensorId, u64) {
    let batch = engine.put(KB, Role::Input).unwrap();
    let mut made = Vec::new();
    let (mut last, mut kept) = (batch, Vec::new());
    for layer in 0..layers {
        let view = op(engine, "view", &[last], &[Output::View(0)])[0];
        let size = Bytes(512 * (1 + layer % 3));
        let linear = op(engine, "linear", &[view, weight], &[Output::Fresh(size)])[0];
        let active = op(engine, "relu_", &[linear], &[Output::InPlace(0)])[0];
        engine.del(linear).unwrap();
        let reads = [active];
        let outputs = [Output::Fresh(size)];
        let call = Call {
            kind: "dropout",
            reads: &reads,
            outputs: &outputs,
            time: Nanos(3),
            effect: Effect::Seeded,
            ..Call::default()
        };
        engine.apply(&call, &mut made).unwrap();
        kept.extend([view, active, last]);
        last = made[made.len() - 1];
    }
    kept.push(last);
    let mut gradient = op(engine, "loss", &[last], &[Output::Fresh(KB)])[0];
    for inputs in kept.chunks(3).rev().filter(|inputs| inputs.len() == 3) {
        let next = op(engine, "backward", &[gradient, inputs[0], inputs[1]], &[Output::Fresh(KB)])[0];
        engine.del(gradient).unwrap();
        gradient = next;
    }
    for tensor in kept {
        engine.del(tensor).unwrap();
    }
    let new = op(engine, "sgd_", &[weight, gradient], &[Output::InPlace(0)])[0];
    engine.del(weight).unwrap();
    engine.del(gradient).unwrap();
    let number = number(engine, new);
    (new, number)
}
