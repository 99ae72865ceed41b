"""Selective checkpointing of a block: what to keep is chosen within a budget. Seconds on a CPU.

python examples/pytorch/policy.py
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import memfit.torch

torch.manual_seed(0)
block = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True)
x = torch.randn(8, 64, 64)
policy = memfit.torch.policy(block, x, budget="40%")


def gradients(checkpointed: bool) -> list[torch.Tensor]:
    torch.manual_seed(1)
    block.zero_grad()
    options = {"use_reentrant": False, "context_fn": policy.contexts}
    y = checkpoint(block, x, **options) if checkpointed else block(x)
    y.square().mean().backward()
    return [parameter.grad.clone() for parameter in block.parameters()]


same = all(map(torch.equal, gradients(True), gradients(False)))
print(f"kept            {policy.kept_bytes / 1e6:.1f} of {policy.whole_bytes / 1e6:.1f} MB")
print(f"recomputed      {policy.recompute_ns / policy.forward_ns:.0%} of forward")
print(f"bit-identical   {same}")
