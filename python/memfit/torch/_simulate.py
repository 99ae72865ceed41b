"""A training step as eager PyTorch runs it, on fake tensors: which bytes are alive when, and nothing
computed.

Autograd, the optimizer and Python's variables hold what they hold in a real run, so what is counted is what
an allocator would be asked for, but for the scratch memory of kernels: on a CPU each distinct op is run
once on noise to find it, elsewhere it is not known.
"""

import contextlib
import copy
import dataclasses
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from memfit.torch import _glue, _measure, _recurrent
from memfit.torch._graph import ExportError
from memfit.torch._trace import Fakes, begin_autograd, check_loss

BLOCK = 512
"""CUDA's allocator gives out whole blocks of so many bytes."""
STEPS = 2
"""The first makes the optimizer's state, the second begins with it. Steps that differ may need more of
them."""

Loss = Callable[..., Any]
Optimizer = torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None


@dataclasses.dataclass
class Simulated:
    """What one training would take."""

    peak_bytes: int
    op: str
    """The op at the peak."""
    parameter_bytes: int
    state_bytes: int
    """Of the optimizer."""


class Twins:
    """A model and its optimizer on fake tensors, made anew for each use: the user's own are left alone.

    Raises `ExportError` if the model can't be copied.
    """

    def __init__(self, model: torch.nn.Module, batch: Any, optimizer: Optimizer) -> None:
        begin_autograd()
        fakes = detect_fake_mode([*model.parameters(), *model.buffers(), *pytree.tree_leaves(batch)])
        self.mode = fakes or FakeTensorMode(allow_non_fake_inputs=True)
        self._real, self._optimizer = model, optimizer

    def make(self) -> tuple[torch.nn.Module, torch.optim.Optimizer | None]:
        """One more pair."""
        given = self._optimizer
        real = given if isinstance(given, torch.optim.Optimizer) else None
        try:
            with Fakes(self.mode):
                model, optimizer = copy.deepcopy((self._real, real))
        except Exception as error:
            raise ExportError(f"the model can't be copied: `{type(error).__name__}: {error}`") from error
        for parameter in model.parameters():
            parameter.grad = None
        if optimizer is not None:
            optimizer.state.clear()  # Counters have no value when they are fake; the first step makes others.
        if given is not None and not isinstance(given, torch.optim.Optimizer):
            optimizer = given(list(model.parameters()))
        return model, optimizer

    def batch(self, batch: Any, old: int, new: int) -> Any:
        """`batch` of fake tensors, with `new` rows where there were `old`."""

        known: dict[int, torch.Tensor] = {}

        def resized(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in known:
                known[id(tensor)] = made(tensor)
            return known[id(tensor)]

        def made(tensor: torch.Tensor) -> torch.Tensor:
            rows = new if tensor.dim() and tensor.shape[0] == old else tensor.shape[0] if tensor.dim() else 0
            with self.mode, torch.no_grad():
                shape = (rows, *tensor.shape[1:]) if tensor.dim() else ()
                fake = torch.empty(
                    shape, dtype=tensor.dtype, device=_device_of(tensor), memory_format=_format_of(tensor)
                )
            return fake.requires_grad_(tensor.requires_grad)

        return pytree.tree_map_only(torch.Tensor, resized, batch)


def _device_of(tensor: torch.Tensor) -> torch.device:
    return torch.device("cpu") if tensor.device.type == "meta" else tensor.device


def _format_of(tensor: torch.Tensor) -> torch.memory_format:
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last and not tensor.is_contiguous() else torch.contiguous_format


def simulate(
    twins: Twins, batch: Any, loss: Loss, *, on_cpu: bool, measured: bool | None = None, steps: int = STEPS
) -> Simulated:
    """Steps on a fake `batch`; as on a CPU, or as on a GPU. Scratch memory is `measured` on a CPU, if at all.

    On a GPU PyTorch updates parameters by `foreach` kernels unless told otherwise, dropout's masks take a
    byte for each element, and blocks are rounded up. Raises `ExportError` for a step that looks at what
    tensors hold.
    """
    model, optimizer = twins.make()
    measured = on_cpu if measured is None else measured
    counting = _Counting(1 if on_cpu else BLOCK, _Scratch() if measured else None)
    for tensor in [*model.parameters(), *model.buffers(), *pytree.tree_leaves(batch)]:
        if isinstance(tensor, torch.Tensor):
            counting.see(tensor)
    if optimizer is not None and not on_cpu:
        _as_on_a_gpu(optimizer)
    args, kwargs = ((), batch) if isinstance(batch, dict) else (batch, {})
    try:
        with torch.enable_grad(), twins.mode, counting, contextlib.nullcontext() if on_cpu else small_masks():
            for _ in range(steps):
                _step(model, optimizer, loss, args, kwargs)
    except ExportError:
        raise
    except Exception as error:
        first = str(error).strip().split("\n")[0]
        raise ExportError(
            f"the step can't be run on fake tensors: `{type(error).__name__}: {first}`\n"
            "hint: it must run with this batch, and must not look at tensors' contents "
            "(`.item()`, `if x.sum() > 0`, `nonzero`)"
        ) from error
    state = sum(tensor.untyped_storage().nbytes() for tensor in _state(optimizer)) if optimizer else 0
    parameters = sum(parameter.untyped_storage().nbytes() for parameter in model.parameters())
    return Simulated(counting.peak, counting.at, parameters, state)


def _step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, loss: Loss, args: Any, kwargs: Any
) -> None:
    if optimizer is not None:
        optimizer.zero_grad()
    else:
        model.zero_grad()
    outputs = loss(model, *args, **kwargs)
    value: Any = next(iter(pytree.tree_leaves(outputs)), None)
    check_loss(value)
    value.backward()
    if optimizer is not None:
        optimizer.step()


