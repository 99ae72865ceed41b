"""Trainings by `fit` beside plain ones; `auto` plans them, with host memory to move tensors to. Not a test.

    PYTHONPATH=python python python/tests/bench_fit.py [MODELS...]

The ten models of the tests, at `floor+50%` and `floor+20%` with 2 GiB of host memory, on one thread: plain
and fitted each in a process of its own, so that a budget counts one model. Prints the table of docs/auto.md:
`same` is said of losses, gradients, parameters, buffers, the optimizer's state and the generator after all
steps.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from training import CASES, OPTIMIZERS, Case, digests

import memfit.torch

STEPS = 14
HOST = "2GiB"
SHARES = (0.5, 0.2)
HEAD = (
    "model", "floor +", "budget", "plain", "predicted", "measured", "off", "repeated", "moved", "same",
    "why",
)  # fmt: skip


Losses: TypeAlias = list[torch.Tensor]


def training(case: Case) -> tuple[Callable[[], torch.Tensor], Callable[[Losses], dict[str, list[str]]]]:
    """A step of a training, and digests of all that it has made beside losses."""
    torch.manual_seed(0)
    model = case.make()
    optimizer = OPTIMIZERS[case.optimizer](model.parameters())
    data = case.data()
    torch.manual_seed(1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = case.loss(model, *data)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda losses: digests(model, optimizer, losses)


def alone(name: str, budget: int) -> dict[str, Any]:
    """In this process: the budgets if it is 0, the plain training if it is negative, else the fitted one."""
    torch.set_num_threads(1)
    step, made = training(CASES[name])
    if budget == 0:
        step()
        floor = memfit.torch.floor(step)
        return {"budgets": [floor.share(share) for share in SHARES]}
    run: Callable[[], torch.Tensor] = step
    if budget > 0:
        run = fitted = memfit.torch.fit(step, budget, host_budget=HOST)
    times, losses = [], []
    for _ in range(STEPS):
        started = time.perf_counter()
        losses.append(run())
        times.append(time.perf_counter() - started)
    told: dict[str, Any] = {"seconds": statistics.median(times[STEPS // 2 :])}
    if budget > 0:
        report = fitted.report
        told |= {
            "predicted": report.predicted_time_seconds,
            "planned": report.planned_time_seconds,
            "why": report.off_prediction or ("" if report.guided else "decided op by op"),
            "repeated": report.recomputed_ops,
            "moved": report.moved_bytes,
            "peak": report.measured_peak_bytes,
        }
        fitted.close()
    return told | {"made": made(losses)}


def apart(name: str, budget: int) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", __file__, "--alone", name, str(budget)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=600)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def row(name: str, share: float, budget: int, plain: dict[str, Any]) -> list[str]:
    fitted = apart(name, budget)
    if fitted["peak"] > budget:
        raise SystemExit(f"{name}: {fitted['peak']} bytes were in use within a budget of {budget}")

    def milliseconds(seconds: float | None) -> str:
        return "-" if seconds is None else f"{1000 * seconds:.1f} ms"

    planned, predicted = fitted["planned"], fitted["predicted"] if fitted["planned"] else None
    return [
        name,
        f"{share:.0%}",
        f"{budget / 1e6:.1f} MB",
        milliseconds(plain["seconds"]),
        milliseconds(predicted),
        milliseconds(planned or fitted["seconds"]),
        f"{100 * (planned / predicted - 1):+.0f} %" if predicted else "-",
        str(fitted["repeated"]),
        f"{fitted['moved'] / 1e6:.1f} MB",
        "yes" if plain["made"] == fitted["made"] else "NO",
        fitted["why"],
    ]


def main(words: list[str]) -> None:
    if words[:1] == ["--alone"]:
        print(json.dumps(alone(words[1], int(words[2]))))
        return
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    for name in words or CASES:
        budgets, plain = apart(name, 0)["budgets"], apart(name, -1)
        for share, budget in zip(SHARES, budgets, strict=True):
            print(f"| {' | '.join(row(name, share, budget, plain))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
