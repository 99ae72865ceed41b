"""Global switches that results depend on: an op that is computed again runs under those of its first run."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch


class Row(NamedTuple):
    """A switch, or several that are set together."""

    get: Callable[[], Any]
    put: Callable[[Any], Any]
    looks: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...]
    """What is called before each op to see whether `get` would give another value: functions, arguments."""
    leads: bool = False
    """Whether others follow it as long as they were not set themselves."""


_C = torch._C
# Getter and setter by their names in `torch._C`, arguments before the value. What others take over is first.
_NAMES: list[tuple[str, str, tuple[Any, ...]]] = [
    ("_get_fp32_precision_getter", "_set_fp32_precision_setter", (backend, op))
    for backend, ops in {
        "generic": ("all",),
        "mkldnn": ("all", "conv", "matmul", "rnn"),
        "cuda": ("all", "conv", "matmul", "rnn"),
    }.items()
    for op in ops
] + [
    (f"_get_{name}", f"_set_{name}", ())
    for name in (
        "default_dtype", "mkldnn_enabled", "mkldnn_deterministic", "nnpack_enabled", "qengine",
        "cpu_allow_fp16_reduced_precision_reduction",
        "cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic",
        "cublas_allow_fp16_reduced_precision_reduction", "cublas_allow_bf16_reduced_precision_reduction",
        "cublas_allow_fp16_accumulation", "math_sdp_allow_fp16_bf16_reduction",
    )
] + [
    (f"_get_{name}_enabled", f"_set_sdp_use_{short}", ())
    for name, short in (
        ("flash_sdp", "flash"), ("mem_efficient_sdp", "mem_efficient"),
        ("math_sdp", "math"), ("cudnn_sdp", "cudnn"), ("fa3_sdp", "fa3"), ("fa4_sdp", "fa4"),
        ("overrideable_sdp", "overrideable"),
    )
]  # fmt: skip
_flush = False


def _bound(getter: str, setter: str, first: tuple[Any, ...]) -> Row | None:
    """The row of a switch; none where this PyTorch does not know it."""
    if getter == "_get_default_dtype":
        get: Any = torch.get_default_dtype
    else:
        get = getattr(_C, getter, None)
    put = getattr(_C, setter, None)
    if get is None or put is None:
        return None
    try:
        get(*first)
    except RuntimeError:
        return None
    return Row(lambda: get(*first), lambda value: put(*first, value), ((get, first),), leads=True)


def _set_deterministic(value: tuple[bool, ...]) -> None:
    _C._set_deterministic_algorithms(value[0], warn_only=value[1])
    _C._set_deterministic_fill_uninitialized_memory(value[2])


_DETERMINISTIC = (
    _C._get_deterministic_algorithms,
    _C._get_deterministic_algorithms_warn_only,
    _C._get_deterministic_fill_uninitialized_memory,
)


def _deterministic() -> tuple[bool, ...]:
    return tuple(get() for get in _DETERMINISTIC)


def _set_flush(value: bool) -> None:
    global _flush
    torch.set_flush_denormal(value)
    _flush = value


def rows(device: str) -> list[Row]:
    """The switches that matter for ops on `device`."""
    found = [row for names in _NAMES if _matters(names, device) and (row := _bound(*names)) is not None]
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    return [
        *found,
        Row(_deterministic, _set_deterministic, tuple((get, ()) for get in _DETERMINISTIC)),
        Row(torch.get_num_threads, torch.set_num_threads, ((torch.get_num_threads, ()),)),
        Row(lambda: _flush, _set_flush, ()),  # The engine asks the processor itself.
        Row(
            lambda: enabled(device),
            lambda value: torch.set_autocast_enabled(device, value),
            ((enabled, (device,)),),
        ),
        Row(
            lambda: dtype(device),
            lambda value: torch.set_autocast_dtype(device, value),
            ((dtype, (device,)),),
        ),
    ]


def _matters(names: tuple[str, str, tuple[Any, ...]], device: str) -> bool:
    gpu = "cuda" in names[2] or names[0].startswith(("_get_cudnn", "_get_cublas"))
    return device != "cpu" or not gpu


def read(rows: list[Row], flush: bool) -> tuple[Any, ...]:
    """The state of all switches; `flush` is that of the processor."""
    global _flush
    _flush = flush
    return tuple(row.get() for row in rows)


@contextlib.contextmanager
def under(rows: list[Row], state: tuple[Any, ...] | None) -> Iterator[None]:
    """Within it the switches are as in `state`; as they were afterwards."""
    if state is None:
        yield
        return
    before = tuple(row.get() for row in rows)
    try:
        _put(rows, before, state)
        yield
    finally:
        _put(rows, state, before)


def _put(rows: list[Row], now: tuple[Any, ...], state: tuple[Any, ...]) -> None:
    """Has the switches, which are as in `now`, as in `state`. Each look costs as much as a small op."""
    led = False
    for row, current, value in zip(rows, now, state, strict=True):
        if (row.get() if led else current) != value:
            row.put(value)
            led = led or row.leads