def _state(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in pytree.tree_leaves(state) if isinstance(value, torch.Tensor))


def _as_on_a_gpu(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and not group.get("fused"):
            group["foreach"] = not group.get("differentiable")


@contextlib.contextmanager
def small_masks() -> Iterator[None]:
    """While it lasts, dropout holds what it does on a GPU: a byte for each element, and nothing in attention.

    There a fused kernel draws the mask again; a CPU has none with dropout, and would hold all scores.
    """
    attention = F.scaled_dot_product_attention

    def dropout(
        input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        return torch.native_dropout(input, p, True)[0] if training and p else input

    def fused(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, *more: Any, **options: Any,
    ) -> torch.Tensor:  # fmt: skip
        return attention(query, key, value, attn_mask, 0.0, *more, **options)

    with (
        mock.patch.object(F, "dropout", dropout),
        mock.patch.object(F, "scaled_dot_product_attention", fused),
    ):
        yield


class _Counting(TorchDispatchMode):
    """Counts each storage from the op that makes it until nobody, autograd included, holds it."""

    def __init__(self, block: int, scratch: "_Scratch | None") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.block, self.scratch = block, scratch
        self.sizes: dict[int, int] = {}
        self.live = self.peak = 0
        self.at = ""

    def see(self, tensor: torch.Tensor, size: int | None = None) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.sizes:
            return
        size = storage.nbytes() if size is None else size
        self.sizes[key] = -(-size // self.block) * self.block
        self.live += self.sizes[key]
        weakref.finalize(storage, self.forget, key)

    def forget(self, key: int) -> None:
        self.live -= self.sizes.pop(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = None if self.scratch is None else self.scratch.of(func, args, kwargs)
        result = func(*args, **kwargs)
        made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        scratch, sizes = known or (0, [None] * len(made))
        for at, tensor in enumerate(made):
            self.see(tensor, sizes[at] if len(sizes) == len(made) else None)
        if self.live + scratch > self.peak:
            self.peak, self.at = self.live + scratch, str(func)
        return result


class _Scratch:
    """What each distinct op takes beside its results, and how large those are: it is run on noise."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[int, list[int | None]] | None] = {}

    def of(self, func: Any, args: Any, kwargs: Any) -> tuple[int, list[int | None]] | None:
        """`None` where it can't be run."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = (func, str(spec), tuple(map(_described, leaves)))
        if key not in self._known:
            self._known[key] = self._measured(func, args, kwargs)
        return self._known[key]

    def _measured(self, func: Any, args: Any, kwargs: Any) -> tuple[int, list[int | None]] | None:
        if func.is_view or func.namespace != "aten":
            return None
        try:
            with torch._C._DisableTorchDispatch(), torch.random.fork_rng(devices=[]):
                args, kwargs = pytree.tree_map_only(torch.Tensor, _measure._filled, (args, kwargs))
                if func._schema.name == _recurrent.BACKWARD:
                    args = _recurrent.with_workspace(args)
                result, scratch = _glue.measure(func, args, kwargs, "is_cpu")
                made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
                return scratch or 0, [leaf.untyped_storage().nbytes() for leaf in made]
        except Exception:
            return None


def _described(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device.type)
    return repr(leaf)
