"""What `predict` says of a training, beside what the training takes."""

import gc
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from sampling import ALL
from torch import nn
from training import CASES, CPU, OPTIMIZERS, digest, gpt2, images, language, train, words

import memfit
import memfit.torch
from memfit.torch import predict
from memfit.torch._graph import ExportError
from memfit.torch._scaled import scaled
from memfit.torch._trace import building
from memfit.torch.export import capture
from memfit.torch.meter import live_bytes

NEAR = 0.02
# What each takes in a real run.
REAL = ["u-net", "gpt-2", "bert", "lstm", "in place", "one path"]
"""Predictions for a CPU are this close; most are off by the few bytes of Python's numbers."""


class Net(nn.Module):
    """Layers with dropout between them."""

    def __init__(self, width: int = 64, layers: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.dropout(F.gelu(layer(x)), 0.1, self.training)
        return x


def squares(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x).pow(2).mean()


def case(name: str):
    torch.manual_seed(0)
    chosen = CASES[name]
    return chosen.make(), chosen.data(), chosen.loss, OPTIMIZERS[chosen.optimizer]


@pytest.mark.parametrize("name", REAL if ALL else REAL[1::2])
def test_the_peak_without_memfit_is_that_of_a_real_run(name):
    if name in ("gpt-2", "bert"):
        pytest.importorskip("transformers")
    peak = train(CASES[name]).peak
    # What goes another way in every step is simulated as often as it is run.
    told = predict(*case(name), "CPU", largest=False, steps=CASES[name].steps)
    assert abs(told.peak_bytes - peak) <= NEAR * peak
    assert told.fits
    assert told.fits_planned
    assert told.overhead == 0.0


def test_a_step_that_looks_at_what_tensors_hold_is_refused():
    with pytest.raises(ExportError, match="nonzero"):
        predict(*case("experts"), "CPU")


@pytest.mark.parametrize(
    ("loss", "word"),
    [
        (lambda net, x: net(x), "not a scalar"),
        (lambda net, x: x.sum(), "no parameter"),
        (lambda net, x: 1.0, "float"),
        (lambda net, x: net(x[:, :3]).sum(), "RuntimeError"),
    ],
)
def test_a_loss_that_is_none_is_refused(loss, word):
    with pytest.raises(ExportError, match=word):
        predict(Net(), torch.randn(16, 64), loss, "sgd", "CPU", largest=False)


def test_where_gradients_are_off_they_are_on_for_the_prediction():
    with torch.no_grad():
        off = predict(Net(), torch.randn(16, 64), squares, "sgd", "CPU", largest=False)
    assert (
        off.peak_bytes == predict(Net(), torch.randn(16, 64), squares, "sgd", "CPU", largest=False).peak_bytes
    )


def test_nothing_of_the_users_changes():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(16, 64)
    optimizer = torch.optim.AdamW(net.parameters())
    before = [digest(p) for p in net.parameters()], digest(torch.get_rng_state()), live_bytes(CPU)
    told = predict(net, x, squares, optimizer, "CPU", largest=False)
    gc.collect()
    assert ([digest(p) for p in net.parameters()], digest(torch.get_rng_state()), live_bytes(CPU)) == before
    assert all(p.grad is None for p in net.parameters())
    assert not optimizer.state
    assert told.rows == 16


AFTERWARDS = """
import torch, memfit.torch
torch.set_num_threads(1)
net, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
loss = lambda net, x: net(x).pow(2).mean()
memfit.torch.predict(net, x, loss, "sgd", "CPU", largest=False)
step = memfit.torch.fit(lambda: loss(net, x).backward(), budget="1GiB")
step()
print(step.report.identical, step.report.notes)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT TESTED: copies of a process need Linux")
def test_a_step_is_still_checked_afterwards():
    folder = str(pathlib.Path(memfit.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": folder}
    told = subprocess.run(
        [sys.executable, "-c", AFTERWARDS], env=environment, capture_output=True, text=True, timeout=120
    )
    assert told.stdout.strip() == "True []", told.stderr


def test_the_optimizer_may_be_one_or_what_makes_one_or_a_name():
    net, x = Net(), torch.randn(16, 64)
    ways = torch.optim.AdamW(net.parameters()), torch.optim.AdamW, "adamw"
    peaks = [predict(net, x, squares, way, "CPU", largest=False).peak_bytes for way in ways]
    assert len(set(peaks)) == 1
    sizes = [predict(net, x, squares, name, "CPU", largest=False).peak_bytes for name in ("momentum", None)]
    assert sizes == sorted(sizes, reverse=True)
    assert peaks[0] > sizes[0]


def test_the_state_that_an_optimizer_has_is_its_own():
    net, x = Net(), torch.randn(16, 64)
    optimizer = torch.optim.AdamW(net.parameters())
    told = [predict(net, x, squares, optimizer, "CPU", largest=False).peak_bytes]
    squares(net, x).backward()
    optimizer.step()
    told.append(predict(net, x, squares, optimizer, "CPU", largest=False).peak_bytes)
    assert told[0] == told[1]


def test_models_without_bytes_are_as_good():
    real = predict(Net(), torch.randn(16, 64), squares, "adamw", "H100-80", seconds=0)
    with torch.device("meta"):
        meta = predict(Net(), torch.randn(16, 64), squares, "adamw", "H100-80", seconds=0)
    with building():
        fake = predict(Net(), torch.randn(16, 64), squares, "adamw", "H100-80", seconds=0)
    assert real.device == "H100"
    assert real.memory_bytes == 80 << 30
    assert real.budget_bytes == 79 << 30
    for other in (meta, fake):
        assert (other.peak_bytes, other.floor_bytes) == (real.peak_bytes, real.floor_bytes)
        assert other.largest_rows == real.largest_rows > 16


def test_gpus_have_small_masks_whole_blocks_and_foreach_kernels():
    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x * self.scale, 0.5)

    net, x = Masks(), torch.randn(100, 1000)
    peaks = [predict(net, x, squares, None, name, largest=False).peak_bytes for name in ("CPU", "T4")]
    assert 250_000 < peaks[0] - peaks[1] < 400_000  # A mask of 100,000 numbers is four bytes each, or one.
    wide, x = Net(512, 4), torch.randn(1, 512)
    peaks = [predict(wide, x, squares, "adamw", name, largest=False).peak_bytes for name in ("CPU", "T4")]
    assert peaks[1] - peaks[0] > 2_000_000  # All parameters' temporaries at once.


def test_gpus_do_not_hold_the_scores_of_attention_with_dropout():
    net, x = nn.MultiheadAttention(64, 4, dropout=0.1, batch_first=True), torch.randn(2, 512, 64)
    scores = 2 * 4 * 512 * 512 * 4

    def loss(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return net(x, x, x, need_weights=False)[0].pow(2).mean()

    cpu, gpu = (predict(net, x, loss, "sgd", name, largest=False) for name in ("CPU", "T4"))
    assert cpu.peak_bytes > 2 * scores
    assert gpu.peak_bytes < scores / 2
    assert gpu.plan.live_peak_bytes <= gpu.peak_bytes


def test_the_largest_batch_is_the_largest_that_fits():
    net, x = Net(), torch.randn(16, 64)
    budget = 4_000_000
    told = predict(net, x, squares, "adamw", "CPU", budget=budget)
    assert told.fits and told.largest_rows > 16
    at = predict(net, torch.randn(told.largest_rows, 64), squares, "adamw", "CPU", largest=False)
    assert at.peak_bytes <= budget
    more = predict(net, torch.randn(told.largest_rows * 21 // 20, 64), squares, "adamw", "CPU", largest=False)
    assert more.peak_bytes > budget
    assert told.largest_planned_rows > told.largest_rows
    assert 0 < told.largest_overhead <= 0.25
    x = torch.randn(told.largest_planned_rows, 64)
    planned = predict(net, x, squares, "adamw", "CPU", budget=budget, largest=False)
    assert not planned.fits and planned.fits_planned
    assert planned.planned_peak_bytes <= budget
    assert "recomputes" in repr(planned)


def test_a_batch_that_is_too_large_is_made_smaller():
    net, x = Net(), torch.randn(4096, 64)
    told = predict(net, x, squares, "sgd", "CPU", budget=1_000_000, seconds=0)
    assert not told.fits
    assert 1 <= told.largest_rows < 4096
    at = predict(net, x[: told.largest_rows], squares, "sgd", "CPU", largest=False)
    assert at.peak_bytes <= 1_000_000


def test_a_model_for_one_batch_size_is_predicted_for_that():
    def fixed(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return squares(net, x.view(16, 64))

    told = predict(Net(), torch.randn(16, 64), fixed, "sgd", "CPU")
    assert told.fits and told.largest_rows is None and told.largest_planned_rows is None
    assert "no other batch size" in repr(told)


def test_where_nothing_fits_it_says_what_would():
    net, x = Net(), torch.randn(256, 64)
    told = predict(net, x, squares, "adamw", "CPU", budget=700_000, seconds=0)
    assert not told.fits and not told.fits_planned
    assert told.least_budget_bytes > 700_000
    again = predict(net, x, squares, "adamw", "CPU", budget=told.least_budget_bytes, largest=False)
    assert again.fits_planned
    assert "would do" in repr(told)
    assert predict(net, x, squares, "adamw", "CPU", budget=1000, seconds=0).largest_rows == 0


def test_a_plan_has_no_choice_of_algorithms():
    """PyTorch chooses how a convolution is computed, and how much scratch memory that takes."""
    told = predict(*case("u-net"), "H100", largest=False)
    assert told.plan is not None and told.plan.overhead >= 0
    assert told.plan.live_peak_bytes <= told.peak_bytes
    graph = capture(*case("u-net")[:3], "sgd")
    assert any(op.algorithms for op in graph.ops), "the same network, exported, has a choice"


def test_what_is_said_to_fit_does():
    pytest.importorskip("transformers")
    chosen = CASES["gpt-2"]
    peak = train(chosen).peak
    told = predict(*case("gpt-2"), "CPU", budget=int(0.7 * peak), largest=False)
    assert not told.fits and told.fits_planned
    within = train(chosen, int(0.7 * peak))
    assert within.peak <= 0.7 * peak
    assert within.stats["recomputed_ops"] > 0


def test_a_model_may_have_its_own_loss():
    pytest.importorskip("transformers")
    (tokens,) = words()
    batch = {"input_ids": tokens, "labels": tokens}
    own = predict(gpt2(), batch, optimizer="adamw", device="CPU", largest=False)
    assert own.peak_bytes == predict(gpt2(), tokens, language, "adamw", "CPU", largest=False).peak_bytes


@pytest.mark.parametrize("rows", [24, 33])
def test_graphs_of_other_sizes_are_on_a_line(rows):
    def graph(count: int):
        torch.manual_seed(0)
        return capture(CASES["u-net"].make(), images(count), CASES["u-net"].loss, "adamw")

    made, real = scaled(graph(8), graph(16), (8, 16), rows), graph(rows)
    assert [(value.bytes, value.shape) for value in made.values] == [
        (value.bytes, value.shape) for value in real.values
    ]
    assert [op.flops for op in made.ops] == [op.flops for op in real.ops]
    assert scaled(graph(8), capture(gpt2(), words(), language, "adamw"), (8, 16), rows) is None


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"device": "H1000"}, "H1000"),
        ({"device": "H100-81"}, "H100-81"),
        ({"optimizer": "adamm"}, "adamm"),
        ({"batch": ()}, "no tensor"),
        ({"batch": torch.tensor(1.0)}, "no tensor"),
        ({"budget": "80%%"}, "80%%"),
        ({"budget": -1}, "-1"),
    ],
)
def test_calls_that_make_no_sense(arguments, word):
    given = {"model": Net(), "batch": torch.randn(4, 64), "loss": squares, "device": "CPU", **arguments}
    with pytest.raises(memfit.UsageError, match=word):
        predict(**given)


def test_the_table_is_escaped_and_says_all():
    class Net2(Net):
        pass

    Net2.__name__ = "<b>"
    told = predict(Net2(), torch.randn(4, 64), squares, "sgd", "T4", seconds=0)
    assert "&lt;b&gt;" in told._repr_html_() and "<b>" not in told._repr_html_()
    for name in ("without memfit", "with memfit", "floor", "step time", "largest batch", "scratch memory"):
        assert name in repr(told)
