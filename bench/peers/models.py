"""The models of `cargo xtask bench peers`, on fake tensors.

Each function returns what `python -m memfit.torch.export models:NAME` asks for. Nothing is computed.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Example = tuple[nn.Module, Any, Any]


def llama_8b() -> Example:
    """Llama 3 8B: 32 blocks, 8,192 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        rope_theta=500_000.0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return _language(LlamaForCausalLM(config), batch=1, length=8192)


def qwen3_8_blocks() -> Example:
    """Eight blocks as wide as those of Qwen3 32B, 8,192 tokens."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=5120,
        intermediate_size=25_600,
        num_hidden_layers=8,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return _language(Qwen3ForCausalLM(config), batch=1, length=8192)


def moe_12_blocks() -> Example:
    """Twelve blocks of 64 experts, as wide as those of DeepSeekMoE 16B (arXiv:2401.06066), 4,096 tokens."""
    return _language(Experts(blocks=12), batch=1, length=4096)


def gpt2_dropout() -> Example:
    """GPT-2 medium with dropout everywhere, attention in one kernel, 8 sequences of 1,024 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False, attn_implementation="sdpa")
    return _language(GPT2LMHeadModel(config), batch=8, length=1024)


def unet() -> Example:
    """The U-Net of the corpus, 16 images of 256 by 256 pixels."""
    from memfit.torch._models import UNet

    images = torch.empty(16, 3, 256, 256)
    classes = torch.empty(16, 256, 256, dtype=torch.int64)
    return UNet(), (images, classes), _classify


class Experts(nn.Module):
    """A decoder whose blocks route tokens: each expert takes those that score best (arXiv:2202.09368).

    So shapes don't depend on data, and a graph holds for every batch.
    """

    def __init__(self, blocks: int, words: int = 102_400, width: int = 2048) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(ExpertBlock(width) for _ in range(blocks))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of words `[batch, length]` and what should follow each of them."""
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())


class ExpertBlock(nn.Module):
    """Attention, then shared and routed experts, each after a norm and beside a residual path."""

    def __init__(
        self,
        width: int,
        heads: int = 16,
        experts: int = 64,
        inner: int = 1408,
        shared: int = 2,
        chosen: int = 6,
    ) -> None:
        super().__init__()
        self.heads, self.experts, self.chosen = heads, experts, chosen
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.router = nn.Linear(width, experts, bias=False)
        self.shared_up = nn.Linear(width, 2 * shared * inner, bias=False)
        self.shared_down = nn.Linear(shared * inner, width, bias=False)
        self.up = nn.Parameter(torch.empty(experts, width, 2 * inner))
        self.down = nn.Parameter(torch.empty(experts, inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, length, width]`, the same again."""
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.transpose(1, 3).unbind(2)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x).view(batch * length, width)
        made = self.shared_down(_gated(self.shared_up(y))) + self._routed(y)
        return x + made.view(batch, length, width)

    def _routed(self, y: torch.Tensor) -> torch.Tensor:
        """`[tokens, width]`, from experts that take `chosen` tokens / experts each."""
        scores = self.router(y).float().softmax(dim=-1).to(y.dtype)
        weights, tokens = scores.t().topk(len(y) * self.chosen // self.experts, dim=-1)
        taken = y.index_select(0, tokens.flatten()).view(self.experts, -1, y.shape[1])
        made = torch.bmm(_gated(torch.bmm(taken, self.up)), self.down) * weights.unsqueeze(-1)
        return torch.zeros_like(y).index_add(0, tokens.flatten(), made.flatten(0, 1))


def _gated(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def _language(model: nn.Module, batch: int, length: int) -> Example:
    """In bfloat16, with as many words as wanted."""
    words = {name: torch.zeros(batch, length, dtype=torch.int64) for name in ("input_ids", "labels")}
    return model.to(torch.bfloat16), words, _own_loss


def _own_loss(model: nn.Module, **inputs: torch.Tensor) -> torch.Tensor:
    made = model(**inputs)
    loss: torch.Tensor = made if isinstance(made, torch.Tensor) else made.loss
    return loss


def _classify(model: nn.Module, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(images), classes)
