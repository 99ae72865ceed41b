"""Figures of the eager host, beside plain PyTorch in the same process. Not a test.

    PYTHONPATH=python python python/tests/bench_eager.py [--models]

Processor time, medians of paired runs: per op without eviction, and per step at `floor+60%` with the two
parts that make it longer: ops that run again, and everything else (the mode, the engine, the arguments).

`--models` has whole models of a few million parameters instead, on one thread: in each round a plain step,
one under a bare dispatch mode that only calls the op, one under `enable` with room to spare, and one of `fit`
guided by a plan within `floor+60%`. What a face takes beyond the plain step is told as a multiple of what the
bare mode takes beyond it; of `fit`, without what it computes again.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from everyday import MODELS, adamw
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from training import OPTIMIZERS, Case, images

import memfit.torch


def per_op() -> None:
    torch.set_num_threads(1)

    def chain(count: int = 2000) -> float:
        value = torch.ones(16)
        started = time.process_time()
        for _ in range(count):
            value = torch.add(value, 1.0)
        return (time.process_time() - started) / count

    def backward(count: int = 700) -> float:
        first, factor = (torch.ones(16, 16, requires_grad=True) for _ in range(2))
        value = first
        started = time.process_time()
        for _ in range(count):
            value = torch.mul(value, factor)
        value.sum().backward()
        return (time.process_time() - started) / (3 * count)

    for name, run in (("add, no gradient", chain), ("mul and its backward", backward)):
        plain, within = [], []
        for _ in range(9):
            plain.append(run())
            with memfit.torch.enable(1 << 40):
                run(100)
                within.append(run())
        added = statistics.median(b - a for a, b in zip(plain, within, strict=True))
        own = f"{1e6 * statistics.median(plain):6.2f} us plain"
        print(f"{name:<24} {own}, +{1e6 * added:.2f} us of memfit per op")


def steps(name: str, step: Callable[[], object], budget: int, rounds: int = 7) -> None:
    plain, within, again = [], [], []
    for _ in range(2):
        step()
    for _ in range(rounds):
        started = time.process_time()
        step()
        plain.append(time.process_time() - started)
        with memfit.torch.enable(budget) as active:
            step()
            before = active.stats
            started = time.process_time()
            step()
            within.append(time.process_time() - started)
            again.append((active.stats["recompute_ns"] - before["recompute_ns"]) / 1e9)
    base, total, recomputed = map(statistics.median, (plain, within, again))
    rest = total - base - recomputed
    print(
        f"{name:<24} {1000 * base:7.1f} ms plain, {total / base:.2f} x within floor+60%: "
        f"+{100 * recomputed / base:.0f} % recomputed, +{100 * rest / base:.0f} % the rest"
    )


def training(
    model: nn.Module, loss: Callable[..., torch.Tensor], batch: tuple[torch.Tensor, ...]
) -> Callable[[], object]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        loss(model, *batch).backward()
        optimizer.step()

    return step


class Bare(TorchDispatchMode):
    """Calls each op, and counts them."""

    ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops += 1
        return func(*args, **(kwargs or {}))


def spent(run: Callable[[], object]) -> float:
    """Milliseconds of the processor."""
    started = time.process_time()
    run()
    return 1000 * (time.process_time() - started)


def model(name: str, case: Case, rounds: int = 15) -> None:
    torch.manual_seed(0)
    net, data = case.make(), case.data()
    optimizer = OPTIMIZERS[case.optimizer](net.parameters())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = case.loss(net, *data)
        loss.backward()
        optimizer.step()
        return loss.detach()

    bare = Bare()

    def watched() -> None:
        with bare:
            step()

    for _ in range(3):
        step()
    fitted = memfit.torch.fit(step, memfit.torch.floor(step).share(0.6))
    for _ in range(5):
        fitted()
    times: dict[str, list[float]] = {name: [] for name in ("plain", "bare", "enable", "fit", "again")}
    for _ in range(rounds):
        times["plain"].append(spent(step))
        times["bare"].append(spent(watched))
        with memfit.torch.enable(1 << 40):
            step()
            times["enable"].append(spent(step))
        fitted()
        times["fit"].append(spent(fitted))
        times["again"].append(1000 * (fitted.report.recompute_seconds or 0.0))
    plain, mode, enable, guided, again = map(statistics.median, times.values())
    pairs = list(zip(*times.values(), strict=True))
    extra = statistics.median(b - a for a, b, *_ in pairs)
    of_enable = statistics.median(c - a for a, _, c, *_ in pairs) / extra
    of_fit = statistics.median(d - e - a for a, _, _, d, e in pairs) / extra
    followed = "" if fitted.report.guided else f" (not guided: {fitted.report.left_why})"
    fitted.close()
    print(
        f"| {name}, {bare.ops // rounds} ops | {plain:.1f} ms | {mode:.1f} ms "
        f"| {enable:.1f} ms, {of_enable:.1f} x | "
        f"{guided:.1f} ms, {again:.1f} of them again, {of_fit:.1f} x |{followed}",
        flush=True,
    )


def models() -> None:
    import torchvision

    torch.set_num_threads(1)
    resnet = adamw(lambda: torchvision.models.resnet18(num_classes=10), lambda: images(8, 64))
    for name, case in {
        **{name: MODELS[name] for name in ("llama", "t5", "clip", "mamba")},
        "resnet18": resnet,
    }.items():
        model(name, case)


def main() -> None:
    import torchvision
    from transformers import GPT2Config, GPT2LMHeadModel

    per_op()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    resnet = torchvision.models.resnet18(num_classes=10)
    images = torch.randn(32, 3, 128, 128), torch.randint(0, 10, (32,))
    step = training(resnet, lambda model, x, y: nn.functional.cross_entropy(model(x), y), images)
    steps("resnet18, 128, batch 32", step, memfit.torch.floor(step).share(0.6))
    config = GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000, bos_token_id=0, eos_token_id=0)
    gpt, tokens = GPT2LMHeadModel(config), torch.randint(0, 1000, (8, 128))
    step = training(gpt, lambda model, x: model(input_ids=x, labels=x).loss, (tokens,))
    steps("GPT-2-like, 4 layers", step, memfit.torch.floor(step).share(0.6))


if __name__ == "__main__":
    models() if "--models" in sys.argv else main()
