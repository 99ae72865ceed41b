"""What is doubtful on CUDA, and is kept until a device has shown that it need not be: docs/pytorch.md."""

import torch


def is_on_side_stream() -> bool:
    """Whether ops run on another stream than the device's own."""
    return torch.cuda.current_stream() != torch.cuda.default_stream()


def is_chosen_anew(base: str) -> bool:
    """Whether the algorithm of an op on CUDA, or its dropout, may be another one when it is repeated."""
    cudnn = torch.backends.cudnn
    fixed = cudnn.deterministic and not cudnn.benchmark
    return "cudnn_rnn" in base or "cudnn_init_dropout" in base or ("convolution" in base and not fixed)


def switches() -> tuple[bool, ...]:
    """What `describe` depends on, beside the op."""
    return torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
