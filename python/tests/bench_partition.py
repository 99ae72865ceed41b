"""The compiled path beside PyTorch's `activation_memory_budget`, at equal measured peaks.

`PYTHONPATH=python python python/tests/bench_partition.py [MODEL...]` prints the table of
docs/pytorch-compiled.md. For each of PyTorch's budgets its peak is measured, and memfit plans for as many
bytes. Both steps then run in turn; a step's time is processor time of one thread, the median of all rounds.
"""

import statistics
import sys
import time
from collections.abc import Callable

import regions
import torch
from regions import Case, peak, state
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import select_decomp_table

import memfit
import memfit.torch

BATCH = {"resnet18": 32, "gpt": 8, "unet": 8}
ROUNDS = 11
MB = 1e6


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
    ]
    print(f"| {' | '.join(heads)} | same bits |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    for name in names or list(regions.MODELS):
        case = Case.of(name, BATCH[name])
        for share in (0.7, 0.5, 0.3):
            with config.patch(activation_memory_budget=share):
                model, theirs = case.compiled(min_cut_rematerialization_partition, table)
                most = measured(model, theirs, case)
            partition = memfit.torch.partition(most)
            own, ours = case.compiled(partition, table, reset=False)
            try:
                bytes_ours = measured(own, ours, case)
            except Exception as error:
                print(f"| {name} | {share} | {most / MB:.1f} | {str(error).splitlines()[0]} |||||")
                continue
            pairs = [(seconds(theirs), seconds(ours)) for _ in range(ROUNDS)]
            slow, fast = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(mine / other for other, mine in pairs)
            same = torch.equal(theirs(), ours()) and all(map(torch.equal, state(model), state(own)))
            cells = [name, share, f"{most / MB:.1f}", f"{bytes_ours / MB:.1f}"]
            cells += [f"{slow * 1e3:.0f}", f"{fast * 1e3:.0f}", f"{ratio:.2f}", "yes" if same else "no"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
