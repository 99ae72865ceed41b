"""The functions of `memfit`: inputs, results, errors, interrupts. What they compute is tested in Rust."""

import dataclasses
import json
import os
import pathlib
import pickle
import re
import signal
import threading
import time

import pytest
from sampling import ALL
from small import TWO_OPS

import memfit
from memfit import _results

ROOT = pathlib.Path(__file__).parent.parent.parent
CORPUS = ROOT / "corpus" / "graphs"
RESNET = CORPUS / "resnet50-train-b32.json.zst"
# Where many plans are made: it takes half the time.
GPT = CORPUS / "gpt2-train-b8-s1024.json.zst"


def test_a_graph_is_a_path_or_bytes_or_a_dict(tmp_path):
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO_OPS))
    data = path.read_bytes()
    plans = [
        memfit.plan(graph) for graph in (TWO_OPS, path, str(path), data, bytearray(data), memoryview(data))
    ]
    assert {plan.file for plan in plans} == {plans[0].file}
    assert (plans[0].peak_bytes, plans[0].graph, plans[0].verified) == (12288, "two ops", True)
    assert json.loads(plans[0].file)["schema"] == "memfit-plan/1"
    for plan in (plans[0], plans[0].file):
        assert memfit.check(plan, TWO_OPS).peak_bytes == 12288
    plans[0].save(tmp_path / "plan.json")
    assert memfit.check(tmp_path / "plan.json", TWO_OPS, budget="12KiB").budget_bytes == 12288
    assert sorted(file.name for file in tmp_path.iterdir()) == ["plan.json", "two.json"]


def test_attributes_are_the_keys_of_the_command_line():
    """`read` refuses a key that no class has, and a missing one: so these fail when the two drift apart."""
    plan = memfit.plan(TWO_OPS, budget="100%", seed=3)
    assert json.loads(plan.to_json())["seed"] == 3
    assert "file" not in json.loads(plan.to_json())
    found = memfit.explain(TWO_OPS)
    assert json.loads(found.to_json())["top"][0]["name"] == found.top[0].name
    assert found.peak_op is not None
    assert found.peak_op.name in ("up", "down")
    assert "what each remedy would give" in repr(found)
    assert memfit.floor(TWO_OPS).floor_bytes == 12288
    rows = memfit.compare(TWO_OPS, budget=12288).rows
    assert {row.status for row in rows} >= {"fits"}
    curve = memfit.sweep(TWO_OPS, ["100%", 8192])
    assert [row.status for row in curve.rows] == ["fits", "infeasible"]
    assert curve.rows[1].proved is True
    names = {(strategy.family, strategy.name) for strategy in memfit.strategies().strategies}
    assert {("order", "best"), ("place", "best"), ("recompute", "best")} <= names
    assert "H100" in {device.name for device in memfit.strategies().devices}
    with pytest.raises(TypeError):
        _results.read(memfit.Floor, '{"schema": "memfit-floor/2", "surprise": 1}')


def test_families_are_those_of_the_manual():
    known = memfit.strategies()
    manual = (ROOT / "docs" / "strategies.md").read_text()
    assert len({family.name for family in known.families}) == len(known.families)
    for family in known.families:
        names = [strategy.name for strategy in known.strategies if strategy.family == family.name]
        assert family.default in names
        assert len(set(names)) == len(names)
        assert f"| [`{family.name}`]({family.page}) | {family.summary} |" in manual
        if not family.online:
            assert f'"{family.name}:NAME"' in memfit.plan.__doc__
            plan = memfit.plan(TWO_OPS, strategy=f"{family.name}:{family.default}")
            assert plan.verified
    assert {strategy.family for strategy in known.strategies} == {family.name for family in known.families}


def test_results_are_values():
    first, second = memfit.floor(TWO_OPS), memfit.floor(TWO_OPS)
    assert first == second
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.floor_bytes = 0
    assert pickle.loads(pickle.dumps(first)) == first


