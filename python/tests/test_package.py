"""What a user installs: the wheel, in an environment that has nothing else."""

import contextlib
import importlib.metadata
import importlib.util
import json
import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest
from sampling import ALL

ROOT = pathlib.Path(__file__).parent.parent.parent
LARGEST = 10_000_000

CODE = """
import json, sys
import memfit
graph = {
    "schema": "memfit-graph/1", "name": "one op",
    "values": [{"name": "x", "bytes": 512, "role": "input"}, {"name": "y", "bytes": 512, "role": "output"}],
    "ops": [{"name": "copy", "kind": "copy", "reads": [0], "writes": [1]}],
    "results": [1],
}
plan = memfit.plan(graph, budget="100%")
memfit.check(plan, graph)
try:
    memfit.torch
except AttributeError:
    pass
try:
    import memfit.torch
    refused = None
except ImportError as error:
    refused = str(error)
print(json.dumps([memfit.__version__, memfit.__file__, plan.peak_bytes, refused, "torch" in sys.modules]))
"""


def run(*line, **options):
    return subprocess.run([str(word) for word in line], capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not ALL:
        pytest.skip("a wheel takes minutes to build: `cargo xtask ci packages`, or MEMFIT_ALL=1")
    folder = tmp_path_factory.mktemp("wheel")
    made = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    offline = ("No matching distribution found for maturin", "Temporary failure in name resolution")
    if made.returncode != 0 and any(sign in made.stderr + made.stdout for sign in offline):
        pytest.skip("NOT TESTED: the wheel, since maturin can't be fetched from the package index")
    assert made.returncode == 0, made.stdout + made.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_is_small_and_needs_nothing(wheel):
    assert wheel.stat().st_size <= LARGEST
    assert "-cp310-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        head = packed.read(metadata).decode().splitlines()
    assert {"memfit/__init__.py", "memfit/_memfit.pyi", "memfit/py.typed", "memfit/torch/export.py"} <= names
    assert not [name for name in names if "tests" in name or name.endswith((".rs", ".pyc"))]
    needs = [line for line in head if line.startswith("Requires-Dist:")]
    assert all("extra ==" in line for line in needs), needs
    assert "Requires-Python: >=3.10" in head


def test_it_works_in_an_environment_without_torch(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    made = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    assert made.returncode == 0, made.stdout + made.stderr
    made = run(python, "-I", "-c", CODE, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    version, file, peak, refused, torch = json.loads(made.stdout)
    assert pathlib.Path(file).is_relative_to(tmp_path)
    assert (version, peak, torch) == (wheel.name.split("-")[1], 1024, False)
    assert refused.startswith("`memfit.torch` needs PyTorch 2.11 or newer, and there is none\nhint: ")


def test_a_wheel_with_a_command_installs_and_runs_it(wheel, tmp_path):
    spec = importlib.util.spec_from_file_location("packer", ROOT / "xtask" / "wheel.py")
    packer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packer)
    command = tmp_path / "memfit"
    command.write_text("#!/bin/sh\necho it runs\n")
    folder = tmp_path / "made"
    folder.mkdir()
    plain = packer.add(wheel, command, folder)
    assert packer.faults(plain) == [f"{plain.name} has no manylinux tag"]
    made = packer.tagged(plain, folder)
    assert packer.faults(made) == []
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", made)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(tmp_path / "venv" / "bin" / "memfit").stdout == "it runs\n"
    assert run(python, "-I", "-c", CODE, cwd=tmp_path).returncode == 0


def test_the_source_and_the_stubs_agree():
    """Every name of the native module has a stub, and no other has."""
    import ast

    from memfit import _memfit

    stub = ast.parse((ROOT / "python" / "memfit" / "_memfit.pyi").read_text())

    def typed(body):
        nodes = (node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        shapes = {"Source", "Means"}  # `TypedDict`s, which are there for the type checker alone.
        return {node.name for node in nodes if not node.name.startswith("_")} - shapes

    def native(thing):
        return {name for name in dir(thing) if callable(getattr(thing, name)) and not name.startswith("_")}

    assert native(_memfit) == typed(stub.body)
    for node in stub.body:
        if isinstance(node, ast.ClassDef) and hasattr(_memfit, node.name):
            assert native(getattr(_memfit, node.name)) == typed(node.body), node.name


def test_the_version_is_that_of_the_workspace():
    import memfit

    line = next(line for line in (ROOT / "Cargo.toml").read_text().splitlines() if line.startswith("version"))
    assert line == f'version = "{memfit.__version__}"'
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # Run from the source, there is none.
        assert importlib.metadata.version("memfit") == memfit.__version__


def test_files_do_not_import_each_other_in_a_circle():
    """Where they did, it would depend on who is imported first whether one of them can be."""
    import ast
    import graphlib

    root = ROOT / "python"
    files = {path.relative_to(root).with_suffix(""): path for path in (root / "memfit").rglob("*.py")}
    modules = {".".join(name.parts).removesuffix(".__init__"): path for name, path in files.items()}
    imported: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {other if other in modules else node.module for other in whole}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        # A package is there, in part, before what is in it.
        imported[name] = {other for other in found & modules.keys() if not name.startswith(f"{other}.")}
    assert len(imported) > 80
    tuple(graphlib.TopologicalSorter(imported).static_order())
