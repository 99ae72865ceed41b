"""Skips, loudly, what needs a torch that is not there; helpers for all tests."""

import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def pytest_configure() -> None:
    # What a shell runs in the background ignores interrupts, and tests that send themselves one would wait
    # for hours.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        import torch

        import memfit.torch  # noqa: F401
    except ImportError as error:
        pytest.exit(f"these tests need PyTorch: {error}", returncode=2)
    torch.set_num_threads(1)
    # Fake tensors bring a CUDA device along. If the first backward pass of a process comes after them, it
    # starts a thread for that, copies of the process can't run backward passes, and `fit` goes unchecked.
    torch.ones(1, requires_grad=True).sum().backward()


@pytest.fixture(scope="session")
def shim(tmp_path_factory) -> pathlib.Path:
    """A library that counts the bytes of PyTorch's CPU allocator, to be preloaded."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler, or no Linux: the allocator can't be counted")
    made = tmp_path_factory.mktemp("shim") / "real_bytes.so"
    source = HERE / "real_bytes.c"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made
