"""The optimizer's step, as one op for each parameter. Eager PyTorch runs these ops with `fused=True`.

Neither the step counters (4 bytes for each parameter) nor the temporaries of the default `foreach` kernels
are in the graph.
"""

import dataclasses

from ._graph import ExportError, Graph, Op, Value


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """What one parameter's step does."""

    kind: str
    state: tuple[str, ...]
    """State tensors, each of the parameter's size and dtype, as PyTorch makes them."""
    flops: int
    """Floating-point operations for each element."""


OPTIMIZERS = {
    "sgd": Optimizer("aten._fused_sgd_.default", (), 2),
    "momentum": Optimizer("aten._fused_sgd_.default", ("momentum_buffer",), 4),
    "adamw": Optimizer("aten._fused_adamw_.default", ("exp_avg", "exp_avg_sq"), 16),
}


def check_optimizer(name: str | None) -> None:
    """Raises `ExportError` if there is no such optimizer."""
    if name is not None and name not in OPTIMIZERS:
        known = ", ".join(f"`{known}`" for known in OPTIMIZERS)
        raise ExportError(
            f"unknown optimizer `{name}`\nhint: one of {known}, or `None` to stop at the gradients"
        )


def append_update(graph: Graph, name: str, parameter: int, gradient: int, numel: int, itemsize: int) -> int:
    """Appends the step of the optimizer `name` for one parameter; returns the parameter's new version.

    `numel` and `itemsize` (bytes) are the parameter's own, which may be less than its storage's.
    """
    optimizer = OPTIMIZERS[name]
    old = graph.values[parameter]
    op = Op(
        name=f"{name}:{old.name}",
        kind=optimizer.kind,
        module=old.name.rpartition(".")[0],
        phase="update",
        flops=optimizer.flops * numel,
        moved=(3 + 2 * len(optimizer.state)) * numel * itemsize,
        dtype=old.dtype,
        reads=[parameter, gradient],
    )
    persistent = [(parameter, old)]
    for state in optimizer.state:
        value = Value(f"{old.name}.{state}", numel * itemsize, old.dtype, old.shape, "state")
        persistent.append((graph.add_value(value), value))
        op.reads.append(persistent[-1][0])
    for index, value in persistent:
        new = graph.add_value(dataclasses.replace(value, name=f"{value.name}'"))
        op.writes.append(new)
        op.must.append((index, new))
    graph.ops.append(op)
    return op.writes[0]
