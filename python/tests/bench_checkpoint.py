"""What checkpoints take, for docs/checkpoints.md: `python python/tests/bench_checkpoint.py`

Trains two small networks for 120 steps: one like VGG (no batch norm) by SGD on made-up pictures, a GPT by
AdamW on the source of Python's standard library. Saves them whole, and what 1 and 20 more steps change.
"""

import copy
import os
import pathlib
import tempfile

import torch
from torch import nn

from memfit import checkpoint

STEPS = 120


def vgg():
    torch.manual_seed(0)
    layers, width = [], 3
    for channels in (16, 32, 64, 128):
        layers += [nn.Conv2d(width, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        width = channels
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    patterns = nn.functional.interpolate(torch.randn(8, 3, 8, 8), size=64, mode="bilinear")

    def step():
        labels = torch.randint(8, (16,))
        pictures = patterns[labels] + 3 * torch.randn(16, 3, 64, 64)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()

    return model, optimizer, step


class GPT(nn.Module):
    def __init__(self, width=160, layers=4, length=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.blocks(x, mask=self.mask, is_causal=True))


def gpt():
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    folder = pathlib.Path(os.__file__).parent
    text = b"".join((folder / name).read_bytes() for name in ("os.py", "ast.py", "typing.py", "argparse.py"))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()

    def step():
        at = torch.randint(len(data) - 65, (8,))
        batch = torch.stack([data[i : i + 65] for i in at])
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()

    return model, optimizer, step


def vector(state):
    return torch.cat([tensor.flatten() for tensor in state.values() if tensor.dtype == torch.float32])


def measure(name, make, folder):
    model, optimizer, step = make()
    for _ in range(STEPS):
        step()
    path = folder / "x.mfc"

    def ratio(state, **options):
        return checkpoint.save(state, path, **options).ratio

    start = copy.deepcopy(model.state_dict())
    rms = vector(start).square().mean().sqrt().item()
    print(f"{name}: {vector(start).numel():,} numbers")
    print(f"  f32 weights          {ratio(start):7.2f}")
    print(f"  bf16 weights         {ratio({key: x.bfloat16() for key, x in start.items()}):7.2f}")
    if saved := ratio(optimizer.state_dict()):
        print(f"  optimizer state      {saved:7.2f}")
    for steps in (1, 20):
        for _ in range(steps if steps == 1 else 19):
            step()
        new = model.state_dict()
        far = (vector(new) - vector(start)).square().mean().sqrt().item() / rms
        print(f"  {steps} steps on: delta rms / weight rms {far:.1e}")
        print(f"    lossless           {ratio(new, base=start):7.2f}")
        for bound in (1e-2, 1e-3, 1e-4):
            lossy = ratio(new, base=start, codec="delta-dnn", bound=bound * rms)
            back = checkpoint.load(path, base=start)
            error = (vector(back).double() - vector(new).double()).abs().max().item()
            assert error <= bound * rms
            share = error / (bound * rms)
            print(f"    delta-dnn {bound:.0e}    {lossy:7.2f}   largest error {share:.3f} bounds")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        measure("VGG-like, SGD", vgg, pathlib.Path(name))
        measure("GPT, AdamW", gpt, pathlib.Path(name))
