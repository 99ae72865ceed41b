"""The scratch memory foreseen for an op before it has run is enough, for the ops of PyTorch's own table."""

import random
import warnings
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from memfit.torch import _glue, _infer, _parts

SAMPLES = 4
# Squares its matrix many times over in 32 bits.
KNOWN = {"aten::linalg_matrix_exp"}


class Compare(TorchDispatchMode):
    """Measures each op, and collects those that take more than was said."""

    def __init__(self, more: dict[str, tuple[Any, ...]]) -> None:
        super().__init__()
        self.more, self.ops = more, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not {*types} <= {torch.Tensor, torch.nn.Parameter}:
            return func(*args, **(kwargs or {}))
        sizes, bound, _ = _infer.infer(func, args, kwargs)
        result, taken = _glue.measure(func, args, kwargs)
        self.ops += 1
        if sizes is not None and taken is not None and taken > bound:
            shapes = [(tensor.dtype, *tensor.shape) for tensor in _parts.tensors(args)]
            self.more[func._schema.name] = (taken, bound, shapes)
        return result


def test_no_op_takes_more_scratch_memory_than_it_is_said_to():
    _glue.track(torch.device("cpu"))
    more: dict[str, tuple[Any, ...]] = {}
    ops = 0
    for entry in op_db:
        for dtype in (torch.float32, torch.bfloat16):
            if dtype not in entry.supported_dtypes("cpu"):
                continue
            gradient = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                samples = [*islice(entry.sample_inputs("cpu", dtype, requires_grad=gradient), SAMPLES)]
                for sample in samples:
                    ops += run(entry, sample, more)
    assert ops > 5000
    assert {name: found for name, found in more.items() if name not in KNOWN} == {}


def run(entry: Any, sample: Any, more: dict[str, tuple[Any, ...]]) -> int:
    mode = Compare(more)
    try:
        with mode:
            results = entry(sample.input, *sample.args, **sample.kwargs)
            wanted = [tensor for tensor in _parts.tensors(results) if tensor.requires_grad]
            if wanted:
                sum(tensor.abs().sum().double() for tensor in wanted).backward()
    except Exception:
        pass  # Some entries do not run here or below a mode: test_eager_opinfo.py has them.
    return mode.ops


def convolution(draw: random.Random) -> Any:
    """Input, weight and settings of a convolution: plain, in groups, depthwise or transposed."""
    each = (1, 3, 4, 16, 24, 40, 64)
    dimensions, width = draw.choice((1, 2, 2, 3)), draw.choice((1, 2, 3, 4, 5, 7))
    groups, rows, columns = draw.choice((1, 2)), draw.choice(each), draw.choice(each)
    if draw.random() < 0.3:
        groups, rows, columns = rows, 1, 1
    transposed = draw.random() < 0.15
    channels = groups * (rows if transposed else columns)
    extents = [draw.choice((4, 7, 8) if dimensions == 3 else (4, 7, 8, 16, 28))] * dimensions
    dtype = draw.choice((torch.float32, torch.float32, torch.bfloat16, torch.float64))
    x = torch.randn(draw.choice((1, 2, 8)), channels, *extents).to(dtype)
    if dimensions == 2 and draw.random() < 0.3:
        x = x.to(memory_format=torch.channels_last)
    weight = torch.randn(groups * rows, columns, *[width] * dimensions).to(dtype)
    pad, stride, dilation = draw.choice((0, width // 2)), draw.choice((1, 1, 2)), draw.choice((1, 1, 1, 2))
    return x, weight, ([stride], [pad], [dilation], transposed, [0], groups)


def test_random_convolutions_take_no_more_than_they_are_said_to():
    """No library promises what its kernels take: 99 of 100 must keep to the bound."""
    _glue.track(torch.device("cpu"))
    draw = random.Random(0)
    forward, backward = torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default
    more, ran = [], 0
    threads = torch.get_num_threads()
    try:
        while ran < 400:
            torch.set_num_threads(draw.choice((1, 2)))
            x, weight, settings = convolution(draw)
            try:
                y = forward(x, weight, None, *settings)
            except RuntimeError:
                continue  # The kernel is larger than the image.
            calls = (
                (forward, (x, weight, None, *settings)),
                (backward, (torch.randn_like(y), x, weight, None, *settings, [True, True, False])),
            )
            for func, args in calls:
                _, bound, guessed = _infer.infer(func, args, {})
                _, taken = _glue.measure(func, args, {})
                assert guessed
                ran += 1
                if taken > bound:
                    more.append((func._schema.name, x.dtype, x.shape, weight.shape, settings, taken, bound))
    finally:
        torch.set_num_threads(threads)
    assert len(more) * 100 <= ran, more
