"""The command, files, and what wrong arguments say."""

import importlib
import json
import pathlib
import subprocess
import sys

import pytest
import torch
from torch import nn
from validate import validate

from memfit.torch import export, zoo
from memfit.torch._graph import ExportError

PYTHON = pathlib.Path(__file__).parent.parent
CORPUS = PYTHON.parent / "corpus" / "graphs"

OWN = """
import torch
def small():
    model = torch.nn.Linear(4, 2)
    torch.nn.init.trunc_normal_(model.weight)
    return model.to(torch.bfloat16), (torch.empty(3, 4, dtype=torch.bfloat16),), lambda m, x: m(x).sum()
def no_loss():
    return torch.nn.Linear(4, 2), torch.empty(3, 4)
def wrong():
    return 1
"""


def test_a_function_of_your_own(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    path = tmp_path / "small.json"
    arguments = ["mine:small", "--optimizer", "adamw", "-o"]
    texts = []
    for output in ("small.json", str(path)):
        line = [sys.executable, "-m", "memfit.torch.export", *arguments, output]
        env = {"PYTHONPATH": str(PYTHON)}
        made = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert (made.returncode, made.stderr) == (0, "")
        texts.append(path.read_text())
        path.unlink()
    assert texts[0] == texts[1], "neither paths nor time are in the file"
    graph = json.loads(texts[0])
    validate(graph)
    version = torch.__version__.split("+")[0]
    line = "python -m memfit.torch.export mine:small --optimizer adamw -o small.json"
    assert graph["origin"] == f"{line} (torch {version})"
    assert [op.get("phase") for op in graph["ops"]][-2:] == ["update", "update"]
    assert graph["values"][0]["dtype"] == "bf16"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine:no_loss", "-o", "x.json"], "error: `mine:no_loss` returns no loss function\nhint: "),
        (["mine:wrong", "-o", "x.json"], "error: `mine:wrong` returned no tuple\nhint: "),
        (["mine:nothing", "-o", "x.json"], "error: `mine:nothing` can't be loaded: "),
    ],
)
def test_errors_of_the_command(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(OWN)
    importlib.invalidate_caches()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert export.main(arguments) == 3
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["unet", "-o", "x.txt"], "`x.txt` ends in neither `.json` nor `.json.zst`"),
        (["unet", "-o", "no/x.json"], "folder `no` does not exist"),
        (["resnet", "-o", "x.json"], "unknown model `resnet`"),
        (["unet", "--batch", "0", "-o", "x.json"], "`--batch 0` is less than 1"),
        (["unet", "--seq", "8", "-o", "x.json"], "`unet` has no sequence"),
        (["unet", "--infer", "--optimizer", "sgd", "-o", "x.json"], "`--infer` has no optimizer"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert export.main(arguments) == 3
    first, *hint = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {message}")
    assert all(line.startswith("hint: ") for line in hint)
    assert not list(tmp_path.iterdir())


def test_models_of_the_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert export.main(["unet", "--batch", "1", "--optimizer", "sgd", "-o", "unet.json"]) == 0
    graph = json.loads((tmp_path / "unet.json").read_text())
    validate(graph)
    assert graph["name"] == "unet"
    assert export.main(["lstm", "--batch", "2", "--seq", "3", "--infer", "-o", "lstm.json"]) == 0
    graph = json.loads((tmp_path / "lstm.json").read_text())
    validate(graph)
    assert {op.get("phase", "forward") for op in graph["ops"]} == {"forward"}
    assert not [op for op in graph["ops"] if op.get("effect")], "no dropout in evaluation mode"


def test_zstandard_files_hold_the_same_text(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    export.export(model, x, path=tmp_path / "a.json")
    export.export(model, x, path=tmp_path / "a.json.zst")
    text = zstandard.ZstdDecompressor().decompress((tmp_path / "a.json.zst").read_bytes())
    assert text == (tmp_path / "a.json").read_bytes()


def test_without_zstandard_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    with pytest.raises(ExportError, match="`pip install zstandard`, or write plain JSON"):
        export.export(nn.Linear(4, 2), torch.randn(3, 4), path=tmp_path / "a.json.zst")


class Looks(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((abs, torch.ones(1)), "`model` is a `builtin_function_or_method`, not a `torch.nn.Module`"),
        (
            (nn.Linear(4, 2), torch.ones(3, 4), None, "sgd"),
            "optimizer `sgd` needs gradients, and there is no `loss_fn`",
        ),
        ((nn.Linear(4, 2), torch.ones(3, 4), lambda m, x: m(x).sum(), "adam"), "unknown optimizer `adam`"),
        (
            (nn.Linear(4, 2), torch.ones(3, 4), lambda m, x: m(x)),
            r"returned a tensor of shape `\[3, 2\]`, not a scalar",
        ),
        ((nn.Linear(4, 2), torch.ones(3, 4), lambda m, x: 3.0), "`loss_fn` returned `float`, not a tensor"),
        ((nn.Linear(4, 2), torch.ones(3, 4), lambda m, x: x.sum()), "the loss depends on no parameter"),
        ((nn.Linear(4, 2), torch.ones(3, 5)), "the model can't be traced: `RuntimeError: "),
        ((Looks(), torch.ones(3)), "the model can't be traced: `DataDependentOutputException: "),
    ],
)
def test_errors_of_the_function(arguments, message):
    with pytest.raises(ExportError, match=message):
        export.capture(*arguments)


def test_hooks_and_weights_are_left_as_they_were():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train(), torch.randn(3, 4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.random.get_rng_state()
    export.capture(model, x, lambda m, x: m(x).sum(), "adamw")
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(random, torch.random.get_rng_state())
    assert not [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert model[0].weight.grad is None


def test_both_names_of_export_work():
    import memfit.torch
    from memfit.torch import export as module
    from memfit.torch.export import export as function

    assert memfit.torch.export is module
    assert module.export is function
    assert callable(module)


def test_importing_memfit_imports_no_torch():
    code = "import sys, memfit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(PYTHON)}).returncode == 0


@pytest.mark.parametrize(
    ("found", "message"), [("2.10.1", "but `2.10.1` is installed"), (None, "and there is none")]
)
def test_an_old_torch_is_refused(found, message, tmp_path):
    if found:
        (tmp_path / "torch.py").write_text(f"__version__ = '{found}'")
        code = "import memfit.torch"
    else:
        code = "import sys; sys.modules['torch'] = None; import memfit.torch"
    path = f"{tmp_path}:{PYTHON}"
    made = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert message in made.stderr
    assert "hint: `pip install" in made.stderr


@pytest.mark.parametrize("entry", zoo.CORPUS, ids=lambda entry: entry.name)
def test_the_corpus_is_valid(entry):
    zstandard = pytest.importorskip("zstandard")
    data = (CORPUS / entry.file).read_bytes()
    assert len(data) < 300_000
    graph = json.loads(zstandard.ZstdDecompressor().decompress(data))
    validate(graph)
    assert graph["origin"].startswith(
        f"python -m memfit.torch.export {' '.join(entry.options)} -o {entry.file} (torch "
    )
    views = {
        "view",
        "t",
        "transpose",
        "expand",
        "slice",
        "select",
        "permute",
        "unsqueeze",
        "squeeze",
        "detach",
    }
    views |= {"alias", "as_strided", "split", "unbind", "_unsafe_view", "unsafe_split", "reshape", "diagonal"}
    assert not [op["kind"] for op in graph["ops"] if op["kind"].split(".")[1] in views]
    assert any(op.get("phase") == "update" for op in graph["ops"]) == (entry.optimizer is not None)
