"""How much scratch memory a convolution may take on a CPU before anybody has seen it run.

oneDNN pads channels to the width of its vectors, works in 32 bits, and gives each thread sums of its own
for the gradient of the weights. PyTorch's own kernels, for what oneDNN does not take, unfold images into
columns. No library promises a bound: the formula holds for random convolutions on processors with AVX2,
AVX-512 and AMX, but for one in some hundreds. What an op takes is measured when it first runs, and the
formula is asked no more.
"""

import functools
import math
from typing import Any

import torch

NAMES = {"aten::convolution", "aten::convolution_backward"}
_EACH_THREAD = 1 << 16
_FEW = 20_480
"""Elements of an image, in its first four dimensions, up to which PyTorch's own kernel is preferred."""


def scratch(func: Any, args: Any, kwargs: Any, made: int) -> int:
    """Bytes at most, for the arguments of `aten::convolution` or its backward. Results take `made` bytes."""
    backward = func._schema.name.endswith("_backward")
    args = [*args, *(kwargs[argument.name] for argument in func._schema.arguments[len(args) :])]
    image: torch.Tensor
    weight: torch.Tensor
    groups: int
    image, weight = args[1:3] if backward else args[:2]
    _, _, dilation, transposed, _, groups = args[4:10] if backward else args[3:9]
    threads = torch.get_num_threads()
    wide = max(4, weight.itemsize)
    narrow = weight.itemsize < 4
    lanes = 32 if narrow else 16

    def padded(count: int) -> int:
        return -(-count // lanes) * lanes

    batch, inputs = image.shape[:2]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    # Of an image before and after, for each channel.
    before = math.prod(image.shape[2:])
    after: int = (args[0].numel() if backward else made // weight.itemsize) // max(1, batch * channels)
    taps = math.prod(weight.shape[2:])
    images = batch * (padded(inputs) * before + padded(channels) * after) * wide
    # Those of less than 32 bits are there in 32 as well.
    images *= (2 if backward or transposed else 1) + narrow
    rows, columns = weight.shape[0] // groups, weight.shape[1]
    depthwise = rows == 1 and columns == 1
    weights = (padded(groups) if depthwise else groups * padded(rows) * padded(columns)) * taps * wide
    copies = 3 + 3 * threads if backward else 2 + narrow
    column = max(inputs * after, channels * before if transposed else 0) * taps
    unfolded = [0]
    if not _vectorised(weight.dtype) or (batch == 1 and math.prod(image.shape[:4]) <= _FEW):
        unfolded.append(batch * column * weight.itemsize)
    if (groups > 1 and not depthwise and (rows % 16 or columns % 16)) or (backward and max(dilation) > 1):
        unfolded.append(column // groups * min(threads, groups * batch) * wide)
    if depthwise and backward and not image.is_contiguous():
        unfolded.append(groups * taps * 16 * lanes * wide)
    return images + copies * weights + max(unfolded) + (1 + threads) * (_EACH_THREAD << narrow)


@functools.cache
def _vectorised(dtype: torch.dtype) -> bool:
    """Whether oneDNN has kernels for `dtype` on this machine."""
    asked = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    if dtype in asked:
        return bool(getattr(torch.ops.mkldnn, asked[dtype])())
    return dtype == torch.float32
