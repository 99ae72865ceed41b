"""Ten small models with their training steps, and runs of them that can be compared to the last bit."""

import contextlib
import gc
import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from memfit.torch.eager import Budget
from memfit.torch.meter import Meter, live_bytes

CPU = torch.device("cpu")
AMPLE = 1 << 40


def block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Down three levels and up again, with skip connections."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.out = nn.Conv2d(width, 10, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for level in self.down[:-1]:
            skips.append(level(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[-1](x)
        for level in self.up:
            x = level(torch.cat([skips.pop(), F.interpolate(x, scale_factor=2.0)], 1))
        return self.out(x).mean((2, 3))


class InPlace(nn.Module):
    """Convolutions whose results are overwritten again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(24 if at else 3, 24, 3, padding=1) for at in range(6))
        self.gain = nn.Parameter(torch.ones(24, 1, 1))
        self.out = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = conv(x)
            x.mul_(0.9)
            x = x * self.gain
            x.add_(0.1)
            x.relu_()
        return self.out(x.mean((2, 3)))


class Lstm(nn.Module):
    """Two layers with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, 2, batch_first=True, dropout=0.1)
        self.out = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0][:, -1])


class Experts(nn.Module):
    """A mixture of experts: the data say which rows go where."""

    def __init__(self, width: int = 64, experts: int = 4) -> None:
        super().__init__()
        self.into, self.gate, self.out = nn.Linear(32, width), nn.Linear(width, experts), nn.Linear(width, 10)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = len(x)
        x = self.into(x).flatten(0, 1)
        for _ in range(3):
            weights, chosen = self.gate(x).softmax(-1).max(-1)
            mixed = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (chosen == number).nonzero(as_tuple=True)[0]
                if rows.numel():
                    mixed = mixed.index_add(0, rows, expert(x[rows]) * weights[rows, None])
            first = chosen == 0
            if first.any():
                mixed[first] = mixed[first] + 1
            x = x + mixed
        return self.out(x.view(batch, -1, x.shape[-1]).mean(1))


class OnePath(nn.Module):
    """A single-path one-shot network: every step takes another path."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.step = 0
        self.stem, self.out = nn.Conv2d(3, width, 3, padding=1), nn.Linear(width, 10)
        choices = [
            [
                nn.Sequential(
                    nn.Conv2d(width, width, size, padding=size // 2), nn.BatchNorm2d(width), nn.ReLU()
                )
                for size in (1, 3, 5)
            ]
            + [nn.Identity()]
            for _ in range(6)
        ]
        self.choices = nn.ModuleList(map(nn.ModuleList, choices))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        path = random.Random(self.step)
        self.step += 1
        x = self.stem(x)
        for choice in self.choices:
            x = choice[path.randrange(4)](x)
        return self.out(x.mean((2, 3)))


def vision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        return getattr(torchvision.models, name)(num_classes=10)

    return make


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 500, "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=96, n_head=4, **sizes))


def bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 96, "intermediate_size": 384, "vocab_size": 500, "max_position_embeddings": 64}
    return BertForMaskedLM(BertConfig(num_hidden_layers=4, num_attention_heads=4, **sizes))


def images(batch: int = 8, size: int = 64) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, 3, size, size), torch.randint(10, (batch,))


def sequences(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, length, 32), torch.randint(10, (batch,))


def words() -> tuple[torch.Tensor, ...]:
    return (torch.randint(500, (8, 64)),)


def classify(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(inputs), labels)


def classifying(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A training step of `model` that returns its loss."""

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = classify(model, inputs, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def language(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return model(input_ids=tokens, labels=tokens).loss


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "sgd foreach": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, foreach=True),
    "sgd fused": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, fused=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, foreach=False),
    "adam foreach": lambda parameters: torch.optim.Adam(parameters, foreach=True, amsgrad=True),
    "adam fused": lambda parameters: torch.optim.Adam(parameters, fused=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "adamw foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
}


