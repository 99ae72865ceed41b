"""Ops with equal kind, attributes and operands come to the same bytes: traced graphs run on real tensors."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from memfit.torch import _lower, _trace


class Twins(nn.Module):
    """Everything twice, and things that look alike."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        y = x @ self.w
        parts = [y.tanh(), y.tanh(), y.t().tanh(), y.softmax(0), y.softmax(1), y.softmax(0)]
        parts += [y[:3].exp().sum() + y[3:].exp().sum() + y[:3].exp().mean(), torch.add(y, x, alpha=2)]
        parts += [torch.add(y, x, alpha=2), torch.add(y, x, alpha=3), y.half().float(), y.bfloat16().float()]
        parts += [y.clone(), y.t().contiguous(), F.pad(y, (0, 0)), (y * 1), y.flip(0), y.flip(1), y.flip(0)]
        return sum(part.sum() for part in parts)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(4, 4) for _ in range(2))

    def forward(self, x):
        state = [(x.new_zeros(3, 4), x.new_zeros(3, 4)) for _ in self.cells]
        for step in x:
            for at, cell in enumerate(self.cells):
                state[at] = cell(step, state[at])
                step = state[at][0]
        return step.sum()


def bytes_of(value):
    """The elements of a tensor's storage, bit by bit."""
    return bytes(value.untyped_storage()) if isinstance(value, torch.Tensor) else value


def run(traced):
    """What each node of the traced graph comes to on random inputs."""
    torch.manual_seed(0)
    real = {}
    for node in traced.nodes:
        val = node.meta.get("val")
        if node.op == "placeholder" and isinstance(val, torch.Tensor):
            real[node] = torch.randn(val.shape).to(val.dtype)
        elif node.op == "get_attr":
            real[node] = getattr(traced.module, str(node.target))
        elif node.op == "call_function":
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), real.__getitem__)
            real[node] = node.target(*args, **kwargs)
    return real


@pytest.mark.parametrize(
    ("model", "x", "least"), [(Twins(), torch.randn(6, 6), 6), (Recurrent(), torch.randn(5, 3, 4), 4)]
)
def test_what_is_told_alike_computes_alike(model, x, least):
    traced = _trace.trace(model, (x,), lambda model, x: model(x))
    real = run(traced)
    low = _lower.Lowering(traced, "twins", "")
    low.lower()
    number: dict[int, int] = {}
    known: dict[object, torch.fx.Node] = {}
    same = 0
    for node, op in low.op_of.items():
        if op.effect != "pure" or op.attributes is None:
            continue
        key = (op.kind, op.attributes, tuple(number.get(value, value) for value in op.reads))
        first = known.setdefault(key, node)
        if first is node:
            continue
        same += 1
        number.update(zip(op.writes, low.op_of[first].writes, strict=True))
        mine, its = (value if isinstance(value, tuple) else (value,) for value in (real[node], real[first]))
        assert [bytes_of(a) for a in mine] == [bytes_of(b) for b in its], (op.kind, op.attributes)
    assert same >= least, "there is something to compare"
