"""Random programs of PyTorch ops: views, writes in place, random numbers, reductions, indexing, gradients.

A program is its seed. Which op comes next, and on what, is drawn from the seed and from the shapes alone, so
that a program takes the same way wherever it runs.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from memfit import BudgetError

MOST = 10
"""Tensors that a program holds at a time."""


class Program:
    """The state of a run: the tensors that it holds, and what it has seen on its way."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.leaves = [torch.randn(self.shape(), requires_grad=True) for _ in range(3)]
        self.held: list[Tensor] = [*self.leaves, torch.randn(self.shape()), torch.randn(self.shape())]
        self.numbers = torch.randint(0, 3, (64,))
        self.mean, self.variance = torch.zeros(4), torch.ones(4)
        self.seen: list[str] = []
        self.stopped: int | None = None

    def run(self, stop: int | None = None) -> int:
        """Runs up to step `stop`; returns how many were taken. One that PyTorch refuses changes nothing."""
        steps = self.draw.randrange(20, 60)
        for at in range(steps):
            if at == stop:
                return at
            name, op = self.draw.choice(OPS)
            inputs = self.draw.choice(self.held), self.draw.choice(self.held)
            grown = self.draw.getrandbits(32)
            try:
                with torch.set_grad_enabled(self.draw.random() < 0.9):
                    made = op(self, random.Random(grown), *inputs)
            except BudgetError:
                self.stopped = None if name in STAGED else at
                raise
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                self.seen.append(f"{name}: {type(error).__name__}")
                continue
            self.seen.append(f"{name}: {made}" if isinstance(made, (float, int, bool)) else name)
            for tensor in made if isinstance(made, (tuple, list)) else [made]:
                if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.numel() <= 4096:
                    self.hold(tensor)
            del made, inputs
        return steps

    def hold(self, tensor: Tensor) -> None:
        self.held.append(tensor)
        if len(self.held) > MOST:
            del self.held[self.draw.randrange(len(self.held))]
            if not self.held:
                self.held.append(torch.ones(()))

    def shape(self) -> tuple[int, ...]:
        return tuple(self.draw.choice((1, 2, 4, 8, 16)) for _ in range(self.draw.randrange(1, 4)))

    def tensors(self) -> list[Tensor]:
        """All that the program can see at its end."""
        gradients = [leaf.grad for leaf in self.leaves if leaf.grad is not None]
        return [*self.leaves, *gradients, *self.held, self.numbers, self.mean, self.variance]


Draw = random.Random
Op = Callable[[Program, Draw, Tensor, Tensor], Any]


def dimension(draw: Draw, x: Tensor) -> int:
    return draw.randrange(x.dim()) if x.dim() else 0


def rows(program: Program, draw: Draw, size: int) -> Tensor:
    """Indices below `size`, made by ops of their own."""
    count = draw.choice((1, 2, 5))
    return program.numbers[:count] % max(size, 1)


