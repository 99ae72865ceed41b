"""Writes one training or inference step of a PyTorch model as a graph: `export`, and a command.

```console
$ python -m memfit.torch.export resnet50 --batch 32 --optimizer momentum -o resnet50.json.zst
$ python -m memfit.torch.export my_models:small -o small.json  # your own function
```

Nothing is computed and no tensor is allocated: see `_trace`. Ops are those of the device the model is on; the
command traces on the CPU.
"""

import importlib
import pathlib
import sys
import types
from typing import Any

import torch

from . import _ends, _graph, _trace, _update
from ._graph import ExportError, Graph


def capture(
    model: torch.nn.Module,
    sample_inputs: Any,
    loss_fn: _trace.Loss | None = None,
    optimizer: str | None = None,
    *,
    name: str | None = None,
    origin: str | None = None,
) -> Graph:
    """As `export`, but returns the graph and writes nothing."""
    if not isinstance(model, torch.nn.Module):
        raise ExportError(f"`model` is a `{type(model).__name__}`, not a `torch.nn.Module`")
    _update.check_optimizer(optimizer)
    if optimizer is not None and loss_fn is None:
        raise ExportError(
            f"optimizer `{optimizer}` needs gradients, and there is no `loss_fn`\nhint: pass both, or none"
        )
    traced = _trace.trace(model, sample_inputs, loss_fn)
    origin = origin or f"memfit.torch.export, optimizer={optimizer!r} ({versions()})"
    return _ends.lower(traced, name or type(model).__name__, origin, optimizer)


def export(
    model: torch.nn.Module,
    sample_inputs: Any,
    loss_fn: _trace.Loss | None = None,
    optimizer: str | None = None,
    path: str | pathlib.Path = "graph.json",
    *,
    name: str | None = None,
    origin: str | None = None,
) -> Graph:
    """Writes one step of `model` to `path` as `memfit-graph/1`, and returns the graph.

    `sample_inputs` are the tensors of one batch: a tuple, a dictionary of keyword arguments, or one tensor.
    `loss_fn(model, *sample_inputs)` (or `**`) returns the loss, or a tuple of the loss and further outputs;
    without it, the graph is the forward pass without gradients. `optimizer` is `sgd`, `momentum`, `adamw`, or
    `None`: then the gradients are results. `path` ends in `.json`, or in `.json.zst`, which needs Python 3.14
    or the package `zstandard`.

    The model may be real, on the `meta` device, or made under a `FakeTensorMode`; nothing is computed.
    Whether it is in training mode is up to you (`model.train()`). Raises `ExportError`.
    """
    _graph.check_path(path)
    graph = capture(model, sample_inputs, loss_fn, optimizer, name=name, origin=origin)
    graph.write(path)
    return graph


def versions(*packages: str) -> str:
    """`torch 2.15.0`, and those of other packages; without build suffixes."""
    loaded = [importlib.import_module(package) for package in ("torch", *packages)]
    return ", ".join(f"{module.__name__} {str(module.__version__).split('+')[0]}" for module in loaded)


class _CallableModule(types.ModuleType):
    """`memfit.torch.export` names this module and its function: importing either leaves both usable."""

    def __call__(self, *args: Any, **kwargs: Any) -> Graph:
        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule


def main(argv: list[str] | None = None) -> int:
    """The command. Returns its exit code."""
    from ._command import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
