"""`memfit.torch.partition`: the same bits at every budget, measured bytes within it, and what it refuses."""

import copy
import itertools
import warnings

import pytest
import regions
import torch
from regions import Case, peak, state
from sampling import ALL
from torch import nn
from torch._functorch.partitioners import default_partition
from torch._inductor.compile_fx import select_decomp_table

import memfit
import memfit.torch

BUDGETS = ("100%", "floor+80%", "floor+60%", "floor+40%")


# As Dynamo hands it over, and decomposed as Inductor asks for.
WAYS = list(itertools.product(regions.MODELS, [False, True]))


@pytest.mark.parametrize(("name", "decomposed"), WAYS if ALL else WAYS[::3] + WAYS[-1:])
def test_every_budget_gives_the_same_bits(name: str, decomposed: bool) -> None:
    """Loss, gradients, running statistics, over two steps, beside the same step without memfit."""
    case = Case.of(name, 2)
    table = select_decomp_table() if decomposed else None
    model, step = case.compiled(default_partition, table)
    expected = [(step(), state(model)) for _ in range(2)]
    repeated = 0
    for budget in BUDGETS if ALL else BUDGETS[-1:]:
        partition = memfit.torch.partition(budget, measure=budget == "floor+40%")
        model, step = case.compiled(partition, table)
        for loss, tensors in expected:
            assert torch.equal(step(), loss), budget
            found = state(model)
            assert len(found) == len(tensors)
            assert all(map(torch.equal, found, tensors)), budget
        assert len(partition.regions) == 1
        assert partition.regions[0].plan.verified
        repeated = max(repeated, partition.regions[0].repeated)
    assert repeated > 0


@pytest.mark.parametrize("name", regions.MODELS)
def test_compiled_gradients_are_those_of_eager_pytorch(name: str) -> None:
    case = Case.of(name, 2)
    eager = copy.deepcopy(case.model)
    torch.manual_seed(7)
    eager(case.batch).backward()
    model, step = case.compiled(memfit.torch.partition("floor+50%"))
    step()
    for mine, theirs in zip(state(model), state(eager), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", list(regions.MODELS)[: None if ALL else 2])
def test_measured_peaks_keep_the_budget_and_fall_with_it(name: str) -> None:
    case = Case.of(name, 8)
    last = None
    for budget in BUDGETS if ALL else BUDGETS[::3]:
        partition = memfit.torch.partition(budget)
        model, step = case.compiled(partition, select_decomp_table())
        step()
        model.zero_grad(set_to_none=True)
        measured = peak(step) + case.inputs()
        plan = partition.regions[0].plan
        # The seed of the generator, the derivative of the loss: a few bytes that no region knows.
        assert measured <= plan.live_peak_bytes + 4096, budget
        assert plan.live_peak_bytes <= partition.regions[0].budget_bytes
        assert last is None or measured < last, f"{budget}: {measured}, with more before: {last}"
        last = measured


class Dropped(nn.Module):
    """Dropout whose mask shows in the output and in the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = nn.functional.dropout((x * self.scale).sin() + 2, 0.5)
        return x


@pytest.mark.parametrize("budget", BUDGETS if ALL else BUDGETS[1::2])
def test_forward_and_backward_see_the_same_masks(budget: str) -> None:
    """The trap of recomputed dropout: a gradient through elements that forward dropped."""
    x = torch.rand(64, 32, requires_grad=True)
    torch._dynamo.reset()
    model = Dropped()
    backend = regions.aot_autograd(
        fw_compiler=regions.boxed_nop,
        bw_compiler=regions.boxed_nop,
        partition_fn=memfit.torch.partition(budget),
        decompositions=select_decomp_table(),
    )
    y = torch.compile(model, backend=backend)(x)
    y.sum().backward()
    assert x.grad is not None
    dropped = y.detach() == 0
    assert 0.3 < dropped.float().mean() < 0.7
    assert not x.grad[dropped].any()
    # Cosines are zero nowhere: what is kept in the last mask, and in those before it, has a gradient.
    assert x.grad[~dropped].any()


def test_too_small_a_budget_says_what_would_do() -> None:
    case = Case.of("unet", 2)
    partition = memfit.torch.partition("1MiB", measure=False)
    _, step = case.compiled(partition)
    with pytest.raises(Exception, match="no plan fits `1 MiB`") as caught:
        step()
    cause: BaseException | None = caught.value
    while cause is not None and not isinstance(cause, memfit.BudgetError):
        cause = getattr(cause, "inner_exception", None) or cause.__cause__
    assert isinstance(cause, memfit.BudgetError)
    assert not partition.regions


def test_what_can_not_be_planned_is_left_to_pytorch() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    partition = memfit.torch.partition("60%")
    torch._dynamo.reset()
    backend = regions.aot_autograd(
        fw_compiler=regions.boxed_nop, bw_compiler=regions.boxed_nop, partition_fn=partition
    )
    call = torch.compile(model, backend=backend, dynamic=True)
    x = torch.randn(5, 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(x).sum().backward()
    assert any("dynamic shape" in str(warning.message) for warning in caught)
    expected = copy.deepcopy(model)
    expected.zero_grad()
    expected(x).sum().backward()
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_inductor_takes_it_and_its_cache_knows_it() -> None:
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    partition = memfit.torch.partition("floor+40%")
    assert isinstance(partition, CustomPartitionerFn)
    assert partition.uuid() == memfit.torch.partition("floor+40%").uuid()
    assert partition.uuid() != memfit.torch.partition("floor+50%").uuid()
    case = Case.of("gpt", 2)
    if not ALL:
        del case.model.blocks[1:]  # Each kernel is a file for a C++ compiler.
    eager = copy.deepcopy(case.model).eval()  # Dropout draws from another generator there.
    model = copy.deepcopy(eager)
    eager(case.batch).backward()
    torch._dynamo.reset()
    with config.patch(custom_partitioner_fn=partition, force_disable_caches=True):
        torch.compile(model)(case.batch).backward()
    assert len(partition.regions) == 1
    assert partition.regions[0].repeated > 0
    for mine, theirs in zip(state(model), state(eager), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
