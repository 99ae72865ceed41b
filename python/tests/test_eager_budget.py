"""The budget holds for real bytes, and what programs do for long does not pile up."""

import gc
import json
import os
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
from real import PROGRAMS, REFUSED, name
from torch import nn
from training import CPU

import memfit.torch
from memfit import BudgetError, _memfit
from memfit.torch._alive import live_storages
from memfit.torch.eager import Budget, drop
from memfit.torch.meter import live_bytes

HERE = pathlib.Path(__file__).parent
MIB = 1 << 20
SLACK = 1 << 16
"""Bytes of single numbers and the like, for which no room is asked."""


# Real bytes


@pytest.fixture(scope="session")
def measured(shim) -> dict[str, dict]:
    environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, HERE / "real.py", shim]
    told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    lines = map(json.loads, told.stdout.splitlines())
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("program", [name(before, program) for before, program, _ in PROGRAMS])
def test_real_bytes_keep_to_the_budget(measured, program):
    told = measured[program]
    assert "died" not in told
    assert told["raised"] is None, told
    assert told["peak"] <= told["budget"] + SLACK, told


@pytest.mark.parametrize("program", [name(before, program) for before, program, _ in REFUSED])
def test_what_is_refused_has_kept_to_the_budget(measured, program):
    told = measured[program]
    assert told["raised"] == "BudgetError", told
    assert told["peak"] <= told["budget"] + SLACK, told


def test_what_does_not_fit_is_refused_by_its_name():
    many = torch.tensor([8 * MIB])
    for run, op in ((torch.bincount, "bincount"), (torch.repeat_interleave, "repeat_interleave")):
        with pytest.raises(BudgetError) as raised, Budget(16 * MIB):
            run(many)
        assert op in raised.value.op
        assert raised.value.asked >= 64 * MIB


def test_ops_with_sizes_by_data_give_the_same_and_can_go():
    torch.manual_seed(0)
    x = torch.randint(0, 50, (400,))
    mask = x > 20

    def run() -> list[torch.Tensor]:
        y = torch.rand(400)
        picked, where = y[mask], mask.nonzero()
        y[mask] = picked * 2
        several = torch.unique(x, return_inverse=True, return_counts=True)
        counted = torch.bincount(x, y, minlength=60)
        return [picked, where, y, *several, counted, torch.repeat_interleave(x[:9]), y.masked_select(mask)]

    torch.manual_seed(1)
    expected = run()
    torch.manual_seed(1)
    with memfit.torch.enable(1 << 30, evict_all=True):
        found = run()
        assert all(map(torch.equal, found, expected))
        assert drop(found[0]) or not memfit.torch.is_resident(found[0])
    assert all(map(torch.equal, found, expected))


# What is there


def test_all_that_is_there_is_found():
    x = torch.ones(1000, requires_grad=True)
    y = (x * 2).exp()
    loss = y.sum()
    saved = y.untyped_storage().data_ptr()
    del y
    sparse = torch.eye(9).to_sparse()
    csr = torch.eye(9).to_sparse_csr()
    parts = [sparse._values(), sparse._indices(), csr.values(), csr.col_indices(), csr.crow_indices()]
    wanted = {saved, x.data_ptr(), *(part.untyped_storage().data_ptr() for part in parts)}
    del parts
    gc.collect()
    found = {storage.data_ptr() for storage in live_storages(CPU)}
    assert wanted <= found
    assert loss.grad_fn is not None


def test_what_is_frozen_later_is_found_too():
    def found(tensor: torch.Tensor) -> bool:
        return any(storage.data_ptr() == tensor.data_ptr() for storage in live_storages(CPU))

    try:
        for _ in range(2):
            tensor = torch.ones(77)
            gc.freeze()
            assert found(tensor)
        local = [torch.ones(78)]
        assert found(local[0])
        gc.unfreeze()
        assert found(tensor) and found(local[0])
    finally:
        gc.unfreeze()


