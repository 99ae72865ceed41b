"""A short form of `cargo xtask soak`: nothing grows while shapes change and something has to go."""

import pytest
from soak import soak


@pytest.mark.filterwarnings("ignore::memfit.torch.SlowWarning")
@pytest.mark.parametrize("kind", ["host", "fit"])
def test_nothing_grows_while_shapes_change(kind):
    told = soak(kind, 100)
    assert told["recomputed_ops"] > 0
    before, after = told["second_quarter"], told["last_quarter"]
    assert after["live_bytes"] <= before["live_bytes"] * 1.02 + 64 * 1024
    assert after["resident_bytes"] <= before["resident_bytes"] * 1.02
    assert after["rows"] <= before["rows"] * 1.02 + 16
