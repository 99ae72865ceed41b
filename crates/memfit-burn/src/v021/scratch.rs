//! What ops take for themselves while they run: known once an op of that kind and those sizes has run under a meter.

use std::hash::{Hash, Hasher};

use burn_ir::OperationIr;
use memfit::Bytes;
use memfit::engine::kit::{OpProfile, Profiles};
use rustc_hash::FxHasher;

use super::ops;

/// Less is handles and lists.
const LEAST: Bytes = Bytes(4 << 10);

/// The most that an op of this [`signature`] was seen to take beyond what it makes.
pub(super) fn taken(profiles: &mut Profiles, signature: u64) -> Bytes {
    let known = profiles.find(&[signature]);
    Bytes(known.map_or(0, |known| profiles.of(known).workspace))
}

/// An op of this [`signature`] has taken so much; how much of it was not [known](taken).
pub(super) fn saw(profiles: &mut Profiles, signature: u64, bytes: Bytes) -> Bytes {
    let key = [signature];
    let known = profiles.find(&key);
    let unforeseen = known.map_or(bytes, |known| bytes.saturating_sub(Bytes(profiles.of(known).workspace)));
    if bytes >= LEAST {
        let known = known.unwrap_or_else(|| profiles.add(&key, OpProfile::default()));
        profiles.of_mut(known).saw_workspace(bytes);
    }
    unforeseen
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
