"""memfit: plans device memory for training and inference.

`import memfit` needs nothing but Python. `memfit.torch` needs your own PyTorch (2.14 or newer).
"""

try:
    from memfit import _memfit
except ImportError as error:
    raise ImportError(
        "the native half of `memfit` is not here\nhint: `pip install .` in the repository, or `cargo xtask python`"
        " to run from the source"
    ) from error

__version__: str = _memfit.__version__

__all__ = ["__version__"]
