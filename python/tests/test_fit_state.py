"""What a step touches beside its tensors: under `fit` the training is the one that it would be without."""

import collections
import gc
import itertools
import multiprocessing
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import memfit
import memfit.torch
from memfit.torch import _copy
from memfit.torch.meter import Meter

CALLS = 5
module_counter = 0


def batches():
    torch.manual_seed(3)
    return [(torch.randn(16, 24), torch.randint(0, 7, (16,))) for _ in range(2 * CALLS)]


class Training:
    """A small net with one more thing that goes on from step to step."""

    def __init__(self, kind: str) -> None:
        global module_counter
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        module_counter = 0
        self.kind = kind
        self.net = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 7))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), 1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.generator = torch.Generator().manual_seed(5)
        self.numbers = np.random.default_rng(5)
        self.python = random.Random(5)
        self.count, self.late = 0, None
        self.past = collections.deque(maxlen=3)
        self.weights = np.ones(4)
        self.stream = itertools.cycle([0.5, 1.0, 2.0]) if kind == "an iterator" else None
        self.loader = iter(batches()) if kind == "a loader in the step" else None

    def factor(self, loss: torch.Tensor) -> float:
        """What the loss is multiplied by."""
        global module_counter
        match self.kind:
            case "a generator of torch":
                return float(torch.rand(1, generator=self.generator))
            case "the generator of numpy":
                return float(np.random.rand())
            case "a generator of numpy":
                return float(self.numbers.random())
            case "a generator of python":
                return self.python.random() + random.random()
            case "a global":
                module_counter += 1
                return 1.0 / module_counter
            case "past losses":
                self.past.append(float(loss.detach()))
                return 1.0 + sum(self.past)
            case "an array":
                self.weights *= 0.5
                return float(self.weights.sum())
            case "an iterator":
                return next(self.stream)
        return 1.0

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.kind == "a loader in the step":
            inputs, labels = next(self.loader)
        loss = nn.functional.cross_entropy(self.net(inputs), labels)
        (loss * self.factor(loss)).backward()
        self.count += 1
        optimizer = self.optimizer
        if self.kind == "a late optimizer":
            if self.late is None:
                self.late = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
            optimizer = self.late
        if self.kind != "accumulation" or self.count % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        if self.kind == "a scheduler":
            self.scheduler.step()
        return loss.detach()

    def left(self) -> list[torch.Tensor]:
        return [value.clone() for value in self.net.state_dict().values()]


KINDS = (
    "nothing", "a generator of torch", "the generator of numpy", "a generator of numpy",
    "a generator of python", "a scheduler", "accumulation", "a late optimizer", "a global", "past losses",
    "an array",
)  # fmt: skip
ITERATORS = ("an iterator", "a loader in the step")


def trained(kind, call):
    training = Training(kind)
    losses = [call(training, *batch) for batch in batches()[:CALLS]]
    return losses + training.left(), training.count


def plainly(kind):
    return trained(kind, lambda training, *batch: training(*batch))


def fitted_training(kind, budget="64MiB", **options):
    made = []

    def call(training, *batch):
        if not made:
            made.append(memfit.torch.fit(training, budget, **options))
        return made[0](*batch)

    outcome = trained(kind, call)
    made[0].close()
    return outcome, made[0].report


def assert_same(expected, found):
    assert expected[1] == found[1]
    assert all(torch.equal(a, b) for a, b in zip(expected[0], found[0], strict=True))


def tight():
    """Bytes that leave little room: steps are rehearsed within the budget as well."""
    training = Training("nothing")
    for batch in batches()[:2]:
        training(*batch)
    with Meter() as meter:
        training(*batches()[2])
    return meter.peak_bytes * 3 // 2


@pytest.mark.parametrize("kind", KINDS + ITERATORS)
def test_every_step_runs_once_in_this_process(kind):
    assert _copy.obstacle(torch.device("cpu")) is None
    found, report = fitted_training(kind)
    assert_same(plainly(kind), found)
    assert report.identical is True and report.notes == [] and report.measured_steps == CALLS


