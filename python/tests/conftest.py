"""Skips, loudly, what needs a torch that is not there; helpers for all tests."""

import pathlib
import signal
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]


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
