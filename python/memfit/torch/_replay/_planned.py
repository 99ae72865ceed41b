"""From a recorded step to a graph, and from the graph's verified plan to what is run when."""

import json
from dataclasses import dataclass, field
from typing import Any

import memfit
from memfit.torch import _glue
from memfit.torch._graph import Graph, Op, Value
from memfit.torch._replay._record import Call, Recording, Unsuitable, numbers


@dataclass
class Run:
    """A call of the recording is made."""

    call: int
    reads: dict[int, int]
    """The buffer of each storage that it reads."""
    writes: dict[int, int]
    """That of each which it makes, or writes to."""
    again: bool
    """Whether it has run before."""
    repeats: bool
    """Whether it will run again."""


@dataclass
class Free:
    """A buffer is let go of."""

    buffer: int


@dataclass
class Planned:
    """A verified plan of a recording."""

    actions: list[Run | Free]
    live_peak: int
    """Bytes, with what outlives the step."""
    resident: int
    """Bytes of what the step begins with."""
    results: dict[int, int]
    """The buffers of storages at the end."""
    recompute_ns: int
    recomputed: int
    file: bytes
    """The plan, as `memfit check` reads it."""
    graph: bytes


@dataclass
class _Lowered:
    graph: Graph
    versions: dict[int, int] = field(default_factory=dict)
    """The value that each storage holds."""
    storage_of: list[int] = field(default_factory=list)
    """Of each value."""

    def add(self, storage: int, size: int, role: str) -> int:
        value = self.graph.add_value(Value(f"s{storage}v{len(self.storage_of)}", size, "other", (), role))
        self.storage_of.append(storage)
        self.versions[storage] = value
        return value


def plan(recording: Recording, budget: int, others: int, strategy: list[str], seconds: float) -> Planned:
    """A plan of `recording` within `budget`, of which `others` bytes are what the step does not use.

    Raises `BudgetError` where there is none.
    """
    lowered = _lower(recording)
    graph = lowered.graph.dumps().encode()
    within = max(0, budget - others)
    made = memfit.plan(
        graph,
        budget=within,
        device="CPU",
        strategy=["budget:live", *strategy],
        time_limit=seconds,
    )
    text = json.loads(made.file)
    actions = _actions(lowered, text)
    resident = sum(storage.bytes for storage in recording.storages if not storage.made)
    freed = {action.buffer for action in actions if isinstance(action, Free)}
    results = {
        lowered.storage_of[stay["value"]]: at
        for at, stay in enumerate(text["buffers"])
        if "value" in stay and at not in freed
    }
    return Planned(
        actions,
        made.live_peak_bytes,
        resident,
        results,
        made.recompute_ns,
        sum(isinstance(action, Run) and action.again for action in actions),
        made.file,
        graph,
    )


def _lower(recording: Recording) -> _Lowered:
    """A value is one version of a storage; its last is a result where somebody holds it at the end."""
    lowered = _Lowered(Graph("step"))
    written = {number for call in recording.calls for number in call.writes}
    for number, storage in enumerate(recording.storages):
        if not storage.made:
            lowered.add(number, storage.bytes, "state" if number in written else "constant")
    for call in recording.calls:
        made = [window.storage for _, window in call.made]
        reads = [lowered.versions[number] for number in dict.fromkeys([*call.reads, *call.writes])]
        op = Op(call.name, call.name, effect=call.effect, workspace=_scratch(call))
        op.time_ns, op.reads = max(1, call.time_ns), reads
        for number in call.writes:
            before = lowered.versions[number]
            role = lowered.graph.values[before].role
            after = lowered.add(number, recording.storages[number].bytes, role)
            op.writes.append(after)
            op.must.append((before, after))
        op.writes += [lowered.add(number, recording.storages[number].bytes, "activation") for number in made]
        lowered.graph.ops.append(op)
    held = {window.storage for window in recording.bound().values() if window is not None}
    held |= set(numbers(recording.result))
    lowered.graph.results = sorted(
        lowered.versions[number] for number in held if recording.storages[number].made
    )
    return lowered


def _scratch(call: Call) -> int:
    # A repetition of a random op keeps two states of the generator.
    return call.scratch + (2 * _glue.state_bytes if call.effect == "seeded" else 0)


def _actions(lowered: _Lowered, plan: dict[str, Any]) -> list[Run | Free]:
    ops, buffers = lowered.graph.ops, plan["buffers"]
    order = [step["compute"]["op"] for step in plan["steps"] if "compute" in step]
    left = {op: order.count(op) for op in set(order)}
    seen: set[int] = set()
    actions: list[Run | Free] = []
    scratch = {at for at, stay in enumerate(buffers) if "value" not in stay}
    for step in plan["steps"]:
        if "compute" in step:
            compute = step["compute"]
            at = compute["op"]
            left[at] -= 1
            sides = []
            for values, stays in ((ops[at].reads, compute["reads"]), (ops[at].writes, compute["writes"])):
                pairs = zip(values, stays, strict=True)
                sides.append({lowered.storage_of[value]: stay for value, stay in pairs})
            actions.append(Run(at, sides[0], sides[1], at in seen, left[at] > 0))
            seen.add(at)
        elif "free" in step:
            if step["free"] not in scratch:
                actions.append(Free(step["free"]))
        else:
            raise Unsuitable(f"its plan has a step `{next(iter(step))}`")
    return actions
