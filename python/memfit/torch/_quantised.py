"""Optimizer state in eight bits between the optimizer's steps.

Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (ICLR 2022), with the dynamic tree of
memfit's codec `state8`: blocks of 2048 numbers, each with the number of the largest magnitude as a scale, and
for each number the nearest of 256 codes. Lossy. Only ops of PyTorch's are used, so it runs wherever the
optimizer does, and a plan sees what it takes.

Parameters are updated one after the other: only one of them has its state in full at a time. A block with a
NaN or an infinity is NaN afterwards.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from memfit._errors import UsageError

NAME = "quantised-state"
"""What `lossy` calls it."""

STRATEGY, CODEC = "compress:quantised-state", "state8"
"""The strategy that plans it, and the codec that has to be allowed for that."""

BLOCK = 2048
"""Numbers that have a scale in common."""

LEAST = 4096
"""State of fewer numbers stays as it is."""

_DECADES = 7
_UNSIGNED = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum")
"""State that is never below zero."""
_CODES, _SCALES = ".codes", ".scales"


def asked(strategy: str, lossy: list[str]) -> tuple[str, list[str]]:
    """What `fit` plans by, and the lossy codecs, if `strategy` has state wait in eight bits.

    Encoding and decoding are ops of the recorded step then, so what is left to plan is the rest of it, as
    `auto` does. Raises `UsageError` where that codec is not allowed.
    """
    if strategy != STRATEGY:
        return strategy, lossy
    if CODEC not in lossy and NAME not in lossy:
        raise UsageError(f"the lossy codec `{CODEC}` is not allowed", hint=f'`lossy="{CODEC}"`')
    return "auto", [name for name in lossy if name not in (CODEC, NAME)] + [NAME]


@functools.cache
def _magnitudes(signed: bool) -> tuple[float, ...]:
    """The values that are not below zero, from the least: of each decade the middles of equal parts."""
    found = [0.0, 1.0]
    for decade in range(_DECADES):
        parts = 2 ** (decade + (0 if signed else 1))
        ends = torch.linspace(0.1, 1.0, parts + 1, dtype=torch.float64)
        middles = (ends[:-1] + ends[1:]) / 2 * 10.0 ** (decade - _DECADES + 1)
        found += middles.tolist()
    return tuple(sorted(found))


@functools.cache
def _table(signed: bool, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """What the codes stand for, from the least, and where one ends and the next begins."""
    values = list(_magnitudes(signed))
    if signed:
        # 256 codes in all: the least one is not minus one.
        values = [-value for value in values[-2:0:-1]] + values
    # Made beside all modes: it outlives whatever step it's made in.
    with torch._C._DisableTorchDispatch():
        table = torch.tensor(values, dtype=torch.float32, device=device)
        return table, (table[:-1] + table[1:]) / 2


def encode(state: torch.Tensor, signed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of `state`, of type `float32`: a quarter of its bytes, and four for each block."""
    _, borders = _table(signed, state.device)
    flat = state.reshape(-1)
    blocks = -(-flat.numel() // BLOCK)
    missing = blocks * BLOCK - flat.numel()
    flat = torch.nn.functional.pad(flat, (0, missing)) if missing else flat
    flat = flat.view(blocks, BLOCK)
    # With its sign: so the largest is one, whichever it has.
    scales = flat.gather(1, flat.abs().argmax(1, keepdim=True))
    flat = flat / scales.where(scales != 0, 1.0)
    codes = torch.bucketize(flat, borders, out_int32=True).to(torch.uint8)
    return codes.view(-1)[: state.numel()].clone() if missing else codes.view(-1), scales.view(-1)


def decode(codes: torch.Tensor, scales: torch.Tensor, like: torch.Tensor, signed: bool) -> torch.Tensor:
    """What `encode` was given, of the shape of `like`, as near as the codes are."""
    table, _ = _table(signed, codes.device)
    state = table.index_select(0, codes.int())
    missing = scales.numel() * BLOCK - codes.numel()
    padded = torch.nn.functional.pad(state, (0, missing)) if missing else state
    state = (padded.view(-1, BLOCK) * scales.unsqueeze(1)).view(-1)
    return state[: codes.numel()].view(like.shape)


def _fold(parameter: torch.Tensor, state: dict[str, Any]) -> None:
    """Puts codes in the place of what is as large as the parameter."""
    for name, value in list(state.items()):
        if _fits(parameter, value):
            codes, scales = encode(value, name not in _UNSIGNED)
            del state[name]
            # Into the same tensors again: who has their addresses finds the new ones.
            if name + _CODES in state:
                state[name + _CODES].copy_(codes)
                state[name + _SCALES].copy_(scales)
            else:
                state[name + _CODES], state[name + _SCALES] = codes, scales


def _unfold(parameter: torch.Tensor, state: dict[str, Any]) -> None:
    for key in [key for key in state if key.endswith(_CODES)]:
        name = key.removesuffix(_CODES)
        state[name] = decode(state[key], state[name + _SCALES], parameter, name not in _UNSIGNED)


def _fits(parameter: torch.Tensor, value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.dtype is torch.float32
        and value.layout is torch.strided
        and value.shape == parameter.shape
        and value.numel() >= LEAST
    )


def quantise_state(optimizer: Optimizer) -> Optimizer:
    """From here on, what `optimizer` keeps for a parameter waits in eight bits between its steps; returns it.

    Lossy: the training is another one, within the noise of minibatches as a rule. State of fewer than 4096
    numbers, and what is not of type `float32`, stays. Between steps `optimizer.state` has codes and scales;
    `state_dict()` has the state itself, and `load_state_dict` takes it.

    Raises `UsageError` for optimizers whose parameters are not updated each by itself.
    """
    if getattr(optimizer, "_memfit_folds", False):
        return optimizer
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError(
            f"the state of `{type(optimizer).__name__}` can't wait in eight bits",
            hint="it's of all parameters together; Adam, AdamW, SGD and the like have one for each",
        )
    plain: Callable[..., Any] = type(optimizer).step
    plain = getattr(plain, "__wrapped__", plain)  # Without hooks: there is one step.

    @functools.wraps(plain)
    def one_by_one(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        self._opt_called = True  # type: ignore[attr-defined]  # As schedulers ask; private.
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            _each(self, plain)
        return loss

    optimizer.step = types.MethodType(Optimizer.profile_hook_step(one_by_one), optimizer)  # type: ignore[method-assign]
    optimizer.register_state_dict_pre_hook(unfold)
    optimizer.register_state_dict_post_hook(_saved)
    optimizer.register_load_state_dict_pre_hook(lambda folded, _: unfold(folded))
    optimizer.register_load_state_dict_post_hook(fold)
    optimizer._memfit_folds = True  # type: ignore[attr-defined]
    fold(optimizer)
    return optimizer


def _each(optimizer: Optimizer, step: Callable[..., Any]) -> None:
    """`step` for small parameters together, and for each other one alone, with its state in full."""
    groups = optimizer.param_groups
    try:
        for group in groups:
            small = [parameter for parameter in group["params"] if parameter.numel() < LEAST]
            large = [parameter for parameter in group["params"] if parameter.numel() >= LEAST]
            for together in ([small] if small else []) + [[parameter] for parameter in large]:
                if together is not small and together[0].grad is None:
                    continue
                if together is not small:
                    _unfold(together[0], optimizer.state[together[0]])
                optimizer.param_groups = [{**group, "params": together}]
                step(optimizer)
                if together is not small:
                    _fold(together[0], optimizer.state[together[0]])
    finally:
        optimizer.param_groups = groups


def _saved(optimizer: Optimizer, told: dict[str, Any]) -> dict[str, Any]:
    """What `state_dict` gives has the state that is unfolded now, and keeps it."""
    told = {**told, "state": {key: dict(state) for key, state in told["state"].items()}}
    fold(optimizer)
    return told


@torch.no_grad()
def fold(optimizer: Optimizer) -> None:
    """All state of `optimizer` waits in eight bits."""
    for parameter, state in optimizer.state.items():
        _fold(parameter, state)


@torch.no_grad()
def unfold(optimizer: Optimizer) -> None:
    """The state of `optimizer` as it is without memfit."""
    for parameter, state in optimizer.state.items():
        _unfold(parameter, state)
        for key in [key for key in state if key.endswith((_CODES, _SCALES))]:
            del state[key]


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes that `optimizer` keeps for its parameters now."""
    values = [value for state in optimizer.state.values() for value in state.values()]
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))
