"""How sensitive gradients are to each map that waits for the backward pass: measured, for `compress:gact`.

After Liu et al., "GACT: Activation Compressed Training for Generic Network Architectures", ICML 2022: the
step runs with one map in few bits, by two keys of noise, and once as it is; the largest square of what two of
these gradients differ by is that map's sensitivity. We differ: at intervals only where that is asked for;
with 2 bits instead of 1; and the exact gradient stands for that by 8 bits. It all runs in a copy of the
process: no parameter changes, since a run ends where its optimizer begins.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from memfit._errors import UsageError
from memfit.torch import _glue
from memfit.torch._coded import CODERS
from memfit.torch._gradients import Gradients, caught, squares

STRATEGY = "compress:gact"
"""The strategy that asks for sensitivities."""
# The largest maps are measured, two runs of the step each; others count as the most sensitive.
_MOST = 64
# What is smaller waits as it is.
_LEAST = 4 << 10
_KEYS = (1, 2)


def interval(every: int | None, strategy: str) -> int | None:
    """`every` how many calls sensitivities are measured again, if it is a number that makes sense.

    Raises `UsageError` for others, and where `strategy` asks for no sensitivities.
    """
    if every is None:
        return None
    if strategy != STRATEGY:
        raise UsageError(
            f"`sense_every` does not go together with `strategy={strategy!r}`",
            hint=f'`strategy="{STRATEGY}"`',
        )
    if every < 1:
        raise UsageError("`sense_every` must be at least 1", hint="`sense_every=1000` is every 1000 calls")
    return every


Sensitivities = dict[int, float]
"""By the number of the map, in the order in which autograd saves them first."""


class _Enough(BaseException):
    """The gradients are there: the step need not go on."""


def _enough(*_: Any) -> None:
    raise _Enough


class Saved:
    """Numbers what autograd saves: each storage once, but those of `leaves`. Keeps none alive."""

    def __init__(self, leaves: list[torch.Tensor]) -> None:
        self.bytes: list[int] = []
        # An address may become another one's once its storage has gone.
        self._numbers: dict[int, tuple[weakref.ref[torch.UntypedStorage], int | None]] = {}
        for leaf in leaves:
            storage = leaf.untyped_storage()
            self._numbers[storage._cdata] = weakref.ref(storage), None

    def number(self, tensor: torch.Tensor) -> int | None:
        """The number of what `tensor` is of; `None` if it is none of a map."""
        if type(tensor) not in _PLAIN or tensor.dtype != torch.float32 or tensor.layout != torch.strided:
            return None
        storage = tensor.untyped_storage()
        known = self._numbers.get(storage._cdata)
        if known is not None and known[0]() is storage:
            return known[1]
        if storage.nbytes() < _LEAST:
            return None
        number = len(self.bytes)
        self.bytes.append(storage.nbytes())
        self._numbers[storage._cdata] = weakref.ref(storage), number
        return number


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def measure(run: Callable[[], Any], lossy: list[str]) -> Sensitivities:
    """Sensitivities of the maps of the step that `run` runs, for codecs such as `lossy` has.

    To be called in a copy of the process, outside of budgets: gradients, and what the forward pass counts,
    are others afterwards.
    """
    from memfit.torch.eager import leaves

    parameters = list(leaves())
    before = [(leaf, None if leaf.grad is None else leaf.grad.clone()) for leaf in parameters]
    noise = torch.get_rng_state()

    def gradients(pack: Callable[[torch.Tensor], torch.Tensor]) -> Gradients:
        for leaf, gradient in before:
            leaf.grad = None if gradient is None else gradient.clone()
        torch.set_rng_state(noise)
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with contextlib.suppress(_Enough), caught() as found, _until_an_update(), hooks:
            run()
        return found

    first = Saved(parameters)

    def note(tensor: torch.Tensor) -> torch.Tensor:
        first.number(tensor)
        return tensor

    exact = gradients(note)
    masked = any(name.endswith("+mask") for name in lossy)
    largest = sorted(range(len(first.bytes)), key=lambda number: (-first.bytes[number], number))[:_MOST]
    found = {}
    for number in sorted(largest):
        ways = [exact, *(gradients(_coded(Saved(parameters), number, key, masked)) for key in _KEYS)]
        apart = [squares(one, other) for at, one in enumerate(ways) for other in ways[:at]]
        found[number] = max((off for off in apart if off is not None), default=0.0)
    return found


@contextlib.contextmanager
def _until_an_update() -> Iterator[None]:
    hook = register_optimizer_step_pre_hook(_enough)
    try:
        yield
    finally:
        hook.remove()


def _coded(saved: Saved, number: int, key: int, masked: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Has map `number` come back as 2 bits leave it; with a mask, where nothing of it is below zero."""

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if saved.number(tensor) != number:
            return tensor
        with torch.no_grad():
            numbers = tensor.detach().reshape(-1)
            encode, decode = CODERS["int2+mask" if masked and bool((numbers >= 0).all()) else "int2"]
            noise = torch.Generator(numbers.device).manual_seed(key)
            made = decode(encode(numbers, noise), numbers.numel())
            return torch.empty_like(tensor).copy_(made.view(tensor.shape))

    return pack


@contextlib.contextmanager
def told(native: Any, sensitivities: Sensitivities | None) -> Iterator[None]:
    """In the block, the engine `native` records the step that was measured, and is told of each map."""
    if sensitivities is None:
        yield
        return
    from memfit.torch.eager import leaves

    saved = Saved(list(leaves()))

    def tell(tensor: torch.Tensor) -> torch.Tensor:
        number = saved.number(tensor)
        if number is not None and number in sensitivities:
            with torch._C._DisableTorchDispatch():
                for storage in _glue.storages_of(tensor):
                    native.sense(storage, sensitivities[number])
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(tell, lambda tensor: tensor):
        yield
