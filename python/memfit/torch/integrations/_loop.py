"""A budget over a training loop that is somebody else's, which says where its steps begin and end."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

import memfit
from memfit.torch._errors import parse_bytes
from memfit.torch.eager import Budget, is_distributed


class Loop:
    """A budget from `begin` to `end`, with steps in between that are planned.

    All ops from `begin` to `end` keep to the budget: steps, and what comes between them, such as evaluation
    and checkpoints. A step from `step_begins` to `step_ends` is recorded, planned at its end if something was
    computed again, and follows its plan when it comes again: as `fit(..., check=False)` does. Without a plan,
    outside of steps, and with `torch.distributed` it is decided op by op what goes. The bits are the same.

    `strategy`, `plan_bytes` and `plan_seconds` are those of `fit`; `plan=False` decides op by op always. All
    other options are those of `Budget`.
    """

    def __init__(
        self,
        budget: int | float | str,
        *,
        plan: bool = True,
        strategy: str = "auto",
        plan_bytes: int | str = "512MiB",
        plan_seconds: float = 30.0,
        **options: Any,
    ) -> None:
        self.budget = Budget(budget, **options)
        if not options.get("recompute", True) and strategy == "auto":
            strategy = "offload:best"
        self._plan, self._strategy = plan, strategy
        self._planning = {"bytes": parse_bytes(plan_bytes), "seconds": float(plan_seconds)}
        self._in_step = False
        self._logged = (0, 0)
        self.steps = self.planned_steps = 0
        """Steps so far, and those of them that followed a plan to their end."""

    @property
    def is_on(self) -> bool:
        """Whether the budget is active."""
        return self.budget._native is not None

    def begin(self) -> None:
        """The budget begins, with all that is there already; once more if it was not ended.

        Raises `BudgetError` if what is there does not fit, and `RuntimeError` where another one is active.
        """
        self.end()
        self.budget.__enter__()
        self._logged = (0, 0)
        if self._plans():
            self.budget._native.set_strategy(self._strategy)

    def end(self, *raised: Any) -> None:
        """The budget ends, also in mid-step: everything that somebody can reach is brought back.

        `raised` is what ended it: type, error, traceback. Without a budget it does nothing.
        """
        budget, in_step, self._in_step = self.budget, self._in_step, False
        if not self.is_on:
            return
        if in_step and budget._mode is not None:
            # What is brought back is so once more when the budget ends, whatever it takes.
            with contextlib.suppress(memfit.BudgetError), torch._C._DisableTorchDispatch():
                budget._native.abandon_step()
        if budget._mode is not None:
            budget.__exit__(*(raised or (None, None, None)))
        else:
            budget._close()

    def step_begins(self) -> None:
        """A step begins, guided if there is a plan for the one that is expected."""
        self.step_ends()
        if self._plans():
            with self._aside() as native:
                native.begin_step()
            self._in_step = True

    def step_ends(self) -> None:
        """A step ends. If it wants a plan, one is made."""
        if not self._in_step or not self.is_on:
            return
        self._in_step = False
        with self._aside() as native:
            try:
                stepped = native.end_step()
            except memfit.BudgetError:
                # What is held at its end does not fit, and goes on as it is.
                self._plan = False
                native.abandon_step()
                return
            if stepped["wants_plan"]:
                native.plan_step(**self._planning)
        self.steps += 1
        self.planned_steps += bool(stepped["guided"])

    def metrics(self) -> dict[str, int]:
        """What is to be logged, under `memfit/`.

        `budget_bytes`; `peak_bytes` since the budget began, everything on the device counted;
        `recomputed_ops` and `moved_bytes` (copied to host memory or to a disk) since this was called last.
        Empty before `begin`.
        """
        stats = self.budget.stats
        if not stats:
            return {}
        now = stats["recomputed_ops"], stats["stored_bytes"]
        since, self._logged = [new - old for new, old in zip(now, self._logged, strict=True)], now
        return {
            "memfit/peak_bytes": stats["peak_bytes"],
            "memfit/budget_bytes": self.budget.budget,
            "memfit/recomputed_ops": since[0],
            "memfit/moved_bytes": since[1],
        }

    def _plans(self) -> bool:
        return self._plan and self.is_on and self.budget._mode is not None and not is_distributed()

    @contextlib.contextmanager
    def _aside(self) -> Iterator[Any]:
        """While the block runs no op is seen, and an interrupt waits."""
        budget = self.budget
        budget._deactivate()
        try:
            with torch._C._DisableTorchDispatch():
                yield budget._native
        finally:
            budget.interrupts.end()
        budget._activate()
