"""Tensors in host memory and on disk: ten models op by op, by hand, and what happens when a disk fails."""

import functools
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch
from sampling import ALL
from test_copies import deep, plainly, same
from test_fit import left
from training import AMPLE, CASES, Outcome, train

import memfit
import memfit.torch

HERE = pathlib.Path(__file__).parent
"""Whether slow suites run whole."""


@functools.cache
def plain(name: str) -> tuple[Outcome, int]:
    """The run without memfit, and the floor of the steps."""
    return train(CASES[name]), train(CASES[name], AMPLE, watch=True).floor


def means(tier: str, directory: pathlib.Path) -> dict:
    if tier == "host":
        return {"host_budget": "2GiB"}
    return {"disk_budget": "2GiB", "spill": directory}


@pytest.mark.parametrize("name", [*CASES] if ALL else ["u-net", "gpt-2", "lstm", "experts", "one path"])
@pytest.mark.parametrize("tier", ["host", "disk"])
@pytest.mark.parametrize("recompute", [True, False])
def test_what_goes_for_room_may_be_stored(name, tier, recompute, tmp_path):
    without, floor = plain(name)
    budget = int(floor + 0.5 * (without.peak - floor))
    within = train(CASES[name], budget, recompute=recompute, **means(tier, tmp_path))
    assert within.digests == without.digests
    assert within.peak <= budget
    told = within.stats
    assert told["loaded_bytes"] <= told["stored_bytes"]
    assert told["recomputed_ops"] > 0 or told["stored_bytes"] > 0
    if not recompute:
        assert told["stored_bytes"] > 0
    assert not list(tmp_path.iterdir()), "the file has no name"


def test_budgets_of_other_memory_are_kept(tmp_path):
    without, floor = plain("u-net")
    budget = int(floor + 0.5 * (without.peak - floor))
    small = {"host_budget": 3 << 20, "disk_budget": 2 << 20, "spill": tmp_path}
    within = train(CASES["u-net"], budget, recompute=False, **small)
    assert within.digests == without.digests and within.peak <= budget
    told = within.stats
    assert 0 < told["host_peak_bytes"] <= 3 << 20 and told["disk_peak_bytes"] <= 2 << 20


def spilled(directory: pathlib.Path) -> list[str]:
    """The open files without a name in `directory`, as paths that can be opened."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{number}"
        try:
            target = os.readlink(path)
        except OSError:
            continue
        if target.startswith(str(directory.resolve())) and "(deleted)" in target:
            found.append(path)
    return found


def on_disk(directory: pathlib.Path, share: float = 0.5, strategy: str = "offload:best", **options):
    """A fitted step whose plan moves to the disk alone, and what its bits must be."""
    expected = plainly(deep, 6)
    _, _, step, batch = deep()
    step(*batch)
    budget = memfit.torch.floor(lambda: step(*batch)).share(share)
    net, optimizer, step, batch = deep()
    options = {"disk_budget": "64MiB", "spill": directory, "recompute": False, **options}
    fitted = memfit.torch.fit(step, budget, check=False, strategy=strategy, **options)
    torch.manual_seed(1)
    return expected, (net, optimizer), functools.partial(fitted, *batch), fitted


def test_a_plan_moves_to_the_disk_and_its_file_keeps_its_budget(tmp_path):
    (losses, state), trained, step, fitted = on_disk(tmp_path)
    found = []
    sizes = []
    for _ in range(6):
        found.append(float(step()))
        sizes += [os.stat(path).st_size for path in spilled(tmp_path)]
        assert not list(tmp_path.iterdir())
    told = fitted._budget._native.stats()
    assert fitted.report.guided and fitted.report.lost_copies == 0
    fitted.close()
    assert found == losses and same(left(*trained), state)
    assert 0 < told["disk_peak_bytes"] <= 64 << 20 and told["host_peak_bytes"] == 0
    assert sizes and max(sizes) <= 64 << 20
    assert fitted.report.measured_peak_bytes <= fitted.budget


def test_a_file_that_is_cut_costs_time_and_is_named(tmp_path):
    (losses, state), trained, step, fitted = on_disk(tmp_path)
    found = [float(step()) for _ in range(3)]
    assert fitted.report.moved_bytes > 0 and fitted.report.lost_why is None
    # The next step writes it anew, and finds it cut when it reads: a thread cuts it all the time.
    (path,) = spilled(tmp_path)
    cutter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"while True:\n import os\n os.truncate('/proc/{os.getpid()}/fd/{path.rsplit('/', 1)[1]}', 0)",
        ]
    )
    try:
        time.sleep(0.3)
        found.append(float(step()))
        why = fitted.report.lost_why
    except OSError as error:
        # By the times that were measured a plan may have there what nobody can compute again: state, say.
        assert "stored in the spill file alone, and can't be brought back" in str(error)
        return
    finally:
        cutter.kill()
        cutter.wait()
    assert fitted.report.lost_copies > 0 and why is not None and why.startswith("reading `")
    assert str(tmp_path) in why
    found += [float(step()) for _ in range(2)]
    fitted.close()
    assert found == losses and same(left(*trained), state)
    assert fitted.report.measured_peak_bytes <= fitted.budget


def full_disk() -> None:
    """Steps whose disk takes a part of what is written; for a process of its own."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    directory = pathlib.Path(sys.argv[2])
    expected = plainly(deep, 6)[0]
    (_, state), trained, step, fitted = on_disk(directory)
    found, why = [float(step())], []
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, resource.RLIM_INFINITY))
    for _ in range(5):
        found.append(float(step()))
        why.append(fitted.report.lost_why)
    fitted.close()
    assert found == expected and same(left(*trained), state)
    assert fitted.report.measured_peak_bytes <= fitted.budget
    print(next(reason for reason in why if reason))


