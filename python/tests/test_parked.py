"""Training in less than what lasts: parameters, gradients and optimizer state wait in host memory, or on a disk."""

import copy
import gc
import io
import pathlib
import subprocess
import sys
import time

import pytest
import torch
from test_fit import left
from test_tiers import spilled
from torch import nn
from training import digest

import memfit
import memfit.torch


class Block(nn.Module):
    """Attention and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.into(self.norms[0](x)).chunk(3, -1)
        weights = (queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out(weights @ values)
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    """A small GPT-2, whose state outweighs its activations."""

    def __init__(self, width: int = 96, layers: int = 4, words: int = 200) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def training():
    torch.manual_seed(0)
    net = Gpt()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False)
    tokens = torch.randint(0, 200, (4, 17))

    def step(tokens):
        optimizer.zero_grad()
        logits = net(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, optimizer, step, tokens


def plainly(steps: int):
    net, optimizer, step, tokens = training()
    torch.manual_seed(1)
    losses = [float(step(tokens)) for _ in range(steps)]
    return losses, digests(net, optimizer)


def digests(net, optimizer) -> list[str]:
    """Of all that a training leaves behind: tensors would count."""
    return [digest(value) for value in left(net, optimizer)]


def below(percent: int) -> tuple[int, int]:
    """A budget so much of what lasts below the floor; the floor."""
    _, _, step, tokens = training()
    step(tokens)
    told = memfit.torch.floor(step, tokens)
    return told.floor_bytes - told.persistent_bytes * percent // 100, told.floor_bytes


def means(tier: str, directory: pathlib.Path) -> dict:
    if tier == "host":
        return {"host_budget": "1GiB"}
    return {"disk_budget": "1GiB", "spill": directory}


@pytest.mark.parametrize("tier", ["host", "disk"])
@pytest.mark.parametrize("check", [None, False])
def test_training_below_the_floor_has_the_same_bits(tier, check, tmp_path):
    gc.collect()
    losses, state = plainly(5)
    budget, floor = below(30)
    assert budget < floor
    net, optimizer, step, tokens = training()
    torch.manual_seed(1)
    fitted = memfit.torch.fit(step, budget, check=check, **means(tier, tmp_path))
    found = [float(fitted(tokens)) for _ in range(5)]
    report = fitted.report
    print(report)
    assert found == losses
    assert report.measured_peak_bytes <= budget
    assert report.moved_bytes > 0 and report.lost_copies == 0
    fitted.close()
    assert digests(net, optimizer) == state
