"""`fit`: a training step within a budget, recorded once, planned ahead, guided from then on.

```python
step = memfit.torch.fit(train_step, budget="8GiB")
for batch in loader:
    loss = step(batch)
print(step.report)
```
"""

import contextlib
import functools
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import memfit
from memfit import _memfit
from memfit.torch import _copy, _quantised, _rehearse, _sensitive, _twice
from memfit.torch._alive import live_storages
from memfit.torch._errors import parse_bytes
from memfit.torch._floor import complete, floor
from memfit.torch._glue import storages
from memfit.torch._gradients import Sampler
from memfit.torch._rehearse import Files, Known
from memfit.torch._replay import Replay
from memfit.torch._report import NO_PLAN, Floor, Planned, Report
from memfit.torch._state import Print, State, same
from memfit.torch.eager import Budget, is_distributed, kept_from_forks, make_free, names
from memfit.torch.meter import Meter, StepMeter, given_out

_FILES = ("profile.json", "plan.json")
# Calls that are rehearsed, or made again from a plan if op by op there is no way: without the optimizer's
# state, and with it.
_PROTECTED = 2
# Steps after which ranks that found no plan to share stop to look for one.
_EXCHANGES = 4
# Budgets of so many times what the step takes need no rehearsal.
_ROOMY = 2
# Times the step's own time, beside what planning may take, that a rehearsal may recompute for.
_MOST_RECOMPUTE = 20
# How often the parked tensors of one step came back because another began: those are elsewhere then.
_moved = 0


def fit(step: Callable[..., Any], budget: int | str, **options: Any) -> "Fitted":
    """Wraps `step` so that each call keeps to `budget`. See `Fitted`."""
    return Fitted(step, budget, **options)


