"""Measures what eager PyTorch keeps: bytes of all storages alive, after each op of a real run on the CPU."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Meter(TorchDispatchMode):
    """Counts each storage from the op that makes it until nobody, autograd included, holds it."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.live = self.peak = 0
        self.log: list[tuple[str, int]] = []
        for tensor in tensors:
            self.see(tensor)

    def see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.sizes:
            return
        self.sizes[key] = storage.nbytes()
        self.live += storage.nbytes()
        weakref.finalize(storage, self.forget, key)

    def forget(self, key: int) -> None:
        self.live -= self.sizes.pop(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.see(leaf)
        self.peak = max(self.peak, self.live)
        self.log.append((str(func), self.live))
        return out
