"""Eleven models that people train every day, each in a process of its own whose address space has an end.

Bits, peaks by the bytes that PyTorch's allocator asks for, and what planning takes, for budgets of 80, 50 and
30 % of what comes and goes, from the first step on. A part is run; `MEMFIT_ALL=1` runs all of it.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest
from everyday import FACES, MODELS, PLANNING, SHARES
from sampling import ALL

HERE = pathlib.Path(__file__).parent
"""Whether slow suites run whole."""
SAMPLE = {
    "convnext": ("enable:0.3", "fit:0.5"),
    "mixtral": ("enable:0.3",),
    "clip": ("enable:0",),
    "wav2vec2": ("enable:0.5",),
    "detr": ("enable:0.3",),
    "mamba": ("enable:0.8", "enable:0.3"),
}
"""What is run otherwise."""
EVERYTHING = {name: [f"{face}:{share}" for face in FACES for share in (*SHARES, 0)] for name in MODELS}
CASES = [(name, run) for name, runs in (EVERYTHING if ALL else SAMPLE).items() for run in runs]
ROOM = 1.5
"""Within so many times the floor, deciding op by op may find no way."""
SECONDS = 1800
"""For all runs of a model: it is a guard against those that never end, for machines however slow."""


@functools.cache
def told(shim: pathlib.Path, name: str) -> dict[str, dict]:
    runs = (EVERYTHING if ALL else SAMPLE)[name]
    environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, HERE / "everyday.py", shim, name, *runs]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stderr
    found = {line["run"]: line for line in map(json.loads, ran.stdout.splitlines())}
    if ALL:
        for line in found.values():
            print(json.dumps({key: value for key, value in line.items() if key != "digests"}))
    return found


def keeps_to_its_budget(run):
    assert "raised" not in run, run
    assert "refused" not in run, run["refused"]
    assert run["differs"] == []
    assert max(run["peaks"]) <= run["budget"]
    assert run["recomputed"] > 0
    if "planning" in run:
        assert run["identical"] and not run["notes"]
        assert run["measured"] <= run["budget"]
        assert run["planning"] <= PLANNING


def is_refused_by_name(run, face):
    """With the least budget that a plan was found for, which then does; op by op with what one op needs."""
    assert run["budget"] < run["least"]
    assert run["op"] in run["refused"]
    assert max(run["peaks"]) <= run["budget"]
    assert run["lower_bound"] == (face == "enable")
    if face == "fit" or run["slow"]:
        keeps_to_its_budget(run["then"])


@pytest.mark.parametrize(("name", "run"), CASES, ids=map(" ".join, CASES))
def test_the_same_bits_within_the_budget(shim, name, run):
    found = told(shim, name)
    needs, within = found["plain"]["needs"], found[run]
    face, share = run.split(":")
    if float(share) == 0:
        assert within["budget"] < needs["floor"]
        is_refused_by_name(within, face)
        return
    assert needs["floor"] < within["budget"] < needs["peak"]
    if "refused" in within and within["budget"] <= ROOM * needs["floor"]:
        # Op by op there may be no way so near the floor; `fit` finds one.
        assert face == "enable"
        is_refused_by_name(within, face)
    else:
        keeps_to_its_budget(within)
