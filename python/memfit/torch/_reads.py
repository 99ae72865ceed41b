"""Reads of tensors that PyTorch makes without an op, so that no dispatch mode sees them.

While a budget is active they are wrapped: what was evicted is brought back first. What hands out an address
or writes to it, by NumPy or DLPack, also keeps the bytes where they are from then on, and all that is
computed from them. The wrappers are made once: `torch.compile` guards on the functions that it finds.
"""

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import UntypedStorage

from memfit.torch import _compiled

Decide = Callable[[str, Any], None]
"""Does `restore`, `expose` or `adopt` to a tensor or a storage."""
Make = Callable[[Callable[[], torch.Tensor]], torch.Tensor]
"""Calls what makes a generator's state: room is made before, and the tensor counts at once."""

_decide: Decide | None = None
_make: Make | None = None
_replaced: list[tuple[Any, str, Any]] = []
_ABSENT = object()
_MEAN = 1
"""The reduction, as PyTorch numbers them."""

# Methods of tensors. Those that give a number are called by C code too, for the elements of a list.
_HAND_OUT = (
    "numpy", "__array__", "__dlpack__", "data_ptr", "const_data_ptr", "share_memory_", "storage",
    "apply_", "map_", "map2_",
)  # fmt: skip
_READ = (
    "tolist", "__deepcopy__", "__reduce_ex__", "__repr__", "__bool__", "__int__", "__float__", "__complex__",
    "__index__", "new_tensor", "new",
)  # fmt: skip
# Methods of storages.
_STORAGE_HANDS_OUT = (
    "data_ptr", "copy_", "fill_", "__setitem__", "byteswap", "_byteswap", "share_memory_", "_share_memory_",
    "_share_fd_cpu_", "_share_filename_cpu_", "_share_cuda_", "_set_from_file", "resize_",
)  # fmt: skip
_STORAGE_READS = (
    "__getitem__", "__iter__", "__copy__", "__deepcopy__", "__reduce__", "__repr__", "clone", "tolist", "cpu",
    "_to", "pin_memory", "_write_file", "resizable",
)  # fmt: skip
# Functions. Elements of lists are read by the methods above.
_FUNCTIONS_READ = (
    ("torch", "as_tensor"), ("torch", "asarray"), ("torch", "scalar_tensor"),
    ("torch", "set_rng_state"), ("torch.random", "set_rng_state"),
    ("torch.cuda", "set_rng_state"), ("torch.cuda.random", "set_rng_state"),
)  # fmt: skip
_FUNCTIONS_HAND_OUT = (
    ("torch", "to_dlpack"), ("torch.utils.dlpack", "to_dlpack"), ("torch._C", "_to_dlpack"),
    ("torch._C", "_to_dlpack_versioned"),
)  # fmt: skip


_READERS = {
    "torch.serialization": "restore",
    "accelerate.utils.modeling": "keep",
    "huggingface_hub.serialization._torch": "keep",
    "safetensors.torch": "keep",
    "transformers.modeling_utils": "keep",
    "transformers.pytorch_utils": "keep",
}
"""Modules that want addresses to compare them, or to write a file: nobody writes to the bytes. Where others
are looked at before the address is used, the bytes stay there.
"""
_STATE = (("torch", "get_rng_state"), ("torch.random", "get_rng_state"))
"""Functions that make a tensor of a generator's state, without an op."""


def patch(decide: Decide, make: Make) -> None:
    """From here on the reads ask `decide` first."""
    global _decide, _make
    _decide, _make = decide, make
    for owner, name, wrapper in _wrappers():
        _replaced.append((owner, name, vars(owner).get(name, _ABSENT)))
        if wrapper is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, wrapper)


def unpatch() -> None:
    """Undoes `patch`."""
    global _decide, _make
    _decide = _make = None
    while _replaced:
        owner, name, original = _replaced.pop()
        if original is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


@contextlib.contextmanager
def heard(hear: Decide) -> Iterator[None]:
    """While the block runs, `hear` is told of each read before it as well."""
    global _decide
    decide = _decide
    if decide is None:
        yield
        return

    def both(decision: str, owner: Any) -> None:
        if decision != "adopt":  # That is of what is made.
            hear(decision, owner)
        decide(decision, owner)

    _decide = both
    try:
        yield
    finally:
        if _decide is both:
            _decide = decide


