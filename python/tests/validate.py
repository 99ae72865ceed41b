"""The rules of docs/graph-json.md, checked on a parsed file. Written apart from the exporter."""

from typing import Any

GRAPH = {"schema", "name", "origin", "replays_random", "values", "ops", "results"}
VALUE = {"name", "bytes", "dtype", "shape", "role", "density", "pin"}
OP = {"name", "kind", "module", "phase", "flops", "moved", "dtype", "time_ns", "workspace", "algorithms"}
OP |= {"attributes", "effect", "reads", "sign", "shape", "writes", "must", "may"}
DTYPES = {"f64", "f32", "f16", "bf16", "f8", "i64", "i32", "i16", "i8", "bool", "c64", "c128", "other"}
ROLES = {"input", "parameter", "state", "constant", "activation", "gradient", "output"}
SOURCES = {"input", "parameter", "state", "constant"}


def validate(graph: dict[str, Any]) -> None:
    """Fails on the first rule that `graph` breaks."""
    assert graph["schema"] == "memfit-graph/1"
    assert set(graph) <= GRAPH and {"schema", "name", "values", "ops", "results"} <= set(graph)
    values, ops = graph["values"], graph["ops"]
    for value in values:
        assert set(value) <= VALUE and isinstance(value["bytes"], int) and value["bytes"] >= 0, value
        assert value.get("dtype", "f32") in DTYPES and value.get("role", "activation") in ROLES, value
        assert all(isinstance(size, int) and size >= 0 for size in value.get("shape", [])), value
    assert sum(value["bytes"] for value in values) < 1 << 62
    producer: dict[int, int] = {}
    gone: dict[int, str] = {}
    read: set[int] = set()
    phases = ["forward", "backward", "update"]
    last_phase = 0
    for at, op in enumerate(ops):
        assert set(op) <= OP and {"kind", "reads", "writes"} <= set(op), op
        assert op.get("effect", "pure") in {"pure", "seeded", "once", "collective"}, op
        assert op.get("dtype", "f32") in DTYPES and isinstance(op.get("attributes", ""), str), op
        assert op.get("flops", 0) >= 0 and op.get("moved", 0) >= 0, op
        phase = phases.index(op.get("phase", "forward"))
        assert phase >= last_phase, f"{op['name']} runs in `{op.get('phase')}` after a later phase"
        last_phase = phase
        for value in op["reads"]:
            role = values[value].get("role", "activation")
            assert value in producer or role in SOURCES, (
                f"{op['name']} reads {values[value]} before it is there"
            )
            assert value not in gone, f"{op['name']} reads {values[value]} after {gone.get(value)}"
        for value in op["writes"]:
            assert value not in producer and value not in op["reads"], (
                f"{op['name']} writes {values[value]} again"
            )
            assert value not in read, f"{op['name']} writes {values[value]} after it was read"
        less = [*op.get("sign", []), *op.get("shape", [])]
        assert len(set(less)) == len(less) and all(0 <= at < len(op["reads"]) for at in less), op
        over = {before for before, _ in op.get("must", [])}
        assert not over & {op["reads"][at] for at in less}, op
        taken: set[int] = set()
        for kind in ("must", "may"):
            for before, after in op.get(kind, []):
                assert before in op["reads"] and after in op["writes"], op
                assert values[before]["bytes"] == values[after]["bytes"], op
                if kind == "must":
                    assert before not in taken and after not in taken, op
                    taken |= {before, after}
                    gone[before] = op["name"]
                else:
                    assert values[before].get("role") not in {"parameter", "state", "constant"}, op
                    assert after not in taken, op
        for value in op["writes"]:
            producer[value] = at
        read |= set(op["reads"])
    for index, value in enumerate(values):
        assert index in producer or value.get("role", "activation") in SOURCES, value
    for value in graph["results"]:
        assert value not in gone, f"result {values[value]} is overwritten by {gone.get(value)}"


def live_peak(graph: dict[str, Any], in_place: bool = True) -> int:
    """Largest sum of live bytes in the graph's order.

    A value dies after its last reader; results and the last versions of persistent values never do. An
    output with a `must` pair takes its input's bytes; with a `may` pair, if `in_place` and the input dies.
    """
    values, ops = graph["values"], graph["ops"]
    last = {value: at for at, op in enumerate(ops) for value in op["reads"] + op["writes"]}
    mutated = {before for op in ops for before, _ in op.get("must", [])}
    persistent = {"parameter", "state", "constant"}
    immortal = set(graph["results"])
    made = {value for op in ops for value in op["writes"]}
    kept = {i for i, v in enumerate(values) if v.get("role") in persistent and i not in made}
    for op in ops:
        kept |= {after for before, after in op.get("must", []) if before in kept}
    immortal |= kept - mutated
    live = sum(v["bytes"] for i, v in enumerate(values) if i not in made)
    peak = live
    for at, op in enumerate(ops):
        dying = {v for v in set(op["reads"]) | set(op["writes"]) if last[v] == at and v not in immortal}
        reused = dict(op.get("must", []))
        if in_place:
            for before, after in op.get("may", []):
                if before in dying and before not in reused and after not in reused.values():
                    reused[before] = after
        live += sum(values[v]["bytes"] for v in op["writes"] if v not in reused.values())
        peak = max(peak, live)
        live -= sum(values[v]["bytes"] for v in dying if v not in reused)
    return peak
