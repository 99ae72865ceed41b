"""Runs of a step in copies of this process, so that here it runs once, and does not fail half-way."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

import memfit
from memfit.torch import _copy, _sensitive
from memfit.torch._glue import op_named
from memfit.torch._report import Floor, Report, Times
from memfit.torch._state import Print, State
from memfit.torch.eager import Budget
from memfit.torch.meter import Meter

Files: TypeAlias = tuple[bytes, bytes, Times | None]
"""A profile, a plan, and what a step by it is predicted to take."""
Known: TypeAlias = list[Any]
"""What was learnt of ops, as the native half tells it."""
Tried: TypeAlias = list[tuple[str, int | None]]
"""What was tried for a plan: names, and nanoseconds in repetitions of what was found."""
Plain: TypeAlias = tuple[Print | None, int | None, float | None, Known]
"""What a step without memfit leaves behind, its peak, its seconds, and what was learnt."""
Surveyed: TypeAlias = tuple[Files | None, Known, Floor | None, int | None, Tried]
"""A plan, what was learnt, the floor, the least budget, and what was tried."""

# Attributes of a `BudgetError`, beside its message and its hint.
_TOLD = (
    "budget_bytes", "least_budget_bytes", "floor_bytes", "dominant", "proved", "op", "asked", "operands",
    "pinned", "kept", "slow", "place", "largest",
)  # fmt: skip


def plainly(run: Callable[[], Any], state: State, meter: Meter) -> Plain:
    """What the step leaves behind without memfit, its peak, its seconds, and what is learnt of its ops.

    `None` where memory ran out.
    """

    def work() -> Plain:
        started = time.perf_counter()
        try:
            with meter:
                result = run()
            seen = state.fingerprint(result), meter.peak_bytes, time.perf_counter() - started
            result = None
            # Once more, to measure the scratch memory of each op.
            with Budget(1 << 62, device=meter.device) as budget:
                run()
                return *seen, budget._native.known()
        except torch.OutOfMemoryError:
            return None, None, None, []

    return _copy.in_copy(work)


def survey(
    run: Callable[[], Any],
    device: torch.device,
    limits: tuple[int, dict[str, Any]],
    strategy: str,
    planning: dict[str, Any],
    known: Known,
) -> Surveyed:
    """From runs without a budget: a plan within `limits`, what was learnt, and what was tried.

    The limits are bytes of the device, and what else a plan may use, as keywords of a `Budget`.

    Where there is no plan, the floor, and the least budget that one was found for.
    """

    def work() -> Surveyed:
        budget, means = limits
        sensed = _sensitive.measure(run, means["lossy"]) if strategy == _sensitive.STRATEGY else None
        with Budget(1 << 62, device=device, **means) as unlimited:
            native, least = unlimited._native, 0
            native.set_strategy(strategy)
            learn(native, known)
            for first in (True, False):
                with _sensitive.told(native, sensed):
                    told = recorded(native, run)
                if first and native.plan_step(budget, **planning):
                    return saved(native), native.known(), None, None, native.tried()
                # What would do must do for the first step, and for all that come after it.
                if least is not None:
                    least = native.least_budget(max(least, told.floor_bytes), **planning)
            return None, native.known(), told, least, native.tried()

    return _copy.in_copy(work)


def again(
    run: Callable[[], Any],
    budget: Budget,
    limits: tuple[int, dict[str, Any]],
    ways: tuple[str, dict[str, Any]],
    report: Report,
) -> str | None:
    """Plans the step once more, as `survey` does, for `budget` to follow; a note where that can't be."""
    why = _copy.obstacle(budget.device)
    if why is None:
        try:
            known = budget._native.known()
            files, _, _, _, report.tried = survey(run, budget.device, limits, *ways, known)
        except _copy.Failed as failure:
            why = str(failure)
        else:
            if files is not None:
                budget._native.load(*files)
                report.sensed += 1
    return why and f"sensitivities are not measured again: {why}"


def recorded(native: Any, run: Callable[[], Any]) -> Floor:
    """Records a step; its floor."""
    with torch._C._DisableTorchDispatch():
        native.begin_step()
    native.watch()
    result = run()
    with torch._C._DisableTorchDispatch():
        persistent, largest, op, bound = native.floor()
        # What the step returns is held when it ends, as when it runs within its budget.
        native.end_step()
        del result
        return Floor(persistent, largest, op, native.stats()["peak_bytes"], bound)


def saved(native: Any) -> Files | None:
    """The last plan, if there is one."""
    files, planned = native.save(), native.planned()
    return (*files, planned[2]) if files and planned else None


def within(
    run: Callable[[], Any], again: Callable[[], Any] | None = None
) -> tuple[Files | None, Known, Tried]:
    """Plan and knowledge that the step ended with, within its budget, and what was tried for the plan.

    `run` gives the native half, and what was tried. `again` runs the step once more, by the plan, to time it.

    Raises what the budget raised.
    """

    def work() -> tuple[Files | None, Known, Tried] | dict[str, Any]:
        try:
            native, tried = run()
        except memfit.BudgetError as error:
            return {name: getattr(error, name) for name in _TOLD if hasattr(error, name)} | {
                "message": error.args[0],
                "hint": error.hint,
            }
        except TimeoutError as error:
            return {"message": str(error), "hint": "a larger budget"}
        files, known = saved(native), native.known()
        files = timed(files, native, again) if files and again else files
        return files, known, tried

    outcome = _copy.in_copy(work)
    if isinstance(outcome, dict):
        error = memfit.BudgetError(outcome.pop("message"), hint=outcome.pop("hint"))
        for name, value in outcome.items():
            setattr(error, name, value)
        raise error
    return outcome


def timed(files: Files, native: Any, again: Callable[[], Any]) -> Files:
    """`files`, with the time of one more step by the plan, in which no page of memory is copied any more.

    Its repetitions and waiting are those that the plan foresees.
    """
    profile, plan, predicted = files
    guided = native.planned()[3] is not None
    if predicted and guided:
        with contextlib.suppress(Exception):
            again()
            predicted = min(predicted[0], native.planned()[3][0]), predicted[1]
    return profile, plan, predicted


def learn(native: Any, known: Known) -> None:
    """Takes over what a copy has learnt of ops."""
    named = [(op_named(row[0]), row) for row in known]
    rows = [(op, row) for op, row in named if op is not None]
    native.learn([op for op, _ in rows], [row for _, row in rows])
