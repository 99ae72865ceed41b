"""`predict`: whether a training will fit a device, before it runs anywhere.

```python
print(memfit.torch.predict(model, batch, loss, torch.optim.AdamW, device="H100"))
```
"""

import contextlib
import html
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

import memfit
from memfit import _memfit
from memfit._door import Size
from memfit.torch import _simulate
from memfit.torch._errors import parse_bytes, share_of
from memfit.torch._graph import ExportError, Graph
from memfit.torch._report import memory
from memfit.torch._scaled import scaled
from memfit.torch._simulate import Loss, Optimizer, Simulated, Twins
from memfit.torch.export import capture

RESERVED = 1 << 30
"""Bytes of a GPU's memory that the driver and the process's context take; 0.3 to 1 GB were seen."""
_EAGER: dict[str, Any] = {"strategy": ("order:given", "budget:live"), "in_place": False, "co_share": False}
"""Plans that PyTorch can follow: ops in the order in which the program has them, each in bytes of its own."""
_STATES = ("sgd", "momentum", "adamw")
"""Optimizers of a graph, by how many times the parameters' bytes their state is."""
_CLOSE = 50
"""A search for a batch size ends when it is known to one part in so many."""
_VERIFIED = 6
"""Captures or simulations to verify a batch size by, at most."""


@dataclass
class Prediction:
    """What a training takes on a device, in bytes and seconds; `print` shows a table. `None` is not known."""

    model: str
    rows: int
    """Rows of the batch that was given."""
    device: str
    memory_bytes: int
    budget_bytes: int
    """What tensors may take of it."""
    peak_bytes: int
    """Most bytes of tensors without memfit."""
    peak_op: str
    """The op at that peak."""
    floor_bytes: int | None = None
    """No plan below this."""
    plan: memfit.Plan | None = None
    """A plan within the budget; `None` if there is none, or none was needed to be searched for."""
    planned_peak_bytes: int | None = None
    """Peak of that plan."""
    least_budget_bytes: int | None = None
    """Where no plan fits: the least budget that one was found for."""
    largest_rows: int | None = None
    """The largest batch that fits without memfit."""
    largest_planned_rows: int | None = None
    """The largest batch that fits with a plan that takes at most `largest_overhead` more time."""
    largest_overhead: float | None = None
    """What the plan for that batch takes more."""
    planning_seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether it fits without memfit."""
        return self.peak_bytes <= self.budget_bytes

    @property
    def fits_planned(self) -> bool:
        """Whether it fits with memfit."""
        return self.plan is not None

    @property
    def step_seconds(self) -> float | None:
        """One step without memfit, by the device's rates."""
        return self.plan.base_time_ns / 1e9 if self.plan else None

    @property
    def overhead(self) -> float | None:
        """What the plan takes more, as a share of that."""
        return self.plan.overhead if self.plan else None

    def table(self) -> list[tuple[str, str]]:
        """Name and value of each line."""
        usable = memory(self.budget_bytes)
        rows = [
            ("model", f"{self.model}, batch of {self.rows}"),
            ("device", f"{self.device}, {memory(self.memory_bytes)}; tensors may take {usable}"),
            ("without memfit", f"{_fits(self.fits)}: {memory(self.peak_bytes)} at `{self.peak_op}`"),
            ("with memfit", self._planned()),
            ("floor", f"{memory(self.floor_bytes)}: no plan goes below"),
            ("step time", _seconds(self.step_seconds) + " without memfit, by the device's rates"),
            ("largest batch", self._largest()),
        ]
        return rows + [("note", note) for note in self.notes]

    def _planned(self) -> str:
        if self.plan is None:
            least = f"; {memory(self.least_budget_bytes)} would do" if self.least_budget_bytes else ""
            return "does not fit" + least
        means = []
        if self.plan.recompute_ns:
            means.append(f"recomputes for {_seconds(self.plan.recompute_ns / 1e9)}")
        if self.plan.offload_bytes:
            means.append(f"moves {memory(self.plan.offload_bytes)}")
        more = f"{self.plan.overhead:+.1%} time"
        told = f"fits: {memory(self.planned_peak_bytes)}, {more}"
        return f"{told}, {' and '.join(means)}" if means else told

    def _largest(self) -> str:
        if self.largest_rows is None:
            return "not known"
        told = f"{self.largest_rows} without memfit"
        if self.largest_planned_rows is not None and self.largest_overhead is not None:
            told += f", {self.largest_planned_rows} with it ({self.largest_overhead:+.1%} time)"
        return told

    def __repr__(self) -> str:
        return "\n".join(f"{name:<14} {value}" for name, value in self.table())

    def _repr_html_(self) -> str:
        cells = (
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in self.table()
        )
        return f"<table>{''.join(cells)}</table>"