def test_offsets_for_buffers(tmp_path):
    buffers = [(0, 3, 10), (1, 2, 5), (2, 4, 5)]
    placed = memfit.place(buffers)
    assert placed.peak_bytes == placed.lower_bound_bytes == 15
    for one, (lower, upper, size) in enumerate(buffers):
        for two, (begin, end, other) in enumerate(buffers[:one]):
            apart = placed.offsets[one] + size <= placed.offsets[two]
            apart |= placed.offsets[two] + other <= placed.offsets[one]
            assert apart or upper <= begin or end <= lower
    (tmp_path / "buffers.csv").write_text("id,lower,upper,size\na,0,3,10\nb,1,2,5\nc,2,4,5\n")
    assert memfit.place(tmp_path / "buffers.csv").offsets == placed.offsets
    with pytest.raises(memfit.BudgetError) as caught:
        memfit.place(buffers, capacity=14)
    assert (caught.value.least_budget_bytes, caught.value.proved) == (15, True)


def test_a_budget_that_is_too_small_says_what_would_do():
    with pytest.raises(memfit.BudgetError, match="needs `489 MiB`") as caught:
        memfit.plan(RESNET, budget="300MiB")
    error = caught.value
    floor = memfit.floor(RESNET)
    assert (error.budget_bytes, error.floor_bytes) == (300 << 20, floor.floor_bytes)
    assert error.dominant == floor.largest_step == error.witness["name"]
    assert error.proved is True
    said = re.search(r"`budget=([0-9.]+[GM]iB)` is enough", error.hint)[1]
    assert error.least_budget_bytes <= memfit.plan(RESNET, budget=said).budget_bytes
    assert error.least_budget_bytes < 2 * floor.floor_bytes
    assert memfit.plan(RESNET, budget=error.least_budget_bytes).peak_bytes <= error.least_budget_bytes
    # An exception crosses processes whole.
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: memfit.plan({"a": 1}), memfit.InputError, "there is no key `schema`"),
        (lambda: memfit.plan({"a": float("nan")}), memfit.InputError, "not a JSON object"),
        (lambda: memfit.plan(b"\0"), memfit.InputError, "not an ONNX model"),
        (lambda: memfit.plan("no-such-file.json"), memfit.InputError, "can't read `no-such-file.json`"),
        (lambda: memfit.plan(7), memfit.UsageError, "not `int`"),
        (lambda: memfit.plan(TWO_OPS, budget="much"), memfit.UsageError, "`much` is not a budget"),
        (lambda: memfit.plan(TWO_OPS, budget=1.5), memfit.UsageError, "`1.5` is not a size"),
        (lambda: memfit.plan(TWO_OPS, budget=-1), memfit.UsageError, "`-1 B` is not a budget"),
        (lambda: memfit.plan(TWO_OPS, strategy="order:much"), memfit.UsageError, "there is no order `much`"),
        (lambda: memfit.plan(TWO_OPS, strategy="much"), memfit.UsageError, "`much` is not a strategy"),
        (lambda: memfit.plan(TWO_OPS, device="much"), memfit.UsageError, "there is no device `much`"),
        (lambda: memfit.plan(TWO_OPS, lanes=65), memfit.UsageError, "`lanes` is 65"),
        (lambda: memfit.plan(TWO_OPS, time_limit=0), memfit.UsageError, "not a number of seconds"),
        (lambda: memfit.plan(TWO_OPS, dims={"batch": 2}), memfit.UsageError, "ONNX"),
        (lambda: memfit.place(b"id,size\n"), memfit.InputError, "column `lower` is missing"),
        (lambda: memfit.check(b"{}", TWO_OPS), memfit.InputError, "schema"),
    ],
)
def test_what_makes_no_sense_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
    assert issubclass(kind, memfit.Error)


def test_the_judge_refuses_a_changed_plan():
    plan = memfit.plan(TWO_OPS)
    with pytest.raises(memfit.OtherGraphError, match="made for another graph"):
        memfit.check(plan, RESNET)
    changed = json.loads(plan.file)
    assert changed["peak_bytes"] == 12288
    changed["peak_bytes"] = 4096
    with pytest.raises(memfit.VerificationError, match="the file claims a peak of 4096") as caught:
        memfit.check(json.dumps(changed).encode(), TWO_OPS)
    assert caught.value.violations[0]["message"].startswith("the file claims")
    with pytest.raises(memfit.VerificationError):
        memfit.check(plan, TWO_OPS, budget=4096)


