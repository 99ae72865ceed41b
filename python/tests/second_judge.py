"""A second judge, in another language, written from `docs/plan-json.md` and `docs/graph-json.md`.

Memory is cut into cells where buffers begin and end. An op puts into the cells of its outputs a hash of what
it found in those of its inputs; what must be found follows from the graph. Nothing is shared with memfit.
"""

import hashlib
import math
import struct
from bisect import bisect_left
from typing import Any

Json = dict[str, Any]
Stay = tuple[str, int]
Content = tuple[int | None, str | None]
PERSISTENT = ("parameter", "state", "constant")
LOSSLESS = {"zvc", "csr", "binarize"}
SIGN = "binarize"
MOST_LANES = 1024
MOVES = ("offload", "fetch", "encode", "decode")


class Wrong(Exception):
    """The plan is wrong; the text says why."""


def need(right: bool, why: str) -> None:
    """Objects with `why` unless `right`."""
    if not right:
        raise Wrong(why)


def digest(*parts: object) -> str:
    """A hash of `parts`."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def up(number: int, divisor: int) -> int:
    """A quotient, rounded up."""
    return -(-number // divisor)


def room(codec: str, value: Json) -> int:
    """The bytes that must be there for `value` encoded."""
    size, words = value["bytes"], value["bytes"] // 4
    (density,) = struct.unpack("f", struct.pack("f", value.get("density", 1)))
    filled = math.ceil(density * up(size, 4))
    if codec == "zvc":
        return min(size, 4 * filled) + up(up(size, 4), 8)
    kept, mask, tail = min(filled, words), up(words, 8), size % 4
    if codec.startswith("int"):
        bits, has_mask = int(codec[3]), codec.endswith("+mask")
        groups = [256] * (words // 256) + ([words % 256] if words % 256 else [])
        return sum(8 + up(bits * group, 8) + has_mask * up(group, 8) for group in groups) + tail
    packed = {
        "csr": 2 * up(words, 256) + 5 * kept,
        "zvc+bf16": mask + 2 * kept,
        "zvc+f16": mask + 2 * kept,
        "zvc+fp8": mask + kept + 4 * up(kept, 256),
        "binarize": mask,
        "cast-bf16": 2 * words,
        "cast-f16": 2 * words,
        "cast-fp8": words + 4 * up(words, 256),
        "state8": words + 4 * up(words, 2048),
        "state8-unsigned": words + 4 * up(words, 2048),
    }
    return packed[codec] + tail


class Graph:
    """What a plan must come to."""

    def __init__(self, graph: Json) -> None:
        self.values, self.ops = graph["values"], graph["ops"]
        self.size = [value["bytes"] for value in self.values]
        self.over: dict[int, int] = {}  # By output: the input over which it must be written.
        self.may: set[tuple[int, int]] = set()
        self.truth = [digest("source", at) for at in range(len(self.values))]
        made = {value for op in self.ops for value in op["writes"]}
        for at, op in enumerate(self.ops):
            self.over.update((output, source) for source, output in op.get("must", []))
            self.may.update((source, output) for source, output in op.get("may", []))
            for place, output in enumerate(op["writes"]):
                self.truth[output] = digest(at, place, [self.truth[value] for value in op["reads"]])
        self.sources = {at for at in range(len(self.values)) if at not in made}
        # The last version of a persistent storage, and the source that it began as.
        self.last = {at: at for at in self.sources if self.values[at].get("role") in PERSISTENT}
        for op in self.ops:
            for source, output in op.get("must", []):
                if source in self.last:
                    self.last[output] = self.last.pop(source)
        self.results = set(graph["results"]) | set(self.last)


class Cell:
    """Bytes that no buffer begins or ends within, or a copy."""

    def __init__(self) -> None:
        self.holds = "", 0
        self.owner: Stay | None = None
        self.writer: int | None = None
        self.readers: list[int] = []


class Judge:
    """One run of a plan."""

    def __init__(self, graph: Graph, plan: Json) -> None:
        self.graph, self.plan = graph, plan
        self.buffers, self.copies, self.banks = plan["buffers"], plan["copies"], plan["banks"]
        self.stage: dict[Stay, str] = {}
        self.signs: set[Stay] = set()  # What has been down to its signs.
        self.before: list[int] = []  # By step: the steps that are done when it begins, as bits.
        self.used, self.peak = {"host": 0, "disk": 0}, 0
        self.effects: dict[str, list[tuple[int, int]]] = {"seeded": [], "once": []}
        cells: dict[int, dict[int, Cell]] = {}
        for buffer in self.buffers:
            for edge in (buffer["offset"], buffer["offset"] + buffer["size"]):
                cells.setdefault(buffer.get("bank", 0), {})[edge] = Cell()
        edges = {bank: sorted(cells[bank]) for bank in cells}
        self.own = {("copy", at): [(Cell(), 0)] for at in range(len(self.copies))}
        for at, buffer in enumerate(self.buffers):
            bank, start = buffer.get("bank", 0), buffer["offset"]
            first, end = (bisect_left(edges[bank], edge) for edge in (start, start + buffer["size"]))
            own = [(cells[bank][edge], edge - start) for edge in edges[bank][first:end]]
            self.own["buffer", at] = own or [(Cell(), 0)]

    def claim(self, stay: Stay) -> Json:
        """The row of the file."""
        return (self.buffers if stay[0] == "buffer" else self.copies)[stay[1]]

    def content(self, stay: Stay) -> Content:
        """The value that `stay` claims to hold, `None` for scratch, and its codec."""
        claim = self.claim(stay)
        return (None if claim.get("workspace") else claim["value"]), claim.get("encoded")

    def place(self, stay: Stay) -> list[object]:
        """Where it is."""
        return [self.claim(stay).get(key) or 0 for key in ("bank", "offset", "size", "tier")]

    def done(self, step: int | None, now: int) -> bool:
        """Whether `step` is done when `now` begins; `None` is what was before all steps."""
        return step is None or step == now or bool(self.before[now] >> step & 1)

    def fill(self, stay: Stay, content: Content, held: str, now: int) -> None:
        """A stay begins, with what `content` says, which hashes to `held`."""
        need(stay not in self.stage, f"{stay} is filled twice")
        self.stage[stay] = "here"
        need(self.content(stay) == content, f"{stay} gets {content}")
        claim, (value, codec) = self.claim(stay), content
        if value is not None:
            row, size = self.graph.values[value], claim["size"]
            need(size >= room(codec, row) if codec else size == row["bytes"], f"size of {stay}")
        if stay[0] == "buffer":
            number, end = claim.get("bank", 0), claim["offset"] + claim["size"]
            bank = self.banks[number]
            need(claim["offset"] % bank["align"] == 0, f"{stay} is not aligned")
            most = bank["capacity"] if number else min(bank["capacity"], self.plan["budget_bytes"])
            need(end <= most, f"{stay} is beyond its bank")
            self.peak = self.peak if number else max(self.peak, end)
            pin = self.graph.values[value].get("pin") if value is not None and codec is None else None
            here = pin is None or (pin["bank"], pin.get("offset", claim["offset"])) == (
                number,
                claim["offset"],
            )
            need(here, f"{stay} is not where it must be")
        else:
            tier = claim.get("tier", "host")
            self.used[tier] += claim["size"]
            need(self.used[tier] <= self.plan.get(f"{tier}_budget_bytes", 0), f"copies in {tier}")
        for cell, at in self.own[stay]:
            need(cell.owner is None, f"{stay} overwrites {cell.owner}")
            need(all(self.done(step, now) for step in [*cell.readers, cell.writer]), f"{stay} is in use")
            cell.holds, cell.owner = (held, at), stay
            cell.writer, cell.readers = now if now >= 0 else None, []

    def end(self, stay: Stay, now: int) -> None:
        """A stay ends. That touches no bytes; but a copy is given back, so all must be done with it."""
        need(self.stage.get(stay) == "here", f"{stay} is not there")
        self.stage[stay] = "gone"
        for cell, _ in self.own[stay]:
            cell.owner = None
            left = [] if stay[0] == "buffer" else [*cell.readers, cell.writer]
            need(all(self.done(step, now) for step in left), f"{stay} is in use")
        if stay[0] == "copy":
            self.used[self.claim(stay).get("tier", "host")] -= self.claim(stay)["size"]

    def read(self, stay: Stay, now: int) -> str:
        """The hash of what is in `stay`."""
        need(self.stage.get(stay) == "here", f"{stay} is not there")
        found = set()
        for cell, at in self.own[stay]:
            need(self.done(cell.writer, now), f"{stay} is being written")
            cell.readers.append(now)
            need(cell.owner == stay and cell.holds[1] == at, f"{stay} was overwritten")
            found.add(cell.holds[0])
        need(len(found) == 1, f"{stay} holds parts of several values")
        return found.pop()

    def compute(self, step: Json, now: int) -> None:
        at = step["op"]
        op = self.graph.ops[at]
        self.effect(at, op.get("effect", "pure"), now)
        found = []
        for buffer, value in zip(step["reads"], op["reads"], strict=True):
            found.append(self.read(("buffer", buffer), now))
            need(self.content(("buffer", buffer)) == (value, None), f"step {now} reads {buffer} for {value}")
            need(found[-1] == self.graph.truth[value], f"step {now} reads wrong bytes")
            less = len(found) - 1 in [*op.get("sign", []), *op.get("shape", [])]
            need(less or ("buffer", buffer) not in self.signs, f"step {now} reads more than signs")
        other = op["algorithms"][step["algorithm"] - 1] if step.get("algorithm") else op
        scratch = step.get("workspace")
        have = self.buffers[scratch]["size"] if scratch is not None else 0
        need(have >= other.get("workspace", 0), f"step {now} has too little scratch memory")
        if scratch is not None:
            need("over" not in self.buffers[scratch], "scratch memory takes nothing over")
            self.fill(("buffer", scratch), (None, None), digest("scratch", now), now)
        for place, (buffer, value) in enumerate(zip(step["writes"], op["writes"], strict=True)):
            before, must = self.buffers[buffer].get("over"), self.graph.over.get(value)
            if before is not None:
                need(before in step["reads"], f"{buffer} takes over what is not read")
                source = op["reads"][step["reads"].index(before)]
                paired = must == source if must is not None else (source, value) in self.graph.may
                same = self.place(("buffer", before)) == self.place(("buffer", buffer))
                need(paired and same, f"{buffer} may not take over {before}")
                self.end(("buffer", before), now)
            need(must is None or before is not None, f"{buffer} must take over")
            self.fill(("buffer", buffer), (value, None), digest(at, place, found), now)
        if scratch is not None:
            self.end(("buffer", scratch), now)

    def effect(self, at: int, effect: str, now: int) -> None:
        """Ops that draw numbers, or act outside, run first in the order of the graph."""
        kind = "seeded" if effect == "seeded" else "once"
        if effect == "pure":
            return
        first = next((step for ran, step in self.effects[kind] if at == ran), None)
        if first is not None:
            need(kind == "seeded" and self.plan["replays_random"], f"op {at} runs again")
            need(self.done(first, now), f"op {at} may overtake its first run")
            return
        need(all(self.done(step, now) for _, step in self.effects[kind]), f"op {at} may overtake another")
        self.effects[kind].append((at, now))

    def may_encode(self, value: int, codec: str) -> None:
        """Whether the plan may have `value` encoded so."""
        need(codec in LOSSLESS or codec in self.plan["lossy"], f"{codec} was not allowed")
        knows = codec in ("zvc", "csr") or self.graph.values[value].get("dtype", "f32") == "f32"
        need(knows, f"{codec} encodes f32 only")

    def move(self, step: Json, now: int) -> None:
        """A transfer, an encoding or a decoding."""
        kind, ends = next((kind, step[kind]) for kind in MOVES if kind in step)
        of = ("copy" if kind == "fetch" else "buffer", ends["from"])
        to = ("copy" if kind == "offload" else "buffer", ends["to"])
        held, (value, codec) = self.read(of, now), self.content(of)
        content = value, codec
        if kind in ("offload", "fetch"):
            need(self.claim(of)["size"] == self.claim(to)["size"], f"{of} and {to} differ in size")
        elif kind == "encode":
            content = value, self.content(to)[1]
            need(value is not None and codec is None and content[1] is not None, "encodes no plain value")
            self.may_encode(value or 0, content[1] or "")
            held = digest(content[1], held)
        else:
            need(value is not None and codec is not None, "decodes what is not encoded")
            need(held == digest(codec, self.graph.truth[value or 0]), "decodes wrong bytes")
            content, held = (value, None), self.graph.truth[value or 0]
        if of in self.signs or content[1] == SIGN:
            self.signs.add(to)
        before = self.claim(to).get("over") if to[0] == "buffer" else None
        need(before is None or (kind == "encode" and of[1] != before), f"{to} takes over what it must not")
        if before is not None:
            self.end(("buffer", before), now)
        self.fill(to, content, held, now)

    def run(self) -> None:
        """Runs all steps in the order of issue."""
        for row in self.buffers + self.copies:  # What steps name shows when they run.
            need(row.get("workspace") or row["value"] < len(self.graph.values), "an unknown value")
            need(row.get("over", 0) < len(self.buffers), "an unknown buffer")
            need(row.get("bank", 0) < len(self.banks), "an unknown bank")
        for stay in self.first():
            value, codec = self.content(stay)
            need(value in self.graph.sources, f"{stay} is there before it can be")
            need(codec is None or stay[0] == "buffer", f"{stay} is encoded elsewhere")
            need(all(self.content(other)[0] != value for other in self.stage), f"{value} is there twice")
            need(stay[0] == "copy" or "over" not in self.claim(stay), f"{stay} takes nothing over")
            lasts = value in self.graph.last.values()
            need(lasts or (stay[0] == "buffer" and codec is None), f"{stay} does not last")
            truth = self.graph.truth[value or 0]
            if codec is not None:
                self.may_encode(value or 0, codec)
                truth = digest(codec, truth)
            if codec == SIGN:
                self.signs.add(stay)
            self.fill(stay, (value, codec), truth, -1)
        known: dict[object, int] = {}
        for now, step in enumerate(self.plan["steps"]):
            lane = step.get("lane", 0)
            need(lane < min(self.plan["lanes"], MOST_LANES), f"there is no lane {lane}")
            thread: object = lane
            for kind, end in (("offload", "to"), ("fetch", "from")):
                if kind in step:
                    thread = kind, self.copies[step[kind][end]].get("tier", "host")
            self.before.append(known.get(lane, 0) | known.get(thread, 0))
            known[thread] = self.before[now] | 1 << now
            if "await" in step:
                need(step["await"] < now, f"step {now} waits for a later one")
                # Complete when that is: who waits for this step waits for that one.
                self.before[now] |= self.before[step["await"]] | 1 << step["await"]
                known[lane] |= self.before[now]
            elif "compute" in step:
                self.compute(step["compute"], now)
            elif "free" in step:
                self.end(("buffer", step["free"]), now)
            elif "discard" in step:
                self.end(("copy", step["discard"]), now)
            else:
                self.move(step, now)
        self.finish()

    def first(self) -> list[Stay]:
        """What is there before the first step."""
        return [("buffer", at) for at in self.plan["resident"]] + [("copy", at) for at in self.plan["parked"]]

    def finish(self) -> None:
        """What must be there at the end is, where it must be; and the peak is what the plan claims."""
        align = self.banks[0]["align"]
        need(-(-self.peak // align) * align == self.plan["peak_bytes"], f"the peak is {self.peak}")
        for kind, ran in self.effects.items():
            of = ("seeded",) if kind == "seeded" else ("once", "collective")
            wanted = [at for at, op in enumerate(self.graph.ops) if op.get("effect", "pure") in of]
            need([at for at, _ in ran] == wanted, f"ops that are {kind} ran as {ran}")
        start = {self.content(stay)[0]: stay for stay in self.first()}
        for value in self.graph.results:
            there = [stay for stay, stage in self.stage.items() if stage == "here"]
            home = start.get(self.graph.last[value]) if value in self.graph.last else None
            codec = self.content(home)[1] if home is not None else None
            here = [stay for stay in there if self.content(stay) == (value, codec) and stay not in self.signs]
            if value in self.graph.last:
                need(home is not None, f"{value} has no home")
                home = home or ("nowhere", 0)
                here = [stay for stay in here if stay[0] == home[0] and self.place(stay) == self.place(home)]
            else:
                here = [stay for stay in here if stay[0] == "buffer"]
            need(bool(here), f"{value} is not there at the end")
            cells = self.own[here[0]]
            truth = self.graph.truth[value] if codec is None else digest(codec, self.graph.truth[value])
            need(all(cell.holds == (truth, at) for cell, at in cells), f"wrong {value}")


def judge(graph: Graph, plan: Json) -> str | None:
    """Why `plan` is wrong, or `None` if it is right."""
    try:
        Judge(graph, plan).run()
    except Wrong as wrong:
        return str(wrong)
    except (IndexError, KeyError, ValueError):
        return "a step names what is not there, or has not one buffer for each operand"
    return None
