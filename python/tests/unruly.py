"""Random programs that do around their ops what real programs do: buffers that are updated, generators of
their own, global switches, memory that is written past PyTorch, several threads, errors that are caught,
loops without gradients.

As in `programs.py` a program is its seed.
"""

import contextlib
import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from programs import OPS, Draw, Op, Program, dimension
from torch import Tensor
from torch.utils import dlpack
from torch.utils._python_dispatch import _disable_current_modes

from memfit import BudgetError
from memfit.torch import restore

SWITCHES: list[tuple[Callable[[Any], object], list[Any]]] = [
    (torch.set_flush_denormal, [False, True]),
    (torch.set_num_threads, [1, 2]),
    (torch.set_float32_matmul_precision, ["highest", "medium"]),
    (torch.use_deterministic_algorithms, [False, True]),
    (torch._C._set_mkldnn_enabled, [True, False]),
]
"""Setters with their values, the usual one first."""


class Refused(Exception):
    """memfit named something that it does not do."""


class Broken(Exception):
    """memfit says itself that it has gone wrong."""


class Unruly(Program):
    """A program whose ops are those of `programs.py` and those below."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.average = torch.zeros(16)
        self.counts = torch.zeros(8, dtype=torch.int64)
        self.generator = torch.Generator().manual_seed(seed)
        self.alias = dlpack.from_dlpack(self.average.detach())

    def run(self, stop: int | None = None) -> int:
        """Runs up to step `stop`; returns how many were taken. PyTorch's errors are noted on the way."""
        steps = self.draw.randrange(30, 200)
        try:
            for at in range(steps):
                if at == stop:
                    return at
                self.step(at)
        finally:
            for switch, values in SWITCHES:
                switch(values[0])
        return steps

    def step(self, at: int) -> None:
        name, op = self.draw.choice(UNRULY if self.draw.random() < 0.4 else OPS)
        inputs = self.draw.choice(self.held), self.draw.choice(self.held)
        draw, watched = Draw(self.draw.getrandbits(32)), self.draw.random() < 0.8
        try:
            with torch.set_grad_enabled(watched):
                made = op(self, draw, *inputs)
        except BudgetError:
            raise
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            if "bug in memfit" in str(error):
                raise Broken(f"step {at}, {name}: {error}") from error
            if "memfit" in str(error):
                raise Refused(f"step {at}, {name}: {error}") from error
            self.seen.append(f"{name}: {type(error).__name__}")
            return
        self.seen.append(f"{name}: {made}" if isinstance(made, (float, int, bool, list, str)) else name)
        for tensor in made if isinstance(made, tuple) else [made]:
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.numel() <= 4096:
                self.hold(tensor)

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), self.average, self.counts, self.generator.get_state()]


# Buffers that are updated


