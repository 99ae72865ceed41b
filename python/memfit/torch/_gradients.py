"""How far gradients are from the exact ones, where plans hold values by codecs that lose something: sampled.

A sampled call runs once more before it runs: in a copy of this process, as it is, without a budget. What the
copy has as gradients when its optimizer begins is exact, for the same parameters, batch and random numbers.
Two calls in a row are sampled, so that there is something to compare an error with: how far apart their exact
gradients are is what another batch makes of a gradient (one update of the parameters lies between them).
"""

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from memfit.torch import _copy, _glue

# Pairs of calls that follow a lossy plan are sampled, the first of them at each power of this.
_SPARSER = 16
# Numbers that are compared at a time.
_CHUNK = 1 << 16

Gradients = dict[int, bytes]
"""By the parameter's `id`, which is the same in a copy of the process: `f32` numbers."""


@dataclass
class Sample:
    """The gradients of one call, all parameters together."""

    step: int
    """Number of the call, from 1."""
    error: float
    """Norm of what they differ by from the exact ones, as a share of the norm of those."""
    noise: float | None = None
    """Norm of what the exact ones of two calls differ by, as a share of the norm of the later ones; `None` if
    only one of the two is known."""


class Sampler:
    """Decides which calls are sampled, and compares."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.why: str | None = None
        """Why there are no more, if so."""
        self._steps = 0
        self._exact: Gradients | None = None
        self._last: tuple[int, Gradients] | None = None

    def look(self, device: torch.device, run: Callable[[], Any]) -> None:
        """The next call follows a lossy plan: if it is to be sampled, a copy of the process does `run`."""
        self._steps += 1
        if self.why is not None or not _is_due(self._steps):
            return
        self.why = _copy.obstacle(device)
        if self.why is not None:
            return

        def work() -> Gradients:
            with caught() as found:
                run()
            return found

        try:
            self._exact = _copy.in_copy(work)
        except _copy.Failed as failure:
            self.why = f"in a copy of this process: {failure}"

    @contextlib.contextmanager
    def within(self, step: int, native: Any) -> Iterator[None]:
        """In the block call `step` runs, by the engine `native`. What is compared is compared after it."""
        exact, self._exact = self._exact, None
        if exact is None:
            yield
            return
        with caught(native) as found:
            yield
        self._compare(step, exact, found)

    def _compare(self, step: int, exact: Gradients, found: Gradients) -> None:
        error, last = apart(exact, found), self._last
        self._last = step, exact
        if error is None:
            self.why = "the step has no gradients, or others in each call"
            return
        noise = apart(exact, last[1]) if last is not None and last[0] == step - 1 else None
        if noise is not None and self.samples and self.samples[-1].step == step - 1:
            self.samples[-1].noise = noise
        self.samples.append(Sample(step, error, noise))


def _is_due(step: int) -> bool:
    """Whether step `step`, from 1, is a power or the one after it."""
    power = 1
    while power * _SPARSER <= step:
        power *= _SPARSER
    return step - power in (0, 1)


@contextlib.contextmanager
def caught(native: Any = None) -> Iterator[Gradients]:
    """The gradients when the first optimizer of the block begins its step; without one, those at its end.

    `native` has the bytes of what is evicted.
    """
    found: Gradients = {}

    def note(parameters: Any) -> None:
        for parameter in parameters:
            if parameter.grad is not None and id(parameter) not in found:
                numbers = _numbers(parameter.grad, native)
                if numbers is not None:
                    found[id(parameter)] = numbers

    def begins(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not found:
            note(parameter for group in optimizer.param_groups for parameter in group["params"])

    hook = register_optimizer_step_pre_hook(begins)
    try:
        yield found
    finally:
        hook.remove()
    if not found:
        from memfit.torch.eager import leaves

        note(leaves())


def _numbers(gradient: torch.Tensor, native: Any) -> bytes | None:
    """Its numbers, in memory that PyTorch's allocator does not know; `None` for sparse ones and the like."""
    if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided:
        return None
    # No op of the step: a plan does not know it.
    with torch._C._DisableTorchDispatch():
        storage = gradient.untyped_storage()
        if native is not None and not native.is_resident(storage):
            native.restore(storage)
        plain = gradient.detach()
        if plain.dtype != torch.float32 or plain.device.type != "cpu" or not plain.is_contiguous():
            plain = plain.to("cpu", torch.float32).contiguous()
        start = _glue.pointer(plain.untyped_storage()) + 4 * plain.storage_offset()
        return ctypes.string_at(start, 4 * plain.numel())


def apart(exact: Gradients, other: Gradients) -> float | None:
    """How far `other` is from `exact`, as a share of its norm; `None` if they are of other tensors."""
    off = squares(exact, other)
    norm = squares(exact, None)
    if off is None or norm is None:
        return None
    if norm == 0.0:
        return 0.0 if off == 0.0 else math.inf
    return math.sqrt(off / norm)


def squares(one: Gradients, other: Gradients | None) -> float | None:
    """The square of the distance of the two, or from zero; `None` if they are of other tensors."""
    sizes = [{key: len(numbers) for key, numbers in gradients.items()} for gradients in (one, other or one)]
    if sizes[0] != sizes[1] or not one:
        return None
    total = 0.0
    for key, numbers in one.items():
        mine, theirs = memoryview(numbers), memoryview(other[key]) if other is not None else None
        for start in range(0, len(mine), 4 * _CHUNK):
            part = torch.frombuffer(bytearray(mine[start : start + 4 * _CHUNK]), dtype=torch.float32).double()
            if theirs is not None:
                part -= torch.frombuffer(bytearray(theirs[start : start + 4 * _CHUNK]), dtype=torch.float32)
            total += float(part.square().sum())
    return total
