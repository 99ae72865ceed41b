"""Models that people train every day, small, from `torchvision` and from configurations of `transformers`.

`python everyday.py SHIM NAME FACE:SHARE ..` trains one of them: plainly, and within budgets by `enable` or
`fit`, each in a copy of the process that begins where the others do. It prints a line of JSON for each. A
share of 0 is a budget that can't do. A refusal is followed by runs within what it says would do, until one
does.
"""

import ctypes
import gc
import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from training import AMPLE, CPU, OPTIMIZERS, Case, classify, digests, images

import memfit
import memfit.torch
from memfit.torch.eager import Budget
from memfit.torch.meter import live_bytes

SHARES = (0.8, 0.5, 0.3)
"""Of what comes and goes."""
FACES = ("enable", "fit")
SPARE = 0.05
"""A budget is at least the floor, and so much of what a step takes beyond it."""
FOLLOWED = 4
"""Refusals at most until the budget that they name does, where things are decided op by op."""
PLANNING = 1 << 30
"""Bytes that planning may take."""


def words(batch: int, length: int, vocabulary: int = 500) -> torch.Tensor:
    return torch.randint(3, vocabulary, (batch, length))


def own_loss(model: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    """Of a model of `transformers` that knows its loss; the inputs are named by the case."""
    return model(**dict(zip(model.everyday, inputs, strict=True))).loss


def named(names: str, make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        model = make()
        model.everyday = names.split()
        return model

    return made


def convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    sizes = [(24, 48, 2), (48, 96, 2), (96, 192, 3), (192, None, 2)]
    return ConvNeXt([CNBlockConfig(*each) for each in sizes], stochastic_depth_prob=0.1, num_classes=10)


def swin() -> nn.Module:
    from torchvision.models import SwinTransformer

    return SwinTransformer(
        [2, 2], 32, [2, 2, 2], [2, 4, 8], [4, 4], stochastic_depth_prob=0.1, dropout=0.1, num_classes=10
    )


def efficientnet() -> nn.Module:
    import torchvision

    return torchvision.models.efficientnet_b0(num_classes=10)


def t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=500, d_model=96, d_kv=24, d_ff=256, num_layers=3, num_heads=4, decoder_start_token_id=0
        )
    )


LLAMA = {
    "vocab_size": 500,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**LLAMA, attention_dropout=0.1))


def mixtral() -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
    return MixtralForCausalLM(MixtralConfig(**{**LLAMA, **experts, "num_hidden_layers": 3}))


def whisper() -> nn.Module:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=500,
        num_mel_bins=40,
        d_model=96,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        max_source_positions=100,
        max_target_positions=64,
        dropout=0.1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return WhisperForConditionalGeneration(config)


def clip() -> nn.Module:
    from transformers import CLIPConfig, CLIPModel

    sizes = {
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "projection_dim": 64,
    }
    text = {**sizes, "vocab_size": 500, "max_position_embeddings": 32, "eos_token_id": 2, "pad_token_id": 0}
    vision = {**sizes, "image_size": 64, "patch_size": 8}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=64))


def clip_loss(model: nn.Module, tokens: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
    return model(input_ids=tokens, pixel_values=pictures, return_loss=True).loss


def wav2vec2() -> nn.Module:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        vocab_size=32,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        conv_dim=(32, 32, 32, 32),
        conv_stride=(5, 4, 4, 2),
        conv_kernel=(10, 8, 4, 4),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        mask_time_prob=0.1,
        mask_time_length=4,
        ctc_loss_reduction="mean",
        ctc_zero_infinity=True,
    )
    return Wav2Vec2ForCTC(config)


def detr() -> nn.Module:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64, 96],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=20,
        d_model=96,
        encoder_layers=3,
        decoder_layers=3,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        num_labels=10,
    )
    return DetrForObjectDetection(config)


