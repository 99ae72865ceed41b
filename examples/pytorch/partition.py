"""A compiled training step within a budget: what is kept for backward, what runs again. Seconds on a CPU.

python examples/pytorch/partition.py
"""

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch.partitioners import default_partition

import memfit.torch


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


def train(partition, steps: int) -> tuple[list[float], int]:
    """The losses, and the peak of the last step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), *(Block(128) for _ in range(4)), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, labels = torch.randn(512, 32), torch.randint(0, 10, (512,))

    # With Inductor it's `torch._inductor.config.custom_partitioner_fn = partition` instead.
    backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partition)

    @torch.compile(backend=backend)
    def loss_of(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), labels)

    losses = []
    for _ in range(steps):
        with memfit.torch.Meter() as meter:
            optimizer.zero_grad()
            loss = loss_of(x, labels)
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, meter.peak_bytes


plain, peak = train(default_partition, 4)
partition = memfit.torch.partition(budget="floor+40%")
budgeted, within = train(partition, 4)

(region,) = partition.regions
print(f"losses          {', '.join(f'{loss:.4f}' for loss in budgeted)}")
print(f"budget          {region.budget_bytes / 1e6:.1f} MB for the region")
print(f"peak            {peak / 1e6:.1f} MB without, {within / 1e6:.1f} MB with")
print(f"recomputed      {region.repeated} ops, {region.plan.overhead:.1%} of the step by prediction")
print(f"bit-identical   {plain == budgeted}")
