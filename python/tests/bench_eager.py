"""Figures of the eager host, beside plain PyTorch in the same process. Not a test.

    PYTHONPATH=python python python/tests/bench_eager.py

Processor time, medians of paired runs: per op without eviction, and per step at `floor+60%` with the two
parts that make it longer: ops that run again, and everything else (the mode, the engine, the arguments).
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

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
    main()
