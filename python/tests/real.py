"""Programs that ask for more than they seem to, each within a budget, while the allocator is counted.

`python real.py SHIM` prints one line of JSON for each: the budget, the real peak, what was raised.
"""

import ctypes
import gc
import json
import os
import sys
import warnings

import torch
from torch import nn

import memfit.torch

MIB = 1 << 20


def filled(count: int = 6) -> list[torch.Tensor]:
    """So many tensors of 8 MiB that can be computed again."""
    return [torch.full((2 * MIB,), float(at)).mul(0.5) for at in range(count)]


def total(tensors: list[torch.Tensor]) -> float:
    return sum(float(tensor.sum()) for tensor in tensors)


# What is there before: 48 MiB, and room for 32 more


def frozen():
    held = filled()
    gc.freeze()
    return held


def saved_by_autograd():
    x = torch.ones(2 * MIB, requires_grad=True)
    y = x
    for _ in range(5):
        y = (y + 1).exp()
    return y.sum()


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * x, x + 1, x - 1)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0] * 3


def saved_by_a_function():
    x = torch.ones(2 * MIB, requires_grad=True)
    return Cube.apply(Cube.apply(x)[:8])[0], Cube.apply(x).sum()


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6 * 2 * MIB))

    def forward(self, x):
        return x + self.weight[0]


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(Table())


def gradients_that_stay():
    x = torch.ones(2 * MIB, requires_grad=True)
    y, z = x * 2, x * 3
    y.retain_grad()
    z.retain_grad()
    (y * z).sum().backward()
    return x, y, z


def compressed():
    return [torch.ones(1024, 1024).to_sparse_csr() for _ in range(4)]


def works(_):
    return total(filled(12))


# Ops whose results' sizes depend on the data: beside 48 MiB that can go, 48 or so


def repeats(_):
    held = filled()
    return torch.repeat_interleave(torch.tensor([2 * MIB, 4 * MIB])).sum(), total(held)


def counts(_):
    held = filled()
    return torch.bincount(torch.tensor([1, 6 * MIB - 1])).sum(), total(held)


def weighted_counts(_):
    held = filled()
    return torch.bincount(torch.tensor([1, 6 * MIB - 1]), torch.tensor([0.5, 2.5])).sum(), total(held)


def positions(_):
    held, mask = filled(), torch.ones(3 * MIB, dtype=torch.bool)
    return mask.nonzero().sum(), total(held)


def selected(_):
    held, mask = filled(), torch.ones(1, MIB // 2, dtype=torch.bool)
    return torch.masked_select(torch.ones(3, 1), mask).sum(), total(held)


def masked(_):
    held, mask, x = filled(), torch.ones(MIB, dtype=torch.bool), torch.ones(MIB, 4)
    return x[mask].sum(), total(held)


def masked_assignment(_):
    held, mask, x = filled(), torch.ones(2 * MIB, dtype=torch.bool), torch.ones(2 * MIB)
    x[mask] = torch.arange(2.0 * MIB)
    return x.sum(), total(held)


def sparse(count: int) -> list[torch.Tensor]:
    """So many sparse tensors of 10 MiB."""
    rows = MIB // 4
    made = []
    for at in range(count):
        parts = torch.arange(rows)[None], torch.full((rows, 8), float(at))
        made.append(torch.sparse_coo_tensor(*parts, (rows, 8)) * 2)
    return made


def several_sparse(_):
    held, made = filled(), sparse(3)
    return total([part.to_dense() for part in made]), total(held)


def many_sparse(_):
    return sparse(8)


def distinct(_):
    held, x = filled(), torch.arange(MIB)
    values = torch.unique(x, return_inverse=True, return_counts=True)
    return [value.sum() for value in values], total(held)


def unforeseen(_):
    # There is no kernel for meta tensors.
    count, chance = torch.zeros(2 * MIB), torch.full((2 * MIB,), 0.5)
    first, held = torch.binomial(count, chance), filled()
    second = torch.binomial(count, chance)
    return total([first, second]), total(held)


def unsized(_):
    # There is neither a kernel for meta tensors nor a formula.
    x, bins = torch.rand(100), 2 * MIB
    first, held = torch.histogram(x, bins)[0].sum(), filled()
    again = [torch.histogram(x, bins)[0].sum() for _ in range(2)]
    return total([first, *again]), total(held)


def converted(_):
    # The kernels work on copies in another type, four and eight times as large.
    held, mask = filled(), torch.ones(2 * MIB, dtype=torch.bool)
    counts = torch.ones(2 * MIB, dtype=torch.int8)
    made = [op().sum() for op in 2 * (lambda: mask > 0, lambda: counts / 2, lambda: counts * 0.5)]
    return total(made), total(held)


def alignments(_):
    held, length = filled(), MIB // 4
    scores, targets = torch.zeros(2, 2, 8).log_softmax(-1), torch.ones(2 * length, dtype=torch.int64)
    times, lengths = torch.tensor([2, 2]), torch.tensor([length, length])
    made = [torch.ops.aten._ctc_loss.Tensor(scores, targets, times, lengths)[1] for _ in range(2)]
    return made[0].shape, total(held)


# Kernels with scratch memory, and a loop


def recurrent(_):
    held, net = filled(), nn.LSTM(256, 256, batch_first=True)
    y, _ = net(torch.randn(32, 64, 256))
    return y.sum(), total(held)


def state_of_a_loop(_):
    h = torch.zeros(MIB)
    for _ in range(40):
        batch = torch.tensor([1.0]).expand(MIB).clone()
        h = h * 0.99 + batch * 0.01
    return h.sum()


def nothing():
    return None


PROGRAMS = [
    (frozen, works, 80),
    (saved_by_autograd, works, 80),
    (saved_by_a_function, works, 110),
    (scripted, works, 80),
    (gradients_that_stay, works, 100),
    (compressed, works, 100),
    (nothing, repeats, 62),
    (nothing, counts, 62),
    (nothing, weighted_counts, 62),
    (nothing, positions, 62),
    (nothing, selected, 62),
    (nothing, masked, 62),
    (nothing, masked_assignment, 62),
    (nothing, distinct, 62),
    (nothing, unforeseen, 62),
    (nothing, unsized, 62),
    (nothing, converted, 62),
    (nothing, alignments, 62),
    (nothing, several_sparse, 76),
    (nothing, recurrent, 62),
    (nothing, state_of_a_loop, 24),
]
REFUSED = [(nothing, many_sparse, 60)]
"""What can't be done within the budget."""


def name(before, program) -> str:
    return (before if before is not nothing else program).__name__


def measure(shim, before, program, budget: int) -> dict[str, object]:
    kept = before()
    gc.collect()
    shim.real_restart()
    raised = op = None
    try:
        with memfit.torch.enable(budget) as active:
            try:
                program(kept)
            finally:
                # Going out brings back what was evicted, whatever it takes.
                peak = shim.real_peak()
    except Exception as error:
        raised, op = type(error).__name__, getattr(error, "op", str(error))
    return {"budget": budget, "peak": peak, "told": active.stats["peak_bytes"], "raised": raised, "op": op}


def main() -> None:
    shim = ctypes.CDLL(sys.argv[1])
    shim.real_peak.restype = ctypes.c_long
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for before, program, mib in PROGRAMS + REFUSED:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            told = measure(shim, before, program, mib * MIB)
            os.write(writer, json.dumps(told).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        told = json.loads(told) if told else {"died": status}
        print(json.dumps({"name": name(before, program), **told}), flush=True)


if __name__ == "__main__":
    main()
