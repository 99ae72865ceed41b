"""PyTorch's own tables of modules and optimizers, with everything evicted after every op: the same bits.

Of the modules every eighth case is run, and the first variant of each optimizer in each of its forms;
`MEMFIT_MODULES=1` runs all of both, as `MEMFIT_ALL=1` does, and `MEMFIT_MODULES_DOC=1` then writes
docs/pytorch-modules.md anew.
"""

import copy
import gc
import inspect
import os
import pathlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sampling
import torch
from opinfo import bits, tensors
from torch import nn
from torch.utils import _pytree as pytree
from training import AMPLE, digest

import memfit
from memfit.torch.eager import Budget

ALL = sampling.ALL or bool(os.environ.get("MEMFIT_MODULES"))
DOC = pathlib.Path(__file__).parent.parent.parent / "docs" / "pytorch-modules.md"
HEAD = """\
# Modules and optimizers of PyTorch's

Every module and every optimizer of PyTorch's own tables (`module_db` and `optim_db` of
`torch.testing._internal`) is run on a CPU with everything evicted after every op, and compared with plain
PyTorch to the last bit: results, gradients, state. This was written with torch {version} by
`MEMFIT_MODULES=1 MEMFIT_MODULES_DOC=1 pytest python/tests/test_eager_modules.py`.

Cases are the tables' own inputs, for training and for evaluation. *Refused* is an error by memfit's name;
*not reproducible* differs from run to run without memfit either; *not run* raises without memfit on a CPU.

## Modules

{modules} modules, {cases}.

{module_rows}

## Optimizers

Three steps of each variant of its options, in each form: one parameter after another, `foreach`, `fused` and
`capturable`. On a CPU PyTorch runs no step that is `capturable`. {optimizers} optimizers, {steps}.

{optimizer_rows}
"""
SAID = {"same": "the same bits", "refused": "refused", "random": "not reproducible", "fails": "not run"}
# What a refusal has to be: a new one is a bug until it stands here.
REFUSED = {"nn.LinearCrossEntropyLoss"}


@pytest.fixture(scope="module", autouse=True)
def quick_starts():
    """A budget starts by looking for tensors among all objects: those there now are out of its sight."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_modules, common_optimizers  # noqa: F401
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


Run = Callable[[], list[str]]


def outcome(run: Run) -> list[str] | Exception:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            return [*run(), digest(torch.get_rng_state())]
        except Exception as error:
            return error


def verdict(run: Run) -> str:
    """`same`, `refused`, or without memfit `fails`, or `random`: differs from run to run."""
    plain = outcome(run)
    if isinstance(plain, Exception):
        return "fails"

    def within() -> list[str]:
        with Budget(AMPLE, evict_all=True):
            return run()

    found = outcome(within)
    if found == plain:
        return "same"
    if any(outcome(run) != plain for _ in range(3)):
        return "random"
    if isinstance(found, Exception):
        assert "memfit" in str(found) or isinstance(found, memfit.BudgetError), repr(found)
        return "refused"
    raise AssertionError([one == other for one, other in zip(plain, found, strict=True)])


def anew(value: Any) -> Any:
    """Made by ops, so that memfit can take the copies away and make them again."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(one, value)


