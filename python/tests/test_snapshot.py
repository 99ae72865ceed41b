"""`memfit.explain` on snapshots, against what the model of the allocator knows of its own allocations."""

import pickle

import pytest
import snapshots
import torch

import memfit

EXPANDABLE_PAGES = 22 * snapshots.MIB


@pytest.fixture(scope="module")
def trained():
    allocator = snapshots.Allocator(80 << 30)
    snapshots.train(allocator, snapshots.LENGTHS)
    return allocator


def remedies(found):
    return {remedy.name: remedy for remedy in found.remedies}


def test_pytorchs_own_tools_read_the_generated_snapshots(trained):
    """So the form is the one that PyTorch's viewer knows."""
    from torch.cuda import _memory_viz

    snapshot = trained.snapshot()
    assert f"segments: {len(snapshot['segments'])}" in _memory_viz.segsum(snapshot)
    assert _memory_viz.trace(snapshot).count("cudaMalloc") == len(snapshot["segments"])
    assert "train.py" in _memory_viz.memory(snapshot, format_flamegraph=lambda text: text)


def test_the_peak_and_its_roles_are_those_of_the_allocator(trained):
    found = memfit.explain(trained.snapshot())
    assert isinstance(found, memfit.SnapshotExplanation)
    assert found.reserved_peak_bytes == trained.peak_reserved
    assert found.live_peak_bytes == sum(trained.peak_live.values())
    assert {share.name: share.bytes for share in found.peak_by_role} == trained.peak_live
    assert set(trained.peak_live) >= {"parameter", "state", "activation", "gradient", "input"}
    assert sum(share.bytes for share in found.peak_by_frame) == found.live_peak_bytes
    assert found.peak_by_frame[0].name == "train.py:40 step"
    assert found.events == len(trained.trace)
    assert [holder.bytes for holder in found.top] == sorted((h.bytes for h in found.top), reverse=True)
    assert found.top[0].stack[1] == "modules/module.py:1787 _call_impl"


def test_what_the_allocator_holds_now(trained):
    snapshot = trained.snapshot()
    held = memfit.explain(snapshot).held
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    free = [block["size"] for block in blocks if block["state"] == "inactive"]
    assert held.reserved_bytes == sum(segment["total_size"] for segment in snapshot["segments"])
    assert held.allocated_bytes == sum(segment["allocated_size"] for segment in snapshot["segments"])
    assert held.requested_bytes == sum(segment["requested_size"] for segment in snapshot["segments"])
    assert (held.free_bytes, held.free_blocks, held.largest_free_bytes) == (sum(free), len(free), max(free))
    assert (held.segments, held.expandable) == (len(snapshot["segments"]), False)


def test_remedies_are_what_they_say(trained):
    found = remedies(memfit.explain(trained.snapshot()))
    live = found["live"].peak_bytes
    assert found["none"].peak_bytes == trained.peak_reserved
    assert live <= found["place"].peak_bytes <= found["none"].peak_bytes
    assert {name: remedy.certainty for name, remedy in found.items()} == {
        "none": "recorded",
        "expandable": "estimate",
        "place": "exact",
        "live": "exact",
        "recompute": "bound",
        "offload-state": "bound",
        "offload-weights": "bound",
    }
    # The estimate against the model itself, run with segments that grow.
    growing = snapshots.Allocator(80 << 30, expandable=True)
    snapshots.train(growing, snapshots.LENGTHS)
    assert abs(found["expandable"].peak_bytes - growing.peak_reserved) <= EXPANDABLE_PAGES
    again = memfit.explain(growing.snapshot())
    assert again.held.expandable
    assert "expandable" not in remedies(again)
    # The bounds: no role's bytes but its largest buffer's.
    roles = trained.peak_live
    assert found["offload-state"].peak_bytes >= live - roles["state"]
    assert found["recompute"].peak_bytes >= live - roles["activation"]


