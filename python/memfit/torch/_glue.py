"""What the native host asks of PyTorch: how an op behaves, what it will make, how it is called again, and how
the bytes of a storage go and come back. Every use of a private function of PyTorch's is in this file.
"""

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from memfit import _memfit
from memfit.torch import _cuda, _infer, _ops, _parts, _sizes, _storages, _switches
from memfit.torch._errors import budget_error
from memfit.torch._order import unordered

tensor = torch.Tensor
fake = FakeTensor
parameter = torch.nn.Parameter
generator = torch.Generator
tensors = _parts.tensors
infer = _infer.infer
sizes = _infer.sizes
on_device = "is_cpu"
"""Set by `track`: the attribute of a tensor that is true on the tracked device."""

state_bytes = torch.default_generator.get_state().nbytes
"""Set by `track`: bytes of a generator's state."""

_device = torch.device("cpu")
_rows: list[_switches.Row] = []
looks: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
"""Set by `track`: functions and arguments; while they give the same, `switches` does."""

EVICTED = (
    "this tensor was evicted by memfit, and is read past it: by another thread, or by native code\n"
    "hint: `memfit.torch.restore(tensor)` or `memfit.torch.pin(tensor)` before, in the thread that has the "
    "budget"
)


read_by_native: list[torch.dtype] = []
"""Set by `track`: dtypes of small tensors that native code reads by their addresses: lengths, offsets, the
states of generators. It does so on the CPU alone.
"""


side_stream: Callable[[], bool] | None = None
"""Set by `track`, where there are streams: whether ops run on another one than the device's own."""


timed: Callable[..., tuple[Any, int, int, int]] | None = None
"""Set by `track`, where calls return before they are done: `_cuda.timed`."""


def track(device: torch.device) -> None:
    """Storages of `device` are what the budget is for."""
    global on_device, state_bytes, side_stream, timed, _device, _rows
    if device.type == "cuda":
        torch.cuda.init()  # Generators are there from then on.
    on_device = f"is_{device.type}"
    _device, _rows = device, _switches.rows(device.type)
    looks[:] = [look for row in _rows for look in row.looks]
    side_stream = _cuda.is_on_side_stream if device.type == "cuda" else None
    timed = _cuda.timed if device.type == "cuda" else None
    read_by_native[:] = [torch.int64, torch.int32, torch.uint8] if device.type == "cpu" else []
    state_bytes = default_generator(None).get_state().nbytes


# Ops

_RESIZE = ("resize", "set_", "_resize_output")
# Position of the flag for training, and of the running statistics that a repetition leaves alone.
_NORMS = {
    "aten::native_batch_norm": (5, [3, 4]),
    "aten::cudnn_batch_norm": (5, [3, 4]),
    "aten::miopen_batch_norm": (5, [3, 4]),
}
# Positions of tensors whose gradient PyTorch computes by another formula where a dispatch mode is active.
_INEXACT = {
    "aten::prod": {"": [0], "dim_int": [0]},
    "aten::masked_fill": {"Tensor": [2]},
    "aten::masked_fill_": {"Tensor": [2]},
}
_KNOWN_NAMESPACES = ("aten", "prims", "torchvision")
# They write running statistics, and their schemas do not say so: inference mode shows the first ones whole.
_SILENT_NORMS = (
    "aten::batch_norm", "aten::_batch_norm_impl_index", "aten::instance_norm",
    "aten::batch_norm_update_stats", "aten::batch_norm_gather_stats",
    "aten::batch_norm_gather_stats_with_counts",
)  # fmt: skip
# Positions of results that recurrent nets read by their addresses, with other ops in between.
_POINTED = {"aten::_pack_padded_sequence": [1]}
# Memory without content, or whose content others may write.
_RAW = ("empty", "new_empty", "from_file")
# What they are given to write to is overwritten as a whole, whatever it held.
_FILLS = (
    "fill_", "zero_", "copy_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_",
    "geometric_", "cauchy_", "log_normal_",
)  # fmt: skip
_FILLS_OUT = (
    "mm", "addmm", "bmm", "baddbmm", "addmv", "cat", "stack", "sum", "mean", "index_select", "gather",
    "arange", "linspace", "full", "zeros", "ones", "rand", "randn",
)  # fmt: skip


# Ops whose results are of tensors, though they have a storage.
_PARTS = re.compile("nested|quanti|sparse")


