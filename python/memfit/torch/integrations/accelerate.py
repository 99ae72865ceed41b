"""Hugging Face Accelerate within a budget of bytes.

```python
from memfit.torch.integrations.accelerate import budget

with budget(accelerator, "8GiB") as within:
    for batch in within.steps(loader):
        ...
```

Accelerate leaves the loop to its user, so there is nothing to hook in but a block around it. Within the block
every op keeps to the budget, whatever calls it: the model, `accelerator.backward`, the optimizer, evaluation,
`save_state`. `steps` says where a step begins and ends, so that steps are planned; a loop without it is
decided op by op.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import accelerate

from memfit.torch.integrations._loop import Loop

Batch = TypeVar("Batch")


def budget(accelerator: accelerate.Accelerator, budget: int | float | str, **options: Any) -> "Within":
    """A block in which all that `accelerator` trains keeps to `budget`; see `Within`."""
    return Within(accelerator, budget, **options)


class Within:
    """A block within `budget` bytes of the accelerator's device.

    `budget` is a number of bytes, a size such as `"8GiB"`, or a share of the device's memory such as `"80%"`;
    options are those of `Loop`. What is prepared or loaded before the block counts in it. In the block
    `accelerator.log` adds `memfit/peak_bytes` and so on (see `Loop.metrics`) to what goes to the trackers.

    Raises `memfit.BudgetError` where the budget is too small. However the block ends, the budget ends with
    it, and all tensors have their bytes. `loop` is the `Loop`.
    """

    def __init__(
        self, accelerator: accelerate.Accelerator, budget: int | float | str, **options: Any
    ) -> None:
        self.accelerator = accelerator
        self.loop = Loop(budget, **{"device": accelerator.device.type, **options})

    def __enter__(self) -> "Within":
        self.loop.begin()
        log = self.accelerator.log

        def with_metrics(values: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            return log({**values, **self.loop.metrics()}, *args, **kwargs)

        self.accelerator.log = with_metrics
        return self

    def __exit__(self, *raised: Any) -> None:
        del self.accelerator.log
        self.loop.end(*raised)

    def steps(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, each the beginning of a step that lasts until the next one is asked for.

        Micro-batches of an update are steps of their own; each gets its own plan.
        """
        for batch in batches:
            self.loop.step_begins()
            yield batch
            del batch
            self.loop.step_ends()
