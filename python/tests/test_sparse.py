"""What is foreseen of ops with sparse operands is enough, and little enough for a plain training step;
tensors in oneDNN's layout count.
"""

import contextlib
import gc
import random
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from training import AMPLE, CPU, digest

import memfit.torch
from memfit import BudgetError
from memfit.torch import _glue, _infer, _parts, _sizes, _sparse
from memfit.torch.eager import Budget
from memfit.torch.meter import Meter, live_bytes

PROGRAMS = 40
MIB = 1 << 20


class Compare(TorchDispatchMode):
    """Measures each op on sparse tensors, and collects those that take more than was said."""

    def __init__(self) -> None:
        super().__init__()
        self.more: list[tuple[Any, ...]] = []
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        bound = None
        if any(operand.layout != torch.strided for operand in _parts.tensors(args)):
            bound = _sizes.sizes(func, args, kwargs, _infer.infer)[1]
        elif func._schema.name in _sparse.FROM_PARTS:
            bound = _infer.infer(func, args, kwargs)[1]
        result, taken = _glue.measure_peak(lambda: func(*args, **(kwargs or {})), ())
        if bound is not None and taken is not None:
            self.ops += 1
            if taken > bound:
                operands = [(tensor.layout, tensor.dtype, tensor.shape) for tensor in _parts.tensors(args)]
                self.more.append((str(func), taken, bound, operands))
        return result


def coordinates(draw: random.Random, shape: list[int], dense: list[int], dtype: torch.dtype) -> torch.Tensor:
    count = draw.choice((0, 1, 100, 5000, 20_000))
    positions = torch.stack([torch.randint(0, size, (count,)) for size in shape])
    values = torch.randn(count, *dense).to(dtype)
    if dense and draw.random() < 0.3:
        values = torch.randn(*dense, count).to(dtype).movedim(-1, 0)
    return torch.sparse_coo_tensor(positions, values, (*shape, *dense))


def run(draw: random.Random, mode: Compare) -> None:
    dtype = draw.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16))
    shape = draw.choice(([100], [20_000], [70, 100], [30, 100, 7]))
    dense = draw.choice(([], [2], [16]))
    x, y = coordinates(draw, shape, dense, dtype), coordinates(draw, shape, dense, dtype)
    full = torch.randn(*shape, *dense).to(dtype)
    if draw.random() < 0.2:
        full = full.transpose(0, -1).contiguous().transpose(0, -1)
    calls = [
        lambda: x.coalesce() + y.coalesce(),
        lambda: x + y,
        lambda: x.clone().add_(y, alpha=2),
        lambda: x * y,
        lambda: x.clone().mul_(0.9).neg(),
        lambda: x.coalesce().pow(2).sqrt(),
        lambda: x.coalesce() * full,
        lambda: full.sparse_mask(x.coalesce()),
        lambda: full.sparse_mask(x),
        lambda: x.coalesce().sparse_mask(y.coalesce()),
        lambda: full + x,
        lambda: full.add_(x.coalesce(), alpha=0.5).sub_(y),
        lambda: x.to_dense(),
        lambda: x.to(torch.float64).to_dense(),
        lambda: torch.sparse_coo_tensor(x._indices(), x._values(), x.shape),
        lambda: torch.stack([x, y]).coalesce(),
        lambda: torch.cat([x, y]),
        lambda: x.index_select(0, torch.tensor([1, 2, 3])),
        lambda: torch.sparse.sum(x, 0),
        lambda: torch.sparse.softmax(x, 0),
        lambda: torch.sparse.mm(x, full.t()),
        lambda: x.to_sparse_csr(),
        lambda: x.norm(),
    ]
    with mode:
        for call in calls:
            # Not for these shapes, or not for this dtype.
            with contextlib.suppress(RuntimeError, ValueError, IndexError):
                call()


def test_no_op_on_sparse_tensors_takes_more_than_it_is_said_to():
    _glue.track(torch.device("cpu"))
    mode = Compare()
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(PROGRAMS):
                torch.manual_seed(seed)
                draw = random.Random(seed)
                torch.set_num_threads(draw.choice((1, 2)))
                run(draw, mode)
    finally:
        torch.set_num_threads(threads)
    assert mode.ops > 20 * PROGRAMS
    assert not mode.more


