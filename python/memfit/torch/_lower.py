"""From AOTAutograd's joint graph to `memfit-graph/1`.

A value is one version of one storage. Views vanish: their node stands for the value of the storage they look
at. Mutations of buffers, which functionalisation moved to the end, become `must` pairs again.
"""

import operator
from typing import Any

import torch
from torch._functorch._aot_autograd import descriptors as desc
from torch._ops import OpOverload
from torch.fx import Node

from . import _flops, _ops
from ._graph import ExportError, Graph, Op, Value
from ._trace import Traced
from ._update import append_update


def lower(traced: Traced, name: str, origin: str, optimizer: str | None) -> Graph:
    """The whole step as a graph. Raises `ExportError` for ops that can't be expressed."""
    return _Lowering(traced, Graph(name, origin)).run(optimizer)


class _Lowering:
    def __init__(self, traced: Traced, graph: Graph) -> None:
        self.traced = traced
        self.graph = graph
        self.values: dict[Node, Any] = {}
        """For each node its value's index; a list of them (`None` for no tensor) if it returns several."""
        self.sources: dict[int, int] = {}
        """Value of each storage that is there from the start, by the storage's address."""
        self.latest: dict[int, int] = {}
        """For each overwritten value: the version that took its storage."""
        self.tangents: list[Node] = []
        """Placeholders that stand for derivatives of the loss with respect to itself, not made yet."""
        self.output = traced.nodes[-1]
        self.returned = list(zip(self.output.args[0], self.output.meta["desc"], strict=True))

    def run(self, optimizer: str | None) -> Graph:
        mutated = {d.mutated_input for _, d in self.returned if isinstance(d, desc.InputMutationAOTOutput)}
        for node in self.traced.nodes:
            if node.op == "placeholder":
                self.placeholder(node, mutated)
            elif node.op == "get_attr":
                self.values[node] = self.source(node.meta.get("val", self.attribute(node)), str(node.target), "constant")
            elif node.op == "call_function":
                self.call(node)
        if any(isinstance(d, desc.GradAOTOutput) for node, d in self.returned if node is not None):
            self.begin_backward()
        self.apply_mutations()
        gradients = self.take_gradients()
        outputs = [node for node, d in self.returned if isinstance(d, desc.PlainAOTOutput)]
        for node in outputs:
            value = self.graph.values[self.values[node]]
            if value.role in ("activation", "gradient"):
                value.role = "output"
        if optimizer is None:
            results = [gradient for _, gradient in gradients]
        else:
            results = []
            for node, gradient in gradients:
                val = node.meta["val"]
                parameter = self.now(self.values[node])
                new = append_update(self.graph, optimizer, parameter, gradient, val.numel(), val.dtype.itemsize)
                self.latest[parameter] = new
        self.graph.results = sorted({*(self.now(self.values[node]) for node in outputs), *results})
        return self.graph

    def attribute(self, node: Node) -> torch.Tensor:
        return operator.attrgetter(str(node.target))(self.traced.module)

    def now(self, value: int) -> int:
        """The last version of the storage that `value` is a version of."""
        while value in self.latest:
            value = self.latest[value]
        return value

    # --- values

    def source(self, val: torch.Tensor, name: str, role: str) -> int:
        """The value of a storage that is there from the start. Two tensors on one storage are one value."""
        address = val.untyped_storage()._cdata
        if address not in self.sources:
            self.sources[address] = self.new_value(val, name, role)
        return self.sources[address]

    def new_value(self, val: torch.Tensor, name: str, role: str) -> int:
        shape = tuple(int(size) for size in val.shape)
        size = int(val.untyped_storage().nbytes())
        return self.graph.add_value(Value(name, size, _ops.dtype_name(val.dtype), shape, role))

    def placeholder(self, node: Node, mutated: set[Any]) -> None:
        what, val = node.meta["desc"], node.meta.get("val")
        if not isinstance(val, torch.Tensor):
            return
        if isinstance(what, desc.ParamAOTInput):
            self.values[node] = self.source(val, strip(what.target), "parameter")
        elif isinstance(what, desc.BufferAOTInput):
            role = "state" if what in mutated else "constant"
            self.values[node] = self.source(val, strip(what.target), role)
        elif isinstance(what, desc.TangentAOTInput):
            self.values[node] = self.new_value(val, "loss.grad", "gradient")
            self.tangents.append(node)
        elif isinstance(what, desc.PlainAOTInput):
            self.values[node] = self.source(val, self.traced.inputs[what.idx], "input")
        else:
            raise ExportError(f"the model takes an input memfit does not know: `{what.expr()}`")

    # --- ops

    def call(self, node: Node) -> None:
        target = node.target
        if target is operator.getitem:
            of, at = node.args
            values = self.values.get(of)
            self.values[node] = values[at] if isinstance(values, list) else values
            return
        if not isinstance(target, OpOverload):
            raise ExportError(f"op `{target}` is no plain PyTorch op\nhint: replace it, or turn off what makes it")
        several = isinstance(node.meta.get("val"), (tuple, list))
        outputs = [o if isinstance(o, torch.Tensor) else None for o in (node.meta["val"] if several else [node.meta["val"]])]
        if not any(out is not None for out in outputs):
            return
        if _ops.mutated_operands(target):
            raise ExportError(f"op `{target}` mutates its operand inside the functional graph\nhint: report this")
        made = self.aliases(node, outputs)
        fresh = [at for at, out in enumerate(outputs) if out is not None and made[at] is None]
        if fresh:
            self.compute(node, target, outputs, made, fresh)
        self.values[node] = made if several else made[0]

    def aliases(self, node: Node, outputs: list[Any]) -> list[int | None]:
        """For each output the value of the storage it is a view of; `None` for one with a storage of its own.

        The storages of the fake tensors decide: they also know views which schemas keep quiet about
        (`_unsafe_view`, `unsafe_split`).
        """
        target = node.target
        operands = tensor_operands(node)
        if _ops.kind(target) in _ops.WAITS or (_ops.returns_alias(target) and len(operands) == 1):
            return [self.values[operands[0]]] * len(outputs)
        owners = {arg.meta["val"].untyped_storage()._cdata: self.values[arg] for arg in reversed(operands)}
        return [owners.get(out.untyped_storage()._cdata) if out is not None else None for out in outputs]

    def begin_backward(self) -> None:
        """Makes the ones that `loss.backward()` starts from."""
        for node in self.tangents:
            value = self.values[node]
            size, dtype = self.graph.values[value].bytes, self.graph.values[value].dtype
            op = Op("loss.grad", "aten.ones_like.default", phase="backward", moved=size, dtype=dtype)
            op.writes = [value]
            self.graph.add_op(op)
        self.tangents.clear()

    def compute(
        self, node: Node, target: OpOverload, outputs: list[Any], made: list[int | None], fresh: list[int]
    ) -> None:
        """Appends the op, and fills in `made` at the positions `fresh` of new storages."""
        backward = node.meta.get("partitioner_tag") == "is_backward"
        if backward:
            self.begin_backward()
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        for at in fresh:
            name = f"{node.name}.{at}" if len(outputs) > 1 else node.name
            made[at] = self.new_value(outputs[at], name, "gradient" if backward else "activation")
        op = Op(
            name=node.name,
            kind=_ops.kind(target),
            module=node.meta.get("custom", {}).get("memfit.module", ""),
            phase="backward" if backward else "forward",
            flops=_flops.flops(target, args, kwargs, node.meta["val"]),
            moved=_flops.moved(target, args, kwargs, outputs),
            dtype=compute_dtype(args, kwargs, outputs),
            effect=_ops.effect(target, args, kwargs),
            reads=list(dict.fromkeys(self.values[arg] for arg in tensor_operands(node))),
            writes=[made[at] for at in fresh],
        )
        if fresh[0] == 0:
            op.may = self.may_pairs(node, target, outputs[0], made[0])
        self.graph.add_op(op)

    def may_pairs(self, node: Node, target: OpOverload, out: Any, value: int) -> list[tuple[int, int]]:
        """Operands whose bytes the first output may take: byte for byte the same elements."""
        same, others = [], []
        for at in range(len(node.args)):
            operand = node.args[at]
            if not isinstance(operand, Node) or not isinstance(operand.meta.get("val"), torch.Tensor):
                continue
            fits = at in _ops.elementwise_operands(target, len(node.args)) and congruent(operand.meta["val"], out)
            (same if fits else others).append(self.values[operand])
        persistent = ("parameter", "state", "constant")
        allowed = [v for v in dict.fromkeys(same) if v not in others and self.graph.values[v].role not in persistent]
        return [(v, value) for v in allowed]

    # --- what functionalisation moved to the end

    def apply_mutations(self) -> None:
        """Gives mutated buffers (and inputs) their new version.

        Where eager PyTorch mutates inside an op (batch norm, `add_`), that op gets a `must` pair. Elsewhere a
        copy follows the last reader of the old version.
        """
        nodes = {node: node for node in self.traced.nodes}
        places = {}
        for node, what in self.returned:
            if not isinstance(what, desc.InputMutationAOTOutput):
                continue
            holder = next(n for n in nodes if n.op == "placeholder" and n.meta["desc"] == what.mutated_input)
            places[holder] = node
        for holder, node in places.items():
            if self.values[holder] != self.values[node]:
                self.merge(holder, node) or self.copy_back(holder, node)

    def merge(self, holder: Node, node: Node) -> bool:
        """Tries to join old and new version in the ops that make the new one; says whether it did."""
        chain: list[tuple[Node, int, int]] = []
        old, new = self.values[holder], self.values[node]
        while new != old:
            step = self.in_place_step(node)
            if step is None:
                return False
            producer, previous = step
            at = next(i for i, op in enumerate(self.graph.ops) if op.name == producer.name)
            before = self.values[previous]
            later = any(before in op.reads for op in self.graph.ops[at + 1 :])
            taken = before in self.latest or any(v == before for v in self.graph.results)
            if later or taken or self.graph.values[before].bytes != self.graph.values[new].bytes:
                return False
            if before != old and self.graph.values[before].role not in ("activation", "state"):
                return False
            chain.append((at, before, new))
            node, new = previous, before
        for at, before, after in chain:
            op = self.graph.ops[at]
            op.must.append((before, after))
            op.may = [pair for pair in op.may if pair[1] != after]
            self.latest[before] = after
            for value in (before, after):
                self.graph.values[value].role = self.graph.values[old].role
        base = self.graph.values[old].name
        for step, (_, _, after) in enumerate(reversed(chain), 1):
            self.graph.values[after].name = base + "'" * step
        return True

    def in_place_step(self, node: Node) -> tuple[Node, Node] | None:
        """The op that makes `node` and the operand it would overwrite in eager PyTorch, if there is one."""
        producer, output = node, 0
        if node.target is operator.getitem:
            producer, output = node.args
        if not isinstance(producer.target, OpOverload):
            return None
        name = _ops.kind(producer.target)
        if name in _ops.BATCH_NORMS:
            for operand, made in _ops.BATCH_NORMS[name].items():
                if made == output and isinstance(producer.args[operand], Node):
                    return producer, producer.args[operand]
            return None
        first = producer.args[0] if producer.args else None
        if not isinstance(first, Node) or not congruent(first.meta["val"], node.meta["val"]):
            return None
        if name in _ops.IN_PLACE_FIRST or 0 in _ops.elementwise_operands(producer.target, 1):
            return producer, first
        return None

    def copy_back(self, holder: Node, node: Node) -> None:
        """Copies the new content into the old storage, after everything that reads the old one."""
        old, source = self.values[holder], self.values[node]
        ops = self.graph.ops
        at = max((i for i, op in enumerate(ops) if old in op.reads or source in op.writes), default=-1)
        value = self.graph.values[old]
        new = self.graph.add_value(Value(f"{value.name}'", value.bytes, value.dtype, value.shape, value.role))
        size = _flops.own_bytes(node.meta["val"])
        ops.insert(
            at + 1,
            Op(f"copy:{value.name}", "aten.copy_.default", value.name.rpartition(".")[0],
               phase=ops[at].phase if ops else "forward", moved=2 * size, dtype=value.dtype,
               reads=[source, old], writes=[new], must=[(old, new)]),
        )  # fmt: skip
        self.latest[old] = new

    # --- gradients

    def take_gradients(self) -> list[tuple[Node, int]]:
        """Pairs of a parameter's node and its gradient's value, in the parameters' order.

        As PyTorch's `AccumulateGrad`: a gradient whose layout is not the parameter's, or which another
        parameter has already taken, is copied.
        """
        holders = {n.meta["desc"]: n for n in self.traced.nodes if n.op == "placeholder"}
        taken: set[Node] = set()
        pairs = []
        for node, what in self.returned:
            if not isinstance(what, desc.GradAOTOutput) or node is None:
                continue
            holder = holders[what.grad_of]
            name = f"{self.graph.values[self.values[holder]].name}.grad"
            gradient = self.values[node]
            source = self.graph.values[gradient].role != "gradient"
            if source or node in taken or not same_layout(node.meta["val"], holder.meta["val"]):
                gradient = self.clone(gradient, holder, name)
            elif self.graph.values[gradient].bytes == _flops.own_bytes(node.meta["val"]):
                self.graph.values[gradient].name = name
            taken.add(node)
            pairs.append((holder, gradient))
        return pairs

    def clone(self, source: int, holder: Node, name: str) -> int:
        val = holder.meta["val"]
        size, dtype = _flops.own_bytes(val), _ops.dtype_name(val.dtype)
        shape = tuple(int(size) for size in val.shape)
        new = self.graph.add_value(Value(name, size, dtype, shape, "gradient"))
        op = Op(f"clone:{name}", "aten.clone.default", phase="backward", moved=2 * size, dtype=dtype)
        op.reads, op.writes = [source], [new]
        at = max((i for i, made in enumerate(self.graph.ops) if source in made.writes), default=len(self.graph.ops) - 1)
        self.graph.ops.insert(at + 1, op)
        return new


