"""Measures what PyTorch's own allocator gives out, independently of all bookkeeping of memfit's."""

import gc
from typing import Any

import torch

from memfit.torch._glue import AllocatorEvents


class Meter:
    """The most bytes that tensors of one device had at a time while the block ran.

    On a CPU, what is alive at the start plus the allocator's events in this thread; on CUDA, the allocator's statistics.

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

    def __enter__(self) -> "Meter":
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self._start = live_bytes(self.device)
            self._events = AllocatorEvents()
            self._events.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
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
    storages: dict[int, int] = {}
    for thing in gc.get_objects():
        try:
            if isinstance(thing, torch.Tensor) and thing.device.type == device.type:
                storage = thing.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
        except Exception:  # noqa: BLE001 - tensors without a storage, proxies that look like tensors
            continue
    return sum(storages.values())
