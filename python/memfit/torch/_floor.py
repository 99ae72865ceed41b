"""The least bytes that a step can do with: measured, told, and what an error says of it."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

import memfit
from memfit.torch import _rehearse
from memfit.torch._report import Floor, memory
from memfit.torch.eager import Budget


def floor(
    step: Callable[..., Any], *args: Any, device: str | torch.device | None = None, **kwargs: Any
) -> Floor:
    """The least bytes `step(*args, **kwargs)` can do with.

    They are what outlives a call, and the largest working set of one op. The step is called twice, for real:
    once so that gradients and the optimizer's state are there, and once to look.
    """
    with recording(step, args, kwargs, device) as (_, told):
        return told


@contextlib.contextmanager
def recording(
    step: Callable[..., Any], args: Any, kwargs: Any, device: str | torch.device | None, **means: Any
) -> Iterator[tuple[Any, Floor]]:
    """Calls a step twice without a limit, the second time recorded.

    Yields the native half, which can plan it, and the floor.
    """
    with Budget(1 << 62, device=device, **means) as budget:
        step(*args, **kwargs)
        run = functools.partial(step, *args, **kwargs)
        yield budget._native, _rehearse.recorded(budget._native, run)


def complete(error: memfit.BudgetError, budget: int, told: Floor, least: int | None) -> None:
    """Has `error`, of a step that doesn't fit within `budget`, say the floor, and the least that would do."""
    error.floor_bytes, error.dominant = told.floor_bytes, told.largest_op
    error.least_budget_bytes, error.lower_bound = least, False
    error.proved = budget < told.bound_bytes
    error.hint = (
        f"the floor is {memory(told.floor_bytes)}: {memory(told.persistent_bytes)} that outlive the step "
        "(parameters, gradients, optimizer state, inputs) and "
        f"{memory(told.largest_bytes)} for `{told.largest_op}`; "
    )
    if told.bound_bytes < told.floor_bytes:
        error.hint += f"with what outlives the step elsewhere it takes {memory(told.bound_bytes)} at least; "
    error.hint += (
        f"`budget={least}` ({memory(least)}) would do" if least else "no budget was found that would do"
    )
