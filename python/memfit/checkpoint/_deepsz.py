"""DeepSZ: error bounds for the linear layers of a model, chosen for size within a loss of accuracy.

Source: Jin et al., "DeepSZ: A Novel Framework to Compress Deep Neural Networks by Using Error-Bounded Lossy
Compression" (HPDC 2019). Each layer is tested alone with each bound; the loss of several is taken for the
sum of theirs, a dynamic programme picks a bound for each layer, and the result is tested as a whole. Where
the sum was too kind, less is allowed and it picks again.
"""

import copy
import dataclasses
from collections.abc import Sequence

import torch
from torch import nn

from memfit import _memfit
from memfit._errors import BudgetError, UsageError
from memfit.checkpoint._smaller import Accuracy, zero_smallest
from memfit.checkpoint._tree import bytes_of, tensor_of

PARTS = 1000
"""Steps in which the dynamic programme counts losses."""
TRIES = 10
"""How often it picks again."""


@dataclasses.dataclass(frozen=True)
class DeepSZ:
    """What was chosen."""

    model: nn.Module
    """The model with the weights that will be loaded."""
    bounds: dict[str, float]
    """An absolute error bound for each weight, by its name in `state_dict()`: `save`'s `bounds`."""
    before: float
    """Accuracy of the model as it was."""
    after: float
    """That of the new one."""
    bytes: int
    """Bytes of the weights that have a bound."""
    plain_bytes: int
    """Bytes that they had."""

    @property
    def ratio(self) -> float:
        """Bytes before for each byte after, of the weights that have a bound."""
        return self.plain_bytes / max(self.bytes, 1)


def deepsz(
    model: nn.Module,
    accuracy: Accuracy,
    budget: float,
    *,
    share: float = 0.9,
    bounds: Sequence[float] = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
) -> DeepSZ:
    """Prunes the weights of the linear layers of a copy of `model`, and finds the coarsest error bounds for
    what is left.

    `accuracy` says how good a model is; the new one loses at most `budget` of that, pruning included.
    `share` of each weight is pruned, the smallest first; 0 for a model that is pruned (and trained on)
    already. `bounds` are candidates, relative to the largest weight of a layer. Calls `accuracy` once for
    each layer and bound, and a few times more.

    ```python
    found = checkpoint.deepsz(model, accuracy, budget=0.003)
    checkpoint.save(found.model.state_dict(), "small.mfc", codec="deepsz", bounds=found.bounds)
    ```

    Raises `BudgetError` if pruning alone costs more than the budget.
    """
    if not 0 <= share < 1 or not budget >= 0 or not bounds or not all(bound > 0 for bound in bounds):
        raise UsageError("`share` is from 0 to below 1, `budget` at least 0, and `bounds` are above 0")
    before = float(accuracy(model))
    pruned = copy.deepcopy(model)
    with torch.no_grad():
        weights = {
            f"{name}.weight" if name else "weight": layer.weight
            for name, layer in pruned.named_modules()
            if isinstance(layer, nn.Linear) and layer.weight.dtype == torch.float32
        }
        for weight in weights.values():
            zero_smallest(weight, share)
    start = float(accuracy(pruned))
    if before - start > budget:
        raise BudgetError(
            f"pruning {share:.0%} alone costs {before - start:.4f} of accuracy, more than {budget:.4f}",
            hint="a smaller `share`, or a model that was pruned and trained on, with `share=0`",
        )
    kept = {name: weight.detach().clone() for name, weight in weights.items()}
    options = {name: _options(kept[name], bounds) for name in kept}
    losses = {}
    for name, rows in options.items():
        for at, (_, _, values) in enumerate(rows):
            weights[name].data.copy_(values)
            losses[name, at] = max(start - float(accuracy(pruned)), 0.0)
            weights[name].data.copy_(kept[name])
    left = budget - max(before - start, 0.0)
    for _ in range(TRIES):
        picked = _pick(options, losses, left)
        for name, at in picked.items():
            weights[name].data.copy_(options[name][at][2])
        after = float(accuracy(pruned))
        if before - after <= budget:
            chosen = {name: options[name][at] for name, at in picked.items()}
            return DeepSZ(
                pruned,
                {name: bound for name, (bound, _, _) in chosen.items()},
                before,
                after,
                sum(size for _, size, _ in chosen.values()),
                sum(4 * kept[name].numel() for name in chosen),
            )
        for name, weight in weights.items():
            weight.data.copy_(kept[name])
        left = left / 2 if left > 1e-12 else -1.0
    return DeepSZ(pruned, {}, before, start, 0, 0)


def _options(weight: torch.Tensor, bounds: Sequence[float]) -> list[tuple[float, int, torch.Tensor]]:
    """For each bound: itself, absolute; the bytes of what is not zero, and of a mask; what becomes of all."""
    data, largest = bytes_of(weight), float(weight.abs().max()) if weight.numel() else 0.0
    filled = bytes_of(weight[weight != 0])
    mask = (weight.numel() + 7) // 8
    options = []
    for bound in bounds:
        absolute = bound * largest
        if absolute <= 0:
            continue
        size, _ = _memfit.checkpoint_within(filled, absolute)
        _, values = _memfit.checkpoint_within(data, absolute)
        options.append(
            (absolute, size + mask, tensor_of(values, torch.float32, list(weight.shape)).to(weight.device))
        )
    return options


def _pick(
    options: dict[str, list[tuple[float, int, torch.Tensor]]],
    losses: dict[tuple[str, int], float],
    budget: float,
) -> dict[str, int]:
    """A bound for each layer, or none: the fewest bytes for which losses add up to at most `budget`."""
    if budget < 0:
        return {}
    best: dict[int, tuple[int, dict[str, int]]] = {0: (0, {})}
    for name, rows in options.items():
        plain = 4 * rows[0][2].numel() if rows else 0
        following: dict[int, tuple[int, dict[str, int]]] = {}
        for spent, (size, picked) in best.items():
            for at, row in enumerate([*rows, None]):
                loss = 0.0 if row is None else losses[name, at]
                # Rounded up, so that the sum is not too kind.
                steps = 0 if loss == 0 else PARTS + 1 if budget == 0 else -int(-loss / budget * PARTS // 1)
                total = spent + steps
                if total > PARTS:
                    continue
                whole = size + (plain if row is None else row[1])
                if total not in following or whole < following[total][0]:
                    following[total] = (whole, picked if row is None else {**picked, name: at})
        best = following
    return min(best.values(), key=lambda found: found[0])[1]
