"""`fit(..., replay=True)`: a settled step runs from its plan alone, with the bits of plain training; what
can't be replayed, or is no longer the step that was recorded, runs itself.
"""

import gc
import random

import pytest
import torch
from sampling import ALL
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from training import CASES, CPU, OPTIMIZERS, digests

import memfit
import memfit.torch
from memfit.torch import _replay
from memfit.torch._replay import _binding, _record
from memfit.torch._replay._record import Call, Window
from memfit.torch.meter import live_bytes

AMPLE = 1 << 33


class Net(nn.Module):
    """Normalised, with dropout, an in-place op and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm, self.out = nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 10)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.drop, self.gain = nn.Dropout(0.2), 0.9

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.into(x)).relu_()
        for layer in self.layers:
            x = x + self.drop(torch.nn.functional.gelu(layer(x)) * self.gain)
        return self.out(x)


class Program:
    """A model, its optimizer, its scheduler, and steps of it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.batches = [(torch.randn(32, 16), torch.randint(10, (32,))) for _ in range(12)]
        self.loss = nn.functional.cross_entropy
        torch.manual_seed(1)

    def plain(self, x, labels):
        self.optimizer.zero_grad()
        loss = self.loss(self.net(x), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def accumulates(program):
    net, optimizer, scheduler, loss = program.net, program.optimizer, program.scheduler, program.loss

    def step(x, labels):
        optimizer.zero_grad()
        for part in (slice(0, 16), slice(16, 32)):
            (loss(net(x[part]), labels[part]) / 2).backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        return {"norm": norm, "at": 3}

    return step


def keeps_gradients(program):
    net, optimizer, loss = program.net, program.optimizer, program.loss

    def step(x, labels):
        found = loss(net(x), labels)
        optimizer.zero_grad(set_to_none=False)
        found.backward()
        optimizer.step()
        return found

    return step


def zeroes_last(program):
    net, optimizer, loss = program.net, program.optimizer, program.loss

    def step(x, labels):
        found = loss(net(x), labels)
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        return found.detach(), found.detach() * torch.tensor(2.0)

    return step


def run(make, replay, between=None, budget=AMPLE):
    """All that training comes to, and what was fitted."""
    program = Program()
    step = make(program)
    if replay:
        step = memfit.torch.fit(step, budget, replay=True, check=False)
    losses = []
    for at, batch in enumerate(program.batches):
        if between is not None:
            batch = between(program, at, batch) or batch
        result = step(*batch)
        losses += [leaf.detach() for leaf in torch.utils._pytree.tree_leaves(result) if torch.is_tensor(leaf)]
    return digests(program.net, program.optimizer, losses), step


def same(make, between=None, budget=AMPLE):
    plain, _ = run(make, False, between)
    found, fitted = run(make, True, between, budget)
    assert found == plain
    return fitted.report


@pytest.mark.parametrize("make", [lambda program: program.plain, accumulates, keeps_gradients, zeroes_last])
def test_a_settled_step_is_replayed(make) -> None:
    report = same(make)
    assert report.replayed == 8 and report.replay_why is None  # Two calls settle, two are recorded.
    assert report.measured_steps == report.steps == 12


MODELS = [("gpt-2", 0.6), ("lstm", 0.8), ("u-net", 0.6), ("bert", 0.8), ("resnet18", 0.7)]


@pytest.mark.parametrize(("name", "share"), MODELS if ALL else MODELS[:2])
def test_models_within_a_budget(name: str, share: float) -> None:
    case = CASES[name]

    def train(wrap):
        torch.manual_seed(0)
        model, data = case.make(), case.data()
        optimizer = OPTIMIZERS[case.optimizer](model.parameters())

        def step(*data):
            optimizer.zero_grad()
            loss = case.loss(model, *data)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(step, data)
        torch.manual_seed(1)
        return digests(model, optimizer, [step(*data) for _ in range(7)]), step

    plain, _ = train(lambda step, _: step)
    budget = []

    def measured(step, data):
        budget.append(memfit.torch.floor(step, *data).share(share))
        return step

    train(measured)
    found, fitted = train(lambda step, _: memfit.torch.fit(step, budget[0], replay=True))
    report = fitted.report
    assert found == plain and report.replayed == 3
    assert report.measured_peak_bytes <= report.budget_bytes
    planned = fitted._replay.planned
    assert name == "lstm" or planned.recomputed > 0
    memfit.check(planned.file, planned.graph)


def test_what_the_optimizer_holds_may_change() -> None:
    def slower(program, at, _):
        program.optimizer.param_groups[0]["lr"] = 1e-3 / (1 + at)

    assert same(lambda program: program.plain, slower).replayed == 8


def evaluates(program, at, _):
    program.net.train(at not in (6, 7))


def freezes(program, at, _):
    program.net.out.bias.requires_grad_(at < 7)


def replaces(program, at, _):
    if at == 7:
        program.net.out.weight.data = program.net.out.weight.data * 2


def hooks(program, at, _):
    if at == 7:
        program.net.out.register_forward_hook(lambda module, args, out: out * 2)


def test_hooks_of_the_optimizer_run_once() -> None:
    def halves(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(0.5)

    handle = register_optimizer_step_pre_hook(halves)
    try:
        assert same(lambda program: program.plain).replayed == 8
    finally:
        handle.remove()


class Scale:
    def __init__(self, by):
        self.by = by


def test_objects_among_the_arguments_are_looked_into() -> None:
    program, scale = Program(), Scale(1.0)
    fitted = memfit.torch.fit(lambda x, scale: x * scale.by, AMPLE, replay=True, check=False)
    x, _ = program.batches[0]
    for at in range(7):
        scale.by = 1.0 if at < 6 else 3.0
        assert torch.equal(fitted(x, scale), x * scale.by)
    assert fitted.report.replayed == 2 and "by" in fitted.report.replay_why


def other_gain(program, at, _):
    program.net.gain = 0.9 if at < 7 else 0.5


def leaves_a_gradient(program, at, _):
    if at == 7:
        program.net.out.bias.grad = torch.ones(10)


@pytest.mark.parametrize("between", [evaluates, freezes, replaces, hooks, other_gain])
def test_a_step_that_is_another_runs_itself(between) -> None:
    assert 3 <= same(lambda program: program.plain, between).replayed < 8


def test_gradients_that_were_not_there_are_not_lost() -> None:
    assert 3 <= same(zeroes_last, leaves_a_gradient).replayed < 8


def test_a_smaller_batch_runs_itself_and_the_next_is_replayed() -> None:
    def last(program, at, batch):
        return tuple(tensor[:5] for tensor in batch) if at == 7 else None

    report = same(lambda program: program.plain, last)
    assert report.replayed == 7


def test_under_a_mode_the_step_runs_itself() -> None:
    class Sees(TorchDispatchMode):
        ops = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Sees.ops += 1
            return func(*args, **(kwargs or {}))

    program = Program()
    fitted = memfit.torch.fit(program.plain, AMPLE, replay=True, check=False)
    for batch in program.batches[:6]:
        fitted(*batch)
    with Sees():
        fitted(*program.batches[6])
    assert (fitted.report.replayed, "mode" in fitted.report.replay_why, Sees.ops > 20) == (2, True, True)


def test_what_changes_before_each_call_is_planned_once_and_then_left_alone(monkeypatch) -> None:
    program, plans = Program(), []
    program.seen, planned = [], _replay.plan
    monkeypatch.setattr(_replay, "plan", lambda *args: plans.append(1) or planned(*args))
    recorded, begins = [], _record.Recording.on
    monkeypatch.setattr(_record.Recording, "on", lambda self: recorded.append(1) or begins(self))
    fitted = memfit.torch.fit(program.plain, AMPLE, replay=True, check=False)
    for at in range(16):
        program.seen.append(fitted(*program.batches[at % 12]))
    report = fitted.report
    assert (report.replayed, len(plans), len(recorded)) == (0, 1, 8)
    assert report.replay_why == "a container has changed"


@pytest.fixture
def there() -> int:
    """Bytes of tensors that are no garbage: whatever ran before in this process."""
    gc.collect()
    return live_bytes(CPU)


def test_a_recorded_step_follows_its_plan(there: int) -> None:
    program = Program()
    images = [(torch.randn(2048, 16), torch.randint(10, (2048,))) for _ in range(2)]
    with memfit.torch.fit(program.plain, there + (64 << 20), replay=False, check=False) as fitted:
        for _ in range(3):
            fitted(*images[0])
        least = there + sum(p.nbytes for p in program.net.parameters()) * 4
        peak = fitted.report.measured_peak_bytes
    program = Program()
    budget = least + int(0.7 * (peak - least))
    guided = []
    with memfit.torch.fit(program.plain, budget, replay=True, check=False) as fitted:
        for at in range(6):
            fitted(*images[at % 2])
            guided.append((fitted.report.guided, fitted.report.recomputed_ops > 0))
    # The first two calls find out; two are recorded, and then replayed.
    assert guided[2:] == [(True, True)] * 4 and fitted.report.replayed == 2


def test_what_is_held_beside_it_counts(there: int) -> None:
    budget = there + (16 << 20)
    program = Program()
    fitted = memfit.torch.fit(program.plain, budget, replay=True, check=False)
    for batch in program.batches[:6]:
        fitted(*batch)
    assert fitted.report.replayed == 2
    held = torch.ones(16 << 18)
    with pytest.raises(memfit.BudgetError):
        fitted(*program.batches[6])
    del held
    fitted(*program.batches[7])
    assert fitted.report.measured_peak_bytes <= budget


def reads(program, x, labels):
    loss = program.plain(x, labels)
    return loss if loss.item() > 0 else loss * 2


def counts(program, x, labels):
    program.net.seen = getattr(program.net, "seen", 0) + 1
    return program.plain(x, labels)


def appends(program, x, labels):
    program.losses = getattr(program, "losses", [])
    program.losses.append(program.plain(x, labels))
    return program.losses[-1]


def draws(program, x, labels):
    random.random()
    return program.plain(x, labels)


def seeds(program, x, labels):
    torch.manual_seed(3)
    return program.plain(x, labels)


def writes(program, x, labels):
    return program.plain(x.mul_(0.9), labels)


def chooses(program, x, labels):
    return program.plain(x[labels > 3], labels[labels > 3])


def scales(program, x, labels):
    program.at = getattr(program, "at", 0) + 1
    return program.plain(x * (1 + 0.1 * program.at), labels)


def rounds(program, x, labels):
    loss = program.plain(x, labels)
    return loss * round(float(loss.numpy()) / 100)


def fills(program, x, labels):
    places = torch.zeros(4)
    places.add_(x.sum().abs())
    return program.plain(x if (places > 0).all() else -x, labels)


def differentiated_later(program, x, labels):
    program.optimizer.zero_grad()
    return program.loss(program.net(x), labels)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (reads, "_local_scalar_dense"), (counts, "`seen` has changed"), (appends, "changed"),
        (draws, "`random`"), (seeds, "generator"), (writes, "writes to its arguments"),
        (chooses, "depends on data"), (scales, "changed"),
        (rounds, "without an op"), (fills, "without an op"),
        (differentiated_later, "still to be differentiated"),
    ],
)  # fmt: skip
def test_what_a_replay_would_leave_out_is_named(body, why: str) -> None:
    def make(program):
        return lambda x, labels: body(program, x, labels)

    random.seed(0)
    report = same(make)
    assert report.replayed == 0 and why in report.replay_why


