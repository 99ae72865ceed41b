"""Ranks agree: one budget, one plan, and if one refuses, all do, with the same error.

```python
from memfit.torch import distributed

budget = distributed.agree(budget)                       # the smallest of all ranks
with distributed.together():                             # what fails on one rank fails on all
    graph = capture(step)
file = distributed.share_plan(lambda: memfit.plan(graph, budget=budget), graph, budget=budget)
```

Every rank of the group makes the same calls in the same order. All of them are points of agreement: each rank
says how it fares and hears how the others do; the first one's refusal, by rank, is raised everywhere. Without
`torch.distributed`, or alone, the same calls do the same for one rank.

They run over a gloo group of their own, on the CPU, whatever the backend of the training. A rank that is gone
is noticed at once, one that does not come after `timeout` seconds: the others raise `RankError`. Planning may
take longer: the first rank tells the others that it's still at work.

Between points of agreement, ranks that wait for each other in collectives of the training are told by `step`:

```python
with distributed.step():                                 # a rank that fails here wakes the others
    loss = train_step(batch)
```

This is about agreement alone; `memfit.torch.enable` makes use of it by itself (docs/pytorch.md).
"""

import atexit
import contextlib
import hashlib
import json
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import torch.distributed as dist

import memfit
from memfit._door import Graph
from memfit._errors import Error, RankError
from memfit._results import Plan

TIMEOUT = 60.0
"""Seconds that ranks wait for each other."""
BEAT = 0.5
"""Seconds between two words of a rank that others wait for."""
LOOK = 0.2
"""Seconds between two looks for the reason why a rank has left."""
GRACE = 5.0
"""Seconds that the first rank stays for others to find the reason."""

SAME_CALLS = "every rank makes the same calls in the same order"

PlanFile: TypeAlias = Plan | bytes
Made = TypeVar("Made")
Said = TypeVar("Said")


