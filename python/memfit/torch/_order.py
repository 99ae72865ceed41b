"""Ops whose results depend on the order in which threads happen to work: called again, they may differ in the
last bit, or in which of two writes to one place came last. They are not computed again.

Names are those of the kernels without the underscores around them, and `*` stands for anything. What
`use_deterministic_algorithms` of PyTorch names is here, and what adds atomically beside that.
"""

import fnmatch
import functools
import re

ON_CPU = (
    # Atomic additions, or many threads that write to one place.
    "index_put", "index_put_impl", "unsafe_index_put", "unsafe_masked_index_put_accumulate", "put",
    # Each thread adds what it has counted as soon as it is ready.
    "histc", "histogram", "histogramdd*", "bincount",
    # Each writes to rows that it was told by indices.
    "index_add", "index_reduce", "index_copy", "scatter_add", "scatter_reduce",
    "embedding_dense_backward", "embedding_bag*backward", "segment_reduce_backward", "*roi_*backward",
    "*deform_conv2d_backward",
)  # fmt: skip
"""Where more than one thread may be at work."""

ON_DEVICES = (
    *ON_CPU,
    "scatter", "embedding_backward", "embedding_bag*", "*roi_align", "*roi_pool", "*deform_conv2d",
    "cumsum", "cumprod", "logcumsumexp", "kthvalue", "median", "nanmedian", "mode",
    "conv*_backward*", "slow_conv*_backward", "cudnn_conv*transpose*", "miopen_conv*",
    "miopen_depthwise*", "cudnn_rnn*", "miopen_rnn*", "thnn_*backward",
    "*attention*backward*", "grid_sampler*backward", "cudnn_grid_sampler_backward", "upsample*backward",
    "adaptive_*pool*backward", "avg_pool*backward", "max_pool*backward", "fractional_max_pool*",
    "max_unpool*", "reflection_pad*backward", "replication_pad*backward", "nll_loss2d*", "*ctc_loss*",
    "unfold_backward", "sparse_*mm*", "sspaddmm", "cdist_backward", "pdist_backward",
    "index_select_backward", "gather_backward", "value_selecting_reduction_backward",
)  # fmt: skip
"""On CUDA and its like."""


@functools.cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{fnmatch.translate(name)})" for name in names))


def unordered(base: str, on_cpu: bool) -> str:
    """When `base`, an op without its namespace, is not to be computed again: `never`, `threads`, `always`."""
    if _pattern(ON_CPU if on_cpu else ON_DEVICES).match(base.strip("_")) is None:
        return "never"
    return "threads" if on_cpu else "always"