@contextlib.contextmanager
def unpatched() -> Iterator[None]:
    """While the block runs, nothing is wrapped."""
    decide, make = _decide, _make
    unpatch()
    try:
        yield
    finally:
        if decide is not None and make is not None:
            patch(decide, make)


@functools.cache
def _wrappers() -> tuple[tuple[Any, str, Any], ...]:
    found: list[tuple[Any, str, Any]] = []

    def wrap(owner: Any, names: tuple[str, ...], decision: str) -> None:
        for name in names:
            original = getattr(owner, name, None)
            if original is not None:
                found.append((owner, name, _wrapper(original, decision)))

    wrap(torch.Tensor, _HAND_OUT, "expose")
    wrap(torch.Tensor, _READ, "restore")
    wrap(UntypedStorage, _STORAGE_HANDS_OUT, "expose")
    wrap(UntypedStorage, _STORAGE_READS, "restore")
    wrap(torch._C.PyTorchFileWriter, ("write_record",), "restore")
    for functions, decision in ((_FUNCTIONS_READ, "restore"), (_FUNCTIONS_HAND_OUT, "expose")):
        for module, name in functions:
            wrap(importlib.import_module(module), (name,), decision)
    found.append((torch, "tensor", _tensor(_wrapper(torch.tensor, "restore"))))
    for module, name in _STATE:
        owner = importlib.import_module(module)
        found.append((owner, name, _state(getattr(owner, name))))
    found += [_compiled.compile_function(), _compiled.increment_function()]
    found.append((torch._C._nn, "cross_entropy_loss", _cross_entropy(torch._C._nn.cross_entropy_loss)))
    if "__dlpack_c_exchange_api__" in vars(torch.Tensor):
        # C code would read by it without asking; without it, it calls `__dlpack__`.
        found.append((torch.Tensor, "__dlpack_c_exchange_api__", _ABSENT))
    return tuple(found)


def _wrapper(original: Any, decision: str) -> Any:
    @functools.wraps(original)
    def asking(*args: Any, **kwargs: Any) -> Any:
        # What is traced has no bytes.
        if _decide is not None and not torch.compiler.is_compiling():
            first = _for_caller(decision) if decision == "expose" else decision
            for value in (*args, *kwargs.values()):
                if first == "keep" and isinstance(value, (UntypedStorage, torch.Tensor)):
                    _decide("restore", value)
                if isinstance(value, UntypedStorage):
                    _decide(first, value)  # A tensor is made on it, which wants its bytes to be there.
                elif isinstance(value, torch.Tensor):
                    _decide(first, value)
                    first = "restore"  # Only the first is written to, or handed out.
        return original(*args, **kwargs)

    return asking


def _for_caller(decision: str) -> str:
    """What becomes of `decision` where the wrapper's caller only reads.

    Typed storages ask their untyped ones: the caller is theirs.
    """
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__") == "torch.storage" and frame.f_back is not None:
        frame = frame.f_back
    return _READERS.get(frame.f_globals.get("__name__", ""), decision)


def _tensor(original: Any) -> Any:
    """What `torch.tensor` makes counts at once, not only when an op reads it.

    Optimizers make a number for each parameter before they use the first.
    """

    @functools.wraps(original)
    def made(*args: Any, **kwargs: Any) -> Any:
        tensor = original(*args, **kwargs)
        if _decide is not None and type(tensor) is torch.Tensor and not torch.compiler.is_compiling():
            _decide("adopt", tensor)
        return tensor

    return made


def _state(original: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    @functools.wraps(original)
    def made() -> torch.Tensor:
        if _make is None or torch.compiler.is_compiling():
            return original()
        return _make(original)

    return made


def _cross_entropy(original: Any) -> Any:
    """Where ops are watched, the weights of targets that are ignored are added as zeros: in another order."""

    @functools.wraps(original)
    def asking(logits: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        names = ("weight", "reduction", "ignore_index", "label_smoothing")
        given = dict(zip(names, args, strict=False)) | kwargs
        if (
            _decide is not None
            and given.get("label_smoothing", 0.0) > 0
            and given.get("weight") is not None
            and given.get("reduction", _MEAN) == _MEAN
            and target.shape != logits.shape
            and bool((target == given.get("ignore_index", -100)).any())
        ):
            raise RuntimeError(
                "memfit: PyTorch computes `cross_entropy` with label smoothing, weights of classes and "
                "ignored targets by another formula where ops are watched: its last bits would differ\n"
                "hint: leave out the ignored targets, or one of the two"
            )
        return original(logits, target, *args, **kwargs)

    return asking
