"""Code that `torch.compile` has generated runs under a budget as one op.

What it allocates and writes inside is not seen op by op, and it is not run again. So its operands come back
and stay while it runs, what it overwrites gets a new version, room is made for what it took the last time,
and what it makes is counted and kept. Its first run with operands of given sizes has all the room that there
is; if it took more, that is an error.
"""

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

import memfit
from memfit.torch import _glue

_HOME = "torch._inductor.output_code"
_KINDS = ("CompiledFxGraph", "CompiledAOTI")
_active: Callable[[], Any] = lambda: None  # noqa: E731
_unpatched: Callable[[], Any] = contextlib.nullcontext
# By the address of the code: bytes that it took, by the shapes of its operands.
_sizes: dict[int, dict[Any, int]] = {}


def watch(active: Callable[[], Any], unpatched: Callable[[], Any]) -> None:
    """From here on `active` is asked for the budget that the ops of this thread are under; within a block of
    `unpatched` functions of PyTorch's are themselves.
    """
    global _active, _unpatched
    _active, _unpatched = active, unpatched
    _wrap_generated()
    if "torch._dynamo" in sys.modules:
        _wrap_after_compiling()


def compile_function() -> tuple[Any, str, Any]:
    """`torch.compile`, replaced: owner, name, wrapper."""
    original = torch.compile

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        _wrap_after_compiling()
        return compiled

    return torch, "compile", compile


def increment_function() -> tuple[Any, str, Any]:
    """The function that counts writes, replaced: owner, name, wrapper.

    Before AOTAutograd runs a graph it counts the writes that the graph will make, whether they will be seen
    or not. So what was computed from these tensors comes back first. Whoever else counts may have written.
    """
    original = torch._C._increment_version

    @functools.wraps(original)
    def increment(tensors: Any) -> None:
        tensors = tuple(tensors)
        budget = _active()
        if budget is not None and "_increment_version_" in sys._getframe(2).f_globals:
            with torch._C._DisableTorchDispatch():
                storages = (storage for tensor in tensors for storage in _glue.storages_of(tensor))
                for storage in {id(storage): storage for storage in storages}.values():
                    if storage.device.type == budget.device.type:
                        budget._native.overwrite(storage)
        original(tensors)

    return torch._C, "_increment_version", increment


@functools.cache
def _wrap_after_compiling() -> None:
    # Inductor is imported by the first function that is compiled by it.
    from torch._dynamo import trace_rules
    from torch._dynamo.callback import callback_handler

    callback_handler.register_end_callback(lambda *_: _wrap_generated())
    # Dynamo makes its table of functions once, by their names: under a budget, of the wrappers.
    if torch.tensor in trace_rules.get_torch_obj_rule_map():
        trace_rules.get_torch_obj_rule_map.cache_clear()
        with _unpatched():
            trace_rules.get_torch_obj_rule_map()


def _wrap_generated() -> None:
    home = sys.modules.get(_HOME)
    for name in _KINDS:
        kind = getattr(home, name, None)
        if kind is not None and not hasattr(kind.__call__, "__wrapped__"):
            kind.__call__ = _wrapper(kind.__call__)


def _wrapper(original: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, inputs: Any) -> Any:
        budget = _active()
        if budget is None:
            return original(self, inputs)
        with torch._C._DisableTorchDispatch():
            return _run(budget, self, inputs, original)

    return call


def _run(budget: Any, code: Any, inputs: Any, original: Any) -> Any:
    native, kind = budget._native, budget.device.type
    written = getattr(code, "mutated_input_idxs", None)
    operands: dict[int, torch.UntypedStorage] = {}
    overwritten: dict[int, torch.UntypedStorage] = {}
    for at, operand in enumerate(inputs):
        for storage in _glue.storages_of(operand) if isinstance(operand, torch.Tensor) else ():
            if storage.device.type == kind:
                operands[id(storage)] = storage
                if written is None or at in written:
                    overwritten[id(storage)] = storage
    key = tuple(
        (operand.dtype, *operand.shape) if isinstance(operand, torch.Tensor) else operand
        for operand in inputs
    )
    for storage in overwritten.values():
        native.overwrite(storage)
    pinned: list[torch.UntypedStorage] = []
    try:
        for storage in operands.values():
            native.pin(storage)
            pinned.append(storage)
        taken = _make_room(budget, _sizes.get(id(code), {}).get(key))
        result, peak = _glue.measure_peak(original, (code, inputs))
    finally:
        for storage in pinned:
            native.unpin(storage)
    made = {
        id(storage): storage
        for tensor in _glue.tensors(result)
        for storage in _glue.storages_of(tensor)
        if storage.device.type == kind and id(storage) not in operands
    }
    for storage in made.values():
        native.adopt(storage)
    if peak is not None:
        if taken is None:
            native.make_room(max(0, peak - sum(storage.nbytes() for storage in made.values())))
        if id(code) not in _sizes:
            weakref.finalize(code, _sizes.pop, id(code), None)
        _sizes.setdefault(id(code), {})[key] = max(peak, taken or 0)
    return result


def _make_room(budget: Any, known: int | None) -> int | None:
    if known is not None:
        budget._native.make_room(known)
        return known
    with contextlib.suppress(memfit.BudgetError):  # All that can go has gone then.
        budget._native.make_room(budget.budget)
    return None
