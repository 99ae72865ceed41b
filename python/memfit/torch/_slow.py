"""Says, once, that a budget is so small that most of the time goes into computing again."""

import warnings
from typing import Any

from memfit import _memfit

_NAMED = 4
"""Reasons that are named, the largest first."""


class SlowWarning(RuntimeWarning):
    """A step has recomputed for longer than its own ops took."""


class Pace:
    """The times of one budget, from step to step: a step ends with an optimizer's, or with the budget."""

    def __init__(self) -> None:
        self._warned = False
        self._seen = (0, 0)

    def step(self, native: Any, budget: int) -> None:
        """A step has ended."""
        if self._warned:
            return
        stats = native.stats()
        now = stats["op_ns"], stats["recompute_ns"]
        own, again = now[0] - self._seen[0], now[1] - self._seen[1]
        self._seen = now
        if again <= own:
            return
        self._warned = True
        size, time = _memfit.show_bytes, _memfit.show_nanos
        kept = native.kept()
        reasons = [f"`{size(held)}` {why} ({count} of them)" for why, held, count in kept[:_NAMED]]
        if len(kept) > _NAMED:
            reasons.append(f"`{size(sum(held for _, held, _ in kept[_NAMED:]))}` otherwise")
        warnings.warn(
            f"a step within `{size(budget)}` has recomputed for `{time(again)}`, and its own ops took "
            f"`{time(own)}`; what stays: {'; '.join(reasons) or 'nothing'}\n"
            "hint: a larger budget, or fewer tensors that must stay",
            SlowWarning,
            stacklevel=3,
        )
