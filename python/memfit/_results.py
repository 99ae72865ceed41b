"""What memfit returns: the objects of the command line's `--json`, as classes.

Attributes are the keys of those objects. Sizes are in bytes, times in nanoseconds. `to_json()` gives the
text back.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from memfit._memfit import show_bytes, show_nanos


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An object with a schema."""

    schema: str
    command: str
    """What made it: `plan`, `explain`, …"""
    status: str
    """How that ended: `fits` for what is planned, `done` for what only looks."""

    def to_json(self) -> str:
        """The object as JSON. What is bytes is left out."""
        fields = dataclasses.asdict(self)
        return json.dumps({key: value for key, value in fields.items() if not isinstance(value, bytes)})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How busy the link to a tier is."""

    tier: str
    """`host` or `disk`."""
    out_ns: int
    """Time in which it carries something out of the device."""
    in_ns: int
    out_busy: float
    """That as a part of the step time, from 0 to 1."""
    in_busy: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Result):
    """A verified plan: `file` is what `memfit check` and `memfit.check` read."""

    strategy: str
    instead: dict[str, str] | None
    """The strategy that was asked and left its work to another, why, and what was used."""
    graph: str
    graph_digest: str
    device: str
    ops: int
    values: int
    budget_bytes: int
    peak_bytes: int
    live_peak_bytes: int
    lower_bound_bytes: int
    unconstrained_peak_bytes: int
    naive_bytes: int
    persistent_bytes: int
    parked_bytes: int
    """Bytes of parameters, state and constants that are at home in host memory or on the disk."""
    time_ns: int
    base_time_ns: int
    overhead: float
    recompute_ns: int
    time_bound_ns: int
    offload_bytes: int
    """Bytes that are carried to host memory or the disk, each time they are."""
    host_peak_bytes: int
    disk_peak_bytes: int
    link_out_ns: int
    """Time in which links carry something out of the device: the sum over links."""
    link_in_ns: int
    links: list[Link]
    """How busy the link to each tier is."""
    stall_ns: int
    """Part of the step time in which the device waits for transfers."""
    held_by: str | None
    """The op at the live peak, if nothing is live then that could be elsewhere: moving more does not help."""
    encoded_bytes: int
    """Bytes of values that wait encoded, as many as they are before, each time they are."""
    codec_ns: int
    """Part of the step time in which codecs encode and decode."""
    lossy: list[str]
    """Codecs that lose something by which it holds values."""
    lossy_allowed: list[str]
    """Those that it was allowed."""
    lanes: int
    added_dependencies: int
    planning_seconds: float
    verified: bool
    seed: int
    file: bytes
    """The plan, `memfit-plan/1`, in its canonical form: equal plans are equal bytes."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to `path`, whole or not at all."""
        beside = f"{os.fspath(path)}.{os.getpid()}.tmp"
        try:
            with open(beside, "wb") as file:
                file.write(self.file)
            os.replace(beside, path)
        except BaseException:
            if os.path.exists(beside):
                os.remove(beside)
            raise

    def __repr__(self) -> str:
        memory = f"{show_bytes(self.peak_bytes)} of {show_bytes(self.budget_bytes)}"
        step = f"step {show_nanos(self.time_ns)} ({self.overhead:+.1%})"
        return f"<memfit.Plan of {self.graph!r}: {memory}, {self.strategy}, {step}, verified>"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Check(Result):
    """The verifier accepts a plan."""

    strategy: str
    budget_bytes: int
    peak_bytes: int
    host_peak_bytes: int
    disk_peak_bytes: int
    lossy: list[str]
    """Codecs that lose something by which the plan holds values."""
    lossy_allowed: list[str]
    """Those that the file says it was allowed."""
    verified: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Floor(Result):
    """What no plan that keeps persistent storages on the device goes below."""

    graph: str
    floor_bytes: int
    persistent_bytes: int
    largest_step: str | None
    largest_working_set_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Placement(Result):
    """Verified offsets, one for each buffer, in the order of the buffers."""

    strategy: str
    buffers: int
    budget_bytes: int | None
    peak_bytes: int
    live_peak_bytes: int
    lower_bound_bytes: int
    naive_bytes: int
    planning_seconds: float
    verified: bool
    seed: int
    offsets: list[int]

    def __repr__(self) -> str:
        over = self.peak_bytes / self.lower_bound_bytes if self.lower_bound_bytes else 1.0
        return (
            f"<memfit.Placement of {self.buffers:,} buffers: {show_bytes(self.peak_bytes)},"
            f" {over:.4f} of the lower bound, verified>"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Bytes that belong together."""

    name: str
    bytes: int
    buffers: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An op of a graph."""

    index: int
    name: str
    kind: str
    module: str
    phase: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A buffer that is in memory at the peak."""

    name: str
    role: str
    bytes: int
    shape: str
    made_by: str
    module: str
    last_read_by: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Something that makes the step smaller."""

    name: str
    what: str
    peak_bytes: int
    offload_bytes: int | None = None
    """What moving values comes to, where that is part of it; here and below as in `Plan`."""
    host_peak_bytes: int | None = None
    disk_peak_bytes: int | None = None
    links: list[dict[str, Any]] | None = None
    stall_ns: int | None = None
    held_by: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(Result):
    """Where the memory of a step goes; `print` shows it as tables."""

    graph: str
    ops: int
    values: int
    flops: float
    time_ns: int
    static_bytes: int
    static: list[Share]
    dynamic_peak_bytes: int
    live_peak_bytes: int
    lower_bound_bytes: int
    floor_bytes: int
    largest_step: str | None
    largest_working_set_bytes: int
    peak_op: Op | None
    live_bytes: list[int]
    peak_by_role: list[Share]
    peak_by_module: list[Share]
    peak_by_kind: list[Share]
    top: list[Holder]
    held_by: str | None
    """The op at the peak, if nothing is live then that could be elsewhere: moving does not lower it."""
    remedies: list[Remedy]

    def __repr__(self) -> str:
        at = f" at `{self.peak_op.name}`" if self.peak_op else ""
        parts = [f"{self.graph}: peak {show_bytes(self.live_peak_bytes)}{at}"]
        for title, shares in (
            ("by role", self.peak_by_role),
            ("by module", self.peak_by_module),
            ("by op", self.peak_by_kind),
        ):
            parts.append(_shares(f"at the peak, {title}", shares, self.live_peak_bytes))
        parts.append(_remedies(self.remedies))
        return "\n\n".join(parts)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the allocator holds at the moment of a snapshot."""

    reserved_bytes: int
    allocated_bytes: int
    requested_bytes: int
    awaiting_bytes: int
    free_bytes: int
    largest_free_bytes: int
    free_blocks: int
    segments: int
    private_bytes: int
    expandable: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """What could not be had."""

    requested_bytes: int
    device_free_bytes: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHolder:
    """A buffer that is in memory at the peak of a snapshot."""

    bytes: int
    role: str
    frame: str
    stack: list[str]
    from_before: bool
    failed: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRemedy:
    """Something that makes the step smaller, and how far its figure can be trusted."""

    name: str
    what: str
    peak_bytes: int
    certainty: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SnapshotExplanation(Result):
    """Where the memory of a device went; `print` shows it as tables."""

    device: int
    devices: list[int]
    events: int
    allocations: int
    out_of_memory: OutOfMemory | None
    held: Held
    reserved_peak_bytes: int
    live_peak_bytes: int
    peak_event: int
    peak_by_role: list[Share]
    peak_by_frame: list[Share]
    top: list[SnapshotHolder]
    remedies: list[SnapshotRemedy]

    def __repr__(self) -> str:
        live, reserved = show_bytes(self.live_peak_bytes), show_bytes(self.reserved_peak_bytes)
        when = f"{self.events:,} events" if self.events else "no history, the moment of the snapshot"
        free = f"{show_bytes(self.held.free_bytes)} free, the largest block"
        largest = show_bytes(self.held.largest_free_bytes)
        parts = [
            f"device {self.device}: {live} live at the peak, {reserved} reserved; {when}\n"
            f"at the snapshot {free} {largest}"
        ]
        if self.out_of_memory:
            requested = show_bytes(self.out_of_memory.requested_bytes)
            parts.append(f"out of memory: {requested} were asked for; they count as live")
        parts.append(_shares("at the peak, by role", self.peak_by_role, self.live_peak_bytes))
        parts.append(_shares("at the peak, by frame", self.peak_by_frame, self.live_peak_bytes))
        parts.append(_remedies(self.remedies))
        return "\n\n".join(parts)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one goal. What a status has nothing to say about is `None`."""

    name: str
    planning_seconds: float
    status: str
    verified: bool
    strategy: str | None = None
    instead: dict[str, str] | None = None
    """The strategy that was asked and left its work to another, why, and what was used."""
    budget_bytes: int | None = None
    peak_bytes: int | None = None
    live_peak_bytes: int | None = None
    lower_bound_bytes: int | None = None
    time_ns: int | None = None
    base_time_ns: int | None = None
    overhead: float | None = None
    recompute_ns: int | None = None
    host_budget_bytes: int | None = None
    """Host memory that values might wait in, where several amounts of it are tried."""
    offload_bytes: int | None = None
    host_peak_bytes: int | None = None
    disk_peak_bytes: int | None = None
    links: list[dict[str, Any]] | None = None
    stall_ns: int | None = None
    held_by: str | None = None
    needed_bytes: int | None = None
    proved: bool | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Result):
    """Every strategy at one budget."""

    graph: str
    budget: str
    rows: list[Row]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Result):
    """One goal at many budgets."""

    graph: str
    floor_bytes: int
    rows: list[Row]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to do one thing."""

    family: str
    name: str
    summary: str
    source: str
    year: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that has a name."""

    name: str
    memory_bytes: int
    source: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Strategies that decide the same thing: people call one `family:name`."""

    name: str
    summary: str
    """What its strategies decide."""
    means: list[str]
    """What they do to make a step fit: `recompute`, `offload`, `compress`."""
    online: bool
    """Whether they decide while the step runs."""
    default: str
    """Name of the strategy that is used where none is named."""
    page: str
    """Page of the manual."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strategies(Result):
    """What memfit can do."""

    families: list[Family]
    strategies: list[Strategy]
    devices: list[Device]


