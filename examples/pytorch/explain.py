"""What ate the memory of a GPU, read off a snapshot of PyTorch's CUDA allocator. Needs no GPU.

python examples/pytorch/explain.py [SNAPSHOT]

SNAPSHOT is what `torch.cuda.memory._dump_snapshot(path)` writes after
`torch.cuda.memory._record_memory_history(max_entries=100_000)`. Without it, one of a decoder that ran out of
memory is read.
"""

import pathlib
import sys

import memfit

corpus = pathlib.Path(__file__).parents[2] / "corpus" / "snapshots"
found = memfit.explain(sys.argv[1] if len(sys.argv) > 1 else corpus / "decoder-oom.pickle.zst", top=3)


def show(title: str, rows: list[tuple[str, int]]) -> None:
    print(title)
    for name, size in rows:
        print(f"  {size / 1e6:10.1f} MB  {name}")


show("peak", [("live", found.live_peak_bytes), ("reserved", found.reserved_peak_bytes)])
show("by role", [(share.name, share.bytes) for share in found.peak_by_role])
show("by frame", [(share.name, share.bytes) for share in found.peak_by_frame[:5]])
show("largest", [(holder.stack[0] if holder.stack else "?", holder.bytes) for holder in found.top])
show("what would help", [(remedy.what, remedy.peak_bytes) for remedy in found.remedies])
