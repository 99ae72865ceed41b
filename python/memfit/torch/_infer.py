"""What a call will make, before it runs: bytes of its results and of its scratch memory, by meta tensors."""

from typing import Any

import torch
from torch.utils import _pytree as pytree

from memfit.torch import _attention, _convolution, _generators, _recurrent, _sizes, _sparse
from memfit.torch._parts import refuse_opaque, tensors

_META = torch.device("meta")
_SMALL = 1 << 10


def infer(func: Any, args: Any, kwargs: Any) -> tuple[list[int] | None, int, bool]:
    """Bytes of each storage that the call will make (`None` if only the data can say), of its scratch memory,
    and whether the latter is only a bound. Nothing is computed: the call is made on meta tensors.
    """
    operands = list(tensors((args, kwargs)))
    refuse_opaque(func, operands, (kwargs or {}).get("layout"))
    if (pointwise := _sizes.of_pointwise(func, args, kwargs, operands)) is not None:
        return pointwise, _SMALL, False
    if func._schema.name in _sparse.FROM_PARTS:
        return [], _SMALL, False
    read = sum(operand.numel() * operand.element_size() for operand in operands)
    if not _sizes.makes_tensors(func):
        return [], _unknown(read), True
    if not _runs_on_meta(func):
        return None, _unknown(read), True
    # What a kernel in Python draws, to name a collective say, it draws once: when the op runs.
    generators = [] if func.namespace in _BUILTIN else _generators.keep()
    try:
        results = _on_meta(func, args, kwargs or {})
    except Exception:  # A wrong call fails again when it is made, with PyTorch's own words.
        return None, _unknown(read), True
    finally:
        for put_back in generators:
            put_back()
    sizes = [storage.nbytes() for storage, _ in results]
    name = func._schema.name
    dtypes = {operand.dtype for operand in operands if operand.dim() > 0}
    alike = len(dtypes) <= 1 and not any(dtype.is_complex for dtype in dtypes)
    made = sum(sizes)
    if torch.Tag.pointwise in func.tags and alike and name not in _IN_PARTS:
        if not _converts((args, kwargs), operands, [dtype for _, dtype in results]):
            return sizes, _SMALL, False
        # Copies of the operands, in the widest type that there is.
        return sizes, 8 * sum(operand.numel() for operand in operands) + made + _SMALL, True
    # What has less than 32 bits may be worked on in 32.
    wider = max([1, *(4 // dtype.itemsize for dtype in dtypes if dtype.is_floating_point)])
    in_parts = name in _REDUCTIONS and any(operand.is_cuda for operand in operands)
    if name in _LITTLE_SCRATCH and alike and wider == 1 and not in_parts:
        return sizes, made // 4 + _SMALL, True
    if name in _SCRATCH_AS_RESULTS and wider == 1:
        return sizes, made + _SMALL, True
    if name in _convolution.NAMES:
        return sizes, _convolution.scratch(func, args, kwargs or {}, made), True
    if name == _recurrent.NAME:
        return sizes, _recurrent.scratch(args), True
    if name in (_attention.FORWARD, _attention.BACKWARD):
        return sizes, _attention.scratch(name, args, read, made), True
    return sizes, wider * (read + made) + _SMALL, True


def sizes(func: Any, args: Any, kwargs: Any) -> _sizes.Needs | None:
    """What a call needs whose sizes `infer` can't say; its operands are there, and are looked at."""
    return _sizes.sizes(func, args, kwargs, infer)


# Pointwise ops that are made of others.
_IN_PARTS = {"aten::isinf"}
# What kernels of PyTorch's were seen to need at most; of all others as much as they read and make.
_LITTLE_SCRATCH = {
    f"aten::{name}"
    for name in (
        "mm", "addmm", "bmm", "baddbmm", "clone", "copy_", "cat", "stack", "_log_softmax", "_softmax",
        "_log_softmax_backward_data", "_softmax_backward_data", "native_layer_norm",
        "native_layer_norm_backward", "native_batch_norm", "sum", "mean", "amax", "amin", "max", "min",
        "embedding", "nll_loss_forward", "nll_loss_backward", "max_pool2d_with_indices",
        "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward", "index_select", "gather",
        "fill_", "zero_", "zeros", "ones", "full", "empty", "empty_like", "zeros_like", "ones_like",
        "full_like", "new_empty", "new_zeros", "empty_strided", "new_empty_strided", "bernoulli_",
        "normal_", "uniform_", "random_", "native_dropout", "native_dropout_backward", "_to_copy",
    )
}  # fmt: skip
# On CUDA many blocks of threads reduce parts of a row: what each has found is written down.
_REDUCTIONS = {f"aten::{name}" for name in ("sum", "mean", "amax", "amin", "max", "min")}
_SCRATCH_AS_RESULTS = {"aten::native_batch_norm_backward", "aten::_safe_softmax"}


_BUILTIN = ("aten", "prims")


def _runs_on_meta(func: Any) -> bool:
    """Whether the op may be called with meta tensors: a kernel not written for them reads address 0."""
    if func.namespace in _BUILTIN:
        return True
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "Meta")


def _converts(arguments: Any, operands: list[torch.Tensor], results: list[torch.dtype]) -> bool:
    """Whether a pointwise kernel works on copies of its operands in another type.

    So it is where a number or a tensor of a single one is of a higher kind than they are (`mask > 0`), and
    where whole numbers make fractions (`count / 2`).
    """
    wide = next((operand.dtype for operand in operands if operand.dim() > 0), None)
    if wide is None:
        return False
    own = _kind(wide)
    single = [_kind(operand.dtype) for operand in operands if operand.dim() == 0]
    numbers = [_KINDS[type(leaf)] for leaf in pytree.tree_leaves(arguments) if type(leaf) in _KINDS]
    return max([own, *single, *numbers]) > own or (
        own < _KINDS[float] and any(_kind(dtype) >= _KINDS[float] for dtype in results)
    )


_KINDS: dict[type, int] = {bool: 0, int: 1, float: 2, complex: 3}


def _kind(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return _KINDS[complex]
    if dtype.is_floating_point:
        return _KINDS[float]
    return _KINDS[bool if dtype == torch.bool else int]


def _unknown(read: int) -> int:
    return 2 * read + _SMALL


def _on_meta(func: Any, args: Any, kwargs: dict[str, Any]) -> list[tuple[torch.UntypedStorage, torch.dtype]]:
    storages: dict[int, torch.UntypedStorage] = {}

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            own = value.untyped_storage()
            storage = storages.setdefault(id(own), torch.UntypedStorage(own.nbytes(), device="meta"))
            empty = torch.empty(0, dtype=value.dtype, device=_META)
            return empty.set_(storage, value.storage_offset(), value.shape, value.stride())
        if isinstance(value, (list, tuple)):
            return type(value)(map(convert, value)) if type(value) in (list, tuple) else value
        return _META if isinstance(value, torch.device) else value

    with torch._C._DisableTorchDispatch():
        if any(argument.name == "device" for argument in func._schema.arguments):
            kwargs = {**kwargs, "device": _META}
        kwargs = {name: convert(value) for name, value in kwargs.items() if name != "generator"}
        result = func(*map(convert, args), **kwargs)
    known = {id(storage) for storage in storages.values()}
    made: dict[int, tuple[torch.UntypedStorage, torch.dtype]] = {}
    for value in tensors(result):
        storage = value.untyped_storage()
        if id(storage) not in known:
            made[id(storage)] = storage, value.dtype
    return list(made.values())
