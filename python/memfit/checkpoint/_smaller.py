"""Models made smaller: weights or filters left out, and few different numbers."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from memfit import _memfit
from memfit._errors import UsageError
from memfit.checkpoint._tree import bytes_of, tensor_of

Accuracy = Callable[[nn.Module], float]
"""How good a model is; more is better."""
Report = Callable[[float, float], None]
"""Is told how good a model was, and is."""


def prune(
    model: nn.Module,
    share: float,
    how: str = "magnitude",
    *,
    accuracy: Accuracy | None = None,
    report: Report | None = None,
) -> nn.Module:
    """A copy of `model` without a share of its weights, from 0 to 1; train it on to get accuracy back.

    `"magnitude"`: of each layer's weights (`Linear`, convolutions) the smallest are zero afterwards.
    `"filters"`: of each `Conv2d` the filters with the least L1 norm are gone, with what reads them in batch
    norms and in the next layers (Li et al., "Pruning Filters for Efficient ConvNets", ICLR 2017), so
    tensors are smaller. A convolution whose output is added to another one, as in residual blocks, or goes
    anywhere but into a convolution or a linear layer, keeps its filters. Needs a model that `torch.fx` can
    trace.

    With `accuracy`, `report` is told what that is before and after.
    """
    if not 0 <= share < 1:
        raise UsageError(f"`share` is {share}", hint="write a number from 0 to below 1")
    if how not in ("magnitude", "filters"):
        raise UsageError(f"`how` is `{how}`", hint='write "magnitude" or "filters"')
    smaller = copy.deepcopy(model)
    with torch.no_grad():
        if how == "magnitude":
            for layer in smaller.modules():
                if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd):
                    zero_smallest(layer.weight, share)
        else:
            for conv, readers in _prunable(smaller):
                _drop_filters(conv, readers, share)
    if accuracy is not None and report is not None:
        report(float(accuracy(model)), float(accuracy(smaller)))
    return smaller


def zero_smallest(weight: torch.Tensor, share: float) -> None:
    """Makes the smallest weights zero; of two that are as small, the first."""
    order = weight.detach().abs().flatten().argsort(stable=True)
    weight.data.view(-1)[order[: int(share * weight.numel())]] = 0


_SAME_CHANNELS = (
    nn.BatchNorm2d, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Identity,
    nn.Dropout, nn.Dropout2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
    nn.Flatten,
)  # fmt: skip
_SAME_FUNCTIONS = {
    "relu", "relu_", "gelu", "silu", "sigmoid", "tanh", "dropout", "max_pool2d", "avg_pool2d",
    "adaptive_avg_pool2d", "adaptive_max_pool2d", "leaky_relu",
}  # fmt: skip


def _prunable(model: nn.Module) -> list[tuple[nn.Conv2d, list[nn.Module]]]:
    """Convolutions whose filters may go, with everything that reads them."""
    graph = torch.fx.symbolic_trace(model).graph
    modules = dict(model.named_modules())
    calls: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            calls[str(node.target)] = calls.get(str(node.target), 0) + 1
    found = []
    for node in graph.nodes:
        conv = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(conv, nn.Conv2d) and conv.groups == 1 and calls[str(node.target)] == 1:
            readers = _readers(node, conv.out_channels, modules, calls)
            if readers:
                found.append((conv, readers))
    return found


def _readers(
    node: Any, channels: int, modules: dict[str, nn.Module], calls: dict[str, int]
) -> list[nn.Module] | None:
    """What must change with the channels of `node`; `None` if something else reads them."""
    readers: list[nn.Module] = []
    # With whether channels and places have become one dimension, which a linear layer reads.
    open_nodes = [(node, False)]
    while open_nodes:
        node, is_flat = open_nodes.pop()
        if not node.users:
            return None
        for user in node.users:
            name = str(user.target)
            if user.op == "call_module" and calls[name] == 1:
                module = modules[name]
                if _can_lose(module, channels, is_flat):
                    readers.append(module)
                elif isinstance(module, _SAME_CHANNELS) and _is_flat(module):
                    if isinstance(module, nn.BatchNorm2d):
                        readers.append(module)
                    open_nodes.append((user, is_flat or isinstance(module, nn.Flatten)))
                else:
                    return None
            elif _keeps_channels(user):
                open_nodes.append((user, is_flat or "flatten" in str(user.target)))
            else:
                return None
    return readers


def _can_lose(module: nn.Module, channels: int, is_flat: bool) -> bool:
    if isinstance(module, nn.Conv2d):
        return module.groups == 1 and not is_flat
    return isinstance(module, nn.Linear) and is_flat and module.in_features % channels == 0


def _is_flat(module: nn.Module) -> bool:
    return not isinstance(module, nn.Flatten) or (module.start_dim, module.end_dim) == (1, -1)


def _keeps_channels(node: Any) -> bool:
    name = getattr(node.target, "__name__", str(node.target))
    if node.op in ("call_function", "call_method"):
        if name == "flatten":
            return node.args[1:] == (1,) and not node.kwargs
        return name in _SAME_FUNCTIONS
    return False


def _drop_filters(conv: nn.Conv2d, readers: list[nn.Module], share: float) -> None:
    count = conv.out_channels
    drop = min(int(share * count), count - 1)
    order = conv.weight.detach().abs().flatten(1).sum(1).argsort(stable=True)
    keep = order[drop:].sort().values
    _keep(conv, "weight", keep, 0)
    _keep(conv, "bias", keep, 0)
    conv.out_channels = len(keep)
    for reader in readers:
        if isinstance(reader, nn.BatchNorm2d):
            for name in ("weight", "bias", "running_mean", "running_var"):
                _keep(reader, name, keep, 0)
            reader.num_features = len(keep)
        elif isinstance(reader, nn.Conv2d):
            _keep(reader, "weight", keep, 1)
            reader.in_channels = len(keep)
        elif isinstance(reader, nn.Linear):
            # Flattened: the places of one channel stand side by side.
            places = reader.in_features // count
            columns = (keep[:, None] * places + torch.arange(places, device=keep.device)).flatten()
            _keep(reader, "weight", columns, 1)
            reader.in_features = len(columns)


def _keep(module: nn.Module, name: str, which: torch.Tensor, dim: int) -> None:
    tensor = getattr(module, name)
    if tensor is None:
        return
    kept = tensor.detach().index_select(dim, which).clone()
    if isinstance(tensor, nn.Parameter):
        kept = nn.Parameter(kept, requires_grad=tensor.requires_grad)
    setattr(module, name, kept)


def kmeans(state: Any, clusters: int) -> Any:
    """A copy of `state` whose `float32` tensors have at most `clusters` different numbers each (1 to 256).

    Tensors of no more elements than that stay as they are. Saved without a codec, each number takes a byte
    or less. Scalar k-means from quantiles on, without chance: the same state gives the same numbers.
    """
    if not 1 <= clusters <= 256:
        raise UsageError(f"`clusters` is {clusters}", hint="write 1 to 256")
    if isinstance(state, torch.Tensor):
        if state.dtype != torch.float32 or state.numel() <= clusters:
            return state.detach().clone()
        near = tensor_of(
            _memfit.checkpoint_clusters(bytes_of(state), clusters), torch.float32, list(state.shape)
        )
        return near.to(state.device)
    if isinstance(state, dict):
        made = copy.copy(state)
        made.update({key: kmeans(value, clusters) for key, value in state.items()})
        return made
    if type(state) in (list, tuple):
        return type(state)(kmeans(value, clusters) for value in state)
    return state