@dataclass
class Case:
    """A model, its data, its loss, its optimizer, and the steps to take."""

    make: Callable[[], nn.Module]
    data: Callable[[], tuple[torch.Tensor, ...]]
    loss: Callable[..., torch.Tensor] = classify
    optimizer: str = "sgd"
    steps: int = 5


CASES = {
    # So many that activations outweigh gradients, whatever scratch memory its convolutions take.
    "resnet18": Case(vision("resnet18"), lambda: images(24), steps=3),
    "resnet50": Case(vision("resnet50"), images, steps=2),
    "densenet121": Case(vision("densenet121"), images, steps=2),
    "u-net": Case(UNet, images, optimizer="adam"),
    "gpt-2": Case(gpt2, words, language, "adamw foreach"),
    "bert": Case(bert, words, language, "adamw fused"),
    "lstm": Case(Lstm, lambda: sequences(16, 40), optimizer="adam foreach"),
    "in place": Case(InPlace, images),
    "experts": Case(Experts, lambda: sequences(8, 40), optimizer="adamw"),
    "one path": Case(OnePath, images),
}


@dataclass
class Outcome:
    """What a run has left: a digest of each tensor, and what it took."""

    digests: dict[str, list[str]] = field(default_factory=dict)
    peak: int = 0
    """Bytes, as PyTorch's allocator saw them, above what was alive before."""
    floor: int = 0
    """Bytes that no schedule of the steps can do without, counted in the same way."""
    stats: dict[str, int] = field(default_factory=dict)


def digest(value: Any) -> str:
    """Of the bits of a tensor, its dtype, and its shape."""
    tensor = torch.as_tensor(value).detach()
    known = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    if tensor.numel():
        known.update(
            tensor.reshape(-1)
            .clone(memory_format=torch.contiguous_format)
            .view(torch.uint8)
            .numpy()
            .tobytes()
        )
    return known.hexdigest()


def digests(
    model: nn.Module, optimizer: torch.optim.Optimizer, losses: list[torch.Tensor]
) -> dict[str, list[str]]:
    return {
        "losses": [digest(loss) for loss in losses],
        "gradients": [digest(p.grad) for p in model.parameters() if p.grad is not None],
        "parameters and buffers": [digest(value) for value in model.state_dict().values()],
        "optimizer": [digest(value) for state in optimizer.state.values() for value in state.values()],
        "generator": [digest(torch.get_rng_state())],
    }


def train(
    case: Case,
    budget: int | None = None,
    *,
    step: Callable[..., torch.Tensor] | None = None,
    watch: bool = False,
    **options: Any,
) -> Outcome:
    """Trains within `budget` bytes above what is alive, or without memfit. To `watch` means to find the floor
    of the steps instead of the peak: memfit can't measure the scratch memory of an op while a meter does.
    """
    gc.collect()
    before = live_bytes(CPU)
    torch.manual_seed(0)
    model = case.make()
    optimizer = OPTIMIZERS[case.optimizer](model.parameters())
    data = case.data()
    outcome, losses = Outcome(), []
    step = step or plain_step
    torch.manual_seed(1)
    context = contextlib.nullcontext() if budget is None else Budget(before + budget, **options)
    meter = contextlib.nullcontext(Meter()) if watch else Meter()
    with meter as meter, context as active:
        for at in range(case.steps):
            if watch and at == case.steps - 1:
                active._native.watch()
            losses.append(step(case, model, optimizer, data))
        if watch:
            persistent, largest, _, _ = active._native.floor()
            outcome.floor = persistent + largest - before
    if budget is not None:
        outcome.stats = active.stats
    outcome.peak = meter.peak_bytes - before
    outcome.digests = digests(model, optimizer, losses)
    return outcome


def plain_step(
    case: Case, model: nn.Module, optimizer: torch.optim.Optimizer, data: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = case.loss(model, *data)
    loss.backward()
    optimizer.step()
    return loss.detach()
