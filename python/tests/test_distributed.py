"""Agreement between ranks, over gloo, in processes of their own: all say the same."""

import functools
import json
import multiprocessing
import os
import pathlib
import pickle
import socket
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import START
from small import TWO_OPS

import memfit
from memfit.torch import distributed

HANGS = 300
"""Seconds after which a test is stuck."""

OTHER = json.loads(json.dumps(TWO_OPS).replace("8192", "16384"))


def said(call):
    """What a call returned or raised, as something to compare between ranks."""
    try:
        return ("returned", call())
    except memfit.Error as error:
        plain = {key: value for key, value in vars(error).items() if key != "__notes__"}
        return (type(error).__name__, str(error), plain)


# Each takes (rank, world) and runs on every rank.


def smallest(rank, world):
    return [said(functools.partial(distributed.agree, budget)) for budget in (100 + rank, 100 - rank, 7)]


def no_budget(rank, world):
    return said(lambda: distributed.agree(0 if rank == world - 1 else 5))


def one_plan(rank, world):
    def make():
        assert rank == 0, "only the first rank plans"
        return memfit.plan(TWO_OPS, budget="100%")

    plan = memfit.plan(TWO_OPS) if rank == 0 else None
    return [
        said(lambda: distributed.share_plan(make, TWO_OPS, budget=12288)),
        said(lambda: distributed.share_plan(plan, TWO_OPS)),
        said(lambda: distributed.share_plan(plan.file if plan else b"mine", TWO_OPS)),
        said(lambda: distributed.share_plan(None, TWO_OPS)),
    ]


def another_graph(rank, world):
    graph = OTHER if rank == world - 1 else TWO_OPS
    return said(lambda: distributed.share_plan(lambda: memfit.plan(TWO_OPS), graph))


def a_smaller_budget(rank, world):
    budget = 4096 if rank == world - 1 else 12288
    return said(lambda: distributed.share_plan(lambda: memfit.plan(TWO_OPS), TWO_OPS, budget=budget))


