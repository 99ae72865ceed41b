"""On CUDA, for each doubt that docs/pytorch.md lists: what was read before an eviction is read after it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from memfit import BudgetError
from memfit.torch import drop, is_resident
from memfit.torch.eager import Budget
from memfit.torch.meter import Meter

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
BUDGET = "4GiB"


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", requires_grad=True)


def indices(most: int, count: int) -> torch.Tensor:
    return torch.randint(most, (count,), device="cuda")


def gradient(call, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(call(*inputs).pow(2).sum(), inputs)


def attention(*inputs: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(*(tensor.half() for tensor in inputs), dropout_p=0.1).float()


def recurrent() -> tuple[torch.Tensor, ...]:
    lstm = nn.LSTM(64, 64, 2, dropout=0.3, device="cuda")
    made, (hidden, cell) = lstm(torch.randn(20, 8, 64, device="cuda"))
    return made.detach(), hidden.detach(), cell.detach()


def boxes(images: torch.Tensor) -> torch.Tensor:
    torchvision = pytest.importorskip("torchvision")
    corners = torch.rand(32, 2, device="cuda") * 8
    where = torch.cat([torch.zeros(32, 1, device="cuda"), corners, corners + 6], 1)
    return torchvision.ops.roi_align(images, where, 5)


CALLS = {
    "convolution": lambda: gradient(
        lambda x, w: F.conv2d(x, w, padding=1), leaf(8, 32, 40, 40), leaf(64, 32, 3, 3)
    ),
    "attention": lambda: gradient(attention, leaf(4, 8, 256, 64), leaf(4, 8, 256, 64), leaf(4, 8, 256, 64)),
    "adaptive pool": lambda: gradient(lambda x: F.adaptive_avg_pool2d(x, 7), leaf(8, 32, 30, 30)),
    "max pool": lambda: gradient(lambda x: F.max_pool2d(x, 3, 2, 1), leaf(8, 32, 40, 40)),
    "index put": lambda: torch.zeros(100, device="cuda").index_put_(
        (indices(100, 100_000),), torch.randn(100_000, device="cuda"), accumulate=True
    ),
    "index": lambda: gradient(lambda x: x[indices(50, 10_000)], leaf(50, 16)),
    "scatter": lambda: torch.zeros(64, device="cuda").scatter(
        0, indices(64, 50_000), torch.randn(50_000, device="cuda")
    ),
    "scatter add": lambda: torch.zeros(64, device="cuda").scatter_add(
        0, indices(64, 50_000), torch.randn(50_000, device="cuda")
    ),
    "index copy": lambda: torch.zeros(64, 8, device="cuda").index_copy(
        0, indices(64, 5_000), torch.randn(5_000, 8, device="cuda")
    ),
    "embedding": lambda: gradient(lambda w: F.embedding(indices(50, 20_000), w), leaf(50, 32)),
    "roi align": lambda: gradient(boxes, leaf(1, 16, 20, 20)),
    "recurrent": recurrent,
    "dropout": lambda: F.dropout(torch.ones(10_000, device="cuda"), 0.4),
    "matmul": lambda: torch.randn(300, 200, device="cuda") @ torch.randn(200, 100, device="cuda"),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_was_read_before_an_eviction_is_read_after_it(name):
    torch.manual_seed(0)
    with Budget(BUDGET, device="cuda", evict_all=True):
        for _ in range(5):
            made = CALLS[name]()
            made = made if isinstance(made, tuple) else (made,)
            first = [tensor.cpu() for tensor in made]
            torch.randn(1000, device="cuda").sin()  # All that can go has gone by the end of it.
            assert all(map(torch.equal, first, [tensor.cpu() for tensor in made]))


def test_convolutions_are_repeated_where_their_algorithm_is_fixed(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    with Budget(BUDGET, device="cuda"):
        made = F.conv2d(torch.ones(4, 8, 20, 20, device="cuda"), torch.ones(8, 8, 3, 3, device="cuda"))
        first = made.cpu()
        assert drop(made)
        assert not is_resident(made)
        assert torch.equal(made.cpu(), first)


def test_a_tensor_that_another_stream_uses_stays():
    side = torch.cuda.Stream()
    with Budget(BUDGET, device="cuda", evict_all=True):
        made = torch.ones(1 << 20, device="cuda") * 3
        made.record_stream(side)
        torch.ones(8, device="cuda").exp()
        assert is_resident(made)


def test_the_budget_holds_by_the_allocators_own_count():
    before = torch.cuda.memory_allocated()
    budget = before + (96 << 20)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(4))).cuda()
    net(torch.randn(8, 1024, device="cuda")).sum().backward()  # The library's own buffers are there then.
    meter = Meter("cuda")
    try:
        with Budget(budget, device="cuda"), meter:
            for _ in range(3):
                net.zero_grad()
                net(torch.randn(1024, 1024, device="cuda")).pow(2).mean().backward()
    except BudgetError as error:
        assert error.least_budget_bytes > budget
    assert meter.peak_bytes <= budget


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_random_numbers_of_another_device_are_not_drawn_again():
    with Budget(BUDGET, device="cuda", evict_all=True):
        made = torch.rand(1000, device="cuda:1")
        first = made.cpu()
        torch.rand(1000, device="cuda:0")
        assert torch.equal(made.cpu(), first)
