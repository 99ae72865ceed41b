//! How to run an op again, in few bytes. An operation of Burn's takes 616 bytes, whatever it does; written down, it takes some
//! fifty; and where the same op has run on tensors of the same shapes before, only what differs is kept: a few bytes of the names
//! of its tensors. It is read only where an op does run again.

use std::sync::Arc;

use burn_ir::OperationIr;
use memfit::engine::{StorageId, kit};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What the outputs of an op are; all of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Made {
    /// They have bytes of their own.
    #[default]
    Fresh,
    /// They show the bytes of the first operand.
    View,
    /// They are written over the first operand.
    Over,
}

const FORM: bincode::config::Configuration = bincode::config::standard();
/// Bytes of a storage's number.
const NUMBER: usize = size_of::<u32>();

/// A storage as it is written down: 0 stands for none.
fn number(storage: Option<StorageId>) -> u32 {
    storage.map_or(0, |StorageId(storage)| storage + 1)
}

/// An op and what it makes, written down: the number of its outputs, the storage of each, what they are, the op.
#[derive(Default)]
pub(super) struct Text(Vec<u8>);

impl Text {
    /// Writes `op` down, which has `outputs`. False if it can't be, or writes over an operand.
    pub(super) fn write(&mut self, op: &OperationIr, outputs: usize, made: Made) -> bool {
        self.0.clear();
        let (Ok(count), Made::Fresh | Made::View) = (u8::try_from(outputs), made) else { return false };
        self.0.push(count);
        self.0.resize(1 + outputs * NUMBER, 0);
        self.0.push(u8::from(made == Made::View));
        let written = bincode::serde::encode_into_std_write(op, &mut self.0, FORM);
        if written.is_err() {
            self.0.clear();
        }
        written.is_ok()
    }

    /// There is nothing to be written down.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the storage of each output, if it has one.
    pub(super) fn settle(&mut self, storages: impl Iterator<Item = Option<StorageId>>) {
        let Some((&mut count, rest)) = self.0.split_first_mut() else { return };
        for (place, storage) in rest.chunks_exact_mut(NUMBER).take(count.into()).zip(storages) {
            place.copy_from_slice(&number(storage).to_le_bytes());
        }
    }

    /// The storage of output `at`, if it had one.
    pub(super) fn home(&self, at: usize) -> Option<StorageId> {
        let (&count, rest) = self.0.split_first()?;
        let place = rest.chunks_exact(NUMBER).take(count.into()).nth(at)?;
        u32::from_le_bytes(place.try_into().ok()?).checked_sub(1).map(StorageId)
    }

    /// What was written down; `None` if that is nothing.
    pub(super) fn read(&self) -> Option<(OperationIr, Made)> {
        let (&count, rest) = self.0.split_first()?;
        let (&kind, text) = rest.get(usize::from(count) * NUMBER..)?.split_first()?;
        let (op, _) = bincode::serde::decode_from_slice(text, FORM).ok()?;
        Some((op, if kind == 0 { Made::Fresh } else { Made::View }))
    }

    /// Which texts it may be alike: those of one length, of the same op.
    fn likeness(&self) -> Likeness {
        let header = 1 + self.0.first().map_or(0, |&count| usize::from(count) * NUMBER);
        (self.0.len(), self.0.get(header..).and_then(|text| text.first_chunk().copied()))
    }
}

/// The length of a text, and the bytes that say which op it is.
type Likeness = (usize, Option<[u8; 4]>);
/// A text that others differ from, in one word.
type Shared = Arc<Box<[u8]>>;

/// Bytes in which a recipe may differ from one before it, with where they are.
const DIFFERING: usize = 24;
/// Bytes that are not worth ending a run of differing ones for.
const GAP: usize = 2;

/// A [`Text`], as what differs from one that was written before: the same op on other tensors.
pub(super) struct Recipe {
    like: Shared,
    /// Runs of bytes: how many to leave, how many to replace, those.
    differs: SmallVec<[u8; DIFFERING]>,
}

impl Recipe {
    /// The text. It's empty if it can't be put together.
    pub(super) fn text(&self) -> Text {
        let (mut text, mut at, mut runs) = (self.like.to_vec(), 0, &*self.differs);
        while let [leave, count, rest @ ..] = runs {
            let (count, start) = (usize::from(*count), at + usize::from(*leave));
            let (Some(to), Some(from)) = (text.get_mut(start..start + count), rest.get(..count)) else {
                return Text::default();
            };
            to.copy_from_slice(from);
            (at, runs) = (start + count, &rest[count..]);
        }
        Text(text)
    }
}

impl kit::Recipe for Recipe {
    fn bytes(&self) -> usize {
        let elsewhere = if self.differs.spilled() { self.differs.capacity() } else { 0 };
        // The first of its like has brought the text that others differ from.
        let first = if self.differs.is_empty() { self.like.len() + LIKE } else { 0 };
        elsewhere + first
    }
}

/// Bytes of a shared text beside it: the counts, its address and its length.
const LIKE: usize = 4 * size_of::<usize>();
/// Texts of one likeness that are tried.
const TRIED: usize = 4;
/// Likenesses that are known at a time.
const KNOWN: usize = 1 << 10;

