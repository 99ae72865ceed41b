"""What must be as it was for a recorded step to be the step that would run: looked at before each replay."""

import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils import _pytree as pytree

from memfit import _memfit
from memfit.torch import _glue, _parts
from memfit.torch._reach import Reach

_MISSING = object()
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
_SIMPLE = (int, float, bool, complex, str, bytes, type(None))


class Reached(Reach):
    """All Python objects that a step and its arguments reach, and what they hold now.

    What optimizers and schedulers hold is theirs: their `step` runs as it is.
    """

    def __init__(self, *roots: Any) -> None:
        self._dicts: list[dict[Any, Any]] = []
        self._lists: list[list[Any]] = []
        self._others: list[tuple[str, Callable[[], Any], Any]] = []
        super().__init__(*roots)
        self._watch = _memfit.Watch(self._dicts, self._lists)
        held = [value for container in self._dicts for value in dict.values(container)]
        held += [value for container in self._lists for value in container]
        held += [value for _, _, value in self._others]
        found = {id(value): value for value in held if isinstance(value, torch.Tensor)}
        tensors = [tensor for tensor in found.values() if not _parts.is_opaque(tensor)]
        self._tensors = [part for tensor in tensors for part in _parts.plain(tensor)]
        self._where = self._windows()

    def changed(self) -> str | None:
        """What is not as it was when this was made."""
        key = self._watch.changed()
        if key is not None:
            return f"`{key}` has changed" if isinstance(key, str) else "a container has changed"
        for name, get, value in self._others:
            now = get()
            if now is not value and not (
                type(now) is type(value) and isinstance(now, _SIMPLE) and now == value
            ):
                return f"`{name}` has changed"
        return None if self._windows() == self._where else "a tensor has other memory, or needs a gradient"

    def _windows(self) -> list[tuple[Any, ...]]:
        # Not the address of the bytes: who asks for that within a budget may write there.
        return [
            (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.requires_grad)
            for tensor in self._tensors
        ]

    def _visit(self, name: str, thing: Any) -> None:
        if not isinstance(thing, (torch.optim.Optimizer, LRScheduler)):
            super()._visit(name, thing)

    def _is_library(self, module: str) -> bool:
        """Nor what is installed: its functions keep to what they are given."""
        file = getattr(sys.modules.get(module), "__file__", None)
        return super()._is_library(module) or (file is not None and file.startswith(_INSTALLED))

    def _dict(self, thing: dict[Any, Any]) -> None:
        self._dicts.append(thing)

    def _list(self, thing: Any) -> None:
        if isinstance(thing, list):
            self._lists.append(thing)
        else:
            self._others.append((type(thing).__name__, lambda: len(thing), len(thing)))

    def _set(self, thing: set[Any]) -> None:
        self._others.append(("set", lambda: len(thing), len(thing)))

    def _cell(self, name: str, cell: types.CellType) -> None:
        def content() -> Any:
            try:
                return cell.cell_contents
            except ValueError:
                return _MISSING

        self._others.append((name, content, content()))
        if content() is not _MISSING:
            self._work.append((name, content()))

    def _slot(self, thing: Any, slot: str, value: Any) -> None:
        self._others.append((slot, lambda: getattr(thing, slot, _MISSING), value))

    def _global(self, names: dict[str, Any], used: str, stored: bool) -> None:
        self._others.append((used, lambda: names.get(used, _MISSING), names.get(used, _MISSING)))

    def _generator(self, back: Callable[[], object]) -> None:
        """Draws of PyTorch's are seen; others fail a step that is recorded only if everybody shares them."""

    def _array(self, thing: Any) -> None:
        self.fixed.append("an array of NumPy's")


class Arguments:
    """How a step was called."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        leaves, self._spec = pytree.tree_flatten((args, kwargs))
        self._leaves = [_described(leaf) for leaf in leaves]
        self.objects = [leaf for leaf in leaves if not isinstance(leaf, (torch.Tensor, *_SIMPLE))]
        """What is neither a tensor nor a number or a text: it is looked into."""
        self._switches = _switches()

    @staticmethod
    def tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
        """The tensors among them, in order."""
        return [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]

    def differs(self, args: Any, kwargs: Any) -> str | None:
        """Why this is another call than that which was recorded, below memfit's own mode."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._spec or [_described(leaf) for leaf in leaves] != self._leaves:
            return "its arguments are others"
        return None if _switches() == self._switches else "a global switch has changed"


def _described(leaf: Any) -> Any:
    if type(leaf) is torch.Tensor:
        return (leaf.shape, leaf.stride(), leaf.storage_offset(), leaf.dtype, leaf.device, leaf.requires_grad)
    return (type(leaf), leaf if isinstance(leaf, _SIMPLE) else id(leaf), leaf)


def _switches() -> tuple[Any, ...]:
    flags = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._is_any_autocast_enabled()
    return (*flags, *_glue.switches(False))
