"""Other ways to compute a convolution than the plain one: scratch memory against work, counted from shapes.

The op's own cost is that of an implicit matrix product, without scratch memory. What else there is, and by
which formulas, is in `docs/graph-json.md`. For gradients the formulas are the same: each product has the
operands of the other ones.
"""

import math
from typing import Any

import torch
from torch._ops import OpOverload

from . import _flops, _ops

_TILE, _SIDE = 2, 4
"""Winograd's F(2x2, 3x3): outputs of a tile along a side, and its inputs; each pair is multiplied once."""
_LARGE = 5
"""Side of a kernel from which on transforms of Fourier are offered."""


def of(target: OpOverload, args: Any, kwargs: Any, outputs: Any) -> list[dict[str, int]]:
    """Those of a convolution or of its gradients, each with less arithmetic than the op's own; else none."""
    name = _ops.kind(target)
    if name == "aten.convolution.default":
        image, weight, stride, dilation, transposed, groups = (
            args[0],
            args[1],
            args[3],
            args[5],
            args[6],
            args[8],
        )
        made = outputs[0]
        products = 1
    elif name == "aten.convolution_backward.default":
        made, image, weight = args[:3]
        stride, dilation, transposed, groups, wanted = args[4], args[6], args[7], args[9], args[10]
        products = sum(wanted[:2])
    else:
        return []
    # A transposed convolution is the gradient of a plain one, whose image is what it makes.
    before, after = (made, image) if transposed else (image, made)
    shape = _Shape(before, after, weight, groups)
    plain = set(stride) == {1} and set(dilation) == {1}
    taps = tuple(weight.shape[2:])
    flops = _flops.convolution(after, weight)
    moved = _flops.moved(target, args, kwargs, outputs)
    found = []
    if plain and taps == (3, 3):
        found.append(shape.winograd(flops))
    if plain and len(taps) == 2 and min(taps) >= _LARGE:
        found.append(shape.fourier())
    if math.prod(taps) > 1:
        found.append(shape.unfolded(flops))
    ways = [
        {"workspace": scratch, "flops": products * work, "moved": moved + 2 * products * scratch}
        for scratch, work in found
        if work < flops
    ]
    return ways if products else []


class _Shape:
    """What a convolution reads and makes."""

    def __init__(self, before: torch.Tensor, after: torch.Tensor, weight: torch.Tensor, groups: int) -> None:
        self.batch = before.shape[0]
        self.inputs, self.outputs = before.shape[1], after.shape[1]
        self.pairs = self.inputs * self.outputs // groups
        self.before, self.after = before.shape[2:], after.shape[2:]
        self.taps = math.prod(weight.shape[2:])
        self.itemsize = weight.itemsize

    def winograd(self, flops: int) -> tuple[int, int]:
        """Scratch bytes and operations: 16 products for the 36 of a tile, and the transformed operands."""
        tiles = self.batch * math.prod(-(-side // _TILE) for side in self.after)
        points = _SIDE * _SIDE
        elements = points * (tiles * (self.inputs + self.outputs) + self.pairs)
        products = 2 * points * tiles * self.pairs
        return elements * self.itemsize, min(products, flops) + 2 * _SIDE * elements

    def fourier(self) -> tuple[int, int]:
        """The same by transforms of whole images: complex numbers of 64 bits, half of them by symmetry."""
        rows, columns = self.before
        points = rows * (columns // 2 + 1)
        images = self.batch * (self.inputs + self.outputs) + self.pairs
        transforms = images * 5 * rows * columns * max(1, math.ceil(math.log2(rows * columns)))
        return images * points * 8, transforms + 8 * points * self.batch * self.pairs

    def unfolded(self, flops: int) -> tuple[int, int]:
        """The same by a plain product over unfolded images, in four fifths of an implicit one's time."""
        elements = self.batch * self.inputs * self.taps * math.prod(self.after)
        return elements * self.itemsize, flops * 4 // 5
