"""Before you run: will it fit a GPU that is not here, and up to which batch? Seconds on a CPU.

python examples/pytorch/predict.py
"""

import torch
from torch import nn

import memfit.torch

with torch.device("meta"):
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(1024, 1024))
    batch = torch.empty(128, 512, 1024)


def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x).square().mean()


print(memfit.torch.predict(model, batch, loss, torch.optim.AdamW, device="T4"))
