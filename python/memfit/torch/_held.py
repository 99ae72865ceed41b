"""What somebody looks for first when memory runs out: the line of the program, and the largest tensors that
it holds, by their names in modules and optimizers.
"""

import contextlib
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

from memfit import _memfit
from memfit.torch import _objects

_OURS = (str(Path(__file__).parent.parent), str(Path(torch.__file__).parent), "<")
"""Folders whose lines are nobody's program, and code without a file."""

_LIBRARY = sysconfig.get_path("stdlib")

_KINDS = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)


def place() -> str | None:
    """The innermost line of the program that is running, as `FILE:LINE, in FUNCTION`.

    `None` where all is memfit's, PyTorch's and Python's own.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        standard = path.startswith(_LIBRARY) and "site-packages" not in path
        if not standard and not path.startswith(_OURS):
            return _plain(f"{Path(path).name}:{frame.f_lineno}, in {frame.f_code.co_name}")
        frame = frame.f_back
    return None


def largest(device: torch.device, count: int = 3) -> list[str]:
    """The largest tensors on `device` that Python holds and no gradient flows through.

    Such are parameters, their gradients, the optimizer's state, inputs and results that somebody keeps.
    A text for each: name, type, shape and bytes.
    """
    found = _objects.every(*_KINDS)
    tensors = [x for x in found if isinstance(x, torch.Tensor) and _is_held(x, device)]
    sizes: dict[int, tuple[int, torch.Tensor]] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        known = sizes.get(storage._cdata)
        # Of those that share bytes, the one with most elements stands for all.
        if known is None or known[1].numel() < tensor.numel():
            sizes[storage._cdata] = storage.nbytes(), tensor
    top = sorted(sizes.values(), key=lambda held: -held[0])[:count]
    names = _names(found, {id(tensor) for _, tensor in top}) if top else {}
    return [_told(tensor, size, names.get(id(tensor))) for size, tensor in top if size]


def _is_held(tensor: torch.Tensor, device: torch.device) -> bool:
    with contextlib.suppress(Exception):
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
        return plain and tensor.device.type == device.type and tensor.is_leaf
    return False


def _names(found: list[Any], wanted: set[int]) -> dict[int, str]:
    """Names of the tensors with the identities `wanted`, where a module or an optimizer has them."""
    modules = [x for x in found if isinstance(x, torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    names: dict[int, str] = {}
    owned: dict[int, str] = {}
    for module in modules:
        if id(module) in inner:
            continue
        with contextlib.suppress(Exception):
            root = type(module).__name__
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                owned[id(tensor)] = f"{root}.{name}"
                if tensor.grad is not None:
                    names[id(tensor.grad)] = f"gradient of {root}.{name}"
    for optimizer in found:
        if isinstance(optimizer, torch.optim.Optimizer):
            with contextlib.suppress(Exception):
                for parameter, state in optimizer.state.items():
                    for key, tensor in state.items():
                        names[id(tensor)] = f"{key} of {owned.get(id(parameter), 'a parameter')}"
    names |= owned
    return {at: names[at] for at in wanted if at in names}


def _told(tensor: torch.Tensor, size: int, name: str | None) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    shape = ", ".join(map(str, tensor.shape))
    named = f"`{_plain(name)}` " if name else ""
    return f"{named}{kind}[{shape}], {_memfit.show_bytes(size)}"


def _plain(text: str) -> str:
    """On one line, without what a terminal would act on, and not without end."""
    shown = "".join(at if at.isprintable() else "\ufffd" for at in text)
    return shown if len(shown) <= 200 else shown[:199] + "…"
