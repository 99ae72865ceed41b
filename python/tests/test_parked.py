"""Training in less than what lasts: parameters and optimizer state wait in host memory, or on a disk."""

import copy
import gc
import io
import itertools
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from sampling import ALL
from test_fit import left
from test_tiers import spilled
from torch import nn
from training import digest

import memfit
import memfit.torch


class Block(nn.Module):
    """Attention and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.into(self.norms[0](x)).chunk(3, -1)
        weights = (queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out(weights @ values)
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    """A small GPT-2, whose state outweighs its activations."""

    def __init__(self, width: int = 96, layers: int = 4, words: int = 200) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def training():
    torch.manual_seed(0)
    net = Gpt()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False)
    tokens = torch.randint(0, 200, (4, 17))

    def step(tokens):
        optimizer.zero_grad()
        logits = net(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, optimizer, step, tokens


def plainly(steps: int):
    net, optimizer, step, tokens = training()
    torch.manual_seed(1)
    losses = [float(step(tokens)) for _ in range(steps)]
    return losses, digests(net, optimizer)


def digests(net, optimizer) -> list[str]:
    """Of all that a training leaves behind: tensors would count."""
    return [digest(value) for value in left(net, optimizer)]


def below(percent: int) -> tuple[int, int]:
    """A budget so much of what lasts below the floor; the floor."""
    _, _, step, tokens = training()
    step(tokens)
    told = memfit.torch.floor(step, tokens)
    return told.floor_bytes - told.persistent_bytes * percent // 100, told.floor_bytes


def means(tier: str, directory: pathlib.Path) -> dict:
    if tier == "host":
        return {"host_budget": "1GiB"}
    return {"disk_budget": "1GiB", "spill": directory}


# With rehearsals or without, parked in memory or on a disk.
WAYS = list(itertools.product([None, False], ["host", "disk"]))


@pytest.mark.parametrize(("check", "tier"), WAYS if ALL else [WAYS[0], WAYS[3]])
def test_training_below_the_floor_has_the_same_bits(tier, check, tmp_path):
    gc.collect()
    losses, state = plainly(5)
    budget, floor = below(30)
    assert budget < floor
    net, optimizer, step, tokens = training()
    torch.manual_seed(1)
    fitted = memfit.torch.fit(step, budget, check=check, **means(tier, tmp_path))
    found = [float(fitted(tokens)) for _ in range(5)]
    report = fitted.report

    assert found == losses
    # Without rehearsals small scratch memory of ops is not measured before it is taken.
    assert check is False or report.measured_peak_bytes <= budget
    assert report.guided, "plans that park are followed"
    assert report.moved_bytes > 0 and report.lost_copies == 0
    fitted.close()
    assert digests(net, optimizer) == state


@pytest.mark.parametrize("tier", ["host", "disk"] if ALL else ["disk"])
def test_what_the_program_reads_and_writes_between_steps(tier, tmp_path):
    def run(fitted, net, optimizer, tokens):
        found = []
        for at in range(6):
            found.append(float(fitted(tokens)))
            if at == 1:
                found.append(repr(net.blocks[0].up.weight))
                found += [digest(value) for value in net.state_dict().values()]
                optimizer.param_groups[0]["lr"] = 2e-3
            elif at == 2:
                with torch.no_grad():
                    net.eval()
                    found.append(digest(net(tokens)))
                    net.train()
                    # Writes: in place, by `data`, by a checkpoint of an earlier moment.
                    net.head.weight.mul_(0.5)
                    net.blocks[1].down.weight.data.add_(0.25)
                    net.blocks[2].out.weight.data.copy_(torch.full_like(net.blocks[2].out.weight, 0.01))
            elif at == 3:
                file = io.BytesIO()
                torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
                file.seek(0)
                saved = torch.load(file)
                found += [digest(value) for value in saved["net"].values()]
                del saved
                optimizer.zero_grad()
                found.append([parameter.grad for parameter in net.parameters()])
            elif at == 4:
                found.append(net.blocks[3].up.weight[5].tolist())
                found.append(float(net.embed.weight.detach().numpy().sum()))
                found.append(copy.deepcopy(net.blocks[0].norms[0]).weight.tolist())
        return found

    net, optimizer, step, tokens = training()
    torch.manual_seed(1)
    expected, state = run(step, net, optimizer, tokens), None
    state = digests(net, optimizer)
    del net, optimizer, step, tokens
    budget, _ = below(25)
    net, optimizer, step, tokens = training()
    torch.manual_seed(1)
    fitted = memfit.torch.fit(step, budget, check=False, **means(tier, tmp_path))
    found = run(fitted, net, optimizer, tokens)
    assert memfit.torch.is_enabled(), "something is parked"
    assert found == expected
    fitted.close()
    assert not memfit.torch.is_enabled()
    assert digests(net, optimizer) == state
    assert fitted.report.measured_peak_bytes <= fitted.budget


def test_who_drops_it_has_all_back(tmp_path):
    _, state = plainly(2)
    budget, _ = below(30)
    net, optimizer, step, tokens = training()
    torch.manual_seed(1)
    fitted = memfit.torch.fit(step, budget, check=False, **means("host", tmp_path))
    fitted(tokens)
    fitted(tokens)
    del fitted
    gc.collect()
    assert not memfit.torch.is_enabled()
    assert digests(net, optimizer) == state


def test_a_step_that_fails_leaves_all_to_be_read(tmp_path):
    budget, _ = below(30)
    net, optimizer, step, tokens = training()
    fail = [False]

    def sometimes(tokens):
        loss = step(tokens)
        if fail[0]:
            raise ValueError("no more")
        return loss

    torch.manual_seed(1)
    fitted = memfit.torch.fit(sometimes, budget, check=False, **means("host", tmp_path))
    fitted(tokens)
    fail[0] = True
    with pytest.raises(ValueError, match="no more"):
        fitted(tokens)
    found = [digest(value) for value in net.state_dict().values()]
    fail[0] = False
    fitted(tokens)
    fitted.close()
    last = digests(net, optimizer)
    net, optimizer, step, tokens = training()
    torch.manual_seed(1)
    step(tokens)
    step(tokens)
    assert found == [digest(value) for value in net.state_dict().values()]
    step(tokens)
    assert last == digests(net, optimizer)


def lost(to: int, directory: pathlib.Path) -> None:
    """Steps whose disk is cut to `to` bytes; for a process of its own, all of which may be parked."""
    losses, _ = plainly(3)
    budget, _ = below(30)
    _net, _optimizer, step, tokens = training()
    torch.manual_seed(1)
    fitted = memfit.torch.fit(step, budget, check=False, **means("disk", directory))
    assert [float(fitted(tokens)) for _ in range(2)] == losses[:2]
    (path,) = spilled(directory)
    # Cut, and grown again: what is read there would be zeros.
    size = pathlib.Path(path).stat().st_size
    subprocess.run([sys.executable, "-c", f"import os; os.truncate('{proc(path)}', {to})"], check=True)
    subprocess.run([sys.executable, "-c", f"import os; os.truncate('{proc(path)}', {size})"], check=True)
    with pytest.raises(OSError, match="was stored in the spill file alone, and can't be brought back"):
        fitted(tokens)
    with pytest.raises(OSError, match="was stored in the spill file alone"):
        fitted.close()
    assert not memfit.torch.is_enabled()


@pytest.mark.parametrize("to", [0, 1 << 20] if ALL else [1 << 20])
def test_a_copy_that_is_lost_is_an_error_and_never_other_bits(to, tmp_path):
    done = subprocess.run(
        [sys.executable, __file__, str(to), str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def proc(path: str) -> str:
    """`path` of this process, as another sees it."""
    return path.replace("/self/", f"/{os.getpid()}/")


if __name__ == "__main__":
    lost(int(sys.argv[1]), pathlib.Path(sys.argv[2]))


def adversaries():
    """Two networks that train against each other, each with a step of its own, as GANs do."""
    torch.manual_seed(0)
    nets = [nn.Sequential(*(nn.Linear(128, 128) for _ in range(6))) for _ in range(2)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False) for net in nets]
    noise = torch.randn(16, 128)

    def step(at):
        optimizers[at].zero_grad()
        loss = nets[at](nets[1 - at](noise).detach()).square().mean()
        loss.backward()
        optimizers[at].step()
        return loss.detach()

    return nets, optimizers, step


@pytest.mark.parametrize("check", [None, False])
def test_steps_with_parked_state_take_turns(check):
    def run(steps, nets, step):
        losses = []
        for at in range(6):
            losses += [float(steps[0](0)), float(steps[1](1))]
            if at == 2:
                with memfit.torch.Budget("64MiB"):
                    losses.append(nets[0](torch.ones(2, 128)).sum().item())
        return losses

    nets, optimizers, step = adversaries()
    torch.manual_seed(1)
    expected = run([step, step], nets, step)
    state = [digests(*both) for both in zip(nets, optimizers, strict=True)]
    told = memfit.torch.floor(step, 0)
    budget = told.floor_bytes - told.persistent_bytes * 30 // 100
    del nets, optimizers, step
    nets, optimizers, step = adversaries()
    torch.manual_seed(1)
    fitted = [memfit.torch.fit(step, budget, check=check, host_budget="1GiB") for _ in range(2)]
    found = run(fitted, nets, step)
    assert found == expected
    for one in fitted:
        assert one.report.guided and one.report.moved_bytes > 0
        assert one.report.peak_bytes <= budget
        assert check is False or one.report.measured_peak_bytes <= budget
        one.close()
    assert state == [digests(*both) for both in zip(nets, optimizers, strict=True)]
