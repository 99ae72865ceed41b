"""Training loops of other tools within a budget: the same bits, the limit held, what was done logged."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import CPU, digest

import memfit
import memfit.torch
from memfit.torch.integrations._loop import Loop
from memfit.torch.meter import Meter, live_bytes

pytestmark = pytest.mark.filterwarnings("ignore")
# The engine's own portfolio plans in a fraction of a second.
QUICK = {"strategy": "evict:planned"}
METRICS = {f"memfit/{name}_{kind}" for name, kind in (("peak", "bytes"), ("budget", "bytes"))} | {
    "memfit/recomputed_ops",
    "memfit/moved_bytes",
}


class Blocks(nn.Module):
    """Activations outweigh all else; dropout and batch normalisation have state."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU(), nn.Dropout(0.1))
            for _ in range(6)
        )
        self.out = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        for block in self.blocks:
            x = x + block(x)
        logits = self.out(x)
        if labels is None:
            return logits
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Rows(torch.utils.data.Dataset):
    """Rows of numbers with their labels."""

    def __init__(self, count: int = 1536) -> None:
        self.x, self.labels = torch.randn(count, 48), torch.randint(5, (count,))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[at], "labels": self.labels[at]}


def started() -> tuple[Blocks, Rows]:
    gc.collect()
    torch.manual_seed(0)
    return Blocks(), Rows()


def left(model: nn.Module, optimizer: Any) -> list[str]:
    state = [value for values in optimizer.state.values() for value in values.values()]
    return [digest(value) for value in [*model.state_dict().values(), *state]]


def budget_for(peak: int, before: int, share: float = 0.6) -> int:
    """A share of what a training took above what was there before, now that something else may be there."""
    gc.collect()
    return int(live_bytes(CPU) + share * (peak - before))


def within_and_without(train: Any) -> tuple[Any, Any]:
    """What `train(budget)` leaves without a budget and with a tight one, which it has to keep to."""
    gc.collect()
    before = live_bytes(CPU)
    with Meter() as meter:
        expected = train(None)
    budget = budget_for(meter.peak_bytes, before)
    with Meter() as meter:
        got = train(budget)
    assert meter.peak_bytes <= budget
    assert not memfit.torch.is_enabled()
    return expected, got


def check_metrics(logged: list[dict[str, Any]]) -> None:
    """Metrics were logged, say that the budget was kept to, and that something was computed again."""
    mine = [{name: row[name] for name in METRICS} for row in logged if set(row) >= METRICS]
    assert mine
    assert all(0 < row["memfit/peak_bytes"] <= row["memfit/budget_bytes"] for row in mine)
    assert sum(row["memfit/recomputed_ops"] for row in mine) > 0
    assert all(row["memfit/moved_bytes"] == 0 for row in mine)


def check_usable(model: nn.Module) -> None:
    """No budget is left, and every parameter has its bytes."""
    assert not memfit.torch.is_enabled()
    with torch.no_grad():
        assert model.eval()(torch.randn(4, 48)).isfinite().all()
    assert all(parameter.detach().clone().isfinite().all() for parameter in model.parameters())


def test_no_tool_is_imported_before_its_module():
    code = (
        "import sys, memfit.torch; memfit.torch.integrations.Loop; "
        "print([tool for tool in memfit.torch.integrations.TOOLS if tool in sys.modules])"
    )
    folder = str(Path(memfit.__file__).parent.parent)
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": folder}
    )
    assert told.stdout.strip() == "[]", told.stderr
    with pytest.raises(AttributeError, match="keras"):
        memfit.torch.integrations.keras  # noqa: B018


# A loop of one's own


