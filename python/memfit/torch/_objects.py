"""Objects of the kinds that a training is made of, wherever they are.

The interpreter's collector knows them, but not, while they are frozen (`gc.freeze()`), those that were there
at that moment.
"""

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from memfit import _memfit


class _Thawed:
    """Is among the collector's objects exactly as long as nobody has frozen them since it was made."""


_KINDS = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, LRScheduler, _Thawed)
_frozen: list[weakref.ref[Any]] = []
"""What was frozen when `_thawed` was made."""
_thawed: _Thawed | None = None


def every(*kinds: type) -> list[Any]:
    """All instances of `kinds`, which are tensors, modules, optimizers or schedulers; without kinds, of each.

    In the order of the collector; frozen ones last.
    """
    things = _things()
    # Proxies may run code of others when they are asked for their class.
    return [thing for thing in things if issubclass(type(thing), kinds)] if kinds else things


def _things() -> list[Any]:
    """Instances of `_KINDS`."""
    global _frozen, _thawed
    objects = gc.get_objects()
    things = _memfit.instances(objects, _KINDS)
    if gc.get_freeze_count() > 0:
        if _thawed is None or not any(thing is _thawed for thing in things):
            roots = [*objects, *sys.modules.values(), *_frames()]
            _frozen = [weakref.ref(thing) for thing in _memfit.reachable(roots, _KINDS)]
            _thawed = _Thawed()
        things += [thing for thing in (reference() for reference in _frozen) if thing is not None]
    return things


def _frames() -> Iterator[Any]:
    """What all threads are at: the collector does not know what frames that run have in their variables."""
    for frame in sys._current_frames().values():
        at: Any = frame
        while at is not None:
            yield at.f_globals
            yield dict(at.f_locals)
            at = at.f_back