def detection(
    model: nn.Module, pictures: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Classes and boxes of the queries that are nearest to each box, as the loss of DETR has it."""
    found = model(pixel_values=pictures)
    with torch.no_grad():
        near = torch.cdist(boxes, found.pred_boxes, p=1).argmin(-1)
    at = torch.arange(len(boxes))[:, None]
    wanted = torch.full(found.logits.shape[:2], found.logits.shape[-1] - 1)
    wanted[at, near] = labels
    classes = F.cross_entropy(found.logits.transpose(1, 2), wanted)
    return classes + 5 * F.l1_loss(found.pred_boxes[at, near], boxes)


def mamba() -> nn.Module:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=500, hidden_size=64, state_size=8, num_hidden_layers=3, pad_token_id=0, use_cache=False
    )
    return MambaForCausalLM(config)


def language(model: Callable[[], nn.Module], batch: int, length: int, **options: Any) -> Case:
    def data() -> tuple[torch.Tensor, ...]:
        return 2 * (words(batch, length),)

    return adamw(named("input_ids labels", model), data, own_loss, **options)


def adamw(make: Callable[[], nn.Module], data: Any, loss: Any = classify, **options: Any) -> Case:
    return Case(make, data, loss, **{"optimizer": "adamw foreach", "steps": 3, **options})


MODELS: dict[str, Case] = {
    "convnext": adamw(convnext, lambda: images(16, 64)),
    "swin": adamw(swin, lambda: images(16, 64)),
    "efficientnet": adamw(efficientnet, lambda: images(8, 64), optimizer="adamw"),
    "t5": adamw(named("input_ids labels", t5), lambda: (words(8, 64), words(8, 32)), own_loss),
    "llama": language(llama, 8, 64, optimizer="adamw fused"),
    "mixtral": language(mixtral, 8, 64),
    "whisper": adamw(
        named("input_features labels", whisper), lambda: (torch.randn(4, 40, 200), words(4, 32)), own_loss
    ),
    "clip": adamw(clip, lambda: (words(16, 16), torch.randn(16, 3, 64, 64)), clip_loss),
    "wav2vec2": adamw(
        named("input_values labels", wav2vec2), lambda: (torch.randn(4, 8000), words(4, 10, 32)), own_loss
    ),
    "detr": adamw(
        detr,
        lambda: (torch.randn(6, 3, 192, 192), torch.rand(6, 5, 4), torch.randint(10, (6, 5))),
        detection,
    ),
    "mamba": language(mamba, 8, 24, optimizer="adamw"),
}


class Run:
    """One training from its start, and what it has left."""

    def __init__(self, case: Case, shim: Any) -> None:
        gc.collect()
        self.before, self.real, self.shim = live_bytes(CPU), shim.real_tensors(), shim
        torch.manual_seed(0)
        self.case, self.model = case, case.make()
        self.optimizer = OPTIMIZERS[case.optimizer](self.model.parameters())
        self.data = case.data()
        torch.manual_seed(1)
        self.losses: list[torch.Tensor] = []
        self.peaks: list[int] = []
        self.seconds: list[float] = []
        # What was made on the way is gone.
        shim.real_restart()

    def step(self, *data: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.case.loss(self.model, *data)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def take(self, step: Callable[..., torch.Tensor]) -> None:
        for _ in range(self.case.steps):
            started = time.perf_counter()
            self.shim.real_restart()
            try:
                self.losses.append(step(*self.data))
            finally:
                self.peaks.append(self.shim.real_tensor_peak() - self.real)
                self.seconds.append(time.perf_counter() - started)

    def told(self, **more: Any) -> dict[str, Any]:
        left = digests(self.model, self.optimizer, self.losses)
        return {"digests": left, "peaks": self.peaks, "seconds": self.seconds, **more}

    def refused(self, error: memfit.BudgetError) -> dict[str, Any]:
        """The refusal, its budget in bytes above what was there before, and what was held until then."""
        least = error.least_budget_bytes and error.least_budget_bytes - self.before
        told = {"refused": str(error), "least": least, "lower_bound": error.lower_bound, "slow": error.slow}
        return {**told, "op": getattr(error, "op", None), "peaks": self.peaks}


def plainly(case: Case, shim: Any) -> dict[str, Any]:
    run = Run(case, shim)
    run.take(run.step)
    return run.told()


def look(case: Case, shim: Any) -> dict[str, Any]:
    """What the last of the steps needs that no plan can do without, in bytes above what was there before."""
    run = Run(case, shim)
    # What an op takes is known when it has run.
    steps = max(2, case.steps)
    with Budget(AMPLE) as budget:
        for at in range(steps):
            if at == steps - 1:
                budget._native.watch()
            run.losses.append(run.step(*run.data))
        persistent, largest, op, _ = budget._native.floor()
    persistent -= run.before
    return {"persistent": persistent, "floor": persistent + largest, "op": op}


def measured(case: Case, shim: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plain run, and what the case needs."""
    plain = in_copy(lambda: plainly(case, shim))
    needs = in_copy(lambda: look(case, shim))
    return plain, {**needs, "peak": max(plain.get("peaks", [0]))}


def enabled(case: Case, shim: Any, budget: int) -> dict[str, Any]:
    run = Run(case, shim)
    try:
        with memfit.torch.enable(run.before + budget) as active:
            run.take(run.step)
    except memfit.BudgetError as error:
        return run.refused(error)
    return run.told(recomputed=active.stats["recomputed_ops"])


def fitted(case: Case, shim: Any, budget: int) -> dict[str, Any]:
    run = Run(case, shim)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    step = memfit.torch.fit(run.step, run.before + budget)
    try:
        run.take(step)
    except memfit.BudgetError as error:
        return run.refused(error)
    with step:
        report = step.report
        told = run.told(
            recomputed=report.recomputed_ops,
            guided=report.guided,
            identical=report.identical,
            notes=report.notes,
            measured=report.measured_peak_bytes - run.before,
        )
    most = max(
        resource.getrusage(who).ru_maxrss << 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {**told, "planning": most - before}


def in_copy(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` tells in a copy of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            told = work()
        except BaseException as error:
            traceback.print_exc()
            told = {"raised": f"{type(error).__name__}: {error}"}
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps(told))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(told) if told else {"raised": f"the process died: {status}"}


def budget_of(needs: dict[str, Any], share: float) -> int:
    """A share of what comes and goes, or a little above the floor where that is more; below it for none."""
    if share == 0:
        return (needs["persistent"] + needs["floor"]) // 2
    wanted = needs["persistent"] + share * (needs["peak"] - needs["persistent"])
    return int(max(wanted, needs["floor"] + SPARE * (needs["peak"] - needs["floor"])))


def attempt(case: Case, shim: Any, face: str, budget: int, plain: dict[str, Any]) -> dict[str, Any]:
    """What comes of a budget, beside the plain run."""
    within = enabled if face == "enable" else fitted
    started = time.perf_counter()
    told = in_copy(lambda: within(case, shim, budget))
    told |= {"budget": budget, "total": time.perf_counter() - started}
    if "digests" in told:
        found = told.pop("digests")
        told["differs"] = [name for name in found if found[name] != plain["digests"][name]]
    return told


def followed(case: Case, shim: Any, face: str, told: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """What comes of the budget that a refusal names.

    Op by op that is a lower bound, as later ops may need more: then of the one that the next refusal names.
    """
    for _ in range(FOLLOWED if face == "enable" else 1):
        told = attempt(case, shim, face, told["least"], plain)
        if not told.get("least"):
            break
    return told


def prepare(path: str) -> Any:
    """The library that counts, which is at `path`."""
    shim = ctypes.CDLL(path)
    shim.real_tensor_peak.restype = shim.real_tensors.restype = ctypes.c_long
    shim.real_look()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # Copies of a process can run backward passes where it has.
    torch.ones(1, requires_grad=True).sum().backward()
    return shim


def freeze() -> None:
    """What is there now is out of the sight of those that look at all objects: a budget, a collection."""
    gc.collect()
    gc.freeze()


def main() -> None:
    shim, case = prepare(sys.argv[1]), MODELS[sys.argv[2]]
    case.make()
    freeze()
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    cap = mapped + 2 * PLANNING
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    plain, needs = measured(case, shim)
    print(json.dumps({"run": "plain", "needs": needs, **plain}), flush=True)
    for word in sys.argv[3:]:
        face, share = word.split(":")
        told = attempt(case, shim, face, budget_of(needs, float(share)), plain)
        told["run"] = word
        if told.get("least") and (face == "fit" or told["slow"]):
            told["then"] = followed(case, shim, face, told, plain)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