def loop_of_steps(loop: Loop | None, steps: int = 6) -> tuple[list[float], list[str]]:
    model, rows = started()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    if loop is not None:
        loop.begin()
    for at in range(steps):
        if loop is not None:
            loop.step_begins()
        part = slice(256 * at % 1536, 256 * at % 1536 + 256)
        loss = model(rows.x[part], rows.labels[part])["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        del loss
        if loop is not None:
            loop.step_ends()
    if loop is not None:
        loop.end()
    return losses, left(model, optimizer)


def test_steps_of_a_loop_follow_their_plan():
    loops = []

    def train(budget: int | None) -> Any:
        if budget is not None:
            loops.append(Loop(budget, **QUICK))
        return loop_of_steps(loops[-1] if loops else None)

    expected, got = within_and_without(train)
    assert got == expected
    assert loops[0].steps == 6
    assert loops[0].planned_steps >= 3
    loops[0].end()  # Once more: nothing to do.
    assert loops[0].metrics()["memfit/recomputed_ops"] > 0


def test_a_loop_without_plans_and_one_that_moves_are_the_same():
    before = live_bytes(CPU)
    with Meter() as meter:
        expected = loop_of_steps(None)
    for options in ({"plan": False}, {"host_budget": "64MiB", "recompute": False}):
        loop = Loop(budget_for(meter.peak_bytes, before), **options)
        assert loop_of_steps(loop) == expected
        told = loop.metrics()
        assert (told["memfit/moved_bytes"] > 0) == ("host_budget" in options)
        assert (loop.planned_steps > 0) == ("host_budget" in options)


def test_what_is_held_at_the_end_of_a_step_and_does_not_fit_goes_on_unplanned():
    """What is held may be evicted, but it can't all be brought back at once."""

    def chain(loop: Loop | None) -> str:
        x = torch.ones(1000)
        kept = []
        if loop is not None:
            loop.begin()
            loop.step_begins()
        for _ in range(20):
            x = x * 1.5
            kept.append(x)
        if loop is not None:
            loop.step_ends()
        total = sum(float(tensor.sum()) for tensor in kept)
        kept.clear()
        if loop is not None:
            loop.step_begins()
            loop.end()
        return repr(total)

    expected = chain(None)
    gc.collect()
    loop = Loop(live_bytes(CPU) + 40_000)
    assert chain(loop) == expected
    assert loop.steps == 0


def test_an_interrupt_in_mid_step_ends_the_loop():
    loop = Loop(1 << 40)
    x = torch.ones(10)
    loop.begin()
    loop.step_begins()
    y = x + 1
    loop.end(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert not memfit.torch.is_enabled()
    assert float(y.sum()) == 20.0


# Checkpoints


def test_what_is_computed_from_a_model_that_safetensors_has_saved_may_go(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    pytest.importorskip("accelerate")
    from accelerate.utils.modeling import id_tensor_storage

    weight = torch.randn(100)
    expected = weight.exp()
    with memfit.torch.Budget(1 << 40):
        doubled = weight * 2
        expected_doubled = doubled.clone()
        assert memfit.torch.drop(doubled)
        id_tensor_storage(weight)
        safetensors.save_file({"weight": weight, "doubled": doubled}, tmp_path / "model.safetensors")
        assert not memfit.torch.drop(doubled)  # Its address was handed out.
        result = weight.exp()
        assert memfit.torch.drop(result)
        assert torch.equal(result, expected)
        weight.numpy()
        exposed = weight.exp()
        assert not memfit.torch.drop(exposed)  # Others may write to the weight now.
    loaded = safetensors.load_file(tmp_path / "model.safetensors")
    assert torch.equal(loaded["weight"], weight)
    assert torch.equal(loaded["doubled"], expected_doubled)


def test_what_waits_in_host_memory_is_saved(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    x = torch.randn(100)
    expected = x.exp()
    with memfit.torch.Budget(1 << 40, host_budget="1MiB"):
        result = x.exp()
        assert memfit.torch.swap_out(result)
        safetensors.save_file({"result": result}, tmp_path / "model.safetensors")
        assert not memfit.torch.swap_out(result)
    assert torch.equal(safetensors.load_file(tmp_path / "model.safetensors")["result"], expected)


# transformers


def hugging_face(folder: Path, budget: int | None, resume: bool = False, fails: bool = False, **more: Any):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from memfit.torch.integrations.transformers import MemfitCallback

    class Failing(transformers.Trainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            if fails and self.state.global_step == 3:
                raise ZeroDivisionError("in mid-step")
            return loss

    model, rows = started()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=128, per_device_eval_batch_size=128,
        gradient_accumulation_steps=2, report_to=[], logging_steps=1, use_cpu=True, disable_tqdm=True, seed=3,
        eval_strategy="steps", eval_steps=4, save_strategy="steps", save_steps=3, **{"max_steps": 8, **more},
    )  # fmt: skip
    callbacks = [] if budget is None else [MemfitCallback(budget, **QUICK)]
    trainer = Failing(model=model, args=arguments, train_dataset=rows, eval_dataset=rows, callbacks=callbacks)
    try:
        trainer.train(resume_from_checkpoint=resume)
    finally:
        trainer.model_under_test = model
        hugging_face.last = trainer
    named = ("step", "loss", "eval_loss", "grad_norm")
    told = [[repr(row.get(name)) for name in named] for row in trainer.state.log_history]
    return told, left(model, trainer.optimizer.optimizer)


@pytest.fixture
def no_trainer():
    hugging_face.last = None
    yield
    hugging_face.last = None


def test_the_trainer_with_accumulation_evaluation_and_checkpoints(tmp_path, no_trainer):
    def train(budget: int | None) -> Any:
        hugging_face.last = None
        return hugging_face(tmp_path / str(budget), budget)

    expected, got = within_and_without(train)
    assert got == expected
    trainer = hugging_face.last
    check_metrics(trainer.state.log_history)
    (loop,) = [each.loop for each in trainer.callback_handler.callbacks if hasattr(each, "loop")]
    assert loop.steps == 8
    assert loop.planned_steps >= 2


def test_the_trainer_tells_metrics_to_callbacks_that_came_before(tmp_path, no_trainer):
    transformers = pytest.importorskip("transformers")
    from memfit.torch.integrations.transformers import MemfitCallback

    seen: list[dict[str, Any]] = []

    class Board(transformers.TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            seen.append(dict(logs))

    model, rows = started()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, report_to=[], logging_steps=1, use_cpu=True, disable_tqdm=True,
        save_strategy="no",
    )  # fmt: skip
    callbacks = [Board(), MemfitCallback("8GiB")]
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=callbacks).train()
    assert len(seen) >= 2 and all(set(row) >= METRICS for row in seen)


def test_a_callback_serves_one_training_after_another(tmp_path):
    transformers = pytest.importorskip("transformers")
    from memfit.torch.integrations.transformers import MemfitCallback

    callback = MemfitCallback("8GiB")
    for steps in (2, 3):
        model, rows = started()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=steps, report_to=[], use_cpu=True, disable_tqdm=True,
            save_strategy="no",
        )  # fmt: skip
        transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[callback]).train()
        assert not memfit.torch.is_enabled()
    assert callback.loop.steps == 5


def test_the_trainer_goes_on_from_a_checkpoint(tmp_path, no_trainer):
    def train(budget: int | None) -> Any:
        hugging_face.last = None
        hugging_face(tmp_path / str(budget), None, max_steps=3)
        hugging_face.last = None
        return hugging_face(tmp_path / str(budget), budget, resume=True)

    expected, got = within_and_without(train)
    assert got == expected
    check_metrics(hugging_face.last.state.log_history)


def test_an_error_in_the_trainer_leaves_the_model_usable(tmp_path, no_trainer):
    before = live_bytes(CPU)
    with Meter() as meter:
        hugging_face(tmp_path / "plain", None)
    hugging_face.last = None
    with pytest.raises(ZeroDivisionError):
        hugging_face(tmp_path / "failing", budget_for(meter.peak_bytes, before, 0.8), fails=True)
    check_usable(hugging_face.last.model_under_test)


def test_too_small_a_budget_is_told_by_the_trainer(tmp_path, no_trainer):
    started()
    with pytest.raises(memfit.BudgetError) as told:
        hugging_face(tmp_path, live_bytes(CPU) + 700_000)
    assert told.value.hint and told.value.least_budget_bytes > told.value.budget_bytes
    check_usable(hugging_face.last.model_under_test)


# Accelerate


def accelerated(folder: Path, budget: int | None, logged: list[Any], fails: bool = False) -> Any:
    accelerate = pytest.importorskip("accelerate")
    from accelerate.tracking import GeneralTracker

    from memfit.torch.integrations.accelerate import budget as block

    class Log(GeneralTracker):
        name, requires_logging_directory, main_process_only = "log", False, True

        @property
        def tracker(self) -> Any:
            return logged

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            pass

        def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
            logged.append({**values, "step": step})

    model, rows = started()
    accelerated.model = model
    accelerator = accelerate.Accelerator(cpu=True, log_with=Log(), gradient_accumulation_steps=2)
    accelerator.init_trackers("test")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    loader = torch.utils.data.DataLoader(rows, 256)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses: list[float] = []

    def epoch(batches: Any) -> None:
        for at, batch in enumerate(batches):
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                if fails and at == 3:
                    raise ZeroDivisionError("in mid-step")
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            accelerator.log({"loss": losses[-1]}, step=at)

    if budget is None:
        epoch(loader)
        epoch(loader)
    else:
        with block(accelerator, budget, **QUICK) as within:
            epoch(within.steps(loader))
            accelerator.save_state(str(folder))
            epoch(within.steps(loader))
        assert within.loop.steps == 12
        assert within.loop.planned_steps >= 2
    accelerator.log({"after": 1})
    return losses, left(accelerator.unwrap_model(model), optimizer.optimizer)


def test_accelerate_with_accumulation_and_a_checkpoint(tmp_path):
    logged: list[Any] = []
    expected, got = within_and_without(lambda budget: accelerated(tmp_path, budget, logged))
    assert got == expected
    check_metrics(logged)
    assert set(logged[-1]) == {"after", "step"}


def test_an_error_in_the_block_of_accelerate_leaves_the_model_usable(tmp_path):
    with pytest.raises(ZeroDivisionError):
        accelerated(tmp_path, 1 << 34, [], fails=True)
    check_usable(accelerated.model)


def test_too_small_a_budget_is_told_by_accelerate(tmp_path):
    started()
    with pytest.raises(memfit.BudgetError) as told:
        accelerated(tmp_path, live_bytes(CPU) + 700_000, [])
    assert told.value.hint and told.value.least_budget_bytes > told.value.budget_bytes
    check_usable(accelerated.model)
