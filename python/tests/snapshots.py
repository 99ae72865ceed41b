"""Snapshots as PyTorch's CUDA allocator makes them, without a GPU.

`Allocator` models `c10/cuda/CUDACachingAllocator.cpp` with its defaults: requests are rounded up to 512
bytes, up to 1 MiB are served from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, larger ones from
segments of their own in steps of 2 MiB; the smallest free block that fits is taken, the rest split off, and
freed neighbours are joined. It writes what `torch.cuda.memory._snapshot` writes (2.15). `train` is a decoder
with AdamW whose sequences differ in length from step to step; it knows what each buffer is for.

    python python/tests/snapshots.py corpus/snapshots
"""

import contextlib
import dataclasses
import pathlib
import pickle
import sys
from typing import Any

MIB = 1 << 20
SITE = "/opt/env/lib/python3.11/site-packages/"
TORCH = SITE + "torch/"


class OutOfMemory(Exception):
    """The device has nothing left."""


@dataclasses.dataclass
class Block:
    segment: "Segment"
    address: int
    size: int
    requested: int = 0
    state: str = "inactive"
    frames: list = dataclasses.field(default_factory=list)
    role: str = ""


@dataclasses.dataclass
class Segment:
    address: int
    size: int
    large: bool
    expandable: bool
    blocks: list[Block] = dataclasses.field(default_factory=list)


def up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


class Allocator:
    """One device and one stream."""

    def __init__(self, capacity: int, *, record: bool = True, expandable: bool = False) -> None:
        self.capacity, self.record, self.expandable = capacity, record, expandable
        self.segments: list[Segment] = []
        self.trace: list[dict[str, Any]] = []
        self.next_address = 0x7F00_0000_0000
        self.peak_live: dict[str, int] = {}
        """Bytes by role when most were live."""
        self.peak_reserved = 0
        self.time = 1_790_000_000_000_000

    def _event(self, action: str, size: int, frames: list, address: int | None, **more: Any) -> None:
        self.time += 7
        if self.record:
            event = {
                "action": action,
                "size": size,
                "stream": 0,
                "time_us": self.time,
                "compile_context": "N/A",
                "user_metadata": "",
                "pool_id": (0, 0),
                "frames": frames,
                **more,
            }
            if address is not None:
                event["addr"] = address
            self.trace.append(event)

    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    def live(self) -> dict[str, int]:
        roles: dict[str, int] = {}
        for segment in self.segments:
            for block in segment.blocks:
                if block.state != "inactive":
                    roles[block.role] = roles.get(block.role, 0) + up(block.requested, 512)
        return roles

    def alloc(self, requested: int, frames: list, role: str) -> Block:
        size = max(512, up(requested, 512))
        large = size > MIB
        block = self._find(size, large) or self._grow(size, large, frames)
        if block is None:
            # Segments that are wholly free go back to the driver before giving up.
            for segment in [s for s in self.segments if all(b.state == "inactive" for b in s.blocks)]:
                if not segment.expandable:
                    self.segments.remove(segment)
                    self._event("segment_free", segment.size, frames, segment.address)
            block = self._grow(size, large, frames)
        if block is None:
            self._event("oom", requested, frames, None, device_free=self.capacity - self.reserved())
            raise OutOfMemory(requested)
        rest = block.size - size
        if rest >= 512 if not large or self.expandable else rest > MIB:
            at = block.segment.blocks.index(block)
            block.segment.blocks.insert(at + 1, Block(block.segment, block.address + size, rest))
            block.size = size
        block.requested, block.state, block.role = requested, "active_allocated", role
        block.frames = frames if self.record else []
        self._event("alloc", requested, frames, block.address)
        live = self.live()
        if sum(live.values()) > sum(self.peak_live.values()):
            self.peak_live = live
        return block

    def _find(self, size: int, large: bool) -> Block | None:
        fit = [
            block
            for segment in self.segments
            if segment.large == large
            for block in segment.blocks
            if block.state == "inactive" and block.size >= size
        ]
        return min(fit, key=lambda block: (block.size, block.address), default=None)

    def _grow(self, size: int, large: bool, frames: list) -> Block | None:
        if self.expandable:
            page = 20 * MIB if large else 2 * MIB
            segment = next((s for s in self.segments if s.large == large), None)
            last = segment.blocks[-1] if segment and segment.blocks[-1].state == "inactive" else None
            more = up(size - (last.size if last else 0), page)
            if self.reserved() + more > self.capacity:
                return None
            if segment is None:
                segment = self._segment(0, large)
            if last is None:
                last = Block(segment, segment.address + segment.size, 0)
                segment.blocks.append(last)
            self._event("segment_map", more, frames, segment.address + segment.size)
            segment.size += more
            last.size += more
        else:
            total = up(size, 2 * MIB) if size >= 10 * MIB else (20 * MIB if large else 2 * MIB)
            if self.reserved() + total > self.capacity:
                return None
            segment = self._segment(total, large)
            last = Block(segment, segment.address, total)
            segment.blocks.append(last)
            self._event("segment_alloc", total, frames, segment.address)
        self.peak_reserved = max(self.peak_reserved, self.reserved())
        return last

    def _segment(self, size: int, large: bool) -> Segment:
        segment = Segment(self.next_address, size, large, self.expandable)
        self.next_address += 1 << 40 if self.expandable else up(size, 2 * MIB)
        self.segments.append(segment)
        return segment

    def free(self, block: Block, frames: list) -> None:
        self._event("free_requested", block.requested, frames, block.address)
        self._event("free_completed", block.requested, frames, block.address)
        block.state, block.requested, block.frames = "inactive", 0, []
        blocks = block.segment.blocks
        at = blocks.index(block)
        for first, second in ((at, at + 1), (at - 1, at)):
            if (
                first >= 0
                and second < len(blocks)
                and blocks[first].state == blocks[second].state == "inactive"
            ):
                blocks[first].size += blocks[second].size
                del blocks[second]

    def snapshot(self) -> dict[str, Any]:
        def block(block: Block) -> dict[str, Any]:
            return {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": block.state,
                "frames": block.frames,
            }

        def segment(segment: Segment) -> dict[str, Any]:
            used = [block for block in segment.blocks if block.state != "inactive"]
            return {
                "device": 0,
                "address": segment.address,
                "total_size": segment.size,
                "allocated_size": sum(block.size for block in used),
                "active_size": sum(block.size for block in used),
                "requested_size": sum(block.requested for block in used),
                "stream": 0,
                "segment_type": "large" if segment.large else "small",
                "segment_pool_id": (0, 0),
                "is_expandable": segment.expandable,
                "frames": [],
                "blocks": [block(one) for one in segment.blocks],
            }

        return {
            "segments": [segment(one) for one in sorted(self.segments, key=lambda one: one.address)],
            "device_traces": [self.trace],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": self.expandable},
            "external_annotations": [],
        }


