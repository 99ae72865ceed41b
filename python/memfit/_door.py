"""The functions of the command line. A graph is a path, the bytes of a file, or a `dict`."""

import csv
import io
import json
import math
import os
import pickle
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from memfit import _memfit
from memfit._errors import InputError, UsageError
from memfit._results import (
    Check,
    Comparison,
    Explanation,
    Floor,
    Placement,
    Plan,
    SnapshotExplanation,
    Strategies,
    Sweep,
    read,
)

if TYPE_CHECKING:
    from memfit._memfit import Means, Source

File: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A path, or the bytes of a file."""
Graph: TypeAlias = File | Mapping[str, Any]
"""A graph file (`memfit-graph/1` JSON, ONNX, TensorFlow Lite or text), or its JSON object."""
Size: TypeAlias = int | str
"""Bytes, or a text such as `8GiB`."""


def plan(
    graph: Graph,
    *,
    budget: Size | None = None,
    device: str | os.PathLike[str] = "A100-80",
    strategy: str | Iterable[str] = (),
    recompute: bool = True,
    lossy: str | Iterable[str] = (),
    host_budget: Size | None = None,
    disk_budget: Size | None = None,
    replay_random: bool | None = None,
    lanes: int = 1,
    allow_serialize: bool = False,
    in_place: bool = True,
    co_share: bool = True,
    seed: int = 0,
    time_limit: float | None = None,
    dims: Mapping[str, int] | None = None,
) -> Plan:
    """Makes a plan that fits the budget, and has the verifier check it.

    `budget` is bytes, a size (`"8GiB"`), a share of the unconstrained peak (`"60%"`) or of what lies above
    the floor (`"floor+60%"`); without it all of the device may be used. `device` is a preset or the path of a
    TOML file. `strategy` replaces a default: `"order:NAME"`, `"recompute:NAME"`, `"offload:NAME"`,
    `"compress:NAME"`, `"hybrid:NAME"`, `"place:NAME"`, or several; `strategies()` lists them.
    `"budget:live"` bounds live bytes instead of the arena. `host_budget` bytes of host memory may hold values
    that leave the device between two uses, where that is faster than to compute them again; 0 for none.
    `disk_budget` bytes of the disk, likewise, if the device has one. `lossy` names codecs that lose something
    (`"int8+mask"`) in which values may wait, where no plan fits that gives the same bits as ever.
    `dims` are sizes of open dimensions of ONNX and TensorFlow Lite models. Without a `time_limit`, in
    seconds, the same input gives the same plan.

    Raises `BudgetError` if the budget is too small, with the smallest that would do; `InputError` for a file
    that can't be read; `UsageError` for a call that makes no sense.
    """
    means = _means(
        budget=budget,
        device=device,
        strategy=strategy,
        recompute=recompute,
        lossy=lossy,
        host_budget=host_budget,
        disk_budget=disk_budget,
        replay_random=replay_random,
        lanes=lanes,
        allow_serialize=allow_serialize,
        in_place=in_place,
        co_share=co_share,
        seed=seed,
        time_limit=time_limit,
    )
    text, file = _memfit.plan(_source(graph, dims), means)
    return read(Plan, text, file=file)


def check(
    plan: Plan | File,
    graph: Graph,
    *,
    budget: Size | None = None,
    lossy: str | Iterable[str] = (),
    dims: Mapping[str, int] | None = None,
) -> Check:
    """Verifies `plan`, which was made for `graph`; `budget` replaces the one that the plan names.
    The plan may use lossy codecs that are named here and no others, whatever it says of itself.

    Raises `VerificationError` if the plan breaks a rule, `OtherGraphError` if it was made for another
    graph.
    """
    file = plan.file if isinstance(plan, Plan) else _bytes(plan)
    return read(Check, _memfit.check(file, _source(graph, dims), _size(budget), _names(lossy)))


def explain(
    file: Graph,
    *,
    top: int = 10,
    depth: int = 1,
    device: str | os.PathLike[str] = "A100-80",
    index: int | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    dims: Mapping[str, int] | None = None,
) -> Explanation | SnapshotExplanation:
    """What holds the memory at the peak, and what each remedy would give.

    `file` is a graph, or a snapshot of PyTorch's CUDA memory: what `torch.cuda.memory._dump_snapshot` writes,
    or the `dict` that `torch.cuda.memory._snapshot` returns. `top` of the largest buffers are listed. Of a
    graph, modules are cut to `depth` components of their paths; of a snapshot, the device called `index` is
    explained, or the one that holds most.
    """
    if isinstance(file, Mapping) and "segments" in file:
        file = pickle.dumps(dict(file), protocol=4)
    source = _source(file, dims)
    if _memfit.is_snapshot(source["file"]):
        return read(SnapshotExplanation, _memfit.explain_snapshot(source["file"], index, top))
    means = _means(device=device, seed=seed, time_limit=time_limit)
    return read(Explanation, _memfit.explain(source, means, depth, top))


def report(
    file: Plan | Graph,
    path: str | os.PathLike[str],
    *,
    graph: Graph | None = None,
    budget: Size | None = None,
    device: str | os.PathLike[str] | None = None,
    quick: bool = False,
    front: bool = False,
    index: int | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    dims: Mapping[str, int] | None = None,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Writes one page to look at to `path`: an HTML file that needs no network.

    `file` is a plan, with the `graph` it was made for; or a graph, which is planned for `budget` first; or a
    snapshot of PyTorch's CUDA memory, as `explain` takes it, of which the device called `index` is shown; or
    what `memfit run --json` printed. `device` is the one whose times are shown, by default the plan's. With
    `quick` no other plans are made to see what each means would give by itself; with `front`, some are, to
    see what each budget costs. `facts` are shown with the page's own.

    Raises `InputError` for a file that can't be read, `BudgetError` where the graph does not fit, and what
    `check` raises for a plan.
    """
    if isinstance(file, Mapping) and "segments" in file:
        file = pickle.dumps(dict(file), protocol=4)
    source = _source(file.file if isinstance(file, Plan) else file, dims)
    means = _means(budget=budget, device=device or "", seed=seed, time_limit=time_limit)
    made_for = None if graph is None else _source(graph, dims)
    told = [(str(name), str(text)) for name, text in (facts or {}).items()]
    page = _memfit.report(source, made_for, means, index, (not quick, front), told)
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        out.write(page)