def child(what: str, *arguments: object, **options) -> subprocess.Popen:
    command = [sys.executable, str(HERE / "test_tiers.py"), what, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def test_a_full_disk_costs_time_and_is_named(tmp_path):
    process = child("full_disk", tmp_path)
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert told.startswith("writing `") and str(tmp_path) in told, told


def endless() -> None:
    """Steps on a disk until the end of the process."""
    _, _, step, _ = on_disk(pathlib.Path(sys.argv[2]))
    step()
    print("ready", flush=True)
    while True:
        step()


def test_nothing_is_left_of_a_process_that_is_killed(tmp_path):
    draw = random.Random(7)
    for _ in range(10 if ALL else 2):
        process = child("endless", tmp_path)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(draw.random())
        process.kill()
        process.wait()
        process.stdout.close()
        assert not list(tmp_path.iterdir())


def test_a_disk_that_can_not_be_used_is_refused(tmp_path):
    nowhere = memfit.torch.Budget("1GiB", disk_budget="1MiB", spill=tmp_path / "none")
    with pytest.raises(OSError, match=r"copies can't be written to `.*none`"), nowhere:
        pass
    with pytest.raises(memfit.UsageError, match="a size and a directory"):
        memfit.torch.Budget("1GiB", disk_budget="1MiB")
    with pytest.raises(memfit.UsageError, match="a size and a directory"):
        memfit.torch.fit(lambda: None, "1GiB", spill=tmp_path)
    # The step was not begun, and there is no budget left behind.
    assert not memfit.torch.is_enabled()


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_by_hand(tier, tmp_path):
    given = torch.randn(1000, 100)
    expected = torch.exp(given).sum(1)
    with memfit.torch.Budget("1GiB", **means(tier, tmp_path)) as budget:
        made = torch.exp(given)
        view = made[:10]
        assert memfit.torch.swap_out(made, tier)
        assert not memfit.torch.is_resident(made) and not memfit.torch.is_resident(view)
        assert memfit.torch.swap_in(made) is made
        assert torch.equal(made.sum(1), expected)
        assert memfit.torch.is_resident(made)
        assert memfit.torch.swap_out(made, tier)
        assert torch.equal(view.sum(1), expected[:10])
        told = budget.stats
        # What nothing can compute again stays, and so does what has no room elsewhere.
        assert not memfit.torch.swap_out(given, tier)
        assert not memfit.torch.swap_out(made, {"host": "disk", "disk": "host"}[tier])
        with pytest.raises(ValueError, match="there is no tier `cloud`"):
            memfit.torch.swap_out(made, "cloud")
    assert told["recomputed_ops"] == 0 and told["stored_bytes"] == told["loaded_bytes"] == 2 * 400_000


if __name__ == "__main__":
    {"full_disk": full_disk, "endless": endless}[sys.argv[1]]()
