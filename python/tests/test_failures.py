"""A host that fails at its n-th call, and an interrupt at the n-th bytecode of memfit's own.

What the program holds afterwards is what plain PyTorch has after the same ops, and training goes on to the
same bits. Every so many calls and bytecodes are tried; `MEMFIT_ALL=1` tries all.
"""

import functools
import gc
import pathlib
import signal
import sys

import pytest
import torch
from sampling import ALL
from test_eager_faults import model, state, step
from torch.utils._python_dispatch import TorchDispatchMode
from training import AMPLE, CPU

import memfit.torch
from memfit.torch import _glue
from memfit.torch.eager import Budget, is_enabled
from memfit.torch.meter import live_bytes

FOLDER = str(pathlib.Path(memfit.torch.__file__).parent)
CAUSE = "the device is on fire"
LEAVES = torch.ops.profiler._record_function_exit._RecordFunction
"""Runs on the way out of what has failed, too."""


class Stop(Exception):
    """Raised where plain PyTorch is to stop."""


class Count(TorchDispatchMode):
    """Counts the ops of the program; raises before, or after, that of number `stop`."""

    def __init__(self, stop: int = -1, after: bool = False) -> None:
        super().__init__()
        self.stop, self.after, self.ops = stop, after, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is LEAVES:
            return func(*args, **(kwargs or {}))
        here = self.ops == self.stop
        if here and not self.after:
            raise Stop
        result = func(*args, **(kwargs or {}))
        if here:
            raise Stop
        self.ops += 1
        return result


@functools.cache
def plain(ops: int, after: bool, before: int = 1) -> tuple[list[str], list[str]]:
    """What there is where a step, `before` others, has stopped after so many ops, and after one more step."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(before):
        step(net, optimizer)
    try:
        with Count(ops, after):
            step(net, optimizer)
    except Stop:
        pass
    stopped = state(net, optimizer)
    step(net, optimizer)
    return stopped, state(net, optimizer)


class Fails:
    """Calls of a function, or of several, of which that of number `at` fails before it does anything."""

    def __init__(self) -> None:
        self.at, self.calls = -1, 0

    def of(self, function):
        @functools.wraps(function)
        def fails(*args, **kwargs):
            if self.at >= 0 and not (args and args[0] is LEAVES):
                self.calls += 1
                if self.calls == self.at:
                    raise MemoryError(CAUSE)
            return function(*args, **kwargs)

        return fails


def budget(kind: str, directory: pathlib.Path) -> Budget:
    if kind == "evict all":
        return Budget(AMPLE, evict_all=True)
    # What is there, and room for a part of the step: the rest is stored, or computed again.
    enough = live_bytes(CPU) + (26 << 10)
    if kind == "host":
        return Budget(enough, host_budget="1MiB", recompute=False)
    return Budget(enough, disk_budget="1MiB", spill=directory, recompute=False)


Stopped = tuple[list[str], list[str], int, BaseException | None]


def stops(kind: str, directory: pathlib.Path, within) -> Stopped:
    """A step of which a part fails: as `plain`, the ops by then, and what was raised."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    step(net, optimizer)
    raised = None
    with budget(kind, directory):
        with Count() as count:
            try:
                with within:
                    step(net, optimizer)
            except (MemoryError, KeyboardInterrupt) as error:
                raised = error
        stopped = state(net, optimizer)
        step(net, optimizer)
    assert not is_enabled()
    return stopped, state(net, optimizer), count.ops, raised


class Armed:
    """Within the block, the call of number `at` fails."""

    def __init__(self, fails: Fails, at: int) -> None:
        self.fails, self.at = fails, at

    def __enter__(self) -> None:
        self.fails.at, self.fails.calls = self.at, 0

    def __exit__(self, *_) -> None:
        self.fails.at = -1


GLUE = ["measure", "replay", "window", "blank", "here", "room", "there", "draw", "copy", "refill", "flat"]
"""What memfit calls that may find no memory."""


