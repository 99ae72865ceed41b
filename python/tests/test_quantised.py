"""Optimizer state in eight bits between steps: bytes, what it does to a training, and who sees it."""

import copy
import gc

import pytest
import torch
from torch import nn
from training import classifying

import memfit
import memfit.torch
from memfit.torch import _quantised

STEPS = 200


def training(seed: int = 0, batches: int = 1):
    """A small CNN on images of waves, which it can learn; minibatches are drawn by `batches`."""
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(48 * 9, 64), nn.ReLU(), nn.Linear(64, 8),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    draw = torch.Generator().manual_seed(batches)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 8, (32,), generator=draw)
        along = torch.arange(12.0).expand(32, 3, 12, 12)
        waves = torch.sin(along * (1 + labels.view(-1, 1, 1, 1)) * 0.4)
        return waves + 1.5 * torch.randn(32, 3, 12, 12, generator=draw), labels

    return net, optimizer, classifying(net, optimizer), batch


def losses(quantised: bool, batches: int = 1) -> tuple[torch.Tensor, int]:
    _, optimizer, step, batch = training(batches=batches)
    if quantised:
        _quantised.quantise_state(optimizer)
    found = torch.tensor([float(step(*batch())) for _ in range(STEPS)])
    return found, _quantised.state_bytes(optimizer)


def test_the_loss_curve_stays_within_the_noise_of_minibatches():
    exact, whole = losses(False)
    found, folded = losses(True)
    others = [losses(False, batches)[0] for batches in (2, 3, 4)]
    assert whole >= 3.5 * folded
    # Curves smoothed over 20 steps: how far other minibatches take one from the exact one, and the codes.
    smooth = torch.ones(1, 1, 20) / 20

    def apart(curve: torch.Tensor) -> float:
        return float(nn.functional.conv1d((curve - exact).view(1, 1, -1), smooth).abs().mean())

    noise = min(apart(other) for other in others)
    print(f"bytes {whole} and {folded}, curve {apart(found):.4f} apart, minibatches {noise:.4f}")
    assert exact[-20:].mean() < 0.6 * exact[:20].mean(), "it learns"
    assert 0 < apart(found) <= noise


def test_codes_are_those_of_the_codec():
    for signed in (True, False):
        table, borders = _quantised._table(signed, torch.device("cpu"))
        assert table.numel() == 256 and bool((table.diff() > 0).all()) and borders.numel() == 255
        assert 0.0 in table and 1.0 in table and (-1.0 not in table)
        state = torch.randn(10_001) * torch.logspace(-4, 0, 10_001)
        state = state if signed else state.square()
        codes, scales = _quantised.encode(state, signed)
        found = _quantised.decode(codes, scales, state, signed)
        assert codes.numel() == 10_001 and scales.numel() == 5
        assert float((found - state).norm() / state.norm()) < 0.02
        # What is decoded is encoded to the same again.
        again = _quantised.decode(*_quantised.encode(found, signed), found, signed)
        assert torch.equal(again, found)
    nothing = torch.zeros(4096)
    assert torch.equal(_quantised.decode(*_quantised.encode(nothing, True), nothing, True), nothing)


def test_what_is_saved_is_the_state_itself():
    _, optimizer, step, batch = training()
    _quantised.quantise_state(optimizer)
    assert _quantised.quantise_state(optimizer) is optimizer
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for _ in range(3):
        step(*batch())
        scheduler.step()
    saved = copy.deepcopy(optimizer.state_dict())
    assert all(set(state) == {"step", "exp_avg", "exp_avg_sq"} for state in saved["state"].values())
    after = float(step(*batch()))
    _, other, _, _ = training()
    other.load_state_dict(saved)
    assert _quantised.state_bytes(other) > 3.5 * _quantised.state_bytes(optimizer)
    optimizer.load_state_dict(saved)
    assert _quantised.state_bytes(other) > 3.5 * _quantised.state_bytes(optimizer)
    for key, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(value, saved["state"][key][name]), name
    assert after == after


def test_optimizers_of_all_parameters_together_are_refused():
    net = nn.Linear(100, 100)
    with pytest.raises(memfit.UsageError, match="state of `LBFGS` can't wait in eight bits"):
        _quantised.quantise_state(torch.optim.LBFGS(net.parameters()))


def test_the_strategy_asks_for_the_codec():
    for lossy in ((), ("int8",)):
        with pytest.raises(memfit.UsageError, match="`state8` is not allowed"):
            memfit.torch.fit(print, 1 << 30, strategy="compress:quantised-state", lossy=lossy)


BY_STRATEGY = {"strategy": "compress:quantised-state", "lossy": "state8"}


@pytest.mark.parametrize("options", [{"lossy": "quantised-state"}, BY_STRATEGY], ids=["lossy", "strategy"])
def test_fit_takes_it_by_name_and_a_step_takes_less(options):
    _, optimizer, step, batch = training()
    with memfit.torch.Meter() as meter:
        images = batch()
        [step(*images) for _ in range(3)]
    whole = _quantised.state_bytes(optimizer)
    del optimizer, step
    gc.collect()
    _, optimizer, step, batch = training()
    images = batch()
    fitted = memfit.torch.fit(step, 1 << 30, check=False, **options)
    found = [float(fitted(*images)) for _ in range(5)]
    assert found[-1] < found[0] and fitted.report.guided is not None
    assert fitted.report.lossy == ["quantised-state"]
    assert 3.5 * _quantised.state_bytes(optimizer) <= whole
    fitted.close()
    # It stays so for whoever goes on without.
    step(*images)
    assert 3.5 * _quantised.state_bytes(optimizer) <= whole
    assert meter.peak_bytes is not None
