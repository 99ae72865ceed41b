"""What an op costs: floating-point operations and bytes moved. Counted from shapes, never measured."""

import math
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from . import _ops


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def flops(target: OpOverload, args: Any, kwargs: Any, outputs: Any) -> int:
    """Floating-point operations: PyTorch's own formula where there is one (a multiply-add is two).

    Otherwise one for each element: of the largest tensor it reads or writes.
    """
    formula = flop_registry.get(target.overloadpacket)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=outputs))
    if moves_only(target):
        return 0
    tensors = tensors_in((args, kwargs, outputs))
    return max((tensor.numel() for tensor in tensors), default=0)


def moves_only(target: OpOverload) -> bool:
    """Whether the op only makes or moves bytes and computes nothing."""
    name = target._schema.name.split("::")[-1]
    return name in {
        "_to_copy", "arange", "bernoulli", "cat", "clone", "constant_pad_nd", "copy", "embedding", "empty",
        "empty_like", "fill", "flip", "full", "full_like", "gather", "index", "index_select", "new_empty",
        "new_full", "new_ones", "new_zeros", "ones", "ones_like", "roll", "scalar_tensor", "select_backward",
        "slice_backward", "slice_scatter", "select_scatter", "stack", "zeros", "zeros_like", "repeat",
    }  # fmt: skip


def own_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the view itself; an expanded view counts the bytes it repeats once."""
    distinct = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return min(distinct, tensor.numel()) * tensor.dtype.itemsize


def moved(target: OpOverload, args: Any, kwargs: Any, outputs: Any) -> int:
    """Bytes read and written, views at their own size, each operand once."""
    name = _ops.kind(target)
    if name in _ops.EMPTY:
        return 0
    written = sum(own_bytes(tensor) for tensor in tensors_in(outputs))
    operands = [own_bytes(tensor) for tensor in tensors_in((args, kwargs))]
    if name in _ops.GATHERS and operands:
        operands[0] = min(operands[0], written)
    if not reads_contents(target):
        operands = []
    return sum(operands) + written


def reads_contents(target: OpOverload) -> bool:
    """Whether the op looks at its operands' contents, not just at their shapes."""
    name = target._schema.name.split("::")[-1]
    return not (name.endswith("_like") or name.startswith("new_") or name == "fill")
