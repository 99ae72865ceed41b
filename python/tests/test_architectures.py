"""Tiny architectures of `transformers`, each for one training step at 60 % of what comes and goes: the same
bits within the budget, or a refusal that says why.

Some are run; `MEMFIT_ALL=1` runs all of them, and `MEMFIT_ARCHITECTURES_DOC=1` then writes
docs/pytorch-architectures.md anew.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
from collections import defaultdict

import pytest
from architectures import NAMES, TASKS
from sampling import ALL

HERE = pathlib.Path(__file__).parent
DOC = HERE.parent.parent / "docs" / "pytorch-architectures.md"
"""Whether slow suites run whole."""
SAMPLE = ("gemma2", "mpt", "big_bird", "longt5", "segformer", "hubert")
SECONDS = 3600
"""For all that are run: a guard against those that never end, for machines however slow."""
HEAD = """\
# Architectures of `transformers`

{count} architectures of the {listed} that the test lists, tiny, built from configurations: one training
step of each with AdamW on a CPU within 60 % of what comes and goes in it (or 5 % above the floor, where
that is more), under `enable`. The bits of loss, gradients, parameters and optimizer state are compared with
plain PyTorch's, and the bytes that PyTorch's allocator asks for with the budget. With torch {torch} and
transformers {transformers} {told}. `MEMFIT_ALL=1 MEMFIT_ARCHITECTURES_DOC=1 pytest
python/tests/test_architectures.py` wrote this page.

| class | the same bits |
|---|---|
{rows}
"""


@functools.cache
def told(shim: pathlib.Path) -> dict[str, dict]:
    environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, HERE / "architectures.py", shim, *(NAMES if ALL else SAMPLE)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stderr
    return {line["name"]: line for line in map(json.loads, ran.stdout.splitlines())}


def check(run):
    name = run["name"]
    assert "plain" not in run, run
    assert "raised" not in run, run
    assert max(run["peaks"]) <= run["budget"], run
    if "refused" in run:
        # Op by op there may be no way: then it says at which op, and what that needs.
        assert run["op"] in run["refused"]
        assert run["least"] > run["budget"]
        return "refused"
    assert run["differs"] == [], name
    return "same"


@pytest.mark.skipif(ALL, reason="all are run")
@pytest.mark.parametrize("name", SAMPLE)
def test_some_give_the_same_bits_within_the_budget(shim, name):
    assert check(told(shim)[name]) == "same"


@pytest.mark.skipif(not ALL, reason="`MEMFIT_ALL` is not set")
def test_all_give_the_same_bits_within_the_budget(shim):
    runs = told(shim)
    assert set(runs) == set(NAMES)
    found = defaultdict(list)
    for run in runs.values():
        found[check(run)].append(run["name"])
    assert len(runs) >= 60
    assert len(found["same"]) >= 55
    if os.environ.get("MEMFIT_ARCHITECTURES_DOC"):
        write(found)


def write(found: dict[str, list[str]]) -> None:
    import torch
    import transformers

    rows = []
    for task in TASKS:
        same = [f"`{name}`" for name in found["same"] if NAMES[name] == task]
        rows.append(f"| `{task}` | {', '.join(same)} |")
    refused = ", ".join(f"`{name}`" for name in found["refused"])
    page = HEAD.format(
        count=sum(map(len, found.values())),
        listed=len(NAMES),
        torch=torch.__version__.split("+")[0],
        transformers=transformers.__version__,
        told=f"{len(found['same'])} have the same bits, {len(found['refused'])} are refused"
        + (f": {refused}" if refused else ""),
        rows="\n".join(rows),
    )
    DOC.write_text(page)