def chooses_by_constants(program):
    places = program.batches[0][0].new_ones(3)

    def step(x, labels):
        order = torch.arange(31, -1, -1)
        if (order.diff() < 0).all() and int(order[0]) == 31 and order.nonzero().shape[0] == 31:
            x, labels = x[order], labels[order]
        return program.plain(x, labels) * places.sum()

    return step


def test_numbers_that_do_not_depend_on_data_may_be_read() -> None:
    report = same(chooses_by_constants)
    assert (report.replayed, report.replay_why) == (8, None)


def test_copies_are_refused() -> None:
    with pytest.raises(memfit.UsageError, match="recomputation"):
        memfit.torch.fit(lambda: None, AMPLE, replay=True, host_budget="1GiB")


def negated(x, y):
    return torch.mul(x, y).neg()


def twice(x, y):
    torch.mul(x, y)
    return torch.mul(x, y)


def another(x, y):
    return torch.mul(x, y + 1)


def a_number(x, y):
    return torch.mul(x, 2.0)


def made_anew(x, y):
    return torch.empty_like(torch.mul(x, y))


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (torch.mul, True),
        *((other, False) for other in (negated, twice, another, a_number, made_anew, torch.div)),
    ],
)
def test_a_function_stands_for_an_op_only_if_that_is_all_it_calls(function, calls) -> None:
    window = Window(0, torch.float32, 0, (4, 4), (4, 1))
    op = torch.ops.aten.mul.Tensor
    call = Call(op, "aten.mul.Tensor", (window, window), {}, [0], [], op=op)
    assert _binding._calls(function, op, call) is calls


def test_functions_stand_for_ops_with_numbers_and_names() -> None:
    window, row = Window(0, torch.float32, 0, (4, 4), (4, 1)), Window(0, torch.float32, 0, (4,), (1,))
    for op, args, kwargs, function in (
        (torch.ops.aten.add.Tensor, (window, window), {"alpha": 0.5}, torch.add),
        (torch.ops.aten.add_.Tensor, (window, 2), {}, torch.Tensor.add_),
        (torch.ops.aten.addmm.default, (row, window, window), {}, torch.addmm),
        (torch.ops.aten.native_dropout.default, (window, 0.5, True), {}, torch.native_dropout),
        (torch.ops.aten.gelu.default, (window,), {"approximate": "tanh"}, nn.functional.gelu),
        # `torch.mul` knows tensors alone, and would make one of the number.
        (torch.ops.aten.mul.Scalar, (window, 0.5), {}, None),
        (torch.ops.aten.sort.default, (window, 1, True), {}, torch.sort),
    ):
        call = Call(op, str(op), args, kwargs, [0], [], op=op)
        assert _binding.quickest(call) == (function or op), op
