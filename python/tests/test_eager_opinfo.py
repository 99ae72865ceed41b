"""PyTorch's own table of ops, each with everything evicted after every op: the same bits, or a clear refusal.

Of the table every fourth entry is run on its first two samples. `MEMFIT_OPS=N` runs all on N samples each;
`MEMFIT_OPS_DOC=1` then writes docs/pytorch-ops.md anew.
"""

import gc
import os
import pathlib
from collections import Counter

import opinfo
import pytest
import torch
from sampling import ALL

SAMPLES = int(os.environ.get("MEMFIT_OPS", "0"))
DOC = pathlib.Path(__file__).parent.parent.parent / "docs" / "pytorch-ops.md"
HEAD = """\
# Ops of PyTorch's that are refused

Every entry of PyTorch's own table of ops (`torch.testing._internal.common_methods_invocations.op_db`) that
runs on a CPU is run forward, backward and in place with everything evicted after every op, and compared with
plain PyTorch to the last bit. `MEMFIT_OPS=40 MEMFIT_OPS_DOC=1 pytest python/tests/test_eager_opinfo.py` wrote
this page with torch {version}: {counts}.

## Refused

PyTorch computes some gradients by another formula as soon as anything watches its ops, memfit or not; their
last bits differ. memfit refuses such an op where its gradient is wanted, unless `exact=False` lets it
through.

| op | error |
|---|---|
{refused}

## Not compared

Results that are not the same from run to run without memfit either: {random}.

Entries that do not run without memfit on a CPU: {fails}.
"""
# What a refusal has to be: a new one is a bug until it stands here and in the docs.
REFUSED = {"masked.prod", "masked_fill", "prod"}


@pytest.fixture(scope="module", autouse=True)
def quick_starts():
    """A budget starts by looking for tensors among all objects: those there now are out of its sight."""
    entries = opinfo.entries()
    gc.collect()
    gc.freeze()
    yield entries
    gc.unfreeze()


def verdicts(entries, samples):
    for entry in entries:
        outcome, detail = opinfo.verdict(entry, samples)
        assert outcome != "differs", f"{opinfo.name_of(entry)}: {detail}"
        if outcome == "refused":
            assert opinfo.name_of(entry) in REFUSED, detail
        yield opinfo.name_of(entry), outcome, detail


@pytest.mark.skipif(SAMPLES > 0, reason="all are run")
def test_a_share_of_the_ops_gives_the_same_bits(quick_starts):
    part = 4 if ALL else 8
    found = Counter(outcome for _, outcome, _ in verdicts(quick_starts[::part], 2))
    assert found["same"] > 600 // part


@pytest.mark.skipif(SAMPLES > 0, reason="all are run")
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_op_is_refused_as_the_docs_say(quick_starts, name):
    (entry,) = [entry for entry in quick_starts if opinfo.name_of(entry) == name]
    outcome, detail = opinfo.verdict(entry, 40)
    assert outcome == "refused"
    assert f"| `{name}` | {detail} |" in DOC.read_text()


@pytest.mark.skipif(SAMPLES == 0, reason="`MEMFIT_OPS` is not set")
def test_all_ops_give_the_same_bits_or_are_refused(quick_starts):
    found = list(verdicts(quick_starts, SAMPLES))
    counts = Counter(outcome for _, outcome, _ in found)
    print(dict(counts))
    assert {name for name, outcome, _ in found if outcome == "refused"} == REFUSED
    assert counts["same"] > 600
    if os.environ.get("MEMFIT_OPS_DOC"):
        names = {kind: [f"`{name}`" for name, outcome, _ in found if outcome == kind] for kind in counts}
        rows = [f"| `{name}` | {detail} |" for name, outcome, detail in found if outcome == "refused"]
        said = {
            "same": "the same bits",
            "refused": "refused",
            "random": "not reproducible",
            "fails": "not run",
        }
        told = ", ".join(f"{counts[kind]} {text}" for kind, text in said.items())
        page = HEAD.format(
            version=torch.__version__.split("+")[0],
            counts=told,
            refused="\n".join(rows),
            random=", ".join(names.get("random", [])),
            fails=", ".join(names.get("fails", [])),
        )
        DOC.write_text(page)
