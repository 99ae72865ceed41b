"""One graph for every batch size: sizes and work grow linearly with the rows, so two graphs tell all
others."""

import dataclasses
from collections.abc import Callable

from memfit.torch._graph import Graph, Op, Value


def scaled(first: Graph, second: Graph, rows: tuple[int, int], wanted: int) -> Graph | None:
    """The graph for `wanted` rows, from those for `rows`; `None` if they are not the same ops."""
    if not _alike(first, second):
        return None
    old, new = rows

    def line(a: int, b: int) -> int:
        return max(0, a + -(-(b - a) * (wanted - old) // (new - old)))

    values = [_value(a, b, line) for a, b in zip(first.values, second.values, strict=True)]
    ops = [_op(a, b, line) for a, b in zip(first.ops, second.ops, strict=True)]
    return dataclasses.replace(first, values=values, ops=ops)


def _alike(first: Graph, second: Graph) -> bool:
    def structure(graph: Graph) -> object:
        values = [(value.role, value.dtype, len(value.shape)) for value in graph.values]
        ops = [(op.kind, op.phase, op.reads, op.writes, op.must) for op in graph.ops]
        return values, ops, graph.results

    return structure(first) == structure(second)


def _value(a: Value, b: Value, line: Callable[[int, int], int]) -> Value:
    shape = tuple(line(*sides) for sides in zip(a.shape, b.shape, strict=True))
    return dataclasses.replace(a, bytes=line(a.bytes, b.bytes), shape=shape)


def _op(a: Op, b: Op, line: Callable[[int, int], int]) -> Op:
    return dataclasses.replace(
        a,
        flops=line(a.flops, b.flops),
        moved=line(a.moved, b.moved),
        workspace=line(a.workspace, b.workspace),
        algorithms=[],
    )
