"""Which bytes of its storage a tensor occupies. Sizes in bytes, strides in elements as PyTorch has them."""

import math
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def tensor_operands(node: Node) -> list[Node]:
    """The nodes of tensors that an op takes, each once, in the order of its operands."""
    return [arg for arg in node.all_input_nodes if isinstance(arg.meta.get("val"), torch.Tensor)]


def storage_key(val: torch.Tensor) -> int:
    """Names the storage of a tensor that is alive."""
    key: int = val.untyped_storage()._cdata
    return key


def own_bytes(val: torch.Tensor) -> int:
    """Bytes of the view itself; what an expanded view repeats counts once."""
    distinct = math.prod(size for size, stride in zip(val.shape, val.stride(), strict=True) if stride)
    return min(distinct, val.numel()) * val.dtype.itemsize


def dense(val: torch.Tensor) -> bool:
    """Whether the elements lie next to each other without gap or overlap, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(val.stride(), val.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def whole(val: torch.Tensor) -> bool:
    """Whether the tensor covers its storage: each byte belongs to exactly one element."""
    covers = val.numel() * val.dtype.itemsize == val.untyped_storage().nbytes()
    return covers and bool(val.storage_offset() == 0) and dense(val)


def congruent(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether element by element the two occupy the same bytes of their storages, all of them."""
    same = a.shape == b.shape and a.stride() == b.stride() and a.dtype.itemsize == b.dtype.itemsize
    return same and whole(a) and whole(b)


def same_layout(gradient: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether PyTorch keeps `gradient` as it is: `utils::obeys_layout_contract` of its autograd."""
    if not dense(parameter):
        return gradient.is_contiguous()
    strides = zip(gradient.shape, gradient.stride(), parameter.stride(), strict=True)
    return all(size == 1 or mine == its for size, mine, its in strides)
