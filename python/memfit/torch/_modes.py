"""The stack of dispatch modes: private to PyTorch, and used here alone."""

from typing import Any

from torch.utils._python_dispatch import (
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)


def pop_modes() -> list[Any]:
    """Takes the user's modes off the stack; the uppermost is the first."""
    popped = []
    while (mode := _get_current_dispatch_mode()) is not None and not mode.is_infra_mode():
        popped.append(_pop_mode())
    return popped


def is_on(mode: Any) -> bool:
    """Whether `mode` sees the ops of this thread."""
    return any(other is mode for other in _get_current_dispatch_mode_stack())


def push_modes(popped: list[Any]) -> None:
    """Undoes `pop_modes`."""
    for mode in reversed(popped):
        _push_mode(mode)
