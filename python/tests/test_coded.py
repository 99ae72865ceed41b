"""Codecs by ops of PyTorch's, as they are for GPUs, here with tensors of the CPU's."""

import pytest
import torch
from second_judge import room
from test_codecs import errors

from memfit import UsageError
from memfit.torch import _coded, _glue, _pinned


def numbers(codec: str, count: int) -> torch.Tensor:
    torch.manual_seed(7)
    found = torch.randn(count)
    return found.relu() if codec.endswith("mask") else found


@pytest.mark.parametrize("codec", _coded.CODERS)
@pytest.mark.parametrize("count", [1, 255, 256, 1000, (1 << 18) + 7])
def test_a_copy_takes_the_bytes_that_plans_have_for_it_and_comes_back_as_near(codec, count):
    _glue.track(torch.device("cpu"))
    value, coded = numbers(codec, count), _coded.Coded()
    before = torch.get_rng_state()
    copies = [coded.store(value.untyped_storage(), codec, key) for key in (5, 5, 6)]
    assert torch.equal(torch.get_rng_state(), before), "nobody else's numbers change"
    found = []
    for copy in copies:
        assert coded.taken(copy) <= room(codec, {"bytes": 4 * count})
        coded.load(copy)
        made = coded.wait(copy)
        assert made is not None and coded.wait(copy) is None
        found.append(_glue.window(made, torch.float32, 0, (count,), (1,)).clone())
        coded.discard(copy)
    assert torch.equal(found[0], found[1])
    assert codec.startswith("int") == (not torch.equal(found[0], found[2])) or count == 1
    if codec == "binarize":
        assert torch.equal(found[0] > 0, value > 0)
        return
    most = {"cast-bf16": 4e-3, "cast-f16": 5e-4, "cast-fp8": 4e-2, "int8": 2e-2, "int4": 3e-1, "int2": 1.5}
    assert float((found[0] - value).norm()) <= most[codec.removesuffix("+mask")] * float(value.norm())
    if codec.endswith("+mask"):
        assert torch.equal(found[0] > 0, value > 0) and bool((found[0] >= 0).all())


def test_what_a_codec_can_not_keep_it_refuses():
    _glue.track(torch.device("cpu"))
    coded = _coded.Coded()
    for codec, bad, why in (
        ("binarize", [1.0, float("nan")], "keeps no NaN"),
        ("int8+mask", [1.0, -1.0], "keeps nothing that is below zero"),
    ):
        with pytest.raises(ValueError, match=why):
            coded.store(torch.tensor(bad).untyped_storage(), codec, 0)
    with pytest.raises(UsageError, match="no codec `zvc` on a GPU\nhint: those of a fixed size: `binarize`"):
        _coded.fixed(["zvc"], [])
    assert _coded.fixed(["binarize"], ["gist", "int4"]) == (["binarize"], ["cast-fp8", "int4"])


@pytest.mark.parametrize(("codec", "most"), [("int8+mask", 1e-2), ("int4+mask", 1.5e-1)])
def test_a_training_that_holds_values_by_them_is_as_near_as_they_are(tmp_path, monkeypatch, codec, most):
    made: list[_coded.Coded] = []

    def means(told, _):
        made.append(_coded.Coded())
        return {**told, "pinned": None, "coded": made[-1]}, lambda: None

    monkeypatch.setattr(_pinned, "means", means)
    found, report = errors(tmp_path, codec)
    print(codec, [f"{error:.2e}" for error in found])
    assert report.lossy == [codec] and made[-1]._last > 0 and not made[-1]._copies
    assert min(found) > 0 and max(found) <= most
