"""What training loops do beside a plain step: at several budgets, and with all evicted after every op."""

import contextlib
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import AMPLE, CPU, OPTIMIZERS, digest

from memfit import BudgetError
from memfit.torch.eager import Budget
from memfit.torch.meter import live_bytes

WAYS = ("ample", "evicted", 0.8, 0.5)


def model() -> nn.Sequential:
    layers = [
        nn.Linear(32, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Linear(64, 64),
    ]
    return nn.Sequential(*layers, nn.GELU(), nn.Dropout(0.1, inplace=True), nn.Linear(64, 8))


def compare(run, way) -> None:
    """`run` gives tensors; they and the generator are the same bits with and without a budget."""

    def outcome(context) -> list[str]:
        torch.manual_seed(0)
        with context:
            found = run()
        return [digest(tensor) for tensor in (*found, torch.get_rng_state())]

    expected = outcome(contextlib.nullcontext())
    before = live_bytes(CPU)
    ample = Budget(AMPLE, evict_all=way == "evicted")
    assert outcome(ample) == expected
    if isinstance(way, float):
        peak = ample.stats["peak_bytes"] - before
        budget, found = before + int(peak * (1 + way) / 2), None
        while found is None:
            try:
                found = outcome(Budget(budget))
            except BudgetError as error:
                assert error.least_budget_bytes > budget
                budget = error.least_budget_bytes
        assert found == expected


def left(net, *more):
    """All that a step has left in a model."""
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    return [*net.state_dict().values(), *gradients, *more]


def batches(count=3, rows=64):
    return [torch.randn(rows, 32) for _ in range(count)]


@pytest.mark.parametrize("way", WAYS)
def test_dropout_has_one_mask(way):
    def run():
        x = torch.randn(64, 32, requires_grad=True)
        kept = []
        for _ in range(4):
            y = F.dropout(x * 2, 0.5)
            (gradient,) = torch.autograd.grad(y.sum(), x)
            assert torch.equal(gradient != 0, y != 0), "backward has another mask than forward"
            kept.append(gradient)
        return kept

    compare(run, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers_in_all_their_forms(kind, way):
    def run():
        net = model()
        optimizer = OPTIMIZERS[kind](net.parameters())
        for x in batches():
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            optimizer.step()
        return left(
            net,
            *(value for known in optimizer.state.values() for value in known.values() if value is not None),
        )

    compare(run, way)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_accumulate(way):
    def run():
        net = model()
        optimizer = OPTIMIZERS["sgd"](net.parameters())
        for _ in range(2):
            for x in batches():
                (net(x).pow(2).mean() / 3).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return left(net)

    compare(run, way)


@pytest.mark.parametrize("way", WAYS)
def test_autocast(way):
    def run():
        net = model()
        for x in batches(2):
            with torch.autocast("cpu", torch.bfloat16):
                loss = net(x).float().pow(2).mean()
            loss.backward()
        return left(net)

    compare(run, way)


@pytest.mark.parametrize("way", WAYS)
def test_double_backward(way):
    def run():
        net, x = model(), torch.randn(64, 32, requires_grad=True)
        (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (gradient.norm(dim=1) - 1).pow(2).mean().backward()
        return left(net, x.grad)

    compare(run, way)


@pytest.mark.parametrize("way", WAYS)
def test_hooks(way):
    def run():
        net, seen = model(), []
        net[0].register_forward_hook(lambda module, inputs, output: output * 1.5)
        net[4].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].clone()))
        net[7].weight.register_hook(lambda gradient: gradient * 2)
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x * 1):
            net(batches(1)[0]).pow(2).mean().backward()
        return left(net, *seen)

    compare(run, way)


class Scaled(torch.autograd.Function):
    """Saves its input and a result of its own; marks what it writes."""

    @staticmethod
    def forward(ctx, x, factor):
        squared = x * x
        ctx.save_for_backward(x, squared)
        ctx.factor = factor
        return x.mul_(1) if not x.requires_grad else squared * factor

    @staticmethod
    def backward(ctx, gradient):
        x, squared = ctx.saved_tensors
        return gradient * ctx.factor * (x + x) + 0 * squared, None


@pytest.mark.parametrize("way", WAYS)
def test_custom_functions(way):
    def run():
        net, x = model(), batches(1)[0]
        (Scaled.apply(net[:4](x), 3.0)).sum().backward()
        return left(net)

    compare(run, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
def test_without_gradients(quiet, way):
    def run():
        net = model()
        with quiet():
            first = net(batches(1)[0])
            first.add_(1)
            first = first.t().reshape(-1).to(torch.float64).view(8, -1).contiguous()
        net.eval()
        net(batches(1)[0]).sum().backward()
        return left(net, first.clone())

    compare(run, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_on_top(reentrant, way):
    def run():
        net, x = model(), torch.randn(64, 32, requires_grad=True)
        call = functools.partial(checkpoint, use_reentrant=reentrant)
        call(net[4:], call(net[:4], x)).pow(2).mean().backward()
        return left(net, x.grad)

    compare(run, way)
