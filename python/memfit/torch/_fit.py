"""`fit`: a training step within a budget, recorded once, planned ahead, guided from then on.

```python
step = memfit.torch.fit(train_step, budget="8GiB")
for batch in loader:
    loss = step(batch)
print(step.report)
```
"""

import contextlib
import copy
import gc
import hashlib
import random
import statistics
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import memfit
import torch
from memfit.torch._errors import parse_bytes
from memfit.torch._glue import live_storages
from memfit.torch.eager import Budget
from memfit.torch.meter import Meter
from memfit.torch._report import Floor, Report, memory


def fit(step: Callable[..., Any], budget: int | str, **options: Any) -> "Fitted":
    """Wraps `step` so that each call keeps to `budget`. See `Fitted`."""
    return Fitted(step, budget, **options)


class Fitted:
    """A step within a budget.

    The first call is made twice where `check` says so: once plainly, to know its peak, its time and its results, and then, from
    the same state, within the budget; the results must be the same bits. Tensors, gradients, optimizers and generators
    are put back in between; other state of Python's is not, so leave `check` off where a call takes its batch
    from an iterator by itself. What the plain run takes on the device is outside the budget.

    The step is recorded by the first call within the budget and planned after it; later calls follow the plan, and go on without
    it from the first op that differs. Between the calls there is no budget, and no overhead.

    `load` is a folder that `save` wrote in an earlier run. `report` says what was predicted and measured.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        budget: int | str,
        *,
        device: str | torch.device | None = None,
        evictor: str = "best",
        check: bool = True,
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
        device, report = self._budget.device, self.report
        plain = None
        if self._calls == 0:
            self.report.device = str(device)
            if self._check:
                plain = self._run_plainly(args, kwargs)
        if self._budget._native is None:
            self._open()
        native = self._budget._native
        for value in _tensors((args, kwargs)):
            if value.device.type == device.type:
                native.adopt(value.untyped_storage())
        try:
            return self._call(native, args, kwargs, plain)
        except memfit.BudgetError as error:
            if self._check:
                self.close()
                # What the step that failed still holds is none of its floor.
                traceback.clear_frames(error.__traceback__)
                self._explain(error, args, kwargs)
            raise

    def _call(self, native: Any, args: Any, kwargs: Any, plain: "_Expected | None") -> Any:
        device, report = self._budget.device, self.report
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
            result = self.step(*args, **kwargs)
        except BaseException:
            self._budget._deactivate()
            with torch._C._DisableTorchDispatch():
                native.abandon_step()
            raise
        self._budget._deactivate()
        with torch._C._DisableTorchDispatch():
            stepped = native.end_step()
        after = native.stats()
        self.report.peak_bytes = after["peak_bytes"]
        self.report.guided = stepped["guided"]
        self.report.recompute_seconds = stepped["recompute_ns"] / 1e9
        if stepped["predicted_ns"] is not None:
            self.report.predicted_recompute_seconds = stepped["predicted_ns"] / 1e9
        self.report.arena_bytes = stepped["arena_bytes"]
        self.report.recomputed_ops = after["recomputed_ops"] - before["recomputed_ops"]
        return result

    def _open(self) -> None:
        self._budget._open()
        if self._load is not None:
            profile, plan = (
                (self._load / "profile.json").read_bytes(),
                (self._load / "plan.json").read_bytes(),
            )
            self._budget._native.load(profile, plan)

    def _explain(self, error: memfit.BudgetError, args: Any, kwargs: Any) -> None:
        """Completes `error` by the floor and the least budget that is known to do, from a run without a budget."""
        with _State(self._budget.device):
            try:
                told = _floor(self.step, args, kwargs, self._budget.device, least=True)
            except torch.OutOfMemoryError:
                return
        error.floor_bytes, error.dominant = told.floor_bytes, told.largest_op
        error.least_budget_bytes = told.least_budget_bytes
        error.proved = self.budget < told.floor_bytes
        error.hint = (
            f"the floor is {memory(told.floor_bytes)}: {memory(told.persistent_bytes)} that outlive the step (parameters, "
            f"gradients, optimizer state, inputs) and {memory(told.largest_bytes)} for `{told.largest_op}`; "
            f"`budget={told.least_budget_bytes}` ({memory(told.least_budget_bytes)}) would do"
        )

    def _run_plainly(self, args: Any, kwargs: Any) -> "_Expected | None":
        """The step as it is, from a state that is put back."""
        device = self._budget.device
        with _State(device) as state:
            meter = Meter(device)
            started = time.perf_counter()
            try:
                with meter:
                    result = self.step(*args, **kwargs)
            except torch.OutOfMemoryError:
                return None
            self.report.base_time_seconds = time.perf_counter() - started
            self.report.base_peak_bytes = meter.peak_bytes - state.bytes
            expected = state.expect(result)
            del result
        return expected

    def save(self, folder: str | Path) -> None:
        """Writes the last planned step and its plan to `folder`, for `load` in the next run."""
        native = self._budget._native
        saved = native.save() if native is not None else None
        if saved is None:
            raise RuntimeError(
                "there is no plan yet\nhint: a plan is made after a step in which something was recomputed"
            )
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in zip(("profile.json", "plan.json"), saved):
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
    """The least bytes `step(*args, **kwargs)` can do with: what outlives a call, and the largest working set of one op.

    The step is called twice, for real: once so that gradients and the optimizer's state are there, and once to look.
    """
    return _floor(step, args, kwargs, device)


def _floor(step: Callable[..., Any], args: Any, kwargs: Any, device: Any, least: bool = False) -> Floor:
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
            fewest = native.least_budget(persistent + largest) if least else None
            native.abandon_step()
            peak = native.stats()["peak_bytes"]
    return Floor(persistent, largest, op, peak, fewest)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _tensors(element)
    elif isinstance(value, dict):
        for element in value.values():
            yield from _tensors(element)


class _Expected:
    """What a step should leave behind: results, contents of what was there before, gradients, optimizer state."""

    def __init__(self, state: "_State", result: Any) -> None:
        self._storages = [(weakref.ref(storage), _digest(storage)) for storage, _ in state.storages]
        self._leaves = [(weakref.ref(leaf), _of([leaf.grad])) for leaf, _ in state.gradients]
        self._optimizers = [
            (weakref.ref(optimizer), _of(optimizer.state)) for optimizer, _ in state.optimizers
        ]
        self._result = _of(result)

    def matches(self, result: Any) -> bool:
        """Whether the same is there now, as far as it is still there at all."""
        storages = ((reference(), digest) for reference, digest in self._storages)
        leaves = ((reference(), digest) for reference, digest in self._leaves)
        optimizers = ((reference(), digest) for reference, digest in self._optimizers)
        return (
            self._result == _of(result)
            and all(storage is None or _digest(storage) == digest for storage, digest in storages)
            and all(leaf is None or _of([leaf.grad]) == digest for leaf, digest in leaves)
            and all(optimizer is None or _of(optimizer.state) == digest for optimizer, digest in optimizers)
        )


def _of(value: Any) -> list[str]:
    return [_digest(tensor.untyped_storage()) for tensor in _tensors(value)]


def _digest(storage: torch.UntypedStorage) -> str:
    if storage.device.type == "meta":
        return "meta"
    content = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    # A copy: a storage that NumPy has seen could never be evicted.
    return hashlib.blake2b(content.cpu().clone().numpy().tobytes(), digest_size=16).hexdigest()


class _State:
    """Tensors, gradients, optimizers and generators as they are now; put back at the end of the block."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.bytes = 0

    def __enter__(self) -> "_State":
        gc.collect()
        storages = live_storages(self._device)
        self.storages = [(storage, storage.clone()) for storage in storages]
        self.bytes = sum(storage.nbytes() for storage in storages)
        objects = gc.get_objects()
        leaves = [thing for thing in objects if _is_leaf(thing)]
        self.gradients = [(leaf, leaf.grad) for leaf in leaves]
        optimizers = [thing for thing in objects if issubclass(type(thing), torch.optim.Optimizer)]
        self.optimizers = [
            (optimizer, {key: copy.copy(value) for key, value in optimizer.state.items()})
            for optimizer in optimizers
        ]
        self._generators = (random.getstate(), torch.random.get_rng_state(), _cuda_state())
        return self

    def expect(self, result: Any) -> _Expected:
        """What is there now, and `result`."""
        return _Expected(self, result)

    def __exit__(self, *raised: Any) -> None:
        for leaf, gradient in self.gradients:
            leaf.grad = gradient
        for optimizer, state in self.optimizers:
            optimizer.state.clear()
            optimizer.state.update(state)
        with torch.no_grad():
            for storage, content in self.storages:
                storage.copy_(content)
        python, cpu, cuda = self._generators
        random.setstate(python)
        torch.random.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        # Nothing is held on to: what the step lets go of must go.
        self.storages.clear()
        self.gradients.clear()
        self.optimizers.clear()


def _is_leaf(thing: Any) -> bool:
    try:
        return issubclass(type(thing), torch.Tensor) and thing.is_leaf and thing.requires_grad
    except RuntimeError:
        return False


def _cuda_state() -> list[torch.Tensor] | None:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None


__all__ = ["Fitted", "Floor", "Report", "fit", "floor"]
