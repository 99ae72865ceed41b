"""One step as the ops that it runs below autograd: what each reads, writes and makes.

A tensor is noted as a window on a storage, since that is what a kernel sees: views are no ops here. What an
optimizer or a scheduler does in its `step` is not taken apart: that call is made again, for its numbers are
Python's.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import (
    _global_optimizer_pre_hooks,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from memfit.torch import _generators, _glue, _objects, _reads, _sizes
from memfit.torch.eager import leaves

SCALAR = 8
"""Bytes of a storage whose content is compared where nothing was seen to make it: `torch.tensor(0.5)`."""
_UNREAD: dict[str, tuple[int | None, tuple[int, ...]]] = {
    "aten.native_batch_norm_backward.default": (7, (3, 4)),
    "aten.cudnn_batch_norm_backward.default": (None, (3, 4)),
}
"""Places of running statistics that backward is handed and does not read where a flag is set: its place."""
_INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Unsuitable(Exception):
    """Why a step can't be replayed."""


class Window(NamedTuple):
    """What a tensor shows of a storage; sizes in elements."""

    storage: int
    """Its number, by first use in the step."""
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass
class Storage:
    """A storage that the step uses."""

    bytes: int
    """Of its block; 0 on a device without a budget."""
    weak: Any
    """Keeps its address from being used again."""
    device: torch.device
    made: bool = False
    """By an op of the step."""
    argument: int | None = None
    """Place among the tensors that the step was called with."""
    content: tuple[int, ...] | None = None
    """Bytes of a small one that was there before its first use."""
    constant: bool = False
    """Made of numbers of the program's alone, by pure ops: `arange(8)`."""


@dataclass
class Call:
    """One op, or a call of a `step` of Python's."""

    func: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    """With windows in the place of tensors."""
    kwargs: dict[str, Any]
    reads: list[int]
    """Storages, each once."""
    writes: list[int]
    effect: str = "once"
    grad: bool = False
    """Whether gradients were on."""
    made: list[tuple[int | None, Window]] = field(default_factory=list)
    """Results with storages of their own, and their places; `None` for a result that is no sequence."""
    statistics: tuple[int, ...] = ()
    """Places of arguments that only the first run updates."""
    time_ns: int = 0
    scratch: int = 0
    bindings: list[tuple[int, Window | None]] = field(default_factory=list)
    """Leaves whose gradient is another when the call begins."""
    is_python: bool = False
    op: Any = None
    """What `func` calls, where that is one op of PyTorch's."""


