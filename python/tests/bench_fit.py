"""`fit` with recomputation and host memory on the ten models: bits, peaks, and time beside the prediction.

`PYTHONPATH=python python python/tests/bench_fit.py [MODEL...]` prints the table of docs/pytorch.md. A budget
is half of what lies between floor and peak, host memory has room for all, nothing names a strategy. A step's
time is the median of the last ones, plain and fitted in turn; predicted is the plain step and what the report
says that repeated ops take. One thread.
"""

import gc
import statistics
import sys
import time
from typing import Any

import torch
from training import CASES, OPTIMIZERS, Case, digest

import memfit
import memfit.torch

STEPS = 14
SETTLED = 6
"""The first calls are recorded, planned and checked."""
MB = 1e6


class Run:
    """A training of `case` from its first step on."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.case, self.model, self.batch = case, case.make(), case.data()
        self.optimizer = OPTIMIZERS[case.optimizer](self.model.parameters())
        self.random = torch.get_rng_state()
        self.call: Any = self.step
        self.made: list[str] = []
        self.seconds: list[float] = []

    def step(self, *batch: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.case.loss(self.model, *batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def go(self) -> None:
        """One step, with the random numbers of this run."""
        torch.set_rng_state(self.random)
        start = time.perf_counter()
        loss = self.call(*self.batch)
        self.seconds.append(time.perf_counter() - start)
        self.random = torch.get_rng_state()
        self.made.append(digest(loss))

    def state(self) -> list[str]:
        return [*self.made, *(digest(value) for value in self.model.state_dict().values())]


def row(name: str) -> list[str]:
    plain, fitted = Run(CASES[name]), Run(CASES[name])
    for run in (plain, fitted):
        run.go()
    # It trains.
    other = Run(CASES[name])
    other.go()
    floor = memfit.torch.floor(other.step, *other.batch)
    del other
    fitted.call = memfit.torch.fit(fitted.step, floor.share(0.5), host_budget="2GiB")
    for _ in range(STEPS):
        gc.collect()
        plain.go()
        fitted.go()
    report = fitted.call.report
    same = plain.state() == fitted.state()
    before, after = (statistics.median(run.seconds[SETTLED:]) for run in (plain, fitted))
    predicted = before + (report.predicted_recompute_seconds or 0.0)
    fitted.call.close()
    measured = report.measured_peak_bytes or 0
    return [
        name,
        f"{report.base_peak_bytes / MB:.0f}",
        f"{report.budget_bytes / MB:.0f}",
        f"{measured / MB:.0f}",
        f"{before * 1e3:.0f}",
        f"{predicted * 1e3:.0f}",
        f"{after * 1e3:.0f}",
        f"{after / predicted:.2f}",
        "yes" if same else "no",
    ]


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    head = ["model", "peak, MB", "budget", "with", "step, ms", "predicted", "with", "ratio", "same bits"]
    print(f"| {' | '.join(head)} |\n|---|{'--:|' * 7}---|", flush=True)
    for name in names or CASES:
        print(f"| {' | '.join(row(name))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
