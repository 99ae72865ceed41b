"""`transformers.Trainer` and what else training programs are made of, under a budget: the same bits."""

import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import AMPLE, CPU, digest

import memfit.torch
from memfit.torch.eager import Budget
from memfit.torch.meter import Meter, live_bytes

transformers = pytest.importorskip("transformers")
VOCABULARY = 300


class Rows(torch.utils.data.Dataset):
    """Rows of words, or images, with their labels."""

    def __init__(self, **columns: torch.Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {name: column[at] for name, column in self.columns.items()}


def words(count: int = 24, length: int = 40) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (count, length))


def gpt2() -> tuple[nn.Module, Rows]:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_layer=2, n_embd=64, n_head=4, bos_token_id=0, eos_token_id=0
    )
    tokens = words()
    return transformers.GPT2LMHeadModel(config), Rows(input_ids=tokens, labels=tokens)


def bert() -> tuple[nn.Module, Rows]:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=64, num_labels=3,
    )  # fmt: skip
    rows = Rows(input_ids=words(), attention_mask=torch.ones(24, 40).long(), labels=torch.randint(3, (24,)))
    return transformers.BertForSequenceClassification(config), rows


def t5() -> tuple[nn.Module, Rows]:
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config), Rows(input_ids=words(), labels=words(length=12))


def vit() -> tuple[nn.Module, Rows]:
    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=32,
        patch_size=4, num_labels=3,
    )  # fmt: skip
    rows = Rows(pixel_values=torch.randn(24, 3, 32, 32), labels=torch.randint(3, (24,)))
    return transformers.ViTForImageClassification(config), rows


MODELS = {"gpt-2": gpt2, "bert": bert, "t5": t5, "vit": vit}
# Of the peak without memfit. Little of a small image model's is activations.
SHARES = {"gpt-2": 0.8, "bert": 0.8, "t5": 0.8, "vit": 0.95}


def run(name: str, folder: Any, budget: int | None = None, **options: Any) -> tuple[list[str], int]:
    """Digests of what four steps of the trainer leave, and the peak above what was there before."""
    gc.collect()
    before = live_bytes(CPU)
    torch.manual_seed(0)
    model, rows = MODELS[name]()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=4, per_device_train_batch_size=6, gradient_accumulation_steps=2,
        report_to=[], save_strategy="no", logging_steps=2, use_cpu=True, disable_tqdm=True, seed=3,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
    meter = Meter()
    if budget is None:
        with meter:
            loss = trainer.train().training_loss
    else:
        with Budget(before + budget, **options), meter:
            loss = trainer.train().training_loss
    state = [value for values in trainer.optimizer.optimizer.state.values() for value in values.values()]
    left = [*model.state_dict().values(), *state]
    return [repr(loss), *map(digest, left)], (meter.peak_bytes or 0) - before


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_the_trainer(name, tmp_path):
    pytest.importorskip("accelerate")
    expected, peak = run(name, tmp_path)
    assert run(name, tmp_path, AMPLE, evict_all=True)[0] == expected
    budget = int(peak * SHARES[name])
    got, within = run(name, tmp_path, budget)
    assert got == expected
    assert within <= budget


def test_whisper_by_fit_keeps_to_its_budget_in_every_step():
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=40, d_model=64, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256,
        max_source_positions=100, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip

    def make() -> Any:
        torch.manual_seed(0)
        model = transformers.WhisperForConditionalGeneration(config)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        sounds, said = torch.randn(6, 40, 200), torch.randint(3, VOCABULARY, (6, 20))

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(input_features=sounds, labels=said).loss
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def peak_of(step: Any) -> tuple[float, int]:
        gc.collect()
        with Meter() as meter:
            loss = float(step())
        return loss, meter.peak_bytes or 0

    gc.collect()
    without = [peak_of(step) for step in [make()] * 5]
    budget = int(max(peak for _, peak in without) * 0.75)
    gc.collect()
    step = memfit.torch.fit(make(), budget=budget)
    within = [peak_of(step) for _ in range(5)]
    assert [loss for loss, _ in within] == [loss for loss, _ in without]
    assert max(peak for _, peak in within) <= budget
    assert step.report.measured_peak_bytes is None or step.report.measured_peak_bytes <= budget


# Functions of functions, numbers with two parts


def functional() -> list[torch.Tensor]:
    torch.manual_seed(0)
    weight, x = torch.randn(8, 8), torch.randn(5, 8)

    def loss(weight: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return F.gelu(row @ weight).pow(2).sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, x)
    slope = torch.func.jacrev(lambda w: (x @ w).tanh().sum(0))(weight)
    along = torch.func.jvp(lambda w: loss(w, x[0]), (weight,), (torch.ones_like(weight),))
    curved = torch.func.hessian(lambda row: loss(weight, row))(x[0])
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    called = torch.func.functional_call(net, {n: p * 2 for n, p in net.named_parameters()}, (x,))
    return [each, slope, *along, curved, called.detach()]


def complex_numbers() -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(6, 16, dtype=torch.complex64, requires_grad=True)
    y = torch.fft.ifft(torch.fft.fft(x * (1 + 2j)) * torch.randn(16)).abs().pow(2)
    y = y + torch.view_as_real(x.conj() @ x.mT @ x).sum(-1)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return [y.detach(), gradient, gradient.angle()]


def rows_of_a_sparse_matrix() -> list[torch.Tensor]:
    torch.manual_seed(0)
    matrix = torch.randn(12, 12).relu()
    rows = (matrix * 2).to_sparse_csr()
    dense = (matrix + 1).exp()
    return [rows @ dense, rows.to_dense(), rows.values() * 3, (rows @ dense.sum(1)).sin()]


@pytest.mark.parametrize("call", [functional, complex_numbers, rows_of_a_sparse_matrix])
def test_calls_that_are_more_than_ops(call):
    expected = [digest(tensor) for tensor in call()]
    with Budget(AMPLE, evict_all=True):
        assert [digest(tensor) for tensor in call()] == expected
