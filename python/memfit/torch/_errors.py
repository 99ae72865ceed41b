"""Errors of the PyTorch face."""

from typing import Any

import memfit

BudgetError = getattr(memfit, "BudgetError", None)
if BudgetError is None:

    class BudgetError(RuntimeError):
        pass


def budget_error(told: dict[str, Any]) -> Exception:
    error = BudgetError(told["message"])
    for name, value in told.items():
        setattr(error, name, value)
    return error
