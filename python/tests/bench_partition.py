"""The compiled path beside PyTorch's `activation_memory_budget`, at equal measured peaks.

`PYTHONPATH=python python python/tests/bench_partition.py [MODEL[:BATCH]...]` prints the table of
docs/pytorch-compiled.md. For each of PyTorch's budgets its peak is measured, and memfit plans for as many
bytes; at 1, PyTorch's default, for as many as it takes to run nothing twice. Both steps then run in turn; a
step's time is processor time of one thread, the median of all rounds; `+-` is half of what lies between the
quartiles of the ratios.
"""

import statistics
import sys
import time
from collections.abc import Callable

import regions
import torch
import torchvision
from regions import Case, peak, state
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import select_decomp_table

import memfit
import memfit.torch

BATCH = {"resnet18": 32, "gpt": 8, "unet": 8, "densenet": 4, "bert": 4}
SHARES = (1.0, 0.7, 0.5, 0.3)
ROUNDS = 15
MB = 1e6


class DenseNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torchvision.models.densenet121(num_classes=10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images).square().mean()


class Bert(torch.nn.Module):
    """An encoder of PyTorch's own layers, with fused attention and without dropout."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(
            192, 4, 768, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.words = torch.nn.Embedding(2000, 192)
        self.layers = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = torch.nn.Linear(192, 2000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.layers(self.words(ids)))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


regions.MODELS["densenet"] = (DenseNet, lambda batch: torch.randn(batch, 3, 64, 64))
regions.MODELS["bert"] = (Bert, lambda batch: torch.randint(0, 2000, (batch, 128)))


def measured(model: torch.nn.Module, step: Callable[[], object], case: Case) -> int:
    step()
    model.zero_grad(set_to_none=True)
    return peak(step) + case.inputs()


def seconds(step: Callable[[], object]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    table = select_decomp_table()
    heads = [
        "model",
        "PyTorch's budget",
        "peak, MB: PyTorch",
        "memfit",
        "step, ms: PyTorch",
        "memfit",
        "ratio",
        "+-",
    ]
    print(f"| {' | '.join(heads)} | same bits |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")
    for which in names or BATCH:
        name, _, batch = which.partition(":")
        case = Case.of(name, int(batch or BATCH[name]))
        for share in SHARES:
            with config.patch(activation_memory_budget=share):
                model, theirs = case.compiled(min_cut_rematerialization_partition, table)
                most = measured(model, theirs, case)
            partition = memfit.torch.partition(most if share < 1 else "100%")
            own, ours = case.compiled(partition, table, reset=False)
            try:
                bytes_ours = measured(own, ours, case)
            except Exception as error:
                print(f"| {name} | {share} | {most / MB:.1f} | {str(error).splitlines()[0]} ||||||")
                continue
            pairs = [(seconds(theirs), seconds(ours)) for _ in range(ROUNDS)]
            slow, fast = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratios = [mine / other for other, mine in pairs]
            low, ratio, high = statistics.quantiles(ratios, n=4)
            same = torch.equal(theirs(), ours()) and all(map(torch.equal, state(model), state(own)))
            cells = [which, share, f"{most / MB:.1f}", f"{bytes_ours / MB:.1f}"]
            cells += [f"{slow * 1e3:.0f}", f"{fast * 1e3:.0f}", f"{ratio:.2f}", f"{(high - low) / 2:.2f}"]
            cells += ["yes" if same else "no"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
