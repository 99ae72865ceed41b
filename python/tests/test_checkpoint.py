"""Checkpoints: the same bits, types and keys; nothing half written, nothing damaged that is loaded."""

import copy
import math
import os
import resource
import signal
import struct
import subprocess
import sys
import textwrap
from collections import OrderedDict

import pytest
import torch
from torch import nn

import memfit
from memfit import checkpoint


def bits(tensor):
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).tolist() if tensor.numel() else []


def same(one, other, path="state"):
    """The same types, keys, order and bits."""
    assert type(one) is type(other), f"{path}: {type(one)} and {type(other)}"
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.requires_grad) == (other.dtype, other.shape, other.requires_grad), (
            path
        )
        assert bits(one) == bits(other), path
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        assert [type(key) for key in one] == [type(key) for key in other], path
        for key in one:
            same(one[key], other[key], f"{path}.{key}")
        assert getattr(one, "_metadata", None) == getattr(other, "_metadata", None)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for at, (x, y) in enumerate(zip(one, other, strict=True)):
            same(x, y, f"{path}[{at}]")
    elif isinstance(one, float):
        assert struct.pack("d", one) == struct.pack("d", other), path
    else:
        assert one == other, path


def digits(count, seed=0):
    """Pictures of 8x8 of ten classes: a pattern each, moved and noisy."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.rand(10, 8, 8, generator=generator)
    generator = torch.Generator().manual_seed(seed + 2)
    labels = torch.randint(10, (count,), generator=generator)
    moves = torch.randint(-1, 2, (count,), generator=generator)
    pictures = [patterns[label].roll(int(move), 1) for label, move in zip(labels, moves, strict=True)]
    noise = 0.2 * torch.randn(count, 8, 8, generator=generator)
    return (torch.stack(pictures) + noise)[:, None], labels


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(model, optimizer, steps, start=0):
    pictures, labels = digits(512)
    model.train()
    for step in range(start, start + steps):
        which = torch.arange(32) + 32 * step
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures[which % 512]), labels[which % 512]).backward()
        optimizer.step()


def accuracy(model):
    pictures, labels = digits(1000, seed=1)
    model.eval()
    with torch.no_grad():
        return (model(pictures).argmax(1) == labels).float().mean().item()


@pytest.fixture(scope="module")
def trained():
    model = network()
    train(model, torch.optim.Adam(model.parameters(), lr=2e-3), 150)
    assert accuracy(model) > 0.95
    return model


def everything():
    tied = torch.randn(3, 4)
    return OrderedDict(
        floats=[0.1, -0.0, math.inf, -math.inf, struct.unpack("d", struct.pack("Q", 0x7FF8DEADBEEF0001))[0]],
        whole=[0, -1, 2**53, -(2**200), True, False, None],
        texts=["", "a\x00b", "\U0001f600", "\ud800", b"\x00\xff"],
        nested={"a": {1: {2.5: {(3, "x"): None}}}, "a.b": torch.ones(1), None: 1 + 2j},
        types=(torch.float32, torch.device("cpu"), torch.Size([2, 3]), (), [], {}),
        tensors={str(dtype): torch.arange(6).to(dtype).reshape(2, 3) for dtype in (
            torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
            torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.uint16,
            torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
        )},
        shapes=[torch.tensor(7.0), torch.empty(0), torch.empty(2, 0, 3), torch.randn(5, 4).t(), tied[1:],
                tied],
        odd=torch.tensor([math.nan, -math.nan, math.inf, -0.0, 1e-45]),
        parameter=nn.Parameter(torch.randn(2)),
        __metadata__=torch.ones(2),
    )  # fmt: skip


def test_every_type_comes_back(tmp_path):
    state = everything()
    state["a.b"] = {"a.b": torch.zeros(3)}
    saved = checkpoint.save(state, tmp_path / "x.mfc")
    assert saved.bytes == (tmp_path / "x.mfc").stat().st_size
    same(checkpoint.load(tmp_path / "x.mfc"), state)
    assert not list(tmp_path.glob("*.tmp"))
    # And as a difference, to a file, to a state, to itself.
    other = copy.deepcopy(state)
    other["odd"] += 1
    for base in (tmp_path / "x.mfc", [tmp_path / "x.mfc"], state):
        checkpoint.save(other, tmp_path / "y.mfc", base=base)
        same(checkpoint.load(tmp_path / "y.mfc", base=base), other)
    # A state need not be a dict.
    for small in (torch.ones(3), [torch.ones(2), 1], None, 5):
        checkpoint.save(small, tmp_path / "z.mfc")
        same(checkpoint.load(tmp_path / "z.mfc"), small)


def test_tied_tensors_are_stored_once_and_loaded_as_one(tmp_path):
    weight = torch.randn(100, 100)
    state = {"in": weight, "out": weight.detach(), "transposed": weight.t()}
    checkpoint.save(state, tmp_path / "x.mfc")
    loaded = checkpoint.load(tmp_path / "x.mfc")
    same(loaded, state)
    assert loaded["in"] is loaded["out"]
    assert loaded["transposed"] is not loaded["in"]


def test_what_a_budget_has_evicted_is_saved_too(tmp_path):
    import memfit.torch

    def made():
        torch.manual_seed(1)
        start = torch.randn(256, 1024)
        return [start] + [(start * at).relu() for at in range(8)]

    with memfit.torch.enable("5MiB"):
        tensors = made()
        assert not all(memfit.torch.is_resident(tensor) for tensor in tensors)
        checkpoint.save(tensors, tmp_path / "x.mfc")
        # What was saved does not stay in place for good.
        assert not all(memfit.torch.is_resident(tensor) for tensor in tensors)
        del tensors
    same(checkpoint.load(tmp_path / "x.mfc"), made())


def test_what_can_not_be_kept_is_refused_by_its_place(tmp_path):
    class Own:
        pass

    circle = []
    circle.append(circle)
    for value, message in (
        ({"a": [1, Own()]}, "a.1"),
        ({"a": {3: {1, 2}}}, "a.3"),
        ({"a": torch.ones(2, 2).to_sparse()}, "a"),
        ({"a": torch.ones(2, device="meta")}, "meta"),
        (circle, "deep"),
    ):
        with pytest.raises(memfit.UsageError, match=message):
            checkpoint.save(value, tmp_path / "x.mfc")
    for wrong in (
        {"codec": "magic"}, {"codec": "bounded"}, {"bound": 1.0}, {"codec": "kmeans"}, {"base": 3},
        {"codec": "bounded", "bound": -1.0}, {"codec": "kmeans", "clusters": 1000},
    ):  # fmt: skip
        with pytest.raises(memfit.UsageError):
            checkpoint.save({"a": torch.ones(2)}, tmp_path / "x.mfc", **wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("delta", [False, True])
def test_training_goes_on_with_the_same_bits(tmp_path, name, delta):
    options = {"lr": 1e-2, "momentum": 0.9} if name == "SGD" else {"lr": 1e-3}
    make = getattr(torch.optim, name)

    def started():
        model = network()
        return model, make(model.parameters(), **options)

    def state(model, optimizer):
        random = torch.get_rng_state()
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": random}

    model, optimizer = started()
    train(model, optimizer, 3)
    checkpoint.save(state(model, optimizer), tmp_path / "0.mfc")
    base = tmp_path / "0.mfc" if delta else None
    train(model, optimizer, 3, 3)
    checkpoint.save(state(model, optimizer), tmp_path / "1.mfc", base=base)
    train(model, optimizer, 3, 6)

    loaded = checkpoint.load(tmp_path / "1.mfc", base=base)
    other, resumed = started()
    other.load_state_dict(loaded["model"])
    resumed.load_state_dict(loaded["optimizer"])
    torch.set_rng_state(loaded["random"])
    train(other, resumed, 3, 6)
    same(other.state_dict(), model.state_dict())
    same(resumed.state_dict(), optimizer.state_dict())


def test_a_hundred_lossy_differences_stay_within_the_bound(tmp_path):
    """Goal Z9: the base is what was loaded."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    bound = 1e-4
    base = copy.deepcopy(model.state_dict())
    for step in range(100):
        train(model, optimizer, 1, step)
        state = model.state_dict()
        checkpoint.save(state, tmp_path / "x.mfc", base=base, codec="delta-dnn", bound=bound)
        with pytest.raises(memfit.InputError):
            checkpoint.load(tmp_path / "x.mfc", base=state)
        base = checkpoint.load(tmp_path / "x.mfc", base=base)
        for name, tensor in state.items():
            error = (tensor.double() - base[name].double()).abs().max().item()
            assert error <= (bound if tensor.is_floating_point() else 0), name
    # The steps are not lost: what was loaded is near the end, and far from the start.
    start = network().state_dict()["0.weight"]
    assert (start - base["0.weight"]).abs().max() > 10 * bound


