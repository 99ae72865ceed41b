"""The generators of random numbers that everybody has: PyTorch's, Python's and NumPy's."""

import inspect
import random
import sys
from collections.abc import Callable

import torch


def keep() -> list[Callable[[], None]]:
    """Each puts one of the generators back."""
    python, cpu = random.getstate(), torch.random.get_rng_state()
    found: list[Callable[[], None]] = [
        lambda: random.setstate(python),
        lambda: torch.random.set_rng_state(cpu),
    ]
    if torch.cuda.is_available():
        cuda = torch.cuda.get_rng_state_all()
        found.append(lambda: torch.cuda.set_rng_state_all(cuda))
    # Whoever imports it first draws a seed.
    if (numpy := sys.modules.get("numpy.random")) is not None:
        state = numpy.get_state()
        found.append(lambda: numpy.set_state(state))
    return found


def states() -> list[bytes]:
    """The state of each, in an order that another process shares."""
    numpy = sys.modules.get("numpy.random")
    found = [repr(random.getstate()), repr(numpy.get_state()[1:]) if numpy else ""]
    generators = [torch.default_generator]
    if torch.cuda.is_available():
        generators += torch.cuda.default_generators
    return [state.encode() for state in found] + [_bytes(generator.get_state()) for generator in generators]


def _bytes(state: torch.Tensor) -> bytes:
    """Not by a method that a budget watches: that would be part of the step."""
    with torch._C._DisableTorchDispatch():
        return bytes(inspect.unwrap(torch.Tensor.numpy)(state))
