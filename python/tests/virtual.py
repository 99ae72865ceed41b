"""Ranks in virtual time: each is a thread, of which one runs at a time, and a random sequence says which.

`World` stands in for what `memfit.torch.distributed` imports: `torch.distributed`, `threading` and `time`.
What waits longer than its timeout fails, what has died is noticed, and where nobody can go on there is a
deadlock, which is an error.
"""

import contextlib
import random
import threading
import types
from collections.abc import Callable
from typing import Any

LATEST = 1e4
"""Seconds of virtual time after which a world is stuck."""


class Dies(BaseException):
    """Ends a rank without a word."""


class Deadlock(BaseException):
    """Ends all of them."""


class Task:
    """What runs until it waits."""

    def __init__(self, rank: int, work: Callable[[], Any], lasting: bool) -> None:
        self.rank, self.work, self.lasting = rank, work, lasting
        self.turn = threading.Semaphore(0)
        self.ready: Callable[[], bool] = lambda: True
        self.until: float | None = None
        self.done = False


class Meeting:
    """A collective: who has come, with what."""

    def __init__(self) -> None:
        self.kinds: dict[int, str] = {}
        self.values: dict[int, Any] = {}


class Group:
    """A process group, as one rank has it."""

    def __init__(self, ranks: list[int], name: tuple[Any, ...], timeout: float) -> None:
        self.ranks, self.name, self.timeout = ranks, name, timeout
        self.calls = self.made = 0