def test_a_chain_of_files(tmp_path):
    states = []
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    paths = [tmp_path / f"{at}.mfc" for at in range(4)]
    for at in range(4):
        states.append(copy.deepcopy(model.state_dict()))
        saved = checkpoint.save(states[at], paths[at], base=paths[:at] or None)
        assert (saved.base is None) == (at == 0)
        train(model, optimizer, 1, at)
    for at in range(4):
        same(checkpoint.load(paths[at], base=paths[:at] or None), states[at])
    with pytest.raises(memfit.InputError, match="of the base is not the one"):
        checkpoint.load(paths[3], base=paths[:2])
    with pytest.raises(memfit.UsageError, match="holds only what differs"):
        checkpoint.load(paths[3])


def test_every_damaged_byte_is_refused(tmp_path):
    state = {"first": torch.randn(50), "second": [torch.arange(20), 1.5]}
    path = tmp_path / "x.mfc"
    saved = checkpoint.save(state, path)
    good = path.read_bytes()
    end = 16
    owners = []
    for row in saved.tensors:
        owners += [(range(end, end + row["bytes"]), row["name"])]
        end += row["bytes"]
    named = set()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
        with pytest.raises(memfit.InputError) as caught:
            checkpoint.load(path)
        for where, name in owners:
            if at in where:
                assert f"tensor `{name}` is damaged" in str(caught.value)
                named.add(name)
    assert named == {"first", "second.0"}
    for size in range(0, len(good), 7):
        path.write_bytes(good[:size])
        with pytest.raises(memfit.InputError):
            checkpoint.load(path)


