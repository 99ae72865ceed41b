"""Memory planning for ExecuTorch: offsets by memfit instead of ExecuTorch's greedy algorithm.

```python
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
import memfit.executorch

planning = MemoryPlanningPass(memory_planning_algo=memfit.executorch.suite())
program = to_edge(exported).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
```

Needs the package `executorch`; tested with version 1.5.1. Each arena (`mem_id`) is a problem of its own.
Tensors that ExecuTorch stores in other tensors (`storage_base`) stay there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from memfit._door import place
from memfit._errors import InputError

if TYPE_CHECKING:
    from typing import Protocol

    class Spec(Protocol):
        """What is used of ExecuTorch's `TensorSpec`."""

        lifetime: list[int | None]
        mem_id: int | None

        @property
        def allocated_memory(self) -> int: ...
        def realign(self, new_alignment: int) -> int: ...


__all__ = ["Allocation", "algorithm", "allocate", "suite"]


class Allocation(NamedTuple):
    """Where a tensor lies."""

    arena: int
    """Index of the arena, ExecuTorch's `mem_id`; 0 is for constants."""
    group: int
    """Tensors of an arena that share bytes, if only through others, have one: ExecuTorch's `mem_obj_id`."""
    offset: int
    """Bytes from the start of the arena."""


def allocate(
    specs: Iterable[Spec],
    *,
    alignment: int = 16,
    reserved: Iterable[int] = (),
    padding: int = 0,
    placer: str = "best",
    seed: int = 0,
    time_limit: float | None = None,
) -> tuple[dict[Spec, Allocation], list[int]]:
    """An allocation for each of `specs`, and bytes of each arena, that of constants (0) first.

    Lifetimes of specs are closed: `[2, 5]` is alive while node 5 runs. `alignment` is bytes, a power of two.
    The first `reserved[arena]` bytes of an arena are left free, for submodules; `padding` bytes are added to
    each arena in use. `placer` is one that `memfit strategies` lists; without `time_limit`, in seconds, the
    same specs give the same offsets.

    Raises `InputError` for a spec without a lifetime, or whose storage is in one that is not among `specs`,
    in itself, or too small for it; `UsageError` for an unknown placer.
    """
    specs = list(specs)
    arenas: dict[int, list[Spec]] = {}
    for spec in specs:
        spec.realign(alignment)
        if None in spec.lifetime or spec.lifetime[0] > spec.lifetime[1]:  # type: ignore[operator]
            raise InputError(f"the lifetime of a tensor is `{spec.lifetime}`: nothing says when it is alive")
        if _base(spec) is None:
            arenas.setdefault(1 if spec.mem_id is None else spec.mem_id, []).append(spec)
    reserved = list(reserved)
    sizes = [0] * max(2, 1 + max(arenas, default=1))
    found: dict[Spec, Allocation] = {}
    for arena, members in sorted(arenas.items()):
        first = reserved[arena] if arena < len(reserved) else 0
        first = -(-first // alignment) * alignment
        # Sets of specs have no order; equal rows are interchangeable.
        members.sort(key=_row)
        rows = [_row(spec) for spec in members]
        placed = place(rows, placer=placer, align=alignment, seed=seed, time_limit=time_limit)
        offsets = [first + offset for offset in placed.offsets]
        groups = _groups(offsets, [size for _, _, size in rows])
        for spec, group, offset in zip(members, groups, offsets, strict=True):
            found[spec] = Allocation(arena, group, offset)
        ends = (offset + size for offset, (_, _, size) in zip(offsets, rows, strict=True))
        sizes[arena] = max(ends, default=first) + padding
    for spec in specs:
        _resolve(spec, found)
    return found, sizes


def algorithm(
    alignment: int,
    specs: Iterable[Spec],
    graph_module: Any,
    graph_signature: Any = None,
    extra_padding: int = 0,
    *,
    placer: str = "best",
    seed: int = 0,
    time_limit: float | None = None,
) -> Any:
    """An algorithm for ExecuTorch's `MemoryPlanningAlgorithmSuite`; returns its `MemoryAlgoResult`.

    The arguments are ExecuTorch's: bytes of alignment, specs with their lifetimes, the module, of which only
    `input_mem_buffer_sizes` is read (bytes that submodules take of each arena), its signature, which is not
    read, and bytes to add to each arena. Raises what `allocate` raises.
    """
    planning = importlib.import_module("executorch.exir.memory_planning")
    reserved = getattr(graph_module, "input_mem_buffer_sizes", None) or ()
    found, sizes = allocate(
        specs,
        alignment=alignment,
        reserved=reserved,
        padding=extra_padding,
        placer=placer,
        seed=seed,
        time_limit=time_limit,
    )
    results = {spec: planning.SpecAllocResult(*allocation) for spec, allocation in found.items()}
    return planning.MemoryAlgoResult(results, sizes)


def suite(*others: Callable[..., Any]) -> Any:
    """ExecuTorch's `MemoryPlanningAlgorithmSuite` with memfit's algorithm and `others`: the best of them."""
    planning = importlib.import_module("executorch.exir.memory_planning")
    return planning.MemoryPlanningAlgorithmSuite(algo_list=[algorithm, *others])


def _base(spec: Spec) -> Spec | None:
    """The spec whose storage this one is in; versions before 1.2 have none."""
    base: Spec | None = getattr(spec, "storage_base", None)
    return base


def _row(spec: Spec) -> tuple[int, int, int]:
    """A half-open lifetime, and bytes."""
    first, last = spec.lifetime
    assert first is not None and last is not None, "checked"
    return first, last + 1, spec.allocated_memory


def _groups(offsets: list[int], sizes: list[int]) -> list[int]:
    """For each buffer the number of its group: two that share a byte at some time are in one."""
    groups = [0] * len(offsets)
    group, end = -1, 0
    for index in sorted(range(len(offsets)), key=lambda index: (offsets[index], sizes[index] == 0)):
        if group < 0 or offsets[index] >= end:
            group += 1
        groups[index] = group
        end = max(end, offsets[index] + sizes[index])
    return groups


def _resolve(spec: Spec, found: dict[Spec, Allocation]) -> None:
    """Gives a place to `spec`, and to those whose storage it is in."""
    chain: list[Spec] = []
    at: Spec = spec
    while at not in found:
        base = _base(at)
        if base is None or at in chain:
            raise InputError("the storage of a tensor is in one that is not planned, or in itself")
        chain.append(at)
        at = base
    for inner in reversed(chain):
        base = _base(inner)
        assert base is not None, "it is in the chain"
        within = getattr(inner, "storage_base_offset", 0)
        if within < 0 or within + inner.allocated_memory > base.allocated_memory:
            raise InputError("the storage of a tensor is in one that is too small for it")
        arena, group, offset = found[base]
        found[inner] = Allocation(arena, group, offset + within)