def describe(func: Any) -> dict[str, Any]:
    """How `func` treats its arguments and whether it may be called again."""
    schema, tags, namespace = func._schema, func.tags, func.namespace
    written = [
        argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments
    ]
    base = schema.name.split("::")[-1]
    collective = "c10d" in namespace
    if namespace == "c10d":
        # Its schemas do not say what they write.
        written = ["Tensor" in str(argument.type) for argument in schema.arguments]
    if schema.name in _SILENT_NORMS:
        written = [argument.name.startswith("running_") for argument in schema.arguments]
    factory = not any("Tensor" in str(argument.type) for argument in schema.arguments)
    sized = [factory or _decides_size(str(argument.type)) for argument in schema.arguments]
    return {
        "call": _direct(func),
        "name": f"{namespace}.{func.__name__}" if hasattr(func, "__name__") else str(func),
        "way": _way(func, base, any(written)),
        "effect": _effect(func, base, namespace, tags),
        # Another stream goes on with the tensor that `record_stream` names.
        "foreign": collective or base == "record_stream",
        "parts": _PARTS.search(base) is not None,
        "volatile": namespace not in _KNOWN_NAMESPACES and any(written),
        "makes": len(schema.returns) > 0,
        "by_data": schema.name in _sizes.BY_DATA,
        "writes": _marked(schema, written),
        "sized": _marked(schema, sized),
        "norm": _NORMS.get(schema.name),
        "inexact": _INEXACT.get(schema.name, {}).get(schema.overload_name, []),
        "pointed": _POINTED.get(schema.name, []),
        "unordered": unordered(base, on_device == "is_cpu"),
        "raw": base.lstrip("_").startswith(_RAW) and not any(written) and not _is_distributed(),
        "fills": _fills(func, base),
        "signs": _signs(f"{namespace}.{getattr(func, '__name__', '')}"),
        "shape": _ops.SHAPE_ONLY.get(f"{namespace}.{getattr(func, '__name__', '')}"),
    }


def _direct(func: Any) -> Any:
    """What `func`, of PyTorch's own, only hands its arguments to; of others `func`."""
    if type(func) is not torch._ops.OpOverload or func.namespace != "aten":
        return func
    return func if getattr(func, "_pyobj_dispatcher", None) is not None else func._op


def _signs(name: str) -> tuple[int, int | None] | None:
    """The operand (position) of which the op called `name` reads signs alone, and the number that is 0."""
    at = _ops.SIGN_ONLY.get(name)
    return None if at is None else (at, 2 if name == "aten.threshold_backward.default" else None)


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _fills(func: Any, base: str) -> bool:
    if func.namespace != "aten":
        return False
    if base in _FILLS:
        return True
    out = [argument for argument in func._schema.arguments if argument.is_out]
    return len(out) == 1 and (torch.Tag.pointwise in func.tags or base in _FILLS_OUT)


def _decides_size(kind: str) -> bool:
    """Whether a number for an argument of this kind does; one in the place of a tensor is an operand."""
    return kind not in _VALUES


_VALUES = (
    "number", "Optional[number]", "float", "Optional[float]", "List[number]", "Generator",
    "Tensor", "Optional[Tensor]",
)  # fmt: skip


def _marked(schema: Any, marks: list[bool]) -> tuple[list[bool], list[str]]:
    marked = list(zip(schema.arguments, marks, strict=True))
    positions = [mark for argument, mark in marked if not argument.kwarg_only]
    return positions, [argument.name for argument, mark in marked if mark]


def _way(func: Any, base: str, writes: bool) -> str:
    if _is_in_python(func):
        return "transparent"
    if "nested" in base:
        return "compute"  # Views as well: their sizes are tensors, which kernels read.
    if torch.Tag.inplace_view in func.tags or base.startswith(_RESIZE):
        return "resize" if base.startswith(_RESIZE) else "metadata"
    if func.namespace == "prim":
        return "metadata"
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        # Seen in inference mode alone; `reshape` and the like may copy.
        return "compute"
    returns = func._schema.returns
    views = all(value.alias_info is not None and not value.alias_info.is_write for value in returns)
    return "metadata" if returns and views and not writes else "compute"


def _is_in_python(func: Any) -> bool:
    """Whether the kernel for the tracked device is a function of Python's: its own ops are seen."""
    namespace, name = func.name().split("::")
    if namespace in _KNOWN_NAMESPACES or "c10d" in namespace:
        return False
    kernels = torch.library._impls
    return any(f"{namespace}/{name}/{key}" in kernels for key in (_backend(), "CompositeExplicitAutograd"))


def _backend() -> str:
    return "CPU" if on_device == "is_cpu" else "CUDA"


