"""`_late.order`: each node once, after what it reads, on its side; and as few bytes held as there can be."""

import itertools
import random

import pytest
import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx

from memfit.torch import _late

SIZE = (8, 16)


def ancestors(roots: list[Node]) -> set[Node]:
    seen: set[Node] = set()
    work = list(roots)
    while work:
        node = work.pop()
        if node not in seen:
            seen.add(node)
            work.extend(node.all_input_nodes)
    return seen


class Joint:
    """A traced program of (input, derivative) that returns what forward gives and what backward gives."""

    def __init__(self, program) -> None:
        graph = make_fx(program, tracing_mode="fake")(torch.randn(SIZE), torch.randn(SIZE)).graph
        *nodes, output = graph.nodes
        result, *gradients = output.args[0]
        needed = ancestors([result, *gradients])
        self.nodes = [node for node in nodes if node in needed]
        self.forward = ancestors([result])
        tangent = next(node for node in nodes if node.op == "placeholder" and node not in self.forward)
        self.late = {node for node in self.nodes if tangent in ancestors([node])}
        self.free = [node for node in self.nodes if node not in self.forward | self.late]

    def order(self, *, lean: bool, fixed: set[Node] = frozenset()) -> tuple[list[Node], list[Node]]:
        before, after = _late.order(self.nodes, self.forward, self.late, fixed, lean=lean)
        order = before + after
        assert len(order) == len(self.nodes)
        assert set(order) == set(self.nodes)
        at = {node: place for place, node in enumerate(order)}
        assert all(at[operand] < at[node] for node in order for operand in node.all_input_nodes)
        assert not self.late & set(before)
        assert self.forward | fixed <= set(before)
        return before, after

    @staticmethod
    def held(before: set[Node], after: set[Node]) -> int:
        """Bytes of what ops of `before` make and ops of `after` read."""
        made = [node for node in before if node.op == "call_function" and node.users.keys() & after]
        return sum(node.meta["val"].untyped_storage().nbytes() for node in made)


def test_a_mask_is_held_instead_of_what_it_is_made_of() -> None:
    def program(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        h = x * 3
        return h.relu(), t * (h > 0)

    joint = Joint(program)
    (mask,) = joint.free
    assert mask in joint.order(lean=True)[0]
    assert mask in joint.order(lean=False)[1]
    assert mask in joint.order(lean=False, fixed={mask})[0]


def drawn(seed: int):
    """A program whose backward reads a few things that forward does not need."""
    draw = random.Random(seed)

    def program(x: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        ways = [
            lambda a, b: a * b,
            lambda a, b: (a > b).to(torch.float16),
            lambda a, b: a - b.mean(1, keepdim=True),
            lambda a, _: a.exp(),
        ]
        forward = [x * 2.0]
        for _ in range(3):
            forward.append(draw.choice(ways)(draw.choice(forward), draw.choice(forward)).float())
        side = list(forward)
        for _ in range(3):
            side.append(draw.choice(ways)(draw.choice(side), draw.choice(side)))
        gradients = [t * draw.choice(side) for _ in range(3)]
        return (sum(forward), *gradients)

    return program


@pytest.mark.parametrize("seed", range(40))
def test_no_other_choice_holds_fewer_bytes(seed: int) -> None:
    joint = Joint(drawn(seed))
    before, after = joint.order(lean=True)
    held = Joint.held(set(before), set(after))
    for early in itertools.chain.from_iterable(
        itertools.combinations(joint.free, count) for count in range(len(joint.free) + 1)
    ):
        first = joint.forward | set(early)
        if all(operand in first for node in early for operand in node.all_input_nodes):
            assert held <= Joint.held(first, set(joint.nodes) - first)
    joint.order(lean=False)
