"""`memfit.shard`: a training step as one of N ranks runs it."""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping

from memfit import _memfit
from memfit._door import Graph, _means, _names, _source
from memfit._errors import UsageError
from memfit._memfit import show_bytes, show_nanos
from memfit._results import Result, read, table


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """What one rank holds, sends and takes. Sizes are in bytes, times in nanoseconds."""

    ops: int
    values: int
    parameter_bytes: int
    gradient_bytes: int
    """Of all gradients, when the last of them is made."""
    state_bytes: int
    """Of what nothing but the update touches."""
    model_bytes: int
    """The three together."""
    persistent_bytes: int
    live_peak_bytes: int
    """The largest sum of live bytes in the order of the graph."""
    lower_bound_bytes: int
    sent_bytes: int
    collective_ops: int
    collective_ns: int
    time_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sharded(Result):
    """The step of one rank: `file` is a graph, `memfit-graph/1`, for `memfit.plan` and all else."""

    graph: str
    graph_digest: str
    device: str
    ranks: int
    stage: str
    source: str
    buckets: bool
    units: list[str]
    link_bytes_per_second: float
    round_latency_ns: int
    before: Rank
    """Every rank holds everything."""
    after: Rank
    file: bytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the graph to `path`, as `memfit shard -o` does."""
        with open(path, "wb") as out:
            out.write(self.file)

    def __repr__(self) -> str:
        rows = [["on each rank", "nothing shared", self.stage]]
        for name, key, show in (
            ("parameters", "parameter_bytes", show_bytes),
            ("gradients, all of them", "gradient_bytes", show_bytes),
            ("optimizer state", "state_bytes", show_bytes),
            ("persistent", "persistent_bytes", show_bytes),
            ("live bytes at the peak", "live_peak_bytes", show_bytes),
            ("sent in a step", "sent_bytes", show_bytes),
            ("time of a step", "time_ns", show_nanos),
        ):
            rows.append([name, *(show(getattr(rank, key)) for rank in (self.before, self.after))])
        return f"{self.graph!r} on {self.ranks} ranks\n{table(rows)}"


def shard(
    graph: Graph,
    *,
    ranks: int,
    stage: str,
    buckets: bool = False,
    units: str | Iterable[str] = (),
    link: float = 25e9,
    latency: float = 5e-6,
    device: str | os.PathLike[str] = "A100-80",
    dims: Mapping[str, int] | None = None,
) -> Sharded:
    """The step of one of `ranks` ranks, each on a batch of its own, as `memfit shard` makes it.

    `stage` is `"state"`, `"gradients"`, `"parameters"` (each shares what the one before does, too), or
    `"replicas"`, which shares nothing. `buckets`: whole gradients have memory of their own for the whole
    step, as under `DistributedDataParallel`. `units` are modules whose parameters are gathered together, as
    `fully_shard` does: paths such as `"layers.*"`. `link` is what a rank sends, in bytes per second;
    `latency` the time of a round of a collective op, in seconds.

    Raises `InputError` for a graph that does not say what its parameters, gradients and updates are,
    `UsageError` for a number of ranks that can't share it.
    """
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 0 <= ranks < 1 << 32:
        raise UsageError(f"`{ranks!r}` is not a number of ranks")
    for name, number in (("link", link), ("latency", latency)):
        if not (math.isfinite(number) and 0 <= number < 1e15) or (name == "link" and number == 0):
            raise UsageError(f"`{name}` is {number!r}", hint="bytes per second, and seconds")
    text, file = _memfit.shard(
        _source(graph, dims),
        _means(device=device),
        (ranks, stage, buckets),
        _names(units),
        (float(link), round(min(latency, 1e6) * 1e9)),
    )
    return read(Sharded, text, file=file, nested={"before": Rank, "after": Rank})
