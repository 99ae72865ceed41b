"""Training by plans that hold values encoded: by lossless codecs the same bits at the peak that was foreseen,
by lossy ones gradients that are as near as the codec is.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import torch
from test_fit import left
from torch import nn
from training import classifying

import memfit
import memfit.torch
from memfit.torch import Meter, _gradients
from memfit.torch._floor import recording

HERE = pathlib.Path(__file__).parent
PLANNING = {"bytes": 1 << 29, "seconds": 30.0}


def vgg(inplace: bool = False) -> tuple[nn.Sequential, torch.optim.Optimizer, Any, Any]:
    """A VGG-like net, its training, and batches of that; the ReLUs write over what they get if `inplace`."""
    torch.manual_seed(5)
    layers: list[nn.Module] = []
    width = 3
    for wider, depth in ((16, 6), (32, 6), (64, 3)):
        for _ in range(depth):
            conv = nn.Conv2d(width, wider, 3, padding=1)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            layers += [conv, nn.ReLU(inplace=inplace)]
            width = wider
        layers.append(nn.MaxPool2d(2))
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    batches = [(torch.randn(24, 3, 32, 32), torch.randint(0, 10, (24,))) for _ in range(6)]

    return net, optimizer, classifying(net, optimizer), batches


def planned(folder: pathlib.Path, strategy: str, inplace: bool, **codecs: Any) -> tuple[int, int]:
    """Leaves a plan by `strategy` in `folder`; live bytes of it, and of the step as it is."""
    _, _, step, batches = vgg(inplace)
    gc.collect()
    with recording(step, batches[0], {}, "cpu", **codecs) as (native, told):
        native.set_strategy(strategy)
        assert native.plan_step(told.peak_bytes, **PLANNING)
        files = native.save()
    for name, content in zip(("profile.json", "plan.json"), files, strict=True):
        (folder / name).write_bytes(content)
    # How sparse values were is in the profile, with what they are.
    sparse = [value for value in json.loads(files[0])["values"] if value.get("density", 1.0) < 1.0]
    assert strategy == "auto" or sum(value.get("dtype", "f32") == "f32" for value in sparse) > 10
    as_it_is = memfit.explain(files[0], device="CPU").live_peak_bytes
    return json.loads(files[1])["live_peak_bytes"], as_it_is


def trained(folder: pathlib.Path | None, inplace: bool, steps: int = 6, **codecs: Any) -> Any:
    """Losses, what is left, the peak after the first step, and the report if there is a plan in `folder`."""
    net, optimizer, step, batches = vgg(inplace)
    gc.collect()
    losses = [float(step(*batches[0]))]  # The optimizer has its state then: each step is as the next.
    report = None
    if folder is None:
        with Meter() as meter:
            losses += [float(step(*batches[at])) for at in range(1, steps)]
        peak = meter.peak_bytes
    else:
        fitted = memfit.torch.fit(step, 1 << 40, check=False, load=folder, **codecs)
        for at in range(1, steps):
            losses.append(float(fitted(*batches[at])))
            assert fitted.report.guided and fitted.report.recomputed_ops == 0, (
                "the plan was followed to its end"
            )
            assert fitted.report.lost_copies == 0
        report, peak = fitted.report, fitted.report.measured_peak_bytes
        fitted.close()
    # As bytes: tensors would count in the next training.
    return losses, [value.numpy().tobytes() for value in left(net, optimizer)], peak, report


@pytest.mark.parametrize(
    ("strategy", "codecs", "inplace"),
    [
        ("compress:zvc", ["zvc"], False),
        ("compress:zvc", ["zvc"], True),
        ("compress:gist-lossless", ["zvc", "binarize"], False),
        ("compress:gist-lossless", ["zvc", "binarize"], True),
    ],
)
def test_lossless_codecs_give_the_same_bits_at_the_peak_that_was_foreseen(
    tmp_path, strategy, codecs, inplace
):
    foreseen, as_it_is = planned(tmp_path, strategy, inplace, lossless=codecs)
    expected, state, plain, _ = trained(None, inplace)
    losses, found, peak, report = trained(tmp_path, inplace, lossless=codecs)
    assert losses == expected
    assert found == state
    assert report.encoded_bytes > 0 and report.lossy == [] and report.gradients == []
    # By the allocator's events, those of the copies included.
    print(
        f"plain {plain}, as recorded {as_it_is}, at most {foreseen}, "
        f"predicted {report.peak_bytes}, measured {peak}"
    )
    saved = plain - peak
    assert saved > 0.25 * plain
    assert abs(saved - (as_it_is - report.peak_bytes)) <= 0.02 * saved
    # The plan's own word is a bound: there is room for maps that have become a few points denser.
    assert peak <= foreseen <= peak + 0.03 * plain


def errors(folder: pathlib.Path, codec: str, strategy: str = "compress:actnn") -> tuple[list[float], Any]:
    """How far gradients by a plan with `codec` are from exact ones, for the same parameters and batch."""
    planned(folder, strategy, False, lossy=[codec])
    net, _, step, batches = vgg()
    twin, _, exact_step, _ = vgg()
    step(*batches[0])
    found = []
    fitted = memfit.torch.fit(step, 1 << 40, check=False, load=folder, lossy=[codec])
    # Not here: the exact gradients are those of another net, in this process.
    fitted._sampler.why = "compared by the test"
    for images, labels in batches[1:]:
        twin.load_state_dict(net.state_dict())
        exact_step(images, labels)
        fitted(images, labels)
        assert fitted.report.guided and fitted.report.lost_copies == 0
        exact = {at: p.grad.numpy().tobytes() for at, p in enumerate(twin.parameters()) if p.grad is not None}
        other = {at: p.grad.numpy().tobytes() for at, p in enumerate(net.parameters()) if p.grad is not None}
        error = _gradients.apart(exact, other)
        assert error is not None
        found.append(error)
    fitted.close()
    return found, fitted.report


@pytest.mark.parametrize(("codec", "most"), [("int8+mask", 1e-2), ("int4+mask", 1.5e-1), ("cast-bf16", 2e-2)])
def test_gradients_are_as_near_as_the_codec_is(tmp_path, codec, most):
    strategy = "compress:actnn" if "mask" in codec else "compress:gist"
    found, report = errors(tmp_path, codec, strategy)
    print(codec, [f"{error:.2e}" for error in found])
    assert report.lossy == [codec] and report.encoded_bytes > 0
    assert min(found) > 0 and max(found) <= most
    # Coarser codecs are farther off.
    assert codec == "cast-bf16" or min(found) > (1e-2 if codec == "int4+mask" else 1e-4)
    assert f"values wait in `{codec}`, as was asked for" in repr(report)


def lossy_steps() -> None:
    """Steps within a budget by a lossy codec, as somebody would write them; for a process of its own."""
    _, _, step, batches = vgg()
    step(*batches[0])
    budget = memfit.torch.floor(step, *batches[0]).share(0.5)
    _, _, step, batches = vgg()
    gc.collect()
    fitted = memfit.torch.fit(step, budget, lossy="int8+mask", strategy="compress:actnn")
    for images, labels in batches:
        fitted(images, labels)
    report = fitted.report
    # The plan of what was rehearsed holds for what is trained, judged again.
    assert report.guided and report.verified and report.lossy == ["int8+mask"]
    assert report.measured_peak_bytes <= budget
    first, second = report.gradients
    assert second.step == first.step + 1 and first.noise == second.noise is not None
    assert 0 < first.error <= 1e-2 and 0 < second.error <= 1e-2 < second.noise
    assert "off the exact ones" in repr(report) and "of another batch" in repr(report)
    # What it leaves is for those who allow it alone.
    fitted.save("plan")
    fitted.close()
    again = memfit.torch.fit(step, budget, lossy="int8+mask", load="plan", check=False)
    again(*batches[0])
    assert again.report.guided
    again.close()
    with pytest.raises(memfit.VerificationError):
        memfit.torch.fit(step, budget, load="plan", check=False)(*batches[0])
    print(report)


def alone(name: str, folder: pathlib.Path) -> str:
    """What `name` prints, in a process of its own: one with autograd's threads can't be copied."""
    paths = {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    told: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300, "cwd": folder}
    lines = f"import test_codecs; test_codecs.{name}()"
    done = subprocess.run([sys.executable, "-c", lines], env=os.environ | paths, check=False, **told)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_lossy_step_tells_how_far_off_its_gradients_are(tmp_path):
    print(alone("lossy_steps", tmp_path))


def test_nothing_is_lost_where_a_plan_fits_that_loses_nothing(tmp_path):
    # By the cheapest of all ways, nobody having named one.
    planned(tmp_path, "auto", False, lossless=["zvc"], lossy=["int8+mask"])
    assert memfit.check(tmp_path / "plan.json", tmp_path / "profile.json").lossy == []


def test_codecs_by_other_names_are_refused():
    _, _, step, batches = vgg()
    for options, why in (
        (
            {"lossy": ["int5"]},
            "no lossy codec `int5`\nhint: the lossy codecs are `zvc\\+bf16`.*`gist`, `actnn`",
        ),
        ({"lossy": "zvc"}, "no lossy codec `zvc`\nhint: it loses nothing"),
        ({"lossless": ["int4"]}, "no lossless codec `int4`\nhint: it loses something"),
    ):
        with pytest.raises(ValueError, match=why):
            memfit.torch.fit(step, 1 << 30, check=False, **options)(*batches[0])
