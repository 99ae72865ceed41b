"""AOTAutograd's joint graph as `memfit-graph/1`: forward, the moment when derivatives arrive, backward.

A value is a storage, as in `_lower`; views vanish, and what reads one reads its storage. The graph is
functional: nothing is overwritten, every op makes storages of its own. The op `tangents` stands for all that
is between forward and backward: it reads what forward returns and makes the derivatives of it.
"""

import dataclasses
import operator
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from . import _flops, _late, _layout, _ops, _private
from ._graph import Graph, Op, Value


class Unplannable(Exception):
    """What this graph has that no plan can be made for; the stock partitioner has to do."""


@dataclasses.dataclass
class Joint:
    """The graph for the planner, and which node is what in it."""

    graph: Graph
    ops: list[Node | None]
    """For each op the node that runs; `None` for `tangents`."""
    value: dict[Node, int]
    """For each tensor node the value of its storage."""
    root: dict[int, Node]
    """For each value the node that is its whole storage."""
    boundary: int
    """Index of `tangents`."""
    views: set[Node] = dataclasses.field(default_factory=set)
    """Nodes that only show the storage of another, and their tuples."""
    copies: list[Node] = dataclasses.field(default_factory=list)
    """What forward does last: inputs take over what was computed for them (`copy_`)."""


def lower(gm: GraphModule, num_fwd_outputs: int, *, lean: bool = True) -> Joint:
    """The joint graph as the planner wants it. Raises `Unplannable`. `lean`: see `_late`."""
    *nodes, output = gm.graph.nodes
    outputs = _private.outputs(output)
    forward, backward = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
    copies = [node for node in nodes if _is_copy(node)]
    lowering = _Lowering(gm, _private.mutated_inputs(output) | {node.args[0] for node in copies})
    late = _after_tangents(nodes)
    needed = _ancestors([node for node in outputs if isinstance(node, Node)] + copies)
    for node in copies:
        if node in late or any(user.op != "output" for user in node.users):
            raise Unplannable(f"`{node.name}` overwrites an input before forward is done")
    for node in nodes:
        if node in late and lowering.mutated.intersection(node.all_input_nodes):
            raise Unplannable(f"`{node.name}` reads an input that forward overwrites")
    used = [node for node in nodes if node in needed and node not in copies]
    first = _ancestors([node for node in forward if isinstance(node, Node)] + copies)
    fixed = {node for node in used if node not in late and lowering.effect(node) != "pure"}
    before, after = _late.order(used, first, late, fixed - first, lean=lean)
    for node in before:
        lowering.node(node, "forward")
    lowering.joint.copies = copies
    lowering.tangents([node for node in nodes if _private.is_tangent(node)], forward)
    for node in after:
        if not _private.is_tangent(node):
            lowering.node(node, "backward")
    joint = lowering.joint
    returned = [node for node in forward + backward if isinstance(node, Node) and node in joint.value]
    joint.graph.results = list(dict.fromkeys(joint.value[node] for node in returned))
    return joint


def _is_copy(node: Node) -> bool:
    copies = node.op == "call_function" and node.target is torch.ops.aten.copy_.default
    return copies and cast(Node, node.args[0]).op == "placeholder"


def _after_tangents(nodes: list[Node]) -> set[Node]:
    late: set[Node] = set()
    for node in nodes:
        if _private.is_tangent(node) or any(operand in late for operand in node.all_input_nodes):
            late.add(node)
    return late


def _ancestors(nodes: list[Node]) -> set[Node]:
    work, seen = list(nodes), set(nodes)
    while work:
        for operand in work.pop().all_input_nodes:
            if operand not in seen:
                seen.add(operand)
                work.append(operand)
    return seen


