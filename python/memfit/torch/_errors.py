"""Errors of the PyTorch face, and sizes."""

import math
import os
from pathlib import Path
from typing import Any

import torch

import memfit
from memfit import _memfit
from memfit.torch import _held

_SLOW = "`memfit.torch.fit` finds the least budget that does; with `patience=None` it goes on, however long"


def budget_error(told: dict[str, Any], device: torch.device) -> memfit.BudgetError:
    """A `BudgetError` with what the engine told, and with what the program was about.

    `least_budget_bytes` is a lower bound here: what this op needs as things stand, which nobody has tried;
    later ops may need more. Beside its usual attributes: `op` needs `asked` bytes for its results and
    scratch memory; `operands`, `pinned` and `kept` are the bytes that can't go because the op reads them,
    the user pinned them, or nothing can compute them again. `place` is the line of the program, and `largest`
    are the largest tensors that it holds, each as a text.

    Where `slow`, recomputation took too long at this op, and `least_budget_bytes` would hold all that the
    program holds there: less may do, and later ops may need more.
    """
    place, largest = _held.place(), _held.largest(device)
    message = told["message"]
    if place:
        message += f"\nat {place}"
    if largest:
        message += "\nlargest tensors held: " + "; ".join(largest)
    dominant = max(("operands", "pinned", "kept"), key=lambda name: told[name])
    error = memfit.BudgetError(
        message,
        hint=_SLOW if told["slow"] else "a larger budget, a smaller batch, or fewer tensors held",
        budget_bytes=told["budget"],
        least_budget_bytes=told["enough"],
        lower_bound=True,
        dominant={"kept": "what can't be computed again", "pinned": "pinned tensors", "operands": told["op"]}[
            dominant
        ],
    )
    for name in ("op", "asked", "operands", "pinned", "kept", "slow"):
        setattr(error, name, told[name])
    error.place, error.largest = place, largest
    return error


def parse_bytes(size: int | float | str, device: torch.device | None = None) -> int:
    """Bytes of a number, a size such as `"8GiB"`, or a share of the device's memory, `"80%"`."""
    count: Any = size
    if isinstance(size, str):
        share = share_of(size)
        count = _memfit.parse_bytes(size) if share is None else int(share * _memory(device))
    elif isinstance(size, float) and math.isfinite(size):
        count = int(size)
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        hint = "write bytes, `8GiB`, or `80%` of the device's memory"
        raise memfit.UsageError(f"`{size}` is not a size", hint=hint)
    return count


def share_of(size: str) -> float | None:
    """The share that `"80%"` is; `None` for other texts."""
    text = size.strip()
    if not text.endswith("%"):
        return None
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise memfit.UsageError(f"`{size}` is not a size", hint="a share is above `0%` and at most `100%`")
    return share


def _memory(device: torch.device | None) -> int:
    """Bytes of the device's memory; for the CPU those that this process may have."""
    cuda = torch.cuda.is_available() if device is None else device.type == "cuda"
    if cuda:
        return torch.cuda.get_device_properties(device).total_memory
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = Path(limit).read_text().strip() if Path(limit).is_file() else ""
        if text.isdigit():
            machine = min(machine, int(text))
    return machine
