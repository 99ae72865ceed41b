"""When ops first run that only backward reads, though they need no derivative: masks, or `x - mean`.

Run in forward, what they make is held until backward reads it; run in backward, what they read is. Two
answers are worth a plan. If nothing runs twice, a minimum cut says which run early: the least bytes held when
the derivatives arrive, ties to backward. If much runs twice, all of them in backward: what they read may be
computed again there. Those of forward run as soon as they can, those of backward before their first use.
"""

import operator
from collections import defaultdict
from typing import Any

import networkx
from torch.fx import Node

from . import _layout

FORWARD, BACKWARD = "forward", "backward"


def order(
    nodes: list[Node], forward: set[Node], late: set[Node], fixed: set[Node], *, lean: bool
) -> tuple[list[Node], list[Node]]:
    """`nodes` before and after the derivatives arrive, each after what it reads.

    `nodes` is the trace, without what nobody needs. `forward` is what forward needs, `late` what depends on
    derivatives: both stay as they are. What is in neither is up to us, but `fixed`, which ends forward.
    `lean` asks for the fewest bytes held; otherwise as much as can be runs in backward.
    """
    stay = [node for node in nodes if node in forward or (_is_input(node) and node not in late)]
    free = [node for node in nodes if node not in late and node not in set(stay)]
    early = _early(nodes, set(free), late, fixed, lean=lean)
    at = {node: place for place, node in enumerate(stay)}
    """For each node of forward: after which of those that stay it runs."""
    groups = [[node] for node in stay]
    for node in free:
        operands = node.all_input_nodes
        if (node in early or not _made(node)) and all(operand in at for operand in operands):
            last = max((at[operand] for operand in operands), default=0)
            at[node] = len(stay) - 1 if node in fixed else last
            groups[at[node]].append(node)
    after: dict[Node, None] = {}
    for node in [node for node in nodes if node in late] + [node for node in free if node not in at]:
        todo = [] if node in after else [node]
        while todo:
            missing = [operand for operand in todo[-1].all_input_nodes if operand not in at]
            missing = [operand for operand in missing if operand not in after]
            if missing:
                todo.extend(reversed(missing))
            else:
                after.setdefault(todo.pop())
    return [node for group in groups for node in group], list(after)


def _is_input(node: Node) -> bool:
    return node.op != "call_function"


def _made(node: Node) -> dict[int, int]:
    """The storages that `node` makes, and their bytes. None for views, items of tuples, inputs."""
    if _is_input(node) or node.target is operator.getitem:
        return {}
    known = {_layout.storage_key(operand.meta["val"]) for operand in _layout.tensor_operands(node)}
    made = {_layout.storage_key(out): out for out in _layout.tensors_in(node.meta.get("val"))}
    return {key: int(out.untyped_storage().nbytes()) for key, out in made.items() if key not in known}


def _early(nodes: list[Node], free: set[Node], late: set[Node], fixed: set[Node], *, lean: bool) -> set[Node]:
    """Those of `free` that make something and run in forward."""
    maker: dict[int, Any] = {}
    size: dict[int, int] = {}
    readers: dict[int, list[Any]] = defaultdict(list)
    for node in nodes:
        made = _made(node)
        side = node if node in free else BACKWARD if node in late else FORWARD
        if made:
            for operand in _layout.tensor_operands(node):
                readers[_layout.storage_key(operand.meta["val"])].append(side)
        maker.update(dict.fromkeys(made, side))
        size.update(made)
    # Its edges run from backward to forward. An edge without a capacity is never cut.
    graph = networkx.DiGraph()
    graph.add_nodes_from((BACKWARD, FORWARD))
    graph.add_edges_from((node, FORWARD) for node in fixed)
    for key, by in maker.items():
        if by == BACKWARD or (by == FORWARD and not any(isinstance(side, Node) for side in readers[key])):
            continue
        graph.add_edge(("held", key), by, capacity=size[key] if lean else 0)
        for side in readers[key]:
            if side != FORWARD:
                graph.add_edge(side, ("held", key))
            if isinstance(by, Node):  # What is made in backward can't be read in forward.
                graph.add_edge(by, side)
    _, (_, chosen) = networkx.minimum_cut(graph, BACKWARD, FORWARD)
    return {node for node in chosen if isinstance(node, Node)}
