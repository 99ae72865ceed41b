"""memfit for PyTorch: any training loop within a budget of bytes, with the same bits as without.

```python
import memfit.torch

memfit.torch.enable(budget="8GiB")                     # every op from here on, any model
step = memfit.torch.fit(train_step, budget="8GiB")     # or: record a step, plan it, follow the plan
config.custom_partitioner_fn = memfit.torch.partition(budget="60%")    # or: for torch.compile
memfit.torch.export(model, batch, loss, path="model.json.zst")    # or: look at the step first
```

docs/pytorch.md says what is guaranteed and where the limits are.
"""

import importlib
from typing import Any

OLDEST_TORCH = (2, 11)
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


# Imported on first use: `python -m memfit.torch.export` must not load its module twice, and `export` needs no
# engine.
_HOMES = {
    "export": ".export",
    **dict.fromkeys(("Budget", "disable", "drop", "enable", "is_enabled", "is_resident"), ".eager"),
    **dict.fromkeys(("pin", "restore", "swap_in", "swap_out", "unpin"), ".eager"),
    **dict.fromkeys(("Fitted", "Floor", "Report", "fit", "floor"), "._fit"),
    **dict.fromkeys(("Partition", "Region", "partition"), "._partition"),
    **dict.fromkeys(("Policy", "policy"), "._policy"),
    **dict.fromkeys(("Prediction", "predict"), "._predict"),
    "quantise_state": "._quantised",
    "integrations": ".integrations",
    "Meter": ".meter",
    "SlowWarning": "._slow",
    "explain": "memfit",
    "BudgetError": "memfit",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `memfit.torch` has no attribute `{name}`")
    module = importlib.import_module(home, __name__)
    return module if name in ("export", "integrations") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = ["OLDEST_TORCH", *sorted(_HOMES)]
