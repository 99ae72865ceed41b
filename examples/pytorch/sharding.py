"""What each of eight ranks holds that share a step by ZeRO's stages, or as FSDP does. Seconds on a CPU.

python examples/pytorch/sharding.py
"""

import torch
from torch import nn

import memfit
from memfit.torch import export

with torch.device("meta"):
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(1024, 1024))
    batch = torch.empty(4, 512, 1024)


def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x).square().mean()


graph = export.capture(model, batch, loss, "adamw").to_json()
for stage in ("state", "gradients", "parameters"):
    print(memfit.shard(graph, ranks=8, stage=stage))

# As `fully_shard` on each layer and on the model does it, and what a plan makes of that.
rank = memfit.shard(graph, ranks=8, stage="parameters", units="0.layers.*")
plan = memfit.plan(rank.file, budget="80%")
print(f"in units  {rank.after.live_peak_bytes / 2**20:.0f} MiB, planned  {plan.peak_bytes / 2**20:.0f} MiB")