/// Turns texts into recipes.
#[derive(Default)]
pub(super) struct Pen {
    known: FxHashMap<Likeness, SmallVec<[Shared; TRIED]>>,
}

impl Pen {
    pub(super) fn recipe(&mut self, text: &Text) -> Recipe {
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        let known = self.known.entry(text.likeness()).or_default();
        for like in known.iter().rev() {
            if let Some(differs) = differing(like, &text.0) {
                return Recipe { like: like.clone(), differs };
            }
        }
        let like = Arc::new(text.0.as_slice().into());
        if known.len() == TRIED {
            known.remove(0);
        }
        known.push(Arc::clone(&like));
        Recipe { like, differs: SmallVec::new() }
    }
}

/// The bytes in which `text` differs from `like`, which is as long; `None` if there are too many.
fn differing(like: &[u8], text: &[u8]) -> Option<SmallVec<[u8; DIFFERING]>> {
    let (mut differs, mut done) = (SmallVec::new(), 0);
    let other = |from: usize| (from..text.len()).find(|&at| like[at] != text[at]);
    let mut next = other(0);
    while let Some(start) = next {
        let mut end = start + 1;
        next = other(end);
        while let Some(at) = next.filter(|&at| at <= end + GAP) {
            end = at + 1;
            next = other(end);
        }
        let run = &text[start..end];
        if differs.len() + 2 + run.len() > DIFFERING {
            return None;
        }
        differs.extend([u8::try_from(start - done).ok()?, u8::try_from(run.len()).ok()?]);
        differs.extend_from_slice(run);
        done = end;
    }
    Some(differs)
}

#[cfg(test)]
mod tests {
    use burn_backend::{DType, Distribution};
    use burn_ir::{
        BaseOperationIr, BinaryOpIr, CatOpIr, FloatOperationIr, NumericOperationIr, RandomOpIr, ScalarIr,
        ScalarOpIr, TensorId, TensorIr, TensorStatus,
    };

    use super::*;

    fn tensor(id: u64, dims: &[usize]) -> TensorIr {
        let status = TensorStatus::ReadOnly;
        TensorIr { id: TensorId::new(id), shape: dims.to_vec().into(), status, dtype: DType::F32 }
    }

    fn ops(first: u64) -> [OperationIr; 4] {
        let (lhs, out) = (tensor(first, &[16, 3, 32, 32]), tensor(u64::MAX - first, &[1, 2, 3, 4, 5, 6, 7]));
        let scalar = ScalarOpIr { lhs: lhs.clone(), rhs: ScalarIr::Float(0.1 + 0.2), out: out.clone() };
        let cat = CatOpIr { tensors: vec![lhs.clone(); 70], dim: 1, out: out.clone() };
        let how = Distribution::Normal(1e-300, f64::MAX);
        let random = RandomOpIr { out: out.clone(), distribution: how };
        let sum = BinaryOpIr { lhs: lhs.clone(), rhs: lhs, out };
        [
            OperationIr::NumericFloat(DType::F32, NumericOperationIr::MulScalar(scalar)),
            OperationIr::BaseInt(BaseOperationIr::Cat(cat)),
            OperationIr::Float(DType::BF16, FloatOperationIr::Random(random)),
            OperationIr::NumericFloat(DType::F32, NumericOperationIr::Add(sum)),
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (mut pen, mut text) = (Pen::default(), Text::default());
        // Names that differ in a byte, in all of them, and in how many bytes they take.
        for first in [1 << 40, (1 << 40) + 1, (1 << 40) + 2, 0x1234_5678_9abc, 3, 70_000, u64::MAX] {
            for (at, op) in ops(first).into_iter().enumerate() {
                for made in [Made::Fresh, Made::View] {
                    assert!(text.write(&op, 2, made));
                    let storage = u32::try_from(first % 1000).unwrap() + 300 * u32::try_from(at).unwrap();
                    text.settle([Some(StorageId(storage)), None].into_iter());
                    let read = pen.recipe(&text).text();
                    assert_eq!(read.read(), Some((op.clone(), made)));
                    assert_eq!([0, 1, 2].map(|at| read.home(at)), [Some(StorageId(storage)), None, None]);
                }
                assert!(!text.write(&op, 1, Made::Over) && text.is_empty());
            }
        }
    }

    #[test]
    fn the_same_op_on_other_tensors_takes_a_few_bytes() {
        let (mut pen, mut text) = (Pen::default(), Text::default());
        let mut bytes = Vec::new();
        for name in 0..1000 {
            assert!(text.write(&ops((1 << 40) + name)[3], 1, Made::Fresh));
            text.settle(std::iter::once(Some(StorageId(u32::try_from(name).unwrap()))));
            bytes.push(kit::Recipe::bytes(&pen.recipe(&text)));
        }
        assert!(bytes[0] > 50 && bytes.iter().filter(|&&bytes| bytes > 0).count() < 10, "{bytes:?}");
        assert_eq!(size_of::<Option<Recipe>>(), 40);
    }
}
