"""Hugging Face's trainer within a hard budget, by one callback. Runs on a CPU in seconds.

python examples/pytorch/trainer.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import memfit.torch
from memfit.torch.integrations.transformers import MemfitCallback

CONFIG = GPT2Config(
    vocab_size=300, n_positions=64, n_layer=4, n_embd=96, n_head=4, bos_token_id=0, eos_token_id=0
)
WORDS = torch.randint(300, (64, 64), generator=torch.Generator().manual_seed(0))
ROWS = [{"input_ids": words, "labels": words} for words in WORDS]


def train(*callbacks: MemfitCallback) -> list[dict[str, float]]:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=4,
            per_device_train_batch_size=8,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(GPT2LMHeadModel(CONFIG), arguments, train_dataset=ROWS, callbacks=list(callbacks))
        trainer.train()
        return trainer.state.log_history[:-1]


with memfit.torch.Meter() as without:
    plain = train()
budget = int(0.7 * without.peak_bytes)
with memfit.torch.Meter() as within:
    budgeted = train(MemfitCallback(budget))

print(f"peak            {without.peak_bytes / 1e6:.1f} MB without, {within.peak_bytes / 1e6:.1f} MB with")
print(f"recomputed      {budgeted[-1]['memfit/recomputed_ops']} ops in the last step")
print(f"bit-identical   {[row['loss'] for row in plain] == [row['loss'] for row in budgeted]}")
