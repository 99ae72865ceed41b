"""What a step can reach: its closure, its globals, the objects behind them; kept, and put back.

For processes that can't be copied (see `_copy`). Containers and attributes get their contents back,
generators their states. What nobody can put back, such as an iterator that is half-way, is named.
"""

import collections
import dis
import functools
import io
import itertools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

MOST = 200_000
"""Objects after which a walk ends."""

# What never changes, or is put back by others.
_LEFT_ALONE = (
    int, float, complex, str, bytes, bool, type(None), type, types.ModuleType, types.CodeType, torch.Tensor,
    torch.UntypedStorage, torch.dtype, torch.device, torch.Size, types.BuiltinFunctionType,
)  # fmt: skip
_FIXED_MODULES = ("multiprocessing", "socket", "subprocess", "_socket", "concurrent")


class Reach:
    """The state of all that is reached from `roots`, as it is now."""

    def __init__(self, *roots: Any) -> None:
        self.fixed: list[str] = []
        """Names of what can't be put back."""
        self._back: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}
        self._work: list[tuple[str, Any]] = [("step", root) for root in roots]
        while self._work and len(self._seen) < MOST:
            name, thing = self._work.pop()
            if not isinstance(thing, _LEFT_ALONE) and id(thing) not in self._seen:
                self._seen[id(thing)] = thing
                self._visit(name, thing)

    def put_back(self) -> None:
        """All that was reached is as it was."""
        for back in self._back:
            back()

    def _visit(self, name: str, thing: Any) -> None:
        generator = _generator_state(thing)
        if generator is not None:
            self._generator(generator)
        elif isinstance(thing, types.FunctionType):
            self._function(name, thing)
        elif isinstance(thing, types.MethodType):
            self._work += [(name, thing.__self__), (name, thing.__func__)]
        elif isinstance(thing, types.CellType):
            self._cell(name, thing)
        elif isinstance(thing, functools.partial):
            self._work += [(name, thing.func), (name, thing.args), (name, thing.keywords)]
        elif _is_array(thing):
            self._array(thing)
        elif _is_fixed(thing):
            self.fixed.append(f"`{name}` ({type(thing).__qualname__})")
        else:
            self._contents(name, thing)

    def _contents(self, name: str, thing: Any) -> None:
        if isinstance(thing, dict):
            self._dict(thing)
            self._work += [(f"{name}[{key!r:.40}]", value) for key, value in _kind(thing).items(thing)]
        elif isinstance(thing, (list, collections.deque, bytearray)):
            self._list(thing)
        elif isinstance(thing, set):
            self._set(thing)
        if isinstance(thing, (list, tuple, set, frozenset, collections.deque)):
            self._work += [(f"{name}[{at}]", value) for at, value in enumerate(thing)]
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict):
            self._dict(attributes)
            self._work += [(f"{name}.{key}", value) for key, value in attributes.items()]
        self._work += [(name, method) for method in self._methods(type(thing))]
        for slot in _slots(type(thing)):
            if hasattr(thing, slot):
                value = getattr(thing, slot)
                self._slot(thing, slot, value)
                self._work.append((f"{name}.{slot}", value))

    def _methods(self, kind: type) -> Iterator[types.FunctionType]:
        """Methods of classes that are nobody's library: they may use globals."""
        for base in kind.__mro__:
            if not self._is_library(base.__module__):
                yield from (each for each in vars(base).values() if isinstance(each, types.FunctionType))

    def _is_library(self, module: str) -> bool:
        name = module.split(".")[0]
        return name in sys.stdlib_module_names or name in ("torch", "numpy", "memfit")

    def _generator(self, back: Callable[[], object]) -> None:
        self._back.append(back)

    def _array(self, thing: Any) -> None:
        content = thing.copy()
        self._back.append(lambda: thing.__setitem__(..., content))

    def _slot(self, thing: Any, slot: str, value: Any) -> None:
        self._back.append(functools.partial(_set_slot, thing, slot, value))

    def _dict(self, thing: dict[Any, Any]) -> None:
        kind = _kind(thing)
        content = dict(kind.items(thing))

        def back() -> None:
            found = dict(kind.items(thing))
            same = len(found) == len(content)
            if not same or any(a is not b for a, b in zip(found.values(), content.values(), strict=True)):
                kind.clear(thing)
                kind.update(thing, content)

        self._back.append(back)

    def _list(self, thing: Any) -> None:
        content = list(thing)

        def back() -> None:
            if len(thing) != len(content) or any(a is not b for a, b in zip(thing, content, strict=True)):
                thing.clear()
                thing.extend(content)

        self._back.append(back)

    def _set(self, thing: set[Any]) -> None:
        content = set(thing)

        def back() -> None:
            thing.clear()
            thing.update(content)

        self._back.append(back)

    def _cell(self, name: str, cell: types.CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # Empty so far.
            self._back.append(functools.partial(_empty, cell))
            return
        self._back.append(lambda: setattr(cell, "cell_contents", content))
        self._work.append((name, content))

    def _function(self, name: str, function: types.FunctionType) -> None:
        code = function.__code__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
        self._work += [(free, cell) for free, cell in cells]
        for own in (function.__defaults__, function.__kwdefaults__, function.__dict__):
            self._work.append((name, own))
        names = function.__globals__
        for used, stored in _globals(code):
            self._global(names, used, stored)
            if used in names:
                self._work.append((used, names[used]))

    def _global(self, names: dict[str, Any], used: str, stored: bool) -> None:
        if stored and used in names:
            self._back.append(functools.partial(names.__setitem__, used, names[used]))
        elif stored:
            self._back.append(functools.partial(names.pop, used, None))


def _kind(thing: dict[Any, Any]) -> type[dict[Any, Any]]:
    """Whose methods read and write `thing` itself: subclasses may make entries as they are read, or none."""
    return collections.OrderedDict if isinstance(thing, collections.OrderedDict) else dict


def _globals(code: types.CodeType) -> Iterator[tuple[str, bool]]:
    """Names of globals that `code` uses, and whether it binds them."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval, False
        elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield instruction.argval, True
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _globals(inner)


def _generator_state(thing: Any) -> Callable[[], object] | None:
    """Puts a generator of random numbers back."""
    if isinstance(thing, torch.Generator):
        return functools.partial(thing.set_state, thing.get_state())
    if isinstance(thing, random.Random) and not isinstance(thing, random.SystemRandom):
        return functools.partial(thing.setstate, thing.getstate())
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(thing, numpy.Generator):
        bits, state = thing.bit_generator, thing.bit_generator.state
        return functools.partial(setattr, bits, "state", state)
    if numpy is not None and isinstance(thing, numpy.RandomState):
        return functools.partial(thing.set_state, thing.get_state())
    return None


def _is_array(thing: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(thing, numpy.ndarray) and thing.flags.writeable


def _is_fixed(thing: Any) -> bool:
    kind = type(thing)
    if isinstance(thing, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)):
        return True
    if isinstance(thing, io.IOBase):
        return not thing.closed and thing.readable() and not thing.isatty()
    native = kind.__module__ in ("builtins", itertools.__name__)
    return (native and hasattr(kind, "__next__")) or kind.__module__.split(".")[0] in _FIXED_MODULES


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                yield slot if not slot.startswith("__") else f"_{base.__name__.lstrip('_')}{slot}"


def _set_slot(thing: Any, slot: str, value: Any) -> None:
    try:
        setattr(thing, slot, value)
    except AttributeError:  # Its class lets nobody write to it.
        return


def _empty(cell: types.CellType) -> None:
    try:
        del cell.cell_contents
    except ValueError:
        return
