"""torchtitan's `graph_trainer` within a budget of bytes: a memory policy by name.

```python
from memfit.torch.integrations import torchtitan

torchtitan.register("60GiB")
config.compile.memory_policy = "memfit"
```

The trainer traces forward, loss and backward as one graph, has a policy tag forward nodes, and computes those
that are tagged to be recomputed again in backward: once, before the first that reads them. memfit plans the
graph within the budget, tags what its plan runs twice, applies the trainer's own pass to a copy of the graph,
and counts what is live in each of its steps; if that is above the budget, it plans for less. The same graph
gets the same tags on every rank: no clock decides anything.
"""

import contextlib
import json
from typing import Any

import torch
from torch._functorch.partitioners import is_rng_op
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils.checkpoint import CheckpointPolicy
from torchtitan.experiments.graph_trainer import cpu_offload  # noqa: F401, the pass looks for its ops
from torchtitan.experiments.graph_trainer.common_utils import _get_module_fqn, _is_backward_node
from torchtitan.experiments.graph_trainer.registry import register_memory_policy
from torchtitan.experiments.graph_trainer.selective_activation_remat import selective_activation_remat_pass

import memfit
from memfit._door import Size
from memfit.torch import _joint
from memfit.torch._errors import parse_bytes
from memfit.torch._report import memory

ROUNDS = 6
"""Plans that are tried, each for less than the one before."""
_OTHERS = (1.0, 1.1, 1.25, 1.5, 2.0)
"""Times the least budget that a plan was found for, where none of them fits."""
_ENDS = ("lm_head", "loss")
"""Modules that the trainer computes nothing of again."""
_LIVE: dict[str, Any] = {"strategy": ("order:given", "budget:live"), "in_place": False, "co_share": False}


def register(budget: Size, *, name: str = "memfit", device: str = "H100") -> None:
    """Makes `name` a memory policy that keeps the step's graph to `budget`.

    The graph has parameters, buffers, the batch, what forward and backward compute, and gradients; optimizer
    state is not in it. Times are those of `device`, a preset or the path of a TOML file. With CPU offload in
    the same trainer, what that moves is not known here.
    """
    size = parse_bytes(budget)

    def policy(gm: GraphModule, *, config: Any) -> GraphModule:
        return tag(gm, size, device=device)

    register_memory_policy(name)(policy)


def tag(gm: GraphModule, budget: int, *, device: str = "H100") -> GraphModule:
    """Tags forward nodes of `gm` such that its peak is within `budget` bytes once the trainer's pass has run.

    Random ops, collectives, and all in `lm_head` and the loss are kept. Raises `memfit.BudgetError`, with the
    lowest peak that was found, if there is no such tagging, and `memfit.UsageError` for a graph that can't be
    planned: with dynamic shapes, say, or ops that overwrite.
    """
    lowered = _lower(gm)
    again, lowest = _chosen(gm, lowered, budget, device)
    if again is None:
        raise memfit.BudgetError(
            f"no tags keep the graph within `{memory(budget)}`",
            hint=f"`{memory(lowest)}` would do",
            budget_bytes=budget,
            least_budget_bytes=lowest,
        )
    _tag(gm, lowered, again)
    gm.recompile()
    return gm


def peak_of(gm: GraphModule) -> int:
    """Most bytes that are live in a step of `gm`, in its own order. Raises `memfit.UsageError`."""
    return _plan(_lower(gm).graph, "100%", "H100").live_peak_bytes


