"""`memfit.torch.policy`: selective checkpointing within a budget, bit by bit the same."""

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import regions
import torch
from torch import nn
from torch.autograd import profiler
from torch.utils.checkpoint import checkpoint

import memfit
import memfit.torch


class Convs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(inplace=True), nn.BatchNorm2d(8), nn.SiLU(),
            nn.Conv2d(8, 8, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mul_(2)


REGIONS: dict[str, tuple[nn.Module, torch.Tensor, list[str]]] = {
    "block": (regions.Block(64, 4, 0.1), torch.randn(4, 64, 64), ["100%", "70%", "40%", "25%", "0%"]),
    "convs": (Convs(), torch.randn(4, 3, 24, 24), ["100%", "90%", "80%", "70%"]),
}


def outcome(
    region: nn.Module, x: torch.Tensor, call: Callable[[nn.Module, torch.Tensor], Any]
) -> list[torch.Tensor]:
    region, x = copy.deepcopy(region), x.clone().requires_grad_()
    torch.manual_seed(3)
    y = call(region, x)
    y.square().sum().backward()
    after = torch.rand(3)  # The generator goes on from the same state.
    assert x.grad is not None
    gradients = [p.grad for p in region.parameters() if p.grad is not None]
    return [y.detach(), x.grad, after, *gradients, *region.buffers()]


@pytest.mark.parametrize("name", REGIONS)
def test_every_budget_gives_the_same_bits_and_is_kept(name: str) -> None:
    region, x, budgets = REGIONS[name]
    expected = outcome(region, x, lambda region, x: region(x))
    for budget in budgets:
        before = [
            tensor.clone() for tensor in (*region.parameters(), *region.buffers(), torch.get_rng_state())
        ]
        policy = memfit.torch.policy(region, x.clone().requires_grad_(), budget=budget)
        now = (*region.parameters(), *region.buffers(), torch.get_rng_state())
        assert all(map(torch.equal, before, now)), "the region is as it was"
        assert policy.kept_bytes <= policy.whole_bytes * float(budget[:-1]) / 100
        found = outcome(
            region,
            x,
            lambda r, x: checkpoint(r, x, use_reentrant=False, context_fn=policy.contexts),  # noqa: B023
        )
        assert len(found) == len(expected)
        assert all(map(torch.equal, found, expected)), budget


def held(call: Callable[[], torch.Tensor]) -> int:
    """Bytes in memory after `call` that were not there before, its result included."""
    with profiler.profile(profile_memory=True) as prof:
        y = call()
    results = prof.kineto_results
    assert results is not None
    del y
    return sum(event.nbytes() for event in results.events() if event.name() == "[memory]")


def test_what_is_held_between_forward_and_backward_is_within_the_budget() -> None:
    region, x, budgets = REGIONS["block"]
    x = x.clone().requires_grad_()
    last = None
    for budget in budgets:
        policy = memfit.torch.policy(region, x, budget=budget)
        kept = held(lambda: checkpoint(region, x, use_reentrant=False, context_fn=policy.contexts))  # noqa: B023
        # The result itself, and a copy of the generator's state.
        assert kept <= policy.kept_bytes + x.nbytes + torch.get_rng_state().nbytes + 1024, budget
        assert last is None or policy.kept_bytes < last
        last = policy.kept_bytes


def test_budgets_that_make_no_sense() -> None:
    region, x, _ = REGIONS["convs"]
    with pytest.raises(memfit.UsageError, match="is not a share"):
        memfit.torch.policy(region, x, budget="many%")
    with pytest.raises(memfit.BudgetError) as caught:
        memfit.torch.policy(region, x, budget=100)
    overwritten = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    with pytest.raises(memfit.UsageError, match="counted twice"):
        memfit.torch.policy(overwritten, x, budget="100%")
    least = caught.value.least_budget_bytes
    assert least is not None
    assert memfit.torch.policy(region, x, budget=least).kept_bytes == least


def test_what_is_kept_goes_through_hooks_for_saved_tensors() -> None:
    if "respect_saved_tensors_hooks" not in inspect.signature(checkpoint).parameters:
        pytest.skip("NOT TESTED: this torch has no `respect_saved_tensors_hooks`")
    region, x, _ = REGIONS["block"]
    policy = memfit.torch.policy(region, x.clone().requires_grad_(), budget="40%")
    expected = outcome(region, x, lambda region, x: region(x))
    packed: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.untyped_storage().nbytes())
        return tensor.clone()

    def hooked(region: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            return policy.checkpoint(region, x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = outcome(region, x, hooked)
    assert all(map(torch.equal, found, expected))
    assert sum(packed) >= policy.kept_bytes > 0