def export(
    plan: Plan | File,
    graph: Graph,
    *,
    to: str,
    device: str = "",
    dims: Mapping[str, int] | None = None,
) -> bytes:
    """`plan`, which was made for `graph`, as a file for a viewer or a runtime.

    `to` is `"perfetto"` (`ui.perfetto.dev`: lanes, links and counters of live bytes), `"chrome-trace"` (the
    same as JSON) or `"memory-viz"` (a snapshot as PyTorch's allocator writes it, for
    `pytorch.org/memory_viz`). Times are those of `device`, by default the plan's. `"tflite"` is the
    TensorFlow Lite model `graph` with the offsets of the plan in it, for TensorFlow Lite Micro.

    Raises what `check` raises, `UsageError` for another name, and `InputError` for a plan that the runtime
    can't follow.
    """
    file = plan.file if isinstance(plan, Plan) else _bytes(plan)
    return _memfit.export(file, _source(graph, dims), device, to)


def floor(
    graph: Graph, *, device: str | os.PathLike[str] = "A100-80", dims: Mapping[str, int] | None = None
) -> Floor:
    """What no plan for `graph` goes below: persistent bytes plus the largest working set of one op."""
    return read(Floor, _memfit.floor(_source(graph, dims), _means(device=device)))


def place(
    buffers: File | Iterable[tuple[int, int, int]],
    *,
    capacity: Size | None = None,
    placer: str = "best",
    align: int = 1,
    seed: int = 0,
    time_limit: float | None = None,
) -> Placement:
    """Chooses an offset for each buffer, such that buffers that are live together don't overlap.

    `buffers` are a CSV file with the columns `id,lower,upper,size`, or tuples `(lower, upper, size)`;
    lifetimes are half-open. Raises `BudgetError` if no layout within `capacity` is found.
    """
    if isinstance(buffers, str | os.PathLike | bytes | bytearray | memoryview):
        file = _bytes(buffers)
    else:
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(("id", "lower", "upper", "size"))
        for at, (lower, upper, size) in enumerate(buffers):
            writer.writerow((at, int(lower), int(upper), int(size)))
        file = out.getvalue().encode()
    text, offsets = _memfit.place(file, _size(capacity), placer, align, seed, _seconds(time_limit))
    return read(Placement, text, offsets=offsets)


