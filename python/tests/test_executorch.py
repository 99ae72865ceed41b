"""Memory planning for ExecuTorch: against doubles of its specs, and against the package where there is one.

The package needs a PyTorch of its own; it is looked for in this Python and in the one that
`MEMFIT_EXECUTORCH_PYTHON` names: `python -m venv et && et/bin/pip install executorch torch`.
"""

import os
import pathlib
import random
import subprocess
import sys

import pytest

from memfit import InputError, UsageError
from memfit.executorch import allocate

ROOT = pathlib.Path(__file__).parents[2]


class Spec:
    """As ExecuTorch's `TensorSpec`: sizes are aligned, lifetimes are closed, equal only to itself."""

    def __init__(self, size, first, last, mem_id=None, base=None, within=0):
        self.size, self.lifetime, self.mem_id, self.alignment = size, [first, last], mem_id, 16
        self.storage_base, self.storage_base_offset = base, within

    @property
    def allocated_memory(self):
        return -(-self.size // self.alignment) * self.alignment

    def realign(self, new_alignment):
        self.alignment = new_alignment
        return self.allocated_memory


def check(specs, found, sizes, reserved=(), padding=0):
    """What ExecuTorch's own verifier asks, and that arenas are as high as they must be and no higher."""
    assert set(found) == set(specs)
    tops = {}
    for spec in specs:
        arena, _, offset = found[spec]
        assert arena >= 1 and offset % spec.alignment == 0
        assert offset >= (reserved[arena] if arena < len(reserved) else 0)
        tops[arena] = max(tops.get(arena, 0), offset + spec.allocated_memory)
    for arena, size in enumerate(sizes):
        assert size == (tops[arena] + padding if arena in tops else 0)
    for at, one in enumerate(specs):
        for other in specs[at + 1 :]:
            a, b = found[one], found[other]
            ends = a.offset + one.allocated_memory, b.offset + other.allocated_memory
            if a.arena != b.arena or a.offset >= ends[1] or b.offset >= ends[0]:
                continue
            assert a.group == b.group, "who shares bytes is in one group"
            is_within = other in backing(one) or one in backing(other)
            together = one.lifetime[0] <= other.lifetime[1] and other.lifetime[0] <= one.lifetime[1]
            assert is_within or not together, (vars(one), vars(other), a, b)


def backing(spec):
    all_of_them = []
    while spec is not None:
        all_of_them.append(spec)
        spec = spec.storage_base
    return all_of_them


@pytest.mark.parametrize("seed", range(40))
def test_tensors_that_are_alive_together_share_no_byte(seed):
    chance = random.Random(seed)
    specs = []
    for _ in range(chance.randrange(1, 40)):
        first = chance.randrange(30)
        size = chance.choice([0, 4, 100, 1024, chance.randrange(5000)])
        specs.append(Spec(size, first, first + chance.randrange(8), chance.choice([None, None, 1, 2, 4])))
    alignment = chance.choice([1, 16, 64])
    reserved, padding = chance.choice([(), (0, 100), (0, 32, 64)]), chance.choice([0, 64])
    for base in specs[: len(specs) // 3]:
        # In the storage of another, whose life covers this one's as ExecuTorch sees to.
        within = alignment * chance.randrange(2)
        if base.size > within + alignment:
            specs.append(Spec(base.size - within - alignment, *base.lifetime, base=base, within=within))
    found, sizes = allocate(specs, alignment=alignment, reserved=reserved, padding=padding)
    check(specs, found, sizes, reserved, padding)
    chance.shuffle(specs)
    again, same = allocate(specs, alignment=alignment, reserved=reserved, padding=padding)
    check(specs, again, same, reserved, padding)
    assert same == sizes, "the order of a set must not matter"


def test_an_arena_is_as_high_as_what_is_alive_at_once():
    specs = [Spec(64, 0, 1), Spec(64, 1, 2), Spec(64, 2, 3), Spec(64, 3, 4), Spec(30, 5, 5), Spec(100, 5, 6)]
    found, sizes = allocate(specs)
    check(specs, found, sizes)
    assert sizes == [0, 32 + 112]


def test_nothing_to_plan_has_two_arenas():
    assert allocate([]) == ({}, [0, 0])


def test_what_makes_no_sense_is_refused():
    lost, small = Spec(64, 0, 1), Spec(16, 0, 1)
    circle = Spec(16, 0, 1)
    circle.storage_base = circle
    for specs, part in (
        ([Spec(4, None, 3)], "lifetime"),
        ([Spec(4, 3, 2)], "lifetime"),
        ([Spec(4, 0, 1, base=lost)], "not planned"),
        ([circle], "or in itself"),
        ([small, Spec(17, 0, 1, base=small)], "too small"),
        ([small, Spec(16, 0, 1, base=small, within=16)], "too small"),
    ):
        with pytest.raises(InputError, match=part):
            allocate(specs)
    with pytest.raises(UsageError, match="known"):
        allocate([small], placer="magic")


def python_with_executorch():
    for python in filter(None, [os.environ.get("MEMFIT_EXECUTORCH_PYTHON"), sys.executable]):
        line = [python, "-c", "import executorch.exir.memory_planning, torch"]
        if subprocess.run(line, capture_output=True).returncode == 0:
            return python
    pytest.skip("no Python with executorch: name one with MEMFIT_EXECUTORCH_PYTHON")


def run(*arguments):
    line = [python_with_executorch(), *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_needs_less_and_computes_the_same():
    said = run(ROOT / "examples" / "executorch" / "plan.py")
    assert "blocks: 147456 B by ExecuTorch's greedy algorithm, 114688 B by memfit" in said
    assert "outputs equal  False" not in said
    assert "blocks: outputs equal  True" in said or "blocks: no runtime here" in said


VERIFIED = """
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, Verifier, greedy
from executorch.exir.passes import MemoryPlanningPass
import memfit.executorch

class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, flag, x):
        self.seen.add_(x)
        return torch.cond(flag, lambda y: y.sin() + y * 2, lambda y: (y + y).cos(), [x]) + self.seen

exported = torch.export.export(Counter().eval(), (torch.tensor(True), torch.randn(5)))
for allocated in (True, False):
    sizes = []
    for suite in (MemoryPlanningAlgorithmSuite(), memfit.executorch.suite(), memfit.executorch.suite(greedy)):
        planning = MemoryPlanningPass(
            memory_planning_algo=suite, alloc_graph_input=allocated, alloc_graph_output=allocated
        )
        edge = to_edge(exported).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
        program = edge.exported_program()
        verifier = Verifier(program.graph_module, allocated, allocated, True, program.graph_signature)
        verifier.verify_storage_reuse()
        sizes.append(sum(program.graph_module.meta["non_const_buffer_sizes"]))
    print("verified", sizes)
    assert sizes[1] <= sizes[0] and sizes[2] <= sizes[0]
"""


def test_executorch_verifies_what_it_is_given():
    """With a branch, whose submodules have their own part of the arena, and a buffer that is mutated."""
    assert run("-c", VERIFIED).count("verified") == 2