class _Lowering:
    def __init__(self, gm: GraphModule, mutated: set[Node]) -> None:
        self.module = gm
        self.mutated = mutated
        self.overwritten = {_layout.storage_key(node.meta["val"]) for node in mutated}
        # PyTorch runs what the regions become: nobody sets a generator back before an op runs again.
        self.joint = Joint(Graph("joint", replays_random=False), [], {}, {}, -1)
        self.by_storage: dict[int, int] = {}
        self.parts: dict[Node, list[int | None]] = {}
        """For a node that returns several tensors: the value of each."""

    def new_value(self, node: Node, val: torch.Tensor, role: str) -> int:
        key = _layout.storage_key(val)
        if key in self.by_storage:
            return self.by_storage[key]
        name = node.name
        value = self.joint.graph.add_value(
            Value(name, _bytes(val), _ops.dtype_name(val.dtype), tuple(map(int, val.shape)), role)
        )
        self.by_storage[key] = value
        self.joint.root[value] = node
        return value

    def node(self, node: Node, phase: str) -> None:
        val = node.meta.get("val")
        if node.op == "placeholder":
            if isinstance(val, torch.Tensor):
                _check(node, val)
                self.joint.value[node] = self.new_value(node, val, "constant")
            elif node.users:
                raise Unplannable(f"input `{node.name}` is a `{type(val).__name__}`")
            return
        if node.op == "get_attr":
            val = operator.attrgetter(str(node.target))(self.module)
            if not isinstance(val, torch.Tensor):
                raise Unplannable(f"`{node.target}` is a `{type(val).__name__}`")
            node.meta.setdefault("val", val)
            self.joint.value[node] = self.new_value(node, node.meta["val"], "constant")
            return
        if node.target is operator.getitem:
            self.item(node)
            return
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            raise Unplannable(f"`{node.name}` calls `{node.target}`, which is no plain PyTorch op")
        self.call(node, phase)

    def item(self, node: Node) -> None:
        of, at = cast("tuple[Node, int]", node.args)
        parts = self.parts.get(of)
        if parts is None:
            raise Unplannable(f"`{node.name}` is an item of `{of}`")
        if of in self.joint.views:
            self.joint.views.add(node)
        value = parts[at]
        if value is not None:
            self.joint.value[node] = value
            # The item, not the tuple, is what can be kept.
            if self.joint.root[value] is of:
                self.joint.root[value] = node

    def call(self, node: Node, phase: str) -> None:
        target, val = _ops.called(node), cast(Any, node.meta.get("val"))
        if _ops.mutates(target):
            raise Unplannable(f"`{node.name}` mutates its operand (`{target}`)")
        several = isinstance(val, tuple | list)
        outputs = [out if isinstance(out, torch.Tensor) else None for out in (val if several else [val])]
        for out in outputs:
            if out is not None:
                _check(node, out)
        if not any(out is not None for out in outputs):
            raise Unplannable(f"`{node.name}` returns no tensor (`{target}`)")
        operands = _layout.tensor_operands(node)
        known = {_layout.storage_key(arg.meta["val"]) for arg in operands}
        waits = _ops.kind(target) in _ops.WAITS
        fresh = [
            at
            for at, out in enumerate(outputs)
            if out is not None and not waits and _layout.storage_key(out) not in known
        ]
        made = [
            None
            if out is None
            else self.joint.value[operands[0]]
            if waits
            else self.new_value(node, out, _role(phase))
            for out in outputs
        ]
        if fresh:
            self.compute(node, phase, outputs, made, fresh)
        else:
            self.joint.views.add(node)
        if several:
            self.parts[node] = made
        else:
            self.joint.value[node] = cast(int, made[0])

    def compute(
        self, node: Node, phase: str, outputs: list[Any], made: list[int | None], fresh: list[int]
    ) -> None:
        args, kwargs = _values(node)
        operands = _layout.tensor_operands(node)
        target = _ops.called(node)
        writes = list(dict.fromkeys(cast(int, made[at]) for at in fresh))
        op = Op(
            name=node.name,
            kind=_ops.kind(target),
            phase=phase,
            flops=_flops.flops(target, args, kwargs, node.meta["val"]),
            moved=_flops.moved(target, args, kwargs, outputs),
            dtype=_flops.compute_dtype(args, kwargs, outputs),
            effect=self.effect(node),
            reads=list(dict.fromkeys(self.joint.value[arg] for arg in operands)),
            writes=writes,
        )
        self.joint.graph.ops.append(op)
        self.joint.ops.append(node)

    def effect(self, node: Node) -> str:
        """What a run of `node` does beside making its outputs."""
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            return "pure"
        effect = _ops.effect(node.target, *_values(node))
        # What reads an input that forward overwrites in the end would find the new content later.
        operands = {_layout.storage_key(arg.meta["val"]) for arg in _layout.tensor_operands(node)}
        return "once" if effect == "pure" and operands & self.overwritten else effect

    def tangents(self, nodes: list[Node], forward: list[Node]) -> None:
        self.joint.boundary = len(self.joint.ops)
        ends = [node for node in forward if isinstance(node, Node)]
        for node in self.joint.copies:
            self.joint.value[node] = self.joint.value[cast(Node, node.args[0])]
            ends.append(cast(Node, node.args[1]))
        reads = dict.fromkeys(self.joint.value[node] for node in ends if node in self.joint.value)
        writes = []
        for node in nodes:
            val = node.meta.get("val")
            if not isinstance(val, torch.Tensor):
                raise Unplannable(f"input `{node.name}` is a `{type(val).__name__}`")
            _check(node, val)
            self.joint.value[node] = self.new_value(node, val, "gradient")
            writes.append(self.joint.value[node])
        op = Op("tangents", "memfit.tangents", phase="backward", effect="once")
        op.reads, op.writes = list(reads), list(dict.fromkeys(writes))
        self.joint.graph.ops.append(op)
        self.joint.ops.append(None)


def _values(node: Node) -> tuple[Any, Any]:
    return torch.fx.node.map_arg((node.args, node.kwargs), lambda arg: arg.meta.get("val"))


def _role(phase: str) -> str:
    return "activation" if phase == "forward" else "gradient"


def _check(node: Node, val: torch.Tensor) -> None:
    if val.layout != torch.strided:
        raise Unplannable(f"`{node.name}` is a sparse tensor")
    if any(not isinstance(size, int) for size in (*val.shape, *val.stride(), val.storage_offset())):
        raise Unplannable(f"`{node.name}` has a dynamic shape")
    if type(val).__name__ not in ("FakeTensor", "Tensor", "Parameter"):
        raise Unplannable(f"`{node.name}` is a `{type(val).__name__}`")


def _bytes(val: torch.Tensor) -> int:
    return int(val.untyped_storage().nbytes())
