"""Plan files that have optimizer state at home encoded: followed, with the bits of plain PyTorch where the
codec loses nothing, and with those of the codec where it was named.
"""

import gc
import json
import pathlib
from typing import Any

import pytest
import torch
from torch import nn

import memfit
import memfit.torch
from memfit.torch import _quantised
from memfit.torch._floor import recording
from memfit.torch.meter import live_bytes

STEPS = 6
TABLES, ROWS, WIDTH = 4, 4096, 32


def training() -> tuple[nn.Module, torch.optim.Optimizer, Any, list[torch.Tensor]]:
    """Squares of rows of large tables, of which few are used: most of their momentum is zero."""
    torch.manual_seed(4)
    net = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(TABLES))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, foreach=False)
    batches = [torch.randint(0, 256, (8, 16)) for _ in range(STEPS)]

    def step(batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(table(batch).square().mean() * (at + 1) for at, table in enumerate(net))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, optimizer, step, batches


def planned(folder: pathlib.Path, codec: str) -> tuple[int, int]:
    """Leaves a profile, and a plan that has the momentum of tables at home by `codec`. How often a step
    encodes some, and the plan's peak.
    """
    _, _, step, batches = training()
    gc.collect()
    with recording(step, (batches[0],), {}, "cpu") as (native, told):
        assert native.plan_step(told.peak_bytes, bytes=1 << 29, seconds=30.0)
        profile = json.loads(native.save()[0])
    # A record doesn't say what is state, and when updates begin: who plans by hand does.
    values, ops = profile["values"], profile["ops"]
    written = {value for op in ops for value in op["writes"]}
    begin = next(at for at, op in enumerate(ops) if op["kind"] == "aten.mul_.Tensor")
    for op in ops[begin:]:
        op["phase"] = "update"
    decayed = [op["reads"][0] for op in ops[begin:] if op["kind"] == "aten.mul_.Tensor"]
    momentum = [at for at in decayed if at not in written]
    assert [values[at]["bytes"] for at in momentum] == [ROWS * WIDTH * 4] * TABLES
    for at in momentum:
        values[at]["role"] = "state"
    versions = set(momentum)
    for op in ops[begin:]:
        versions |= {made for of, made in op.get("must", []) if of in versions}
    for at in versions:
        # As dense as leaves `zvc` no more than the bytes of eight bits a word.
        values[at] |= {"dtype": "f32", "shape": [ROWS, WIDTH], "density": 0.2}
    content = json.dumps(profile).encode()
    strategy = ["order:given", "compress:quantised-state"]
    plan = memfit.plan(content, budget="90%", device="CPU", strategy=strategy, lossy="state8")
    file = plan.file.decode().replace("state8", codec)
    if codec == "zvc":
        file = json.dumps(json.loads(file) | {"lossy": []})
    (folder / "profile.json").write_bytes(content)
    (folder / "plan.json").write_text(file)
    memfit.check(file.encode(), content, lossy=[] if codec == "zvc" else [codec])
    steps = json.loads(file)["steps"]
    return sum("encode" in step for step in steps), plan.peak_bytes


def trained(folder: pathlib.Path | None, codec: str, reads: bool = False) -> Any:
    """Losses, what is left, and the bytes between two steps: without a plan those of parameters and state."""
    gc.collect()
    others = live_bytes(torch.device("cpu"))  # What tests before this one have left.
    net, optimizer, step, batches = training()
    losses = [float(step(batches[0]))]
    if folder is None:
        losses += [float(step(batch)) for batch in batches[1:]]
        kept = [value for state in optimizer.state.values() for value in state.values()]
        return losses, bytes_of(net, optimizer), sum(value.nbytes for value in (*net.parameters(), *kept))
    codecs = {"lossless": ["zvc"]} if codec == "zvc" else {"lossy": [codec]}
    fitted = memfit.torch.fit(step, 1 << 40, check=False, load=folder, **codecs)
    fitted._sampler.why = "compared by the test"
    for batch in batches[1:]:
        losses.append(float(fitted(batch)))
        assert fitted.report.guided and fitted.report.recomputed_ops == 0, "the plan was followed to its end"
        assert fitted.report.lost_copies == 0 and fitted.report.encoded_bytes > 0
        used = fitted._budget._native.stats()["used_bytes"]
        if reads:
            bytes_of(net, optimizer)
    fitted.close()
    return losses, bytes_of(net, optimizer), used - others


def bytes_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[bytes]:
    # A clone reads them as any op does.
    return [value.detach().clone().numpy().tobytes() for value in (*net.parameters(), *kept_by(optimizer))]


def kept_by(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [value for state in optimizer.state.values() for value in state.values()]


@pytest.mark.parametrize("reads", [False, True])
def test_state_at_home_without_its_zeros_has_the_bits_of_plain_training(tmp_path, reads):
    encodes, _ = planned(tmp_path, "zvc")
    assert encodes >= TABLES
    losses, state, plain = trained(None, "zvc")
    found, left, used = trained(tmp_path, "zvc", reads)
    gradients = TABLES * ROWS * WIDTH * 4
    print(f"between steps {plain + gradients} plain, {used} with homes encoded")
    assert (found, left) == (losses, state)
    # A sixteenth of the rows has momentum, at most.
    assert plain + gradients - used > 0.8 * TABLES * ROWS * WIDTH * 4


def test_state_at_home_in_eight_bits_is_what_the_codec_makes_of_it(tmp_path):
    encodes, _ = planned(tmp_path, "state8")
    losses, state, _ = trained(tmp_path, "state8")
    assert (losses, state) == trained(tmp_path, "state8", reads=True)[:2]
    # The same by hand.
    net, optimizer, step, batches = training()
    expected = [float(step(batches[0]))]
    for batch in batches[1:]:
        expected.append(float(step(batch)))
        for state_of in optimizer.state.values():
            kept = state_of["momentum_buffer"]
            kept.copy_(_quantised.decode(*_quantised.encode(kept, True), kept, True))
    assert encodes == TABLES and losses == pytest.approx(expected, rel=1e-6)
    for one, other in zip(state, [*net.parameters(), *kept_by(optimizer)], strict=True):
        found = torch.frombuffer(bytearray(one), dtype=torch.float32)
        apart = float((found - other.detach().view(-1)).norm() / other.detach().norm())
        # The two round some numbers that are between two codes to either.
        assert apart < (1e-6 if other.requires_grad else 0.03)
    # Who doesn't name the codec has no such plan.
    _, _, step, batches = training()
    with pytest.raises(memfit.VerificationError, match="state8"):
        memfit.torch.fit(step, 1 << 40, check=False, load=tmp_path)(batches[0])
