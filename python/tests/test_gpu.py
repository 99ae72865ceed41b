"""`cargo xtask gpu` runs dry: the same script, with small sizes, on a CPU."""

import contextlib
import json
import pathlib
import subprocess
import sys

import torch

import memfit.torch
from memfit.torch import _cuda


# Its own process: the script sets switches that PyTorch's own tests, once imported, let nobody set.
def test_the_script_writes_what_it_found_and_finds_no_fault(tmp_path):
    path = tmp_path / "gpu.json"
    script = pathlib.Path(__file__).with_name("gpu.py")
    slices = ["gpt", "swap", "doubts", "graphs", "burn"]
    asked = ["--device", "cpu", "--slices", ",".join(slices), "--out", str(path)]
    done = subprocess.run([sys.executable, script, *asked], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["about"]["device"] == "cpu"
    rows = record["rows"]
    assert list(dict.fromkeys(row["slice"] for row in rows)) == slices
    for name in ("gpt", "swap"):
        trained = [row for row in rows if row["slice"] == name and "same_bits" in row]
        assert trained
        assert all(row["same_bits"] and row["within_budget"] for row in trained), trained
    assert all(row["differ"] == [] for row in rows if "differ" in row)


class Allocator:
    """What `torch.cuda` says of an allocator, without one."""

    def __init__(self):
        self.used = self.most = 0

    def take(self, size):
        self.used += size
        self.most = max(self.most, self.used)

    def memory_stats_as_nested_dict(self, device=None):
        return {"allocated_bytes": {"all": {"current": self.used, "peak": self.most}}}

    def reset_peak_memory_stats(self, device=None):
        self.most = self.used

    def current_device(self):
        return 0


def test_a_peak_outlives_the_measurements_after_it(monkeypatch):
    allocator = Allocator()
    for name in ("memory_stats_as_nested_dict", "reset_peak_memory_stats", "current_device"):
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
