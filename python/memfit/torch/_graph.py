"""The graph as `memfit-graph/1` has it: values, ops, results, and the file they are written to.

The schema is documented in docs/graph-json.md. Nothing here knows PyTorch.
"""

import dataclasses
import json
import pathlib
from typing import Any

SCHEMA = "memfit-graph/1"


class ExportError(Exception):
    """What can't be exported, and what to do about it (after `hint:`)."""


@dataclasses.dataclass
class Value:
    """One version of a storage's content."""

    name: str
    bytes: int
    """Size of the storage in bytes."""
    dtype: str = "f32"
    shape: tuple[int, ...] = ()
    role: str = "activation"

    def to_json(self) -> dict[str, Any]:
        """The object for the file; defaults left out."""
        out: dict[str, Any] = {"name": self.name, "bytes": self.bytes}
        if self.dtype != "f32":
            out["dtype"] = self.dtype
        if self.shape:
            out["shape"] = list(self.shape)
        if self.role != "activation":
            out["role"] = self.role
        return out


@dataclasses.dataclass
class Op:
    """What runs at one point of the step. Operands are indices of values, each once."""

    name: str
    kind: str
    module: str = ""
    attributes: str | None = None
    """What it is told beside its operands; `None` where that is not known."""
    phase: str = "forward"
    flops: int = 0
    """Floating-point operations; a multiply-add is two."""
    moved: int = 0
    """Bytes that travel between memory and processor."""
    workspace: int = 0
    """Scratch bytes while it runs."""
    algorithms: list[dict[str, int]] = dataclasses.field(default_factory=list)
    """Other ways to run it: `workspace`, `flops` and `moved` of each."""
    time_ns: int | None = None
    """Measured run time."""
    dtype: str = "f32"
    effect: str = "pure"
    reads: list[int] = dataclasses.field(default_factory=list)
    sign: list[int] = dataclasses.field(default_factory=list)
    """Positions in `reads` of what the op needs no more of than whether each element is above zero."""
    shape: list[int] = dataclasses.field(default_factory=list)
    """Positions in `reads` of what it needs no more of than the shape."""
    writes: list[int] = dataclasses.field(default_factory=list)
    must: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    may: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    def to_json(self, values: list[Value]) -> dict[str, Any]:
        """The object for the file; defaults left out."""
        out: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.attributes is not None:
            out["attributes"] = self.attributes
        if self.module:
            out["module"] = self.module
        if self.phase != "forward":
            out["phase"] = self.phase
        if self.flops:
            out["flops"] = self.flops
        if self.moved != sum(values[value].bytes for value in self.reads + self.writes):
            out["moved"] = self.moved
        if self.time_ns is not None:
            out["time_ns"] = self.time_ns
        if self.workspace:
            out["workspace"] = self.workspace
        if self.algorithms:
            out["algorithms"] = self.algorithms
        if self.dtype != "f32":
            out["dtype"] = self.dtype
        if self.effect != "pure":
            out["effect"] = self.effect
        out["reads"] = self.reads
        if self.sign:
            out["sign"] = self.sign
        if self.shape:
            out["shape"] = self.shape
        out["writes"] = self.writes
        if self.must:
            out["must"] = [list(pair) for pair in self.must]
        if self.may:
            out["may"] = [list(pair) for pair in self.may]
        return out


@dataclasses.dataclass
class Graph:
    """A whole step."""

    name: str
    origin: str = ""
    replays_random: bool = True
    """Whether the host can set its random generators back, so that a mask can be drawn again: PyTorch can."""
    values: list[Value] = dataclasses.field(default_factory=list)
    ops: list[Op] = dataclasses.field(default_factory=list)
    results: list[int] = dataclasses.field(default_factory=list)

    def add_value(self, value: Value) -> int:
        """Adds a value and returns its index."""
        self.values.append(value)
        return len(self.values) - 1

    def to_json(self) -> dict[str, Any]:
        """The file's object."""
        return dict(json.loads(self.dumps()))

    def dumps(self) -> str:
        """The file's text: one value or op in a line. The same graph gives the same text."""

        def line(item: Any) -> str:
            return json.dumps(item, separators=(",", ":"), ensure_ascii=False)

        head = [f'"schema":{line(SCHEMA)}', f'"name":{line(self.name)}']
        if self.origin:
            head.append(f'"origin":{line(self.origin)}')
        if self.replays_random:
            head.append('"replays_random":true')
        values = ",\n".join(line(value.to_json()) for value in self.values)
        ops = ",\n".join(line(op.to_json(self.values)) for op in self.ops)
        body = [f'"values":[\n{values}\n]', f'"ops":[\n{ops}\n]', f'"results":{line(self.results)}']
        return "{" + ",\n".join(head + body) + "}\n"

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the file; Zstandard if the name ends in `.zst`, else plain JSON."""
        path = pathlib.Path(path)
        check_path(path)
        data = self.dumps().encode()
        path.write_bytes(_compressor()(data) if path.suffix == ".zst" else data)


def check_path(path: str | pathlib.Path) -> None:
    """Finds out before the work whether `path` can be written to.

    Raises `ExportError` if its name or its folder is wrong, or Zstandard is asked for and not there.
    """
    path = pathlib.Path(path)
    if not path.name.endswith((".json", ".json.zst")):
        raise ExportError(
            f"`{path.name}` ends in neither `.json` nor `.json.zst`\nhint: `-o {path.stem}.json`"
        )
    if not path.parent.is_dir():
        raise ExportError(f"folder `{path.parent}` does not exist\nhint: `mkdir -p {path.parent}`")
    if path.suffix == ".zst":
        _compressor()


def _compressor() -> Any:
    """A function from bytes to a Zstandard frame: of the standard library (3.14), or of `zstandard`."""
    try:
        from compression import zstd  # type: ignore[import-not-found]

        return lambda data: zstd.compress(data, level=19)
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        raise ExportError(
            "`.json.zst` needs Python 3.14 or the package `zstandard`\n"
            "hint: `pip install zstandard`, or write plain JSON: every command reads `.json` too"
        ) from None
    return zstandard.ZstdCompressor(level=19).compress
