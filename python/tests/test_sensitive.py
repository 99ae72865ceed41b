"""Bits by sensitivity, as GACT has them: measured in a copy of the process, kept in the profile, followed."""

import gc
import json

import pytest
import torch
from test_codecs import vgg
from torch import nn

import memfit
import memfit.torch
from memfit.torch import _gradients, _sensitive
from memfit.torch._floor import recording

FEW = ["int8", "int4", "int2"]


class Scaled(nn.Module):
    """Two ways of which the loss sees one a thousand times as well as the other."""

    def __init__(self) -> None:
        super().__init__()
        self.loud, self.quiet = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loud = self.loud(x).tanh().square().sum()
        return loud + 1e-3 * self.quiet(x).tanh().square().sum()


def test_what_the_loss_sees_better_is_more_sensitive():
    torch.manual_seed(1)
    net, x = Scaled(), torch.randn(64, 256)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    before = [parameter.detach().clone() for parameter in net.parameters()]

    def step() -> None:
        optimizer.zero_grad()
        net(x).backward()
        optimizer.step()

    found = _sensitive.measure(step, FEW)
    assert all(map(torch.equal, before, net.parameters())), "a run ends before the update"
    # The batch, what each `tanh` makes, in the order in which autograd saves them: the batch comes first.
    assert len(found) == 3 and found[1] > 1e4 * found[2] > 0, found


def test_sensitivities_are_measured_again_as_often_as_is_asked():
    torch.manual_seed(1)
    first, second = nn.Linear(64, 256), nn.Linear(64, 256)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-6)
    weights = torch.tensor([1.0, 1e-3])

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        one, other = first(x).tanh().square().sum(), second(x).tanh().square().sum()
        (one * weights[0] + other * weights[1]).backward()
        optimizer.step()

    x = torch.randn(2048, 64)
    with recording(step, (x,), {}, "cpu") as (_, told):
        budget = told.floor_bytes + (told.peak_bytes - told.floor_bytes) // 4
    fitted = memfit.torch.fit(step, budget, strategy=_sensitive.STRATEGY, lossy=FEW, sense_every=3)

    def sensed() -> list[float]:
        saved = fitted._saved()
        assert saved is not None
        values = json.loads(saved[0])["values"]
        return [
            value["sensitivity"] for value in values if value.get("sensitivity") and value["bytes"] == 1 << 21
        ]

    before = []
    for call in range(7):
        if call == 3:
            before = sensed()
            weights.copy_(weights.flip(0))
        fitted(x)
        assert fitted.report.sensed == call // 3
    after = sensed()
    # What each `tanh` makes: the first is seen better, then the second.
    assert fitted.report.guided and len(before) == len(after) == 2
    assert before[0] > 1e3 * before[1] and after[1] > 1e3 * after[0], (before, after)
    fitted.close()


def test_an_interval_is_for_sensitivities():
    with pytest.raises(memfit.UsageError, match="`sense_every` does not go together"):
        memfit.torch.fit(print, 1 << 30, sense_every=10)
    with pytest.raises(memfit.UsageError, match="`sense_every` must be at least 1"):
        memfit.torch.fit(print, 1 << 30, strategy=_sensitive.STRATEGY, lossy=FEW, sense_every=0)


def limits() -> tuple[int, int]:
    """The peak of the step, and a budget so small that not all maps can have eight bits."""
    _, _, step, batches = vgg()
    with recording(step, batches[0], {}, "cpu") as (_, told):
        return told.peak_bytes, told.floor_bytes + (told.peak_bytes - told.floor_bytes) // 12


def error(budget: int, monkeypatch: pytest.MonkeyPatch, sensed: bool) -> tuple[float, set[str], list[float]]:
    """Relative error of gradients of planned steps, the plan's codecs, and its sensitivities."""
    with monkeypatch.context() as patched:
        if not sensed:
            patched.setattr(_sensitive, "measure", lambda *_: None)
        _, _, step, batches = vgg()
        gc.collect()
        fitted = memfit.torch.fit(step, budget, strategy=_sensitive.STRATEGY, lossy=FEW)
        for batch in batches[:4]:
            fitted(*batch)
        assert fitted.report.guided and fitted.report.gradients
        saved = fitted._saved()
        assert saved is not None
        profile = json.loads(saved[0])
        said = [value["sensitivity"] for value in profile["values"] if "sensitivity" in value]
        errors = [sample.error for sample in fitted.report.gradients]
        lossy = set(fitted.report.lossy)
        fitted.close()
    return max(errors), lossy, said


def test_bits_by_sensitivity_have_less_error_within_the_same_budget(monkeypatch):
    peak, budget = limits()
    uniform, codecs, said = error(budget, monkeypatch, sensed=False)
    assert not said and len(codecs) == 1
    mixed, chosen, said = error(budget, monkeypatch, sensed=True)
    assert len(said) > 10 and len(chosen) > 1, chosen
    assert mixed < uniform, f"{mixed} {chosen}, {uniform} {codecs}"
    print(f"{budget} of {peak} bytes: {uniform:.2e} by {codecs}, {mixed:.2e} by {chosen}")
    assert _gradients.squares({}, None) is None
