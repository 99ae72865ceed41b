"""Small models for the compiled path, and how a compiled step is run, compared and measured."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.autograd import profiler


class ResNet(nn.Module):
    """ResNet-18 without its last stage: on some processors the scratch of that stage's kernels, beside the
    gradients, is as much as all that a budget could save.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = torchvision.models.resnet18(num_classes=10)
        self.net.layer4, self.net.fc = nn.Identity(), nn.Linear(256, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images).square().mean()


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5
        past = torch.ones(length, length, dtype=torch.bool).tril()
        weights = self.drop(scores.masked_fill(~past, float("-inf")).softmax(-1))
        x = x + self.drop(self.out((weights @ v).transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.between(x)))))


class GPT(nn.Module):
    def __init__(self, layers: int = 4, width: int = 128, words: int = 1000, dropout: float = 0.1) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(layers))
        self.norm, self.head, self.drop = nn.LayerNorm(width), nn.Linear(width, words), nn.Dropout(dropout)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ids.flatten())


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            _double(*pair) for pair in ((3, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.up = nn.ModuleList([_double(6 * width, 2 * width), _double(3 * width, width)])
        self.wider = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 4 * width, 2, 2), nn.ConvTranspose2d(2 * width, 2 * width, 2, 2)]
        )
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        fine = self.down[0](images)
        middle = self.down[1](F.max_pool2d(fine, 2))
        x = self.wider[0](self.down[2](F.max_pool2d(middle, 2)))
        x = self.wider[1](self.up[0](torch.cat([x, middle], 1)))
        return self.out(self.up[1](torch.cat([x, fine], 1))).square().mean()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "resnet18": (ResNet, lambda batch: torch.randn(batch, 3, 64, 64)),
    "gpt": (GPT, lambda batch: torch.randint(0, 1000, (batch, 128))),
    "unet": (UNet, lambda batch: torch.randn(batch, 3, 64, 64)),
}


@dataclasses.dataclass
class Case:
    """A model, a batch, and the step that both make."""

    model: nn.Module
    batch: torch.Tensor

    @staticmethod
    def of(name: str, batch: int) -> "Case":
        torch.manual_seed(0)
        model, data = MODELS[name]
        return Case(model(), data(batch))

    def compiled(
        self, partition: Any, decompositions: Any = None, *, reset: bool = True
    ) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        """A copy of the model and its step, to be compiled with `partition` when it is first run.

        With `reset` all steps compiled before are forgotten, and compiled anew when they run again.
        """
        if reset:
            torch._dynamo.reset()
        model = copy.deepcopy(self.model)
        backend = aot_autograd(
            fw_compiler=boxed_nop,
            bw_compiler=boxed_nop,
            partition_fn=partition,
            decompositions=decompositions,
        )
        call = torch.compile(model, backend=backend)

        def step() -> torch.Tensor:
            model.zero_grad(set_to_none=True)
            torch.manual_seed(7)
            loss = call(self.batch)
            loss.backward()
            return loss.detach()

        return model, step

    def inputs(self) -> int:
        """Bytes that are there before the step."""
        tensors = [*self.model.parameters(), *self.model.buffers(), self.batch]
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def state(model: nn.Module) -> list[torch.Tensor]:
    """Gradients and buffers."""
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return gradients + [buffer.clone() for buffer in model.buffers()]


def peak(step: Callable[[], Any]) -> int:
    """Most bytes that the CPU's allocator had handed out at once during `step`, beyond those before it."""
    with profiler.profile(profile_memory=True) as prof:
        step()
    results = prof.kineto_results
    assert results is not None
    events = [event for event in results.events() if event.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most
