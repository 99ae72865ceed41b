"""Copies of a GPU's storages in pinned host memory, made and read back beside ops.

One block of exactly the host budget is pinned when the budget begins: no copy asks the driver for memory, and
nothing is rounded up. Two streams copy, one in each direction. An event ends each copy; the stream of the ops
waits for it before what was copied is freed, so the caching allocator, which hands memory out again in the
order of that stream, need not be told more. A slice of the block is used again after the event of its last
reader.
"""

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from memfit._errors import BudgetError
from memfit.torch import _coded, _glue

_GRAIN = 512
"""Bytes to a multiple of which slices begin: copies of a GPU are fastest from there."""

_TRIAL = 64 << 20
"""Bytes that are copied to see how fast the link is."""

Direction = Literal["out", "in"]


class Streams(Protocol):
    """Where copies run beside ops."""

    def begin(self, direction: Direction, work: Callable[[], None], after: Iterable[Any]) -> Any:
        """Has `work` done in `direction` after all ops so far and the events `after`; its event."""

    def join(self, event: Any) -> None:
        """Later ops run after `event`."""


class CudaStreams:
    """Two streams of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams = {"out": torch.cuda.Stream(device), "in": torch.cuda.Stream(device)}

    def begin(self, direction: Direction, work: Callable[[], None], after: Iterable[Any]) -> Any:
        stream = self._streams[direction]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        for event in after:
            stream.wait_event(event)
        with torch.cuda.stream(stream):
            work()
        return stream.record_event()

    def join(self, event: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)


class Arena:
    """Slices of `size` bytes: the smallest hole that is large enough, the first of equal ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._holes: list[tuple[int, int]] = [(0, size)] if size > 0 else []

    def take(self, size: int) -> int | None:
        """Where a slice of `size` bytes begins; `None` if no hole is that large."""
        size = _whole(size)
        fits = [(end - start, at) for at, (start, end) in enumerate(self._holes) if end - start >= size]
        if not fits:
            return None
        _, at = min(fits)
        start, end = self._holes[at]
        self._holes[at : at + 1] = [(start + size, end)] if end - start > size else []
        return start

    def give(self, start: int, size: int) -> None:
        """Takes a slice back."""
        holes = sorted([*self._holes, (start, start + _whole(size))])
        self._holes = []
        for begin, end in holes:
            if begin == end:
                continue
            if self._holes and self._holes[-1][1] == begin:
                self._holes[-1] = (self._holes[-1][0], end)
            else:
                self._holes.append((begin, end))


