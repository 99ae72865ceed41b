"""`memfit.simplify`: a graph that computes the same results of fewer ops."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from memfit import _memfit
from memfit._door import Graph, _means, _source
from memfit._memfit import show_bytes, show_nanos
from memfit._results import Result, read, table


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What a pass changed, and what it saved. Sizes are in bytes."""

    name: str
    changes: int
    undone: int
    """Changes that were taken back, since the live peak would have risen."""
    ops: int
    values: int
    live_peak_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A graph before or after. Sizes are in bytes, times in nanoseconds."""

    ops: int
    values: int
    live_peak_bytes: int
    peak_bytes: int
    """Of the plan without a budget."""
    time_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """An op of the original that is gone, and why: `dead`, `common`, `identity` or `view`."""

    op: int
    name: str
    why: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A value of the original whose readers read another one."""

    value: int
    by: int
    name: str
    by_name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ops of the simplified graph that belong together, and what a step saves."""

    ops: list[int]
    results: list[int]
    """What others read."""
    inner: list[int]
    """What need not be stored."""
    moved_bytes: int
    time_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Simplified(Result):
    """A simplified graph: `file` is `memfit-graph/1`, for `memfit.plan` and all else."""

    graph: str
    graph_digest: str
    simplified_digest: str
    device: str
    passes: list[Rewritten]
    left_out: list[str]
    """Passes that were left out, since the planned peak would have risen."""
    before: Figures
    after: Figures
    fused: Figures
    """As if a compiler fused all `groups`."""
    removed: list[Removed]
    replaced: list[Replaced]
    ahead: list[Group]
    """Values that can be computed ahead, from constants alone."""
    groups: list[Group]
    """Element-wise ops that a compiler can fuse."""
    verified: bool
    seed: int
    file: bytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the graph to `path`, as `memfit simplify -o` does."""
        with open(path, "wb") as out:
            out.write(self.file)

    def __repr__(self) -> str:
        rows = [["", "as given", "simplified", "fused by a compiler"]]
        for name, key, show in (
            ("ops", "ops", str),
            ("values", "values", str),
            ("live peak", "live_peak_bytes", show_bytes),
            ("planned peak", "peak_bytes", show_bytes),
            ("predicted time", "time_ns", show_nanos),
        ):
            figures = (self.before, self.after, self.fused)
            rows.append([name, *(show(getattr(each, key)) for each in figures)])
        return f"{self.graph!r}\n{table(rows)}"


def _rewritten(**row: Any) -> Rewritten:
    # `pass` can't be an attribute.
    return Rewritten(name=row.pop("pass"), **row)


def simplify(
    graph: Graph,
    *,
    device: str | os.PathLike[str] = "A100-80",
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    time_limit: float | None = None,
) -> Simplified:
    """The graph without dead ops, views, identities and common subexpressions, as `memfit simplify` makes it.

    Its results are the same bits, which the verifier has checked, and neither its live nor its planned peak
    is higher. It is for whoever runs the ops of the graph: PyTorch runs a model as it is written.

    Raises `InputError` for a file that is no graph.
    """
    means = _means(device=device, seed=seed, time_limit=time_limit)
    text, file = _memfit.simplify(_source(graph, dims), means)
    nested: dict[str, Callable[..., Any]] = {
        "passes": _rewritten,
        "before": Figures,
        "after": Figures,
        "fused": Figures,
        "removed": Removed,
        "replaced": Replaced,
        "ahead": Group,
        "groups": Group,
    }
    return read(Simplified, text, file=file, nested=nested)
