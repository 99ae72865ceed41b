//! What ops take for themselves while they run: known once an op of that kind and those sizes has run under a meter.

use std::hash::{Hash, Hasher};

use burn_ir::OperationIr;
use memfit::Bytes;
use rustc_hash::{FxHashMap, FxHasher};

use super::core::map_bytes;
use super::ops;

/// Less is handles and lists.
const LEAST: u64 = 4 << 10;

/// The most that was seen, by [`signature`].
#[derive(Default)]
pub(super) struct Scratch(FxHashMap<u64, u64>);

impl Scratch {
    /// The most that an op like this was seen to take beyond what it makes.
    pub(super) fn of(&self, signature: u64) -> Bytes {
        Bytes(self.0.get(&signature).copied().unwrap_or_default())
    }

    pub(super) fn saw(&mut self, signature: u64, bytes: u64) {
        if bytes >= LEAST {
            let most = self.0.entry(signature).or_default();
            *most = bytes.max(*most);
        }
    }

    pub(super) fn table_bytes(&self) -> usize {
        map_bytes(&self.0)
    }
}

/// Equal for ops of one kind on operands of the same types and sizes. How operands are laid out is not in it: the most of all
/// layouts counts.
pub(super) fn signature(op: &OperationIr) -> u64 {
    let mut hasher = FxHasher::default();
    ops::code(op).hash(&mut hasher);
    for tensor in op.inputs().chain(op.outputs()) {
        (tensor.dtype, tensor.shape.as_slice()).hash(&mut hasher);
    }
    hasher.finish()
}
