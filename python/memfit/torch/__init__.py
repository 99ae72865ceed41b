"""memfit for PyTorch: `memfit.torch.export` writes a model's training step as a graph memfit can plan.

```python
import memfit.torch

def loss(model, images, labels):
    return torch.nn.functional.cross_entropy(model(images), labels)

memfit.torch.export(model, (images, labels), loss, optimizer="adamw", path="model.json.zst")
```
"""

import importlib
from typing import Any

OLDEST_TORCH = (2, 14)
"""Oldest torch that is supported: (major, minor)."""


def _check_torch() -> None:
    oldest = ".".join(map(str, OLDEST_TORCH))
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(
            f"`memfit.torch` needs PyTorch {oldest} or newer, and there is none\nhint: `pip install torch`"
        ) from error
    version = str(torch.__version__)
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if found < OLDEST_TORCH:
        raise ImportError(
            f"`memfit.torch` needs PyTorch {oldest} or newer, but `{version}` is installed\n"
            "hint: `pip install --upgrade torch`"
        )


_check_torch()


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `python -m memfit.torch.export` does not load its module twice.
    if name == "export":
        return importlib.import_module(".export", __name__)
    raise AttributeError(f"module `memfit.torch` has no attribute `{name}`")


__all__ = ["OLDEST_TORCH", "export"]
