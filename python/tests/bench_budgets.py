"""How the measured peak follows the budget on a deep decoder, beside PyTorch's `activation_memory_budget`.

`PYTHONPATH=python python python/tests/bench_budgets.py [LAYERS...]` prints the table of
docs/pytorch-compiled.md. The model is like that of pytorch#197838: all layers alike, one sequence of 1,024
tokens, no dropout. PyTorch's budget is a share of what is kept for backward; ours is `floor` plus that share
of what lies between floor and peak, in the compiled path and in `fit`. Peaks are those of the CPU's allocator
with what is there before the step; `same`: loss and gradients have the bits of the step without a budget.
"""

import copy
import functools
import sys

import regions
import torch
import torch.nn.functional as F
from regions import Case, peak, state
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import select_decomp_table

import memfit
import memfit.torch
from memfit.torch._models import Decoder

LAYERS = (16, 24, 32)
SHARES = (0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05)
LENGTH = 1024
MB = 1e6


class Language(torch.nn.Module):
    """A decoder with the loss of its next word."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.net = Decoder(layers, width=64, heads=2, inner=176, words=256, length=LENGTH)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(words).flatten(0, 1), words.flatten())


def fitted(case: Case, share: float) -> tuple[int, list[torch.Tensor]]:
    """Peak of the third step of `fit`, and its loss and gradients."""
    model = copy.deepcopy(case.model)

    def train() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = model(case.batch)
        loss.backward()
        return loss.detach()

    step = memfit.torch.fit(train, budget=memfit.torch.floor(train).share(share))
    for _ in range(2):
        step()
    model.zero_grad(set_to_none=True)
    losses: list[torch.Tensor] = []
    most = peak(lambda: losses.append(step())) + case.inputs()
    return most, [*losses, *state(model)]


def compiled(case: Case, partition: object) -> tuple[int, list[torch.Tensor]]:
    """Peak of the second step, and its loss and gradients."""
    model, step = case.compiled(partition, select_decomp_table())
    step()
    model.zero_grad(set_to_none=True)
    losses: list[torch.Tensor] = []
    most = peak(lambda: losses.append(step())) + case.inputs()
    return most, [*losses, *state(model)]


def row(case: Case, layers: int, share: float, plain: list[list[torch.Tensor]]) -> list[str]:
    """The cells of one budget."""
    with config.patch(activation_memory_budget=share):
        theirs, _ = compiled(case, min_cut_rematerialization_partition)
    cells = [str(layers), str(share), f"{theirs / MB:.1f}"]
    runs = (
        lambda: compiled(case, memfit.torch.partition(f"floor+{share:.0%}")),
        lambda: fitted(case, share),
    )
    for run, expected in zip(runs, plain, strict=True):
        try:
            most, made = run()
        except Exception as error:
            cells += [str(error).splitlines()[0], ""]
            continue
        cells += [f"{most / MB:.1f}", "yes" if all(map(torch.equal, made, expected)) else "no"]
    return cells


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    print("| layers | budget | PyTorch, MB | compiled, MB | same | `fit`, MB | same |", flush=True)
    print("|--:|--:|--:|--:|---|--:|---|", flush=True)
    for layers in map(int, names or map(str, LAYERS)):
        make = functools.partial(Language, layers)
        regions.MODELS["language"] = (make, lambda batch: torch.randint(0, 256, (batch, LENGTH)))
        case = Case.of("language", 1)
        plain = [compiled(case, memfit.torch.partition("100%"))[1], fitted(case, 1.0)[1]]
        for share in SHARES:
            print(f"| {' | '.join(row(case, layers, share, plain))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
