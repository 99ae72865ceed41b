"""All that is used of AOTAutograd's private side, in one place.

Checked with torch 2.15. Where a name is gone, what it stood for is done here instead.
"""

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

try:
    from torch._functorch._aot_autograd import descriptors
except ImportError:  # pragma: no cover - an older or newer torch
    descriptors = None  # type: ignore[assignment]

try:
    from torch._inductor.custom_graph_pass import CustomPartitionerFn as CustomPartitionerFn
except ImportError:  # pragma: no cover - an older or newer torch
    CustomPartitionerFn = object  # type: ignore[assignment, misc]


def outputs(output: Node) -> list[Any]:
    """What the graph returns, flat: nodes, and constants such as `None`."""
    return pytree.arg_tree_leaves(*output.args)


def descs(output: Node, count: int) -> list[Any]:
    """What each of the `count` outputs is; `None` where the graph does not say."""
    return pytree.arg_tree_leaves(output.meta.get("desc", [None] * count))


def is_tangent(node: Node) -> bool:
    """Whether `node` is a derivative that comes from outside."""
    return node.op == "placeholder" and "tangents" in str(node.target)


def is_backward_seed(node: Node) -> bool:
    """Whether `node` is a generator's seed or offset that only backward gets."""
    return node.op == "placeholder" and (
        "bwd_seed" in str(node.target)
        or "bwd_base_offset" in str(node.target)
        or "bwd_rng_state" in str(node.target)
    )


def mutated_inputs(output: Node) -> set[Node]:
    """The inputs that are overwritten when forward has run."""
    if descriptors is None:
        return set()
    what = {
        desc.mutated_input
        for desc in descs(output, 0)
        if isinstance(desc, descriptors.InputMutationAOTOutput)
    }
    return (
        {node for node in output.graph.nodes if node.op == "placeholder" and node.meta.get("desc") in what}
        if what
        else set()
    )


def saved_descs(count: int) -> list[Any]:
    """What the tensors are that forward hands to backward."""
    kind = getattr(descriptors, "SavedForBackwardsAOTOutput", None)
    return [kind(at) if kind else None for at in range(count)]


def module(root: GraphModule, graph: Graph) -> GraphModule:
    """A module that runs `graph`, with the constants of `root`."""
    lazy = getattr(torch.fx, "_lazy_graph_module", None)
    if lazy is not None and hasattr(lazy, "_make_graph_module"):
        made: GraphModule = lazy._make_graph_module(root, graph)
        return made
    return GraphModule(root, graph)


def simplify(gm: GraphModule) -> None:
    """What PyTorch's own partitioner does first: what is computed twice is computed once."""
    from torch._functorch import config

    if getattr(config, "cse", True):
        from torch._functorch.compile_utils import fx_graph_cse

        gm.graph = fx_graph_cse(gm.graph)
    gm.graph.eliminate_dead_code()
    gm.recompile()


def stock(gm: GraphModule, joint_inputs: Any, **kwargs: Any) -> tuple[GraphModule, GraphModule]:
    """PyTorch's own partitioner."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
