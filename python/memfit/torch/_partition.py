"""`memfit.torch.partition`: what `torch.compile` keeps for backward, and what runs again, within a budget."""

import dataclasses
import hashlib
import pathlib
import warnings
from typing import Any

import torch
from torch.fx import GraphModule

import memfit

from . import _joint, _measure, _modules, _private
from ._joint import Unplannable


@dataclasses.dataclass(frozen=True)
class Region:
    """What became of one compiled region. Sizes in bytes."""

    graph: dict[str, Any]
    """The graph that was planned, `memfit-graph/1`."""
    plan: memfit.Plan
    """The plan, verified. Its live bytes keep the budget; its arena, not used here, may be larger."""
    budget_bytes: int
    saved_bytes: int
    """Tensors that forward hands to backward, inputs of the region not counted."""
    saved: tuple[str, ...]
    """Their names in the joint graph."""
    repeated: int
    """Runs of ops beyond the first."""

    def __repr__(self) -> str:
        kept = f"{self.saved_bytes} bytes kept, {self.repeated} ops run again"
        return f"<memfit.torch region: {kept}; {self.plan!r}>"


class Partition(_private.CustomPartitionerFn):
    """A partitioner for AOTAutograd and Inductor: see `partition`."""

    def __init__(
        self, budget: int | str, measure: bool, device: str | None, strategy: tuple[str, ...], seed: int
    ) -> None:
        self.budget = budget
        self.measure = measure
        self.meter = _measure.Meter()
        self.device = device
        self.strategy = strategy
        self.seed = seed
        self.regions: list[Region] = []
        """What became of each region, in the order in which they were compiled."""

    def __call__(  # type: ignore[override]  # AOTAutograd always gives `num_fwd_outputs`.
        self, gm: GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[GraphModule, GraphModule]:
        """Splits the joint graph `gm`. Raises `memfit.BudgetError` if the budget is too small for it."""
        _private.simplify(gm)
        try:
            joint, plan = self._fastest(gm, num_fwd_outputs)
            split = _modules.Split(joint, plan.file)
        except Unplannable as why:
            warnings.warn(
                f"memfit does not plan this region, PyTorch's own partitioner does: {why}", stacklevel=2
            )
            return _private.stock(gm, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
        modules = _modules.build(gm, joint, split, num_fwd_outputs)
        self.regions.append(_region(joint, plan, split))
        return modules

    def _fastest(self, gm: GraphModule, num_fwd_outputs: int) -> tuple[_joint.Joint, memfit.Plan]:
        """The faster of two plans, where anything has to run twice: see `_late`."""
        lean = self._lower(gm, num_fwd_outputs, lean=True)
        found: memfit.Plan | memfit.BudgetError
        try:
            found = self._plan(gm, lean, self.budget)
            if not found.recompute_ns:
                return lean, found
        except memfit.BudgetError as error:
            if error.budget_bytes is None:
                raise
            found = error
        lazy = self._lower(gm, num_fwd_outputs, lean=False)
        if lazy.ops != lean.ops:
            try:
                other = self._plan(gm, lazy, found.budget_bytes or 0)
                if isinstance(found, memfit.BudgetError) or other.time_ns < found.time_ns:
                    return lazy, other
            except memfit.BudgetError:
                pass
        if isinstance(found, memfit.BudgetError):
            raise found
        return lean, found

    def _lower(self, gm: GraphModule, num_fwd_outputs: int, *, lean: bool) -> _joint.Joint:
        joint = _joint.lower(gm, num_fwd_outputs, lean=lean)
        if self.measure:
            ops = {node: op for node, op in zip(joint.ops, joint.graph.ops, strict=True) if node is not None}
            for node, cost in self.meter.measure(list(ops)).items():
                ops[node].time_ns, ops[node].workspace = cost.time_ns, cost.scratch
        return joint

    def _plan(self, gm: GraphModule, joint: _joint.Joint, budget: int | str) -> memfit.Plan:
        vals = [node.meta.get("val") for node in gm.graph.nodes]
        on_cpu = all(val.device.type in ("cpu", "meta") for val in vals if isinstance(val, torch.Tensor))
        return memfit.plan(
            joint.graph.dumps().encode(),
            budget=budget,
            device=self.device or ("CPU" if on_cpu else "A100-80"),
            # PyTorch chooses addresses itself, so what counts is what is live.
            strategy=("order:given", "budget:live", *self.strategy),
            in_place=False,
            seed=self.seed,
        )

    def uuid(self) -> Any:
        """Names this partitioner and its options, for Inductor's cache of compiled graphs."""
        folder = pathlib.Path(__file__).parent
        digest = hashlib.sha256()
        for file in (
            "_partition.py",
            "_joint.py",
            "_late.py",
            "_measure.py",
            "_modules.py",
            "_private.py",
            "_ops.py",
            "_flops.py",
        ):
            digest.update((folder / file).read_bytes())
        options = (memfit.__version__, self.budget, self.measure, self.device, self.strategy, self.seed)
        digest.update(repr(options).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"memfit.torch.partition(budget={self.budget!r})"


def _region(joint: _joint.Joint, plan: memfit.Plan, split: _modules.Split) -> Region:
    runs = len(split.forward) + len(split.backward)
    return Region(
        graph=joint.graph.to_json(),
        plan=plan,
        budget_bytes=plan.budget_bytes,
        saved_bytes=sum(joint.graph.values[value].bytes for value in split.saved),
        saved=tuple(joint.root[value].name for value in split.saved),
        repeated=runs - (len(joint.ops) - 1),
    )


def partition(
    budget: int | str,
    *,
    measure: bool = True,
    device: str | None = None,
    strategy: str | tuple[str, ...] = (),
    seed: int = 0,
) -> Partition:
    """A partitioner for `torch.compile` that keeps a compiled region within `budget`.

    ```python
    # With Inductor:
    torch._inductor.config.custom_partitioner_fn = memfit.torch.partition(budget="60%")
    step = torch.compile(model)
    # With another backend of AOTAutograd:
    backend = aot_autograd(..., partition_fn=memfit.torch.partition(budget="60%"))
    ```

    `budget` is bytes, a size (`"8GiB"`), or a share: `"60%"` of what the region takes without a budget,
    `"floor+60%"` of what lies above its inputs plus the largest op. It counts the region's inputs
    (parameters, buffers, batch), everything that forward and backward compute, and the gradients; not the
    state of an optimizer outside. With `measure` each distinct op is run on the device when the region is
    compiled, for its time and its scratch memory, which then counts as well. Without it, or for what can't be
    run, times are those of `device`: a name of `memfit.strategies()` or a TOML file; by default `CPU`, or
    `A100-80` for other devices.

    Random ops run once, their outputs are kept: forward and backward see the same masks. So do collectives,
    and ops that read what forward overwrites, such as running statistics. Where a region has what no plan can
    be made for (dynamic shapes, sparse tensors), PyTorch's own partitioner takes over, with a warning.

    The compiler raises `memfit.BudgetError`, as the cause of its own error, if the budget is too small.
    """
    if isinstance(strategy, str):
        strategy = (strategy,)
    return Partition(budget, measure, device, tuple(strategy), seed)
