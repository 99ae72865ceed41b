//! A host whose storages hold numbers: what is computed wrongly comes out wrong.

use memfit_engine::{
    Block, Call, Engine, Fault, Host, HostError, Output, Run, Source, StorageId, TensorId, Wanted,
};
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
    /// Calls that may fail, so far, and which of them do.
    pub(crate) tried: u64,
    pub(crate) failing: std::ops::Range<u64>,
    /// By tensor: what it must be, as the program has it. Nothing for one without bytes.
    pub(crate) expected: std::collections::BTreeMap<TensorId, Option<u64>>,
    /// What the op reads that the program applies now.
    pub(crate) applies: Option<Vec<u64>>,
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

/// Ops that only copy their last operand.
const COPIES: [&str; 3] = ["snapshot", "scratch", "commit"];

/// What an op of that kind makes of these numbers.
fn hash(kind: &str, generator: Option<u64>, reads: impl Iterator<Item = u64>) -> u64 {
    let start = kind
        .bytes()
        .fold(generator.unwrap_or(7), |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    reads.fold(start, |hash, number| (hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
}

impl Numbers {
    /// One more call that may fail: whether it does.
    fn try_to(&mut self, what: &str) -> Result<(), HostError> {
        self.tried += 1;
        if self.fails || self.failing.contains(&self.tried) {
            return Err(HostError(format!("{what}: the device is on fire")));
        }
        Ok(())
    }
}

impl Host for Numbers {
    fn run(&mut self, run: &Run<'_>) -> Result<Nanos, HostError> {
        if let Err(error) = self.try_to(run.kind) {
            // A repetition has written some of what it writes, also over what it reads.
            for write in run.writes.iter().filter(|write| run.repetition > 0 && write.size > Bytes::ZERO) {
                self.held.insert(write.offset.0, !self.tried);
            }
            return Err(error);
        }
        self.had = (run.workspace.size, run.room);
        // What has no bytes has no place, and no number.
        let reads = run.reads.iter().filter(|read| read.size > Bytes::ZERO);
        let numbers: Vec<u64> =
            reads.map(|read| *self.held.get(&read.offset.0).expect("an operand is in memory")).collect();
        if run.repetition == 0
            && let Some(expected) = self.applies.take()
        {
            assert_eq!(numbers, expected, "what `{}` reads", run.kind);
        }
        let hash = hash(run.kind, run.generator, numbers.into_iter());
        if COPIES.contains(&run.kind) {
            let from = run.reads[run.reads.len() - 1];
            if from.size > Bytes::ZERO {
                self.held.insert(run.writes[0].offset.0, self.held[&from.offset.0]);
            }
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
        self.try_to("a copy is made")?;
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
        self.try_to("a copy is read")?;
        let this = self.copies.get_mut(&copy).expect("what is loaded is there");
        assert!(this.pending.is_none(), "two things at a time with one copy");
        this.pending = Some(Pending::Into(to.offset.0));
        self.held.remove(&to.offset.0);
        self.moved[1] += 1;
        if this.here { self.wait(copy) } else { Ok(()) }
    }

    fn wait(&mut self, copy: u64) -> Result<(), HostError> {
        let this = self.copies.get_mut(&copy).expect("what is waited for is there");
        let pending = this.pending.take();
        if pending.is_some() {
            self.try_to("a copy is waited for")?;
        }
        let this = self.copies.get_mut(&copy).expect("what is waited for is there");
        match pending {
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

/// Brings in a tensor, whose number is its size.
pub(crate) fn put(engine: &mut Engine<'_, Numbers>, size: Bytes, role: Role) -> Result<TensorId, Fault> {
    let tensor = engine.put(size, role)?;
    engine.host.expected.insert(tensor, (size > Bytes::ZERO).then_some(size.0));
    Ok(tensor)
}

/// Applies a call, and notes what must be in what it makes.
pub(crate) fn apply(
    engine: &mut Engine<'_, Numbers>,
    call: &Call<'_>,
    made: &mut Vec<TensorId>,
) -> Result<(), Fault> {
    let reads: Vec<Option<u64>> = call.reads.iter().map(|read| engine.host.expected[read]).collect();
    let before = made.len();
    engine.host.applies = Some(reads.iter().copied().flatten().collect());
    engine.apply(call, made)?;
    let generator = (call.effect == Effect::Seeded).then_some(engine.host.seeds * 1001);
    let hash = hash(call.kind, generator, reads.iter().copied().flatten());
    for (at, (output, &tensor)) in call.outputs.iter().zip(&made[before..]).enumerate() {
        let has_bytes = match *output {
            Output::Fresh(size) | Output::Takes(size, _) => size > Bytes::ZERO,
            Output::View(of) | Output::InPlace(of) => reads[of].is_some(),
        };
        let number = match reads.last() {
            Some(&copied) if COPIES.contains(&call.kind) => copied,
            _ => Some(hash.wrapping_add(at as u64)),
        };
        engine.host.expected.insert(tensor, number.filter(|_| has_bytes));
    }
    Ok(())
}

/// All that the program holds has the numbers that it must have. False where some of it can't be had: there are as many bytes
/// as it takes, but not in one piece.
pub(crate) fn check(engine: &mut Engine<'_, Numbers>, what: &str) -> bool {
    let mut all = true;
    for tensor in engine.held() {
        let block = match engine.get(tensor) {
            Ok(block) => block,
            Err(Fault::NoRoom(room)) if room.enough <= room.budget => {
                all = false;
                continue;
            }
            Err(fault) => panic!("{what}: {fault}"),
        };
        let number = (block.size > Bytes::ZERO).then(|| engine.host.held[&block.offset.0]);
        assert_eq!(number, engine.host.expected[&tensor], "{what}: `{tensor}`");
    }
    assert_eq!(engine.host.used, engine.stats().used.0, "{what}");
    all
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
