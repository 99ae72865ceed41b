"""Hugging Face `Trainer` within a budget of bytes.

```python
from memfit.torch.integrations.transformers import MemfitCallback

Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[MemfitCallback("8GiB")]).train()
```

What is wrapped: the budget is active from the trainer's `on_train_begin` to its `on_train_end`, and its steps
are those from `on_step_begin` to `on_step_end`: all micro-batches of an update, the clipping of gradients,
the optimizer and the scheduler. `memfit.torch.fit` on `training_step` would have been the other way. It
would have left out the optimizer, evaluation and checkpoints, which allocate too, so the limit would not
hold for them; and it would have made a step of each micro-batch, in which gradients of an earlier one lie.
A budget over the whole loop calls nothing in another order than the trainer does and runs nothing twice of
its own accord, so losses and parameters are the same bits.
"""

import functools
from typing import Any

import transformers

from memfit.torch.integrations._loop import Loop


class MemfitCallback(transformers.TrainerCallback):
    """Keeps training to `budget`: every step, evaluation and checkpoints between them.

    `budget` is a number of bytes, a size such as `"8GiB"`, or a share of the device's memory such as `"80%"`;
    options are those of `Loop`. What the trainer loads before the loop begins, model, optimizer and a
    checkpoint to resume from, counts, but its loading is not held to the budget. `memfit/peak_bytes` and so
    on (see `Loop.metrics`) are in whatever the trainer logs, and in `trainer.state.log_history`.

    `trainer.train` raises `memfit.BudgetError` where the budget is too small. However it ends, the budget
    ends with it, and the model is as the trainer left it. `callback.loop` is the `Loop`.
    """

    def __init__(self, budget: int | float | str, **options: Any) -> None:
        self.loop = Loop(budget, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The budget begins, or begins anew where the trainer tries again with a smaller batch."""
        self.loop.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The first micro-batch of an update is next."""
        self.loop.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The update is done, and gradients are gone."""
        self.loop.step_ends()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Adds what memfit did to what is logged."""
        metrics = self.loop.metrics()
        if logs is not None:
            logs.update(metrics)
        if state.log_history:
            state.log_history[-1].update(metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The budget ends."""
        self.loop.end()


def _ends_budgets(train: Any) -> Any:
    """A trainer tells its callbacks nothing of errors: `train` is wrapped, to end their budgets.

    Those come first among the callbacks, so that what they log reaches the others.
    """

    @functools.wraps(train)
    def within(self: transformers.Trainer, *args: Any, **kwargs: Any) -> Any:
        handler = self.callback_handler
        handler.callbacks.sort(key=lambda callback: not isinstance(callback, MemfitCallback))
        try:
            return train(self, *args, **kwargs)
        except BaseException as error:
            for callback in handler.callbacks:
                if isinstance(callback, MemfitCallback):
                    callback.loop.end(type(error), error, error.__traceback__)
            raise

    return within


transformers.Trainer.train = _ends_budgets(transformers.Trainer.train)  # type: ignore[method-assign]