def _whole(size: int) -> int:
    return -(-size // _GRAIN) * _GRAIN


@dataclass
class _Copy:
    start: int
    size: int
    event: Any
    """Of the last that wrote or read the slice."""
    into: torch.UntypedStorage | None = None
    """What is being filled from it."""
    source: torch.UntypedStorage | None = None
    """What is being copied."""


class Copies:
    """Copies by their numbers. `streams` read and write `memory`, the whole host budget."""

    def __init__(self, memory: torch.Tensor, streams: Streams) -> None:
        self._memory, self._streams = memory, streams
        self._arena = Arena(memory.nbytes // _GRAIN * _GRAIN)
        self._copies: dict[int, _Copy] = {}
        self._numbers = itertools.count(1)
        # Of slices that nobody has any more, which never overlap: the events of their last readers.
        self._ended: list[tuple[int, int, Any]] = []

    def store(self, storage: torch.UntypedStorage) -> int | None:
        """Begins a copy; its number, or `None` if there is no room."""
        size = storage.nbytes()
        start = self._arena.take(size)
        if start is None:
            return None
        after = self._readers(start, start + _whole(size))
        event = self._begin("out", start, storage, after)
        number = next(self._numbers)
        self._copies[number] = _Copy(start, size, event, source=storage)
        return number

    def _begin(
        self, direction: Direction, start: int, storage: torch.UntypedStorage, after: Iterable[Any]
    ) -> Any:
        there = self._memory[start : start + storage.nbytes()]
        return self._streams.begin(direction, functools.partial(_move, direction, there, storage), after)

    def _readers(self, start: int, end: int) -> list[Any]:
        """The events of those that had the slice before, which is another's from here on."""
        events, left = [], []
        for low, high, event in self._ended:
            if low < end and start < high:
                events.append(event)
            parts = ((low, min(high, start)), (max(low, end), high))
            left += [(begin, until, event) for begin, until in parts if begin < until]
        self._ended = left
        return events

    def load(self, number: int) -> None:
        """Begins to fill a new storage of the device from a copy."""
        copy = self._copies[number]
        made = _glue.blank(copy.size)
        copy.event = self._begin("in", copy.start, made, [copy.event])
        copy.into = made

    def wait(self, number: int) -> torch.UntypedStorage | None:
        """Has ops wait for what is under way; the storage that was filled, if one was."""
        copy = self._copies[number]
        self._streams.join(copy.event)
        made, copy.into, copy.source = copy.into, None, None
        return made

    def discard(self, number: int) -> None:
        """Forgets a copy. What it was made of, or fills, may go: ops wait for the transfer first."""
        copy = self._copies.pop(number, None)
        if copy is None:
            return
        if copy.into is not None or copy.source is not None:
            self._streams.join(copy.event)
        self._arena.give(copy.start, copy.size)
        self._ended.append((copy.start, copy.start + _whole(copy.size), copy.event))


def _move(direction: Direction, there: torch.Tensor, storage: torch.UntypedStorage) -> None:
    with torch._C._DisableTorchDispatch():
        held = _glue.flat(storage)
        to, source = (there, held) if direction == "out" else (held, there)
        to.copy_(source, non_blocking=True)


def pinned(size: int) -> torch.Tensor:
    """Exactly `size` bytes of host memory that the GPU reads and writes by itself.

    PyTorch's own pinned memory is rounded up to a power of two.
    """
    memory = torch.empty(size, dtype=torch.uint8)
    code = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), size, 0)
    if int(code) != 0:
        raise BudgetError(
            f"{size} bytes of host memory for copies can't be pinned (CUDA error {int(code)})",
            hint="a smaller `host_budget`, or a higher limit of locked memory (`ulimit -l`)",
        )
    return memory


def means(told: dict[str, Any], device: torch.device) -> tuple[dict[str, Any], Callable[[], None]]:
    """What an engine on `device` is `told`, and what ends it: where there are streams, copies in pinned
    memory, how fast their link is, and codecs by ops of the device.
    """
    size = told["host_budget"]
    if device.type != "cuda":
        return {**told, "pinned": None, "coded": None}, lambda: None
    lossless, lossy = _coded.fixed(told["lossless"], told["lossy"])
    coded = _coded.Coded() if lossless or lossy else None
    told = {**told, "lossless": lossless, "lossy": lossy, "coded": coded}
    if size < _GRAIN:
        return {**told, "pinned": None}, lambda: None
    memory = pinned(size)
    link = told["link"] or rate(memory, device)
    copies = Copies(memory, CudaStreams(device))
    return {**told, "pinned": copies, "link": link}, lambda: release(memory)


def release(memory: torch.Tensor) -> None:
    """Ends what `pinned` began, once no copy is under way."""
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())


def rate(memory: torch.Tensor, device: torch.device) -> float:
    """Bytes per second of the link to `memory`, the slower of both directions."""
    size = min(memory.nbytes, _TRIAL)
    there, here = memory[:size], torch.empty(size, dtype=torch.uint8, device=device)
    slowest = 0.0
    for to, source in ((there, here), (here, there)):
        times = []
        for _ in range(3):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            to.copy_(source, non_blocking=True)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        slowest = max(slowest, min(times))
    return size / max(slowest * 1e-3, 1e-9)
