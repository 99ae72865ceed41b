"""What an LSTM's kernel of oneDNN takes on a CPU before anybody has seen it run.

One of its results is a block of bytes for its backward, whose size only the library knows: on meta tensors
it is empty. No bound is documented; the formula was fitted to layers of 8 to 1,024 features and holds for
them with a margin. What a layer takes is measured when it first runs, and the formula is asked no more.
"""

from collections.abc import Sequence
from typing import Any

import torch

NAME = "aten::mkldnn_rnn_layer"
BACKWARD = "aten::mkldnn_rnn_layer_backward"
_GATES = 4
_FIXED = 1 << 16


def scratch(args: Any) -> int:
    """Bytes at most, that block included, for the arguments of `aten::mkldnn_rnn_layer`."""
    image: torch.Tensor
    weights: Sequence[torch.Tensor]
    hidden: torch.Tensor
    image, weights, hidden = args[0], args[1:5], args[5]
    steps, batch, features = image.shape
    width = max(4, image.itemsize)
    size = hidden.shape[-1]
    gates = steps * batch * _GATES * size * width
    states = (steps + 1) * batch * max(features, size) * width
    shared = sum(weight.numel() for weight in weights) * width
    return 3 * gates + 8 * states + (gates + shared) * 5 // 4 + _FIXED


def with_workspace(args: Any) -> Any:
    """The arguments of a backward on noise, with the block that a forward on the same noise leaves for it.

    The kernel follows addresses in that block.
    """
    image, weights, hidden = args[0], args[1:5], args[5:7]
    backwards, mode, size, layers, biases, train, both_ways, batches, batch_first = args[13:22]
    shape = (mode, size, layers, biases, both_ways, batch_first, train)
    with torch.enable_grad():  # Without, nothing is left for a backward.
        made = torch.ops.aten.mkldnn_rnn_layer(image, *weights, *hidden, backwards, batches, *shape)
    return (*args[:22], made[3])
