"""What a step starts from, and what it leaves behind: kept, put back, compared."""

import copy
import gc
import hashlib
import random
import weakref
from typing import Any

import torch

from memfit.torch._alive import live_storages
from memfit.torch._glue import storages


class State:
    """Tensors of `device`, gradients, optimizers and generators as they are when the block begins.

    The contents are kept in host memory, so on an accelerator they take none of what is to be measured.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __enter__(self) -> "State":
        gc.collect()
        self.storages = [
            (weakref.ref(storage), storage.cpu() if storage.device.type != "cpu" else storage.clone())
            for storage in live_storages(self._device)
        ]
        objects = gc.get_objects()
        leaves = [thing for thing in objects if _is_leaf(thing)]
        # Copies: a step that lets go of its gradients must find their bytes gone.
        self.gradients = [
            (weakref.ref(leaf), leaf.grad if leaf.grad is None else _Gradient(leaf.grad)) for leaf in leaves
        ]
        optimizers = [thing for thing in objects if issubclass(type(thing), torch.optim.Optimizer)]
        self.optimizers = [
            (weakref.ref(optimizer), {key: copy.copy(value) for key, value in optimizer.state.items()})
            for optimizer in optimizers
        ]
        self._generators = (random.getstate(), torch.random.get_rng_state(), _cuda_state())
        return self

    def put_back(self) -> None:
        """All is again as it was, as far as it is still there."""
        for reference, kept in self.gradients:
            if (leaf := reference()) is not None:
                leaf.grad = kept and kept.given_back()
        for reference, state in self.optimizers:
            if (optimizer := reference()) is not None:
                optimizer.state.clear()
                optimizer.state.update({key: copy.copy(value) for key, value in state.items()})
        with torch.no_grad():
            for reference, content in self.storages:
                if (storage := reference()) is not None:
                    storage.copy_(content)
        python, cpu, cuda = self._generators
        random.setstate(python)
        torch.random.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)

    def expect(self, result: Any) -> "Expected":
        """What is there now, and `result`."""
        return Expected(self, result)

    def __exit__(self, *raised: Any) -> None:
        self.storages.clear()
        self.gradients.clear()
        self.optimizers.clear()


class Expected:
    """Results, contents of what was there before, gradients and optimizer state that a step should leave."""

    def __init__(self, state: State, result: Any) -> None:
        there = ((reference, reference()) for reference, _ in state.storages)
        self._storages = [
            (reference, _digest(storage)) for reference, storage in there if storage is not None
        ]
        leaves = ((reference, reference()) for reference, _ in state.gradients)
        self._leaves = [(reference, _of([leaf.grad])) for reference, leaf in leaves if leaf is not None]
        optimizers = ((reference, reference()) for reference, _ in state.optimizers)
        self._optimizers = [
            (reference, _of(optimizer.state)) for reference, optimizer in optimizers if optimizer is not None
        ]
        self._result = _of(result)

    def matches(self, result: Any) -> bool:
        """Whether the same is there now, as far as it is still there at all."""
        storages = ((reference(), digest) for reference, digest in self._storages)
        leaves = ((reference(), digest) for reference, digest in self._leaves)
        optimizers = ((reference(), digest) for reference, digest in self._optimizers)
        return (
            self._result == _of(result)
            and all(storage is None or _digest(storage) == digest for storage, digest in storages)
            and all(leaf is None or _of([leaf.grad]) == digest for leaf, digest in leaves)
            and all(optimizer is None or _of(optimizer.state) == digest for optimizer, digest in optimizers)
        )


def _of(value: Any) -> list[str]:
    return [_digest(storage) for storage in storages(value)]


def _digest(storage: torch.UntypedStorage) -> str:
    if storage.device.type == "meta":
        return "meta"
    content = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    # A copy: a storage that NumPy has seen could never be evicted.
    return hashlib.blake2b(content.cpu().clone().numpy().tobytes(), digest_size=16).hexdigest()


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
            self._content = copied.untyped_storage()
            self._window = copied.storage_offset(), copied.shape, copied.stride()
            self._kind = gradient.dtype, gradient.device

    def given_back(self) -> torch.Tensor:
        """The same tensor while somebody holds it: its content comes back with the other storages."""
        gradient = self._reference()
        if gradient is None:
            dtype, device = self._kind
            content = torch.empty(0, dtype=dtype).set_(self._content.clone(), *self._window)
            gradient = content.to(device)
        return gradient


def _cuda_state() -> list[torch.Tensor] | None:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