@pytest.mark.parametrize("kind", ["a generator of torch", "a scheduler", "a late optimizer", "an iterator"])
def test_rehearsals_within_a_tight_budget_leave_no_trace(kind):
    expected = plainly(kind)
    found, report = fitted_training(kind, tight())
    assert_same(expected, found)
    assert report.identical is True and report.measured_peak_bytes <= report.budget_bytes


def test_frozen_objects_do_not_hide_state():
    expected = plainly("a scheduler")
    gc.freeze()
    try:
        found, report = fitted_training("a scheduler")
    finally:
        gc.unfreeze()
    assert_same(expected, found)
    assert report.identical is True


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_step_reaches_is_put_back_where_there_are_no_copies(kind, monkeypatch):
    monkeypatch.setattr(_copy, "obstacle", lambda device: "there are none in this test")
    expected = plainly(kind)
    found, report = fitted_training(kind)
    assert_same(expected, found)
    assert report.identical is True


@pytest.mark.parametrize("kind", ITERATORS)
def test_what_cant_be_put_back_is_named_and_the_step_made_once(kind, monkeypatch):
    monkeypatch.setattr(_copy, "obstacle", lambda device: "there are none in this test")
    found, report = fitted_training(kind)
    assert_same(plainly(kind), found)
    assert report.identical is None
    name = {"an iterator": "step.stream", "a loader in the step": "step.loader"}[kind]
    assert any("can't put back" in note and name in note for note in report.notes)
    training = Training(kind)
    with pytest.raises(memfit.UsageError, match="can't be checked"):
        memfit.torch.fit(training, "64MiB", check=True)(*batches()[0])
    assert training.count == 0


def test_what_a_step_writes_is_written_once(tmp_path):
    training, lines = Training("nothing"), tmp_path / "losses.txt"

    def step(*batch):
        loss = training(*batch)
        with open(lines, "a") as file:
            file.write(f"{float(loss)}\n")
        return loss

    fitted = memfit.torch.fit(step, "64MiB")
    for batch in batches()[:CALLS]:
        fitted(*batch)
    assert len(lines.read_text().splitlines()) == CALLS == training.count
    assert fitted.report.identical is None and "writes to" in repr(fitted.report)
    fitted.close()


def test_open_files_keep_their_places(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{at}\n" for at in range(1, 20)))
    training = Training("nothing")
    with open(tmp_path / "in.txt") as source, open(tmp_path / "out.txt", "w") as log:

        def step(inputs, labels):
            number = int(source.readline())
            log.write(f"{number}\n")
            log.flush()
            return training(inputs * number, labels)

        fitted = memfit.torch.fit(step, "64MiB")
        for batch in batches()[:CALLS]:
            fitted(*batch)
        assert fitted.report.identical is True
        fitted.close()
    assert (tmp_path / "out.txt").read_text() == "".join(f"{at}\n" for at in range(1, CALLS + 1))


def test_messages_of_other_processes_are_not_taken_away():
    training = Training("nothing")
    here, there = multiprocessing.Pipe()
    for at in range(CALLS):
        there.send(at + 1)
    fitted = memfit.torch.fit(lambda inputs, labels: training(inputs * here.recv(), labels), "64MiB")
    for batch in batches()[:CALLS]:
        fitted(*batch)
    assert training.count == CALLS and not here.poll()
    assert fitted.report.identical is None and "EOFError" in repr(fitted.report)
    fitted.close()


def test_an_error_of_the_step_is_its_own_and_comes_once():
    training = Training("nothing")

    def step(*batch):
        training(*batch)
        raise KeyError("on purpose")

    fitted = memfit.torch.fit(step, "64MiB")
    with pytest.raises(KeyError, match="on purpose"):
        fitted(*batches()[0])
    assert training.count == 1
    fitted.close()


def test_a_refusal_has_changed_nothing():
    training = Training("a generator of torch")
    fitted = memfit.torch.fit(training, 40_000)
    with pytest.raises(memfit.BudgetError) as caught:
        fitted(*batches()[0])
    assert caught.value.floor_bytes and "the floor is" in str(caught.value)
    assert training.count == 0 and not training.optimizer.state
    assert all(parameter.grad is None for parameter in training.net.parameters())
    assert training.generator.get_state().equal(torch.Generator().manual_seed(5).get_state())


def wide(width=256, rows=1024):
    torch.manual_seed(0)
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)]
    net = nn.Sequential(*layers)
    inputs = torch.randn(rows, 64)

    def step():
        loss = net(inputs).square().mean()
        loss.backward()
        return loss.detach()

    return net, step


