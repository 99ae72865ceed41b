"""Every op that memfit lets write over an input, run so by TensorFlow Lite Micro: outputs must not change.

Run by `test_tflite.py`, in a Python that has `ai-edge-litert` and `tflite-micro`. Prints how many ops ran so.
"""

import pathlib
import sys
import tempfile

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "tflite"))
import offline

# With their options, where they have some. What the runtime lacks is left out by itself.
ONE = {
    "ABS": "AbsOptions", "NEG": "NegOptions", "EXP": "ExpOptions", "LOG": "", "SQRT": "", "RSQRT": "",
    "SQUARE": "SquareOptions", "SIN": "", "COS": "CosOptions", "FLOOR": "", "CEIL": "", "ROUND": "",
    "RELU": "", "RELU6": "", "ELU": "", "GELU": "GeluOptions", "LEAKY_RELU": "LeakyReluOptions",
    "HARD_SWISH": "HardSwishOptions", "TANH": "", "LOGISTIC": "", "SOFTMAX": "SoftmaxOptions",
}  # fmt: skip
TWO = {
    "ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions", "PRELU": "",
    "MAXIMUM": "MaximumMinimumOptions", "MINIMUM": "MaximumMinimumOptions",
    "SQUARED_DIFFERENCE": "SquaredDifferenceOptions", "FLOOR_DIV": "FloorDivOptions",
    "FLOOR_MOD": "FloorModOptions", "POW": "PowOptions",
}  # fmt: skip
SHAPE = [1, 7, 9, 5]  # odd, so that kernels have tails


def model(name: str, second: str) -> bytes:
    """`x + x → t`, `t` (and x, or a row of weights) → `u` by the op, `u + x → y`."""
    made, main = schema.ModelT(), schema.SubGraphT()
    made.version, made.buffers, made.operatorCodes, made.subgraphs = 3, [schema.BufferT()], [], [main]
    main.name, main.tensors, main.operators = "main", [], []

    def tensor(label: str, data: np.ndarray | None = None) -> int:
        one = schema.TensorT()
        one.name, one.shape, one.buffer = label, SHAPE if data is None else list(data.shape), 0
        if data is not None:
            one.buffer = len(made.buffers)
            held = schema.BufferT()
            held.data = np.frombuffer(data.tobytes(), np.uint8)
            made.buffers.append(held)
        main.tensors.append(one)
        return len(main.tensors) - 1

    def op(kind: str, inputs: list[int], output: int, options: str) -> int:
        code, one = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        one.opcodeIndex, one.inputs, one.outputs = len(made.operatorCodes), inputs, [output]
        made.operatorCodes.append(code)
        if options:
            one.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            one.builtinOptions = getattr(schema, options + "T")()
        if kind == "SOFTMAX":
            one.builtinOptions.beta = 1.0
        if kind == "LEAKY_RELU":
            one.builtinOptions.alpha = 0.1
        main.operators.append(one)
        return output

    x = tensor("x")
    t = op("ADD", [x, x], tensor("t"), "AddOptions")
    row = (np.random.default_rng(3).standard_normal(SHAPE[-1:]) * 20).astype(np.float32)
    if name == "PRELU":
        row = row.reshape(1, 1, -1)
    others = {"": [t], "x": [t, x], "before": [x, t], "row": [t, tensor("w", row)] if second == "row" else []}
    u = op(name, others[second], tensor("u"), {**ONE, **TWO}[name])
    y = op("ADD", [u, x], tensor("y"), "AddOptions")
    main.inputs, main.outputs = [x], [y]
    builder = flatbuffers.Builder(1 << 12)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def main() -> None:
    ran, unknown = set(), set()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        cases = [(name, "") for name in ONE]
        cases += [(name, second) for name in TWO for second in ("x", "before", "row")]
        for name, second in cases:
            if (name, second) == ("PRELU", "before"):
                continue
            path = folder / "model.tflite"
            path.write_bytes(model(name, second))
            after = offline.planned(path, folder)
            one, other = offline.micro(path.read_bytes(), folder), offline.micro(after, folder)
            if isinstance(one, str) or isinstance(other, str):
                unknown.add(name)
                continue
            offsets = offline.offsets(after)
            places = {one.name: offset for one, offset in zip(tensors(after), offsets, strict=True)}
            assert places[b"u"] == places[b"t"], f"{name}: not in place: {places}"
            assert offline.same(one[0], other[0]), f"{name} ({second}): outputs differ in place"
            ran.add(name)
    print(f"{len(ran)} ops in place, outputs equal; not in the runtime: {' '.join(sorted(unknown - ran))}")


def tensors(bytes_of_model: bytes) -> list:
    read = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(bytes_of_model, 0))
    return read.subgraphs[0].tensors


if __name__ == "__main__":
    main()
