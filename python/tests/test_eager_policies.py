"""Who goes for room, and among which candidates: the switches of the DTR article in `enable`."""

import math

import pytest
import torch
from torch import nn
from training import CPU, digest

import memfit
from memfit.torch.eager import Budget
from memfit.torch.meter import live_bytes

DEPTH = 60


def program(tiny: int = 0) -> list[str]:
    """A deep chain that is walked back, with `tiny` small tensors beside it that can be computed again."""
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64) for _ in range(DEPTH)]
    at = torch.randn(64, 64)
    small = [torch.ones(4) * number for number in range(tiny)]
    for layer in layers:
        at = torch.tanh(layer(at))
    at.sum().backward()
    return [digest(tensor) for tensor in (at, *(layer.weight.grad for layer in layers), *small)]


def within(share: float, tiny: int = 0, **policy) -> dict[str, int]:
    """What the program takes within a share of what it adds; its results are the plain ones."""
    expected, before = program(tiny), live_bytes(CPU)
    with Budget(1 << 40) as ample:
        program(tiny)
    budget = before + int((ample.stats["peak_bytes"] - before) * share)
    with Budget(budget, **policy) as held:
        found = program(tiny)
    assert found == expected
    assert held.stats["evictions"] > 0 and held.stats["peak_bytes"] <= budget
    return held.stats


@pytest.mark.parametrize(
    "policy",
    [
        {"evictor": "dtr", "sample": "sqrt"},
        {"evictor": "dtr", "sample": 4, "seed": 7},
        {"evictor": "lru", "ignore_below": "1%"},
        {"evictor": "megengine", "ignore_below": "1KiB", "exponents": (0.5, 1, 2)},
        {"evictor": "random", "seed": 3},
        {"ignore_below": 1024},
    ],
    ids=str,
)
def test_every_policy_has_the_same_bits_within_the_budget(policy):
    within(0.75, **policy)


def test_a_sample_is_what_is_looked_at():
    looks = {
        sample: (stats := within(0.75, evictor="lru", sample=sample))["evaluations"] / stats["evictions"]
        for sample in ("all", "sqrt", 3)
    }
    # Candidates are some tens: the square root of as many, and a few more where nothing of a sample will do.
    assert looks["all"] > 16 and looks[3] <= 6, looks
    assert looks["sqrt"] < 2 * math.sqrt(looks["all"]) + 2, looks


def test_a_seed_says_what_is_drawn():
    once, again = (within(0.75, evictor="random", seed=5)["recomputed_ops"] for _ in range(2))
    others = {within(0.75, evictor="random", seed=seed)["recomputed_ops"] for seed in range(6, 10)}
    assert once == again and others != {once}


def test_what_is_small_stays():
    """The least recently used are small, and go first; `ignore_below` leaves them."""
    plain = within(0.75, tiny=40, evictor="lru")["evictions"]
    sieved = {
        below: within(0.75, tiny=40, evictor="lru", ignore_below=below)["evictions"] for below in ("1%", 64)
    }
    assert plain - max(sieved.values()) >= 30, (plain, sieved)


def test_a_decorator_keeps_its_policy():
    before = live_bytes(CPU)
    seen = []

    @Budget(before + (4 << 20), evictor="dtr", sample="sqrt", ignore_below="2%", exponents=[1, 2, 3])
    def step():
        seen.append(memfit.torch.eager._active)
        return program()

    step()
    assert seen[0]._policy["sample"] == "sqrt" and seen[0]._policy["ignore_below"] == "2%"


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        ({"sample": 0}, "sample=0"),
        ({"sample": "few"}, "sample='few'"),
        ({"sample": -2}, "sample=-2"),
        ({"ignore_below": "120%"}, "120%"),
        ({"ignore_below": -1}, "-1"),
        ({"exponents": (1, 2)}, "three numbers"),
        ({"exponents": (1, 2, float("nan"))}, "three numbers"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_before_anything_begins(policy, what):
    with pytest.raises(memfit.UsageError, match=what) as raised:
        Budget("1GiB", **policy)
    assert raised.value.hint
    assert not memfit.torch.eager.is_enabled()
