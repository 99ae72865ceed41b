"""Plans that move tensors to host memory, and plans with codecs: same bits, within both budgets."""

import copy
import gc
import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from test_fit import left, training
from torch import nn

import memfit
import memfit.torch

HERE = pathlib.Path(__file__).parent


def deep(layers: int = 8):
    """A training whose results take ten times as long to compute as to move, on any machine."""
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(16, 16, 5, padding=2) for _ in range(layers)))
    optimizer = torch.optim.AdamW(net.parameters())
    images, labels = torch.randn(8, 16, 32, 32), torch.randint(0, 16, (8,))

    def step(images, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images).mean((2, 3)), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, optimizer, step, (images, labels)


def plainly(make, steps: int):
    net, optimizer, step, batch = make()
    torch.manual_seed(1)
    losses = [float(step(*batch)) for _ in range(steps)]
    return losses, left(net, optimizer)


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


KNOWN = memfit.strategies()
MOVES = [family.name for family in KNOWN.families if {"offload", "compress"} & set(family.means)]
NAMES = [f"{one.family}:{one.name}" for one in KNOWN.strategies if one.family in MOVES]
# One is refused where its lossy codec is not allowed: see test_quantised.py.
MOVING = [name for name in NAMES if name != "compress:quantised-state"]


@pytest.mark.parametrize(
    ("strategy", "share"),
    [(name, 0.5) for name in [*MOVING, "auto"]]
    + [(name, 0.2) for name in ("offload:best", "compress:best", "hybrid:best", "auto")],
)
def test_what_is_moved_comes_back_with_the_same_bits(strategy, share):
    expected, state = plainly(deep, 5)
    net, optimizer, step, batch = deep()
    step(*batch)
    budget = memfit.torch.floor(lambda: step(*batch)).share(share)
    net, optimizer, step, batch = deep()
    fitted = memfit.torch.fit(step, budget, check=False, strategy=strategy, host_budget="64MiB")
    torch.manual_seed(1)
    losses = [float(fitted(*batch)) for _ in range(5)]
    told = fitted._budget._native.stats()
    fitted.close()
    assert losses == expected
    assert same(left(net, optimizer), state)
    assert fitted.report.measured_peak_bytes <= budget
    # What is moved is a matter of measured times: to run a step again as it ran may be cheaper.
    assert told["host_peak_bytes"] <= 64 << 20
    assert told["loaded_bytes"] <= told["stored_bytes"]


def test_no_more_than_the_host_budget_is_moved():
    expected, _ = plainly(deep, 4)
    _, _, step, batch = deep()
    step(*batch)
    floor = memfit.torch.floor(lambda: step(*batch))
    for host in (0, 1_200_000, 2 << 20):
        _, _, step, batch = deep()
        fitted = memfit.torch.fit(step, floor.share(0.7), check=False, host_budget=host)
        torch.manual_seed(1)
        assert [float(fitted(*batch)) for _ in range(4)] == expected
        assert fitted._budget._native.stats()["host_peak_bytes"] <= host
        fitted.close()


def test_without_host_memory_a_strategy_that_moves_finds_nothing():
    expected, _ = plainly(training, 4)
    _, _, step, batch = training()
    fitted = memfit.torch.fit(step, 1 << 30, check=False, strategy="offload:best")
    torch.manual_seed(1)
    assert [float(fitted(*batch)) for _ in range(4)] == expected
    fitted.close()
    with pytest.raises(memfit.UsageError, match="offload:worst"):
        memfit.torch.fit(step, 1 << 30, check=False, strategy="offload:worst")(*batch)


