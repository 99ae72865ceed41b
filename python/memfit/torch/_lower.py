"""From AOTAutograd's joint graph to `memfit-graph/1`.

A value is one version of one storage. Views vanish: their node stands for the value of the storage they look
at. What functionalisation moved to the end, mutations and gradients, is put in its place by `_ends`.
"""

import operator
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch._functorch._aot_autograd import descriptors as desc
from torch._ops import OpOverload
from torch.fx import Node

from . import _algorithms, _attributes, _flops, _layout, _ops
from ._graph import ExportError, Graph, Op, Value
from ._trace import Traced


class Lowering:
    """The graph so far, and what each node of the joint graph stands for."""

    def __init__(self, traced: Traced, name: str, origin: str) -> None:
        self.traced = traced
        self.graph = Graph(name, origin)
        self.values: dict[Node, Any] = {}
        """For each node its value; a list (`None` where there is no tensor) if it returns several."""
        self.sources: dict[int, int] = {}
        """Value of each storage that is there from the start."""
        self.latest: dict[int, int] = {}
        """For each overwritten value: the version that took its storage."""
        self.op_of: dict[Node, Op] = {}
        """The op that a node became."""
        self.tangents: list[Node] = []
        """Placeholders of derivatives of the loss with respect to itself that no op has made yet."""
        *self.nodes, output = traced.nodes
        returned = zip(cast("Sequence[Any]", output.args[0]), output.meta["desc"], strict=True)
        self.returned: list[tuple[Node, Any]] = [
            (node, what) for node, what in returned if isinstance(node, Node)
        ]

    def lower(self) -> None:
        """Appends every op of forward and backward."""
        mutated = {
            what.mutated_input for _, what in self.returned if isinstance(what, desc.InputMutationAOTOutput)
        }
        for node in self.nodes:
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
                self.placeholder(node, mutated)
            elif node.op == "get_attr":
                constant = operator.attrgetter(str(node.target))(self.traced.module)
                node.meta.setdefault("val", constant)
                self.values[node] = self.source(node.meta["val"], str(node.target), "constant")
            elif node.op == "call_function":
                self.call(node)
        if any(isinstance(what, desc.GradAOTOutput) for _, what in self.returned):
            self.begin_backward()

    def now(self, value: int) -> int:
        """The last version of the storage that `value` is a version of."""
        while value in self.latest:
            value = self.latest[value]
        return value

    def new_value(self, val: torch.Tensor, name: str, role: str) -> int:
        """A value of the size of the tensor's storage."""
        shape = tuple(int(size) for size in val.shape)
        size = int(val.untyped_storage().nbytes())
        return self.graph.add_value(Value(name, size, _ops.dtype_name(val.dtype), shape, role))

    def source(self, val: torch.Tensor, name: str, role: str) -> int:
        """The value of a storage that is there from the start. Two tensors on one storage are one value."""
        key = _layout.storage_key(val)
        if key not in self.sources:
            self.sources[key] = self.new_value(val, name, role)
        return self.sources[key]

    def path(self, name: str) -> str:
        """A parameter's path in the user's model."""
        return self.traced.tensors[name].removeprefix("model.")

    def placeholder(self, node: Node, mutated: set[Any]) -> None:
        """A parameter, a buffer, a sample input, or the derivative that backward begins with."""
        what, val = node.meta["desc"], node.meta["val"]
        if isinstance(what, desc.ParamAOTInput):
            self.values[node] = self.source(val, self.path(what.target), "parameter")
        elif isinstance(what, desc.BufferAOTInput):
            role = "state" if what in mutated else "constant"
            self.values[node] = self.source(val, self.path(what.target), role)
        elif isinstance(what, desc.PlainAOTInput):
            self.values[node] = self.source(val, self.traced.inputs[what.idx], "input")
        elif isinstance(what, desc.TangentAOTInput):
            self.values[node] = self.new_value(val, "loss.grad", "gradient")
            self.tangents.append(node)
        else:
            raise ExportError(
                f"the model mutates inputs that share memory: `{what.expr()}`\n"
                "hint: pass tensors (and register buffers) with a storage of their own"
            )

    def begin_backward(self) -> None:
        """Makes the ones that `loss.backward()` starts from."""
        for node in self.tangents:
            made = self.graph.values[self.values[node]]
            op = Op(
                "loss.grad", "aten.ones_like.default", phase="backward", moved=made.bytes, dtype=made.dtype
            )
            op.writes = [self.values[node]]
            self.graph.ops.append(op)
        self.tangents.clear()

    def call(self, node: Node) -> None:
        """An op, a view, or an item of what an op returned."""
        target = node.target
        if target is operator.getitem:
            of, at = cast("tuple[Node, int]", node.args)
            self.values[node] = self.values[of][at]
            return
        if not isinstance(target, OpOverload):
            raise ExportError(
                f"op `{target}` is no plain PyTorch op\nhint: replace it, or turn off what makes it"
            )
        val: Any = node.meta.get("val")
        several = isinstance(val, (tuple, list))
        outputs = [out if isinstance(out, torch.Tensor) else None for out in (val if several else [val])]
        if any(out is not None and out.layout != torch.strided for out in outputs):
            raise ExportError(f"op `{target}` makes a sparse tensor\nhint: `sparse=False`, or another layer")
        made = self.aliases(node, outputs)
        fresh = [at for at, out in enumerate(outputs) if out is not None and made[at] is None]
        if fresh:
            self.compute(node, outputs, made, fresh)
        self.values[node] = made if several else made[0]

    def aliases(self, node: Node, outputs: list[Any]) -> list[int | None]:
        """For each output the value of the storage it is a view of; `None` for one with a storage of its own.

        The storages of the fake tensors decide: they also know views which schemas keep quiet about
        (`_unsafe_view`, `unsafe_split`).
        """
        operands = _layout.tensor_operands(node)
        if _ops.kind(_ops.called(node)) in _ops.WAITS:
            return [self.values[operands[0]]]
        owners = {_layout.storage_key(arg.meta["val"]): self.values[arg] for arg in reversed(operands)}
        return [owners.get(_layout.storage_key(out)) if out is not None else None for out in outputs]

    def compute(self, node: Node, outputs: list[Any], made: list[int | None], fresh: list[int]) -> None:
        """Appends the op, and fills in `made` at the positions `fresh` of new storages."""
        target = _ops.called(node)
        if _ops.mutates(target):
            raise ExportError(
                f"op `{target}` mutates its operand inside the functional graph\nhint: report this"
            )
        backward = node.meta.get("partitioner_tag") == "is_backward"
        if backward:
            self.begin_backward()
        for at in fresh:
            name = f"{node.name}.{at}" if len(outputs) > 1 else node.name
            made[at] = self.new_value(outputs[at], name, "gradient" if backward else "activation")
        writes = [cast(int, made[at]) for at in fresh]
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda arg: arg.meta.get("val"))
        op = Op(
            name=node.name,
            kind=_ops.kind(target),
            module=node.meta.get("custom", {}).get("memfit.module", ""),
            phase="backward" if backward else "forward",
            flops=_flops.flops(target, args, kwargs, node.meta["val"]),
            moved=_flops.moved(target, args, kwargs, outputs),
            dtype=_flops.compute_dtype(args, kwargs, outputs),
            algorithms=_algorithms.of(target, args, kwargs, outputs),
            effect=_ops.effect(target, args, kwargs),
            reads=list(dict.fromkeys(self.values[arg] for arg in _layout.tensor_operands(node))),
            writes=writes,
        )
        places = {arg: op.reads.index(self.values[arg]) for arg in _layout.tensor_operands(node)}
        op.attributes = _attributes.of(node, places, outputs)
        op.sign, op.shape = self.needs(node, op.reads)
        if fresh[0] == 0:
            op.may = [(value, writes[0]) for value in self.reusable(node, outputs[0])]
        self.op_of[node] = op
        self.graph.ops.append(op)

    def needs(self, node: Node, reads: list[int]) -> tuple[list[int], list[int]]:
        """Positions in `reads` of what the op needs no more of than the signs, and than the shape."""
        kind = _ops.kind(_ops.called(node))
        found: list[list[int]] = []
        for table in (_ops.SIGN_ONLY, _ops.SHAPE_ONLY):
            at = table.get(kind, len(node.args))
            is_other = kind == "aten.threshold_backward.default" and node.args[2] != 0
            others: list[Node] = []
            torch.fx.node.map_arg([arg for place, arg in enumerate(node.args) if place != at], others.append)
            value = (
                self.values.get(cast(Node, node.args[at])) if at < len(node.args) and not is_other else None
            )
            alone = value not in [self.values.get(other) for other in others]
            found.append([reads.index(value)] if value is not None and alone else [])
        return found[0], found[1]

    def reusable(self, node: Node, out: torch.Tensor) -> list[int]:
        """Operands whose bytes the first output may take: same elements at the same bytes, read only so."""
        positions = _ops.elementwise_operands(_ops.called(node), len(node.args))
        fits: list[int] = []
        others: list[Any] = []
        for at, arg in enumerate(node.args):
            nested: list[Node] = []
            torch.fx.node.map_arg(arg, nested.append)
            for operand in nested:
                if isinstance(operand.meta.get("val"), torch.Tensor):
                    good = operand is arg and at in positions and _layout.congruent(operand.meta["val"], out)
                    (fits if good else others).append(self.values[operand])
        torch.fx.node.map_arg(node.kwargs, lambda operand: others.append(self.values.get(operand)))
        free = [
            value for value in dict.fromkeys(fits) if self.graph.values[value].role not in _ops.PERSISTENT
        ]
        return [value for value in free if value not in others]
