"""What a step starts from, and what it leaves behind: kept, put back, compared."""

import copy
import gc
import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import torch

from memfit.torch import _alive, _generators, _objects
from memfit.torch._glue import storages
from memfit.torch._reach import Reach

Print = dict[str, list[Any]]
"""Digests of what a step left behind: plain objects, in an order that another process shares."""


class State:
    """Tensors of `device`, gradients, optimizers, generators, and what `roots` reach, as the block begins.

    The contents are kept in host memory, so on an accelerator they take none of what is to be measured. With
    `keeps=False` nothing is kept, and only `fingerprint` can be asked for.
    """

    def __init__(self, device: torch.device, *roots: Any, keeps: bool = True) -> None:
        self._device = device
        self._roots = roots
        self._keeps = keeps
        self.fixed: list[str] = []
        """Names of what can't be put back."""

    def __enter__(self) -> "State":
        gc.collect()
        self._storages = [
            (weakref.ref(storage), _Content(storage) if self._keeps else None)
            for storage in _alive.live_storages(self._device)
        ]
        things = _objects.every(torch.Tensor, torch.optim.Optimizer)
        leaves = [thing for thing in things if _is_leaf(thing)]
        # Copies: a step that lets go of its gradients must find their bytes gone.
        self._gradients = [
            (weakref.ref(leaf), _Gradient(leaf.grad) if self._keeps and leaf.grad is not None else None)
            for leaf in leaves
        ]
        optimizers = [thing for thing in things if issubclass(type(thing), torch.optim.Optimizer)]
        self._optimizers = [
            (weakref.ref(optimizer), _entries(optimizer) if self._keeps else {}) for optimizer in optimizers
        ]
        self._generators = _generators.keep() if self._keeps else []
        self._reach = Reach(*self._roots) if self._keeps else None
        self.fixed = self._reach.fixed if self._reach else []
        return self

    def put_back(self) -> None:
        """All is again as it was, as far as it is still there."""
        for reference, kept in self._gradients:
            if (leaf := reference()) is not None:
                leaf.grad = kept and kept.given_back()
        if self._reach is not None:
            self._reach.put_back()
        for reference, state in self._optimizers:
            if (optimizer := reference()) is not None:
                optimizer.state.clear()
                optimizer.state.update({key: copy.copy(value) for key, value in state.items()})
        with torch.no_grad():
            for reference, content in self._storages:
                if (storage := reference()) is not None and content is not None:
                    content.to(storage)
        for put_back in self._generators:
            put_back()

    def fingerprint(self, result: Any, before: Callable[[torch.UntypedStorage], None] | None = None) -> Print:
        """Digests of what was there before as it is now, and of `result`; `None` for what has gone.

        `before` is called before the bytes of a storage are read.
        """

        def digest(storage: torch.UntypedStorage) -> str:
            if before is not None:
                before(storage)
            return _digest(storage)

        def all_of(value: Any) -> list[str]:
            return [digest(storage) for storage in storages(value)]

        def of(references: list[Any], digest: Callable[[Any], Any]) -> list[Any]:
            there = [reference() for reference, _ in references]
            return [None if thing is None else digest(thing) for thing in there]

        return {
            "storages": of(self._storages, digest),
            "gradients": of(self._gradients, lambda leaf: all_of([leaf.grad])),
            "optimizers": of(self._optimizers, lambda optimizer: all_of(optimizer.state)),
            "generators": [_hash(state) for state in _generators.states()],
            "result": [all_of(result)],
        }

    def __exit__(self, *raised: Any) -> None:
        self._storages.clear()
        self._gradients.clear()
        self._optimizers.clear()
        self._reach = None


def same(expected: Print, found: Print) -> bool:
    """Whether two fingerprints agree, as far as both have something."""
    return all(
        a is None or b is None or a == b
        for kind, digests in expected.items()
        for a, b in zip(digests, found[kind], strict=True)
    )


def _entries(optimizer: torch.optim.Optimizer) -> dict[Any, Any]:
    return {key: copy.copy(value) for key, value in optimizer.state.items()}


class _Content:
    """The bytes of a storage, in memory that PyTorch's allocator does not know: no meter counts it."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._bytes = bytearray(storage.nbytes())
        if self._bytes:
            self._storage().copy_(storage)

    def to(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """`storage` with these bytes; of another size than it had, it stays as it is."""
        if self._bytes and storage.nbytes() == len(self._bytes):
            storage.copy_(self._storage())
        return storage

    def copied(self) -> torch.UntypedStorage:
        """A new storage of these bytes, in host memory."""
        return self.to(torch.UntypedStorage(len(self._bytes)))

    def _storage(self) -> torch.UntypedStorage:
        return torch.frombuffer(self._bytes, dtype=torch.uint8).untyped_storage()


def _digest(storage: torch.UntypedStorage) -> str:
    if storage.device.type == "meta":
        return "meta"
    content = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    # A copy: a storage that NumPy has seen could never be evicted.
    return _hash(content.cpu().clone().numpy().tobytes())


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _is_leaf(thing: Any) -> bool:
    try:
        return issubclass(type(thing), torch.Tensor) and thing.is_leaf and thing.requires_grad
    except RuntimeError:
        return False


class _Gradient:
    """A gradient that may go: a copy of its content is kept as a bare storage, which no budget counts."""

    def __init__(self, gradient: torch.Tensor) -> None:
        self._reference = weakref.ref(gradient)
        # Sparse ones, and subclasses, stay as they are.
        plain = type(gradient) is torch.Tensor and gradient.layout is torch.strided
        self._held = None if plain else gradient
        if plain:
            copied = gradient.detach().clone().cpu()
            self._content = _Content(copied.untyped_storage())
            self._window = copied.storage_offset(), copied.shape, copied.stride()
            self._kind = gradient.dtype, gradient.device

    def given_back(self) -> torch.Tensor:
        """The same tensor while somebody holds it: its content comes back with the other storages."""
        gradient = self._reference()
        if gradient is None:
            dtype, device = self._kind
            content = torch.empty(0, dtype=dtype).set_(self._content.copied(), *self._window)
            gradient = content.to(device)
        return gradient
