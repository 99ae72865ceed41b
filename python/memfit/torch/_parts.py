"""Tensors that are more than a window on one storage, and what they are made of."""

import torch

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
    return []  # Of other layouts the bytes are out of reach.