def compare(
    graph: Graph,
    *,
    budget: Size | None = None,
    device: str | os.PathLike[str] = "A100-80",
    recompute: bool = True,
    host_budget: Size | None = None,
    disk_budget: Size | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    dims: Mapping[str, int] | None = None,
) -> Comparison:
    """What every strategy makes of one budget."""
    means = _means(
        budget=budget,
        device=device,
        recompute=recompute,
        host_budget=host_budget,
        disk_budget=disk_budget,
        seed=seed,
        time_limit=time_limit,
    )
    return read(Comparison, _memfit.compare(_source(graph, dims), means))


def sweep(
    graph: Graph,
    budgets: Iterable[Size] | None = None,
    *,
    device: str | os.PathLike[str] = "A100-80",
    strategy: str | Iterable[str] = (),
    recompute: bool = True,
    host_budget: Size | None = None,
    disk_budget: Size | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    dims: Mapping[str, int] | None = None,
) -> Sweep:
    """What each budget costs in time; by default eleven of them, from the peak down to the floor."""
    if budgets is None:
        budgets = [f"floor+{percent}%" for percent in range(100, -1, -10)]
    means = _means(
        device=device,
        strategy=strategy,
        recompute=recompute,
        host_budget=host_budget,
        disk_budget=disk_budget,
        seed=seed,
        time_limit=time_limit,
    )
    sizes = [_size(budget) or "" for budget in budgets]
    return read(Sweep, _memfit.sweep(_source(graph, dims), means, sizes))


def strategies() -> Strategies:
    """What memfit can do, with sources, and the devices that have a name."""
    return read(Strategies, _memfit.strategies())


def _bytes(file: File) -> bytes:
    if isinstance(file, bytes | bytearray | memoryview):
        return bytes(file)
    if not isinstance(file, str | os.PathLike):
        raise UsageError(f"a path or bytes are expected, not `{type(file).__name__}`")
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise InputError(f"can't read `{os.fspath(file)}`: {error.strerror or error}") from error


def _source(graph: Graph, dims: Mapping[str, int] | None) -> "Source":
    if isinstance(graph, Mapping):
        try:
            file = json.dumps(dict(graph), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"the graph is not a JSON object: {error}") from error
    else:
        file = _bytes(graph)
    return {"file": file, "dims": list((dims or {}).items())}


def _size(size: Size | None) -> str | None:
    if isinstance(size, bool) or not isinstance(size, int | str | None):
        raise UsageError(
            f"`{size!r}` is not a size", hint="write bytes as an `int`, or a text such as `8GiB`"
        )
    # A bare number in a text may be a share whose sign was forgotten; an `int` is bytes.
    return f"{size} B" if isinstance(size, int) else size


def _names(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _seconds(limit: float | None) -> float | None:
    if limit is None or (math.isfinite(limit) and limit > 0):
        return limit
    raise UsageError(f"`{limit}` is not a number of seconds")


def _means(
    *,
    budget: Size | None = None,
    device: str | os.PathLike[str],
    strategy: str | Iterable[str] = (),
    recompute: bool = True,
    lossy: str | Iterable[str] = (),
    host_budget: Size | None = None,
    disk_budget: Size | None = None,
    replay_random: bool | None = None,
    lanes: int = 1,
    allow_serialize: bool = False,
    in_place: bool = True,
    co_share: bool = True,
    seed: int = 0,
    time_limit: float | None = None,
) -> "Means":
    name = os.fspath(device)
    is_file = name.endswith(".toml") or "/" in name or "\\" in name
    return {
        "budget": _size(budget),
        "device": name,
        "device_file": _bytes(name) if is_file else None,
        "strategy": _names(strategy),
        "recompute": recompute,
        "lossy": _names(lossy),
        "host_budget": _size(host_budget),
        "disk_budget": _size(disk_budget),
        "replay_random": replay_random,
        "lanes": lanes,
        "allow_serialize": allow_serialize,
        "in_place": in_place,
        "co_share": co_share,
        "seed": seed,
        "time_limit": _seconds(time_limit),
    }
