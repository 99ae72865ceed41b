"""A planned step as one function of Python's: straight-line code, a line for each op.

Locals hold what a plan's buffers hold; a local that is deleted gives its memory back.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memfit.torch import _glue
from memfit.torch._replay._binding import quickest
from memfit.torch._replay._planned import Free, Planned, Run
from memfit.torch._replay._record import Call, Recording, Unsuitable, Window

_below = torch._C._AutoDispatchBelowAutograd


class Program:
    """What a step does, to be done again with other arguments."""

    def __init__(self, recording: Recording, planned: Planned) -> None:
        self._recording, self._planned = recording, planned
        self._names: dict[str, Any] = {
            "below": _below,
            "set_grad": torch._C._set_grad_enabled,
            "as_strided": torch.as_strided,
            "window": _glue.window,
            "draw": _glue.default_generator().get_state,
            "put": _glue.default_generator().set_state,
        }
        self._functions: dict[int, Callable[..., Any]] = {}
        """What makes each call, by its address."""
        self._known: dict[int, str] = {}
        """Names of objects, by their addresses."""
        self._constants: dict[Window, str] = {}
        self._leaves: dict[int, str] = {}
        self._locals: dict[int, dict[Window, str]] = {}
        """Names of the windows on each buffer."""
        self._bound: dict[int, list[int]] = {}
        """Leaves whose gradient is in a buffer."""
        self._buffer_of: dict[int, int] = {}
        """Where each storage is now."""
        self._count = 0
        self._lines: list[str] = []
        self._depth = 1
        self._grad: bool | None = None
        self._storages: dict[int, torch.UntypedStorage] = {}
        self.run = self._compiled()
        """From the tensors among the arguments to what the step returns."""

    def _compiled(self) -> Callable[..., Any]:
        recording = self._recording
        for action in self._planned.actions:
            if isinstance(action, Free):
                self._free(action.buffer)
            elif recording.calls[action.call].is_python:
                self._python(recording.calls[action.call], action)
            else:
                self._op(recording.calls[action.call], action)
        self._outside()
        for storage, buffer in self._planned.results.items():
            self._buffer_of[storage] = buffer
        self._bind(recording.last)
        self._line(f"return build({self._result()})")
        inputs = ", ".join(f"x{at}" for at in range(recording.arguments))
        source = "\n".join([f"def run({inputs}):", *self._lines])
        exec(compile(source, "<memfit replay>", "exec"), self._names)
        run: Callable[..., Any] = self._names["run"]
        return run

    def _line(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def _inside(self) -> None:
        """From here on below autograd."""
        if self._depth == 1:
            self._line("with below():")
            self._depth = 2

    def _outside(self) -> None:
        self._depth = 1

    def _set_grad(self, grad: bool) -> None:
        if grad != self._grad:
            self._line(f"set_grad({grad})")
            self._grad = grad

    def _op(self, call: Call, action: Run) -> None:
        self._inside()
        self._set_grad(call.grad)
        self._buffer_of.update(action.reads)
        args = [
            "None" if action.again and at in call.statistics else self._expression(arg)
            for at, arg in enumerate(call.args)
        ]
        args += [f"{key}={self._expression(value)}" for key, value in call.kwargs.items()]
        # One that updates no statistics is handed none: of such a call nothing was seen.
        func = call.func if action.again and call.statistics else self._quickest(call)
        text = f"{self._constant(func, 'f')}({', '.join(args)})"
        saved = f"g{action.call}"
        if call.effect == "seeded" and action.again:
            self._line("now = draw()")
            self._line(f"put({saved})")
        elif call.effect == "seeded" and action.repeats:
            self._line(f"{saved} = draw()")
        self._take_over(action)
        if not call.made:
            self._line(text)
        elif call.made[0][0] is None:
            self._line(f"{self._made(call.made[0][1], action)} = {text}")
        else:
            self._line(f"r = {text}")
            for at, window in call.made:
                self._line(f"{self._made(window, action)} = r[{at}]")
            self._line("del r")
        if call.effect == "seeded" and action.again:
            self._line("put(now)")
            self._line("del now" if action.repeats else f"del now, {saved}")

    def _quickest(self, call: Call) -> Callable[..., Any]:
        if id(call) not in self._functions:
            self._functions[id(call)] = quickest(call)
        return self._functions[id(call)]

    def _made(self, window: Window, action: Run) -> str:
        buffer = action.writes[window.storage]
        self._buffer_of[window.storage] = buffer
        name = self._name()
        self._locals.setdefault(buffer, {})[window] = name
        return name

    def _take_over(self, action: Run) -> None:
        """What is written to is from now on what it holds then."""
        for storage, buffer in action.writes.items():
            before = action.reads.get(storage)
            if before is not None and before != buffer:
                self._locals[buffer] = self._locals.pop(before, {})
                self._bound[buffer] = self._bound.pop(before, [])
                self._buffer_of[storage] = buffer

    def _python(self, call: Call, action: Run) -> None:
        self._buffer_of.update(action.reads)
        self._outside()
        self._bind(call.bindings)
        args = [self._expression(arg) for arg in call.args]
        args += [f"{key}={self._expression(value)}" for key, value in call.kwargs.items()]
        self._set_grad(call.grad)
        self._line(f"{self._constant(call.func, 'f')}({', '.join(args)})")
        self._take_over(action)

    def _bind(self, bindings: list[tuple[int, Window | None]]) -> None:
        for at, window in bindings:
            leaf = self._leaves.get(at)
            if leaf is None:
                leaf = self._leaves[at] = self._constant(self._recording.leaves[at], "p")
            for leaves in self._bound.values():
                if at in leaves:
                    leaves.remove(at)
            self._line(f"{leaf}.grad = {'None' if window is None else self._expression(window)}")
            if window is not None and self._recording.storages[window.storage].made:
                self._bound.setdefault(self._buffer_of[window.storage], []).append(at)

    def _free(self, buffer: int) -> None:
        for at in self._bound.pop(buffer, []):
            self._line(f"{self._leaves[at]}.grad = None")
        names = list(dict.fromkeys(self._locals.pop(buffer, {}).values()))
        if names:
            self._line(f"del {', '.join(names)}")

    def _expression(self, value: Any) -> str:
        if isinstance(value, Window):
            return self._window(value)
        if type(value) is tuple:
            return "(" + "".join(f"{self._expression(each)}, " for each in value) + ")"
        if type(value) is list:
            return "[" + ", ".join(self._expression(each) for each in value) + "]"
        if value is None or type(value) in (bool, int):
            return repr(value)
        return self._constant(value, "k")

    def _constant(self, value: Any, kind: str) -> str:
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"{kind}{len(self._names)}"
            self._names[name] = value
        return name

    def _window(self, window: Window) -> str:
        storage = self._recording.storages[window.storage]
        if storage.argument is not None:
            return self._on_argument(window, storage.argument)
        if not storage.made:
            return self._on_constant(window)
        windows = self._locals[self._buffer_of[window.storage]]
        return self._on_local(window, windows)

    def _on_constant(self, window: Window) -> str:
        name = self._constants.get(window)
        if name is None:
            storage = self._storage(window.storage)
            with torch.no_grad(), _below():
                tensor = _glue.window(storage, window.dtype, window.offset, window.size, window.stride)
            name = self._constants[window] = self._constant(tensor, "w")
        return name

    def _storage(self, number: int) -> torch.UntypedStorage:
        if number not in self._storages:
            noted = self._recording.storages[number]
            strong = noted.weak.strong()
            if strong is None and noted.content is not None:
                strong = torch.UntypedStorage(list(noted.content)).to(device=noted.device)
            if strong is None:
                raise Unsuitable("it reads a tensor that no op was seen to make")
            self._storages[number] = strong
        return self._storages[number]

    def _on_argument(self, window: Window, at: int) -> str:
        windows = self._locals.setdefault(~at, {self._recording.described[at]: f"x{at}"})
        return self._on_local(window, windows)

    def _on_local(self, window: Window, windows: dict[Window, str]) -> str:
        name = windows.get(window)
        if name is None:
            name = self._name()
            base = next((known for seen, known in windows.items() if seen.dtype == window.dtype), None)
            if base is not None:
                self._line(f"{name} = as_strided({base}, {window.size}, {window.stride}, {window.offset})")
            else:
                owner = next(iter(windows.values()))
                dtype = self._constant(window.dtype, "k")
                rest = f"{dtype}, {window.offset}, {window.size}, {window.stride}"
                self._line(f"{name} = window({owner}.untyped_storage(), {rest})")
            windows[window] = name
        return name

    def _result(self) -> str:
        leaves, spec = pytree.tree_flatten(
            self._recording.result, is_leaf=lambda leaf: isinstance(leaf, Window)
        )
        self._names["build"] = lambda values: pytree.tree_unflatten(values, spec)
        return "[" + ", ".join(self._expression(leaf) for leaf in leaves) + "]"
