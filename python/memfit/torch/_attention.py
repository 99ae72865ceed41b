"""How much scratch memory flash attention may take on a CPU before anybody has seen it run.

The kernel goes over the scores in tiles, `q` rows by `k` columns, which each thread has for itself. The sizes
of tiles are those of PyTorch's kernel; the formula has a margin on it, and what a call takes is measured when
it first runs.
"""

from typing import Any

import torch

FORWARD = "aten::_scaled_dot_product_flash_attention_for_cpu"
BACKWARD = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
_COLUMNS = 512
_ROWS = ((768, 256), (192, 64), (0, 32))
"""From so many queries on, so many rows at a time."""
_EACH_THREAD = 1 << 12


def scratch(name: str, args: Any, read: int, made: int) -> int:
    """Bytes at most, for the arguments of the op `name`, which reads and makes so many bytes."""
    query: torch.Tensor
    key: torch.Tensor
    query, key = args[1:3] if name == BACKWARD else args[:2]
    queries, keys, width = query.shape[-2], key.shape[-2], query.shape[-1]
    rows = min(queries, next(rows for least, rows in _ROWS if queries >= least))
    columns = min(keys, _COLUMNS)
    narrow = query.itemsize < 4
    # The sums and the gradients of numbers of less than 32 bits are in 32.
    tile = rows * (columns + width + 2) * max(4, query.itemsize)
    if name == BACKWARD:
        tile = 2 * tile + (rows + columns) * width * 4
    if narrow:
        # Where a CPU has instructions for them, products pack their operands in whole blocks.
        blocks = [_blocks(rows) * _blocks(width), _blocks(columns) * _blocks(width)]
        tile = 2 * tile + sum(blocks) * query.itemsize
    threads = torch.get_num_threads()
    copies = 2 * (read + made) if narrow else 0
    return threads * (tile + _EACH_THREAD) + copies + made + (1 << 12)


def _blocks(extent: int) -> int:
    """`extent` rounded up to whole blocks of 64."""
    return -(-extent // 64) * 64
