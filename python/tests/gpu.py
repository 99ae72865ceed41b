"""What only a GPU can show: trainings within a budget, copies over its link, its allocator.

`python gpu.py --device cuda --slices models,swap --out gpu.json` prints a line of JSON for each measurement,
and writes all of them with what the device is. On a CPU (`--device cpu`) the same is run with small sizes.
"""

import argparse
import contextlib
import gc
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from sampling import ALL
from torch import nn

import memfit.torch
from memfit import BudgetError
from memfit.torch._models import UNet
from memfit.torch.eager import Budget
from memfit.torch.meter import live_bytes

GIB = 1 << 30
MEMFIT: str | None = None


class Block(nn.Module):
    """A layer of a transformer, with dropout and attention that looks back."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        dropout = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        seen = self.out(seen.transpose(1, 2).reshape(batch, length, width))
        x = x + F.dropout(seen, self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.after(x)))), self.dropout, self.training)


class Gpt(nn.Module):
    """A language model like GPT-2; its loss is its result."""

    def __init__(self, layers: int, width: int, length: int, words: int = 8192, dropout: float = 0.1) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, max(1, width // 64), dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places.weight[: words.shape[1]]
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))[:, :-1]
        return F.cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten())


class Recurrent(nn.Module):
    """Two layers of LSTM with dropout between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(width, width, 2, dropout=0.2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0][:, -1])


@dataclass
class Case:
    """A model, its batch, its loss and how it is trained. Sizes are those of a GPU, or small ones."""

    make: Callable[[], nn.Module]
    batch: Callable[[], tuple[torch.Tensor, ...]]
    adam: bool = False
    autocast: bool = False

    def loss(self, model: nn.Module, *batch: torch.Tensor) -> torch.Tensor:
        if len(batch) == 1:
            return model(*batch)
        made = model(batch[0])
        return F.cross_entropy(made, batch[1]) if made.dim() == 2 else made.pow(2).mean()


def vision(name: str) -> nn.Module:
    import torchvision

    return getattr(torchvision.models, name)(num_classes=100)


def images(batch: int, size: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, 3, size, size), torch.randint(100, (batch,))


def cases(large: bool) -> dict[str, Case]:
    """By name, in the sizes of a GPU or small."""
    gpt = (6, 512, 512) if large else (2, 64, 32)
    tokens = (16, 512) if large else (4, 32)
    pixels = (96, 224) if large else (4, 64)
    return {
        "resnet18": Case(lambda: vision("resnet18"), lambda: images(*pixels)),
        "gpt": Case(lambda: Gpt(*gpt), lambda: (torch.randint(8192, tokens),), adam=True),
        "gpt-bf16": Case(lambda: Gpt(*gpt), lambda: (torch.randint(8192, tokens),), adam=True, autocast=True),
        "u-net": Case(
            lambda: UNet(*(() if large else (8,))), lambda: images(8 if large else 2, 128 if large else 32)
        ),
        "lstm": Case(
            lambda: Recurrent(512 if large else 32),
            lambda: (torch.randn(64, 128 if large else 16, 512 if large else 32), torch.randint(10, (64,))),
            adam=True,
        ),
    }


# One training


