"""The scratch memory foreseen for an op before it has run is enough, for the ops of PyTorch's own table."""

import warnings
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from memfit.torch import _glue

SAMPLES = 4
# Squares its matrix many times over in 32 bits.
KNOWN = {"aten::linalg_matrix_exp"}


class Compare(TorchDispatchMode):
    """Measures each op, and collects those that take more than was said."""

    def __init__(self, more: dict[str, tuple[Any, ...]]) -> None:
        super().__init__()
        self.more, self.ops = more, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not {*types} <= {torch.Tensor, torch.nn.Parameter}:
            return func(*args, **(kwargs or {}))
        sizes, bound, _ = _glue.infer(func, args, kwargs)
        result, taken = _glue.measure(func, args, kwargs)
        self.ops += 1
        if sizes is not None and taken is not None and taken > bound:
            shapes = [(tensor.dtype, *tensor.shape) for tensor in _glue.tensors(args)]
            self.more[func._schema.name] = (taken, bound, shapes)
        return result


def test_no_op_takes_more_scratch_memory_than_it_is_said_to():
    _glue.track(torch.device("cpu"))
    more: dict[str, tuple[Any, ...]] = {}
    ops = 0
    for entry in op_db:
        for dtype in (torch.float32, torch.bfloat16):
            if dtype not in entry.supported_dtypes("cpu"):
                continue
            gradient = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                samples = list(entry.sample_inputs("cpu", dtype, requires_grad=gradient))[:SAMPLES]
                for sample in samples:
                    ops += run(entry, sample, more)
    assert ops > 5000
    assert {name: found for name, found in more.items() if name not in KNOWN} == {}


def run(entry: Any, sample: Any, more: dict[str, tuple[Any, ...]]) -> int:
    mode = Compare(more)
    try:
        with mode:
            results = entry(sample.input, *sample.args, **sample.kwargs)
            wanted = [tensor for tensor in _glue.tensors(results) if tensor.requires_grad]
            if wanted:
                sum(tensor.abs().sum().double() for tensor in wanted).backward()
    except Exception:
        pass  # Some entries do not run here or below a mode: test_eager_opinfo.py has them.
    return mode.ops
