"""A copy of this process, in which a step may run and leave no trace.

A fork has all that the step could touch, of Python's, of PyTorch's and of anybody's: generators, counters,
schedulers, iterators. It ends when it has told what it saw. What both processes would share is cut off
before: files are opened anew, pipes and sockets lead nowhere, and what would change something outside
raises.
"""

import fcntl
import os
import pickle
import random
import select
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")

QUIET = 20.0
"""Seconds without processor time after which a copy is taken to wait for what it has not got."""


class Failed(Exception):
    """The copy could not do its work; why."""


def obstacle(device: torch.device) -> str | None:
    """Why no copy of this process would behave as it does, if so."""
    if sys.platform != "linux":
        return "only Linux can copy a process that has threads"
    if device.type != "cpu" or torch.cuda.is_available():
        return "a process with a GPU can't be copied"
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "a process of a group can't be copied"
    if torch.get_num_threads() > 1 and _has_modes():
        return "another mode of PyTorch's is active in this thread"
    shared = _shared_memory()
    return shared and f"`{shared}` is shared with other processes"


def _has_modes() -> bool:
    """Whether this thread has a state that a new one would not have."""
    return (
        torch._C._len_torch_function_stack() > 0
        or torch._C._len_torch_dispatch_stack() > 0
        or torch.is_autocast_enabled("cpu")
        or torch.is_inference_mode_enabled()
        or not torch.is_grad_enabled()
    )


def _shared_memory() -> str | None:
    """Memory that a copy could write to, and we would see it; semaphores aside."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if fields[1].startswith("rw") and fields[1].endswith("s"):
                name = fields[5].strip() if len(fields) > 5 else "memory without a name"
                if not name.startswith(("/dev/shm/sem.", "/dev/nvidia")):
                    return name
    return None


def in_copy(work: Callable[[], Result]) -> Result:
    """What `work` returns in a copy of this process; it must be made of plain objects."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Python gives a copy another sequence of random numbers.
    numbers = random.getstate()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        random.setstate(numbers)
        _be_the_copy(work, write)
    os.close(write)
    try:
        told = _listen(process, read)
    finally:
        os.close(read)
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    if not told:
        raise Failed(f"the copy ended without a word (status {status})")
    done, outcome = pickle.loads(told)
    if not done:
        raise Failed(outcome)
    result: Result = outcome
    return result


def _be_the_copy(work: Callable[[], Any], write: int) -> None:
    told = b""
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _cut_off(write)
        told = pickle.dumps((True, work() if torch.get_num_threads() == 1 else _in_thread(work)))
    except BaseException as error:
        told = pickle.dumps((False, f"{type(error).__name__}: {error}"))
    finally:
        try:
            while told:
                told = told[os.write(write, told) :]
        finally:
            os._exit(0)


def _in_thread(work: Callable[[], Any]) -> Any:
    """In a thread of its own: this one would wait for OpenMP's workers, which have not come along."""
    outcome: list[Any] = []
    threads = torch.get_num_threads()

    def run() -> None:
        # Else some libraries begin with what the environment says.
        torch.set_num_threads(threads)
        try:
            outcome.append((True, work()))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    done, result = outcome[0]
    if not done:
        raise result
    return result


def _listen(process: int, read: int) -> bytes:
    told, busy, since = b"", -1, time.monotonic()
    while True:
        ready, _, _ = select.select([read], [], [], 0.5)
        if ready:
            piece = os.read(read, 1 << 20)
            if not piece:
                return told
            told += piece
        now = _processor_time(process)
        if ready or now != busy:
            busy, since = now, time.monotonic()
        elif time.monotonic() - since > QUIET:
            raise Failed("the copy waits for something that it has not got")


def _processor_time(process: int) -> int:
    with open(f"/proc/{process}/stat") as state:
        fields = state.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _cut_off(write: int) -> None:
    """Leaves nothing that a write, a read or a message could change for anybody else."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number in (write, null):
            continue
        try:
            kind = os.fstat(number).st_mode
        except OSError:
            continue
        if number <= 2 or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            os.dup2(null, number)
        elif stat.S_ISREG(kind):
            _reopen(number, null)
    sys.stdin = sys.stdout = sys.stderr = open(os.devnull, "r+")  # noqa: SIM115
    sys.dont_write_bytecode = True
    sys.addaudithook(_refuse)


def _reopen(number: int, null: int) -> None:
    """A position in the file of its own; what is only written to leads nowhere."""
    mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
    if mode == os.O_WRONLY:
        os.dup2(null, number)
        return
    try:
        own = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
        os.lseek(own, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
    except OSError:
        own = os.dup(null)
    os.dup2(own, number)
    os.close(own)


# Events of Python's audit that change something outside.
_OUTSIDE = (
    "os.chmod", "os.chown", "os.exec", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.link", "os.mkdir",
    "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.spawn", "os.symlink", "os.system",
    "os.truncate", "os.unlink", "pty.spawn", "shutil.", "socket.bind", "socket.connect", "socket.sendmsg",
    "socket.sendto", "sqlite3.connect", "subprocess.Popen",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event == "open":
        path, mode, flags = args
        writes = flags & _WRITING if isinstance(flags, int) else set(mode or "") & set("wax+")
        if writes and path != os.devnull:
            raise PermissionError(f"the step writes to `{path}`")
    elif event.startswith(_OUTSIDE):
        raise PermissionError(f"the step acts outside the process: `{event}`")
