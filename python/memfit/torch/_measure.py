"""What ops really take: each distinct one is run on the device, for its scratch memory and for its time.

What a kernel allocates besides its outputs no formula says: the CPU's convolutions, say, copy their operands
into a layout of their own. Operands are noise, integers zero: on zeros no branch is mispredicted, and
`where` takes a seventh. Random ops, and ops that act outside, are not run; nor is anything that fails.
"""

import dataclasses
import functools
import time
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from . import _glue, _ops
from ._layout import tensors_in

RUNS = 3
CACHES = 32 << 20
"""Bytes that are touched before each run on a CPU: what an op reads was mostly made long before."""
NOISE = 65_521
"""A prime: rows of a tensor differ."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one run."""

    time_ns: int
    scratch: int
    """Most bytes allocated at once, less the outputs."""


class Meter:
    """Costs of ops that have been measured, by what they do to which shapes."""

    def __init__(self) -> None:
        self.costs: dict[Any, Cost | None] = {}

    def measure(self, nodes: list[Node]) -> dict[Node, Cost]:
        """The cost of each of `nodes` that can be measured."""
        keys = {node: _key(node) for node in nodes if _quiet(node)}
        new = list({key: node for node, key in reversed(keys.items()) if key not in self.costs}.values())
        from torch.utils._mode_utils import no_dispatch

        with no_dispatch(), torch.no_grad(), torch.random.fork_rng():
            for node in new:
                self.costs[keys[node]] = None
            scratch = _scratch(new)
            other = torch.zeros(CACHES // 4)
            for node, spare in scratch.items():
                self.costs[keys[node]] = Cost(_time(node, other), spare)
        found = {node: self.costs[key] for node, key in keys.items()}
        return {node: cost for node, cost in found.items() if cost is not None}


def _quiet(node: Node) -> bool:
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda arg: arg.meta.get("val"))
    return _ops.effect(_ops.called(node), args, kwargs) == "pure"


def _key(node: Node) -> Any:
    def leaf(arg: Any) -> Any:
        val = arg.meta.get("val") if isinstance(arg, Node) else arg
        if isinstance(val, torch.Tensor):
            return (tuple(val.shape), val.stride(), val.dtype, str(val.device))
        return repr(val)

    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    return (node.target, tuple(map(leaf, leaves)), str(spec))


def _operands(node: Node) -> tuple[Any, Any]:
    made: dict[Node, Any] = {}

    def real(arg: Node) -> Any:
        if arg not in made:
            made[arg] = pytree.tree_map_only(torch.Tensor, _filled, arg.meta["val"])
        return made[arg]

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), real)
    return args, kwargs


def _filled(val: torch.Tensor) -> torch.Tensor:
    """A tensor like `val`. Integers are zero: whatever they count or index, there is a first one."""
    made = torch.empty_strided(val.shape, val.stride(), dtype=val.dtype, device=val.device)
    if not (val.dtype.is_floating_point or val.dtype.is_complex or val.dtype == torch.bool):
        return made.zero_()
    noise = _noise(val.dtype, val.device)
    flat = made.as_strided((made.untyped_storage().nbytes() // made.itemsize,), (1,))
    whole = len(flat) // len(noise) * len(noise)
    flat[:whole].view(-1, len(noise)).copy_(noise)
    flat[whole:].copy_(noise[: len(flat) - whole])
    return made


@functools.cache
def _noise(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Normal numbers, or coins: enough of them that no processor learns where they branch."""
    numbers = torch.randn(NOISE, generator=torch.Generator().manual_seed(0))
    return (numbers > 0 if dtype == torch.bool else numbers.to(dtype)).to(device)


def _scratch(nodes: list[Node]) -> dict[Node, int]:
    """Scratch bytes of those that run; none are known where nobody can count them."""
    found = {}
    for node in nodes:
        try:
            args, kwargs = _operands(node)
            cuda = any(out.device.type == "cuda" for out in tensors_in(node.meta["val"]))
            _, spare = _glue.measure(node.target, args, kwargs, "is_cuda" if cuda else "is_cpu")
        except Exception:
            continue
        found[node] = spare or 0
    return found


def _time(node: Node, other: torch.Tensor) -> int:
    """Of the fastest of `RUNS`, in ns. On a CPU each begins with `other` in the caches, not its operands."""
    args, kwargs = _operands(node)
    cuda = any(out.device.type == "cuda" for out in tensors_in(node.meta["val"]))
    # What else runs on the machine is no part of an op, but time spent by other threads for it is.
    clock = time.thread_time_ns if not cuda and torch.get_num_threads() == 1 else time.perf_counter_ns
    target = _ops.called(node)
    best = 1 << 62
    for _ in range(RUNS):
        if cuda:
            torch.cuda.synchronize()
        else:
            other.add_(1)
        start = clock()
        target(*args, **kwargs)
        if cuda:
            torch.cuda.synchronize()
        best = min(best, clock() - start)
    return best
