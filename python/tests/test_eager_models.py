"""Ten models under budgets that plain PyTorch breaks: same bits, within the budget by PyTorch's allocator."""

import functools
import itertools

import pytest
from sampling import ALL
from training import AMPLE, CASES, Outcome, train

SHARES = (0.8, 0.6, 0.5, 0.4)
CELLS = (
    [(name, share) for name in CASES for share in SHARES]
    if ALL
    # Each model in one of the largest and the smallest budget.
    else list(zip(CASES, itertools.cycle((SHARES[-1], SHARES[0]))))
)


@functools.cache
def plain(name: str) -> tuple[Outcome, int]:
    """The run without memfit, and the floor of the steps."""
    return train(CASES[name]), train(CASES[name], AMPLE, watch=True).floor


@pytest.mark.parametrize(("name", "share"), CELLS)
def test_the_same_bits_within_the_budget(name, share):
    without, floor = plain(name)
    budget = int(floor + share * (without.peak - floor))
    assert floor < budget < without.peak
    within = train(CASES[name], budget)
    assert within.digests == without.digests
    assert within.peak <= budget
    assert within.stats["recomputed_ops"] > 0
