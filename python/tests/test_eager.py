"""A graph's live peak, in its own order, is that of a real run of eager PyTorch.

Without `may` reuse the two agree, but for what outlives its last use in a real run: what Python's variables
hold, and what an autograd function has saved until all its gradients are there. That is one layer's worth at
most, so a graph is never above a real run, and below by a share that vanishes with depth. On the CPU, eager
dropout keeps an f32 mask where GPUs (and the graph) keep one byte: here the run uses the fused op too.
"""

import pytest
import torch
import torch.nn.functional as F
from graphs import capture, classify
from meter import Meter
from torch import nn
from validate import live_peak

from memfit.torch import _models

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, fused=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, fused=True),
}


class Residual(nn.Module):
    """Two convolutions with batch norm and a path around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += x
        return self.relu(y)


def cnn() -> tuple:
    body = [nn.Conv2d(3, 16, 3, padding=1), nn.MaxPool2d(2), Residual(16), Residual(16), nn.AvgPool2d(4)]
    model = nn.Sequential(*body, nn.Flatten(), nn.Dropout(0.2), nn.Linear(16 * 16, 10))
    return model, (torch.randn(8, 3, 32, 32), torch.randint(10, (8,))), classify


def transformer() -> tuple:
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True)
    layer.self_attn.dropout = 0.0  # its mask, made inside an op, can't be swapped for the fused one
    model = nn.Sequential(
        nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Flatten(), nn.LazyLinear(10)
    )
    x = torch.randn(4, 32, 64)
    model(x)
    return model, (x, torch.randint(10, (4,))), classify


def next_word(model: nn.Module, words: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(words).flatten(0, 1), words.flatten())


def lstm() -> tuple:
    return _models.LstmLanguageModel(100, 64), (torch.zeros(4, 6, dtype=torch.int64),), next_word


def decoder() -> tuple:
    words = torch.zeros(2, 64, dtype=torch.int64)
    return _models.Decoder(3, 64, 4, 192, 100, 64), (words,), next_word


@pytest.mark.parametrize(
    ("make", "optimizer"), [(cnn, "momentum"), (transformer, "adamw"), (lstm, "sgd"), (decoder, "adamw")]
)
def test_the_live_peak_is_that_of_a_real_run(make, optimizer, monkeypatch):
    def dropout(x, p=0.5, training=True, inplace=False):
        return torch.native_dropout(x, p, True)[0] if training and p else x

    monkeypatch.setattr(F, "dropout", dropout)
    torch.manual_seed(0)
    model, inputs, loss_fn = make()
    model.train()
    graph = capture(model, inputs, loss_fn, optimizer)
    step = OPTIMIZERS[optimizer](model.parameters())

    def run() -> None:
        loss_fn(model, *inputs).backward()
        step.step()

    run()
    step.zero_grad()
    state = [
        v for s in step.state.values() for k, v in s.items() if isinstance(v, torch.Tensor) and k != "step"
    ]
    with Meter([*model.parameters(), *model.buffers(), *inputs, *state]) as meter:
        run()
    peak = live_peak(graph, in_place=False)
    assert 0.98 * meter.peak < peak <= meter.peak
    assert live_peak(graph) <= peak