@pytest.mark.parametrize("share", [0.95, 0.9])
def test_what_is_made_between_the_calls_counts(share):
    net, step = wide()
    optimizer = torch.optim.AdamW(net.parameters())
    with Meter() as meter:
        step()
    optimizer.zero_grad()
    budget = int(meter.peak_bytes * share)
    fitted = memfit.torch.fit(step, budget, check=False)
    kept = []
    for _ in range(5):
        try:
            with Meter() as meter:
                fitted()
        except memfit.BudgetError:
            break  # What is kept has come to more than there is room for: by name, and never above.
        assert meter.peak_bytes <= budget
        optimizer.step()
        optimizer.zero_grad()
        kept.append(torch.ones(100_000))
    assert kept
    fitted.close()


def test_every_step_is_measured(capfd):
    _, step = wide()
    extra = [0]

    def growing():
        torch.empty(extra[0])
        return step()

    fitted = memfit.torch.fit(growing, "64MiB")
    for size in (0, 0, 0, 4_000_000, 0):
        extra[0] = size
        fitted()
    report = fitted.report
    assert report.measured_steps == report.steps == 5
    assert report.measured_peak_bytes > 16_000_000 > report.base_peak_bytes
    fitted.close()
    assert capfd.readouterr().err == ""


def test_a_profiler_of_the_users_sees_all_and_is_not_in_the_way():
    _, step = wide()
    fitted = memfit.torch.fit(step, "6MiB")
    with torch.profiler.profile(profile_memory=True) as prof:
        for _ in range(3):
            fitted()
    assert fitted.report.identical is True and fitted.report.measured_peak_bytes <= 6 << 20
    assert any("addmm" in event.key for event in prof.key_averages())
    fitted.close()


def test_meters_count_each_byte_once_and_nest():
    with Meter() as outer:
        first = torch.zeros(1000)
        with Meter() as inner:
            second = torch.zeros(500)
            del second
        with Meter() as other:
            pass
    assert inner.peak_bytes - other.peak_bytes == 2000
    assert outer.peak_bytes == inner.peak_bytes
    del first


def test_planning_keeps_to_its_own_limits():
    expected = plainly("nothing")
    for options in ({"plan_seconds": 0.0}, {"plan_bytes": "64KiB"}):
        try:
            found, report = fitted_training("nothing", tight(), **options)
        except memfit.BudgetError:
            continue  # No plan, and op by op no way either.
        assert_same(expected, found)
        assert report.identical is True
    with pytest.raises(memfit.UsageError):
        memfit.torch.fit(lambda: None, "1GiB", plan_bytes=0)


def test_more_threads_than_one_are_no_obstacle():
    script = """
import torch, memfit.torch
torch.set_num_threads(2)
torch.manual_seed(0)
net = torch.nn.Linear(256, 256)
inputs = torch.randn(512, 256)
def step():
    loss = net(inputs).relu().square().mean()
    loss.backward()
    return loss.detach()
step()
fitted = memfit.torch.fit(step, 6 << 20)
for _ in range(3):
    fitted()
print(fitted.report.identical, fitted.report.notes)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "[]"]
