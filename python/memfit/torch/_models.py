"""Models of the corpus that no library has at hand: a U-Net, a deep ResNet, an LSTM, a 7B decoder."""

import torch
import torch.nn.functional as F
from torch import nn


def _double_conv(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Ronneberger et al. 2015 (arXiv:1505.04597), with padding and batch norm, as it is used today."""

    def __init__(self, classes: int = 2, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(_double_conv(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(_double_conv(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores `[batch, classes, height, width]` of an image `[batch, 3, height, width]`."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        scores: torch.Tensor = self.head(x)
        return scores


class PreActBlock(nn.Module):
    """A bottleneck whose norms and activations stand before its convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        sizes = [(inputs, width, 1, stride), (width, width, 3, 1), (width, outputs, 1, 1)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(size[0]) for size in sizes)
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, kernel, by, padding=kernel // 2, bias=False) for a, b, kernel, by in sizes
        )
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, inputs, height, width]` to four times the width in channels."""
        y = F.relu(self.norms[0](x), inplace=True)
        kept = x if self.shortcut is None else self.shortcut(y)
        y = self.convs[0](y)
        for norm, conv in zip(self.norms[1:], self.convs[1:], strict=True):
            y = conv(F.relu(norm(y), inplace=True))
        made: torch.Tensor = y + kept
        return made


class PreActResNet(nn.Module):
    """He et al. 2016, "Identity Mappings in Deep Residual Networks" (arXiv:1603.05027), ResNet-1001."""

    def __init__(self, layers: int = 1001, classes: int = 1000) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = 16
        for width in (16, 32, 64):
            for at in range((layers - 2) // 9):
                blocks.append(PreActBlock(channels, width, 2 if width > 16 and at == 0 else 1))
                channels = 4 * width
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores `[batch, classes]` of images `[batch, 3, height, width]`."""
        x = F.relu(self.norm(self.blocks(self.stem(x))), inplace=True)
        scores: torch.Tensor = self.head(x.mean(dim=(2, 3)))
        return scores


class LstmLanguageModel(nn.Module):
    """An LSTM over words, unrolled in time by a Python loop over cells (Zaremba et al. 2014, "medium")."""

    def __init__(self, words: int = 10_000, hidden: int = 650, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, hidden)
        self.cells = nn.ModuleList(nn.LSTMCell(hidden, hidden) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores `[batch, time, words]` of the next word, for each of `[batch, time]`."""
        inputs = self.dropout(self.embed(words))
        states: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(self.cells)
        outputs = []
        for x in inputs.unbind(dim=1):
            for layer, cell in enumerate(self.cells):
                state: tuple[torch.Tensor, torch.Tensor] = cell(x, states[layer])
                states[layer] = state
                x = self.dropout(state[0])
            outputs.append(x)
        scores: torch.Tensor = self.head(torch.stack(outputs, dim=1))
        return scores


def rotary(length: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines `[length, width]` of rotary position embedding (Su et al. 2021, arXiv:2104.09864)."""
    frequencies = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns each pair of elements of `x` by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class DecoderLayer(nn.Module):
    """Attention and SwiGLU, each after an RMS norm and beside a residual path."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """`[batch, length, width]` to the same shape."""
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(-2))
        y = self.norm2(x)
        made: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return made


class Decoder(nn.Module):
    """A decoder-only language model with the shape of LLaMA-7B (Touvron et al. 2023, arXiv:2302.13971)."""

    def __init__(
        self, layers: int = 32, width: int = 4096, heads: int = 32, inner: int = 11_008, words: int = 32_000,
        length: int = 2048,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, words, bias=False)
        for name, table in zip(("cos", "sin"), rotary(length, width // heads), strict=True):
            self.register_buffer(name, table, persistent=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores `[batch, length, words]` of the next word, for each of `[batch, length]`."""
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores
