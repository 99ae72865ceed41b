//! How to run an op again, in few bytes. An operation of Burn's takes 616 bytes, whatever it does; written down,
//! it takes some fifty, and is read only where an op does run again.

use burn_ir::OperationIr;
use memfit::engine::{StorageId, kit};

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

/// An op and what it makes, written down: the number of its outputs, the storage of each, what they are, the op.
pub(super) struct Recipe(Box<[u8]>);

/// Writes and reads recipes.
#[derive(Default)]
pub(super) struct Pen {
    buffer: Vec<u8>,
}

const FORM: bincode::config::Configuration = bincode::config::standard();
/// Bytes of a storage's number.
const NUMBER: usize = size_of::<u32>();

/// A storage as it is written down: 0 stands for none.
fn number(storage: Option<StorageId>) -> u32 {
    storage.map_or(0, |StorageId(storage)| storage + 1)
}

impl kit::Recipe for Recipe {
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl Recipe {
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

    /// What was written down; `None` if that is not a recipe.
    pub(super) fn read(&self) -> Option<(OperationIr, Made)> {
        let (&count, rest) = self.0.split_first()?;
        let (&kind, text) = rest.get(usize::from(count) * NUMBER..)?.split_first()?;
        let (op, _) = bincode::serde::decode_from_slice(text, FORM).ok()?;
        Some((op, if kind == 0 { Made::Fresh } else { Made::View }))
    }
}

impl Pen {
    /// Writes `op` down, which has `outputs`; `None` if it can't be, or writes over an operand.
    pub(super) fn write(&mut self, op: &OperationIr, outputs: usize, made: Made) -> Option<Recipe> {
        let kind = match made {
            Made::Fresh => 0,
            Made::View => 1,
            Made::Over => return None,
        };
        self.buffer.clear();
        self.buffer.push(u8::try_from(outputs).ok()?);
        self.buffer.resize(1 + outputs * NUMBER, 0);
        self.buffer.push(kind);
        bincode::serde::encode_into_std_write(op, &mut self.buffer, FORM).ok()?;
        Some(Recipe(self.buffer.as_slice().into()))
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::{DType, Distribution};
    use burn_ir::{
        BaseOperationIr, CatOpIr, FloatOperationIr, NumericOperationIr, RandomOpIr, ScalarIr, ScalarOpIr,
        TensorId, TensorIr, TensorStatus,
    };

    use super::*;

    fn tensor(id: u64, dims: &[usize]) -> TensorIr {
        let status = TensorStatus::ReadOnly;
        TensorIr { id: TensorId::new(id), shape: dims.to_vec().into(), status, dtype: DType::F32 }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut pen = Pen::default();
        let (lhs, out) = (tensor(1 << 40, &[16, 3, 32, 32]), tensor(u64::MAX, &[1, 2, 3, 4, 5, 6, 7]));
        let scalar = ScalarOpIr { lhs: lhs.clone(), rhs: ScalarIr::Float(0.1 + 0.2), out: out.clone() };
        let cat = CatOpIr { tensors: vec![lhs.clone(); 70], dim: 1, out: out.clone() };
        let how = Distribution::Normal(1e-300, f64::MAX);
        let random = RandomOpIr { out, distribution: how };
        let ops = [
            OperationIr::NumericFloat(DType::F32, NumericOperationIr::MulScalar(scalar)),
            OperationIr::BaseInt(BaseOperationIr::Cat(cat)),
            OperationIr::Float(DType::BF16, FloatOperationIr::Random(random)),
        ];
        for op in ops {
            for made in [Made::Fresh, Made::View] {
                let mut recipe = pen.write(&op, 2, made).unwrap();
                recipe.settle([Some(StorageId(7)), None].into_iter());
                assert_eq!(recipe.read(), Some((op.clone(), made)));
                assert_eq!([0, 1, 2].map(|at| recipe.home(at)), [Some(StorageId(7)), None, None]);
            }
            assert!(pen.write(&op, 1, Made::Over).is_none());
        }
    }
}