class World:
    def __init__(self, size: int, seed: int) -> None:
        self.size, self.random = size, random.Random(seed)
        self.now = 0.0
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.back = threading.Semaphore(0)
        self.meetings: dict[tuple[Any, ...], Meeting] = {}
        self.gone: set[int] = set()
        """Ranks that have died, or have left their process groups."""
        self.dies: dict[int, int] = {}
        """By rank: before which of its calls it dies."""
        self.calls = [0] * size
        self.late = 0.0
        """The share of calls that come later than anybody waits."""
        self.store: dict[str, str] = {}
        self.stuck = False
        self.failed: list[BaseException] = []
        self.main: list[Group | None] = [Group([*range(size)], ("main",), 300.0) for _ in range(size)]

    # Tasks, one at a time

    def spawn(self, rank: int, work: Callable[[], Any], lasting: bool = True) -> Task:
        task = Task(rank, work, lasting)

        def run() -> None:
            task.turn.acquire()
            try:
                if not self.stuck:
                    work()
            except (Dies, Deadlock):
                pass
            except BaseException as error:
                self.failed.append(error)
            finally:
                task.done = True
                self.back.release()

        threading.Thread(target=run, daemon=True).start()
        self.tasks.append(task)
        return task

    def wait(self, ready: Callable[[], bool], until: float | None = None) -> bool:
        """The task at hand waits until `ready`, or for so long; whether it is ready."""
        task = self.current
        assert task is not None
        task.ready, task.until = ready, until
        self.back.release()
        task.turn.acquire()
        if self.stuck:
            raise Deadlock
        return ready()

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: False, self.now + seconds)

    def run(self) -> None:
        """Runs all tasks to their end."""
        while any(not task.done and task.lasting for task in self.tasks):
            waiting = [task for task in self.tasks if not task.done]
            able = [task for task in waiting if task.ready()]
            if not able:
                ends = [task.until for task in waiting if task.until is not None]
                if not ends or min(ends) > LATEST:
                    self.stuck = True
                    break
                self.now = max(self.now, min(ends))
                able = [task for task in waiting if task.until is not None and task.until <= self.now]
            self.turn(self.random.choice(able))
        stuck = self.stuck
        self.stuck = True
        for task in self.tasks:
            if not task.done:
                self.turn(task)
        if self.failed:
            raise self.failed[0]
        assert not stuck, "ranks wait for each other for ever"

    def turn(self, task: Task) -> None:
        self.current = task
        task.ready, task.until = (lambda: True), None
        task.turn.release()
        self.back.acquire()

    # What torch.distributed does

    @property
    def rank(self) -> int:
        assert self.current is not None
        return self.current.rank

    def meet(
        self, group: Group, kind: str, value: Any, timeout: float, waits_for: list[int]
    ) -> dict[int, Any]:
        """Comes to the next collective of `group`, and waits for others; what all have brought."""
        rank = self.rank
        self.calls[rank] += 1
        if self.calls[rank] == self.dies.get(rank):
            self.gone.add(rank)
            raise Dies
        is_late = self.random.random() < self.late
        self.sleep(self.random.random() * 0.3 + (2 * timeout if is_late else 0))
        group.calls += 1
        meeting = self.meetings.setdefault((*group.name, group.calls), Meeting())
        meeting.kinds[rank], meeting.values[rank] = kind, value

        def here() -> bool:
            return all(meeting.kinds.get(other) == kind for other in waits_for)

        def lost() -> bool:
            return any(other in self.gone and other not in meeting.kinds for other in waits_for)

        self.wait(lambda: here() or lost(), self.now + timeout)
        if not here():
            raise RuntimeError(f"{kind}: {'connection closed by peer' if lost() else 'timed out'}")
        return meeting.values

    def group_of_this(self) -> Group:
        group = self.main[self.rank]
        if group is None:
            raise ValueError("the process group is not initialized")
        return group

    def new_group(self, ranks: list[int] | None, timeout: Any, **_: Any) -> Group:
        main = self.group_of_this()
        main.made += 1
        group = Group(ranks or main.ranks, (*main.name, "made", main.made), timeout.total_seconds())
        self.meet(group, "new_group", None, group.timeout, group.ranks)
        return group

    def all_gather(self, values: list[Any], value: Any, group: Group) -> None:
        brought = self.meet(group, "all_gather", value, group.timeout, group.ranks)
        values[:] = [brought[rank] for rank in group.ranks]

    def broadcast(self, said: list[Any], src: int, group: Group) -> None:
        # Who sends need not wait for those who receive.
        waits_for = [src] if self.rank != src or self.random.random() < 0.5 else group.ranks
        said[0] = self.meet(group, "broadcast", said[0], group.timeout, waits_for)[src]

    def leave(self) -> None:
        self.gone.add(self.rank)
        self.main[self.rank] = None

    def distributed(self) -> Any:
        """In the place of `torch.distributed`."""
        groups = types.SimpleNamespace
        world = self

        class Main:
            @property
            def WORLD(self) -> Group:
                return world.group_of_this()

        def barrier(group: Group, timeout: Any, wait_all_ranks: bool) -> None:
            self.meet(group, "barrier", None, timeout.total_seconds(), group.ranks)

        return groups(
            is_available=lambda: True,
            is_initialized=lambda: self.main[self.rank] is not None,
            get_rank=lambda: self.rank,
            get_process_group_ranks=lambda group: group.ranks,
            new_group=self.new_group,
            monitored_barrier=barrier,
            all_gather_object=lambda values, value, group: self.all_gather(values, value, group),
            broadcast_object_list=lambda said, src, group: self.broadcast(said, src, group),
            destroy_process_group=self.leave,
            group=Main(),
            distributed_c10d=groups(_get_default_store=lambda: Store(self)),
        )

    def threads(self) -> Any:
        """In the place of `threading`."""
        world = self

        class Thread:
            def __init__(self, target: Callable[[], Any], name: str, daemon: bool) -> None:
                self.target = target

            def start(self) -> None:
                self.task = world.spawn(world.rank, self.target, lasting=False)

            def join(self, timeout: float | None = None) -> None:
                world.wait(lambda: self.task.done, None if timeout is None else world.now + timeout)

            def is_alive(self) -> bool:
                return not self.task.done

        class Event:
            is_set = False

            def set(self) -> None:
                self.is_set = True

            def wait(self, timeout: float) -> bool:
                return world.wait(lambda: self.is_set, world.now + timeout)

        return types.SimpleNamespace(Thread=Thread, Event=Event)

    def clock(self) -> Any:
        """In the place of `time`."""
        return types.SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)


class Store:
    """Keys and values that all ranks see; it goes with the first rank's process."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _reach(self) -> dict[str, str]:
        if self.world.dies.get(0, 1 << 60) <= self.world.calls[0]:
            raise RuntimeError("the store is gone")
        return self.world.store

    def check(self, keys: list[str]) -> bool:
        return all(key in self._reach() for key in keys)

    def get(self, key: str) -> bytes:
        return self._reach()[key].encode()

    def set(self, key: str, value: str) -> None:
        self._reach()[key] = value

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        return self._reach().setdefault(key, value).encode()


@contextlib.contextmanager
def simulated(world: World, module: Any, patch: Any):
    """`module` sees `world` in the place of what it imports."""
    with patch.context() as within:
        within.setattr(module, "dist", world.distributed())
        within.setattr(module, "threading", world.threads())
        within.setattr(module, "time", world.clock())
        # Nobody is left at the end of the process.
        nothing = types.SimpleNamespace(register=lambda call: None, unregister=lambda call: None)
        within.setattr(module, "atexit", nothing)
        yield
