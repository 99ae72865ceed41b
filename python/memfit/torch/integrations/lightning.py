"""Lightning within a budget of bytes, by either of its names: `lightning` or `pytorch_lightning`.

```python
from memfit.torch.integrations.lightning import MemfitCallback

Trainer(callbacks=[MemfitCallback("8GiB")]).fit(model, loader)
```

The budget is active from the sanity check, or else from the start of training, to `on_fit_end`: every op of
`training_step`, backward, the optimizer, validation and checkpoints keeps to it. A step lasts from
`on_train_batch_start` to `on_train_batch_end`.
"""

from typing import TYPE_CHECKING, Any

from memfit.torch.integrations._loop import Loop

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class MemfitCallback(Callback):
    """Keeps `trainer.fit` to `budget`.

    `budget` is a number of bytes, a size such as `"8GiB"`, or a share of the device's memory such as `"80%"`;
    options are those of `Loop`. What is loaded before the budget begins, a checkpoint say, counts, but its
    loading is not held to the budget. `memfit/peak_bytes` and so on (see `Loop.metrics`) go to the trainer's
    loggers, every `log_every_n_steps`.

    `trainer.fit` raises `memfit.BudgetError` where the budget is too small. However it ends, the budget ends
    with it, and the model is as the trainer left it. `callback.loop` is the `Loop`.
    """

    def __init__(self, budget: int | float | str, **options: Any) -> None:
        super().__init__()
        self.loop = Loop(budget, **options)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """The budget begins."""
        self.loop.begin()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The budget begins, unless it has."""
        if not self.loop.is_on:
            self.loop.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A step begins."""
        self.loop.step_begins()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A step ends, and is logged if it is time to."""
        self.loop.step_ends()
        if trainer._logger_connector.should_update_logs:
            metrics = self.loop.metrics()
            for logger in trainer.loggers:
                logger.log_metrics(metrics, step=trainer.fit_loop.epoch_loop._batches_that_stepped)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """The budget ends."""
        self.loop.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The budget ends, in mid-step."""
        self.loop.end(type(exception), exception, exception.__traceback__)
