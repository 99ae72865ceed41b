"""The native half. Results are JSON texts; `memfit._door` makes classes of them."""

from typing import TypedDict

__version__: str

class Source(TypedDict):
    """A graph file and how to read it."""

    file: bytes
    dims: list[tuple[str, int]]

class Means(TypedDict):
    """A goal, in the words of the command line."""

    budget: str | None
    device: str
    device_file: bytes | None
    strategy: list[str]
    recompute: bool
    replay_random: bool
    lanes: int
    allow_serialize: bool
    in_place: bool
    co_share: bool
    seed: int
    time_limit: float | None

def plan(source: Source, means: Means) -> tuple[str, bytes]: ...
def check(file: bytes, source: Source, budget: str | None) -> str: ...
def explain(source: Source, means: Means, depth: int, top: int) -> str: ...
def explain_snapshot(file: bytes, device: int | None, top: int) -> str: ...
def is_snapshot(file: bytes) -> bool: ...
def floor(source: Source, means: Means) -> str: ...
def place(
    file: bytes,
    capacity: str | None,
    placer: str,
    align: int,
    seed: int,
    time_limit: float | None,
) -> tuple[str, list[int]]: ...
def compare(source: Source, means: Means) -> str: ...
def sweep(source: Source, means: Means, budgets: list[str]) -> str: ...
def strategies() -> str: ...
def parse_bytes(text: str) -> int: ...
def show_bytes(bytes: int) -> str: ...
def show_nanos(nanos: int) -> str: ...
