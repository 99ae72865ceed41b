"""Helpers for tests: export, validate, and look things up by name."""

import json
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from validate import validate

from memfit.torch import export

Json = dict[str, Any]


def capture(model: nn.Module, inputs: Any, loss_fn: Any = None, optimizer: str | None = None) -> Json:
    """Exports in memory; the graph has been through text and the validator."""
    graph = json.loads(export.capture(model, inputs, loss_fn, optimizer).dumps())
    validate(graph)
    return graph


def total(model: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    """A loss that any model has."""
    return model(*inputs).sum()


def classify(model: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy."""
    return F.cross_entropy(model(x), labels)


def kinds(graph: Json, phase: str = "forward") -> list[str]:
    """Kinds of the ops of a phase, in order."""
    return [op["kind"] for op in graph["ops"] if op.get("phase", "forward") == phase]


def ops(graph: Json, kind: str) -> list[Json]:
    """The ops of a kind, in order."""
    return [op for op in graph["ops"] if op["kind"] == kind]


def value(graph: Json, name: str) -> int:
    """Index of the value of that name."""
    (index,) = [at for at, found in enumerate(graph["values"]) if found["name"] == name]
    return index


def names(graph: Json, indices: list[int]) -> list[str]:
    """Names of values."""
    return [graph["values"][index]["name"] for index in indices]


def roles(graph: Json, role: str) -> list[str]:
    """Names of the values of a role."""
    return [found["name"] for found in graph["values"] if found.get("role", "activation") == role]