def test_a_budget_runs_nobodys_hooks_on_saved_tensors():
    called = []
    pack = lambda tensor: called.append("pack") or tensor  # noqa: E731
    unpack = lambda tensor: called.append("unpack") or tensor  # noqa: E731
    x = torch.ones(8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x.exp().sum()
    called.clear()
    live_storages(CPU)
    assert not called
    y.backward()
    assert "unpack" in called


def test_instances_are_those_that_python_finds():
    class Own(torch.Tensor):
        pass

    kept = [torch.ones(2), torch.ones(2).as_subclass(Own), nn.Parameter(torch.ones(2)), "text", 3, kept_by]
    expected = [thing for thing in kept if isinstance(thing, torch.Tensor)]
    found = _memfit.instances(kept, (torch.Tensor,))
    assert [id(thing) for thing in found] == [id(thing) for thing in expected]
    found = _memfit.reachable([{"a": (kept, {"b": kept})}], (torch.Tensor,))
    assert {id(thing) for thing in expected} <= {id(thing) for thing in found}


def kept_by() -> None:
    """Any object that is no tensor."""


# What does not pile up


def gru():
    cell, h = nn.GRUCell(16, 16), torch.zeros(8, 16)
    while True:
        with torch.no_grad():  # Not around `yield`: whoever reads goes on with gradients.
            h = cell(torch.randn(8, 16), h)
        yield h


def functional():
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
    parameters = {key: value.detach().clone() for key, value in net.named_parameters()}
    loss = lambda p, x: torch.func.functional_call(net, p, (x,)).pow(2).mean()  # noqa: E731
    gradient = torch.func.grad(loss)
    while True:
        g = gradient(parameters, torch.randn(8, 16))
        parameters = {key: value - 0.1 * g[key] for key, value in parameters.items()}
        yield parameters["0.weight"]


def average():
    mean = torch.zeros(256)
    while True:
        mean = 0.99 * mean + 0.01 * torch.randn(256)
        yield mean


def logged():
    h, log = torch.zeros(256), []
    while True:
        h = (h + torch.rand(256)).tanh()
        log = [*log[-4:], h.mean(), h.max()]
        yield torch.stack(log).sum()


def two_that_mix():
    a, b = torch.zeros(64, 64), torch.eye(64)
    while True:
        a, b = (a + b * 0.5).sin(), (b - a * 0.5).cos() + torch.rand(64, 64)
        yield a


def from_data():
    state = torch.zeros(4096)
    while True:
        state = torch.cat([state[2048:], torch.tensor([1.0] * 2048)]) * 0.5
        yield state


@pytest.mark.parametrize("make", [gru, functional, average, logged, two_that_mix, from_data])
def test_a_loop_that_carries_state_needs_no_more_with_every_turn(make):
    turns = 600
    torch.manual_seed(0)
    plain = make()
    for _ in range(turns):
        expected = next(plain)
    torch.manual_seed(0)
    used, recipes = [], []
    with Budget(2 * MIB) as budget:
        program = make()
        for at in range(1, turns + 1):
            result = next(program)
            if at % 10 == 0:
                stats = budget.stats
                used.append(stats["used_bytes"])
                recipes.append(stats["recipes"])
        same = torch.equal(result, expected)
    assert same
    half = len(used) // 2
    assert max(used[half:]) <= max(used[:half]) + SLACK
    assert max(recipes[half:]) <= max(recipes[:half]) + 64


def test_what_stays_and_serves_nothing_is_not_looked_at():
    source = torch.ones(4)
    with Budget(1 << 30) as budget:
        there = budget.stats["storages"]  # Of other tests, what they left alive.
        held = []
        for _ in range(600):
            held.append(source * 2)
            source.add_(1)
        for _ in range(64):
            source + 1
        assert budget.stats["storages"] >= there + 600
        assert budget.stats["looks"] < there + 50
        # A storage that others are computed from has to outlive its tensor.
        served = [value * 3 for value in held]
        assert all(drop(value) for value in served)
        expected = [value.clone() * 3 for value in held]
        held.clear()
        gc.collect()
        assert all(map(torch.equal, served, expected))
        served.clear()
        expected.clear()
        gc.collect()
        for _ in range(1500):
            source + 1
        assert budget.stats["storages"] < there + 50


def test_shapes_that_are_not_met_any_more_are_forgotten():
    with Budget(1 << 30) as budget:
        for size in range(20_000):
            torch.empty(size)
        assert budget.stats["shapes"] < 17_000


# What is said


def chain(turns: int) -> torch.Tensor:
    """Reads the ends of a chain in turn, which fit together but not with what is between them."""
    links = [torch.ones(1 << 16)]
    for _ in range(12):
        links.append(links[-1].exp().sin())
    return sum((links[at % 13].sum() + links[-1 - at % 13].sum() for at in range(turns)), torch.zeros(()))


def test_a_step_that_mostly_recomputes_says_so_once():
    with pytest.warns(memfit.torch.SlowWarning, match="recomputed for") as told, Budget(5 << 18):
        chain(60)
    assert len(told) == 1
    assert "hint:" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error", memfit.torch.SlowWarning)
        with Budget(1 << 26):
            chain(60)


def test_a_budget_that_has_almost_all_computed_again_and_again_is_refused():
    x = torch.randn(1 << 16, requires_grad=True)

    def step():
        y = x
        for _ in range(1000):
            y = y.sin()
        # What is given up before is computed from the start for each of the calls.
        y.sum().backward()

    with pytest.raises(BudgetError) as raised, Budget(live_bytes(CPU) + 4 * x.nbytes, patience=20.0):
        step()
    error = raised.value
    assert error.slow and "patience" in str(error.hint), error
    # With what would hold all that was held there, it goes through.
    x.grad = None
    with Budget(error.least_budget_bytes + 8 * x.nbytes):
        step()
    assert x.grad is not None


def test_what_is_kept_is_told_with_its_reason():
    before = torch.ones(1 << 16)
    shared = torch.ones(1 << 10)
    with Budget(1 << 30) as budget:
        shared.numpy()
        made = before * 2
        before.add_(1)
        kept = budget._native.kept()
        reasons = " ".join(why for why, _, _ in kept)
        assert "NumPy" in reasons
        assert "overwritten" in reasons
        assert [size for _, size, _ in kept] == sorted((size for _, size, _ in kept), reverse=True)
    assert made is not None


def test_the_least_budget_of_an_op_is_called_a_lower_bound():
    x = torch.ones(1 << 16)
    with pytest.raises(BudgetError, match=r"less than `.*` is not enough") as raised, Budget(1 << 18):
        x * 2
    error = raised.value
    assert error.lower_bound
    assert error.least_budget_bytes > error.budget_bytes
    assert "would do" not in str(error)
