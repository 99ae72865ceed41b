"""`fit`: a training step within a budget, recorded once, planned ahead, guided from then on.

```python
step = memfit.torch.fit(train_step, budget="8GiB")
for batch in loader:
    loss = step(batch)
print(step.report)
```
"""

import contextlib
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch

import memfit
from memfit.torch._errors import parse_bytes
from memfit.torch._glue import storages
from memfit.torch._report import Floor, Report, memory
from memfit.torch._state import Expected, State
from memfit.torch.eager import Budget, is_distributed
from memfit.torch.meter import Meter

_Files: TypeAlias = tuple[bytes, bytes]
"""A profile and a plan."""
_FILES = ("profile.json", "plan.json")
# Calls that are made again from a plan if op by op there is no way: without the optimizer's state, and with
# it.
_PROTECTED = 2
# Steps after which ranks that found no plan to share stop to look for one.
_EXCHANGES = 4


def fit(step: Callable[..., Any], budget: int | str, **options: Any) -> "Fitted":
    """Wraps `step` so that each call keeps to `budget`. See `Fitted`."""
    return Fitted(step, budget, **options)


class Fitted:
    """A step within a budget.

    The first call is made twice where `check` says so: once plainly, to know its peak, its time and its
    results, and then, from the same state, within the budget; the results must be the same bits. Tensors,
    gradients, optimizers and generators are put back in between; other state of Python's is not, so leave
    `check` off where a call takes its batch from an iterator by itself. What the plain run takes on the
    device, and a copy in host memory of what was there before, is outside the budget.

    The step is recorded by the first call within the budget and planned after it; later calls follow the
    plan, and go on without it from the first op that differs. Where one of the first two calls finds no way,
    deciding op by op, `check` has it planned from a recording without a budget, and made again. Between the
    calls there is no budget, and no overhead.

    With `torch.distributed`, all ranks have the smallest budget of all and follow the first rank's plan,
    after each one's judge has read it; ranks whose steps differ have their own. What fails on one fails on
    all. `check` is off there unless asked for: DDP lays out its buckets anew after its first step, so a
    training whose first step is made twice has other last bits.

    `load` is a folder that `save` wrote in an earlier run. `report` says what was predicted and measured.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        budget: int | str,
        *,
        device: str | torch.device | None = None,
        evictor: str = "best",
        check: bool | None = None,
        load: str | Path | None = None,
    ) -> None:
        self.step = step
        self.budget = parse_bytes(budget)
        self.report = Report(budget_bytes=self.budget)
        self._check = check
        self._load = Path(load) if load is not None else None
        self._budget = Budget(self.budget, device=device, evictor=evictor)
        self._calls = 0
        self._times: list[float] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.report.device = str(self._budget.device)
        alone = not is_distributed()
        check = alone if self._check is None else self._check
        if self._calls >= _PROTECTED or not check:
            return self._call(args, kwargs)
        with State(self._budget.device) as state:
            plain = self._run_plainly(state, args, kwargs) if self._calls == 0 else None
            try:
                return self._call(args, kwargs, plain)
            except memfit.BudgetError as error:
                if not alone:
                    raise  # The process groups are gone with it.
                refusal = self._undo(error, state)
            planned = self._plan_ahead(state, args, kwargs)
            if planned is not None:
                try:
                    self._open(planned)
                    return self._call(args, kwargs, plain)
                except memfit.BudgetError as error:
                    refusal = self._undo(error, state)
            self._explain(refusal, state, args, kwargs)
            raise refusal

    def _undo(self, error: memfit.BudgetError, state: State) -> memfit.BudgetError:
        self.close()
        # What the step that failed still holds is none of its floor.
        traceback.clear_frames(error.__traceback__)
        state.put_back()
        return error

    def _plan_ahead(self, state: State, args: Any, kwargs: Any) -> _Files | None:
        """Profile and plan of the step from a recording without a budget, if there is a plan."""
        try:
            with _recording(self.step, args, kwargs, self._budget.device) as (native, _):
                return native.save() if native.plan_step(self.budget) else None
        except torch.OutOfMemoryError:
            return None
        finally:
            state.put_back()

    def _call(self, args: Any, kwargs: Any, plain: Expected | None = None) -> Any:
        device, report = self._budget.device, self.report
        if self._budget._native is None:
            self._open(self._load and tuple((self._load / name).read_bytes() for name in _FILES))
        native = self._budget._native
        for storage in storages((args, kwargs)):
            if storage.device.type == device.type:
                native.adopt(storage)
        # The first call learns how much scratch memory each op takes, which the meter would hide.
        metered = self._calls in (1, 2)
        meter = Meter(device) if metered else contextlib.nullcontext()
        started = time.perf_counter()
        with meter:
            result = self._within(native, args, kwargs)
        elapsed = time.perf_counter() - started
        if isinstance(meter, Meter):
            report.measured_peak_bytes = max(report.measured_peak_bytes or 0, meter.peak_bytes)
        else:
            self._times.append(elapsed)
        report.time_seconds = statistics.median(self._times) if self._times else elapsed
        if plain is not None:
            report.identical = plain.matches(result)
        self._calls += 1
        return result

    def _within(self, native: Any, args: Any, kwargs: Any) -> Any:
        try:
            return self._step_within(native, args, kwargs)
        finally:
            self._budget._stop_listening()

    def _step_within(self, native: Any, args: Any, kwargs: Any) -> Any:
        with torch._C._DisableTorchDispatch():
            native.begin_step()
        before = native.stats()
        self._budget._activate()
        try:
            result = self._run(args, kwargs)
        except BaseException:
            self._budget._deactivate()
            with torch._C._DisableTorchDispatch():
                native.abandon_step()
            raise
        self._budget._deactivate()
        with torch._C._DisableTorchDispatch():
            stepped = native.end_step()
            if is_distributed():
                self._share_plan(native, stepped)
            elif stepped["wants_plan"]:
                native.plan_step()
        after = native.stats()
        self.report.peak_bytes = after["peak_bytes"]
        self.report.guided = stepped["guided"]
        self.report.recompute_seconds = stepped["recompute_ns"] / 1e9
        if stepped["predicted_ns"] is not None:
            self.report.predicted_recompute_seconds = stepped["predicted_ns"] / 1e9
        self.report.arena_bytes = native.arena_bytes()
        self.report.recomputed_ops = after["recomputed_ops"] - before["recomputed_ops"]
        return result

    def _run(self, args: Any, kwargs: Any) -> Any:
        """The step; a rank that fails wakes those that wait for it."""
        if not is_distributed():
            return self.step(*args, **kwargs)
        from memfit.torch import distributed

        with distributed.step():
            return self.step(*args, **kwargs)

    def _share_plan(self, native: Any, stepped: dict[str, Any]) -> None:
        """The first rank's plan becomes everyone's.

        Ranks whose steps differ, by uneven shards say, plan for themselves.
        """
        from memfit.torch import distributed

        if self._exchanges == 0:
            return
        ranks = distributed.ranks()
        said = ranks.gather((stepped["sequence"], stepped["wants_plan"], stepped["guided"]))
        sequences, wanting, guided = map(set, zip(*said, strict=True))
        self._exchanges = 0 if guided == {True} else self._exchanges - 1
        self.report.notes = ["the ranks' steps differ: each has its own plan"] if len(sequences) > 1 else []
        if len(sequences) > 1:
            if stepped["wants_plan"]:
                native.plan_step()
        elif True in wanting:
            files = ranks.from_first(lambda: native.save() if native.plan_step() else None)
            if files is not None:
                with ranks.together():
                    # The step is this rank's own: the plan is for the same calls, and the judge has read it.
                    if ranks.rank > 0 and native.load(*files) != stepped["sequence"]:
                        raise memfit.RankError("the plan is not for the step that it was made for")
                ranks.same(b"".join(files), "plans")

    def _open(self, planned: _Files | None) -> None:
        self._budget._open()
        self.report.budget_bytes = self._budget.budget
        self._exchanges = _EXCHANGES
        if planned is not None:
            self._budget._native.load(*planned)

    def _explain(self, error: memfit.BudgetError, state: State, args: Any, kwargs: Any) -> None:
        """Completes `error` by the floor and the least budget known to do, from a run without a budget."""
        try:
            with _recording(self.step, args, kwargs, self._budget.device) as (native, told):
                least = native.least_budget(told.floor_bytes)
        except torch.OutOfMemoryError:
            return
        finally:
            state.put_back()
        error.floor_bytes, error.dominant = told.floor_bytes, told.largest_op
        error.least_budget_bytes, error.lower_bound = least, False
        error.proved = self.budget < told.floor_bytes
        error.hint = (
            f"the floor is {memory(told.floor_bytes)}: {memory(told.persistent_bytes)} that outlive the step "
            "(parameters, gradients, optimizer state, inputs) and "
            f"{memory(told.largest_bytes)} for `{told.largest_op}`; "
        )
        error.hint += (
            f"`budget={least}` ({memory(least)}) would do" if least else "no budget was found that would do"
        )

    def _run_plainly(self, state: State, args: Any, kwargs: Any) -> Expected | None:
        """The step as it is; what it started from is put back."""
        meter = Meter(self._budget.device)
        try:
            if is_distributed():
                # DDP's buckets are laid out for good by its first step.
                self._run(args, kwargs)
                state.put_back()
            started = time.perf_counter()
            with meter:
                result = self._run(args, kwargs)
            self.report.base_time_seconds = time.perf_counter() - started
            self.report.base_peak_bytes = meter.peak_bytes
            return state.expect(result)
        except torch.OutOfMemoryError:
            return None
        finally:
            result = None
            state.put_back()

    @property
    def plan(self) -> bytes | None:
        """The plan file of the step that was planned last, if there is one."""
        saved = self._saved()
        return saved and saved[1]

    def _saved(self) -> _Files | None:
        return None if self._budget._native is None else self._budget._native.save()

    def save(self, folder: str | Path) -> None:
        """Writes the last planned step and its plan to `folder`, for `load` in the next run."""
        saved = self._saved()
        if saved is None:
            raise RuntimeError(
                "there is no plan yet\nhint: a plan is made after a step in which something was recomputed"
            )
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in zip(_FILES, saved, strict=True):
            (folder / name).write_bytes(content)

    def close(self) -> None:
        """Lets go of everything; later calls begin anew."""
        self._budget._close()
        self._calls = 0

    def __enter__(self) -> "Fitted":
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()


def floor(
    step: Callable[..., Any], *args: Any, device: str | torch.device | None = None, **kwargs: Any
) -> Floor:
    """The least bytes `step(*args, **kwargs)` can do with.

    They are what outlives a call, and the largest working set of one op. The step is called twice, for real:
    once so that gradients and the optimizer's state are there, and once to look.
    """
    with _recording(step, args, kwargs, device) as (_, told):
        return told


@contextlib.contextmanager
def _recording(
    step: Callable[..., Any], args: Any, kwargs: Any, device: str | torch.device | None
) -> Iterator[tuple[Any, Floor]]:
    """Calls a step twice without a limit, the second time recorded.

    Yields the native half, which can plan it, and the floor.
    """
    with Budget(1 << 62, device=device) as budget:
        native = budget._native
        step(*args, **kwargs)
        with torch._C._DisableTorchDispatch():
            native.begin_step()
        native.watch()
        result = step(*args, **kwargs)
        with torch._C._DisableTorchDispatch():
            persistent, largest, op = native.floor()
            del result
            native.end_step()
            yield native, Floor(persistent, largest, op, native.stats()["peak_bytes"])


__all__ = ["Fitted", "Floor", "Report", "fit", "floor"]
