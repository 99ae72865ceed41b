"""Measures what PyTorch's own allocator gives out, independently of all bookkeeping of memfit's."""

import weakref
from typing import Any

import torch

from memfit.torch._alive import live_storages
from memfit.torch._glue import AllocatorEvents, mark_freed


class Meter:
    """The most bytes that tensors of one device had at a time while the block ran.

    On a CPU, what is alive at the start plus the allocator's events in this thread; on CUDA, the allocator's
    statistics.

    ```python
    with Meter() as meter:
        step()
    print(meter.peak_bytes)
    ```
    """

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        self.peak_bytes = 0
        self._events: AllocatorEvents | None = None
        self._start = 0
        self._watched: list[weakref.ref[torch.UntypedStorage]] = []

    def __enter__(self) -> "Meter":
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self._events = AllocatorEvents()
            self._events.__enter__()
            # The allocator does not tell when blocks go that were there before: their owners do.
            self._watched = [self._watch(storage) for storage in live_storages(self.device)]
        return self

    def _watch(self, storage: torch.UntypedStorage) -> weakref.ref[torch.UntypedStorage]:
        size = storage.nbytes()
        self._start += size
        return weakref.ref(storage, lambda _: mark_freed(size))

    def __exit__(self, *raised: Any) -> None:
        self._watched.clear()
        if self._events is None:
            self.peak_bytes = torch.cuda.max_memory_allocated(self.device)
            return
        self._events.__exit__()
        used = self.peak_bytes = self._start
        for change in self._events.changes:
            used += change
            self.peak_bytes = max(self.peak_bytes, used)


def live_bytes(device: torch.device) -> int:
    """Bytes of all storages on `device` that Python can reach, each once."""
    return sum(storage.nbytes() for storage in live_storages(device))