class Recording(TorchDispatchMode):
    """While it is on, ops are noted. `why` says after it what stands against replaying the step."""

    def __init__(self, native: Any, arguments: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.why: str | None = None
        self.calls: list[Call] = []
        self.storages: list[Storage] = []
        self.leaves: list[torch.Tensor] = []
        self.dropped: list[int] = []
        """Leaves whose gradient of before nobody reads, and which get another or none."""
        self.before: list[int | None] = []
        """Addresses of the storages of the gradients that the step began with."""
        self.last: list[tuple[int, Window | None]] = []
        """Leaves whose gradient is another when the step ends."""
        self.result: Any = None
        """With windows in the place of tensors."""
        self.described: dict[int, Window] = {}
        """What the step shows of each argument that it uses."""
        self.released = 0
        """Bytes of gradients of before that nobody reads."""
        self._native = native
        self._numbers: dict[int | None, int] = {}
        self.arguments = len(arguments)
        self._arguments: dict[int | None, int] = {}
        for at, tensor in enumerate(arguments):
            self._arguments.setdefault(address(tensor), at)
        self._tensors = arguments
        self._bound: list[Window | int | None] = []
        self._inside: _Inside | None = None
        self._known: dict[Any, dict[str, Any]] = {}
        self._state: list[bytes] = []
        self._statistics: set[int] = set()
        self._has_backward = False

    @contextlib.contextmanager
    def on(self) -> Iterator["Recording"]:
        """Notes what is done within it."""
        self.leaves = [leaf for leaf in leaves() if getattr(leaf, _glue.on_device)]
        self._bound = [address(leaf.grad) for leaf in self.leaves]
        holds = [_hold(leaf.grad) for leaf in self.leaves]
        self._sizes = [
            sum(_glue.block(storage.nbytes()) for storage in _glue.storages(leaf.grad))
            for leaf in self.leaves
        ]
        self.before = list(self._bound)  # type: ignore[arg-type]
        shared = _generators.states()
        self._state = shared[2:]
        with contextlib.ExitStack() as stack:
            stack.enter_context(_calls(self))
            stack.enter_context(_reads.heard(self._hear))
            stack.enter_context(self)
            yield self
        del holds
        now = _generators.states()
        if now[:2] != shared[:2]:
            self.refuse("it draws from the generator of `random` or NumPy")
        self._look_at_generators(now[2:])

    def _hear(self, decision: str, owner: Any) -> None:
        """A tensor is read without an op: what becomes of it nobody sees. Constants are always the same."""
        if self._inside is None and not (decision == "restore" and self._is_constant(owner)):
            self.refuse("it reads a tensor without an op (`numpy`, `tolist`, `data_ptr`)")

    def _is_constant(self, owner: Any) -> bool:
        number = self._numbers.get(address(owner) if isinstance(owner, torch.Tensor) else owner._cdata)
        return number is not None and self.storages[number].constant

    def refuse(self, why: str) -> None:
        """The step can't be replayed; the first reason stands."""
        self.why = self.why or why

    def ends(self, result: Any) -> None:
        """The step has returned `result`."""
        if self.why is not None:
            return
        try:
            self.last = self._bindings()
            self.result = self._template(result)
            self._check_results(result)
        except Unsuitable as unsuitable:
            self.refuse(str(unsuitable))
            return
        for storage in self.storages:
            if storage.argument is not None:
                self.described[storage.argument] = self._window(self._tensors[storage.argument])
        self._tensors = []
        self.dropped = [
            at
            for at in sorted(self.bound())
            if self.before[at] is not None and self.before[at] not in self._numbers
        ]
        self.released = sum(self._sizes[at] for at in self.dropped)
        written = {number for call in self.calls for number in call.writes}
        if any(self.storages[number].argument is not None for number in written | self._statistics):
            self.refuse("it writes to its arguments")
        if self._statistics & {number for call in self.calls for number in (*call.reads, *call.writes)}:
            self.refuse("it reads running statistics that it updates")

    def bound(self) -> dict[int, Window | None]:
        """Leaves whose gradient becomes another in the step, and what it is at the end."""
        return dict([*(each for call in self.calls for each in call.bindings), *self.last])

    def _check_results(self, result: Any) -> None:
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                if leaf.grad_fn is not None and not self._has_backward:
                    raise Unsuitable("what it returns is still to be differentiated")
            elif not isinstance(leaf, (int, float, complex, str, bytes, type(None))):
                raise Unsuitable(f"it returns a `{type(leaf).__name__}`")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.why is not None:
            return func(*args, **kwargs)
        call = None
        try:
            info = self._info(func)
            if info["way"] != "metadata" and func.namespace != "profiler":
                call = self._begin(func, info, args, kwargs)
        except Unsuitable as unsuitable:
            self.refuse(str(unsuitable))
        result = func(*args, **kwargs)
        if call is not None:
            try:
                self._end(call, result)
            except Unsuitable as unsuitable:
                self.refuse(str(unsuitable))
        return result

    def _info(self, func: Any) -> dict[str, Any]:
        info = self._known.get(func)
        if info is None:
            info = self._known[func] = _glue.describe(func)
        return info

    def _begin(self, func: Any, info: dict[str, Any], args: Any, kwargs: Any) -> Call | None:
        if torch.is_inference_mode_enabled():
            raise Unsuitable("it runs in inference mode")
        if _glue.is_on_side_stream():
            raise Unsuitable("it runs ops on a stream of its own")
        name = str(info["name"])
        flag, places = info["norm"] or (0, ())
        statistics = tuple(places) if info["norm"] and len(args) > flag and args[flag] else ()
        template, named = self._template(tuple(args)), self._template(kwargs)
        positions, names = info["writes"]
        # A mark may stand for a list of tensors.
        marked = [arg for arg, mark in zip(template, positions, strict=False) if mark]
        marked += [named[key] for key in names if key in named]
        for at in statistics:
            self._statistics |= set(numbers(template[at]))
        on, unread = _UNREAD.get(name, (None, ()))
        left_out = {*statistics, *(unread if on is None or (len(args) > on and args[on] is True) else ())}
        reads = [arg for at, arg in enumerate(template) if at not in left_out]
        read = list(dict.fromkeys(numbers((reads, named))))
        if self._inside is None:
            constant = bool(read) and all(self.storages[number].constant for number in read)
            _check(func, info, args, constant)
            if constant and not _sizes.makes_tensors(func):
                return None  # A number that is the same in each call.
        generator = any(isinstance(leaf, torch.Generator) for leaf in (*args, *kwargs.values()))
        effect = str(info["effect"])
        unordered = info["unordered"]
        if generator or unordered == "always" or (unordered == "threads" and torch.get_num_threads() > 1):
            effect = "once"
        if info["effect"] == "seeded" and not generator:
            self._look_at_generators()
        self._has_backward = self._has_backward or torch._C._current_graph_task_id() != -1
        return Call(
            info["call"],
            name,
            template,
            named,
            read,
            list(dict.fromkeys(numbers(marked))),
            effect,
            torch.is_grad_enabled(),
            statistics=statistics,
            op=func if isinstance(func, torch._ops.OpOverload) else None,
        )

    def _end(self, call: Call, result: Any) -> None:
        call.time_ns, call.scratch = self._native.last_cost()
        several = isinstance(result, (tuple, list))
        for at, made in enumerate(result if several else [result]):
            if isinstance(made, torch.Tensor):
                if address(made) not in self._numbers:
                    window = self._window(made, made=True)
                    call.made.append((at if several else None, window))
            elif made is not None and self._inside is None and not isinstance(made, int):
                raise Unsuitable(f"`{call.name}` gives Python a value")
        if call.effect == "seeded":
            self._state = _generators.states()[2:]
            touched = [*call.writes, *(window.storage for _, window in call.made)]
            if not any(self.storages[number].bytes for number in touched):
                call.effect = "once"  # It draws from the generator of a device without a budget.
        constant = call.effect == "pure" and self._inside is None
        constant = constant and all(self.storages[number].constant for number in call.reads)
        for _, window in call.made:
            self.storages[window.storage].constant = constant
        for number in call.writes:
            self.storages[number].constant &= constant
        if self._inside is not None:
            self._inside.note(call, self.storages)
        elif call.made or call.writes or call.effect != "pure":
            # `_unsafe_view` shows what is there.
            self.calls.append(call)

    def _look_at_generators(self, states: list[bytes] | None = None) -> None:
        """Nobody but ops may have moved PyTorch's generators."""
        if (states or _generators.states()[2:]) != self._state:
            self.refuse("it sets PyTorch's generator, or draws from it unseen")

    def _template(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._window(value)
        if type(value) in (tuple, list):
            return type(value)(self._template(each) for each in value)
        if type(value) is dict:
            return {key: self._template(each) for key, each in value.items()}
        if pytree._get_node_type(value) in pytree.SUPPORTED_NODES:
            return pytree.tree_map_only(torch.Tensor, self._window, value)
        return value

    def _window(self, tensor: torch.Tensor, made: bool = False) -> Window:
        if type(tensor) not in _PLAIN:
            raise Unsuitable(f"it has tensors of class `{type(tensor).__name__}`")
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
            raise Unsuitable("it has tensors that are more than a window on a storage")
        number = self._number(tensor, made)
        offset = int(tensor.storage_offset())
        return Window(number, tensor.dtype, offset, tuple(tensor.shape), tuple(tensor.stride()))

    def _number(self, tensor: torch.Tensor, made: bool) -> int:
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            size = storage.nbytes()
            taken = _glue.block(size) if getattr(tensor, _glue.on_device) else 0
            noted = Storage(taken, Weak(storage), storage.device, made)
            noted.argument = self._arguments.get(storage._cdata)
            if not made and noted.argument is None and size <= SCALAR:
                noted.content = self._content(storage) if size else ()
            number = self._numbers[storage._cdata] = len(self.storages)
            self.storages.append(noted)
        return number

    def _content(self, storage: torch.UntypedStorage) -> tuple[int, ...] | None:
        if not self._native.is_resident(storage):
            return None
        with torch._C._DisableTorchDispatch():
            # Not as a budget watches it: the step itself does not read it.
            return tuple(inspect.unwrap(torch.Tensor.tolist)(_glue.flat(storage)))

    def _bindings(self) -> list[tuple[int, Window | None]]:
        """What gradients have become since it was asked last."""
        found: list[tuple[int, Window | None]] = []
        for at, leaf in enumerate(self.leaves):
            gradient = leaf.grad
            now: Window | int | None = address(gradient)
            if now is not None and gradient is not None:
                if now == self.before[at] and self._bound[at] == now:
                    continue  # As it was, whatever was written to it.
                if now not in self._numbers:
                    raise Unsuitable("a gradient comes about that no op was seen to make")
                now = self._window(gradient)
            if now != self._bound[at]:
                found.append((at, now))  # type: ignore[arg-type]
                self._bound[at] = now
        return found

    def enter(self, func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> None:
        """A call of Python's begins that is made again as it is."""
        if self.why is not None:
            return
        if self._inside is not None:
            self._inside.depth += 1
            return
        try:
            call = Call(func, name, self._template(tuple(args)), self._template(kwargs), [], [])
            call.grad, call.is_python, call.bindings = torch.is_grad_enabled(), True, self._bindings()
            held = [bound.storage for bound in self._bound if isinstance(bound, Window)]
            call.reads = list(dict.fromkeys([*numbers((call.args, call.kwargs)), *held]))
            self._inside = _Inside(call)
        except Unsuitable as unsuitable:
            self.refuse(str(unsuitable))

    def leave(self) -> None:
        """It ends."""
        inside = self._inside
        if inside is None:
            return
        if inside.depth > 0:
            inside.depth -= 1
            return
        self._inside = None
        made = set(inside.made)
        inside.call.reads = [number for number in inside.call.reads if number not in made]
        inside.call.writes = [number for number in inside.call.writes if number not in made]
        inside.call.scratch = inside.peak
        self._state = _generators.states()[2:]
        self.calls.append(inside.call)


class _Inside:
    """A call of Python's whose ops are counted, not noted."""

    def __init__(self, call: Call) -> None:
        self.call, self.depth, self.peak = call, 0, 0
        self.made: list[int] = []

    def note(self, call: Call, storages: list[Storage]) -> None:
        self.made += [window.storage for _, window in call.made]
        alive = sum(storages[number].bytes for number in self.made if not storages[number].weak.expired())
        self.peak = max(self.peak, alive + call.scratch)
        self.call.time_ns += call.time_ns
        self.call.reads = list(dict.fromkeys([*self.call.reads, *call.reads, *call.writes]))
        self.call.writes = list(dict.fromkeys([*self.call.writes, *call.writes]))


class Weak:
    """A storage that may go; its address is not used again as long as this is there."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.address = storage._cdata
        self._weak = storage._weak_ref()

    def expired(self) -> bool:
        """Whether it has gone."""
        return bool(torch.UntypedStorage._expired(self._weak))

    def strong(self) -> torch.UntypedStorage | None:
        """The storage, if it is still there."""
        made: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self._weak)
        return made

    def __del__(self, free: Callable[[Any], None] = torch.UntypedStorage._free_weak_ref) -> None:
        free(self._weak)  # When the interpreter ends, modules may be gone.


def numbers(template: Any) -> Iterator[int]:
    """Storages of the windows in `template`."""
    leaves = pytree.tree_leaves(template, is_leaf=lambda leaf: isinstance(leaf, Window))
    return (leaf.storage for leaf in leaves if isinstance(leaf, Window))


def _depends_on_data(func: Any, info: dict[str, Any], args: Any) -> bool:
    """Whether what an op makes, and not just what is in it, depends on what is in its operands."""
    tagged = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)
    if func._schema.name in _INDEXED:
        # By places it is known how many come out, by masks it is not.
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return bool(tagged or info["by_data"])


def _check(func: Any, info: dict[str, Any], args: Any, constant: bool) -> None:
    name = info["name"]
    if info["way"] != "compute" or info["pointed"] or info["parts"] or info["foreign"]:
        raise Unsuitable(f"it runs `{name}`")
    if func.namespace != "aten":
        raise Unsuitable(f"it runs `{name}`, which is none of PyTorch's own")
    kinds = {str(value.type) for value in func._schema.returns}
    # Attention says beside its tensors how long its sequences are: numbers that follow from shapes.
    tensors = {"Tensor", "List[Tensor]", "Optional[Tensor]"}
    known = tensors | {"int"} if kinds & tensors else tensors
    if not constant and (_depends_on_data(func, info, args) or not kinds <= known):
        raise Unsuitable(f"what it does depends on data (`{name}`)")
    if _glue.is_chosen_by_time(name):
        raise Unsuitable(f"`cudnn.benchmark` chooses the algorithm of `{name}` in each thread anew")


def address(tensor: torch.Tensor | None) -> int | None:
    """What names the storage of a tensor; -1 for a sparse one and the like."""
    if tensor is None:
        return None
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else -1


def _hold(tensor: torch.Tensor | None) -> Weak | None:
    if tensor is None or tensor.layout is not torch.strided:
        return None
    return Weak(tensor.untyped_storage())


@contextlib.contextmanager
def _calls(recording: Recording) -> Iterator[None]:
    """While it lasts, `recording` is told where a `step` of an optimizer or a scheduler begins and ends."""

    def begins(optimizer: Any, args: Any, kwargs: Any) -> None:
        recording.enter(_step_of(optimizer), f"{type(optimizer).__name__}.step", args[1:], kwargs)

    def ends(*_: Any) -> None:
        recording.leave()

    hooks = [register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)]
    # Others' hooks run within: the call that is made again runs them.
    first: Any = _global_optimizer_pre_hooks
    first.move_to_end(hooks[0].id, last=False)
    schedulers = [scheduler for scheduler in _objects.every(LRScheduler) if "step" not in vars(scheduler)]
    for scheduler in schedulers:
        scheduler.step = _told(recording, scheduler)
    try:
        yield
    finally:
        for scheduler in schedulers:
            del scheduler.step
        for hook in hooks:
            hook.remove()


def _step_of(owner: Any) -> Callable[..., Any]:
    """Its class's `step`. What others have put in its place for this one object has been noted op by op."""

    def step(*args: Any, **kwargs: Any) -> Any:
        return type(owner).step(owner, *args, **kwargs)

    vars(step)["owner"] = owner
    return step


def _told(recording: Recording, scheduler: Any) -> Callable[..., Any]:
    step = scheduler.step

    def told(*args: Any, **kwargs: Any) -> Any:
        recording.enter(_step_of(scheduler), f"{type(scheduler).__name__}.step", args, kwargs)
        try:
            return step(*args, **kwargs)
        finally:
            recording.leave()

    return told


def difference(one: Recording, other: Recording) -> str | None:
    """Why two recordings are not of the same step."""
    if one.why or other.why:
        return one.why or other.why
    if len(one.calls) != len(other.calls):
        return f"it runs {len(one.calls)} ops, then {len(other.calls)}"
    for a, b in zip(one.calls, other.calls, strict=True):
        if a.name != b.name:
            return f"it runs `{a.name}`, then `{b.name}`"
        if not (_same(a.args, b.args) and _same(a.kwargs, b.kwargs)):
            return f"what it hands to `{a.name}` changes from call to call"
        if (a.made, a.reads, a.writes, a.effect, a.grad) != (b.made, b.reads, b.writes, b.effect, b.grad):
            return f"`{a.name}` is another op from call to call"
        if _owner(a) is not _owner(b) or _bound(one, a.bindings) != _bound(other, b.bindings):
            return f"what `{a.name}` finds changes from call to call"
    for number, (x, y) in enumerate(zip(one.storages, other.storages, strict=True)):
        if (x.bytes, x.made, x.argument) != (y.bytes, y.made, y.argument):
            return "the sizes of its tensors change from call to call"
        is_there = not y.weak.expired() and x.weak.address == y.weak.address
        if (
            not y.made
            and y.argument is None
            and not is_there
            and (y.content is None or x.content != y.content)
        ):
            reader = next(call.name for call in other.calls if number in (*call.reads, *call.writes))
            return f"`{reader}` reads a tensor of {y.bytes} bytes that no op was seen to make"
    if _bound(one, one.last) != _bound(other, other.last) or not _same(one.result, other.result):
        return "what it returns changes from call to call"
    return None


def _owner(call: Call) -> Any:
    return getattr(call.func, "owner", call.func)


def _bound(
    recording: Recording, bindings: list[tuple[int, Window | None]]
) -> list[tuple[int, Window | None]]:
    return [(id(recording.leaves[at]), window) for at, window in bindings]


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Window):
        return bool(one == other)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(_same, one.values(), other.values()))
    if pytree._get_node_type(one) in pytree.SUPPORTED_NODES:
        flat, spec = pytree.tree_flatten(one)
        leaves, found = pytree.tree_flatten(other)
        return spec == found and all(map(_same, flat, leaves))
    if isinstance(one, float) and one != one:
        return bool(other != other)
    return bool(one is other or one == other)