def test_a_state_of_strangers_is_refused(tmp_path):
    import json

    from memfit import _memfit

    for node in (
        {"tensor": 5}, {"tensor": -1}, {"tensor": 0, "dtype": "float64"}, 
        {"tensor": 0, "dtype": "manual_seed"}, {"magic": 1},
        {"tensor": 0, "shape": [-1, -3]}, [1], {"float": "00"},
        {"ordered": [], "attributes": {"dict": [["__class__", 1]]}},
        {"torch.dtype": "load"}, {"dict": [[{"list": []}, 1]]}, {},
    ):  # fmt: skip
        text = json.dumps({"version": 1, "state": node})
        source = _memfit.Checkpoint.of(
            [("a", "F32", [3], 12)], [("memfit.state", text)], lambda at: bytes(12)
        )
        with open(tmp_path / "x.mfc", "wb") as file:
            source.write(file)
        with pytest.raises(memfit.InputError):
            checkpoint.load(tmp_path / "x.mfc")
    for text in ("", "[]", "{}", '{"version":2,"state":1}', '{"version":1,"state":' + '{"list":[' * 5000):
        source = _memfit.Checkpoint.of([], [("memfit.state", text)], lambda at: bytes(12))
        with open(tmp_path / "x.mfc", "wb") as file:
            source.write(file)
        with pytest.raises(memfit.InputError):
            checkpoint.load(tmp_path / "x.mfc")


