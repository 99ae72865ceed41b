"""Kinds of op: element-wise, in-place, random, collective. Tables, and questions to schemas."""

from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.fx import Node

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
"""Names of the schema; 8-bit floats are `f8`, whatever else is `other`."""

PERSISTENT = {"parameter", "state", "constant"}
"""Roles of storages that live across the step boundary."""

COLLECTIVE_NAMESPACES = {"c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd"}

WAITS = {"_c10d_functional.wait_tensor.default", "c10d_functional.wait_tensor.default"}
"""Hand their input on once a collective has filled it, though their schema does not say so."""

NOT_ELEMENTWISE = {"aten.frexp.Tensor", "aten.mvlgamma.default", "aten.mvlgamma.int"}
"""Tagged as point-wise, but they read their operand again after the first output is written."""

ELEMENTWISE = {
    "aten.native_dropout.default": (0,),
    "aten.native_dropout_backward.default": (0,),
    "aten._to_copy.default": (0,),
    "aten.clone.default": (0,),
    "aten.threshold_backward.default": (0, 1),
    "aten.gelu_backward.default": (0, 1),
    "aten.silu_backward.default": (0, 1),
    "aten.hardtanh_backward.default": (0, 1),
    "aten.hardswish_backward.default": (0, 1),
    "aten.hardsigmoid_backward.default": (0, 1),
    "aten.leaky_relu_backward.default": (0, 1),
    "aten.elu_backward.default": (0, 5),
    "aten.sigmoid_backward.default": (0, 1),
    "aten.tanh_backward.default": (0, 1),
    "aten.masked_fill.Scalar": (0,),
    "aten.masked_fill.Tensor": (0,),
}
"""Element-wise in these operands (positions) and their first output, beside what `Tag.pointwise` names."""

SIGN_ONLY = {"aten.threshold_backward.default": 1, "aten.leaky_relu_backward.default": 1}
"""The operand (position) of which they read no more than whether each element is above zero; of a threshold
that is if it is 0."""

SHAPE_ONLY = {
    "aten.max_pool2d_with_indices_backward.default": 1,
    "aten.avg_pool2d_backward.default": 1,
    "aten._adaptive_avg_pool2d_backward.default": 1,
}
"""The operand (position) of which they read the shape alone: a pool has the positions of its maxima."""

IN_PLACE_FIRST = {
    "aten.copy.default",
    "aten.index_add.default",
    "aten.index_copy.default",
    "aten.index_fill.int_Scalar",
    "aten.index_put.default",
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.scatter_add.default",
    "aten.select_scatter.default",
    "aten.slice_scatter.default",
}
"""Functional forms of ops that write some elements of their first operand, in place in eager PyTorch."""

BATCH_NORMS = {
    "aten._native_batch_norm_legit_functional.default": {3: 3, 4: 4},
    "aten._batch_norm_with_update_functional.default": {3: 4, 4: 5},
}
"""Operand → output, for the running mean and variance: eager PyTorch updates them inside the op."""

BATCH_NORMS_EAGER = {
    "aten.native_batch_norm.default",
    "aten.cudnn_batch_norm.default",
    "aten.miopen_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten._batch_norm_with_update.default",
}
"""Update running statistics inside, though not every schema says so."""

GATHERS = {"aten.embedding.default", "aten.index.Tensor", "aten.index_select.default", "aten.gather.default"}
"""Read of their first operand only as many bytes as they write."""

EMPTY = {
    "aten.empty.memory_format",
    "aten.new_empty.default",
    "aten.empty_like.default",
    "aten.new_empty_strided.default",
}
"""Allocate and touch nothing."""


def called(node: Node) -> OpOverload:
    """The op that `node` calls, which has to be a plain PyTorch op."""
    return cast(OpOverload, node.target)


def kind(target: OpOverload) -> str:
    """The op's name as PyTorch prints it, with namespace and overload."""
    return f"{target.namespace}.{target._schema.name.split('::')[-1]}.{target._overloadname}"


def dtype_name(dtype: torch.dtype) -> str:
    """The schema's name of `dtype`."""
    if dtype.is_floating_point and dtype.itemsize == 1:
        return "f8"
    return DTYPES.get(dtype, "other")


def effect(target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`pure`, `seeded` (draws random numbers) or `collective`. Attention without dropout is pure."""
    if target.namespace in COLLECTIVE_NAMESPACES:
        return "collective"
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return "pure"
    for at, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            dropout = args[at] if at < len(args) else kwargs.get("dropout_p", argument.default_value)
            return "seeded" if dropout else "pure"
    return "seeded"


def elementwise_operands(target: OpOverload, count: int) -> tuple[int, ...]:
    """Positions of the operands which the first output may overwrite element by element."""
    name = kind(target)
    if name in ELEMENTWISE:
        return ELEMENTWISE[name]
    if torch.Tag.pointwise in target.tags and name not in NOT_ELEMENTWISE:
        return tuple(range(count))
    return ()


def mutates(target: OpOverload) -> bool:
    """Whether the op writes to one of its operands."""
    return any(arg.alias_info is not None and arg.alias_info.is_write for arg in target._schema.arguments)
