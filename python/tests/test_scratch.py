"""The scratch memory foreseen for an op before it has run is enough, for the ops of PyTorch's own table."""

import gc
import random
import warnings
from itertools import islice
from typing import Any

import pytest
import torch
from sampling import ALL
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from memfit import BudgetError
from memfit.torch import _attention, _glue, _infer, _parts, eager
from memfit.torch.eager import Budget
from memfit.torch.meter import Meter, live_bytes

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
    part = 1 if ALL else 6
    for entry in op_db[::part]:
        for dtype in (torch.float32, torch.bfloat16):
            if dtype not in entry.supported_dtypes("cpu"):
                continue
            gradient = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                samples = [*islice(entry.sample_inputs("cpu", dtype, requires_grad=gradient), SAMPLES)]
                for sample in samples:
                    ops += run(entry, sample, more)
    assert ops > 5000 // part
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


def attention(draw: random.Random) -> None:
    """Forward and backward of one call, of queries, keys and values drawn at random."""
    dtype = draw.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64))
    batch, heads, width = draw.choice((1, 3)), draw.choice((1, 2, 5)), draw.choice((1, 2, 8, 33, 64, 256))
    queries = draw.choice((1, 3, 31, 64, 191, 192, 300, 767, 768, 1000, 2000))
    keys = draw.choice((queries, queries, 7, 100, 513, 1500))
    inputs = []
    for rows in (queries, keys, keys):
        shape, swapped = (batch, heads, rows, width), draw.random() < 0.3
        if swapped:
            shape = (batch, rows, heads, width)
        made = torch.randn(shape, dtype=dtype, requires_grad=True)
        inputs.append(made.transpose(1, 2) if swapped else made)
    masked, causal = draw.random() < 0.3, draw.random() < 0.3 and queries == keys
    mask = torch.randn(queries, keys, dtype=dtype) if masked and not causal else None
    result = torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=mask, is_causal=causal)
    result.sum().backward()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_attention_takes_no_more_than_it_is_said_to(threads):
    _glue.track(torch.device("cpu"))
    draw, more = random.Random(threads), {}
    torch.manual_seed(threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(25):
            with Compare(more):
                attention(draw)
    finally:
        torch.set_num_threads(before)
    assert more == {}


KERNELS = {
    "matrix exp": lambda: torch.matrix_exp(torch.full((4, 61, 61), 0.25)),
    "matrix exp, then in place": lambda: torch.matrix_exp(torch.full((4, 67, 67), 0.25)).sin_(),
    "attention": lambda: torch.nn.functional.scaled_dot_product_attention(
        *[torch.full((1, 1, 901, 2), 0.25)] * 3
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_held_to_what_there_is(name, monkeypatch):
    """What a kernel takes beside its results was foreseen too small: it gets no more than is left."""
    monkeypatch.setattr(_attention, "scratch", lambda *_: 1 << 13)
    ended = []
    gc.collect()
    before = live_bytes(torch.device("cpu"))
    for share in range(1, 40, 3):
        monkeypatch.setattr(eager, "_known_for", None)  # Nobody has seen it run.
        budget = before + share * 50_000
        # What is evicted comes back after the budget has ended: the meter does not see that.
        meter = Meter()
        try:
            with Budget(budget), meter:
                held = [torch.full((5_000,), float(at)).exp() for at in range(6)]
                KERNELS[name]()
                ended.append("ran")
                del held
        except BudgetError as error:
            assert error.least_budget_bytes > budget
            ended.append("no room")
        assert meter.peak_bytes is None or meter.peak_bytes <= budget, (share, meter.peak_bytes, budget)
    assert ended[0] == "no room"
    assert ended[-1] == "ran"


def drawn() -> list[torch.Tensor]:
    """The op that draws is not repeated, since others may write to what it reads. The rest may be evicted."""
    torch.manual_seed(3)
    shares = torch.full((5_000,), 0.5)
    shares.numpy()
    rest = [torch.full((5_000,), float(at)).exp() for at in range(6)]
    return [torch.multinomial(shares, 2_000), torch.rand(3), torch.multinomial(shares, 11), *rest]


def test_what_draws_before_it_runs_out_of_memory_does_not_draw_twice(monkeypatch):
    monkeypatch.setattr(_infer, "_LITTLE_SCRATCH", {"aten::multinomial"})
    expected, ended = drawn(), []
    gc.collect()
    before = live_bytes(torch.device("cpu"))
    for budget in range(before + 40_000, before + 600_000, 9_000):
        monkeypatch.setattr(eager, "_known_for", None)
        try:
            with Budget(budget):
                got = drawn()
                assert all(map(torch.equal, got, expected))
                ended.append("ran")
        except BudgetError:
            ended.append("no room")
    assert ended[0] == "no room"
    assert ended[-1] == "ran"


def test_a_reduction_on_cuda_may_take_what_it_reads():
    with FakeTensorMode():
        there, here = (torch.empty(8192, 2048, device=device) for device in ("cuda", "cpu"))
    total = torch.ops.aten.sum.dim_IntList
    (sizes, scratch, bounds), (_, little, _) = (_infer.infer(total, (x, [0]), {}) for x in (there, here))
    assert sizes == [4 * 2048] and bounds and scratch >= there.nbytes and little < 4096
    assert _infer.infer(torch.ops.aten._local_scalar_dense.default, (here[:1, :1],), {})[0] == []


def test_what_is_timed_and_takes_more_than_was_said_counts_so(monkeypatch):
    track = _glue.track

    def timed(func, args, kwargs):
        return func(*args, **(kwargs or {})), 5 << 20, 1000, 0

    def tracks(device):
        track(device)
        monkeypatch.setattr(_glue, "timed", timed)

    monkeypatch.setattr(_glue, "track", tracks)
    costs = []
    with Budget("1GiB") as budget:
        x = torch.randn(771, 33)
        for _ in range(5):
            x.exp()
            costs.append(budget._native.last_cost())
    assert costs == [(1000, 5 << 20)] * 5