class Ranks:
    """The ranks of a process group (`None`: all of them), and a channel between them for what memfit says.

    Making one is a point of agreement, too: all ranks of the group make it.
    """

    def __init__(self, group: Any = None, *, timeout: float = TIMEOUT) -> None:
        self.group, self.timeout = group, timeout
        self._channel: Any = None
        self._watch: _Watch | None = None
        on = dist.is_available() and dist.is_initialized()
        self.ranks: list[int] = dist.get_process_group_ranks(_parent(group)) if on else [0]
        """Their global ranks."""
        self.rank: int = self.ranks.index(dist.get_rank()) if on else 0
        """This rank, as an index of `ranks`."""

    def agree(self, budget: int) -> int:
        """The smallest budget of all ranks, in bytes."""
        whole = isinstance(budget, int) and not isinstance(budget, bool) and budget > 0
        error = None if whole else memfit.UsageError(f"`{budget!r}` is no budget in bytes")
        smallest: int = min(self._verdict(error, budget, "a budget"))
        return smallest

    def same(self, data: bytes, what: str) -> None:
        """Raises `RankError` everywhere unless all ranks have the same `data`; `what` names it."""
        digests = self._verdict(None, hashlib.sha256(data).hexdigest()[:16], what)
        if len(set(digests)) > 1:
            held = ", ".join(f"rank {rank} `{digest}`" for rank, digest in self._numbered(digests))
            raise RankError(f"the ranks have different {what}: {held}", ranks=self.ranks)

    def gather(self, value: Said) -> list[Said]:
        """The `value` of each rank, on all, in the order of `ranks`."""
        return self._verdict(None, value, "what each has")

    def refuse_together(self, error: BaseException | None = None) -> None:
        """Returns if `error` is `None` on all ranks. Else all raise the error of the first that has one."""
        self._verdict(error, None, "whether all go on")

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A block that fails on all ranks if it fails on one. No rank waits for another within it."""
        try:
            yield
        except Exception as error:
            self.refuse_together(error)
        else:
            self.refuse_together(None)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A block with collectives of the training in it, which fails on all ranks if it fails on one.

        A rank that fails says why and leaves its process groups. Others may wait for it in a collective. They
        wake when its connections close: at once, or, where DDP or the like still holds the group, when the
        process ends, as it does with an error that nobody catches. Then they raise the same error. After that
        the process groups are of no more use.

        Entering is a point of agreement the first time.
        """
        if len(self.ranks) == 1:
            yield
            return
        if self._watch is None:
            name = "memfit/" + self._from_first(uuid.uuid4().hex, "a name")
            self._watch = _Watch(_parent(self.group), name, self.ranks, self.ranks[self.rank])
        try:
            yield
        except Exception as error:
            rank, packed = self._watch.leave(_pack(error))
            self._channel = None  # Its threads must end before the process does.
            dist.destroy_process_group()
            raise _unpack([(rank, packed)], len(self.ranks)) from error

    def share_plan(
        self,
        plan: PlanFile | Callable[[], PlanFile] | None,
        graph: Graph,
        *,
        budget: int | str | None = None,
        dims: Mapping[str, int] | None = None,
    ) -> bytes:
        """The plan file of the first rank, which every rank verifies.

        `plan`, or what it returns, counts on the first rank; a function is called on a thread of its own.
        Each rank has the plan checked on its own `graph`, within `budget`.
        """

        def make() -> bytes:
            made = plan() if callable(plan) else plan
            if made is None:
                raise memfit.UsageError("the first rank has no plan")
            return made.file if isinstance(made, Plan) else made

        file = self.from_first(make)
        error: Exception | None = None
        try:
            memfit.check(file, graph, budget=budget, dims=dims)
        except Exception as refusal:
            error = refusal
        self.refuse_together(error)
        self.same(file, "plans")
        return file

    def from_first(self, make: Callable[[], Made]) -> Made:
        """What `make` returns on the first rank, on all.

        It's called there, on a thread of its own, and may take long.
        """
        made: list[Made] = []
        failed: list[Exception] = []

        def work() -> None:
            try:
                made.append(make())
            except Exception as error:
                failed.append(error)

        if self.rank == 0:
            thread = threading.Thread(target=work, name="memfit-plan", daemon=True)
            thread.start()
            at_work = True
            while at_work:
                thread.join(BEAT)
                at_work = self._from_first(thread.is_alive(), "whether it is at work")
        else:
            while self._from_first(None, "whether it is at work"):
                pass
        self.refuse_together(failed[0] if failed else None)
        result: Made = self._from_first(made[0] if made else None, "what it has made")
        return result

    def _numbered(self, values: list[Any]) -> Iterator[tuple[int, Any]]:
        return zip(self.ranks, values, strict=True)

    def _verdict(self, error: BaseException | None, value: Any, about: str) -> list[Any]:
        """The `value` of each rank, if none has an error; else raises the same error on all.

        `about` says what ranks agree on: one that has come to another point of the program is found out.
        """
        said = self._gather((_pack(error), value, about))
        refused = [(rank, packed) for rank, (packed, *_) in self._numbered(said) if packed]
        if refused:
            raise _unpack(refused, len(self.ranks)) from error
        points = [about for *_, about in said]
        if len(set(points)) > 1:
            asked = ", ".join(f"rank {rank} {about}" for rank, about in self._numbered(points))
            message = f"the ranks agree on different things: {asked}"
            raise RankError(message, hint=SAME_CALLS, ranks=self.ranks)
        return [value for _, value, _ in said]

    def _gather(self, value: Any) -> list[Any]:
        if len(self.ranks) == 1:
            return [value]
        values: list[Any] = [None] * len(self.ranks)
        with self._open() as channel:
            # The barrier says who doesn't come; on its own a gather can't.
            dist.monitored_barrier(channel, timeout=timedelta(seconds=self.timeout), wait_all_ranks=True)
            dist.all_gather_object(values, value, group=channel)
        return values

    def _from_first(self, value: Any, about: str) -> Any:
        """What the first rank says about something, the same on all ranks."""
        if len(self.ranks) == 1:
            return value
        said = [(value, about)]
        with self._open() as channel:
            dist.broadcast_object_list(said, src=self.ranks[0], group=channel)
        value, told = said[0]
        if told != about:
            raise RankError(
                f"the ranks are at different calls: rank {self.ranks[0]} tells {told}, and rank"
                f" {self.ranks[self.rank]} waits for {about}",
                hint=SAME_CALLS,
                ranks=self.ranks,
            )
        return value

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        """The channel. After a failure it's of no more use, and the next call makes another."""
        try:
            if self._channel is None:
                self._channel = dist.new_group(
                    None if self.group is None else self.ranks,
                    timeout=timedelta(seconds=self.timeout),
                    backend="gloo",
                    use_local_synchronization=self.group is not None,
                    group_desc="memfit",
                )
            yield self._channel
        except (RuntimeError, ValueError) as error:
            self._channel = None
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise RankError(
                f"not all of {len(self.ranks)} ranks answered rank {self.ranks[self.rank]} within"
                f" {self.timeout:g} s\n    {first}",
                hint="look at the first error of the rank that is gone or late",
                ranks=self.ranks,
            ) from error


def agree(budget: int, *, group: Any = None) -> int:
    """The smallest budget of all ranks, in bytes."""
    return ranks(group).agree(budget)