def stack(*frames: tuple[str, int, str], known: dict = {}) -> list:  # noqa: B006
    """Frames, innermost first; equal ones are the same object, as in real snapshots."""
    key = tuple(frames)
    if key not in known:
        known[key] = [
            known.setdefault(frame, {"filename": frame[0], "line": frame[1], "name": frame[2]})
            for frame in key
        ]
    return known[key]


MODULE = TORCH + "nn/modules/module.py"
MAIN = ("train.py", 61, "<module>")
CALL = ((MODULE, 1787, "_call_impl"), (MODULE, 1776, "_wrapped_call_impl"))
WEIGHTS = stack(
    (MODULE, 1357, "convert"), (MODULE, 927, "_apply"), (MODULE, 1371, "to"), ("train.py", 20, "main")
)
BATCH = stack((TORCH + "utils/data/_utils/pin_memory.py", 57, "pin_memory"), ("train.py", 31, "step"), MAIN)
STEP = ((TORCH + "optim/optimizer.py", 517, "wrapper"), ("train.py", 40, "step"), MAIN)
STATE = stack((TORCH + "optim/adamw.py", 148, "_init_group"), (TORCH + "optim/adamw.py", 220, "step"), *STEP)
UPDATE = stack((TORCH + "optim/adam.py", 640, "_multi_tensor_adam"), *STEP)
ZERO = stack((TORCH + "optim/optimizer.py", 1030, "zero_grad"), ("train.py", 41, "step"), MAIN)


def forward(file: str, line: int, inner: tuple[str, int, str]) -> list:
    return stack(inner, *CALL, (file, line, "forward"), *CALL, ("train.py", 33, "step"), MAIN)


LINEAR = (TORCH + "nn/modules/linear.py", 134, "forward")
NORM = (TORCH + "nn/functional.py", 2901, "layer_norm")
DROPOUT = (TORCH + "nn/functional.py", 1425, "dropout")
GELU = (TORCH + "nn/modules/activation.py", 816, "forward")


