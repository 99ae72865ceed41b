"""A nested state as JSON and a list of tensors, and back: without pickle, and nothing that is kept changes
its type.

Numbers, texts, `None`, `bytes`, lists, tuples, dicts and ordered dicts; of floats and tensors all bits.
What is an instance of another class is refused by its place in the state.
"""

import ctypes
import json
import math
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import memfit.torch  # noqa: F401 - says what is wrong with the PyTorch that is here
from memfit._errors import Error, InputError, UsageError

DEPTH = 100
"""Nesting of a state."""

# Types that safetensors has. Others are kept as bytes, with their name.
_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Row(NamedTuple):
    """A tensor of a state."""

    name: str
    dtype: str
    """As safetensors has it."""
    shape: list[int]
    bytes: int
    tensor: torch.Tensor


def name_of(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype).removeprefix("torch.")


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor in their order, wherever it is and however it's laid out."""
    # A copy of its own: `memfit.torch` keeps in place what an address was taken of.
    with torch.no_grad():
        plain = tensor.detach().resolve_conj().resolve_neg().to("cpu", copy=True).contiguous()
    return ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size()) if plain.numel() else b""


def tensor_of(data: bytearray, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    """A tensor that has `data` for its memory."""
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape)


class _Taker:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.names: dict[str, int] = {}
        self.known: dict[Any, int] = {}

    def tensor(self, tensor: torch.Tensor, path: str) -> dict[str, Any]:
        kind = type(tensor)
        if (
            kind not in (torch.Tensor, torch.nn.Parameter)
            or tensor.layout != torch.strided
            or tensor.is_quantized
        ):
            raise UsageError(f"`{path}` is a {kind.__name__} of layout {tensor.layout}, which can't be kept")
        if tensor.device.type == "meta":
            raise UsageError(f"`{path}` is on the device `meta`: it has no content")
        name = name_of(tensor.dtype)
        # Tensors that are one are stored once, as tied weights are.
        storage = (tensor.untyped_storage()._cdata, tensor.storage_offset())
        key = (storage, tensor.device, name, tuple(tensor.shape), tensor.stride(), tensor.is_conj())
        at = self.known.get(key) if tensor.numel() else None
        if at is None:
            at = len(self.rows)
            self.known[key] = at
            size = tensor.numel() * tensor.element_size()
            dtype, shape = (_DTYPES[name], list(tensor.shape)) if name in _DTYPES else ("U8", [size])
            self.rows.append(Row(self.name(path), dtype, shape, size, tensor))
        node: dict[str, Any] = {"tensor": at}
        if name not in _DTYPES:
            node |= {"dtype": name, "shape": list(tensor.shape)}
        if kind is torch.nn.Parameter:
            node["parameter"] = tensor.requires_grad
        return node

    def name(self, path: str) -> str:
        """A name of its own: `path`, unless another tensor has it."""
        path = path.encode("utf-8", "replace").decode() or "state"
        while path in self.names or path == "__metadata__":
            self.names[path] = self.names.get(path, 1) + 1
            path = f"{path}#{self.names[path]}"
        self.names[path] = 1
        return path

    def node(self, value: Any, path: str, depth: int) -> Any:
        if depth > DEPTH:
            raise UsageError(f"`{path[:80]}` is nested more than {DEPTH} deep")

        def inner(value: Any, key: Any) -> Any:
            return self.node(value, f"{path}.{key}" if path else str(key), depth + 1)

        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if abs(value) < 1 << 53 else {"int": hex(value)}
        if kind is float:
            return {"float": struct.pack(">d", value).hex()}
        if kind is complex:
            return {"complex": struct.pack(">dd", value.real, value.imag).hex()}
        if kind is bytes:
            return {"bytes": value.hex()}
        if isinstance(value, torch.Tensor):
            return self.tensor(value, path)
        if kind is torch.dtype:
            return {"torch.dtype": name_of(value)}
        if kind is torch.device:
            return {"torch.device": str(value)}
        if kind in (list, tuple, torch.Size):
            return {_KINDS[kind]: [inner(item, at) for at, item in enumerate(value)]}
        if kind in (dict, OrderedDict):
            pairs = [[self.key(key, path), inner(item, key)] for key, item in value.items()]
            node = {_KINDS[kind]: pairs}
            # What `Module.state_dict` adds: the versions of modules.
            extra = vars(value) if kind is OrderedDict else {}
            if extra:
                node["attributes"] = inner(extra, "attributes")
            return node
        raise UsageError(
            f"`{path}` is a {kind.__module__}.{kind.__qualname__}, which can't be kept",
            hint="numbers, texts, tensors, lists, tuples and dicts can",
        )

    def key(self, key: Any, path: str) -> Any:
        if isinstance(key, torch.Tensor) or type(key) in (dict, OrderedDict, list):
            raise UsageError(f"a key of `{path}` is a {type(key).__name__}, which can't be kept")
        return self.node(key, f"{path} (a key)", 0)


