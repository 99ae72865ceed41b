"""Codecs by ops of PyTorch's, for devices whose memory the codecs of the host's processor don't reach.

Those of a fixed size only: how long the encoded form of a sparse tensor is, the host would have to wait for.
Sizes are those of memfit's own codecs of the same names, the layout of the bytes is not. What rounds at
random draws from a generator of its own, which begins with the key that the engine gives: nobody else's
numbers change.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from memfit.torch import _glue

_GROUP = 256
# Numbers that are dealt with at a time: what is needed for that lies beside the budget.
_CHUNK = 1 << 18
# Numbers that are encoded and decoded to see how fast that is.
_TRIAL = 1 << 22

Parts = list[torch.Tensor]
Encode = Callable[[torch.Tensor, torch.Generator], Parts]
Decode = Callable[[Parts, int], torch.Tensor]


def _padded(numbers: torch.Tensor, multiple: int) -> torch.Tensor:
    missing = -numbers.numel() % multiple
    return torch.nn.functional.pad(numbers, (0, missing)) if missing else numbers


def _packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes of so many bits each, of type `uint8`, the first in the lowest bits of a byte."""
    each = 8 // bits
    if each == 1:
        return codes
    rows = _padded(codes, each).view(-1, each)
    packed = rows[:, 0].clone()
    for at in range(1, each):
        packed |= rows[:, at] << (bits * at)
    return packed


