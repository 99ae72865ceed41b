"""What an op costs: floating-point operations and bytes moved. Counted from shapes, never measured."""

from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from . import _ops
from ._layout import own_bytes, tensors_in


def flops(target: OpOverload, args: Any, kwargs: Any, outputs: Any) -> int:
    """Floating-point operations: PyTorch's own formula where there is one (a multiply-add is two).

    Otherwise one for each element: of the largest tensor it reads or writes.
    """
    name = _ops.kind(target)
    if name == "aten.convolution.default":
        x, weight, transposed = args[0], args[1], args[6]
        return convolution(x if transposed else outputs, weight)
    if name == "aten.convolution_backward.default":
        wanted: list[bool] = args[10]
        gradient, x, weight, transposed = args[0], args[1], args[2], args[7]
        return convolution(x if transposed else gradient, weight) * sum(wanted[:2])
    formula = flop_registry.get(target.overloadpacket)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=outputs))
    if moves_only(target):
        return 0
    tensors = tensors_in((args, kwargs, outputs))
    return max((tensor.numel() for tensor in tensors), default=0)


def convolution(many: torch.Tensor, weight: torch.Tensor) -> int:
    """Of a convolution, forward or for one gradient: each weight meets each position of `many` once.

    `many` is the output, or the input of a transposed convolution. PyTorch's own formula for gradients takes
    a grouped convolution for a dense one.
    """
    return 2 * many.shape[0] * many.shape[2:].numel() * weight.numel()


def moves_only(target: OpOverload) -> bool:
    """Whether the op only makes or moves bytes and computes nothing."""
    name = target._schema.name.split("::")[-1]
    return name in {
        "_to_copy", "arange", "bernoulli", "cat", "clone", "constant_pad_nd", "copy", "embedding", "empty",
        "empty_like", "fill", "flip", "full", "full_like", "gather", "index", "index_select", "new_empty",
        "new_full", "new_ones", "new_zeros", "ones", "ones_like", "roll", "scalar_tensor", "select_backward",
        "slice_backward", "slice_scatter", "select_scatter", "stack", "zeros", "zeros_like", "repeat",
    }  # fmt: skip


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


def compute_dtype(args: Any, kwargs: Any, outputs: Any) -> str:
    """What the arithmetic is done in: the first floating-point tensor's dtype, else the first output's."""
    tensors = tensors_in((args, kwargs, outputs))
    floating = [t.dtype for t in tensors if t.dtype.is_floating_point or t.dtype.is_complex]
    return _ops.dtype_name((floating or [tensors_in(outputs)[0].dtype])[0])
