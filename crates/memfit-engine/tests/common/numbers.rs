//! A host whose storages hold numbers: what is computed wrongly comes out wrong.

use memfit_engine::{Block, Call, Engine, Host, HostError, Output, Run, Source, StorageId, TensorId, Wanted};
use memfit_ir::{Bytes, Effect, Form, Nanos, Role};

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
    /// Copies, by name; bytes are read and written as late as may be: when they are waited for.
    pub(crate) copies: std::collections::BTreeMap<u64, Copy>,
    pub(crate) copied: u64,
    /// How many copies were made, came back, and were forgotten.
    pub(crate) moved: [usize; 3],
    /// Whether somebody else may have written to any storage: then all must stay.
    pub(crate) shared: bool,
    /// Every so many copies are lost: they can't be made, or do not come back.
    pub(crate) loses: Option<u64>,
    /// Scratch memory that the last run had, and the bytes that were left beside it.
    pub(crate) had: (Bytes, Bytes),
}

/// A copy of a number.
pub(crate) struct Copy {
    number: Option<u64>,
    pending: Option<Pending>,
    /// Whether it is in device memory.
    here: bool,
}

/// What is under way, with the storage at an offset.
enum Pending {
    Out(u64),
    Into(u64),
}

impl Host for Numbers {
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError> {
        if self.fails {
            return Err(HostError("the device is on fire".to_owned()));
        }
        self.had = (run.workspace.size, run.room);
        let mut hash =
            run.kind.bytes().fold(run.generator.unwrap_or(7), |hash, byte| hash * 31 + u64::from(byte));
        // What has no bytes has no place, and no number.
        for read in run.reads.iter().filter(|read| read.size > Bytes::ZERO) {
            let number = self.held.get(&read.offset.0).copied().expect("an operand is in memory");
            hash = (hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        if ["snapshot", "scratch", "commit"].contains(&run.kind) {
            let from = run.reads[run.reads.len() - 1];
            self.held.insert(run.writes[0].offset.0, self.held[&from.offset.0]);
            self.clock += run.expected.0;
            return Ok(run.expected);
        }
        let writes = run.writes.iter().enumerate().filter(|(_, write)| write.size > Bytes::ZERO);
        for (at, write) in writes {
            self.held.insert(write.offset.0, hash.wrapping_add(at as u64));
        }
        self.clock += run.expected.0;
        Ok(run.expected)
    }

    fn allocate(&mut self, block: Block) {
        self.used += block.size.0;
        self.most = self.most.max(self.used);
        if block.size > Bytes::ZERO {
            self.held.insert(block.offset.0, block.size.0);
        }
    }

    fn release(&mut self, block: Block) {
        self.used -= block.size.0;
        if block.size > Bytes::ZERO {
            self.held.remove(&block.offset.0);
        }
    }

    fn is_shared(&mut self, _storage: StorageId) -> bool {
        self.shared
    }

    fn store(&mut self, from: Source, Wanted { form, .. }: Wanted) -> Result<u64, HostError> {
        self.copied += 1;
        if self.loses.is_some_and(|every| self.copied.is_multiple_of(every)) {
            return Err(HostError("the disk is full".to_owned()));
        }
        let (number, pending) = match (from, form) {
            (Source::Block(block), Form::Encoded(_)) => (Some(self.held[&block.offset.0]), None),
            (Source::Block(block), _) => (None, Some(Pending::Out(block.offset.0))),
            (Source::Copy(copy), _) => {
                assert!(self.copies[&copy].pending.is_none(), "a copy is moved that is not there yet");
                (self.copies[&copy].number, None)
            }
        };
        self.copies.insert(self.copied, Copy { number, pending, here: matches!(form, Form::Encoded(_)) });
        self.moved[0] += 1;
        Ok(self.copied)
    }

    fn load(&mut self, copy: u64, to: Block) -> Result<(), HostError> {
        let this = self.copies.get_mut(&copy).expect("what is loaded is there");
        assert!(this.pending.is_none(), "two things at a time with one copy");
        this.pending = Some(Pending::Into(to.offset.0));
        self.held.remove(&to.offset.0);
        self.moved[1] += 1;
        if this.here { self.wait(copy) } else { Ok(()) }
    }

    fn wait(&mut self, copy: u64) -> Result<(), HostError> {
        let this = self.copies.get_mut(&copy).expect("what is waited for is there");
        match this.pending.take() {
            Some(Pending::Out(offset)) => this.number = Some(self.held[&offset]),
            Some(Pending::Into(_)) if self.loses.is_some_and(|every| copy % every == 1) => {
                return Err(HostError("the disk can't be read".to_owned()));
            }
            Some(Pending::Into(offset)) => {
                self.held.insert(offset, this.number.expect("it has been stored"));
            }
            None => {}
        }
        Ok(())
    }

    fn discard(&mut self, copy: u64) {
        let this = self.copies.remove(&copy).expect("what is discarded is there");
        assert!(this.pending.is_none(), "a copy goes that is not done");
        self.moved[2] += 1;
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