def predict(
    model: torch.nn.Module,
    batch: Any,
    loss: Loss | None = None,
    optimizer: Optimizer | str = None,
    device: str = "H100",
    *,
    budget: Size | None = None,
    host_budget: Size | None = None,
    largest: bool = True,
    overhead: float = 0.25,
    seconds: float = 20.0,
    steps: int = _simulate.STEPS,
) -> Prediction:
    """Whether training `model` fits `device`, with memfit and without, and up to which batch size.

    `batch` are the tensors of one batch: a tuple, a dictionary of keyword arguments, or one tensor. Its rows
    are the first dimension of the first of them. `loss(model, *batch)` (or `**`) returns the loss, or a tuple
    that begins with it; without it the model does: its result has a `loss`, or is it. `optimizer` is a
    `torch.optim.Optimizer` of the model, or what makes one of parameters (`torch.optim.AdamW`), or `sgd`,
    `momentum` or `adamw`; `None` stops at the gradients. Model and batch may be real, on the `meta` device or
    fake; they are left as they are, and nothing is allocated. `device` is a preset, or the path of a TOML
    file.

    `budget` is what tensors may take; by default all of the device but `RESERVED` bytes, on a CPU all. Plans
    are those that PyTorch can follow; with `host_budget` they may also move. `largest=False` looks for no
    batch size; `overhead` is the most that memfit may add to the step time there, and `seconds` about how
    long the search with plans may take. `steps` are simulated, more than two where steps differ.

    On the preset `CPU` each distinct op is run once on noise, for its scratch memory. On others scratch
    memory is not known, and not in the figures.

    Raises `ExportError` for a model that can't run on fake tensors, and `UsageError` for a device that is not
    known.
    """
    started = time.monotonic()
    device, size = _device(device)
    on_cpu = device == "CPU"
    reserved = 0 if on_cpu else min(RESERVED, size // 16)
    usable = size - reserved if budget is None else _bytes(budget, size)
    loss = loss or _own_loss
    batch = batch if isinstance(batch, (tuple, list, dict)) else (batch,)
    made = _named(optimizer) if isinstance(optimizer, str) else optimizer
    given = _Given(model, batch, loss, made, on_cpu, steps)
    simulated = given.simulate()
    name = type(model).__name__
    told = Prediction(name, given.rows, device, size, usable, simulated.peak_bytes, simulated.op)
    if not on_cpu:
        told.notes.append("scratch memory of kernels is not known, and not counted")
    try:
        graph = given.capture(given.rows)
    except ExportError as error:
        told.notes.append(f"no plan: {str(error).splitlines()[0]}")
        if largest:
            _largest_plain(told, given, simulated)
        told.planning_seconds = time.monotonic() - started
        return told
    planner = _Planner(device, usable, host_budget)
    planner.plan_given(told, graph)
    if largest:
        _largest_plain(told, given, simulated)
        _largest_planned(told, given, planner, graph, overhead, time.monotonic() + seconds)
    told.planning_seconds = time.monotonic() - started
    return told


class _Given:
    """What is to be trained, with batches of any size."""

    def __init__(
        self, model: Any, batch: Any, loss: Loss, optimizer: Optimizer, on_cpu: bool, steps: int
    ) -> None:
        leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
        tensors = [leaf for leaf in leaves if leaf.dim()]
        if not tensors or not len(tensors[0]):
            raise memfit.UsageError("there is no tensor with rows in the batch")
        self.rows = len(tensors[0])
        self._twins = Twins(model, batch, optimizer)
        self._batch, self._loss, self._on_cpu, self._steps = batch, loss, on_cpu, steps
        self._optimizer: str | None = None
        self._name = type(model).__name__
        self._updates = optimizer is not None
        self._scratch = 0

    def simulate(self) -> Simulated:
        """Training with batches as given."""
        told = self._simulate(self.rows, self._on_cpu)
        if self._on_cpu:
            self._scratch = max(0, told.peak_bytes - self._simulate(self.rows, False).peak_bytes)
        if self._updates:
            times = round(told.state_bytes / max(1, told.parameter_bytes))
            self._optimizer = _STATES[min(times, len(_STATES) - 1)]
        return told

    def _simulate(self, rows: int, measured: bool) -> Simulated:
        batch = self._twins.batch(self._batch, self.rows, rows)
        return _simulate.simulate(
            self._twins, batch, self._loss, on_cpu=self._on_cpu, measured=measured, steps=self._steps
        )

    def peak(self, rows: int) -> int:
        """Peak with batches of `rows`. Scratch memory is that of the given batch, in proportion."""
        return self._simulate(rows, False).peak_bytes + -(-self._scratch * rows // self.rows)

    def capture(self, rows: int) -> Graph:
        """The graph of a step with a batch of `rows`. PyTorch chooses algorithms, so a plan has no choice."""
        model, _ = self._twins.make()
        batch = self._twins.batch(self._batch, self.rows, rows)
        with contextlib.nullcontext() if self._on_cpu else _simulate.small_masks():
            graph = capture(model, batch, self._loss, self._optimizer, name=self._name)
        for op in graph.ops:
            op.algorithms.clear()
        return graph


class _Planner:
    """Plans within what tensors may take, less what a real run holds beside the graph."""

    def __init__(self, device: str, usable: int, host_budget: Size | None) -> None:
        self._device, self._usable = device, usable
        self._means = {**_EAGER, "host_budget": host_budget}
        self.held = 0
        """Bytes beside the graph: what Python's variables, `foreach` kernels and scratch memory take."""

    def plan_given(self, told: Prediction, graph: Graph) -> None:
        """The plan for the batch that was given."""
        text = graph.dumps().encode()
        told.floor_bytes = memfit.floor(text, device=self._device).floor_bytes
        whole = memfit.plan(text, budget="100%", device=self._device, **self._means)
        self.held = max(0, told.peak_bytes - whole.live_peak_bytes)
        self._rows = told.rows
        try:
            plan = whole if told.fits else self.plan(graph, told.rows)
        except memfit.BudgetError as error:
            if error.least_budget_bytes is not None:
                told.least_budget_bytes = error.least_budget_bytes + self.held
            return
        told.plan, told.planned_peak_bytes = plan, plan.live_peak_bytes + self.held

    def plan(self, graph: Graph, rows: int) -> memfit.Plan:
        """A plan for a graph of so many rows. Raises `BudgetError`."""
        budget = self._usable - -(-self.held * rows // self._rows)
        if budget <= 0:
            raise memfit.BudgetError("there is no room", budget_bytes=self._usable)
        return memfit.plan(graph.dumps().encode(), budget=budget, device=self._device, **self._means)


def _largest_plain(told: Prediction, given: _Given, simulated: Simulated) -> None:
    """The largest batch without memfit that was simulated.

    A peak is the highest of many lines over the number of rows. So a line through two sizes is below it
    beyond them, and above it between them: the first guess may be too large, all later ones fit.
    """
    known = {given.rows: simulated.peak_bytes}

    def peak(rows: int) -> int:
        if rows not in known:
            known[rows] = given.peak(rows)
        return known[rows]

    def crossing(low: int, high: int) -> int:
        slope = (peak(high) - peak(low)) / (high - low)
        return int(low + (told.budget_bytes - peak(low)) / slope) if slope > 0 else low

    try:
        guess = crossing(given.rows, 2 * given.rows)
        fit = max((rows for rows in known if known[rows] <= told.budget_bytes), default=0)
        if not fit and guess >= 1 and peak(1) > told.budget_bytes:
            guess = 0
        for _ in range(_VERIFIED):
            if guess <= fit:
                break
            if peak(guess) <= told.budget_bytes:
                fit = guess
            over = min((rows for rows in known if known[rows] > told.budget_bytes), default=None)
            if over is None or over - fit <= 1:
                break
            guess = min(over - 1, crossing(fit, over)) if fit else over // 2
    except ExportError as error:
        told.notes.append(f"no other batch size: {str(error).splitlines()[0]}")
        return
    told.largest_rows = fit


def _largest_planned(
    told: Prediction, given: _Given, planner: _Planner, graph: Graph, overhead: float, until: float
) -> None:
    """The largest batch with a plan: by graphs whose sizes are on a line, verified by a captured one."""
    rows = given.rows
    if told.largest_rows is None:
        return
    try:
        double = given.capture(2 * rows)
    except ExportError as error:
        told.notes.append(f"no other batch size is planned: {str(error).splitlines()[0]}")
        return
    found: dict[int, float | None] = {}

    def planned(graph: Graph | None, wanted: int) -> float | None:
        if graph is None:
            return None
        try:
            more = planner.plan(graph, wanted).overhead
        except memfit.BudgetError:
            return None
        return more if more <= overhead else None

    def good(wanted: int) -> bool:
        found[wanted] = planned(scaled(graph, double, (rows, 2 * rows), wanted), wanted)
        return found[wanted] is not None

    least = max(told.largest_rows, 1)
    most = least
    while time.monotonic() < until and good(most):
        least, most = most, 2 * most
    while most - least > max(1, least // _CLOSE) and time.monotonic() < until:
        middle = (least + most) // 2
        least, most = (middle, most) if good(middle) else (least, middle)
    if time.monotonic() >= until:
        told.notes.append("the search for the largest batch ended early: there may be a larger one")

    def fits(wanted: int) -> bool:
        found[wanted] = planned(given.capture(wanted), wanted)
        return found[wanted] is not None

    told.largest_planned_rows = _verified(least, fits)
    told.largest_overhead = found.get(told.largest_planned_rows)


def _verified(rows: int, fits: Callable[[int], bool]) -> int:
    """`rows`, or as few less as it takes; 0 if nothing was found."""
    for _ in range(_VERIFIED):
        if rows < 1 or fits(rows):
            return max(rows, 0)
        rows -= max(1, rows // _CLOSE)
    return 0


def _own_loss(model: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    outputs = model(*args, **kwargs)
    return getattr(outputs, "loss", outputs)


def _named(name: str) -> Optimizer:
    makers: dict[str, Optimizer] = {
        "sgd": lambda parameters: torch.optim.SGD(parameters, 1e-3),
        "momentum": lambda parameters: torch.optim.SGD(parameters, 1e-3, momentum=0.9),
        "adamw": torch.optim.AdamW,
    }
    if name not in makers:
        known = ", ".join(f"`{known}`" for known in makers)
        raise memfit.UsageError(f"unknown optimizer `{name}`", hint=f"one of {known}, or what makes one")
    return makers[name]


def _device(name: str) -> tuple[str, int]:
    """A device as `memfit.plan` takes it, and its memory: `H100-80` is an `H100`, if it has 80 GiB."""
    presets = {device.name: device.memory_bytes for device in memfit.strategies().devices}
    cut = re.fullmatch(r"(.+)-(\d+)", name)
    if cut and name not in presets and presets.get(cut[1]) == int(cut[2]) << 30:
        name = cut[1]
    nothing = {
        "schema": "memfit-graph/1", "name": "nothing",
        "values": [{"name": "x", "bytes": 1, "role": "input"}, {"name": "y", "bytes": 1, "role": "output"}],
        "ops": [{"name": "copy", "kind": "copy", "reads": [0], "writes": [1]}], "results": [1],
    }  # fmt: skip
    plan = memfit.plan(nothing, device=name)
    return next((known for known in presets if known == plan.device), name), plan.budget_bytes


def _bytes(size: Size, whole: int) -> int:
    share = share_of(size) if isinstance(size, str) else None
    return parse_bytes(size) if share is None else int(share * whole)


def _fits(fits: bool) -> str:
    return "fits" if fits else "does not fit"


def _seconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else _memfit.show_nanos(round(1e9 * seconds))
