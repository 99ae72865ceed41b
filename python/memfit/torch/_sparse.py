"""Bounds for ops that read or make sparse tensors: for their results and scratch memory together.

Of each kind of op so much as its kernel allocates: copies of the positions and of the values, and for those
that sort some whole numbers for each element. python/tests/test_sparse.py measures them.
"""

import math
from typing import Any

import torch

from memfit.torch import _parts

# A copy that turns a matrix takes a block of 60 by 60 numbers.
_SMALL = 1 << 15
# For each element that is sorted: its number, key and place, each twice, once more where there are threads.
_SORTED = 64


def bound(func: Any, of: dict[str, Any]) -> int:
    """Bytes at most for a call with the arguments `of`, by name; operands have parts."""
    operands = [value for value in _flat(of.values()) if isinstance(value, torch.Tensor)]
    sparse = [operand for operand in operands if operand.layout != torch.strided]
    read = sum(map(size, operands))
    base = func._schema.name.split("::")[-1].strip("_")
    if base in _PARTS:
        return _SMALL
    # Those in oneDNN's layout have nothing to sort.
    own = [operand for operand in sparse if not _parts.is_opaque(operand)]
    made = sum(map(size, own))
    ordered = _SORTED * sum(operand._nnz() for operand in own)
    # What has fewer bytes for each number may become what has more.
    numbers = [operand for operand in operands if operand.is_floating_point()] + sparse
    wider = _width(numbers, of) // min(operand.itemsize for operand in sparse)
    if base == "to_dense":
        elements: int = of["self"].numel() * max(of["self"].itemsize, _width([], of))
        direct = wider == 1 and of["self"].layout == torch.sparse_coo and of["self"]._values().is_contiguous()
        return elements + (0 if direct else (2 * made + ordered) * wider) + _SMALL
    if base in ("mm", "sparse_mm", "addmm", "sparse_addmm", "bmm"):
        # Dense, once as it is and once turned; and the sparse one in another form.
        *_, left, right = (operand for operand in operands if operand.dim() >= 2)
        return 2 * math.prod((*left.shape[:-1], right.shape[-1])) * left.itemsize + 2 * read + _SMALL
    coordinates = all(operand.layout == torch.sparse_coo for operand in sparse)
    if coordinates and wider == 1:
        if base == "coalesce":
            return (1 if of["self"]._values().is_contiguous() else 2) * made + ordered + _SMALL
        if base == "sparse_mask" and of["self"].layout == torch.strided and of["mask"].is_coalesced():
            return 2 * made + ordered + _SMALL
        if base in ("add", "sub") and of["self"].layout == torch.strided:
            # Into the dense one, or a copy of it; element by element, or row by row in order.
            copy = 0 if func._schema.name.endswith("_") else size(of["self"])
            direct = of["self"].is_contiguous() and of["other"]._values().is_contiguous()
            return copy + (0 if direct else 2 * made + ordered) + _SMALL
    if base in ("clone", "copy", "zero", "detach") or (torch.Tag.pointwise in func.tags and len(sparse) < 2):
        return read * wider + _SMALL
    return 3 * read * wider + ordered + _SMALL


def _width(operands: list[torch.Tensor], of: dict[str, Any]) -> int:
    """Bytes of the widest number among the operands, and of what they are to become."""
    dtype: torch.dtype | None = of.get("dtype")
    return max([operand.itemsize for operand in operands] + [dtype.itemsize if dtype is not None else 1])


_PARTS = ("indices", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices")
"""Ops that hand out what a sparse tensor is made of."""

FROM_PARTS = {
    "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::_sparse_coo_tensor_unsafe",
    "aten::_sparse_compressed_tensor_unsafe",
    "aten::_sparse_csr_tensor_unsafe",
    "aten::_sparse_csc_tensor_unsafe",
    "aten::_sparse_bsr_tensor_unsafe",
    "aten::_sparse_bsc_tensor_unsafe",
}
"""Ops that make a sparse tensor of dense ones, without a copy."""


def _flat(values: Any) -> Any:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def size(tensor: torch.Tensor) -> int:
    """What an operand has in memory, without what its storage has besides."""
    if _parts.is_opaque(tensor):
        return _parts.stand_in(tensor).nbytes()
    if tensor.layout == torch.sparse_coo:
        return size(tensor._indices()) + size(tensor._values())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return sum(map(size, (tensor.crow_indices(), tensor.col_indices(), tensor.values())))
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return sum(map(size, (tensor.ccol_indices(), tensor.row_indices(), tensor.values())))
    return tensor.numel() * tensor.itemsize
