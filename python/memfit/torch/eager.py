"""The eager host: any PyTorch program within a budget of bytes.

```python
import memfit.torch

memfit.torch.enable(budget="8GiB")
```

From then on every op of this thread goes through memfit's engine: before it runs, what it reads is brought
back and what can be computed again is evicted, so that its results and scratch memory fit. Results are the
same bits as without.
"""

import contextlib
import functools
import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import Any, TypedDict, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

from memfit import UsageError, _memfit
from memfit.torch import _alive, _compiled, _cuda, _glue, _modes, _objects, _pinned, _quantised, _reads
from memfit.torch._errors import parse_bytes, share_of
from memfit.torch._interrupts import Interrupts
from memfit.torch._slow import Pace

Function = TypeVar("Function", bound=Callable[..., Any])


class _Options(TypedDict):
    """What an engine is told, beside what it may use."""

    evict_all: bool
    exact: bool


class _Mode(TorchDispatchMode):
    """Hands every op to the engine.

    It lies below all other modes, whichever came first: what they make of an op is what runs. So a mode whose
    block ends, and which takes the uppermost off the stack, takes itself.
    """

    def __init__(self, native: Any, deliver: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.deliver_interrupt = deliver
        self.__torch_dispatch__ = MethodType(native.dispatch, self)  # type: ignore[method-assign]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code runs as it does without a budget: what it does inside is not for a mode to see."""
        return True

    def begin(self) -> None:
        """From here on all ops of this thread are seen."""
        _modes.push_modes([*_modes.pop_modes(), self])

    def end(self) -> None:
        """Undoes `begin`, wherever the mode is now."""
        others = _modes.pop_modes()
        _modes.push_modes([other for other in others if other is not self])


class Budget:
    """A budget for the ops of one thread: a context manager, and a decorator.

    `budget` is a number of bytes, a size such as `"8GiB"`, or a share of the device's memory such as
    `"80%"`; it's the most bytes that tensors on `device` (by
    default CUDA, where there is one, or else the CPU) have at any moment, those that are there already
    included. `BudgetError` says what is the least where that is impossible.

    `host_budget` bytes of the process's memory may hold copies of tensors: where a plan says so (`fit`), and
    without a plan where computing a tensor again would take longer than to copy it there and back.
    `disk_budget` bytes of the disk that the directory `spill` is on serve for the same, in a file without a
    name, of which nothing is left however the process ends. `link` is the most bytes per second on the way
    to host memory; by default what copying takes here. `recompute=False` runs no op again as long as there
    is room for copies. `lossless` names codecs by which plans may hold tensors between two uses:
    `"zvc"` drops zeros, and how many there are is measured while a step is recorded. `lossy` does so of
    codecs that lose something; without a plan none is used. `"quantised-state"` has the state of optimizers
    wait in eight bits between their steps (`quantise_state`), with a plan or without.

    Recomputation of more than `patience` times the work of the program's own ops, and ten seconds beside
    that, ends in a `BudgetError`, which names a budget that would hold all that the program holds there.
    `None` goes on for as long as it takes.

    Who goes for room is chosen by the policy `evictor` (docs/strategies.md lists them). It looks at all
    candidates, at about √n of n (`sample="sqrt"`), or at a number of them, drawn at random by `seed`;
    `ignore_below` leaves those out that are smaller than a size, or than a share of their mean (`"1%"`),
    while there are others; `exponents` weigh evicted neighbours, bytes and staleness for `"megengine"`.
    `"best"`, the default, keeps an index and looks at few in any case.

    Of a few ops PyTorch computes the gradient by another formula as soon as anything watches: `exact=False`
    lets them through; the last bits differ then. docs/pytorch-ops.md has the list.
    """

    def __init__(
        self,
        budget: int | float | str,
        *,
        device: str | torch.device | None = None,
        evictor: str = "best",
        sample: int | str = "all",
        ignore_below: int | str = 0,
        exponents: Sequence[float] = (1.0, 1.0, 1.0),
        seed: int = 0,
        evict_all: bool = False,
        exact: bool = True,
        host_budget: int | str = 0,
        disk_budget: int | str = 0,
        spill: str | os.PathLike[str] | None = None,
        link: int | float | str | None = None,
        recompute: bool = True,
        patience: float | None = 20.0,
        lossless: str | Sequence[str] = (),
        lossy: str | Sequence[str] = (),
    ) -> None:
        if bool(disk_budget) != (spill is not None):
            hint = 'both are needed: `disk_budget="100GiB", spill="/tmp"`'
            raise UsageError("copies on a disk need a size and a directory", hint=hint)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._native: Any = None
        self._bytes = parse_bytes(budget, self.device)
        self._options: _Options = {"evict_all": evict_all, "exact": exact}
        self._policy: dict[str, Any] = {
            "evictor": evictor,
            "sample": sample,
            "ignore_below": ignore_below,
            "exponents": exponents,
            "seed": seed,
        }
        _policy(**self._policy)
        self._means: dict[str, Any] = {
            "host_budget": parse_bytes(host_budget) if host_budget else 0,
            "disk_budget": parse_bytes(disk_budget) if disk_budget else 0,
            "spill": None if spill is None else os.fspath(spill),
            "link": None if link is None else float(parse_bytes(link)),
            "recompute": recompute,
            "patience": patience,
            "lossless": names(lossless),
            "lossy": [name for name in names(lossy) if name != _quantised.NAME],
        }
        self.quantises = _quantised.NAME in names(lossy)
        self._mode: _Mode | None = None
        self._ranks: Any = None
        self._hooks: list[Any] = []
        self.interrupts = Interrupts()
        self._last: dict[str, int] | None = None
        self.gives_way: weakref.WeakMethod[Callable[[], None]] | None = None

    @property
    def budget(self) -> int:
        """The most bytes. Set while the budget is active, it holds from there on.

        A smaller one evicts at once what has to go; `BudgetError` says what can't, and leaves the old one.
        """
        return self._bytes

    @budget.setter
    def budget(self, budget: int | float | str) -> None:
        size = parse_bytes(budget, self.device)
        if self._native is not None:
            if is_distributed():
                raise RuntimeError(
                    "a budget that ranks have agreed on can't be changed\nhint: `disable()`, then `enable`"
                )
            with torch._C._DisableTorchDispatch():
                self._native.set_budget(size)
        self._bytes = size

    def __enter__(self) -> "Budget":
        make_free()
        self.interrupts.hold()
        try:
            self._open()
            if is_distributed():
                from memfit.torch import distributed

                # A rank that fails wakes those that wait for it.
                self._ranks = distributed.step()
                self._ranks.__enter__()
            self._activate()
        except BaseException:
            self.interrupts.end()
            raise
        return self

    def _open(self) -> None:
        """Makes the engine; everything that is there already counts."""
        if is_distributed():
            from memfit.torch import distributed

            self._bytes = distributed.agree(self._bytes)
        _glue.track(self.device)
        align = _cuda.BLOCK if self.device.type == "cuda" else 1
        if self.device.type == "cuda":
            _cuda.prepare(self.device)
        # What is known of ops depends on the device, and on whether there are other ranks.
        global _known_for
        here = (self.device.type, is_distributed(), *_cuda.switches())
        afresh, _known_for = here != _known_for, here
        means, self._unpin = _pinned.means(self._means, self.device)
        try:
            native = _memfit.Eager(
                _glue,
                self._bytes,
                align=align,
                policy=_policy(**self._policy),
                afresh=afresh,
                means=means,
                **self._options,
            )
        except BaseException:
            self._unpin()
            raise
        for storage in itertools.chain(*_alive.live(self.device)):
            native.adopt(storage)
        if self.device.type == "cuda":
            native.reserve(_cuda.foreign(self.device, native.stats()["used_bytes"]))
        self._native, self._pace = native, Pace()
        if is_distributed():
            self._hooks = [leaf.register_post_accumulate_grad_hook(self._keep_gradient) for leaf in leaves()]
        _forks.add(self)

    def _keep_gradient(self, leaf: torch.Tensor) -> None:
        # The reducer of DDP looks at gradients by their addresses.
        if self._native is not None and leaf.grad is not None and type(leaf.grad) is torch.Tensor:
            with torch._C._DisableTorchDispatch():
                for storage in _glue.storages(leaf.grad):
                    self._native.restore(storage)
                    self._native.keep(storage)

    def _activate(self) -> None:
        global _active
        make_free()
        self.interrupts.hold()
        _active, self._thread = self, threading.get_ident()
        self._mode = _Mode(self._native, self.interrupts.deliver)
        _reads.patch(_before_read, _state)
        _compiled.watch(_here, _reads.unpatched)
        self._mode.begin()
        self.interrupts.release(self._native)

    def __exit__(self, *raised: Any) -> None:
        if self._native is None or self._mode is None:
            return
        self._check_thread()
        try:
            self._deactivate()
            ranks, self._ranks = self._ranks, None
            try:
                if ranks is not None:
                    ranks.__exit__(*raised)
            finally:
                self._close()
        finally:
            self.interrupts.end()

    def _check_thread(self) -> None:
        if self._thread != threading.get_ident():
            raise RuntimeError("a budget must be ended by the thread that began it")

    def _deactivate(self) -> None:
        global _active
        self._check_thread()
        self.interrupts.retake()
        mode, self._mode, _active = self._mode, None, None
        if mode is not None:
            mode.end()
        _reads.unpatch()

    def _close(self) -> None:
        """Brings back all that can be reached, and lets go of it."""
        native = self._native
        if native is None:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        try:
            with torch._C._DisableTorchDispatch():
                self._last = native.stats()
                try:
                    self._step_ends()
                finally:
                    native.close()
        finally:
            self._native = None
            self._unpin()
            _forks.discard(self)

    def _step_ends(self) -> None:
        if self._native is not None and not self._options["evict_all"]:
            self._pace.step(self._native, self.budget)

    def __call__(self, function: Function) -> Function:
        """Decorates `function`: each call runs within a budget of its own."""
        options: dict[str, Any] = {
            "device": self.device,
            **self._options,
            **self._policy,
            **self._means,
        }
        options["lossy"] = options["lossy"] + ([_quantised.NAME] if self.quantises else [])

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with Budget(self.budget, **options):
                return function(*args, **kwargs)

        return within  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"memfit.torch.Budget({self.budget}, device={str(self.device)!r})"

    @property
    def stats(self) -> dict[str, int]:
        """What the engine has done so far: ops, recomputed ops, evictions, bytes, ns."""
        if self._native is None:
            return dict(self._last or {})
        stats: dict[str, int] = self._native.stats()
        return stats


def _policy(
    evictor: str, sample: int | str, ignore_below: int | str, exponents: Sequence[float], seed: int
) -> dict[str, object]:
    """The policy as an engine takes it."""
    if str(sample) not in ("all", "sqrt") and (not str(sample).isdecimal() or int(sample) == 0):
        hint = "`all`, `sqrt`, or a number from 1"
        raise UsageError(f"`sample={sample!r}` is no number of candidates", hint=hint)
    weights = [float(exponent) for exponent in exponents]
    if len(weights) != 3 or not all(map(math.isfinite, weights)):
        hint = "of evicted neighbours, bytes and staleness: `exponents=(1, 1, 1)`"
        raise UsageError(f"`exponents={tuple(exponents)}` are not three numbers", hint=hint)
    share = share_of(ignore_below) if isinstance(ignore_below, str) else None
    return {
        "evictor": evictor,
        "sample": str(sample),
        "share_of_mean": share or 0.0,
        "minimum": 0 if share is not None or ignore_below == 0 else parse_bytes(ignore_below),
        "exponents": weights,
        "seed": seed,
    }


def names(given: str | Sequence[str]) -> list[str]:
    """One name, or several."""
    return [given] if isinstance(given, str) else list(given)


def leaves() -> list[torch.Tensor]:
    """Parameters that gradients are accumulated for."""
    kinds = (torch.Tensor, torch.nn.Parameter)
    tensors = _objects.every(*kinds)
    return [thing for thing in tensors if type(thing) in kinds and thing.is_leaf and thing.requires_grad]


def is_distributed() -> bool:
    """Whether there are process groups."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def make_free() -> None:
    """Has a fitted step that rests between two calls give way; raises where another budget is active."""
    gives_way = _active.gives_way if _active is not None else None
    if gives_way is not None and (give_way := gives_way()) is not None:
        give_way()
    if _active is not None:
        raise RuntimeError("a budget is active already\nhint: `memfit.torch.disable()` ends it")


_active: Budget | None = None
_known_for: tuple[Any, ...] | None = None
_forks: weakref.WeakSet[Budget] = weakref.WeakSet()


def enable(budget: int | float | str, **options: Any) -> Budget:
    """Puts the ops of this thread under `budget` from here on; as `with` block, to its end. See `Budget`."""
    return _Enabled(budget, **options)


class _Enabled(Budget):
    """Entered when it's made; `with` only says where it ends."""

    def __init__(self, budget: int | float | str, **options: Any) -> None:
        super().__init__(budget, **options)
        super().__enter__()

    def __enter__(self) -> "Budget":
        return self

    def __call__(self, function: Function) -> Function:
        # As a decorator it's entered by each call, not by the definition.
        self.__exit__(None, None, None)
        return super().__call__(function)


def disable() -> None:
    """Ends the budget of this thread: every tensor that somebody can reach is brought back."""
    if _active is not None:
        _active.__exit__(None, None, None)


def is_enabled() -> bool:
    """Whether a budget is active."""
    return _active is not None


def drop(tensor: torch.Tensor) -> bool:
    """Evicts the bytes of `tensor` and all its views now.

    False if they can't be computed again, or are in use.
    """
    return bool(_by_hand("drop", tensor))


def swap_out(tensor: torch.Tensor, tier: str = "host") -> bool:
    """Copies the bytes of `tensor` and all its views to host memory, or to the `disk`, and lets them go.

    Whoever reads the tensor gets them from the copy. False if they may not go (nothing can compute them
    again, or they are in use), or there is no room.
    """
    return bool(_by_hand("swap_out", tensor, tier))


def swap_in(tensor: torch.Tensor) -> torch.Tensor:
    """Begins to bring the bytes of `tensor` back from its copy, and returns it at once."""
    _by_hand("swap_in", tensor)
    return tensor


def restore(tensor: torch.Tensor) -> torch.Tensor:
    """Makes sure that the bytes of `tensor` are there, and returns it."""
    _by_hand("restore", tensor)
    return tensor


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Keeps the bytes of `tensor` until as many `unpin`, and returns it."""
    _by_hand("pin", tensor)
    return tensor


def unpin(tensor: torch.Tensor) -> None:
    """Takes one `pin` back."""
    _by_hand("unpin", tensor)


def is_resident(tensor: torch.Tensor) -> bool:
    """Whether the bytes of `tensor` are there."""
    return _active is None or _by_hand("is_resident", tensor) is not False


def _by_hand(decision: str, tensor: torch.Tensor | torch.UntypedStorage, *more: str) -> Any:
    if _active is None or _active._native is None:
        return None
    storage = tensor if isinstance(tensor, torch.UntypedStorage) else tensor.untyped_storage()
    with torch._C._DisableTorchDispatch():
        return getattr(_active._native, decision)(storage, *more)


def _here() -> Budget | None:
    """The budget that ops of this thread are under."""
    budget = _active
    if budget is None or budget._native is None or not _modes.is_on(budget._mode):
        return None
    return budget


def _before_read(decision: str, owner: torch.Tensor | torch.UntypedStorage) -> None:
    """Something reads a tensor, or a storage, without an op.

    Another thread goes on reading while the program goes on computing: what it reads stays from then on.
    """
    budget = _active
    native = budget._native if budget is not None else None
    if budget is None or native is None:
        return
    here = budget._thread == threading.get_ident()
    if not here and decision == "restore":
        decision = "keep"
    with torch._C._DisableTorchDispatch():
        for storage in _glue.storages_of(owner):
            if storage.device.type == budget.device.type and (here or native.is_known(storage)):
                getattr(native, decision)(storage)


def _state(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The state that `make` gives of the CPU's default generator; it's made without an op."""
    budget = _here()
    if budget is None or budget.device.type != "cpu" or budget._thread != threading.get_ident():
        return make()
    with torch._C._DisableTorchDispatch():
        budget._native.make_room(_glue.state_bytes)
        state = make()
        budget._native.adopt(state.untyped_storage())
    return state


@contextlib.contextmanager
def kept_from_forks(budget: Budget) -> Iterator[None]:
    """A process that is forked in the block has the budget as its own, with copies of all its storages."""
    _forks.discard(budget)
    try:
        yield
    finally:
        if budget._native is not None:
            _forks.add(budget)


def _after_fork() -> None:
    for budget in list(_forks):
        if budget._native is not None:
            budget._native.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Parameters and their state are what a training loop goes on from: how they came about is forgotten."""
    budget = _active
    if budget is None or budget._native is None:
        return
    if budget.quantises:
        _quantised.quantise_state(optimizer)
    settle = budget._native.settle
    with torch._C._DisableTorchDispatch():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if type(parameter) in (torch.Tensor, torch.nn.Parameter):
                    settle(parameter.untyped_storage())
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                if type(value) is torch.Tensor:
                    for storage in _glue.storages_of(value):
                        settle(storage)
    budget._step_ends()


register_optimizer_step_post_hook(_after_step)
