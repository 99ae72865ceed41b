//! What strategies ask that think of a step as the layers of a network, forward and backward.

use memfit_ir::{OpId, Phase, ValueId};

use super::ids::NodeId;
use super::{RunList, Task};

/// The node at which forward turns to backward: the first of that phase, or where the plain schedule holds
/// most.
pub(super) fn turn(task: &Task<'_>) -> usize {
    let backward = |op: &OpId| task.graph.op(*op).phase != Phase::Forward;
    if let Some(first) = task.order.iter().position(backward) {
        return first;
    }
    let profile = RunList::plain(task).profile(task).unwrap_or_default();
    let most = profile.iter().copied().max();
    profile.iter().position(|&bytes| Some(bytes) == most).map_or(0, |at| at + 1)
}

/// What systems for convolutional networks tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// A convolution.
    Convolution,
    /// A product of matrices, attention included.
    Product,
    /// All else: cheap to compute for the bytes it makes.
    Cheap,
}

/// Which layer an op of this kind is, in the names that PyTorch, ONNX and Burn use.
pub(super) fn layer(kind: &str) -> Layer {
    let kind = kind.to_ascii_lowercase();
    let has = |names: &[&str]| names.iter().any(|name| kind.contains(name));
    if has(&["conv"]) && !has(&["convert"]) {
        Layer::Convolution
    } else if has(&["mm", "matmul", "linear", "gemm", "attention", "lstm", "gru", "rnn"]) {
        Layer::Product
    } else {
        Layer::Cheap
    }
}

/// Whether an op of this kind makes nothing below zero, and whether a pool that takes the most, which makes nothing below zero of that.
fn rectifies(kind: &str) -> (bool, bool) {
    let kind = kind.to_ascii_lowercase();
    let has = |names: &[&str]| names.iter().any(|name| kind.contains(name));
    if has(&["backward"]) {
        return (false, false);
    }
    (has(&["relu"]) && !has(&["leaky", "prelu", "rrelu"]), has(&["max_pool", "maxpool"]))
}

impl Task<'_> {
    /// Whether a ReLU makes `value`, or a pool of what a ReLU makes.
    pub(super) fn is_rectified(&self, mut value: ValueId) -> bool {
        while let Some(node) = self.producer[value.index()] {
            let op = self.graph.op(self.order[node.index()]);
            match (rectifies(op.kind), op.reads.first()) {
                ((true, _), _) => return true,
                ((false, true), Some(&pooled)) => value = pooled,
                _ => return false,
            }
        }
        false
    }

    /// Which layer `node` is.
    pub(super) fn layer(&self, node: NodeId) -> Layer {
        layer(self.graph.op(self.order[node.index()]).kind)
    }

    /// Whether `node` is a convolution.
    pub(super) fn is_convolution(&self, node: NodeId) -> bool {
        self.layer(node) == Layer::Convolution
    }

    /// Whether a convolution makes `value`.
    pub(super) fn is_of_convolution(&self, value: ValueId) -> bool {
        self.producer[value.index()].is_some_and(|node| self.is_convolution(node))
    }

    /// Whether a convolution before `turn` reads `value`.
    pub(super) fn is_map_of_convolution(&self, value: ValueId, turn: usize) -> bool {
        let mut readers = self.readers.row(value.index()).iter();
        readers.any(|&reader| reader.index() < turn && self.is_convolution(reader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_known_by_the_names_of_the_frameworks() {
        let kinds =
            ["aten.convolution.default", "Conv", "conv2d", "aten.mm.default", "MatMul", "aten.relu.default"];
        let found: Vec<Layer> = kinds.iter().map(|kind| layer(kind)).collect();
        use Layer::{Cheap, Convolution, Product};
        assert_eq!(found, [Convolution, Convolution, Convolution, Product, Product, Cheap]);
        assert_eq!(layer("prims.convert_element_type.default"), Cheap);
    }
}