def test_running_out_of_memory_counts_what_was_asked_for():
    capacity = 27 << 27
    allocator = snapshots.Allocator(capacity)
    with pytest.raises(snapshots.OutOfMemory) as caught:
        snapshots.train(allocator, [512, 704, 384, 1152])
    requested = caught.value.args[0]
    found = memfit.explain(allocator.snapshot())
    assert found.out_of_memory == memfit.OutOfMemory(
        requested_bytes=requested, device_free_bytes=capacity - allocator.reserved()
    )
    live = sum(allocator.live().values())
    assert found.live_peak_bytes == live + requested
    assert [holder.failed for holder in found.top].count(True) == 1
    assert remedies(found)["none"].peak_bytes == allocator.reserved() + requested > capacity
    # What the report is for: without fragmentation the step would have run.
    assert remedies(found)["place"].peak_bytes < capacity
    assert "they count as live" in repr(found)


def test_a_history_that_begins_late_is_completed_from_the_blocks(trained):
    """A ring buffer forgets: what was there before, or was freed without a beginning, is from before."""
    snapshot = trained.snapshot()
    whole = memfit.explain(snapshot)
    cut = len(trained.trace) // 2
    late = memfit.explain({**snapshot, "device_traces": [trained.trace[cut:]]})
    assert late.live_peak_bytes == whole.live_peak_bytes
    assert late.peak_event == whole.peak_event - cut
    assert late.reserved_peak_bytes == whole.reserved_peak_bytes
    assert any(holder.from_before for holder in late.top)
    state = [share.bytes for share in late.peak_by_role if share.name == "state"]
    assert state == [trained.peak_live["state"]], "blocks that are still there bring their stacks"


def test_without_history_it_is_about_the_moment(trained):
    snapshot = trained.snapshot()
    for traces in ({"device_traces": [[]]}, {}):
        bare = {"segments": snapshot["segments"], **traces}
        found = memfit.explain(bare)
        assert (found.events, found.live_peak_bytes) == (0, sum(trained.live().values()))
        assert set(remedies(found)) == {"none", "live", "offload-state", "offload-weights"}
        assert {share.name for share in found.peak_by_role} == {"parameter", "state"}
    assert memfit.explain(pickle.dumps(snapshot["segments"])).live_peak_bytes == found.live_peak_bytes


def test_several_devices(trained):
    first = trained.snapshot()
    small = snapshots.Allocator(80 << 30)
    snapshots.train(small, [64], layers=1)
    second = small.snapshot()
    for segment in second["segments"]:
        segment["device"] = 1
    both = {
        "segments": second["segments"] + first["segments"],
        "device_traces": first["device_traces"] + second["device_traces"],
    }
    found = memfit.explain(both)
    assert (found.device, found.devices) == (0, [0, 1])
    assert memfit.explain(both, index=1).live_peak_bytes == sum(small.peak_live.values())
    with pytest.raises(memfit.UsageError, match="nothing of that device\nhint: known: 0, 1"):
        memfit.explain(both, index=7)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_protocol_is_read(trained, protocol, tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(trained.snapshot(), protocol=protocol))
    assert memfit.explain(path).live_peak_bytes == sum(trained.peak_live.values())


def test_pickles_that_run_code_are_refused(tmp_path):
    mark = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return (open, (str(mark), "w"))

    with pytest.raises(memfit.InputError, match="only plain data is read"):
        memfit.explain(pickle.dumps({"segments": [], "x": Evil()}))
    with pytest.raises(memfit.InputError, match="only plain data is read"):
        memfit.explain(pickle.dumps({"segments": torch.zeros(2)}))
    assert not mark.exists()


def test_the_corpus_is_made_by_this_model():
    zstandard = pytest.importorskip("zstandard")
    folder = snapshots.pathlib.Path(__file__).parent.parent.parent / "corpus" / "snapshots"
    made = snapshots.corpus()
    assert {file.name for file in folder.glob("*.zst")} == {f"{name}.pickle.zst" for name in made}
    for name, snapshot in made.items():
        packed = (folder / f"{name}.pickle.zst").read_bytes()
        assert pickle.loads(zstandard.ZstdDecompressor().decompress(packed)) == snapshot
