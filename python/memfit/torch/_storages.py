"""The memory of two storages exchanged: by PyTorch's own call where there is one, else by hand."""

import ctypes
from collections.abc import Callable

import torch

# In PyTorch before 2.14 a storage is a table pointer, two counts in one word, then this: pointer, context and
# device of the memory (32 bytes), its size (8), seven flags (8), the allocator (8). What `_swap_data_ptr_`
# exchanges in newer ones is just these 56 bytes.
_BEGIN, _SIZE, _LENGTH = 16, 48, 56


def _exchange(one: torch.UntypedStorage, other: torch.UntypedStorage) -> None:
    left, right = one._cdata + _BEGIN, other._cdata + _BEGIN
    kept = ctypes.string_at(left, _LENGTH)
    ctypes.memmove(left, right, _LENGTH)
    ctypes.memmove(right, kept, _LENGTH)


def _is_laid_out_so() -> bool:
    """Whether storages look as `_exchange` takes them to, on one that is made for it."""
    storage = torch.empty(4099, dtype=torch.uint8).untyped_storage()
    words = ctypes.string_at(storage._cdata, _BEGIN + _LENGTH)

    def word(at: int) -> int:
        return int.from_bytes(words[at : at + 8], "little")

    flags = words[_SIZE + 8 : _SIZE + 15]
    # On the heap, resizable, received, checked, three kinds of refused access.
    return (
        word(_BEGIN) == storage.data_ptr() and word(_SIZE) == 4099 and flags == bytes((0, 1, 0, 0, 0, 0, 0))
    )


def _native(one: torch.UntypedStorage, other: torch.UntypedStorage) -> None:
    one._swap_data_ptr_(other)  # type: ignore[attr-defined]  # Not in the stubs.


def _found() -> Callable[[torch.UntypedStorage, torch.UntypedStorage], None]:
    if hasattr(torch.UntypedStorage, "_swap_data_ptr_"):
        return _native
    if _is_laid_out_so():
        return _exchange
    raise ImportError(
        f"PyTorch {torch.__version__} has storages whose memory can't be exchanged\n"
        "hint: `pip install --upgrade torch`"
    )


swap = _found()
"""Exchanges memory, sizes, allocators and access guards of two storages; views of both stay as they are."""
