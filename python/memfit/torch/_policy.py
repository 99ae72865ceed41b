"""`memfit.torch.policy`: which ops of a checkpointed region keep their outputs.

Selective activation checkpointing keeps some outputs between forward and backward; when backward comes to the
region it runs all of it again, except the ops whose outputs are kept. So there is one tight moment, between
the two, and an op that isn't kept runs again whoever needs it: what to keep is a knapsack of run times and
bytes, solved here by dynamic programming over bytes in a few thousand steps.
"""

import collections
import contextlib
import dataclasses
import inspect
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import memfit
from memfit import _memfit

from . import _layout, _ops

# From torch 2.15 on. Without it hooks such as `save_on_cpu` are passed by, with a warning that this changes.
_HOOKS = (
    {"respect_saved_tensors_hooks": True}
    if "respect_saved_tensors_hooks" in inspect.signature(checkpoint).parameters
    else {}
)
STEPS = 4096
"""Steps that the budget is counted in; bytes are rounded up, so the budget holds."""


@dataclasses.dataclass(frozen=True, repr=False)
class Policy:
    """Which ops of a region keep what they make. `contexts` is for `checkpoint`'s `context_fn`."""

    kept: frozenset[tuple[str, int]]
    """Ops by name, and which of the calls with that name."""
    kept_bytes: int
    """What one call of the region holds between forward and backward."""
    whole_bytes: int
    """What it would hold without checkpointing."""
    recompute_ns: int
    """Time of the ops that run again."""
    forward_ns: int
    """Time of all ops."""
    once: frozenset[tuple[str, int]]
    """Ops that move something outside on, such as a counter: left out when the region runs again."""

    def __call__(self) -> Callable[..., CheckpointPolicy]:
        """A `policy_fn` for one call of the region."""
        counts: dict[bool, collections.Counter[str]] = {
            False: collections.Counter(),
            True: collections.Counter(),
        }

        def policy_fn(ctx: Any, op: OpOverload, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            name = str(op)
            at = counts[ctx.is_recompute][name]
            counts[ctx.is_recompute][name] += 1
            keep = (name, at) in self.kept
            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

        return policy_fn

    def checkpoint(self, region: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the region, checkpointed by this policy.

        What is kept goes through the hooks for saved tensors that are there, `save_on_cpu` say (from torch
        2.15 on).
        """
        options: dict[str, Any] = {"use_reentrant": False, "context_fn": self.contexts, **_HOOKS}
        return checkpoint(region, *args, **options, **kwargs)

    def contexts(self) -> Any:
        """Contexts for one call: `checkpoint(region, x, use_reentrant=False, context_fn=policy.contexts)`.

        Where there are hooks for saved tensors, `respect_saved_tensors_hooks=True` belongs beside it: see
        `checkpoint`.
        """
        forward, again = create_selective_checkpoint_contexts(self())
        return forward, _Nested(again, _Skip(self.once))

    def __repr__(self) -> str:
        again = self.recompute_ns / max(self.forward_ns, 1)
        return (
            f"<memfit.torch.policy: {self.kept_bytes} of {self.whole_bytes} bytes kept, "
            f"{again:.0%} of forward runs again>"
        )


class _Nested(contextlib.ExitStack):
    """Enters one context after another when it is entered itself."""

    def __init__(self, *contexts: Any) -> None:
        super().__init__()
        self.contexts = contexts

    def __enter__(self) -> "_Nested":
        for context in self.contexts:
            self.enter_context(context)
        return self


class _Skip(TorchDispatchMode):
    """Leaves out the calls in `once`."""

    def __init__(self, once: frozenset[tuple[str, int]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.once = once
        self.counts: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        at = self.counts[name]
        self.counts[name] += 1
        return args[0] if (name, at) in self.once else func(*args, **(kwargs or {}))


def policy(region: Callable[..., Any], *args: Any, budget: int | str, **kwargs: Any) -> Policy:
    """A policy for selective activation checkpointing of `region(*args, **kwargs)`.

    ```python
    policy = memfit.torch.policy(block, x, budget="40%")
    y = policy.checkpoint(block, x)
    ```

    `budget` bounds what one call of the region keeps between forward and backward: bytes, a size, or a share
    of what it would keep without checkpointing. The region is run twice, as it is, to time its ops;
    parameters, buffers and the random generators are as before afterwards.

    Random ops run again and draw the same numbers, as `checkpoint` puts the generator back. Batch norm keeps
    what it makes, else it would count its batch twice. Raises `memfit.BudgetError` if that alone is more, and
    `memfit.UsageError` if what it makes is overwritten in place.
    """
    trace, other = _run(region, args, kwargs), _run(region, args, kwargs)
    for call, again in zip(trace.calls, other.calls, strict=False):
        call.time_ns = min(call.time_ns, again.time_ns)
    whole = sum(size for key, size in trace.sizes.items() if key in trace.needed)
    allowed = _allowed(budget, whole)
    fixed = [call for call in trace.calls if call.must]
    lost = [call.name[0] for call in fixed if not call.may]
    if lost:
        raise memfit.UsageError(
            f"what `{lost[0]}` makes is overwritten, so it can't be kept, and its running statistics would "
            "be counted twice",
            hint="`inplace=False` for what follows it",
        )
    least = sum(call.bytes for call in fixed)
    if least > allowed:
        raise memfit.BudgetError(
            f"batch norm alone keeps {least} bytes, and {allowed} are allowed",
            hint=f"`budget={least}`",
            budget_bytes=allowed,
            floor_bytes=least,
            least_budget_bytes=least,
            proved=True,
        )
    free = [call for call in trace.calls if call.may and not call.must]
    chosen = fixed + _knapsack(free, allowed - least)
    recomputed = sum(call.time_ns for call in trace.calls) - sum(call.time_ns for call in chosen)
    return Policy(
        kept=frozenset(call.name for call in chosen),
        kept_bytes=sum(call.bytes for call in chosen),
        whole_bytes=whole,
        recompute_ns=recomputed,
        forward_ns=sum(call.time_ns for call in trace.calls),
        once=frozenset(call.name for call in trace.calls if call.outside),
    )


def _allowed(budget: int | str, whole: int) -> int:
    if isinstance(budget, int):
        return budget
    share = budget.strip().removesuffix("%")
    if share == budget.strip():
        return _memfit.parse_bytes(budget)
    try:
        return int(whole * float(share) / 100)
    except ValueError:
        raise memfit.UsageError(f"`{budget}` is not a share", hint="`40%`") from None


@dataclasses.dataclass
class _Call:
    name: tuple[str, int]
    bytes: int
    """Of the storages it makes."""
    time_ns: int
    may: bool
    """Whether its outputs can be kept: it is not random, and nothing overwrites them later."""
    must: bool
    outside: bool


def _knapsack(calls: list[_Call], allowed: int) -> list[_Call]:
    """The calls that take the most time together, of at most `allowed` bytes. Ties go to the earlier ones."""
    step = max(1, -(-allowed // STEPS))
    room = allowed // step
    best = [0] * (room + 1)
    taken: list[list[bool]] = []
    for call in calls:
        size = -(-call.bytes // step)
        row = [False] * (room + 1)
        for at in range(room, size - 1, -1):
            if best[at - size] + call.time_ns > best[at]:
                best[at] = best[at - size] + call.time_ns
                row[at] = True
        taken.append(row)
    chosen = []
    for call, row in zip(reversed(calls), reversed(taken), strict=True):
        if row[room]:
            chosen.append(call)
            room -= -(-call.bytes // step)
    return chosen[::-1]


class _Trace(TorchDispatchMode):
    """Times the ops of a run, and sees which storages they make and overwrite."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []
        self.maker: dict[int, _Call] = {}
        self.sizes: dict[int, int] = {}
        self.needed: set[int] = set()
        self.alive: list[Any] = []
        self.counts: collections.Counter[str] = collections.Counter()

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.needed.add(_layout.storage_key(tensor))
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SAC_IGNORED_OPS:
            return func(*args, **kwargs)
        operands = _layout.tensors_in((args, kwargs))
        known = {_layout.storage_key(tensor) for tensor in operands}
        cuda = any(tensor.device.type == "cuda" for tensor in operands)
        start = _now(cuda)
        out = func(*args, **kwargs)
        took = _now(cuda) - start
        made = {}
        for tensor in _layout.tensors_in(out):
            key = _layout.storage_key(tensor)
            if key not in known and key not in self.sizes:
                made[key] = int(tensor.untyped_storage().nbytes())
                self.alive.append(tensor.untyped_storage())
        random = (
            torch.Tag.nondeterministic_seeded in func.tags and _ops.effect(func, args, kwargs) == "seeded"
        )
        written = _written(func, args, kwargs)
        for key in written:
            if key in self.maker:
                self.maker[key].may = False
        name = str(func)
        # Counters and statistics that live outside must not be moved on twice.
        outside = any(key not in self.sizes for key in written) and not random
        must = _ops.kind(func) in _ops.BATCH_NORMS_EAGER
        may = bool(made) and not random and not written
        call = _Call((name, self.counts[name]), sum(made.values()), took, may, must, outside)
        self.counts[name] += 1
        self.calls.append(call)
        self.sizes.update(made)
        self.maker.update(dict.fromkeys(made, call))
        return out


def _written(func: OpOverload, args: Any, kwargs: Any) -> set[int]:
    """The storages that a call overwrites."""
    arguments = func._schema.arguments
    named = dict(zip((argument.name for argument in arguments), args, strict=False)) | kwargs
    return {
        _layout.storage_key(tensor)
        for argument in arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for tensor in _layout.tensors_in(named.get(argument.name))
    }


def _now(cuda: bool) -> int:
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter_ns()


def _run(region: Callable[..., Any], args: Any, kwargs: Any) -> _Trace:
    modules = [
        part for part in (region, getattr(region, "__self__", None)) if isinstance(part, torch.nn.Module)
    ]
    buffers = [(buffer, buffer.clone()) for module in modules for buffer in module.buffers()]
    apart = lambda tensor: tensor.detach().requires_grad_(tensor.requires_grad)  # noqa: E731
    args, kwargs = pytree.tree_map_only(torch.Tensor, apart, (args, kwargs))
    trace = _Trace()
    hooks = torch.autograd.graph.saved_tensors_hooks(trace.pack, lambda tensor: tensor)
    with torch.random.fork_rng(), torch.enable_grad(), hooks, trace:
        region(*args, **kwargs)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    return trace