CODE = """
import sys, time, torch
from memfit import checkpoint
state = {str(at): torch.randn(1 << 18) for at in range(64)}
print("ready", flush=True)
while True:
    checkpoint.save(state, sys.argv[1])
"""


def test_being_killed_leaves_a_whole_file(tmp_path):
    path = tmp_path / "x.mfc"
    for wait in (0.02, 0.15, 0.4):
        checkpoint.save({"old": torch.ones(3)}, path)
        with subprocess.Popen([sys.executable, "-c", CODE, path], stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(wait)
            child.send_signal(signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
        # The old one or a new one.
        assert set(checkpoint.load(path)) in ({"old"}, {str(at) for at in range(64)})


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.mfc"
    checkpoint.save({"old": torch.ones(3)}, path)
    code = f"""
        import resource, torch
        from memfit import checkpoint
        state = {{"new": torch.randn(1 << 20)}}
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        try:
            checkpoint.save(state, {str(path)!r})
        except OSError as error:
            print(error.errno)
    """
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert made.stdout.strip() == "27", made.stdout + made.stderr  # EFBIG
    assert set(checkpoint.load(path)) == {"old"}
    assert os.listdir(tmp_path) == ["x.mfc"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1 << 20


def test_links_are_followed_and_modes_kept(tmp_path):
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real.mfc", tmp_path / "link.mfc"
    checkpoint.save({"a": 1}, real)
    real.chmod(0o640)
    link.symlink_to(real)
    checkpoint.save({"a": 2}, link)
    assert link.is_symlink() and checkpoint.load(real) == {"a": 2}
    assert real.stat().st_mode & 0o777 == 0o640


def test_bf16_weights_take_two_thirds(trained, tmp_path):
    """Goal Z8. Weights of the trained network, and normally distributed ones of a size that counts."""
    torch.manual_seed(3)
    state = {"w": (torch.randn(1 << 20) * 0.02).bfloat16()}
    assert checkpoint.save(state, tmp_path / "x.mfc").ratio >= 1.5
    same(checkpoint.load(tmp_path / "x.mfc"), state)


def test_pruning_by_magnitude_leaves_zeros(trained):
    told = []
    smaller = checkpoint.prune(trained, 0.5, accuracy=accuracy, report=lambda *both: told.append(both))
    for before, after in zip(trained.modules(), smaller.modules(), strict=True):
        if isinstance(before, nn.Linear | nn.Conv2d):
            kept = after.weight != 0
            assert 0.49 < kept.float().mean() <= 0.51
            assert torch.equal(after.weight[kept], before.weight[kept])
            assert before.weight[~kept].abs().max() <= before.weight[kept].abs().min()
    assert told == [(accuracy(trained), accuracy(smaller))]


def test_pruning_filters_makes_the_same_function_smaller(trained):
    """Filters that are zero may go without a change of any output."""
    model = copy.deepcopy(trained).eval()
    with torch.no_grad():
        for conv, norm, gone in ((model[0], model[1], [3, 5]), (model[4], model[5], [0, 9, 31, 7])):
            conv.weight[gone] = 0
            conv.bias[gone] = 0
            norm.running_mean[gone] = 0
            norm.bias[gone] = 0
    smaller = checkpoint.prune(model, 0.125, "filters")
    assert (smaller[0].out_channels, smaller[1].num_features, smaller[4].in_channels) == (14, 14, 14)
    assert (smaller[4].out_channels, smaller[10].in_features) == (28, 112)
    pictures, _ = digits(100)
    torch.testing.assert_close(smaller(pictures), model(pictures), rtol=1e-4, atol=1e-4)
    count = lambda model: sum(parameter.numel() for parameter in model.parameters())  # noqa: E731
    assert count(smaller) < count(model)
    # It trains on.
    train(smaller, torch.optim.SGD(smaller.parameters(), lr=1e-3), 2)


def test_filters_that_are_added_up_stay():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner, self.last = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))

        def forward(self, x):
            x = self.first(x)
            return x + self.last(self.inner(x).relu())

    # A linear layer over the last dimension reads no channels.
    rows = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Linear(8, 3))
    assert checkpoint.prune(rows, 0.5, "filters")[0].out_channels == 4
    smaller = checkpoint.prune(Residual(), 0.5, "filters")
    assert [conv.out_channels for conv in (smaller.first, smaller.inner, smaller.last)] == [4, 2, 4]
    assert smaller(torch.randn(1, 4, 8, 8)).shape == (1, 4, 8, 8)