def index_put(program: Program, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    x = x.clone()
    x[rows(program, draw, len(x))] = draw.random()
    return x


def write_at(program: Program, draw: Draw, x: Tensor, y: Tensor) -> None:
    x[rows(program, draw, len(x))] = draw.random()


def add_out(program: Program, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    """PyTorch refuses to make memory of others larger, but leaves `y` so: later ops write beyond it."""
    if x.numel() > y.numel() and not y.untyped_storage().resizable():
        raise RuntimeError("the memory of `out` is somebody else's")
    return torch.add(x, 1, out=y)


def backward(program: Program, draw: Draw, x: Tensor, y: Tensor) -> None:
    loss = sum(tensor.sum() for tensor in (x, y, *program.held[-2:]) if tensor.requires_grad)
    if isinstance(loss, Tensor):
        loss.backward(retain_graph=draw.random() < 0.5)


def double_backward(program: Program, draw: Draw, x: Tensor, y: Tensor) -> Tensor | None:
    leaf = program.leaves[draw.randrange(3)]
    (gradient,) = torch.autograd.grad((leaf * x).tanh().sum(), leaf, create_graph=True)
    gradient.pow(2).sum().backward()
    return gradient


def normalise(program: Program, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    x = x.reshape(-1)
    x = x[: len(x) // 4 * 4].view(-1, 4)
    return F.batch_norm(x, program.mean, program.variance, training=draw.random() < 0.8)


def branch(program: Program, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    return x.neg() if x.sum().item() > 0 else x.exp()


def convolve(program: Program, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    signal, kernel = x.reshape(1, 1, -1), y.reshape(1, 1, -1)[..., :3]
    return F.conv1d(signal, kernel, padding=1)[0, 0]


def attend(program: Program, draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    x = x.reshape(1, 1, -1, x.shape[-1])
    return F.scaled_dot_product_attention(x, x, x, dropout_p=draw.choice((0.0, 0.3)))[0, 0]


def renew(program: Program, draw: Draw, x: Tensor, y: Tensor) -> None:
    """An optimizer's step by hand."""
    with torch.no_grad():
        for leaf in program.leaves:
            if leaf.grad is not None:
                leaf.sub_(leaf.grad, alpha=0.01)
                leaf.grad = None if draw.random() < 0.5 else leaf.grad.zero_()


def swap(program: Program, draw: Draw, x: Tensor, y: Tensor) -> None:
    leaf = program.leaves[draw.randrange(3)]
    leaf.data = torch.full_like(leaf, 0.5) + leaf.detach()


# Names are what a failure is reported by.
OPS: list[tuple[str, Op]] = [
    ("tanh", lambda p, d, x, y: x.tanh()),
    ("sigmoid", lambda p, d, x, y: x.sigmoid()),
    ("gelu", lambda p, d, x, y: F.gelu(x)),
    ("relu", lambda p, d, x, y: x.relu()),
    ("add", lambda p, d, x, y: x + y),
    ("mul", lambda p, d, x, y: x * y),
    ("sub scalar", lambda p, d, x, y: x - d.random()),
    ("div", lambda p, d, x, y: x / (y.abs() + 1)),
    ("where", lambda p, d, x, y: torch.where(x > 0, x, y)),
    ("lerp", lambda p, d, x, y: torch.lerp(x, y, d.random())),
    ("matmul", lambda p, d, x, y: x @ y),
    ("outer", lambda p, d, x, y: torch.outer(x.flatten()[:16], y.flatten()[:16])),
    ("gram", lambda p, d, x, y: x.reshape(-1, x.shape[-1]).t() @ x.reshape(-1, x.shape[-1]) / x.numel()),
    ("convolve", convolve),
    ("attend", attend),
    ("sum", lambda p, d, x, y: x.sum(dimension(d, x), keepdim=d.random() < 0.5)),
    ("mean", lambda p, d, x, y: x.mean()),
    ("amax", lambda p, d, x, y: x.amax(dimension(d, x))),
    ("max", lambda p, d, x, y: x.max(dimension(d, x))),
    ("norm", lambda p, d, x, y: x.norm(dim=dimension(d, x))),
    ("softmax", lambda p, d, x, y: x.softmax(dimension(d, x))),
    ("cumsum", lambda p, d, x, y: x.cumsum(dimension(d, x))),
    ("sort", lambda p, d, x, y: x.sort(dimension(d, x))),
    ("topk", lambda p, d, x, y: x.topk(1, dimension(d, x))),
    ("layer norm", lambda p, d, x, y: F.layer_norm(x, x.shape[-1:])),
    ("batch norm", normalise),
    # Views.
    ("transpose", lambda p, d, x, y: x.transpose(0, -1)),
    ("reshape", lambda p, d, x, y: x.reshape(-1)),
    ("view", lambda p, d, x, y: x.view(2, -1)),
    ("slice", lambda p, d, x, y: x[:: d.choice((1, 2))]),
    ("narrow", lambda p, d, x, y: x.narrow(dimension(d, x), 0, 1)),
    ("select", lambda p, d, x, y: x.select(dimension(d, x), 0)),
    ("expand", lambda p, d, x, y: x.unsqueeze(0).expand(d.choice((2, 3)), *x.shape)),
    ("diagonal", lambda p, d, x, y: x.diagonal()),
    ("unfold", lambda p, d, x, y: x.unfold(dimension(d, x), 2, 1)),
    ("chunk", lambda p, d, x, y: x.chunk(2, dimension(d, x))),
    ("unbind", lambda p, d, x, y: x.unbind(dimension(d, x))),
    ("detach", lambda p, d, x, y: x.detach()),
    ("as strided", lambda p, d, x, y: x.as_strided((2, 2), (1, 1))),
    ("bits", lambda p, d, x, y: x.detach().view(torch.int32).bitwise_and(0x3FFFFFFF).view(torch.float32)),
    ("clone", lambda p, d, x, y: x.clone()),
    ("contiguous", lambda p, d, x, y: x.contiguous()),
    ("cat", lambda p, d, x, y: torch.cat([x.reshape(-1), y.reshape(-1)])),
    ("stack", lambda p, d, x, y: torch.stack([x, x])),
    ("half", lambda p, d, x, y: x.to(torch.bfloat16).mul(2).float()),
    ("double", lambda p, d, x, y: x.double().sin().float()),
    # In place, also through views.
    ("add_", lambda p, d, x, y: x.add_(y)),
    ("mul_", lambda p, d, x, y: x.mul_(0.5)),
    ("relu_", lambda p, d, x, y: x.relu_()),
    ("clamp_", lambda p, d, x, y: x.clamp_(-2, 2)),
    ("zero_", lambda p, d, x, y: x.zero_()),
    ("copy_", lambda p, d, x, y: x.copy_(y)),
    ("fill_ part", lambda p, d, x, y: x[..., :1].fill_(d.random())),
    ("add_ transposed", lambda p, d, x, y: x.t().add_(1)),
    ("masked_fill_", lambda p, d, x, y: x.masked_fill_(x > 1, 0.5)),
    ("square, then in place", lambda p, d, x, y: (x * x).add_(y).mul_(0.5)),
    ("write at", write_at),
    ("add out", add_out),
    ("set data", swap),
    ("resize", lambda p, d, x, y: x.detach().clone().resize_(3, 5).fill_(1)),
    # Random numbers.
    ("dropout", lambda p, d, x, y: F.dropout(x, 0.3)),
    ("dropout in place", lambda p, d, x, y: F.dropout(x * 1, 0.3, inplace=True)),
    ("randn like", lambda p, d, x, y: torch.randn_like(x)),
    ("rand", lambda p, d, x, y: torch.rand(d.choice((3, 7)), 4)),
    ("normal_", lambda p, d, x, y: x.normal_()),
    ("bernoulli", lambda p, d, x, y: torch.bernoulli(x.sigmoid())),
    ("rrelu", lambda p, d, x, y: F.rrelu(x, training=True)),
    ("permute rows", lambda p, d, x, y: x[torch.randperm(len(x))]),
    ("multinomial", lambda p, d, x, y: x[torch.multinomial(x.reshape(len(x), -1).sigmoid().sum(1), 2, True)]),
    (
        "own generator",
        lambda p, d, x, y: torch.randn(5, generator=torch.Generator().manual_seed(d.randrange(9))),
    ),
    # Indexing.
    ("index", lambda p, d, x, y: x[rows(p, d, len(x))]),
    ("index put", index_put),
    ("index select", lambda p, d, x, y: x.index_select(0, rows(p, d, x.shape[0]))),
    ("index add", lambda p, d, x, y: x.index_add(0, rows(p, d, x.shape[0])[:1], x[:1])),
    ("gather", lambda p, d, x, y: x.gather(0, torch.zeros_like(x, dtype=torch.int64))),
    ("scatter add", lambda p, d, x, y: x.scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x)),
    ("take", lambda p, d, x, y: x.take(rows(p, d, x.numel()))),
    ("mask", lambda p, d, x, y: x[x > 0]),
    ("masked select", lambda p, d, x, y: torch.masked_select(x, y > 0)),
    ("nonzero", lambda p, d, x, y: (x > 0.5).nonzero().float()),
    ("unique", lambda p, d, x, y: (x * 2).round().unique()),
    ("embedding", lambda p, d, x, y: F.embedding(rows(p, d, x.shape[0]), x)),
    # What decides on the way, and what runs backward.
    ("item", lambda p, d, x, y: x.sum().item()),
    ("equal", lambda p, d, x, y: torch.equal(x, y)),
    ("branch", branch),
    ("backward", backward),
    ("double backward", double_backward),
    ("backward again", backward),
    ("renew", renew),
]

STAGED = {
    "attend",
    "backward",
    "backward again",
    "batch norm",
    "double backward",
    "dropout",
    "dropout in place",
    "multinomial",
    "permute rows",
    "renew",
    "write at",
}
"""Steps of several ops with effects: refused half way, they have changed something."""
