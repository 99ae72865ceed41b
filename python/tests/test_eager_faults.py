"""What goes wrong within a step, what reads bytes behind memfit's back, and what must not pile up."""

import _thread
import contextlib
import copy
import gc
import io
import os
import pathlib
import pickle
import signal
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import AMPLE, CPU, digest

from memfit import BudgetError
from memfit.torch import _held
from memfit.torch.eager import Budget, drop, enable, is_enabled, is_resident, pin, restore, unpin
from memfit.torch.meter import live_bytes

KIB = 1 << 10


class Stop(Exception):
    """Raised in the middle of something."""


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(64, 8)]
    return nn.Sequential(*layers)


def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    optimizer.zero_grad()
    x = torch.randn(16, 32)
    loss = net(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def state(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    values = [value for known in optimizer.state.values() for value in known.values()]
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    return [
        digest(value) for value in (*net.state_dict().values(), *gradients, *values, torch.get_rng_state())
    ]


def evictable() -> torch.Tensor:
    """A tensor that is gone."""
    x = torch.arange(256.0)
    y = x * 2
    assert drop(y)
    assert not is_resident(y)
    return y


TWICE = torch.arange(256.0) * 2


@pytest.fixture(autouse=True)
def nothing_stays_enabled():
    yield
    assert not is_enabled()


# Exceptions in the middle of a step


def raise_in_forward(net):
    return net[3].register_forward_hook(lambda *_: throw())


def raise_in_backward(net):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            throw()

    return net[3].register_forward_hook(lambda module, inputs, output: Fails.apply(output))


def raise_in_gradient_hook(net):
    return net[0].weight.register_hook(lambda gradient: throw())


def raise_after_accumulation(net):
    return net[4].weight.register_post_accumulate_grad_hook(lambda parameter: throw())


def raise_in_saved_tensor_hook(net):
    class Within:
        def __init__(self):
            self.hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: throw())
            self.hooks.__enter__()

        def remove(self):
            self.hooks.__exit__(None, None, None)

    return Within()


raised: list[type[BaseException]] = [Stop]


def throw():
    raise raised[0]


PLACES = [
    raise_in_forward,
    raise_in_backward,
    raise_in_gradient_hook,
    raise_after_accumulation,
    raise_in_saved_tensor_hook,
]


@pytest.mark.parametrize("kind", [Stop, KeyboardInterrupt])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("evict_all", [True, False])
def test_an_exception_leaves_the_model_as_plain_pytorch_does(place, kind, evict_all, monkeypatch):
    monkeypatch.setattr("test_eager_faults.raised", [kind])

    def run() -> list[list[str]]:
        net = model()
        optimizer = torch.optim.Adam(net.parameters())
        step(net, optimizer)
        handle = place(net)
        with pytest.raises(kind):
            step(net, optimizer)
        handle.remove()
        found = [state(net, optimizer)]
        for _ in range(2):
            step(net, optimizer)
        return [*found, state(net, optimizer)]

    expected = run()
    with Budget(AMPLE, evict_all=evict_all):
        within = run()
    assert within == expected


@pytest.mark.parametrize("place", PLACES)
def test_an_exception_that_ends_the_block_brings_all_back(place):
    def run(budget: Budget | None) -> list[str]:
        net = model()
        optimizer = torch.optim.Adam(net.parameters())
        handle = place(net)
        with pytest.raises(Stop), budget or contextlib.nullcontext():
            step(net, optimizer)
        handle.remove()
        return state(net, optimizer)

    assert run(Budget(AMPLE, evict_all=True)) == run(None)


@pytest.mark.parametrize("moment", range(12))
def test_an_interrupt_by_signal_leaves_everything_usable(moment):
    """Ctrl-C at any moment: what the program holds afterwards can be read, and training goes on."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    steps = 0

    def interrupt():
        while steps < 2:
            pass
        for _ in range(moment * 1000):
            pass
        _thread.interrupt_main(signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    try:
        with Budget(AMPLE, evict_all=True):
            watcher.start()
            while True:
                step(net, optimizer)
                steps += 1
    except KeyboardInterrupt:
        pass
    watcher.join()
    assert not is_enabled()
    assert state(net, optimizer)
    with Budget(AMPLE, evict_all=True):
        assert torch.isfinite(step(net, optimizer))


def test_an_op_that_fails_changes_nothing():
    with Budget(AMPLE, evict_all=True) as budget:
        x = torch.randn(4, 4) * 1
        before = budget.stats["storages"]
        for _ in range(3):
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                x @ torch.ones(5, 5)
            with pytest.raises(IndexError):
                x[:, torch.tensor([7])]
            with pytest.raises(RuntimeError):
                x.view(7)
        gc.collect()
        x + 1
        assert budget.stats["storages"] <= before + 1
        expected = x.clone()
    assert torch.equal(x, expected)


# A budget that is too small


def test_a_budget_error_says_what_is_enough_and_leaves_the_model_usable():
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(64, 64)

    def train() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    train()
    there = live_bytes(CPU)
    before = [digest(parameter) for parameter in net.parameters()]
    budget = there + 8 * KIB
    with pytest.raises(BudgetError, match="is not enough for it") as told, Budget(budget):
        net(x)
    error = told.value
    assert error.budget_bytes == budget
    assert error.least_budget_bytes > budget
    assert error.op and error.kept > 0
    assert [digest(parameter) for parameter in net.parameters()] == before
    # Each error names the least budget for its op: some tries later a step fits.
    for _ in range(40):
        try:
            with Budget(budget):
                loss = train()
        except BudgetError as error:
            assert error.least_budget_bytes > budget
            budget = error.least_budget_bytes
        else:
            break
    assert torch.isfinite(loss)
    assert budget < 2 * there + 256 * KIB


def test_a_budget_below_what_is_there_is_refused():
    x = torch.ones(1 << 16)
    with pytest.raises(BudgetError, match="out of memory"), Budget(4 * KIB):
        pass
    assert not is_enabled()
    assert x.sum() == 1 << 16


@pytest.mark.parametrize("size", ["", "8 pigs", 0, -1, "0", True, None])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(ValueError, match="is not a size"):
        Budget(size)


# Processes and threads


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> torch.Tensor:
        return self.rows[at] * 2 + torch.ones(4)


def test_workers_of_a_data_loader_run_without_a_budget():
    rows = torch.randn(24, 4)
    expected = rows * 2 + torch.ones(4)
    with Budget(AMPLE, evict_all=True) as budget:
        loader = torch.utils.data.DataLoader(Rows(rows), batch_size=4, num_workers=2)
        batches = [batch * 1 for batch in loader]
        assert torch.equal(torch.cat(batches), expected)
        assert budget.stats["ops"] > 0
    assert torch.equal(torch.cat(batches), expected)


def test_a_fork_can_end_on_its_own():
    with Budget(AMPLE, evict_all=True):
        x = torch.ones(8) * 3
        child = os.fork()
        if child == 0:
            # What is evicted in the parent is evicted here; all else works, and nothing is given back twice.
            fine = torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
            os._exit(0 if fine else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert torch.equal(x, torch.full((8,), 3.0))


def in_thread(work):
    outcome: list = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:  # The test looks at it.
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcome[0]


def test_another_thread_is_told_that_a_tensor_is_evicted():
    with Budget(AMPLE):
        y = evictable()
        for touch in (lambda: y + 1, y.sum, lambda: y[0].clone()):
            error = in_thread(touch)
            assert isinstance(error, RuntimeError)
            assert "evicted by memfit" in str(error)
        restore(y)
        assert torch.equal(in_thread(lambda: y + 0), TWICE)
        assert torch.equal(y, TWICE)


READS = {
    "tolist": lambda y: y.tolist(),
    "repr": repr,
    "float": lambda y: float(y[0]),
    "numpy": lambda y: y.numpy().copy(),
    "copy": copy.deepcopy,
    "tensor": lambda y: torch.tensor(y),
}


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_another_thread_reads_in_python_comes_back_and_stays(read):
    expected = read(TWICE)
    with Budget(AMPLE):
        y = evictable()
        assert str(in_thread(lambda: read(y))) == str(expected)
        assert is_resident(y)
        assert not drop(y)


def test_threads_that_read_while_another_computes():
    with Budget(AMPLE, evict_all=True):
        values = [torch.full((64,), float(at)).mul(2) for at in range(200)]
        found: list = []
        reader = threading.Thread(target=lambda: found.extend(value.tolist() for value in values))
        reader.start()
        total = sum(float((value + 1).sum()) for value in values)
        reader.join()
    assert found == [[2.0 * at] * 64 for at in range(200)]
    assert total == sum(64 * (2.0 * at + 1) for at in range(200))


def test_another_thread_can_neither_begin_nor_end_a_budget():
    with Budget(AMPLE) as budget:
        error = in_thread(lambda: enable(AMPLE))
        assert isinstance(error, RuntimeError) and "active already" in str(error)
        error = in_thread(lambda: budget.__exit__(None, None, None))
        assert isinstance(error, RuntimeError) and "thread that began it" in str(error)
        assert is_enabled()
        assert torch.equal(evictable() + 0, TWICE)


def test_other_threads_work_beside_a_budget():
    def work() -> float:
        torch.manual_seed(3)
        x = torch.ones(64, 64)
        for _ in range(50):
            x = (x @ x).clamp(0, 1)
        return x.sum().item()

    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(work())) for _ in range(3)]
    with Budget(AMPLE, evict_all=True):
        for thread in threads:
            thread.start()
        own = work()
        for thread in threads:
            thread.join()
    assert found == [own] * 3


# What reads or writes bytes without an op


def test_arrays_that_share_memory_with_a_tensor_see_each_other():
    with Budget(AMPLE, evict_all=True):
        y = torch.arange(256.0) * 2
        array = y.numpy()
        array[0] = 7
        assert y[0] == 7
        z = y + 1
        array[0] = 9
        assert not drop(y)
        assert z[0] == 8, "computed before the write"
        assert (y + 1)[0] == 10
    assert z[0] == 8


def test_a_tensor_from_an_array_is_not_computed_with_twice():
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(256, dtype=numpy.float32)
    with Budget(AMPLE, evict_all=True):
        x = torch.from_numpy(array)
        y = x * 3
        array[:] = 5
        assert torch.equal(y, torch.full((256,), 3.0))
        assert torch.equal(x * 3, torch.full((256,), 15.0))
    assert torch.equal(y, torch.full((256,), 3.0))


def test_what_was_shared_before_the_budget_began_is_safe():
    x = torch.ones(256)
    view = x.numpy()
    capsule = torch.ones(256)
    other = torch.from_dlpack(capsule)
    shared = torch.ones(256).share_memory_()
    with Budget(AMPLE, evict_all=True):
        sums = [x + 1, other + 1, shared + 1]
        view[:], capsule[:] = 4, 4
        shared.untyped_storage()[0] = 0
        for tensor in sums:
            assert torch.equal(tensor, torch.full((256,), 2.0))


def test_dlpack_pins():
    numpy = pytest.importorskip("numpy")
    with Budget(AMPLE, evict_all=True):
        y = torch.arange(256.0) * 2
        array = numpy.from_dlpack(y)
        other = torch.from_dlpack(y)
        assert not drop(y)
        z = other + 1
        other[0] = 7
        assert array[0] == 7 and y[0] == 7
        assert z[0] == 1
    assert z[0] == 1 and y[0] == 7


def test_shared_memory_and_addresses_pin():
    with Budget(AMPLE, evict_all=True):
        y = (torch.arange(256.0) * 2).share_memory_()
        assert not drop(y) and y.is_shared()
        z = torch.arange(256.0) * 2
        address = z.data_ptr()
        assert not drop(z)
        z + 1
        assert z.data_ptr() == address
        assert torch.equal(y, TWICE) and torch.equal(z, TWICE)


@pytest.mark.parametrize("read", [lambda y: y.tolist(), repr, lambda y: y[3].item(), lambda y: float(y[3])])
def test_reading_brings_back(read):
    with Budget(AMPLE):
        assert read(evictable()) == read(TWICE)


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return torch.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, copy.copy, lambda value: pickle.loads(pickle.dumps(value)), saved],
    ids=["deepcopy", "copy", "pickle", "torch.save"],
)
@pytest.mark.parametrize("room", [AMPLE, None])
def test_copies_of_evicted_tensors_are_whole(copied, room):
    base = live_bytes(CPU)
    with Budget(room or base + 96 * KIB):
        parts = [torch.arange(1024.0) * at for at in range(6)]
        views = [part.view(32, 32).t() for part in parts]
        for part in parts:
            drop(part)
        found = copied({"parts": parts, "views": views})
        for at, (part, view) in enumerate(zip(found["parts"], found["views"], strict=True)):
            assert torch.equal(part, torch.arange(1024.0) * at)
            assert torch.equal(view, part.view(32, 32).t())


def test_a_model_is_saved_and_loaded_within_a_budget():
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    with Budget(AMPLE, evict_all=True):
        step(net, optimizer)
        kept = saved({"model": net.state_dict(), "optimizer": optimizer.state_dict()})
        other = model()
        other.load_state_dict(kept["model"])
        expected = [digest(value) for value in net.state_dict().values()]
        assert [digest(value) for value in other.state_dict().values()] == expected
        twin = copy.deepcopy(net)
        assert [digest(value) for value in twin.state_dict().values()] == expected


def test_all_is_back_when_the_budget_ends():
    with Budget(AMPLE, evict_all=True):
        y = torch.arange(256.0) * 2
        view = y.view(16, 16)[3:, ::2]
        leaf = torch.ones(16, 16, requires_grad=True)
        loss = ((leaf * 2).tanh() * y.view(16, 16)).sum()
        kept = y.untyped_storage()
    assert torch.equal(y, TWICE)
    assert torch.equal(view, TWICE.view(16, 16)[3:, ::2])
    assert kept.nbytes() == 1024
    loss.backward()
    plain = torch.ones(16, 16, requires_grad=True)
    ((plain * 2).tanh() * TWICE.view(16, 16)).sum().backward()
    assert torch.equal(leaf.grad, plain.grad)


def test_budgets_follow_one_another():
    x = torch.randn(64, 64)
    expected = (x @ x).tanh()
    with Budget(AMPLE, evict_all=True):
        y = x @ x
    with Budget(AMPLE, evict_all=True):
        z = y.tanh()
        y = None
    assert torch.equal(z, expected)


def test_pins_are_counted():
    with Budget(AMPLE):
        y = evictable()
        pin(pin(y))
        assert is_resident(y) and not drop(y)
        unpin(y)
        assert not drop(y)
        unpin(y)
        assert drop(y)
        with pytest.raises(ValueError, match="not pinned"):
            unpin(y)


# What must not pile up


def test_nothing_piles_up_over_a_thousand_steps():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(4, 8)
    gc.collect()
    budget = live_bytes(CPU) + 64 * KIB
    seen = []
    with Budget(budget) as active:
        for at in range(1000):
            optimizer.zero_grad()
            F.mse_loss(net(x), torch.ones(4, 4)).backward()
            optimizer.step()
            if at in (99, 549, 999):
                optimizer.zero_grad()
                gc.collect()
                stats = active.stats
                seen.append((stats["storages"], stats["recipes"], stats["used_bytes"], live_bytes(CPU)))
    assert seen[0] == seen[1] == seen[2]


def test_nothing_piles_up_over_many_budgets():
    def once() -> None:
        with Budget(AMPLE, evict_all=True):
            x = torch.randn(64, requires_grad=True)
            (x * 2).tanh().sum().backward()

    once()
    gc.collect()
    there, objects = live_bytes(CPU), len(gc.get_objects())
    for _ in range(20):
        once()
    gc.collect()
    assert live_bytes(CPU) == there
    assert len(gc.get_objects()) < objects + 50


def test_kernels_that_were_not_written_for_meta_tensors_are_not_called_with_them():
    io_ = pytest.importorskip("torchvision.io")
    picture = (torch.arange(3 * 16 * 16) % 251).to(torch.uint8).view(3, 16, 16)
    png, jpeg = io_.encode_png(picture), io_.encode_jpeg(picture)
    expected = [io_.decode_png(png), io_.decode_jpeg(jpeg).float() / 2, io_.decode_image(png) + 1]
    with Budget(AMPLE, evict_all=True):
        png, jpeg = io_.encode_png(picture), io_.encode_jpeg(picture)
        found = [io_.decode_png(png), io_.decode_jpeg(jpeg).float() / 2, io_.decode_image(png) + 1]
    assert all(map(torch.equal, found, expected))


def test_a_budget_error_names_the_line_and_the_largest_tensors():
    net = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 64))
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.randn(32, 64)
    net(x).sum().backward()
    optimizer.step()
    with pytest.raises(BudgetError) as told, Budget(live_bytes(CPU) + 64 * KIB):
        net(x)  # here
    error = told.value
    lines = pathlib.Path(__file__).read_text().splitlines()
    line = 1 + next(at for at, text in enumerate(lines) if text.endswith("  # here"))
    assert error.place == f"{pathlib.Path(__file__).name}:{line}, in {sys._getframe().f_code.co_name}"
    known = {
        f"`{name}Sequential.{at}.weight` float32[{shape}], 512 KiB"
        for at, shape in ((0, "2048, 64"), (2, "64, 2048"))
        for name in ("", "gradient of ", "exp_avg of ", "exp_avg_sq of ")
    }
    assert len(error.largest) == 3 and set(error.largest) <= known
    assert f"at {error.place}\nlargest tensors held: {error.largest[0]}; " in str(error)


def test_names_in_a_budget_error_stay_on_their_line():
    net = nn.Module()
    net.register_parameter("a\x1b[31m\nb", nn.Parameter(torch.zeros(1 << 16)))
    told = next(text for text in _held.largest(CPU, 10_000) if "\ufffd" in text)
    assert told == "`Module.a\ufffd[31m\ufffdb` float32[65536], 256 KiB"
    assert _held.place().startswith(pathlib.Path(__file__).name)
