"""Plan a model for TensorFlow Lite Micro, write the offsets into it, and run it with and without them.

    pip install ai-edge-litert tflite-micro
    python offline.py [MODEL.tflite]

Without a model, a small network with a residual branch is made. `memfit` must be on the path, or named by
`MEMFIT`.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

MEMFIT = os.environ.get("MEMFIT", "memfit")
DEVICE = pathlib.Path(__file__).parent / "microcontroller.toml"
ARENA = 64 << 20  # bytes; more than enough for a trial


def small() -> bytes:
    """A network of `float32`: two convolutions, an addition, an activation, a view and a product."""
    random = np.random.default_rng(0)
    model = schema.ModelT()
    model.version, model.description = 3, "small"
    model.buffers = [schema.BufferT()]
    main = schema.SubGraphT()
    main.name, main.tensors, main.operators = "main", [], []
    builtin = schema.BuiltinOperator
    codes = [builtin.CONV_2D, builtin.ADD, builtin.RELU, builtin.RESHAPE, builtin.FULLY_CONNECTED]
    model.operatorCodes = []
    for code in codes:
        row = schema.OperatorCodeT()
        row.deprecatedBuiltinCode, row.builtinCode, row.version = code, code, 1
        model.operatorCodes.append(row)

    def tensor(name: str, shape: list[int], data: np.ndarray | None = None) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.buffer = name, shape, 0
        is_float = data is None or data.dtype == np.float32
        made.type = schema.TensorType.FLOAT32 if is_float else schema.TensorType.INT32
        if data is not None:
            made.buffer = len(model.buffers)
            held = schema.BufferT()
            held.data = np.frombuffer(data.tobytes(), np.uint8)
            model.buffers.append(held)
        main.tensors.append(made)
        return len(main.tensors) - 1

    def weights(name: str, shape: list[int]) -> int:
        return tensor(name, shape, (random.standard_normal(shape) / 4).astype(np.float32))

    def op(code: int, inputs: list[int], output: int, kind: int = 0, options: object = None) -> int:
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = codes.index(code), inputs, [output]
        made.builtinOptionsType, made.builtinOptions = kind, options
        main.operators.append(made)
        return output

    def convolution(x: int, name: str) -> int:
        options = schema.Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = schema.Padding.SAME, 1, 1
        parts = [x, weights(f"{name}.weight", [8, 3, 3, 8]), weights(f"{name}.bias", [8])]
        out = tensor(name, [1, 24, 24, 8])
        return op(builtin.CONV_2D, parts, out, schema.BuiltinOptions.Conv2DOptions, options)

    x = tensor("x", [1, 24, 24, 8])
    first = convolution(x, "first")
    second = convolution(first, "second")
    options = schema.AddOptionsT()
    total = tensor("sum", [1, 24, 24, 8])
    op(builtin.ADD, [first, second], total, schema.BuiltinOptions.AddOptions, options)
    active = op(builtin.RELU, [total], tensor("active", [1, 24, 24, 8]))
    shape = tensor("shape", [2], np.array([1, 4608], np.int32))
    flat = op(builtin.RESHAPE, [active, shape], tensor("flat", [1, 4608]))
    parts = [flat, weights("head.weight", [10, 4608]), weights("head.bias", [10])]
    options = schema.FullyConnectedOptionsT()
    y = tensor("y", [1, 10])
    op(builtin.FULLY_CONNECTED, parts, y, schema.BuiltinOptions.FullyConnectedOptions, options)
    main.inputs, main.outputs = [x], [y]
    model.subgraphs = [main]
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def inputs(details: list[dict]) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [(random.standard_normal(one["shape"]) * 30).astype(one["dtype"]) for one in details]


def lite(model: bytes) -> list[np.ndarray]:
    """The outputs by LiteRT."""
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    for one, value in zip(details, inputs(details), strict=True):
        interpreter.set_tensor(one["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]


MICRO = """
import sys
import numpy as np
from tflite_micro.python.tflite_micro import runtime
model, inputs, outputs, arena = sys.argv[1:]
interpreter = runtime.Interpreter.from_bytes(open(model, "rb").read(), arena_size=int(arena))
for index, value in enumerate(np.load(inputs).values()):
    interpreter.set_input(value, index)
