"""What memfit raises. Kinds are never mixed: the call, a file, the budget, a plan, and our own bugs."""

import json
from typing import Any


class Error(Exception):
    """Anything that memfit refuses. `hint` is the next step, if there is one."""

    hint: str | None
    rank: int | None
    """The rank that refused first, where ranks refuse together."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.rank = None

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\nhint: {self.hint}" if self.hint else message


class UsageError(Error, ValueError):
    """The call makes no sense: an unknown name, options that contradict each other."""


class InputError(Error, ValueError):
    """A file or object that was handed in can't be read; the message names the place in it."""


class BudgetError(Error):
    """The budget is too small, or the time limit was: then the message says so."""

    budget_bytes: int | None
    """The budget."""
    floor_bytes: int | None
    """No plan with these means fits below: persistent bytes plus the largest working set."""
    least_budget_bytes: int | None
    """The smallest budget that is known to be enough; a bound from below where `lower_bound` is true."""
    lower_bound: bool
    """Whether `least_budget_bytes` was not tried: less is not enough, and more may be needed."""
    proved: bool
    """Whether the budget is below the floor: then no strategy can help."""
    dominant: str | None
    """What forces the floor, as a name."""
    witness: dict[str, Any] | None
    """The op that forces the floor, with its operands."""
    slow: bool
    """Whether it ended because recomputation took too long: a budget of `least_budget_bytes` would hold all
    that the program held then, and less may do."""
    place: str | None
    """Where PyTorch ran out of it: the innermost line of the program."""
    largest: list[str]
    """The largest tensors that a program of PyTorch's held then: name, type, shape, bytes."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        budget_bytes: int | None = None,
        floor_bytes: int | None = None,
        least_budget_bytes: int | None = None,
        lower_bound: bool = False,
        proved: bool = False,
        dominant: str | None = None,
        witness: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.budget_bytes = budget_bytes
        self.floor_bytes = floor_bytes
        self.least_budget_bytes = least_budget_bytes
        self.lower_bound = lower_bound
        self.proved = proved
        self.dominant = dominant
        self.witness = witness
        self.slow, self.place, self.largest = False, None, []


class VerificationError(Error):
    """The verifier refuses a plan: do not run it."""

    violations: list[dict[str, Any]]
    """What is wrong with it: `rule`, `step` and `message` each."""

    def __init__(
        self, message: str, *, hint: str | None = None, violations: list[dict[str, Any]] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.violations = violations or []


class OtherGraphError(VerificationError):
    """The plan was made for another graph."""


class RankError(Error):
    """A rank is gone or late, or ranks don't have what they should share."""

    ranks: list[int]
    """Those that should have agreed."""

    def __init__(self, message: str, *, hint: str | None = None, ranks: list[int] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.ranks = ranks or []


class BugError(Error):
    """memfit's own plan is wrong. Please report it, with `replay`."""

    replay: str
    """Graph, limits and plan in text form."""

    def __init__(self, message: str, *, hint: str | None = None, replay: str = "") -> None:
        super().__init__(message, hint=hint)
        self.replay = replay


def from_native(code: int, message: str, hint: str | None, details: str, replay: str | None) -> Error:
    """The exception for an exit status of the command line; `details` is its JSON object."""
    more = json.loads(details)
    match code:
        case 1 | 5 if "budget_bytes" in more:
            witness = more.get("witness")
            return BudgetError(
                message,
                hint=hint and hint.replace("`--budget ", "`budget="),
                budget_bytes=more["budget_bytes"],
                floor_bytes=more["floor_bytes"],
                least_budget_bytes=more["needed_bytes"],
                proved=more["proved"],
                dominant=witness and witness["name"],
                witness=witness,
            )
        case 2:
            return UsageError(message, hint=hint)
        case 3:
            return InputError(message, hint=hint)
        case 4:
            return OtherGraphError(message, hint=hint)
        case 6:
            return VerificationError(message, hint=hint, violations=more["violations"])
    return BugError(message, hint=hint, replay=replay or "")