class Fitted:
    """A step within a budget.

    The first two calls are rehearsed where `check` says so. On Linux, with tensors on the CPU, that happens
    in copies of this process: one runs the first call plainly, to know its peak, its time and its results,
    another records it without a budget and plans it, a third follows the plan. Here each call runs once, by a
    plan that has been tried; its results must be the same bits as the plain ones. What the copies do nobody
    sees: they have generators, counters, schedulers and files of their own. A step that can't run there (it
    writes to a file that it opens, it takes its batch from another process) is not checked, and the report
    says why.

    Where a process can't be copied, the first call is made twice: tensors, gradients, optimizers, generators,
    and what `step` and its arguments reach through containers, attributes, closures and globals is put back
    in between. If they reach what can't be put back, such as an iterator, the call is made once and not
    checked; `check=True` refuses instead. What all this takes is outside the budget. So on a GPU, where the
    plain step may take more than there is, nothing is rehearsed unless `check=True`.

    Without `check`, the first call decides op by op, is recorded, and planned at its end. Later calls follow
    the plan, and go on without it from the first op that differs. A search for a plan takes at most
    `plan_bytes` of host memory and about `plan_seconds`; then it takes what it has. Between the calls there
    is no budget, and no overhead; what was made there counts in the next call.

    With `torch.distributed`, all ranks have the smallest budget of all and follow the first rank's plan,
    which each of them verifies first; ranks whose steps differ have their own. What fails on one fails on
    all. `check` is off there unless asked for: DDP lays out its buckets anew after its first step, so a
    training whose first step is made twice differs in the last bits.

    `strategy` names what plans: `auto` takes the cheapest of all ways, `evict:planned` is the engine's
    portfolio of virtual runs, which takes less time, and a scheduler's name (`memfit.strategies()`, families
    `recompute`, `offload`, `compress` and `hybrid`) has that one alone.

    `host_budget` bytes of host memory may hold copies of values that leave the device between two uses and
    come back: a plan moves what is faster to move than to compute again. `offload:best` moves only,
    `hybrid:best` does both. `disk_budget` bytes of the disk that the directory `spill` is on serve for the
    same. A copy that is lost (a full disk, a failed read) is computed again, and the report says why. `link`
    and `recompute` are those of `Budget`.

    `lossless` names codecs by which a plan may hold values between two uses: `"zvc"` (zero-value compression)
    drops zeros, of which ReLU makes many, `"csr"` does so for values that are nearly empty, `"binarize"`
    keeps signs for those who read no more. How many zeros there are is measured in the first step; a value
    that has fewer in a later step is computed again. A strategy of the family `compress` has `zvc` named.

    `lossy` names codecs that lose something, for where no plan without them fits (a `strategy` that is named
    takes them as it will): `"int8+mask"`, `"int4+mask"`, `"cast-bf16"` and so on, or `"gist"` and `"actnn"`,
    which stand for several. The gradients are not those of plain training then. `report.gradients` says how
    far off they were in sampled steps, beside what another batch makes of them; for that a step runs once
    more, in a copy of this process. `"quantised-state"` among them has the state of optimizers wait in eight
    bits between their steps: see `quantise_state`. So does `strategy="compress:quantised-state"` with
    `lossy="state8"`; the rest of the step is planned as by `auto`.

    `strategy="compress:gact"` gives each value as many bits as gradients are sensitive to it, where the first
    call is rehearsed: measured in a copy of this process, two runs for each value, and kept in the profile.
    With `sense_every` that is done again before each so many calls, where a copy can be made, and the step
    is planned anew; `report.sensed` counts how often.

    With `replay`, a step that has settled is run from a verified plan of its own, below autograd: no dispatch
    mode, no graph building, none of its Python but the `step` of optimizers and schedulers. Where arguments,
    or objects that it reaches, are others, the step itself runs, and `report.replay_why` says why; so does
    one that reads numbers or changes objects. docs/pytorch.md has the rules.

    `load` is a folder that `save` wrote in an earlier run; the plan is verified before it is followed.
    `report` says what was predicted and measured.
    """

    _exchanges: int

    def __init__(
        self,
        step: Callable[..., Any],
        budget: int | str,
        *,
        device: str | torch.device | None = None,
        evictor: str = "best",
        strategy: str = "auto",
        check: bool | None = None,
        load: str | Path | None = None,
        host_budget: int | str = 0,
        disk_budget: int | str = 0,
        spill: str | Path | None = None,
        link: int | float | str | None = None,
        recompute: bool = True,
        lossless: str | Sequence[str] = (),
        lossy: str | Sequence[str] = (),
        sense_every: int | None = None,
        replay: bool = False,
        plan_bytes: int | str = "512MiB",
        plan_seconds: float = 30.0,
    ) -> None:
        self.step = step
        self.budget = parse_bytes(budget)
        self.report = Report(budget_bytes=self.budget)
        self.report._recorded = weakref.WeakMethod(self._saved)  # type: ignore[misc]  # Keeps no step alive.
        self._check = check
        self._load = Path(load) if load is not None else None
        self._planning = {"bytes": parse_bytes(plan_bytes), "seconds": float(plan_seconds)}
        lossless, lossy = names(lossless), names(lossy)
        if not lossless and not lossy and strategy.startswith("compress:"):
            lossless = ["zvc"]
        strategy, lossy = _quantised.asked(strategy, lossy)
        if not recompute and strategy == "auto":
            strategy = "offload:best"
        self._strategy, self._sense_every = strategy, _sensitive.interval(sense_every, strategy)
        if _quantised.NAME in lossy:
            self.report.lossy = [_quantised.NAME]
        self._means: dict[str, Any] = {
            "host_budget": host_budget,
            "disk_budget": disk_budget,
            "spill": spill,
            "link": link,
            "recompute": recompute,
            "lossless": lossless,
            "lossy": lossy,
        }
        self._replay = self._replays(replay)
        self._budget = Budget(self.budget, device=device, evictor=evictor, **self._means)
        self._calls, self._seen, self._lifted = 0, _moved, False
        self._recording: Any = None
        self._unknown: int | None = None
        self._sampler, self._plan_loses = Sampler(), False
        self.report.gradients = self._sampler.samples

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.report.device = str(self._budget.device)
        if not self._is_resting():
            make_free()
        if self._plan_loses and not self._is_resting():
            self._sampler.look(self._budget.device, functools.partial(self.step, *args, **kwargs))
            self._note(
                self._sampler.why and f"gradients are not compared with exact ones: {self._sampler.why}"
            )
        self._sense_again(args, kwargs)
        alone = not is_distributed()
        # A process with a GPU can't be copied, and in this one the plain step takes what it takes.
        bounded = alone and self._budget.device.type == "cpu"
        check = bounded if self._check is None else self._check
        if self._calls >= _PROTECTED or not check or self._is_resting():
            return self._call(args, kwargs)
        if _copy.obstacle(self._budget.device) is None:
            return self._rehearsed(args, kwargs)
        with State(self._budget.device, self.step, args, kwargs) as state:
            if state.fixed:
                return self._unchecked(state, f"can't put back {', '.join(state.fixed[:3])}", args, kwargs)
            return _twice.twice(self, state, alone, args, kwargs)

    def _rehearsed(self, args: Any, kwargs: Any) -> Any:
        """The step, after others of it in copies of this process."""
        try:
            with State(self._budget.device, keeps=False) as state:
                plain = self._rehearse(state, args, kwargs)
                return self._call(args, kwargs, state, plain)
        except _copy.Failed as failure:
            why = f"in a copy of this process: {failure}"
        with State(self._budget.device, self.step, args, kwargs) as state:
            return self._unchecked(state, why, args, kwargs)

    def _rehearse(self, state: State, args: Any, kwargs: Any) -> Print | None:
        """What the first call leaves behind without memfit. The plan of a rehearsal will be followed."""
        report, plain = self.report, None
        run = functools.partial(self.step, *args, **kwargs)
        known: Known = []
        if self._calls == 0:
            seen = _rehearse.plainly(run, state, Meter(self._budget.device))
            plain, report.base_peak_bytes, report.base_time_seconds, known = seen
        base = report.base_peak_bytes
        if base is None or _ROOMY * base > self.budget:
            self._take_over(*self._find_a_way(run, known, args, kwargs))
        return plain

    def _find_a_way(self, run: Any, known: Known, args: Any, kwargs: Any) -> tuple[Files | None, Known]:
        """The plan by which a copy ran the step within the budget, if by one, and what it has learnt."""

        def within(files: Files | None, known: Known) -> Any:
            self._take_over(files, known)
            self._budget._native.limit_recomputation(round(1e9 * self._patience()))
            self._call(args, kwargs, rehearsal=True)
            return self._budget._native, self.report.tried

        # Where the first call could be rehearsed, a copy can make the step twice.
        again = functools.partial(self._call, args, kwargs, rehearsal=True) if self.report.identical else None

        def rehearsed(files: Files | None, known: Known) -> tuple[Files | None, Known, Any]:
            return _rehearse.within(functools.partial(within, files, known), again)

        device, native = self._budget.device, self._budget._native
        known = known if native is None else native.known()
        given = self._given() if native is None else None
        if given is not None:
            with contextlib.suppress(memfit.BudgetError), kept_from_forks(self._budget):
                files, known, self.report.tried = rehearsed(given, known)
                return files, known
        limits = (self.budget, self._means)
        surveyed = _rehearse.survey(run, device, limits, self._strategy, self._planning, known)
        files, known, told, least, self.report.tried = surveyed
        with kept_from_forks(self._budget):
            try:
                files, known, self.report.tried = rehearsed(files, known)
                return files, known
            except memfit.BudgetError as error:
                refusal = error
        if told is not None:
            complete(refusal, self.budget, told, least)
        raise refusal

    def _sense_again(self, args: Any, kwargs: Any) -> None:
        """Now and then the step is planned anew, by how sensitive gradients are to its values by then."""
        if self._calls == 0 or not self._sense_every or self._calls % self._sense_every or self._is_resting():
            return
        run, limits = functools.partial(self.step, *args, **kwargs), (self.budget, self._means)
        self._note(_rehearse.again(run, self._budget, limits, (self._strategy, self._planning), self.report))

    def _patience(self) -> float:
        """Seconds of recomputation in one step after which there is taken to be no way."""
        return _MOST_RECOMPUTE * (self.report.base_time_seconds or 1.0) + self._planning["seconds"]

    def _given(self) -> Files | None:
        """What an earlier run has left, once the verifier has checked it."""
        if self._load is None:
            return None
        profile, plan = ((self._load / name).read_bytes() for name in _FILES)
        memfit.check(plan, profile, lossy=_memfit.lossy_codecs(self._budget._means["lossy"]))
        return profile, plan, None

    def _take_over(self, files: Files | None, known: Known) -> None:
        if self._budget._native is None:
            self._open(files or self._given())
        elif files is not None:
            self._budget._native.load(*files)
        _rehearse.learn(self._budget._native, known)

    def _unchecked(self, state: State, why: str, args: Any, kwargs: Any) -> Any:
        """The step, once; where the budget does not do, what can be put back is."""
        if self._check:
            raise memfit.UsageError(
                f"the step can't be checked: {why}", hint="`check=None` goes on without, `check=False` too"
            )
        self._note(f"not checked: {why}")
        try:
            return self._call(args, kwargs)
        except memfit.BudgetError as error:
            refusal = self._undo(error, state)
        raise refusal

    def _note(self, note: str | None) -> None:
        if note and note not in self.report.notes:
            self.report.notes.append(note)

    def _undo(self, error: memfit.BudgetError, state: State) -> memfit.BudgetError:
        self.close()
        # What the step that failed still holds is none of its floor.
        traceback.clear_frames(error.__traceback__)
        state.put_back()
        return error

    def _call(
        self,
        args: Any,
        kwargs: Any,
        state: State | None = None,
        plain: Print | None = None,
        rehearsal: bool = False,
    ) -> Any:
        device, report = self._budget.device, self.report
        if self._replay is not None and not rehearsal:
            replayed = self._replayed(args, kwargs)
            if replayed is not None:
                return replayed[0]
        self._wake()
        if self._budget._native is None:
            self._take_over(None, [])
        native = self._budget._native
        for storage in storages((args, kwargs)):
            if storage.device.type == device.type:
                native.adopt(storage)
        if self._calls > 0:
            self._look_around(native)
        started = time.perf_counter()
        peak = None
        try:
            self._begin(native)
            self._meter.begin()
            try:
                with self._sampler.within(self._calls + 1, native):
                    result = self._recorded(native, rehearsal, args, kwargs)
            finally:
                peak = self._meter.end()
        except memfit.BudgetError:
            self.close()  # All that is alive comes back, whatever it takes.
            raise
        except BaseException:
            self._rest()
            raise
        self._calls += 1
        report.count(self._calls, time.perf_counter() - started, peak)
        if plain is not None and state is not None:
            report.identical = same(plain, state.fingerprint(result, self._bring_back))
        self._rest()
        return result

    def _replays(self, wanted: bool) -> Replay | None:
        """What replays the step, where that is wanted."""
        if not wanted:
            return None
        means = self._means
        if means["host_budget"] or means["disk_budget"] or means["lossless"] or means["lossy"]:
            raise memfit.UsageError(
                "a step that is replayed keeps to recomputation",
                hint="leave out `replay=True`, or copies and codecs",
            )
        strategy = [] if self._strategy in ("auto", "evict:planned") else [self._strategy]
        return Replay(self.step, strategy, self._planning["seconds"])

    def _replayed(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        """What the step returns, if it could be replayed."""
        replay = self._replay
        if replay is None or self._budget._native is None or is_distributed():
            return None
        started, peak = time.perf_counter(), None
        make_free()
        self._meter.begin()
        try:
            result = replay.run(args, kwargs, self.budget, self._meter.held)
        finally:
            peak = self._meter.end()
        self.report.replay_why = replay.why
        if result is not None:
            self._calls += 1
            self.report.tell_replayed(replay)
            self.report.count(self._calls, time.perf_counter() - started, peak)
        return result

    def _recorded(self, native: Any, rehearsal: bool, args: Any, kwargs: Any) -> Any:
        """The step within the budget, recorded where it is to be replayed."""
        replay = self._replay
        if replay is None or rehearsal or self._calls < _PROTECTED or is_distributed():
            return self._within(native, rehearsal, args, kwargs)
        self._recording = replay.recording(native, args, kwargs, self._meter.held())
        result = self._within(native, rehearsal, args, kwargs)
        replay.settle(self.budget)
        return result

    def _look_around(self, native: Any) -> None:
        """What has appeared since the last call, the optimizer's state say, is there as well.

        To look takes as long as there are objects in the process, so it is left out where the allocator has
        given out no more than is known.
        """
        device = self._budget.device

        def unknown() -> int | None:
            given = given_out(device)
            return None if given is None else given - native.stats()["used_bytes"]

        before = unknown()
        if before is not None and self._unknown is not None and before <= self._unknown:
            return
        for storage in live_storages(device):
            native.adopt(storage)
        self._unknown = unknown()

    def _is_resting(self) -> bool:
        """Whether the budget is kept between two calls."""
        return self._budget._mode is not None

    def _rest(self) -> None:
        """Between two calls: the budget goes on where something is parked, for those who read it."""
        native = self._budget._native
        if native is not None and native.has_parked():
            self._budget.gives_way = weakref.WeakMethod(self._give_way)
            self._budget._activate()

    def _wake(self) -> None:
        """Ends `_rest`."""
        if not self._is_resting():
            return
        self._budget.gives_way = None
        self._budget._deactivate()
        try:
            self._budget.interrupts.end()
        except KeyboardInterrupt:
            self._rest()
            raise

    def _give_way(self) -> None:
        """Brings back what is parked, since another budget begins. The next call parks it again."""
        global _moved
        self._budget.gives_way = None
        self._budget._deactivate()
        try:
            with torch._C._DisableTorchDispatch():
                self._budget._native.come_home()
            self._lifted = True
            _moved += 1
        except BaseException:
            self._rest()
            raise
        finally:
            if not self._is_resting():
                self._budget.interrupts.end()

    def _begin(self, native: Any) -> None:
        """A step begins: what is to be parked is, and the budget holds from here on."""
        with torch._C._DisableTorchDispatch():
            native.begin_step(self.budget if self._lifted else None, self._seen != _moved)
        self._lifted, self._seen = False, _moved

    def _bring_back(self, storage: torch.UntypedStorage) -> None:
        """Whoever reads `storage` now finds its bytes."""
        native = self._budget._native
        with torch._C._DisableTorchDispatch():
            if native is not None and native.is_known(storage):
                native.restore(storage)

    def _within(self, native: Any, rehearsal: bool, args: Any, kwargs: Any) -> Any:
        try:
            return self._step_within(native, rehearsal, args, kwargs)
        finally:
            self._budget.interrupts.end()

    def _step_within(self, native: Any, rehearsal: bool, args: Any, kwargs: Any) -> Any:
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
            elif stepped["wants_plan"] or (rehearsal and not stepped["guided"]):
                native.plan_step(**self._planning)
        after = native.stats()
        planned: Planned = native.planned() or NO_PLAN
        self._plan_loses = bool(planned[1])
        lossy = planned[1] + ([_quantised.NAME] if self._budget.quantises else [])
        self.report.tell(stepped, before, after, planned, lossy, native.tried())
        self.report.lost_why = native.take_lost()
        return result

    def _run(self, args: Any, kwargs: Any) -> Any:
        """The step; a rank that fails wakes those that wait for it."""
        if not is_distributed():
            recording, self._recording = self._recording, None
            with recording or contextlib.nullcontext(lambda result: result) as ends:
                return ends(self.step(*args, **kwargs))
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
                native.plan_step(**self._planning)
        elif True in wanting:
            files = ranks.from_first(lambda: native.save() if native.plan_step(**self._planning) else None)
            if files is not None:
                with ranks.together():
                    # The step is this rank's own: the plan is for the same calls, and has been verified.
                    if ranks.rank > 0 and native.load(*files) != stepped["sequence"]:
                        raise memfit.RankError("the plan is not for the step that it was made for")
                ranks.same(b"".join(files), "plans")

    def _open(self, planned: Files | None) -> None:
        self._budget._open()
        self._budget._native.set_strategy(self._strategy)
        self._meter = StepMeter(self._budget.device, self._budget._native.is_resident)
        self.report.budget_bytes = self._budget.budget
        self._exchanges = _EXCHANGES
        if planned is not None:
            self._budget._native.load(*planned)

    @property
    def plan(self) -> bytes | None:
        """The plan file of the step that was planned last, if there is one."""
        saved = self._saved()
        return saved and saved[1]

    def _saved(self) -> tuple[bytes, bytes] | None:
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
        """Lets go of everything, and brings back what is parked; later calls begin anew."""
        self._budget.gives_way = None
        self._calls, self._lifted, self._unknown = 0, False, None
        if self._is_resting():
            self._budget._deactivate()
        try:
            self._budget._close()
        finally:
            self._budget.interrupts.end()

    def __del__(self) -> None:
        # Nobody is to find a parameter without its bytes.
        if getattr(self, "_calls", 0) and self._is_resting() and not sys.is_finalizing():
            self.close()

    def __enter__(self) -> "Fitted":
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()


__all__ = ["Fitted", "Floor", "Report", "fit", "floor"]