def planning_fails(rank, world):
    return [
        said(lambda: distributed.share_plan(lambda: memfit.plan(TWO_OPS, budget=100), TWO_OPS)),
        said(lambda: distributed.share_plan(lambda: 1 // 0, TWO_OPS)),
    ]


def planning_takes_long(rank, world):
    """Longer than ranks wait for each other in silence."""
    ranks = distributed.Ranks(timeout=2)

    def make():
        time.sleep(5)
        return memfit.plan(TWO_OPS)

    return said(lambda: ranks.share_plan(make, TWO_OPS))


def refusals(rank, world):
    def block(error):
        with distributed.together():
            if error:
                raise error

    last, own = rank == world - 1, ValueError(f"own {rank}")
    budget = memfit.BudgetError("too small", hint="more", floor_bytes=7, least_budget_bytes=9, dominant="op")
    return [
        said(lambda: distributed.refuse_together(None)),
        said(lambda: distributed.refuse_together(budget if last else None)),
        said(lambda: distributed.refuse_together(budget)),
        said(lambda: distributed.refuse_together(own)),
        said(lambda: block(own if last else None)),
        said(lambda: block(None)),
    ]


def the_cause_stays(rank, world):
    error = ValueError("mine")
    try:
        distributed.refuse_together(error if rank == 1 else None)
    except memfit.Error as raised:
        return ("cause", (raised.__cause__ is error) == (rank == 1))
    return None


def different_data(rank, world):
    ranks = distributed.Ranks()
    return [
        said(lambda: ranks.same(b"%d" % (rank % 2), "profiles")),
        said(lambda: ranks.same(b"x", "profiles")),
    ]


def a_part_of_the_ranks(rank, world):
    odd = dist.new_group(list(range(1, world, 2)))
    if rank % 2 == 0:
        return None
    first = said(lambda: distributed.agree(10 - rank, group=odd))
    refused = said(
        lambda: distributed.refuse_together(ValueError("no") if rank == world - 1 else None, group=odd)
    )
    plan = said(lambda: distributed.share_plan(lambda: memfit.plan(TWO_OPS), TWO_OPS, group=odd))
    return [first, refused, plan]


def fails_in_a_step(failing, rank, world, linger):
    """All wait for one in an all-reduce of the training; it does not come."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    results = []
    for at in range(3):

        def step(at=at):
            with distributed.step():
                loss = model(torch.ones(2, 4)).sum()
                if at == 2 and rank == failing:
                    raise memfit.BudgetError("too small", floor_bytes=7)
                loss.backward()

        results.append(said(step))
    if rank == failing:
        time.sleep(linger)
    return [*results, dist.is_initialized()]


def last_fails_in_a_step(rank, world):
    return fails_in_a_step(world - 1, rank, world, linger=2)


def first_fails_in_a_step(rank, world):
    return fails_in_a_step(0, rank, world, linger=0)


def again_after_the_end(rank, world):
    """A process group that was taken down and set up again has a channel of its own."""
    first = distributed.agree(5 + rank)
    dist.destroy_process_group()
    alone = distributed.agree(50 + rank)
    start(rank, world, "again")
    return (first, alone - rank, distributed.agree(7 + rank))


def one_dies(rank, world):
    distributed.agree(1)
    if rank == world - 1:
        os._exit(3)
    return said(lambda: distributed.agree(1))[0]


def one_does_not_come(rank, world):
    ranks = distributed.Ranks(timeout=2)
    ranks.agree(1)
    if rank == world - 1:
        time.sleep(8)
        return "RankError"
    kind, message, _ = said(lambda: ranks.agree(1))
    assert f"not all of {world} ranks answered rank {rank} within 2 s" in message
    return kind


def start(rank, world, name):
    init = name if name.startswith("tcp:") else f"file://{pathlib.Path(name).absolute()}"
    timeout = timedelta(seconds=HANGS)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world, timeout=timeout)


def work(scenarios, rank, world, folder, init):
    os.chdir(folder)
    start(rank, world, init)
    results = [globals()[name](rank, world) for name in scenarios]
    pathlib.Path(f"{rank}.pickle").write_bytes(pickle.dumps(results))
    if dist.is_initialized():
        dist.destroy_process_group()


def run(scenarios, world, folder, dead=(), init="first"):
    """Runs scenarios on `world` ranks; the results of each scenario, by rank. None hangs."""
    context = multiprocessing.get_context(START)
    processes = [
        context.Process(target=work, args=(scenarios, rank, world, str(folder), init))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    end = time.monotonic() + HANGS
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    stuck = [rank for rank, process in enumerate(processes) if process.is_alive()]
    for rank in stuck:
        processes[rank].kill()
    assert not stuck, f"ranks {stuck} hang in {scenarios}"
    codes = [process.exitcode for rank, process in enumerate(processes) if rank not in dead]
    assert not any(codes), codes
    alive = [rank for rank in range(world) if rank not in dead]
    results = [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in alive]
    return dict(zip(scenarios, zip(*results, strict=True), strict=True))


LASTING = [
    "smallest",
    "no_budget",
    "one_plan",
    "another_graph",
    "a_smaller_budget",
    "planning_fails",
    "planning_takes_long",
    "refusals",
    "the_cause_stays",
    "different_data",
    "a_part_of_the_ranks",
    "again_after_the_end",
]


@pytest.fixture(scope="module", params=[2, 4])
def results(request, tmp_path_factory):
    world = request.param
    folder = tmp_path_factory.mktemp(f"ranks{world}")
    return world, run(LASTING, world, folder)


def same(results, name):
    """What all ranks say."""
    first, *others = results[1][name]
    assert all(other == first for other in others), (name, results[1][name])
    return first


def test_the_smallest_budget_counts(results):
    world = results[0]
    assert same(results, "smallest") == [("returned", 100), ("returned", 101 - world), ("returned", 7)]
    kind, message, more = same(results, "no_budget")
    assert (kind, message) == ("UsageError", f"rank {world - 1}: `0` is no budget in bytes")
    assert more["rank"] == world - 1


def test_all_have_the_first_ranks_plan(results):
    made, given, as_bytes, none = same(results, "one_plan")
    assert made == ("returned", memfit.plan(TWO_OPS, budget="100%").file)
    assert given == as_bytes == ("returned", memfit.plan(TWO_OPS).file)
    assert none[:2] == ("UsageError", "rank 0: the first rank has no plan")


def test_a_rank_with_another_graph_refuses_for_all(results):
    kind, message, _ = same(results, "another_graph")
    assert kind == "OtherGraphError"
    assert message.startswith(f"rank {results[0] - 1}: the plan was made for another graph")
    kind, message, more = same(results, "a_smaller_budget")
    assert (kind, more["rank"]) == ("VerificationError", results[0] - 1)
    assert more["violations"]


def test_what_the_first_rank_can_not_plan_nobody_runs(results):
    small, broken = same(results, "planning_fails")
    assert (small[0], small[2]["floor_bytes"], small[2]["dominant"]) == ("BudgetError", 12288, "up")
    assert broken[:2] == ("Error", "rank 0: ZeroDivisionError: integer division or modulo by zero")


def test_planning_may_take_longer_than_the_timeout(results):
    assert same(results, "planning_takes_long") == ("returned", memfit.plan(TWO_OPS).file)


def test_refusal_is_collective(results):
    world = results[0]
    last = world - 1
    none, one, all_same, all_own, block, good = same(results, "refusals")
    assert none == good == ("returned", None)
    assert one[:2] == ("BudgetError", f"rank {last}: too small\nhint: more")
    assert (one[2]["least_budget_bytes"], one[2]["rank"]) == (9, last)
    assert all_same[:2] == ("BudgetError", "too small\nhint: more")
    assert all_own[:2] == ("Error", "\n".join(f"rank {r}: ValueError: own {r}" for r in range(world)))
    assert block[:2] == ("Error", f"rank {last}: ValueError: own {last}")
    assert same(results, "the_cause_stays") == ("cause", True)


def test_different_data_is_noticed(results):
    differ, agree = same(results, "different_data")
    assert differ[0] == "RankError"
    assert differ[1].startswith("the ranks have different profiles: rank 0 `")
    assert agree == ("returned", None)


def test_a_new_process_group_starts_afresh(results):
    assert same(results, "again_after_the_end") == (5, 50, 7)


def test_a_part_of_the_ranks_agrees(results):
    world, found = results[0], results[1]["a_part_of_the_ranks"]
    assert all(found[rank] is None for rank in range(0, world, 2))
    assert all(found[rank] == found[1] for rank in range(1, world, 2))
    smallest, refused, plan = found[1]
    assert smallest == ("returned", 10 - (world - 1))
    # Alone, no rank needs to be named.
    assert refused[:2] == ("Error", "rank 3: ValueError: no" if world == 4 else "ValueError: no")
    assert plan[0] == "returned"


def test_a_dead_rank_is_noticed_by_all(tmp_path):
    world = 4
    found = run(["one_dies"], world, tmp_path, dead=[world - 1])
    assert found == {"one_dies": ("RankError",) * (world - 1)}


def test_a_rank_that_does_not_come_is_not_waited_for(tmp_path):
    world = 4
    found = run(["one_does_not_come"], world, tmp_path)
    assert found == {"one_does_not_come": ("RankError",) * world}


@pytest.mark.parametrize(("scenario", "world"), [("first_fails_in_a_step", 4), ("last_fails_in_a_step", 2)])
def test_a_rank_that_fails_in_a_step_wakes_the_others(scenario, world, tmp_path):
    """Over TCP, as training is: the first rank hosts the store that the reason stands in."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        init = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    (found,) = run([scenario], world, tmp_path, init=init).values()
    first, second, (kind, message, more), initialized = found[0]
    assert all(other == found[0] for other in found), found
    assert first == second == ("returned", None)
    failing = 0 if scenario.startswith("first") else world - 1
    assert (kind, message, initialized) == ("BudgetError", f"rank {failing}: too small", False)
    assert (more["floor_bytes"], more["rank"]) == (7, failing)


def test_alone_the_calls_do_the_same():
    assert distributed.agree(5) == 5
    plan = memfit.plan(TWO_OPS)
    assert distributed.share_plan(lambda: plan, TWO_OPS) == plan.file
    distributed.refuse_together(None)
    with pytest.raises(memfit.UsageError, match="`True` is no budget"):
        distributed.agree(True)
    with pytest.raises(memfit.OtherGraphError):
        distributed.share_plan(plan, OTHER)
    with pytest.raises(memfit.BudgetError) as caught:
        distributed.refuse_together(memfit.BudgetError("too small", floor_bytes=7))
    assert (str(caught.value), caught.value.floor_bytes, caught.value.rank) == ("too small", 7, 0)