def buffer_value(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    buffer = draw.choice((program.mean, program.variance, program.average))
    makers = (Tensor.clone, Tensor.exp, lambda b: b * 2, lambda b: b + x.sum(), lambda b: b.cumsum(0))
    return draw.choice(makers)(buffer)


def update_average(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> None:
    with torch.no_grad():
        program.average.lerp_(x.detach().mean().expand(16), 0.1)
        program.counts[draw.randrange(8)] += 1


def read_and_update(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    before = program.average.sigmoid()
    with torch.no_grad():
        program.average.mul_(0.9).add_(x.detach().sum().tanh())
    return before


# Random numbers


def own_generator(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    generator, x = program.generator, x.detach()
    return draw.choice(
        (
            lambda: torch.poisson(x.sigmoid() * 4, generator),
            lambda: torch._standard_gamma(x.sigmoid() + 0.1, generator),
            lambda: torch.binomial(torch.full_like(x, 5), x.sigmoid(), generator),
            lambda: torch.normal(x, 1.0, generator=generator),
            lambda: torch.rand(7, 3, generator=generator),
            lambda: torch.empty_like(x).bernoulli_(0.4, generator=generator),
            lambda: torch.empty_like(x).exponential_(generator=generator),
        )
    )()


def default_generator(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    x = x.detach()
    return draw.choice(
        (
            lambda: torch.poisson(x.sigmoid() * 4),
            lambda: torch._standard_gamma(x.sigmoid() + 0.1),
            lambda: F.alpha_dropout(x, 0.2, True),
            lambda: torch.empty_like(x).cauchy_(),
        )
    )()


def seed_again(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> None:
    if draw.random() < 0.5:
        torch.manual_seed(draw.randrange(100))
    else:
        state = torch.get_rng_state()
        torch.rand(3)
        torch.set_rng_state(state)


# Global switches


def switch(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> None:
    setter, values = draw.choice(SWITCHES)
    setter(draw.choice(values))


def within_switch(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    setter, values = draw.choice(SWITCHES)
    setter(values[1])
    try:
        x = x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)
        return (x * 1e-38) @ x.t() * 1e30
    finally:
        setter(values[0])


def other_dtype(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        return (torch.ones(5) / 3 + torch.arange(5) * 0.1).float()
    finally:
        torch.set_default_dtype(torch.float32)


# Memory written past PyTorch


def raw_fill(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    made = draw.choice((torch.empty, lambda n: torch.empty_like(torch.ones(n)), lambda n: x.new_empty(n)))(24)
    bits = (ctypes.c_float * 24)(*(draw.random() for _ in range(24)))
    address = made.data_ptr() if draw.random() < 0.5 else made.untyped_storage().data_ptr()
    ctypes.memmove(address, bits, 24 * 4)
    return made


def numpy_write(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    source = torch.full((6,), draw.random())
    derived = source.exp()
    array = source.numpy() if draw.random() < 0.5 else np.asarray(source)
    array[draw.randrange(6)] = draw.random()
    return torch.cat([source, derived])


def write_through_alias(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    derived = program.average.cos()
    restore(program.average)
    program.alias[draw.randrange(16)] = draw.random()
    return derived


def write_outside(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    buffer = draw.choice((program.average, program.mean))
    derived = buffer.sin()
    restore(buffer)  # What was evicted is refused to others, by name.
    if draw.random() < 0.5:
        with _disable_current_modes(), torch.no_grad():
            buffer.mul_(0.5)
        return derived
    errors: list[Exception] = []

    def work() -> None:
        try:
            with torch.no_grad():
                buffer.add_(1)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for error in errors:
        raise error
    return derived


# Errors half way, loops, reads without an op


def fails_half_way(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    made = (x.detach().flatten()[:1] + torch.ones(12)).contiguous()
    index = torch.tensor([0, 1, 1 << 30])
    with contextlib.suppress(IndexError, RuntimeError):
        if draw.random() < 0.5:
            made.index_copy_(0, index, torch.full((3,), 9.0))
        else:
            made.index_fill_(0, index, 7.0)
    return made


def wrong_shapes(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    made = x.detach().clone()
    with contextlib.suppress(RuntimeError):
        made.add_(torch.ones(3, 5, 7))
    with contextlib.suppress(RuntimeError):
        made @ torch.ones(97, 3)
    return made


def loop(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    state, weight = x.detach().flatten()[:8].sum().expand(8), torch.eye(8) * 0.9
    with torch.no_grad():
        for _ in range(draw.randrange(3, 20)):
            state = (weight @ state).tanh() + 0.1
    return state


def unknown_size(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    counts = torch.tensor([draw.randrange(40), draw.randrange(40)])
    if draw.random() < 0.5:
        return torch.repeat_interleave(torch.ones(2), counts) * 2
    return torch.bincount(counts, minlength=2).float()


def read(program: Unruly, draw: Draw, x: Tensor, y: Tensor) -> Any:
    x = x.detach()
    return draw.choice(
        (
            lambda: x.flatten()[:5].tolist(),
            lambda: float(np.asarray(x.flatten()[:5]).sum()),
            lambda: float(x.sum()),
            lambda: str(x.flatten()[:3]),
            lambda: torch.tensor([x.sum(), x.mean()]).tolist(),
            lambda: bool((x > 0).any()),
            lambda: list(map(float, x.flatten()[:3])),
            lambda: torch.as_tensor(x.numpy().copy()),
        )
    )()


UNRULY: list[tuple[str, Op]] = [
    ("buffer value", buffer_value),
    ("buffer value again", buffer_value),
    ("update average", update_average),
    ("read and update", read_and_update),
    ("own generator", own_generator),
    ("default generator", default_generator),
    ("seed again", seed_again),
    ("switch", switch),
    ("within switch", within_switch),
    ("other dtype", other_dtype),
    ("raw fill", raw_fill),
    ("numpy write", numpy_write),
    ("write through alias", write_through_alias),
    ("write outside", write_outside),
    ("fails half way", fails_half_way),
    ("wrong shapes", wrong_shapes),
    ("loop", loop),
    ("unknown size", unknown_size),
    ("read", read),
    ("narrow sum", lambda p, d, x, y: x.narrow(dimension(d, x), 0, 1).sum()),
    ("sparse", lambda p, d, x, y: x.detach().to_sparse().mul(2).to_dense()),
]
