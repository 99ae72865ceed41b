"""The page that `memfit.report` writes, in a real browser, and what `memfit.export` writes for other viewers.

The browser is Debian's Chromium, driven by Playwright: `apt-get install chromium`. Without it those tests are
skipped. Pictures go to `target/report/`.
"""

import functools
import json
import os
import pathlib
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

import memfit

ROOT = pathlib.Path(__file__).parent.parent.parent
PICTURES = ROOT / "target" / "report"
GOLDEN = pathlib.Path(__file__).parent / "golden"
GRAPH = ROOT / "corpus" / "graphs" / "unet-train-b16.json.zst"
HOSTILE = "</script><img src=x onerror=alert(1)>"
NAMES = [
    HOSTILE,
    "\x1b[31mred\x07",
    "\u202egpj.exe",
    "<svg onload=alert(1)>",
    "__proto__",
    "constructor",
    "a" * 5000,
    "\u2028'\"`${1}",
]


def chromium() -> str:
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        pytest.skip("there is no Chromium: `apt-get install --no-install-recommends chromium`")
    return found


@pytest.fixture(scope="module")
def browser():
    path = chromium()
    sync_api = pytest.importorskip("playwright.sync_api", reason="`pip install playwright`")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """Opens a page from its file; it must ask for nothing else and complain of nothing."""
    requests, complaints, contexts = [], [], []

    def open_page(path: pathlib.Path, **options):
        context = browser.new_context(viewport={"width": 1360, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        drawn(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert all(url.startswith("file:///") and url.endswith(".html") for url in requests), requests
    assert len(requests) == len(contexts)
    assert not complaints, complaints


def drawn(page) -> None:
    """Waits until what was asked for is on the screen."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def picture(page, name: str, **options) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", **options)


def view(page, name: str) -> None:
    page.click(f"nav button[data-view={name}]")
    drawn(page)


def pixels(page, selector: str) -> int:
    """How many colours a canvas shows."""
    script = """selector => {
        const canvas = document.querySelector(selector);
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size;
    }"""
    return page.evaluate(script, selector)


@functools.cache
def planned() -> memfit.Plan:
    return memfit.plan(GRAPH, budget="floor+40%", strategy="hybrid:best")


@pytest.fixture(scope="module")
def plan_page(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("report") / "plan.html"
    memfit.report(planned(), path, graph=GRAPH, front=True)
    return path


def test_every_view_of_a_plan_is_drawn(opened, plan_page):
    assert plan_page.stat().st_size <= 2_000_000
    page = opened(plan_page)
    assert page.title() == "unet · memfit"
    assert page.inner_text(".card .value").endswith("iB")
    names = page.eval_on_selector_all("nav button", "all => all.map(button => button.dataset.view)")
    assert names == ["overview", "memory", "addresses", "lanes", "compare", "buffers"]
    for key, name in enumerate(names, 1):
        page.keyboard.press(str(key))
        drawn(page)
        assert page.get_attribute("html", "data-view") == name
        assert page.get_attribute(f"nav button[data-view={name}]", "aria-current") == "true"
        picture(page, f"plan-{name}", full_page=True)
    view(page, "overview")
    assert pixels(page, "#addresses canvas") > 8 and pixels(page, "#lanes canvas") > 8
    assert pixels(page, "#memory-chart canvas") > 8
    view(page, "compare")
    assert page.locator("#compared tbody tr").count() >= 4
    means = page.eval_on_selector_all(
        "#what-if tbody tr td:first-child", "all => all.map(cell => cell.innerText)"
    )
    assert {"recompute", "offload", "compress", "hybrid"} <= set(means)
    assert page.locator("#front-chart canvas").count() == 1
    assert "accepted this plan" in page.inner_text("#facts")


def test_the_pointer_names_what_is_under_it(opened, plan_page):
    page = opened(plan_page)
    view(page, "addresses")
    box = page.locator("#addresses canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.9)
    drawn(page)
    tip = page.inner_text("#tip")
    for word in ("role", "bytes", "made by", "address", "life"):
        assert word in tip, tip
    assert page.inner_text("#tip .head") in json.loads(planned_names()), tip
    picture(page, "plan-hover")
    view(page, "lanes")
    box = page.locator("#lanes canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 30)
    drawn(page)
    assert "takes" in page.inner_text("#tip")
    page.mouse.move(5, 5)
    drawn(page)
    assert not page.is_visible("#tip")


def planned_names() -> str:
    import zstandard

    with open(GRAPH, "rb") as file:
        graph = json.loads(zstandard.ZstdDecompressor().stream_reader(file).read())
    return json.dumps([value["name"] for value in graph["values"]] + ["workspace"])


def test_wheel_drag_and_keys_move_what_is_shown(opened, plan_page):
    page = opened(plan_page)
    view(page, "addresses")

    def shown() -> str:
        drawn(page)
        return page.inner_text("#range")

    whole = shown()
    box = page.locator("#addresses canvas").bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 300)
    page.mouse.wheel(0, -400)
    nearer = shown()
    assert nearer != whole
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 260, steps=4)
    page.mouse.up()
    moved = shown()
    assert moved != nearer
    page.keyboard.press("ArrowRight")
    assert shown() != moved
    page.keyboard.press("0")
    assert shown() == whole
    page.keyboard.press("+")
    zoomed = shown()
    page.keyboard.press("-")
    assert zoomed != whole and shown() == whole
    page.keyboard.press("p")
    assert shown() != whole
    page.click("#all")
    assert shown() == whole
    page.select_option("#axis", "step")
    assert "step" in shown() and "ms" not in shown()
    page.select_option("#by", "module")
    drawn(page)
    view(page, "memory")
    assert "activation" not in page.inner_text("#legend")
    over = page.locator("#memory-chart .u-over").bounding_box()
    before = shown()
    page.mouse.move(over["x"] + 100, over["y"] + 60)
    page.mouse.down()
    page.mouse.move(over["x"] + 400, over["y"] + 60, steps=4)
    page.mouse.up()
    assert shown() != before


def test_the_search_finds_buffers_and_leads_to_their_place(opened, plan_page):
    page = opened(plan_page)
    page.keyboard.press("/")
    drawn(page)
    assert page.get_attribute("html", "data-view") == "buffers"
    every = page.inner_text("#found")
    page.keyboard.type("gradient")
    drawn(page)
    roles = page.eval_on_selector_all(
        "#table tbody tr td:nth-child(2)", "all => all.map(cell => cell.innerText)"
    )
    assert roles and page.inner_text("#found") != every
    page.fill("#search", "no such buffer")
    drawn(page)
    assert page.locator("#table tbody tr").count() == 0 and page.inner_text("#found").startswith("0 of")
    page.fill("#search", "")
    page.click("#table th button >> text=role")
    drawn(page)
    page.locator("#table tbody tr").first.click()
    drawn(page)
    assert page.get_attribute("html", "data-view") == "addresses"


def test_dark_and_printed_pages_have_colours_of_their_own(opened, plan_page):
    light, dark = opened(plan_page), opened(plan_page, color_scheme="dark")
    colour = "() => getComputedStyle(document.documentElement).backgroundColor"
    assert light.evaluate(colour) != dark.evaluate(colour)
    picture(dark, "plan-dark", full_page=True)
    light.emulate_media(color_scheme="dark")
    drawn(light)
    assert light.evaluate(colour) == dark.evaluate(colour)
    dark.emulate_media(media="print")
    assert not dark.is_visible("nav") and dark.is_visible("#compare") and dark.is_visible("#memory")
    view(light, "buffers")
    PICTURES.mkdir(parents=True, exist_ok=True)
    light.pdf(path=PICTURES / "plan.pdf", landscape=True)
    drawn(light)
    assert light.get_attribute("html", "data-view") == "buffers"


def test_hostile_names_are_text(opened, tmp_path):
    values = [
        {"name": name, "bytes": 4096, "role": "activation" if at else "input"}
        for at, name in enumerate(NAMES)
    ]
    ops = [
        {"name": name, "kind": name, "module": name, "reads": [at], "writes": [at + 1]}
        for at, name in enumerate(NAMES[1:])
    ]
    graph = {"schema": "memfit-graph/1", "name": HOSTILE, "values": values, "ops": ops, "results": [len(ops)]}
    path = tmp_path / "hostile.html"
    memfit.report(graph, path, facts={HOSTILE: HOSTILE})
    assert HOSTILE not in path.read_text(encoding="utf-8")
    page = opened(path)
    assert page.inner_text("#title") == HOSTILE
    for name in ("memory", "addresses", "lanes", "compare", "buffers"):
        view(page, name)
        assert page.locator("img, svg").count() == 0
    shown = page.inner_text("#table")
    assert HOSTILE in shown and "\x1b" not in shown and "\u202e" not in shown and "a" * 300 not in shown
    page.select_option("#by", "module", force=True)
    view(page, "overview")
    box = page.locator("#addresses canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.8)
    drawn(page)
    picture(page, "hostile", full_page=True)


@pytest.mark.parametrize("name", ["decoder-oom", "decoder-train", "decoder-no-history"])
def test_snapshots_are_drawn(opened, tmp_path, name):
    path = tmp_path / f"{name}.html"
    memfit.report(ROOT / "corpus" / "snapshots" / f"{name}.pickle.zst", path)
    page = opened(path)
    assert page.inner_text("#kind") == "snapshot"
    assert pixels(page, "#addresses canvas") > 4
    picture(page, name, full_page=True)
    view(page, "compare")
    assert page.locator("#what-if tbody tr").count() >= 2


def test_a_plan_without_its_graph_and_a_training_are_drawn(opened, tmp_path):
    bare = tmp_path / "bare.html"
    memfit.report(planned(), bare)
    page = opened(bare)
    assert "has not read this plan" in page.inner_text("#notes")
    assert page.locator("nav button[data-view=lanes]").count() == 0
    told = {
        "schema": "memfit-result/1",
        "command": "run",
        "model": "mlp",
        "strategy": "planned",
        "losses": [2, 1.5],
    }
    run = tmp_path / "run.html"
    memfit.report(json.dumps(told | {"peak_bytes": 1 << 20, "budget_bytes": 2 << 20}).encode(), run)
    page = opened(run)
    assert page.get_attribute("html", "data-view") == "compare"
    assert page.locator("#losses-chart canvas").count() == 1
    picture(page, "training", full_page=True)


@pytest.mark.parametrize("ops", [0, 1])
@pytest.mark.parametrize("size", [0, 1])
def test_next_to_nothing_is_drawn(opened, tmp_path, ops, size):
    values = [{"name": "", "bytes": size, "role": "input"}, {"name": "", "bytes": size}][: 2 * ops]
    made = [{"name": "", "kind": "", "reads": [0], "writes": [1]}][:ops]
    graph = {"schema": "memfit-graph/1", "name": "", "values": values, "ops": made, "results": [1] * ops}
    path = tmp_path / "small.html"
    memfit.report(graph, path)
    page = opened(path)
    assert page.inner_text("#title") == "(no name)"
    names = page.eval_on_selector_all("nav button", "all => all.map(button => button.dataset.view)")
    assert names
    for name in names:
        view(page, name)


def test_a_hundred_thousand_buffers_can_be_moved_about(opened, tmp_path):
    """Prints how long a frame takes; how fast is not asserted, only that it is drawn at all."""
    count = 100_000
    values = [
        {"name": f"block{at // 500}.value{at}", "bytes": 512 * (1 + at * 7919 % 251)} for at in range(count)
    ]
    values[0]["role"] = "input"
    ops = [
        {
            "name": f"op{at}",
            "kind": "add",
            "reads": sorted({at, max(0, at - at * 31 % 300)}),
            "writes": [at + 1],
        }
        for at in range(count - 1)
    ]
    graph = {
        "schema": "memfit-graph/1",
        "name": "large",
        "values": values,
        "ops": ops,
        "results": [count - 1],
    }
    path = tmp_path / "large.html"
    plan = memfit.plan(graph, strategy=["order:given", "place:best-fit"], recompute=False)
    memfit.report(plan, path, graph=graph, quick=True)
    assert path.stat().st_size <= 2_000_000
    page = opened(path)
    view(page, "addresses")
    box = page.locator("#addresses canvas").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 300)
    times = []
    for turn in range(30):
        if turn == 10:
            page.mouse.wheel(0, -300)
        page.keyboard.press("ArrowRight")
        drawn(page)
        times.append(float(page.get_attribute("html", "data-frame-ms")))
    times.sort()
    frames = int(page.get_attribute("html", "data-frames"))
    print(
        f"{path.stat().st_size} bytes; a frame takes {times[15]:.1f} ms (median), {times[-1]:.1f} ms at most"
    )
    assert frames >= 30
    picture(page, "large")


def small(path: pathlib.Path) -> np.ndarray:
    """A picture in shades from 0 to 1, a fourth as wide and high: letters of another font are grey, too."""
    with Image.open(path) as image:
        shades = image.convert("L")
        return np.asarray(shades.resize((shades.width // 4, shades.height // 4), Image.Resampling.BOX)) / 255


def looks_like(seen: np.ndarray, golden: np.ndarray) -> bool:
    """Whether at most one dot of fifty is off by a tenth of the way from black to white."""
    return seen.shape == golden.shape and float((abs(seen - golden) > 0.1).mean()) <= 0.02


@pytest.mark.parametrize("name", ["overview", "memory", "addresses", "lanes"])
def test_a_view_looks_as_it_did(opened, tmp_path, name):
    """Look at the pictures before `MEMFIT_BLESS=1` takes those in `target/report/` for what is expected."""
    path = tmp_path / "golden.html"
    plan = memfit.plan(GRAPH, strategy=["order:given", "place:best-fit"], recompute=False)
    memfit.report(plan, path, graph=GRAPH, quick=True)
    page = opened(path, reduced_motion="reduce")
    view(page, name)
    picture(page, f"golden-{name}")
    seen = small(PICTURES / f"golden-{name}.png")
    golden = GOLDEN / f"report-{name}.png"
    if os.environ.get("MEMFIT_BLESS"):
        GOLDEN.mkdir(exist_ok=True)
        Image.fromarray((seen * 255).round().astype("uint8")).save(golden, optimize=True)
    with Image.open(golden) as image:
        expected = np.asarray(image) / 255
    assert looks_like(seen, expected), f"`target/report/golden-{name}.png` is not what `{golden.name}` shows"
    # What would be no such view is told apart: an empty one, and one that has moved.
    assert not looks_like(np.full_like(seen, seen.max()), expected)
    assert not looks_like(np.roll(seen, seen.shape[0] // 2, axis=0), expected)


def test_the_picture_of_the_manual(opened, tmp_path):
    """`docs/report.png` is this picture: copy it there when the page changes."""
    path = tmp_path / "gpt2.html"
    graph = ROOT / "corpus" / "graphs" / "gpt2-train-b8-s1024.json.zst"
    plan = memfit.plan(graph, budget="floor+30%", strategy="hybrid:best")
    memfit.report(plan, path, graph=graph, quick=True)
    page = opened(path)
    picture(page, "manual", full_page=True)
    assert (PICTURES / "manual.png").stat().st_size < 200_000


def test_the_snapshot_of_a_plan_is_plain_data_that_torch_could_have_written():
    snapshot = pickle.loads(memfit.export(planned(), GRAPH, to="memory-viz"))
    assert set(snapshot) >= {"segments", "device_traces"}
    (segment,), (events,) = snapshot["segments"], snapshot["device_traces"]
    assert segment["total_size"] == planned().peak_bytes
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    live, most, held = 0, 0, {}
    for event in events:
        assert segment["address"] <= event["addr"] < segment["address"] + segment["total_size"]
        if event["action"] == "alloc":
            assert event["addr"] not in held and event["frames"]
            held[event["addr"]] = event["size"]
            live += event["size"]
            most = max(most, live)
        elif event["action"] == "free_completed":
            live -= held.pop(event["addr"])
    assert most == planned().live_peak_bytes
    at_end = {block["address"] for block in segment["blocks"] if block["state"] == "active_allocated"}
    assert at_end == set(held)
    # What memfit makes of it is what it knows of the plan.
    explained = memfit.explain(snapshot)
    assert explained.live_peak_bytes == planned().live_peak_bytes


def test_traces_of_a_plan_are_written():
    trace = json.loads(memfit.export(planned(), GRAPH, to="chrome-trace"))
    lanes = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert {"compute", "out to host", "in from host"} <= lanes
    with pytest.raises(memfit.UsageError, match="svg"):
        memfit.export(planned(), GRAPH, to="svg")


def test_a_perfetto_trace_is_one_by_perfettos_own_schema():
    """Its trace processor would be a download; the schema comes with its package."""
    schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    written = memfit.export(planned(), GRAPH, to="perfetto")
    trace = schema.Trace.FromString(written)
    unknown = pytest.importorskip("google.protobuf.unknown_fields").UnknownFieldSet
    for packet in trace.packet:
        for message in (packet, packet.track_event, packet.track_descriptor):
            assert len(unknown(message)) == 0, "there is a field that the schema does not know"
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet}
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    of = {
        name: [event for event in events if event.track_event.type == kind]
        for name, kind in {"begin": 1, "end": 2, "count": 4}.items()
    }
    told = json.loads(memfit.export(planned(), GRAPH, to="chrome-trace"))["traceEvents"]
    slices = [(event["name"], round(event["ts"] * 1000)) for event in told if event["ph"] == "X"]
    begun = [(event.track_event.name, event.timestamp) for event in of["begin"]]
    assert sorted(begun) == sorted(slices) and len(of["end"]) == len(slices)
    counters = {uuid for uuid, track in tracks.items() if track.HasField("counter")}
    assert all(tracks[uuid].counter.unit == schema.CounterDescriptor.UNIT_SIZE_BYTES for uuid in counters)
    assert {event.track_event.track_uuid for event in of["count"]} == counters
    everything = next(uuid for uuid in counters if tracks[uuid].name == "live bytes")
    counts = [e.track_event.counter_value for e in of["count"] if e.track_event.track_uuid == everything]
    assert max(counts) == planned().live_peak_bytes


def test_what_can_not_be_shown_is_refused(tmp_path):
    with pytest.raises(memfit.InputError):
        memfit.report(b"{}", tmp_path / "none.html")
    with pytest.raises(memfit.OtherGraphError):
        other = ROOT / "corpus" / "graphs" / "vgg16-train-b256.json.zst"
        memfit.report(planned(), tmp_path / "none.html", graph=other)
    assert not (tmp_path / "none.html").exists()
