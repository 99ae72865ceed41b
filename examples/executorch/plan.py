"""ExecuTorch with memfit's memory planning beside its own: bytes of the arenas, and the same program.

pip install executorch
python plan.py
"""

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
from executorch.exir.passes import MemoryPlanningPass
from torch import nn

import memfit.executorch


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Pyramid(nn.Module):
    """Branches of several resolutions that are live together."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList(nn.Conv2d(8 << at, 16 << at, 3, stride=2, padding=1) for at in range(3))
        self.sides = nn.ModuleList(nn.Conv2d(8 << at, 12, 1) for at in range(4))
        self.head = nn.Conv2d(12, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = [x]
        for step in self.steps:
            levels.append(torch.relu(step(levels[-1])))
        y = self.sides[3](levels[3])
        for at in (2, 1, 0):
            y = nn.functional.interpolate(y, scale_factor=2.0, mode="nearest") + self.sides[at](levels[at])
        return self.head(y)


def planned(model: nn.Module, inputs: tuple[torch.Tensor, ...], suite: object) -> tuple[int, bytes]:
    """Bytes of all arenas, and the program."""
    planning = MemoryPlanningPass(memory_planning_algo=suite)
    edge = to_edge(torch.export.export(model.eval(), inputs))
    program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    sizes = program.exported_program().graph_module.meta["non_const_buffer_sizes"]
    return sum(sizes), program.buffer


def outputs(program: bytes, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor] | None:
    """What the runtime makes of it, where the package has one for this PyTorch."""
    try:
        from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
    except ImportError:
        return None
    return _load_for_executorch_from_buffer(program).forward(inputs)


def main() -> None:
    torch.manual_seed(0)
    for name, model, inputs in (
        ("blocks", nn.Sequential(*(Block(64) for _ in range(4))), (torch.randn(1, 32, 64),)),
        ("pyramid", Pyramid(), (torch.randn(1, 8, 64, 64),)),
    ):
        theirs, plain = planned(model, inputs, MemoryPlanningAlgorithmSuite())
        ours, program = planned(model, inputs, memfit.executorch.suite())
        print(f"{name}: {theirs} B by ExecuTorch's greedy algorithm, {ours} B by memfit")
        one, other = outputs(plain, inputs), outputs(program, inputs)
        if one is None or other is None:
            print(f"{name}: no runtime here")
        else:
            same = all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
            print(f"{name}: outputs equal  {same}")


if __name__ == "__main__":
    main()
