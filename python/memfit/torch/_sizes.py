"""What the ops make whose results' sizes only the data can say.

Before such an op runs its operands are looked at, so that there is room. Most sizes come out exactly; where
that would take as long as the op itself there is a bound for all it needs.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from memfit.torch import _parts, _sparse

Needs = tuple[list[int] | None, int]
"""Bytes of each storage that is made, and of scratch memory; or none, and a bound for both together."""

Infer = Callable[[Any, Any, Any], tuple[list[int] | None, int, bool]]


def sizes(func: Any, args: Any, kwargs: Any, infer: Infer) -> Needs | None:
    """What a call needs of one of `BY_DATA`, or of an op with sparse operands; none if that can't be said.

    `infer` is `_infer.infer`.
    """
    schema = func._schema
    named = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | (kwargs or {})
    _parts.refuse_opaque(func, _parts.tensors(named), None)
    try:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            if (needs := BY_DATA.get(schema.name)) is not None:
                return needs(named, lambda of: infer(func, (), of))
            return None, _sparse.bound(func, named)
    except Exception:  # A wrong call fails again when it is made, with PyTorch's own words.
        return None


def makes_tensors(func: Any) -> bool:
    """Whether an op makes tensors; `item` makes a number."""
    return any("Tensor" in str(returned.type) for returned in func._schema.returns)


def _count(tensor: torch.Tensor) -> int:
    return int(torch.count_nonzero(tensor).item())  # Not by what a budget watches.


def _nonzero(of: dict[str, Any], _: Any) -> Needs:
    x = of["self"]
    count = _count(x)
    # On CUDA positions are numbers in one dimension first.
    return [8 * x.dim() * count], 0 if x.is_cpu else 8 * count + x.numel() // 16 + _SMALL


def _masked_select(of: dict[str, Any], _: Any) -> Needs:
    x, mask = of["self"], of["mask"]
    elements = math.prod(torch.broadcast_shapes(x.shape, mask.shape))
    count = _count(mask) * (elements // max(1, mask.numel()))
    # The mask as numbers, and how many come before each; on CUDA positions are found.
    return [count * x.itemsize], 16 * elements + (0 if x.is_cpu else 8 * x.dim() * count) + _SMALL


def _repeat_interleave(of: dict[str, Any], _: Any) -> Needs:
    repeats = of["repeats"]
    total = max(0, int(repeats.sum()))
    return [total * repeats.itemsize], (8 + repeats.itemsize) * repeats.numel() + _SMALL


def _bincount(of: dict[str, Any], _: Any) -> Needs:
    x, weights = of["self"], of.get("weights")
    bins = max(of.get("minlength") or 0, int(x.max()) + 1 if x.numel() else 0)
    width = 4 if weights is not None and weights.dtype == torch.float32 else 8
    return [bins * width], 16 * x.numel() + _SMALL


def _indexed(of: dict[str, Any], infer: Any) -> Needs | None:
    """With masks among the indices, which stand for the positions of what they let through."""
    indices: list[torch.Tensor | None] = []
    scratch = 0
    for index in of["indices"]:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            indices.append(index)
            continue
        count = _count(index)
        indices += [torch.empty(count, dtype=torch.long, device="meta") for _ in range(index.dim())]
        # Positions, and a mask of bytes as one of bits.
        scratch += 8 * count * index.dim() + (index.numel() if index.dtype == torch.uint8 else 0)
    made, _, _ = infer({**of, "indices": indices})
    return None if made is None else (made, scratch + _SMALL)


def _unique(of: dict[str, Any], _: Any) -> Needs:
    # Sorted values and their positions; then what is asked for.
    x = of["self"]
    asked = 16 if of.get("return_counts") else 0
    return None, x.numel() * (2 * x.itemsize + 16 + asked) + _SMALL


def _unique_in_dimension(of: dict[str, Any], _: Any) -> Needs:
    x = of["self"]
    return None, 4 * x.numel() * x.itemsize + 48 * max(x.shape, default=1) + _SMALL


def _unique_in_a_row(of: dict[str, Any], _: Any) -> Needs:
    x = of["self"]
    return None, x.numel() * (2 * x.itemsize + 16) + _SMALL


def _boxes(of: dict[str, Any], _: Any) -> Needs:
    return None, of["dets"].shape[0] * 96 + _SMALL


def _packed(of: dict[str, Any], _: Any) -> Needs:
    x, lengths = of["input"], of["lengths"]
    return None, 3 * x.numel() * x.itemsize + 8 * (x.shape[0] + x.shape[1] + lengths.numel()) + _SMALL


def _to_sparse(of: dict[str, Any], _: Any) -> Needs:
    x = of["self"]
    return None, 2 * _count(x) * (8 * x.dim() + x.itemsize) + _SMALL


def _successes(of: dict[str, Any], _: Any) -> Needs:
    # One for each count; operands are worked on as they are laid out, or as copies.
    count = of["count"]
    return [count.numel() * count.itemsize], 2 * count.numel() * count.itemsize + _SMALL


def _alignments(of: dict[str, Any], _: Any) -> Needs:
    # A loss for each sequence, and for each of its times a number for each label, and for each gap.
    scores = of["log_probs"]
    states = 2 * max((int(length) for length in of["target_lengths"]), default=0) + 1
    times, batch = scores.shape[:2]
    return [batch * scores.itemsize, batch * times * states * scores.itemsize], 64 * batch + _SMALL


def _alignments_backward(of: dict[str, Any], _: Any) -> Needs:
    scores, forward = of["log_probs"], of["log_alpha"]
    scratch = forward.numel() * forward.itemsize + 64 * scores.shape[1] + _SMALL
    return [scores.numel() * scores.itemsize], scratch


_SMALL = 1 << 12

BY_DATA: dict[str, Callable[[dict[str, Any], Any], Needs | None]] = {
    "aten::nonzero": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::repeat_interleave": _repeat_interleave,
    "aten::bincount": _bincount,
    "aten::index": _indexed,
    "aten::index_put": _indexed,
    "aten::index_put_": _indexed,
    "aten::_index_put_impl_": _indexed,
    "aten::to_sparse": _to_sparse,
    "aten::_to_sparse": _to_sparse,
    "aten::_unique": _unique,
    "aten::_unique2": _unique,
    "aten::unique_dim": _unique_in_dimension,
    "aten::unique_consecutive": _unique_in_a_row,
    "aten::unique_dim_consecutive": _unique_in_dimension,
    "torchvision::nms": _boxes,
    "aten::_pack_padded_sequence": _packed,
    "aten::binomial": _successes,
    "aten::_ctc_loss": _alignments,
    "aten::_ctc_loss_backward": _alignments_backward,
}


# Ops whose results have the dtype of their operands, where these have one and the same, and their common
# shape. What PyTorch would say of them on meta tensors is computed in Python, and takes twenty times as long.
_ALIKE = {
    f"aten::{name}"
    for name in (
        "add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "rsqrt", "reciprocal", "tanh", "sigmoid",
        "relu", "gelu", "silu", "abs", "sin", "cos", "erf", "square", "maximum", "minimum", "addcmul",
        "addcdiv", "lerp", "gelu_backward", "silu_backward", "tanh_backward", "sigmoid_backward",
        "threshold_backward",
    )
}  # fmt: skip


def of_pointwise(func: Any, args: Any, kwargs: Any, operands: list[torch.Tensor]) -> list[int] | None:
    """Bytes of what a simple pointwise op makes, or none if it isn't one, or its operands aren't simple."""
    name = func._schema.name
    inplace = name.endswith("_") and name[:-1] in _ALIKE
    if not (inplace or name in _ALIKE) or func._overloadname not in ("default", "Tensor", "Scalar"):
        return None
    wide = {operand.dtype for operand in operands if operand.dim() > 0}
    scalars = (*args, *(kwargs or {}).values())
    simple = (
        len(wide) == 1
        and all(operand.dtype.is_floating_point and operand.layout == torch.strided for operand in operands)
        and all(type(operand) in (torch.Tensor, torch.nn.Parameter) for operand in operands)
        and not any(isinstance(scalar, complex) for scalar in scalars)
        and (kwargs or {}).get("out") is None
    )
    if not simple:
        return None
    if inplace:
        return []
    try:
        shape = torch.broadcast_shapes(*(operand.shape for operand in operands))
    except RuntimeError:  # A wrong call fails when it is made, with PyTorch's own words.
        return None
    return [math.prod(shape) * next(iter(wide)).itemsize]
