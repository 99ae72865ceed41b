"""What functionalisation moved to the end of the joint graph: mutated buffers, gradients, outputs.

Eager PyTorch mutates inside an op (batch norm's running statistics, `add_`): there that op gets a `must`
pair. Where it can't, a copy follows the last reader of the old version.
"""

import operator
from typing import cast

from torch._functorch._aot_autograd import descriptors as desc
from torch._ops import OpOverload
from torch.fx import Node

from . import _layout, _ops
from ._graph import Graph, Op, Value
from ._lower import Lowering
from ._trace import Traced
from ._update import append_update


def lower(traced: Traced, name: str, origin: str, optimizer: str | None) -> Graph:
    """The whole step as a graph. Raises `ExportError` for what can't be expressed."""
    low = Lowering(traced, name, origin)
    low.lower()
    placeholders = {node.meta["desc"]: node for node in low.nodes if node.op == "placeholder"}
    for node, what in low.returned:
        if isinstance(what, desc.InputMutationAOTOutput):
            mutate(low, placeholders[what.mutated_input], node)
    for op in low.graph.ops:
        # A new version of a persistent storage was an activation when its readers were appended.
        op.may = [pair for pair in op.may if low.graph.values[pair[0]].role not in _ops.PERSISTENT]
    results = []
    for holder, gradient in gradients(low, placeholders):
        if optimizer is None or not isinstance(holder.meta["desc"], desc.ParamAOTInput):
            results.append(gradient)
            continue
        parameter, val = low.now(low.values[holder]), holder.meta["val"]
        low.latest[parameter] = append_update(
            low.graph, optimizer, parameter, gradient, val.numel(), val.dtype.itemsize
        )
    for node, what in low.returned:
        if isinstance(what, desc.PlainAOTOutput):
            result = low.now(low.values[node])
            if low.graph.values[result].role in ("activation", "gradient") and result not in results:
                low.graph.values[result].role = "output"
            results.append(result)
    low.graph.results = sorted(set(results))
    return low.graph


def mutate(low: Lowering, holder: Node, node: Node) -> None:
    """Gives the storage of `holder` a version with the content of `node`."""
    old, new = low.values[holder], low.values[node]
    if old == new:
        return
    chain = in_place_chain(low, old, node)
    if chain is None:
        copy_back(low, old, node)
        return
    name, role = low.graph.values[old].name, low.graph.values[old].role
    for version, (op, before, after) in enumerate(chain, 1):
        op.must.append((before, after))
        op.may = [pair for pair in op.may if pair[1] != after and pair[0] != before]
        low.latest[before] = after
        if op.kind in _ops.IN_PLACE_FIRST:
            # Only what is written travels, not all of the storage twice.
            op.moved = 2 * max(0, op.moved - 2 * low.graph.values[before].bytes)
        low.graph.values[after].role = role
        low.graph.values[after].name = name + "'" * version


def in_place_chain(low: Lowering, old: int, node: Node) -> list[tuple[Op, int, int]] | None:
    """The ops that make `node` from `old`, each over the version before; `None` if one can't be in place."""
    chain: list[tuple[Op, int, int]] = []
    after = low.values[node]
    while after != old:
        step = overwritten(node)
        if step is None or step[0] not in low.op_of:
            return None
        op, node = low.op_of[step[0]], step[1]
        before = low.values[node]
        position = next(at for at, other in enumerate(low.graph.ops) if other is op)
        read_later = any(before in other.reads for other in low.graph.ops[position + 1 :])
        same_size = low.graph.values[before].bytes == low.graph.values[after].bytes
        foreign = before != old and low.graph.values[before].role != "activation"
        returned = any(
            low.values[out] == before for out, what in low.returned if isinstance(what, desc.PlainAOTOutput)
        )
        if read_later or not same_size or foreign or before in low.latest or (returned and before != old):
            return None
        chain.append((op, before, after))
        after = before
    return chain[::-1]


def overwritten(node: Node) -> tuple[Node, Node] | None:
    """The op that makes `node`, and the operand it overwrites in eager PyTorch; `None` if there is none."""
    maker, output = node, 0
    if node.target is operator.getitem:
        maker, output = cast("tuple[Node, int]", node.args)
    if not isinstance(maker.target, OpOverload):
        return None
    kind = _ops.kind(maker.target)
    if kind in _ops.BATCH_NORMS:
        operand = {made: operand for operand, made in _ops.BATCH_NORMS[kind].items()}.get(output)
        return None if operand is None else (maker, cast(Node, maker.args[operand]))
    first = maker.args[0] if maker.args else None
    in_place = kind in _ops.IN_PLACE_FIRST or 0 in _ops.elementwise_operands(maker.target, 1)
    if not in_place or not isinstance(first, Node):
        return None
    return (maker, first) if _layout.congruent(first.meta["val"], node.meta["val"]) else None


def copy_back(low: Lowering, old: int, node: Node) -> None:
    """Copies the content of `node` over `old`, after everything that reads `old`."""
    source, ops, value = low.values[node], low.graph.ops, low.graph.values[old]
    at = max((at for at, op in enumerate(ops) if old in op.reads or source in op.writes), default=-1)
    new = low.graph.add_value(Value(f"{value.name}'", value.bytes, value.dtype, value.shape, value.role))
    op = Op(f"copy:{value.name}", "aten.copy_.default", value.name.rpartition(".")[0], dtype=value.dtype)
    op.phase = ops[at].phase if at >= 0 else "forward"
    op.moved = 2 * _layout.own_bytes(node.meta["val"])
    op.reads, op.writes, op.must = [source, old], [new], [(old, new)]
    ops.insert(at + 1, op)
    low.latest[old] = new


def gradients(low: Lowering, placeholders: dict[object, Node]) -> list[tuple[Node, int]]:
    """Pairs of a parameter's node (or an input's that wants one) and its gradient, in the parameters' order.

    As PyTorch's `AccumulateGrad` does, a gradient whose layout is not the parameter's, or which another
    parameter has taken already, or which is no derivative's own storage, is copied.
    """
    taken: set[Node] = set()
    pairs = []
    for node, what in low.returned:
        if not isinstance(what, desc.GradAOTOutput):
            continue
        holder, gradient = placeholders[what.grad_of], low.values[node]
        value, name = low.graph.values[gradient], f"{low.graph.values[low.values[holder]].name}.grad"
        if (
            value.role != "gradient"
            or node in taken
            or not _layout.same_layout(node.meta["val"], holder.meta["val"])
        ):
            gradient = clone(low, gradient, holder, name)
        elif value.bytes == _layout.own_bytes(node.meta["val"]):
            value.name = name
        taken.add(node)
        pairs.append((holder, gradient))
    return pairs


def clone(low: Lowering, source: int, holder: Node, name: str) -> int:
    """Copies a gradient as soon as it is there."""
    val, ops = holder.meta["val"], low.graph.ops
    size, dtype = val.numel() * val.dtype.itemsize, _ops.dtype_name(val.dtype)
    new = low.graph.add_value(Value(name, size, dtype, tuple(int(n) for n in val.shape), "gradient"))
    begun = next((at for at, op in enumerate(ops) if op.phase == "backward"), len(ops) - 1)
    at = next((at for at, op in enumerate(ops) if source in op.writes), begun)
    op = Op(f"clone:{name}", "aten.clone.default", phase="backward", moved=2 * size, dtype=dtype)
    op.reads, op.writes = [source], [new]
    ops.insert(max(at, begun) + 1, op)
    return new