def test_other_threads_run_while_memfit_thinks():
    ticks, done = [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    started = time.monotonic()
    memfit.plan(RESNET, budget="floor+60%")
    ended = time.monotonic()
    done.set()
    thread.join()
    assert sum(started < tick < ended for tick in ticks) > 20


def test_an_interrupt_ends_a_long_search():
    """With a limit of an hour the search would go on for that long."""
    timer = threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        memfit.plan(CORPUS / "decoder-7b-train-b1-s2048.json.zst", budget="floor+50%", time_limit=3600)
    timer.join()
    assert memfit.floor(TWO_OPS).floor_bytes == 12288


def test_values_move_to_host_memory_where_that_may_be():
    alone = memfit.plan(GPT, budget="floor+40%")
    assert alone.recompute_ns > 0 and alone.offload_bytes == 0
    moved = memfit.plan(GPT, budget="floor+40%", strategy="offload:best", host_budget="16GiB")
    assert moved.recompute_ns == 0 and 0 < moved.host_peak_bytes <= 16 << 30
    assert memfit.check(moved, GPT).host_peak_bytes == moved.host_peak_bytes
    # The faster of both.
    either = memfit.plan(GPT, budget="floor+40%", host_budget="16GiB")
    assert either.time_ns <= min(alone.time_ns, moved.time_ns)
    both = either
    if ALL:
        both = memfit.plan(GPT, budget="floor+40%", strategy="hybrid:best", host_budget="16GiB")
    assert both.recompute_ns > 0 and both.offload_bytes > 0
    assert both.time_ns < min(alone.time_ns, moved.time_ns)
    with pytest.raises(memfit.BudgetError):
        memfit.plan(GPT, budget="floor+40%", strategy="offload:best", host_budget="1MiB")
    assert memfit.plan(GPT, budget="floor+40%", host_budget=0).file == alone.file


def test_values_move_to_the_disk_where_there_is_one():
    there = {"device": "g10-a100", "budget": "floor+40%", "strategy": "offload:g10"}
    alone = memfit.plan(RESNET, disk_budget="64GiB", host_budget="256MiB", **there)
    assert 0 < alone.host_peak_bytes <= 256 << 20 and alone.disk_peak_bytes > 0
    assert memfit.check(alone, RESNET).disk_peak_bytes == alone.disk_peak_bytes
    with pytest.raises(memfit.BudgetError):
        memfit.plan(RESNET, disk_budget=0, host_budget="256MiB", **there)
    with pytest.raises(memfit.UsageError, match="no disk"):
        memfit.plan(RESNET, budget="floor+40%", disk_budget="64GiB")


def test_a_graph_is_simplified(tmp_path):
    sizes = [{"name": name, "bytes": 4096} for name in "xabcd"]
    sizes[0]["role"] = "input"
    op = {"kind": "relu", "attributes": ""}
    ops = [
        {"name": "one", "reads": [0], "writes": [1], **op},
        {"name": "again", "reads": [0], "writes": [2], **op},
        {"name": "unread", "reads": [0], "writes": [3], **op},
        {"name": "sum", "kind": "add", "reads": [1, 2], "writes": [4]},
    ]
    graph = {"schema": "memfit-graph/1", "name": "twice", "values": sizes, "ops": ops, "results": [4]}
    made = memfit.simplify(graph)
    assert made.verified and made.after.ops == 2 and made.before.ops == 4
    assert {(gone.name, gone.why) for gone in made.removed} == {("again", "common"), ("unread", "dead")}
    assert [(at.name, at.by_name) for at in made.replaced] == [("b", "a")]
    assert {rewritten.name for rewritten in made.passes} >= {"dead", "common", "identities", "views"}
    assert made.after.peak_bytes <= made.before.peak_bytes
    made.save(tmp_path / "out.json")
    again = memfit.simplify(tmp_path / "out.json")
    assert again.graph_digest == made.simplified_digest == again.simplified_digest
    assert "fused by a compiler" in repr(made)
    with pytest.raises(memfit.InputError):
        memfit.simplify(b"{}")
