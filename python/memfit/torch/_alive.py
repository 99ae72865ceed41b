"""Which storages are there: those of all tensors that Python can reach, and those that only PyTorch reaches.

The interpreter's collector knows most tensors. It does not know those of scripted modules, nor what autograd
has saved for backward.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from memfit.torch import _glue, _objects, _parts


def live_storages(device: torch.device) -> list[torch.UntypedStorage]:
    """All storages on `device` that are known to be there, each once.

    Their order is that in which the collector knows their tensors, then that of the graphs.
    """
    return live(device)[0]


def live(device: torch.device) -> tuple[list[torch.UntypedStorage], list[torch.UntypedStorage]]:
    """`live_storages`, and those that stand in for tensors without one, in oneDNN's layout."""
    found: dict[int, torch.UntypedStorage] = {}
    opaque: dict[int, torch.UntypedStorage] = {}
    for tensor in _tensors():
        with contextlib.suppress(RuntimeError, NotImplementedError, ValueError):
            # A wrapper has no bytes; what it wraps is known by itself.
            if _glue.is_wrapper(tensor) or tensor.device.type != device.type:
                continue
            if _parts.is_opaque(tensor):
                opaque[torch.ops.mkldnn.data_ptr(tensor)] = _parts.stand_in(tensor)
                continue
            for storage in _glue.storages(tensor):
                # A fake tensor says that it is on a device; its storage does not.
                if storage.device.type == device.type:
                    found[id(storage)] = storage
    return list(found.values()), list(opaque.values())


def _tensors() -> Iterator[torch.Tensor]:
    """Tensors that are alive; some come twice."""
    nodes: list[Any] = []
    for tensor in _tensors_of_python():
        yield tensor
        with contextlib.suppress(RuntimeError, NotImplementedError, ValueError):
            if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
                yield tensor.grad
            if tensor.grad_fn is not None:
                nodes.append(tensor.grad_fn)
    yield from _saved(nodes)


def _tensors_of_python() -> Iterator[torch.Tensor]:
    for thing in _objects.every():
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, torch.jit.ScriptModule):
            with contextlib.suppress(RuntimeError):  # One that is being made.
                yield from thing.parameters()
                yield from thing.buffers()


def _saved(nodes: list[Any]) -> Iterator[torch.Tensor]:
    """What the graphs above `nodes` have saved for backward, without calling anybody's hooks."""
    seen = {id(node): node for node in nodes}
    while nodes:
        node = nodes.pop()
        for name in _names(type(node)):  # type: ignore[arg-type]  # A class has a hash.
            with contextlib.suppress(RuntimeError):  # Freed by a backward.
                value = getattr(node, name)
                for saved in value if isinstance(value, (list, tuple)) else (value,):
                    tensor = saved if isinstance(saved, torch.Tensor) else getattr(saved, "data", None)
                    if isinstance(tensor, torch.Tensor):
                        yield tensor
        for above, _ in node.next_functions:
            if above is not None and id(above) not in seen:
                seen[id(above)] = above
                nodes.append(above)


@functools.cache
def _names(node: type) -> list[str]:
    """The attributes in which nodes of this type have tensors."""
    return [name for name in dir(node) if name.startswith("_raw_saved_") or name == "variable"]
