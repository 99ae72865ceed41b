"""torchtitan's graph trainer, on a CPU: its tracer, its passes, memfit's policy."""

import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy
from training import CPU

import memfit
from memfit.torch.meter import Meter, live_bytes

HOW = "NOT TESTED: `pip install --no-deps torchtitan==0.3.0`, and of its requirements all but wandb"
tracer = pytest.importorskip("torchtitan.experiments.graph_trainer.make_fx_tracer", reason=HOW)
passes = pytest.importorskip("torchtitan.experiments.graph_trainer.selective_activation_remat", reason=HOW)
policies = pytest.importorskip("torchtitan.experiments.graph_trainer.memory_policy", reason=HOW)
common = pytest.importorskip("torchtitan.experiments.graph_trainer.common_utils", reason=HOW)
titan = pytest.importorskip("memfit.torch.integrations.torchtitan", reason=HOW)

pytestmark = pytest.mark.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, 4, width // 4)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + mixed.reshape(batch, length, width)
        grown = self.down(F.gelu(self.up(x)))
        # On a CPU eager dropout overwrites; this is the op that GPUs run.
        return x + (torch.native_dropout(grown, self.dropout, True)[0] if self.dropout else grown)


class Decoder(nn.Module):
    def __init__(self, width: int = 64, layers: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(100, width)
        self.layers = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.lm_head = nn.Linear(width, 100)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.tok_embeddings(words)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


class Step:
    """A step of a model, traced as the trainer does."""

    def __init__(self, **sizes: Any) -> None:
        torch.manual_seed(0)
        self.model = Decoder(**sizes)
        self.batch = torch.randint(100, (8, 64)), torch.randint(100, (8, 64))
        common.annotate_module_fqns(self.model)

    def __call__(self, words: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        loss = F.cross_entropy(self.model(words).flatten(0, 1), labels.flatten())
        return [loss, *torch.autograd.grad(loss, list(self.model.parameters()))]

    def trace(self) -> Any:
        return tracer.minimal_fx_tracer(self, module=self.model)(*self.batch)

    def run(self, traced: Any) -> list[torch.Tensor]:
        torch.manual_seed(1)
        return tracer.run_traced(traced, module=self.model)(*self.batch)


def apply(traced: Any) -> None:
    """What the trainer does after the policy."""
    passes.selective_activation_remat_pass(traced.gm)
    traced.gm.recompile()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_tags_keep_the_graph_to_its_budget_with_the_same_bits(dropout):
    step = Step(dropout=dropout, layers=3)
    plain = step.trace()
    expected, whole = step.run(plain), titan.peak_of(plain.gm)
    for share in (1.0, 0.8):
        traced, budget = step.trace(), int(share * whole)
        titan.tag(traced.gm, budget)
        again = [
            node
            for node in traced.gm.graph.nodes
            if node.meta.get("recompute") is CheckpointPolicy.MUST_RECOMPUTE
        ]
        assert bool(again) == (share < 1.0)
        assert not any(node.target is torch.ops.aten.native_dropout.default for node in again)
        apply(traced)
        others = live_bytes(CPU) - titan_inputs(step)
        with Meter() as meter:
            got = step.run(traced)
        assert meter.peak_bytes - others <= budget * 1.01  # Scratch memory, and seeds.
        assert all(map(torch.equal, got, expected))


def titan_inputs(step: Step) -> int:
    return sum(tensor.nbytes for tensor in (*step.model.parameters(), *step.batch))


def test_the_policy_is_found_by_its_name():
    step = Step()
    whole = titan.peak_of(step.trace().gm)
    titan.register(int(0.7 * whole), name="memfit-test")
    traced = step.trace()
    config = types.SimpleNamespace(compile=types.SimpleNamespace(memory_policy="memfit-test"))
    policies.tag_with_memory_policy_pass(traced.gm, config=config)
    apply(traced)
    assert any(node.name.endswith("_recomputed") for node in traced.gm.graph.nodes)


def test_a_budget_that_no_tags_keep_is_told_with_one_that_does():
    step = Step(layers=2)
    with pytest.raises(memfit.BudgetError) as told:
        titan.tag(step.trace().gm, 1000)
    assert told.value.least_budget_bytes > 1000
    assert told.value.hint
    titan.tag(step.trace().gm, told.value.least_budget_bytes)


def test_what_overwrites_is_refused_by_name():
    def overwrites(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).add_(1)

    traced = tracer.minimal_fx_tracer(overwrites)(torch.ones(3))
    with pytest.raises(memfit.UsageError, match="add_"):
        titan.tag(traced.gm, 1000)
