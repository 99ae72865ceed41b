"""Compressed checkpoints for PyTorch: any nested state, to the last bit or within a bound, whole or as a
difference.

```python
import memfit.checkpoint as checkpoint

state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}
checkpoint.save(state, "7.mfc")                          # lossless
checkpoint.save(later, "8.mfc", base="7.mfc")            # what changed, lossless
state = checkpoint.load("8.mfc", base="7.mfc")           # the same bits, types and keys

checkpoint.save(later, "9.mfc", base=state, codec="delta-dnn", bound=1e-5)   # f32 within 1e-5
```

No pickle: loading runs no code. A file is replaced whole or not at all, and a damaged one is refused by the
name of the tensor. docs/checkpoints.md has the codecs, what they save, and the format. Needs your own
PyTorch.
"""

import importlib
from typing import Any

_HOMES = {
    **dict.fromkeys(("Saved", "load", "save"), "._files"),
    **dict.fromkeys(("kmeans", "prune"), "._smaller"),
    **dict.fromkeys(("DeepSZ", "deepsz"), "._deepsz"),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `memfit.checkpoint` has no attribute `{name}`")
    return getattr(importlib.import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = sorted(_HOMES)
