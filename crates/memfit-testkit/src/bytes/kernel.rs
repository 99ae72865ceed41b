//! What ops compute, and what a graph's results must be.
//!
//! Bytes come in pairs, of which the second follows from the first. An output's pair depends on the pair at the same position of
//! every input that stands in an in-place pair (as element-wise ops do), and on all bytes of all other inputs; on their [`signs`]
//! only where that is what the op needs, and on nothing of them where it needs their shape. Of a value that is said to be sparse as
//! many bytes are something as may be; the others are [`NOTHING`] and what follows from it.

use std::borrow::Cow;

use memfit_ir::{Codec, Effect, Graph, Need, Op, Role, Value, ValueId};

pub(super) fn mix(a: u64, b: u64) -> u64 {
    (a ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ (b >> 7)
}

/// A hash of all bytes and their order.
pub(super) fn hash(mut state: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    for word in words.by_ref() {
        state = mix(state, word.try_into().map_or(0, u64::from_be_bytes));
    }
    for &byte in words.remainder() {
        state = mix(state, u64::from(byte) + 1);
    }
    mix(state, bytes.len() as u64)
}

/// The second byte of a pair.
pub(super) fn twin(first: u8) -> u8 {
    first.rotate_left(3) ^ 0x5A
}

/// The top byte of a hash.
pub(super) fn top(hash: u64) -> u8 {
    hash.to_be_bytes()[0]
}

/// The first byte of a pair that stands for zero.
pub(super) const NOTHING: u8 = 0;

/// The bytes of `value` that may be something: the first ones.
pub(super) fn filled(value: &Value<'_>) -> usize {
    let mask = value.size.0.div_ceil(4).div_ceil(8);
    usize::try_from(Codec::Zvc.room(value).0 - mask).unwrap_or(usize::MAX)
}

/// The bytes from `at` on that an op writes into a value of which so many bytes may be something.
pub(super) fn pair(first: u8, at: usize, filled: usize) -> [u8; 2] {
    let second = twin(first);
    [(first, at), (second, at + 1)].map(|(byte, at)| if at < filled { byte } else { nothing(at) })
}

/// What stands for zero at `at`.
pub(super) fn nothing(at: usize) -> u8 {
    if at.is_multiple_of(2) { NOTHING } else { twin(NOTHING) }
}

/// What is left of `bytes` where no more than signs is kept: the lowest bit of each pair.
pub(super) fn signs(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(2).flat_map(|pair| [pair[0] & 1, twin(pair[0] & 1)].into_iter().take(pair.len())).collect()
}

/// What an op that needs so much of them reads of `bytes`.
fn seen(bytes: &[u8], need: Need) -> Cow<'_, [u8]> {
    match need {
        Need::Value => Cow::Borrowed(bytes),
        Need::Sign => Cow::Owned(signs(bytes)),
        Need::Shape => Cow::Borrowed(&[]),
    }
}

/// Fills `bytes` with what an outside source puts there: a batch, or initial weights.
fn source(value: ValueId, step: u64, size: usize) -> Vec<u8> {
    let first = |at: usize| top(mix(mix(u64::from(value.0) + 77, step), (at / 2) as u64 + 1));
    (0..size).map(|at| if at % 2 == 0 { first(at) } else { twin(first(at)) }).collect()
}

/// Whether operand `at` is read pair by pair.
pub(super) fn is_paired(op: &Op<'_>, at: usize) -> bool {
    op.reuses.iter().any(|pair| pair.input == op.reads[at])
}

/// Where an output's hashes start: `salt` is the generator state or the place in the order of effects.
pub(super) fn start(op: usize, salt: u64) -> u64 {
    mix(op as u64 + 1, salt)
}

/// Adds all bytes of an operand that is not read pair by pair.
pub(super) fn whole(state: u64, operand: usize, need: Need, bytes: &[u8]) -> u64 {
    hash(mix(state, operand as u64 + 3), &seen(bytes, need))
}

/// Adds the pair at element `element` of an operand.
pub(super) fn element(state: u64, operand: usize, need: Need, bytes: &[u8], element: usize) -> u64 {
    let pair = bytes.get(2 * element..bytes.len().min(2 * element + 2)).unwrap_or(&[]);
    let pair = seen(pair, need);
    let byte = |at: usize| pair.get(at).map_or(999, |&byte| u64::from(byte));
    mix(state, (byte(0) << 16 | byte(1) << 4) + operand as u64)
}

/// The first byte of element `element` of output `output`.
pub(super) fn written(state: u64, output: usize, element: usize) -> u8 {
    top(mix(mix(state, output as u64 + 11), element as u64 + 1))
}