def embedding(optimizer: Any) -> list[str]:
    torch.manual_seed(0)
    table = nn.Embedding(20_000, 64, sparse=True)
    optimizer = optimizer(table.parameters())
    for _ in range(3):
        table(torch.randint(0, 20_000, (512, 8))).relu().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    state = [value for value in optimizer.state[table.weight].values() if isinstance(value, torch.Tensor)]
    return [digest(tensor.detach()) for tensor in (table.weight, *state)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: torch.optim.SparseAdam([*parameters]),
        lambda parameters: torch.optim.SGD(parameters, 0.1),
        lambda parameters: torch.optim.Adagrad(parameters, 0.1),
    ],
    ids=["SparseAdam", "SGD", "Adagrad"],
)
def test_a_sparse_embedding_trains_within_little_more_than_its_peak(optimizer):
    with Meter() as meter:
        expected = embedding(optimizer)
    assert meter.peak_bytes is not None
    budget = meter.peak_bytes + MIB
    with Meter() as meter, Budget(budget):
        found = embedding(optimizer)
    assert found == expected
    assert meter.peak_bytes <= budget
    with Budget(AMPLE, evict_all=True):
        assert embedding(optimizer) == expected


def fitted(wrap: Any) -> tuple[list[str], Any]:
    """Messages along the edges of a graph, which is an argument, from a table with sparse gradients."""
    torch.manual_seed(0)
    table, layer = nn.Embedding(500, 32, sparse=True), nn.Linear(32, 32)
    optimizers = [torch.optim.SparseAdam([*table.parameters()]), torch.optim.Adam(layer.parameters())]

    def train(edges: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss = torch.sparse.mm(edges, layer(table(words))).square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach(), edges

    step = wrap(train)
    edges = torch.eye(200).to_sparse()
    losses = [step(edges, torch.arange(200) + at)[0] for at in range(5)]
    return [digest(tensor.detach()) for tensor in (table.weight, layer.weight, *losses)], step


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("replay", [False, True])
def test_sparse_arguments_gradients_and_results_are_fitted(replay):
    expected, _ = fitted(lambda step: step)
    found, step = fitted(lambda step: memfit.torch.fit(step, AMPLE, replay=replay))
    assert found == expected
    assert step.report.identical
    assert step.report.replayed == 0
    if replay:
        assert "more than a window on a storage" in step.report.replay_why


def test_a_step_is_replayed_beside_what_is_no_window_on_a_storage():
    layer, eye = nn.Linear(8, 8), torch.eye(8)
    within = {"sparse": eye.to_sparse(), "rows": eye.to_sparse_csr()}
    within["quantised"] = torch.quantize_per_tensor(torch.randn(8), 0.1, 0, torch.qint8)
    within["nested"] = torch.nested.nested_tensor([torch.randn(2), torch.randn(3)])
    within["packed"] = torch.randn(8).to_mkldnn()

    def train(x: torch.Tensor) -> torch.Tensor:
        assert within
        return layer(x).square().mean().detach()

    step = memfit.torch.fit(train, AMPLE, replay=True)
    for _ in range(5):
        step(torch.randn(4, 8))
    assert step.report.replayed > 0


# oneDNN's layout


def test_what_has_no_storage_counts_as_long_as_it_lives():
    gc.collect()  # What earlier tests have left counts as long as it is there.
    dense = torch.randn(1 << 16)
    before = live_bytes(CPU)
    packed = dense.to_mkldnn()
    with Budget(before + 8 * dense.nbytes) as budget:
        used = budget.stats["used_bytes"]
        assert used >= before + dense.nbytes
        other = dense.to_mkldnn()
        assert budget.stats["used_bytes"] >= used + dense.nbytes
        with pytest.raises(BudgetError):
            [dense.to_mkldnn() for _ in range(8)]
        assert torch.equal(other.to_dense(), dense)
        del other
        gc.collect()
        assert budget.stats["used_bytes"] == used
    assert torch.equal(packed.to_dense(), dense)


def test_what_nobody_knows_the_size_of_is_refused_by_name():
    dense = torch.randn(2, 3, 8, 8)
    packed, weight = dense.to_mkldnn(), torch.randn(4, 3, 3, 3)
    calls = {
        "relu": lambda: packed.relu(),
        "convolution": lambda: nn.functional.conv2d(packed, weight.to_mkldnn()),
        "empty": lambda: torch.empty(3, layout=packed.layout),
    }
    with Budget(AMPLE):
        for name, call in calls.items():
            with pytest.raises(RuntimeError, match=rf"memfit: .*{name}.*oneDNN's layout\nhint: "):
                call()
        assert torch.equal(packed.to_dense() + 1, dense + 1)
