"""Two to eight ranks in virtual time: delays, failures, different memory, different graphs, other calls.

Nobody waits for ever, and nobody follows a plan that it has not verified, or another one than the others.
"""

import functools
import json
import random

import pytest
from sampling import ALL
from small import TWO_OPS
from virtual import World, simulated

import memfit
from memfit.torch import distributed

SEEDS = 3000 if ALL else 80
OTHER = json.loads(json.dumps(TWO_OPS).replace("8192", "16384"))
TIMEOUT = 20.0

FAULTS = [
    "none",
    "one dies",
    "some are late",
    "one has another graph",
    "one has less memory",
    "one makes other calls",
    "one refuses",
    "planning fails",
]


@functools.cache
def verdict(file: bytes, other: bool, budget: int) -> memfit.Error | None:
    """What the verifier says, which takes longer than all else here."""
    try:
        checked(file, OTHER if other else TWO_OPS, budget=budget)
    except memfit.Error as error:
        return error
    return None


checked = memfit.check


@functools.cache
def planned() -> bytes:
    return memfit.plan(TWO_OPS, budget="100%").file


class Rank:
    """What became of a rank."""

    def __init__(self) -> None:
        self.verified: set[bytes] = set()
        self.follows: tuple[int, bytes] | None = None
        self.raised: memfit.Error | None = None
        self.ended = False


def train(world: World, ranks: list[Rank], fault: str, odd: int) -> None:
    """What each rank does; `odd` is the one that does something else."""
    me = world.rank
    this, strange = ranks[me], me == odd
    try:
        group = distributed.Ranks(timeout=TIMEOUT)
        budget = group.agree(12288 + (me if fault != "one has less memory" else -4096 * strange))
        if fault == "one makes other calls" and strange:
            others = [
                lambda: group.same(b"state", "states"),
                lambda: group.gather("a word"),
                lambda: group.refuse_together(None),
                lambda: group.from_first(lambda: b"a plan of my own"),
                lambda: None,
            ]
            world.random.choice(others)()
        group.agree(budget)
        with group.together():
            if fault == "one refuses" and strange:
                raise memfit.UsageError("I won't")

        def make() -> bytes:
            world.sleep(world.random.random() * 3 * TIMEOUT)
            if fault == "planning fails":
                raise memfit.BudgetError("too small", floor_bytes=7)
            return planned()

        graph = OTHER if fault == "one has another graph" and strange else TWO_OPS
        this.follows = budget, group.share_plan(make, graph, budget=budget)
    except memfit.Error as error:
        this.raised = error
    this.ended = True


def check(world: World, ranks: list[Rank]):
    """In the place of `memfit.check`."""

    def verify(file, graph, *, budget, dims):
        refusal = verdict(file, graph is OTHER, budget)
        if refusal is not None:
            raise refusal
        ranks[world.rank].verified.add(file)

    return verify


@pytest.mark.parametrize("fault", FAULTS)
def test_ranks_agree_or_refuse_whatever_happens(fault, monkeypatch):
    outcomes = []
    for seed in range(SEEDS):
        choose = random.Random(seed)
        size = choose.randint(2, 8)
        odd = choose.randrange(size)
        world, ranks = World(size, seed), [Rank() for _ in range(size)]
        if fault == "one dies":
            world.dies[odd] = choose.randint(1, 80)
        if fault == "some are late":
            world.late = 0.02
        with simulated(world, distributed, monkeypatch):
            monkeypatch.setattr(distributed.memfit, "check", check(world, ranks))
            for rank in range(size):
                world.spawn(rank, functools.partial(train, world, ranks, fault, odd))
            world.run()
        what = (fault, seed, [rank.raised for rank in ranks])
        alive = [rank for at, rank in enumerate(ranks) if at not in world.gone]
        assert all(rank.ended for rank in alive), what
        following = [rank for rank in ranks if rank.follows is not None]
        assert len({rank.follows for rank in following}) <= 1, what
        assert all(rank.follows[1] in rank.verified for rank in following), what
        raised = {str(rank.raised) for rank in alive if rank.raised is not None}
        if fault == "none":
            assert len(following) == size, what
        elif fault in ("one has another graph", "one has less memory", "one refuses", "planning fails"):
            assert not following and len(raised) == 1, what
        elif fault == "one makes other calls":
            assert all(isinstance(rank.raised, memfit.RankError) for rank in alive if rank.raised), what
        outcomes.append(len(following))
    if fault in ("one dies", "some are late", "one makes other calls"):
        assert 0 in outcomes and max(outcomes) > 0


def work(world: World, told: list, odd: int, fails: bool) -> None:
    group = distributed.Ranks(timeout=TIMEOUT)
    me = world.rank
    for at in range(3):
        try:
            with group.step():
                if at == 2 and me == odd and fails:
                    raise memfit.BudgetError("too small", floor_bytes=7)
                # A collective of the training.
                main = world.group_of_this()
                world.meet(main, "all_reduce", None, 300.0, main.ranks)
        except memfit.Error as error:
            told[me] = (type(error).__name__, str(error))
            return
    told[me] = ("done", "")


@pytest.mark.parametrize("fails", [True, False])
def test_a_rank_that_fails_in_a_step_wakes_the_others(fails, monkeypatch):
    for seed in range(SEEDS):
        choose = random.Random(seed)
        size = choose.randint(2, 8)
        odd = choose.randrange(size)
        world, told = World(size, seed), [None] * size
        if not fails:
            world.dies[odd] = choose.randint(1, 8)
        with simulated(world, distributed, monkeypatch):
            for rank in range(size):
                world.spawn(rank, functools.partial(work, world, told, odd, fails))
            world.run()
        if fails:
            assert set(told) == {("BudgetError", f"rank {odd}: too small")}, (seed, told)
        else:
            assert all(told[rank] is not None for rank in range(size) if rank != odd), (seed, told)


def test_ranks_that_wait_for_ever_are_found():
    world = World(2, 0)
    world.spawn(0, lambda: world.wait(lambda: False))
    world.spawn(1, lambda: world.sleep(5))
    with pytest.raises(AssertionError, match="for ever"):
        world.run()
    assert world.now == 5
