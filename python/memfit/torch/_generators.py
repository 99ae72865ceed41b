"""The generators of random numbers that everybody has: PyTorch's, Python's and NumPy's."""

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
    tensors = [torch.random.get_rng_state()]
    if torch.cuda.is_available():
        tensors += torch.cuda.get_rng_state_all()
    return [state.encode() for state in found] + [state.numpy().tobytes() for state in tensors]
