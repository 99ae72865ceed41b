"""A step that is recorded once, planned ahead, and guided from then on. Runs on a CPU in seconds.

python examples/pytorch/fit.py
"""

import torch
from torch import nn

import memfit.torch

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True)
model = nn.Sequential(nn.Embedding(100, 64), nn.TransformerEncoder(layer, 4), nn.Linear(64, 100))
optimizer = torch.optim.AdamW(model.parameters())


def train_step(tokens: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


tokens = torch.randint(0, 100, (16, 64))
floor = memfit.torch.floor(train_step, tokens)
print(
    f"floor {floor.floor_bytes / 1e6:.1f} MB, forced by `{floor.largest_op}`; "
    f"peak {floor.peak_bytes / 1e6:.1f} MB"
)

step = memfit.torch.fit(train_step, budget=floor.share(0.5))
for _ in range(5):
    loss = step(tokens)
print(step.report)