def share_plan(
    plan: PlanFile | Callable[[], PlanFile] | None,
    graph: Graph,
    *,
    budget: int | str | None = None,
    dims: Mapping[str, int] | None = None,
    group: Any = None,
) -> bytes:
    """The plan file of the first rank, which every rank verifies: see `Ranks.share_plan`."""
    return ranks(group).share_plan(plan, graph, budget=budget, dims=dims)


def refuse_together(error: BaseException | None = None, *, group: Any = None) -> None:
    """Returns if `error` is `None` on all ranks. Else all raise the error of the first rank that has one."""
    ranks(group).refuse_together(error)


def together(*, group: Any = None) -> contextlib.AbstractContextManager[None]:
    """A block that fails on all ranks if it fails on one. No rank waits for another within it."""
    return ranks(group).together()


def step(*, group: Any = None) -> contextlib.AbstractContextManager[None]:
    """A block with collectives of the training in it, which fails on all ranks if it fails on one."""
    return ranks(group).step()


_KNOWN: weakref.WeakKeyDictionary[Any, Ranks] = weakref.WeakKeyDictionary()
"""The ranks of each process group that is still there."""
atexit.register(_KNOWN.clear)


def ranks(group: Any = None) -> Ranks:
    """The ranks of `group`, or of all; one rank without `torch.distributed`."""
    if not (dist.is_available() and dist.is_initialized()):
        return Ranks()
    parent = _parent(group)
    if parent not in _KNOWN:
        _KNOWN[parent] = Ranks(group)
    return _KNOWN[parent]


class _Watch:
    """Looks for the reason why a rank has left, in the store that the process groups were set up with.

    A thread looks, since the main one may be waiting in a collective, and since the store goes with the first
    rank: that one stays until all have looked, for a few seconds at most.
    """

    def __init__(self, parent: Any, name: str, ranks: list[int], rank: int) -> None:
        self.name, self.ranks, self.rank = name, ranks, rank
        self._parent = weakref.ref(parent)
        self._store = dist.distributed_c10d._get_default_store()
        self._reason: str | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memfit-watch", daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def leave(self, packed: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """The first rank that left, and why; `packed` is this rank's own reason, if it's the first."""
        self._stop()
        own = json.dumps([self.rank, packed])
        if self._reason is None:
            # The first reason stays.
            with contextlib.suppress(RuntimeError):
                self._found(self._store.compare_set(self.name, "", own))
        if self.rank == 0:
            end = time.monotonic() + GRACE
            with contextlib.suppress(RuntimeError):
                while time.monotonic() < end and not self._store.check([self._read(r) for r in self.ranks]):
                    time.sleep(LOOK / 10)
        rank, packed = json.loads(self._reason or own)
        return rank, packed

    def _look(self) -> None:
        with contextlib.suppress(RuntimeError):  # The store is gone, and the first rank with it.
            while not self._end.wait(LOOK) and self._parent() is not None:
                if self._store.check([self.name]):
                    self._found(self._store.get(self.name))
                    return

    def _found(self, reason: bytes) -> None:
        self._reason = reason.decode()
        self._store.set(self._read(self.rank), "1")

    def _read(self, rank: int) -> str:
        return f"{self.name}/read/{rank}"

    def _stop(self) -> None:
        self._end.set()
        self._thread.join()
        atexit.unregister(self._stop)


def _parent(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


def _pack(error: BaseException | None) -> dict[str, Any] | None:
    """An error as plain data. What isn't memfit's becomes `Error`, with its name in the message."""
    if error is None:
        return None
    if isinstance(error, Error):
        message = str(error.args[0]) if error.args else ""
        plain = (str, int, float, list, dict, type(None))
        more = {key: value for key, value in vars(error).items() if isinstance(value, plain)}
        return {"kind": type(error).__name__, "message": message, "more": more}
    return {"kind": "Error", "message": f"{type(error).__name__}: {error}", "more": {"hint": None}}


def _unpack(refused: list[tuple[int, dict[str, Any]]], size: int) -> Error:
    """The first rank's error, with what the others say where that's something else."""
    rank, first = refused[0]
    messages = {packed["message"] for _, packed in refused}
    message = first["message"]
    if len(messages) > 1 or len(refused) < size:
        message = "\n".join(
            f"rank {number}: {packed['message']}"
            for at, (number, packed) in enumerate(refused)
            if packed["message"] not in [other["message"] for _, other in refused[:at]]
        )
    kind = getattr(memfit, first["kind"], Error)
    error = kind(message)
    vars(error).update(first["more"])
    error.rank = rank
    return error