def _unpacked(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    each = 8 // bits
    if each == 1:
        return packed[:count]
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    codes = (packed.unsqueeze(1) >> shifts) & ((1 << bits) - 1)
    return codes.view(-1)[:count]


def _signs(numbers: torch.Tensor, _: torch.Generator) -> Parts:
    return [_packed((numbers > 0).to(torch.uint8), 1)]


def _of_signs(parts: Parts, count: int) -> torch.Tensor:
    return _unpacked(parts[0], 1, count).float()


def _cast(dtype: torch.dtype) -> tuple[Encode, Decode]:
    return lambda numbers, _: [numbers.to(dtype)], lambda parts, count: parts[0].float()


def _fp8(numbers: torch.Tensor, _: torch.Generator) -> Parts:
    rows = _padded(numbers, _GROUP).view(-1, _GROUP)
    scales = rows.abs().amax(1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
    codes = (rows / scales.where(scales > 0, 1.0)).to(torch.float8_e4m3fn)
    return [codes.view(torch.uint8).view(-1)[: numbers.numel()], scales.view(-1)]


def _of_fp8(parts: Parts, count: int) -> torch.Tensor:
    codes, scales = parts
    rows = _padded(codes, _GROUP).view(torch.float8_e4m3fn).float().view(-1, _GROUP)
    return (rows * scales.unsqueeze(1)).view(-1)[:count]


def _few_bits(bits: int, masked: bool) -> tuple[Encode, Decode]:
    most = (1 << bits) - 1

    def encode(numbers: torch.Tensor, noise: torch.Generator) -> Parts:
        missing = -numbers.numel() % _GROUP
        rows = numbers
        if missing:  # By what changes no group's least or most.
            rows = torch.cat((numbers, numbers[-1:].expand(missing)))
        rows = rows.view(-1, _GROUP)
        least = rows.amin(1, keepdim=True)
        step = (rows.amax(1, keepdim=True) - least) / most
        codes = (rows - least) / step.where(step > 0, 1.0)
        codes = (codes + torch.rand(codes.shape, generator=noise, device=codes.device)).floor()
        codes = codes.clamp(0, most).to(torch.uint8).view(-1)[: numbers.numel()]
        mask = [_packed((numbers > 0).to(torch.uint8), 1)] if masked else []
        return [_packed(codes, bits), least.view(-1), step.view(-1), *mask]

    def decode(parts: Parts, count: int) -> torch.Tensor:
        codes, least, step, *mask = parts
        rows = _padded(_unpacked(codes, bits, count), _GROUP).view(-1, _GROUP).float()
        numbers = (rows * step.unsqueeze(1) + least.unsqueeze(1)).view(-1)[:count]
        if not mask:
            return numbers
        # What is above zero stays so, however small it was.
        tiny = torch.finfo(torch.float32).tiny
        return torch.where(_unpacked(mask[0], 1, count) > 0, numbers.clamp(min=tiny), 0.0)

    return encode, decode


CODERS: dict[str, tuple[Encode, Decode]] = {
    "binarize": (_signs, _of_signs),
    "cast-bf16": _cast(torch.bfloat16),
    "cast-f16": _cast(torch.float16),
    "cast-fp8": (_fp8, _of_fp8),
    **{f"int{bits}": _few_bits(bits, False) for bits in (8, 4, 2)},
    **{f"int{bits}+mask": _few_bits(bits, True) for bits in (8, 4, 2)},
}
"""By the name of the codec: from numbers of type `float32` to tensors, and back to so many numbers."""


@dataclass
class _Copy:
    codec: str
    size: int
    chunks: list[Parts]
    into: torch.UntypedStorage | None = None


class Coded:
    """Encoded copies of storages, by their numbers."""

    def __init__(self) -> None:
        self._copies: dict[int, _Copy] = {}
        self._last = 0

    def store(self, storage: torch.UntypedStorage, codec: str, key: int) -> int:
        """Makes a copy; its number."""
        encode, _ = CODERS[codec]
        if storage.nbytes() % 4:
            raise ValueError(f"`{codec}` encodes `f32` only")
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            numbers = _glue.window(storage, torch.float32, 0, (storage.nbytes() // 4,), (1,))
            if codec == "binarize" and bool(numbers.isnan().any()):
                raise ValueError("`binarize` keeps no NaN")
            if codec.endswith("+mask") and not bool((numbers >= 0).all()):
                raise ValueError(f"`{codec}` keeps nothing that is below zero")
            noise = torch.Generator(numbers.device).manual_seed(key & (1 << 63) - 1)
            chunks = [encode(part, noise) for part in numbers.split(_CHUNK)]
        self._last += 1
        self._copies[self._last] = _Copy(codec, storage.nbytes(), chunks)
        return self._last

    def load(self, number: int) -> None:
        """Fills a new storage from a copy."""
        copy = self._copies[number]
        _, decode = CODERS[copy.codec]
        made = _glue.blank(copy.size)
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            numbers = _glue.window(made, torch.float32, 0, (copy.size // 4,), (1,))
            for part, parts in zip(numbers.split(_CHUNK), copy.chunks, strict=True):
                part.copy_(decode(parts, part.numel()))
        copy.into = made

    def wait(self, number: int) -> torch.UntypedStorage | None:
        """The storage that was filled, if one was."""
        copy = self._copies[number]
        made, copy.into = copy.into, None
        return made

    def discard(self, number: int) -> None:
        """Forgets a copy."""
        self._copies.pop(number, None)

    def rates(self, codec: str) -> tuple[float, float]:
        """Plain bytes per second, encoding and decoding, on the tracked device."""
        return _rates(codec, _glue.on_device)

    def taken(self, number: int) -> int:
        """Bytes of a copy."""
        return sum(part.nbytes for parts in self._copies[number].chunks for part in parts)


@functools.cache
def _rates(codec: str, device: str) -> tuple[float, float]:
    """The fastest of three, measured once in a process."""
    value, coded = _glue.blank(4 * _TRIAL), Coded()
    with torch._C._DisableTorchDispatch():
        _glue.flat(value).zero_()
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        began = _now()
        number = coded.store(value, codec, 0)
        stored = _now()
        coded.load(number)
        taken[0].append(stored - began)
        taken[1].append(_now() - stored)
        coded.discard(number)
    encode, decode = (value.nbytes() / max(min(times), 1e-9) for times in taken)
    return encode, decode


def _now() -> float:
    """Seconds, once the device has done what it was told."""
    _glue.synchronize()
    return time.perf_counter()


def fixed(names: list[str], lossy: list[str]) -> tuple[list[str], list[str]]:
    """What of these codecs there is here: those of names that stand for several, and of the others all.

    Raises `UsageError` for one of another size for each tensor.
    """
    from memfit import UsageError, _memfit

    for name in [*names, *lossy]:
        if name.startswith(("zvc", "csr", "state8")):
            known = ", ".join(f"`{codec}`" for codec in CODERS)
            raise UsageError(f"there is no codec `{name}` on a GPU", hint=f"those of a fixed size: {known}")
    found: list[Any] = [codec for codec in _memfit.lossy_codecs(lossy) if codec in CODERS] if lossy else []
    return names, found
