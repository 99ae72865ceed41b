"""`cargo xtask gpu` runs dry: the same script, with small sizes, on a CPU."""

import contextlib
import json
import pathlib
import subprocess
import sys

import gpu
import pytest
import torch

import memfit.torch
from memfit.torch import _cuda

CPU = torch.device("cpu")


@pytest.fixture
def settled(monkeypatch):
    """The switches of the script, for one test."""
    # PyTorch's own tests, if they were loaded before, let nobody set them.
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)
    strict = torch.are_deterministic_algorithms_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    gpu.settle()
    yield
    torch.use_deterministic_algorithms(strict)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn


@pytest.mark.parametrize("name", ["gpt", "swap", "doubts"])
def test_a_slice_finds_no_fault(name, settled):
    rows = list(gpu.SLICES[name](CPU, False))
    done = [row for row in rows if "same_bits" in row]
    assert all(row["same_bits"] and row["within_budget"] for row in done), done
    assert len(done) >= 1 or name == "doubts"
    assert all(row["differ"] == [] for row in rows if "differ" in row)


def test_the_script_writes_what_it_found(tmp_path):
    path = tmp_path / "gpu.json"
    script = pathlib.Path(__file__).with_name("gpu.py")
    asked = ["--device", "cpu", "--slices", "graphs,burn", "--out", str(path)]
    done = subprocess.run([sys.executable, script, *asked], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["about"]["device"] == "cpu"
    assert [row["slice"] for row in record["rows"]] == ["graphs", "burn"]


class Allocator:
    """What `torch.cuda` says of an allocator, without one."""

    def __init__(self):
        self.used = self.most = 0

    def take(self, size):
        self.used += size
        self.most = max(self.most, self.used)

    def memory_allocated(self, device=None):
        return self.used

    def max_memory_allocated(self, device=None):
        return self.most

    def reset_peak_memory_stats(self, device=None):
        self.most = self.used

    def current_device(self):
        return 0


def test_a_peak_outlives_the_measurements_after_it(monkeypatch):
    allocator = Allocator()
    for name in ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats", "current_device"):
        monkeypatch.setattr(torch.cuda, name, getattr(allocator, name))
    device = torch.device("cuda")
    allocator.take(100)
    _cuda.begin_peak(device)
    allocator.take(900)
    allocator.take(-950)
    assert _cuda.measured(lambda: [allocator.take(70), allocator.take(-40)]) == ([None, None], 70, 30)
    assert _cuda.peak(device) == 1000
    _cuda.begin_peak(device)
    assert _cuda.peak(device) == 80
    assert _cuda.foreign(device, 50) == 30
    assert _cuda.foreign(device, 100) == 0


def test_a_call_looks_around_only_where_something_was_made(monkeypatch):
    from memfit.torch import _fit

    looked = []
    live = _fit.live_storages
    monkeypatch.setattr(_fit, "live_storages", lambda device: looked.append(device) or live(device))
    net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))

    def train(x):
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    with contextlib.closing(memfit.torch.fit(train, "1GiB", check=False)) as step:
        for _ in range(3):
            step(torch.ones(16, 64))
        before = len(looked)
        for _ in range(3):
            step(torch.ones(16, 64))
        assert len(looked) == before
        held = torch.ones(1 << 20)
        step(torch.ones(16, 64))
        assert len(looked) == before + 1
        assert step._budget._native.is_known(held.untyped_storage())
