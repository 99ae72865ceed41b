"""The scripts of `examples/pytorch` run as they stand, and say what they are there to show."""

import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "pytorch"
SAYS = {
    "enable.py": "bit-identical   True",
    "explain.py": "largest",
    "fit.py": "bit-identical  yes",
    "partition.py": "bit-identical   True",
    "policy.py": "bit-identical   True",
    "predict.py": "without memfit does not fit",
    "sharding.py": "in units",
    "trainer.py": "bit-identical   True",
}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_examples_run(name: str) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / name],
        env={"PYTHONPATH": str(FOLDER.parents[1] / "python"), "OMP_NUM_THREADS": "1"},
        cwd=FOLDER,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
