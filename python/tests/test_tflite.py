"""`examples/tflite/offline.py` runs as it stands, with TensorFlow Lite's own interpreters.

They are looked for in this Python, and in the one that `MEMFIT_TFLITE_PYTHON` names:
`python -m venv lite && lite/bin/pip install ai-edge-litert tflite-micro`.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import memfit

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tflite" / "offline.py"


def interpreter() -> str:
    """A Python that has the packages."""
    named = [os.environ.get("MEMFIT_TFLITE_PYTHON"), sys.executable]
    for python in filter(None, named):
        line = [python, "-c", "import ai_edge_litert.interpreter, tflite_micro"]
        if subprocess.run(line, capture_output=True).returncode == 0:
            return python
    pytest.skip("no Python with ai-edge-litert and tflite-micro: name one with MEMFIT_TFLITE_PYTHON")


def command() -> str:
    """The `memfit` command, newest build first."""
    built = [path for path in ROOT.glob("target/*/memfit") if path.is_file()]
    newest = max(built, key=lambda path: path.stat().st_mtime, default=None)
    found = str(newest) if newest else shutil.which("memfit")
    return found or pytest.skip("no memfit command: cargo build -p memfit-cli")


def test_outputs_are_equal_with_and_without_offsets() -> None:
    done = subprocess.run(
        [interpreter(), EXAMPLE],
        env={**os.environ, "MEMFIT": command(), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for line in (
        "offsets for 7 of 14 tensors",
        "everything else unchanged      True",
        "LiteRT: outputs equal          True",
        "TensorFlow Lite Micro: equal   True",
    ):
        assert line in done.stdout, done.stdout
    before, after = re.findall(r"(\d+) B", done.stdout)
    assert int(after) < int(before), done.stdout


def test_ops_in_place_compute_the_same() -> None:
    done = subprocess.run(
        [interpreter(), ROOT / "python" / "tests" / "tflite_in_place.py"],
        env={**os.environ, "MEMFIT": command(), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) ops in place, outputs equal", done.stdout)
    assert found and int(found.group(1)) >= 30, done.stdout


def test_the_same_in_python() -> None:
    """Offsets are there for a reader of 32-bit integers: version, subgraph, count, offsets."""
    model = (ROOT / "corpus" / "tflite" / "small.tflite").read_bytes()
    device = ROOT / "examples" / "tflite" / "microcontroller.toml"
    plan = memfit.plan(model, device=device, strategy="order:given", recompute=False)
    out = memfit.export(plan, model, to="tflite")
    assert out.endswith(model) and b"OfflineMemoryAllocation" in out[: -len(model)]
    words = memoryview(out).cast("i").tolist()
    head = next(at for at in range(len(words)) if words[at : at + 3] == [1, 0, 6])
    x, w, c, r, f, y = words[head + 3 : head + 9]
    assert (w, r, f, y) == (-1, c, c, c), "weights are the runtime's; in place, a view, in place"
    assert (x, c) in ((256, 0), (0, 64)) and plan.peak_bytes == 320
    with pytest.raises(memfit.OtherGraphError):
        memfit.export(plan, (ROOT / "corpus" / "tflite" / "stateful.tflite").read_bytes(), to="tflite")
    with pytest.raises(memfit.UsageError, match="tflite"):
        memfit.export(plan, model, to="onnx")
    moved = memfit.plan(model)
    assert memfit.export(moved, model, to="tflite").endswith(model), "multiples of 512 are multiples of 16"
    with pytest.raises(memfit.InputError, match="--dim"):
        memfit.plan((ROOT / "corpus" / "tflite" / "open.tflite").read_bytes())
