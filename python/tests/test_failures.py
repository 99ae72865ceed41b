"""A host that fails at its n-th call, and an interrupt at the n-th line of memfit's own.

What the program holds afterwards is what plain PyTorch has after the same ops, and training goes on to the
same bits. Every so many calls and lines are tried; `MEMFIT_ALL=1` tries all.
"""

import functools
import os
import pathlib
import signal
import sys

import pytest
import torch
from test_eager_faults import model, state, step
from torch.utils._python_dispatch import TorchDispatchMode
from training import AMPLE, CPU

import memfit.torch
from memfit.torch import _glue
from memfit.torch.eager import Budget, is_enabled
from memfit.torch.meter import live_bytes

ALL = os.environ.get("MEMFIT_ALL") == "1"
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
def plain(ops: int, after: bool) -> tuple[list[str], list[str]]:
    """What there is where a step has stopped after so many ops, and after one more step."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
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


# An interrupt at every line of memfit's own Python


class Interrupts:
    """Within the block, SIGINT comes at the line of number `at` that runs in memfit's files."""

    def __init__(self, at: int) -> None:
        self.at, self.lines, self.where = at, 0, ""

    def trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self.trace

    def __enter__(self) -> "Interrupts":
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_) -> None:
        sys.settrace(None)


@pytest.mark.parametrize("kind", ["evict all", "host"])
def test_an_interrupt_at_any_line_leaves_all_as_the_program_left_it(kind, tmp_path):
    for _ in range(2):
        counted = Interrupts(-1)
        *_, raised = stops(kind, tmp_path, counted)
        assert raised is None and counted.lines > 0
    told = 0
    for at in range(1, counted.lines + 1, 1 if ALL else 1 + counted.lines // 24):
        interrupts = Interrupts(at)
        stopped, after, ops, raised = stops(kind, tmp_path, interrupts)
        if not interrupts.where:
            continue
        assert isinstance(raised, KeyboardInterrupt), interrupts.where
        told += 1
        # The op at hand has run, or has not.
        assert (stopped, after) in (plain(ops, False), plain(ops, True)), (at, ops, interrupts.where)
    assert told > 10


def test_an_interrupt_while_a_budget_begins_or_ends_leaves_it_ended(tmp_path):
    expected = plain(-1, False)

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
        assert (state(net, optimizer), expected[1])[0] == expected[0], interrupts.where
        return False

    # The lines of the beginning and the end, not of the steps between.
    run(Interrupts(-1))
    counted = Interrupts(-1)
    run(counted)
    ends = [*range(1, 400), *range(max(counted.lines - 300, 400), counted.lines + 1)]
    told = [run(Interrupts(at)) for at in ends[:: 1 if ALL else 19]]
    assert sum(told) > len(told) // 2