@pytest.mark.parametrize("kind", ["evict all", "host", "disk"])
@pytest.mark.parametrize("what", ["ops", "glue"])
def test_whatever_fails_all_is_as_the_program_left_it(kind, what, tmp_path, monkeypatch):
    fails = Fails()
    if what == "ops":
        monkeypatch.setattr(torch._ops.OpOverload, "__call__", fails.of(torch._ops.OpOverload.__call__))
    else:
        for name in GLUE:
            monkeypatch.setattr(_glue, name, fails.of(getattr(_glue, name)))
    for _ in range(2):  # The second time all ops are known.
        *_, raised = stops(kind, tmp_path, Armed(fails, 1 << 40))
        assert raised is None and fails.calls > 0
    calls = fails.calls
    told = again = 0
    for at in range(1, calls + 1, 1 if ALL else 1 + calls // 16):
        stopped, after, ops, raised = stops(kind, tmp_path, Armed(fails, at))
        if raised is not None:
            told += 1
            assert CAUSE in str(raised)
            again += any("was run again" in note for note in getattr(raised, "__notes__", ()))
        expected = plain(ops if raised is not None else -1, False)
        assert stopped == expected[0], (at, ops, raised)
        assert after == expected[1], (at, ops, raised)
    assert told > 0 or what == "glue"
    # What is not the program's own op is named.
    assert again > 0 or kind != "evict all" or sys.version_info < (3, 11)


# An interrupt at every bytecode of memfit's own Python


class Interrupts:
    """Within the block, SIGINT comes at the bytecode of number `at` that runs in memfit's files."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.count, self.where = at, 0, ""
        self.first: dict[tuple[object, int], int] = {}
        self.last: dict[tuple[object, int], int] = {}

    def trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.count += 1
            if self.at < 0:
                place = frame.f_code, frame.f_lasti
                self.first.setdefault(place, self.count)
                self.last[place] = self.count
            elif self.count == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}, bytecode {frame.f_lasti}"
                # As Python does; from in here it would name this frame.
                signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)
        return self.trace

    def moments(self, few: int) -> list[int]:
        """When each bytecode has run for the first time, and for the last; of these, about so `few`."""
        moments = sorted({*self.first.values(), *self.last.values()})
        return moments[:: 1 if ALL else 1 + len(moments) // few]

    def __enter__(self) -> "Interrupts":
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_) -> None:
        sys.settrace(None)


@pytest.mark.parametrize("kind", ["evict all", "host"])
def test_an_interrupt_at_any_bytecode_leaves_all_as_the_program_left_it(kind, tmp_path):
    for _ in range(2):
        seen = Interrupts()
        *_, raised = stops(kind, tmp_path, seen)
        assert raised is None
    told = 0
    for at in seen.moments(24):
        interrupts = Interrupts(at)
        stopped, after, ops, raised = stops(kind, tmp_path, interrupts)
        if not interrupts.where:
            continue
        assert isinstance(raised, KeyboardInterrupt), interrupts.where
        told += 1
        # The op at hand has run, or has not.
        assert (stopped, after) in (plain(ops, False), plain(ops, True)), (at, ops, interrupts.where)
    assert told > 10


def guided(at: int | None) -> tuple[Interrupts, Stopped]:
    """As `stops`, of a step that follows a plan; -1 ops where it has not begun.

    Without `at` nothing comes between.
    """
    gc.collect()  # What frames of errors hold counts within the budget.
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    counts: list[Count] = []

    def counted() -> torch.Tensor:
        counts.append(Count())
        with counts[-1]:
            return step(net, optimizer)

    counted()
    interrupts, raised = Interrupts(-1 if at is None else at), None
    # What is there, and room for all of the step but one value.
    with memfit.torch.fit(counted, live_bytes(CPU) + (22 << 10), check=False) as within:
        for _ in range(SETTLED - 1):
            within()
        assert within.report.guided and within.report.recomputed_ops > 0
        before = len(counts)
        try:
            with interrupts:
                within()
        except KeyboardInterrupt as error:
            raised = error.with_traceback(None)
        stopped, ops = state(net, optimizer), counts[-1].ops if len(counts) > before else -1
        within()
    assert not is_enabled()
    return interrupts, (stopped, state(net, optimizer), ops, raised)


SETTLED = 4
"""Steps after which `fit` follows its plan, the first, without it, counted too."""


def test_an_interrupt_at_any_bytecode_of_a_step_that_follows_a_plan():
    for _ in range(2):
        seen, (*_, raised) = guided(None)
        assert raised is None
    told = 0
    for at in seen.moments(16):
        interrupts, (stopped, after, ops, raised) = guided(at)
        if not interrupts.where:
            continue
        assert isinstance(raised, KeyboardInterrupt), interrupts.where
        told += 1
        # It may come before the step has begun: then that of before is the last.
        expected = [plain(ops, after, SETTLED if ops >= 0 else SETTLED - 1) for after in (False, True)]
        assert (stopped, after) in expected, (at, ops, interrupts.where)
    assert told > 6


def test_an_interrupt_while_a_budget_begins_or_ends_leaves_it_ended():
    expected = plain(-1, False)[0]

    def run(interrupts: Interrupts) -> bool:
        net = model()
        optimizer = torch.optim.Adam(net.parameters())
        try:
            with interrupts, Budget(AMPLE, evict_all=True):
                step(net, optimizer)
                step(net, optimizer)
        except KeyboardInterrupt:
            assert not is_enabled(), interrupts.where
            assert state(net, optimizer)
            return True
        assert state(net, optimizer) == expected, interrupts.where
        return False

    for _ in range(2):
        seen = Interrupts()
        run(seen)
    told = [run(Interrupts(at)) for at in seen.moments(60)]
    assert sum(told) > len(told) // 2


def test_what_the_program_does_about_interrupts_it_does_within_a_budget_too():
    """A handler that only takes note, as of a loop that ends its epoch first."""
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        seen = Interrupts()
        for interrupts in (seen, *(Interrupts(at) for at in range(1, 4000, 400))):
            net = model()
            optimizer = torch.optim.Adam(net.parameters())
            with interrupts, Budget(AMPLE, evict_all=True):
                step(net, optimizer)
                step(net, optimizer)
            assert state(net, optimizer) == plain(-1, False)[0], interrupts.where
            assert len(noted) == bool(interrupts.where), interrupts.where
            noted.clear()
        assert seen.count > 4000
    finally:
        signal.signal(signal.SIGINT, before)