def call_within(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Calls an op whose kernel is a function of Python's, with `mode` active in it."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _backend()))
    with mode:
        return func.redispatch(keys, *args, **(kwargs or {}))


def _effect(func: Any, base: str, namespace: str, tags: Any) -> str:
    if "c10d" in namespace:
        return "collective"
    if namespace not in _KNOWN_NAMESPACES or base.startswith(("_foreach_", "_fused_", "_amp_")):
        return "once"
    if base.lstrip("_").startswith(_RAW):
        return "once"  # Extensions fill it by its address, and so do collectives.
    if _PARTS.search(base) or base == "record_stream":
        return "once"
    if torch.Tag.maybe_aliasing_or_mutating in tags or torch.Tag.data_dependent_output in tags:
        return "once"
    if on_device != "is_cpu":
        bitwise = getattr(torch.Tag, "nondeterministic_bitwise", None)
        if bitwise in tags or _cuda.is_chosen_anew(base):
            return "once"
        if torch.Tag.nondeterministic_seeded in tags and torch.cuda.device_count() > 1:
            return "once"  # Which device's generator it draws from is not seen.
    return "seeded" if torch.Tag.nondeterministic_seeded in tags else "pure"


def is_on_side_stream() -> bool:
    """Whether ops run on another stream than the tracked device's own."""
    return side_stream is not None and side_stream()


def is_chosen_by_time(name: str) -> bool:
    """Whether the op may have another algorithm in another thread."""
    return _device.type == "cuda" and _cuda.is_chosen_by_time(name)


def op_named(name: str) -> Any:
    """The op that `str` gives this name; `None` if there is none."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


# Storages of tensors


def storages(value: Any) -> Iterator[torch.UntypedStorage]:
    """The storages of the tensors in `value`: of a wrapper, as a `DTensor`, those that it wraps, of a sparse
    tensor those of its parts."""
    for tensor in tensors(value):
        if is_wrapper(tensor):
            inner = tensor.__tensor_flatten__()[0]  # type: ignore[attr-defined]  # A wrapper has it.
            yield from storages([getattr(tensor, name) for name in inner])
            continue
        try:
            yield tensor.untyped_storage()
        except NotImplementedError:
            yield from (part.untyped_storage() for part in _parts.inside(tensor))


quantized = _parts.QUANTIZED
"""Dtypes of tensors whose bytes do not say what they are."""


def parts(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """The storages on the tracked device that a tensor is made of which is more than a window on one."""
    if _parts.is_opaque(tensor):
        return [_parts.stand_in(tensor)]
    return [part.untyped_storage() for part in _parts.inside(tensor) if getattr(part, on_device)]


def storages_of(owner: torch.Tensor | torch.UntypedStorage) -> list[torch.UntypedStorage]:
    """The storages behind a tensor or a storage; none where there are none yet, as of a lazy parameter."""
    if isinstance(owner, torch.UntypedStorage):
        return [owner]
    try:
        return list(storages(owner))
    except (RuntimeError, NotImplementedError, ValueError):
        return []


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether the tensor only wraps others, as a `DTensor`."""
    return hasattr(type(tensor), "__tensor_flatten__")


def measure(func: Any, args: Any, kwargs: Any, on: str | None = None) -> tuple[Any, int | None]:
    """Calls, and returns the result and the scratch bytes that PyTorch's allocator was asked for meanwhile.

    `on` is the attribute of another device than the tracked one. `None` where nobody can count.
    """
    result, peak, used = _measure(func, args, kwargs, on or on_device)
    return result, None if peak is None else max(0, peak - max(used, 0))


def measure_peak(func: Any, args: Any, kwargs: Any = None) -> tuple[Any, int | None]:
    """As `measure`, with the bytes of what is made."""
    return _measure(func, args, kwargs, on_device)[:2]


def _measure(func: Any, args: Any, kwargs: Any, on: str) -> tuple[Any, int | None, int]:
    """The result, the most bytes at a time beyond those of before, and those at the end."""
    if on == "is_cuda":
        return _cuda.measured(lambda: func(*args, **(kwargs or {})))
    if on != "is_cpu" or not COUNTED:
        return func(*args, **(kwargs or {})), None, 0
    before, outer = _memfit.allocator_begin(True)
    try:
        result = func(*args, **(kwargs or {}))
    finally:
        after, peak = _memfit.allocator_end(True, outer)
    return result, peak - before, after - before


def _can_count() -> bool:
    """Whether what PyTorch's CPU allocator does can be counted here."""
    torch.empty(1)
    if not _memfit.allocator_watch():
        return False
    before, outer = _memfit.allocator_begin(True)
    made = torch.empty(1000, dtype=torch.uint8)
    during, _ = _memfit.allocator_end(True, outer)
    del made
    after, outer = _memfit.allocator_begin(True)
    _memfit.allocator_end(True, outer)
    return during - before == 1000 and after == before


COUNTED = _can_count()


def note_block(storage: torch.UntypedStorage) -> bool:
    """Counts the bytes of a storage from the time before all were. False: they are not PyTorch's own."""
    if not resizable(storage):
        return False
    if storage.nbytes() > 0:
        _memfit.allocator_note(storage.data_ptr(), storage.nbytes())
    return True


# Storages


def evict(storage: torch.UntypedStorage) -> None:
    """The bytes go; the size stays, so that views can be made; an access raises."""
    hollow: Any = torch._C._construct_storage_from_data_pointer(0, storage.device, storage.nbytes())
    _storages.swap(storage, hollow)
    torch._C._set_storage_data_ptr_access_error_msg(storage._cdata, EVICTED)


def refill(storage: torch.UntypedStorage, source: torch.UntypedStorage) -> None:
    """The bytes of `source` become those of `storage`; its guard goes."""
    _storages.swap(storage, source)


def copy(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage with the same bytes."""
    with torch._C._DisableTorchDispatch():
        return flat(storage).clone().untyped_storage()


def is_same(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    """Whether two storages have the same bytes."""
    with torch._C._DisableTorchDispatch():
        return torch.equal(flat(one), flat(other))


def flat(storage: torch.UntypedStorage) -> torch.Tensor:
    """All bytes of a storage, as numbers."""
    return window(storage, torch.uint8, 0, (storage.nbytes(),), (1,))


def window(
    storage: torch.UntypedStorage, dtype: torch.dtype, offset: int, shape: Any, stride: Any
) -> torch.Tensor:
    """A tensor over a storage, without history."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, stride)


def block(size: int) -> int:
    """Bytes that the allocator of the tracked device gives out for `size`."""
    return _cuda.block(size) if _device.type == "cuda" else size


def blank(size: int) -> torch.UntypedStorage:
    """Memory of the tracked device."""
    return torch.UntypedStorage(size, device=_device)


def here(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage with the same bytes in the memory of the process: the same one if it is there."""
    if storage.device.type == "cpu":
        return storage
    with torch._C._DisableTorchDispatch():
        return flat(storage).cpu().untyped_storage()


def synchronize() -> None:
    """Waits until the tracked device has done what it was told."""
    if _device.type == "cuda":
        torch.cuda.synchronize(_device)


def room(size: int) -> torch.UntypedStorage:
    """Memory of the process, of which a storage of the tracked device will be made."""
    return torch.UntypedStorage(size)


def there(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of the tracked device with the bytes of one in the memory of the process."""
    if _device.type == "cpu":
        return storage
    made = blank(storage.nbytes())
    with torch._C._DisableTorchDispatch():
        flat(made).copy_(flat(storage))
    return made


pointer = torch._C.StorageBase.data_ptr  # type: ignore[attr-defined]  # Not in the stubs.
"""Where the bytes of a storage are: not the method, which is watched."""

resizable = torch._C.StorageBase.resizable  # type: ignore[attr-defined]  # Not in the stubs.
"""Whether the bytes of a storage are PyTorch's own: not the method, which is watched."""


def is_unreferenced(storage: torch.UntypedStorage) -> bool:
    """Whether only the caller, from native code, reaches the storage."""
    return torch._C._storage_Use_Count(storage._cdata) <= 1 and sys.getrefcount(storage) <= _OURS


_OURS = 4


# Calling again

is_grad_enabled = torch.is_grad_enabled
threads = torch.get_num_threads


def switches(flush: bool) -> tuple[Any, ...]:
    """The global switches that results depend on, as `replay` takes them."""
    return _switches.read(_rows, flush)


def draw(generator: torch.Generator | None) -> tuple[torch.Generator | None, torch.Tensor]:
    """The state of the generator that the next random op draws from."""
    return generator, default_generator(generator).get_state()


def default_generator(generator: torch.Generator | None = None) -> torch.Generator:
    """`generator`, or the one that ops on the tracked device draw from."""
    if generator is not None:
        return generator
    if on_device == "is_cuda":
        return torch.cuda.default_generators[torch.cuda.current_device()]
    return torch.default_generator


def replay(
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    grad: bool,
    state: tuple[Any, torch.Tensor] | None,
    switches: tuple[Any, ...] | None,
) -> Any:
    """Calls an op again below autograd, with the random numbers and the global switches of its first run."""
    below = torch._C._AutoDispatchBelowAutograd()
    with (
        below,
        torch._C._DisableTorchDispatch(),
        torch.set_grad_enabled(grad),
        _switches.under(_rows, switches),
    ):
        if state is None:
            return func(*args, **kwargs)
        generator = default_generator(state[0])
        now = generator.get_state()
        generator.set_state(state[1])
        try:
            return func(*args, **kwargs)
        finally:
            generator.set_state(now)


def no_room(told: dict[str, Any]) -> Exception:
    """The error for a budget that is too small."""
    return budget_error(told, _device)
