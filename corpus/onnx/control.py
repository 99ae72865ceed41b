"""Makes the models with branches and bodies again: `python control.py`. Needs onnx 1.23.

`control/` are read by tests; `damaged/control_*.onnx` have one fault each.
"""

import pathlib

from onnx import TensorProto, helper

HERE = pathlib.Path(__file__).parent
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, shape, elem=FLOAT):
    return helper.make_tensor_value_info(name, elem, shape)


def node(kind, reads, writes, **attributes):
    reads = ["" if name == "-" else name for name in reads.split()]
    writes = ["" if name == "-" else name for name in writes.split()]
    return helper.make_node(kind, reads, writes, name=f"the_{kind.lower()}_{writes[0]}", **attributes)


def graph(name, nodes, outputs, inputs=(), weights=()):
    return helper.make_graph(nodes, name, list(inputs), list(outputs), list(weights))


def weight(name, shape):
    """A weight whose contents are in a file that does not exist."""
    tensor = TensorProto(name=name, data_type=FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": "/nowhere/weights.bin", "offset": "0", "length": "123"}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return tensor


def number(name, *numbers):
    return helper.make_tensor(name, INT64, [len(numbers)], list(numbers))


def scalar(name, what, elem=INT64):
    return helper.make_tensor(name, elem, [], [what])


def model(nodes, inputs, outputs, weights=(), opset=20):
    made = graph("control", nodes, outputs, inputs, weights)
    return helper.make_model(made, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


C = value("c", [], BOOL)
X = value("x", [64, 64])  # 16 KiB


def branch(name, nodes, out, shape=(64, 64), weights=()):
    return graph(name, nodes, [value(out, shape)], weights=weights)


def wide():
    """Two values of 32 KiB at once, and one of 16 KiB that its result is computed from."""
    nodes = [
        node("Concat", "h h", "w1", axis=0),
        node("Tanh", "w1", "w2"),
        node("MatMul", "w2 m", "w3"),
        node("Slice", "w3 zero height", "t"),
    ]
    tables = [weight("m", [64, 64]), number("zero", 0), number("height", 64)]
    return branch("wide", nodes, "t", weights=tables)


def narrow():
    return branch("narrow", [node("Tanh", "x", "e")], "e")


def branches():
    """What both branches read: the results of ops before, by their names. `h` is not read after."""
    chosen = node("If", "c", "y", then_branch=wide(), else_branch=narrow())
    return model([node("Relu", "x", "h"), chosen, node("Neg", "y", "z")], [C, X], [value("z", [64, 64])])


def chosen():
    """A branch that the model itself takes stands in the place of its node."""
    made = branches()
    made.graph.initializer.append(scalar("c", True, BOOL))
    del made.graph.input[0]
    return made


def nested():
    """A branch within a loop within a branch, which reads a value and a weight from outermost."""
    inner = node(
        "If",
        "c",
        "s",
        then_branch=branch("a", [node("MatMul", "carried far", "p")], "p"),
        else_branch=branch("b", [node("Add", "carried h", "q")], "q"),
    )
    body = graph(
        "body",
        [inner, node("Identity", "go", "go_on"), node("ReduceSum", "s", "total", keepdims=0)],
        [value("go_on", [], BOOL), value("s", [64, 64]), value("total", [])],
        [value("i", [], INT64), value("go", [], BOOL), value("carried", [64, 64])],
    )
    loop = node("Loop", "trips - h", "last sums", body=body)
    outer = node("If", "c", "y", then_branch=branch("long", [loop], "last"), else_branch=narrow())
    return model(
        [node("Relu", "x", "h"), outer],
        [C, X],
        [value("y", [64, 64])],
        [weight("far", [64, 64]), scalar("trips", 5)],
    )


def body(extra=(), carried=(64, 64)):
    """Carries `s`, gives a row of it, and asks whether to go on."""
    nodes = [
        node("Add", "s x", "d"),
        node("Tanh", "d", "after"),
        node("ReduceMax", "after", "row", keepdims=0, axes=[0]),
        node("Identity", "go", "go_on"),
        *extra,
    ]
    return graph(
        "body",
        nodes,
        [value("go_on", [], BOOL), value("after", carried), value("row", [64])],
        [value("i", [], INT64), value("go", [], BOOL), value("s", carried)],
    )


def loop(trips=True):
    made = model(
        [node("Loop", f"{'trips' if trips else 'n'} - x", "last rows", body=body())],
        [X] if trips else [value("n", [], INT64), X],
        [value("last", [64, 64]), value("rows", ["iterations", 64])],
        [scalar("trips", 10)] if trips else [],
        opset=17,
    )
    # What nobody declares is asked for by the name of the value.
    made.graph.output[1].type.tensor_type.ClearField("shape")
    return made


def growing():
    """A value that is longer after each iteration."""
    grows = graph(
        "body",
        [node("Concat", "s x", "after", axis=0), node("Identity", "go", "go_on")],
        [value("go_on", [], BOOL), value("after", ["more", 64])],
        [value("i", [], INT64), value("go", [], BOOL), value("s", ["some", 64])],
    )
    return model(
        [node("Loop", "trips - x", "last", body=grows)], [X], [value("last", None)], [scalar("trips", 3)]
    )


def scan(axes=None):
    """Ten steps; a state, rows in and rows out."""
    step = graph(
        "step",
        [node("MatMul", "row far", "p"), node("Add", "p state", "next"), node("Sigmoid", "next", "out")],
        [value("next", [64]), value("out", [64])],
        [value("state", [64]), value("row", [64])],
    )
    options = {} if axes is None else {"scan_input_axes": [axes], "scan_output_axes": [axes]}
    rows = [10, 64] if not axes else [64, 10]
    return model(
        [node("Scan", "zero rows", "last outs", body=step, num_scan_inputs=1, **options)],
        [value("zero", [64]), value("rows", rows)],
        [value("last", [64]), value("outs", rows)],
        [weight("far", [64, 64])],
    )


def old_scan():
    """As opset 8 has it: a batch in front, and lengths."""
    made = scan()
    made.opset_import[0].version = 8
    for info, shape in zip([*made.graph.input, *made.graph.output], [[2, 64], [2, 10, 64]] * 2, strict=True):
        info.CopyFrom(value(info.name, shape))
    made.graph.node[0].input.insert(0, "")
    return made


def ranks():
    """Branches whose results differ in rank."""
    flat = branch("flat", [node("Reshape", "x flat_shape", "f")], "f", ["?"], [number("flat_shape", -1)])
    return model([node("If", "c", "y", then_branch=flat, else_branch=narrow())], [C, X], [value("y", None)])


def sizes():
    """Branches whose results differ in size: the larger counts, dimension by dimension."""
    tables = [number("zero", 0), number("few", 5)]
    cut = branch("cut", [node("Slice", "x zero few", "k")], "k", [5, 64], tables)
    return model([node("If", "c", "y", then_branch=cut, else_branch=narrow())], [C, X], [value("y", None)])


def found():
    """What only a run can tell, and an op that goes on with it."""
    nodes = [node("NonZero", "x", "places"), node("Cast", "places", "y", to=FLOAT)]
    return model(nodes, [X], [value("y", [2, "many"])])


def deep(levels):
    inner = branch("end", [node("Tanh", "x", "t0")], "t0")
    for level in range(1, levels):
        name = f"t{level}"
        inside = node("If", "c", name, then_branch=inner, else_branch=narrow())
        inner = branch(f"level {level}", [inside], name)
    return model(
        [node("If", "c", "y", then_branch=inner, else_branch=narrow())], [C, X], [value("y", [64, 64])]
    )


def in_function():
    """A branch within a function, which reads what the function is given."""
    then = branch("then", [node("MatMul", "a a", "p")], "p")
    other = branch("other", [node("Neg", "a", "q")], "q")
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    body = [node("If", "k", "r", then_branch=then, else_branch=other)]
    made = model(
        [helper.make_node("choose", ["x", "c"], ["y"], name="first", domain="local")],
        [C, X],
        [value("y", [64, 64])],
    )
    made.functions.append(helper.make_function("local", "choose", ["a", "k"], ["r"], body, opset))
    made.opset_import.append(opset[1])
    return made


def faults():
    without = node("If", "c", "y", then_branch=narrow())
    two = graph("two", [node("Tanh", "x", "e")], [value("e", [64, 64]), value("x", [64, 64])])
    absent = branch("absent", [node("Tanh", "nothing", "e")], "e")
    hidden = [node("If", "c", "y", then_branch=narrow(), else_branch=narrow()), node("Neg", "e", "z")]
    ints = graph("ints", [node("Cast", "x", "e", to=INT64)], [value("e", [64, 64], INT64)])
    uneven = scan()
    uneven.graph.node[0].attribute[1].i = 3
    shapes = scan()
    shapes.graph.input[0].CopyFrom(value("zero", [32, 1]))
    text = branch("text", [node("Cast", "x", "e", to=TensorProto.STRING)], "e")
    y = [value("y", [64, 64])]
    return {
        "branch_absent": model([without], [C, X], y),
        "branch_outputs": model([node("If", "c", "y", then_branch=two, else_branch=narrow())], [C, X], y),
        "branch_reads": model([node("If", "c", "y", then_branch=absent, else_branch=narrow())], [C, X], y),
        "branch_ranks": ranks(),
        "branch_types": model([node("If", "c", "y", then_branch=ints, else_branch=narrow())], [C, X], y),
        "branch_text": model([node("If", "c", "y", then_branch=text, else_branch=narrow())], [C, X], y),
        "inner_name": model(hidden, [C, X], [value("z", [64, 64])]),
        "loop_grows": growing(),
        "loop_trips": loop(trips=False),
        "loop_operands": model(
            [node("Loop", "- - x x", "last", body=body())], [X], [value("last", [64, 64])], opset=17
        ),
        "scan_operands": uneven,
        "scan_state": shapes,
        "data_dependent_named": found(),
        "deep": deep(17),
    }


def main():
    (HERE / "control").mkdir(exist_ok=True)
    made = {
        "branches": branches(),
        "chosen": chosen(),
        "nested": nested(),
        "loop": loop(),
        "loop_open": loop(trips=False),
        "growing": growing(),
        "scan": scan(),
        "scan_axis": scan(1),
        "scan_old": old_scan(),
        "ranks": ranks(),
        "sizes": sizes(),
        "found": found(),
        "deep": deep(16),
        "in_function": in_function(),
    }
    for name, what in made.items():
        (HERE / "control" / f"{name}.onnx").write_bytes(what.SerializeToString())
    for name, what in faults().items():
        (HERE / "damaged" / f"control_{name}.onnx").write_bytes(what.SerializeToString())


if __name__ == "__main__":
    main()
