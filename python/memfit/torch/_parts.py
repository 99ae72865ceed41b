"""Tensors within other values, and tensors that are more than a window on one storage."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

QUANTIZED = [torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4]
"""Dtypes of tensors whose bytes do not say what they are."""

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_PER_CHANNEL = (
    torch.per_channel_affine,
    torch.per_channel_symmetric,
    torch.per_channel_affine_float_qparams,
)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors(element)
    elif isinstance(value, dict):
        for element in value.values():
            yield from tensors(element)


def inside(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Plain tensors over the storages of such a tensor; none of any other."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in _COMPRESSED:
        return [getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]]
    if tensor.is_nested:
        sizes = [tensor._nested_tensor_size(), tensor._nested_tensor_strides()]
        return [tensor, *sizes, tensor._nested_tensor_storage_offsets()]
    if tensor.dtype in QUANTIZED:
        scales = tensor.qscheme() in _PER_CHANNEL
        more = [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()] if scales else []
        return [tensor, *more]
    return []


def plain(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Plain tensors over the storages of any tensor: those inside it, or itself."""
    return inside(tensor) or [tensor]


def is_opaque(tensor: torch.Tensor) -> bool:
    """Whether the bytes are in no storage: those of a tensor in oneDNN's layout."""
    return tensor.is_mkldnn


_stand_ins = WeakIdKeyDictionary()


def stand_in(tensor: torch.Tensor) -> torch.UntypedStorage:
    """A storage without memory that has as many bytes as such a tensor, and lives as long."""
    if tensor not in _stand_ins:
        size = torch.ops.mkldnn._nbytes(tensor)
        _stand_ins[tensor] = torch._C._construct_storage_from_data_pointer(0, tensor.device, size)
    made: torch.UntypedStorage = _stand_ins[tensor]
    return made


# They give a tensor of the same size, in the other layout or the same.
_CHANGE_LAYOUT = ("aten::to_mkldnn", "aten::to_mkldnn_backward", "aten::_to_dense", "aten::clone")


def refuse_opaque(func: Any, operands: Iterable[torch.Tensor], layout: torch.layout | None) -> None:
    """What an op makes in oneDNN's layout can be of any size: it's an error, but for a few."""
    opaque = layout == torch._mkldnn or any(map(is_opaque, operands))  # type: ignore[attr-defined]
    if opaque and func._schema.name not in _CHANGE_LAYOUT:
        raise RuntimeError(
            f"memfit: nobody knows how much memory `{func}` takes for tensors in oneDNN's layout\n"
            "hint: `to_dense()` before, or make the call without a budget"
        )
