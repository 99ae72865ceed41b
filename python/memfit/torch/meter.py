"""Measures what PyTorch's own allocator gives out, independently of all bookkeeping of memfit's."""

import weakref
from collections.abc import Callable
from typing import Any

import torch

from memfit import _memfit
from memfit.torch import _cuda
from memfit.torch._alive import live_storages
from memfit.torch._glue import COUNTED, note_block


class Meter:
    """The most bytes that tensors of one device had at a time while the block ran.

    On a CPU, what is alive at the start plus what the allocator gave out since and took back, on all threads;
    on CUDA, the allocator's statistics. No profiler is used. Where the CPU's allocator can't be watched
    (anywhere but on 64-bit Linux) `peak_bytes` is `None`.

    ```python
    with Meter() as meter:
        step()
    print(meter.peak_bytes)
    ```
    """

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        self.peak_bytes: int | None = 0
        self._start = self._used = self._outer = 0
        self._foreign: list[weakref.ref[torch.UntypedStorage]] = []

    def __enter__(self) -> "Meter":
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            _cuda.begin_peak(self.device)
        else:
            storages = live_storages(self.device)
            self._start = sum(storage.nbytes() for storage in storages)
            # The allocator does not tell when bytes go that are not its own: their owners do.
            self._foreign = [_watch(storage) for storage in storages if not note_block(storage)]
            self._used, self._outer = _memfit.allocator_begin(False)
        return self

    def __exit__(self, *raised: Any) -> None:
        if self.device.type == "cuda":
            self.peak_bytes = _cuda.peak(self.device)
            return
        self._foreign.clear()
        _, peak = _memfit.allocator_end(False, self._outer)
        self.peak_bytes = self._start + peak - self._used if COUNTED else None


def _watch(storage: torch.UntypedStorage) -> "weakref.ref[torch.UntypedStorage]":
    size = storage.nbytes()
    return weakref.ref(storage, lambda _: _memfit.allocator_gone(size))


class StepMeter:
    """As `Meter`, for step after step: what is alive is counted once, when this is made.

    `is_there` says of a storage whether its bytes are on the device at that moment.
    """

    def __init__(self, device: torch.device, is_there: Callable[[torch.UntypedStorage], bool]) -> None:
        self._device = device
        self._counts = device.type == "cpu" and COUNTED
        self._beyond = self._outer = 0
        if self._counts:
            storages = [storage for storage in live_storages(device) if is_there(storage)]
            for storage in storages:
                note_block(storage)
            used, outer = _memfit.allocator_begin(False)
            _memfit.allocator_end(False, outer)
            self._beyond = sum(storage.nbytes() for storage in storages) - used

    def held(self) -> int | None:
        """What is there now; `None` where nothing is counted."""
        used = given_out(self._device)
        return None if used is None else self._beyond + used

    def begin(self) -> None:
        """A step begins."""
        if self._counts:
            _, self._outer = _memfit.allocator_begin(False)

    def end(self) -> int | None:
        """Its peak; `None` where nothing is counted."""
        return self._beyond + _memfit.allocator_end(False, self._outer)[1] if self._counts else None


def given_out(device: torch.device) -> int | None:
    """Bytes that the allocator of `device` has given out and not taken back, from a beginning of its own;
    `None` where nobody counts.
    """
    if device.type == "cuda":
        return _cuda.allocated(device)[0]
    if device.type != "cpu" or not COUNTED:
        return None
    used, outer = _memfit.allocator_begin(False)
    _memfit.allocator_end(False, outer)
    return used


def live_bytes(device: torch.device) -> int:
    """Bytes of all storages on `device` that Python can reach, each once."""
    return sum(storage.nbytes() for storage in live_storages(device))
