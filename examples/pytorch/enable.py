"""Two lines: any eager training loop under a hard budget. Runs on a CPU in seconds.

python examples/pytorch/enable.py
"""

import torch
from torch import nn

import memfit.torch


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Dropout(0.1),
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.body(hidden)


def train(steps: int) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        *(Residual(32) for _ in range(6)),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    model(images)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


with memfit.torch.Meter() as without:
    plain = train(5)

memfit.torch.enable(budget=int(0.7 * without.peak_bytes))
budgeted = train(5)
memfit.torch.disable()

with (
    memfit.torch.Meter() as within,
    memfit.torch.enable(budget=int(0.7 * without.peak_bytes)) as budget,
):
    again = train(5)

print(f"losses          {', '.join(f'{loss:.4f}' for loss in budgeted)}")
print(f"peak            {without.peak_bytes / 1e6:.1f} MB without, {within.peak_bytes / 1e6:.1f} MB with")
print(f"recomputed      {budget.stats['recomputed_ops']} of {budget.stats['ops']} ops")
print(f"bit-identical   {plain == budgeted == again}")
