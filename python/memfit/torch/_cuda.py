"""What CUDA has of its own: its allocator's count, times, and what is doubtful there. See docs/pytorch.md."""

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from memfit.torch import _parts

BLOCK = 512
"""Bytes to a multiple of which the caching allocator rounds up."""

_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")

Result = TypeVar("Result")

_highest: dict[int, int] = {}
"""Of each device, the most bytes since `begin_peak` that the allocator was told to forget."""


def begin_peak(device: torch.device) -> None:
    """The most bytes that the allocator of `device` gives out at a time are counted from here on."""
    torch.cuda.reset_peak_memory_stats(device)
    _highest[_index(device)] = 0


def allocated(device: torch.device | int | None = None) -> tuple[int, int]:
    """Bytes that the allocator has given out, now and at most since its peak was reset.

    `torch.cuda.memory_allocated` makes a table of all that it counts, which takes longer than most ops.
    """
    told = torch.cuda.memory_stats_as_nested_dict(device).get("allocated_bytes", {}).get("all", {})
    return told.get("current", 0), told.get("peak", 0)


def peak(device: torch.device) -> int:
    """The most bytes since `begin_peak`, in blocks as the allocator gives them out."""
    return max(allocated(device)[1], _highest.get(_index(device), 0))


def measured(call: Callable[[], Result]) -> tuple[Result, int, int]:
    """What `call` returns, the most bytes at a time meanwhile, and those at the end, beyond those of before.

    The allocator has one peak, which is reset for this: `peak` remembers what it was.
    """
    at = torch.cuda.current_device()
    before, highest = allocated(at)
    _highest[at] = max(_highest.get(at, 0), highest)
    torch.cuda.reset_peak_memory_stats(at)
    result = call()
    after, most = allocated(at)
    return result, most - before, after - before


def timed(func: Any, args: Any, kwargs: Any) -> tuple[Any, int, int, int]:
    """Calls, and returns the result, scratch bytes, ns on the device, and bytes that are left beside results.

    Libraries keep memory of their own from their first call on: cuBLAS its workspaces, one for each thread.
    """

    def call() -> tuple[Any, int]:
        if torch.cuda.is_current_stream_capturing():
            # Who captures a graph may not wait: it is the launch that is timed.
            began = time.perf_counter_ns()
            return func(*args, **(kwargs or {})), time.perf_counter_ns() - began
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        result = func(*args, **(kwargs or {}))
        end.record()
        end.synchronize()
        return result, round(1e6 * begin.elapsed_time(end))

    (result, took), most, left = measured(call)
    given, made = _blocks((args, kwargs)), _blocks(result)
    taken = max(0, left - sum(size for storage, size in made.items() if storage not in given))
    return result, max(0, most - max(left, 0)), took, taken


def _blocks(values: Any) -> dict[int, int]:
    """Bytes of the block of each storage in `values`."""
    tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.is_cuda]
    storages = [part.untyped_storage() for tensor in tensors for part in _parts.plain(tensor)]
    return {storage._cdata: block(storage.nbytes()) for storage in storages}


def block(size: int) -> int:
    """Bytes that the caching allocator gives out for `size`."""
    return -(-size // BLOCK) * BLOCK


def prepare(device: torch.device) -> None:
    """Has the allocator give out just what is asked for, and PyTorch's libraries take what they keep.

    Without expandable segments a block can be up to 1 MiB larger than what was asked for. Whoever has set the
    allocator up keeps that.
    """
    if not any(map(os.environ.get, _SETTINGS)):
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    # A product and its gradient: handles of this thread and of autograd's take their workspaces.
    with torch.inference_mode(False), torch.enable_grad():
        layer = torch.ones(32, 32, device=device, requires_grad=True)
        made = torch.addmm(layer[0], layer, layer) @ layer
        torch.autograd.grad(made.sum(), layer)
    torch.cuda.synchronize(device)


def foreign(device: torch.device, known: int) -> int:
    """Bytes of the allocator beyond the `known` ones: workspaces that libraries keep, and what blocks were
    rounded up to.
    """
    return max(0, allocated(device)[0] - known)


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def is_on_side_stream() -> bool:
    """Whether ops run on another stream than the device's own."""
    # The handle of the default stream is 0. Stream objects would cost more than some ops.
    return bool(torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice()))


def is_chosen_anew(base: str) -> bool:
    """Whether the algorithm of an op on CUDA, or its dropout, may be another one when it is repeated."""
    return "cudnn_rnn" in base or "cudnn_init_dropout" in base or is_chosen_by_time(base)


def is_chosen_by_time(base: str) -> bool:
    """Whether the algorithm of an op on CUDA is the one that was measured to be fastest in its thread."""
    return "convolution" in base and torch.backends.cudnn.benchmark


def switches() -> tuple[bool, ...]:
    """What `describe` depends on, beside the op."""
    return torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
