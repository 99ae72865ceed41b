"""A step that has settled is run from its verified plan, below autograd: no dispatch mode, no graph, none of
the step's own Python.

Two calls are recorded; where they are the same, op by op, their graph is planned within the budget and its
plan becomes a function. Before each call of that, what the step was called with and what it reaches is looked
at: where anything differs, the step itself runs.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

import memfit
from memfit.torch import _glue
from memfit.torch._replay._guard import Arguments, Reached
from memfit.torch._replay._planned import Planned, plan
from memfit.torch._replay._program import Program
from memfit.torch._replay._record import Recording, Unsuitable, address, difference

_TRIES = 8
"""Recordings, at most, until two of them are the same; and so many again after each that was replayed."""


class Replay:
    """What is known of one step, and how often it was replayed."""

    def __init__(self, step: Callable[..., Any], strategy: list[str], seconds: float) -> None:
        self.why: str | None = None
        """Why the last call was not replayed."""
        self.calls = 0
        self.planned: Planned | None = None
        self._step, self._strategy, self._seconds = step, strategy, seconds
        self._tries, self._is_settled = 0, False
        self._last: tuple[Recording, Arguments, Reached, int] | None = None
        self._program: Program | None = None
        self._made: tuple[Recording, Planned] | None = None
        """What was planned last."""
        self._calls_then = 0
        """`calls` when its recordings were last counted from one."""

    @contextlib.contextmanager
    def recording(
        self, native: Any, args: Any, kwargs: Any, held: int | None
    ) -> Iterator[Callable[[Any], Any]]:
        """Within it, the step is recorded if it is worth it; what it returns is handed to what is yielded.

        `held` bytes are there as it begins.
        """
        if held is None or self._tries >= _TRIES or self._program is not None:
            yield lambda result: result
            return
        self._tries += 1
        arguments = Arguments(args, kwargs)
        reached = Reached(self._step, *arguments.objects)
        recording = Recording(native, Arguments.tensors(args, kwargs))

        def ends(result: Any) -> Any:
            recording.ends(result)
            return result

        try:
            with recording.on():
                yield ends
        except BaseException:
            self._last = None
            raise
        if reached.fixed:
            recording.refuse(f"it reaches {reached.fixed[0]}, which nobody can look into")
        changed = reached.changed()
        if changed is not None:
            recording.refuse(f"it changes what it reaches: {changed}")
        self._ended(recording, (arguments, args, kwargs), reached, held)

    def _ended(
        self, recording: Recording, called: tuple[Arguments, Any, Any], reached: Reached, held: int
    ) -> None:
        arguments, args, kwargs = called
        last, self._last = self._last, (recording, arguments, reached, held)
        self.why = recording.why
        if self.why is None and last is not None:
            self.why = last[1].differs(args, kwargs) or difference(last[0], recording)
            self._is_settled = self.why is None

    def settle(self, budget: int) -> None:
        """Plans what was recorded last, if it was the same as what was recorded before."""
        if self._last is None or not self._is_settled:
            return
        self._is_settled = False
        recording, arguments, reached, held = self._last
        resident = sum(storage.bytes for storage in recording.storages if not storage.made)
        others = held - recording.released - resident
        try:
            planned = self._planned_before(recording, budget - others)
            if planned is None:
                planned = plan(recording, budget, others, self._strategy, self._seconds)
                self._made = recording, planned
            self._program = Program(recording, planned)
        except memfit.BudgetError as error:
            self.why = f"no plan of its graph fits: {str(error).splitlines()[0]}"
        except Unsuitable as unsuitable:
            self.why = str(unsuitable)
        else:
            self.planned, self._arguments, self._reached = planned, arguments, reached
            bound = recording.bound()
            self._leaves = [
                (recording.leaves[at], before, at in recording.dropped)
                for at, before in enumerate(recording.before)
                if before is not None or at in bound
            ]

    def run(self, args: Any, kwargs: Any, budget: int, held: Callable[[], int | None]) -> tuple[Any] | None:
        """What the step returns; `None` where it has to run itself: `why` says why."""
        program, planned = self._program, self.planned
        if program is None or planned is None:
            return None
        if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
            self.why = "a mode is active, which would see none of its ops"
            return None
        if _glue.is_on_side_stream():
            self.why = "it is called on another stream than the device's own"
            return None
        self.why = self._arguments.differs(args, kwargs)
        if self.why is not None:
            return None  # The next call may be as the recorded ones were.
        self.why = self._reached.changed() or self._gradients_differ()
        if self.why is not None:
            self._forget()
            return None
        for leaf, _, dropped in self._leaves:
            if dropped:
                leaf.grad = None
        now = held()
        if now is None or now - planned.resident + planned.live_peak > budget:
            self.why = "more memory is held than its plan has room for"
            self._forget()
            return None
        before = torch.is_grad_enabled()
        try:
            result = program.run(*Arguments.tensors(args, kwargs))
        finally:
            torch._C._set_grad_enabled(before)
        self.calls += 1
        return (result,)

    def _planned_before(self, recording: Recording, within: int) -> Planned | None:
        """The last plan, if it is of the same step and has room `within` so many bytes."""
        if self._made is None:
            return None
        before, planned = self._made
        return planned if planned.live_peak <= within and difference(before, recording) is None else None

    def _forget(self) -> None:
        """The step is recorded anew; `_TRIES` times in all where it was not replayed in between."""
        self._program, self._last = None, None
        if self.calls > self._calls_then:
            self._tries, self._calls_then = 0, self.calls

    def _gradients_differ(self) -> str | None:
        for leaf, before, dropped in self._leaves:
            nobody_reads = dropped and before is not None
            if not nobody_reads and address(leaf.grad) != before:
                return "gradients are there that were not, or others"
        return None


__all__ = ["Replay"]
