"""Every model of the `onnx` package, those of its tests too, is planned or refused with a reason."""

import pathlib
import re
import warnings

import pytest

import memfit

onnx = pytest.importorskip("onnx", reason="the models come with the package `onnx`")

# A node, input or value of the model with its name, open dimensions, or a byte of the file.
PLACE = re.compile(r"^((node|input|initializer|output|value) `|the dimensions? `|byte \d)")


def models():
    """Name and bytes of each."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases("")
    for case in cases:
        yield case.name, case.model.SerializeToString()
    data = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(data.rglob("*.onnx")):
        yield str(path.relative_to(data)), path.read_bytes()


def test_each_is_planned_or_refused_with_node_and_reason():
    planned, refused = set(), {}
    for name, data in models():
        try:
            memfit.plan(data)
            planned.add(name)
        except memfit.InputError as error:
            refused[name] = str(error)
    wrong = {name: message for name, message in refused.items() if not PLACE.match(message)}
    assert not wrong
    assert sum(name.startswith("light") for name in planned) == 9
    if onnx.__version__ == "1.23.2":
        assert len(planned) >= 1806
    for name in ("test_if", "test_scan_sum", "test_scan9_sum", "test_scan9_multi_state"):
        assert name in planned
    assert "SequenceConstruct" in refused["test_if_seq"]