def aligned(offset: int) -> int:
    return -(-offset // 512) * 512


def uses(steps: list, key: str) -> dict[int, list[int]]:
    """By buffer, the steps that compute with it as `reads` or `writes`."""
    found: dict[int, list[int]] = {}
    for at, step in enumerate(steps):
        for buffer in step.get("compute", {}).get(key, []):
            found.setdefault(buffer, []).append(at)
    return found


def set_aside(plan: dict, profile: dict, every: int, codec: str | None) -> int:
    """Has every so many values wait encoded between two uses, or without a codec in host memory; how many."""
    steps, buffers = plan["steps"], plan["buffers"]
    reads, writes = uses(steps, "reads"), uses(steps, "writes")
    taken = {buffer["over"] for buffer in buffers if "over" in buffer}
    freed = {step["free"] for step in steps if "free" in step}
    top = max(buffer["offset"] + buffer["size"] for buffer in buffers)
    before: dict[int, list[dict]] = {}
    renamed: dict[int, tuple[int, int]] = {}
    for number, (buffer, made) in enumerate(sorted(writes.items())):
        times = [*made, *reads.get(buffer, [])]
        gap = next(((a, b) for a, b in itertools.pairwise(times) if b > a + 4), None)
        plain = "value" in buffers[buffer] and "over" not in buffers[buffer] and buffer not in taken
        if number % every or gap is None or not plain or buffer not in freed:
            continue
        value = buffers[buffer]["value"]
        size = profile["values"][value]["bytes"]
        if size == 0:
            continue
        again = len(buffers)
        buffers.append({"value": value, "size": size, "offset": aligned(top)})
        top = aligned(top) + size
        if codec is None:
            copy_of = len(plan["copies"])
            plan["copies"].append({"value": value, "size": size})
            plan["host_budget_bytes"] += size
            out = [{"offload": {"from": buffer, "to": copy_of}}, {"await": -1}]
            back = [{"fetch": {"from": copy_of, "to": again}}, {"await": -1}, {"discard": copy_of}]
        else:
            packed, bound = again + 1, size + (size + 31) // 32
            buffers.append({"value": value, "size": bound, "offset": aligned(top), "encoded": codec})
            top = aligned(top) + bound
            out = [{"encode": {"from": buffer, "to": packed}}]
            back = [{"decode": {"from": packed, "to": again}}, {"free": packed}]
        before.setdefault(gap[0] + 1, []).extend([*out, {"free": buffer}])
        before.setdefault(gap[1], []).extend(back)
        renamed[buffer] = (gap[1], again)

    def name(buffer: int, at: int) -> int:
        since, again = renamed.get(buffer, (len(steps), buffer))
        return again if at >= since else buffer

    written = []
    for at, step in enumerate(copy.deepcopy(steps)):
        if "free" in step:
            step["free"] = name(step["free"], at)
        if "compute" in step:
            step["compute"]["reads"] = [name(buffer, at) for buffer in step["compute"]["reads"]]
        written += [*before.get(at, []), step]
    # Who waits waits for the step before.
    plan["steps"] = [{"await": at - 1} if "await" in step else step for at, step in enumerate(written)]
    plan["budget_bytes"] = plan["banks"][0]["capacity"] = aligned(top)
    plan["peak_bytes"] = top
    return len(renamed)


@pytest.mark.parametrize(("every", "codec"), [(1, "zvc"), (3, "zvc"), (1, None), (2, None)])
def test_a_plan_that_sets_values_aside_is_followed_to_the_same_bits(tmp_path, every, codec):
    expected, state = plainly(training, 4)
    net, optimizer, step, batch = training()
    fitted = memfit.torch.fit(step, 1 << 30, check=False)
    torch.manual_seed(1)
    step(*batch)  # The optimizer has its state then: each step is as the next.
    floor = memfit.torch.floor(lambda: step(*batch))
    fitted.close()
    net, optimizer, step, batch = training()
    torch.manual_seed(1)
    losses = [float(step(*batch))]
    fitted = memfit.torch.fit(step, floor.share(0.8), check=False)
    losses.append(float(fitted(*batch)))
    fitted.save(tmp_path)
    fitted.close()
    plan = json.loads((tmp_path / "plan.json").read_text())
    profile = json.loads((tmp_path / "profile.json").read_text())
    count = set_aside(plan, profile, every, codec)
    assert count > 3
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert memfit.check((tmp_path / "plan.json").read_bytes(), (tmp_path / "profile.json").read_bytes())
    again = memfit.torch.fit(step, 1 << 30, check=False, load=tmp_path, host_budget="1GiB")
    losses.append(float(again(*batch)))
    assert again.report.guided, "the plan was followed to its end"
    told = again._budget._native.stats()
    assert told["stall_ns"] > 0
    if codec is None:
        assert told["stored_bytes"] == told["loaded_bytes"] == plan["host_budget_bytes"]
    losses.append(float(again(*batch)))
    again.close()
    assert losses == expected
    assert same(left(net, optimizer), state)


def relus():
    """A deep net of ReLUs, whose inputs are made larger by what comes with the batch."""
    torch.manual_seed(5)
    convolutions = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(12)])
    net = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), convolutions, nn.Linear(8 * 24 * 24, 4)])
    images, labels = torch.randn(16, 3, 24, 24), torch.randint(0, 4, (16,))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def step(images, labels, more):
        optimizer.zero_grad()
        values = net[0](images)
        for convolution in convolutions:
            values = torch.relu(convolution(values) + more)
        loss = nn.functional.cross_entropy(net[2](values.flatten(1)), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, optimizer, step, (images, labels)


def sparse_steps() -> None:
    """Steps within a budget whose values are sparse, then dense; for a process of its own."""
    mores = [torch.tensor(0.0)] * 4 + [torch.tensor(3.0)] * 5
    net, optimizer, step, batch = relus()
    expected = [float(step(*batch, more)) for more in mores]
    state = left(net, optimizer)
    net, optimizer, step, batch = relus()
    gc.collect()  # What the first net leaves would count in the budget.
    step(*batch, mores[0])
    budget = memfit.torch.floor(lambda: step(*batch, mores[0])).share(0.45)
    net, optimizer, step, batch = relus()
    gc.collect()
    fitted = memfit.torch.fit(step, budget, strategy="compress:best")
    losses, encoded, lost, guided = [], [], [], []
    for more in mores:
        losses.append(float(fitted(*batch, more)))
        encoded.append(fitted.report.encoded_bytes)
        lost.append(fitted.report.lost_copies)
        guided.append(fitted.report.guided)
        assert ("encoded" in repr(fitted.report)) == (encoded[-1] > 0)
    fitted.close()
    assert losses == expected
    assert same(left(net, optimizer), state)
    assert fitted.report.measured_peak_bytes <= budget
    assert fitted.report.identical
    # The plan of a rehearsal is for this very step, which returns a loss: each follows it.
    assert min(encoded[:4]) > 0 and all(guided[:4]) and sum(lost[:4]) == 0, (encoded, guided, lost)
    # What has become dense does not fit where its plan has it, until there is another plan.
    assert min(lost[4:7]) > 0 and lost[7:] == [0, 0], (encoded, guided, lost)
    print(f"encoded {encoded}, did not fit {lost}")


def test_what_is_sparse_waits_without_its_zeros():
    # In a process of its own: one in which others have started autograd's threads can't rehearse.
    lines = "import test_copies; test_copies.sparse_steps()"
    paths = {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    told = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, "-c", lines], env=os.environ | paths, check=False, **told)
    assert done.returncode == 0, done.stderr
    print(done.stdout)


def test_what_is_sparse_keeps_its_bits_without_a_rehearsal():
    net, optimizer, step, batch = relus()
    expected = [float(step(*batch, torch.tensor(more))) for more in (0.0, 0.0, 0.0, 3.0)]
    state = left(net, optimizer)
    net, optimizer, step, batch = relus()
    gc.collect()
    step(*batch, torch.tensor(0.0))
    budget = memfit.torch.floor(lambda: step(*batch, torch.tensor(0.0))).share(0.6)
    net, optimizer, step, batch = relus()
    gc.collect()
    fitted = memfit.torch.fit(step, budget, strategy="compress:best", check=False)
    losses = [float(fitted(*batch, torch.tensor(more))) for more in (0.0, 0.0, 0.0, 3.0)]
    fitted.close()
    assert losses == expected
    assert same(left(net, optimizer), state)
    assert fitted.report.measured_peak_bytes <= budget


def test_a_codec_that_there_is_not_is_refused():
    _, _, step, batch = training()
    with pytest.raises(ValueError, match="no lossless codec `lzw`"):
        memfit.torch.fit(step, 1 << 30, lossless=["lzw"])(*batch)
