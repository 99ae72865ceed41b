"""Functions of PyTorch that call an op in less time than it takes to be called by its name.

Each has a parser for its own arguments, where ops share one for all. None is taken on trust: each was seen to
call the op with the recorded arguments, and to give back what that gives.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memfit.torch._replay._record import Call, Window

_HOMES: tuple[Any, ...] = (torch._C._VariableFunctions, torch._C._nn, torch._C.TensorBase)
"""Where such functions are, by the names of their ops."""


def quickest(call: Call) -> Callable[..., Any]:
    """What calls the op of `call` soonest, with the same arguments."""
    op = call.op
    if op is None or op.namespace != "aten":
        return call.func
    for home in _HOMES:
        function = getattr(home, op._schema.name.removeprefix("aten::"), None)
        if function is not None and _calls(function, op, call):
            return function  # type: ignore[no-any-return]
    return call.func


def _calls(function: Callable[..., Any], op: Any, call: Call) -> bool:
    """Whether `function` with the arguments of `call` is one call of `op` with them, and nothing else."""
    args, kwargs = _stand_in(call.args), _stand_in(call.kwargs)
    seen = _Seen(op)
    try:
        with torch._C._AutoDispatchBelowAutograd(), seen:
            result = function(*args, **kwargs)
    except Exception:
        return False
    if len(seen.calls) != 1 or not _same(seen.calls[0], (op, args, kwargs)):
        return False
    results = result if isinstance(result, (tuple, list)) else (result,)
    return len(results) == len(seen.results) and all(map(operator.is_, results, seen.results))


class _Seen(TorchDispatchMode):
    """Notes calls, and answers them with tensors that have no content."""

    def __init__(self, op: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, Any, Any]] = []
        self.results: list[Any] = []
        self._op = op

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args, kwargs or {}))
        self.results = list(_results(self._op, args, kwargs or {}))
        return self.results[0] if len(self.results) == 1 else tuple(self.results)


def _results(op: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """What is written to, where that is returned; else a tensor of its own."""
    written: dict[str, Any] = {}
    for at, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = kwargs.get(argument.name) if argument.kwarg_only else args[at]
            written[str(argument.alias_info.before_set)] = given
    for returned in op._schema.returns:
        if not isinstance(returned.type, torch.TensorType):
            raise TypeError(f"`{op}` returns more than tensors")
        alias = returned.alias_info
        yield torch.empty(0, device="meta") if alias is None else written[str(alias.before_set)]


def _stand_in(value: Any) -> Any:
    """With tensors without content in the place of windows."""
    if isinstance(value, Window):
        return torch.empty_strided(value.size, value.stride, dtype=value.dtype, device="meta")
    if type(value) in (tuple, list):
        return type(value)(_stand_in(each) for each in value)
    if type(value) is dict:
        return {key: _stand_in(each) for key, each in value.items()}
    return value


def _same(seen: Any, given: Any) -> bool:
    """Tensors are the same objects, everything else has the same type and is equal."""
    if isinstance(given, torch.Tensor):
        return seen is given
    if isinstance(given, (tuple, list)):
        alike = isinstance(seen, (tuple, list)) and len(seen) == len(given)
        return alike and all(map(_same, seen, given))
    if type(given) is dict:
        alike = type(seen) is dict and seen.keys() == given.keys()
        return alike and all(_same(seen[key], given[key]) for key in given)
    return type(seen) is type(given) and bool(seen == given or (seen != seen and given != given))
