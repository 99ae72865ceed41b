"""Saving and loading."""

import contextlib
import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, TypeAlias, TypeVar

from memfit import _memfit
from memfit._errors import UsageError
from memfit.checkpoint._tree import bytes_of, flat, put_together, take_apart

Path: TypeAlias = str | os.PathLike[str]
Base: TypeAlias = Path | Sequence[Path] | Mapping[Any, Any]
"""A file, several of which each is a difference to the one before, or a state in memory."""
T = TypeVar("T")

_STATE = "memfit.state"
"""The key of a file's metadata that has the state."""


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a file came to."""

    path: str
    bytes: int
    """Bytes of the file."""
    plain_bytes: int
    """Bytes of the tensors in memory."""
    digest: str
    """Digest of the tensors as they will be loaded."""
    base: str | None
    """Digest of what it's a difference to."""
    tensors: list[dict[str, Any]]
    """`name`, `codec`, `bytes` and `bound` of each tensor."""

    @property
    def ratio(self) -> float:
        """Bytes in memory for each byte of the file."""
        return self.plain_bytes / self.bytes

    def __str__(self) -> str:
        sizes = f"{_memfit.show_bytes(self.bytes)} for {_memfit.show_bytes(self.plain_bytes)}"
        return f"{self.path}: {sizes}, {self.ratio:.2f} to 1"


def save(
    state: Any,
    path: Path,
    base: Base | None = None,
    codec: str | None = None,
    bound: float | None = None,
    *,
    clusters: int | None = None,
    bounds: Mapping[str, float] | None = None,
) -> Saved:
    """Saves a state: tensors, numbers, texts, `None`, in lists, tuples and dicts, as `state_dict()` makes
    them.

    Lossless without `codec`. `base` is what the tensors of the same names, types and shapes are compared
    with: the path of a file, a list of paths of which each but the first is a difference to the one before,
    or a state that was loaded. Then the file holds what changed, and `load` needs the same base.

    Codecs that lose something, of `float32` tensors only: `"bounded"` and `"delta-dnn"` (with a base) keep
    every number within `bound` of what it was, absolutely; `"deepsz"` does, and keeps zeros; `"kmeans"`
    leaves `clusters` numbers. With `bounds`, a bound by name, all other tensors are lossless. In a chain of
    `"delta-dnn"`, the base is what was loaded, so that errors don't add up.

    The file is written beside and renamed, so that there's the old one or the new one, whole. Raises
    `UsageError` for what can't be kept, by its place; `OSError` where it can't be written.
    """
    if bounds is not None and bound is not None:
        raise UsageError("`bound` and `bounds` are both given")
    source = _in_memory(state)
    with contextlib.ExitStack() as stack:
        beside = _opened(base, stack)

        def fill(file: IO[bytes]) -> str:
            named = dict(bounds) if bounds is not None else None
            return source.write(file, beside, codec, bound, clusters, named)

        row = json.loads(_replace(path, fill))
    return Saved(os.fspath(path), **row)


def load(path: Path, base: Base | None = None) -> Any:
    """The state that was saved, with the same bits, types and keys; its tensors are on the CPU.

    A safetensors file, packed by the command line or not, is a dict of its tensors. Raises `InputError` for
    a file that is damaged, with the name of the tensor, and for a base that is not the one it was saved
    with; `UsageError` if there's none.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "rb"))
        source = _memfit.Checkpoint.open(file, _opened(base, stack))
        rows = [(name, dtype, list(shape), size) for name, dtype, shape, size in source.tensors()]
        text = dict(source.metadata()).get(_STATE)
        if text is None:
            return flat(rows, source.read)
        return put_together(text, rows, source.read)


def _in_memory(state: Any) -> _memfit.Checkpoint:
    text, rows = take_apart(state)
    return _memfit.Checkpoint.of(
        [row[:4] for row in rows], [(_STATE, text)], lambda at: bytes_of(rows[at].tensor)
    )


def _opened(base: Base | None, stack: contextlib.ExitStack) -> _memfit.Checkpoint | None:
    if base is None:
        return None
    if isinstance(base, str | os.PathLike):
        base = [base]
    if isinstance(base, Mapping):
        return _in_memory(base)
    if not isinstance(base, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in base):
        raise UsageError("`base` is no path, no list of paths, and no state")
    source = None
    for path in base:
        source = _memfit.Checkpoint.open(stack.enter_context(open(path, "rb")), source)  # noqa: SIM115
    return source


def _replace(path: Path, fill: Callable[[IO[bytes]], T]) -> T:
    """Writes a file beside `path`, down to the disk, and renames it. A link is followed; a mode is kept."""
    place = os.path.realpath(path)
    beside = f"{place}.{os.getpid()}-{threading.get_ident()}.tmp"
    try:
        with open(beside, "wb", buffering=0) as file:
            made = fill(file)
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(place, beside)
        os.replace(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _settle(os.path.dirname(place))
    return made


def _settle(folder: str) -> None:
    """Writes the name down too, where a system lets folders be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