interpreter.invoke()
np.savez(outputs, *(interpreter.get_output(index) for index in range(int(open(inputs + ".count").read()))))
interpreter.print_allocations()
"""


def micro(model: bytes, folder: pathlib.Path) -> tuple[list[np.ndarray], int] | str:
    """The outputs by TensorFlow Lite Micro and bytes of its arena for tensors, or why it does not run it."""
    (folder / "micro.tflite").write_bytes(model)
    interpreter = Interpreter(model_content=model)
    np.savez(folder / "in.npz", *inputs(interpreter.get_input_details()))
    (folder / "in.npz.count").write_text(str(len(interpreter.get_output_details())))
    names = [str(folder / name) for name in ("micro.tflite", "in.npz", "out.npz")]
    done = subprocess.run([sys.executable, "-c", MICRO, *names, str(ARENA)], capture_output=True, text=True)
    # The runtime writes to either stream.
    said = done.stdout + done.stderr
    head = re.search(r"Arena allocation head (\d+) bytes", said)
    if done.returncode != 0 or head is None:
        return next((line for line in said.splitlines() if line), "no answer")
    return list(np.load(folder / "out.npz").values()), int(head.group(1))


def planned(path: pathlib.Path, folder: pathlib.Path) -> bytes:
    """The model with the offsets of a plan in it."""
    plan, out = folder / "plan.json", folder / "planned.tflite"
    as_written = ["--order", "given", "--no-recompute", "--no-offload"]
    line = [MEMFIT, "plan", path, "--device", DEVICE, *as_written, "-o", plan, "--json"]
    subprocess.run(line, check=True, capture_output=True)
    subprocess.run([MEMFIT, "export", plan, path, "--to", "tflite", "-o", out], check=True)
    return out.read_bytes()


def offsets(model: bytes) -> list[int]:
    """What a reader by the schema finds."""
    read = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(model, 0))
    for entry in read.metadata or []:
        if entry.name == b"OfflineMemoryAllocation":
            data = bytes(read.buffers[entry.buffer].data)
            version, subgraph, count, *rest = np.frombuffer(data, np.int32).tolist()
            assert (version, subgraph, count) == (1, 0, len(rest))
            return rest
    return []


def rest(model: bytes) -> tuple:
    """Everything in a model but its offsets, by the schema."""

    def plain(value: object) -> object:
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.tobytes()
        if isinstance(value, list):
            return [plain(one) for one in value]
        if not hasattr(value, "__dict__"):
            return value
        return [(name, plain(one)) for name, one in sorted(vars(value).items())]

    read = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(model, 0))
    ours = {entry.buffer for entry in read.metadata or [] if entry.name == b"OfflineMemoryAllocation"}
    kept = [entry for entry in read.metadata or [] if entry.name != b"OfflineMemoryAllocation"]
    buffers = [plain(buffer) for index, buffer in enumerate(read.buffers) if index not in ours]
    read.metadata, read.buffers = None, None
    return plain(read), plain(kept), buffers


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "small.tflite"
        if len(sys.argv) == 1:
            path.write_bytes(small())
        before = path.read_bytes()
        after = planned(path, folder)
        found = offsets(after)
        print(f"offsets for {sum(offset >= 0 for offset in found)} of {len(found)} tensors")
        print("everything else unchanged     ", rest(before) == rest(after))
        print("LiteRT: outputs equal         ", same(lite(before), lite(after)))
        one, other = micro(before, folder), micro(after, folder)
        if isinstance(one, str) or isinstance(other, str):
            print("TensorFlow Lite Micro does not run it:", one if isinstance(one, str) else other)
            return
        print("TensorFlow Lite Micro: equal  ", same(one[0], other[0]))
        print(f"arena for tensors              {one[1]} B by its own planner, {other[1]} B with the offsets")


if __name__ == "__main__":
    main()
