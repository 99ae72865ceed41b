"""How long the page of a large snapshot takes to open.

`PYTHONPATH=python python python/tests/bench_report.py [EVENTS]` makes a snapshot of so many events (a
million), its page by `memfit report`, and opens it in Chromium, three times.
"""

import pathlib
import pickle
import random
import shutil
import sys
import tempfile
import time

import memfit


def snapshot(events: int) -> dict:
    """What `torch.cuda.memory._snapshot` would tell of an allocator that reuses blocks of the same size."""
    draw = random.Random(1)
    frames = [[{"name": f"f{at}", "filename": f"m{at % 7}.py", "line": at}] for at in range(60)]
    trace, live, free, end = [], {}, {}, 1 << 20
    for at in range(events):
        event = {"stream": 0, "time_us": at, "frames": frames[at % 60]}
        if live and (len(live) > 3000 or draw.random() < 0.49):
            address = next(iter(live))
            size = live.pop(address)
            free.setdefault(size, []).append(address)
            trace.append(event | {"action": "free_completed", "addr": address, "size": size})
        else:
            size = 512 * draw.choice([1, 2, 8, 64, 512, 1024])
            address = free[size].pop() if free.get(size) else end
            end = max(end, address + size)
            live[address] = size
            trace.append(event | {"action": "alloc", "addr": address, "size": size})
    blocks, at = [], 1 << 20
    for address, size in [*sorted(live.items()), (end, 0)]:
        if address > at:
            blocks.append({"address": at, "size": address - at, "requested_size": 0, "state": "inactive"})
        if size:
            blocks.append(
                {"address": address, "size": size, "requested_size": size, "state": "active_allocated"}
            )
        at = address + size
    segment = {
        "device": 0,
        "address": 1 << 20,
        "total_size": end - (1 << 20),
        "allocated_size": sum(live.values()),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": {}}


def main() -> None:
    from playwright import sync_api

    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder, sync_api.sync_playwright() as playwright:
        source, page = pathlib.Path(folder) / "snapshot.pickle", pathlib.Path(folder) / "report.html"
        source.write_bytes(pickle.dumps(snapshot(events)))
        started = time.perf_counter()
        memfit.report(source, page)
        print(f"{events} events, {source.stat().st_size} bytes: page of {page.stat().st_size} bytes", end=" ")
        print(f"in {time.perf_counter() - started:.1f} s")
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(3):
            tab = chromium.new_page(viewport={"width": 1360, "height": 900})
            started = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready=yes]")
            tab.evaluate(
                "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            print(f"opens in {time.perf_counter() - started:.2f} s")
            tab.close()
        chromium.close()


if __name__ == "__main__":
    main()
