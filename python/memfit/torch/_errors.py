"""Errors of the PyTorch face, and sizes."""

import re
from typing import Any

import memfit

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS |= {f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power}


def budget_error(told: dict[str, Any]) -> memfit.BudgetError:
    """A `BudgetError` with what the engine told.

    Beside its usual attributes: `op` needs `asked` bytes for its results and scratch memory; `operands`, `pinned` and
    `kept` are the bytes that can't go because the op reads them, the user pinned them, or nothing can compute them again.
    """
    dominant = max(("operands", "pinned", "kept"), key=lambda name: told[name])
    error = memfit.BudgetError(
        told["message"],
        hint="a larger budget, a smaller batch, or fewer tensors held",
        budget_bytes=told["budget"],
        least_budget_bytes=told["enough"],
        dominant={"kept": "what can't be computed again", "pinned": "pinned tensors", "operands": told["op"]}[
            dominant
        ],
    )
    for name in ("op", "asked", "operands", "pinned", "kept"):
        setattr(error, name, told[name])
    return error


def parse_bytes(size: int | str) -> int:
    """Bytes of a number, or of a size such as `"8GiB"`, `"500 MB"`."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size) if isinstance(size, str) else None
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise ValueError(f"`{size}` is no size\nhint: bytes, or a number with `KiB`, `MB`, `GiB`, ...")
    return int(float(match[1]) * unit)
