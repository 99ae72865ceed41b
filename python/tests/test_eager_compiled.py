"""`torch.compile` under a budget: compiled code gives the same bits, gets its operands, and is counted."""

import os
import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import AMPLE, CPU, digest

from memfit import BudgetError
from memfit.torch.eager import Budget, drop
from memfit.torch.meter import live_bytes

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
MIB = 1 << 20
GENERATED = pytest.param(
    "inductor",
    marks=pytest.mark.skipif(shutil.which("g++") is None, reason="generated code needs a compiler"),
)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 4))


def frames() -> int:
    return torch._dynamo.utils.counters["frames"].get("ok", 0)


def train(model, call, between=lambda *tensors: None) -> list[str]:
    """Two steps with work around the compiled part; `between` gets what it reads and what it gives."""
    torch.manual_seed(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for _ in range(2):
        x = torch.randn(24, 16) * 2
        between(x)
        y = call(x)
        between(x, y)
        y.pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        kept += [x, y]
    return [digest(tensor.detach()) for tensor in (*kept, *model.state_dict().values())]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", GENERATED])
def test_a_compiled_model_trains_to_the_same_bits(backend):
    model = net()
    expected = train(model, torch.compile(model, backend=backend))
    compiled = frames()
    model = net()
    torch._dynamo.reset()
    with Budget(AMPLE, evict_all=True):
        found = train(model, torch.compile(model, backend=backend), lambda *all_: [drop(t) for t in all_])
    assert found == expected
    assert frames() > compiled, "under the budget it was not compiled"


@pytest.mark.parametrize("backend", ["eager", "aot_eager", GENERATED])
def test_statistics_that_compiled_code_updates_are_no_unseen_writes(backend):
    def run() -> list[str]:
        torch.manual_seed(3)
        torch._dynamo.reset()
        layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)]
        model = nn.Sequential(*layers)
        compiled = torch.compile(model, backend=backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        averages = []
        for _ in range(3):
            averages.append(model[1].running_mean * 0.5)
            compiled(torch.randn(4, 3, 12, 12)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            averages.append(model.eval()(torch.ones(1, 3, 12, 12)))
        return [digest(tensor.detach()) for tensor in (*model.state_dict().values(), *averages)]

    expected = run()
    with Budget(AMPLE, evict_all=True):
        assert run() == expected


@pytest.mark.parametrize("backend", ["aot_eager", GENERATED])
def test_what_was_compiled_before_is_used(backend):
    def function(x, y):
        return (F.log_softmax(x * 1.7 + y.sin(), -1) * y).sum(0)

    compiled = torch.compile(function, backend=backend)
    x, y = torch.randn(32, 32), torch.rand(32, 32)
    expected, count = compiled(x, y), frames()
    with Budget(AMPLE, evict_all=True):
        x, y = x * 1, y + 0
        drop(x), drop(y)
        assert torch.equal(compiled(x, y), expected)
        assert frames() == count


def test_reads_are_traced_as_they_are_without_a_budget():
    def function(x):
        return x * torch.tensor(2.0) + torch.as_tensor([1.0, 3.0])

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    x = torch.ones(2)
    for _ in range(3):
        with Budget(AMPLE):
            assert compiled(x).tolist() == [3.0, 5.0]
        assert compiled(x).tolist() == [3.0, 5.0]
    assert frames() <= 2


@pytest.mark.skipif(shutil.which("g++") is None, reason="generated code needs a compiler")
def test_generated_code_is_counted():
    def function(x):
        y = x.sin()
        return y @ y, y.sum(0)

    compiled = torch.compile(function)
    x = torch.ones(512, 512)
    expected = [digest(part) for part in compiled(x)]
    base = live_bytes(CPU)
    with Budget(base + 5 * MIB) as budget:
        parts = [torch.full((512, 512), 1.0) * at for at in range(3)]
        for _ in range(2):
            made = compiled(x)
            assert [digest(part) for part in made] == expected
            assert budget.stats["used_bytes"] >= base + MIB
        assert [float(part[0, 0]) for part in parts] == [0, 1, 2]
        del made
    with Budget(live_bytes(CPU) + 3 * MIB // 2), pytest.raises(BudgetError):
        compiled(x)
    assert [digest(part) for part in compiled(x)] == expected
