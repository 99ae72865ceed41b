"""PyTorch's own table of ops with sample inputs, each run with and without memfit."""

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils import _pytree as pytree
from training import AMPLE, digest

from memfit.torch.eager import Budget

FLOATS = (torch.float32, torch.complex64, torch.bfloat16)
OTHERS = (torch.int64, torch.bool, torch.uint8)


def entries() -> list[Any]:
    """The entries of the table that run on a CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [entry for entry in op_db if dtype_of(entry) is not None]


def name_of(entry: Any) -> str:
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def dtype_of(entry: Any) -> torch.dtype | None:
    supported = entry.supported_dtypes("cpu")
    return next((dtype for dtype in (*FLOATS, *OTHERS) if dtype in supported), None)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def copy(value: Any) -> Any:
    """Made by ops, so that memfit can take the copies away and make them again."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(one, value)


def run(op: Callable[..., Any], sample: Any, in_place: bool) -> list[torch.Tensor]:
    """Results, inputs afterwards, and gradients of random weights on all results."""
    torch.manual_seed(0)
    first, args, kwargs = copy((sample.input, sample.args, sample.kwargs))
    inputs = [tensor for tensor in tensors((first, args, kwargs)) if tensor.requires_grad]
    results = op(first * 1 if in_place else first, *args, **kwargs)
    made = [made if made.layout == torch.strided else made.to_dense() for made in tensors(results)]
    outputs = [tensor for tensor in made if tensor.requires_grad]
    gradients: list[torch.Tensor] = []
    if outputs and inputs:
        weights = [torch.randn_like(output.detach()) for output in outputs]
        found = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
        gradients = [gradient for gradient in found if gradient is not None]
    return [*made, *tensors((first, args, kwargs)), *gradients]


def bits(found: list[torch.Tensor]) -> list[str]:
    return [digest(tensor if tensor.layout == torch.strided else tensor.to_dense()) for tensor in found]


def attempt(op: Callable[..., Any], sample: Any, in_place: bool) -> list[str] | Exception:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [*bits(run(op, sample, in_place)), digest(torch.get_rng_state())]
        except Exception as error:
            return error


def evicted(op: Callable[..., Any], sample: Any, in_place: bool) -> list[str] | Exception:
    """The same with everything evicted after every op. What was alive when the mode ends must be there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Budget(AMPLE, evict_all=True):
                found = run(op, sample, in_place)
            return [*bits(found), digest(torch.get_rng_state())]
        except Exception as error:
            return error


def cases(entry: Any, count: int) -> Iterator[tuple[Callable[..., Any], Any, bool]]:
    """An entry's op on its first samples, and its form in place."""
    dtype = dtype_of(entry)
    gradients = dtype in FLOATS and entry.supports_autograd
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        samples = list(islice(entry.sample_inputs("cpu", dtype, requires_grad=gradients), count))
    for sample in samples:
        yield entry.op, sample, False
        if entry.inplace_variant is not None and isinstance(sample.input, torch.Tensor):
            yield entry.inplace_variant, sample, True


# What they give is what the memory held before: the same twice by chance.
UNINITIALISED = ("empty", "new_empty")


def verdict(entry: Any, samples: int) -> tuple[str, str]:
    """`same`, `refused`, `differs`, or without memfit `fails`, or `random`: differs from run to run."""
    if name_of(entry).startswith(UNINITIALISED):
        return "random", ""
    outcomes = {"same": 0, "random": 0, "fails": 0}
    for op, sample, in_place in cases(entry, samples):
        plain = attempt(op, sample, in_place)
        if isinstance(plain, Exception):
            outcomes["fails"] += 1
            continue
        within = evicted(op, sample, in_place)
        what = "in place: " if in_place else ""
        if isinstance(within, Exception):
            if attempt(op, sample, in_place) != plain:
                outcomes["random"] += 1
                continue
            if "memfit" in str(within):
                return "refused", what + str(within).split("\n")[0]
            return "differs", f"{what}{type(within).__name__}: {within}".split("\n")[0]
        if within != plain:
            if any(attempt(op, sample, in_place) != plain for _ in range(3)):
                outcomes["random"] += 1
                continue
            at = [at for at, (one, other) in enumerate(zip(plain, within, strict=True)) if one != other]
            return "differs", f"{what}results {at} of {len(plain)}"
        outcomes["same"] += 1
    return next((name for name in ("random", "same", "fails") if outcomes[name]), "fails"), ""