R = TypeVar("R", bound=Result)

NESTED: dict[str, type] = {
    "links": Link,
    "static": Share,
    "peak_by_role": Share,
    "peak_by_module": Share,
    "peak_by_kind": Share,
    "peak_by_frame": Share,
    "peak_op": Op,
    "held": Held,
    "out_of_memory": OutOfMemory,
    "rows": Row,
    "families": Family,
    "strategies": Strategy,
    "devices": Device,
}
"""The class of what stands under a key, alone or in a list."""


def read(kind: type[R], text: str, nested: Mapping[str, Callable[..., Any]] | None = None, **more: Any) -> R:
    """The object in `text` as a `kind`; a key that the class doesn't have is a mistake.

    `nested` is more of `NESTED`.
    """
    values = json.loads(text)
    of_snapshot = kind is SnapshotExplanation
    own: dict[str, Callable[..., Any]] = {
        "top": SnapshotHolder if of_snapshot else Holder,
        "remedies": SnapshotRemedy if of_snapshot else Remedy,
    }
    for key, of in (NESTED | own | dict(nested or {})).items():
        if isinstance(values.get(key), list):
            values[key] = [of(**row) if isinstance(row, dict) else row for row in values[key]]
        elif isinstance(values.get(key), dict):
            values[key] = of(**values[key])
    return kind(**values, **more)


def table(rows: list[list[str]]) -> str:
    """Rows with the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: list[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, rows))


def _shares(title: str, shares: list[Share], whole: int, most: int = 8) -> str:
    rows = [
        [
            f"  {share.name}",
            show_bytes(share.bytes),
            f"{share.bytes / max(whole, 1):.0%}",
            f"{share.buffers:,} buffers",
        ]
        for share in shares[:most]
    ]
    more = f"\n  … {len(shares) - most} more" if len(shares) > most else ""
    return f"{title}\n{table(rows) if rows else '  (nothing)'}{more}"


def _remedies(remedies: Sequence[Remedy | SnapshotRemedy]) -> str:
    first = remedies[0].peak_bytes if remedies else 0
    rows = [
        [
            f"  {remedy.name}",
            show_bytes(remedy.peak_bytes),
            f"{remedy.peak_bytes / max(first, 1) - 1:+.0%}",
            getattr(remedy, "certainty", ""),
        ]
        for remedy in remedies
    ]
    lines = table(rows).splitlines() if rows else []
    return "what each remedy would give\n" + "\n".join(
        f"{line}  {remedy.what}" for line, remedy in zip(lines, remedies, strict=True)
    )
