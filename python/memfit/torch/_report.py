"""What `fit` predicted and measured, to be printed."""

import collections
import html
import os
import statistics
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import memfit
from memfit import _memfit
from memfit.torch._gradients import Sample
from memfit.torch._replay import Replay

Times: TypeAlias = tuple[int, int]
"""Nanoseconds of a step in each op once, and in repetitions and waiting."""
Planned: TypeAlias = tuple[int | None, list[str], Times | None, Times | None, str | None]
"""Of a plan: bytes of arena, codecs that lose something, the time of a step as predicted and as measured, and
why these differ."""
NO_PLAN: Planned = (None, [], None, None, None)
# Steps whose time is remembered.
_TIMES = 101


@dataclass
class Floor:
    """The least bytes a step can do with."""

    persistent_bytes: int
    """What outlives the step: parameters, gradients, optimizer state, buffers, inputs, and all else alive."""
    largest_bytes: int
    """The largest working set of one op, beside that."""
    largest_op: str
    peak_bytes: int
    """Most bytes of the step without a budget."""
    bound_bytes: int
    """No budget below this can do, with what outlives the step in other memory between its uses."""

    @property
    def floor_bytes(self) -> int:
        """No budget below this can do where all that outlives the step stays on the device."""
        return self.persistent_bytes + self.largest_bytes

    def share(self, share: float) -> int:
        """Bytes of the budget `floor+X%`: the floor, and a share of what the step takes beyond it."""
        return int(self.floor_bytes + share * max(0, self.peak_bytes - self.floor_bytes))


