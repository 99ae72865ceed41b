"""Random programs give the same bits under any budget, and leave the generator as they would have.

`MEMFIT_CASES` says how many programs there are.
"""

import os
import random

import pytest
import torch
from programs import Program
from sampling import ALL
from training import AMPLE, digest

from memfit import BudgetError
from memfit.torch.eager import Budget

CASES = int(os.environ.get("MEMFIT_CASES", "150" if ALL else "80"))
PER_TEST = 10


def outcome(program: Program) -> tuple[list[str], list[str]]:
    return program.seen, [digest(tensor) for tensor in (*program.tensors(), torch.get_rng_state())]


def without(seed: int, stop: int | None = None) -> tuple[list[str], list[str]]:
    program = Program(seed)
    program.run(stop)
    return outcome(program)


def check(seed: int) -> None:
    expected = without(seed)
    with Budget(AMPLE, evict_all=True) as budget:
        program = Program(seed)
        program.run()
        peak = budget.stats["peak_bytes"]
    assert outcome(program) == expected
    draw = random.Random(seed)
    del program
    for share in sorted(draw.uniform(0.3, 1.0) for _ in range(2)):
        within = None
        try:
            with Budget(int(peak * share), evict_all=draw.random() < 0.2):
                within = Program(seed)
                within.run()
        except BudgetError as error:
            assert error.least_budget_bytes > peak * share
            if within is not None and within.stopped is not None:
                assert outcome(within) == without(seed, within.stopped)
        else:
            assert outcome(within) == expected


# The programs do on purpose what PyTorch warns about.
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors")
@pytest.mark.parametrize("first", range(0, CASES, PER_TEST))
def test_random_programs_give_the_same_bits(first):
    for seed in range(first, min(first + PER_TEST, CASES)):
        try:
            check(seed)
        except Exception as error:
            error.add_note(f"in the program of seed {seed}")
            raise