def train(
    allocator: Allocator, lengths: list[int], *, layers: int = 6, width: int = 768, batch: int = 8
) -> None:
    """Steps on sequences of these lengths: bf16 activations, f32 parameters, gradients and AdamW state."""
    weights = [32000 * width]
    for _ in range(layers):
        weights += [width, 3 * width * width, width * width, width, 4 * width * width, 4 * width * width]
    weights += [width]
    for weight in weights:
        allocator.alloc(4 * weight, WEIGHTS, "parameter")
    states: list[Block] = []
    for length in lengths:
        tokens = batch * length
        held = [allocator.alloc(8 * tokens, BATCH, "input")]

        def make(count: int, line: int, inner: tuple[str, int, str], file: str = "model/block.py") -> Block:
            return allocator.alloc(2 * count, forward(file, line, inner), "activation")

        acts = [[make(tokens * width, 12, LINEAR, "model/decoder.py")]]
        for _ in range(layers):
            layer = [make(tokens * width, 21, NORM), make(3 * tokens * width, 23, LINEAR)]
            work = allocator.alloc(8 * MIB, forward("model/block.py", 25, LINEAR), "workspace")
            allocator.free(work, [])
            layer += [make(tokens * width, 25, LINEAR), make(tokens * width, 26, DROPOUT)]
            layer += [make(tokens * width, 30, NORM), make(4 * tokens * width, 31, LINEAR)]
            layer += [make(4 * tokens * width, 32, GELU), make(tokens * width, 33, LINEAR)]
            acts.append(layer)
        logits = make(tokens * 32000, 14, LINEAR, "model/decoder.py")
        grads: list[Block] = []
        # Autograd's own thread runs the backward pass: no Python stack.
        top = allocator.alloc(2 * tokens * 32000, [], "gradient")
        allocator.free(logits, [])
        flow = allocator.alloc(2 * tokens * width, [], "gradient")
        grads += [allocator.alloc(4 * weight, [], "gradient") for weight in (weights[-1], weights[0])]
        allocator.free(top, [])
        for at, layer in reversed(list(enumerate(acts[1:]))):
            own = weights[1 + 6 * at : 7 + 6 * at]
            while layer:
                count = layer[-1].requested
                after = allocator.alloc(count, [], "gradient")
                allocator.free(layer.pop(), [])
                allocator.free(flow, [])
                flow = after
                if len(layer) < len(own):
                    grads.append(allocator.alloc(4 * own[len(layer)], [], "gradient"))
        allocator.free(acts[0].pop(), [])
        allocator.free(flow, [])
        if not states:
            states = [allocator.alloc(4 * weight, STATE, "state") for weight in weights for _ in range(2)]
        for weight in weights:
            first = allocator.alloc(4 * weight, UPDATE, "workspace")
            second = allocator.alloc(4 * weight, UPDATE, "workspace")
            allocator.free(first, UPDATE)
            allocator.free(second, UPDATE)
        for block in grads:
            allocator.free(block, ZERO)
        for block in held:
            allocator.free(block, [])


LENGTHS = [512, 704, 384, 896]


def corpus() -> dict[str, dict[str, Any]]:
    """The snapshots of `corpus/snapshots/`."""
    made = {}
    allocator = Allocator(80 << 30)
    train(allocator, LENGTHS)
    made["decoder-train"] = allocator.snapshot()
    allocator = Allocator(80 << 30, record=False)
    train(allocator, LENGTHS)
    made["decoder-no-history"] = allocator.snapshot()
    allocator = Allocator(27 << 27)  # 3.375 GiB
    with contextlib.suppress(OutOfMemory):
        train(allocator, [512, 704, 384, 1152])
    made["decoder-oom"] = allocator.snapshot()
    allocator = Allocator(80 << 30, expandable=True)
    train(allocator, LENGTHS)
    made["decoder-expandable"] = allocator.snapshot()
    return made


def main() -> None:
    import zstandard

    folder = pathlib.Path(sys.argv[1])
    for name, snapshot in corpus().items():
        data = pickle.dumps(snapshot, protocol=4)
        (folder / f"{name}.pickle.zst").write_bytes(zstandard.ZstdCompressor(19).compress(data))
        print(f"{name}: {len(data):,} B, {len(snapshot['device_traces'][0]):,} events")


if __name__ == "__main__":
    main()