@dataclass
class Report:
    """Peaks, times and the check of one fitted step; `None` is what is not known yet."""

    budget_bytes: int
    device: str = ""
    base_peak_bytes: int | None = None
    """Peak of the step without memfit, by PyTorch's allocator."""
    peak_bytes: int | None = None
    """Peak with memfit, by the engine's own account."""
    measured_peak_bytes: int | None = None
    """Peak with memfit, by PyTorch's allocator: of all `measured_steps`."""
    measured_steps: int = 0
    steps: int = 0
    arena_bytes: int | None = None
    """Bytes of arena of the plan once each buffer has an address."""
    verified: bool | None = None
    """Whether the verifier has passed the plan; without a plan there is nothing to verify."""
    tried: list[tuple[str, int | None]] = field(default_factory=list)
    """What was tried for the plan: names, and nanoseconds in repetitions and copies of what was found."""
    sensed: int = 0
    """How often sensitivities were measured again, and the step planned anew: see `sense_every`."""
    base_time_seconds: float | None = None
    time_seconds: float | None = None
    predicted_time_seconds: float | None = None
    """What a step by the last plan was to take, before the first followed it."""
    planned_time_seconds: float | None = None
    """The median step that followed that plan to its end."""
    off_prediction: str | None = None
    """Where the difference lies, if there are 15 % or more between the two."""
    recompute_seconds: float | None = None
    predicted_recompute_seconds: float | None = None
    recomputed_ops: int = 0
    moved_bytes: int = 0
    """Bytes that the last step copied to host memory and to the disk."""
    encoded_bytes: int = 0
    """Bytes that the last step encoded, as many as they were before."""
    lost_copies: int = 0
    """Copies that the last step could not make or bring back: computed again instead."""
    lost_why: str | None = None
    """Why the last of them was lost."""
    stall_seconds: float = 0.0
    """Spent on codecs and on waiting for copies in the last step."""
    lossy: list[str] = field(default_factory=list)
    """Codecs that lose something by which the plan holds values."""
    gradients: list[Sample] = field(default_factory=list)
    """How far the gradients of sampled steps were from the exact ones, beside those of another batch."""
    guided: bool = False
    left_why: str | None = None
    """Why the last step was not as its plan has it, if there was one and it was not followed to its end."""
    replayed: int = 0
    """Calls that were run from the plan alone: see `replay`."""
    replay_why: str | None = None
    """Why the last call was not."""
    identical: bool | None = None
    notes: list[str] = field(default_factory=list)
    _times: collections.deque[float] = field(default_factory=lambda: collections.deque(maxlen=_TIMES))
    _recorded: ClassVar["weakref.WeakMethod[Callable[[], tuple[bytes, bytes] | None]] | None"] = None
    """Gives the recorded step and its plan, as long as there is the fitted step."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_recorded"}

    def html(self, path: str | os.PathLike[str]) -> None:
        """Writes one page to look at to `path`: memory over time, address map and timeline of the plan.

        Raises `RuntimeError` as long as there is no plan, and once the fitted step is gone.
        """
        saved_by = self._recorded() if self._recorded is not None else None
        saved = saved_by() if saved_by is not None else None
        if saved is None:
            raise RuntimeError(
                "there is no plan to show\n"
                "hint: a plan is made after a step in which something was recomputed, and goes with that step"
            )
        graph, plan = saved
        memfit.report(plan, path, graph=graph, quick=True, facts=dict(self.rows()))

    def tell(
        self,
        stepped: dict[str, Any],
        before: dict[str, int],
        after: dict[str, int],
        planned: Planned,
        lossy: list[str],
        tried: list[tuple[str, int | None]],
    ) -> None:
        """Takes in one more step, by what the engine counted before and after it."""
        self.peak_bytes = max(self.peak_bytes or 0, after["peak_bytes"])
        self.guided, self.left_why = stepped["guided"], stepped["left"]
        self.recompute_seconds = stepped["recompute_ns"] / 1e9
        if stepped["predicted_ns"] is not None:
            self.predicted_recompute_seconds = stepped["predicted_ns"] / 1e9
        self.arena_bytes, _, predicted, measured, self.off_prediction = planned
        self.predicted_time_seconds, self.planned_time_seconds = _whole(predicted), _whole(measured)
        self.lossy = lossy
        self.tried = tried or self.tried
        # What the verifier refuses is no plan: there is none in the tables that it has not passed.
        self.verified = True if self.arena_bytes is not None else None
        self.recomputed_ops = after["recomputed_ops"] - before["recomputed_ops"]
        self.moved_bytes = after["stored_bytes"] - before["stored_bytes"]
        self.encoded_bytes = after["encoded_bytes"] - before["encoded_bytes"]
        self.lost_copies = after["lost_copies"] - before["lost_copies"]
        self.stall_seconds = (after["stall_ns"] - before["stall_ns"]) / 1e9

    def count(self, steps: int, seconds: float, peak: int | None) -> None:
        """The last of so many steps took `seconds`, and `peak` bytes where that was measured."""
        self.steps = steps
        self._times.append(seconds)
        self.time_seconds = statistics.median(self._times)
        if peak is not None:
            self.measured_peak_bytes = max(self.measured_peak_bytes or 0, peak)
            self.measured_steps += 1

    def tell_replayed(self, replay: Replay) -> None:
        """Takes in one more step that was replayed."""
        self.replayed, planned = replay.calls, replay.planned
        if planned is not None:
            self.guided, self.left_why, self.verified = True, None, True
            self.recomputed_ops, self.recompute_seconds = planned.recomputed, planned.recompute_ns / 1e9

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each line."""
        base, peak, measured = map(memory, (self.base_peak_bytes, self.peak_bytes, self.measured_peak_bytes))
        identical = {None: "not checked", True: "yes, checked on step 1", False: "NO"}[self.identical]
        if self.lossy:
            identical = f"no: values wait in {_listed(self.lossy)}, as was asked for"
        plan = "followed" if self.guided else "not followed (decided op by op)"
        if self.left_why:
            plan = f"left {self.left_why}; decided op by op from there"
        rows = [
            ("budget", memory(self.budget_bytes)),
            ("peak", f"{base} without, {peak} with (predicted), {measured} with ({self._measured()})"),
            ("step time", self._took()),
            *([("off prediction", self.off_prediction)] if self.off_prediction else []),
            ("recomputed", self._recomputed()),
            *([("moved", self._moved())] if self.moved_bytes or self.encoded_bytes else []),
            ("plan", plan + (f", {memory(self.arena_bytes)} of arena if placed" if self.arena_bytes else "")),
            (
                "verified",
                {None: "there is no plan", True: "yes, independently of the planner", False: "NO"}[
                    self.verified
                ],
            ),
            *([("replayed", self._replayed())] if self.replayed or self.replay_why else []),
            ("bit-identical", identical),
            *([("gradients", self._gradients())] if self.gradients else []),
        ]
        return rows + [("note", note) for note in self.notes]

    def _took(self) -> str:
        told = f"{_seconds(self.base_time_seconds)} without, {_seconds(self.time_seconds)} with"
        if self.predicted_time_seconds is not None and self.planned_time_seconds is not None:
            predicted = _seconds(self.predicted_time_seconds)
            told += f"; {_seconds(self.planned_time_seconds)} by the plan ({predicted} predicted)"
        return told

    def _replayed(self) -> str:
        told = f"{self.replayed} of {self.steps} steps"
        return told + (f"; not the last: {self.replay_why}" if self.replay_why else "")

    def _measured(self) -> str:
        every = self.measured_steps == self.steps
        return "measured" if every else f"measured in {self.measured_steps} of {self.steps} steps"

    def _recomputed(self) -> str:
        told = f"{self.recomputed_ops} ops, {_seconds(self.recompute_seconds)}"
        if self.predicted_recompute_seconds is not None:
            told += f" ({_seconds(self.predicted_recompute_seconds)} predicted)"
        return told

    def _gradients(self) -> str:
        last = self.gradients[-1]
        most = max(sample.error for sample in self.gradients)
        told = f"{last.error:.1e} off the exact ones in step {last.step}"
        told += (
            f", {most:.1e} at most in {len(self.gradients)} sampled steps" if len(self.gradients) > 1 else ""
        )
        noise = [sample.noise for sample in self.gradients if sample.noise is not None]
        return told + (f"; those of another batch are {noise[-1]:.1e} off" if noise else "")

    def _moved(self) -> str:
        told = f"{memory(self.moved_bytes)} to other memory and back, {memory(self.encoded_bytes)} encoded, "
        told += f"{_seconds(self.stall_seconds)} for both"
        return told + (f"; {self.lost_copies} copies were lost: {self.lost_why}" if self.lost_copies else "")

    def __repr__(self) -> str:
        return "\n".join(f"{name:<14} {value}" for name, value in self.rows())

    def _repr_html_(self) -> str:
        cells = (
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in self.rows()
        )
        return f"<table>{''.join(cells)}</table>"


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def memory(count: int | None) -> str:
    """Bytes for people."""
    return "unknown" if count is None else _memfit.show_bytes(count)


def _whole(times: Times | None) -> float | None:
    """Seconds of a step."""
    return None if times is None else sum(times) / 1e9


def _seconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else _memfit.show_nanos(round(1e9 * seconds))