class Training:
    """A model with its optimizer and its batch on a device; each call is a step."""

    def __init__(self, case: Case, device: torch.device) -> None:
        torch.manual_seed(0)
        self.case, self.device = case, device
        self.model = case.make().to(device)
        parameters = self.model.parameters()
        self.optimizer = (
            torch.optim.AdamW(parameters, lr=1e-4)
            if case.adam
            else torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
        )
        self.batch = tuple(tensor.to(device) for tensor in case.batch())
        torch.manual_seed(1)

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.case.autocast):
            loss = self.case.loss(self.model, *self.batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def digest(self, losses: list[torch.Tensor]) -> str:
        """Of the bits of `losses`, gradients, parameters, buffers and optimizer state."""
        known = hashlib.blake2b()
        states = (value for state in self.optimizer.state.values() for value in state.values())
        gradients = (p.grad for p in self.model.parameters() if p.grad is not None)
        for tensor in [*losses, *self.model.state_dict().values(), *gradients, *states]:
            flat = torch.as_tensor(tensor).detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            known.update(flat.numpy().tobytes())
        return known.hexdigest()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else live_bytes(device)


def requested(device: torch.device) -> dict[str, int]:
    """Bytes as the allocator was asked for them, before it rounds to its blocks, and as it keeps them."""
    if device.type != "cuda":
        return {}
    stats = torch.cuda.memory_stats(device)
    return {name: stats[f"{name}.all.peak"] for name in ("requested_bytes", "reserved_bytes")}


def clear(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def timed(
    training: Training, step: Callable[[], torch.Tensor], steps: int, losses: list[torch.Tensor]
) -> dict[str, Any]:
    """Takes `steps`: time of each, and the most bytes at a time by PyTorch's own count.

    A step that reaches a list which grows is not replayed, so `losses` are not the training's.
    """
    device, times = training.device, []
    watched = device.type == "cuda" or not isinstance(step, memfit.torch.Fitted)
    meter = memfit.torch.Meter(device)
    with meter if watched else contextlib.nullcontext():
        for _ in range(steps):
            synchronize(device)
            began = time.perf_counter()
            losses.append(step())
            synchronize(device)
            times.append(time.perf_counter() - began)
    return {
        "peak_bytes": meter.peak_bytes,
        **requested(device),
        "first_seconds": times[0],
        "step_seconds": statistics.median(times[len(times) // 2 :]),
    }


def plain(case: Case, device: torch.device, steps: int) -> tuple[dict[str, Any], str]:
    clear(device)
    training = Training(case, device)
    losses: list[torch.Tensor] = []
    told = timed(training, training.step, steps, losses)
    # What outlives a step, and what it takes at its peak beside that.
    told["persistent_bytes"] = allocated(device)
    return told, training.digest(losses)


def within(
    case: Case, device: torch.device, steps: int, budget: int, kind: str, **means: Any
) -> tuple[dict[str, Any], str | None]:
    """The same training by `kind` of memfit; no digest where the budget is refused."""
    clear(device)
    training = Training(case, device)
    told: dict[str, Any] = {}
    losses: list[torch.Tensor] = []
    try:
        if kind in ("fit", "replay"):
            if kind == "replay":
                means = {"plan_seconds": 8.0, **means}
            fitted = memfit.torch.fit(training.step, budget, replay=kind == "replay", **means)
            with contextlib.closing(fitted):
                told = timed(training, fitted, steps, losses)
                report = fitted.report
                if device.type == "cpu":
                    # Scratch memory can't be measured while a meter counts.
                    told["peak_bytes"] = report.measured_peak_bytes
                told |= {
                    "guided": report.guided,
                    "identical": report.identical,
                    "recomputed_ops": report.recomputed_ops,
                    "moved_bytes": report.moved_bytes,
                    "predicted_seconds": (report.predicted_recompute_seconds or 0.0),
                    "stall_seconds": report.stall_seconds,
                    "notes": report.notes,
                    "lost": [report.lost_copies, report.lost_why],
                    "evictions": fitted._budget._native.stats()["evictions"],
                    "replayed": [report.replayed, report.replay_why],
                    "encoded_bytes": report.encoded_bytes,
                    "losses": [float(loss) for loss in losses],
                }
        else:
            with Budget(budget, device=device, **means) as active:
                told = timed(training, training.step, steps, losses)
                told["recomputed_ops"] = active.stats["recomputed_ops"]
                told["moved_bytes"] = active.stats["stored_bytes"]
                told["counted_bytes"] = active.stats["peak_bytes"]
    except BudgetError as error:
        return {"refused": str(error)[:400], "least_budget_bytes": error.least_budget_bytes}, None
    return told, training.digest(losses)


def compared(
    case: Case, device: torch.device, budget: int, kind: str, bits: str, base: dict[str, Any], **means: Any
) -> dict[str, Any]:
    told, digest = within(case, device, base["steps"], budget, kind, **means)
    row = {"kind": kind, "budget_bytes": budget, "means": {k: str(v) for k, v in means.items()}, **told}
    if digest is not None:
        row["same_bits"] = digest == bits
        row["within_budget"] = told["peak_bytes"] <= budget
        row["times"] = told["step_seconds"] / base["step_seconds"]
    return row


Rows = Iterator[dict[str, Any]]


def models(device: torch.device, large: bool) -> Rows:
    """Each model plainly, twice, then within half of what its step takes and with room to spare."""
    for name, case in cases(large).items():
        steps = 8
        _, bits = plain(case, device, steps)
        again, other = plain(case, device, steps)
        base = {**again, "steps": steps, "repeats": bits == other}
        yield {"model": name, "kind": "plain", **base}
        least = again["persistent_bytes"]
        for share, kinds in ((0.5, ("enable", "fit", "replay")), (2.0, ("enable", "replay"))):
            budget = least + int(share * (again["peak_bytes"] - least))
            for kind in kinds:
                yield {"model": name, "share": share, **compared(case, device, budget, kind, bits, base)}


def steps(large: bool) -> int:
    """Of a training; a plan is made after the third at the latest."""
    return 8 if large or ALL else 5


def swap(device: torch.device, large: bool) -> Rows:
    """Only moving values: nothing is computed again; and `auto` with a link."""
    for name in ("gpt", "resnet18") if large or ALL else ("gpt",):
        case = cases(large)[name]
        base, bits = plain(case, device, steps(large))
        base["steps"] = steps(large)
        yield {"model": name, "kind": "plain", **base}
        least = base["persistent_bytes"]
        budget = least + int(0.5 * (base["peak_bytes"] - least))
        host = (16 * GIB) if large else (1 * GIB)
        for kind, means in (
            ("enable", {"host_budget": host, "recompute": False}),
            ("fit", {"host_budget": host, "recompute": False}),
            ("fit", {"host_budget": host, "plan_seconds": 10.0}),
        ):
            yield {"model": name, **compared(case, device, budget, kind, bits, base, **means)}


def gpt(device: torch.device, large: bool) -> Rows:
    """A GPT at half of its memory, peak against peak."""
    case = (
        Case(lambda: Gpt(12, 768, 1024), lambda: (torch.randint(8192, (24, 1024)),), True, True)
        if large
        else cases(large)["gpt"]
    )
    base, bits = plain(case, device, steps(large))
    base["steps"] = steps(large)
    yield {"model": "gpt", "kind": "plain", **base}
    host = {"host_budget": 32 * GIB if large else GIB, "plan_seconds": 10.0}
    for kind, means in (("enable", {}), ("fit", {}), ("replay", {}), ("fit", host)):
        yield {"model": "gpt", **compared(case, device, base["peak_bytes"] // 2, kind, bits, base, **means)}


def resnet50(device: torch.device, large: bool) -> Rows:
    """The largest batch of ResNet-50 in a memory, and three times that by recomputation."""
    size = 224 if large else 64

    def at(batch: int) -> Case:
        return Case(lambda: vision("resnet50"), lambda: images(batch, size))

    low, high = (32, 64) if large else (2, 4)
    peaks = [plain(at(batch), device, 2)[0]["peak_bytes"] for batch in (low, high)]
    each = (peaks[1] - peaks[0]) / (high - low)
    memory = (8 * GIB) if large else int(peaks[1] + each)
    most = int((memory - peaks[0]) / each) + low
    base, _ = plain(at(most), device, 4)
    yield {"model": "resnet50", "kind": "plain", "batch": most, "memory_bytes": memory, **base}
    for factor, kind in ((2, "enable"), (2, "replay"), (3, "enable"), (3, "fit"), (3, "replay")):
        told, _ = within(at(factor * most), device, 8, memory, kind)
        told |= {"model": "resnet50", "kind": kind, "batch": factor * most, "memory_bytes": memory}
        if "step_seconds" in told:
            told["within_budget"] = told["peak_bytes"] <= memory
            told["times_per_image"] = told["step_seconds"] / factor / base["step_seconds"]
        yield told


def codecs(device: torch.device, large: bool) -> Rows:
    """Values that wait in fewer bits: how fast and how near, and in a training."""
    from memfit.torch import _coded, _glue

    _glue.track(device)
    value = torch.linspace(0, 1, 16 << 20 if large else 1 << 12, device=device)
    for name in _coded.CODERS:
        coded = _coded.Coded()
        rates = coded.rates(name)
        number = coded.store(value.untyped_storage(), name, 1)
        coded.load(number)
        made = coded.wait(number)
        assert made is not None
        back = _glue.window(made, torch.float32, 0, value.shape, (1,))
        yield {
            "codec": name,
            "bytes_per_second": rates,
            "share": coded.taken(number) / value.untyped_storage().nbytes(),
            "largest_difference": float((back - value).abs().max()),
        }
    case = cases(large)["resnet18"]
    base, bits = plain(case, device, 8)
    base["steps"] = 8
    yield {"model": "resnet18", "kind": "plain", **base}
    least = base["persistent_bytes"]
    share = 0.8
    budget = least + int(share * (base["peak_bytes"] - least))
    row = compared(case, device, budget, "fit", bits, base, lossless=["binarize"])
    yield {"model": "resnet18", "share": share, **row}
    for codec in ("cast-bf16", "int8", "int8+mask"):
        row = compared(case, device, budget, "fit", bits, base, lossy=[codec], strategy="compress:best")
        row.pop("same_bits", None)
        yield {"model": "resnet18", "share": share, **row}


def compiled(device: torch.device, large: bool) -> Rows:
    """`torch.compile` with PyTorch's partitioner, and with memfit's at less memory."""
    import torch._inductor.config as inductor

    case = cases(large)["gpt-bf16" if large else "gpt"]

    def measured(partitioner: Any) -> tuple[dict[str, Any], list[torch.Tensor]]:
        clear(device)
        torch._dynamo.reset()
        training = Training(case, device)
        with inductor.patch(custom_partitioner_fn=partitioner, fallback_random=True):
            training.model = torch.compile(training.model)
            # While it is compiled, kernels are tried.
            losses = [training.step()]
            return timed(training, training.step, 6, losses), losses

    base, expected = measured(None)
    yield {"model": "gpt-bf16", "kind": "compiled", **base}
    for budget in ("100%", "80%", "60%"):
        partitioner = memfit.torch.partition(budget=budget)
        try:
            row, losses = measured(partitioner)
        except Exception as error:
            yield {"model": "gpt-bf16", "kind": "partition", "budget": budget, "refused": str(error)[-400:]}
            continue
        row["budgets"] = [region.budget_bytes for region in partitioner.regions]
        row["largest_difference"] = max(float((a - b).abs()) for a, b in zip(expected, losses, strict=True))
        yield {"model": "gpt-bf16", "kind": "partition", "budget": budget, **row}


def doubts(device: torch.device, large: bool) -> Rows:
    """Ops that may choose another algorithm, or add in another order, when they are called again."""
    size = 56 if large else 8

    def conv(dtype: torch.dtype, kernel: int, groups: int = 1) -> Callable[[], list[torch.Tensor]]:
        x = torch.randn(32, 64, size, size, device=device, dtype=dtype)
        w = torch.randn(64, 64 // groups, kernel, kernel, device=device, dtype=dtype)
        return lambda: [F.conv2d(x, w, padding=kernel // 2, groups=groups)]

    def conv_backward(dtype: torch.dtype, kernel: int) -> Callable[[], list[torch.Tensor]]:
        x = torch.randn(32, 64, size, size, device=device, dtype=dtype, requires_grad=True)
        w = torch.randn(64, 64, kernel, kernel, device=device, dtype=dtype, requires_grad=True)
        return lambda: list(torch.autograd.grad(F.conv2d(x, w, padding=kernel // 2).sum(), (x, w)))

    def attention(dtype: torch.dtype, backward: bool) -> Callable[[], list[torch.Tensor]]:
        q, k, v = (
            torch.randn(4, 8, 4 * size, 64, device=device, dtype=dtype, requires_grad=backward) for _ in "qkv"
        )

        def call() -> list[torch.Tensor]:
            made = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return list(torch.autograd.grad(made.sum(), (q, k, v))) if backward else [made]

        return call

    def embedding() -> list[torch.Tensor]:
        torch.manual_seed(3)
        words = torch.randint(50, (20_000,), device=device)
        table = torch.ones(50, 32, device=device, requires_grad=True)
        return list(torch.autograd.grad(F.embedding(words, table).sin().sum(), table))

    def pooled() -> list[torch.Tensor]:
        torch.manual_seed(3)
        x = torch.randn(8, 32, size, size, device=device, requires_grad=True)
        return list(torch.autograd.grad(F.max_pool2d(x, 3, 2, 1).sin().sum(), x))

    float16, bfloat16, float32 = torch.float16, torch.bfloat16, torch.float32
    calls = {
        **{f"conv {dtype} {k}": conv(dtype, k) for dtype in (float32, bfloat16, float16) for k in (1, 3, 5)},
        "conv depthwise": conv(float32, 3, 64),
        **{f"conv backward {dtype}": conv_backward(dtype, 3) for dtype in (float32, bfloat16)},
        **{f"attention {dtype}": attention(dtype, False) for dtype in (float32, bfloat16)},
        **{f"attention backward {dtype}": attention(dtype, True) for dtype in (float32, bfloat16)},
        "embedding backward": embedding,
        "max pool backward": pooled,
    }
    flags = torch.backends.cudnn
    for mode in ("default", "benchmark", "deterministic", "strict"):
        flags.deterministic, flags.benchmark = mode in ("deterministic", "strict"), mode == "benchmark"
        torch.use_deterministic_algorithms(mode == "strict")
        same = {}
        for name, call in calls.items():
            try:
                first = call()
                same[name] = all(all(map(torch.equal, first, call())) for _ in range(10))
            except RuntimeError as error:
                same[name] = str(error)[:80]
        yield {"kind": f"called again, {mode}", "differ": [name for name in same if same[name] is not True]}
    settle()


def burn(device: torch.device, large: bool) -> Rows:
    """Burn's networks by `memfit run`, beside the same within memfit without a limit."""
    if MEMFIT is None:
        return
    for name in ("resnet18", "gpt", "lstm") if large else ("gpt",):
        backend = "cuda" if device.type == "cuda" else "cpu"
        asked = [MEMFIT, "run", name, "--backend", backend, "--budget", "60%", "--steps", "5", "--json"]
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=200)
        told = json.loads(ran.stdout)
        row = {key: told.get(key) for key in ("status", "budget_bytes", "peak_bytes", "recomputes", "losses")}
        yield {
            "model": name,
            "kind": "burn",
            **row,
            "same_bits": told.get("identical"),
            "exit": ran.returncode,
        }


def settle() -> None:
    """The switches under which results are the same bits each time."""
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.use_deterministic_algorithms(True, warn_only=False)


def graphs(device: torch.device, large: bool) -> Rows:
    """A CUDA graph that is captured while a budget holds: refused, or right."""
    if device.type != "cuda":
        return
    x = torch.randn(512, 512, device=device)
    for _ in range(3):
        expected = (x @ x).relu().sum(0)
    with Budget(8 * GIB, device=device):
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made = (x @ x).relu().sum(0)
            graph.replay()
            synchronize(device)
            outcome = "right" if torch.equal(made, expected) else "wrong"
        except Exception as error:
            outcome = f"refused: {type(error).__name__}: {str(error)[:200]}"
    yield {"kind": "cuda graph", "outcome": outcome}


SLICES: dict[str, Callable[[torch.device, bool], Rows]] = {
    "models": models,
    "swap": swap,
    "gpt": gpt,
    "resnet50": resnet50,
    "codecs": codecs,
    "compiled": compiled,
    "graphs": graphs,
    "doubts": doubts,
    "burn": burn,
}


def about(device: torch.device) -> dict[str, Any]:
    """What was measured on."""
    cuda = device.type == "cuda"
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "memory_bytes": torch.cuda.get_device_properties(device).total_memory if cuda else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--slices", default=",".join(SLICES))
    parser.add_argument("--out")
    parser.add_argument("--memfit", help="the command, for the slice `burn`")
    options = parser.parse_args()
    global MEMFIT
    MEMFIT = options.memfit
    device = torch.device(options.device)
    settle()
    if device.type == "cpu":
        torch.set_num_threads(1)
    record: dict[str, Any] = {"about": about(device), "rows": []}
    faults = 0

    def take(row: dict[str, Any]) -> None:
        # A slice may be ended from outside: what there is so far is written down.
        record["rows"].append(row)
        if options.out:
            with open(options.out, "w") as file:
                json.dump(record, file, indent=1)

    for name in options.slices.split(","):
        began = time.perf_counter()
        try:
            for row in SLICES[name](device, device.type == "cuda"):
                row = {"slice": name, **row}
                take(row)
                print(json.dumps(row), flush=True)
                faults += row.get("same_bits") is False or row.get("within_budget") is False
        except Exception:
            faults += 1
            row = {"slice": name, "error": traceback.format_exc()[-2000:]}
            take(row)
            print(json.dumps(row), flush=True)
        take({"slice": name, "seconds": time.perf_counter() - began})
    print(f"{len(record['rows'])} rows, {faults} faults", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