_KINDS: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    torch.Size: "torch.Size",
    dict: "dict",
    OrderedDict: "ordered",
}


def take_apart(state: Any) -> tuple[str, list[Row]]:
    """The state as ASCII JSON, and its tensors. Raises `UsageError` for what can't be kept."""
    taker = _Taker()
    node = taker.node(state, "", 0)
    return json.dumps({"version": 1, "state": node}, separators=(",", ":")), taker.rows


class _Giver:
    def __init__(self, rows: list[tuple[str, str, list[int], int]], read: Callable[[int], bytearray]) -> None:
        self.rows, self.read = rows, read
        self.known: dict[int, torch.Tensor] = {}

    def tensor(self, node: dict[str, Any]) -> torch.Tensor:
        at = node["tensor"]
        if type(at) is not int or not 0 <= at < len(self.rows):
            raise InputError("the state names a tensor that is not there")
        if at not in self.known:
            name, stored, shape, size = self.rows[at]
            dtype = node.get("dtype") or _NAMES.get(stored)
            shape = node.get("shape", shape)
            torch_dtype = getattr(torch, str(dtype), None)
            if not isinstance(torch_dtype, torch.dtype):
                raise InputError(
                    f"tensor `{name}` is of the type `{dtype}`, which this PyTorch does not have"
                )
            if math.prod(shape) * torch_dtype.itemsize != size:
                raise InputError(f"tensor `{name}` has not the bytes of its type and shape")
            self.known[at] = tensor_of(self.read(at), torch_dtype, shape)
        tensor = self.known[at]
        if "parameter" in node:
            tensor = torch.nn.Parameter(tensor, requires_grad=bool(node["parameter"]))
        return tensor

    def value(self, node: Any, depth: int = 0) -> Any:
        if depth > DEPTH + 2:
            raise InputError(f"the state is nested more than {DEPTH} deep")
        if not isinstance(node, dict) or not node:
            if isinstance(node, list | float | dict):
                raise InputError("the state is not one that was saved")
            return node
        kind, inner = next(iter(node.items()))

        def values() -> list[Any]:
            return [self.value(item, depth + 1) for item in inner]

        def pairs() -> list[tuple[Any, Any]]:
            return [(self.value(key, depth + 1), self.value(item, depth + 1)) for key, item in inner]

        match kind:
            case "tensor":
                return self.tensor(node)
            case "int":
                return int(inner, 16)
            case "float":
                return struct.unpack(">d", bytes.fromhex(inner))[0]
            case "complex":
                return complex(*struct.unpack(">dd", bytes.fromhex(inner)))
            case "bytes":
                return bytes.fromhex(inner)
            case "torch.dtype" if isinstance(getattr(torch, inner, None), torch.dtype):
                return getattr(torch, inner)
            case "torch.device":
                return torch.device(inner)
            case "list":
                return values()
            case "tuple":
                return tuple(values())
            case "torch.Size":
                return torch.Size(values())
            case "dict":
                return dict(pairs())
            case "ordered":
                made = OrderedDict(pairs())
                for name, item in self.value(node.get("attributes", {"dict": []}), depth + 1).items():
                    if name != "_metadata":
                        raise InputError(f"the state has an attribute `{name}`")
                    made._metadata = item  # type: ignore[attr-defined]
                return made
        raise InputError(f"the state has a `{kind}`, which this memfit does not know")


def put_together(
    text: str, rows: list[tuple[str, str, list[int], int]], read: Callable[[int], bytearray]
) -> Any:
    """The state that was taken apart. `rows` has name, type, shape and bytes of each tensor."""
    giver = _Giver(rows, read)
    try:
        whole = json.loads(text)
        if whole.get("version") != 1:
            raise InputError(f"the state has version {whole.get('version')}, and this memfit reads version 1")
        return giver.value(whole["state"])
    except (Error, OSError, KeyboardInterrupt, MemoryError):
        raise
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        RuntimeError,
        struct.error,
        TypeError,
        ValueError,
    ) as error:
        raise InputError(f"the state is not one that was saved: {error}") from error


def flat(
    rows: list[tuple[str, str, list[int], int]], read: Callable[[int], bytearray]
) -> dict[str, torch.Tensor]:
    """Tensors by name: of a file that holds no state, as the command line makes of a safetensors file."""
    giver = _Giver(rows, read)
    return {row[0]: giver.tensor({"tensor": at}) for at, row in enumerate(rows)}
