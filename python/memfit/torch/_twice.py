"""A first call that is made twice in one process: plainly, and, once all is put back, within the budget."""

import time
from typing import Any

import torch

import memfit
from memfit.torch._floor import complete, recording
from memfit.torch._rehearse import Files, saved
from memfit.torch._state import Print, State
from memfit.torch.eager import is_distributed
from memfit.torch.meter import Meter


def twice(fitted: Any, state: State, alone: bool, args: Any, kwargs: Any) -> Any:
    """The step, after it has been made plainly and put back."""
    plain = _run_plainly(fitted, state, args, kwargs) if fitted._calls == 0 else None
    try:
        return fitted._call(args, kwargs, state, plain)
    except memfit.BudgetError as error:
        if not alone:
            raise  # The process groups are gone with it.
        refusal = fitted._undo(error, state)
    planned = _plan_ahead(fitted, state, args, kwargs)
    if planned is not None:
        try:
            fitted._open(planned)
            return fitted._call(args, kwargs, state, plain)
        except memfit.BudgetError as error:
            refusal = fitted._undo(error, state)
    _explain(fitted, refusal, state, args, kwargs)
    raise refusal


def _plan_ahead(fitted: Any, state: State, args: Any, kwargs: Any) -> Files | None:
    """Profile and plan of the step from a recording without a budget, if there is a plan."""
    try:
        with recording(fitted.step, args, kwargs, fitted._budget.device, **fitted._means) as (native, _):
            native.set_strategy(fitted._strategy)
            return saved(native) if native.plan_step(fitted.budget, **fitted._planning) else None
    except torch.OutOfMemoryError:
        return None
    finally:
        state.put_back()


def _explain(fitted: Any, error: memfit.BudgetError, state: State, args: Any, kwargs: Any) -> None:
    """Completes `error` by the floor and the least budget known to do, from a run without a budget."""
    try:
        with recording(fitted.step, args, kwargs, fitted._budget.device, **fitted._means) as (native, told):
            least = native.least_budget(told.floor_bytes, **fitted._planning)
    except torch.OutOfMemoryError:
        return
    finally:
        state.put_back()
    complete(error, fitted.budget, told, least)


def _run_plainly(fitted: Any, state: State, args: Any, kwargs: Any) -> Print | None:
    """The step as it is; what it started from is put back."""
    meter = Meter(fitted._budget.device)
    try:
        if is_distributed():
            # DDP's buckets are laid out for good by its first step.
            fitted._run(args, kwargs)
            state.put_back()
        started = time.perf_counter()
        with meter:
            result = fitted._run(args, kwargs)
        fitted.report.base_time_seconds = time.perf_counter() - started
        fitted.report.base_peak_bytes = meter.peak_bytes
        return state.fingerprint(result)
    except torch.OutOfMemoryError:
        return None
    finally:
        result = None
        state.put_back()
