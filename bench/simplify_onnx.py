"""Exports ONNX models and prints the table of docs/simplify.md.

    python bench/simplify_onnx.py FOLDER MEMFIT

`FOLDER` takes the models, 1.5 GB; `MEMFIT` is the command line's binary. Needs torch, torchvision,
transformers and onnx.
"""

import json
import pathlib
import subprocess
import sys
import warnings

import torch
import torchvision
import transformers as hf

IDS = torch.ones(1, 128, dtype=torch.long)
IMAGE = torch.ones(1, 3, 224, 224)


class First(torch.nn.Module):
    """A model of one input, which returns the first of its outputs."""

    def __init__(self, model, key):
        super().__init__()
        self.model, self.key = model, key

    def forward(self, x):
        return self.model(**{self.key: x})[0]


def text(model, config, half=False, **options):
    made = First(model(config(vocab_size=1000, **options)), "input_ids")
    return (made.half() if half else made), IDS


def vision(model, config, **options):
    return First(model(config(**options)), "pixel_values"), IMAGE


DEBERTA = {"num_hidden_layers": 4, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
MODELS = {
    "Swin-T (torchvision)": lambda: (torchvision.models.swin_t(), IMAGE),
    "Swin-V2-T (torchvision)": lambda: (torchvision.models.swin_v2_t(), IMAGE),
    "Swin-V2 (transformers)": lambda: vision(hf.Swinv2Model, hf.Swinv2Config),
    "BEiT, 4 layers": lambda: vision(
        hf.BeitModel, hf.BeitConfig, num_hidden_layers=4, use_relative_position_bias=True
    ),
    "T5 encoder, 4 layers": lambda: text(hf.T5EncoderModel, hf.T5Config, num_layers=4),
    "T5 encoder, 4 layers, half": lambda: text(hf.T5EncoderModel, hf.T5Config, half=True, num_layers=4),
    "DeBERTa-v2, 4 layers": lambda: text(hf.DebertaV2Model, hf.DebertaV2Config, **DEBERTA),
    "ConvNeXt-T": lambda: vision(hf.ConvNextModel, hf.ConvNextConfig),
    "BERT, 4 layers": lambda: text(hf.BertModel, hf.BertConfig, num_hidden_layers=4),
    "MobileViT": lambda: vision(hf.MobileViTModel, hf.MobileViTConfig),
}


def main(folder, memfit):
    warnings.filterwarnings("ignore")
    head = ["model", "ops", "simplified", "by", "groups", "fused", "peak, fused", "time, simplified, fused"]
    print("|", " | ".join(head), "|")
    print("|---|---|---|---|---|---|---|---|")
    for at, (name, make) in enumerate(MODELS.items()):
        path = pathlib.Path(folder) / f"{at}.onnx"
        if not path.exists():
            model, x = make()
            torch.onnx.export(model.eval(), (x,), str(path), dynamo=False, opset_version=17)
        told = json.loads(subprocess.run([memfit, "simplify", path, "--json"], capture_output=True).stdout)
        before, after, fused = told["before"], told["after"], told["fused"]
        by = ", ".join(f"{row['pass']} {row['ops']}" for row in told["passes"] if row["ops"])
        peaks = " → ".join(f"{row['peak_bytes'] / 2**20:.1f}" for row in (after, fused))
        times = " → ".join(f"{row['time_ns'] / 1e6:.2f}" for row in (before, after, fused))
        row = [name, before["ops"], after["ops"], by or "none", len(told["groups"]), fused["ops"]]
        row += [f"{peaks} MiB", f"{times} ms"]
        print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
