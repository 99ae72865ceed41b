//! How to run an op again, in few bytes. An operation of Burn's takes 616 bytes, whatever it does; written down,
//! it takes some fifty, and is read only where an op does run again.

use burn_ir::OperationIr;

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

/// An op and what it makes, written down.
pub(super) struct Recipe(Box<[u8]>);

/// Writes and reads recipes.
#[derive(Default)]
pub(super) struct Pen {
    buffer: Vec<u8>,
}

const FORM: bincode::config::Configuration = bincode::config::standard();

impl Recipe {
    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// What was written down; `None` if that is not a recipe.
    pub(super) fn read(&self) -> Option<(OperationIr, Made)> {
        let (&kind, text) = self.0.split_first()?;
        let (op, _) = bincode::serde::decode_from_slice(text, FORM).ok()?;
        Some((op, if kind == 0 { Made::Fresh } else { Made::View }))
    }
}

impl Pen {
    /// Writes `op` down; `None` if it can't be, or writes over an operand.
    pub(super) fn write(&mut self, op: &OperationIr, made: Made) -> Option<Recipe> {
        self.buffer.clear();
        self.buffer.push(match made {
            Made::Fresh => 0,
            Made::View => 1,
            Made::Over => return None,
        });
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
                assert_eq!(pen.write(&op, made).unwrap().read(), Some((op.clone(), made)));
            }
            assert!(pen.write(&op, Made::Over).is_none());
        }
    }
}
