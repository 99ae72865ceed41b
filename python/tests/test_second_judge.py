"""Two judges, in two languages, say the same of real plans and of what they become when they are spoilt.

More mutants: `SECOND_JUDGE_MUTANTS=20000 pytest python/tests/test_second_judge.py`.
"""

import contextlib
import copy
import json
import os
import random

import pytest
import torch
from graphs import capture, classify, total
from second_judge import Graph, Json, judge
from torch import nn

import memfit

MUTANTS = int(os.environ.get("SECOND_JUDGE_MUTANTS", "800"))
MEANS = (
    {"budget": "100%"},
    {"budget": "floor+60%"},
    {"budget": "floor+25%"},
    {"budget": "floor+60%", "strategy": "offload:best"},
    {"budget": "floor+30%", "strategy": "hybrid:best"},
    {"budget": "floor+80%", "strategy": "compress:best"},
    {"budget": "floor+60%", "strategy": "compress:cdma"},
    {"budget": "150%", "lanes": 3},
    {"budget": "150%", "lanes": 2, "allow_serialize": True},
)


def networks() -> list[Json]:
    """Training steps, small, with what makes plans interesting: mutation, random numbers, scratch memory."""
    chain = nn.Sequential(
        *[layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1))]
    )
    cnn = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 64, 10),
    )
    attention = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    images, labels = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
    graphs = [
        capture(chain, torch.randn(256, 32), total, "adamw"),
        capture(cnn, (images, labels), classify, "sgd"),
        capture(attention, torch.randn(4, 32, 32), total, "adamw"),
    ]
    for graph in graphs:
        # As if every third value that ops make had been seen to be sparse.
        made = {value for op in graph["ops"] for value in op["writes"]}
        for at in sorted(made):
            value = graph["values"][at]
            if at % 3 == 0 and value.get("role") not in ("parameter", "state", "constant"):
                value["density"] = (0.1, 0.3, 0.6)[at % 9 // 3]
    return graphs


def plans(graph: Json) -> list[Json]:
    """Plans for `graph` by every means that finds one."""
    found = []
    for means in MEANS:
        with contextlib.suppress(memfit.BudgetError):
            found.append(json.loads(memfit.plan(graph, **means).file))
    return found


def verdict(graph: Json, plan: Json) -> str | None:
    """What memfit's judge says, `None` if the plan is right; `unread` if its reader refuses."""
    try:
        memfit.check(json.dumps(plan).encode(), graph)
    except memfit.VerificationError as wrong:
        return str(wrong) or "wrong"
    except memfit.InputError:
        return "unread"
    return None


def shifted(steps: list[Json], at: int, by: int) -> None:
    """Awaits name steps by position: those from `at` on have moved by `by`."""
    for step in steps:
        if step.get("await", -1) >= at:
            step["await"] += by


def spoil_buffer(plan: Json, rng: random.Random) -> None:
    """Changes one stay."""
    rows = plan["buffers"] if rng.random() < 0.8 or not plan["copies"] else plan["copies"]
    row, other = rng.choice(rows), rng.choice(rows)
    kind = rng.randrange(8)
    if kind == 0 and "offset" in row:
        row["offset"] = max(
            0, row["offset"] + rng.choice((-1, 1)) * rng.choice((1, plan["align"], row["size"]))
        )
    elif kind == 1 and "offset" in row:
        row["offset"] = other["offset"]
    elif kind == 2 and "offset" in row:
        row["offset"], other["offset"] = other["offset"], row["offset"]
    elif kind == 3:
        row["size"] = rng.choice(
            (0, row["size"] + plan["align"], max(0, row["size"] - plan["align"]), other["size"])
        )
    elif kind == 4 and "value" in row and "value" in other:
        row["value"] = other["value"]
    elif kind == 5:
        row.pop("over", None)
    elif kind == 6 and "offset" in row:
        row["over"] = rng.randrange(len(plan["buffers"]))
    elif rng.random() < 0.5:
        row["encoded"] = rng.choice(("zvc", "cast-f16"))
    else:
        row.pop("encoded", None)


def spoil_steps(plan: Json, rng: random.Random) -> None:
    """Drops, doubles or moves a step."""
    steps = plan["steps"]
    at, to = rng.randrange(len(steps)), rng.randrange(len(steps))
    kind = rng.randrange(4)
    if kind == 0:
        del steps[at]
        shifted(steps, at + 1, -1)
    elif kind == 1:
        shifted(steps, to, 1)
        steps.insert(to, copy.deepcopy(steps[at]))
    elif kind == 2:
        near = min(len(steps) - 1, at + 1)
        steps[at], steps[near] = steps[near], steps[at]
    else:
        step = steps.pop(at)
        shifted(steps, at + 1, -1)
        shifted(steps, to, 1)
        steps.insert(to, step)


def spoil_step(plan: Json, rng: random.Random) -> None:
    """Changes what one step names."""
    step = rng.choice(plan["steps"])
    if "compute" in step:
        run = step["compute"]
        kind, side = rng.randrange(6), rng.choice((run["reads"], run["writes"]))
        if kind == 0 and side:
            side[rng.randrange(len(side))] = rng.randrange(len(plan["buffers"]))
        elif kind == 1 and len(side) > 1:
            rng.shuffle(side)
        elif kind == 2:
            run.pop("workspace", None)
        elif kind == 3:
            run["workspace"] = rng.randrange(len(plan["buffers"]))
        elif kind == 4:
            run["op"] = max(0, run["op"] + rng.choice((-1, 1)))
        else:
            step["lane"] = rng.randrange(4)
    for key, most in (("free", "buffers"), ("discard", "copies"), ("await", "steps")):
        if key in step:
            step[key] = rng.randrange(len(plan[most]) + 1) if rng.random() < 0.7 else step[key] + 1
    for key in ("offload", "fetch", "encode", "decode"):
        if key in step:
            end = rng.choice(("from", "to"))
            step[key][end] = (
                rng.randrange(max(len(plan["buffers"]), 1))
                if rng.random() < 0.3
                else max(0, step[key][end] - 1)
            )


def spoil_rest(plan: Json, rng: random.Random) -> None:
    """Changes what is said of the whole."""
    kind = rng.randrange(8)
    if kind == 0 and plan["resident"]:
        del plan["resident"][rng.randrange(len(plan["resident"]))]
    elif kind == 1:
        plan["resident"].append(rng.randrange(len(plan["buffers"])))
    elif kind == 2:
        plan["replays_random"] = not plan["replays_random"]
    elif kind == 3:
        plan["host_budget_bytes"] = plan["host_budget_bytes"] // 2
    elif kind == 4 and plan["copies"]:
        rng.choice(plan["copies"])["tier"] = "disk"
    elif kind == 5:
        plan["lanes"] = rng.choice((1, 2, 1024, 65535))
    elif kind == 6:
        plan["lossy"] = ["cast-f16"]
    else:
        plan["peak_bytes"] += rng.choice((-1, 1)) * plan["align"]


SPOILS = (spoil_buffer, spoil_buffer, spoil_steps, spoil_steps, spoil_step, spoil_step, spoil_rest)


@pytest.fixture(scope="module")
def cases() -> list[tuple[Json, Graph, list[Json]]]:
    return [(graph, Graph(graph), plans(graph)) for graph in networks()]


def test_both_judges_accept_what_memfit_plans(cases):
    kinds: set[str] = set()
    for graph, second, found in cases:
        assert len(found) >= 4
        for plan in found:
            assert verdict(graph, plan) is None
            assert judge(second, plan) is None
            for step in plan["steps"]:
                kinds.update(step)
    assert kinds >= {"compute", "free", "offload", "fetch", "discard", "await", "lane"}, kinds


def test_both_judges_say_the_same_of_what_is_spoilt(cases):
    rng = random.Random(7)
    flat = [(graph, second, plan) for graph, second, found in cases for plan in found]
    counts = {"right": 0, "wrong": 0, "unread": 0}
    for number in range(MUTANTS):
        graph, second, plan = flat[number % len(flat)]
        mutant = copy.deepcopy(plan)
        for _ in range(rng.choice((1, 1, 1, 2))):
            rng.choice(SPOILS)(mutant, rng)
        first = verdict(graph, mutant)
        if first == "unread":
            counts["unread"] += 1
            continue
        other = judge(second, mutant)
        if (first is None) != (other is None):
            path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"two-judges-{number}")
            for name, what in (("graph", graph), ("plan", mutant)):
                with open(f"{path}-{name}.json", "w") as file:
                    json.dump(what, file)
            raise AssertionError(f"mutant {number}: memfit says {first}, the other says {other}; see {path}")
        counts["right" if first is None else "wrong"] += 1
    print(counts)
    assert counts["wrong"] > MUTANTS // 2 and counts["right"] > MUTANTS // 50, counts
