"""memfit where training loops are somebody else's: one module for each tool.

| module | tool | |
|---|---|---|
| `transformers` | Hugging Face `Trainer` | `Trainer(..., callbacks=[MemfitCallback("8GiB")])` |
| `accelerate` | Hugging Face Accelerate | `with budget(accelerator, "8GiB") as within:` |
| `lightning` | Lightning | `Trainer(callbacks=[MemfitCallback("8GiB")])` |
| `torchtitan` | torchtitan's `graph_trainer` | `register("60GiB")`, `memory_policy = "memfit"` |

A module is imported on first use, and its tool with it. The first three take what `memfit.torch.Budget`
takes, and the options of `Loop`, and log the same four numbers: see `Loop.metrics`.
"""

import importlib
from typing import Any

TOOLS = ("accelerate", "lightning", "torchtitan", "transformers")
"""Modules of this package, each named as its tool."""


def __getattr__(name: str) -> Any:
    if name in TOOLS:
        return importlib.import_module(f".{name}", __name__)
    if name == "Loop":
        return importlib.import_module("._loop", __name__).Loop
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *TOOLS, "Loop"})
