"""Copies in pinned memory, with streams that do everything as late as they may, as CUDA's do at times."""

import random

import numpy
import pytest
import torch
from training import AMPLE, CASES, train

from memfit.torch import _pinned
from memfit.torch._pinned import Arena, Copies


class LateStreams:
    """Copies are made when somebody waits for them: what is freed or written to before is lost."""

    def __init__(self):
        self.queues = {"out": [], "in": []}
        self.begun = self.joined = 0

    def begin(self, direction, work, after):
        event = {"work": work, "after": list(after), "queue": self.queues[direction]}
        self.queues[direction].append(event)
        self.begun += 1
        return event

    def join(self, event):
        self.joined += 1
        queue = event["queue"]
        while event["work"] is not None:
            first = next(other for other in queue if other["work"] is not None)
            for before in first["after"]:
                self.join(before)
            work, first["work"] = first["work"], None
            work()
        queue[:] = [other for other in queue if other["work"] is not None]


class Elsewhere:
    """Memory that is no storage of the device that has the budget."""

    def __init__(self, size):
        self.nbytes, self._array = size, numpy.empty(size, dtype=numpy.uint8)

    def __getitem__(self, part):
        return torch.from_numpy(self._array[part])


def storage(size: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(size)


def flat(held: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(held)


@pytest.mark.parametrize("seed", range(20))
def test_slices_never_overlap_and_holes_join(seed):
    rng, arena, taken = random.Random(seed), Arena(1 << 16), {}
    for _ in range(400):
        if taken and rng.random() < 0.5:
            start = rng.choice(list(taken))
            arena.give(start, taken.pop(start))
            continue
        size = rng.randrange(1, 9000)
        start = arena.take(size)
        if start is None:
            continue
        assert start % 512 == 0 and start + size <= arena.size
        for other, length in taken.items():
            assert start + size <= other or other + length <= start
        taken[start] = size
    for start, size in taken.items():
        arena.give(start, size)
    assert arena.take(1 << 16) == 0
    assert arena.take(1) is None


@pytest.mark.parametrize("seed", range(20))
def test_what_comes_back_is_what_went(seed):
    rng = random.Random(seed)
    copies = Copies(torch.empty(40_000, dtype=torch.uint8), LateStreams())
    held, refused = {}, 0
    for step in range(300):
        free = [number for number, row in held.items() if row[1] is None]
        act = rng.random()
        if act < 0.4 or not held:
            source = storage(rng.randrange(1, 6000))
            flat(source).random_(generator=torch.Generator().manual_seed(1000 * seed + step))
            wanted, number = flat(source).clone(), copies.store(source)
            if number is None:
                refused += 1
                assert held, "an empty pool has room"
                continue
            if rng.random() < 0.9:
                assert copies.wait(number) is None
                flat(source).zero_()  # Its memory has others from here on.
            held[number] = [wanted, None]
        elif act < 0.7 and free:
            number = rng.choice(free)
            copies.load(number)
            held[number][1] = True
        elif act < 0.9:
            number = rng.choice(list(held))
            came = copies.wait(number)
            assert (came is not None) == (held[number][1] is True)
            if came is not None:
                assert torch.equal(flat(came), held[number][0])
            held[number][1] = None
        else:
            number = rng.choice(list(held))
            copies.discard(number)
            del held[number]
    assert refused > 5


@pytest.mark.parametrize("name", ["u-net", "gpt-2"])
@pytest.mark.parametrize("recompute", [True, False])
def test_training_goes_through_it(name, recompute, monkeypatch):
    """What a device with streams would do, on this one's memory."""
    without, floor = train(CASES[name]), train(CASES[name], AMPLE, watch=True).floor
    made = []

    def means(told, _device):
        streams = LateStreams()
        made.append(streams)
        copies = Copies(Elsewhere(told["host_budget"]), streams)
        return {**told, "pinned": copies, "coded": None}, lambda: made.append("released")

    monkeypatch.setattr(_pinned, "means", means)
    budget = int(floor + 0.5 * (without.peak - floor))
    within = train(CASES[name], budget, recompute=recompute, host_budget=64 << 20)
    assert within.digests == without.digests
    assert within.peak <= budget
    streams, released = made
    assert released == "released" and streams.begun > 0 and streams.joined > 0
    assert within.stats["stored_bytes"] > 0 or recompute
