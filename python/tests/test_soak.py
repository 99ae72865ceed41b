"""A short form of `cargo xtask soak`: nothing grows while shapes change and something has to go."""

import pytest
import torch
from sampling import ALL
from soak import soak

from memfit.torch.eager import Budget


@pytest.mark.filterwarnings("ignore::memfit.torch.SlowWarning")
@pytest.mark.parametrize("kind", ["host", "fit"])
def test_nothing_grows_while_shapes_change(kind):
    told = soak(kind, 100 if ALL else 44)
    assert told["recomputed_ops"] > 0
    before, after = told["second_quarter"], told["last_quarter"]
    assert after["live_bytes"] <= before["live_bytes"] * 1.02 + 64 * 1024
    assert after["resident_bytes"] <= before["resident_bytes"] * 1.02
    assert after["rows"] <= before["rows"] * 1.02 + 16


def test_numbers_that_change_with_every_step_are_no_new_shapes():
    """Adam divides by another number each step: an operand, which has nothing to do with sizes."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters())
    seen = []
    with Budget(1 << 30) as budget:
        for at in range(8):
            optimizer.zero_grad()
            (net(torch.randn(4, 8)) * (1.0 + at)).mean().backward()
            optimizer.step()
            seen.append(budget.stats["shapes"])
    assert seen[2:] == [seen[2]] * 6