def test_kmeans_leaves_few_numbers(trained, tmp_path):
    state = {"model": trained.state_dict(), "step": 3}
    small = checkpoint.kmeans(state, 16)
    same({**small["model"], "10.weight": 0}, {**checkpoint.kmeans(small, 16)["model"], "10.weight": 0})
    assert small["step"] == 3 and small["model"]["10.weight"].unique().numel() <= 16
    assert type(small["model"]) is OrderedDict and state["model"]["10.weight"].unique().numel() > 1000
    saved = checkpoint.save(small, tmp_path / "x.mfc")
    same(checkpoint.load(tmp_path / "x.mfc"), small)
    rows = {row["name"]: row for row in saved.tensors}
    assert rows["model.10.weight"]["codec"] == "codebook"
    assert rows["model.10.weight"]["bytes"] * 6 < 4 * trained[10].weight.numel()
    model = network(5)
    model.load_state_dict(small["model"])
    assert accuracy(model) > accuracy(trained) - 0.05


def test_deepsz_stays_within_its_budget(trained, tmp_path):
    found = checkpoint.deepsz(trained, accuracy, 0.02, share=0.6)
    assert found.before == accuracy(trained) and found.before - found.after <= 0.02
    assert found.after == accuracy(found.model)
    assert set(found.bounds) == {"10.weight", "12.weight"} and found.ratio > 6
    state = found.model.state_dict()
    saved = checkpoint.save(state, tmp_path / "x.mfc", codec="deepsz", bounds=found.bounds)
    codecs = {row["name"]: row["codec"] for row in saved.tensors}
    assert codecs["10.weight"] == "deepsz" and "deepsz" not in codecs["0.weight"]
    loaded = checkpoint.load(tmp_path / "x.mfc")
    for name, tensor in state.items():
        if name in found.bounds:
            assert (loaded[name] - tensor).abs().max() <= found.bounds[name]
            assert (
                torch.equal(loaded[name] == 0, loaded[name] == 0) and (loaded[name][tensor == 0] == 0).all()
            )
        else:
            same(loaded[name], tensor)
    model = network(5)
    model.load_state_dict(loaded)
    assert accuracy(model) >= found.before - 0.02
    with pytest.raises(memfit.BudgetError, match="pruning"):
        checkpoint.deepsz(trained, accuracy, 0.0, share=0.999)


def test_files_of_the_command_line_are_read(tmp_path):
    """A packed safetensors file is a dict of its tensors, and a saved state is one too."""
    corpus = os.path.join(os.path.dirname(__file__), "..", "..", "corpus", "checkpoints")
    packed = checkpoint.load(os.path.join(corpus, "packed.mfc"))
    assert list(packed) == ["w", "half", "counts", "noise", "empty"]
    assert (packed["w"].shape, packed["half"].dtype) == ((3, 100), torch.bfloat16)
    same(checkpoint.load(os.path.join(corpus, "base.safetensors")), packed)
    changed = checkpoint.load(
        os.path.join(corpus, "changed.mfc"), base=os.path.join(corpus, "base.safetensors")
    )
    assert not torch.equal(changed["w"], packed["w"]) and torch.equal(changed["half"], packed["half"])