def modules() -> Iterator[tuple[str, Run]]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for training in (True, False):
            torch.manual_seed(0)
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
            # One has hundreds.
            for at, sample in list(enumerate(inputs))[:: 1 + len(inputs) // 24]:
                if sample.forward_input is not None:
                    yield f"{info.name} {at} {training}", applied(info, sample, training)


def applied(info: Any, sample: Any, training: bool) -> Run:
    def run() -> list[str]:
        made, given = sample.constructor_input, sample.forward_input
        module = info.module_cls(*made.args, **made.kwargs).train(training)
        args, kwargs = anew((given.args, given.kwargs))
        results = tensors(module(*args, **kwargs))
        leaves = [leaf for leaf in (*module.parameters(), *tensors((args, kwargs))) if leaf.requires_grad]
        wanted = [result for result in results if result.requires_grad]
        found: list[torch.Tensor] = []
        if wanted and leaves:
            weights = [torch.randn_like(result.detach()) for result in wanted]
            gradients = torch.autograd.grad(wanted, leaves, weights, allow_unused=True)
            found = [gradient for gradient in gradients if gradient is not None]
        return bits([*results, *found, *module.state_dict().values()])

    return run


@pytest.mark.skipif(ALL, reason="all are run")
@pytest.mark.parametrize("share", range(4))
def test_modules_give_the_same_bits(share):
    chosen = list(modules())[share::32]
    found = Counter()
    for name, run in chosen:
        told = verdict(run)
        assert told != "refused" or name.split()[0] in REFUSED, name
        found[told] += 1
    print(dict(found))
    assert found["same"] > 0.95 * len(chosen)


def optimizers() -> Iterator[tuple[str, Run]]:
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        forms = [{name: True} for name in info.supported_impls if name in ("foreach", "fused")]
        if ALL and "capturable" in inspect.signature(info.optim_cls).parameters:
            forms.append({"capturable": True})
        for form in ({"foreach": False} if "foreach" in info.supported_impls else {}, *forms):
            if "fused" in form and "cpu" not in info.supports_fused_on:
                continue
            for at, inputs in enumerate(info.optim_inputs_func(device="cpu")[: None if ALL else 1]):
                kwargs = {**copy.deepcopy(inputs.kwargs), **form}
                said = "".join(f" {each}" for each, on in form.items() if on)
                yield f"{info.optim_cls.__name__}{said} {at}", optimized(info.optim_cls, kwargs)


def optimized(kind: Callable[..., torch.optim.Optimizer], kwargs: dict[str, Any]) -> Run:
    def run() -> list[str]:
        sparse = kind is torch.optim.SparseAdam
        net: nn.Module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        if sparse:
            net = nn.Embedding(10, 6, sparse=True)
            kwargs.pop("foreach", None)
        if kind is torch.optim.LBFGS:
            kwargs.setdefault("max_iter", 4)  # Each of its steps hangs on all before it.
        matrices = kind is torch.optim.Muon
        optimizer = kind([each for each in net.parameters() if each.dim() == 2 or not matrices], **kwargs)
        for _ in range(3):
            batch = torch.randint(0, 10, (4,)) if sparse else torch.randn(4, 6)

            def closure(batch: torch.Tensor = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = (net(batch) ** 2).sum()
                loss.backward()
                return loss

            optimizer.step(closure)
        state = [value for each in optimizer.state.values() for value in tensors(each)]
        return bits([*net.state_dict().values(), *state])

    return run


@pytest.mark.skipif(ALL, reason="all are run")
def test_optimizers_give_the_same_bits():
    found = Counter()
    for name, run in optimizers():
        told = verdict(run)
        assert told not in ("refused", "random"), name
        found[told] += 1
    print(dict(found))
    assert found["same"] >= 30


def table(found: dict[str, Counter[str]]) -> tuple[str, str]:
    """Rows, one for each name, and the counts of all."""
    total = sum(found.values(), Counter())
    told = ", ".join(f"{total[kind]} {text}" for kind, text in SAID.items() if total[kind])
    rows = [f"| | {' | '.join(SAID.values())} |", f"|---|{'--:|' * len(SAID)}"]
    for name, counts in found.items():
        rows.append(f"| `{name}` | {' | '.join(str(counts[kind] or '') for kind in SAID)} |")
    return "\n".join(rows), told


@pytest.mark.skipif(not ALL, reason="`MEMFIT_MODULES` is not set")
def test_all_give_the_same_bits_or_are_refused():
    of_modules: dict[str, Counter[str]] = defaultdict(Counter)
    of_optimizers: dict[str, Counter[str]] = defaultdict(Counter)
    for name, run in modules():
        told = verdict(run)
        assert told != "refused" or name.split()[0] in REFUSED, name
        of_modules[name.split()[0]][told] += 1
    for name, run in optimizers():
        told = verdict(run)
        assert told not in ("refused", "random"), name
        assert told != "fails" or "capturable" in name, name
        of_optimizers[" ".join(name.split()[:-1])][told] += 1
    total, steps = (sum(found.values(), Counter()) for found in (of_modules, of_optimizers))
    print(dict(total), dict(steps))
    assert total["same"] > 0.95 * total.total()
    assert {name for name, counts in of_modules.items() if counts["refused"]} == REFUSED
    if os.environ.get("MEMFIT_MODULES_DOC"):
        module_rows, cases = table(of_modules)
        optimizer_rows, counted = table(of_optimizers)
        page = HEAD.format(
            version=torch.__version__.split("+")[0],
            modules=len(of_modules),
            cases=cases,
            module_rows=module_rows,
            optimizers=len({name.split()[0] for name in of_optimizers}),
            steps=counted,
            optimizer_rows=optimizer_rows,
        )
        DOC.write_text(page)
