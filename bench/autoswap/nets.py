"""The eight networks of AutoSwap's evaluation (arXiv:1903.06631, CIFAR-10, batch 100) as graphs.

```console
$ PYTHONPATH=python python bench/autoswap/nets.py corpus/cifar
```

ResNets have a stem of one 3x3 convolution and no pooling before the first stage, VGGs batch norm after each convolution and
one fully connected layer, as is usual for 32x32 images. No layer works in place, as in singa, where the published figures
come from. Needs what `memfit.torch.export` needs; no GPU.
"""

import pathlib
import sys

import torch
from torch import nn

from memfit.torch import export

BATCH = 100


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 with four times the channels, beside a shortcut."""

    def __init__(self, inputs: int, channels: int, stride: int, wide: bool) -> None:
        super().__init__()
        outputs = channels * (4 if wide else 1)
        sizes = [(1, inputs, channels), (3, channels, channels), (1, channels, outputs)]
        if not wide:
            sizes = [(3, inputs, channels), (3, channels, outputs)]
        at = 1 if wide else 0
        layers: list[nn.Module] = []
        for index, (size, left, right) in enumerate(sizes):
            steps = stride if index == at else 1
            layers += [nn.Conv2d(left, right, size, steps, size // 2, bias=False), nn.BatchNorm2d(right)]
            layers += [nn.ReLU()] if index + 1 < len(sizes) else []
        self.body = nn.Sequential(*layers)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


def resnet(counts: list[int], wide: bool) -> nn.Module:
    """A ResNet of four stages of so many blocks."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inputs = 64
    for stage, count in enumerate(counts):
        for at in range(count):
            channels = 64 << stage
            layers.append(Block(inputs, channels, 2 if stage > 0 and at == 0 else 1, wide))
            inputs = channels * (4 if wide else 1)
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(inputs, 10))


def vgg(counts: list[int]) -> nn.Module:
    """A VGG of five stages of so many convolutions."""
    layers: list[nn.Module] = []
    inputs = 3
    for channels, count in zip([64, 128, 256, 512, 512], counts, strict=True):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU()]
            inputs = channels
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


NETS = {
    "resnet18": lambda: resnet([2, 2, 2, 2], False),
    "resnet34": lambda: resnet([3, 4, 6, 3], False),
    "resnet50": lambda: resnet([3, 4, 6, 3], True),
    "resnet101": lambda: resnet([3, 4, 23, 3], True),
    "vgg11": lambda: vgg([1, 1, 2, 2, 2]),
    "vgg13": lambda: vgg([2, 2, 2, 2, 2]),
    "vgg16": lambda: vgg([2, 2, 3, 3, 3]),
    "vgg19": lambda: vgg([2, 2, 4, 4, 4]),
}


def loss(model: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x), labels)


def main(folder: str) -> None:
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for name, make in NETS.items():
        inputs = (torch.zeros(BATCH, 3, 32, 32), torch.zeros(BATCH, dtype=torch.int64))
        path = pathlib.Path(folder) / f"{name}-cifar-b{BATCH}.json.zst"
        export.export(make(), inputs, loss, "momentum", path, name=f"{name}-cifar-b{BATCH}")
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1])
