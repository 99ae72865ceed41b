"""Forward and backward as a plan has them: its runs in their order, what it keeps handed over.

An op that the plan runs twice stands there twice. Views are made where they are read, of the storage that is
there then, so that none keeps a storage alive which the plan has given up: the code of a module drops every
tensor after its last use.
"""

import json
import operator
from typing import Any

from torch.fx import Graph, GraphModule, Node

from . import _private
from ._joint import Joint, Unplannable


class Split:
    """What the plan does before and after the derivatives arrive."""

    def __init__(self, joint: Joint, file: bytes) -> None:
        plan = json.loads(file)
        self.forward: list[Node] = []
        self.backward: list[Node] = []
        self.saved: list[int] = []
        """Values that are made in forward and read from there in backward."""
        at_boundary: dict[int, int] = {}
        here: dict[int, int] = {}
        """For each buffer that is filled its value; those of the boundary in `at_boundary`."""
        values = [buffer.get("value") for buffer in plan["buffers"]]
        steps = self.forward
        for step in plan["steps"]:
            if "free" in step:
                here.pop(step["free"], None)
            if "compute" not in step:
                if "free" not in step:
                    raise Unplannable(f"the plan asks for `{next(iter(step))}`")
                continue
            compute = step["compute"]
            if compute["op"] == joint.boundary:
                at_boundary, steps = dict(here), self.backward
                continue
            node = joint.ops[compute["op"]]
            assert node is not None
            steps.append(node)
            if steps is self.backward:
                self.saved.extend(at_boundary[read] for read in compute["reads"] if read in at_boundary)
            here.update((write, values[write]) for write in compute["writes"])
        self.saved = sorted(set(self.saved))


class _Builder:
    """A graph that is being written, and the newest copy of each node of the joint graph in it."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.graph = Graph()
        self.now: dict[Node, Node] = {}
        self.views: dict[Node, tuple[tuple[Node, ...], Node]] = {}
        """For each view: the copies it was made of, and its own."""

    def placeholder(self, node: Node) -> None:
        """An input of the module: one of the step, or what forward hands over."""
        name = str(node.target) if node.op == "placeholder" else node.name
        made = self.graph.placeholder(name)
        made.meta = dict(node.meta)
        self.now[node] = made

    def run(self, node: Node) -> None:
        """Appends one run of `node`."""
        copy = self.graph.node_copy(node, self.get)
        self.now[node] = copy
        if isinstance(node.meta["val"], tuple | list):
            for item in node.users:
                if item.target is operator.getitem and item in self.joint.value:
                    self.now[item] = self.graph.node_copy(item, lambda _: copy)

    def get(self, node: Node) -> Node:
        """The copy of `node` that is to be read here."""
        if node.op == "get_attr" and node not in self.now:
            self.now[node] = self.graph.node_copy(node, lambda _: None)
        if node not in self.joint.views:
            return self.now[node]
        # A view, or a tuple of views, of its first operand's storage, or of several.
        base = tuple(self.get(operand) for operand in node.all_input_nodes)
        made = self.views.get(node)
        if made is None or made[0] != base:
            made = (base, self.graph.node_copy(node, self.get))
            self.views[node] = made
        return made[1]


def build(
    gm: GraphModule, joint: Joint, split: Split, num_fwd_outputs: int
) -> tuple[GraphModule, GraphModule]:
    """The two modules as AOTAutograd expects them."""
    *nodes, output = gm.graph.nodes
    placeholders = [node for node in nodes if node.op == "placeholder"]
    outputs = _private.outputs(output)
    descs = _private.descs(output, len(outputs))
    inputs = [n for n in placeholders if not _private.is_tangent(n) and not _private.is_backward_seed(n)]
    late = [n for n in placeholders if _private.is_tangent(n)] + [
        n for n in placeholders if _private.is_backward_seed(n)
    ]
    forward, backward = _Builder(joint), _Builder(joint)
    # Backward first: it says which inputs it needs.
    made = {operand for node in split.backward for operand in (node, *node.users)}
    kept = [
        joint.value[node]
        for node in outputs[num_fwd_outputs:]
        if isinstance(node, Node) and joint.root[joint.value[node]] not in made
    ]
    values = sorted(set(split.saved).union(kept))
    saved = [node for node in map(joint.root.__getitem__, values) if node.op == "call_function"]
    wanted = _inputs_of(joint, split.backward, outputs[num_fwd_outputs:], inputs)
    saved = wanted + [node for node in saved if node not in wanted]
    checked = [node for node in saved if not node.meta.get("saved_tensor_with_no_vc_check", False)]
    saved = checked + [node for node in saved if node not in checked]
    for node in saved + late:
        backward.placeholder(node)
    for node in split.backward:
        backward.run(node)
    _finish(backward, outputs[num_fwd_outputs:], descs[num_fwd_outputs:])
    for node in inputs:
        forward.placeholder(node)
    for node in split.forward:
        forward.run(node)
    for node in joint.copies:
        forward.now[node] = forward.graph.node_copy(node, forward.get)
    _finish(
        forward, outputs[:num_fwd_outputs] + saved, descs[:num_fwd_outputs] + _private.saved_descs(len(saved))
    )
    for node in backward.graph.nodes:
        if node.op in ("call_function", "get_attr"):
            node.meta["autograd_backward"] = True
    return _private.module(gm, forward.graph), _private.module(gm, backward.graph)


def _inputs_of(joint: Joint, steps: list[Node], outputs: list[Any], inputs: list[Node]) -> list[Node]:
    """The inputs of the step that backward reads, itself or through views."""
    work = [operand for node in steps for operand in node.all_input_nodes]
    work += [node for node in outputs if isinstance(node, Node)]
    seen: set[Node] = set()
    found: set[Node] = set()
    while work:
        node = work.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder":
            found.add(node)
        elif node in joint.views or node not in joint.value:
            work.extend(node.all_input_nodes)
    return [node for node in inputs if node in found]


def _finish(builder: _Builder, outputs: list[Any], descs: list[Any]) -> None:
    results = [builder.get(node) if isinstance(node, Node) else node for node in outputs]
    made = builder.graph.output(tuple(results))
    made.meta["desc"] = list(descs)
