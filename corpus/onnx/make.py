"""Makes the ONNX models of this directory again: `python make.py`.

Needs onnx 1.23, onnxscript, torch 2.15 and zstandard. The models that PyTorch exports have no weights: every
initializer of a kilobyte or more says that its contents are in `weights.bin`, which does not exist.
"""

import pathlib
import warnings

import onnx
import torch
import zstandard
from onnx import TensorProto, helper

HERE = pathlib.Path(__file__).parent
warnings.filterwarnings("ignore")


def store(name: str, data: bytes) -> None:
    (HERE / name).write_bytes(zstandard.ZstdCompressor(19).compress(data))


# --- What runs in the models: checked against onnx's own shape inference. ---


def shapes(name: str, model: onnx.ModelProto, **dims: int) -> list[str]:
    """Lines `model, value, element type, shape` for whatever onnx infers completely."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                bound = dims[dim.dim_param]
                dim.Clear()
                dim.dim_value = bound
    del model.graph.value_info[:]
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    filled = {out for node in inferred.node if node.op_type.startswith("Constant") for out in node.output}
    lines = []
    for info in [*inferred.value_info, *inferred.output]:
        tensor = info.type.tensor_type
        fixed = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
        if fixed and info.name not in filled:
            shape = "x".join(str(dim.dim_value) for dim in tensor.shape.dim)
            lines.append(f"{name}\t{info.name}\t{tensor.elem_type}\t{shape}")
    return sorted(lines)


def light() -> list[str]:
    lines = []
    for path in sorted((pathlib.Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx")):
        store(f"{path.name}.zst", path.read_bytes())
        lines += shapes(f"{path.name}.zst", onnx.load(path))
    return lines


class Encoder(torch.nn.Module):
    """Two encoder layers over tokens with learnt positions."""

    def __init__(self, size: int = 64, heads: int = 4, vocabulary: int = 100) -> None:
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(vocabulary, size), torch.nn.Embedding(64, size)
        layer = torch.nn.TransformerEncoderLayer(size, heads, 4 * size, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(size, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1]).unsqueeze(0).expand(ids.shape[0], -1)
        return self.head(self.encoder(self.tokens(ids) + self.positions(positions)))


def bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without weights, stack traces and docs."""
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) >= 1024:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value="weights.bin")
    for node in model.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key == "namespace"]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.ClearField("doc_string")
    for info in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
        del info.metadata_props[:]
    del model.metadata_props[:], model.graph.metadata_props[:]
    return model


def transformers() -> list[str]:
    torch.manual_seed(0)
    model, ids = Encoder().eval(), torch.zeros(2, 16, dtype=torch.long)
    # Different weights everywhere: exporters share equal ones.
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    axes = {0: torch.export.Dim("batch", min=2, max=64), 1: torch.export.Dim("seq", min=2, max=64)}
    dynamic = {"input_names": ["ids"], "output_names": ["logits"]}
    named = dynamic | {"dynamic_axes": {"ids": {0: "batch", 1: "seq"}}}
    lines = []
    for name, options in {
        "encoder_dynamo": {"dynamo": True, "dynamic_shapes": (axes,)} | dynamic,
        "encoder_dynamo_plain": {"dynamo": True, "dynamic_shapes": (axes,), "optimize": False} | dynamic,
        "encoder_legacy": {"dynamo": False} | named,
    }.items():
        path = HERE / f"{name}.tmp"
        torch.onnx.export(model, (ids,), str(path), verbose=False, **options)
        exported = onnx.load(path)
        path.unlink()
        pathlib.Path(f"{path}.data").unlink(missing_ok=True)
        store(f"{name}.onnx.zst", bare(exported).SerializeToString())
        lines += shapes(f"{name}.onnx.zst", exported, batch=2, seq=16)
    return lines


FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
functions (float[batch, 8] x) => (float[batch, 16] y, float[batch, 16] same)
<float[16, 8] w = {0}> {
  [first] h = local.block <turned = 1> (x, w)
  [second] y = local.twice (h)
  same = Identity (y)
}
<domain: "local", opset_import: ["" : 20, "local" : 1]>
block <turned> (x, w) => (y) {
  [product] h = Gemm <transB: int = @turned> (x, w)
  [again] y = local.twice (h)
}
<domain: "local", opset_import: ["" : 20]>
twice (x) => (y) {
  [sum] y = Add (x, x)
}
"""

RANDOM = """
<ir_version: 10, opset_import: ["" : 20]>
random (float[4, 8] x) => (float[4, 8] y)
<bool train = {1}, float ratio = {0.5}> {
  [noise] n = RandomNormalLike (x)
  [noisy] h = Add (x, n)
  [dropout] d, mask = Dropout (h, ratio, train)
  shape = Constant <value_ints = [8, 4]> ()
  [view] v = Reshape (d, shape)
  [turn] t = Transpose (v)
  [scale] y = Mul (t, t)
}
"""


def small() -> None:
    """Functions, and ops that draw random numbers."""
    functions = onnx.parser.parse_model(FUNCTIONS)
    weights = functions.graph.initializer[0]
    weights.CopyFrom(weight("w", [16, 8]))
    random = onnx.parser.parse_model(RANDOM)
    (HERE / "functions.onnx").write_bytes(functions.SerializeToString())
    (HERE / "random.onnx").write_bytes(random.SerializeToString())


# --- What does not: one fault each. ---


def tensor(name: str, dims: list, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def weight(name: str, dims: list[int]) -> TensorProto:
    proto = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    proto.external_data.add(key="location", value="../weights.bin")
    return proto


def numbers(name: str, values: list[int]) -> TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def node(kind: str, reads: str, writes: str, **attributes) -> onnx.NodeProto:
    split = [name if name != "-" else "" for name in reads.split()]
    return helper.make_node(kind, split, writes.split(), name=f"the_{kind.lower()}", **attributes)


def model(nodes, inputs=None, weights=(), functions=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "damaged", inputs or [tensor("x", [1, 3, 8, 8])], [tensor("y", None)], weights)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=imports, functions=functions)


CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def conv(reads: str = "x w", writes: str = "y", **attributes) -> onnx.NodeProto:
    return node("Conv", reads, writes, **(CONV | attributes))


def damaged() -> dict[str, onnx.ModelProto | bytes]:
    w = [weight("w", [4, 3, 3, 3])]
    good = model([conv()], weights=w)
    call = [helper.make_node("f", ["x"], ["y"], domain="local")]
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    again = helper.make_function("local", "f", ["x"], ["y"], call, opset)
    long = helper.make_tensor("w", TensorProto.INT64, [2], [1, 2])
    long.dims[0] = 3
    body = helper.make_graph([], "body", [], [])
    foreign = node("Conv", "x w", "y")
    foreign.op_type, foreign.domain = "Magic", "my.domain"
    return {
        "truncated": good.SerializeToString()[:-20],
        "no_graph": onnx.ModelProto(ir_version=10).SerializeToString(),
        "no_opset": onnx.ModelProto(ir_version=10, graph=good.graph),
        "unknown_operator": model([node("Frobnicate", "x", "y")]),
        "unknown_domain": model([foreign], weights=w),
        "control_flow": model([node("Loop", "- -", "y", body=body)]),
        "negative_dimension": model([conv()], weights=[weight("w", [4, -3, 3, 3])]),
        "negative_input": model([node("Relu", "x", "y")], [tensor("x", [-2, 3])]),
        "overflowing_dimension": model([node("Relu", "x", "y")], [tensor("x", [1 << 40, 1 << 40])]),
        "overflowing_tile": model([node("Tile", "x r", "y")], weights=[numbers("r", [1, 1, 1 << 62, 1])]),
        "overflowing_shape_product": model(
            [node("Mul", "r r", "s"), node("Expand", "x s", "y")], weights=[numbers("r", [1 << 40])]
        ),
        "unbound_dimension": model([node("Relu", "x", "y")], [tensor("x", ["batch", 3])]),
        "open_as_paddle": model([node("Relu", "x", "y")], [tensor("x", [-1, "?"])]),
        "unnamed_dimension": model([node("Relu", "x", "y")], [tensor("x", [2, None])]),
        "no_shape": model([node("Relu", "x", "y")], [tensor("x", None)]),
        "cycle": model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Neg", "b", "y")]),
        "own_output": model([node("Add", "x y", "y")]),
        "missing_input": model([conv("x lost")]),
        "missing_operand": model([conv("x")]),
        "missing_output": model([conv(writes="z")], weights=w),
        "defined_twice": model([conv(), node("Relu", "x", "y")], weights=w),
        "wrong_rank": model([conv()], [tensor("x", [3, 8])], w),
        "wrong_channels": model([conv()], [tensor("x", [1, 5, 8, 8])], w),
        "wrong_window": model([conv(pads=[0, 0, 0, 0])], [tensor("x", [1, 3, 2, 8])], w),
        "wrong_attribute_type": model([conv(strides="two")], weights=w),
        "zero_stride": model([conv(strides=[0, 1])], weights=w),
        "wrong_types": model([node("Add", "x i", "y")], weights=[numbers("i", [1])]),
        "wrong_reshape": model([node("Reshape", "x s", "y")], weights=[numbers("s", [7, -1])]),
        "wrong_axis": model([node("Concat", "x x", "y", axis=4)]),
        "wrong_length": model([node("Gather", "x w", "y")], weights=[long]),
        "data_dependent": model([node("NonZero", "x", "y")]),
        "data_dependent_reshape": model([node("Reshape", "x s", "y")], [tensor("x", [4]), tensor("s", [2], 7)]),
        "recursive_function": model(call, functions=[again]),
        "sequence_input": model(
            [node("Identity", "x", "y")], [helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])]
        ),
    }


def main() -> None:
    lines = light() + transformers()
    store("shapes.tsv.zst", "".join(f"{line}\n" for line in lines).encode())
    small()
    (HERE / "damaged").mkdir(exist_ok=True)
    for name, what in damaged().items():
        data = what if isinstance(what, bytes) else what.SerializeToString()
        (HERE / "damaged" / f"{name}.onnx").write_bytes(data)


if __name__ == "__main__":
    main()
