"""Errors of the PyTorch face, and sizes."""

from typing import Any

import memfit
from memfit import _memfit


def budget_error(told: dict[str, Any]) -> memfit.BudgetError:
    """A `BudgetError` with what the engine told.

    `least_budget_bytes` is a lower bound here: what this op needs as things stand, which nobody has tried;
    later ops may need more. Beside its usual attributes: `op` needs `asked` bytes for its results and
    scratch memory; `operands`, `pinned` and `kept` are the bytes that can't go because the op reads them,
    the user pinned them, or nothing can compute them again.
    """
    dominant = max(("operands", "pinned", "kept"), key=lambda name: told[name])
    error = memfit.BudgetError(
        told["message"],
        hint="a larger budget, a smaller batch, or fewer tensors held",
        budget_bytes=told["budget"],
        least_budget_bytes=told["enough"],
        lower_bound=True,
        dominant={"kept": "what can't be computed again", "pinned": "pinned tensors", "operands": told["op"]}[
            dominant
        ],
    )
    for name in ("op", "asked", "operands", "pinned", "kept"):
        setattr(error, name, told[name])
    return error


def parse_bytes(size: int | str) -> int:
    """Bytes of a number, or of a size such as `"8GiB"`, `"500 MB"`."""
    count = _memfit.parse_bytes(size) if isinstance(size, str) else size
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        raise memfit.UsageError(f"`{size}` is not a size", hint="write bytes, or `8GiB`")
    return count
