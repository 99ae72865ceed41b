"""Models the command knows by name, and the graphs of the corpus.

Weights are random and never made: models are built of fake tensors. torchvision and transformers are needed
only by the models that come from them.
"""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ._graph import ExportError
from ._trace import Loss

Example = tuple[torch.nn.Module, Any, Loss]
"""A model, one batch of inputs (with targets, where it is trained), and how to get the loss."""


@dataclasses.dataclass(frozen=True)
class Model:
    """One model of the zoo."""

    make: Callable[[int, int, bool], Example]
    """From batch size, sequence length (tokens), and whether it is for inference."""
    source: str
    """Where its definition comes from."""
    package: str = "torch"
    """What must be installed."""
    batch: int = 1
    sequence: int = 0
    """Tokens or time steps; 0 where there is no such thing."""


def classify(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the class scores in dimension 1."""
    return F.cross_entropy(model(x), labels)


def next_token(model: torch.nn.Module, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the next word's scores `[batch, length, words]`."""
    return F.cross_entropy(model(words).flatten(0, 1), targets.flatten())


def own_loss(model: torch.nn.Module, **inputs: torch.Tensor) -> torch.Tensor:
    """The loss that a model of transformers computes itself."""
    loss: torch.Tensor = model(**inputs).loss
    return loss


def inception_loss(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Main classifier plus 0.4 of the auxiliary one."""
    outputs = model(x)
    return F.cross_entropy(outputs.logits, labels) + 0.4 * F.cross_entropy(outputs.aux_logits, labels)


def _vision(name: str, size: int = 224, loss: Loss = classify, **options: Any) -> Callable[..., Example]:
    def make(batch: int, _sequence: int, infer: bool) -> Example:
        model = _package("torchvision").models.get_model(name, weights=None, **options)
        images = torch.empty(batch, 3, size, size)
        return model, (images,) if infer else (images, torch.empty(batch, dtype=torch.int64)), loss

    return make


def _unet(batch: int, _sequence: int, infer: bool) -> Example:
    from ._models import UNet

    images = torch.empty(batch, 3, 256, 256)
    return UNet(), (images,) if infer else (images, torch.empty(batch, 256, 256, dtype=torch.int64)), classify


def _deep(batch: int, _sequence: int, infer: bool) -> Example:
    from ._models import PreActResNet

    images = torch.empty(batch, 3, 224, 224)
    return PreActResNet(), (images,) if infer else (images, torch.empty(batch, dtype=torch.int64)), classify


def _lstm(batch: int, sequence: int, infer: bool) -> Example:
    from ._models import LstmLanguageModel

    return LstmLanguageModel(), _words(batch, sequence, infer), next_token


def _decoder(batch: int, sequence: int, infer: bool) -> Example:
    from ._models import Decoder

    return Decoder(length=sequence).to(torch.bfloat16), _words(batch, sequence, infer), next_token


def _gpt2(batch: int, sequence: int, infer: bool) -> Example:
    t = _package("transformers")
    config = t.GPT2Config(use_cache=False, attn_implementation="eager")
    inputs = _tokens(batch, sequence, infer)
    # Without a mask, transformers looks at the contents of the positions; with one, it need not.
    inputs["attention_mask"] = torch.ones(batch, sequence, dtype=torch.int64)
    return t.GPT2LMHeadModel(config), inputs, own_loss


def _bert(batch: int, sequence: int, infer: bool) -> Example:
    t = _package("transformers")
    config = t.BertConfig(attn_implementation="eager")
    return t.BertForMaskedLM(config), _tokens(batch, sequence, infer), own_loss


def _words(batch: int, sequence: int, infer: bool) -> tuple[torch.Tensor, ...]:
    words = torch.zeros(batch, sequence, dtype=torch.int64)
    return (words,) if infer else (words, torch.zeros(batch, sequence, dtype=torch.int64))


def _tokens(batch: int, sequence: int, infer: bool) -> dict[str, torch.Tensor]:
    names = ["input_ids"] if infer else ["input_ids", "labels"]
    return {name: torch.zeros(batch, sequence, dtype=torch.int64) for name in names}


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ExportError(f"this model needs the package `{name}`\nhint: `pip install {name}`") from None


TV, HF = "torchvision", "transformers"

MODELS: dict[str, Model] = {
    "resnet50": Model(_vision("resnet50"), f"{TV} `resnet50`", TV, batch=32),
    "vgg16": Model(_vision("vgg16"), f"{TV} `vgg16`", TV, batch=32),
    "mobilenet-v2": Model(_vision("mobilenet_v2"), f"{TV} `mobilenet_v2`", TV, batch=32),
    "shufflenet-v2": Model(_vision("shufflenet_v2_x1_0"), f"{TV} `shufflenet_v2_x1_0`", TV, batch=32),
    "inception-v3": Model(
        _vision("inception_v3", 299, inception_loss, init_weights=False),
        f"{TV} `inception_v3`, 299 pixels",
        TV,
        32,
    ),
    "densenet121": Model(_vision("densenet121"), f"{TV} `densenet121`", TV, batch=32),
    "vit-b16": Model(_vision("vit_b_16"), f"{TV} `vit_b_16`", TV, batch=32),
    "unet": Model(_unet, "`_models.UNet`, 256 pixels", batch=8),
    "resnet1001": Model(_deep, "`_models.PreActResNet`, 224 pixels", batch=6),
    "lstm": Model(_lstm, "`_models.LstmLanguageModel`, unrolled", batch=20, sequence=64),
    "bert-base": Model(_bert, f"{HF} `BertForMaskedLM`, eager attention", HF, batch=8, sequence=512),
    "gpt2": Model(_gpt2, f"{HF} `GPT2LMHeadModel`, eager attention", HF, batch=4, sequence=1024),
    "decoder-7b": Model(_decoder, "`_models.Decoder`, bf16 parameters and state", batch=1, sequence=2048),
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One graph of the corpus; without an optimizer it is of inference."""

    model: str
    batch: int
    optimizer: str | None = None

    @property
    def file(self) -> str:
        """Such as `resnet50-train-b32.json.zst`."""
        return f"{self.name}.json.zst"

    @property
    def name(self) -> str:
        """Such as `gpt2-train-b4-s1024`."""
        sequence = MODELS[self.model].sequence
        mode = "train" if self.optimizer else "infer"
        return f"{self.model}-{mode}-b{self.batch}" + (f"-s{sequence}" if sequence else "")

    @property
    def options(self) -> list[str]:
        """The command line that makes it, without `-o`."""
        sequence = MODELS[self.model].sequence
        mode = ["--optimizer", self.optimizer] if self.optimizer else ["--infer"]
        return [
            self.model,
            "--batch",
            str(self.batch),
            *(["--seq", str(sequence)] if sequence else []),
            *mode,
        ]


CORPUS = [
    Entry("resnet50", 32, "momentum"),
    Entry("resnet50", 256, "momentum"),
    Entry("resnet50", 32),
    Entry("vgg16", 256, "momentum"),
    Entry("mobilenet-v2", 256, "momentum"),
    Entry("shufflenet-v2", 256, "momentum"),
    Entry("inception-v3", 64, "momentum"),
    Entry("densenet121", 64, "momentum"),
    Entry("unet", 16, "adamw"),
    Entry("vit-b16", 64, "adamw"),
    Entry("resnet1001", 6, "momentum"),
    Entry("bert-base", 16, "adamw"),
    Entry("gpt2", 8, "adamw"),
    Entry("gpt2", 8),
    Entry("lstm", 20, "sgd"),
    Entry("decoder-7b", 1, "adamw"),
]
