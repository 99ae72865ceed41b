"""What an op of a traced graph is told beside its operands' bytes, as docs/graph-json.md writes it.

Two pure ops with the same kind, operands and text compute the same. The text is the same in every process.
"""

import hashlib
from typing import Any

import torch
from torch.fx import Node

LONGEST = 400
"""The longest text, in bytes, that stands for itself; a digest stands for longer ones."""


class _UnknownError(Exception):
    """An argument of which nobody can say whether two are equal."""


def of(node: Node, reads: dict[Node, int], outputs: list[Any]) -> str | None:
    """The text for `node`; `reads` has the position among the op's reads of every tensor it takes.

    `None` where an argument is something that can't be written down: then the op is the same as no other.
    """
    named = [(str(at), arg) for at, arg in enumerate(node.args)] + sorted(node.kwargs.items())
    try:
        items = [f"{name}={_shown(arg, reads)}" for name, arg in named]
    except _UnknownError:
        return None
    items += [f"out{at}={seen(out)}" for at, out in enumerate(outputs) if out is not None]
    text = ";".join(items)
    if len(text.encode()) <= LONGEST:
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def seen(val: torch.Tensor) -> str:
    """Where in its storage a tensor's elements are: `float32[2,3]{1,2}+0`, strides and offset in elements.

    Strides and offset are left out where the elements lie one after another from the beginning.
    """
    sizes = ",".join(str(int(size)) for size in val.shape)
    text = f"{str(val.dtype).removeprefix('torch.')}[{sizes}]"
    if not val.is_contiguous() or val.storage_offset() != 0:
        strides = ",".join(str(int(stride)) for stride in val.stride())
        text += f"{{{strides}}}+{int(val.storage_offset())}"
    return text + "c" * val.is_conj() + "n" * val.is_neg()


def _shown(arg: Any, reads: dict[Node, int]) -> str:
    if isinstance(arg, Node):
        if arg not in reads:
            raise _UnknownError
        return f"${reads[arg]}:{seen(arg.meta['val'])}"
    if isinstance(arg, (list, tuple)):
        return f"[{','.join(_shown(item, reads) for item in arg)}]"
    if arg is None or isinstance(arg, (bool, int, float, complex)):
        return repr(arg)
    if isinstance(arg, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return str(arg).removeprefix("torch.")
    if isinstance(arg, str):
        return arg.replace("%", "%25").replace(";", "%3B").replace("=", "%3D")
    raise _UnknownError