def tensor_operands(node: Node) -> list[Node]:
    """The nodes of tensors that an op takes, each once, in the order of its operands."""
    return [arg for arg in node.all_input_nodes if isinstance(arg.meta.get("val"), torch.Tensor)]


def strip(path: str) -> str:
    """A parameter's path in the user's model, not in the step that wraps it."""
    return path.removeprefix("model.")


def dense(val: torch.Tensor) -> bool:
    """Whether the elements lie next to each other without gap or overlap, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(val.stride(), val.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def whole(val: torch.Tensor) -> bool:
    """Whether the tensor covers its storage: each byte belongs to exactly one element."""
    return dense(val) and val.storage_offset() == 0 and val.numel() * val.dtype.itemsize == val.untyped_storage().nbytes()


def congruent(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether element by element the two occupy the same bytes of their storages, all of them."""
    same = a.shape == b.shape and a.stride() == b.stride() and a.dtype.itemsize == b.dtype.itemsize
    return same and whole(a) and whole(b)


def same_layout(gradient: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether PyTorch takes `gradient` as it is: `utils::obeys_layout_contract` of autograd."""
    if not dense(parameter):
        return gradient.is_contiguous()
    strides = zip(gradient.shape, gradient.stride(), parameter.stride(), strict=True)
    return all(size == 1 or mine == its for size, mine, its in strides)


def compute_dtype(args: Any, kwargs: Any, outputs: Any) -> str:
    """What the arithmetic is done in: the first floating-point tensor's dtype, else the first output's."""
    tensors = _flops.tensors_in((args, kwargs, outputs))
    floating = [t.dtype for t in tensors if t.dtype.is_floating_point or t.dtype.is_complex]
    return _ops.dtype_name((floating or [_flops.tensors_in(outputs)[0].dtype])[0])
