"""A long training whose shapes change, within a budget that something has to go for: does anything grow?

`python soak.py [STEPS]` prints a line of JSON for each way to train: memory of the process and of the
allocator, rows of tables, known shapes of ops, and time per step, in the second quarter of the steps
and in the last.
"""

import gc
import json
import os
import random
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import memfit.torch
from memfit.torch.eager import Budget
from memfit.torch.meter import live_bytes

CPU = torch.device("cpu")
PAGE = os.sysconf("SC_PAGE_SIZE")
ROWS = ("storages", "recipes", "looks")
"""Of the statistics: what memfit has tables of."""


class Net(nn.Module):
    """An embedding, layers with attention, batch norm and dropout."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True) for _ in range(2)
        )
        self.norm, self.out = nn.BatchNorm1d(width), nn.Linear(width, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x.mean(1)))


def resident() -> int:
    """Bytes of the process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def soak(kind: str, steps: int) -> dict:
    torch.manual_seed(0)
    shapes = random.Random(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())

    def step(words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(words), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        # Some shapes come again and again, others once.
        size = shapes.choice([8, 12, 16])
        length = shapes.choice([16, 24, 32, shapes.randint(16, 32)])
        return torch.randint(100, (size, length)), torch.randint(10, (size,))

    step(torch.randint(100, (16, 32)), torch.randint(10, (16,)))
    with Budget(1 << 40) as ample:
        before = live_bytes(CPU)
        step(torch.randint(100, (16, 32)), torch.randint(10, (16,)))
        peak = ample.stats["peak_bytes"]
    budget = before + int(0.6 * (peak - before))
    if kind == "fit":
        within = memfit.torch.fit(step, budget, check=False)
        run, stats = within, lambda: within._budget._native.stats()
    else:
        means = {"host_budget": "64MiB"} if kind == "host" else {}
        enabled = Budget(budget, **means)
        enabled.__enter__()
        run, stats = step, lambda: enabled.stats
    seen = []
    every = max(1, steps // 40)
    began = time.perf_counter()
    for at in range(1, steps + 1):
        run(*batch())
        if at % every == 0:
            gc.collect()
            now = time.perf_counter()
            told = stats()
            rows = sum(told[name] for name in ROWS)
            seen.append((resident(), live_bytes(CPU), rows, told["shapes"], (now - began) / every))
            began = time.perf_counter()
    told = stats()
    if kind == "fit":
        within.close()
    else:
        enabled.__exit__(None, None, None)
    quarters = seen[len(seen) // 4 : len(seen) // 2], seen[-(len(seen) // 4) :]
    second, last = (
        [statistics.median(column) for column in zip(*quarter, strict=True)] for quarter in quarters
    )
    names = ("resident_bytes", "live_bytes", "rows", "shapes", "seconds_per_step")
    return {
        "kind": kind,
        "steps": steps,
        "budget": budget,
        "recomputed_ops": told["recomputed_ops"],
        "stored_bytes": told["stored_bytes"],
        "second_quarter": dict(zip(names, second, strict=True)),
        "last_quarter": dict(zip(names, last, strict=True)),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for kind in sys.argv[2:] or ("eager", "host", "fit"):
        print(json.dumps(soak(kind, int(sys.argv[1]) if len(sys.argv) > 1 else 2000)), flush=True)