/// What every value must be, in the first step and in the one after it.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Bytes of each value, for each step.
    pub(super) values: [Vec<Vec<u8>>; 2],
    /// Draws from the generator after each step.
    pub(super) draws: [u64; 2],
    /// `Once` and `Collective` ops in order.
    pub(super) order: Vec<usize>,
    /// For each value, the persistent source that it is the last version of.
    pub(super) last_of: Vec<Option<ValueId>>,
    /// For each persistent source its last version.
    pub(super) last: Vec<Option<ValueId>>,
    /// Whether a second step can differ in more than its batch.
    pub(super) persistent: bool,
}

impl Truth {
    /// Evaluates `graph`, whose values must be small.
    #[must_use]
    pub fn of(graph: &Graph) -> Truth {
        let mut last: Vec<Option<ValueId>> = vec![None; graph.value_count()];
        let is_source = |id: ValueId| graph.value(id).producer.is_none();
        let is_persistent = |role: Role| role.is_persistent();
        for id in graph.value_ids().filter(|&id| is_source(id) && is_persistent(graph.value(id).role)) {
            let mut now = id;
            let next = |now: ValueId| {
                let pairs = graph.value(now).readers.iter().flat_map(|&op| graph.op(op).reuses);
                pairs.into_iter().find(|pair| pair.must && pair.input == now).map(|pair| pair.output)
            };
            while let Some(after) = next(now) {
                now = after;
            }
            last[id.index()] = Some(now);
        }
        let mut last_of = vec![None; graph.value_count()];
        for id in graph.value_ids() {
            if let Some(version) = last[id.index()] {
                last_of[version.index()] = Some(id);
            }
        }
        let effects =
            |id: &memfit_ir::OpId| matches!(graph.op(*id).effect, Effect::Once | Effect::Collective);
        let mut truth = Truth {
            values: [Vec::new(), Vec::new()],
            draws: [0, 0],
            order: graph.op_ids().filter(effects).map(|op| op.index()).collect(),
            persistent: last.iter().any(Option::is_some),
            last_of,
            last,
        };
        let mut draws = 0;
        for step in 0..2 {
            truth.values[step] = truth.evaluate(graph, step, &mut draws);
            truth.draws[step] = draws;
        }
        truth
    }

    /// What stands in source `value` before step `step`, if the host puts it there.
    pub(super) fn source(&self, graph: &Graph, value: ValueId, step: usize) -> Vec<u8> {
        let size = usize::try_from(graph.value(value).size.0).unwrap_or(usize::MAX);
        match self.last[value.index()] {
            Some(last) if step > 0 => self.values[step - 1][last.index()].clone(),
            Some(_) => source(value, 1000, size),
            None => source(value, step as u64, size),
        }
    }

    fn evaluate(&self, graph: &Graph, step: usize, draws: &mut u64) -> Vec<Vec<u8>> {
        let mut values: Vec<Vec<u8>> = vec![Vec::new(); graph.value_count()];
        for id in graph.value_ids().filter(|&id| graph.value(id).producer.is_none()) {
            values[id.index()] = self.source(graph, id, step);
        }
        let mut order = 0;
        for id in graph.op_ids() {
            let op = graph.op(id);
            let salt = match op.effect {
                Effect::Pure => 0,
                Effect::Seeded => {
                    *draws += 1;
                    *draws
                }
                Effect::Once | Effect::Collective => {
                    order += 1;
                    order
                }
            };
            let mut state = start(id.index(), salt);
            for (at, value) in op.reads.iter().enumerate().filter(|&(at, _)| !is_paired(&op, at)) {
                state = whole(state, at, op.need(at), &values[value.index()]);
            }
            let paired: Vec<usize> = (0..op.reads.len()).filter(|&at| is_paired(&op, at)).collect();
            for (output, value) in op.writes.iter().enumerate() {
                let size = usize::try_from(graph.value(*value).size.0).unwrap_or(usize::MAX);
                let filled = filled(&graph.value(*value));
                let mut bytes = Vec::with_capacity(size + 1);
                for at in 0..size.div_ceil(2) {
                    let mut state = state;
                    for &operand in &paired {
                        let bytes = &values[op.reads[operand].index()];
                        state = element(state, operand, op.need(operand), bytes, at);
                    }
                    let first = written(state, output, at);
                    bytes.extend(pair(first, 2 * at, filled));
                }
                bytes.truncate(size);
                values[value.index()] = bytes;
            }
        }
        values
    }
}