def _chosen(gm: GraphModule, lowered: _joint.Joint, budget: int, device: str) -> tuple[set[int] | None, int]:
    """Positions of the ops to run again (`None`: nothing fits), and the lowest peak that was found."""
    may = _candidates(lowered)
    peaks: list[tuple[int, set[int]]] = []

    def fits(again: set[int]) -> bool:
        if all(again != other for _, other in peaks):
            peaks.append((_peak_with(gm, lowered, again), again))
        return any(peak <= budget for peak, _ in peaks)

    def planned(target: int) -> set[int]:
        return _repeated(_plan(lowered.graph, target, device)) & may

    done, target, least = fits(set()), budget, None
    for _ in range(ROUNDS):
        if done or target <= 0:
            break
        try:
            done = fits(planned(target))
        except memfit.BudgetError as error:
            least = error.least_budget_bytes
            break
        target -= max(1, peaks[-1][0] - budget)
    # The trainer's pass is no plan: other ones may come out lower, and that of all ops that can run again.
    for times in _OTHERS if not done else ():
        with contextlib.suppress(memfit.BudgetError):
            done = done or fits(planned(int(times * (least or max(target, 1)))))
    done = done or fits(may)
    return next((again for peak, again in peaks if peak <= budget), None), min(peak for peak, _ in peaks)


def _lower(gm: GraphModule) -> _joint.Joint:
    lowering = _joint._Lowering(gm, set())
    *nodes, output = gm.graph.nodes
    try:
        for node in nodes:
            if node.op != "call_function" or node.users:
                lowering.node(node, "backward" if _is_backward_node(node) else "forward")
    except _joint.Unplannable as why:
        raise memfit.UsageError(f"this graph can't be planned: {why}") from why
    joint = lowering.joint
    returned = [node for node in output.all_input_nodes if node in joint.value]
    joint.graph.results = list(dict.fromkeys(joint.value[node] for node in returned))
    return joint


def _plan(graph: Any, budget: Size, device: str) -> memfit.Plan:
    return memfit.plan(graph.dumps().encode(), budget=budget, device=device, **_LIVE)


def _candidates(lowered: _joint.Joint) -> set[int]:
    """Ops of forward that the trainer can run again."""
    return {
        at
        for at, (node, op) in enumerate(zip(lowered.ops, lowered.graph.ops, strict=True))
        if node is not None
        and op.phase == "forward"
        and op.effect == "pure"
        and not is_rng_op(node)
        and not _get_module_fqn(node).startswith(_ENDS)
    }


def _repeated(plan: memfit.Plan) -> set[int]:
    """Ops that a plan runs more than once."""
    seen: set[int] = set()
    again: set[int] = set()
    for step in json.loads(plan.file)["steps"]:
        if "compute" in step:
            op = step["compute"]["op"]
            (again if op in seen else seen).add(op)
    return again


def _tag(gm: GraphModule, lowered: _joint.Joint, again: set[int]) -> None:
    """What shows a storage is computed again with it: a view that is kept would keep the storage."""
    gone = {value for at in again for value in lowered.graph.ops[at].writes}
    ops = {node: at for at, node in enumerate(lowered.ops)}
    for node in gm.graph.nodes:
        node.meta.pop("recompute", None)
        if node.op != "call_function" or _is_backward_node(node) or _get_module_fqn(node).startswith(_ENDS):
            continue
        repeats = ops[node] in again if node in ops else lowered.value.get(node) in gone
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE if repeats else CheckpointPolicy.MUST_SAVE


def _peak_with(gm: GraphModule, lowered: _joint.Joint, again: set[int]) -> int:
    """The peak of the graph that the trainer's pass makes of these tags."""
    _tag(gm, lowered, again)
    graph = Graph()
    copies: dict[Node, Node] = {}
    returned = graph.graph_copy(gm.graph, copies)
    graph.output(returned)
    copy = GraphModule(gm, graph)
    for old, new in copies.items():
        new.meta = dict(old.meta)
    copy = selective_activation_remat_pass(copy)
    # What runs again makes a storage of its own.
    inputs = [node.meta.get("val") for node in copy.graph.nodes if node.op == "placeholder"]
    mode = next(val.fake_mode for val in inputs if isinstance(val, torch.Tensor))  # type: ignore[attr-defined]
    FakeTensorProp(copy, mode).propagate_dont_convert_inputs(*inputs)
    return peak_of(copy)
